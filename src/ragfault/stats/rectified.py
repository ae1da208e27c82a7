"""Means and differences by a cheap judge on every trace, put right by people on some (prediction-powered inference)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from ragfault.stats.difference import Bounds, Difference, welch
from ragfault.stats.distributions import t_below, t_quantile
from ragfault.stats.groups import Clusters, Floats
from ragfault.stats.intervals import Interval, mean_interval, sparse
from ragfault.stats.rectified_sample import LEAST_LABELS, Rest, Sample, few, less, sampled

__all__ = [
    "LEAST_LABELS",
    "Rectified",
    "RectifiedDifference",
    "Rest",
    "rectified_difference",
    "rectified_mean",
    "rectified_unpaired",
]

UNBOUNDED = (-math.inf, math.inf)


class Rectified(Struct, frozen=True):
    """A mean by a judge that is put right by people, or why it cannot be."""

    interval: Interval | None
    """Over all traces that the judge or people gave a value; None where it is undefined."""
    labelled: int
    """Traces with a value of the judge and one of people."""
    power: float | None = None
    """How far the judge is relied on (λ), from 0, labels alone, to 1; None where it is undefined."""
    gain: float | None = None
    """The width of the interval against that of labels alone, below 1 where the judge helps."""
    drawn: float | None = None
    """The p of a test that the labelled traces were drawn at random: that the judge has them as it has all."""
    reason: str | None = None
    """Why it is undefined."""


class RectifiedDifference(Struct, frozen=True):
    """A difference by a judge that is put right by people, or why it cannot be."""

    difference: Difference | None
    """Candidate less baseline; its n are the labels it rests on. None where it is undefined."""
    p: float | None
    """Of the null hypothesis that people see no difference, by Student's t."""
    labelled: int
    """Pairs that people judged on both sides; unpaired, labels of both sides together."""
    power: tuple[float, ...] = ()
    """How far the judge is relied on (λ): on the differences of pairs; unpaired, on each side."""
    gain: float | None = None
    """The width of the interval against that of labels alone."""
    paired: bool = True
    reason: str | None = None
    """Why it is undefined."""


