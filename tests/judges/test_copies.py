"""Tests of claims that copy a sentence but for one point."""

from __future__ import annotations

import pytest

from ragfault.judges.checks.copies import find_copied_difference, list_candidates
from ragfault.judges.checks.passages import Passage
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Trace, Verdicts

PASSAGES = (
    "The council of Tolmar paid the abbot 300 crowns in May. The bridge was repaired after the flood.",
    "Vouchers cannot be combined with one another. Visitors must sign the book at the gate of the mill.",
)
FALSE = [
    "The abbot paid the council of Tolmar 300 crowns in May.",
    "The council of Tolmar paid the abbot 500 crowns in May.",
    "The bridge was repaired before the flood.",
    "Vouchers can be combined with one another.",
    "Visitors may sign the book at the gate of the mill.",
]
TRUE = [
    "The council of Tolmar paid the abbot 300 crowns in May.",
    "The council of Tolmar paid the abbot three hundred crowns in May.",
    "The abbot was paid 300 crowns in May by the council of Tolmar.",
    "Visitors must sign the book at the entrance of the mill.",
]


def judge_answer(name: str, answer: str, passages: tuple[str, ...] = PASSAGES) -> Verdicts:
    chunks = tuple(Chunk(id=str(number), text=text) for number, text in enumerate(passages))
    return load_judge(name).observe([Trace(id="1", query="What was agreed?", chunks=chunks, answer=answer)])[0]


@pytest.mark.parametrize("claim", FALSE)
@pytest.mark.parametrize("name", ["lexical", "embedded"])
def test_a_copy_that_says_otherwise_in_one_point_is_contradicted_and_quotes_the_sentence(name: str, claim: str) -> None:
    verdicts = judge_answer(name, claim)
    [verdict] = verdicts.claim or ()
    assert verdict.support == "contradicted"
    assert verdict.p < 0.5
    assert verdicts.answer is not None
    assert (verdicts.answer.grounded or 0) <= verdict.p
    [evidence] = verdict.evidence
    assert len(set(PASSAGES[int(evidence.chunk)][evidence.start : evidence.end].split()) & set(claim.split())) > 2


@pytest.mark.parametrize("claim", TRUE)
def test_a_copy_a_passive_and_another_word_contradict_nothing(claim: str) -> None:
    assert (
        find_copied_difference("", claim, list_candidates([Passage(str(n), text) for n, text in enumerate(PASSAGES)]))
        is None
    )


@pytest.mark.parametrize(
    "passage",
    [
        "The monthly club fee is 12 euros for adults. Children pay a monthly club fee of 6 euros.",
        "The monthly club fee is 12 euros for adults and 6 euros for children.",
    ],
)
def test_an_answer_that_leaves_its_subject_to_the_question_is_not_contradicted(passage: str) -> None:
    passages = [Passage("a", passage)]
    assert (
        find_copied_difference("What do children pay?", "The monthly club fee is 6 euros.", list_candidates(passages))
        is None
    )
    assert (
        find_copied_difference("What do children pay?", "The monthly club fee is 7 euros.", list_candidates(passages))
        is not None
    )


@pytest.mark.parametrize(
    ("sentence", "claim"),
    [
        ("Guests may park one car in the yard.", "Guests can park one car in the yard."),
        ("The shop closes early when it rains hard.", "The shop closes early if it rains hard."),
        ("The fee is waived for members below 18 years.", "The fee is waived for members under 18 years."),
        ("The museum opened in 1994 in Bergen.", "The museum opened in the 1990s in Bergen."),
        ("The warranty lasts 2 years from the purchase.", "The warranty lasts 24 months from the purchase."),
        ("3. Press the red button for five seconds.", "1. Press the red button for five seconds."),
        ("The loan was approved by Ana Ortega in June.", "The loan was approved by Ms. Ortega in June."),
        ("The speed limit is 31 mph in towns.", "The speed limit is 50 km/h in towns."),
        ("The policy never covers floods.", "The policy does not cover floods."),
        ("Article 4 regulates trade in the region.", "Article IV regulates trade in the region."),
    ],
)
def test_another_spelling_of_one_point_contradicts_nothing(sentence: str, claim: str) -> None:
    assert (
        find_copied_difference("", claim, list_candidates([Passage("a", f"{sentence} The rest is told later.")]))
        is None
    )


def test_a_question_states_nothing_that_could_be_contradicted() -> None:
    passages = [Passage("a", "CNN: Is the governor confident about the future of the continent?")]
    claim = "Thakkar: The governor is not confident about the future of the continent."
    assert find_copied_difference("", claim, list_candidates(passages)) is None


def test_one_false_copy_makes_an_answer_of_several_claims_ungrounded() -> None:
    answer = f"{TRUE[0]} The bridge was repaired before the flood. Vouchers cannot be combined with one another."
    verdicts = judge_answer("embedded", answer)
    assert verdicts.answer is not None
    assert (verdicts.answer.grounded or 0) < 0.5
    assert [claim.support == "contradicted" for claim in verdicts.claim or ()] == [False, True, False]
