"""Routes of the JSON API, health and Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from pydantic import BaseModel
from pydantic.json_schema import SkipJsonSchema
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ragfault.apps.watch.monitoring.incidents import IncidentKind
from ragfault.apps.watch.monitoring.rollups import Rollup, bin_edges, merge_by_key
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES
from ragfault.apps.watch.server.api import detail_views, traffic_views
from ragfault.apps.watch.server.api.access_api import TokenRequest
from ragfault.apps.watch.server.api.insight_views import (
    INSIGHT_MINUTES,
    DriftView,
    InsightsView,
    VersionsView,
    load_drift,
    load_insights,
    load_versions,
)
from ragfault.apps.watch.server.api.trace_parts import BoundedTrace, TracePart, bound_trace, load_trace_part
from ragfault.apps.watch.server.counters import LATENCY_EDGES, LatencyHistogram
from ragfault.apps.watch.server.ingest.incoming_traces import SentMark, SentTrace
from ragfault.apps.watch.server.ingest.label_limits import OTHER_LABEL
from ragfault.apps.watch.server.json_routes import Server
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import (
    ConversationSummary,
    LabelPage,
    TracePage,
    TraceSelection,
    TraceState,
)
from ragfault.http.hosting import INVALID, TextParam, TimeParam, TimeRange, Times, parse_route
from ragfault.http.json_routes import JsonRoute, build_openapi
from ragfault.http.problems import RETRY_AFTER, problem_responses
from ragfault.http.security import require_role
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import GoldMode

# histograms that Prometheus gets: of so many routes as fit, and the others together
MAX_SERIES = 320
# bytes of these histograms: with long names of routes fewer fit
MAX_SERIES_BYTES = 900_000


def render_metrics(server: ServerState) -> str:
    """Render all metrics in the Prometheus text format. A value on the edge of two bins counts in the upper one."""
    return "\n".join([*_render_server(server), *_render_scores(server), *_render_checks(server)]) + "\n"


def _render_server(server: ServerState) -> Iterator[str]:
    totals, scoring = server.store.compute_totals(), server.scoring_workers.summarize()
    for name, kind, text, value in (
        ("traces_stored", "gauge", "Traces in the store.", totals.traces),
        ("traces_waiting", "gauge", "Traces that wait to be judged.", totals.waiting),
        ("spans_pending", "gauge", "Bodies whose traces are not whole yet.", server.trace_assembler.pending_bodies),
        ("store_bytes", "gauge", "Bytes used on the disk.", totals.bytes),
        ("traces_scored_total", "counter", "Traces judged since the start.", int(scoring["scored"])),
        ("alerts_firing", "gauge", "Alerts that fire.", len(server.load_alert_state().firing)),
    ):
        yield from _render_head(f"ragfault_{name}", kind, text)
        yield f"ragfault_{name} {value}"
    kinds = [incident.kind for incident in traffic_views.list_open_incidents(server)]
    yield from _render_head("ragfault_incidents_open", "gauge", "Open incidents by kind.")
    for kind in get_args(IncidentKind):
        yield f'ragfault_incidents_open{{kind="{kind}"}} {kinds.count(kind)}'
    yield from _render_latency(server.scoring_workers.latency)
    yield from _render_head("ragfault_ingest_total", "counter", "What became of what came in, since the start.")
    for outcome, n in server.counters.totals.items():
        yield f'ragfault_ingest_total{{outcome="{_escape_label(outcome)}"}} {n}'


def _render_latency(latency: LatencyHistogram) -> Iterator[str]:
    yield from _render_head("ragfault_scoring_seconds", "histogram", "From being stored to being judged.")
    for edge, n in zip(LATENCY_EDGES, latency.cumulative_counts(), strict=True):
        yield f'ragfault_scoring_seconds_bucket{{le="{edge:g}"}} {n}'
    yield f'ragfault_scoring_seconds_bucket{{le="+Inf"}} {latency.count}'
    yield f"ragfault_scoring_seconds_sum {latency.sum}"
    yield f"ragfault_scoring_seconds_count {latency.count}"


def _render_head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _render_scores(server: ServerState) -> list[str]:
    measures, rollups = server.measures, server.store.read_total_rollups()
    limit = MAX_SERIES // max(1, len(measures))
    while True:
        lines = list(_render_rollups(bound_routes(rollups, limit), measures))
        size = sum(len(line.encode()) + 1 for line in lines)
        if size <= MAX_SERIES_BYTES or limit <= 1:
            return lines
        # routes with long names
        limit = min(limit - 1, limit * MAX_SERIES_BYTES // size)


def _render_rollups(rollups: Sequence[Rollup], measures: Mapping[str, MetricInfo]) -> Iterator[str]:
    yield from _render_head("ragfault_score", "histogram", "The values of a metric on a route.")
    for rollup in rollups:
        yield from _render_histogram(rollup, measures[rollup.metric])
    yield from _render_head("ragfault_score_missing_total", "counter", "Scores without a value.")
    for rollup in rollups:
        labels = _format_labels(rollup, measures[rollup.metric])
        for state, n in (("undefined", rollup.undefined), ("failed", rollup.failed)):
            yield f'ragfault_score_missing_total{{{labels},status="{state}"}} {n}'


def bound_routes(rollups: Sequence[Rollup], limit: int) -> tuple[Rollup, ...]:
    """Merge the roll-ups of all but the routes with the most values into one route, "other"."""
    sizes: dict[str | None, int] = {}
    for rollup in rollups:
        sizes[rollup.route] = max(sizes.get(rollup.route, 0), rollup.n)
    named = set(sorted(sizes, key=lambda route: (route == OTHER_LABEL, -sizes[route]))[: max(1, limit)])
    return merge_by_key(
        rollup if rollup.route in named else msgspec.structs.replace(rollup, route=OTHER_LABEL) for rollup in rollups
    )


def _render_checks(server: ServerState) -> Iterator[str]:
    """Yield the spot checks of today and the estimates from them; nothing without spot checks."""
    if server.ppi_estimator is None:
        return
    now = server.ppi_estimator.progress
    yield from _render_head("ragfault_checks", "gauge", "What became today (UTC) of traces drawn for the better judge.")
    for state in ("checked", "failed", "left", "waiting"):
        yield f'ragfault_checks{{state="{state}"}} {getattr(now, state)}'
    yield from _render_head(
        "ragfault_checks_errors_total", "counter", "How often it could not be asked, since the start."
    )
    yield f"ragfault_checks_errors_total {now.errors}"
    yield from _render_head("ragfault_checks_tokens", "gauge", "Tokens of today (UTC), sent and received.")
    yield f"ragfault_checks_tokens {now.tokens}"
    if now.dollars is not None:
        yield from _render_head("ragfault_checks_dollars", "gauge", "US$ of today (UTC).")
        yield f"ragfault_checks_dollars {now.dollars:g}"
    estimates = [(key, estimate) for key, estimate in server.ppi_estimator.list_daily() if estimate.mean is not None]
    for name, text in (("", "The mean"), ("_low", "The lower"), ("_high", "The upper")):
        suffix = "by the better judge over the last day." if not name else "end of its 95 % interval."
        yield from _render_head(f"ragfault_ppi{name}", "gauge", f"{text} {suffix}")
        for (metric, route), estimate in estimates:
            value = getattr(estimate, name[1:] or "mean")
            labels = f'metric="{_escape_label(metric)}",route="{_escape_label(route)}"'
            yield f"ragfault_ppi{name}{{{labels}}} {value:g}"


def _render_histogram(rollup: Rollup, measure: MetricInfo) -> Iterator[str]:
    labels, below = _format_labels(rollup, measure), 0
    for edge, n in zip(bin_edges(measure.low, measure.high)[1:-1], rollup.bins, strict=False):
        below += n
        yield f'ragfault_score_bucket{{{labels},le="{edge:g}"}} {below}'
    yield f'ragfault_score_bucket{{{labels},le="+Inf"}} {rollup.n}'
    yield f"ragfault_score_sum{{{labels}}} {rollup.sum}"
    yield f"ragfault_score_count{{{labels}}} {rollup.n}"


def _format_labels(rollup: Rollup, measure: MetricInfo) -> str:
    pairs = {"metric": rollup.metric, "layer": measure.layer, "route": rollup.route or ""}
    return ",".join(f'{name}="{_escape_label(value)}"' for name, value in pairs.items())


def _escape_label(text: str) -> str:
    """Escape the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


