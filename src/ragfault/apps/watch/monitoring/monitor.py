"""The monitor: live traffic over time with its drops, rolling means, alerts and timeline marks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES, WATCHED_METRICS, AlertRule
from ragfault.apps.watch.monitoring.alerts import AlertState, AlertTransition, advance_alerts
from ragfault.apps.watch.monitoring.change_detection import (
    FALSE_ALARM_RATE,
    MIN_DROP,
    DropDetection,
    FaultLocation,
    ReferencePeriod,
    detect_drops,
    locate_fault,
    measure_reference,
)
from ragfault.apps.watch.monitoring.drift import TrafficDrift
from ragfault.apps.watch.monitoring.noise import describe_promise, expected_error
from ragfault.apps.watch.monitoring.rollups import OPERATION_TITLES, ProductSums, Rollup
from ragfault.apps.watch.monitoring.rule_evaluation import (
    RuleContext,
    evaluate_target,
    find_possible_breaches,
    match_rules,
)
from ragfault.apps.watch.monitoring.traffic_mix import describe_mix_shift, describe_query_change, describe_unknown_days
from ragfault.apps.watch.monitoring.windows import (
    DAY_MINUTES,
    WINDOW_MINUTES,
    MetricCorrelation,
    MetricDistribution,
    MetricSeries,
    RollingMean,
    SeriesKey,
    build_series,
    compute_correlations,
    describe_distribution,
    rolling_means,
    window_difference,
    window_insights,
    window_mean,
)
from ragfault.diagnosis.records import HEALTH_ALERTS, ChunkInsight
from ragfault.diagnosis.run_table import RunTable
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.model.errors import InputError, UsageError
from ragfault.model.settings import ClosedShare, Flag, NaturalInt, OpenShare, PositiveInt, Settings, declare
from ragfault.model.whole_files import read_text
from ragfault.stats.distributions import normal_quantile
from ragfault.stats.estimates import Difference
from ragfault.text.times import assume_utc


class MonitorMark(Struct, frozen=True, kw_only=True):
    """Event on the timeline, such as a release."""

    time: datetime
    # in words: "release 7"
    text: str
    # none: to all routes
    route: str | None = None

    @property
    def minute(self) -> int:
        """Return the time in minutes since 1970."""
        return int(assume_utc(self.time).timestamp() // 60)


def load_marks(path: str | Path) -> tuple[MonitorMark, ...]:
    """Load marks from JSONL, one a line: `{"time": "2026-11-02T09:30:00Z", "text": "release 7"}`.

    A time without a zone is UTC. Raises InputError with the line where one is not a mark.
    """
    marks = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                mark = msgspec.json.decode(line, type=MonitorMark)
            except msgspec.MsgspecError as error:
                raise InputError(
                    f'{path}:{number} is not a mark ({error}). Write {{"time": "2026-11-02T09:30:00Z", "text": "…"}}.'
                ) from None
            marks.append(MonitorMark(time=assume_utc(mark.time), text=mark.text, route=mark.route))
    return tuple(marks)


# of which the rules of RAG health hold limits
HEALTH_METRICS = tuple(figure for _, _, figure, _ in HEALTH_ALERTS)

CORRELATED_PAIRS = tuple(combinations(("context_relevance", "groundedness", "answer_relevance", "completeness"), 2))
"""The pairs of metrics whose products are summed: the triad's parts and completeness."""

# maximum length of the reference
MAX_REFERENCE = 7 * DAY_MINUTES
# alert rules are replayed every five minutes, and at most this many times
MAX_REPLAY_STEPS, REPLAY_MINUTES = 2000, 5
# number of points of a line over time
LINE_POINTS = 96
# share of the traces whose times may be no times of this traffic
STRAY_SHARE = 0.01
# cohorts of chunks, which are shown as insights
CHUNK_COHORTS = ("position=", "chunks=")


class MonitorSettings(Settings, frozen=True, kw_only=True):
    """How traffic is monitored."""

    windows: tuple[int, ...] = declare(
        WINDOW_MINUTES, "Lengths of the rolling windows in minutes; lines over time have the first."
    )
    reference: int | None = declare(
        None, "Minutes from the beginning that are the reference.", PositiveInt, Flag(default="a third, up to 7d")
    )
    rate: float = declare(FALSE_ALARM_RATE, "Maximum false alarms per metric and route in a month.", OpenShare)
    margin: float = declare(MIN_DROP, "Smallest drop to detect, as a share of the metric's range.", ClosedShare)
    rules: tuple[AlertRule, ...] = declare(DEFAULT_RULES, "Alert rules.")
    seed: int = declare(0, "Seed of the resampling.", NaturalInt)


