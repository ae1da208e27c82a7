"""Means with intervals: what a sample of traces says about the traffic it was drawn from.

Every function states what it assumes. Values of traces that share a cluster (the turns of one
conversation) are not independent; give their clusters, and the interval widens to say so.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

__all__ = ["Interval", "clustered_error", "mean_interval", "standard_error", "t_quantile", "wilson"]

Values = Sequence[float] | NDArray[np.float64]


class Interval(Struct, frozen=True):
    """A mean and the range that holds the true mean at the stated confidence."""

    mean: float
    low: float
    high: float
    n: int
    """Values."""
    clusters: int
    """Independent groups among them; equal to n where no clusters were given."""


def mean_interval(
    values: Values,
    clusters: Sequence[Hashable] | None = None,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> Interval:
    """The mean of a sample with its confidence interval.

    Values that are all at an end of `bounds` (0/1 outcomes, but also ten perfect scores) get Wilson's
    score interval, so that "all perfect" is never reported as certain; with clusters its n is divided
    by the design effect. All other values get Student's t with the standard error of the mean, or with the
    clustered standard error and one degree of freedom less than there are clusters. The interval is cut
    at `bounds`. With a single value, or a single cluster, the data say nothing about spread: the
    interval is then all of `bounds`.

    Assumes that clusters (else values) are drawn independently from the traffic.

    Raises ValueError on no values.

    >>> mean_interval([1, 1, 1, 1, 1, 0, 1, 1], bounds=(0, 1))
    Interval(mean=0.875, low=0.529..., high=0.97..., n=8, clusters=8)
    >>> mean_interval([0.5], bounds=(0, 1))
    Interval(mean=0.5, low=0.0, high=1.0, n=1, clusters=1)
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError("no values: a mean of nothing is undefined")
    low, high = float(bounds[0]), float(bounds[1])
    n, mean = int(sample.size), float(sample.mean())
    groups = n if clusters is None else len(set(clusters))
    if groups > 1 and math.isfinite(low) and math.isfinite(high) and high > low:
        at_ends = bool(np.all((sample == low) | (sample == high)))
        if at_ends:
            return _binary(sample, clusters, bounds, groups, confidence)
    if groups == 1:
        return Interval(mean, low, high, n, groups)
    error = standard_error(sample) if clusters is None else clustered_error(sample, clusters)
    half = t_quantile(0.5 + confidence / 2, groups - 1) * error
    return Interval(mean, max(low, mean - half), min(high, mean + half), n, groups)


def _binary(
    sample: NDArray[np.float64],
    clusters: Sequence[Hashable] | None,
    bounds: tuple[float, float],
    groups: int,
    confidence: float,
) -> Interval:
    """Wilson's interval on the scale of `bounds`, with n divided by the design effect."""
    low, high = bounds
    n = int(sample.size)
    share = float((sample == high).mean())
    size = float(n)
    if clusters is not None and groups < n:
        plain = standard_error(sample)
        effect = (clustered_error(sample, clusters) / plain) ** 2 if plain > 0 else n / groups
        size = n / max(1.0, effect)
    bottom, top = wilson(share * size, size, confidence)
    width = high - low
    return Interval(low + width * share, low + width * bottom, low + width * top, n, groups)


def standard_error(values: Values) -> float:
    """The standard error of the mean: sample deviation (n − 1) over the root of n.

    Infinite for fewer than two values.

    >>> round(standard_error(range(10)), 3)
    0.957
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 2:
        return math.inf
    return float(sample.std(ddof=1) / math.sqrt(sample.size))


def clustered_error(values: Values, clusters: Sequence[Hashable]) -> float:
    """The standard error of the mean where values of one cluster move together.

    Residuals are summed within each cluster before they are squared (Liang & Zeger 1986), with the
    finite-cluster correction g / (g − 1). Infinite for fewer than two clusters.

    >>> round(clustered_error(range(20), [0, 1, 2, 3] * 5), 3)
    0.645
    """
    sample = np.asarray(values, dtype=np.float64)
    codes: dict[Hashable, int] = {}
    index = np.fromiter((codes.setdefault(c, len(codes)) for c in clusters), dtype=np.intp, count=sample.size)
    groups = len(codes)
    if groups < 2:
        return math.inf
    sums = np.bincount(index, weights=sample - sample.mean(), minlength=groups)
    return float(math.sqrt(groups / (groups - 1) * float(np.sum(sums**2))) / sample.size)


def wilson(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share (Wilson 1927).

    >>> [round(end, 4) for end in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    z = _normal_quantile(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The quantile of Student's t distribution.

    Found by bisection on the distribution function, which is the regularised incomplete beta function
    (continued fraction of Lentz). Accurate to about 1e-10 relative.

    >>> round(t_quantile(0.975, 9), 6)
    2.262157
    """
    if not 0 < p < 1 or df <= 0:
        raise ValueError(f"t_quantile needs 0 < p < 1 and df > 0, got p={p}, df={df}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while _t_below(high, df) < p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _t_below(middle, df) < p else (low, middle)
    return (low + high) / 2


def _t_below(t: float, df: float) -> float:
    """P(T ≤ t) for t ≥ 0."""
    square = t * t
    return 0.5 + 0.5 * _incomplete_beta(0.5, df / 2, square / (df + square), df / (df + square))


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function I_x(a, b); `rest` is 1 − x, given apart to keep its digits."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(front) * _lentz(a, b, x) / a


def _lentz(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 / (1 + step * d or tiny)
            c = 1 + step / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


@lru_cache(maxsize=64)
def _normal_quantile(p: float) -> float:
    """The quantile of the standard normal distribution."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(p)
