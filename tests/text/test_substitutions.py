"""Tests of what an answer says in the place of what was expected."""

from __future__ import annotations

import pytest

from ragfault.model.gold_evidence import match_answer, measure_key_agreement
from ragfault.model.records import AnswerVerdict, Trace, Verdicts
from ragfault.text.substitutions import find_substitution


def is_certain(query: str, expected: str, answer: str) -> bool | None:
    substitution = find_substitution(query, expected, answer)
    return None if substitution is None else substitution.is_certain


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("The ferry leaves on Thursday.", "The ferry leaves on Wednesday."),
        ("The fee is 12 euros.", "The fee is 15 euros."),
        ("It opens at 9:10.", "It opens at 11:30."),
        ("Swimming is not allowed in the basin.", "Swimming is allowed in the basin."),
        ("The council paid the abbot.", "The abbot paid the council."),
    ],
)
def test_another_name_an_exchange_or_a_negation_is_another_answer(expected: str, answer: str) -> None:
    assert is_certain("What is the rule?", expected, answer) is True


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("Guests may park one car in the yard.", "Guests may park one automobile in the yard."),
        ("The hotel offers a free breakfast.", "The hotel offers a complimentary breakfast."),
        ("The casing is of copper.", "The casing is of nickel."),
        ("Rinse the pan before drying it.", "Rinse the pan after drying it."),
        ("Guests must sign the book.", "Guests may sign the book."),
    ],
)
def test_other_words_in_the_same_frame_are_not_certainly_another_answer(expected: str, answer: str) -> None:
    assert is_certain("What is the rule?", expected, answer) is False


@pytest.mark.parametrize(
    ("query", "expected", "answer"),
    [
        ("When does it leave?", "The ferry leaves on Thursday.", "On Thursdays it departs from the pier."),
        ("How heavy is it?", "It weighs 12 kg.", "It weighs twelve kilograms."),
        ("Which colours?", "Green, white and black", "Black, white and green"),
        ("Who taught Iska?", "Marten taught Iska.", "Iska was taught by Marten."),
        ("What does the fee include?", "The fee includes breakfast.", "Breakfast is a part of the fee."),
        ("Which metal?", "Aluminium", "Aluminum"),
        ("Is it free?", "", "Yes."),
        ("Is it free?", "Yes", ""),
    ],
)
def test_other_words_for_the_same_are_no_other_answer(query: str, expected: str, answer: str) -> None:
    assert is_certain(query, expected, answer) is None


def test_a_part_of_a_name_in_another_form_is_not_certain() -> None:
    assert not is_certain("Who sang it?", "David Gahan", "Dave Gahan")


def test_an_answer_that_says_something_else_in_place_of_the_key_does_not_match_it() -> None:
    trace = Trace(id="1", query="Who sold the mill?", reference="The Hartmanns sold the mill to the city.",
                  answer="The city sold the mill to the Hartmanns.")  # fmt: skip
    assert match_answer(trace) is not True


def test_other_words_in_place_of_the_key_are_left_to_a_judge_that_reads_both() -> None:
    trace = Trace(id="1", query="What may be parked?", reference="Guests may park one car in the yard.",
                  answer="Guests may park one automobile in the yard.")  # fmt: skip
    assert measure_key_agreement(trace, Verdicts(trace="1")) is None
    judged = Verdicts(trace="1", answer=AnswerVerdict(relevance=0.9, agreement=0.9))
    assert measure_key_agreement(trace, judged) == 1.0


@pytest.mark.parametrize("opening", ["Yes", "No", "Nothing", "None", "Never"])
def test_an_answer_of_one_word_before_its_reason_denies_no_sentence(opening: str) -> None:
    """ "Nothing, dogs are free." says of dogs what its source says."""
    assert find_substitution("What does a dog cost?", "Dogs are free.", f"{opening}, dogs are free.") is None
