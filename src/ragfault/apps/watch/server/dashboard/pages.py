"""Pages of traces, alerts, clusters, runs, judge and settings, and the router of the whole dashboard."""

from __future__ import annotations

import math
from importlib.resources import files

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from ragfault.apps.watch.server.api import detail_views, traffic_views, verdict_view
from ragfault.apps.watch.server.api.detail_views import open_run
from ragfault.apps.watch.server.api.trace_parts import bound_comments, bound_trace, load_trace_part
from ragfault.apps.watch.server.dashboard import charts
from ragfault.apps.watch.server.dashboard.forms import forms_router, render_access
from ragfault.apps.watch.server.dashboard.page_renderer import local_path, render_page
from ragfault.apps.watch.server.dashboard.traffic_pages import MAX_SHOWN_INCIDENTS, traffic_router
from ragfault.apps.watch.server.json_routes import get_server
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import TRACE_STATES, TraceSelection
from ragfault.http.page_routes import PageRoute
from ragfault.http.security import require_role
from ragfault.model.errors import UnknownName, UsageError
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.format import LAYER_QUESTIONS
from ragfault.report.html.report import render_run_html
from ragfault.report.renderers.html import render_html_page
from ragfault.report.wording import describe_faulty_step

STATIC_FILES = {
    "page.css": ("report/html/static", "text/css; charset=utf-8"),
    "bisection.css": ("report/html/static", "text/css; charset=utf-8"),
    "dashboard.css": ("apps/watch/server/dashboard/static", "text/css; charset=utf-8"),
    "theme.js": ("report/html/static", "text/javascript; charset=utf-8"),
    "dashboard.js": ("apps/watch/server/dashboard/static", "text/javascript; charset=utf-8"),
    "auto-refresh.js": ("apps/watch/server/dashboard/static", "text/javascript; charset=utf-8"),
    "icon.svg": ("apps/watch/server/dashboard/static", "image/svg+xml"),
}
"""Static files by name: place in the package and media type."""

LISTED_METRICS = ("triad", "context_relevance", "groundedness", "answer_relevance")
"""Metrics that a list of traces shows where they are stored."""

