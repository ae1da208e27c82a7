"""Views of live traffic that JSON API and dashboard share: overview, one metric, incidents, alerts and runs."""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from ragfault.apps.watch.monitoring.alert_rules import SEVERITIES
from ragfault.apps.watch.monitoring.alerts import Alert, AlertSilence
from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.monitoring.noise import describe_promise
from ragfault.apps.watch.monitoring.windows import (
    DAY_MINUTES,
    MetricDistribution,
    RollingMean,
    build_series,
    describe_distribution,
    rolling_means,
)
from ragfault.apps.watch.server.scoring.ppi_estimates import PpiEstimate
from ragfault.apps.watch.server.scoring.spot_checks import SpotCheckProgress
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import (
    AlertEvent,
    EventCount,
    StoredTrace,
    StoreTotals,
    TimelineMark,
    TraceSelection,
)
from ragfault.apps.watch.server.storage.run_transfer import export_run
from ragfault.diagnosis.steps.localization import localize_recorded_step
from ragfault.diagnosis.steps.records import FaultyStep
from ragfault.http.hosting import TimeRange, WindowView
from ragfault.io.runs.run import Manifest, MetricInfo
from ragfault.model.errors import UnknownName
from ragfault.model.records import GoldMode, Layer

# the windows of the overview in minutes
OVERVIEW_WINDOWS = (30, 90, DAY_MINUTES)
# lines of a page of a list
PAGE_LINES = 50
# trends of the overview: so many routes are shown as fit
MAX_TRENDS = 1500
# past incidents of the overview
RESOLVED_SHOWN = 3
# routes that are shown however many metrics there are
MIN_ROUTES = 3
# values of a route in a window, below which it is not called the worst
MIN_ROUTE_VALUES = 20
TRIAD_METRICS = ("context_relevance", "groundedness", "answer_relevance")
# segments of a window, whose means give the interval of the overall mean
WINDOW_SEGMENTS = 12
LONG_WINDOW = 2 * DAY_MINUTES
"""Minutes from which on a window consists of full hours, which are read from roll-ups by hour."""


