"""Retrieval stages: the fold, fusion, filters, selection, order, compression."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.model.errors import StageFailed, UnknownName, UsageError
from ragfault.model.records import Chunk
from ragfault.retrieval.filters import (
    check_fields,
    infer_conditions,
    is_readable,
    is_valid_at,
    meets_condition,
    require_metadata,
)
from ragfault.retrieval.pipeline import FilterCondition, Pipeline, Query, StageResult
from ragfault.retrieval.rerankers import prefer_entities
from ragfault.retrieval.search import FUSION_METHODS, SCORE_NORMS, FusionSettings, fuse_rankings, fuse_retrievers
from ragfault.retrieval.selection import (
    compress,
    drop_duplicates,
    estimate_complexity,
    reorder,
    select_by_complexity,
    select_diverse,
    select_top,
    select_within_budget,
)

VECTORS = Path(__file__).parents[3] / "shared" / "conformance" / "vectors.json"
"""Golden values of public tools, where the machine has them."""

rankings = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-5, 5, allow_nan=False), max_size=6), min_size=1, max_size=4
)


def hits(**scores: float) -> tuple[Chunk, ...]:
    return tuple(Chunk(id=name, text=f"text of {name}", score=score) for name, score in scores.items())


def names(result: StageResult) -> str:
    return "".join(hit.id for hit in result.hits)


ASKED = Query(text="When does the ferry leave?")


# --- the fold --------------------------------------------------------------------------------------


def test_what_a_stage_returns_the_next_one_takes():
    """A pipeline is a left fold: the query as one stage left it reaches the next."""

    def rewrite(query, result):
        return StageResult(Query(text=query.text, variants=("ferry times",), notes=("rewritten",)), result)

    def search(query, _):
        return StageResult(query, (Chunk(id=query.search_texts[0]),))

    trace = Pipeline({"rewrite": rewrite, "search": search})("When does the ferry leave?")
    assert [chunk.id for chunk in trace.chunks] == ["ferry times"]
    assert trace.query == "When does the ferry leave?"
    assert trace.metadata == {"notes": ["rewritten"]}


def test_each_stage_leaves_its_time():
    """Steps name the stages in order, each begins after the one before it, and together they take the whole."""
    pipeline = Pipeline(dict.fromkeys("abc", StageResult))
    trace = pipeline("?")
    assert [step.name for step in trace.steps] == ["a", "b", "c"]
    starts = [step.start for step in trace.steps]
    assert starts == sorted(starts)
    assert sum(step.duration for step in trace.steps) <= trace.latency.retrieval


def test_a_stage_that_raises_is_named():
    """The error says which stage failed, on which query, and why."""

    def broken(query, result):
        raise ZeroDivisionError("no index")

    with pytest.raises(StageFailed, match=r'stage "search" failed on the query "When.*no index'):
        Pipeline({"search": broken})("When?")
    with pytest.raises(StageFailed, match="returned list, not Found"):
        Pipeline({"search": lambda query, _: [1]})("When?")


def test_a_stage_that_is_not_there_cannot_be_left_out():
    """An ablation of an unknown stage is an error with an offer."""
    with pytest.raises(UnknownName, match='Did you mean "search"'):
        Pipeline({"search": StageResult}).without("serch")


def test_a_pipeline_has_a_stage():
    """A pipeline without stages is refused."""
    with pytest.raises(UsageError, match="no stage"):
        Pipeline({})


# --- fusion ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ranx_rrf", "ranx_wsum", "autorag_rrf"])
def test_fusion_equals_the_golden_values(name):
    """Reciprocal rank fusion and weighted sums equal those of public tools."""
    if not VECTORS.is_file():
        pytest.skip("the golden values of public tools are not on this machine")
    case = next(vector for vector in json.loads(VECTORS.read_text())["vectors"] if vector["id"] == name)
    given_, expected = case["input"], case["expected"]
    if name == "autorag_rrf":
        runs = [
            dict(zip(ids, scores, strict=True)) for ids, scores in zip(given_["ids"], given_["scores"], strict=True)
        ]
        fused = list(fuse_rankings(runs, constant=given_["rrf_k"]).items())[: given_["top_k"]]
        assert [vector for vector, _ in fused] == expected["ids"]
        assert [score for _, score in fused] == pytest.approx(expected["scores"], abs=case["tolerance"])
        return
    options = {} if name == "ranx_rrf" else {"method": "sum", "norm": "none", "weights": given_["weights"]}
    for query, scores in expected.items():
        fused = fuse_rankings([run.get(query, {}) for run in given_["runs"]], **options)
        assert fused == pytest.approx(scores, abs=case["tolerance"])


def test_reciprocal_ranks_by_hand():
    """From rank 1 as in the paper, from rank 0 as some have it: 1/(k + rank), summed."""
    runs = [{"a": 3.0, "b": 2.0}, {"b": 9.0}]
    assert fuse_rankings(runs) == pytest.approx({"b": 1 / 62 + 1 / 61, "a": 1 / 61})
    assert fuse_rankings(runs, first=0) == pytest.approx({"b": 1 / 61 + 1 / 60, "a": 1 / 60})


@given(rankings, st.sampled_from(sorted(FUSION_METHODS)), st.sampled_from(sorted(SCORE_NORMS)))
def test_fusion_keeps_every_item_and_every_number_is_finite(runs, method, norm):
    """Whatever the scores, also all equal ones: each item once, with a finite score, best first."""
    fused = fuse_rankings(runs, method, norm=norm)
    assert set(fused) == set().union(*runs)
    assert all(math.isfinite(score) for score in fused.values())
    assert list(fused.values()) == sorted(fused.values(), reverse=True)


@given(rankings.filter(lambda runs: all(len(set(run.values())) == len(run) for run in runs)))
def test_fusion_does_not_depend_on_the_order_of_the_rankings(runs):
    """The scores are the same when the rankings come in another order."""
    assert fuse_rankings(runs[::-1]) == pytest.approx(fuse_rankings(runs))


def test_one_ranking_fused_alone_keeps_its_order():
    """Fusion of one ranking changes no order, by any method."""
    for method in FUSION_METHODS:
        assert list(fuse_rankings([{"a": 0.9, "b": 0.5, "c": 0.1}], method, norm="none")) == ["a", "b", "c"]


def test_the_stage_of_fusion_asks_each_retriever():
    """Hits of several retrievers come as one ranking, each chunk once, with the weights of their names."""
    retrievers = {
        "words": lambda query, _: StageResult(query, hits(a=2.0, b=1.0)),
        "meaning": lambda query, _: StageResult(query, hits(b=0.9, c=0.8)),
    }
    assert names(fuse_retrievers(retrievers)(ASKED, ())) == "bac"
    assert names(fuse_retrievers(retrievers, FusionSettings(weights={"meaning": 0.0}), top=2)(ASKED, ())) == "ab"
    with pytest.raises(UnknownName, match='"meanings"'):
        fuse_retrievers(retrievers, FusionSettings(weights={"meanings": 1.0}))
    with pytest.raises(UnknownName, match='Did you mean "rrf"'):
        fuse_retrievers(retrievers, FusionSettings("rff"))


def test_hits_without_scores_are_fused_by_their_order():
    """A retriever that gives no scores counts by ranks."""
    bare = {"one": lambda query, _: StageResult(query, (Chunk(id="x"), Chunk(id="y")))}
    assert names(fuse_retrievers(bare, FusionSettings("sum"))(ASKED, ())) == "xy"


# --- filters ---------------------------------------------------------------------------------------


def test_conditions_read_out_of_a_query():
    """A date, a category and a language that the query names become conditions, marked as inferred."""
    conditions = infer_conditions()(Query(text="Legal advice in German since 2024-03"), ()).query.conditions
    assert [(condition.field, condition.test) for condition in conditions] == [
        ("date", "from"),
        ("date", "to"),
        ("category", "is"),
        ("language", "in"),
    ]
    assert all(condition.inferred for condition in conditions)


def test_what_was_asked_for_is_not_inferred_again():
    """An explicit condition on a field stands; the query's own words do not add to it."""
    asked = require_metadata(date="2020")(Query(text="News from 2024"), ())
    assert [condition.value for condition in infer_conditions()(*asked).query.conditions] == ["2020"]