REPORT_POLICY = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""Content policy of reports, which carry a stricter one for their own script and style."""

router = APIRouter(route_class=PageRoute, dependencies=[Depends(require_role("read"))], include_in_schema=False)
access_router = APIRouter(route_class=PageRoute, dependencies=[Depends(require_role("admin"))], include_in_schema=False)
public_router = APIRouter(route_class=PageRoute, include_in_schema=False)


def build_router() -> APIRouter:
    """Combine all routes of the dashboard."""
    combined = APIRouter()
    for part in (public_router, forms_router, traffic_router, access_router, router):
        combined.include_router(part)
    return combined


@public_router.get("/static/{name}")
def serve_static(name: str) -> Response:
    """Serve a static file."""
    if name not in STATIC_FILES:
        raise UnknownName("file", name, STATIC_FILES)
    folder, kind = STATIC_FILES[name]
    content = files("ragfault").joinpath(*folder.split("/"), name).read_bytes()
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


@public_router.get("/sign-in")
def show_sign_in(request: Request) -> Response:
    """Show the sign-in form."""
    return render_page(request, "sign-in", next=local_path(request.query_params.get("next", "/")), wrong=False)


@router.get("/traces")
def show_traces(request: Request) -> Response:
    """Show a page of traces, with search and filters."""
    server = get_server(request)
    selection = detail_views.check_metrics(server, detail_views.parse_selection(request.query_params.multi_items()))
    measures = server.measures
    extra = [name for name in (selection.sort, selection.metric) if name in measures]
    return render_page(
        request,
        "traces",
        refresh_seconds=10,
        selection=selection,
        asked=request.query_params,
        page=server.store.list_traces(selection),
        count=None if selection.text else server.store.count_traces(selection),
        routes=server.store.list_routes(),
        states=TRACE_STATES,
        measures=measures,
        listed_metrics=list(dict.fromkeys([*extra, *(name for name in LISTED_METRICS if name in measures)]))[:5],
        preset_views=_list_preset_views(server),
        saved_views=msgspec.convert(
            server.store.read_setting(detail_views.VIEWS_SETTING, {}), dict[str, TraceSelection]
        ),
    )


CONVERSATIONS_SHOWN = 50
"""Conversations of a page."""


@router.get("/conversations")
def show_conversations(request: Request) -> Response:
    """Show the conversations, or the turns of one."""
    server, query = get_server(request), request.query_params
    selection = detail_views.parse_selection([("until", query.get("until", ""))])
    shown = server.store.list_conversations(selection.until, CONVERSATIONS_SHOWN)
    return render_page(
        request,
        "conversations",
        shown=shown,
        is_first=selection.until is None,
        next=shown[-1].last if len(shown) == CONVERSATIONS_SHOWN else None,
    )


@router.get("/conversation")
def show_conversation(request: Request) -> Response:
    """Show the turns of one conversation in their order, with their leading values."""
    server, id = get_server(request), request.query_params.get("id", "")
    page = server.store.list_traces(TraceSelection(conversation=id, order="ascending", limit=200))
    if not page.lines:
        raise UnknownName("conversation", id, ())
    measures = server.measures
    return render_page(
        request,
        "conversation",
        without_json=True,
        id=id,
        page=page,
        measures=measures,
        listed_metrics=[name for name in LISTED_METRICS if name in measures],
    )


def _list_preset_views(server: ServerState) -> list[tuple[str, TraceSelection]]:
    """List selections that are useful on any server."""
    known = set(server.measures)
    presets = [
        ("least grounded first", TraceSelection(sort="groundedness", order="ascending")),
        ("least relevant context first", TraceSelection(sort="context_relevance", order="ascending")),
        ("slowest first", TraceSelection(sort="latency")),
    ]
    return [
        ("the last hour", TraceSelection(since=math.floor(server.now() / 60) * 60.0 - 3600)),
        *((name, selection) for name, selection in presets if selection.sort in known),
        ("the pipeline failed", TraceSelection(state="error")),
        ("some part was not judged", TraceSelection(state="failed")),
        ("waiting to be judged", TraceSelection(state="waiting")),
    ]


@router.get("/traces/{id:path}")
def show_trace(request: Request, id: str) -> Response:
    """Show one trace with its verdicts and scores."""
    server = get_server(request)
    stored = bound_trace(traffic_views.load_trace_view(server, request.query_params.get("id", id) if id == "-" else id))
    trace, faulty_step = stored.trace, stored.faulty_step
    labels = server.store.read_labels(trace.id, MAX_TRACE_LABELS)
    comments, left_comments = bound_comments(server.store.read_comments(trace.id))
    return render_page(
        request,
        "trace",
        refresh_seconds=None if stored.verdicts else 5,
        stored=stored,
        trace=trace,
        verdicts=stored.verdicts,
        answer=verdict_view.segment_answer(trace, stored.verdicts),
        chunks=[verdict_view.segment_chunk(trace, stored.verdicts, i) for i in range(len(trace.chunks or ()))],
        citations=[
            (
                citation,
                verdict_view.locate_chunk(trace, citation.chunk),
                verdict_view.locate_quote(trace, citation),
                verdict_view.match_claim(stored.verdicts, citation),
            )
            for citation in trace.citations or ()
        ],
        steps=charts.list_steps(trace),
        step_places={step.id: i for i, step in enumerate(trace.steps or ())},
        faulty_step=faulty_step,
        faulty_step_text=faulty_step and describe_faulty_step(faulty_step),
        checks=() if server.store.spot_checks is None else server.store.spot_checks.read_trace_checks(trace.id),
        place=lambda chunk: verdict_view.locate_chunk(trace, chunk),
        label_states=verdict_view.compare_labels(stored, labels),
        labels=labels,
        comments=comments,
        left_out={left.part: left for left in (*stored.left_out, *left_comments)},
        clusters=detail_views.list_trace_clusters(server, trace.id),
        measures=server.measures,
    )


@router.get("/part")
def show_trace_part(request: Request) -> Response:
    """Show a page of one list or text of a trace that is too large for its own page."""
    query = request.query_params
    after = query.get("after", "0")
    if not after.isascii() or not after.isdigit():
        raise UsageError("`after` is a whole number.")
    part = load_trace_part(get_server(request), query.get("trace", ""), query.get("part", ""), int(after[:9]))
    return render_page(request, "part", part=part, left_out={left.part: left for left in part.left_out})


MAX_TRACE_LABELS = 500
"""Latest labels of one trace that its page compares with the verdicts."""
MAX_SHOWN_ALERTS = 100
"""Alerts in the table of the page."""
PAST_INCIDENTS = 10
"""Incidents that are over on one page."""


@router.get("/incidents")
def show_incidents(request: Request) -> Response:
    """Show the open incidents, and those that are over."""
    server = get_server(request)
    return render_page(
        request,
        "incidents",
        refresh_seconds=10,
        view=traffic_views.load_incidents(server, _parse_until(request), PAST_INCIDENTS),
        shown_incidents=MAX_SHOWN_INCIDENTS,
        costs={measure.name for measure in server.store.read_measures() if measure.better == "lower"},
    )


def _parse_until(request: Request) -> float | None:
    """Parse the cursor of a page of past events. Raises UsageError for an invalid one."""
    text = request.query_params.get("until")
    return detail_views.parse_selection([("until", text)]).until if text else None


@router.get("/alerts")
def show_alerts(request: Request) -> Response:
    """Show the alerts and their history."""
    server = get_server(request)
    view = traffic_views.load_alerts(server, _parse_until(request), 2 * traffic_views.PAGE_LINES)
    known = server.store.read_measures()
    return render_page(
        request,
        "alerts",
        refresh_seconds=10,
        view=view,
        alerts=detail_views.sort_alerts(view.alerts),
        describe_event=detail_views.describe_event,
        shown_alerts=MAX_SHOWN_ALERTS,
        layer={measure.name: LAYER_QUESTIONS[measure.layer][0] for measure in known},
    )


@router.get("/clusters")
def show_clusters(request: Request) -> Response:
    """Show the latest clusters of failing traces."""
    after = request.query_params.get("after", "")
    view = detail_views.load_clusters(get_server(request), after, CLUSTERS_SHOWN)
    return render_page(request, "clusters", refresh_seconds=30, view=view, is_first=not after)


CLUSTERS_SHOWN = 20
"""Clusters of a page."""


RUNS_SHOWN = 50
"""Runs of a page."""


@router.get("/runs")
def show_runs(request: Request) -> Response:
    """Show the exported and imported runs."""
    server, after = get_server(request), request.query_params.get("after", "")
    runs = traffic_views.list_runs(server, after, RUNS_SHOWN + 1)
    return render_page(
        request,
        "runs",
        runs=runs[:RUNS_SHOWN],
        after=after,
        next=runs[RUNS_SHOWN - 1].name if len(runs) > RUNS_SHOWN else None,
        folder=str(server.settings.runs_folder),
        routes=server.store.list_routes(),
        asked=request.query_params,
    )


@router.get("/runs/{name}/report")
def show_report(request: Request, name: str) -> Response:
    """Show the report of a run as `ragfault report` writes it."""
    return _report_response(render_run_html(open_run(get_server(request), name)))


@router.get("/bisect")
def show_bisection(request: Request) -> Response:
    """Show the bisection of two runs as `ragfault bisect` writes it."""
    from ragfault.comparison.bisection import bisect

    query, server = request.query_params, get_server(request)
    old, new = (open_run(server, query.get(side, "")) for side in ("baseline", "candidate"))
    return _report_response(render_html_page(build_bisection(bisect(old, new)), "bisection"))


def _report_response(page: str) -> Response:
    """Return a page that carries its own script, style and content policy."""
    return Response(page, media_type="text/html; charset=utf-8", headers={"content-security-policy": REPORT_POLICY})


@router.get("/judge")
def show_judge(request: Request) -> Response:
    """Show the card of the judge and its agreement with labels."""
    return render_page(request, "judge", view=detail_views.load_judge_view(get_server(request)))


@router.get("/settings")
def show_settings(request: Request) -> Response:
    """Show the settings of the server."""
    return render_page(request, "settings", view=detail_views.load_settings(get_server(request)))


@access_router.get("/access")
def show_access(request: Request) -> Response:
    """Show the tokens, and who did what."""
    return render_access(request)


@router.get("/help")
def show_help(request: Request) -> Response:
    """Show keyboard shortcuts and the meaning of terms."""
    return render_page(request, "help")
