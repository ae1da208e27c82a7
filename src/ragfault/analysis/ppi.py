"""Prediction-powered correction of means and differences from human labels on some of the traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from ragfault.analysis.score_matrix import Codes, Floats


class LabelProvenance(Struct, frozen=True, kw_only=True):
    """Origin of the human labels that correct a run."""

    labelers: str
    """Who labelled: names, a file, or the judge of another run."""
    traces: int
    """Labelled traces of the run."""
    unmatched: int = 0
    """Labels of traces, or of answers, that are not in the run."""
    disputed: int = 0
    """Items on which those who labelled differ."""


class LabelValues(NamedTuple):
    """Human label values of one metric."""

    values: NDArray[np.float64]
    """NaN where nobody gave one."""
    probabilities: NDArray[np.float64]
    """With which each trace was drawn to be labelled."""

    def select(self, rows: Codes | NDArray[np.bool_]) -> LabelValues:
        """Return the values of some traces."""
        return LabelValues(self.values[rows], self.probabilities[rows])


class HumanLabels(Struct, frozen=True, kw_only=True):
    """Human labels, or those of a stronger judge: metric values on some of the traces of a run."""

    source: LabelProvenance
    values: Mapping[str, Mapping[str, float]]
    """Metric, as it prints → trace → value."""
    probabilities: Mapping[str, float] = {}
    """Trace → the chance with which it was drawn to be labelled; empty: any was as likely as any other."""

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
    """The mean of a metric over the traces that the judge scored, put right; None where nobody labelled any.

    `rest` holds further traces that the judge scored and nobody labelled, as sums.
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


def correct_difference(
    judged: tuple[Floats, Floats],
    labels: tuple[LabelValues | None, LabelValues | None],
    clusters: NDArray[np.int64] | None,
    measure: MetricInfo,
) -> PpiDifference | None:
    """The difference of a metric on pairs that the judge scored on both sides, put right; None without a label.

    By the pairs with labels on both sides where there are enough of them, and both were drawn with one chance; else by
    the labels of each side.
    """
    old, new = labels
    if old is None or new is None:
        told = f"only the {'baseline' if new is None else 'candidate'} is labelled"
        return None if old is new else PpiDifference(None, None, 0, reason=told)
    sides = (judged[0], old.values), (judged[1], new.values)
    both = np.isfinite(old.values + new.values)
    alike = bool((old.probabilities[both] == new.probabilities[both]).all())
    least = min(int(np.isfinite(side.values).sum()) for side in (old, new))
    if (int(both.sum()) < MIN_LABELS or not alike) and least >= MIN_LABELS:
        groups = None if clusters is None else (clusters, clusters)
        chances = old.probabilities, new.probabilities
        return ppi_unpaired_difference(
            *sides, groups, sampling_probabilities=chances, bounds=metric_bounds(measure)
        )
    return ppi_paired_difference(
        *sides, clusters, sampling_probabilities=new.probabilities, bounds=metric_bounds(measure)
    )
