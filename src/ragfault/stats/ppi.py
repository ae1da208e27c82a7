"""Prediction-powered inference: means and differences of a judge's values corrected by human labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.clusters import Clusters, FloatArray, encode_clusters
from ragfault.stats.differences import Bounds, Difference, welch_difference
from ragfault.stats.distributions import t_cdf, t_quantile
from ragfault.stats.intervals import Interval, is_sparse, mean_interval

MIN_LABELS = 10
"""Fewer independent labels than this (clusters, else traces) say too little of how the judge errs."""

ClusterCodes = NDArray[np.intp]


class UnlabeledSums(NamedTuple):
    """A judge's values on further traces that nobody labelled, each a cluster of its own, as sums."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    """The sum of the squares."""

    def sum_squares_around(self, center: float) -> float:
        """The sum of the squares of how far they lie from a value."""
        return max(0.0, self.squares - 2 * center * self.total + self.n * center**2)


class PpiSample(NamedTuple):
    """All traces, and what people said of some."""

    judge_values: FloatArray
    """The judge on every trace."""
    cluster_codes: ClusterCodes
    """The cluster of each."""
    cluster_count: int
    labeled_indices: ClusterCodes
    """Where the labelled traces are."""
    human_values: FloatArray
    label_weights: FloatArray
    """How much each label counts; together 1."""
    unlabeled: UnlabeledSums = UnlabeledSums()
    """Further traces, without a label."""

    @property
    def trace_count(self) -> int:
        """How many traces there are in all."""
        return self.judge_values.size + self.unlabeled.n

    @property
    def judge_mean(self) -> float:
        """The judge's mean over all of them."""
        return (float(self.judge_values.sum()) + self.unlabeled.total) / self.trace_count

    @property
    def labeled_clusters(self) -> ClusterCodes:
        """The clusters of the labelled traces."""
        return self.cluster_codes[self.labeled_indices]

    @property
    def labeled_cluster_count(self) -> int:
        """How many of them there are."""
        return int(np.unique(self.labeled_clusters).size)

    @property
    def slope_scale(self) -> float:
        """What λ is multiplied with to give the slope: all traces for each without a label."""
        rest = self.trace_count - self.human_values.size
        return self.trace_count / rest if rest else 1.0

    def pad(self, ends: Bounds) -> PpiSample:
        """The sample with a label at each end where the judge says what it usually says."""
        size, n, usual = self.judge_values.size, self.human_values.size, self.judge_mean
        return PpiSample(
            judge_values=np.append(self.judge_values, [usual, usual]),
            cluster_codes=np.append(self.cluster_codes, [self.cluster_count, self.cluster_count + 1]),
            cluster_count=self.cluster_count + 2,
            labeled_indices=np.append(self.labeled_indices, [size, size + 1]),
            human_values=np.append(self.human_values, ends),
            label_weights=np.append(self.label_weights, [1 / n, 1 / n]) / (1 + 2 / n),
            unlabeled=self.unlabeled,
        )


def _as_floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def subtract_values(candidate: ArrayLike, baseline: ArrayLike) -> FloatArray:
    """Candidate less baseline; raises ValueError where there is not one for one."""
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
    judge, said = _as_floats(judge_values), _as_floats(human_values)
    if judge.ndim != 1 or judge.shape != said.shape:
        raise ValueError(
            f"the judge has {judge.size} values, people {said.size}: give NaN where nobody spoke"
        )
    if not np.isfinite(judge).all():
        raise ValueError("a value of the judge is not finite: leave out the traces that it could not judge")
    index, groups = encode_clusters(np.arange(judge.size) if clusters is None else clusters, judge.size)
    places = np.flatnonzero(np.isfinite(said))
    chance = (
        np.ones(places.size) if sampling_probabilities is None else _as_floats(sampling_probabilities)[places]
    )
    if not (chance > 0).all():
        raise ValueError("a chance is not above 0: what could not be drawn was not drawn")
    weights = 1 / chance
    return PpiSample(judge, index, groups, places, said[places], weights / (weights.sum() or 1.0))


def explain_few_labels(sample: PpiSample) -> str | None:
    """Why there are too few labels, if there are."""
    n, groups = sample.human_values.size, sample.labeled_cluster_count
    if groups >= MIN_LABELS:
        return None
    labels = f"{n} label{'' if n == 1 else 's'}"
    told = labels if groups == n else f"{labels} in {groups} cluster{'' if groups == 1 else 's'}"
    return f"only {told}: at least {MIN_LABELS} are needed"


UNBOUNDED = (-math.inf, math.inf)


