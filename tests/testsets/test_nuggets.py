"""Laws of nuggets: made from references and pooled answers, and applied to traces."""

from __future__ import annotations

import pytest

from ragfault.errors import InputError
from ragfault.judges import load_judge
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.records import Chunk, FactVerdict, RecallVerdict, Trace, Verdicts
from ragfault.testsets.nuggets import add_nuggets, apply_key

QUAY = "Ann Lee built the quay of Ostrey in 1907."
CRANE = "Its crane lifts 40 tonnes of timber."
COLOUR = "The harbour office was painted green by sailors."


@pytest.fixture(scope="module")
def judge():
    """Return the judge by words alone."""
    return load_judge("lexical")


def answer(text: str, *chunks: str) -> Trace:
    return Trace(
        id="x",
        query="Who built the quay of Ostrey?",
        answer=text,
        chunks=tuple(Chunk(id=f"{at}", text=chunk) for at, chunk in enumerate(chunks)),
    )


def test_statements_of_a_reference_are_vital_nuggets(judge):
    item = Trace(id="1", query="Who built the quay of Ostrey?", reference=f"{QUAY} {CRANE}")
    result = add_nuggets([item], judge)
    assert result.items[0].facts == (QUAY, CRANE)
    assert "okay_facts" not in result.items[0].metadata
    assert (result.vital, result.okay, result.without) == (2, 0, {})


def test_a_claim_of_half_of_the_answers_is_vital_and_a_rarer_one_okay(judge):
    answers = [answer(QUAY, QUAY), answer(f"{QUAY} {CRANE}", QUAY, CRANE), answer(QUAY, QUAY)]
    result = add_nuggets([Trace(id="1", query="Who built the quay of Ostrey?")], judge, answers)
    assert result.items[0].facts == (QUAY, CRANE)
    assert result.items[0].metadata["okay_facts"] == [CRANE]


def test_a_claim_that_no_chunk_supports_is_no_nugget(judge):
    answers = [answer(f"{QUAY} {COLOUR}", QUAY), answer(f"{QUAY} {COLOUR}", QUAY)]
    result = add_nuggets([Trace(id="1", query="Who built the quay of Ostrey?")], judge, answers)
    assert result.items[0].facts == (QUAY,)


def test_one_answer_makes_no_nugget_and_the_result_tells_why(judge):
    result = add_nuggets([Trace(id="1", query="Who built the quay of Ostrey?")], judge, [answer(QUAY, QUAY)])
    assert result.items[0].facts is None
    assert result.without == {"one answer alone": 1}


def test_facts_stay_unless_they_are_replaced(judge):
    item = Trace(id="1", query="Who?", facts=("mine",), reference=QUAY)
    assert add_nuggets([item], judge).items[0].facts == ("mine",)
    assert add_nuggets([item], judge, replace_facts=True).items[0].facts == (QUAY,)


def test_an_unanswerable_item_gets_no_nugget(judge):
    result = add_nuggets([Trace(id="1", query="Who?", reference=QUAY, answerable=False)], judge)
    assert result.without == {"it is unanswerable: a refusal is right": 1}
    with pytest.raises(InputError):
        add_nuggets([], judge)


def test_okay_nuggets_weigh_as_much_as_is_asked_for():
    trace = Trace(id="1", query="q", answer="x", chunks=(), facts=("a", "b"), metadata={"okay_facts": ["b"]})
    seen = Verdicts(
        trace="1",
        fact=(FactVerdict(fact="a", present=True), FactVerdict(fact="b", present=False)),
        recall=(RecallVerdict(statement="a", covered=False), RecallVerdict(statement="b", covered=True)),
    )
    values = {
        name: compute_score(parse_metric(name), trace, seen).value
        for name in ("completeness", "completeness(okay=0.5)", "completeness(okay=0)", "context_recall(okay=0.5)")
    }
    assert values["completeness"] == 0.5
    assert values["completeness(okay=0.5)"] == pytest.approx(2 / 3)
    assert values["completeness(okay=0)"] == 1
    assert values["context_recall(okay=0.5)"] == pytest.approx(1 / 3)


def test_completeness_without_a_vital_fact_is_undefined_where_okay_ones_do_not_count():
    trace = Trace(id="1", query="q", answer="x", facts=("a",), metadata={"okay_facts": ["a"]})
    seen = Verdicts(trace="1", fact=(FactVerdict(fact="a", present=True),))
    assert compute_score(parse_metric("completeness(okay=0)"), trace, seen).status == "undefined"


def test_a_key_is_applied_to_the_traces_with_the_query_of_an_item():
    item = Trace(id="1", query="Who built the quay?", facts=("a", "b"), metadata={"okay_facts": ["b"]})
    traces = [Trace(id="7", query="who built the quay", answer="x"), Trace(id="8", query="Which fee?", answer="y")]
    (keyed,) = apply_key([item], traces)
    assert (keyed.id, keyed.answer, keyed.facts, keyed.metadata["okay_facts"]) == ("1", "x", ("a", "b"), ["b"])
