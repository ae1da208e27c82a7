"""Laws of plain sense: what an altered answer must never pass as, and what a right one must. Known gaps are named."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from ragfault.judges.loading import load_judge
from ragfault.model.protocols import Judge
from ragfault.model.records import Chunk, ClaimVerdict, Trace, Verdicts

HOLDS = ("supported", "inferred")
NAMES = ("lexical", "embedded", "encoder")

GEOGRAPHY = (
    "France is divided into 18 regions. Paris is the capital of France and its largest city. Lyon, on the "
    "Rhône, is known for its silk trade and its cooking.",
    "Vienna is the capital of Austria and lies on the Danube. Its opera house opened in 1869, and its first "
    "underground line in 1978. Mozart spent the last ten years of his life in Vienna.",
    "The Niger delta lies in Nigeria, where most of the country's oil is produced. Lagos is the largest city "
    "of Nigeria.",
)
COMPANY = (
    "Halvorsen Shipping acquired Lindqvist Marine in 2014 for $1,234 million. The head office of Halvorsen "
    "Shipping is in Rotterdam; its main warehouse is in Antwerp.",
    "Sales rose by 12.5 % in the third quarter, after a weak second quarter. Revenue was $40 million in 2021 "
    "and $50 million in 2022. The board proposed a dividend of €3.40 for each share.",
    "Marit Halvorsen succeeded Olaf Berg as chief executive in 2019. The works council approved the new "
    "pension plan in March. Halvorsen Shipping was founded in 1921 and first listed in 1987.",
)
CLINIC = (
    "Lisinopril reduces blood pressure in adults with hypertension. The usual starting dose is 10 mg once "
    "daily. It is not recommended during pregnancy.",
    "Ibuprofen increases the risk of stomach bleeding when taken with alcohol. Patients should drink plenty "
    "of water and report any dizziness to their physician.",
    "The vaccine must be stored between 2 °C and 8 °C. After opening, the vial may be used for 6 hours. A "
    "booster is given after 12 months. Nurses may administer the vaccine without a physician present.",
)
TENANCY = (
    "The tenant must pay the landlord a deposit of one month's rent before moving in. The deposit is returned "
    "within 30 days after the tenancy ends.",
    "The landlord is responsible for repairs to the heating. Pets are allowed in the building with written "
    "consent. Smoking is prohibited in all common areas.",
    "Either party may end the lease with two months' notice. The north car park has 120 spaces and the south "
    "car park has 80 spaces. Visitors may park for 3 hours.",
)
HISTORY = (
    "The Kestrel Bridge was designed by Ada Thornton and opened in 1934. It is 640 metres long and carries "
    "two tracks and four lanes of road. The museum beside it opened in 1950, and its extension was added in "
    "1985.",
    "The inspectors wrote: “The bridge remained closed to heavy traffic until the spring inspection.” The "
    "council accepted the report without a vote. The mayor said: “We will reopen the bridge before the summer "
    "holidays.”",
    "The ferry leaves the island at 9:00 and arrives in town at 11:30. In the final of 1998 Brazil beat "
    "Norway in front of 20,000 people. Maria Dupont taught Jean Moreau at the academy in Lille.",
)


class Case(NamedTuple):
    """A claim that holds in a context, and one that was made of it and does not."""

    chunks: tuple[str, ...]
    true: str
    false: str = ""


PLACES = [
    Case(GEOGRAPHY, "Paris is the capital of France.", "Lyon is the capital of France."),
    Case(GEOGRAPHY, "Lyon is known for its silk trade.", "Paris is known for its silk trade."),
    Case(
        GEOGRAPHY,
        "Mozart spent the last ten years of his life in Vienna.",
        "Mozart spent the last ten years of his life in Paris.",
    ),
    Case(
        COMPANY,
        "The head office of Halvorsen Shipping is in Rotterdam.",
        "The head office of Halvorsen Shipping is in Antwerp.",
    ),
]
ROLES = [
    Case(
        COMPANY,
        "Halvorsen Shipping acquired Lindqvist Marine in 2014.",
        "Lindqvist Marine acquired Halvorsen Shipping in 2014.",
    ),
    Case(
        COMPANY,
        "Marit Halvorsen succeeded Olaf Berg as chief executive in 2019.",
        "Olaf Berg succeeded Marit Halvorsen as chief executive in 2019.",
    ),
    Case(
        TENANCY,
        "The tenant must pay the landlord a deposit of one month's rent.",
        "The landlord must pay the tenant a deposit of one month's rent.",
    ),
    Case(HISTORY, "Brazil beat Norway in the final of 1998.", "Norway beat Brazil in the final of 1998."),
    Case(
        HISTORY,
        "Maria Dupont taught Jean Moreau at the academy in Lille.",
        "Jean Moreau taught Maria Dupont at the academy in Lille.",
    ),
]
OPPOSITES = [
    Case(
        CLINIC,
        "Lisinopril reduces blood pressure in adults with hypertension.",
        "Lisinopril increases blood pressure in adults with hypertension.",
    ),
    Case(
        CLINIC,
        "Ibuprofen increases the risk of stomach bleeding when taken with alcohol.",
        "Ibuprofen reduces the risk of stomach bleeding when taken with alcohol.",
    ),
    Case(COMPANY, "Sales rose by 12.5 % in the third quarter.", "Sales fell by 12.5 % in the third quarter."),
    Case(TENANCY, "Smoking is prohibited in all common areas.", "Smoking is permitted in all common areas."),
]
YEARS = [
    Case(COMPANY, "Halvorsen Shipping was founded in 1921.", "Halvorsen Shipping was founded in 2921."),
    Case(COMPANY, "Halvorsen Shipping was first listed in 1987.", "Halvorsen Shipping was first listed in 1978."),
    Case(GEOGRAPHY, "The opera house of Vienna opened in 1869.", "The opera house of Vienna opened in 1978."),
    Case(HISTORY, "The Kestrel Bridge opened in 1934.", "The Kestrel Bridge opened in 1943."),
]
ALIKE = [
    Case(GEOGRAPHY, "Vienna is the capital of Austria.", "Vienna is the capital of Australia."),
    Case(GEOGRAPHY, "Lagos is the largest city of Nigeria.", "Lagos is the largest city of Niger."),
    Case(
        HISTORY, "The Kestrel Bridge was designed by Ada Thornton.", "The Kestrel Bridge was designed by Ada Thornberg."
    ),
    Case(
        CLINIC, "Lisinopril is not recommended during pregnancy.", "Levothyroxine is not recommended during pregnancy."
    ),
]
AMOUNTS = [
    Case(
        COMPANY,
        "Halvorsen Shipping acquired Lindqvist Marine for $1,234 million.",
        "Halvorsen Shipping acquired Lindqvist Marine for $4,321 million.",
    ),
    Case(
        COMPANY,
        "The board proposed a dividend of €3.40 for each share.",
        "The board proposed a dividend of €4.30 for each share.",
    ),
    Case(COMPANY, "Revenue was $50 million in 2022.", "Revenue was $40 million in 2022."),
    Case(TENANCY, "The north car park has 120 spaces.", "The north car park has 80 spaces."),
]
NEGATED = [
    Case(
        CLINIC,
        "Nurses may administer the vaccine without a physician present.",
        "Nurses may not administer the vaccine without a physician present.",
    ),
    Case(
        TENANCY,
        "The landlord is responsible for repairs to the heating.",
        "The landlord is not responsible for repairs to the heating.",
    ),
    Case(
        TENANCY,
        "Pets are allowed in the building with written consent.",
        "Pets are not allowed in the building, even with written consent.",
    ),
    Case(
        COMPANY,
        "The works council approved the new pension plan.",
        "The works council never approved the new pension plan.",
    ),
    Case(CLINIC, "Lisinopril is not recommended during pregnancy.", "Lisinopril is recommended during pregnancy."),
]
UNITS = [
    Case(
        CLINIC,
        "The usual starting dose of lisinopril is 10 mg once daily.",
        "The usual starting dose of lisinopril is 10 g once daily.",
    ),
    Case(CLINIC, "After opening, the vial may be used for 6 hours.", "After opening, the vial may be used for 6 days."),
    Case(
        TENANCY,
        "The deposit is returned within 30 days after the tenancy ends.",
        "The deposit is returned within 30 weeks after the tenancy ends.",
    ),
    Case(HISTORY, "The Kestrel Bridge is 640 metres long.", "The Kestrel Bridge is 640 feet long."),
]
QUOTES = [
    Case(
        HISTORY,
        "“The bridge remained closed to heavy traffic until the spring inspection.”",
        "“The bridge remained closed to light traffic until the spring inspection.”",
    ),
    Case(
        HISTORY,
        "The mayor said: “We will reopen the bridge before the summer holidays.”",
        "The mayor said: “We will repaint the bridge before the summer holidays.”",
    ),
    Case(
        HISTORY,
        "“The bridge remained closed to heavy traffic until the spring inspection”, the inspectors wrote.",
        "“The bridge remained closed to heavy traffic until the autumn inspection”, the inspectors wrote.",
    ),
]
PARAPHRASES = [
    Case(TENANCY, "The deposit is given back within thirty days of the end of the tenancy."),
    Case(HISTORY, "Ada Thornton designed the Kestrel Bridge."),
    Case(COMPANY, "Lindqvist Marine was bought by Halvorsen Shipping in 2014."),
    Case(CLINIC, "Doctors advise against taking lisinopril while pregnant."),
    Case(GEOGRAPHY, "The French capital is Paris."),
]
SUMS = [
    Case(TENANCY, "Together the north and the south car park have 200 spaces."),
    Case(COMPANY, "Revenue grew by $10 million from 2021 to 2022."),
    Case(HISTORY, "The extension was added 35 years after the museum opened."),
    Case(HISTORY, "The ferry from the island to town takes two and a half hours."),
]
FOREIGN = [
    Case(GEOGRAPHY, "Paris ist die Hauptstadt von Frankreich und die größte Stadt des Landes."),
    Case(TENANCY, "Le locataire doit payer au propriétaire une caution d'un mois de loyer."),
    Case(CLINIC, "La vacuna debe conservarse entre dos y ocho grados y usarse en pocas horas."),
    Case(HISTORY, "Broen ble tegnet av Ada Thornton og åpnet for trafikk før krigen."),
]
COPIED = [Case(chunks, text) for chunks in (GEOGRAPHY, COMPANY, CLINIC, TENANCY, HISTORY) for text in chunks]
EMPTY = [Case(GEOGRAPHY, ""), Case(CLINIC, " \n"), Case(TENANCY, "…")]


class Gap(NamedTuple):
    """A case that some judges fail, and why."""

    law: str
    claim: str
    judges: tuple[str, ...]
    why: str


ALL, WORDS, READER = NAMES, ("lexical", "embedded"), ("encoder",)
NEAR = "the other name stands in the same passage, and who is meant is not seen"
ORDER = "the same words stand in one sentence, and their order counts for little"
BESIDE = "the other figure stands in the same passage, and what it belongs to is not seen"
UNNAMED = "the sentence with the figure or the negation names its subject as “it” or not at all"
SINGLE = "one other word counts for little among many that agree"
SUM = "it does not reckon: another figure beside the same words"
TONGUE = "it does not tell languages apart"
GAPS = (
    Gap("places", "Lyon is the capital of France.", ALL, NEAR),
    Gap("places", "Paris is known for its silk trade.", ALL, NEAR),
    Gap("places", "The head office of Halvorsen Shipping is in Antwerp.", ALL, NEAR),
    Gap("roles", "The landlord must pay the tenant a deposit of one month's rent.", ALL, ORDER),
    Gap("roles", "Norway beat Brazil in the final of 1998.", ALL, ORDER),
    Gap("roles", "Lindqvist Marine acquired Halvorsen Shipping in 2014.", READER, ORDER),
    Gap("years", "The opera house of Vienna opened in 1978.", ALL, BESIDE),
    Gap("alike", "Lagos is the largest city of Niger.", ALL, NEAR),
    Gap("alike", "Levothyroxine is not recommended during pregnancy.", READER, NEAR),
    Gap("amounts", "Revenue was $40 million in 2022.", ALL, BESIDE),
    Gap("amounts", "The north car park has 80 spaces.", ALL, BESIDE),
    Gap("negated", "Lisinopril is recommended during pregnancy.", WORDS, UNNAMED),
    Gap("units", "The usual starting dose of lisinopril is 10 g once daily.", ALL, UNNAMED),
    Gap("units", "The Kestrel Bridge is 640 feet long.", ALL, UNNAMED),
    *(Gap("quotes", case.false, WORDS, SINGLE) for case in QUOTES),
    Gap("quotes", QUOTES[1].false, READER, SINGLE),
    Gap("paraphrases", "The French capital is Paris.", WORDS, "“French” is no form of “France” to it"),
    *(Gap("sums", case.true, ALL, SUM) for case in SUMS[:2]),
    Gap("reckoned", SUMS[0].true, WORDS, SUM),
    Gap("reckoned", SUMS[1].true, ALL, SUM),
    *(Gap("sums", case.true, READER, SUM) for case in SUMS[2:4]),
    Gap("reckoned", SUMS[2].true, WORDS, SUM),
    Gap("reckoned", SUMS[3].true, READER, SUM),
    *(Gap("foreign", case.true, ("lexical",), TONGUE) for case in FOREIGN),
)
"""What the judges are known to fail: remove a case that a judge passes now."""


def parametrize(law: str, cases: list[Case]) -> pytest.MarkDecorator:
    """Return every case by every judge; one that is known to fail has to."""
    parameters = []
    for name in NAMES:
        for case in cases:
            claim = case.false or case.true
            marks = [
                pytest.mark.xfail(strict=True, reason=gap.why)
                for gap in GAPS
                if (gap.law, gap.claim) == (law, claim) and name in gap.judges
            ]
            parameters.append(pytest.param(name, case, marks=marks, id=f"{name}-{claim[:60]}"))
    return pytest.mark.parametrize(("name", "case"), parameters)


@cache
def load(name: str) -> Judge:
    return load_judge(name)


@cache
def seen(name: str, chunks: tuple[str, ...], answer: str) -> Verdicts:
    """Return the verdicts on an answer that was drawn from a context."""
    content = tuple(Chunk(id=str(place), text=text) for place, text in enumerate(chunks))
    trace = Trace(id="1", query="What do the documents say?", chunks=content, answer=answer)
    (verdicts,) = load(name).observe([trace])
    assert not verdicts.failures
    return verdicts


def judge_claim(name: str, case: Case, answer: str) -> ClaimVerdict:
    """Return the verdict on the only claim of an answer."""
    (claim,) = seen(name, case.chunks, answer).claim or ()
    return claim


def refuse(name: str, case: Case) -> None:
    """Assert that an altered claim is not supported, and less probable than the original."""
    false, true = judge_claim(name, case, case.false), judge_claim(name, case, case.true)
    assert false.support not in HOLDS
    assert false.p is not None
    assert true.p is not None
    assert false.p < true.p


@pytest.mark.long
@parametrize("places", PLACES)
def test_places(name: str, case: Case):
    """What is said of one place does not hold of another of the same context."""
    refuse(name, case)


@parametrize("roles", ROLES)
def test_roles(name: str, case: Case):
    """Who did what to whom does not hold the other way round."""
    refuse(name, case)


@parametrize("opposites", OPPOSITES)
def test_opposites(name: str, case: Case):
    """What increases does not reduce, and what is prohibited is not permitted."""
    refuse(name, case)


@parametrize("years", YEARS)
def test_years(name: str, case: Case):
    """Another year does not hold, however alike its digits."""
    refuse(name, case)


@parametrize("alike", ALIKE)
def test_names_alike(name: str, case: Case):
    """A name that is spelled much like another is another."""
    refuse(name, case)


@parametrize("amounts", AMOUNTS)
def test_amounts(name: str, case: Case):
    """Another amount does not hold, be it the same digits in another order or the amount of something else."""
    refuse(name, case)


@parametrize("negated", NEGATED)
def test_negated(name: str, case: Case):
    """A negation that is added or left out turns what holds into what does not."""
    refuse(name, case)


@parametrize("units", UNITS)
def test_units(name: str, case: Case):
    """The same number of another unit does not hold."""
    refuse(name, case)


@parametrize("quotes", QUOTES)
def test_quotes(name: str, case: Case):
    """A quote with one other word is no quote."""
    refuse(name, case)


@parametrize("paraphrases", PARAPHRASES)
def test_paraphrases(name: str, case: Case):
    """What says the same in other words holds."""
    assert judge_claim(name, case, case.true).support in HOLDS


@parametrize("sums", SUMS)
def test_sums_are_not_contradicted(name: str, case: Case):
    """What follows from two facts by arithmetic contradicts neither."""
    assert judge_claim(name, case, case.true).support != "contradicted"


@parametrize("reckoned", SUMS)
def test_sums_hold_or_are_doubted(name: str, case: Case):
    """What follows from two facts by arithmetic holds, or the judge says that it is unsure."""
    claim = judge_claim(name, case, case.true)
    assert claim.support in HOLDS or claim.unsure


@parametrize("copied", COPIED)
def test_copied(name: str, case: Case):
    """An answer that is copied whole from a chunk holds in every claim, with high probability."""
    result = seen(name, case.chunks, case.true).claim
    assert result
    assert all(claim.support in HOLDS for claim in result)
    assert all(claim.p is not None and claim.p >= 0.7 for claim in result)


@parametrize("empty", EMPTY)
def test_empty(name: str, case: Case):
    """An answer that says nothing claims nothing, and what claims nothing is grounded."""
    verdicts = seen(name, case.chunks, case.true)
    assert verdicts.claim == ()
    assert verdicts.answer is not None
    assert verdicts.answer.grounded == 1.0


@parametrize("foreign", FOREIGN)
def test_foreign(name: str, case: Case):
    """Of an answer in another language than the chunks a judge says that it is unsure."""
    result = seen(name, case.chunks, case.true).claim
    assert result
    assert all(claim.unsure for claim in result)
