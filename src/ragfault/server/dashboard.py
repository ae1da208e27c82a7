"""The dashboard: pages made on the server, that work without a script and ask for nothing from anywhere else.

Every page shows a view; the view itself is at the same address with `.json` behind it."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from ragfault.errors import UnknownName, UsageError
from ragfault.findings.monitoring_windows import DAY
from ragfault.records import Layer
from ragfault.report.bisection_html import render_bisection
from ragfault.report.forest import forest
from ragfault.report.html import render_html
from ragfault.report.pieces import TITLES
from ragfault.server import dashboard_drawing as drawing
from ragfault.server import dashboard_reading as reading
from ragfault.server import dashboard_views as seen
from ragfault.server import views
from ragfault.server.access import require
from ragfault.server.dashboard_forms import forms, run_at
from ragfault.server.dashboard_rendering import PageRoute, local, render
from ragfault.server.desk import Desk
from ragfault.server.twins import compared
from ragfault.store import STATES, Event, Wanted

__all__ = ["pages"]

STATIC = {
    "page.css": ("report/page", "text/css; charset=utf-8"),
    "bisection.css": ("report/page", "text/css; charset=utf-8"),
    "dashboard.css": ("server/pages", "text/css; charset=utf-8"),
    "dashboard.js": ("server/pages", "text/javascript; charset=utf-8"),
    "icon.svg": ("server/pages", "image/svg+xml"),
}
"""The files that pages load: name → where they lie in the package, and what they are."""

WINDOWS = (60, 6 * 60, DAY, 7 * DAY, 30 * DAY)
"""The windows that the page of a metric offers, in minutes."""

SHOWN = ("triad", "context_relevance", "groundedness", "answer_relevance")
"""The metrics that a list of traces shows, as far as they are kept."""

CARRIED = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""The policy around a report that is a page of its own: it carries a stricter one, of its own script and style."""

router = APIRouter(route_class=PageRoute, dependencies=[Depends(require("read"))], include_in_schema=False)
public = APIRouter(route_class=PageRoute, include_in_schema=False)


def pages() -> APIRouter:
    """All routes of the dashboard: its files, its forms, its pages."""
    made = APIRouter()
    for part in (public, forms, router):
        made.include_router(part)
    return made


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


# --- for everybody ---------------------------------------------------------------------------------


@public.get("/static/{name}")
def static(name: str) -> Response:
    """A file of the pages."""
    if name not in STATIC:
        raise UnknownName("file", name, STATIC)
    folder, kind = STATIC[name]
    content = files("ragfault").joinpath(*folder.split("/"), name).read_bytes()
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


@public.get("/sign-in")
def sign_in(request: Request) -> Response:
    """Where a token is given, once, for a browser."""
    return render(request, "sign-in", next=local(request.query_params.get("next", "/")), wrong=False)


# --- what is watched -------------------------------------------------------------------------------


@router.get("/")
def overview(request: Request) -> Response:
    """How each layer stands."""
    desk = _desk(request)
    view = views.overview(desk)
    layers = [_layer(desk, view, layer) for layer in TITLES]
    return render(
        request,
        "overview",
        view=view,
        layers=layers,
        stirred=seen.stirred(view.moved),
        told=_told(desk.store.events()),
        windows=views.WINDOWS,
        url=str(request.base_url).rstrip("/"),
    )


