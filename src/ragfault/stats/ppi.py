"""Prediction-powered inference: means and differences of a judge's values corrected by human labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.bootstrap import Clusters, FloatArray, encode_clusters
from ragfault.stats.differences import UNBOUNDED, Bounds, welch_difference
from ragfault.stats.distributions import t_cdf, t_quantile
from ragfault.stats.estimates import Difference, Interval, PpiDifference, PpiMean
from ragfault.stats.intervals import is_sparse, mean_interval

UPPER_TAIL = 0.5 + 0.95 / 2
"""Quantile at the upper end of an interval of 95 %."""
MIN_LABELS = 10
"""Fewer independent labels (clusters, else traces) say too little about the judge's error."""

ClusterCodes = NDArray[np.intp]


class UnlabeledSums(NamedTuple):
    """Sums of a judge's values on further unlabeled traces, each its own cluster."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def sum_squares_around(self, center: float) -> float:
        """Return the sum of squared distances from a value."""
        return max(0.0, self.squares - 2 * center * self.total + self.n * center**2)


class PpiSample(NamedTuple):
    """A judge's values on all traces, and human values on some."""

    judge_values: FloatArray
    """Judge's value of every trace."""
    cluster_codes: ClusterCodes
    """Cluster of every trace."""
    cluster_count: int
    labeled_indices: ClusterCodes
    """Indices of the labeled traces."""
    human_values: FloatArray
    label_weights: FloatArray
    """Weight of each label; they sum to 1."""
    unlabeled: UnlabeledSums = UnlabeledSums()
    """Further traces without a label."""

    @property
    def trace_count(self) -> int:
        """Number of traces in all."""
        return self.judge_values.size + self.unlabeled.n

    @property
    def judge_mean(self) -> float:
        """The judge's mean over all traces."""
        return (float(self.judge_values.sum()) + self.unlabeled.total) / self.trace_count

    @property
    def labeled_clusters(self) -> ClusterCodes:
        """Clusters of the labeled traces."""
        return self.cluster_codes[self.labeled_indices]

    @property
    def labeled_cluster_count(self) -> int:
        """Number of clusters with labels."""
        return int(np.unique(self.labeled_clusters).size)

    @property
    def slope_scale(self) -> float:
        """Factor from λ to the slope: all traces over the unlabeled ones."""
        unlabeled_count = self.trace_count - self.human_values.size
        return self.trace_count / unlabeled_count if unlabeled_count else 1.0

    def pad(self, bounds: Bounds) -> PpiSample:
        """Return the sample with a label at each end, at the judge's mean."""
        size, n, usual = self.judge_values.size, self.human_values.size, self.judge_mean
        return PpiSample(
            judge_values=np.append(self.judge_values, [usual, usual]),
            cluster_codes=np.append(self.cluster_codes, [self.cluster_count, self.cluster_count + 1]),
            cluster_count=self.cluster_count + 2,
            labeled_indices=np.append(self.labeled_indices, [size, size + 1]),
            human_values=np.append(self.human_values, bounds),
            label_weights=np.append(self.label_weights, [1 / n, 1 / n]) / (1 + 2 / n),
            unlabeled=self.unlabeled,
        )


def _as_floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def subtract_values(candidate: ArrayLike, baseline: ArrayLike) -> FloatArray:
    """Return candidate less baseline; raise ValueError if their shapes differ."""
    after, before = _as_floats(candidate), _as_floats(baseline)
    if after.shape != before.shape:
        raise ValueError(f"baseline has {before.size} values, candidate {after.size}: pairs need both")
    return after - before


def make_sample(
    judge_values: ArrayLike,
    human_values: ArrayLike,
    clusters: Clusters | None,
    sampling_probabilities: ArrayLike | None = None,
) -> PpiSample:
    """Build a sample from values; human values are NaN (or None) for unlabeled traces.

    Raises ValueError where the lengths differ, a judge's value is not finite, or a probability is not above 0.
    """
    judge, human = _as_floats(judge_values), _as_floats(human_values)
    if judge.ndim != 1 or judge.shape != human.shape:
        raise ValueError(f"the judge has {judge.size} values, people {human.size}: give NaN where there is no label")
    if not np.isfinite(judge).all():
        raise ValueError("a value of the judge is not finite: leave out the traces that it could not judge")
    index, groups = encode_clusters(np.arange(judge.size) if clusters is None else clusters, judge.size)
    labeled = np.flatnonzero(np.isfinite(human))
    probabilities = (
        np.ones(labeled.size) if sampling_probabilities is None else _as_floats(sampling_probabilities)[labeled]
    )
    if not (probabilities > 0).all():
        raise ValueError("a sampling probability is not above 0: a trace that cannot be sampled has no label")
    weights = 1 / probabilities
    return PpiSample(judge, index, groups, labeled, human[labeled], weights / (weights.sum() or 1.0))


