"""Ranking of the stages of a pipeline that may have caused a fault, by weights learned on faults of known stage."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct, convert

from ragfault.analysis.comparison.records import StageEvidence, Suspect

MAX_SUSPECTS = 3
NO_EVIDENCE = "nothing on the pairs speaks for it in particular"


class StageWeights(Struct, frozen=True):
    """Weights of a multinomial logistic model, learned by `training/stages.py`."""

    temperature: float
    """Divides the logits; fitted on kinds of faults and corpora that were held out."""
    common_weight: float
    """Weight of evidence without a weight of its own."""
    trials: int
    """Trials on the fault bench, each with its kind of fault held out."""
    first_accuracy: float
    """Share of these trials in which the first stage was a right one."""
    top_accuracy: float
    """The same for any of the first three stages."""
    prior_logits: dict[str, float]
    """Stage → logit without evidence."""
    weights: dict[str, float]
    """Evidence and stage ("order: reranker") → weight."""


@lru_cache(maxsize=1)
def load_stage_weights() -> StageWeights:
    """Load the weights of the package."""
    text = files(__package__).joinpath("weights.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), StageWeights)


def score_stage(stage: str, evidence: Sequence[StageEvidence], table: StageWeights) -> float:
    """Score a stage: its prior and the weighted strengths of the evidence for it, as a logit."""
    return table.prior_logits.get(stage, 0.0) + sum(
        table.weights.get(f"{item.name}: {stage}", table.common_weight) * item.strength
        for item in evidence
        if item.stage == stage
    )


def rank_suspects(stages: Sequence[str], evidence: Sequence[StageEvidence]) -> tuple[Suspect, ...]:
    """Rank the stages that a fault may lie in, at most three, the likeliest first, each with its best evidence.

    The probability is among these stages: on the fault bench a stage with 0.7 was the right one in about 70 % of the
    cases. Stages of equal score stay in the order given.
    """
    table = load_stage_weights()
    logits = [score_stage(stage, evidence, table) / table.temperature for stage in stages]
    most = max(logits, default=0.0)
    total = sum(math.exp(logit - most) for logit in logits)
    ranked = sorted(zip(logits, stages, strict=True), key=lambda pair: -pair[0])
    return tuple(
        Suspect(
            stage=stage, probability=math.exp(logit - most) / total, evidence=_best_evidence(stage, evidence, table)
        )
        for logit, stage in ranked[:MAX_SUSPECTS]
    )


def _best_evidence(stage: str, evidence: Sequence[StageEvidence], table: StageWeights) -> str:
    own = [item for item in evidence if item.stage == stage]
    best = max(
        own,
        key=lambda item: table.weights.get(f"{item.name}: {stage}", table.common_weight) * item.strength,
        default=None,
    )
    return NO_EVIDENCE if best is None else best.text
