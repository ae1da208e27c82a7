"""Bootstrap intervals of means and differences, resampled by cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.distributions import normal_cdf, normal_quantile, t_quantile
from ragfault.stats.estimates import BootstrapEstimate

FloatArray = NDArray[np.float64]
Values = Sequence[float] | NDArray[np.float64]
Clusters = Sequence[Hashable] | NDArray[np.generic]
"""The cluster of each value: any hashables, or an array. Integer arrays are fastest."""


def encode_clusters(clusters: Clusters, size: int) -> tuple[NDArray[np.intp], int]:
    """Return the number of each value's cluster, counted from 0, and the count of clusters.

    Raises ValueError where there is not one name for each of `size` values.

    >>> encode_clusters(["b", "a", "b"], 3)
    (array([0, 1, 0]), 2)
    """
    if len(clusters) != size:
        raise ValueError(f"{len(clusters)} clusters for {size} values: give one cluster for each value")
    if isinstance(clusters, np.ndarray):
        if clusters.dtype.kind in "iub":
            return _encode_integers(clusters)
        clusters = clusters.tolist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    return np.fromiter(map(numbers.__getitem__, clusters), dtype=np.intp, count=size), len(numbers)


def _encode_integers(clusters: NDArray[np.generic]) -> tuple[NDArray[np.intp], int]:
    """Encode integer names: by counting if they are small, else by sorting."""
    names = clusters.astype(np.int64, copy=False) if clusters.dtype.kind != "u" else clusters
    if clusters.size and int(names.min()) >= 0 and int(names.max()) < 4 * clusters.size + 16:
        index = names.astype(np.intp, copy=False)
        occurs = np.bincount(index) > 0
        if occurs.all():
            return index, occurs.size
        return (np.cumsum(occurs) - 1)[index], int(occurs.sum())
    distinct, index = np.unique(names, return_inverse=True)
    return index.astype(np.intp, copy=False), distinct.size


class ClusterTable(NamedTuple):
    """Sums and counts of the values of each cluster, clusters by metrics."""

    sums: FloatArray
    counts: FloatArray

    @property
    def n(self) -> FloatArray:
        """Number of values of each metric."""
        total: FloatArray = self.counts.sum(axis=0)
        return total

    @property
    def clusters(self) -> NDArray[np.intp]:
        """Number of clusters with a value of each metric."""
        present: NDArray[np.intp] = np.count_nonzero(self.counts, axis=0)
        return present

    def means(self) -> FloatArray:
        """Return the mean of each metric; 0 without values."""
        mean: FloatArray = self.sums.sum(axis=0) / np.maximum(self.n, 1)
        return mean

    def standard_errors(self) -> FloatArray:
        """Return the clustered standard error of each mean; infinite below two clusters. See `cluster_error`."""
        return np.array([_estimate_error(*_present_clusters(self, metric))[0] for metric in range(self.sums.shape[1])])


def _present_clusters(table: ClusterTable, metric: int) -> tuple[FloatArray, FloatArray]:
    """Return the sums and counts of the clusters with a value of a metric."""
    present = table.counts[:, metric] > 0
    return table.sums[present, metric], table.counts[present, metric]


def _estimate_error(sums: FloatArray, counts: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return the standard error of a mean of clusters, the share of each in the values, and its scale by CR2."""
    if len(sums) < 2:
        return math.inf, counts, counts
    total = float(counts.sum())
    share = counts / total
    residuals = (sums - sums.sum() / total * counts) / total
    scale = 1 / (1 - share)
    return math.sqrt(float((scale * residuals**2).sum())), share, scale


