"""The pages of what is watched: overview, a metric, what goes together, drift, and two windows beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from ragfault.errors import UsageError
from ragfault.findings.monitoring_windows import DAY, Rolling
from ragfault.records import Layer
from ragfault.report.forest import forest
from ragfault.report.pieces import TITLES
from ragfault.runs import Measure
from ragfault.server import dashboard_drawing as drawing
from ragfault.server import dashboard_layers as layers
from ragfault.server import dashboard_views as seen
from ragfault.server import views
from ragfault.server.access import require
from ragfault.server.dashboard_drift import LATEST, drifted
from ragfault.server.dashboard_insights import Together, together
from ragfault.server.dashboard_rendering import PageRoute, desk_of, render
from ragfault.server.desk import Desk
from ragfault.server.twins import compared
from ragfault.server.views import Point

__all__ = ["watching"]

WINDOWS = (60, 6 * 60, DAY, 7 * DAY, 30 * DAY)
"""The windows that the page of a metric offers, in minutes."""

watching = APIRouter(route_class=PageRoute, dependencies=[Depends(require("read"))], include_in_schema=False)


@watching.get("/")
def overview(request: Request) -> Response:
    """How each layer stands."""
    desk = desk_of(request)
    view = views.overview(desk)
    shown = [_layer(desk, view, layer) for layer in TITLES]
    return render(
        request,
        "overview",
        renew=10,
        view=view,
        alerts=seen.gravest(view.alerts),
        layers=shown,
        stirred=layers.stirred(view.moved),
        told=seen.told(desk.store.events()),
        windows=views.WINDOWS,
        url=str(request.base_url).rstrip("/"),
    )


def _layer(desk: Desk, view: views.Overview, layer: Layer) -> dict[str, Any]:
    """One layer of the first page: how it stands, and the metrics that lead it before the others."""
    leading = layers.PARTS_OF[layer]
    rows = _by_metric([each for each in view.moved if each.layer == layer and each.mean is not None])
    title, question = TITLES[layer]
    return {
        "name": layer,
        "title": title,
        "question": question,
        "parts": leading,
        "windows": [(window, layers.standing(view.moved, leading, window)) for window in views.WINDOWS],
        "spark": desk.lately(f"spark {leading[0]}", lambda: _spark(desk, leading[0]), 30.0),
        "leading": [(key, row) for key, row in rows.items() if key[0] in leading],
        "others": [(key, row) for key, row in rows.items() if key[0] not in leading],
    }


def _by_metric(moved: list[views.Moved]) -> dict[tuple[str, str | None], dict[int, views.Moved]]:
    """The windows of each metric and route."""
    found: dict[tuple[str, str | None], dict[int, views.Moved]] = {}
    for each in moved:
        found.setdefault((each.metric, each.route), {})[each.window] = each
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1] or "")))


def _whisker(row: views.Moved, measures: dict[str, Any]) -> Any:
    measure = measures.get(row.metric)
    if measure is None or measure.low is None or measure.high is None or row.mean is None:
        return None
    return drawing.whisker(row.mean, row.low, row.high, (measure.low, measure.high))


def _spark(desk: Desk, metric: str) -> Any:
    """The last day of a metric over all routes, in stretches of half an hour."""
    until = math.floor(desk.now() / 1800) * 30 + 30
    sums: dict[int, tuple[float, int]] = {}
    for each in desk.store.rollups(until - DAY, until, metric=metric, grain=30):
        total, n = sums.get(each.minute, (0.0, 0))
        sums[each.minute] = (total + each.sum, n + each.n)
    values = [sums.get(minute, (0.0, 0)) for minute in range(until - DAY, until, 30)]
    measure = next((one for one in desk.store.measures() if one.name == metric), None)
    ends = (None, None) if measure is None else (measure.low, measure.high)
    return drawing.spark([total / n if n else None for total, n in values], *ends)


@watching.get("/metrics/{name:path}")
def metric(request: Request, name: str) -> Response:
    """How one metric went."""
    desk, asked = desk_of(request), request.query_params
    window = _whole(asked.get("window") or str(DAY), 1, 366 * DAY)
    route = asked.get("route") or None
    view = views.metric(desk, name, "" if route == seen.UNROUTED else route, window)
    until = math.floor(view.now / 60) + 1
    grain, lines = drawing.coarser(drawing.by_route(view.points), view.grain)
    return render(
        request,
        "metric",
        renew=10,
        view=view,
        title=TITLES[view.measure.layer][0],
        route=route,
        routes=desk.store.routes(),
        windows=WINDOWS,
        course=drawing.course(lines, view.measure, view.marks, (until - window, until)),
        lines=list(lines),
        grain=grain,
        most=drawing.LINES,
        bars=drawing.bars,
        whisker=lambda row: _whisker(row, {view.measure.name: view.measure}),
        until=until,
    )


@watching.get("/insights")
def insights(request: Request) -> Response:
    """What goes together: the triad over time, how values lie, and what they go with."""
    desk, asked = desk_of(request), request.query_params
    window = _whole(asked.get("window") or str(DAY), 1, WINDOWS[3])
    route = asked.get("route") or None
    view = together(desk, "" if route == seen.UNROUTED else route, window)
    until = math.floor(view.now / 60) + 1
    measures = {measure.name: measure for measure in desk.store.measures()}
    grain, courses = _triad(view, measures, (until - window, until))
    return render(
        request,
        "insights",
        renew=30,
        view=view,
        route=route,
        routes=desk.store.routes(),
        windows=WINDOWS[:4],
        courses=courses,
        grain=grain,
        measures=measures,
        cohorts=_by_field(view.cohorts),
        bars=drawing.bars,
        whisker=drawing.whisker,
    )


def _triad(
    view: Together, measures: dict[str, Measure], times: tuple[int, int]
) -> tuple[int, list[dict[str, Any]]]:
    """Minutes to a point, and a drawing of the three parts of the triad for each route."""
    grain, points = drawing.coarser({str(at): each.points for at, each in enumerate(view.triad)}, view.grain)
    found: dict[str | None, dict[str, list[Point]]] = {}
    for each, line in zip(view.triad, points.values(), strict=True):
        found.setdefault(each.route, {})[each.metric] = line
    return grain, [
        {
            "route": route,
            "metrics": list(lines),
            "drawing": drawing.course(
                lines, measures[next(iter(lines))], view.marks, times, f"the triad on {route or 'no route'}"
            ),
        }
        for route, lines in found.items()
    ]


def _by_field(cohorts: Iterable[Rolling]) -> dict[str, dict[str, dict[str, Rolling]]]:
    """Cohorts by the field that makes them, by its value, and by metric."""
    found: dict[str, dict[str, dict[str, Rolling]]] = {}
    for each in cohorts:
        field, _, value = (each.cohort or "").partition("=")
        found.setdefault(field, {}).setdefault(value, {})[each.metric] = each
    return dict(sorted(found.items()))


@watching.get("/drift")
def drift(request: Request) -> Response:
    """How far live traffic has moved from a run."""
    desk, asked = desk_of(request), request.query_params
    window = _whole(asked.get("window") or str(DAY), 1, 366 * DAY)
    run, route = asked.get("run"), asked.get("route") or None
    found = drifted(desk, run, "" if route == seen.UNROUTED else route, window) if run else None
    return render(
        request,
        "drift",
        alone=found is None,
        found=found,
        runs=[line.name for line in views.runs(desk)],
        folder=str(desk.settings.runs),
        latest=LATEST,
        window=window,
        windows=WINDOWS,
        route=route,
        routes=desk.store.routes(),
        measures={measure.name: measure for measure in desk.store.measures()},
        whisker=drawing.whisker,
    )


def _whole(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:20]) <= high:
        raise UsageError(f'a window is {low} to {high:,} minutes, got "{text[:40]}".')
    return int(text)


@watching.get("/compare")
def compare(request: Request) -> Response:
    """Two windows of a route beside each other."""
    desk, asked = desk_of(request), request.query_params
    found = compared(desk, dict(asked)) if asked.get("since") else None
    return render(
        request,
        "compare",
        alone=found is None,
        found=found,
        asked=asked,
        routes=desk.store.routes(),
        now=math.floor(desk.now() / 60) + 1,
        forest=forest(found.blame.changes, "Second window less first") if found else None,
    )