def test_fields_of_the_user_are_inferred_by_their_values():
    """A value of one's own field is found as a whole word, whatever its case."""
    stage = infer_conditions((), values={"line": ["Harbour", "River"]})
    assert stage(Query(text="harbour ferry"), ()).query.conditions[0].value == "Harbour"
    assert stage(Query(text="harbours"), ()).query.conditions == ()


def test_a_condition_on_a_field_that_no_chunk_has_is_refused():
    """A field that was asked for must exist; one that was inferred is passed over."""
    with pytest.raises(UnknownName, match='Did you mean "language"'):
        check_fields([FilterCondition("langauge", "is", "en")], {"language", "date"})
    check_fields([FilterCondition("category", "is", "legal", inferred=True)], {"date"})


@pytest.mark.parametrize(
    ("test", "value", "expected"),
    [("is", "2024-03-20", True), ("from", "2024-04", False), ("to", "2024-04", True), ("in", ("2024-03-20",), True)],
)
def test_a_chunk_meets_a_condition(test, value, expected):
    """Dates are compared as far as both are given."""
    chunk = Chunk(id="a", metadata={"date": "2024-03-20"})
    assert meets_condition(chunk, FilterCondition("date", test, value)) is expected
    assert not meets_condition(Chunk(id="b"), FilterCondition("date", test, value))


