"""Rolling means, differences, distributions and correlations of metrics in windows of roll-ups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.rollups import (
    BINS,
    CHUNK_RELEVANCE,
    CHUNK_USE,
    ProductSums,
    Rollup,
    WorstTrace,
    bin_edges,
)
from ragfault.diagnosis.records import ChunkBucket, ChunkInsight
from ragfault.io.runs.run import MetricInfo
from ragfault.model.grouping import group_by
from ragfault.stats.bootstrap import ClusterTable
from ragfault.stats.distributions import t_quantile
from ragfault.stats.estimates import Difference, Interval

DAY_MINUTES = 24 * 60
# the windows of rolling means, in minutes
WINDOW_MINUTES = (30, 90, DAY_MINUTES)
# blocks that differences are judged by, and how many
BLOCK_MINUTES, LEAST_BLOCKS = (5, 15, 60, 180, 720, 1440), 10
# degrees of freedom of an error by blocks that move together, at least
LEAST_FREEDOM = 2.0
# share of the variance of their mean that blocks which move together show at least
LEAST_SEEN = 0.2
# a last value is stale if older than so many minutes, and than so many usual gaps
STALE_MINUTES, STALE_GAPS = 10, 5
# how many interquartile ranges beyond a quartile a value is an outlier (Tukey 1977)
OUTLIER_FENCE = 1.5

FloatArray = NDArray[np.float64]
# metric, route, cohort
SeriesKey = tuple[str, str | None, str | None]


class MetricSeries(Struct, frozen=True, eq=False):
    """Roll-ups of one metric, route and cohort in order of time, as columns."""

    minutes: NDArray[np.int64]
    n: NDArray[np.float64]
    sum: NDArray[np.float64]
    squares: NDArray[np.float64]
    # as many bytes as the largest count needs
    bins: NDArray[np.signedinteger[Any]]
    # undefined and failed values of each minute, as two columns
    unscored: NDArray[np.int64]
    worst: tuple[tuple[WorstTrace, ...], ...]

    def between(self, first: int, last: int) -> MetricSeries:
        """Return the part from the minute `first` to before `last`, both counted from 1970."""
        a, b = np.searchsorted(self.minutes, [first, last]).tolist()
        return MetricSeries(
            self.minutes[a:b],
            self.n[a:b],
            self.sum[a:b],
            self.squares[a:b],
            self.bins[a:b],
            self.unscored[a:b],
            self.worst[a:b],
        )

    @property
    def value_count(self) -> int:
        """Return the number of values."""
        return int(self.n.sum())

    @property
    def mean(self) -> float | None:
        """Return the mean of all values; None where there is none."""
        n = float(self.n.sum())
        return float(self.sum.sum()) / n if n else None

    @property
    def variance(self) -> float:
        """Return the variance of the values; 0 for fewer than two."""
        n = float(self.n.sum())
        return max(0.0, float(self.squares.sum() - self.sum.sum() ** 2 / n) / (n - 1)) if n > 1 else 0.0

    def is_stale(self, until: int, window: int) -> bool:
        """Return whether the last value is so old that a window before a minute says nothing of the present."""
        part = self.between(until - window, until)
        there = part.minutes[part.n > 0]
        gap = (int(there[-1]) - int(there[0])) / max(1, there.size - 1) if there.size else 0.0
        return not there.size or until - 1 - int(there[-1]) > max(STALE_MINUTES, STALE_GAPS * gap)

    def worst_traces(self, size: int) -> tuple[WorstTrace, ...]:
        """Return the worst traces of all minutes, the worst first."""
        return tuple(sorted(traces for minute in self.worst for traces in minute)[:size])


def build_series(rollups: Iterable[Rollup]) -> dict[SeriesKey, MetricSeries]:
    """Build series by metric, route and cohort; roll-ups of one minute are merged, and those of an iterator freed."""
    groups = group_by(rollups, lambda rollup: (rollup.metric, rollup.route, rollup.cohort))
    return {key: _build_columns(sorted(groups.pop(key), key=lambda item: item.minute)) for key in list(groups)}


def _build_columns(rollups: Sequence[Rollup]) -> MetricSeries:
    bins = np.fromiter(chain.from_iterable(rollup.bins for rollup in rollups), np.int64).reshape(-1, BINS)
    return MetricSeries(
        np.array([rollup.minute for rollup in rollups], dtype=np.int64),
        np.array([rollup.n for rollup in rollups], dtype=np.float64),
        np.array([rollup.sum for rollup in rollups], dtype=np.float64),
        np.array([rollup.squares for rollup in rollups], dtype=np.float64),
        # of sparse traffic a byte instead of eight
        bins.astype(np.min_scalar_type(-1 - int(bins.max(initial=0)))),
        np.array([(rollup.undefined, rollup.failed) for rollup in rollups], dtype=np.int64).reshape(-1, 2),
        tuple(rollup.worst for rollup in rollups),
    )


# a window is asked for its mean, and again for its difference to the one before
@lru_cache(maxsize=4)
def _estimate_moments(series: MetricSeries, measure: MetricInfo) -> tuple[float, float, float, float]:
    """Return count, mean, standard error (the larger of that by minute and by value) and degrees of freedom.

    Where all values are alike, or at an end of a bounded range, one value at each end is added.
    """
    n = float(series.n.sum())
    if not n:
        return 0.0, 0.0, math.inf, 1.0
    mean, variance, count, groups = series.mean or 0.0, series.variance, n, int((series.n > 0).sum())
    if measure.low is not None and measure.high is not None and (n < 10 or not variance):
        low, high = measure.low, measure.high
        total, count = float(series.sum.sum()) + low + high, n + 2
        squares = float(series.squares.sum()) + low * low + high * high
        mean = total / count
        variance = max(0.0, (squares - total * total / count) / (count - 1))
    plain = math.sqrt(variance / count) if count > 1 else math.inf
    error = float(ClusterTable(series.sum[:, None], series.n[:, None]).standard_errors()[0]) if groups > 1 else 0.0
    return n, mean, max(plain, error), max(1.0, (groups if groups > 1 else count) - 1)


def _estimate_block_errors(windows: Sequence[MetricSeries]) -> list[tuple[float, float]]:
    """Return the largest standard error of the mean of each window by blocks of minutes, and its degrees of freedom.

    Minutes near each other move together: the errors of longer blocks hold that, as long as there are ten of them. The
    largest is that of the widest interval (batch means; Alexopoulos & Seila 1996). Where blocks are alike to the next
    by more than a standard error, in either window, the error grows by that correlation, its bias removed (Marriott &
    Pope 1954), as that of first-order autoregression, and the degrees of freedom are of as many independent blocks.
    """
    estimates = [[(0.0, 1.0)] for _ in windows]
    sizes: list[int] = []
    for length in BLOCK_MINUTES:
        tables = [_sum_blocks(series, length) for series in windows]
        if all(len(sums) < LEAST_BLOCKS for sums, _ in tables):
            # longer blocks are fewer
            break
        if sizes == (sizes := [len(sums) for sums, _ in tables]):
            # as many blocks as of the length before, which divides this one: they are the same
            continue
        alike = max((_correlate_blocks(sums, counts) for sums, counts in tables), default=0.0)
        for errors, (sums, counts) in zip(estimates, tables, strict=True):
            if len(sums) < LEAST_BLOCKS:
                continue
            error, blocks = float(ClusterTable(sums[:, None], counts[:, None]).standard_errors()[0]), len(sums)
            errors.append((error, blocks - 1.0))
            if alike > 0:
                correlation = min(alike, 1 - 2 * LEAST_FREEDOM / blocks)
                growth = (1 + correlation) / (1 - correlation)
                hidden = max(LEAST_SEEN, 1 - (growth - 1) / (blocks - 1))
                errors.append((error * math.sqrt(growth / hidden), max(LEAST_FREEDOM, blocks / growth - 1)))
    return [max(errors, key=lambda pair: pair[0] * t_quantile(0.975, pair[1])) for errors in estimates]


def _sum_blocks(series: MetricSeries, length: int) -> tuple[FloatArray, FloatArray]:
    """Return the sums and the counts of the values of each block of minutes that has any."""
    there = series.n > 0
    # minutes are in order
    blocks = series.minutes[there] // length
    if not len(blocks):
        return np.zeros(0), np.zeros(0)
    starts = np.concatenate(([0], np.flatnonzero(blocks[1:] != blocks[:-1]) + 1))
    return np.add.reduceat(series.sum[there], starts), np.add.reduceat(series.n[there], starts)


def _correlate_blocks(sums: FloatArray, counts: FloatArray) -> float:
    """Return the correlation of blocks with the next, its bias removed; 0 within a standard error, or of few blocks."""
    if len(sums) < LEAST_BLOCKS:
        return 0.0
    rest = sums - counts * sums.sum() / counts.sum()
    total, blocks = float(rest @ rest), len(rest)
    raw = float(rest[1:] @ rest[:-1]) / total if total > 0 else 0.0
    return (blocks * raw + 1) / (blocks - 3) if raw * math.sqrt(blocks) > 1 else 0.0


def window_mean(series: MetricSeries, measure: MetricInfo, confidence: float = 0.95) -> Interval | None:
    """Return the mean of a window and its interval, from the sums of its minutes; None where it has no value.

    Student's t with the standard error by minute (Liang & Zeger 1986), or without where that is larger, cut at the
    metric's range. Assumes that minutes are independent: the turns of a conversation that goes on for longer are not.

    >>> from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
    >>> seen = [Observation(metric="m", trace=str(at), time=60.0 * at, value=at % 2) for at in range(40)]
    >>> found = window_mean(build_series(roll_up(seen))["m", None, None], MetricInfo("m", "generation"))
    >>> found.n, found.mean, round(found.low, 2), round(found.high, 2)
    (40, 0.5, 0.34, 0.66)
    """
    n, centre, error, df = _estimate_moments(series, measure)
    if series.mean is None:
        return None
    half = t_quantile(0.5 + confidence / 2, df) * error
    low = -math.inf if measure.low is None else measure.low
    high = math.inf if measure.high is None else measure.high
    ends = max(low, min(series.mean, centre - half)), min(high, max(series.mean, centre + half))
    return Interval(series.mean, *ends, int(n), int((series.n > 0).sum()))


def window_difference(
    before: MetricSeries,
    after: MetricSeries,
    measure: MetricInfo,
    confidence: float = 0.95,
    *,
    lasting_noise: bool = True,
) -> Difference | None:
    """Return the mean of one window less that of another, with Welch's interval (Welch 1947); None where one is empty.

    Minutes may move together: the error of a window is the largest by blocks of minutes of which there are ten, and
    grows by what blocks have in common with the next. The error of a window with at most half as many values as the
    other is at least that of the other, for as many values: a short window does not show noise that outlasts it. It is
    not without `lasting_noise`: the longer window may hold part of the change, which is no noise. Degrees of freedom
    are rounded down.

    >>> from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
    >>> seen = [Observation(metric="m", trace=str(at), time=60.0 * at, value=(at % 2 + (at < 60)) / 2)
    ...         for at in range(120)]
    >>> all_ = build_series(roll_up(seen))["m", None, None]
    >>> found = window_difference(all_.between(0, 60), all_.between(60, 120), MetricInfo("m", "generation"))
    >>> found.mean, round(found.low, 2), round(found.high, 2)
    (-0.5, -0.59, -0.41)
    """
    n_before, mean_before, error_before, df_before = _estimate_moments(before, measure)
    n_after, mean_after, error_after, df_after = _estimate_moments(after, measure)
    (error_before, df_before), (error_after, df_after) = (
        max(pair, key=lambda estimate: estimate[0] * t_quantile(0.975, estimate[1]))
        for pair in zip(
            ((error_before, df_before), (error_after, df_after)), _estimate_block_errors((before, after)), strict=True
        )
    )
    if before.mean is None or after.mean is None:
        return None
    if lasting_noise and 2 * after.n.sum() <= before.n.sum():
        error_after, df_after = _widen_error((error_after, df_after), (error_before, df_before), before, after)
    elif lasting_noise and 2 * before.n.sum() <= after.n.sum():
        error_before, df_before = _widen_error((error_before, df_before), (error_after, df_after), after, before)
    variance = error_before**2 + error_after**2
    gap, shift, count = after.mean - before.mean, mean_after - mean_before, int(n_before + n_after)
    if not math.isfinite(variance):
        return Difference(gap, -math.inf, math.inf, math.inf, 1.0, shift, count, 2, "none")
    df = variance**2 / (error_before**4 / df_before + error_after**4 / df_after) if variance else 1.0
    half = t_quantile(0.5 + confidence / 2, max(1.0, math.floor(df))) * math.sqrt(variance)
    reach = math.inf if measure.low is None or measure.high is None else measure.high - measure.low
    ends = max(-reach, min(gap, shift - half)), min(reach, max(gap, shift + half))
    groups = int((before.n > 0).sum() + (after.n > 0).sum())
    return Difference(gap, *ends, math.sqrt(variance), max(1.0, df), shift, count, groups, "t")


def _widen_error(
    own: tuple[float, float], longer: tuple[float, float], long: MetricSeries, short: MetricSeries
) -> tuple[float, float]:
    """Return the error of a short window and its degrees of freedom, at least those that a longer one implies."""
    implied = longer[0] * math.sqrt(long.n.sum() / short.n.sum()), longer[1]
    return max(own, implied, key=lambda estimate: estimate[0] * t_quantile(0.975, estimate[1]))


class RollingMean(Struct, frozen=True, kw_only=True):
    """Rolling mean of one metric on one route, and its change from the window before."""

    metric: str
    route: str | None
    cohort: str | None = None
    # minutes
    window: int
    # the minute at which it ends, exclusive
    end: int
    # none: no value in the window
    interval: Interval | None
    # against the window of the same length before it; None where one of them is empty
    delta: Difference | None
    undefined: int
    failed: int


def rolling_means(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    windows: Sequence[int] = WINDOW_MINUTES,
) -> tuple[RollingMean, ...]:
    """Compute the rolling mean and its change for every series, over each window that ends before a minute."""
    return tuple(
        _rolling_mean(key, series, measures[key[0]], until, window)
        for key, series in series_by_key.items()
        for window in windows
        if key[0] in measures
    )


def _rolling_mean(key: SeriesKey, series: MetricSeries, measure: MetricInfo, until: int, window: int) -> RollingMean:
    now, before = series.between(until - window, until), series.between(until - 2 * window, until - window)
    return RollingMean(
        metric=key[0],
        route=key[1],
        cohort=key[2],
        window=window,
        end=until,
        interval=window_mean(now, measure),
        delta=window_difference(before, now, measure),
        undefined=int(now.unscored[:, 0].sum()),
        failed=int(now.unscored[:, 1].sum()),
    )


class MetricDistribution(Struct, frozen=True, kw_only=True):
    """Distribution of a metric on a route in a window, from the histogram of its roll-ups."""

    metric: str
    route: str | None
    n: int
    edges: tuple[float, ...]
    bins: tuple[int, ...]
    # within the width of a bin
    quartiles: tuple[float, float, float]
    # beyond it a value is an outlier on the worse side; None where that lies outside the range
    fence: float | None
    # the worst traces beyond it, at most five
    outliers: tuple[WorstTrace, ...]


def describe_distribution(key: SeriesKey, series: MetricSeries, measure: MetricInfo) -> MetricDistribution | None:
    """Describe the values of a window, and the traces beyond Tukey's fence; None where there are no values."""
    bins = series.bins.sum(axis=0)
    if not series.value_count:
        return None
    edges = bin_edges(measure.low, measure.high)
    low, middle, high = (_histogram_quantile(bins, edges, share) for share in (0.25, 0.5, 0.75))
    reach = OUTLIER_FENCE * (high - low)
    worse = low - reach if measure.better == "higher" else high + reach
    end = measure.low if measure.better == "higher" else measure.high
    outside = end is not None and (worse <= end if measure.better == "higher" else worse >= end)
    beyond = [
        trace
        for trace in series.worst_traces(5)
        if not outside and (trace.value < worse if measure.better == "higher" else trace.value > worse)
    ]
    return MetricDistribution(
        metric=key[0],
        route=key[1],
        n=series.value_count,
        edges=edges,
        bins=tuple(bins.tolist()),
        quartiles=(low, middle, high),
        fence=None if outside else worse,
        outliers=tuple(beyond),
    )


