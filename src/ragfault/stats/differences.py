"""Differences of means with confidence intervals: candidate minus baseline, paired or unpaired."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ragfault.stats.bootstrap import (
    Clusters,
    ClusterTable,
    FloatArray,
    Values,
    as_matrix,
    bca_interval,
    cluster_error,
    expand_confidence,
    jackknife_influences,
    resample_means,
    skewed_interval,
    subtract_pairs,
    tabulate_clusters,
)
from ragfault.stats.estimates import Difference

Bounds = tuple[float, float]
UNBOUNDED = (-math.inf, math.inf)

RESAMPLES = 2000
MIN_BOOTSTRAP_CLUSTERS = 8
"""With fewer clusters a bootstrap has too few distinct resamples, and Student's t is used."""
MIN_PURE_BCA_CLUSTERS = 200
"""With fewer clusters BCa follows the skewness of the sample too closely, and is extended to Student's t."""
MAX_BOOTSTRAP_CLUSTERS = 20_000
"""With more clusters BCa differs from Student's t by less than its Monte Carlo error, and t is used
unless a number of resamples is given.
"""
SPARSE_CLUSTERS = 10
"""If fewer clusters differ from the usual value and most are equal, rare differences may be unobserved."""


def paired_difference(
    baseline: Values,
    candidate: Values,
    clusters: Clusters | None = None,
    *,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
) -> Difference:
    """Return the mean of the differences of paired values, with its interval.

    One metric of `paired_differences`. Raises ValueError on no pairs.

    >>> baseline = [0.9, 0.8, 0.7, 0.9, 0.6, 0.8, 0.9, 0.7, 0.8, 0.9]
    >>> candidate = [0.7, 0.8, 0.6, 0.5, 0.6, 0.6, 0.8, 0.7, 0.5, 0.8]
    >>> found = paired_difference(baseline, candidate, bounds=(0, 1))
    >>> round(found.mean, 2), round(found.low, 2), round(found.high, 2), found.method
    (-0.14, -0.25, -0.04, 'bca')
    """
    difference = paired_differences(
        baseline, candidate, clusters, bounds=[bounds], confidence=confidence, resamples=resamples, seed=seed
    )[0]
    if difference is None:
        raise ValueError("no pairs: a difference of nothing is undefined")
    return difference


def paired_differences(
    baseline: ArrayLike,
    candidate: ArrayLike,
    clusters: Clusters | None = None,
    *,
    defined: ArrayLike | None = None,
    bounds: Sequence[Bounds] | None = None,
    confidence: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
) -> tuple[Difference | None, ...]:
    """Return the mean differences of many metrics over the same paired traces, each with its interval.

    `baseline` and `candidate` are traces by metrics; `defined` says which pairs exist (True) and `bounds`
    gives the range of each metric. None stands for a metric without a pair.

    The interval is BCa (Efron 1987) over resampled clusters (else pairs), the same resamples for all
    metrics, at the expanded confidence that makes up for small samples (Hesterberg 2015); below 200 clusters
    each end reaches at least as far as that of Student's t with the clustered standard error. It is that
    t interval alone below 8 clusters, above 20,000 (unless `resamples` is given) and with `resamples=0`.

    Where the metric is bounded and its differences are sparse (all -1, 0 or 1 widths, or fewer than ten
    clusters differ from the usual and most are alike) a pair at each end is added before Student's t is
    taken (Bonett & Price 2012), so that "no difference in ten pairs" is not reported as certain.

    Intervals are cut at what the bounds allow. With one cluster, or with unbounded differences that are all alike, the
    data say nothing about spread: the interval is all there can be. Assumes that clusters (else pairs) are drawn
    independently from the traffic. Raises ValueError where shapes differ or a value that exists is not finite.

    >>> baseline = [[0.9, 1], [0.8, 1], [0.7, 0], [0.9, 1]]
    >>> candidate = [[0.7, 1], [0.8, 0], [0.6, 0], [0.5, 1]]
    >>> [round(d.mean, 3) for d in paired_differences(baseline, candidate)]
    [-0.175, -0.25]
    """
    change = subtract_pairs(baseline, candidate, defined)
    return _compute_differences([tabulate_clusters(change, clusters, defined)], bounds, confidence, resamples, seed)


