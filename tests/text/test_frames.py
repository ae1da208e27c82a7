"""Tests of values that differ between sentences of one frame."""

from __future__ import annotations

import pytest

from ragfault.text.frames import find_value_difference


@pytest.mark.parametrize(
    ("expected", "stated"),
    [
        ("Simmer 1.2 kg of plums with 600 g of sugar.", "Simmer 600 g of plums with 1.2 kg of sugar."),
        ("Ito defeated Mensah in the final of 2019.", "Mensah defeated Ito in the final of 2019."),
        ("A Pro key gets 402, while a Free key is served on.", "A Free key gets 402, while a Pro key is served on."),
    ],
)
def test_values_in_each_others_places_are_exchanged(expected: str, stated: str) -> None:
    difference = find_value_difference(expected, stated)
    assert difference is not None
    assert difference.is_exchange


@pytest.mark.parametrize(
    ("expected", "stated"),
    [
        ("The grant was raised from 500 to 800 euros in 2020.", "The grant was raised from 500 to 900 euros in 2020."),
        ("Claims lapse after three years, others after one.", "Claims lapse after ten years."),
        ("The hood itself, built in 2016, worked.", "The hood itself was built in 1998."),
    ],
)
def test_another_number_in_the_same_frame_differs(expected: str, stated: str) -> None:
    difference = find_value_difference(expected, stated)
    assert difference is not None
    assert not difference.is_exchange


@pytest.mark.parametrize(
    ("expected", "stated"),
    [
        # a list in another order, and whole clauses that have changed places
        ("The shops of Oslo, Bergen and Molde are open.", "The shops of Molde, Oslo and Bergen are open."),
        ("Guests pay 5 per cent on Intensive and 10 per cent on Standard.",
         "Guests pay 10 per cent on Standard and 5 per cent on Intensive."),
        # another spelling, a rounded number, a part of a name
        ("The trip takes 3 hours and costs 20 euros.", "The trip takes three hours and costs €20."),
        ("The city has 4.98 million inhabitants in all.", "The city has 5 million inhabitants in all."),
        ("The prize went to Ama Mensah of the club.", "The prize went to Mensah of the club."),
        # the passive: the words around the values differ
        ("Ito defeated Mensah in the final.", "Mensah was defeated by Ito in the final."),
        # what is stated stands elsewhere in the sentence
        ("Phil Smith, 25, scaled a high fence.", "Phil Smith scaled a high fence."),
        ("The 1.6 engine may tow 1,500 kg, the 2.0 engine 2,000 kg.", "The 2.0 engine may tow 2,000 kg."),
        # all values are others: it is said of something else
        ("The fee in Oslo is 12 euros a day.", "The fee in Bergen is 6 dollars a day."),
    ],
)  # fmt: skip
def test_the_same_values_in_other_words_do_not_differ(expected: str, stated: str) -> None:
    assert find_value_difference(expected, stated) is None
