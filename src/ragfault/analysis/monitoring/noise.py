"""Season and noise of a metric in its reference period: what a mean will do where nothing changes.

The means of short blocks are modelled as a mean, a pattern by hour of the day, another for weekends, noise with a
memory (first-order autoregression in continuous time), and the sampling error of the block's values. All are Gaussian
processes, so the blocks have one normal distribution for each choice of the variances and the memory (Rasmussen &
Williams 2006, chapters 2 and 5). Every choice of a fixed grid is weighted by its likelihood: nothing is tested first,
and what a short period cannot tell (noise with a memory of a day from a change of the day) stays possible and widens
the limits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries

FloatArray = NDArray[np.float64]

HOUR_MINUTES = 60
WEEK_HOURS = 168
BLOCK_LENGTHS = (1, 2, 5, 10, 15, 30, 60, 120)  # minutes; the shortest that gives at most MAX_BLOCKS is used
MAX_BLOCKS = 170
MEMORIES = tuple((15.0 * 1.67 ** np.arange(12)).tolist())  # minutes, of the noise: a quarter of an hour to three days
NOISE_VARIANCES = 40  # how many variances of the noise are considered for each memory, besides none
PATTERNS = ((0.0, 0.0), (0.05, 0.0), (0.7, 0.0), (0.0, 0.3), (0.05, 0.3), (0.7, 0.3))
"""Variances of the pattern of the day and of the weekend, as shares of the variance of the blocks."""
KNOWN_MEMORY = 1 / 3  # the longest memory of noise that is considered, as a share of the reference
PROMISED_MEMORY = 1 / 28  # the longest promised, as a share: 6 h after 7 days, as simulated; a day was too long
KNOWN_DAY, KNOWN_WEEK = DAY_MINUTES - 60, 7 * DAY_MINUTES - 60  # how long a reference must be to know a pattern
PATTERN_HOURS = 6.0  # hours over which the pattern of a day is alike
NOISE_LEVEL = 0.95  # the quantile over the choices that limits are set by
CHOICE_COUNT = 40  # how many choices are chosen, spread evenly over their weights


class NoiseModel(Struct, frozen=True, kw_only=True):
    """Pattern by hour of the week and noise of a metric, in units of its range."""

    mean: float
    season: tuple[float, ...]
    """The expected mean at each hour of the week less the overall one, from Thursday 0 h UTC (as the epoch)."""
    errors: tuple[float, ...]  # standard errors of the expected means of those hours
    variance: float  # of one value, times the design effect of values within a minute
    components: tuple[tuple[float, float, float], ...]
    """Weight, variance and memory (minutes) of the noise in each choice that remains possible."""
    rate: float  # values in a minute, in the busiest hours

    def season_at(self, minutes: NDArray[np.int64]) -> FloatArray:
        """Return the season of some minutes since 1970."""
        return np.array(self.season)[hour_of_week(minutes)]

    def slow_variances(self, lengths: FloatArray) -> FloatArray:
        """Return the variances of means of windows by the noise, choices × windows."""
        return np.array([scale * mean_variance(lengths / memory) for _, scale, memory in self.components])

    def quantile(self, figures: FloatArray, level: float) -> FloatArray:
        """Return a quantile of a figure over the choices, which are along its first axis."""
        order = np.argsort(figures, axis=0)
        weights = np.array([weight for weight, *_ in self.components])[order]
        place = (np.cumsum(weights, axis=0) >= level * weights.sum(axis=0)).argmax(axis=0)
        result: FloatArray = np.take_along_axis(np.take_along_axis(figures, order, 0), place[None], 0)[0]
        return result


def estimate_error(model: NoiseModel, after: tuple[int, float], before: tuple[int, float] | None = None) -> float:
    """Return the standard error of the mean of a window, less that of the one that ends where it begins if given.

    A window is its minutes and how many values it has.
    """
    _, scales, memories = np.array(model.components).T
    slow = mean_variance(after[0] / memories)
    if before is not None:
        ends = [-np.expm1(-window[0] / memories) * memories / window[0] for window in (before, after)]
        slow = slow + mean_variance(before[0] / memories) - 2 * ends[0] * ends[1]
    white = sum(model.variance / max(window[1], 1.0) for window in (after, before) if window is not None)
    return math.sqrt(max(0.0, float(model.quantile(scales * slow, NOISE_LEVEL))) + white)


def expected_error(model: NoiseModel, *windows: tuple[int, float]) -> float:
    """Return the expected standard error of the difference of means of windows that lie apart (or of one mean).

    A window is its minutes and how many values it has.
    """
    weights, scales, memories = np.array(model.components).T
    slow = sum(weights @ (scales * mean_variance(length / memories)) for length, _ in windows) / weights.sum()
    return math.sqrt(float(slow) + sum(model.variance / max(count, 1.0) for _, count in windows))


def tail_deviate(share: float, expected: float, error: float) -> float:
    """Return by how many normal deviates a share is below the expected one: the signed root of the deviance.

    The deviance is that of as many ones and zeros as have this standard error, so that the skewness of shares near an
    end is allowed for (McCullagh & Nelder 1989, §12.6).

    >>> round(tail_deviate(0.45, 0.5, 0.01), 2), tail_deviate(0.6, 0.5, 0.01)
    (5.0, 0.0)
    """
    expected = min(max(expected, 1e-6), 1 - 1e-6)
    if share >= expected:
        return 0.0
    size = expected * (1 - expected) / error**2
    gap = (1 - share) * math.log((1 - share) / (1 - expected))
    if share > 0:
        gap += share * math.log(share / expected)
    return math.sqrt(max(0.0, 2 * size * gap))


def hour_of_week(minutes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the hour of the week of minutes since 1970, from 0 (Thursday 0 h UTC) to 167."""
    hours: NDArray[np.int64] = minutes // HOUR_MINUTES % WEEK_HOURS
    return hours


