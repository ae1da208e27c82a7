"""Pages of traces, alerts, clusters, runs, judge and settings, and the router of the whole dashboard."""

from __future__ import annotations

import math
from importlib.resources import files

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from ragfault.errors import UnknownName
from ragfault.reports.html.bisection import render_bisection_html
from ragfault.reports.html.elements import LAYER_QUESTIONS
from ragfault.reports.html.report import render_run_html
from ragfault.server.api import detail_views as seen
from ragfault.server.api import traffic_views
from ragfault.server.api import verdict_view as reading
from ragfault.server.api.detail_views import open_run
from ragfault.server.dashboard import charts as drawing
from ragfault.server.dashboard.forms import forms_router
from ragfault.server.dashboard.page_renderer import PageRoute, get_server, local_path, render_page
from ragfault.server.dashboard.traffic_pages import traffic_router
from ragfault.server.security import require_role
from ragfault.server.state import ServerState
from ragfault.server.storage import TRACE_STATES, TraceSelection

STATIC_FILES = {
    "page.css": ("reports/html/static", "text/css; charset=utf-8"),
    "bisection.css": ("reports/html/static", "text/css; charset=utf-8"),
    "dashboard.css": ("server/dashboard/static", "text/css; charset=utf-8"),
    "dashboard.js": ("server/dashboard/static", "text/javascript; charset=utf-8"),
    "auto-refresh.js": ("server/dashboard/static", "text/javascript; charset=utf-8"),
    "icon.svg": ("server/dashboard/static", "image/svg+xml"),
}
"""The files that pages load: name → where they lie in the package, and what they are."""

LISTED_METRICS = ("triad", "context_relevance", "groundedness", "answer_relevance")
"""The metrics that a list of traces shows, as far as they are kept."""