public_router = APIRouter(route_class=JsonRoute)
router = APIRouter(
    route_class=JsonRoute, dependencies=[Depends(require_role("read"))], responses=problem_responses(401, 403, 429, 503)
)

UNKNOWN: Any = {"responses": problem_responses(404, 422)}

# SkipJsonSchema: no URL can hold a null, absent is absent
NumberParam = Annotated[float | SkipJsonSchema[None], Query(allow_inf_nan=False)]
NameParam = Annotated[str, Path(min_length=1)]
LimitParam = Annotated[int, Query(ge=1, le=1000)]


class SelectionParams(BaseModel):
    """Query parameters of a selection of traces: the fields of `TraceSelection` but `ids`, with their bounds."""

    since: NumberParam = None
    until: NumberParam = None
    route: TextParam = None
    model: TextParam = None
    conversation: TextParam = None
    state: TraceState | SkipJsonSchema[None] = None
    judge: TextParam = None
    text: TextParam = None
    metric: TextParam = None
    low: NumberParam = None
    high: NumberParam = None
    sort: Annotated[str, Query(max_length=200)] = "time"
    order: Literal["descending", "ascending"] = "descending"
    after: TextParam = None
    limit: LimitParam = 50


def read_selection(params: Annotated[SelectionParams, Query()]) -> TraceSelection:
    """Build the selection that the query parameters ask for."""
    return TraceSelection(**dict(params))