def explain_few_labels(sample: PpiSample) -> str | None:
    """Return why there are too few labels; None if there are enough."""
    n, groups = sample.human_values.size, sample.labeled_cluster_count
    if groups >= MIN_LABELS:
        return None
    labels = f"{n} label{'' if n == 1 else 's'}"
    described = labels if groups == n else f"{labels} in {groups} cluster{'' if groups == 1 else 's'}"
    return f"only {described}: at least {MIN_LABELS} are needed"


def ppi_mean(
    judge_values: ArrayLike,
    human_values: ArrayLike,
    clusters: Clusters | None = None,
    *,
    sampling_probabilities: ArrayLike | None = None,
    unlabeled: UnlabeledSums | None = None,
    bounds: Bounds = UNBOUNDED,
    judge_weight: float | None = None,
) -> PpiMean:
    """Estimate the human mean from a judge's values on all traces and human values on some (PPI++).

    `judge_values` has a value for each trace, `human_values` one for labeled traces and NaN (or None) elsewhere. The
    mean is that of the labels plus b times the difference of the judge's means over all and over the labeled traces
    (prediction-powered inference, Angelopoulos, Duchi & Zrnic 2023; the regression estimator of two-phase sampling,
    Cochran 1977). b is the slope of human on judge values, and λ = b times the share of unlabeled traces is cut to
    [0, 1]; λ = 1 is Angelopoulos et al. 2023, and `judge_weight` sets it. It is cross-fitted: the b of each label
    leaves out its cluster, so that few labels do not overstate the judge. The interval is Student's t, with the
    clustered errors of both parts and Welch's degrees of freedom; if labels are 0/1, or nearly all equal, or nearly all
    equal to the judge's values, it also holds that with a label added at each end of `bounds` (Bonett & Price 2012).
    λ = 0 gives the interval of the labels alone, a perfect judge that of all traces.

    Assumes that the labeled traces are a random sample of all; the judge may err in any way. If some traces were more
    likely to be drawn, give the `sampling_probabilities` of the labeled ones (only ratios matter): each label is then
    weighted by the inverse (Zrnic & Candès 2024). Traces picked by hand are not a random sample. Unlabeled traces
    without a cluster may also be given as sums, as `unlabeled`, with the same result.

    Undefined below ten labels, or ten clusters with labels. If all are labeled it is `mean_interval` of the labels.
    Raises ValueError if shapes differ, a judge's value is not finite, or a probability is not above 0.

    >>> judge = [0.9, 0.8, 0.9, 0.4, 1.0, 0.7, 0.8, 0.3, 0.9, 0.6] * 20
    >>> human = [value - 0.1 for value in judge[:40]] + [None] * 160
    >>> estimate = ppi_mean(judge, human, bounds=(0, 1))
    >>> round(estimate.interval.mean, 2), estimate.labelled
    (0.63, 40)
    >>> round(estimate.judge_weight, 2), round(estimate.width_ratio, 2)
    (0.8, 0.6)
    >>> ppi_mean(judge, [0.5] * 3 + [None] * 197).reason
    'only 3 labels: at least 10 are needed'
    """
    sample = make_sample(judge_values, human_values, clusters, sampling_probabilities)._replace(
        unlabeled=unlabeled or UnlabeledSums()
    )
    if (reason := explain_few_labels(sample)) is not None:
        return PpiMean(None, sample.human_values.size, reason=reason)
    if sample.human_values.size == sample.trace_count:
        interval = mean_interval(sample.human_values, clusters, bounds=bounds)
        return PpiMean(interval, interval.n, 0.0, 1.0)
    fit = _fit_mean(sample, judge_weight)
    low, high = _compute_interval(sample, fit, bounds, judge_weight)
    mean = min(max(fit.mean, bounds[0]), bounds[1])
    clustered = sample.cluster_count + sample.unlabeled.n
    interval = Interval(mean, min(mean, low), max(mean, high), sample.trace_count, clustered)
    width = _label_only_width(sample, bounds)
    return PpiMean(
        interval,
        sample.human_values.size,
        fit.judge_weight,
        _compute_width_ratio(low, high, width),
        _test_random_sample(sample),
    )


