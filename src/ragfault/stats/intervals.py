"""A mean with its interval."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.stats.distributions import normal_quantile, t_quantile
from ragfault.stats.groups import Clusters, Values, codes

__all__ = ["Interval", "clustered_error", "mean_interval", "sparse", "standard_error", "wilson"]


ALIKE = 30
"""Fewer values than this that are all alike and without bounds say nothing about spread."""

FEW = 10
"""Fewer values than this that differ from the rest: others may be unseen as yet."""


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
    clusters: Clusters | None = None,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> Interval:
    """The mean of a sample with its confidence interval.

    Values that are all at an end of `bounds` (0/1 outcomes, but also ten perfect scores) get Wilson's
    score interval, so that "all perfect" is never reported as certain; with clusters its n is divided
    by the design effect. All other values get Student's t with the standard error of the mean, or with the
    clustered standard error and one degree of freedom less than there are clusters. Where most values
    are alike and fewer than ten differ, rare values may be unseen as yet: the interval then also holds the one
    of the sample with a value added at each end of `bounds`. The interval is cut at `bounds`. With a single value, a
    single cluster, or fewer than thirty values that are all alike and have no bounds, the data say nothing about
    spread: the interval is then all of `bounds`.

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
    groups = n if clusters is None else codes(clusters, n)[1]
    bounded = math.isfinite(low) and math.isfinite(high) and high > low
    if groups == 1 or (not bounded and n < ALIKE and not np.ptp(sample)):
        return Interval(mean, low, high, n, groups)
    if bounded and bool(np.all((sample == low) | (sample == high))):
        return _binary(sample, clusters, (low, high), groups, confidence)
    bottom, top = _student(sample, clusters, groups, confidence)
    if bounded and sparse(sample):
        padded = np.concatenate([sample, [low, high]])
        apart = None if clusters is None else np.concatenate([codes(clusters, n)[0], [groups, groups + 1]])
        ends = _student(padded, apart, groups + 2, confidence)
        bottom, top = min(bottom, ends[0]), max(top, ends[1])
    return Interval(mean, max(low, bottom), min(high, top), n, groups)


def _student(
    sample: NDArray[np.float64], clusters: Clusters | None, groups: int, confidence: float
) -> tuple[float, float]:
    """Student's t interval with the plain or the clustered standard error."""
    mean = float(sample.mean())
    error = standard_error(sample) if clusters is None else clustered_error(sample, clusters)
    half = t_quantile(0.5 + confidence / 2, groups - 1) * error
    return mean - half, mean + half


def sparse(sample: NDArray[np.float64]) -> bool:
    """Whether most values are alike and few differ.

    >>> sparse(np.array([1.0] * 18 + [0.0] * 2)), sparse(np.array([0.0, 1.0] * 10))
    (True, False)
    """
    alike = int(np.unique(sample, return_counts=True)[1].max())
    return 2 * alike > sample.size and sample.size - alike < FEW


def _binary(
    sample: NDArray[np.float64],
    clusters: Clusters | None,
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
    p = 0.5 + confidence / 2
    z = normal_quantile(p) if clusters is None or groups == n else t_quantile(p, groups - 1)
    bottom, top = _score(share, size, z)
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


def clustered_error(values: Values, clusters: Clusters) -> float:
    """The standard error of the mean where values of one cluster move together.

    Residuals are summed within each cluster before they are squared (Liang & Zeger 1986), with the
    finite-cluster correction g / (g − 1). Infinite for fewer than two clusters.

    >>> round(clustered_error(range(20), [0, 1, 2, 3] * 5), 3)
    0.645
    """
    sample = np.asarray(values, dtype=np.float64)
    index, groups = codes(clusters, sample.size)
    if groups < 2:
        return math.inf
    sums = np.bincount(index, weights=sample - sample.mean(), minlength=groups)
    return float(math.sqrt(groups / (groups - 1) * float(np.sum(sums**2))) / sample.size)


def wilson(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share (Wilson 1927).

    >>> [round(end, 4) for end in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    return _score(successes / n, n, normal_quantile(0.5 + confidence / 2))


def _score(share: float, n: float, z: float) -> tuple[float, float]:
    """The score interval of a share at z standard errors."""
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (0.0 if share == 0 else max(0.0, centre - half)), (1.0 if share == 1 else min(1.0, centre + half))