REPORT_POLICY = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""The policy around a report that is a page of its own: it carries a stricter one, of its own script and style."""

router = APIRouter(
    route_class=PageRoute, dependencies=[Depends(require_role("read"))], include_in_schema=False
)
public_router = APIRouter(route_class=PageRoute, include_in_schema=False)


def build_router() -> APIRouter:
    """All routes of the dashboard: its files, its forms, its pages."""
    made = APIRouter()
    for part in (public_router, forms_router, traffic_router, router):
        made.include_router(part)
    return made


# --- for everybody ---------------------------------------------------------------------------------


@public_router.get("/static/{name}")
def serve_static(name: str) -> Response:
    """A file of the pages."""
    if name not in STATIC_FILES:
        raise UnknownName("file", name, STATIC_FILES)
    folder, kind = STATIC_FILES[name]
    content = files("ragfault").joinpath(*folder.split("/"), name).read_bytes()
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


@public_router.get("/sign-in")
def show_sign_in(request: Request) -> Response:
    """Where a token is given, once, for a browser."""
    return render_page(
        request, "sign-in", next=local_path(request.query_params.get("next", "/")), wrong=False
    )


# --- traces ----------------------------------------------------------------------------------------


@router.get("/traces")
def show_traces(request: Request) -> Response:
    """Traces, searched, filtered, sorted, by the page."""
    desk = get_server(request)
    wanted = seen.parse_selection(request.query_params.multi_items())
    measures = [measure.name for measure in desk.store.read_measures()]
    extra = [name for name in (wanted.sort, wanted.metric) if name in measures]
    return render_page(
        request,
        "traces",
        refresh_seconds=10,
        selection=wanted,
        asked=request.query_params,
        page=traffic_views.list_traces(desk, wanted),
        count=None if wanted.text else desk.store.count_traces(wanted),
        routes=desk.store.list_routes(),
        states=TRACE_STATES,
        measures=measures,
        listed_metrics=list(dict.fromkeys([*extra, *(name for name in LISTED_METRICS if name in measures)]))[
            :5
        ],
        preset_views=_list_preset_views(desk),
        saved_views=msgspec.convert(
            desk.store.read_setting(seen.VIEWS_SETTING, {}), dict[str, TraceSelection]
        ),
        labels=len(desk.store.read_labels()),
    )


def _list_preset_views(server: ServerState) -> list[tuple[str, TraceSelection]]:
    """Views that are of use anywhere."""
    known = {measure.name for measure in server.store.read_measures()}
    found = [
        ("least grounded first", TraceSelection(sort="groundedness", order="ascending")),
        ("least relevant context first", TraceSelection(sort="context_relevance", order="ascending")),
        ("slowest first", TraceSelection(sort="latency")),
    ]
    kept = [(name, wanted) for name, wanted in found if wanted.sort in known]
    return [
        ("the last hour", TraceSelection(since=math.floor(server.now() / 60) * 60.0 - 3600)),
        *kept,
        ("the pipeline failed", TraceSelection(state="error")),
        ("some part was not judged", TraceSelection(state="failed")),
        ("waiting to be judged", TraceSelection(state="waiting")),
    ]


@router.get("/traces/{id:path}")
def show_trace(request: Request, id: str) -> Response:
    """One trace with all that is known of it."""
    desk = get_server(request)
    whole = traffic_views.load_trace(desk, request.query_params.get("id", id) if id == "-" else id)
    held = whole.trace
    labels = desk.store.read_labels(held.id)
    return render_page(
        request,
        "trace",
        refresh_seconds=None if whole.verdicts else 5,
        stored=whole,
        trace=held,
        verdicts=whole.verdicts,
        answer=reading.segment_answer(held, whole.verdicts),
        chunks=[reading.segment_chunk(held, whole.verdicts, at) for at in range(len(held.chunks or ()))],
        citations=[
            (
                each,
                reading.locate_chunk(held, each.chunk),
                reading.locate_quote(held, each),
                reading.match_claim(whole.verdicts, each),
            )
            for each in held.citations or ()
        ],
        waterfall=drawing.draw_waterfall(held),
        checks=() if desk.store.spot_checks is None else desk.store.spot_checks.read_trace_checks(held.id),
        place=lambda chunk: reading.locate_chunk(held, chunk),
        label_states=reading.compare_labels(whole, labels),
        labels=labels,
        clusters=seen.list_trace_clusters(desk, held.id),
        measures={measure.name for measure in desk.store.read_measures()},
    )


# --- what came of it -------------------------------------------------------------------------------


@router.get("/alerts")
def show_alerts(request: Request) -> Response:
    """Alerts, and what happened to them."""
    desk = get_server(request)
    view = traffic_views.load_alerts(desk)
    known = desk.store.read_measures()
    return render_page(
        request,
        "alerts",
        refresh_seconds=10,
        view=view,
        alarms=seen.sort_alerts(view.alarms),
        describe_event=seen.describe_event,
        last_messages=seen.collect_messages(view.events),
        layer={measure.name: LAYER_QUESTIONS[measure.layer][0] for measure in known},
        costs={measure.name for measure in known if measure.better == "lower"},
    )


@router.get("/clusters")
def show_clusters(request: Request) -> Response:
    """Failing traces that fail alike."""
    return render_page(request, "clusters", refresh_seconds=30, view=seen.load_clusters(get_server(request)))


@router.get("/runs")
def show_runs(request: Request) -> Response:
    """Runs that were exported or imported."""
    desk = get_server(request)
    return render_page(
        request,
        "runs",
        runs=traffic_views.list_runs(desk),
        folder=str(desk.settings.runs_folder),
        routes=desk.store.list_routes(),
        asked=request.query_params,
    )


@router.get("/runs/{name}/report")
def show_report(request: Request, name: str) -> Response:
    """The report of a run, as the page that `ragfault report` writes."""
    return _report_response(render_run_html(open_run(get_server(request), name)))


@router.get("/bisect")
def show_bisection(request: Request) -> Response:
    """Which layer broke between two runs, as the page that `ragfault bisect` writes."""
    from ragfault.analysis import bisect

    asked, desk = request.query_params, get_server(request)
    old, new = (open_run(desk, asked.get(side, "")) for side in ("baseline", "candidate"))
    return _report_response(render_bisection_html(bisect(old, new)))


def _report_response(page: str) -> Response:
    """A page that carries its script, its style and the policy that allows only these."""
    return Response(
        page, media_type="text/html; charset=utf-8", headers={"content-security-policy": REPORT_POLICY}
    )


@router.get("/judge")
def show_judge(request: Request) -> Response:
    """How far the judge can be trusted."""
    return render_page(request, "judge", view=seen.load_judge_view(get_server(request)))


@router.get("/settings")
def show_settings(request: Request) -> Response:
    """What the server was told when it started."""
    return render_page(request, "settings", view=seen.load_settings(get_server(request)))


@router.get("/help")
def show_help(request: Request) -> Response:
    """Keys, and what the words mean."""
    return render_page(request, "help")