def read_insight_times(
    server: Server,
    window: Annotated[int, Query(ge=1, le=INSIGHT_MINUTES)] = DAY_MINUTES,
    since: TimeParam = "",
    until: TimeParam = "",
) -> TimeRange:
    """Build a range as `read_times` does, of a length that is computed from traces."""
    times = {"window": str(window), "since": since, "until": until}
    return detail_views.parse_range(server, times, longest=INSIGHT_MINUTES)


Selection = Annotated[TraceSelection, Depends(read_selection)]
InsightTimes = Annotated[TimeRange, Depends(read_insight_times)]


@public_router.get("/healthz", responses=problem_responses(403), openapi_extra={"security": []})
def get_health() -> dict[str, str]:
    """Report that the server is up."""
    return {"status": "ok"}


@public_router.get("/livez", responses=problem_responses(403, 503), openapi_extra={"security": []})
def get_liveness(request: Request) -> dict[str, str]:
    """Report that the threads of the server run; after 503 it is to be started again."""
    return _report_parts(request.app.state.scheduler.is_alive, request.app.state.server.store.queue.is_alive)


@public_router.get("/readyz", responses=problem_responses(403, 503), openapi_extra={"security": []})
def get_readiness(request: Request, server: Server) -> dict[str, str]:
    """Report that the store can be read and written, and that scorers and scheduler run; after 503 go elsewhere."""
    server.store.check_readable()
    server.store.check_writable()
    return _report_parts(
        request.app.state.scheduler.is_alive, server.store.queue.is_alive, server.scoring_workers.is_alive
    )


def _report_parts(scheduler: bool, store: bool, scorers: bool = True) -> dict[str, str]:
    """Answer ok where all parts run. Raises 503 with the parts that do not."""
    parts = {"scheduler": scheduler, "store": store, "scorers": scorers}
    if dead := [name for name, runs in parts.items() if not runs]:
        raise HTTPException(503, f"{', '.join(dead)}: ended.", {"Retry-After": RETRY_AFTER})
    return {"status": "ok"}


