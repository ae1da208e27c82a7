"""Detection of changes in metrics over time by a sequential test, and location of the layer at fault.

Each minute bets against "the mean is still at least the floor", where the floor is the lower limit of a reference
period. For a value x from 0 to 1, a floor m, and ξ = (m - x) / (1 - m) ≥ -1, the inequality of Fan, Grama & Liu (2015),
exp(λξ + ξ²(log(1 - λ) + λ)) ≤ 1 + λξ for 0 ≤ λ < 1, makes the product over the values a supermartingale under that
null hypothesis; it needs only their count, sum and sum of squares. Summed over every minute at which a drop could have
begun, this is a Shiryaev-Roberts e-detector (Shin, Ramdas & Rinaldo 2024, "E-detectors: a nonparametric framework for
sequential change detection"): with the threshold at c the mean time to a false alarm is at least c minutes, and the
probability of any false alarm within T minutes is at most T / c, whatever the distribution. The bets are a mixture over
drops of 1 to 20 points, fixed by the reference before the test starts. Values that move together (turns of a
conversation, a busy half-hour) would be counted as independent: all evidence is divided by the design effect of the
reference, which keeps the test valid, since a power below 1 of a supermartingale is a supermartingale.

Replayed and live traffic share one loop, `advance_watch`: a replay calls it once over all minutes, the server once a
round over the minutes since the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.noise import (
    NOISE_LEVEL,
    NoiseModel,
    find_recovered_ends,
    find_rise,
    fit_noise,
    hour_of_week,
    measure_rises,
)
from ragfault.apps.watch.monitoring.rollups import FAILURES, LOG_LATENCY
from ragfault.apps.watch.monitoring.windows import MetricSeries, SeriesKey, window_difference, window_mean
from ragfault.comparison.compare import classify_difference
from ragfault.comparison.decision_tree import EQUAL_DEPTH, TreeWalk, select_tree_metrics
from ragfault.comparison.records import BranchDecision, LayerFault, MetricChange
from ragfault.comparison.settings import ALPHA, MARGIN
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import UsageError
from ragfault.stats.distributions import normal_quantile, t_cdf
from ragfault.stats.estimates import Difference
from ragfault.stats.sequences import locate_change_point
from ragfault.stats.significance import equivalence_test, holm_adjust

# minutes
MONTH_MINUTES = 30 * 24 * 60
# false alarms per metric and route in a month, at most
FALSE_ALARM_RATE = 0.05
# as much of it besides, for a second test of shares of failing traces
FAILURE_RATE = 0.2
# a drop smaller than this, as a share of the metric's range, is not looked for
MIN_DROP = 0.005
# the same of LOG_LATENCY: half as long again
MIN_SLOWDOWN = 0.03
# the drops, as shares of the range, that bets are placed for
BET_DROPS = (0.01, 0.02, 0.05, 0.1, 0.2)
# fewer values than this are no reference
MIN_VALUES = 30
# how many windows of a length count as independent in its time
WINDOW_OVERLAP = 10
# minutes, at least, over which the mean must be back at the floor before watching begins anew
RECOVERY_MINUTES = 90

CHANGE_POINT_BLOCKS = 160
"""Into how many stretches of as many values each the time around a drop is cut, to find when it began."""


class ReferencePeriod(Struct, frozen=True, kw_only=True):
    """Reference of one metric on one route: the period before monitoring began."""

    metric: str
    route: str | None
    first: int
    # the minute at which it ends, exclusive
    last: int
    n: int
    # in the metric's own units
    mean: float
    floors: tuple[float, ...]
    """What the mean is held against, from 0 to 1 where 1 is best: the lower limit of the reference, less at least
    the margin; at each hour of the week from Thursday 0 h UTC, or one for all."""
    # the λ of the mixture, at the mean of the floors
    bets: tuple[float, ...]
    low: float
    high: float
    # whether higher values are better
    higher_is_better: bool
    design_effects: tuple[float, ...] = ()
    """How many values count as one for each bet, since those near each other in time move together: its evidence is
    divided by it. None: all values are independent."""
    # the pattern by hour of the week and the noise; None: neither
    noise: NoiseModel | None = None

    def floors_at(self, minutes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the floors of some minutes."""
        return np.array(self.floors)[hour_of_week(minutes) % len(self.floors)]

    def remove_season(self, series: MetricSeries) -> MetricSeries:
        """Remove the pattern of the reference by hour of the week from the sums of a series."""
        if self.noise is None:
            return series
        season = self.noise.season_at(series.minutes) * (self.high - self.low) * (1 if self.higher_is_better else -1)
        total = series.sum - season * series.n
        squares = series.squares - 2 * season * series.sum + season**2 * series.n
        return MetricSeries(series.minutes, series.n, total, squares, series.bins, series.unscored, series.worst)


