"""Laws of amounts, dates and times: other spellings are the same, other things are not."""

import pytest

from ragfault.judges.encoder.agreement import settle_agreement
from ragfault.text.entities import EntityIndex, extract_entities

SAME = """
£12 = 12 pounds = 12 pounds sterling = GBP 12 = twelve pounds = £12.00
£1 = 1 pound = one pound = 100p = 100 pence
£12.50 = 12 pounds 50 pence = 12 pounds and 50 pence = 12 pounds 50p
£0.48 = 48p = 48 pence
9.8p = 9.8 pence
1p = 1 penny
€5 = 5 euros = EUR 5 = 5 € = 5 EUR = 5,00 €
€1.200,50 = 1200.50 euros
$5 = 5 dollars = USD 5 = US$5 = 5 US dollars
$0.50 = 50 cents
$1.50 = 1 dollar 50 cents
A$20 = 20 Australian dollars = AUD 20
200 kr = 200 kroner = kr 200 = 200 NOK = 200 Norwegian kroner
SEK 200 = 200 kronor
CHF 20 = 20 francs = 20 Swiss francs
₹500 = 500 rupees = Rs 500 = Rs. 500
5% = 5 % = 5 per cent = 5 percent = 5 pct
1,200 = 1200 = 1 200 = 1.2k
£1.2m = £1,200,000 = 1.2 million pounds
120 = one hundred and twenty = a hundred and twenty
1205 = one thousand two hundred and five
2pm = 2 p.m. = 14:00
2.30pm = 2:30 pm = 14:30 = half past two = half past 2 pm
3 o'clock = 15:00 = 3 pm
quarter to three = 14:45
noon = midday = 12:00 = 12 noon = 12 pm
midnight = 00:00 = 12 am
3rd = third
March 3 = 3 March = 3rd of March
March 3, 2024 = 3 March 2024 = 2024-03-03
50 km/h = 50 kph = 50 kilometres per hour
12 lb = 12 lbs = 12 pounds
5 m² = 5 sq m = 5 square metres
1.5 hours = 90 minutes
"""
OTHER = """
£12 / 12 lb / 12 dollars / £120 / 12p / 12 kg
12 pounds / €12 / 12 kg
48p / 48% / £48 / 48 cents
9.8p / 9p / 9.8% / 98p
4.5% / 45%
$5 / A$5 / 5 euros
1,200 / 1.2 / 12
2pm / 2am / 02:00
half past two / 02:00 / half past three
3rd / 2nd
March 3 / 3 May
3/4 / 4/3 / 34
50 km/h / 50 mph
200 NOK / 200 SEK / 200 francs
12 p.m. / 12 a.m.
12:30 / 1230
"""


def _list_pairs(table: str, mark: str) -> list[tuple[str, str]]:
    rows = [[text.strip() for text in row.split(mark)] for row in table.strip().splitlines()]
    return [(row[0], other) for row in rows for other in row[1:]]


def _states(answer: str, reference: str) -> bool:
    return all(entity in EntityIndex(answer) for entity in extract_entities(reference))


@pytest.mark.parametrize(("left", "right"), _list_pairs(SAME, " = "))
def test_an_amount_in_another_spelling_states_the_same(left: str, right: str) -> None:
    """Each holds the other, and they are not told apart."""
    assert _states(left, right)
    assert _states(right, left)
    assert settle_agreement(left, right) is not False


@pytest.mark.parametrize(("left", "right"), _list_pairs(OTHER, " / "))
def test_amounts_of_other_things_are_not_the_same(left: str, right: str) -> None:
    """At least one of them does not state the other, and they are not settled as the same."""
    assert not (_states(left, right) and _states(right, left))
    assert settle_agreement(left, right) is not True


@pytest.mark.parametrize(("left", "right"), [("£12", "12 pounds"), ("$0.50", "50 cents"), ("14:30", "half past two")])
def test_a_name_of_several_units_leaves_open_which_is_meant(left: str, right: str) -> None:
    """Words do not settle whether pounds are money: who reads the question may."""
    assert settle_agreement(left, right) is None
