"""Laws of factoid questions."""

from __future__ import annotations

import pytest

from ragfault.apps.testsets.making.factoids import ask_about, cut_clauses, is_plain_question, list_answers


def ask(sentence: str, people: bool = False) -> list[tuple[str, str]]:
    """Return the questions for the names, numbers and dates of a sentence, with their answers."""
    return [
        (" ".join(words), answer.text)
        for tokens in cut_clauses(sentence)
        for answer in list_answers(tokens, people)
        if (words := ask_about(tokens, answer, 8)) is not None
    ]


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        ("The pier was built in 1907 by hand.", "in what year was the pier built by hand", "1907"),
        ("The pier shelters 20 fishing boats.", "the pier shelters how many fishing boats", "20"),
        ("A cabin costs £12.50 a night.", "a cabin costs how much a night", "£12.50"),
        ("The office opens at 7:30 on weekdays.", "the office opens at what time on weekdays", "7:30"),
        ("Bills are paid by 15 February.", "by what date are bills paid", "15 February"),
        ("The yard is closed on Sunday.", "on which day is the yard closed", "Sunday"),
        ("The limit is 40 tons for trucks.", "how many tons is the limit for trucks", "40"),
        ("The crane was bought from the Hallgate Works.", "from what was the crane bought", "Hallgate Works"),
        ("The crew uses the Bren channel at night.", "the crew uses which channel at night", "Bren"),
        ("The fire damaged about 16% of the roof.", "the fire damaged about what percentage of the roof", "16%"),
    ],
)
def test_the_question_word_fits_the_answer_and_stands_where_it_was(sentence, question, answer):
    assert (question, answer) in [(words.replace("Bills", "bills"), text) for words, text in ask(sentence)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Guides speak Danish, Dutch and German.",
        "See section 12 of the manual for details.",
        "The pass is valid between 10 and 20 days.",
        "THE SOFTWARE IS PROVIDED WITHOUT WARRANTY",
        "The queen's brother Karl IV reigned.",
    ],
)
def test_one_of_several_names_a_reference_and_capitals_are_not_asked_for(sentence):
    assert ask(sentence) == []


def test_a_person_is_asked_for_only_where_the_text_speaks_of_people():
    sentence = "Ann Lee opened the yard."
    assert ask(sentence, people=True) == [("who opened the yard", "Ann Lee")]
    assert ask(sentence) == [("who or what opened the yard", "Ann Lee")]


def test_markup_remarks_and_adverbials_before_a_comma_are_left_out():
    clauses = list(cut_clauses("In winter, the [north pier](pier.md) (built late) is **closed**."))
    assert clauses == [["the", "north", "pier", "is", "closed"]]


def test_what_cannot_be_done_is_not_asked_for_as_what_can():
    """A clause with "cannot" keeps it."""
    assert ask("Dogs cannot be carried on the Bren ferry.") == [("Dogs cannot be carried on which ferry", "Bren")]


@pytest.mark.parametrize(
    ("sentence", "is_plain"),
    [
        ("The pier was closed in 1907.", True),
        ("Hallgate Works repaired the crane in winter.", True),
        ("The pier shelters 20 fishing boats.", False),  # the question word is within
        ("The crane was lent to Hallgate Works.", False),  # "lent" may be a noun
        ("The yard may be closed by the Harbour Office.", True),
        ("The same yard may be closed by the Harbour Office.", False),  # the same as which
    ],
)
def test_a_plain_question_opens_with_its_question_word_and_refers_to_nothing_else(sentence, is_plain):
    (clause,) = cut_clauses(sentence)
    for answer in list_answers(clause, False):
        assert is_plain_question(clause, answer, ask_about(clause, answer, 8)) == is_plain