def _layer(desk: Desk, view: views.Overview, layer: Layer) -> dict[str, Any]:
    """One layer of the first page: how it stands, and the metrics that lead it before the others."""
    leading = seen.PARTS_OF[layer]
    rows = _by_metric([each for each in view.moved if each.layer == layer and each.mean is not None])
    title, question = TITLES[layer]
    return {
        "name": layer,
        "title": title,
        "question": question,
        "parts": leading,
        "windows": [(window, seen.standing(view.moved, leading, window)) for window in views.WINDOWS],
        "spark": _spark(desk, leading[0]),
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


@router.get("/metrics/{name:path}")
def metric(request: Request, name: str) -> Response:
    """How one metric went."""
    desk, asked = _desk(request), request.query_params
    window = _whole(asked.get("window") or str(DAY), 1, 366 * DAY)
    route = asked.get("route") or None
    view = views.metric(desk, name, "" if route == seen.UNROUTED else route, window)
    until = math.floor(view.now / 60) + 1
    return render(
        request,
        "metric",
        view=view,
        title=TITLES[view.measure.layer][0],
        route=route,
        routes=desk.store.routes(),
        windows=WINDOWS,
        course=drawing.course(view.points, view.measure, view.marks, (until - window, until)),
        lines=list(dict.fromkeys(point.route for point in view.points if point.mean is not None)),
        most=drawing.LINES,
        bars=drawing.bars,
        whisker=lambda row: _whisker(row, {view.measure.name: view.measure}),
        until=until,
    )


def _whole(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text[:20]) <= high:
        raise UsageError(f'a window is {low} to {high:,} minutes, got "{text[:40]}".')
    return int(text)


@router.get("/compare")
def compare(request: Request) -> Response:
    """Two windows of a route beside each other."""
    desk, asked = _desk(request), request.query_params
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


# --- traces ----------------------------------------------------------------------------------------


@router.get("/traces")
def traces(request: Request) -> Response:
    """Traces, searched, filtered, sorted, by the page."""
    desk = _desk(request)
    wanted = seen.selection(request.query_params.multi_items())
    measures = [measure.name for measure in desk.store.measures()]
    extra = [name for name in (wanted.sort, wanted.metric) if name in measures]
    return render(
        request,
        "traces",
        wanted=wanted,
        asked=request.query_params,
        page=views.traces(desk, wanted),
        count=None if wanted.text else desk.store.count(wanted),
        routes=desk.store.routes(),
        states=STATES,
        measures=measures,
        shown=list(dict.fromkeys([*extra, *(name for name in SHOWN if name in measures)]))[:5],
        saved=_saved(desk),
        labels=len(desk.store.labels()),
    )


def _saved(desk: Desk) -> list[tuple[str, Wanted]]:
    """Views that are of use anywhere."""
    known = {measure.name for measure in desk.store.measures()}
    found = [
        ("least grounded first", Wanted(sort="groundedness", order="ascending")),
        ("least relevant context first", Wanted(sort="context_relevance", order="ascending")),
        ("slowest first", Wanted(sort="latency")),
    ]
    kept = [(name, wanted) for name, wanted in found if wanted.sort in known]
    return [
        ("the last hour", Wanted(since=math.floor(desk.now() / 60) * 60.0 - 3600)),
        *kept,
        ("the pipeline failed", Wanted(state="error")),
        ("some part was not judged", Wanted(state="failed")),
        ("waiting to be judged", Wanted(state="waiting")),
    ]


@router.get("/traces/{id:path}")
def trace(request: Request, id: str) -> Response:
    """One trace with all that is known of it."""
    desk = _desk(request)
    whole = views.trace(desk, request.query_params.get("id", id) if id == "-" else id)
    held = whole.trace
    labels = desk.store.labels(held.id)
    return render(
        request,
        "trace",
        whole=whole,
        trace=held,
        seen=whole.verdicts,
        answer=reading.answer_pieces(held, whole.verdicts),
        chunks=[reading.chunk_pieces(held, whole.verdicts, at) for at in range(len(held.chunks or ()))],
        citations=[
            (
                each,
                reading.place_of(held, each.chunk),
                reading.quoted(held, each),
                reading.claim_of(whole.verdicts, each),
            )
            for each in held.citations or ()
        ],
        waterfall=drawing.waterfall(held),
        place=lambda chunk: reading.place_of(held, chunk),
        spoken=reading.spoken(whole, labels),
        labels=labels,
        clusters=seen.clusters_of(desk, held.id),
        measures={measure.name for measure in desk.store.measures()},
    )


# --- what came of it -------------------------------------------------------------------------------


@router.get("/alerts")
def alerts(request: Request) -> Response:
    """Alerts, and what happened to them."""
    desk = _desk(request)
    view = views.alerts(desk)
    known = desk.store.measures()
    return render(
        request,
        "alerts",
        view=view,
        told=_told(view.events),
        layer={measure.name: TITLES[measure.layer][0] for measure in known},
        costs={measure.name for measure in known if measure.better == "lower"},
    )


def _told(events: tuple[Event, ...]) -> dict[str, dict[str, Any]]:
    """What was last told of each alert: the layer that the decision tree names, and what to do."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.kind in ("firing", "reminder"):
            found.setdefault(event.alert, event.body)
    return found


@router.get("/clusters")
def clusters(request: Request) -> Response:
    """Failing traces that fail alike."""
    return render(request, "clusters", view=seen.grouped(_desk(request)))


@router.get("/runs")
def runs(request: Request) -> Response:
    """Runs that were exported or imported."""
    desk = _desk(request)
    return render(
        request,
        "runs",
        runs=views.runs(desk),
        folder=str(desk.settings.runs),
        routes=desk.store.routes(),
        asked=request.query_params,
    )


@router.get("/runs/{name}/report")
def report(request: Request, name: str) -> Response:
    """The report of a run, as the page that `ragfault report` writes."""
    return _carried(render_html(run_at(_desk(request), name)))


@router.get("/bisect")
def bisection(request: Request) -> Response:
    """Which layer broke between two runs, as the page that `ragfault bisect` writes."""
    from ragfault.findings import bisect

    asked, desk = request.query_params, _desk(request)
    old, new = (run_at(desk, asked.get(side, "")) for side in ("baseline", "candidate"))
    return _carried(render_bisection(bisect(old, new)))


def _carried(page: str) -> Response:
    """A page that carries its script, its style and the policy that allows only these."""
    return Response(page, media_type="text/html; charset=utf-8", headers={"content-security-policy": CARRIED})


@router.get("/judge")
def judge(request: Request) -> Response:
    """How far the judge can be trusted."""
    return render(request, "judge", view=seen.judge(_desk(request)))


@router.get("/settings")
def settings(request: Request) -> Response:
    """What the server was told when it started."""
    return render(request, "settings", view=seen.settings(_desk(request)))


@router.get("/help")
def help_(request: Request) -> Response:
    """Keys, and what the words mean."""
    return render(request, "help")