class RollingLine(Struct, frozen=True, kw_only=True):
    """Rolling mean of a metric on a route over time, with its 95 % interval."""

    metric: str
    route: str | None
    window: int
    # at which the windows end
    minutes: tuple[int, ...]
    # none: no value in the window
    means: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]


class DetectedDrop(Struct, frozen=True, kw_only=True):
    """Detected drop, with its size, its onset and the layer at fault."""

    reference: ReferencePeriod
    detection: DropDetection
    # end of the described time: the recovery, else the last minute
    until: int
    difference: Difference
    """Since the onset, against the reference. The onset was estimated from the same values, so that a small drop that
    was only just detected looks somewhat larger than it is."""
    # result of the decision tree on the reference and the time since the onset
    location: FaultLocation
    # worst traces since the onset
    traces: tuple[str, ...]
    explanation: str | None = None
    """Other shares of cohorts, or days that the reference lacks, which may explain it; then no layer is named."""


class MonitorReport(Struct, frozen=True, kw_only=True):
    """Live traffic over time; the data of every monitor report."""

    first: int
    # the minute after the last trace
    last: int
    # largest number of values of any metric
    traces: int
    options: MonitorSettings
    # for which traffic without a change the rate of false alarms holds, by the length of the reference
    promise: str
    # at the end, for each metric, route and window; then for each cohort
    rolling_means: tuple[RollingMean, ...]
    # lines of the watched metrics
    lines: tuple[RollingLine, ...]
    # in order of detection
    drops: tuple[DetectedDrop, ...]
    unwatched: tuple[tuple[str, str | None], ...]
    """Metrics and routes with too few values in the reference to be tested."""
    distributions: tuple[MetricDistribution, ...]
    correlations: tuple[MetricCorrelation, ...]
    insights: tuple[ChunkInsight, ...]
    # notifications that would have been sent, in order of time
    events: tuple[AlertTransition, ...]
    # the alerts as they stand at the end
    alert_state: AlertState
    marks: tuple[MonitorMark, ...] = ()
    drift: TrafficDrift | None = None
    # traces of the random sample that was monitored; 0: all were
    sample: int = 0
    # traces of the runs that the sample was drawn from
    population: int = 0
    # traces without a time, and languages and markup that the judge does not know
    warnings: tuple[str, ...] = ()
    # traces that are left out, since their times lie far from those of all others
    stray: int = 0

    @property
    def fired(self) -> tuple[AlertTransition, ...]:
        """Return the alerts that fired."""
        return tuple(event for event in self.events if event.kind == "firing")


def monitor(
    rollups: Iterable[Rollup],
    measures: Iterable[MetricInfo],
    *,
    products: Iterable[ProductSums] = (),
    marks: Iterable[MonitorMark] = (),
    drift: TrafficDrift | None = None,
    options: MonitorSettings | None = None,
) -> MonitorReport:
    """Monitor traffic from its roll-ups, as if minute by minute, up to the last.

    The report has rolling means over each window of `options`, drops detected by the sequential test with their onset
    and the layer at fault, and alerts by rule, replayed over time. Cohorts, distributions, correlations and insights
    are of the longest window.

    Raises UsageError where there are no roll-ups, or nothing is left to watch after the reference.

    >>> from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
    >>> seen = [Observation(metric="groundedness", trace=str(at), time=6.0 * at, value=0.9 if at < 6000 else 0.7)
    ...         for at in range(9000)]
    >>> report = monitor(roll_up(seen), [MetricInfo("groundedness", "generation")])
    >>> report.drops[0].detection.onset, round(report.drops[0].difference.mean, 2)
    (600, -0.2)
    """
    asked, known = options or MonitorSettings(), {measure.name: measure for measure in measures}
    all_ = build_series(rollups)
    if not all_:
        raise UsageError("there is nothing to monitor: no value has a time.")
    first, last, stray = _find_bounds(all_)
    all_ = {key: part for key, series in all_.items() if (part := series.between(first, last)).minutes.size}
    totals = {key: series for key, series in all_.items() if key[2] is None and key[0] in known}
    until = first + _reference_length(asked, last - first)
    references = _measure_references(totals, known, asked, (first, until))
    breaks, silent = _detect_drops(totals, known, asked, references, (first, last))
    breaks = tuple(_explain_drop(drop, all_) for drop in breaks)
    events, state = _replay_alerts(totals, known, asked, breaks, references, (first, last))
    wide = last - max(asked.windows)
    shown = [key for key in all_ if key[2] is None or not key[2].startswith((*CHUNK_COHORTS, "route="))]
    return MonitorReport(
        first=first,
        last=last,
        stray=stray,
        options=asked,
        promise=describe_promise(until - first),
        traces=max(series.value_count for series in totals.values()) if totals else 0,
        rolling_means=rolling_means(
            {key: all_[key] for key in sorted(shown, key=_series_order)}, known, last, asked.windows
        ),
        lines=tuple(
            _rolling_line(key, totals[key], known, asked.windows[0], (first, last)) for key in select_watched(totals)
        ),
        drops=breaks,
        unwatched=silent,
        distributions=tuple(_describe_distributions(totals, known, wide, last)),
        correlations=compute_correlations(products, wide, last),
        insights=window_insights(all_, wide, last),
        events=events,
        alert_state=state,
        marks=tuple(sorted(marks, key=lambda mark: mark.time)),
        drift=drift,
    )


