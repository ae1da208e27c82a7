"""The dashboard: pages made on the server, that work without a script and ask for nothing from anywhere else.

Every page shows a view; the view itself is at the same address with `.json` behind it."""

from __future__ import annotations

import math
from importlib.resources import files

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from ragfault.errors import UnknownName
from ragfault.report.bisection_html import render_bisection
from ragfault.report.html import render_html
from ragfault.report.pieces import TITLES
from ragfault.server import dashboard_drawing as drawing
from ragfault.server import dashboard_reading as reading
from ragfault.server import dashboard_views as seen
from ragfault.server import views
from ragfault.server.access import require
from ragfault.server.dashboard_forms import forms
from ragfault.server.dashboard_rendering import PageRoute, desk_of, local, render
from ragfault.server.dashboard_views import run_at
from ragfault.server.dashboard_watching import watching
from ragfault.server.desk import Desk
from ragfault.store import STATES, Wanted

__all__ = ["pages"]

STATIC = {
    "page.css": ("report/page", "text/css; charset=utf-8"),
    "bisection.css": ("report/page", "text/css; charset=utf-8"),
    "dashboard.css": ("server/pages", "text/css; charset=utf-8"),
    "dashboard.js": ("server/pages", "text/javascript; charset=utf-8"),
    "renewal.js": ("server/pages", "text/javascript; charset=utf-8"),
    "icon.svg": ("server/pages", "image/svg+xml"),
}
"""The files that pages load: name → where they lie in the package, and what they are."""

SHOWN = ("triad", "context_relevance", "groundedness", "answer_relevance")
"""The metrics that a list of traces shows, as far as they are kept."""

CARRIED = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""The policy around a report that is a page of its own: it carries a stricter one, of its own script and style."""

router = APIRouter(route_class=PageRoute, dependencies=[Depends(require("read"))], include_in_schema=False)
public = APIRouter(route_class=PageRoute, include_in_schema=False)


def pages() -> APIRouter:
    """All routes of the dashboard: its files, its forms, its pages."""
    made = APIRouter()
    for part in (public, forms, watching, router):
        made.include_router(part)
    return made


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


# --- traces ----------------------------------------------------------------------------------------


@router.get("/traces")
def traces(request: Request) -> Response:
    """Traces, searched, filtered, sorted, by the page."""
    desk = desk_of(request)
    wanted = seen.selection(request.query_params.multi_items())
    measures = [measure.name for measure in desk.store.measures()]
    extra = [name for name in (wanted.sort, wanted.metric) if name in measures]
    return render(
        request,
        "traces",
        renew=10,
        wanted=wanted,
        asked=request.query_params,
        page=views.traces(desk, wanted),
        count=None if wanted.text else desk.store.count(wanted),
        routes=desk.store.routes(),
        states=STATES,
        measures=measures,
        shown=list(dict.fromkeys([*extra, *(name for name in SHOWN if name in measures)]))[:5],
        saved=_saved(desk),
        own=msgspec.convert(desk.store.setting(seen.VIEWS, {}), dict[str, Wanted]),
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
    desk = desk_of(request)
    whole = views.trace(desk, request.query_params.get("id", id) if id == "-" else id)
    held = whole.trace
    labels = desk.store.labels(held.id)
    return render(
        request,
        "trace",
        renew=None if whole.verdicts else 5,
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
        checks=() if desk.store.checking is None else desk.store.checking.checks_of(held.id),
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
    desk = desk_of(request)
    view = views.alerts(desk)
    known = desk.store.measures()
    return render(
        request,
        "alerts",
        renew=10,
        view=view,
        alarms=seen.gravest(view.alarms),
        details=seen.details,
        told=seen.told(view.events),
        layer={measure.name: TITLES[measure.layer][0] for measure in known},
        costs={measure.name for measure in known if measure.better == "lower"},
    )


@router.get("/clusters")
def clusters(request: Request) -> Response:
    """Failing traces that fail alike."""
    return render(request, "clusters", renew=30, view=seen.grouped(desk_of(request)))


@router.get("/runs")
def runs(request: Request) -> Response:
    """Runs that were exported or imported."""
    desk = desk_of(request)
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
    return _carried(render_html(run_at(desk_of(request), name)))


@router.get("/bisect")
def bisection(request: Request) -> Response:
    """Which layer broke between two runs, as the page that `ragfault bisect` writes."""
    from ragfault.findings import bisect

    asked, desk = request.query_params, desk_of(request)
    old, new = (run_at(desk, asked.get(side, "")) for side in ("baseline", "candidate"))
    return _carried(render_bisection(bisect(old, new)))


def _carried(page: str) -> Response:
    """A page that carries its script, its style and the policy that allows only these."""
    return Response(page, media_type="text/html; charset=utf-8", headers={"content-security-policy": CARRIED})


@router.get("/judge")
def judge(request: Request) -> Response:
    """How far the judge can be trusted."""
    return render(request, "judge", view=seen.judge(desk_of(request)))


@router.get("/settings")
def settings(request: Request) -> Response:
    """What the server was told when it started."""
    return render(request, "settings", view=seen.settings(desk_of(request)))


@router.get("/help")
def help_(request: Request) -> Response:
    """Keys, and what the words mean."""
    return render(request, "help")