def _histogram_quantile(bins: NDArray[np.int64], edges: Sequence[float], share: float) -> float:
    """Interpolate a quantile from a histogram, with values spread evenly over each bin."""
    below = np.concatenate([[0], np.cumsum(bins)])
    rank = share * below[-1]
    at = min(len(bins) - 1, int(np.searchsorted(below[1:], rank)))
    inside = (rank - below[at]) / bins[at] if bins[at] else 0.0
    return float(edges[at] + inside * (edges[at + 1] - edges[at]))


class MetricCorrelation(Struct, frozen=True, kw_only=True):
    """Correlation of two metrics over the traces of a window."""

    first: str
    second: str
    n: int
    # pearson's
    r: float
    low: float
    high: float


def compute_correlations(products: Iterable[ProductSums], first: int, last: int) -> tuple[MetricCorrelation, ...]:
    """Compute Pearson's correlation of pairs of metrics from `first` to before `last`, with Fisher's interval.

    Pairs with fewer than four traces, or of which one metric is always the same, are left out.
    """
    sums: defaultdict[tuple[str, str], NDArray[np.float64]] = defaultdict(lambda: np.zeros(6))
    for product in products:
        if first <= product.minute < last:
            sums[product.first, product.second] += (product.n, product.x, product.y, product.xx, product.yy, product.xy)
    correlations = []
    for (first_metric, two), (n, x, y, xx, yy, xy) in sorted(sums.items()):
        spread = (n * xx - x * x) * (n * yy - y * y)
        if n < 4 or spread <= 1e-12:
            continue
        r = min(1.0, max(-1.0, float((n * xy - x * y) / math.sqrt(spread))))
        centre, half = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, r))), 1.959964 / math.sqrt(n - 3)
        ends = math.tanh(centre - half), math.tanh(centre + half)
        correlations.append(
            MetricCorrelation(first=first_metric, second=two, n=int(n), r=r, low=min(r, ends[0]), high=max(r, ends[1]))
        )
    return tuple(correlations)


