"""Statistics of several attempts of one query: reliability, consistency, and whose noise a variance is.

A query is the unit: what its attempts say is estimated without bias within the query, and intervals are over queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import Clusters, FloatArray, encode_clusters, expand_confidence
from ragfault.stats.distributions import t_quantile
from ragfault.stats.estimates import Interval, VarianceSplit
from ragfault.stats.intervals import MIN_DIFFERING_VALUES, bounded_interval, mean_interval
from ragfault.stats.power import compute_power

PRIOR_DF = 0.5
"""Degrees of freedom at which both variances of a ratio are taken to be equal, beside those of the data."""
RESAMPLES, MOST_RESAMPLED = 999, 1000
"""Resamples of queries for the interval of a share of noise, and the queries beyond which it needs none."""
Extreme = Literal["lowest", "highest"]


class QueryValues(NamedTuple):
    """A statistic of each query that has enough attempts."""

    values: FloatArray
    left_out: int
    """Number of queries with too few attempts."""

    def estimate(self, bounds: tuple[float, float] = (0.0, 1.0)) -> Interval | None:
        """Return the mean over queries with its interval; None without a query."""
        if not len(self.values):
            return None
        is_bounded = all(map(math.isfinite, bounds))
        return bounded_interval(self.values, bounds) if is_bounded else mean_interval(self.values, bounds=bounds)


class QueryBlock(NamedTuple):
    """The queries with one number of attempts."""

    places: NDArray[np.intp]
    """Places of the queries in the order of their first attempts."""
    values: FloatArray
    """Values of their attempts, queries × attempts."""


def split_by_query(values: FloatArray, queries: Clusters) -> list[QueryBlock]:
    """Return the values of the queries, those with one number of attempts together."""
    numbers, count = encode_clusters(queries, len(values))
    sizes = np.bincount(numbers, minlength=count)
    order = np.argsort(numbers, kind="stable")
    starts = np.cumsum(sizes) - sizes
    blocks = []
    for size in np.unique(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        blocks.append(QueryBlock(places, values[order[starts[places][:, None] + np.arange(size)]]))
    return blocks


def expect_extreme(values: FloatArray, queries: Clusters, k: int, extreme: Extreme) -> QueryValues:
    """Return for each query the expected lowest or highest value of k of its attempts.

    The mean over all subsets of k attempts, which is without bias for any number of them. Of values 0 and 1 the lowest
    is pass^k, the probability that all k are right, and the highest pass@k, that any is (Chen et al. 2021). Raises
    ValueError for k below 1.

    >>> right, queries = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0]), [0, 0, 0, 1, 1, 1]
    >>> expect_extreme(right, queries, 2, "lowest").values.round(3)
    array([0.333, 1.   ])
    """

    def expect(own: FloatArray) -> FloatArray:
        size = own.shape[1]
        ordered = np.sort(own, axis=1)[:, :: 1 if extreme == "lowest" else -1]
        ways = [math.comb(size - rank, k - 1) / math.comb(size, k) for rank in range(1, size + 1)]
        expected: FloatArray = ordered @ np.array(ways)
        return expected

    return _estimate_queries(split_by_query(values, queries), k, expect)


def expect_disagreement(meanings: NDArray[np.int64], queries: Clusters, k: int) -> QueryValues:
    """Return for each query the probability that k of its attempts do not all mean the same; the mean is flakiness.

    `meanings` has one code for all attempts of a query that mean the same.

    >>> expect_disagreement(np.array([0, 0, 1, 0, 0, 0]), [0, 0, 0, 1, 1, 1], 2).values.round(3)
    array([0.667, 0.   ])
    """

    def expect(own: FloatArray) -> FloatArray:
        size = own.shape[1]
        # an attempt that means the same as c in all is in a share of the sets of k that all mean this
        alike = (own[:, :, None] == own[:, None, :]).sum(axis=2)
        ways = np.array([math.comb(count, k) / max(1, count) / math.comb(size, k) for count in range(size + 1)])
        disagreement: FloatArray = 1 - ways[alike].sum(axis=1)
        return disagreement

    return _estimate_queries(split_by_query(np.asarray(meanings, float), queries), k, expect)


def compare_sets(sets: Sequence[frozenset[str]], queries: Clusters) -> QueryValues:
    """Return for each query the mean share of two attempts' items that both have (Jaccard); two empty sets have all.

    >>> compare_sets([frozenset("ab"), frozenset("bc"), frozenset("d"), frozenset("d")], [0, 0, 1, 1]).values.round(3)
    array([0.333, 1.   ])
    """

    def expect(own: FloatArray) -> FloatArray:
        pairs = list(combinations(range(own.shape[1]), 2))
        rows = [[sets[int(place)] for place in places] for places in own]
        return np.array([np.mean([_share_items(row[i], row[j]) for i, j in pairs]) for row in rows])

    return _estimate_queries(split_by_query(np.arange(len(sets), dtype=float), queries), 2, expect)


def _share_items(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / len(first | second) if first | second else 1.0


def _estimate_queries(blocks: Sequence[QueryBlock], k: int, expect: Callable[[FloatArray], FloatArray]) -> QueryValues:
    if k < 1:
        raise ValueError(f"k is {k}: give the number of attempts, 1 or more")
    enough = [block for block in blocks if block.values.shape[1] >= k]
    count = sum(len(block.places) for block in blocks)
    values = np.full(count, np.nan)
    for block in enough:
        values[block.places] = expect(block.values)
    values = values[~np.isnan(values)]
    return QueryValues(values, count - len(values))


class _Sums(NamedTuple):
    """Sums over queries that a one-way analysis of variance needs."""

    queries: FloatArray
    attempts: FloatArray
    squared_attempts: FloatArray
    totals: FloatArray
    between: FloatArray
    """Sum of the squared totals of the queries over their numbers of attempts."""
    within: FloatArray

    def compute_components(self) -> tuple[FloatArray, FloatArray]:
        """Return the variance between queries, which chance may put below 0, and within them."""
        within = self.within / (self.attempts - self.queries)
        mean_square = (self.between - self.totals**2 / self.attempts) / (self.queries - 1)
        size = (self.attempts - self.squared_attempts / self.attempts) / (self.queries - 1)
        return (mean_square - within) / size, within


def split_variance(values: FloatArray, queries: Clusters, judge_variance: float | None = 0.0) -> VarianceSplit | None:
    """Split the variance of one attempt into that of queries, of the system's own noise and of the judge's noise.

    One-way random effects, by analysis of variance (Searle 1971). The noise of the judge is in the spread of attempts:
    `judge_variance`, measured by judging the same traces again, is taken from it; None if it is not known. The interval
    is that of the share of the noise, by the bootstrap-t over queries on the scale of the logarithm of the variance
    ratio (Efron & Tibshirani 1993, 12.5), which assumes no distribution of the values. It is all of 0 to 1 if fewer
    than ten queries differ, or the attempts of fewer than ten. None below two queries with several attempts, or without
    any variance.

    >>> split = split_variance(np.array([0.0, 0.2, 1.0, 0.8, 0.5, 0.5]), [0, 0, 1, 1, 2, 2])
    >>> round(split.queries, 3), round(split.system, 3), split.judge
    (0.153, 0.013, 0.0)
    """
    blocks = split_by_query(np.asarray(values, float), queries)
    if sum(len(block.places) for block in blocks if block.values.shape[1] > 1) < 2:
        return None
    rows = np.concatenate([_sum_queries(block.values) for block in blocks])
    total = _Sums(*rows.sum(axis=0))
    between, within = (float(part) for part in total.compute_components())
    between = max(0.0, between)
    if between + within <= 0:
        return None
    ends = _find_noise_interval(rows)
    noise = within / (between + within)
    low, high = (0.0, 1.0) if ends is None else (min(ends[0], noise), max(ends[1], noise))
    judge = None if judge_variance is None else min(judge_variance, within)
    return VarianceSplit(
        queries=between,
        system=within - (judge or 0.0),
        judge=judge,
        noise=Interval(noise, low, high, int(total.attempts), len(rows)),
    )


def _sum_queries(values: FloatArray) -> FloatArray:
    """Return the terms of `_Sums` for each query of a block."""
    size, totals = values.shape[1], values.sum(axis=1)
    within = ((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    ones = np.ones(len(values))
    return np.stack([ones, size * ones, size**2 * ones, totals, totals**2 / size, within], axis=1)


def _find_noise_interval(rows: FloatArray) -> tuple[float, float] | None:
    """Return the 95 % interval of the share of the noise; None if too few queries differ, or their attempts."""
    groups = len(rows)
    means = rows[:, 3] / rows[:, 1]
    differing = groups - np.unique(means.round(9), return_counts=True)[1].max()
    if min(differing, np.count_nonzero(rows[:, 5] > 0)) < MIN_DIFFERING_VALUES:
        return None
    total = _Sums(*rows.sum(axis=0))
    low, high = _bootstrap_log_ratio(rows)
    size = float((total.attempts - total.squared_attempts / total.attempts) / (total.queries - 1))
    low_share, high_share = (1 / (1 + max(0.0, math.exp(end) - 1) / size) for end in (high, low))
    return low_share, high_share


def _bootstrap_log_ratio(rows: FloatArray) -> tuple[float, float]:
    """Return the interval of the logarithm of the variance ratio, by Student's t of many queries or the bootstrap-t."""
    groups = len(rows)
    value, error = _estimate_log_ratio(rows, np.ones((1, groups)))
    t = t_quantile(0.975, groups - 1)
    if groups > MOST_RESAMPLED:
        return float(value[0] - t * error[0]), float(value[0] + t * error[0])
    weights = np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES)
    values, errors = _estimate_log_ratio(rows, weights.astype(float))
    is_usable = np.isfinite(values) & np.isfinite(errors) & (errors > 0)
    tail = (1 - expand_confidence(0.95, groups - 1)) / 2
    bottom, top = np.quantile((values[is_usable] - value) / errors[is_usable], (tail, 1 - tail))
    return float(value[0] - top * error[0]), float(value[0] - bottom * error[0])


