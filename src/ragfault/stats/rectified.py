"""Means and differences by a cheap judge on every trace, put right by people on some (prediction-powered inference)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.difference import Bounds, Difference, welch
from ragfault.stats.distributions import t_below, t_quantile
from ragfault.stats.groups import Clusters, Floats, codes
from ragfault.stats.intervals import Interval, mean_interval, sparse

__all__ = [
    "LEAST",
    "Rectified",
    "RectifiedDifference",
    "rectified_difference",
    "rectified_mean",
    "rectified_unpaired",
]

LEAST = 10
"""Fewer independent labels than this (clusters, else traces) say too little of how the judge errs."""

UNBOUNDED = (-math.inf, math.inf)

Codes = NDArray[np.intp]


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
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
    power: float | None = None,
) -> Rectified:
    """The mean that people would give, from a judge's values on all traces and people's on some (PPI++).

    `judged` has a value for each trace, `people` one where somebody gave it and NaN (or None) elsewhere. The mean is
    that of the labels plus λ times the difference of the judge's means off and on the labelled traces (Angelopoulos,
    Duchi & Zrnic 2023; with λ = 1 Angelopoulos et al. 2023). λ is the slope of people on the judge times the
    share of traces without a label, cut to [0, 1], and cross-fitted: the λ of each label leaves out its cluster, so
    that few labels do not flatter the judge; `power` sets it instead. The interval is Student's t, with the
    clustered errors of both parts and Welch's degrees of freedom; where labels are 0/1, or nearly all alike, or
    nearly all as the judge has it, it also holds that with a label added at each end of `bounds` (Bonett & Price 2012).
    λ = 0 gives the interval of the labels alone, a perfect judge that of all traces.

    Assumes that the labelled traces are a random draw of all, which those that somebody picked are not; the judge
    may err in any way. Undefined below ten labels, or ten clusters with labels. Where all are labelled it is
    `mean_interval` of the labels. Raises ValueError where shapes differ or a judge's value is not finite.

    >>> judged = [0.9, 0.8, 0.9, 0.4, 1.0, 0.7, 0.8, 0.3, 0.9, 0.6] * 20
    >>> people = [value - 0.1 for value in judged[:40]] + [None] * 160
    >>> found = rectified_mean(judged, people, bounds=(0, 1))
    >>> round(found.interval.mean, 2), found.labelled, round(found.power, 2), round(found.gain, 2)
    (0.63, 40, 0.8, 0.65)
    >>> rectified_mean(judged, [0.5] * 3 + [None] * 197).reason
    'only 3 labels: at least 10 are needed'
    """
    sample = _sample(judged, people, clusters)
    if (reason := _few(sample)) is not None:
        return Rectified(None, sample.people.size, reason=reason)
    own = None if clusters is None else sample.ours
    alone = mean_interval(sample.people, own, bounds=bounds, confidence=confidence)
    fit = _fit(sample, power)
    if fit is None:
        return Rectified(alone, alone.n, 0.0, 1.0)
    low, high = _ends(sample, fit, bounds, confidence, power)
    mean = min(max(fit.mean, bounds[0]), bounds[1])
    interval = Interval(mean, min(mean, low), max(mean, high), sample.size, sample.groups)
    return Rectified(interval, alone.n, fit.power, _gain(low, high, alone.high - alone.low))


def rectified_difference(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: Clusters | None = None,
    *,
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
    sample = _sample(_less(candidate[0], baseline[0]), _less(candidate[1], baseline[1]), clusters)
    return _difference([sample], (-reach, reach), reach, confidence)


def rectified_unpaired(
    baseline: tuple[ArrayLike, ArrayLike],
    candidate: tuple[ArrayLike, ArrayLike],
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    bounds: Bounds = UNBOUNDED,
    confidence: float = 0.95,
) -> RectifiedDifference:
    """The same where each side has labels of its own: two rectified means, one less the other.

    Errors add up as if the sides were independent: too wide for two runs over like traces, and never too narrow
    unless one rises where the other falls. `clusters` are given as (of the baseline, of the candidate).

    Undefined below ten labels, or ten clusters of them, on either side.

    >>> judged, people = [0.2, 0.8] * 50, [0.3, 0.7, 0.4, 0.8] * 5 + [None] * 80
    >>> found = rectified_unpaired((judged, people), (judged, [None] * 80 + [0.1, 0.5, 0.2, 0.6] * 5))
    >>> round(found.difference.mean, 2), found.labelled, found.paired
    (-0.2, 40, False)
    """
    groups = clusters or (None, None)
    sides = [_sample(*candidate, groups[1]), _sample(*baseline, groups[0])]
    return _difference(sides, bounds, bounds[1] - bounds[0], confidence)


def _difference(sides: list[_Sample], ends: Bounds, reach: float, confidence: float) -> RectifiedDifference:
    """The rectified mean of the first side less that of the second, if there is one."""
    labelled, paired = sum(side.people.size for side in sides), len(sides) == 1
    reasons = [reason for side in sides if (reason := _few(side)) is not None]
    if reasons:
        return RectifiedDifference(None, None, labelled, paired=paired, reason=reasons[0])
    fits = [_fit(side) or _alone(side) for side in sides]
    thin = [math.isfinite(reach) and _thin(side, ends) for side in sides]
    parts = [
        (_fit(side.padded(ends)) or _alone(side.padded(ends))) if few else fit
        for side, fit, few in zip(sides, fits, thin, strict=True)
    ]
    mean = fits[0].mean - sum(fit.mean for fit in fits[1:])
    centre, error, df = welch([(part.mean, part.error, part.df) for part in parts])
    if error <= 1e-12 * abs(mean):
        error, half = math.inf, math.inf
    else:
        half = t_quantile(0.5 + confidence / 2, df) * error
    low, high = min(mean, max(-reach, centre - half)), max(mean, min(reach, centre + half))
    clusters = sum(np.unique(side.ours).size for side in sides)
    found = Difference(mean, low, high, error, df, centre, labelled, clusters, "rectified")
    alone = welch([(0.0, each.error, each.df) for each in map(_alone, sides)])
    return RectifiedDifference(
        difference=found,
        p=2 * t_below(-abs(centre) / error, df),
        labelled=labelled,
        power=tuple(fit.power for fit in fits),
        gain=_gain(low, high, 2 * t_quantile(0.5 + confidence / 2, alone[2]) * alone[1]),
        paired=paired,
    )


# --- the sample ------------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """Traces with a label, and the rest."""

    judged: Floats
    """The judge on the labelled traces."""
    people: Floats
    ours: Codes
    """Their clusters."""
    rest: Floats
    """The judge on the others."""
    others: Codes
    groups: int

    @property
    def size(self) -> int:
        return self.people.size + self.rest.size

    def padded(self, ends: Bounds) -> _Sample:
        """The sample with a label at each end where the judge says what it usually says."""
        usual = float(self.rest.mean())
        return self._replace(
            judged=np.append(self.judged, [usual, usual]),
            people=np.append(self.people, ends),
            ours=np.append(self.ours, [self.groups, self.groups + 1]),
            groups=self.groups + 2,
        )


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _less(candidate: ArrayLike, baseline: ArrayLike) -> Floats:
    """Candidate less baseline; raises ValueError where there is not one for one."""
    after, before = _floats(candidate), _floats(baseline)
    if after.shape != before.shape:
        raise ValueError(f"baseline has {before.size} values, candidate {after.size}: pairs need both")
    return after - before


def _sample(judged: ArrayLike, people: ArrayLike, clusters: Clusters | None) -> _Sample:
    judge, said = _floats(judged), _floats(people)
    if judge.ndim != 1 or judge.shape != said.shape:
        raise ValueError(
            f"the judge has {judge.size} values, people {said.size}: give NaN where nobody spoke"
        )
    if not np.isfinite(judge).all():
        raise ValueError("a value of the judge is not finite: leave out the traces that it could not judge")
    index, groups = codes(np.arange(judge.size) if clusters is None else clusters, judge.size)
    known = np.isfinite(said)
    return _Sample(judge[known], said[known], index[known], judge[~known], index[~known], groups)


def _few(sample: _Sample) -> str | None:
    """Why there are too few labels, if there are."""
    n, groups = sample.people.size, np.unique(sample.ours).size
    if groups >= LEAST:
        return None
    labels = f"{n} label{'' if n == 1 else 's'}"
    told = labels if groups == n else f"{labels} in {groups} cluster{'' if groups == 1 else 's'}"
    return f"only {told}: at least {LEAST} are needed"


# --- the estimate ----------------------------------------------------------------------------------


class _Fit(NamedTuple):
    """A rectified mean with its error."""

    mean: float
    error: float
    df: float
    power: float


def _fit(sample: _Sample, power: float | None = None) -> _Fit | None:
    """The mean of labels less λ times how far the judge's values lie from their mean off the labels.

    None where too little is left without a label to tell how that mean spreads.
    """
    apart = np.unique(sample.others).size
    if apart < 2:
        return None
    n, centre = sample.people.size, float(sample.rest.mean())
    slopes = _slopes(sample) if power is None else np.full(n, power)
    left = sample.people - slopes * (sample.judged - centre)
    mean, average = float(left.mean()), float(slopes.mean())
    near = np.unique(sample.ours).size
    ours = (left - mean) / n * math.sqrt(near / (near - 1))
    others = average * (sample.rest - centre) / sample.rest.size * math.sqrt(apart / (apart - 1))
    parts = [
        np.bincount(index, weights=pulls, minlength=sample.groups)
        for index, pulls in ((sample.ours, ours), (sample.others, others))
    ]
    one, two = (float(part @ part) for part in parts)
    both = parts[0] + parts[1]
    spread = one**2 / (near - 1) + two**2 / (apart - 1)
    df = (one + two) ** 2 / spread if spread else float(near - 1)
    return _Fit(mean, math.sqrt(float(both @ both)), df, average)


def _alone(sample: _Sample) -> _Fit:
    """The mean of the labels by themselves."""
    n, mean = sample.people.size, float(sample.people.mean())
    groups = np.unique(sample.ours).size
    sums = np.bincount(sample.ours, weights=sample.people - mean) / n
    return _Fit(mean, math.sqrt(groups / (groups - 1) * float(sums @ sums)), groups - 1.0, 0.0)


def _slopes(sample: _Sample) -> Floats:
    """The λ of each label, by the labels of the other clusters."""
    judged, people = sample.judged - sample.judged.mean(), sample.people - sample.people.mean()
    columns = [np.ones_like(judged), judged, people, judged * judged, judged * people]
    sums = [np.bincount(sample.ours, weights=column, minlength=sample.groups) for column in columns]
    n, x, y, xx, xy = (float(column.sum()) - each for column, each in zip(columns, sums, strict=True))
    n = np.maximum(n, 1)
    spread = xx - x * x / n
    known = spread > 1e-12 * float(columns[3].sum())
    slopes = np.divide(xy - x * y / n, spread, out=np.zeros_like(spread), where=known)
    found: Floats = np.clip(slopes * sample.rest.size / sample.size, 0.0, 1.0)[sample.ours]
    return found


def _ends(
    sample: _Sample, fit: _Fit, bounds: Bounds, confidence: float, power: float | None = None
) -> tuple[float, float]:
    """The interval of a rectified mean, cut at the bounds."""
    low, high = _student(fit, confidence)
    if math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and _thin(sample, bounds):
        wide = _fit(sample.padded(bounds), power)
        assert wide is not None
        ends = _student(wide, confidence)
        low, high = min(low, ends[0]), max(high, ends[1])
    return max(low, bounds[0]), min(high, bounds[1])


def _thin(sample: _Sample, ends: Bounds) -> bool:
    """Whether labels say little of how they spread: 0/1, or nearly all alike, or nearly all as the judge has it."""
    said, off = sample.people, np.round(sample.people - sample.judged, 9)
    return bool(np.isin(said, (*ends, 0.0)).all()) or sparse(said) or sparse(off)


def _student(fit: _Fit, confidence: float) -> tuple[float, float]:
    half = t_quantile(0.5 + confidence / 2, fit.df) * fit.error
    return fit.mean - half, fit.mean + half


def _gain(low: float, high: float, alone: float) -> float | None:
    """The width of an interval against that of labels alone; None where the latter has none or no end."""
    return (high - low) / alone if 0 < alone < math.inf else None
