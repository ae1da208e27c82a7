"""Views of live traffic: overview, one metric, traces, alerts and runs, as records that JSON API and dashboard share."""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ragfault.analysis.monitoring.alerts import Alert, AlertSilence
from ragfault.analysis.monitoring.windows import (
    DAY_MINUTES,
    MetricDistribution,
    RollingMean,
    build_series,
    describe_distribution,
    rolling_means,
)
from ragfault.errors import UnknownName
from ragfault.io.runs import Manifest, MetricInfo
from ragfault.records import Layer
from ragfault.server.scoring.ppi_estimates import PpiEstimate
from ragfault.server.scoring.spot_checks import SpotCheckProgress
from ragfault.server.state import ServerState
from ragfault.server.storage import (
    AlertEvent,
    EventCount,
    StoredTrace,
    StoreTotals,
    TimelineMark,
    TracePage,
    TraceSelection,
    export_run,
)

OVERVIEW_WINDOWS = (30, 90, DAY_MINUTES)
"""The windows of the overview, in minutes."""
WINDOW_SEGMENTS = 12
"""Into how many stretches a window is cut: the means of each say how far the mean of all can be trusted."""


class MetricTrend(Struct, frozen=True, kw_only=True):
    """One metric on one route over one window."""

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
    """The 95 % interval of the mean."""
    delta: float | None = None
    """Against the window of the same length before."""
    delta_low: float | None = None
    delta_high: float | None = None
    ppi: PpiEstimate | None = None
    """The mean by a better judge on a sample; of whole routes over a day, and on the page of a metric; None: no such
    judge is asked."""


class TrafficOverview(Struct, frozen=True, kw_only=True):
    """The first page: what is stored, how each metric stands on each route, which alerts burn."""

    now: float
    totals: StoreTotals
    trends: tuple[MetricTrend, ...]
    """Ordered by metric, route and window."""
    routes: tuple[str, ...]
    alerts: tuple[Alert, ...]
    """Those that are not over."""
    marks: tuple[TimelineMark, ...]
    """Of the last day."""
    counts: dict[str, int]
    """What was dropped, rejected, repeated … within the last day."""
    scoring: dict[str, float]
    """Traces a second, milliseconds a trace, how many wait."""
    judge: str
    checking: SpotCheckProgress | None = None
    """How the better judge fares on its sample; None: none is asked."""


class TrendPoint(Struct, frozen=True, kw_only=True):
    """A metric on a route over one stretch of minutes."""

    minute: int
    route: str | None
    n: int
    mean: float | None
    undefined: int
    failed: int


class MetricView(Struct, frozen=True, kw_only=True):
    """The page of one metric: its course, how its values lie, and its worst traces."""

    now: float
    measure: MetricInfo
    window: int
    grain: int
    """Minutes to a point."""
    points: tuple[TrendPoint, ...]
    distributions: tuple[MetricDistribution, ...]
    """By route."""
    trends: tuple[MetricTrend, ...]
    worst: tuple[tuple[str, float], ...]
    """Trace and value, the worst first."""
    marks: tuple[TimelineMark, ...]
    cohorts: tuple[MetricTrend, ...]
    """The same by cohort; `route` holds the cohort ("release=7")."""


class AlertsView(Struct, frozen=True, kw_only=True):
    """The page of alerts: their states, and what happened."""

    now: float
    alarms: tuple[Alert, ...]
    """Those that are not over, and those that resolved a while ago."""
    silences: tuple[AlertSilence, ...]
    events: tuple[AlertEvent, ...]
    """What happened, the latest first."""


class RunEntry(Struct, frozen=True, kw_only=True):
    """A run that lies in the folder of the store."""

    name: str
    manifest: Manifest


# --- the pages -------------------------------------------------------------------------------------


def load_overview(server: ServerState) -> TrafficOverview:
    """How everything stands now."""
    now, store = server.now(), server.store
    until = math.floor(now / 60) + 1
    return TrafficOverview(
        now=now,
        totals=store.compute_totals(),
        trends=tuple(
            _add_ppi(server, m)
            for m in server.get_cached(
                "moved",
                lambda: [m for size in OVERVIEW_WINDOWS for m in _compute_trends(server, until, size)],
            )
        ),
        routes=store.list_routes(),
        alerts=tuple(alarm for alarm in server.load_alert_state().alerts if alarm.status != "resolved"),
        marks=store.read_marks(now - DAY_MINUTES * 60),
        counts=_sum_counts(store.read_counts(until - DAY_MINUTES)),
        scoring=server.summarize_scoring(),
        judge=server.settings.judge,
        checking=None if server.ppi_estimator is None else server.ppi_estimator.progress,
    )


