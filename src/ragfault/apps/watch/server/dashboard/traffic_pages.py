"""Pages of live traffic: overview by layer, one metric, insights, drift, and the comparison of two windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends, Request
from msgspec import Struct
from starlette.responses import Response

from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, RollingMean
from ragfault.apps.watch.server.api import detail_views, traffic_views
from ragfault.apps.watch.server.api.insight_views import (
    INSIGHT_MINUTES,
    MAX_QUERIES,
    InsightsView,
    load_drift,
    load_insights,
    load_versions,
)
from ragfault.apps.watch.server.api.traffic_views import MetricTrend, TrendPoint
from ragfault.apps.watch.server.dashboard import charts
from ragfault.apps.watch.server.dashboard.page_renderer import render_page
from ragfault.apps.watch.server.json_routes import get_server
from ragfault.apps.watch.server.state import ServerState
from ragfault.http.hosting import parse_route
from ragfault.http.page_routes import PageRoute
from ragfault.http.security import require_role
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Layer
from ragfault.report.charts.forest_plot import draw_forest_plot
from ragfault.report.charts.svg import draw_bins, draw_whisker
from ragfault.report.format import LAYER_QUESTIONS

LAYER_METRICS: dict[Layer, tuple[str, ...]] = {
    "retrieval": ("context_relevance", "chunk_attribution", "chunk_utilization"),
    "generation": ("groundedness", "answer_relevance", "completeness"),
    "crosscut": ("triad",),
    "operation": ("latency",),
}
"""Metrics that represent each layer on the overview."""


MAX_SHOWN_INCIDENTS = 5
"""Incidents that a page shows as cards."""


class LayerMean(Struct, frozen=True, kw_only=True):
    """Mean over all routes and its change."""

    mean: float
    low: float | None
    high: float | None
    n: int
    delta: float | None = None
    delta_low: float | None = None
    delta_high: float | None = None


def pool_metrics(trends: Iterable[MetricTrend], metrics: Sequence[str], window: int) -> LayerMean | None:
    """Pool the means of some metrics over all routes in a window; None without a value.

    Routes are weighted by their values and taken as independent; metrics weigh the same and are taken as perfectly
    correlated, so that the interval is conservative.
    """
    selected = [part for part in trends if part.window == window and part.mean is not None and part.n]
    parts = [_pool_routes([part for part in selected if part.metric == name]) for name in metrics]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return LayerMean(
        mean=_average_known([part.mean for part in known]) or 0.0,
        low=_average_known([part.low for part in known]),
        high=_average_known([part.high for part in known]),
        n=max(part.n for part in known),
        delta=_average_known([part.delta for part in known]),
        delta_low=_average_known([part.delta_low for part in known]),
        delta_high=_average_known([part.delta_high for part in known]),
    )


class RouteMean(NamedTuple):
    """Mean of a layer on one route in a window."""

    route: str | None
    window: int
    mean: LayerMean


def find_worst_route(trends: Sequence[MetricTrend], metrics: Sequence[str], lower_is_better: bool) -> RouteMean | None:
    """Find the route on which some metrics are worst, in the shortest window with enough values; None for one route."""
    for window in sorted({trend.window for trend in trends}):
        there = [
            trend for trend in trends if trend.window == window and trend.metric in metrics and trend.mean is not None
        ]
        pooled = [
            RouteMean(route, window, mean)
            for route in dict.fromkeys(trend.route for trend in there)
            if (mean := pool_metrics([trend for trend in there if trend.route == route], metrics, window)) is not None
            and mean.n >= traffic_views.MIN_ROUTE_VALUES
        ]
        if len(pooled) > 1:
            return (max if lower_is_better else min)(pooled, key=lambda route: route.mean.mean)
    return None


def _pool_routes(trends: Sequence[MetricTrend]) -> LayerMean | None:
    """Pool one metric over its routes."""
    if not trends:
        return None
    n = sum(trend.n for trend in trends)
    share = [trend.n / n for trend in trends]
    mean = sum(part * (trend.mean or 0.0) for part, trend in zip(share, trends, strict=True))
    low, high = _pool_intervals(mean, share, [(trend.mean, trend.low, trend.high) for trend in trends])
    there = [trend for trend in trends if trend.delta is not None]
    size = sum(trend.n for trend in there)
    parts = [trend.n / size for trend in there]
    delta = sum(part * (trend.delta or 0.0) for part, trend in zip(parts, there, strict=True)) if there else None
    ends = _pool_intervals(delta or 0.0, parts, [(trend.delta, trend.delta_low, trend.delta_high) for trend in there])
    known = delta is not None
    return LayerMean(
        mean=mean,
        low=low,
        high=high,
        n=n,
        delta=delta,
        delta_low=ends[0] if known else None,
        delta_high=ends[1] if known else None,
    )


def _pool_intervals(
    mean: float, weights: Sequence[float], parts: Sequence[tuple[float | None, float | None, float | None]]
) -> tuple[float | None, float | None]:
    """Return the interval of a weighted mean of independent parts; None where that of a part is unknown."""
    if any(low is None or high is None for _, low, high in parts):
        return None, None
    down = math.sqrt(sum((w * ((m or 0) - (low or 0))) ** 2 for w, (m, low, _) in zip(weights, parts, strict=True)))
    up = math.sqrt(sum((w * ((high or 0) - (m or 0))) ** 2 for w, (m, _, high) in zip(weights, parts, strict=True)))
    return mean - down, mean + up


def _average_known(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


MAX_CHANGES = 8
"""Most changes that the overview lists."""


def select_changes(trends: Iterable[MetricTrend]) -> list[MetricTrend]:
    """Select significant changes: intervals without zero, deteriorations first, the most certain first."""

    def sure(trend: MetricTrend) -> float:
        half = ((trend.delta_high or 0.0) - (trend.delta_low or 0.0)) / 2
        return abs(trend.delta or 0.0) / half if half else math.inf

    certain = [
        trend
        for trend in trends
        if trend.delta_low is not None
        and trend.delta_high is not None
        and (trend.delta_low > 0 or trend.delta_high < 0)
    ]

    def is_better(trend: MetricTrend) -> bool:
        return ((trend.delta or 0.0) < 0) != (trend.better == "higher")

    return sorted(certain, key=lambda trend: (is_better(trend), -sure(trend), trend.metric))[:MAX_CHANGES]


traffic_router = APIRouter(route_class=PageRoute, dependencies=[Depends(require_role("read"))], include_in_schema=False)


@traffic_router.get("/")
def show_overview(request: Request) -> Response:
    """Show the state of each layer."""
    server = get_server(request)
    view = traffic_views.load_overview(server)
    shown = [_build_layer(server, view, layer) for layer in LAYER_QUESTIONS]
    return render_page(
        request,
        "overview",
        refresh_seconds=10,
        view=view,
        shown_incidents=MAX_SHOWN_INCIDENTS,
        costs={name for name, measure in server.measures.items() if measure.better == "lower"},
        layers=shown,
        certain_changes=select_changes(view.trends),
        windows=traffic_views.OVERVIEW_WINDOWS,
        url=str(request.base_url).rstrip("/") + server.settings.root_path,
    )


def _build_layer(server: ServerState, view: traffic_views.TrafficOverview, layer: Layer) -> dict[str, Any]:
    """Build one layer of the overview: its state, its leading metrics and the others."""
    leading = LAYER_METRICS[layer]
    rows = _group_by_metric([trend for trend in view.trends if trend.layer == layer and trend.mean is not None])
    title, question = LAYER_QUESTIONS[layer]
    return {
        "name": layer,
        "title": title,
        "question": question,
        "parts": leading,
        "worst": find_worst_route(view.trends, leading, layer == "operation"),
        "windows": [(window, pool_metrics(view.trends, leading, window)) for window in traffic_views.OVERVIEW_WINDOWS],
        "spark": server.get_cached(f"spark {leading[0]}", lambda: _draw_metric_sparkline(server, leading[0]), 30.0),
        "leading": [(key, row) for key, row in rows.items() if key[0] in leading],
        "others": [(key, row) for key, row in rows.items() if key[0] not in leading],
    }


def _group_by_metric(
    trends: list[traffic_views.MetricTrend],
) -> dict[tuple[str, str | None], dict[int, traffic_views.MetricTrend]]:
    """Group the windows of each metric and route."""
    groups: dict[tuple[str, str | None], dict[int, traffic_views.MetricTrend]] = {}
    for trend in trends:
        groups.setdefault((trend.metric, trend.route), {})[trend.window] = trend
    return dict(sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or "")))


def _draw_row_whisker(row: traffic_views.MetricTrend, measures: dict[str, Any]) -> Any:
    measure = measures.get(row.metric)
    if measure is None or measure.low is None or measure.high is None or row.mean is None:
        return None
    return draw_whisker(row.mean, row.low, row.high, (measure.low, measure.high))


def _draw_metric_sparkline(server: ServerState, metric: str) -> Any:
    """Draw the last day of a metric over all routes in segments of half an hour."""
    until = math.floor(server.now() / 1800) * 30 + 30
    sums: dict[int, tuple[float, int]] = {}
    for rollup in server.store.read_rollups(until - DAY_MINUTES, until, metric=metric, grain=30, bins=False):
        total, n = sums.get(rollup.minute, (0.0, 0))
        sums[rollup.minute] = (total + rollup.sum, n + rollup.n)
    values = [sums.get(minute, (0.0, 0)) for minute in range(until - DAY_MINUTES, until, 30)]
    measure = server.measures.get(metric)
    ends = (None, None) if measure is None else (measure.low, measure.high)
    return charts.draw_sparkline([total / count if count else None for total, count in values], *ends)


@traffic_router.get("/metrics/{name:path}")
def show_metric(request: Request, name: str) -> Response:
    """Show the trend of one metric."""
    server, query = get_server(request), request.query_params
    times = detail_views.parse_range(server, query)
    route = query.get("route") or None
    view = traffic_views.load_metric(server, name, parse_route(route), times)
    window, until = view.window, view.until
    grain, lines = charts.coarsen_lines(charts.group_by_route(view.points), view.grain)
    return render_page(
        request,
        "metric",
        refresh_seconds=None if times.is_fixed else 10,
        view=view,
        times=times,
        title=LAYER_QUESTIONS[view.measure.layer][0],
        route=route,
        routes=server.store.list_routes(),
        chart=charts.draw_trend(lines, view.measure, view.marks, (until - window, until)),
        lines=list(lines),
        grain=grain,
        max_lines=charts.MAX_LINES,
        histogram=draw_bins,
        whisker=lambda row: _draw_row_whisker(row, {view.measure.name: view.measure}),
        until=until,
    )


@traffic_router.get("/insights")
def show_insights(request: Request) -> Response:
    """Show the triad over time, distributions, correlations and cohorts."""
    server, query = get_server(request), request.query_params
    times = detail_views.parse_range(server, query, INSIGHT_MINUTES)
    route = query.get("route") or None
    view = load_insights(server, parse_route(route), times)
    measures = server.measures
    grain, courses = _draw_triad(view, measures, (view.until - view.window, view.until))
    return render_page(
        request,
        "insights",
        refresh_seconds=None if times.is_fixed else 30,
        view=view,
        times=times,
        route=route,
        routes=server.store.list_routes(),
        trend_panels=courses,
        grain=grain,
        measures=measures,
        cohorts=_group_cohorts(view.cohorts),
        histogram=draw_bins,
        whisker=draw_whisker,
    )


def _draw_triad(
    view: InsightsView, measures: dict[str, MetricInfo], times: tuple[int, int]
) -> tuple[int, list[dict[str, Any]]]:
    """Draw the triad for each route; return minutes per point and the charts."""
    grain, points = charts.coarsen_lines({str(i): trend.points for i, trend in enumerate(view.triad)}, view.grain)
    minutes = [point.minute for line in points.values() for point in line if point.mean is not None]
    # one axis for all routes
    times = (max(times[0], min(minutes, default=times[0]) - grain), times[1])
    lines_by_route: dict[str | None, dict[str, list[TrendPoint]]] = {}
    for trend, line in zip(view.triad, points.values(), strict=True):
        lines_by_route.setdefault(trend.route, {})[trend.metric] = line
    return grain, [
        {
            "route": route,
            "metrics": list(lines),
            "drawing": charts.draw_trend(
                lines,
                measures[next(iter(lines))],
                view.marks,
                times,
                f"the triad on {route or 'no route'}",
                from_first=False,
            ),
        }
        for route, lines in lines_by_route.items()
    ]


def _group_cohorts(cohorts: Iterable[RollingMean]) -> dict[str, dict[str, dict[str, RollingMean]]]:
    """Group cohorts by field, value and metric."""
    groups: dict[str, dict[str, dict[str, RollingMean]]] = {}
    for cohort in cohorts:
        field, _, value = (cohort.cohort or "").partition("=")
        groups.setdefault(field, {}).setdefault(value, {})[cohort.metric] = cohort
    return dict(sorted(groups.items()))


@traffic_router.get("/versions")
def show_versions(request: Request) -> Response:
    """Show the versions of a window side by side."""
    server, query = get_server(request), request.query_params
    times = detail_views.parse_range(server, query, INSIGHT_MINUTES)
    view = load_versions(server, query.get("field", ""), times)
    return render_page(
        request,
        "versions",
        refresh_seconds=None if times.is_fixed else 30,
        view=view,
        times=times,
        layers=[
            (LAYER_QUESTIONS[layer][0], [row for row in view.rows if row.layer == layer]) for layer in LAYER_QUESTIONS
        ],
    )


@traffic_router.get("/drift")
def show_drift(request: Request) -> Response:
    """Show the drift of live traffic from a run."""
    server, query = get_server(request), request.query_params
    times = detail_views.parse_range(server, query)
    run, route = query.get("run"), query.get("route") or None
    drift = load_drift(server, run, parse_route(route), times) if run else None
    return render_page(
        request,
        "drift",
        without_json=drift is None,
        drift_view=drift,
        runs=[line.name for line in traffic_views.list_runs(server)],
        folder=str(server.settings.runs_folder),
        latest=MAX_QUERIES,
        times=times,
        route=route,
        routes=server.store.list_routes(),
        measures=server.measures,
        whisker=draw_whisker,
    )


@traffic_router.get("/compare")
def show_comparison(request: Request) -> Response:
    """Show the comparison of two windows of a route."""
    server, query = get_server(request), request.query_params
    comparison = (
        detail_views.compare_requested_windows(
            server, [query.get(name, "") for name in ("since", "until", "since2", "until2")], query.get("route")
        )
        if query.get("since")
        else None
    )
    return render_page(
        request,
        "compare",
        without_json=comparison is None,
        comparison=comparison,
        query_params=query,
        routes=server.store.list_routes(),
        now=server.next_minute,
        forest=draw_forest_plot(comparison.blame.changes) if comparison else None,
    )