def _find_bounds(series_by_key: Mapping[SeriesKey, MetricSeries]) -> tuple[int, int, int]:
    """Return between which minutes the traffic lies, and how many traces lie apart from it.

    Apart is less than a hundredth of the values across a pause that is longer than the time of all others, and a day: a
    clock that stands at 1970 would make the reference of years without traffic.
    """
    parts = [series for key, series in series_by_key.items() if key[2] is None]
    minutes, codes = np.unique(np.concatenate([part.minutes for part in parts]), return_inverse=True)
    n = np.bincount(codes, np.concatenate([part.n + part.unscored.sum(axis=1) for part in parts]))
    low, high, total = 0, len(minutes), max(1.0, float(n.sum()))
    while high - low > 1:
        gaps = np.diff(minutes[low:high])
        split = low + int(gaps.argmax()) + 1
        sides = (low, split), (split, high)
        few, most = sorted(sides, key=lambda side: float(n[slice(*side)].sum()))
        span = max(DAY_MINUTES, int(minutes[most[1] - 1] - minutes[most[0]]))
        if gaps.max() <= span or n[slice(*few)].sum() > STRAY_SHARE * total:
            break
        low, high = most
    first, last, stray = int(minutes[low]), int(minutes[high - 1]) + 1, Counter[str]()
    for (metric, _, cohort), series in series_by_key.items():
        if cohort is None:
            inside = series.between(first, last)
            stray[metric] += sum(
                int(part.n.sum() + part.unscored.sum()) * way for part, way in ((series, 1), (inside, -1))
            )
    return first, last, max(stray.values())


def select_watched(series_by_key: Mapping[SeriesKey, MetricSeries]) -> list[SeriesKey]:
    """Select the series to test for drops: one of each name of WATCHED_METRICS on each route, in that order."""
    chosen: dict[tuple[str, str | None], SeriesKey] = {}
    for key in sorted(series_by_key, key=_series_order):
        if key[2] is None and metric_name(key[0]) in WATCHED_METRICS and series_by_key[key].value_count:
            chosen.setdefault((metric_name(key[0]), key[1]), key)
    return list(chosen.values())


def select_referenced(series_by_key: Mapping[SeriesKey, MetricSeries]) -> list[SeriesKey]:
    """Select the series that need a reference: those to test for drops, and the figures of RAG health."""
    health = [key for key in series_by_key if key[2] is None and key[0] in HEALTH_METRICS]
    return list(dict.fromkeys([*select_watched(series_by_key), *sorted(health, key=_series_order)]))


def _series_order(key: SeriesKey) -> tuple[bool, str, int, str, str]:
    """Sort all traces before cohorts, route by route, in the order of the tree."""
    name = metric_name(key[0])
    return (
        key[2] is not None,
        key[1] or "",
        WATCHED_METRICS.index(name) if name in WATCHED_METRICS else len(WATCHED_METRICS),
        key[0],
        key[2] or "",
    )