class MetricTrend(Struct, frozen=True, kw_only=True):
    """Mean of one metric on one route over one window, with its change."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    route: str | None
    window: int
    """Minutes."""
    n: int
    undefined: int
    failed: int
    mean: float | None
    low: float | None
    high: float | None
    """Limits of the 95 % interval of the mean."""
    delta: float | None = None
    """Change against the previous window of the same length."""
    delta_low: float | None = None
    delta_high: float | None = None
    ppi: PpiEstimate | None = None
    """The mean estimated from spot checks, for a day or on the page of a metric; None without spot checks."""


class TrafficOverview(Struct, frozen=True, kw_only=True):
    """The overview: the store, the open incidents, and the trend of each metric on each route."""

    now: float
    totals: StoreTotals
    trends: tuple[MetricTrend, ...]
    """Ordered by metric, route and window; of the routes with the most traffic, and the worst by the triad."""
    routes: tuple[str, ...]
    incidents: tuple[Incident, ...]
    """Open incidents, the gravest first."""
    resolved: tuple[Incident, ...]
    """Incidents that were resolved within the last day, the latest opened first; at most three."""
    marks: tuple[TimelineMark, ...]
    """Marks of the last day."""
    counts: dict[str, int]
    """Counts of traces that were dropped, rejected, repeated … within the last day."""
    scoring: dict[str, float]
    """Traces per second, milliseconds per trace, and traces waiting."""
    judge: str
    span_timeout: float
    """Seconds that a trace of spans waits after its root at present."""
    latest_span: float
    """Seconds from the root of a trace to its last span, the longest of the latest traces."""
    checking: SpotCheckProgress | None = None
    """Progress of the spot checks; None without any."""


class TrendPoint(Struct, frozen=True, kw_only=True):
    """Mean of a metric on a route over one segment of time."""

    minute: int
    route: str | None
    n: int
    mean: float | None
    undefined: int
    failed: int
    squares: float | None = None
    """Sum of the squared values, for an interval of the mean."""


class MetricView(WindowView, frozen=True, kw_only=True):
    """Trend, distributions and worst traces of one metric."""

    measure: MetricInfo
    grain: int
    """Minutes per point."""
    points: tuple[TrendPoint, ...]
    distributions: tuple[MetricDistribution, ...]
    """By route."""
    trends: tuple[MetricTrend, ...]
    worst: tuple[tuple[str, float], ...]
    """Trace and value, the worst first."""
    marks: tuple[TimelineMark, ...]
    cohorts: tuple[MetricTrend, ...]
    """Trends by cohort; `route` holds the cohort ("release=7")."""


class AlertsView(Struct, frozen=True, kw_only=True):
    """Alerts, silences and their history."""

    now: float
    reference_minutes: int
    """Length of the reference of each metric and route, from its beginning."""
    promise: str
    """For which traffic without a change the rate of false alarms holds after such a reference."""
    alerts: tuple[Alert, ...]
    """Open and recently resolved alerts."""
    silences: tuple[AlertSilence, ...]
    events: tuple[AlertEvent, ...]
    """Latest first."""
    next: float | None = None
    """`until` of the next page of events; None on the last page."""


class IncidentTimes(Struct, frozen=True, kw_only=True):
    """Median times of the incidents of a page that are over and whose onset was estimated from the values."""

    incidents: int
    until_opened: float
    """Seconds from the onset until the incident opened."""
    until_resolved: float
    """Seconds from the onset until it was resolved."""


class IncidentsView(Struct, frozen=True, kw_only=True):
    """Open incidents, and a page of those that are over."""

    now: float
    open: tuple[Incident, ...]
    """The gravest first."""
    past: tuple[Incident, ...]
    """The latest opened first."""
    times: IncidentTimes | None = None
    """How soon those of this page were opened and resolved; None where no onset was estimated."""
    next: float | None = None
    """`until` of the next page of those; None on the last page."""


class RunEntry(Struct, frozen=True, kw_only=True):
    """A run in the folder of the store."""

    name: str
    manifest: Manifest


def load_overview(server: ServerState) -> TrafficOverview:
    """Load the overview."""
    now, store, until = server.now(), server.store, server.next_minute
    trends = server.get_cached(
        "moved",
        lambda: select_routes([trend for size in OVERVIEW_WINDOWS for trend in _compute_trends(server, until, size)]),
    )
    return TrafficOverview(
        now=now,
        totals=msgspec.structs.replace(store.compute_totals(), pending=server.trace_assembler.pending_bodies),
        trends=tuple(_add_ppi(server, trend) for trend in trends),
        routes=store.list_routes(),
        incidents=list_open_incidents(server),
        resolved=tuple(
            incident
            for incident in store.read_past_incidents(RESOLVED_SHOWN)
            if incident.resolved is not None and incident.resolved > now - DAY_MINUTES * 60
        ),
        marks=store.read_marks(now - DAY_MINUTES * 60),
        counts=_sum_counts(store.read_counts(until - DAY_MINUTES)),
        scoring=server.scoring_workers.summarize(),
        judge=server.settings.judge,
        span_timeout=server.trace_assembler.wait.seconds,
        latest_span=server.trace_assembler.wait.latest,
        checking=None if server.ppi_estimator is None else server.ppi_estimator.progress,
    )


def select_routes(trends: Sequence[MetricTrend]) -> list[MetricTrend]:
    """Select the trends of as many routes as fit: those with the most values, and the worst by the triad."""
    sizes: dict[str | None, int] = {}
    for trend in trends:
        sizes[trend.route] = max(sizes.get(trend.route, 0), trend.n)
    count = max(MIN_ROUTES, MAX_TRENDS // max(1, len({(trend.metric, trend.window) for trend in trends})))
    shown = set(sorted(sizes, key=lambda route: -sizes[route])[:count])
    for name in TRIAD_METRICS:
        means = [(trend.mean, trend.route) for trend in trends if trend.metric == name and trend.n >= MIN_ROUTE_VALUES]
        shown |= {min(means, key=lambda pair: pair[0] or 0.0)[1]} if means else set()
    return [trend for trend in trends if trend.route in shown]


def load_metric(server: ServerState, name: str, route: str | None, times: TimeRange) -> MetricView:
    """Load the trend of one metric over a range of time. Raises UnknownName for an unknown metric."""
    if name not in server.measures:
        raise UnknownName("metric", name, server.measures, hint="It is not kept by this server.")
    measure = server.measures[name]
    window, until, is_fixed = times
    now, store, grain = server.now(), server.store, choose_grain(window, 240)
    rollups = store.read_rollups(until - window, until, metric=name, route=route, grain=grain)
    better = (
        {} if server.ppi_estimator is None or is_fixed else server.ppi_estimator.estimate_window(name, window, route)
    )
    points = tuple(
        TrendPoint(
            minute=rollup.minute,
            route=rollup.route,
            n=rollup.n,
            mean=rollup.sum / rollup.n if rollup.n else None,
            undefined=rollup.undefined,
            failed=rollup.failed,
            squares=rollup.squares,
        )
        for rollup in rollups
    )
    distributions = (describe_distribution(key, part, measure) for key, part in build_series(rollups).items())
    trends = _compute_trends(server, until, window, metric=name, route=route)
    worst = server.get_cached(
        f"worst {name} {route!r} {window} {until if is_fixed else ''}",
        lambda: store.read_worst_traces(name, until - window, until, route=route, limit=20),
    )
    return MetricView(
        now=now,
        measure=measure,
        window=window,
        until=until,
        grain=grain,
        points=points,
        distributions=tuple(rollup for rollup in distributions if rollup is not None),
        trends=tuple(msgspec.structs.replace(trend, ppi=better.get(trend.route or "")) for trend in trends),
        worst=tuple((rollup.trace, rollup.value) for rollup in worst),
        marks=store.read_marks(60.0 * (until - window), 60.0 * until),
        cohorts=tuple(_compute_trends(server, until, window, metric=name, cohort="*")),
    )


def load_trace(server: ServerState, id: str) -> StoredTrace:
    """Load one trace. Raises UnknownName for an unknown id."""
    trace = server.store.get_trace(id)
    if trace is None:
        raise UnknownName("trace", id, (), hint="It may have been deleted, or never have arrived.")
    return trace


class TraceView(StoredTrace, frozen=True, kw_only=True):
    """One trace with all that is known of it, and its first faulty step."""

    faulty_step: FaultyStep | None = None
    """As the page of the trace says it; None: the trace records no step that could be judged."""


def load_trace_view(server: ServerState, id: str) -> TraceView:
    """Load one trace with its first faulty step. Raises UnknownName for an unknown id."""
    stored = load_trace(server, id)
    return TraceView(**msgspec.structs.asdict(stored), faulty_step=localize_recorded_step(stored.trace))


def list_open_incidents(server: ServerState) -> tuple[Incident, ...]:
    """List the open incidents, the gravest first; those that somebody acknowledged come last."""
    incidents = [incident for incident in server.load_incidents() if incident.resolved is None]
    return tuple(sorted(incidents, key=_incident_order))


def _incident_order(incident: Incident) -> tuple[bool, int, float]:
    return incident.acknowledged is not None, SEVERITIES.index(incident.severity), -incident.opened


def load_incidents(server: ServerState, until: float | None = None, limit: int = PAGE_LINES) -> IncidentsView:
    """Load the open incidents and a page of those that are over, opened before a time."""
    past = server.store.read_past_incidents(limit + 1, until)
    return IncidentsView(
        now=server.now(),
        open=list_open_incidents(server),
        past=past[:limit],
        times=_measure_times(past[:limit]),
        next=past[limit - 1].opened if len(past) > limit else None,
    )


def _measure_times(past: Sequence[Incident]) -> IncidentTimes | None:
    times = [
        (incident.opened - incident.onset, incident.resolved - incident.onset)
        for incident in past
        if incident.detected and incident.resolved is not None
    ]
    if not times:
        return None
    until_opened, until_resolved = map(median, zip(*times, strict=True))
    return IncidentTimes(incidents=len(times), until_opened=until_opened, until_resolved=until_resolved)


def load_alerts(server: ServerState, until: float | None = None, limit: int = 4 * PAGE_LINES) -> AlertsView:
    """Load the alerts and a page of their history, before a time."""
    state, reference = server.load_alert_state(), server.settings.reference_minutes
    events = server.store.read_events(limit=limit + 1, until=until)
    return AlertsView(
        now=server.now(),
        reference_minutes=reference,
        promise=describe_promise(reference),
        alerts=state.alerts,
        silences=state.silences,
        events=events[:limit],
        next=events[limit - 1].time if len(events) > limit else None,
    )


def list_runs(server: ServerState, after: str = "", limit: int | None = None) -> tuple[RunEntry, ...]:
    """List the readable runs in the folder of the store by name, at most `limit` from after a name on."""
    runs: list[RunEntry] = []
    for path in sorted(server.settings.runs_folder.glob("*/manifest.json")):
        if path.parent.name <= after:
            continue
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            continue
        runs.append(RunEntry(name=path.parent.name, manifest=manifest))
        if len(runs) == limit:
            break
    return tuple(runs)


def export_zip(server: ServerState, selection: TraceSelection, gold: GoldMode | None = None) -> bytes:
    """Export the judged traces of a selection as a run in a ZIP file, whose comment holds the notices, one a line.

    Raises what `export_run` raises.
    """
    notices: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        run = export_run(server.store, selection, Path(folder, "run"), gold=gold, notice=notices.append)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = "\n".join(notices).encode()
            for path in sorted(run.path.iterdir()):
                archive.write(path, path.name)
        return file.getvalue()


def _compute_trends(
    server: ServerState,
    until: int,
    window: int,
    metric: str | None = None,
    route: str | None = None,
    cohort: str | None = "",
) -> Sequence[MetricTrend]:
    """Compute the trends of metrics over a window that ends at a minute, against the window before."""
    grain = fit_grain(window)
    rollups = server.store.read_rollups(
        until - 2 * window, until, metric=metric, route=route, cohort=cohort, grain=grain, bins=False
    )
    measures = server.measures
    means = rolling_means(build_series(rollups), measures, until, [window])
    return [_build_trend(mean, measures[mean.metric]) for mean in means]


def fit_grain(window: int) -> int:
    """Return the longest segment that divides a window into WINDOW_SEGMENTS or more, of full hours in a long one.

    >>> fit_grain(90), fit_grain(1440), fit_grain(53 * 60)
    (6, 120, 60)
    """
    unit = 60 if window >= LONG_WINDOW and window % 60 == 0 else 1
    window //= unit
    return unit * next(size for size in range(max(1, window // WINDOW_SEGMENTS), 0, -1) if window % size == 0)


def choose_grain(window: int, points: int) -> int:
    """Return the minutes of each of about `points` segments of a window, full hours in a long one.

    >>> choose_grain(1440, 240), choose_grain(7 * 1440, 240), choose_grain(30 * 1440, 240)
    (6, 60, 180)
    """
    grain = max(1, window // points)
    return grain if window < LONG_WINDOW else align_end(grain, window)


def align_end(minute: int, window: int) -> int:
    """Return the end of a window: the next full hour where the window is long.

    >>> align_end(121, 60), align_end(121, 10_080)
    (121, 180)
    """
    return minute if window < LONG_WINDOW else -(-minute // 60) * 60


def _add_ppi(server: ServerState, trend: MetricTrend) -> MetricTrend:
    """Add the daily estimate from spot checks to a trend over a day."""
    if server.ppi_estimator is None or trend.window != DAY_MINUTES:
        return trend
    return msgspec.structs.replace(trend, ppi=server.ppi_estimator.get_daily(trend.metric, trend.route))


def _build_trend(rolling_mean: RollingMean, measure: MetricInfo) -> MetricTrend:
    mean, delta = rolling_mean.interval, rolling_mean.delta
    bounded = delta is not None and math.isfinite(delta.low) and math.isfinite(delta.high)
    return MetricTrend(
        metric=rolling_mean.metric,
        layer=measure.layer,
        better=measure.better,
        route=rolling_mean.cohort or rolling_mean.route,
        window=rolling_mean.window,
        n=0 if mean is None else mean.n,
        undefined=rolling_mean.undefined,
        failed=rolling_mean.failed,
        mean=None if mean is None else mean.mean,
        low=None if mean is None or not math.isfinite(mean.low) else mean.low,
        high=None if mean is None or not math.isfinite(mean.high) else mean.high,
        delta=None if delta is None else delta.mean,
        delta_low=delta.low if delta is not None and bounded else None,
        delta_high=delta.high if delta is not None and bounded else None,
    )


def _sum_counts(counts: Sequence[EventCount]) -> dict[str, int]:
    """Sum the counts by name over all minutes."""
    totals: dict[str, int] = {}
    for name, _, n in counts:
        totals[name] = totals.get(name, 0) + n
    return totals