def cluster_error(table: ClusterTable, metric: int) -> tuple[float, float, float]:
    """Return the standard error of a mean of clusters, its degrees of freedom, and the skewness of the mean.

    The bias-reduced error of Bell & McCaffrey (2002, CR2): a cluster that holds the share w of the values counts
    with its squared residual over 1 - w. With clusters of one size it is that of Liang & Zeger (1986), with single
    values that of the sample. The degrees of freedom are Satterthwaite's for it (the same, with independent
    values): clusters less 1 if they are of one size, fewer if they are not. The skewness is that of the cluster means,
    unweighted, raised by 5 in so many clusters since a small sample shows too little of it. Below two clusters the
    error is infinite.

    >>> table = ClusterTable(np.array([[4.0], [1.0], [1.0]]), np.array([[6.0], [2.0], [2.0]]))
    >>> [round(value, 3) for value in cluster_error(table, 0)]
    [0.071, 1.6, 1.499]
    """
    sums, counts = _present_clusters(table, metric)
    groups = len(sums)
    error, share, scale = _estimate_error(sums, counts)
    if groups < 2:
        return error, float(groups - 1), 0.0
    diagonal = float((scale**2 * ((share - share**2) ** 2 - share**4)).sum())
    df = 1 / (diagonal + float((scale * share**2).sum()) ** 2)
    means = sums / counts
    apart = means - means.mean()
    squares = float((apart**2).sum())
    if squares <= 1e-24 * float((means**2).sum()):
        return error, df, 0.0
    skewness = float((apart**3).sum()) / squares**1.5 * (1 + 5 / groups)
    weight = math.sqrt(groups) * float((share**3).sum()) / float((share**2).sum()) ** 1.5
    return error, df, skewness * weight


def skewed_interval(mean: float, error: float, df: float, skewness: float, confidence: float) -> tuple[float, float]:
    """Return the interval of a mean by Student's t, stretched on the side of the longer tail.

    Each end reaches as far as both Student's and that of Hall's (1992) monotone transformation, which
    removes the skewness of t to second order.

    >>> [round(end, 2) for end in skewed_interval(0.0, 1.0, 19.0, 0.0, 0.95)]
    [-2.09, 2.09]
    >>> [round(end, 2) for end in skewed_interval(0.0, 1.0, 19.0, 0.3, 0.95)]
    [-2.09, 2.91]
    """
    t = t_quantile(0.5 + confidence / 2, df)
    low = high = t
    if abs(skewness) > 1e-9:
        below, above = (
            3 / skewness * (math.copysign(abs(x) ** (1 / 3), x) - 1)
            for x in (1 + skewness * (y - skewness / 6) for y in (-t, t))
        )
        low, high = max(t, above), max(t, -below)
    return mean - low * error, mean + high * error


def as_matrix(values: ArrayLike) -> FloatArray:
    """Return values as an array of traces by metrics; a sequence is one metric. Raises ValueError for other shapes."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise ValueError(f"values have {table.ndim} dimensions: give traces by metrics")
    return table


def subtract_pairs(baseline: ArrayLike, candidate: ArrayLike, defined: ArrayLike | None) -> FloatArray:
    """Return candidate less baseline, traces by metrics; 0 where there is no pair. Raises ValueError for other shapes.

    >>> subtract_pairs([1, 2], [3, math.inf], [True, False]).ravel()
    array([2., 0.])
    """
    before, after = as_matrix(baseline), as_matrix(candidate)
    if before.shape != after.shape:
        raise ValueError(f"baseline is {before.shape}, candidate {after.shape}: pairs need the same shape")
    if defined is None:
        return after - before
    exists = np.asarray(defined, dtype=bool)
    exists = exists[:, None] if exists.ndim == 1 else exists
    if exists.shape != after.shape:
        raise ValueError(f"defined has the shape {exists.shape}, the values have {after.shape}")
    return np.subtract(after, before, out=np.zeros_like(after), where=exists)


def tabulate_clusters(values: FloatArray, clusters: Clusters | None, defined: ArrayLike | None) -> ClusterTable:
    """Sum and count the values of each cluster, for every metric at once.

    `defined` says which values exist; the others are never read. Raises ValueError where a value that
    exists is not finite, or where the shapes differ.

    >>> tabulate_clusters(as_matrix([1, 2, 4]), ["a", "b", "a"], None).sums.ravel()
    array([5., 2.])
    """
    exists = np.ones(values.shape, dtype=bool) if defined is None else np.asarray(defined, dtype=bool)
    if exists.ndim == 1:
        exists = exists[:, None]
    if exists.shape != values.shape:
        raise ValueError(f"defined has the shape {exists.shape}, the values have {values.shape}")
    existing = values if defined is None else np.where(exists, values, 0.0)
    if not np.isfinite(existing).all():
        raise ValueError("a value is not finite: name the values that exist with `defined`")
    counts = exists.astype(np.float64)
    if clusters is None:
        return ClusterTable(existing, counts)
    index, g = encode_clusters(clusters, len(values))
    return ClusterTable(_sum_by_cluster(index, existing, g), _sum_by_cluster(index, counts, g))


def _sum_by_cluster(index: NDArray[np.intp], values: FloatArray, g: int) -> FloatArray:
    sums = np.empty((g, values.shape[1]))
    for metric in range(values.shape[1]):
        sums[:, metric] = np.bincount(index, weights=values[:, metric], minlength=g)
    return sums


def divide_or_nan(numerator: FloatArray, denominator: FloatArray, tiny: float = 0.0) -> FloatArray:
    """Divide elementwise; NaN where the denominator is not above `tiny`."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: FloatArray = np.where(denominator > tiny, numerator / denominator, math.nan)
    return ratio