def _reference_length(options: MonitorSettings, span: int) -> int:
    """Return the length of the reference in minutes."""
    length = min(MAX_REFERENCE, span // 3) if options.reference is None else options.reference
    if length >= span or length < 1:
        raise UsageError(
            f"a reference of {length:,} minutes leaves nothing to monitor: the traces span {span:,}. "
            "Name a shorter one with --reference."
        )
    return length


def _measure_references(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    options: MonitorSettings,
    times: tuple[int, int],
) -> dict[tuple[str, str | None], ReferencePeriod]:
    """Measure the references of the series that rules and the test need, where there are values enough."""
    references = {}
    for key in select_referenced(series_by_key):
        part = series_by_key[key].between(*times)
        period = measure_reference(key[:2], part, measures[key[0]], rate=options.rate, margin=options.margin)
        if period is not None:
            references[key[:2]] = period
    return references


def _detect_drops(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    options: MonitorSettings,
    references: Mapping[tuple[str, str | None], ReferencePeriod],
    times: tuple[int, int],
) -> tuple[tuple[DetectedDrop, ...], tuple[tuple[str, str | None], ...]]:
    """Detect every drop; return the drops and the series that could not be tested."""
    drops, silent = [], []
    for key in select_watched(series_by_key):
        period = references.get(key[:2])
        if period is None:
            silent.append(key[:2])
            continue
        for call in detect_drops(series_by_key[key].between(*times), period, rate=options.rate, seed=options.seed):
            drops.append(_describe_drop(series_by_key, measures, period, call, times[1]))
    # else in the order of the tree, and of the steps
    drops.sort(key=lambda drop: drop.detection.detected_at)
    return tuple(drops), tuple(silent)


def _describe_drop(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    period: ReferencePeriod,
    detection: DropDetection,
    last: int,
) -> DetectedDrop:
    """Describe a detection by its size and the layer at fault."""
    series = series_by_key[period.metric, period.route, None]
    before, after = (
        (period.first, min(period.last, detection.onset)),
        (detection.onset, detection.recovered_at or last),
    )
    part = series.between(*after)
    flat = period.remove_season(series)
    gap = window_difference(flat.between(*before), flat.between(*after), measures[period.metric])
    assert gap is not None
    return DetectedDrop(
        reference=period,
        detection=detection,
        until=after[1],
        difference=_widen_by_noise(gap, period, (flat.between(*before), flat.between(*after))),
        location=locate_fault(series_by_key, measures, period.route, before, after),
        traces=tuple(worst.trace for worst in part.worst_traces(5)),
    )


def _explain_drop(drop: DetectedDrop, series_by_key: Mapping[SeriesKey, MetricSeries]) -> DetectedDrop:
    """Return a drop without a layer at fault where other shares of the cohorts or missing days may explain it.

    What fails or takes longer names none either.
    """
    period, detection = drop.reference, drop.detection
    if metric_name(period.metric) in OPERATION_TITLES:
        return replace(drop, location=replace(drop.location, fault=None))
    before, after = (period.first, min(period.last, detection.onset)), (detection.onset, drop.until)
    explanation = drop.location.explanation
    if explanation is None:
        explanation = describe_unknown_days(series_by_key[period.metric, period.route, None], before, after)
    if explanation is None:
        explanation = describe_mix_shift(series_by_key, period.metric, period.route, before, after)
    if explanation is None:
        return drop
    return replace(drop, explanation=explanation, location=replace(drop.location, fault=None))


def _widen_by_noise(gap: Difference, period: ReferencePeriod, windows: Sequence[MetricSeries]) -> Difference:
    """Widen the interval of a difference to what the noise of the reference makes of means over such windows."""
    if period.noise is None:
        return gap
    sizes = [(int(part.minutes[-1] - part.minutes[0]) + 1, float(part.value_count)) for part in windows]
    reach = period.high - period.low
    error = reach * expected_error(period.noise, *sizes)
    half = normal_quantile(0.975) * error
    ends = max(-reach, min(gap.low, gap.mean - half)), min(reach, max(gap.high, gap.mean + half))
    return replace(gap, low=ends[0], high=ends[1], error=max(gap.error, error))


def _replay_alerts(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    options: MonitorSettings,
    drops: Sequence[DetectedDrop],
    references: Mapping[tuple[str, str | None], ReferencePeriod],
    times: tuple[int, int],
) -> tuple[tuple[AlertTransition, ...], AlertState]:
    """Replay the alert rules over the past; a rule is read only where it may be broken, or has an alert."""
    first, last = times
    every = max(REPLAY_MINUTES, (last - first) // MAX_REPLAY_STEPS)
    minutes = np.array([*range(first + every, last, every), last], dtype=np.int64)
    targets = match_rules(options.rules, series_by_key, measures)
    places = {target.alert_key: place for place, target in enumerate(targets)}
    dropped = {(drop.reference.metric, drop.reference.route) for drop in drops}
    possible = np.zeros((len(targets), len(minutes)), dtype=bool)
    for place, (rule, key) in enumerate(targets):
        possible[place] = (
            key[:2] in dropped
            if rule.drop_detected
            else find_possible_breaches(rule, series_by_key[key], measures[key[0]], references.get(key[:2]), minutes)
        )
    state, events = AlertState(), list[AlertTransition]()
    for step, minute in enumerate(minutes.tolist()):
        called = {
            (drop.reference.metric, drop.reference.route)
            for drop in drops
            if drop.detection.detected_at < minute <= (drop.detection.recovered_at or last)
        }
        context = RuleContext(called, references, state.fired)
        chosen = {*np.flatnonzero(possible[:, step]).tolist(), *(places[alert.key] for alert in state.alerts)}
        readings = [
            evaluate_target(targets[place], series_by_key[targets[place].key], measures, minute, context)
            for place in sorted(chosen)
        ]
        state, sent = advance_alerts(state, readings, 60.0 * minute)
        events += sent
    return tuple(events), state


def _rolling_line(
    key: SeriesKey, metric_series: MetricSeries, measures: Mapping[str, MetricInfo], window: int, times: tuple[int, int]
) -> RollingLine:
    ends = np.unique(np.linspace(times[0], times[1], LINE_POINTS + 1).round().astype(int)[1:]).tolist()
    intervals = [window_mean(metric_series.between(end - window, end), measures[key[0]]) for end in ends]
    return RollingLine(
        metric=key[0],
        route=key[1],
        window=window,
        minutes=tuple(ends),
        means=tuple(None if interval is None else interval.mean for interval in intervals),
        lows=tuple(None if interval is None else interval.low for interval in intervals),
        highs=tuple(None if interval is None else interval.high for interval in intervals),
    )


def _describe_distributions(
    series_by_key: Mapping[SeriesKey, MetricSeries], measures: Mapping[str, MetricInfo], first: int, last: int
) -> Iterator[MetricDistribution]:
    for key in select_watched(series_by_key):
        distribution = describe_distribution(key, series_by_key[key].between(first, last), measures[key[0]])
        if distribution is not None:
            yield distribution


def explain_by_query(report: MonitorReport, runs: Sequence[Run]) -> MonitorReport:
    """Name no layer for a drop that the query asked most since explains; for what is no metric of the runs, none is."""
    drops = [_explain_by_query(drop, runs) if drop.location.fault else drop for drop in report.drops]
    return replace(report, drops=tuple(drops))


def _explain_by_query(drop: DetectedDrop, runs: Sequence[Run]) -> DetectedDrop:
    period, onset = drop.reference, drop.detection.onset
    rows = [row for run in runs for row in _iterate_values(run, period.metric, period.route)]
    before = [(query, value) for minute, query, value in rows if period.first <= minute < min(period.last, onset)]
    since = [(query, value) for minute, query, value in rows if onset <= minute < drop.until]
    text = describe_query_change(before, since, drop.difference.mean)
    return drop if text is None else replace(drop, explanation=text, location=replace(drop.location, fault=None))


def _iterate_values(run: Run, metric: str, route: str | None) -> list[tuple[int, str, float]]:
    """Return minute, query and value of the timed traces of a route with a value; none where no score is of it."""
    if metric not in [measure.name for measure in run.manifest.metrics]:
        return []
    values = RunTable(run, metrics=[metric]).values[:, 0]
    columns = run.to_arrow("traces", ["time", "query", "route"])
    rows = zip(*(columns[name].to_pylist() for name in ("time", "query", "route")), values.tolist(), strict=True)
    return [
        (int(time.timestamp() // 60), query, value)
        for time, query, where, value in rows
        if time is not None and not math.isnan(value) and route in (None, where)
    ]