class PpiMean(Struct, frozen=True):
    """A mean by a judge that is put right by people, or why it cannot be."""

    interval: Interval | None
    """Over all traces that the judge or people gave a value; None where it is undefined."""
    labelled: int
    """Traces with a value of the judge and one of people."""
    judge_weight: float | None = None
    """How far the judge is relied on (λ), from 0, labels alone, to 1; None where it is undefined."""
    width_ratio: float | None = None
    """The width of the interval against that of labels alone, below 1 where the judge helps."""
    random_sample_p: float | None = None
    """The p of a test that the labelled traces were drawn at random: that the judge has them as it has all."""
    reason: str | None = None
    """Why it is undefined."""


class PpiDifference(Struct, frozen=True):
    """A difference by a judge that is put right by people, or why it cannot be."""

    difference: Difference | None
    """Candidate less baseline; its n are the labels it rests on. None where it is undefined."""
    p: float | None
    """Of the null hypothesis that people see no difference, by Student's t."""
    labelled: int
    """Pairs that people judged on both sides; unpaired, labels of both sides together."""
    judge_weights: tuple[float, ...] = ()
    """How far the judge is relied on (λ): on the differences of pairs; unpaired, on each side."""
    width_ratio: float | None = None
    """The width of the interval against that of labels alone."""
    paired: bool = True
    reason: str | None = None
    """Why it is undefined."""


def ppi_mean(
    judge_values: ArrayLike,
    human_values: ArrayLike,
    clusters: Clusters | None = None,
    *,
    sampling_probabilities: ArrayLike | None = None,
    unlabeled: UnlabeledSums | None = None,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    judge_weight: float | None = None,
) -> PpiMean:
    """The mean that people would give, from a judge's values on all traces and people's on some (PPI++).

    `judged` has a value for each trace, `people` one where somebody gave it and NaN (or None) elsewhere. The mean is
    that of the labels plus b times the difference of the judge's means over all and over the labelled traces
    (prediction-powered inference, Angelopoulos, Duchi & Zrnic 2023; the regression estimator of two-phase sampling,
    Cochran 1977). b is the slope of people on the judge, and λ = b times the share of traces without a label is cut to
    [0, 1]; λ = 1 is Angelopoulos et al. 2023, and `power` sets it. It is cross-fitted: the b of each label leaves out
    its cluster, so that few labels do not flatter the judge. The interval is Student's t, with the clustered
    errors of both parts and Welch's degrees of freedom; where labels are 0/1, or nearly all alike, or nearly all as the
    judge has it, it also holds that with a label added at each end of `bounds` (Bonett & Price 2012). λ = 0 gives the
    interval of the labels alone, a perfect judge that of all traces.

    Assumes that the labelled traces are a random draw of all; the judge may err in any way. Where some traces were
    likelier to be drawn than others, give the `chances` of the labelled ones (only their ratios matter): each label
    then counts by the inverse of its chance (Zrnic & Candès 2024). Traces that somebody picked are no draw at all.
    Traces without a label, and of no cluster, may also be given as the sums of their values, as `rest`: all the same.

    Undefined below ten labels, or ten clusters with labels. Where all are labelled it is `mean_interval` of the labels.
    Raises ValueError where shapes differ, a judge's value is not finite, or a chance is not above 0.

    >>> judged = [0.9, 0.8, 0.9, 0.4, 1.0, 0.7, 0.8, 0.3, 0.9, 0.6] * 20
    >>> people = [value - 0.1 for value in judged[:40]] + [None] * 160
    >>> found = ppi_mean(judged, people, bounds=(0, 1))
    >>> round(found.interval.mean, 2), found.labelled, round(found.judge_weight, 2), round(found.width_ratio, 2)
    (0.63, 40, 0.8, 0.65)
    >>> ppi_mean(judged, [0.5] * 3 + [None] * 197).reason
    'only 3 labels: at least 10 are needed'
    """
    sample = make_sample(judge_values, human_values, clusters, sampling_probabilities)._replace(
        unlabeled=unlabeled or UnlabeledSums()
    )
    if (reason := explain_few_labels(sample)) is not None:
        return PpiMean(None, sample.human_values.size, reason=reason)
    if sample.human_values.size == sample.trace_count:
        alone = mean_interval(sample.human_values, clusters, bounds=bounds, confidence=confidence)
        return PpiMean(alone, alone.n, 0.0, 1.0)
    fit = _fit_mean(sample, judge_weight)
    low, high = _compute_interval(sample, fit, bounds, confidence, judge_weight)
    mean = min(max(fit.mean, bounds[0]), bounds[1])
    clustered = sample.cluster_count + sample.unlabeled.n
    interval = Interval(mean, min(mean, low), max(mean, high), sample.trace_count, clustered)
    width = _label_only_width(sample, bounds, confidence)
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
    confidence: float = 0.95,
) -> PpiDifference:
    """The difference that people would see between two runs on paired traces, candidate less baseline (PPI++).

    Each side is (values of the judge, values of people) as `rectified_mean` takes them, one place for each pair; it
    is the rectified mean of the differences, so that labels count where both sides have one. Where those, or how the
    judge differs from them, are nearly all alike, one at each end of what `bounds` allow is added.

    Undefined below ten pairs, or ten clusters, with labels on both sides. Assumes and raises what `rectified_mean`
    does.

    >>> before = [0.9, 0.8, 0.9, 0.4, 1.0, 0.7, 0.8, 0.3, 0.9, 0.6] * 20
    >>> after = [value - shift for value, shift in zip(before, [0.1, 0.2, 0.0, 0.1] * 50)]
    >>> found = ppi_paired_difference((before, before[:40] + [None] * 160), (after, after[:40] + [None] * 160))
    >>> round(found.difference.mean, 2), found.labelled, round(found.width_ratio, 2)
    (-0.1, 40, 0.43)
    """
    reach = bounds[1] - bounds[0]
    sample = make_sample(
        subtract_values(candidate[0], baseline[0]),
        subtract_values(candidate[1], baseline[1]),
        clusters,
        sampling_probabilities,
    )
    return _compute_difference([sample], (-reach, reach), reach, confidence)


