"""Quantiles and ratios with confidence intervals, and their changes between paired runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import (
    Clusters,
    ClusterTable,
    FloatArray,
    Values,
    as_matrix,
    cluster_error,
    draw_counts,
    encode_clusters,
    expand_confidence,
    skewed_interval,
    tabulate_clusters,
)
from ragfault.stats.distributions import incomplete_beta, normal_quantile, t_quantile
from ragfault.stats.estimates import QuantileChange, QuantileInterval, RatioInterval
from ragfault.stats.intervals import MIN_CONSTANT_VALUES, estimate_design_effect
from ragfault.stats.significance import sign_flip_test, sign_flip_tests

RESAMPLES = 1000
LARGE_RESAMPLES = 200
"""Number of resamples above 5,000 clusters, where only their standard deviation is used."""
LARGE_CLUSTERS = 5000
MIN_CHANGE_CLUSTERS = 8
"""With fewer clusters a bootstrap has too few distinct resamples."""


def quantile_interval(
    values: Values, quantile: float, clusters: Clusters | None = None, *, confidence: float = 0.95
) -> QuantileInterval:
    """Return a quantile of a sample with its confidence interval, whatever the distribution.

    `quantile` is a share in (0, 1). The ends are the order statistics whose ranks the binomial distribution gives
    (Thompson 1936), so that the coverage is at least the stated one on each side. The upper end of p95 needs 72
    values and that of p99 368; below, the end is None and `reason` says so. With clusters the ranks are those of an
    effective sample size: n over the design effect of the share of values up to the quantile, and over the square of
    Student's t to the normal quantile (Woodruff 1952; Korn & Graubard 1998). The design effect is not below that of
    the median, since few values beyond a high quantile show too little of it.

    Assumes that clusters (else values) are drawn independently. Raises ValueError on no values, values that are not
    finite, or a quantile outside (0, 1).

    >>> quantile_interval(range(1, 101), 0.5)
    QuantileInterval(quantile=0.5, value=50.0, low=40.0, high=61.0, n=100, clusters=100, reason=None)
    >>> quantile_interval(range(1, 101), 0.99).reason
    'the upper end of p99 needs about 368 values, not 100'
    """
    sample = np.sort(_check_values(values))
    if not 0 < quantile < 1:
        raise ValueError(f"the quantile is {quantile}: give a share between 0 and 1")
    n, tail = sample.size, (1 - confidence) / 2
    value = float(sample[_find_rank(n, quantile) - 1])
    if clusters is None:
        groups, size = n, float(n)
    else:
        groups = encode_clusters(clusters, n)[1]
        data = np.asarray(values, dtype=np.float64)
        middle = sample[(n - 1) // 2]
        size = min(_count_effective(data <= end, clusters, groups, confidence) for end in {value, float(middle)})
    if groups < 2:
        reason = "one cluster says nothing about the spread"
        return QuantileInterval(quantile, value, None, None, n, groups, reason)
    low, high = _find_ranks(n, size, quantile, tail)
    missing = []
    for end, rank, least in (
        ("lower", low, _least_size(1 - quantile, tail)),
        ("upper", high, _least_size(quantile, tail)),
    ):
        if rank is None:
            about = f"{n:,}" if size == n else f"{n:,} worth {math.floor(size):,} independent ones"
            missing.append(f"the {end} end of p{100 * quantile:g} needs about {least:,} values, not {about}")
    return QuantileInterval(
        quantile,
        value,
        None if low is None else float(sample[low - 1]),
        None if high is None else float(sample[high - 1]),
        n,
        groups,
        "; ".join(missing) or None,
    )


def _check_values(values: Values) -> FloatArray:
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError("no values: a quantile or a ratio of nothing is undefined")
    if sample.ndim != 1 or not np.isfinite(sample).all():
        raise ValueError("give one row of finite values")
    return sample


def _find_rank(n: float, quantile: float) -> int:
    """Return the rank of a quantile, from 1."""
    return max(1, math.ceil(n * quantile - 1e-9))


def _least_size(share: float, tail: float) -> int:
    """Return how many values give the end beyond a share."""
    return math.ceil(math.log(tail) / math.log(share))


def _count_effective(below: NDArray[np.bool_], clusters: Clusters, groups: int, confidence: float) -> float:
    """Return how many independent values the sample is worth about a share of its values."""
    n = below.size
    if groups in (1, n):
        return float(groups)
    effect, df = estimate_design_effect(below.astype(np.float64), clusters)
    p = 0.5 + confidence / 2
    return n / effect * (normal_quantile(p) / t_quantile(p, df)) ** 2


def _find_ranks(n: int, size: float, quantile: float, tail: float) -> tuple[int | None, int | None]:
    """Return the ranks of both ends for n values that are worth `size` independent ones; None for no such rank."""
    scale = size / n

    def too_low(rank: int) -> bool:
        below = (rank - 1) * scale
        return incomplete_beta(size - below, below + 1, 1 - quantile, quantile) > tail

    def high_enough(rank: int) -> bool:
        upto = rank * scale
        return incomplete_beta(upto, size - upto + 1, quantile, 1 - quantile) <= tail

    low = _first_rank(too_low, n) - 1
    high = _first_rank(high_enough, n)
    return (low or None), (high if high <= n else None)


def _first_rank(is_true: Callable[[int], bool], n: int) -> int:
    """Return the first rank of 1 to n from which a condition holds; n + 1 where it never does."""
    low, high = 1, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_true(middle) else (middle + 1, high)
    return low


def quantile_changes(
    baseline: Values,
    candidate: Values,
    quantiles: Sequence[float],
    clusters: Clusters | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[QuantileChange, ...]:
    """Return the changes of quantiles between paired values, each with its interval and a permutation test.

    The interval is that of the percentile bootstrap over resampled clusters (else pairs), at the expanded confidence
    of small samples (Hesterberg 2015); above 5,000 clusters the normal one with the deviation of 200 resamples. It is
    undefined where one side's own interval lacks an end, or below eight clusters. The test swaps the sides of each
    cluster and compares how many values of each exceed the quantile of both together, which no swap changes
    (`sign_flip_tests`): without clusters McNemar's exact test. Claim a change of the quantile where p is small and the
    interval excludes 0.

    Assumes that clusters (else pairs) are drawn independently. Raises ValueError as `quantile_interval` does, and
    where the sides differ in length.

    >>> before, after = [float(i) for i in range(100)], [float(i) + 30 for i in range(100)]
    >>> change = quantile_changes(before, after, [0.5])[0]
    >>> change.value, change.low > 0, change.p < 0.001
    (30.0, True, True)
    """
    old, new = _check_pairs(baseline, candidate)
    sides = [
        [quantile_interval(values, q, clusters, confidence=confidence) for q in quantiles] for values in (old, new)
    ]
    replicates = _resample_changes(old, new, quantiles, clusters, seed)
    both = np.sort(np.concatenate([old, new]))
    pooled = both[np.array([_find_rank(both.size, q) - 1 for q in quantiles], dtype=np.intp)]
    tests = sign_flip_tests(old[:, None] > pooled, new[:, None] > pooled, clusters, seed=seed)
    # each has pairs
    p_values = [test.p for test in tests if test is not None]
    changes = []
    for q, before, after, column, p in zip(quantiles, *sides, replicates.T, p_values, strict=True):
        value, reason = after.value - before.value, before.reason or after.reason
        if reason is None and before.clusters < MIN_CHANGE_CLUSTERS:
            reason = f"an interval of the change needs {MIN_CHANGE_CLUSTERS} pairs or clusters, not {before.clusters}"
        low, high = (None, None) if reason else _bootstrap_ends(column, value, before.clusters, confidence)
        changes.append(QuantileChange(q, before, after, value, low, high, p, reason=reason))
    return tuple(changes)


def _bootstrap_ends(replicates: FloatArray, value: float, groups: int, confidence: float) -> tuple[float, float]:
    wide = expand_confidence(confidence, groups - 1)
    if groups > LARGE_CLUSTERS:
        reach = normal_quantile(0.5 + wide / 2) * float(replicates.std(ddof=1))
        return value - reach, value + reach
    share = max((1 - wide) / 2, 1 / replicates.size)
    low, high = np.quantile(replicates, share, method="lower"), np.quantile(replicates, 1 - share, method="higher")
    return min(value, float(low)), max(value, float(high))


def _check_pairs(baseline: Values, candidate: Values) -> tuple[FloatArray, FloatArray]:
    old, new = _check_values(baseline), _check_values(candidate)
    if old.shape != new.shape:
        raise ValueError(f"{old.size} values of the baseline, {new.size} of the candidate: give pairs")
    return old, new


def _resample_changes(
    old: FloatArray, new: FloatArray, quantiles: Sequence[float], clusters: Clusters | None, seed: int
) -> FloatArray:
    """Return the changes of the quantiles in bootstrap resamples of the clusters, resamples by quantiles."""
    index = np.arange(old.size) if clusters is None else encode_clusters(clusters, old.size)[0]
    groups = int(index.max()) + 1
    resamples = LARGE_RESAMPLES if groups > LARGE_CLUSTERS else RESAMPLES
    sorted_rows = [np.argsort(values, kind="stable") for values in (old, new)]
    shares = np.asarray(quantiles, dtype=np.float64)
    changes = np.empty((resamples, shares.size))
    for rows, counts in draw_counts(groups, resamples, np.random.default_rng(seed)):
        resampled = []
        for values, order in zip((old, new), sorted_rows, strict=True):
            reached = np.cumsum(counts[:, index[order]], axis=1)
            ranks = [np.searchsorted(row, shares * row[-1] - 1e-9) for row in reached]
            resampled.append(values[order][np.stack(ranks)])
        changes[rows] = resampled[1] - resampled[0]
    return changes


def ratio_interval(
    numerator: Values, denominator: Values, clusters: Clusters | None = None, *, confidence: float = 0.95
) -> RatioInterval:
    """Return the ratio of two sums over the same traces, such as cost per trace, with its interval.

    The interval holds every ratio for which numerator less ratio times denominator may have the mean 0 (Fieller 1954),
    by Student's t with the error and degrees of freedom of `cluster_error`, stretched on the side of the longer tail.
    Undefined where a sum is 0; no interval with one cluster, or fewer than thirty traces of one and the same ratio.

    Values are 0 or more. Assumes that clusters (else traces) are drawn independently. Raises ValueError on no values,
    values below 0 or not finite, and different lengths.

    >>> ratio = ratio_interval([0.02, 0.03, 0.04, 0.03] * 10, [1, 1, 1, 0] * 10)
    >>> [round(x, 3) for x in (ratio.value, ratio.low, ratio.high)]
    [0.04, 0.033, 0.052]
    """
    values = [_check_values(column) for column in (numerator, denominator)]
    n = values[0].size
    if any(column.size != n for column in values):
        raise ValueError("the columns differ in length: give one value of each for every trace")
    if any((column < 0).any() for column in values):
        raise ValueError("a value is below 0: a ratio is of amounts")
    groups = n if clusters is None else encode_clusters(clusters, n)[1]
    means = [float(column.mean()) for column in values]
    if not all(means):
        return RatioInterval(None, None, None, n, groups, None, "a sum is 0")
    above, below = means
    ratio = above / below
    error = cluster_error(tabulate_clusters(as_matrix(values[0] / above - values[1] / below), clusters, None), 0)[0]
    if groups < 2 or (error <= 1e-12 and n < MIN_CONSTANT_VALUES):
        reason = "one cluster" if groups < 2 else "one and the same ratio on fewer than thirty traces"
        return RatioInterval(ratio, None, None, n, groups, None, f"{reason} says nothing about the spread")
    table = tabulate_clusters(np.column_stack(values), clusters, None)
    bottom, top = (_find_ratio_end(table, ratio, step, confidence) for step in (0.5, 2.0))
    unknown = None if bottom and top else "a sum is not shown to be above 0"
    return RatioInterval(ratio, bottom, top, n, groups, None, unknown)


def paired_ratio(
    baseline: Values, candidate: Values, clusters: Clusters | None = None, *, confidence: float = 0.95, seed: int = 0
) -> RatioInterval:
    """Return candidate over baseline of the means of paired values, with its interval and a permutation test.

    The interval is that of `ratio_interval`, the test `sign_flip_test`. Raises ValueError as these do.

    >>> before, after = [100.0, 120.0, 90.0, 110.0] * 5, [150.0, 170.0, 140.0, 160.0] * 5
    >>> ratio = paired_ratio(before, after)
    >>> round(ratio.value, 3), ratio.low > 1, ratio.p < 0.001
    (1.476, True, True)
    """
    old, new = _check_pairs(baseline, candidate)
    ratio = ratio_interval(new, old, clusters, confidence=confidence)
    p = sign_flip_test(old, new, clusters, seed=seed).p
    return RatioInterval(ratio.value, ratio.low, ratio.high, ratio.n, ratio.clusters, p, ratio.reason)


MAX_DOUBLINGS = 40
BISECTIONS = 30


def _find_ratio_end(table: ClusterTable, ratio: float, step: float, confidence: float) -> float | None:
    """Find how far a ratio may be multiplied by steps until numerator less ratio times denominator differs from 0."""

    def is_possible(candidate: float) -> bool:
        apart = ClusterTable(table.sums[:, [0]] - candidate * table.sums[:, [1]], table.counts[:, [0]])
        low, high = skewed_interval(float(apart.means()[0]), *cluster_error(apart, 0), confidence)
        return low <= 0 <= high

    inside, outside = ratio, ratio * step
    for _ in range(MAX_DOUBLINGS):
        if not is_possible(outside):
            break
        inside, outside = outside, outside * step
    else:
        return None
    for _ in range(BISECTIONS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if is_possible(middle) else (inside, middle)
    return inside