class SequentialTest(Struct, frozen=True, kw_only=True):
    """State of a sequential test, of constant size."""

    period: ReferencePeriod
    # the logarithm of the Shiryaev-Roberts sum of each bet
    log_sums: tuple[float, ...]
    # the logarithm of each bet's capital since its best beginning
    log_peaks: tuple[float, ...]
    # that beginning, a minute
    starts: tuple[int, ...]
    # the last minute taken in
    minute: int
    log_evidence: float = -math.inf
    """The logarithm of the e-detector: the mean of the sums. A drop is detected where it reaches `log_threshold`."""
    # the minute from which on it tests
    first: int = 0

    @property
    def likely_onset(self) -> int:
        """Return the likeliest onset of a drop, by the bet that gained most."""
        return self.starts[max(range(len(self.log_peaks)), key=self.log_peaks.__getitem__)]


class DropDetection(Struct, frozen=True, kw_only=True):
    """Detected drop."""

    # the minute at which there was evidence enough
    detected_at: int
    # when it began, by the change point of the values around it
    onset: int
    earliest: int
    # between which minutes that was, at 95 %
    latest: int
    # the logarithm of the e-detector when it was called, by it or as a rise of failing traces
    log_evidence: float
    # the minute at which the mean was back at the floor; None where it has not been
    recovered_at: int | None = None


def measure_reference(
    key: tuple[str, str | None],
    series: MetricSeries,
    measure: MetricInfo,
    *,
    rate: float = FALSE_ALARM_RATE,
    margin: float = MIN_DROP,
) -> ReferencePeriod | None:
    """Measure the reference of a series; None for an unbounded metric or fewer than 30 values.

    The floor is the lower limit of its mean with an error of half of `rate`, or the mean less `margin` (a share of
    the range) where that is lower; the limit allows for values that move together. Raises UsageError where the rate
    or the margin is impossible.
    """
    if not (0 < rate < 1 and 0 <= margin < 1):
        raise UsageError(f"the rate and the margin are shares between 0 and 1, got {rate:g} and {margin:g}.")
    if measure.low is None or measure.high is None or series.value_count < MIN_VALUES:
        return None
    margin = max(margin, MIN_SLOWDOWN) if measure.name == LOG_LATENCY else margin
    interval = window_mean(series, measure, 1 - rate)
    assert interval is not None
    width, rising = measure.high - measure.low, measure.better == "higher"
    mean = ((interval.mean - measure.low) if rising else (measure.high - interval.mean)) / width
    limit = ((interval.low - measure.low) if rising else (measure.high - interval.high)) / width
    if mean <= margin:
        return None
    noise = fit_noise(series, measure.low, measure.high, rising=rising)
    half = np.maximum(normal_quantile(1 - rate / 2) * np.array(noise.errors), max(margin, mean - limit))
    floors = np.clip(noise.mean + np.array(noise.season) - half, 0.0, 1 - 1e-6)
    variance = max(series.variance / width**2, 1e-4)
    bets, effects = _choose_bets(noise, float(floors.mean()), variance, log_threshold(rate))
    return ReferencePeriod(
        metric=key[0],
        route=key[1],
        first=int(series.minutes[0]),
        last=int(series.minutes[-1]) + 1,
        n=series.value_count,
        mean=interval.mean,
        floors=tuple(floors.tolist()),
        bets=bets,
        low=measure.low,
        high=measure.high,
        higher_is_better=rising,
        design_effects=effects,
        noise=noise,
    )