def load_metric(
    server: ServerState, name: str, route: str | None = None, window: int = DAY_MINUTES
) -> MetricView:
    """How one metric went over a window of minutes. Raises UnknownName for one that is not kept."""
    measure = _get_measure(server, name)
    now = server.now()
    until = math.floor(now / 60) + 1
    grain = max(1, window // 240)
    store = server.store
    found = store.read_rollups(until - window, until, metric=name, route=route, grain=grain)
    better = {} if server.ppi_estimator is None else server.ppi_estimator.estimate_window(name, window, route)
    points = tuple(
        TrendPoint(
            minute=each.minute,
            route=each.route,
            n=each.n,
            mean=each.sum / each.n if each.n else None,
            undefined=each.undefined,
            failed=each.failed,
        )
        for each in found
    )
    shapes = (describe_distribution(key, part, measure) for key, part in build_series(found).items())
    worst = store.read_worst_traces(name, until - window, until, route=route, limit=20)
    return MetricView(
        now=now,
        measure=measure,
        window=window,
        grain=grain,
        points=points,
        distributions=tuple(each for each in shapes if each is not None),
        trends=tuple(
            msgspec.structs.replace(each, ppi=better.get(each.route or ""))
            for each in _compute_trends(server, until, window, metric=name, route=route)
        ),
        worst=tuple((each.trace, each.value) for each in worst),
        marks=store.read_marks(now - window * 60),
        cohorts=tuple(_compute_trends(server, until, window, metric=name, cohort="*")),
    )


def list_traces(server: ServerState, selection: TraceSelection) -> TracePage:
    """A page of traces."""
    return server.store.list_traces(selection)


def load_trace(server: ServerState, id: str) -> StoredTrace:
    """One trace. Raises UnknownName where there is none."""
    found = server.store.get_trace(id)
    if found is None:
        raise UnknownName("trace", id, (), hint="It may have been forgotten, or never have come.")
    return found


def load_alerts(server: ServerState) -> AlertsView:
    """The states of all alerts, and what happened to them."""
    state = server.load_alert_state()
    return AlertsView(
        now=server.now(), alarms=state.alerts, silences=state.silences, events=server.store.read_events()
    )


def list_runs(server: ServerState) -> tuple[RunEntry, ...]:
    """The runs in the folder of the store, by name."""
    found = []
    for place in sorted(server.settings.runs_folder.glob("*/manifest.json")):
        try:
            made = msgspec.json.decode(place.read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            continue
        found.append(RunEntry(name=place.parent.name, manifest=made))
    return tuple(found)


def export_zip(server: ServerState, selection: TraceSelection) -> bytes:
    """The judged traces of a selection as a run, in a ZIP file. Raises what `export` raises."""
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        run = export_run(server.store, selection, Path(folder, "run"))
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted(run.path.iterdir()):
                archive.write(path, path.name)
        return file.getvalue()


# --- their parts -----------------------------------------------------------------------------------


def _get_measure(server: ServerState, name: str) -> MetricInfo:
    known = {measure.name: measure for measure in server.store.read_measures()}
    if name not in known:
        raise UnknownName("metric", name, known, hint="It is not kept by this server.")
    return known[name]


def _compute_trends(
    server: ServerState,
    until: int,
    window: int,
    metric: str | None = None,
    route: str | None = None,
    cohort: str | None = "",
) -> Sequence[MetricTrend]:
    """How metrics stand over a window that ends at a minute, against the window before."""
    grain = next(size for size in range(max(1, window // WINDOW_SEGMENTS), 0, -1) if window % size == 0)
    found = server.store.read_rollups(
        until - 2 * window, until, metric=metric, route=route, cohort=cohort, grain=grain, bins=False
    )
    measures = {measure.name: measure for measure in server.store.read_measures()}
    return [
        _build_trend(each, measures[each.metric])
        for each in rolling_means(build_series(found), measures, until, [window])
    ]


def _add_ppi(server: ServerState, trend: MetricTrend) -> MetricTrend:
    """The same with the estimate of the last day, where it is over a day and there is one."""
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
    """The counts by name, over all minutes."""
    found: dict[str, int] = {}
    for name, _, n in counts:
        found[name] = found.get(name, 0) + n
    return found
