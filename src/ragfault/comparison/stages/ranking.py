"""Ranking of the stages of a pipeline that may have caused a fault, by weights learned on faults of known stage."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct, convert

from ragfault.comparison.records import StageEvidence, Suspect

MAX_SUSPECTS = 3
NO_EVIDENCE = "no specific evidence on these pairs"
ORDER_ALONE = "order alone"
"""Name of the observation that lists changed in nothing but their order."""
EXCLUDED_STAGES = {
    ORDER_ALONE: frozenset(
        ("chunker", "ingestion", "source documents", "index coverage", "filter", "top-k", "score threshold")
    )
}
"""Observation → stages that cannot have caused it: these change chunks and not their order alone."""


class StageWeights(Struct, frozen=True):
    """Weights of a multinomial logistic model, learned by `training/stages.py`."""

    temperature: float
    """Divides the logits; fitted on kinds of faults and corpora that were held out."""
    common_weight: float
    """Weight of evidence without a weight of its own."""
    branch_logits: float
    """Logit of a stage outside those that are usual in the branch of the fault, beside its prior."""
    trials: int
    """Trials on the fault bench, each with its kind of fault held out."""
    first_accuracy: float
    """Share of these trials in which the first stage was a right one."""
    top_accuracy: float
    """The same for any of the first three stages."""
    prior_logits: dict[str, float]
    """Stage → logit without evidence."""
    weights: dict[str, float]
    """Evidence and stage ("order: reranker"), or evidence for any other stage ("setting") → weight."""

    def weight_of(self, item: StageEvidence) -> float:
        """Return the weight of an observation for its stage."""
        own = self.weights.get(f"{item.name}: {item.stage}")
        return own if own is not None else self.weights.get(item.name, self.common_weight)


@lru_cache(maxsize=1)
def load_stage_weights() -> StageWeights:
    """Load the weights of the package."""
    text = files(__package__).joinpath("weights.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), StageWeights)


def score_stage(stage: str, evidence: Sequence[StageEvidence], table: StageWeights) -> float:
    """Score a stage: its prior and the weighted strengths of the evidence for it, as a logit."""
    return table.prior_logits.get(stage, 0.0) + sum(
        table.weight_of(item) * item.strength for item in evidence if item.stage == stage
    )


def score_stages(
    usual: Sequence[str], others: Sequence[str], evidence: Sequence[StageEvidence], table: StageWeights
) -> dict[str, float]:
    """Score the usual stages of a fault and those of the others that any evidence speaks for; none that it excludes."""
    supported = {item.stage for item in evidence}
    excluded = {stage for item in evidence for stage in EXCLUDED_STAGES.get(item.name, ())}
    usual = [stage for stage in usual if stage not in excluded]
    others = [stage for stage in others if stage not in excluded]
    added = [stage for stage in others if stage not in usual and stage in supported]
    scores = {stage: score_stage(stage, evidence, table) for stage in (*usual, *added)}
    return {stage: score + table.branch_logits * (stage in added) for stage, score in scores.items()}


def rank_suspects(
    usual: Sequence[str], evidence: Sequence[StageEvidence], others: Sequence[str] = ()
) -> tuple[Suspect, ...]:
    """Rank the stages that a fault may lie in, at most three, the likeliest first, each with its best evidence.

    Beside the usual stages, those of the others are ranked that any evidence speaks for. The probability is among these
    stages, calibrated on kinds of faults that were held out. Stages of equal score stay in the order given.
    """
    table = load_stage_weights()
    logits = {stage: score / table.temperature for stage, score in score_stages(usual, others, evidence, table).items()}
    most = max(logits.values(), default=0.0)
    total = sum(math.exp(logit - most) for logit in logits.values())
    ranked = sorted(logits.items(), key=lambda pair: -pair[1])
    return tuple(
        Suspect(
            stage=stage, probability=math.exp(logit - most) / total, evidence=_best_evidence(stage, evidence, table)
        )
        for stage, logit in ranked[:MAX_SUSPECTS]
    )


def _best_evidence(stage: str, evidence: Sequence[StageEvidence], table: StageWeights) -> str:
    """Return the observation that speaks most for a stage; one that speaks for several counts for each in part."""
    own = [item for item in evidence if item.stage == stage]
    stages_of = Counter(item.name for item in evidence)
    best = max(own, key=lambda item: table.weight_of(item) * item.strength / stages_of[item.name], default=None)
    return NO_EVIDENCE if best is None else best.text
