"""Season and noise of a metric in its reference period: what a mean will do where nothing changes.

The means of short blocks are modelled as a mean, a pattern by hour of the day, another for weekends, noise with a
memory (first-order autoregression in continuous time), and the sampling error of the block's values. All are Gaussian
processes, so the blocks have one normal distribution for each choice of the variances and the memory (Rasmussen &
Williams 2006, chapters 2 and 5). Every choice of a fixed grid is weighted by its likelihood: nothing is tested first,
and what a short period cannot tell (noise with a memory of a day from a change of the day) stays possible and widens
the limits.

Of sparse traffic hardly any trace of a few hundred fails, which leaves the limit of their share wide. There a window is
compared with the two days before it: given how many failed in both, their number in the window is binomial where
nothing changed (Przyborowski & Wilenski 1940). Failures come in bursts, too: those within five minutes count once in
the window and each in the history, and the window must have eight, and four times as many as the worst stretch of the
history with as many traces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.rollups import FAILURES
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, window_difference
from ragfault.io.runs.run import MetricInfo
from ragfault.stats.distributions import incomplete_beta

FloatArray = NDArray[np.float64]

HOUR_MINUTES = 60
WEEK_HOURS = 168
# minutes; the shortest that gives at most MAX_BLOCKS is used
BLOCK_LENGTHS = (1, 2, 5, 10, 15, 30, 60, 120)
MAX_BLOCKS = 170
# minutes, of the noise: a quarter of an hour to three days
MEMORIES = tuple((15.0 * 1.67 ** np.arange(12)).tolist())
# how many variances of the noise are considered for each memory, besides none
NOISE_VARIANCES = 40
PATTERNS = ((0.0, 0.0), (0.05, 0.0), (0.7, 0.0), (0.0, 0.3), (0.05, 0.3), (0.7, 0.3))
"""Variances of the pattern of the day and of the weekend, as shares of the variance of the blocks."""
# the longest memory of noise that is considered, as a share of the reference
KNOWN_MEMORY = 1 / 3
# the longest promised, as a share: 6 h after 7 days, as simulated; a day was too long
PROMISED_MEMORY = 1 / 28
# how long a reference must be to know a pattern
KNOWN_DAY, KNOWN_WEEK = DAY_MINUTES - 60, 7 * DAY_MINUTES - 60
# hours over which the pattern of a day is alike
PATTERN_HOURS = 6.0
# the quantile over the choices that limits are set by
NOISE_LEVEL = 0.95
# how many choices are chosen, spread evenly over their weights
CHOICE_COUNT = 40

# minutes of the windows that are compared with the history before them
RISE_WINDOWS = (60, 240, 360)
HISTORY_MINUTES = 2 * DAY_MINUTES + max(RISE_WINDOWS)
"""Minutes before the end of a window from which on there is history: two whole nights before any of the windows."""
# minutes within which failures of a window count once
BURST_MINUTES = 5
MIN_FAILURES = 8
"""Fewer in a window are no rise: two nights in a row may by chance hide that two or three traces fail each night."""
# times as many failures as in the worst stretch of the history
WORST_FACTOR = 4
WELL_VALUES, WELL_DEVIATES = 10, 2.33
"""Values at the end of a window that show a recovery, and by how many standard errors they are above those before."""
CLEAR_MINUTES, CLEAR_SHARES, CLEAR_DEVIATES = 30, (1.0, 1.5, 2.0, 3.0, 4.0), 4.5
"""Minutes at the end of a drop that show its recovery, with WELL_VALUES; as many times of both are tried."""
# fewer traces than this, or than the window has, are no history
MIN_HISTORY = 30
# the least rise of the share that is told
MIN_RISE = 0.05
# the least share that is taken as usual where an onset is estimated
MIN_USUAL = 0.001
LIKELY_GAP = 4.0
"""Log likelihood by which the onset may be less likely than the likeliest and still be within its interval."""


class NoiseModel(Struct, frozen=True, kw_only=True):
    """Pattern by hour of the week and noise of a metric, in units of its range."""

    mean: float
    season: tuple[float, ...]
    """The expected mean at each hour of the week less the overall one, from Thursday 0 h UTC (as the epoch)."""
    # standard errors of the expected means of those hours
    errors: tuple[float, ...]
    # of one value, times the design effect of values within a minute
    variance: float
    components: tuple[tuple[float, float, float], ...]
    """Weight, variance and memory (minutes) of the noise in each choice that remains possible."""
    # values in a minute, in the busiest hours
    rate: float

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


def recovered_mean(
    series: MetricSeries, length: int, level: float, noise: NoiseModel | None, width: float
) -> float | None:
    """Return the mean of an end of a series that is at a level, and clearly above what is before it; None without one.

    The end has `length` minutes or more, at least WELL_VALUES, and is within a standard error of the level. Of all such
    ends the one that stands out most must do so by more than the values of the series, mixed, and the noise of a metric
    whose range has this width explain.
    """
    n, total, squares = (np.cumsum(column[::-1])[::-1] for column in (series.n, series.sum, series.squares))
    count, until = np.maximum(n, 1), int(series.minutes[-1]) + 1
    high = total / count + np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0) / count)
    there = (series.minutes[:-1] < until - length) & (n[1:] >= WELL_VALUES) & (n[1:] < n[0])
    ends = np.flatnonzero(there & (high[1:] >= level)) + 1
    if not ends.size:
        return None
    gaps = total[ends] / n[ends] - (total[0] - total[ends]) / (n[0] - n[ends])
    clearest = int((gaps * np.sqrt(n[ends] * (n[0] - n[ends]))).argmax())
    place, gap = int(ends[clearest]), float(gaps[clearest])
    first, size = int(series.minutes[place]), float(n[place])
    error = math.sqrt(series.variance * (1 / size + 1 / (n[0] - size)))
    if noise is not None:
        before = first - int(series.minutes[0]), float(n[0]) - size
        error = max(error, width * estimate_error(noise, (until - first, size), before))
    return float(total[place]) / size if gap > WELL_DEVIATES * error else None


def find_recovered_ends(
    series: MetricSeries, above: FloatArray, after: int, noise: NoiseModel, width: float
) -> Iterator[int]:
    """Yield the first minutes later than `after` by which ends of some lengths are clearly back at the floor.

    `series` begins at the onset of a drop, and `above` has the sums of its values less the floor, in ranges. An end has
    enough minutes and values. As it is looked for so often, it must stand out from what is before it by CLEAR_DEVIATES
    errors of the values of the series, mixed, and of the noise.
    """
    sums, n, total, squares = (np.append(0.0, np.cumsum(c)) for c in (above, series.n, series.sum, series.squares))
    ends = np.flatnonzero((series.minutes > after) & (series.n > 0)) + 1
    spread = np.sqrt(np.maximum(squares[ends] / n[ends] - (total[ends] / n[ends]) ** 2, 0)) / width
    for share in CLEAR_SHARES:
        starts = np.searchsorted(series.minutes, series.minutes[ends - 1] + 1 - share * CLEAR_MINUTES)
        starts = np.minimum(starts, np.searchsorted(n, n[ends] - share * WELL_VALUES, "right") - 1).clip(0)
        size, before = n[ends] - n[starts], np.maximum(n[starts], 1e-9)
        gaps = (sums[ends] - sums[starts]) / size - sums[starts] / before
        is_clear = (starts > 0) & (gaps > CLEAR_DEVIATES * spread * np.sqrt(1 / size + 1 / before))
        for at in np.flatnonzero(is_clear & (sums[ends] >= sums[starts])).tolist():
            last, first = int(series.minutes[ends[at] - 1]), int(series.minutes[starts[at]])
            windows = (last + 1 - first, float(size[at])), (first - int(series.minutes[0]), float(before[at]))
            if gaps[at] > CLEAR_DEVIATES * estimate_error(noise, *windows):
                yield last
                break


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
    block = next((length for length in BLOCK_LENGTHS if span <= length * MAX_BLOCKS), BLOCK_LENGTHS[-1])
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
    return NoiseModel(mean=mean, season=season, errors=errors, variance=size, components=_marginal(choices), rate=rate)


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


def find_rise(
    series: MetricSeries, first: int, after: int, tail: float, ceiling: float
) -> tuple[int, int, int, int] | None:
    """Return the first minute later than `after` by which clearly more traces failed than before; None without one.

    `series` has ones for traces that failed. Windows begin at `first` or later; their share is above `ceiling`, and for
    each of their minutes the probability of so many failures by chance is at most `tail`. With the minute comes the
    likeliest onset, and between which minutes it lies: those that are not much less likely.
    """
    failing = series.minutes[series.sum > 0]
    later = failing[failing > after].tolist()
    if not later:
        return None
    bursts = failing[np.diff(failing // BURST_MINUTES, prepend=-1) > 0]
    traces, failures = (np.append(0.0, np.cumsum(column)) for column in (series.n, series.sum))
    for minute in later:
        for length in RISE_WINDOWS:
            window = minute + 1 - length, minute + 1
            limits = [minute + 1 - HISTORY_MINUTES, *window]
            # of the history, and of the window
            begin, start, end = np.searchsorted(series.minutes, limits).tolist()
            size, before = traces[end] - traces[start], traces[start] - traces[begin]
            if window[0] < first or before < max(MIN_HISTORY, size):
                continue
            count, past = int(np.diff(np.searchsorted(bursts, window))[0]), int(failures[start] - failures[begin])
            if count < MIN_FAILURES or count / size <= max(ceiling, MIN_RISE + past / before):
                continue
            if incomplete_beta(count, past + 1, size / (size + before), before / (size + before)) > tail * length:
                continue
            # of the stretch with as many traces
            ends = np.minimum(np.searchsorted(traces, traces[begin:start] + size), start)
            if count >= WORST_FACTOR * (failures[ends] - failures[begin:start]).max():
                return minute, *_estimate_onset(
                    series.between(window[0] - max(RISE_WINDOWS), minute + 1), past / before
                )
    return None


def _estimate_onset(series: MetricSeries, usual: float) -> tuple[int, int, int]:
    """Return the likeliest minute from which on a share is no longer the usual one, the first and the last likely."""
    failing = np.flatnonzero(series.sum > 0)
    n, k = (np.cumsum(column[::-1])[::-1][failing] for column in (series.n, series.sum))
    share, low = np.minimum(k / n, 1 - 1e-9), max(usual, MIN_USUAL)
    gains = np.where(share > low, k * np.log(share / low) + (n - k) * np.log((1 - share) / (1 - low)), 0.0)
    likely = failing[gains >= gains.max() - LIKELY_GAP]
    onset, earliest, latest = series.minutes[[failing[gains.argmax()], likely[0], likely[-1]]].tolist()
    return onset, earliest, latest


def measure_rises(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    route: str | None,
    before: tuple[int, int],
    after: tuple[int, int],
) -> list[float]:
    """Return by how much each share of failing traces may have risen, at most, of those that are shown to have."""
    watched = [name for name in FAILURES if name in measures and (name, route, None) in series_by_key]
    sides = ((series_by_key[name, route, None], measures[name]) for name in watched)
    gaps = [window_difference(own.between(*before), own.between(*after), measure) for own, measure in sides]
    return [gap.high for gap in gaps if gap is not None and gap.low > 0 and math.isfinite(gap.high)]
