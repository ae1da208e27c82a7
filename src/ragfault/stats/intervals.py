"""Confidence intervals of means and shares, and shares corrected for sensitivity and specificity."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import (
    Clusters,
    ClusterTable,
    Values,
    as_matrix,
    cluster_error,
    encode_clusters,
    skewed_interval,
    tabulate_clusters,
)
from ragfault.stats.distributions import normal_quantile, t_quantile
from ragfault.stats.estimates import CorrectedShare, Interval

MIN_CONSTANT_VALUES = 30
"""Fewer equal values without bounds say nothing about spread."""
MIN_DIFFERING_VALUES = 10
"""If fewer values differ from the rest, rare values may be unobserved."""


def mean_interval(
    values: Values,
    clusters: Clusters | None = None,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> Interval:
    """Return the mean of a sample with its confidence interval.

    Values that are all at an end of `bounds` (0/1 outcomes, but also ten perfect scores) get Wilson's score interval,
    so that "all perfect" is never reported as certain; with clusters its n is divided by the design effect. All other
    values get Student's t with the (clustered) standard error of the mean and its degrees of freedom, stretched on the
    side of the longer tail (`cluster_error`, `skewed_interval`). Where most values are alike and those that differ are
    in fewer than ten clusters (else values), rare values may be unseen as yet: the interval then also holds the one of
    the sample with a cluster (else value) added at each end of `bounds`. The
    interval is cut at `bounds`. With a single value, a single cluster, or fewer than thirty values that are all alike
    and have no bounds, the data say nothing about spread: the interval is then all of `bounds`.

    Assumes that clusters (else values) are drawn independently from the traffic. Raises ValueError on no values.

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
    groups = n if clusters is None else encode_clusters(clusters, n)[1]
    bounded = math.isfinite(low) and math.isfinite(high) and high > low
    if groups == 1 or (not bounded and n < MIN_CONSTANT_VALUES and not np.ptp(sample)):
        return Interval(mean, low, high, n, groups)
    if bounded and bool(np.all((sample == low) | (sample == high))):
        return _binary_interval(sample, clusters, (low, high), groups, confidence)
    table = tabulate_clusters(as_matrix(sample), clusters, None)
    bottom, top = skewed_interval(mean, *cluster_error(table, 0), confidence)
    if bounded and is_sparse(sample, clusters):
        size = n / groups
        sums = np.append(table.sums, [[low * size], [high * size]], axis=0)
        padded = ClusterTable(sums, np.append(table.counts, [[size], [size]], axis=0))
        error, df, _ = cluster_error(padded, 0)
        padded_interval = skewed_interval(float(padded.means()[0]), error, df, 0.0, confidence)
        bottom, top = min(bottom, padded_interval[0]), max(top, padded_interval[1])
    return Interval(mean, max(low, bottom), min(high, top), n, groups)


def bounded_interval(values: Values, bounds: tuple[float, float] = (0.0, 1.0), confidence: float = 0.95) -> Interval:
    """Return the mean of independent values within finite bounds, with a score interval.

    Wilson's interval of as many outcomes at the ends of `bounds` as have the same mean and the same standard error (the
    effective number of Korn & Graubard 1998, with Student's t for the standard error). If fewer than ten values differ
    from the commonest, rare values may be unobserved, and the spread is taken to be the largest that the mean allows:
    each value counts as one outcome. Raises ValueError on no values.

    >>> bounded_interval([1, 1, 1, 1, 1, 0, 1, 1])
    Interval(mean=0.875, low=0.529..., high=0.97..., n=8, clusters=8)
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError("no values: a mean of nothing is undefined")
    low, high = bounds
    n, width = int(sample.size), high - low
    if n == 1 or width <= 0:
        return Interval(float(sample.mean()), low, high, n, n)
    units = (sample - low) / width
    share = min(1.0, max(0.0, float(units.mean())))
    size, z = float(n), normal_quantile(0.5 + confidence / 2)
    differing = n - int(np.unique(units.round(9), return_counts=True)[1].max())
    is_binary = bool(np.all((units == 0) | (units == 1)))
    if not is_binary and differing >= MIN_DIFFERING_VALUES:
        size = max(size, share * (1 - share) / standard_error(units) ** 2)
        z = t_quantile(0.5 + confidence / 2, n - 1)
    bottom, top = _score_interval(share, size, z)
    return Interval(low + width * share, low + width * bottom, low + width * top, n, n)


def is_sparse(sample: NDArray[np.float64], clusters: Clusters | None = None) -> bool:
    """Return whether most values are equal and few differ, or those that do are in few clusters.

    >>> is_sparse(np.array([1.0] * 18 + [0.0] * 2)), is_sparse(np.array([0.0, 1.0] * 10))
    (True, False)
    >>> is_sparse(np.array([1.0] * 80 + [0.0] * 20), list(range(8)) * 10 + [8] * 20)
    True
    """
    values, counts = np.unique(sample, return_counts=True)
    if 2 * int(counts.max()) <= sample.size:
        return False
    differ = sample != values[int(counts.argmax())]
    if clusters is None:
        return int(differ.sum()) < MIN_DIFFERING_VALUES
    return len(np.unique(encode_clusters(clusters, sample.size)[0][differ])) < MIN_DIFFERING_VALUES


def _binary_interval(
    sample: NDArray[np.float64], clusters: Clusters | None, bounds: tuple[float, float], groups: int, confidence: float
) -> Interval:
    """Return Wilson's interval on the scale of `bounds`, with n divided by the design effect."""
    low, high = bounds
    n = int(sample.size)
    share = float((sample == high).mean())
    size = float(n)
    p = 0.5 + confidence / 2
    z = normal_quantile(p)
    if clusters is not None and groups < n:
        effect, df = estimate_design_effect(sample, clusters)
        size, z = n / effect, t_quantile(p, df)
    bottom, top = _score_interval(share, size, z)
    width = high - low
    return Interval(low + width * share, low + width * bottom, low + width * top, n, groups)


