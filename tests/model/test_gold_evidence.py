"""Gold applied to verdicts: where an answer key exists it decides, and the judge's verdicts stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.gold_evidence import apply_gold, match_answer, measure_coverage, measure_key_agreement
from ragfault.model.records import (
    AnswerVerdict,
    Chunk,
    ChunkVerdict,
    ClaimVerdict,
    FactVerdict,
    Gold,
    GoldVerdicts,
    RecallVerdict,
    Span,
    Trace,
    Verdicts,
)

LEVELS = {"high": 0.9, "medium": 0.6, "low": 0.3, "none": 0.1}
FOG = "In fog the bridge opens only after a call."


def make_trace(*ids: str, gold: Gold | None = None, **fields) -> Trace:
    chunks = tuple(
        Chunk(id=name, text=FOG, document="d", start=100 * at, end=100 * at + 42) for at, name in enumerate(ids)
    )
    return Trace(id="t", query="When does the bridge open in fog?", chunks=chunks, gold=gold, **fields)


def judge(*levels: str, refused: bool | None = None, **parts) -> Verdicts:
    chunk = tuple(ChunkVerdict(chunk=str(at), relevance=LEVELS[level], level=level) for at, level in enumerate(levels))
    answer = None if refused is None else AnswerVerdict(relevance=0.8, refused=refused)
    return Verdicts(trace="t", **{"chunk": chunk, "answer": answer, "missing": ("fog",)} | parts)


def score(name: str, trace: Trace, verdicts: Verdicts) -> float | None:
    return compute_score(parse_metric(name), trace, apply_gold(trace, verdicts)).value


def test_relevance_is_the_larger_of_the_judge_and_gold():
    """Grade 1 is medium, 2 is high, 0 changes nothing, and a higher level of the judge stands."""
    trace = make_trace("a", "b", "c", "d", gold=Gold(chunks={"a": 2, "b": 1, "c": 0, "d": 1}))
    seen = apply_gold(trace, judge("none", "low", "low", "high"))
    assert [chunk.level for chunk in seen.chunk] == ["high", "medium", "low", "high"]
    assert [chunk.relevance for chunk in seen.chunk] == [0.75, 0.5, 0.3, 0.9]


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.0, 1.0, 2.0, 3.0])), st.booleans())
def test_gold_never_lowers_a_level_and_is_applied_once(grades, refused):
    """No chunk becomes less relevant, and a second application changes nothing."""
    trace = make_trace("a", "b", "c", gold=Gold(chunks=grades), facts=("x",))
    verdicts = judge("none", "medium", "high", refused=refused)
    seen = apply_gold(trace, verdicts)
    assert all(new.relevance >= old.relevance for new, old in zip(seen.chunk, verdicts.chunk, strict=True))
    assert apply_gold(trace, seen) is seen


def test_gold_without_several_grades_is_high():
    """Where no grade is above 1 the labels are ungraded."""
    trace = make_trace("a", gold=Gold(chunks={"a": 1, "z": 0}))
    assert apply_gold(trace, judge("none")).chunk[0].level == "high"


@pytest.mark.parametrize(("end", "level"), [(121, "high"), (120, "none")])
def test_a_chunk_that_covers_half_of_a_span_is_gold(end, level):
    """The second chunk starts at 100 and the span at 79: half of it is covered from 121 on."""
    trace = make_trace("a", "b", gold=Gold(spans=(Span(document="d", start=79, end=end),)))
    assert apply_gold(trace, judge("none", "none")).chunk[1].level == level


def test_without_an_answer_key_the_verdicts_are_the_judges():
    """Nothing is applied where there is nothing to apply."""
    verdicts = judge("low")
    assert apply_gold(make_trace("a"), verdicts) is verdicts


def test_stored_verdicts_have_no_part_of_gold():
    """What gold adds is on another record than the one that runs store."""
    assert not hasattr(Verdicts(trace="t"), "covered")
    assert isinstance(apply_gold(make_trace("a", answerable=False), judge("low")), GoldVerdicts)


def test_nothing_is_missing_with_all_gold_retrieved():
    """Gold chunks or gold spans in full make `missing_context` 0, whatever the judge misses."""
    by_id = make_trace("a", "b", gold=Gold(chunks={"a": 1}))
    by_span = make_trace("a", "b", gold=Gold(spans=(Span(document="d", start=0, end=40),), chunks={"z": 1}))
    assert [score("missing_context", trace, judge("none", "none")) for trace in (by_id, by_span)] == [0, 0]


def test_missing_context_counts_the_gold_spans_that_no_chunk_holds():
    """Of three spans one is held."""
    spans = tuple(Span(document="d", start=start, end=start + 40) for start in (0, 500, 900))
    assert score("missing_context", make_trace("a", gold=Gold(spans=spans)), judge("high", missing=())) == 2


def test_missing_context_counts_the_facts_that_no_chunk_holds():
    """Without gold chunks the facts count."""
    recall = (RecallVerdict(statement="x", covered=True), RecallVerdict(statement="y", covered=False))
    assert score("missing_context", make_trace("a", facts=("x", "y")), judge("high", recall=recall)) == 1


def test_chunks_without_a_place_tell_nothing_of_spans():
    """Where no chunk says where it stands, spans are not called missing."""
    trace = make_trace("a", gold=Gold(spans=(Span(document="d", start=0, end=40),)))
    trace = replace(trace, chunks=(Chunk(id="a", text=FOG),))
    assert measure_coverage(trace) is None
    assert apply_gold(trace, judge("none")).missing == ("fog",)


def test_a_chunk_clipped_in_the_record_holds_only_what_was_recorded():
    """A tenth of the text covers no span behind it."""
    chunk = Chunk(id="x", text=FOG, document="d", start=0, end=1000)
    trace = replace(make_trace(gold=Gold(spans=(Span(document="d", start=800, end=900),))), chunks=(chunk,))
    assert apply_gold(trace, judge("none")).missing != ()


REFUSALS = [
    ({"gold": Gold(chunks={"a": 1})}, True, (1, 0)),
    ({"gold": Gold(chunks={"z": 1})}, True, (0, 0)),
    ({"answerable": False}, True, (0, 0)),
    ({"gold": Gold(chunks={"a": 1})}, False, (0, 0)),
    ({"gold": Gold(chunks={"z": 1})}, False, (0, 1)),
    ({"answerable": False}, False, (0, 1)),
]


@pytest.mark.parametrize(("key", "refused", "expected"), REFUSALS)
@pytest.mark.parametrize("level", ["none", "high"])
def test_gold_decides_whether_a_refusal_is_right(key, refused, expected, level):
    """Wrong where gold was retrieved, right where none was or nothing answers it, whatever the judge finds relevant."""
    trace = make_trace("a", answer="It opens on call.", **key)
    verdicts = judge(level, refused=refused, missing=() if level == "high" else ("fog",))
    assert tuple(score(name, trace, verdicts) for name in ("wrong_refusal", "missed_refusal")) == expected


def test_a_right_refusal_has_no_triad():
    """It is on no quality level, also where the judge finds a claim in it."""
    claim = ClaimVerdict(claim="c", start=0, end=1, support="unsupported")
    trace = make_trace("a", answer="I cannot say.", answerable=False)
    verdicts = judge("none", refused=True, claim=(claim,))
    assert score("triad", trace, verdicts) is None
    assert compute_score(parse_metric("triad"), trace, verdicts).value is not None


ANSWERS = [
    ("The fee is £22.00 a night.", True),
    ("You pay £22.00 for each night that you stay.", True),
    ("The fee is £12.00 a night.", False),
    ("It is not £22.00 a night.", None),
    ("No dogs; the fee is £22.00 a night.", True),
    ("Ask at the office.", False),
    ("", None),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
def test_an_answer_agrees_with_a_reference_by_its_numbers_words_and_negation(answer, expected):
    """A number that is absent is a contradiction, one that is negated is no agreement."""
    trace = Trace(id="1", query="What is the fee of the mooring?", answer=answer, reference="£22.00 a night.")
    assert match_answer(trace) is expected


@pytest.mark.parametrize(("answer", "expected"), [("They are forbidden.", None), ("They are allowed on deck.", True)])
def test_a_reference_without_numbers_needs_all_its_words(answer, expected):
    """One word of a pair of opposites does not stand for the other."""
    trace = Trace(id="1", query="What about dogs?", answer=answer, reference="Allowed on deck.")
    assert match_answer(trace) is expected


OPENINGS = [
    ("No, cards only.", True),
    ("Cards only.", True),
    ("Yes, cards only.", False),
    ("No, not cards only.", False),
]


@pytest.mark.parametrize(("answer", "expected"), OPENINGS)
def test_yes_and_no_are_opposites_and_an_opening_no_negates_no_other_clause(answer, expected):
    """What follows an opening no is compared by itself."""
    trace = Trace(id="1", query="Can I pay in cash?", answer=answer, reference="No, cards only.")
    assert bool(match_answer(trace)) is expected


def test_a_judge_that_misses_a_fact_is_no_evidence_against_an_answer():
    """Without a name or number of the key that is absent, the key does not tell."""
    trace = Trace(
        id="1", query="Who decides?", answer="The captain alone.", reference="The master.", facts=("The master.",)
    )
    verdicts = Verdicts(trace="1", fact=(FactVerdict(fact="The master.", present=False),))
    assert measure_key_agreement(trace, apply_gold(trace, verdicts)) is None
    judged = replace(verdicts, fact=(FactVerdict(fact="The master.", present=True),))
    assert measure_key_agreement(trace, apply_gold(trace, judged)) == 1


@pytest.mark.parametrize(("reference", "answer"), [("Ladders", "Leave your ladder there."), ("Kites.", "A kite.")])
def test_a_word_that_opens_a_key_may_stand_in_another_form(reference, answer):
    """It need not be a name, which has one form only."""
    assert match_answer(Trace(id="1", query="What is left outside?", answer=answer, reference=reference)) is not False


@pytest.mark.parametrize(("agreement", "repeats", "lacks"), [(0.1, None, 0.0), (0.4, None, None), (0.8, 1.0, 1.0)])
def test_a_reading_of_the_judge_and_the_words_of_a_key_are_two_witnesses(agreement, repeats, lacks):
    """Where the words repeat the key, the judge cannot call the answer wrong."""
    verdicts = Verdicts(trace="1", answer=AnswerVerdict(relevance=None, agreement=agreement))
    trace = Trace(id="1", query="What is the fee?", answer="Each night costs you £22.00.", reference="£22.00 a night.")
    assert measure_key_agreement(trace, verdicts) == repeats
    assert measure_key_agreement(replace(trace, answer="It depends on your boat."), verdicts) == lacks