def ppi_paired_difference(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: Clusters | None = None,
    *,
    sampling_probabilities: ArrayLike | None = None,
    bounds: Bounds = UNBOUNDED,
) -> PpiDifference:
    """Estimate the human difference of two runs on paired traces, candidate less baseline (PPI++).

    Each side is (judge values, human values) as in `ppi_mean`, one value for each pair. The result is the corrected
    mean of the differences, so that labels count if both sides have one. If these, or the judge's errors on them, are
    nearly all equal, one at each end of `bounds` is added. Undefined below ten pairs, or ten clusters, with labels on
    both sides. Assumes and raises what `ppi_mean` does.

    >>> before = [0.9, 0.8, 0.9, 0.4, 1.0, 0.7, 0.8, 0.3, 0.9, 0.6] * 20
    >>> after = [value - shift for value, shift in zip(before, [0.1, 0.2, 0.0, 0.1] * 50)]
    >>> estimate = ppi_paired_difference((before, before[:40] + [None] * 160), (after, after[:40] + [None] * 160))
    >>> round(estimate.difference.mean, 2), estimate.labelled, round(estimate.width_ratio, 2)
    (-0.1, 40, 0.43)
    """
    reach = bounds[1] - bounds[0]
    sample = make_sample(
        subtract_values(candidate[0], baseline[0]),
        subtract_values(candidate[1], baseline[1]),
        clusters,
        sampling_probabilities,
    )
    return _compute_difference([sample], (-reach, reach), reach)


def ppi_unpaired_difference(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    sampling_probabilities: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    bounds: Bounds = UNBOUNDED,
) -> PpiDifference:
    """Estimate the human difference of two samples with labels of their own, candidate less baseline (PPI++).

    Errors add up as for independent sides: too wide for two runs over similar traces, and never too narrow unless one
    rises where the other falls. `clusters` and `sampling_probabilities` are (baseline's, candidate's). Undefined below
    ten labels, or ten clusters of them, on either side.

    >>> judge, human = [0.2, 0.8] * 50, [0.3, 0.7, 0.4, 0.8] * 5 + [None] * 80
    >>> estimate = ppi_unpaired_difference((judge, human), (judge, [None] * 80 + [0.1, 0.5, 0.2, 0.6] * 5))
    >>> round(estimate.difference.mean, 2), estimate.labelled, estimate.paired
    (-0.2, 40, False)
    """
    groups = clusters or (None, None)
    sides = [
        make_sample(*candidate, groups[1], sampling_probabilities[1]),
        make_sample(*baseline, groups[0], sampling_probabilities[0]),
    ]
    return _compute_difference(sides, bounds, bounds[1] - bounds[0])


def _compute_difference(sides: list[PpiSample], bounds: Bounds, reach: float) -> PpiDifference:
    """Subtract the corrected mean of the second side, if there is one, from the first's."""
    labelled, paired = sum(side.human_values.size for side in sides), len(sides) == 1
    reasons = [reason for side in sides if (reason := explain_few_labels(side)) is not None]
    if reasons:
        return PpiDifference(None, None, labelled, paired=paired, reason=reasons[0])
    fits = [_fit_mean(side) for side in sides]
    parts = [
        _fit_mean(side.pad(bounds)) if math.isfinite(reach) and _is_sparse_sample(side, bounds) else fit
        for side, fit in zip(sides, fits, strict=True)
    ]
    mean = fits[0].mean - sum(fit.mean for fit in fits[1:])
    center, error, df = welch_difference([(fit.mean, fit.error, fit.df) for fit in parts])
    half = math.inf
    if error <= 1e-12 * abs(mean):
        error = math.inf
    else:
        half = t_quantile(UPPER_TAIL, df) * error
    low, high = min(mean, max(-reach, center - half)), max(mean, min(reach, center + half))
    clusters = sum(side.labeled_cluster_count for side in sides)
    difference = Difference(mean, low, high, error, df, center, labelled, clusters, "ppi")
    return PpiDifference(
        difference=difference,
        p=2 * t_cdf(-abs(center) / error, df),
        labelled=labelled,
        width_ratio=_compute_width_ratio(low, high, math.hypot(*(_label_only_width(side, bounds) for side in sides))),
        paired=paired,
    )


class _PpiFit(NamedTuple):
    """A corrected mean with its error."""

    mean: float
    error: float
    df: float
    judge_weight: float


