"""Laws of the recommendation: the present one stays unless another gains, or is as good and cheaper."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.apps.tune.recommendation import (
    BEST_SCORING,
    NEEDED_STEPS,
    PLAIN_BM25,
    PRESENT,
    Contender,
    decide,
    order_candidates,
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


def difference(mean: float, spread: float = 0.01) -> Difference:
    values = mean + np.linspace(-spread, spread, 40)
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


def contender(name: str, verdict: str, mean: float, spread: float = 0.01, **fields: str) -> Contender:
    return Contender(name, difference(mean, spread), verdict, f"{mean:+.2f}", **fields)  # type: ignore[arg-type]


COSTS = [
    (2, 1782, "costs 2 ms and 1,782 tokens more"), (-2, -1782, "saves 2 ms and 1,782 tokens"),
    (2, -1782, "costs 2 ms more and saves 1,782 tokens"), (-2, 1782, "costs 1,782 tokens more and saves 2 ms"),
    (0, 0, ""),
]  # fmt: skip


@pytest.mark.parametrize(("ms", "tokens", "text"), COSTS)
def test_what_a_gain_costs_and_what_it_saves_are_named_once_each(ms: float, tokens: float, text: str):
    assert describe_cost(replace(gain(PRESENT, PLAIN_BM25, "gains"), ms=ms, tokens=tokens)) == text


@pytest.mark.parametrize("mean", [-0.2, -0.02, -0.001])
@pytest.mark.parametrize("verdict", ["no gain shown", "loses"])
@pytest.mark.parametrize("violation", ["", "tokens<=1500 (1830)"])
def test_what_measures_below_the_present_one_is_never_recommended(mean: float, verdict: str, violation: str):
    cheap = contender("cheap", verdict, mean, saving="costs less")
    assert decide("present", [cheap], violation=violation).name == "present"


def test_a_shown_gain_is_recommended_at_any_cost():
    assert decide("present", [contender("best", "gains", 0.1)]).name == "best"


@pytest.mark.parametrize(("saving", "name"), [("is cheaper", "other"), ("", "present")])
def test_what_is_as_good_is_recommended_only_if_it_is_cheaper(saving: str, name: str):
    assert decide("present", [contender("other", "no gain shown", 0.0, saving=saving)]).name == name


def test_no_shown_difference_is_not_as_good_where_a_loss_may_hide():
    assert decide("present", [contender("other", "no gain shown", 0.0, 0.4, saving="is cheaper")]).name == "present"


def test_of_several_that_gain_the_simplest_is_recommended_over_which_no_other_gains():
    contenders = [contender("simple", "gains", 0.1), contender("best", "gains", 0.12)]
    assert decide("present", contenders).name == "simple"
    assert decide("present", contenders, lambda *pair: pair == ("best", "simple")).name == "best"


def test_a_gain_that_a_bound_rejects_is_stated():
    name, reason = decide("present", [contender("best", "gains", 0.1, violation="tokens<=1500 (1612)")])
    assert name == "present"
    assert "best gains +0.10, but breaks tokens<=1500 (1612)" in reason


def test_where_the_present_one_breaks_a_bound_what_is_as_good_and_keeps_to_it_is_recommended():
    same = contender("same", "no gain shown", 0.0)
    name, reason = decide("present", [same], violation="tokens<=1500 (1830)")
    assert name == "same"
    assert "tokens<=1500 (1830)" in reason


def test_fewer_stages_are_simpler_and_the_same_pipeline_counts_once():
    """Candidates come by their number of stages, an embedder counted; one under two names is one candidate."""
    dense = PipelineConfig(chunker="fixed(64)", embedder="latent", stages={"retrieve": "dense", "select": "top(10)"})
    assert list(order_candidates(PLAIN, RERANKED, dense)) == [BEST_SCORING, PRESENT, PLAIN_BM25]
    assert list(order_candidates(RERANKED, PLAIN, PLAIN)) == [PRESENT, BEST_SCORING]
    assert list(order_candidates(PLAIN, PLAIN, PLAIN)) == [PRESENT]
    renamed = PipelineConfig(chunker="fixed(64)", stages={"find": "sparse(k=50)", "keep": "top(10)"})
    assert list(order_candidates(RERANKED, renamed, PLAIN)) == [PRESENT, BEST_SCORING]


@pytest.mark.long
@pytest.mark.parametrize(("count", "name"), [(24, PRESENT), (240, PLAIN_BM25)])
def test_a_reranker_that_brings_nothing_is_dropped_where_the_questions_exclude_a_loss(count: int, name: str):
    pytest.importorskip("bm25s", reason="the extra `retrieval` is not installed")
    names = [f"station{at}" for at in range(count)]
    corpus = [Document(id=station, text=f"The kiosk of {station} opens at nine.") for station in names]
    traces = [
        Trace(
            id=station, query=f"When does {station} open?", gold=Gold(spans=(Span(document=station, start=0, end=20),))
        )
        for station in names
    ]
    space = SearchSpace(chunkers=("fixed(64)",), embedders=(), queries=(), rerankers=(), selections=(), compressions=())
    # The search has no time, so that the present pipeline is the best-scoring one too.
    result = tune(corpus, traces, space=space, baseline=RERANKED, budget="0.001s", subject_to=["tokens<=2000"])
    assert result.best == RERANKED
    assert result.recommended == name
    assert result.measured[0].config == result.config
    assert {PLAIN.name, RERANKED.name} <= {row.config.name for row in result.measured}


def test_steps_without_a_gain_of_their_own_are_dropped():
    """Of the best-scoring pipeline the steps that show no gain are left out, and the rest is a candidate before it."""
    best = replace_stage(RERANKED, "select", "diverse(10)")
    ablations = (gain("rerank", "none", "gains"), gain("select", "top(10)", "no gain shown"))
    pruned = drop_spare_steps(best, PLAIN, ablations, lambda _: True)
    assert pruned == RERANKED
    assert list(order_candidates(best, PLAIN, PLAIN, pruned)) == [PRESENT, NEEDED_STEPS, BEST_SCORING]
    assert drop_spare_steps(best, PLAIN, ablations[:1], lambda _: True) == best
    assert drop_spare_steps(best, PLAIN, ablations, lambda _: False) == best
    assert list(order_candidates(best, PLAIN, PLAIN, best)) == [PRESENT, BEST_SCORING]
