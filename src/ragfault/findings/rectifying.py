"""Figures put right by what people, or a stronger judge, said of some of the traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.runs import Measure
from ragfault.stats import (
    LEAST,
    Rectified,
    RectifiedDifference,
    rectified_difference,
    rectified_mean,
    rectified_unpaired,
)

if TYPE_CHECKING:
    from ragfault.findings.grid import Codes, Floats

__all__ = ["People", "Rectification", "rectified", "rectified_change"]


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


class People(Struct, frozen=True, kw_only=True):
    """What people, or a stronger judge, make of a run: values of its metrics on some of its traces."""

    made: Rectification
    values: Mapping[str, Mapping[str, float]]
    """Metric, as it prints → trace → value."""

    def column(self, metric: str, ids: Sequence[str]) -> Floats | None:
        """The values of a metric on these traces, NaN where nobody gave one; None where nobody did at all."""
        known = self.values.get(metric)
        if not known:
            return None
        return np.array([known.get(name, math.nan) for name in ids], dtype=np.float64)


def bounds(measure: Measure) -> tuple[float, float]:
    """The range of a metric."""
    low, high = measure.low, measure.high
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def rectified(judged: Floats, people: Floats, clusters: Codes | None, measure: Measure) -> Rectified | None:
    """The mean of a metric over the traces that the judge scored, put right; None where nobody labelled any."""
    if not bool(np.isfinite(people).any()):
        return None
    return rectified_mean(judged, people, clusters, bounds=bounds(measure))


def rectified_change(
    judged: tuple[Floats, Floats],
    people: tuple[Floats | None, Floats | None],
    clusters: NDArray[np.int64] | None,
    measure: Measure,
) -> RectifiedDifference | None:
    """The difference of a metric on pairs that the judge scored on both sides, put right; None without a label.

    By the pairs with labels on both sides where there are enough of them; else by the labels of each side.
    """
    said = [np.full(len(judged[0]), math.nan) if side is None else side for side in people]
    both = int(np.isfinite(said[0] + said[1]).sum())
    each = [int(np.isfinite(side).sum()) for side in said]
    if not any(each):
        return None
    if not all(each):
        told = f"only the {'candidate' if each[1] else 'baseline'} is labelled"
        return RectifiedDifference(None, None, 0, reason=told)
    sides = (judged[0], said[0]), (judged[1], said[1])
    if both < LEAST <= min(each):
        groups = None if clusters is None else (clusters, clusters)
        return rectified_unpaired(*sides, groups, bounds=bounds(measure))
    return rectified_difference(*sides, clusters, bounds=bounds(measure))
