"""What follows from differences: equality shown within a margin, and p values corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ragfault.stats.difference import Difference
from ragfault.stats.distributions import t_below, t_quantile

__all__ = ["Equivalence", "equivalence", "holm"]


class Equivalence(Struct, frozen=True):
    """Two one-sided tests of a difference against a margin."""

    p: float
    """Small: the difference is shown to lie within the margin (the larger of the two)."""
    p_drop: float
    """Small: a drop of the margin or more is ruled out. Its complement tests a drop beyond the margin."""
    p_rise: float
    """Small: a rise of the margin or more is ruled out."""
    low: float
    """The interval of confidence 1 - 2 alpha, which lies within the margin exactly where p < alpha."""
    high: float
    margin: float


def equivalence(difference: Difference, margin: float, alpha: float = 0.05) -> Equivalence:
    """The equivalence test: is the difference shown to be smaller than a margin? (Schuirmann 1987)

    Null hypothesis: the true difference is at least `margin` away from 0. Two one-sided tests by
    Student's t with the (clustered) standard error of the difference; p is the larger of the two. Where the
    data say nothing about spread, p is 1. Assumes what the difference assumes and a mean that is near
    normal, which rare large differences break; bounds given to the difference guard against the worst of it.

    Raises ValueError where the margin is not above 0.

    >>> from ragfault.stats.difference import paired_difference
    >>> same = paired_difference([0.50, 0.61, 0.70, 0.82], [0.51, 0.60, 0.71, 0.81])
    >>> round(equivalence(same, 0.05).p, 4), equivalence(same, 0.001).p > 0.05
    (0.0016, True)
    """
    if not margin > 0:
        raise ValueError(f"margin is {margin}: give the smallest change that matters, above 0")
    centre, error, df = difference.centre, difference.error, difference.df
    if not math.isfinite(error):
        return Equivalence(1.0, 1.0, 1.0, -math.inf, math.inf, margin)
    p_drop = t_below(-(centre + margin) / error, df)
    p_rise = t_below((centre - margin) / error, df)
    half = t_quantile(1 - alpha, df) * error
    return Equivalence(max(p_drop, p_rise), p_drop, p_rise, centre - half, centre + half, margin)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of the p values of several tests (Holm 1979).

    Rejecting each null whose adjusted p is at most alpha keeps the chance of any false rejection at most
    alpha, however the tests depend on each other. Raises ValueError on a p value outside 0 to 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a p value lies outside 0 to 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    found: list[float] = adjusted.tolist()
    return found