def rectified_mean(
    judged: ArrayLike,
    people: ArrayLike,
    clusters: Clusters | None = None,
    *,
    chances: ArrayLike | None = None,
    rest: Rest | None = None,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    power: float | None = None,
) -> Rectified:
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
    >>> found = rectified_mean(judged, people, bounds=(0, 1))
    >>> round(found.interval.mean, 2), found.labelled, round(found.power, 2), round(found.gain, 2)
    (0.63, 40, 0.8, 0.65)
    >>> rectified_mean(judged, [0.5] * 3 + [None] * 197).reason
    'only 3 labels: at least 10 are needed'
    """
    sample = sampled(judged, people, clusters, chances)._replace(rest=rest or Rest())
    if (reason := few(sample)) is not None:
        return Rectified(None, sample.people.size, reason=reason)
    if sample.people.size == sample.size:
        alone = mean_interval(sample.people, clusters, bounds=bounds, confidence=confidence)
        return Rectified(alone, alone.n, 0.0, 1.0)
    fit = _fit(sample, power)
    low, high = _ends(sample, fit, bounds, confidence, power)
    mean = min(max(fit.mean, bounds[0]), bounds[1])
    clustered = sample.groups + sample.rest.n
    interval = Interval(mean, min(mean, low), max(mean, high), sample.size, clustered)
    width = _alone(sample, bounds, confidence)
    return Rectified(interval, sample.people.size, fit.power, _gain(low, high, width), _random(sample))


def rectified_difference(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: Clusters | None = None,
    *,
    chances: ArrayLike | None = None,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> RectifiedDifference:
    """The difference that people would see between two runs on paired traces, candidate less baseline (PPI++).

    Each side is (values of the judge, values of people) as `rectified_mean` takes them, one place for each pair; it
    is the rectified mean of the differences, so that labels count where both sides have one. Where those, or how the
    judge differs from them, are nearly all alike, one at each end of what `bounds` allow is added.

    Undefined below ten pairs, or ten clusters, with labels on both sides. Assumes and raises what `rectified_mean`
    does.

    >>> before = [0.9, 0.8, 0.9, 0.4, 1.0, 0.7, 0.8, 0.3, 0.9, 0.6] * 20
    >>> after = [value - shift for value, shift in zip(before, [0.1, 0.2, 0.0, 0.1] * 50)]
    >>> found = rectified_difference((before, before[:40] + [None] * 160), (after, after[:40] + [None] * 160))
    >>> round(found.difference.mean, 2), found.labelled, round(found.gain, 2)
    (-0.1, 40, 0.43)
    """
    reach = bounds[1] - bounds[0]
    sample = sampled(less(candidate[0], baseline[0]), less(candidate[1], baseline[1]), clusters, chances)
    return _difference([sample], (-reach, reach), reach, confidence)


def rectified_unpaired(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    chances: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> RectifiedDifference:
    """The same where each side has labels of its own: two rectified means, one less the other.

    Errors add up as if the sides were independent: too wide for two runs over like traces, and never too narrow
    unless one rises where the other falls. `clusters` and `chances` are given as (of the baseline, of the candidate).

    Undefined below ten labels, or ten clusters of them, on either side.

    >>> judged, people = [0.2, 0.8] * 50, [0.3, 0.7, 0.4, 0.8] * 5 + [None] * 80
    >>> found = rectified_unpaired((judged, people), (judged, [None] * 80 + [0.1, 0.5, 0.2, 0.6] * 5))
    >>> round(found.difference.mean, 2), found.labelled, found.paired
    (-0.2, 40, False)
    """
    groups = clusters or (None, None)
    sides = [sampled(*candidate, groups[1], chances[1]), sampled(*baseline, groups[0], chances[0])]
    return _difference(sides, bounds, bounds[1] - bounds[0], confidence)


def _difference(sides: list[Sample], ends: Bounds, reach: float, confidence: float) -> RectifiedDifference:
    """The rectified mean of the first side less that of the second, if there is one."""
    labelled, paired = sum(side.people.size for side in sides), len(sides) == 1
    reasons = [reason for side in sides if (reason := few(side)) is not None]
    if reasons:
        return RectifiedDifference(None, None, labelled, paired=paired, reason=reasons[0])
    fits = [_fit(side) for side in sides]
    parts = [
        _fit(side.padded(ends)) if math.isfinite(reach) and _thin(side, ends) else fit
        for side, fit in zip(sides, fits, strict=True)
    ]
    mean = fits[0].mean - sum(fit.mean for fit in fits[1:])
    centre, error, df = welch([(part.mean, part.error, part.df) for part in parts])
    half = math.inf
    if error <= 1e-12 * abs(mean):
        error = math.inf
    else:
        half = t_quantile(0.5 + confidence / 2, df) * error
    low, high = min(mean, max(-reach, centre - half)), max(mean, min(reach, centre + half))
    clusters = sum(side.clusters for side in sides)
    found = Difference(mean, low, high, error, df, centre, labelled, clusters, "rectified")
    return RectifiedDifference(
        difference=found,
        p=2 * t_below(-abs(centre) / error, df),
        labelled=labelled,
        power=tuple(fit.power for fit in fits),
        gain=_gain(low, high, math.hypot(*(_alone(side, ends, confidence) for side in sides))),
        paired=paired,
    )


# --- the estimate ----------------------------------------------------------------------------------


class _Fit(NamedTuple):
    """A rectified mean with its error."""

    mean: float
    error: float
    df: float
    power: float


def _fit(sample: Sample, power: float | None = None) -> _Fit:
    """The mean of the labels, each less the slope times how far the judge lies from its mean there.

    Its error has two parts: what is left of the labels, and the judge's mean over all traces; what both say of one
    cluster is added up before it is squared.
    """
    weights, centre, near = sample.weights, sample.centre, sample.clusters
    if power is None and sample.people.size < sample.size:
        slopes = _slopes(sample)
    else:
        slopes = np.full(sample.people.size, (power or 0.0) * sample.scale)
    left = sample.people - slopes * (sample.judged[sample.places] - centre)
    mean, slope = float(weights @ left), float(weights @ slopes)
    ours = weights * (left - mean) * math.sqrt(near / (near - 1))
    groups = sample.groups + sample.rest.n
    pull = slope / sample.size * math.sqrt(groups / (groups - 1))
    every, alone = pull * (sample.judged - centre), pull**2 * sample.rest.around(centre)
    parts = [
        np.bincount(index, weights=pulls, minlength=sample.groups)
        for index, pulls in ((sample.ours, ours), (sample.group, every))
    ]
    one, two = float(parts[0] @ parts[0]), float(parts[1] @ parts[1]) + alone
    both = parts[0] + parts[1]
    spread = one**2 / (near - 1) + two**2 / (groups - 1)
    df = (one + two) ** 2 / spread if spread else float(near - 1)
    return _Fit(mean, math.sqrt(float(both @ both) + alone), df, slope / sample.scale)


def _slopes(sample: Sample) -> Floats:
    """The slope for each label, by the labels of the other clusters, as far as λ may reach."""
    judged, weights = sample.judged[sample.places], sample.weights**2
    judged, people = judged - judged.mean(), sample.people - sample.people.mean()
    columns = [weights * each for each in (np.ones_like(judged), judged, people, judged**2, judged * people)]
    sums = [np.bincount(sample.ours, weights=column, minlength=sample.groups) for column in columns]
    n, x, y, xx, xy = (float(column.sum()) - each for column, each in zip(columns, sums, strict=True))
    spread = xx - x * x / n
    known = spread > 1e-12 * float(columns[3].sum())
    slopes = np.divide(xy - x * y / n, spread, out=np.zeros_like(spread), where=known)
    found: Floats = np.clip(slopes, 0.0, sample.scale)[sample.ours]
    return found


def _ends(
    sample: Sample, fit: _Fit, bounds: Bounds, confidence: float, power: float | None = None
) -> tuple[float, float]:
    """The interval of a rectified mean, cut at the bounds."""
    low, high = _student(fit, confidence)
    if math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and _thin(sample, bounds):
        ends = _student(_fit(sample.padded(bounds), power), confidence)
        low, high = min(low, ends[0]), max(high, ends[1])
    return max(low, bounds[0]), min(high, bounds[1])


def _thin(sample: Sample, ends: Bounds) -> bool:
    """Whether labels say little of how they spread: 0/1, or nearly all alike, or nearly all as the judge has it."""
    said, off = sample.people, np.round(sample.people - sample.judged[sample.places], 9)
    return bool(np.isin(said, (*ends, 0.0)).all()) or sparse(said) or sparse(off)


def _student(fit: _Fit, confidence: float) -> tuple[float, float]:
    half = t_quantile(0.5 + confidence / 2, fit.df) * fit.error
    return fit.mean - half, fit.mean + half


def _alone(sample: Sample, bounds: Bounds, confidence: float) -> float:
    """The width of the interval of the labels by themselves."""
    if np.ptp(sample.weights) < 1e-12:
        found = mean_interval(sample.people, sample.ours, bounds=bounds, confidence=confidence)
        return found.high - found.low
    low, high = _ends(sample, _fit(sample, 0.0), bounds, confidence, 0.0)
    return high - low


def _random(sample: Sample) -> float | None:
    """The p that the judge has the labelled traces as it has all (Student's t); None where it says one thing."""
    weights, judged, near = sample.weights, sample.judged[sample.places], sample.clusters
    off = float(weights @ judged) - sample.centre
    pulls = weights * (judged - float(weights @ judged)) * math.sqrt(near / (near - 1))
    error = float(np.linalg.norm(np.bincount(sample.ours, weights=pulls)))
    return 2 * t_below(-abs(off) / error, near - 1) if error > 0 else None


def _gain(low: float, high: float, alone: float) -> float | None:
    """The width of an interval against that of labels alone; None where the latter has none or no end."""
    return (high - low) / alone if 0 < alone < math.inf else None
