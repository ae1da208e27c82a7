"""The recommendation: the simplest pipeline over which no gain is shown on the held-out questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ragfault.apps.tune.results import Gain, capitalize, describe_cost, format_gain
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig
from ragfault.text.number_format import format_p_value

BEST_SCORING = "the best-scoring pipeline"
NEEDED_STEPS = "the best-scoring pipeline without the steps that show no gain"
PRESENT = "the present pipeline"
PLAIN_BM25 = "plain BM25"


class Recommendation(NamedTuple):
    """Recommended pipeline, by its name among the candidates, with the reason."""

    name: str
    reason: str


def order_candidates(
    best: PipelineConfig, present: PipelineConfig, plain_bm25: PipelineConfig, pruned: PipelineConfig | None = None
) -> dict[str, PipelineConfig]:
    """Return the different pipelines that may be recommended by name, the simplest first.

    `pruned` is the best-scoring one without the steps that show no gain.

    The one with fewer stages is simpler, an embedder counted as a stage; of equally many the present one, for which
    nothing has to be changed, and then plain BM25. Milliseconds do not decide: they vary with the load of the machine.

    >>> plain = PipelineConfig()
    >>> reranked = PipelineConfig(stages={**plain.stages, "rerank": "rerank(lexical)"})
    >>> list(order_candidates(reranked, plain, plain))
    ['plain BM25', 'the best-scoring pipeline']
    """
    present_name = PLAIN_BM25 if present.name == plain_bm25.name else PRESENT
    candidates_by_name = [(present_name, present), (PLAIN_BM25, plain_bm25)]
    candidates_by_name += [(NEEDED_STEPS, pruned)] if pruned is not None and pruned.name != best.name else []
    candidates_by_name.append((BEST_SCORING, best))
    candidates: dict[str, PipelineConfig] = {}
    for name, config in candidates_by_name:
        if config.name not in {known_config.name for known_config in candidates.values()}:
            candidates[name] = config
    return dict(sorted(candidates.items(), key=lambda item: len(item[1].stages) + (item[1].embedder != NO_EMBEDDER)))


def recommend_pipeline(
    candidates: Sequence[str], gains: Sequence[Gain], excluded: Mapping[str, str], metric: str
) -> Recommendation:
    """Choose the simplest candidate unless a gain over it is shown.

    `candidates` come the simplest first. Each is compared with the recommendation so far, and replaces it where
    its gain is shown by the corrected test. `gains` has every candidate over every simpler one. The `excluded` ones,
    each with its reason, are never recommended.
    """
    eligible = [name for name in candidates if name not in excluded]
    by_pair = {(gain.chosen, gain.alternative): gain for gain in gains}
    current, reasons = eligible[0], []
    for name in eligible[1:]:
        gain = by_pair[name, current]
        if gain.verdict == "gains":
            reasons = [f"It gains {_describe_figures(gain, metric)} over {current}{_describe_price(gain)}."]
            current = name
    for name in eligible[eligible.index(current) + 1 :]:
        # The best-scoring candidate, where it is not recommended itself, is what the reader asks about.
        if name == BEST_SCORING or BEST_SCORING not in eligible:
            reasons.append(_describe_no_gain(by_pair[name, current], metric))
    if not reasons and current != eligible[-1]:
        reasons.append(_describe_no_gain(by_pair[eligible[-1], current], metric))
    for name in candidates[: list(candidates).index(current)]:
        if name in excluded:
            reasons.append(capitalize(f"{name} {excluded[name]}."))
    return Recommendation(current, " ".join(reasons) or "The search chose nothing else.")


def _describe_no_gain(gain: Gain, metric: str) -> str:
    """Describe the gain of a candidate that takes no place."""
    subject = capitalize(gain.component)
    if gain.verdict == "loses":
        return f"{subject} loses {_describe_figures(gain, metric)}{_describe_price(gain)}."
    return f"{subject} showed no gain: {_describe_figures(gain, metric)}{_describe_price(gain)}."


def _describe_figures(gain: Gain, metric: str) -> str:
    p = format_p_value(gain.adjusted_p)
    return (
        f"{format_gain(gain)} {metric} on {gain.difference.n:,} held-out questions (p {p if p[0] == '<' else f'= {p}'})"
    )


def _describe_price(gain: Gain) -> str:
    cost = describe_cost(gain)
    return f", and {cost}" if cost else ""