BATCH_CELLS = 1 << 20
"""Number of cells of one resampling step."""


def resample_means(table: ClusterTable, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Return the means of bootstrap resamples, resamples by metrics; all metrics share the drawn clusters.

    Resampled sums are the product of exact multinomial counts with the table. A resample without any value of a metric
    repeats that metric's mean.

    >>> table = ClusterTable(np.arange(5.0)[:, None], np.ones((5, 1)))
    >>> resample_means(table, 3, np.random.default_rng(0)).ravel()
    array([2.2, 0.8, 3.2])
    """
    complete = bool((table.counts == table.counts[0]).all())
    both = table.sums if complete else np.hstack([table.sums, table.counts])
    totals = np.zeros((resamples, both.shape[1]))
    for rows, counts in draw_counts(len(table.sums), resamples, rng):
        totals[rows] = counts @ both
    metrics = table.sums.shape[1]
    if complete:
        means: FloatArray = totals / np.maximum(table.n, 1)
        return means
    sums, counts = totals[:, :metrics], totals[:, metrics:]
    return np.where(counts > 0, sums / np.maximum(counts, 1), table.means())


def draw_counts(g: int, resamples: int, rng: np.random.Generator, width: int = 0) -> Iterator[tuple[slice, FloatArray]]:
    """Yield rows and counts of each cluster for batches of resamples, whose rows may be made `width` cells wide."""
    step = max(1, BATCH_CELLS // max(g, width))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        indices = rng.integers(0, g, size=(rows, g))
        indices += np.arange(rows)[:, None] * g
        counts = np.bincount(indices.ravel(), minlength=rows * g).reshape(rows, g)
        yield slice(start, start + rows), counts.astype(np.float64)


def jackknife_influences(table: ClusterTable, metric: int) -> FloatArray:
    """Return the influence of each cluster on a mean: the change from leaving it out, times clusters less 1.

    >>> jackknife_influences(ClusterTable(np.arange(3.0)[:, None], np.ones((3, 1))), 0)
    array([-1.,  0.,  1.])
    """
    present = table.counts[:, metric] > 0
    sums, counts = table.sums[present, metric], table.counts[present, metric]
    without = (sums.sum() - sums) / (counts.sum() - counts)
    influence: FloatArray = (len(sums) - 1) * (without.mean() - without)
    return influence


def expand_confidence(confidence: float, df: float) -> float:
    """Return the confidence at which a normal percentile interval is as wide as Student's (Hesterberg 2015).

    Student's interval divides by n - 1 and uses Student's quantile; this confidence makes the bootstrap do as much.

    >>> round(expand_confidence(0.95, 9), 4), round(expand_confidence(0.95, 999), 4)
    (0.9829, 0.9504)
    """
    ratio = math.sqrt((df + 1) / df)
    return 1 - 2 * normal_cdf(-ratio * t_quantile(0.5 + confidence / 2, df))


def bca_interval(
    replicates: FloatArray, estimate: float, influences: Sequence[FloatArray], confidence: float
) -> tuple[float, float] | None:
    """Compute the bias-corrected and accelerated bootstrap interval of one statistic (Efron 1987).

    `influences` are jackknife influences. None where all replicates are alike or on one side of the estimate.

    >>> values = np.random.default_rng(1).exponential(size=40)
    >>> table = ClusterTable(values[:, None], np.ones((40, 1)))
    >>> replicates = resample_means(table, 1999, np.random.default_rng(0)).ravel()
    >>> [round(end, 2) for end in bca_interval(replicates, values.mean(), [jackknife_influences(table, 0)], 0.95)]
    [0.95, 1.98]
    """
    slack = 1e-12 * max(abs(estimate), float(np.abs(replicates).max()))
    below = np.count_nonzero(replicates < estimate - slack)
    upto = np.count_nonzero(replicates <= estimate + slack)
    bias = normal_quantile((below + upto) / (2 * replicates.size))
    cubes = sum(float((u * u * u).sum()) / u.size**3 for u in influences)
    squares = sum(float((u * u).sum()) / u.size**2 for u in influences)
    if math.isinf(bias) or squares <= 0:
        return None
    acceleration = cubes / (6 * squares**1.5)
    levels = []
    for share in ((1 - confidence) / 2, (1 + confidence) / 2):
        z = bias + normal_quantile(share)
        if 1 - acceleration * z <= 0:
            return None
        levels.append(normal_cdf(bias + z / (1 - acceleration * z)))
    low, high = np.quantile(replicates, levels)
    return float(low), float(high)


class Resampling(NamedTuple):
    """How intervals are resampled."""

    resamples: int = 1000
    seed: int = 0
    confidence: float = 0.95


RESAMPLING = Resampling()


def bootstrap_estimates(
    statistic: Callable[[FloatArray], FloatArray],
    clusters: Clusters,
    resampling: Resampling = RESAMPLING,
    *,
    inflated: Collection[int] = (),
    limits: Mapping[int, tuple[float, float]] | None = None,
) -> list[BootstrapEstimate]:
    """Estimate statistics of a sample with bias-corrected percentile intervals over resampled clusters.

    `statistic` takes weights (resamples by values: how often each value was drawn) and gives resamples by
    statistics, NaN where it is undefined. The bias correction is Efron's (1987), without acceleration; the
    confidence is expanded for few clusters. No interval where fewer than two clusters were given, where most
    resamples do not define the statistic, or where all that do are alike.

    Statistics that chance makes larger (the best of many, a sum of distances) are `inflated`, named by their
    places: resamples inflate them once more, by about as much, so their interval is the one mirrored at the value
    (the basic interval of Davison & Hinkley 1997), widened to hold it.

    A statistic with `limits`, place → least and greatest value, may lie at the edge of its range, as Kendall's τ does
    where all pairs are ordered alike. A bias correction takes the edge for a bias there; the interval is what both the
    percentile interval and its mirror image hold, cut to the range.

    >>> values = np.arange(20.0)
    >>> mean = lambda weights: (weights @ values / weights.sum(axis=1))[:, None]
    >>> bootstrap_estimates(mean, range(20))
    [BootstrapEstimate(value=9.5, low=6.7..., high=12.2...)]
    """
    index, groups = encode_clusters(clusters, len(clusters))
    values = statistic(np.ones((1, index.size)))[0]
    if groups < 2:
        return [BootstrapEstimate(_nan_to_none(value), None, None) for value in values.tolist()]
    resamples, seed, confidence = resampling
    rng = np.random.default_rng(seed)
    batches = [statistic(counts[:, index]) for _, counts in draw_counts(groups, resamples, rng, index.size)]
    wide = expand_confidence(confidence, groups - 1)
    table = np.vstack(batches).T
    return [
        _make_edge_estimate(value, replicates, wide, limits[column])
        if limits and column in limits
        else _make_estimate(value, replicates, wide, column in inflated)
        for column, (value, replicates) in enumerate(zip(values.tolist(), table, strict=True))
    ]


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _make_edge_estimate(
    value: float, replicates: FloatArray, confidence: float, limits: tuple[float, float]
) -> BootstrapEstimate:
    sound = replicates[~np.isnan(replicates)]
    if math.isnan(value) or 2 * sound.size < replicates.size or np.ptp(sound) < 1e-12:
        return BootstrapEstimate(_nan_to_none(value), None, None)
    confidence = min(confidence, 1 - 1 / sound.size)
    low, high = np.quantile(sound, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    low, high = min(low, value, 2 * value - high), max(high, value, 2 * value - low)
    return BootstrapEstimate(value, max(low, limits[0]), min(high, limits[1]))


def _make_estimate(value: float, replicates: FloatArray, confidence: float, mirrored: bool) -> BootstrapEstimate:
    sound = replicates[~np.isnan(replicates)]
    if math.isnan(value) or 2 * sound.size < replicates.size or np.ptp(sound) < 1e-12:
        return BootstrapEstimate(_nan_to_none(value), None, None)
    confidence = min(confidence, 1 - 1 / sound.size)
    interval = None if mirrored else bca_interval(sound, value, [np.array([1.0, -1.0])], confidence)
    if interval is None:
        low, high = np.quantile(sound, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
        low, high = (2 * value - high, 2 * value - low) if mirrored else (low, high)
        interval = min(low, value), max(high, value)
    return BootstrapEstimate(value, *interval)