def is_weekend(minutes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which minutes since 1970 are on a Saturday or Sunday, UTC.

    >>> is_weekend(np.array([1, 2, 3, 4]) * DAY_MINUTES).tolist()  # from Friday, 2 January 1970
    [False, True, True, False]
    """
    weekend: NDArray[np.bool_] = (minutes // DAY_MINUTES + 3) % 7 >= 5
    return weekend


def describe_promise(minutes: int) -> str:
    """Describe for which traffic without a change the rate of false alarms holds, after a reference of so many minutes.

    >>> describe_promise(3 * 1440)
    'it allows for the pattern of the day, for no day of the week yet, and for noise with a memory of up to 3 h'
    """
    if minutes < KNOWN_DAY:
        pattern = "for no pattern of the day or the week yet"
    elif minutes < KNOWN_WEEK:
        pattern = "for the pattern of the day, for no day of the week yet"
    else:
        pattern = "for the patterns of the day and of weekends"
    memory = min(minutes * PROMISED_MEMORY, DAY_MINUTES)
    shown = f"{memory / HOUR_MINUTES:.0f} h" if memory >= 2 * HOUR_MINUTES else f"{memory:.0f} min"
    return f"it allows {pattern}, and for noise with a memory of up to {shown}"


def mean_variance(lengths: FloatArray) -> FloatArray:
    """Return the variance of the mean of a window under noise of variance 1; lengths are in memories.

    >>> mean_variance(np.array([1e-6, 1.0, 100.0])).round(3).tolist()
    [1.0, 0.736, 0.02]
    """
    result: FloatArray = np.where(
        lengths > 1e-3, 2 * (lengths + np.expm1(-lengths)) / np.maximum(lengths, 1e-9) ** 2, 1 - lengths / 3
    )
    return result


def window_correlations(starts: FloatArray, lengths: FloatArray, memory: float) -> FloatArray:
    """Return the covariances of the means of windows under noise of variance 1; windows are alike or do not overlap.

    >>> window_correlations(np.array([0.0]), np.array([1e-6]), 60.0).round(3).tolist()
    [[1.0]]
    """
    u = lengths / memory
    own = mean_variance(u)
    gap = np.maximum(starts[:, None] - (starts + lengths)[None, :], starts[None, :] - (starts + lengths)[:, None])
    edge = np.where(u > 1e-9, -np.expm1(-u) / np.maximum(u, 1e-12), 1.0)
    between = edge[:, None] * edge[None, :] * np.exp(-np.maximum(gap, 0.0) / memory)
    result: FloatArray = np.where(np.eye(len(starts), dtype=bool), own[:, None], between)
    return result


def fit_noise(series: MetricSeries, low: float, high: float, *, rising: bool = True) -> NoiseModel:
    """Fit the season and the noise of a series with at least two values; the unit is the range, 1 is best."""
    width = high - low
    total = (series.sum - series.n * low) / width
    unit = total if rising else series.n - total
    value_variance = max(series.variance / width**2, 1e-4)
    span = int(series.minutes[-1] - series.minutes[0]) + 1
    block = next((b for b in BLOCK_LENGTHS if span <= b * MAX_BLOCKS), BLOCK_LENGTHS[-1])
    size = _minute_effect(series, block) * value_variance
    recent = (series.n > 0) & (series.minutes > series.minutes[-1] - block * MAX_BLOCKS)
    minutes, n, unit = series.minutes[recent], series.n[recent], unit[recent]
    begins = np.flatnonzero(np.diff(minutes // block, prepend=-1))
    starts = (minutes[begins] // block * block).astype(np.float64)
    counts, sums = np.add.reduceat(n, begins), np.add.reduceat(unit, begins)
    means, white = sums / counts, size / counts
    rate = float(np.quantile(counts, 0.95)) / block
    spread = max(float(np.average((means - sums.sum() / counts.sum()) ** 2, weights=counts)), float(np.median(white)))
    kernels = _kernels(starts, block)
    choices = _weigh(means, white, spread, kernels, span)
    mean, season, errors = _predict(means, white, kernels, choices, starts + block / 2)
    return NoiseModel(
        mean=mean, season=season, errors=errors, variance=size, components=_marginal(choices), rate=rate,
    )  # fmt: skip


def _minute_effect(series: MetricSeries, block: int) -> float:
    """Return the design effect of values within a minute, at least 1: of what the minutes differ from their block."""
    there = series.n > 0
    n, total = series.n[there], series.sum[there]
    begins = np.flatnonzero(np.diff(series.minutes[there] // block, prepend=-1))
    sizes = np.diff(np.append(begins, len(n)))
    if series.variance <= 0 or sizes.max() < 2:
        return 1.0
    means = np.add.reduceat(total, begins) / np.add.reduceat(n, begins)
    apart = np.add.reduceat((total - n * np.repeat(means, sizes)) ** 2, begins)
    expected = np.add.reduceat(n, begins) - np.add.reduceat(n * n, begins) / np.add.reduceat(n, begins)
    return max(1.0, float(apart.sum() / (series.variance * expected.sum())))


def _kernels(starts: FloatArray, block: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the correlations of blocks by the pattern of the day, that of the weekend, and each memory."""
    middle = starts + block / 2
    lengths = np.full(len(starts), float(block))
    noise = np.array([window_correlations(starts, lengths, memory) for memory in MEMORIES])
    return (*_season_kernels(middle, middle), noise)


def _season_kernels(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the correlations between two lots of times by the pattern of the day and that of the weekend."""
    apart = np.abs(first[:, None] - second[None, :]) % DAY_MINUTES
    apart = np.minimum(apart, DAY_MINUTES - apart)
    daily = np.exp(-apart / (60 * PATTERN_HOURS))
    weekend = [is_weekend(times) for times in (first, second)]
    return daily, (weekend[0][:, None] == weekend[1][None, :]) * (0.5 + 0.5 * daily)


Choice = tuple[float, float, float, float, float]
"""Weight, variances of the pattern of the day, of that of the weekend and of the noise, and its memory."""


def _weigh(
    means: FloatArray, white: FloatArray, spread: float, kernels: tuple[FloatArray, FloatArray, FloatArray], span: int
) -> list[Choice]:
    """Weigh the choices of variances and memory by their likelihood, and keep some with equal chances.

    In the eigenvectors of the noise, with the other parts whitened, every variance of it costs one sum.
    """
    daily, weekend, noise = kernels
    memories = [memory for memory in MEMORIES if memory <= max(MEMORIES[0], span * KNOWN_MEMORY)]
    patterns = [(day, week) for day, week in PATTERNS if span >= (KNOWN_WEEK if week else KNOWN_DAY if day else 0)]
    noise = noise[: len(memories)]
    scales = np.append(0.0, np.geomspace(0.02 * float(np.median(white)), 3 * spread, NOISE_VARIANCES))
    prior = np.append(0.0, np.full(NOISE_VARIANCES, -math.log(NOISE_VARIANCES))) - math.log(2 * len(memories))
    centred, logs = means - means.mean(), []
    for day, week in patterns:
        root = np.linalg.cholesky(np.diag(white) + 1.0 + spread * (day * daily + week * weekend))
        inverse = np.linalg.inv(root)
        values, vectors = np.linalg.eigh(inverse @ noise @ inverse.T)
        squares = ((inverse @ centred) @ vectors) ** 2
        covariance = 1 + scales[None, :, None] * np.maximum(values, 0.0)[:, None, :]
        fit = (squares[:, None, :] / covariance + np.log(covariance)).sum(axis=2)
        logs.append(prior - fit / 2 - np.log(np.diagonal(root)).sum())
    weights = np.exp(np.array(logs) - np.max(logs))
    result = [
        (float(weights[place, at, step]), spread * day, spread * week, float(scale), memory)
        for at, memory in enumerate(memories)
        for step, scale in enumerate(scales)
        for place, (day, week) in enumerate(patterns)
    ]
    result.sort(key=lambda choice: choice[3] * choice[4])
    sums = np.cumsum([choice[0] for choice in result])
    chosen = np.searchsorted(sums, (np.arange(CHOICE_COUNT) + 0.5) / CHOICE_COUNT * sums[-1])
    places, counts = np.unique(chosen, return_counts=True)
    return [(count / CHOICE_COUNT, *result[at][1:]) for at, count in zip(places.tolist(), counts.tolist(), strict=True)]


def _predict(
    means: FloatArray,
    white: FloatArray,
    kernels: tuple[FloatArray, FloatArray, FloatArray],
    choices: list[Choice],
    middle: FloatArray,
) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Return the mean over the week, and for each hour of the week its season and standard error."""
    cells: FloatArray = np.arange(WEEK_HOURS, dtype=np.float64) * 60.0 + 30.0
    across = _season_kernels(cells, middle)
    average, first, second = means.mean(), np.zeros(WEEK_HOURS), np.zeros(WEEK_HOURS)
    for weight, day, week, scale, memory in choices:
        covariance = np.diag(white) + 1.0 + day * kernels[0] + week * kernels[1]
        covariance += scale * kernels[2][MEMORIES.index(memory)]
        to = 1.0 + day * across[0] + week * across[1]
        solved = np.linalg.solve(covariance, np.column_stack([to.T, means - average]))
        expected = to @ solved[:, -1]
        error = np.maximum(1.0 + day + week - (to * solved[:, :-1].T).sum(axis=1), 0.0)
        first += weight * expected
        second += weight * (error + expected**2)
    errors = np.sqrt(np.maximum(second - first**2, 0.0))
    centre = float(first.mean())
    return float(average) + centre, tuple((first - centre).tolist()), tuple(errors.tolist())


def _marginal(choices: list[Choice]) -> tuple[tuple[float, float, float], ...]:
    """Sum the weights over the patterns."""
    weights: dict[tuple[float, float], float] = {}
    for weight, _, _, scale, memory in choices:
        weights[scale, memory] = weights.get((scale, memory), 0.0) + weight
    return tuple((weight, *key) for key, weight in sorted(weights.items()))
