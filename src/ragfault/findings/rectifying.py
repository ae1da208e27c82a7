"""Figures put right by what people, or a stronger judge, said of some of the traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.runs import Measure
from ragfault.stats import (
    LEAST_LABELS,
    Rectified,
    RectifiedDifference,
    Rest,
    rectified_difference,
    rectified_mean,
    rectified_unpaired,
)

if TYPE_CHECKING:
    from ragfault.findings.grid import Codes, Floats

__all__ = ["People", "Rectification", "Said", "rectified", "rectified_change"]


class Rectification(Struct, frozen=True, kw_only=True):
    """By whose labels the figures of a run were put right."""

    by: str
    """Who labelled: names, a file, or the judge of another run."""
    traces: int
    """Labelled traces of the run."""
    strangers: int = 0
    """Labels of traces, or of answers, that are not in the run."""
    disputed: int = 0
    """Items on which those who labelled differ."""


class Said(NamedTuple):
    """The values of one metric by people."""

    values: NDArray[np.float64]
    """NaN where nobody gave one."""
    chances: NDArray[np.float64]
    """With which each trace was drawn to be labelled."""

    def of(self, rows: Codes | NDArray[np.bool_]) -> Said:
        """Those of some traces."""
        return Said(self.values[rows], self.chances[rows])


class People(Struct, frozen=True, kw_only=True):
    """What people, or a stronger judge, make of a run: values of its metrics on some of its traces."""

    made: Rectification
    values: Mapping[str, Mapping[str, float]]
    """Metric, as it prints → trace → value."""
    chances: Mapping[str, float] = {}
    """Trace → the chance with which it was drawn to be labelled; empty: any was as likely as any other."""

    def column(self, metric: str, ids: Sequence[str]) -> Said | None:
        """The values of a metric on these traces, NaN where nobody gave one; None where nobody did at all."""
        known = self.values.get(metric)
        if not known:
            return None
        values = np.array([known.get(name, math.nan) for name in ids], dtype=np.float64)
        return Said(values, np.array([self.chances.get(name, 1.0) for name in ids], dtype=np.float64))


def bounds(measure: Measure) -> tuple[float, float]:
    """The range of a metric."""
    low, high = measure.low, measure.high
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def rectified(
    judged: Floats, people: Said, clusters: Codes | None, measure: Measure, rest: Rest | None = None
) -> Rectified | None:
    """The mean of a metric over the traces that the judge scored, put right; None where nobody labelled any.

    `rest` holds further traces that the judge scored and nobody labelled, as sums.
    """
    if not bool(np.isfinite(people.values).any()):
        return None
    return rectified_mean(
        judged, people.values, clusters, chances=people.chances, rest=rest, bounds=bounds(measure)
    )


def rectified_change(
    judged: tuple[Floats, Floats],
    people: tuple[Said | None, Said | None],
    clusters: NDArray[np.int64] | None,
    measure: Measure,
) -> RectifiedDifference | None:
    """The difference of a metric on pairs that the judge scored on both sides, put right; None without a label.

    By the pairs with labels on both sides where there are enough of them, and both were drawn with one chance; else by
    the labels of each side.
    """
    old, new = people
    if old is None or new is None:
        told = f"only the {'baseline' if new is None else 'candidate'} is labelled"
        return None if old is new else RectifiedDifference(None, None, 0, reason=told)
    sides = (judged[0], old.values), (judged[1], new.values)
    both = np.isfinite(old.values + new.values)
    alike = bool((old.chances[both] == new.chances[both]).all())
    least = min(int(np.isfinite(side.values).sum()) for side in (old, new))
    if (int(both.sum()) < LEAST_LABELS or not alike) and least >= LEAST_LABELS:
        groups = None if clusters is None else (clusters, clusters)
        chances = old.chances, new.chances
        return rectified_unpaired(*sides, groups, chances=chances, bounds=bounds(measure))
    return rectified_difference(*sides, clusters, chances=new.chances, bounds=bounds(measure))
