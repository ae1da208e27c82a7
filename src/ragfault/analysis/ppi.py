"""Prediction-powered correction of means and differences from human labels on some of the traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.io.runs import MetricInfo
from ragfault.stats import (
    MIN_LABELS,
    PpiDifference,
    PpiMean,
    UnlabeledSums,
    ppi_mean,
    ppi_paired_difference,
    ppi_unpaired_difference,
)

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


class LabelProvenance(Struct, frozen=True, kw_only=True):
    """Origin of the human labels that correct a run."""

    labelers: str
    """Names of the annotators, a file, or the judge of another run."""
    traces: int
    """Labelled traces of the run."""
    unmatched: int = 0
    """Labels of traces, or of answers, that are not in the run."""
    disputed: int = 0
    """Items on which the annotators disagree."""


class LabelValues(NamedTuple):
    """Human label values of one metric."""

    values: Floats
    """NaN where there is no label."""
    probabilities: Floats
    """Sampling probability of each trace."""

    def select(self, rows: Codes | Mask) -> LabelValues:
        """Return the values of some traces."""
        return LabelValues(self.values[rows], self.probabilities[rows])


class HumanLabels(Struct, frozen=True, kw_only=True):
    """Human labels, or those of a stronger judge: metric values on some of the traces of a run."""

    source: LabelProvenance
    values: Mapping[str, Mapping[str, float]]
    """Metric, by its full text → trace → value."""
    probabilities: Mapping[str, float] = {}
    """Trace → sampling probability; empty: all equal."""

    def values_of(self, metric: str, ids: Sequence[str]) -> LabelValues | None:
        """Return the values of a metric on these traces, NaN where there is none; None where no trace has one."""
        known = self.values.get(metric)
        if not known:
            return None
        values = np.array([known.get(name, math.nan) for name in ids], dtype=np.float64)
        return LabelValues(
            values, np.array([self.probabilities.get(name, 1.0) for name in ids], dtype=np.float64)
        )


def metric_bounds(measure: MetricInfo) -> tuple[float, float]:
    """Return the range of a metric, infinite where it has no end."""
    low, high = measure.low, measure.high
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def correct_mean(
    judged: Floats,
    labels: LabelValues,
    clusters: Codes | None,
    measure: MetricInfo,
    unlabeled: UnlabeledSums | None = None,
) -> PpiMean | None:
    """Correct the mean of the judge's scores by human labels; None where no trace is labelled.

    `unlabeled` holds further traces that the judge scored and nobody labelled, as sums.
    """
    if not bool(np.isfinite(labels.values).any()):
        return None
    return ppi_mean(
        judged,
        labels.values,
        clusters,
        sampling_probabilities=labels.probabilities,
        unlabeled=unlabeled,
        bounds=metric_bounds(measure),
    )


class LabeledScores(NamedTuple):
    """Scores of one run on the compared pairs, with the human labels of the same pairs."""

    scores: Floats
    labels: LabelValues | None


def correct_difference(
    baseline: LabeledScores, candidate: LabeledScores, clusters: Codes | None, measure: MetricInfo
) -> PpiDifference | None:
    """Correct the difference of a metric on scored pairs by human labels; None where neither run is labelled.

    Pairs with labels on both sides are used where there are enough and both were sampled with the same probability;
    otherwise the labels of each side by itself.
    """
    old, new = baseline.labels, candidate.labels
    if old is None or new is None:
        if old is new:
            return None
        side = "baseline" if new is None else "candidate"
        return PpiDifference(None, None, 0, reason=f"only the {side} is labelled")
    left, right = (baseline.scores, old.values), (candidate.scores, new.values)
    bounds = metric_bounds(measure)
    both = np.isfinite(old.values + new.values)
    same_sampling = bool((old.probabilities[both] == new.probabilities[both]).all())
    fewest = min(int(np.isfinite(labels.values).sum()) for labels in (old, new))
    if (int(both.sum()) < MIN_LABELS or not same_sampling) and fewest >= MIN_LABELS:
        groups = None if clusters is None else (clusters, clusters)
        probabilities = old.probabilities, new.probabilities
        return ppi_unpaired_difference(
            left, right, groups, sampling_probabilities=probabilities, bounds=bounds
        )
    return ppi_paired_difference(
        left, right, clusters, sampling_probabilities=new.probabilities, bounds=bounds
    )