def test_permissions_and_validity():
    """Who belongs to none of its groups cannot read a chunk; what is not yet valid, or no longer, is not found."""
    chunk = Chunk(id="a", metadata={"groups": ["staff"], "valid_from": "2025-01-01", "valid_to": "2025-12-31"})
    assert is_readable(chunk, ("staff", "x"))
    assert not is_readable(chunk, ())
    assert [is_valid_at(chunk, datetime(year, 6, 1, tzinfo=UTC)) for year in (2024, 2025, 2026)] == [False, True, False]


# --- selection, order, compression -----------------------------------------------------------------


def test_complexity_by_hand():
    """Length over 100, 0.2 a question word, 0.1 a technical term, 0.3 a question mark, at most 1."""
    assert estimate_complexity("") == 0
    assert estimate_complexity("x" * 50) == 0.5
    assert estimate_complexity("How? Why?") == 1.0
    assert estimate_complexity("JavaScript") == pytest.approx(0.2)


def test_adaptive_selection_wants_relevance():
    """Scores beyond [0, 1] are no relevance, and the error says what to do."""
    assert names(select_by_complexity()(ASKED, hits(a=0.9, b=0.5, c=0.6))) == "ac"
    with pytest.raises(UsageError, match="Put a stage before it that reranks"):
        select_by_complexity()(ASKED, hits(a=12.0))


@given(st.integers(0, 12), st.sampled_from(["thirds", "ends"]))
def test_reordering_loses_nothing_and_keeps_the_best_first(count, manner):
    """Every hit is there once; the best stands first."""
    before = tuple(Chunk(id=str(n), score=1 / (n + 1)) for n in range(count))
    after = reorder(manner)(ASKED, before).hits
    assert sorted(hit.id for hit in after) == sorted(hit.id for hit in before)
    assert after[:1] == before[:1]


def test_the_middle_third_stands_at_the_end():
    """High, low, medium thirds: the worst stand in the middle."""
    assert names(reorder()(ASKED, hits(a=0.95, b=0.88, c=0.76, d=0.65, e=0.54, f=0.43))) == "abefcd"