def ppi_unpaired_difference(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    sampling_probabilities: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> PpiDifference:
    """The same where each side has labels of its own: two rectified means, one less the other.

    Errors add up as if the sides were independent: too wide for two runs over like traces, and never too narrow
    unless one rises where the other falls. `clusters` and `chances` are given as (of the baseline, of the candidate).

    Undefined below ten labels, or ten clusters of them, on either side.

    >>> judged, people = [0.2, 0.8] * 50, [0.3, 0.7, 0.4, 0.8] * 5 + [None] * 80
    >>> found = ppi_unpaired_difference((judged, people), (judged, [None] * 80 + [0.1, 0.5, 0.2, 0.6] * 5))
    >>> round(found.difference.mean, 2), found.labelled, found.paired
    (-0.2, 40, False)
    """
    groups = clusters or (None, None)
    sides = [
        make_sample(*candidate, groups[1], sampling_probabilities[1]),
        make_sample(*baseline, groups[0], sampling_probabilities[0]),
    ]
    return _compute_difference(sides, bounds, bounds[1] - bounds[0], confidence)


def _compute_difference(
    sides: list[PpiSample], ends: Bounds, reach: float, confidence: float
) -> PpiDifference:
    """The rectified mean of the first side less that of the second, if there is one."""
    labelled, paired = sum(side.human_values.size for side in sides), len(sides) == 1
    reasons = [reason for side in sides if (reason := explain_few_labels(side)) is not None]
    if reasons:
        return PpiDifference(None, None, labelled, paired=paired, reason=reasons[0])
    fits = [_fit_mean(side) for side in sides]
    parts = [
        _fit_mean(side.pad(ends)) if math.isfinite(reach) and _is_sparse_sample(side, ends) else fit
        for side, fit in zip(sides, fits, strict=True)
    ]
    mean = fits[0].mean - sum(fit.mean for fit in fits[1:])
    centre, error, df = welch_difference([(part.mean, part.error, part.df) for part in parts])
    half = math.inf
    if error <= 1e-12 * abs(mean):
        error = math.inf
    else:
        half = t_quantile(0.5 + confidence / 2, df) * error
    low, high = min(mean, max(-reach, centre - half)), max(mean, min(reach, centre + half))
    clusters = sum(side.labeled_cluster_count for side in sides)
    found = Difference(mean, low, high, error, df, centre, labelled, clusters, "rectified")
    return PpiDifference(
        difference=found,
        p=2 * t_cdf(-abs(centre) / error, df),
        labelled=labelled,
        judge_weights=tuple(fit.judge_weight for fit in fits),
        width_ratio=_compute_width_ratio(
            low, high, math.hypot(*(_label_only_width(side, ends, confidence) for side in sides))
        ),
        paired=paired,
    )


# --- the estimate ----------------------------------------------------------------------------------


class _PpiFit(NamedTuple):
    """A rectified mean with its error."""

    mean: float
    error: float
    df: float
    judge_weight: float


def _fit_mean(sample: PpiSample, judge_weight: float | None = None) -> _PpiFit:
    """The mean of the labels, each less the slope times how far the judge lies from its mean there.

    Its error has two parts: what is left of the labels, and the judge's mean over all traces; what both say of one
    cluster is added up before it is squared.
    """
    weights, centre, near = sample.label_weights, sample.judge_mean, sample.labeled_cluster_count
    if judge_weight is None and sample.human_values.size < sample.trace_count:
        slopes = _fit_slopes(sample)
    else:
        slopes = np.full(sample.human_values.size, (judge_weight or 0.0) * sample.slope_scale)
    left = sample.human_values - slopes * (sample.judge_values[sample.labeled_indices] - centre)
    mean, slope = float(weights @ left), float(weights @ slopes)
    ours = weights * (left - mean) * math.sqrt(near / (near - 1))
    groups = sample.cluster_count + sample.unlabeled.n
    pull = slope / sample.trace_count * math.sqrt(groups / (groups - 1))
    every, alone = (
        pull * (sample.judge_values - centre),
        pull**2 * sample.unlabeled.sum_squares_around(centre),
    )
    parts = [
        np.bincount(index, weights=pulls, minlength=sample.cluster_count)
        for index, pulls in ((sample.labeled_clusters, ours), (sample.cluster_codes, every))
    ]
    one, two = float(parts[0] @ parts[0]), float(parts[1] @ parts[1]) + alone
    both = parts[0] + parts[1]
    spread = one**2 / (near - 1) + two**2 / (groups - 1)
    df = (one + two) ** 2 / spread if spread else float(near - 1)
    return _PpiFit(mean, math.sqrt(float(both @ both) + alone), df, slope / sample.slope_scale)


def _fit_slopes(sample: PpiSample) -> FloatArray:
    """The slope for each label, by the labels of the other clusters, as far as λ may reach."""
    judged, weights = sample.judge_values[sample.labeled_indices], sample.label_weights**2
    judged, people = judged - judged.mean(), sample.human_values - sample.human_values.mean()
    columns = [weights * each for each in (np.ones_like(judged), judged, people, judged**2, judged * people)]
    sums = [
        np.bincount(sample.labeled_clusters, weights=column, minlength=sample.cluster_count)
        for column in columns
    ]
    n, x, y, xx, xy = (float(column.sum()) - each for column, each in zip(columns, sums, strict=True))
    spread = xx - x * x / n
    known = spread > 1e-12 * float(columns[3].sum())
    slopes = np.divide(xy - x * y / n, spread, out=np.zeros_like(spread), where=known)
    found: FloatArray = np.clip(slopes, 0.0, sample.slope_scale)[sample.labeled_clusters]
    return found


def _compute_interval(
    sample: PpiSample, fit: _PpiFit, bounds: Bounds, confidence: float, judge_weight: float | None = None
) -> tuple[float, float]:
    """The interval of a rectified mean, cut at the bounds."""
    low, high = _student_interval(fit, confidence)
    if math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and _is_sparse_sample(sample, bounds):
        ends = _student_interval(_fit_mean(sample.pad(bounds), judge_weight), confidence)
        low, high = min(low, ends[0]), max(high, ends[1])
    return max(low, bounds[0]), min(high, bounds[1])


def _is_sparse_sample(sample: PpiSample, ends: Bounds) -> bool:
    """Whether labels say little of how they spread: 0/1, or nearly all alike, or nearly all as the judge has it."""
    said, off = (
        sample.human_values,
        np.round(sample.human_values - sample.judge_values[sample.labeled_indices], 9),
    )
    return bool(np.isin(said, (*ends, 0.0)).all()) or is_sparse(said) or is_sparse(off)


def _student_interval(fit: _PpiFit, confidence: float) -> tuple[float, float]:
    half = t_quantile(0.5 + confidence / 2, fit.df) * fit.error
    return fit.mean - half, fit.mean + half


def _label_only_width(sample: PpiSample, bounds: Bounds, confidence: float) -> float:
    """The width of the interval of the labels by themselves."""
    if np.ptp(sample.label_weights) < 1e-12:
        found = mean_interval(
            sample.human_values, sample.labeled_clusters, bounds=bounds, confidence=confidence
        )
        return found.high - found.low
    low, high = _compute_interval(sample, _fit_mean(sample, 0.0), bounds, confidence, 0.0)
    return high - low


def _test_random_sample(sample: PpiSample) -> float | None:
    """The p that the judge has the labelled traces as it has all (Student's t); None where it says one thing."""
    weights, judged, near = (
        sample.label_weights,
        sample.judge_values[sample.labeled_indices],
        sample.labeled_cluster_count,
    )
    off = float(weights @ judged) - sample.judge_mean
    pulls = weights * (judged - float(weights @ judged)) * math.sqrt(near / (near - 1))
    error = float(np.linalg.norm(np.bincount(sample.labeled_clusters, weights=pulls)))
    return 2 * t_cdf(-abs(off) / error, near - 1) if error > 0 else None


def _compute_width_ratio(low: float, high: float, label_width: float) -> float | None:
    """The width of an interval against that of labels alone; None where the latter has none or no end."""
    return (high - low) / label_width if 0 < label_width < math.inf else None