_INSIGHT_METRICS = ((CHUNK_RELEVANCE, "relevance"), (CHUNK_USE, "use"))
_BUCKET_ORDER = {name: at for at, name in enumerate(["1–3", "4–6", "7–10", *map(str, range(1, 11)), "11+"])}


def window_insights(series_by_key: Mapping[SeriesKey, MetricSeries], first: int, last: int) -> tuple[ChunkInsight, ...]:
    """Summarize relevance and use of chunks by position and by number of chunks, from the roll-ups of a window."""
    insights = []
    for metric, name in _INSIGHT_METRICS:
        for by in ("position", "chunks"):
            buckets = tuple(_cohort_buckets(series_by_key, metric, by, first, last))
            if buckets:
                insights.append(ChunkInsight(measure=name, by=by, buckets=buckets))  # type: ignore[arg-type]
    return tuple(insights)


def _cohort_buckets(
    series_by_key: Mapping[SeriesKey, MetricSeries], metric: str, by: str, first: int, last: int
) -> Iterator[ChunkBucket]:
    names = [key[2] for key in series_by_key if key[0] == metric and (key[2] or "").startswith(f"{by}=")]
    for cohort in sorted(filter(None, names), key=lambda name: _BUCKET_ORDER.get(name.partition("=")[2], 99)):
        part = series_by_key[metric, None, cohort].between(first, last)
        mean = window_mean(part, MetricInfo(metric, "retrieval"))
        counted = series_by_key.get(("depth", None, cohort))
        if mean is not None:
            traces = mean.n if counted is None else counted.between(first, last).value_count
            yield ChunkBucket(label=cohort.partition("=")[2], traces=min(mean.n, traces), interval=mean)