def test_the_budget_is_never_passed():
    """Texts together stay within the budget of tokens, in order."""
    selected = select_within_budget(6)(ASKED, hits(a=3.0, b=2.0, c=1.0)).hits
    assert sum(-(-len(hit.text) // 4) for hit in selected) <= 6
    assert [hit.id for hit in selected] == ["a", "b"]


def test_top_and_distinct():
    """The first so many; near repetitions once."""
    assert names(select_top(2)(ASKED, hits(a=1.0, b=0.5, c=0.1))) == "ab"
    twice = (Chunk(id="a", text="same words here"), Chunk(id="b", text="Same words here."))
    assert names(drop_duplicates()(ASKED, twice)) == "a"
    with pytest.raises(UsageError, match="at least 1"):
        select_top(0)


class Axes:
    """An embedder of three axes, by the first letter."""

    fingerprint, dimensions = "axes/1", 3

    def embed(self, texts, *, query=False):
        rows = {"a": (1, 0, 0), "b": (0.99, 0.14, 0), "c": (0.7, 0, 0.7), "?": (1, 0, 0)}
        return np.array([rows[text[0]] for text in texts], np.float32)


def test_diverse_selection_passes_over_repetition():
    """Maximal marginal relevance takes a less relevant hit before one that says the same."""
    three = tuple(Chunk(id=name, text=name) for name in "abc")
    assert names(select_diverse(2, Axes(), weight=0.4)(Query(text="?"), three)) == "ac"
    assert names(select_diverse(3, Axes(), weight=1.0)(Query(text="?"), three)) == "abc"
    assert select_diverse(2, Axes())(Query(text="?"), ()).hits == ()


def test_compression_keeps_the_sentences_of_the_document():
    """What is left stands in the document between the new offsets; tables stay whole."""
    document = "The fares rise soon. Dogs ride free. The cafe sells soup. Cats ride free."
    hit = Chunk(id="a", text=document, document="d", start=0, end=len(document))
    table = Chunk(id="t", text="| Dogs | free |", kind="table")
    selected = compress()(Query(text="Do dogs ride free?"), (hit, table)).hits
    assert selected[0].text == "Dogs ride free. … Cats ride free."
    assert document[selected[0].start : selected[0].end].startswith("Dogs ride free.")
    assert selected[1] == table


def test_each_sum_of_scores_by_hand():
    """CombSUM, MNZ, ANZ, MAX, MIN and MED of an item that two rankings hold, and of one that only one holds."""
    rankings = [{"a": 3.0, "b": 1.0}, {"b": 9.0}]
    expected = {"sum": (3, 10), "mnz": (3, 20), "anz": (3, 5), "max": (3, 9), "min": (3, 1), "med": (3, 5)}
    for method, (only, both) in expected.items():
        assert fuse_rankings(rankings, method, norm="none") == {"a": only, "b": both}


def test_marginal_relevance_by_hand():
    """Relevance counts by its weight, likeness to what is kept by the rest of it."""
    import numpy as np

    rows = np.array([[0.8, 0.6], [0.8, -0.6], [0.6, 0.8], [0.1, -0.995]], np.float32)

    class Fixed:
        fingerprint, dimensions = "fixed", 2

        def embed(self, texts, *, query=False):
            return np.array([[1.0, 0.0]], np.float32) if query else rows[[int(text) for text in texts]]

    hits = tuple(Chunk(id=name, text=str(place)) for place, name in enumerate("abcd"))
    selected = select_diverse(3, Fixed(), weight=0.8)(Query(text="?"), hits).hits
    assert [hit.id for hit in selected] == ["a", "b", "c"]
    selected = select_diverse(3, Fixed(), weight=0.5)(Query(text="?"), hits).hits
    assert [hit.id for hit in selected][:2] == ["a", "d"]


# --- entities --------------------------------------------------------------------------------------


def test_hits_that_name_the_entities_of_the_query_are_preferred():
    """A hit that names what the query names passes one of nearly the same score, and not one that is far better."""
    query = Query(text="Which ferries go to Oslo on 14 March 2024?")
    texts = {"a": "Ferries in May", "b": "Ferries to Oslo", "c": "To Oslo on March 14, 2024", "d": "Dogs"}
    scores = {"a": 0.60, "b": 0.57, "c": 0.55, "d": 0.1}
    ranked = tuple(Chunk(id=name, text=text, score=scores[name]) for name, text in texts.items())
    assert names(prefer_entities(0.2)(query, ranked)) == "cbad"
    assert names(prefer_entities(0.01)(query, ranked)) == "abcd"
    shown = [hit.score for hit in prefer_entities(0.2)(query, ranked).hits]
    assert shown == sorted(shown, reverse=True)


def test_entities_leave_what_they_cannot_judge():
    """A query without entities, hits without scores and what lies beyond the depth keep their order."""
    query, ranked = Query(text="Which ferries go to Oslo?"), hits(a=3, b=2, c=1)
    assert prefer_entities()(ASKED, ranked).hits == ranked
    unscored = tuple(Chunk(id=name, text=f"{name} Oslo") for name in "ab")
    assert prefer_entities()(query, unscored).hits == unscored
    deep = (*ranked, Chunk(id="d", text="Oslo", score=0.9))
    assert names(prefer_entities(5, depth=3)(query, deep)) == "abcd"
    equal = (Chunk(id="x", text="Bergen", score=1.0), Chunk(id="y", text="Oslo", score=1.0))
    assert names(prefer_entities()(query, equal)) == "yx"
    assert prefer_entities()(query, ()).hits == ()
    for wrong in ({"weight": 0}, {"weight": math.nan}, {"depth": 0}):
        with pytest.raises(UsageError, match="above 0"):
            prefer_entities(**wrong)