def _estimate_log_ratio(rows: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logarithm of the variance ratio of weighted queries, with its standard error, for each set of weights.

    The ratio is that of the mean square between queries to that within them. Half a degree of freedom at the variance
    of all values keeps both above 0, as in the odds of a share. The error is that of the infinitesimal jackknife.
    """
    sums = _Sums(*(weights @ rows).T)
    between = sums.between - sums.totals**2 / sums.attempts
    part = PRIOR_DF / (sums.attempts - 1)
    prior = (between + sums.within) * part
    own, rest = sums.queries - 1 + PRIOR_DF, sums.attempts - sums.queries + PRIOR_DF
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log((between + prior) / own * rest / (sums.within + prior))
        above, below = 1 / (between + prior), 1 / (sums.within + prior)
        by_between = above + part * (above - below)
        mean = sums.totals / sums.attempts
        by_attempts = by_between * mean**2 - prior / (sums.attempts - 1) * (above - below) + 1 / rest
        slopes = [-1 / own - 1 / rest, by_attempts, np.zeros_like(mean), -2 * mean * by_between, by_between]
        influences = np.stack([*slopes, part * (above - below) - below], axis=1) @ rows.T
        groups = weights.sum(axis=1)
        centred = influences - ((weights * influences).sum(axis=1) / groups)[:, None]
        error = np.sqrt((weights * centred**2).sum(axis=1) * groups / (groups - 1))
    return ratio, error


def compute_attempt_power(
    drop: float, noise: float, queries: int, attempts: int, *, reach: float = 1.0, step: float = 0.0
) -> float:
    """Compute the chance that a comparison of two runs of the same queries finds a drop of the mean.

    `noise` is the variance of one attempt about the mean of its query, in each run. The drop is taken to be that of
    some queries, each of which loses half the `reach` of the metric or the drop if that is more: this adds to the
    spread of the differences, as in the plans of a comparison (`typical_jump`). Of the two-sided paired t test over
    queries (`compute_power`). Values that move by a `step`, as right or wrong, are tested more strictly: the means of
    flipped signs lie on a lattice, and the drop counts less half its width. Raises ValueError below two queries or
    without any spread.

    >>> round(compute_attempt_power(0.05, 0.08, 200, 1), 3), round(compute_attempt_power(0.05, 0.08, 200, 3), 3)
    (0.377, 0.724)
    >>> round(compute_attempt_power(0.05, 0.08, 200, 1, step=1.0), 3)
    0.317
    """
    jump = max(drop, reach / 2)
    variance = 2 * noise / attempts + drop * jump - drop**2
    return compute_power(max(0.0, drop - step / (queries * attempts)), math.sqrt(variance), queries)
