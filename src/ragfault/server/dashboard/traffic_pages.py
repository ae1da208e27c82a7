"""Pages of live traffic: overview by layer, one metric, insights, drift, and the comparison of two windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Depends, Request
from msgspec import Struct
from starlette.responses import Response

from ragfault.analysis.monitoring.windows import DAY_MINUTES, RollingMean
from ragfault.analysis.scorecard import HEALTH_PARTS
from ragfault.errors import UsageError
from ragfault.io.runs import MetricInfo
from ragfault.records import Layer
from ragfault.reports.charts import draw_forest_plot
from ragfault.reports.html.elements import LAYER_QUESTIONS
from ragfault.server.api import detail_views as seen
from ragfault.server.api import traffic_views
from ragfault.server.api.insight_views import MAX_QUERIES, InsightsView, load_drift, load_insights
from ragfault.server.api.json_api import compare_requested_windows
from ragfault.server.api.traffic_views import MetricTrend, TrendPoint
from ragfault.server.dashboard import charts as drawing
from ragfault.server.dashboard.page_renderer import PageRoute, get_server, render_page
from ragfault.server.security import require_role
from ragfault.server.state import ServerState

LAYER_METRICS: dict[Layer, tuple[str, ...]] = {
    **{layer: parts for _, layer, parts in HEALTH_PARTS},
    "crosscut": ("triad",),
    "operation": ("latency",),
}
"""What stands for each layer on the first page; the first two have a health made of them."""


class LayerMean(Struct, frozen=True, kw_only=True):
    """A mean over all routes, and how it moved."""

    mean: float
    low: float | None
    high: float | None
    n: int
    delta: float | None = None
    delta_low: float | None = None
    delta_high: float | None = None


def pool_metrics(trends: Iterable[MetricTrend], metrics: Sequence[str], window: int) -> LayerMean | None:
    """The mean of some metrics' means over all routes in a window; None where no one has a value.

    Routes count by their values and are taken as independent; the metrics count alike and are taken as moving
    together, so that the interval is, if anything, too wide.
    """
    found = [each for each in trends if each.window == window and each.mean is not None and each.n]
    parts = [_pool_routes([each for each in found if each.metric == name]) for name in metrics]
    known = [each for each in parts if each is not None]
    if not known:
        return None
    return LayerMean(
        mean=_average_known([each.mean for each in known]) or 0.0,
        low=_average_known([each.low for each in known]),
        high=_average_known([each.high for each in known]),
        n=max(each.n for each in known),
        delta=_average_known([each.delta for each in known]),
        delta_low=_average_known([each.delta_low for each in known]),
        delta_high=_average_known([each.delta_high for each in known]),
    )


def _pool_routes(trends: Sequence[MetricTrend]) -> LayerMean | None:
    """One metric over its routes."""
    if not trends:
        return None
    n = sum(each.n for each in trends)
    share = [each.n / n for each in trends]
    mean = sum(part * (each.mean or 0.0) for part, each in zip(share, trends, strict=True))
    low, high = _pool_intervals(mean, share, [(each.mean, each.low, each.high) for each in trends])
    there = [each for each in trends if each.delta is not None]
    size = sum(each.n for each in there)
    parts = [each.n / size for each in there]
    delta = (
        sum(part * (each.delta or 0.0) for part, each in zip(parts, there, strict=True)) if there else None
    )
    ends = _pool_intervals(
        delta or 0.0, parts, [(each.delta, each.delta_low, each.delta_high) for each in there]
    )
    known = delta is not None
    return LayerMean(
        mean=mean, low=low, high=high, n=n, delta=delta,
        delta_low=ends[0] if known else None, delta_high=ends[1] if known else None,
    )  # fmt: skip


def _pool_intervals(
    mean: float, weights: Sequence[float], parts: Sequence[tuple[float | None, float | None, float | None]]
) -> tuple[float | None, float | None]:
    """The ends of the interval of a weighted mean of independent parts; unknown where that of a part is."""
    if any(low is None or high is None for _, low, high in parts):
        return None, None
    down = math.sqrt(
        sum((w * ((m or 0) - (low or 0))) ** 2 for w, (m, low, _) in zip(weights, parts, strict=True))
    )
    up = math.sqrt(
        sum((w * ((high or 0) - (m or 0))) ** 2 for w, (m, _, high) in zip(weights, parts, strict=True))
    )
    return mean - down, mean + up


def _average_known(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def select_changes(trends: Iterable[MetricTrend], limit: int = 8) -> list[MetricTrend]:
    """What certainly moved: differences whose interval leaves out zero, for the worse first, the surest first."""

    def sure(each: MetricTrend) -> float:
        half = ((each.delta_high or 0.0) - (each.delta_low or 0.0)) / 2
        return abs(each.delta or 0.0) / half if half else math.inf

    found = [
        each
        for each in trends
        if each.delta_low is not None
        and each.delta_high is not None
        and (each.delta_low > 0 or each.delta_high < 0)
    ]
    return sorted(found, key=lambda each: (not _is_worse(each), -sure(each), each.metric))[:limit]


def _is_worse(trend: MetricTrend) -> bool:
    return ((trend.delta or 0.0) < 0) == (trend.better == "higher")


METRIC_WINDOWS = (60, 6 * 60, DAY_MINUTES, 7 * DAY_MINUTES, 30 * DAY_MINUTES)
"""The windows that the page of a metric offers, in minutes."""

traffic_router = APIRouter(
    route_class=PageRoute, dependencies=[Depends(require_role("read"))], include_in_schema=False
)


@traffic_router.get("/")
def show_overview(request: Request) -> Response:
    """How each layer stands."""
    desk = get_server(request)
    view = traffic_views.load_overview(desk)
    shown = [_build_layer(desk, view, layer) for layer in LAYER_QUESTIONS]
    return render_page(
        request,
        "overview",
        refresh_seconds=10,
        view=view,
        alerts=seen.sort_alerts(view.alerts),
        layers=shown,
        certain_changes=select_changes(view.trends),
        last_messages=seen.collect_messages(desk.store.read_events()),
        windows=traffic_views.OVERVIEW_WINDOWS,
        url=str(request.base_url).rstrip("/"),
    )


def _build_layer(server: ServerState, view: traffic_views.TrafficOverview, layer: Layer) -> dict[str, Any]:
    """One layer of the first page: how it stands, and the metrics that lead it before the others."""
    leading = LAYER_METRICS[layer]
    rows = _group_by_metric([each for each in view.trends if each.layer == layer and each.mean is not None])
    title, question = LAYER_QUESTIONS[layer]
    return {
        "name": layer,
        "title": title,
        "question": question,
        "parts": leading,
        "windows": [
            (window, pool_metrics(view.trends, leading, window)) for window in traffic_views.OVERVIEW_WINDOWS
        ],
        "spark": server.get_cached(
            f"spark {leading[0]}", lambda: _draw_metric_sparkline(server, leading[0]), 30.0
        ),
        "leading": [(key, row) for key, row in rows.items() if key[0] in leading],
        "others": [(key, row) for key, row in rows.items() if key[0] not in leading],
    }


def _group_by_metric(
    trends: list[traffic_views.MetricTrend],
) -> dict[tuple[str, str | None], dict[int, traffic_views.MetricTrend]]:
    """The windows of each metric and route."""
    found: dict[tuple[str, str | None], dict[int, traffic_views.MetricTrend]] = {}
    for each in trends:
        found.setdefault((each.metric, each.route), {})[each.window] = each
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1] or "")))


def _draw_row_whisker(row: traffic_views.MetricTrend, measures: dict[str, Any]) -> Any:
    measure = measures.get(row.metric)
    if measure is None or measure.low is None or measure.high is None or row.mean is None:
        return None
    return drawing.draw_whisker(row.mean, row.low, row.high, (measure.low, measure.high))


def _draw_metric_sparkline(server: ServerState, metric: str) -> Any:
    """The last day of a metric over all routes, in stretches of half an hour."""
    until = math.floor(server.now() / 1800) * 30 + 30
    sums: dict[int, tuple[float, int]] = {}
    for each in server.store.read_rollups(until - DAY_MINUTES, until, metric=metric, grain=30):
        total, n = sums.get(each.minute, (0.0, 0))
        sums[each.minute] = (total + each.sum, n + each.n)
    values = [sums.get(minute, (0.0, 0)) for minute in range(until - DAY_MINUTES, until, 30)]
    measure = next((one for one in server.store.read_measures() if one.name == metric), None)
    ends = (None, None) if measure is None else (measure.low, measure.high)
    return drawing.draw_sparkline([total / n if n else None for total, n in values], *ends)


@traffic_router.get("/metrics/{name:path}")
def show_metric(request: Request, name: str) -> Response:
    """How one metric went."""
    desk, asked = get_server(request), request.query_params
    window = _parse_window(asked.get("window") or str(DAY_MINUTES), 1, 366 * DAY_MINUTES)
    route = asked.get("route") or None
    view = traffic_views.load_metric(desk, name, "" if route == seen.NO_ROUTE else route, window)
    until = math.floor(view.now / 60) + 1
    grain, lines = drawing.coarsen_lines(drawing.group_by_route(view.points), view.grain)
    return render_page(
        request,
        "metric",
        refresh_seconds=10,
        view=view,
        title=LAYER_QUESTIONS[view.measure.layer][0],
        route=route,
        routes=desk.store.list_routes(),
        windows=METRIC_WINDOWS,
        chart=drawing.draw_trend(lines, view.measure, view.marks, (until - window, until)),
        lines=list(lines),
        grain=grain,
        max_lines=drawing.MAX_LINES,
        histogram=drawing.draw_histogram,
        whisker=lambda row: _draw_row_whisker(row, {view.measure.name: view.measure}),
        until=until,
    )


@traffic_router.get("/insights")
def show_insights(request: Request) -> Response:
    """What goes together: the triad over time, how values lie, and what they go with."""
    desk, asked = get_server(request), request.query_params
    window = _parse_window(asked.get("window") or str(DAY_MINUTES), 1, METRIC_WINDOWS[3])
    route = asked.get("route") or None
    view = load_insights(desk, "" if route == seen.NO_ROUTE else route, window)
    until = math.floor(view.now / 60) + 1
    measures = {measure.name: measure for measure in desk.store.read_measures()}
    grain, courses = _draw_triad(view, measures, (until - window, until))
    return render_page(
        request,
        "insights",
        refresh_seconds=30,
        view=view,
        route=route,
        routes=desk.store.list_routes(),
        windows=METRIC_WINDOWS[:4],
        trend_panels=courses,
        grain=grain,
        measures=measures,
        cohorts=_group_cohorts(view.cohorts),
        histogram=drawing.draw_histogram,
        whisker=drawing.draw_whisker,
    )


def _draw_triad(
    view: InsightsView, measures: dict[str, MetricInfo], times: tuple[int, int]
) -> tuple[int, list[dict[str, Any]]]:
    """Minutes to a point, and a drawing of the three parts of the triad for each route."""
    grain, points = drawing.coarsen_lines(
        {str(at): each.points for at, each in enumerate(view.triad)}, view.grain
    )
    found: dict[str | None, dict[str, list[TrendPoint]]] = {}
    for each, line in zip(view.triad, points.values(), strict=True):
        found.setdefault(each.route, {})[each.metric] = line
    return grain, [
        {
            "route": route,
            "metrics": list(lines),
            "drawing": drawing.draw_trend(
                lines, measures[next(iter(lines))], view.marks, times, f"the triad on {route or 'no route'}"
            ),
        }
        for route, lines in found.items()
    ]


def _group_cohorts(cohorts: Iterable[RollingMean]) -> dict[str, dict[str, dict[str, RollingMean]]]:
    """Cohorts by the field that makes them, by its value, and by metric."""
    found: dict[str, dict[str, dict[str, RollingMean]]] = {}
    for each in cohorts:
        field, _, value = (each.cohort or "").partition("=")
        found.setdefault(field, {}).setdefault(value, {})[each.metric] = each
    return dict(sorted(found.items()))


@traffic_router.get("/drift")
def show_drift(request: Request) -> Response:
    """How far live traffic has moved from a run."""
    desk, asked = get_server(request), request.query_params
    window = _parse_window(asked.get("window") or str(DAY_MINUTES), 1, 366 * DAY_MINUTES)
    run, route = asked.get("run"), asked.get("route") or None
    found = load_drift(desk, run, "" if route == seen.NO_ROUTE else route, window) if run else None
    return render_page(
        request,
        "drift",
        without_json=found is None,
        drift_view=found,
        runs=[line.name for line in traffic_views.list_runs(desk)],
        folder=str(desk.settings.runs_folder),
        latest=MAX_QUERIES,
        window=window,
        windows=METRIC_WINDOWS,
        route=route,
        routes=desk.store.list_routes(),
        measures={measure.name: measure for measure in desk.store.read_measures()},
        whisker=drawing.draw_whisker,
    )


def _parse_window(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:20]) <= high:
        raise UsageError(f'a window is {low} to {high:,} minutes, got "{text[:40]}".')
    return int(text)


@traffic_router.get("/compare")
def show_comparison(request: Request) -> Response:
    """Two windows of a route beside each other."""
    desk, asked = get_server(request), request.query_params
    found = compare_requested_windows(desk, dict(asked)) if asked.get("since") else None
    return render_page(
        request,
        "compare",
        without_json=found is None,
        comparison=found,
        query_params=asked,
        routes=desk.store.list_routes(),
        now=math.floor(desk.now() / 60) + 1,
        forest=draw_forest_plot(found.blame.changes, "Second window less first") if found else None,
    )
