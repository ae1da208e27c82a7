"""Laws of checking questions against the chunks that were retrieved for them."""

from __future__ import annotations

import pytest

from ragfault.apps.testsets.premises import check_premise, check_premises
from ragfault.model.records import Chunk, Trace

TEXT = "The quay of Ostrey was built in 1907 by Ann Lee. It has three berths for ferries. Soup is served at noon."


def ask(query: str, *texts: str, **fields: object) -> Trace:
    chunks = tuple(Chunk(id=str(at), text=text) for at, text in enumerate(texts or (TEXT,)))
    return Trace(id=query, query=query, chunks=chunks, **fields)  # type: ignore[arg-type]


def test_a_number_that_the_chunks_state_otherwise_is_a_false_premise():
    """The sentence with the other number is quoted; the number of the chunk is none."""
    check = check_premise(ask("Who built the quay of Ostrey in 1911?"))
    assert check is not None
    assert (check.outcome, check.sentence) == ("false premise", "The quay of Ostrey was built in 1907 by Ann Lee.")
    assert check.reason == "no chunk has “1911”, and a sentence has another number"
    right = check_premise(ask("Who built the quay of Ostrey in 1907?"))
    assert right is not None
    assert right.outcome != "false premise"


def test_words_that_no_chunk_has_are_named_as_they_are_written():
    check = check_premise(ask("How many Catamarans arriving at 23:00 pay twice?"))
    assert check is not None
    assert "“Catamarans”, “arriving”, “23”, “00”" in check.reason


def test_a_rule_with_a_bound_contradicts_no_number():
    """What holds up to, above or after a number holds for many: a question with another number has no false premise."""
    question, bound = "What does a mooring cost in Ostrey for a boat of 10 metres?", "A mooring in Ostrey costs {}."
    texts = [bound.format("£385 for a boat up to 9 metres"), bound.format("£385 for a boat of 9 metres")]
    checks = [check_premise(ask(question, text)) for text in texts]
    assert [check is not None and check.outcome == "false premise" for check in checks] == [False, True]


def test_a_number_on_another_subject_is_no_false_premise():
    """A sentence must have half of the other words of the question."""
    check = check_premise(ask("How many museums opened in Bellmouth in 1911?"))
    assert check is not None
    assert check.outcome in ("doubtful", "cannot tell")
    assert check.sentence is None


def test_labels_measure_the_probability_and_chunks_without_text_are_left_out():
    """Every trace with a text has one outcome."""
    traces = [
        ask("Who built the quay of Ostrey?", answerable=True),
        ask("Which museum lends bicycles to visitors?", answerable=False),
        ask("Who built the quay?", " "),
        Trace(id="bare", query="Who?"),
    ]
    report = check_premises(traces)
    assert (sum(report.counts.values()), report.left_out, report.auroc) == (2, 2, 1.0)
    assert [check.trace for check in report.checks] == [traces[0].id, traces[1].id]
    assert check_premises(traces[:1]).auroc is None


def test_a_question_on_another_subject_is_doubtful():
    """A question that the chunks answer is not."""
    right, other = (
        check_premise(ask(query))
        for query in ("Who built the quay of Ostrey?", "Which museum lends bicycles to visitors?")
    )
    assert right is not None
    assert other is not None
    assert right.outcome in ("answered", "cannot tell")
    assert other.outcome in ("doubtful", "cannot tell")
    assert right.probability > other.probability


@pytest.mark.parametrize(
    ("query", "passage", "outcome"),
    [
        ("Who built the quay of Ostrey in 1911?", "The quay of Ostrey was built in 1907 by Ann Lee.", True),
        ("Why does the ferry to Tarvik carry 50 cars?", "The ferry to Tarvik carries 40 cars on its deck.", True),
        ("What does a car of 7 metres cost to Tarvik?", "The speed limit for a boat to Tarvik is 5 knots.", False),
        ("Why does the ferry to Tarvik carry 50 cars?", "The ferry to Tarvik carries about 40 cars.", False),
    ],
)
def test_a_rival_number_counts_the_same_thing_without_a_bound(query, passage, outcome):
    check = check_premise(Trace(id="1", query=query, chunks=(Chunk(id="a", text=passage),)))
    assert (check.outcome == "false premise") == outcome