def unpaired_differences(
    baseline: ArrayLike,
    candidate: ArrayLike,
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    bounds: Sequence[Bounds] | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> tuple[Difference | None, ...]:
    """Return the differences of the means of many metrics between two samples that share no traces.

    As `paired_differences`, with both sides resampled apart, Welch's degrees of freedom (Welch 1947) for Student's t,
    and one value at each end of the bounds added to either side where a metric has only values at its ends or hardly
    any that differ (Agresti & Caffo 2000). `clusters` is given as (of the baseline, of the candidate).
    Assumes that the clusters (else values) of both sides are drawn independently, within a side and between the sides.
    Raises ValueError where the numbers of metrics differ or a value that exists is not finite.

    >>> baseline, candidate = [[1.0], [2.0], [3.0]], [[2.0], [5.0]]
    >>> unpaired_differences(baseline, candidate)[0].mean
    1.5
    """
    before, after = as_matrix(baseline), as_matrix(candidate)
    if before.shape[1] != after.shape[1]:
        raise ValueError(f"baseline has {before.shape[1]} metrics, candidate {after.shape[1]}")
    groups = clusters or (None, None)
    tables = [tabulate_clusters(after, groups[1], None), tabulate_clusters(before, groups[0], None)]
    return _compute_differences(tables, bounds, 0.95, resamples, seed)


def _compute_differences(
    tables: list[ClusterTable], bounds: Sequence[Bounds] | None, confidence: float, resamples: int | None, seed: int
) -> tuple[Difference | None, ...]:
    """Subtract the second table's means, if there is one, from the first's."""
    metrics = tables[0].sums.shape[1]
    if bounds is not None and len(bounds) != metrics:
        raise ValueError(f"{len(bounds)} bounds for {metrics} metrics")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: give a share between 0 and 1")
    sides = [_DifferenceSide(table) for table in tables]
    clusters = sum(len(table.sums) for table in tables)
    if resamples is None:
        resamples = RESAMPLES if clusters <= MAX_BOOTSTRAP_CLUSTERS else 0
    replicates = None
    if resamples and min(len(table.sums) for table in tables) >= MIN_BOOTSTRAP_CLUSTERS:
        rng = np.random.default_rng(seed)
        replicate_means = [resample_means(table, resamples, rng) for table in tables]
        replicates = replicate_means[0] - replicate_means[1] if len(replicate_means) > 1 else replicate_means[0]
    return tuple(
        _compute_difference(
            sides,
            metric,
            UNBOUNDED if bounds is None else bounds[metric],
            confidence,
            None if replicates is None else replicates[:, metric],
        )
        for metric in range(metrics)
    )


class _DifferenceSide:
    """One sample with the means and errors of all metrics."""

    def __init__(self, table: ClusterTable) -> None:
        self.table, self.means = table, table.means()
        self.n, self.clusters = table.n, table.clusters
        self.errors = [cluster_error(table, metric) for metric in range(table.sums.shape[1])]

    def count(self, metric: int) -> tuple[int, int]:
        return int(self.n[metric]), int(self.clusters[metric])

    def estimate(self, metric: int) -> tuple[float, float, float]:
        return float(self.means[metric]), *self.errors[metric][:2]

    def padded_estimate(self, metric: int, bounds: Bounds) -> tuple[float, float, float]:
        """Estimate the mean with one cluster of mean size added at each end."""
        sums, counts = self.table.sums[:, metric], self.table.counts[:, metric]
        present = counts > 0
        size = float(self.n[metric]) / max(1, int(self.clusters[metric]))
        more = ClusterTable(
            np.append(sums[present], [bounds[0] * size, bounds[1] * size])[:, None],
            np.append(counts[present], [size, size])[:, None],
        )
        return float(more.means()[0]), *cluster_error(more, 0)[:2]

    def is_sparse(self, metric: int, expected: tuple[float, ...]) -> bool:
        """Return whether all values are `expected` ones, or hardly any differ from the median."""
        present = self.table.counts[:, metric] > 0
        means = self.table.sums[present, metric] / self.table.counts[present, metric]
        tolerance = 1e-9 * (expected[-1] - expected[0])
        differ = int(np.count_nonzero(np.abs(means - np.median(means)) > tolerance))
        if differ < SPARSE_CLUSTERS and differ <= len(means) / 2:
            return True
        return bool((np.minimum.reduce([np.abs(means - value) for value in expected]) <= tolerance).all())


def _compute_difference(
    sides: list[_DifferenceSide], metric: int, bounds: Bounds, confidence: float, replicates: FloatArray | None
) -> Difference | None:
    if any(side.n[metric] == 0 for side in sides):
        return None
    reach = bounds[1] - bounds[0]
    expected = bounds if len(sides) > 1 else (-reach, 0.0, reach)
    mean = float(sides[0].means[metric]) - sum(float(side.means[metric]) for side in sides[1:])
    fewest_clusters = min(int(side.clusters[metric]) for side in sides)
    sparse = [fewest_clusters > 1 and math.isfinite(reach) and side.is_sparse(metric, expected) for side in sides]
    parts = [
        side.padded_estimate(metric, (expected[0], expected[-1])) if thin else side.estimate(metric)
        for side, thin in zip(sides, sparse, strict=True)
    ]
    method: Literal["bca", "t", "sparse", "none"] = "sparse" if any(sparse) else "t"
    centre, error, df = welch_difference(parts)
    if fewest_clusters < 2 or error <= 1e-12 * abs(mean):
        method, error, interval = "none", math.inf, (-math.inf, math.inf)
    else:
        stretched = method == "t" and len(sides) == 1 and fewest_clusters < MIN_BOOTSTRAP_CLUSTERS
        skewness = sides[0].errors[metric][2] if stretched else 0.0
        interval = skewed_interval(centre, error, df, skewness, confidence)
    if method == "t" and replicates is not None and fewest_clusters >= MIN_BOOTSTRAP_CLUSTERS:
        influences = [
            sign * jackknife_influences(side.table, metric) for sign, side in zip((1, -1), sides, strict=False)
        ]
        ends = bca_interval(replicates, mean, influences, expand_confidence(confidence, df))
        if ends is not None:
            if df < MIN_PURE_BCA_CLUSTERS - 1:
                ends = min(ends[0], interval[0]), max(ends[1], interval[1])
            method, interval = "bca", ends
    low, high = min(mean, max(-reach, interval[0])), max(mean, min(reach, interval[1]))
    n, clusters = (int(sum(counts)) for counts in zip(*(side.count(metric) for side in sides), strict=True))
    return Difference(mean, low, high, error, df, centre, n, clusters, method)


def welch_difference(parts: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Subtract the second estimate, if there is one, with Welch's degrees of freedom."""
    if len(parts) == 1:
        return parts[0]
    (mean_one, error_one, df_one), (mean_two, error_two, df_two) = parts
    if error_one == 0 and error_two == 0:
        return mean_one - mean_two, 0.0, df_one + df_two
    error = math.hypot(error_one, error_two)
    if not math.isfinite(error):
        return mean_one - mean_two, error, math.nan
    return mean_one - mean_two, error, error**4 / (error_one**4 / df_one + error_two**4 / df_two)
