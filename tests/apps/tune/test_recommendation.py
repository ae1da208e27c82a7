"""Laws of the recommendation: the simplest pipeline, unless a gain over it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.apps.tune.recommendation import (
    BEST_SCORING,
    NEEDED_STEPS,
    PLAIN_BM25,
    PRESENT,
    order_candidates,
    recommend_pipeline,
)
from ragfault.apps.tune.results import Gain, describe_cost
from ragfault.apps.tune.search_space import SearchSpace
from ragfault.apps.tune.tuner import drop_spare_steps, tune
from ragfault.model.records import Document, Gold, Span, Trace
from ragfault.retrieval.pipeline_config import PipelineConfig, replace_stage
from ragfault.stats.differences import paired_difference
from ragfault.stats.estimates import Difference

PLAIN = PipelineConfig(chunker="fixed(64)", stages={"retrieve": "sparse(k=50)", "select": "top(10)"})
RERANKED = replace_stage(PLAIN, "rerank", "rerank(lexical, depth=10)")
THREE = (PLAIN_BM25, PRESENT, BEST_SCORING)


def difference(mean: float) -> Difference:
    values = mean + np.linspace(-0.01, 0.01, 40)
    return paired_difference([0.5] * 40, list(0.5 + values), range(40), bounds=(0, 1), seed=0)


def gain(chosen: str, alternative: str, verdict: str, p: float = 0.726) -> Gain:
    mean = {"gains": 0.1, "loses": -0.1, "no gain shown": 0.0}[verdict]
    return Gain(
        component=chosen,
        chosen=chosen,
        alternative=alternative,
        difference=difference(mean),
        p=p,
        adjusted_p=p,
        ms=65.0,
        tokens=0.0,
        verdict=verdict,  # type: ignore[arg-type]
    )


def compare(present_plain: str, best_plain: str, best_present: str) -> Sequence[Gain]:
    return (
        gain(PRESENT, PLAIN_BM25, present_plain),
        gain(BEST_SCORING, PLAIN_BM25, best_plain),
        gain(BEST_SCORING, PRESENT, best_present),
    )


COSTS = [
    (2, 1782, "costs 2 ms and 1,782 tokens more"), (-2, -1782, "saves 2 ms and 1,782 tokens"),
    (2, -1782, "costs 2 ms more and saves 1,782 tokens"), (-2, 1782, "costs 1,782 tokens more and saves 2 ms"),
    (0, 0, ""),
]  # fmt: skip


@pytest.mark.parametrize(("ms", "tokens", "text"), COSTS)
def test_what_a_gain_costs_and_what_it_saves_are_named_once_each(ms: float, tokens: float, text: str):
    assert describe_cost(replace(gain(PRESENT, PLAIN_BM25, "gains"), ms=ms, tokens=tokens)) == text


@pytest.mark.parametrize("verdict", ["no gain shown", "loses"])
def test_the_simplest_is_recommended_where_no_gain_is_shown(verdict: str):
    """Without a shown gain the simplest is recommended, and the line says what the best-scoring did and cost."""
    name, reason = recommend_pipeline(THREE, compare(verdict, verdict, "gains"), {}, "ndcg@10")
    assert name == PLAIN_BM25
    assert "p = 0.726" in reason
    assert "costs 65 ms more" in reason
    assert ("showed no gain" in reason) == (verdict == "no gain shown")


def test_a_shown_gain_is_recommended():
    """Where a gain over all that is simpler is shown, what gains is recommended with the gain."""
    name, reason = recommend_pipeline(THREE, compare("no gain shown", "gains", "no gain shown"), {}, "ndcg@10")
    assert name == BEST_SCORING
    assert reason.startswith("It gains +0.100")
    assert "over plain BM25" in reason


def test_each_candidate_is_compared_with_what_was_recommended_so_far():
    """Where the present pipeline gains over plain BM25 and the best-scoring not over it, the present one stays."""
    name, reason = recommend_pipeline(THREE, compare("gains", "gains", "no gain shown"), {}, "ndcg@10")
    assert name == PRESENT
    assert "over plain BM25" in reason
    assert "The best-scoring pipeline showed no gain" in reason
    assert recommend_pipeline(THREE, compare("gains", "gains", "gains"), {}, "ndcg@10").name == BEST_SCORING


def test_what_breaks_a_bound_is_not_recommended():
    """A simpler pipeline that breaks a bound is passed over, and the line says so."""
    excluded = {PLAIN_BM25: "does not keep to recall>=0.9"}
    name, reason = recommend_pipeline(THREE, compare("loses", "loses", "no gain shown"), excluded, "ndcg@10")
    assert name == PRESENT
    assert "Plain BM25 does not keep to recall>=0.9." in reason


def test_fewer_stages_are_simpler_and_the_same_pipeline_counts_once():
    """Candidates come by their number of stages, an embedder counted; one under two names is one candidate."""
    dense = PipelineConfig(chunker="fixed(64)", embedder="latent", stages={"retrieve": "dense", "select": "top(10)"})
    assert list(order_candidates(PLAIN, RERANKED, dense)) == [BEST_SCORING, PRESENT, PLAIN_BM25]
    assert list(order_candidates(RERANKED, PLAIN, PLAIN)) == [PLAIN_BM25, BEST_SCORING]
    assert list(order_candidates(PLAIN, PLAIN, PLAIN)) == [PLAIN_BM25]
    renamed = PipelineConfig(chunker="fixed(64)", stages={"find": "sparse(k=50)", "keep": "top(10)"})
    assert list(order_candidates(RERANKED, renamed, PLAIN)) == [PLAIN_BM25, BEST_SCORING]


def test_a_reranker_that_brings_nothing_is_not_recommended():
    """Over questions that plain BM25 answers in full, it is recommended over a present pipeline with a reranker."""
    pytest.importorskip("bm25s", reason="the extra `retrieval` is not installed")
    names = [f"station{at}" for at in range(24)]
    corpus = [Document(id=name, text=f"The kiosk of {name} opens at nine.") for name in names]
    traces = [
        Trace(id=name, query=f"When does {name} open?", gold=Gold(spans=(Span(document=name, start=0, end=20),)))
        for name in names
    ]
    space = SearchSpace(chunkers=("fixed(64)",), embedders=(), queries=(), rerankers=(), selections=(), compressions=())
    # The search has no time, so that the present pipeline is the best-scoring one too.
    result = tune(corpus, traces, space=space, baseline=RERANKED, budget="0.001s", subject_to=["tokens<=2000"])
    assert result.best == RERANKED
    assert result.config.name == PLAIN.name
    assert result.measured[0].config == result.config
    assert result.summary[0].startswith("Recommended: plain BM25. Reranking showed no gain: ")
    assert RERANKED.name in {row.config.name for row in result.measured}


def test_steps_without_a_gain_of_their_own_are_dropped():
    """Of the best-scoring pipeline the steps that show no gain are left out, and the rest is a candidate before it."""
    best = replace_stage(RERANKED, "select", "diverse(10)")
    ablations = (gain("rerank", "none", "gains"), gain("select", "top(10)", "no gain shown"))
    pruned = drop_spare_steps(best, PLAIN, ablations, lambda _: True)
    assert pruned == RERANKED
    assert list(order_candidates(best, PLAIN, PLAIN, pruned)) == [PLAIN_BM25, NEEDED_STEPS, BEST_SCORING]
    assert drop_spare_steps(best, PLAIN, ablations[:1], lambda _: True) == best
    assert drop_spare_steps(best, PLAIN, ablations, lambda _: False) == best
    assert list(order_candidates(best, PLAIN, PLAIN, best)) == [PLAIN_BM25, BEST_SCORING]


@pytest.mark.parametrize(("over_pruned", "name"), [("no gain shown", NEEDED_STEPS), ("gains", BEST_SCORING)])
def test_the_needed_steps_are_recommended_unless_all_of_them_gain_more(over_pruned: str, name: str):
    """The best-scoring pipeline is recommended only where it gains over the one without its spare steps."""
    gains = (
        gain(NEEDED_STEPS, PLAIN_BM25, "gains"),
        gain(BEST_SCORING, PLAIN_BM25, "gains"),
        gain(BEST_SCORING, NEEDED_STEPS, over_pruned),
    )
    assert recommend_pipeline((PLAIN_BM25, NEEDED_STEPS, BEST_SCORING), gains, {}, "ndcg@10").name == name