@router.get("/openapi.json")
def get_interface(request: Request) -> dict[str, Any]:
    """Describe the interface as OpenAPI 3.1."""
    app: FastAPI = request.app
    if app.openapi_schema is None:
        app.openapi_schema = build_openapi(app, (SentTrace, SentMark, TokenRequest))
    root = app.state.server.settings.root_path
    changes: dict[str, Any] = {}
    if root:
        changes["servers"] = [{"url": root}]
    # a token may become necessary while the server runs
    if app.state.access.is_open:
        changes["security"] = [{}, {"token": []}]
    return app.openapi_schema | changes


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
def get_prometheus(server: Server) -> Response:
    """Export histograms per metric and route, and the state of the server, to Prometheus."""
    return Response(render_metrics(server), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/overview.json")
def get_overview(server: Server) -> traffic_views.TrafficOverview:
    """Summarize the open incidents and the present state of all metrics."""
    return traffic_views.load_overview(server)


@router.get("/metrics/{name}.json", **UNKNOWN)
def get_metric(server: Server, name: NameParam, times: Times, route: TextParam = None) -> traffic_views.MetricView:
    """Return the trend of one metric, over a window up to now or between two times."""
    return traffic_views.load_metric(server, name, parse_route(route), times)


@router.get("/compare.json", **INVALID)
def get_comparison(
    server: Server, since: TimeParam, until: TimeParam, since2: TimeParam, until2: TimeParam, route: TextParam = None
) -> detail_views.WindowComparison:
    """Compare two windows of a route: from since to until, and from since2 to until2."""
    return detail_views.compare_requested_windows(server, (since, until, since2, until2), route)


@router.get("/insights.json", **INVALID)
def get_insights(server: Server, times: InsightTimes, route: TextParam = None) -> InsightsView:
    """Return the triad over time, distributions, and correlations, over a window up to now or between two times."""
    return load_insights(server, parse_route(route), times)


@router.get("/versions.json", **INVALID)
def get_versions(
    server: Server, times: InsightTimes, field: Annotated[str, Query(max_length=200)] = ""
) -> VersionsView:
    """Compare the versions of a window: means of all metrics by the values of a cohort field such as release."""
    return load_versions(server, field, times)


@router.get("/drift.json", **UNKNOWN)
def get_drift(
    server: Server, run: Annotated[str, Query(max_length=400)], times: Times, route: TextParam = None
) -> DriftView:
    """Measure how far live traffic has moved from a run of the store, over a window up to now or between two times."""
    return load_drift(server, run, parse_route(route), times)


@router.get("/traces.json", responses=problem_responses(400, 422))
def get_traces(server: Server, selection: Selection) -> TracePage:
    """List a page of traces, of at most 1 MB; `after` its `next` lists the next one."""
    return server.store.list_traces(detail_views.check_metrics(server, selection))


@router.get("/traces/{id:path}.json", **UNKNOWN)
def get_trace(server: Server, id: NameParam, named: Annotated[TextParam, Query(alias="id")] = None) -> BoundedTrace:
    """Return one trace with its verdicts, its scores and its first faulty step, in at most 1 MB.

    A trace whose id fits in no path is requested as `-`, with its id as a query parameter. `left_out` names the lists
    and texts that are not whole.
    """
    view = traffic_views.load_trace_view(server, named if id == "-" and named is not None else id)
    return bound_trace(view, as_json=True)


@router.get("/part.json", **UNKNOWN)
def get_trace_part(
    server: Server,
    trace: Annotated[str, Query(min_length=1, max_length=1000)],
    part: Annotated[str, Query(min_length=1, max_length=2000, description="A JSON pointer: /trace/chunks/3/text.")],
    after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> TracePart:
    """Return a page of one list or text of a trace, from behind its first `after` items or characters."""
    return load_trace_part(server, trace, part, after)


@router.get("/incidents.json", **INVALID)
def get_incidents(server: Server, until: NumberParam = None, limit: LimitParam = 50) -> traffic_views.IncidentsView:
    """Return the open incidents and a page of those that are over, the latest first."""
    return traffic_views.load_incidents(server, until, limit)


@router.get("/alerts.json", **INVALID)
def get_alerts(server: Server, until: NumberParam = None, limit: LimitParam = 200) -> traffic_views.AlertsView:
    """Return the alerts and a page of their history, the latest first."""
    return traffic_views.load_alerts(server, until, limit)


@router.get("/conversations.json", **INVALID)
def get_conversations(
    server: Server, until: NumberParam = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> tuple[ConversationSummary, ...]:
    """List conversations, the latest first; `until` the time of the last line lists those before it."""
    return server.store.list_conversations(until, limit)


@router.get("/clusters.json", **UNKNOWN)
def get_clusters(
    server: Server, after: Annotated[str, Query(max_length=200)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 50
) -> detail_views.ClustersView:
    """Return a page of the latest clusters of failing traces; `after` its `next` returns the next one."""
    return detail_views.load_clusters(server, after, limit)


@router.get("/labels.json", **INVALID)
def get_labels(server: Server, after: Annotated[int, Query(ge=0, lt=2**62)] = 0, limit: LimitParam = 50) -> LabelPage:
    """List a page of human labels in the order of arrival; `after` its `next` lists the next one."""
    return server.store.list_labels(after, limit)


@router.get("/judge.json")
def get_judge(server: Server) -> detail_views.JudgeView:
    """Return the card of the judge and its agreement with human labels."""
    return detail_views.load_judge_view(server)


@router.get("/settings.json")
def get_settings(server: Server) -> detail_views.SettingsView:
    """Return the settings of the server without secrets."""
    return detail_views.load_settings(server)


@router.get("/runs.json", **INVALID)
def get_runs(
    server: Server, after: Annotated[str, Query(max_length=400)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 50
) -> tuple[traffic_views.RunEntry, ...]:
    """List the runs in the folder of the store by name; `after` the last one of a page lists the next."""
    return traffic_views.list_runs(server, after, limit)


@router.get(
    "/export.zip",
    responses={**problem_responses(422), 200: {"content": {"application/zip": {}}}},
    response_class=Response,
)
def get_export(
    request: Request, server: Server, selection: Selection, gold: GoldMode | SkipJsonSchema[None] = None
) -> Response:
    """Export the judged traces of a selection as a run in a ZIP file, whose comment holds the notices.

    `gold` is its use in the scores; by default that of the traces.
    """
    request.app.state.audit.record(request, "traces_downloaded", request.url.query)
    return Response(traffic_views.export_zip(server, selection, gold), media_type="application/zip")