# share of the values that fall to the other end of the range in a sudden drop
SUDDEN_DROP = 0.5


def _choose_bets(
    noise: NoiseModel, floor: float, variance: float, limit: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the λ that gains most from each drop, on the scale of ξ, and by how much its evidence must be divided.

    The mean over L minutes is lower than expected by `far` with the probability that leaves half of the rate to the
    windows of a month, ten times as many as fit into it; divided by its design effect, the evidence of a bet for no L
    exceeds the limit there. Where none of these bets gains from the fall of half of the values to the other end of the
    range, one more does.
    """
    lengths, bets = np.geomspace(1, MONTH_MINUTES, 80), np.geomspace(0.001, 0.9, 120)
    slow = noise.quantile(noise.slow_variances(lengths), NOISE_LEVEL)
    tails = np.exp(-limit) * lengths / WINDOW_OVERLAP
    far = np.array([normal_quantile(1 - tail) for tail in tails.tolist()])
    far *= np.sqrt(noise.variance / (noise.rate * lengths) + slow)
    scale, cost = 1 - floor, np.log1p(-bets) + bets
    most = (far[:, None] * bets / scale + cost * variance / scale**2) * lengths[:, None] * noise.rate / limit
    effects = np.maximum(max(1.0, noise.variance / variance), most.max(axis=0))
    chosen = []
    for drop in BET_DROPS:
        shift = max(drop - (noise.mean - floor), drop / 4)
        gains = (bets * shift / scale + cost * (variance + shift**2) / scale**2) / effects
        chosen.append(int(gains.argmax()))
    places = list(dict.fromkeys(chosen))
    sudden = (bets * SUDDEN_DROP / scale + cost * SUDDEN_DROP * floor / scale**2) / effects
    if sudden[places].max() <= 0:
        # values that hardly vary: bets on small drops lose on values far below
        places.append(int(sudden.argmax()))
    return tuple(bets[places].tolist()), tuple(effects[places].tolist())


def log_threshold(rate: float = FALSE_ALARM_RATE) -> float:
    """Return the log threshold: a month of minutes over half the rate; the other half is the reference's.

    >>> round(math.exp(log_threshold(0.05)))
    1728000
    """
    return math.log(MONTH_MINUTES / (rate / 2))


def start_test(period: ReferencePeriod, minute: int) -> SequentialTest:
    """Start a test after a minute."""
    none = (-math.inf,) * len(period.bets)
    starts = (minute,) * len(none)
    return SequentialTest(period=period, log_sums=none, log_peaks=none, starts=starts, minute=minute - 1, first=minute)


def compute_gains(
    period: ReferencePeriod,
    minutes: NDArray[np.int64],
    n: NDArray[np.float64],
    total: NDArray[np.float64],
    squares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the log factor of each bet's capital, minutes × bets, from each minute's count, sum and sum of squares.

    A minute with more values than the busiest hours of the reference had counts as one of those.
    """
    width = period.high - period.low
    unit = (total - n * period.low) / width
    square = (squares - 2 * period.low * total + n * period.low**2) / width**2
    if not period.higher_is_better:
        unit, square = n - unit, n - 2 * unit + square
    m = period.floors_at(minutes)
    scale = 1 - m
    xi = (m * n - unit) / scale
    xi2 = np.maximum(m * m * n - 2 * m * unit + square, 0.0) / scale**2
    bets = np.minimum(np.array(period.bets) * (scale / (1 - np.mean(period.floors)))[:, None], 0.95)
    gains: NDArray[np.float64] = xi[:, None] * bets + xi2[:, None] * (np.log1p(-bets) + bets)
    if period.noise is not None:
        most = period.noise.rate + 4 * math.sqrt(period.noise.rate)
        gains *= np.minimum(1.0, most / np.maximum(n, 1.0))[:, None]
    gains /= np.array(period.design_effects or 1.0)
    return gains


def advance_test(test: SequentialTest, series: MetricSeries, limit: float = math.inf) -> SequentialTest:
    """Advance the test over the later minutes of a series, up to the first whose evidence reaches `limit`.

    All minutes are taken at once: the Shiryaev-Roberts sum of a bet is its capital times the sum of one over its
    capital at each beginning, and the beginning at which its capital was lowest is the likeliest onset. Minutes
    without values change nothing.

    >>> from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
    >>> from ragfault.apps.watch.monitoring.windows import build_series
    >>> values = [Observation(metric="m", trace=str(at), time=540.0 + 60 * at, value=0.4) for at in range(10)]
    >>> period = ReferencePeriod(metric="m", route=None, first=0, last=9, n=99, mean=0.8, floors=(0.79,),
    ...     bets=(0.2, 0.4), low=0.0, high=1.0, higher_is_better=True)
    >>> test = advance_test(start_test(period, 9), build_series(roll_up(values))["m", None, None])
    >>> test.minute, test.likely_onset, test.log_evidence > 0
    (18, 9, True)
    """
    later = (series.n > 0) & (series.minutes > test.minute)
    minutes = series.minutes[later]
    if not minutes.size:
        return test
    gains = compute_gains(test.period, minutes, series.n[later], series.sum[later], series.squares[later])
    capital = np.cumsum(gains, axis=0)
    before = capital - gains
    beginnings = np.concatenate([[test.log_sums], -before])
    sums = capital + np.logaddexp.accumulate(beginnings, axis=0)[1:]
    evidence = np.logaddexp.reduce(sums, axis=1) - math.log(gains.shape[1])
    reached = np.flatnonzero(evidence >= limit)
    at = int(reached[0]) if reached.size else len(minutes) - 1
    lowest = before[: at + 1].argmin(axis=0)
    lowest_capital = before[lowest, np.arange(gains.shape[1])]
    earlier = -np.array(test.log_peaks)
    return replace(
        test,
        log_sums=tuple(sums[at].tolist()),
        log_peaks=tuple((capital[at] - np.minimum(lowest_capital, earlier)).tolist()),
        starts=tuple(np.where(earlier < lowest_capital, test.starts, minutes[lowest]).tolist()),
        minute=int(minutes[at]),
        log_evidence=float(evidence[at]),
    )


class SeriesWatch(Struct, frozen=True, kw_only=True):
    """Test of one metric on one route; can be stored and resumed."""

    metric: str
    route: str | None
    # none: the reference is still being collected
    test: SequentialTest | None = None
    # drop that has not recovered
    detection: DropDetection | None = None
    # minutes that the reference was extended to; 0: it was not
    reference_minutes: int = 0


def advance_watch(
    watch: SeriesWatch, series: MetricSeries, until: int, *, rate: float = FALSE_ALARM_RATE, seed: int = 0
) -> tuple[SeriesWatch, tuple[DropDetection, ...]]:
    """Advance a watch over the new minutes before `until`; return it with its events, in order of time.

    An event is a detection, or the same one with `recovered_at` once the mean is back at the floor over as many
    minutes as the detection took, at least 90. In between nothing is detected; then the test starts anew.
    """
    if watch.test is None or not series.minutes.size:
        return watch, ()
    test, detection, events = watch.test, watch.detection, list[DropDetection]()
    period, limit = test.period, log_threshold(rate)
    later = series.between(period.last, until)
    while True:
        if detection is None:
            rise = _find_rise(test, series.between(0, until), rate)
            test = advance_test(test, later if rise is None else later.between(0, rise[0] + 1), limit)
            if test.log_evidence >= limit:
                onset, earliest, latest = estimate_onset(period.remove_season(series), test, seed)
            elif rise is None:
                break
            else:
                _, onset, earliest, latest = rise
            detection = DropDetection(
                detected_at=test.minute, onset=onset, earliest=earliest, latest=latest, log_evidence=test.log_evidence
            )
            events.append(detection)
        else:
            recovered_at = _find_recovery(later, period, detection, test.minute)
            if recovered_at is None:
                test = replace(test, minute=max(test.minute, *later.minutes[-1:].tolist()))
                break
            events.append(replace(detection, recovered_at=recovered_at))
            test, detection = start_test(period, recovered_at + 1), None
    return replace(watch, test=test, detection=detection), tuple(events)


def _find_rise(test: SequentialTest, series: MetricSeries, rate: float) -> tuple[int, int, int, int] | None:
    """Return when an exact test finds more failing traces, and the onset of that; None where it does not."""
    period = test.period
    if period.metric not in FAILURES:
        return None
    ceiling, tail = 1 - min(period.floors), rate * FAILURE_RATE / MONTH_MINUTES
    return find_rise(series, max(test.first, period.last), test.minute, tail, ceiling)


def detect_drops(
    series: MetricSeries, period: ReferencePeriod, *, rate: float = FALSE_ALARM_RATE, seed: int = 0
) -> tuple[DropDetection, ...]:
    """Detect every drop of a series after its reference, in order of time."""
    watch = SeriesWatch(metric=period.metric, route=period.route, test=start_test(period, period.last))
    end = int(series.minutes[-1]) + 1 if series.minutes.size else period.last
    _, events = advance_watch(watch, series, end, rate=rate, seed=seed)
    return tuple({event.detected_at: event for event in events}.values())


def _find_recovery(series: MetricSeries, period: ReferencePeriod, detection: DropDetection, after: int) -> int | None:
    """Return the first later minute at which the mean is at the floor again, over the recovery window or clearly."""
    window = max(RECOVERY_MINUTES, detection.detected_at - detection.onset)
    ends = np.flatnonzero(
        (series.minutes >= detection.detected_at + window) & (series.minutes > after) & (series.n > 0)
    )
    starts = np.searchsorted(series.minutes, series.minutes[ends] + 1 - window)
    unit = (series.sum - series.n * period.low) / (period.high - period.low)
    above = (unit if period.higher_is_better else series.n - unit) - series.n * period.floors_at(series.minutes)
    sums = np.concatenate([[0.0], np.cumsum(above)])
    recovered = series.minutes[ends[sums[ends + 1] >= sums[starts]]][:1].tolist()
    if period.noise is not None and series.minutes.size:
        part = series.between(detection.onset, int(series.minutes[-1]) + 1)
        above = above[series.minutes >= detection.onset]
        recovered += find_recovered_ends(part, above, after, period.noise, period.high - period.low)
    return min(recovered, default=None)


def estimate_onset(series: MetricSeries, test: SequentialTest, seed: int = 0) -> tuple[int, int, int]:
    """Estimate when a drop began, with its 95 % interval: the change point of the values around it.

    It is sought from three times as long before the test's own likeliest beginning as the drop has lasted.
    """
    length = test.minute - test.likely_onset + 1
    part = series.between(test.likely_onset - max(3 * length, 120), test.minute + 1)
    blocks = list(_equal_blocks(part))
    if len(blocks) < 4:
        return test.likely_onset, test.likely_onset, test.minute
    change_point = locate_change_point([mean for _, mean in blocks], resamples=199, seed=seed)
    times = [minute for minute, _ in blocks]
    # it may have begun after the last
    before = part.minutes[(part.n > 0) & (part.minutes < times[change_point.low])]
    earliest = int(before[-1]) + 1 if before.size else times[0]
    return times[change_point.step], earliest, times[min(change_point.high, len(times) - 1)]


def _equal_blocks(series: MetricSeries) -> Iterator[tuple[int, float]]:
    """Yield the first minute and the mean of stretches with about equally many values."""
    there = np.flatnonzero(series.n)
    if not there.size:
        return
    counts, sums, minutes = series.n[there], series.sum[there], series.minutes[there]
    places = np.minimum(
        ((np.cumsum(counts) - counts) * CHANGE_POINT_BLOCKS / counts.sum()).astype(int), CHANGE_POINT_BLOCKS - 1
    )
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    means = np.add.reduceat(sums, starts) / np.add.reduceat(counts, starts)
    yield from zip(minutes[starts].tolist(), means.tolist(), strict=True)


class FaultLocation(Struct, frozen=True, kw_only=True):
    """Result of the decision tree on two windows of one route."""

    # none where no branch matches, or where something else may explain the drop
    fault: LayerFault | None
    decisions: tuple[BranchDecision, ...]
    # the metrics of the tree on the two windows, corrected among themselves
    changes: tuple[MetricChange, ...]
    # what may explain the drop in place of a fault
    explanation: str | None = None

    @property
    def evidence_size(self) -> float:
        """Return by how much the first metric that the fault is named by moved; 0 without one."""
        difference = None if self.fault is None else self.fault.evidence[0].difference
        return 0.0 if difference is None else abs(difference.mean)


FAILURES_EXPLAIN = "more traces fail, or have no chunk or no answer, which may be all of it"
"""What may explain a drop of what is judged."""


class _WindowComparison(Struct, frozen=True, kw_only=True):
    """Two windows as a comparison without shared traces."""

    changes: tuple[MetricChange, ...]
    pairs: int
    same_chunks: int = 0
    same_answers: int = 0


def locate_fault(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    route: str | None,
    before: tuple[int, int],
    after: tuple[int, int],
) -> FaultLocation:
    """Walk the decision tree on two windows of a route.

    The windows share no traces: changes are tested by Welch's t, corrected by Holm. Relevance at equal depth is that of
    the first three chunks, else context_relevance as if the number of chunks had not moved.

    What fails, or has no chunk or answer, may be scored as bad: no fault is named by a metric that fell by no more than
    the share of these traces may have risen.
    """
    compared: list[tuple[MetricInfo, Difference, tuple[MetricSeries, MetricSeries]]] = []
    measured = [name for name in measures if (name, route, None) in series_by_key]
    relevance = [name for name in measured if metric_name(name) == "context_relevance"][:1]
    for name in (*select_tree_metrics(measured), *([] if EQUAL_DEPTH in measured else relevance)):
        series = series_by_key[name, route, None]
        parts = series.between(*before), series.between(*after)
        gap = window_difference(*parts, measures[name])
        if gap is not None:
            compared.append((measures[name], gap, parts))
    p = [2 * t_cdf(-abs(g.center) / g.error, g.df) if 0 < g.error < float("inf") else 1.0 for _, g, _ in compared]
    adjusted = holm_adjust(p) if p else []
    changes = [
        _build_change(measure, gap, parts, (p_value, two))
        for (measure, gap, parts), p_value, two in zip(compared, p, adjusted, strict=True)
    ]
    changes = [replace(c, metric=EQUAL_DEPTH) if c.metric in relevance else c for c in changes]
    walk = TreeWalk(
        _WindowComparison(changes=tuple(changes), pairs=max((change.n for change in changes), default=1)), ()
    )
    located = FaultLocation(
        fault=walk.faults[0] if walk.faults else None, decisions=tuple(walk.decisions), changes=tuple(changes)
    )
    rises = measure_rises(series_by_key, measures, route, before, after)
    if located.fault is None or not rises or sum(rises) < located.evidence_size:
        return located
    decisions = (
        replace(decision, outcome="cannot tell", why=f"{decision.why}; {FAILURES_EXPLAIN}")
        if decision.outcome == "fault"
        else decision
        for decision in located.decisions
    )
    return replace(located, fault=None, decisions=tuple(decisions), explanation=FAILURES_EXPLAIN)


def _build_change(
    measure: MetricInfo, gap: Difference, parts: tuple[MetricSeries, MetricSeries], p: tuple[float, float]
) -> MetricChange:
    width = (measure.high or 1.0) - (measure.low or 0.0)
    equivalence_p = equivalence_test(gap, MARGIN * width, ALPHA).p
    return MetricChange(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=classify_difference(gap, p[1], equivalence_p, ALPHA),
        baseline=parts[0].mean,
        candidate=parts[1].mean,
        difference=gap,
        p=p[0],
        adjusted=p[1],
        equivalence_p=equivalence_p,
        margin=MARGIN * width,
        detectable=None,
        needed=None,
        n=min(part.value_count for part in parts),
    )
