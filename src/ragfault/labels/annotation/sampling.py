"""Sample of the traces that are worth labeling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from ragfault.io.field_values import InvalidRecord
from ragfault.io.runs.run import Run
from ragfault.labels.reading.label_files import iterate_label_rows
from ragfault.labels.reading.labeled_traces import hash_rank
from ragfault.metrics.aliases import resolve_alias
from ragfault.model.errors import BadLine, InputError, UsageError
from ragfault.model.records import Verdicts
from ragfault.stats.bootstrap import FloatArray

# share of the sample drawn uniformly: it bounds the weights
UNIFORM_SHARE = 0.5
# assumed error of a verdict without a probability, where the judge is sure
SURE_ERROR = 0.1

METRIC_VERDICTS = {"groundedness": "claim", "context_relevance": "chunk", "chunk_attribution": "citation"}
"""Metric → verdicts whose uncertainty it shares."""


class SuggestedTrace(Struct, frozen=True, kw_only=True):
    """Trace that is worth a label."""

    trace: str
    # probability with which it was sampled
    chance: float
    # expected error of the judge on it, as a standard deviation of the metric
    uncertainty: float


def shuffle_ids(ids: Sequence[str], seed: int = 0) -> list[str]:
    """Shuffle ids into a random order that does not depend on their order.

    >>> shuffle_ids(["a", "b", "c"])
    ['a', 'c', 'b']
    """
    return sorted(ids, key=lambda name: hash_rank(name, seed))


def estimate_uncertainty(verdicts: Verdicts, metric: str) -> float | None:
    """Estimate the error of the judge on one trace; None where the metric has no verdict.

    The standard deviation of a mean of independent verdicts that are each right with the judge's own probability.

    >>> from ragfault.model.records import ChunkVerdict
    >>> halves = tuple(ChunkVerdict(chunk=name, relevance=0.5, level="medium") for name in "abcd")
    >>> estimate_uncertainty(Verdicts(trace="1", chunk=halves), "context_relevance")
    0.25
    """
    probabilities: list[float] = []
    if METRIC_VERDICTS[metric] == "claim":
        probabilities = [_correct_probability(verdict.p, verdict.unsure) for verdict in verdicts.claim or ()]
    elif METRIC_VERDICTS[metric] == "chunk":
        probabilities = [verdict.relevance for verdict in verdicts.chunk or ()]
    else:
        probabilities = [_correct_probability(verdict.p, verdict.unsure) for verdict in verdicts.citation or ()]
    if not probabilities:
        return None
    return math.sqrt(sum(p * (1 - p) for p in probabilities)) / len(probabilities)


def _correct_probability(p: float | None, unsure: bool) -> float:
    return p if p is not None else 0.5 if unsure else SURE_ERROR


def compute_chances(uncertainty: FloatArray, n: int) -> FloatArray:
    """Compute the sampling probability of each trace: half uniform, half by the judge's uncertainty.

    Labels narrow the corrected interval by how far the judge errs, and the best probabilities are proportional to that
    error (Zrnic & Candès 2024). None is above 1, nor below half of that of a uniform sample.

    >>> compute_chances(np.array([0.0, 0.1, 0.3, 0.4]), 2).round(3)
    array([0.25 , 0.375, 0.625, 0.75 ])
    """
    size = uncertainty.size
    if n >= size:
        return np.ones(size)
    share = uncertainty / uncertainty.sum() if uncertainty.sum() > 0 else np.full(size, 1 / size)
    shares = UNIFORM_SHARE / size + (1 - UNIFORM_SHARE) * share
    chances: FloatArray = np.minimum(1.0, n * shares)
    for _ in range(size):
        free = chances < 1
        shortfall = n - chances.sum()
        if shortfall < 1e-9 or not free.any():
            break
        chances = np.minimum(1.0, np.where(free, chances * (1 + shortfall / chances[free].sum()), 1.0))
    return chances


def suggest_traces(run: Run, n: int, metric: str = "groundedness", seed: int = 0) -> list[SuggestedTrace]:
    """Sample about `n` traces whose labels narrow the corrected interval of a metric most, in random order.

    The probability of each grows with the judge's own uncertainty (`compute_chances`), by one systematic
    sample over the traces in random order. With the probability in each label the estimate is unbiased,
    however wrong the uncertainty is. Raises UsageError where the judge gives no such verdicts.
    """
    metric = resolve_alias(metric)
    if metric not in METRIC_VERDICTS:
        raise UsageError(f"labels can be suggested for {', '.join(METRIC_VERDICTS)}; not for {metric}.")
    uncertainty_by_trace = {verdicts.trace: estimate_uncertainty(verdicts, metric) for verdicts in run.verdicts()}
    known = {name: uncertainty for name, uncertainty in uncertainty_by_trace.items() if uncertainty is not None}
    if not known:
        raise UsageError(f"{run.path} has no {METRIC_VERDICTS[metric]} verdicts: {metric} cannot be labelled there.")
    ids = shuffle_ids(list(known), seed)
    uncertainty = np.array([known[name] for name in ids])
    chances = compute_chances(uncertainty, n)
    edges = np.cumsum(chances) + np.random.default_rng(seed).random()
    sampled_rows = np.flatnonzero(np.floor(edges) > np.floor(edges - chances))
    picks = {
        ids[index]: SuggestedTrace(
            trace=ids[index], chance=float(chances[index]), uncertainty=float(uncertainty[index])
        )
        for index in sampled_rows.tolist()
    }
    return [picks[name] for name in shuffle_ids(list(picks), seed + 1)]


def read_suggestions(path: str | Path) -> list[SuggestedTrace]:
    """Read the suggestions of a file, in order. Raises InputError for an unreadable file or line."""
    suggestions = []
    for line, row, _ in iterate_label_rows(path):
        try:
            if isinstance(row, InvalidRecord):
                raise row
            suggestions.append(msgspec.convert(row, SuggestedTrace))
        except (InvalidRecord, msgspec.ValidationError) as error:
            raise InputError(f"{BadLine(str(path), line, str(error))}. Make it with: ragfault label suggest") from None
    return suggestions