def standard_error(values: Values) -> float:
    """Return the standard error of the mean: sample deviation (n − 1) over the root of n.

    Infinite for fewer than two values.

    >>> round(standard_error(range(10)), 3)
    0.957
    """
    sample = np.asarray(values, dtype=np.float64)
    return math.inf if sample.size < 2 else float(sample.std(ddof=1) / math.sqrt(sample.size))


def estimate_design_effect(values: Values, clusters: Clusters) -> tuple[float, float]:
    """Return the design effect of clusters, at least 1, with the degrees of freedom of its standard error.

    The variance of the mean over that of as many independent values (Kish 1965); of values that are all alike, the mean
    size of the cluster that a value is in.
    """
    table = tabulate_clusters(as_matrix(values), clusters, None)
    error, df, _ = cluster_error(table, 0)
    plain = standard_error(values)
    effect = (error / plain) ** 2 if plain > 0 else float((table.counts**2).sum() / table.counts.sum())
    return max(1.0, effect), df


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share (Wilson 1927).

    `n` is the number of trials, above 0, or an effective one, which may be a fraction. Both ends are in [0, 1].

    >>> [round(end, 4) for end in wilson_interval(8, 10)]
    [0.4902, 0.9433]
    """
    return _score_interval(successes / n, n, normal_quantile(0.5 + 0.95 / 2))


def _score_interval(share: float, n: float, z: float) -> tuple[float, float]:
    """Return the score interval of a share at z standard errors."""
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (0.0 if share == 0 else max(0.0, centre - half)), (1.0 if share == 1 else min(1.0, centre + half))


def correct_share(rate: Interval, sensitivity: Interval, specificity: Interval) -> CorrectedShare:
    """Correct a share for sensitivity and specificity, with the intervals of all three.

    The mean is (rate + specificity − 1) / (sensitivity + specificity − 1), cut to [0, 1]. Its interval holds every
    share x in [0, 1] for which rate − x · sensitivity − (1 − x) · (1 − specificity) may be 0, by the three intervals
    joined as their squared half-widths add (Zou & Donner 2008; for a ratio Fieller 1954). It so inherits what the
    three know of clusters and of small samples, and its confidence is theirs. The mean of shares per trace can
    stand for a rate: the map is linear, as long as the error is the same on every trace.

    Undefined where sensitivity + specificity is not above 1 or, by their intervals, not known to be; and
    where the rate lies beyond what these errors allow, even if nothing (or everything) were positive: then the errors
    here are not those that were measured.

    >>> exact = Interval(1.0, 1.0, 1.0, 50, 50)
    >>> rate = Interval(0.3, 0.2, 0.4, 100, 100)
    >>> correct_share(rate, exact, Interval(0.9, 0.9, 0.9, 50, 50)).interval
    Interval(mean=0.222..., low=0.111..., high=0.333..., n=100, clusters=100)
    """
    gain = sensitivity.mean + specificity.mean - 1
    if gain <= 0:
        rates = f"sensitivity {sensitivity.mean:.3f} + specificity {specificity.mean:.3f}"
        return CorrectedShare(None, f"{rates} is not above 1: no better than chance")
    above = rate.mean + specificity.mean - 1
    half_widths = (
        (rate.mean - rate.low, sensitivity.high - sensitivity.mean, specificity.mean - specificity.low),
        (rate.high - rate.mean, sensitivity.mean - sensitivity.low, specificity.high - specificity.mean),
    )
    if any(gain * gain <= positive**2 + negative**2 for _, positive, negative in half_widths):
        return CorrectedShare(None, "the labelled data do not show it to be better than chance")
    low, high = (_solve_bound(above, gain, span, sign) for span, sign in zip(half_widths, (-1, 1), strict=True))
    if high < 0:
        expected = f"fewer are called positive ({rate.mean:.3f}) than the {1 - specificity.mean:.3f}"
        return CorrectedShare(None, f"{expected} expected only in error: the error here is another")
    if low > 1:
        expected = f"more are called positive ({rate.mean:.3f}) than the {sensitivity.mean:.3f}"
        return CorrectedShare(None, f"{expected} expected if all were: the error here is another")
    mean, low, high = (min(1.0, max(0.0, end)) for end in (above / gain, low, high))
    return CorrectedShare(Interval(mean, min(low, mean), max(high, mean), rate.n, rate.clusters))


def _solve_bound(above: float, gain: float, span: tuple[float, float, float], sign: int) -> float:
    """Solve for the end of the corrected interval: where `above` − x · `gain` equals its own half-width."""
    own_width, positive, negative = span
    a = gain**2 - positive**2 - negative**2
    b = above * gain - negative**2
    c = above**2 - own_width**2 - negative**2
    return (b + sign * math.sqrt(max(0.0, b * b - a * c))) / a