def _fit_mean(sample: PpiSample, judge_weight: float | None = None) -> _PpiFit:
    """Return the mean of the labels, each less the slope times the judge's deviation from its mean.

    The error is that of the labels' residuals plus that of the judge's mean, added per cluster before squaring.
    """
    weights, judge_mean, labeled_count = sample.label_weights, sample.judge_mean, sample.labeled_cluster_count
    if judge_weight is None and sample.human_values.size < sample.trace_count:
        slopes = _fit_slopes(sample)
    else:
        slopes = np.full(sample.human_values.size, (judge_weight or 0.0) * sample.slope_scale)
    residuals = sample.human_values - slopes * (sample.judge_values[sample.labeled_indices] - judge_mean)
    mean, slope = float(weights @ residuals), float(weights @ slopes)
    label_pulls = weights * (residuals - mean) * math.sqrt(labeled_count / (labeled_count - 1))
    groups = sample.cluster_count + sample.unlabeled.n
    pull = slope / sample.trace_count * math.sqrt(groups / (groups - 1))
    judge_pulls, unlabeled_variance = (
        pull * (sample.judge_values - judge_mean),
        pull**2 * sample.unlabeled.sum_squares_around(judge_mean),
    )
    parts = [
        np.bincount(index, weights=pulls, minlength=sample.cluster_count)
        for index, pulls in ((sample.labeled_clusters, label_pulls), (sample.cluster_codes, judge_pulls))
    ]
    label_variance, judge_variance = (float(parts[0] @ parts[0]), float(parts[1] @ parts[1]) + unlabeled_variance)
    total = parts[0] + parts[1]
    spread = label_variance**2 / (labeled_count - 1) + judge_variance**2 / (groups - 1)
    df = (label_variance + judge_variance) ** 2 / spread if spread else float(labeled_count - 1)
    return _PpiFit(mean, math.sqrt(float(total @ total) + unlabeled_variance), df, slope / sample.slope_scale)


def _fit_slopes(sample: PpiSample) -> FloatArray:
    """Return the slope for each label, fitted on the labels of the other clusters and cut to [0, slope_scale]."""
    judge, weights = sample.judge_values[sample.labeled_indices], sample.label_weights**2
    judge, human = judge - judge.mean(), sample.human_values - sample.human_values.mean()
    columns = [weights * factor for factor in (np.ones_like(judge), judge, human, judge**2, judge * human)]
    sums = [np.bincount(sample.labeled_clusters, weights=column, minlength=sample.cluster_count) for column in columns]
    n, x, y, xx, xy = (float(column.sum()) - sum_ for column, sum_ in zip(columns, sums, strict=True))
    spread = xx - x * x / n
    is_defined = spread > 1e-12 * float(columns[3].sum())
    slopes = np.divide(xy - x * y / n, spread, out=np.zeros_like(spread), where=is_defined)
    clipped: FloatArray = np.clip(slopes, 0.0, sample.slope_scale)[sample.labeled_clusters]
    return clipped


def _compute_interval(
    sample: PpiSample, fit: _PpiFit, bounds: Bounds, judge_weight: float | None = None
) -> tuple[float, float]:
    """Return the interval of a corrected mean, cut at the bounds."""
    low, high = _student_interval(fit)
    if math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and _is_sparse_sample(sample, bounds):
        ends = _student_interval(_fit_mean(sample.pad(bounds), judge_weight))
        low, high = min(low, ends[0]), max(high, ends[1])
    return max(low, bounds[0]), min(high, bounds[1])


def _is_sparse_sample(sample: PpiSample, bounds: Bounds) -> bool:
    """Return whether labels say little about their spread: 0/1, nearly all equal, or nearly all equal to the judge."""
    human, errors = (
        sample.human_values,
        np.round(sample.human_values - sample.judge_values[sample.labeled_indices], 9),
    )
    return bool(np.isin(human, (*bounds, 0.0)).all()) or is_sparse(human) or is_sparse(errors)


def _student_interval(fit: _PpiFit) -> tuple[float, float]:
    half = t_quantile(UPPER_TAIL, fit.df) * fit.error
    return fit.mean - half, fit.mean + half


def _label_only_width(sample: PpiSample, bounds: Bounds) -> float:
    """Return the width of the interval of the labels alone: that of the same method with no weight on the judge."""
    low, high = _compute_interval(sample, _fit_mean(sample, 0.0), bounds, 0.0)
    return high - low


def _test_random_sample(sample: PpiSample) -> float | None:
    """Test whether the judge's mean on labeled traces is that on all (Student's t); None without spread."""
    weights, judge, labeled_count = (
        sample.label_weights,
        sample.judge_values[sample.labeled_indices],
        sample.labeled_cluster_count,
    )
    shift = float(weights @ judge) - sample.judge_mean
    pulls = weights * (judge - float(weights @ judge)) * math.sqrt(labeled_count / (labeled_count - 1))
    error = float(np.linalg.norm(np.bincount(sample.labeled_clusters, weights=pulls)))
    return 2 * t_cdf(-abs(shift) / error, labeled_count - 1) if error > 0 else None


def _compute_width_ratio(low: float, high: float, label_width: float) -> float | None:
    """Return the width of an interval over that of the labels alone; None if the latter is 0 or infinite."""
    return (high - low) / label_width if 0 < label_width < math.inf else None
