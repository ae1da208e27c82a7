"""Routes of the JSON API: the view of each dashboard page, health, OpenAPI and Prometheus."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ragfault.analysis.monitoring.windows import DAY_MINUTES
from ragfault.server.api import detail_views as seen
from ragfault.server.api import traffic_views
from ragfault.server.api.insight_views import load_drift, load_insights
from ragfault.server.api.openapi import build_openapi
from ragfault.server.api.prometheus import render_metrics
from ragfault.server.security import require_role
from ragfault.server.state import ServerState
from ragfault.server.storage import TraceSelection, TraceState

public_router = APIRouter()
router = APIRouter(dependencies=[Depends(require_role("read"))])

SecondsParam = Annotated[float | None, Query(allow_inf_nan=False)]
ValueParam = Annotated[float | None, Query(allow_inf_nan=False)]
TextParam = Annotated[str | None, Query(max_length=1000)]
TimeParam = Annotated[str, Query(max_length=40)]
"""Seconds since 1970, or a day and a time of day in UTC."""


def read_selection(  # noqa: PLR0913, PLR0917 - the parameters of a page
    since: SecondsParam = None,
    until: SecondsParam = None,
    route: TextParam = None,
    model: TextParam = None,
    conversation: TextParam = None,
    state: TraceState | None = None,
    judge: TextParam = None,
    text: TextParam = None,
    metric: TextParam = None,
    low: ValueParam = None,
    high: ValueParam = None,
    sort: Annotated[str, Query(max_length=200)] = "time",
    order: Literal["descending", "ascending"] = "descending",
    after: TextParam = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> TraceSelection:
    """The selection that a page's parameters ask for."""
    return TraceSelection(**locals())


def json_response(content: Any) -> Response:
    """A record as a response."""
    return Response(msgspec.json.encode(content), media_type="application/json")


@public_router.get("/healthz")
async def get_health() -> Response:
    """Whether the server is up."""
    return json_response({"status": "ok"})


@router.get("/openapi.json")
async def get_interface(request: Request) -> Response:
    """The description of the interface, as OpenAPI 3.1."""
    return json_response(await run_in_threadpool(load_openapi, request.app))


def load_openapi(app: FastAPI) -> dict[str, Any]:
    """The description, made once for each server; whether a token is needed may change while it runs."""
    if app.openapi_schema is None:
        app.openapi_schema = build_openapi(app)
    return app.openapi_schema | ({"security": [{}, {"token": []}]} if app.state.access.is_open else {})


@router.get("/metrics")
async def get_prometheus(request: Request) -> Response:
    """Histograms per metric and route, and how the server fares, as Prometheus reads it."""
    text = await run_in_threadpool(render_metrics, request.app.state.server)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/overview.json")
async def get_overview(request: Request) -> Response:
    """How everything stands now."""
    return json_response(await run_in_threadpool(traffic_views.load_overview, request.app.state.server))


@router.get("/metrics/{name}.json")
async def get_metric(
    request: Request,
    name: str,
    route: TextParam = None,
    window: Annotated[int, Query(ge=1, le=366 * DAY_MINUTES)] = DAY_MINUTES,
) -> Response:
    """How one metric went."""
    found = "" if route == seen.NO_ROUTE else route
    return json_response(
        await run_in_threadpool(traffic_views.load_metric, request.app.state.server, name, found, window)
    )


@router.get("/compare.json")
async def get_comparison(
    request: Request,
    since: TimeParam,
    until: TimeParam,
    since2: TimeParam,
    until2: TimeParam,
    route: TextParam = None,
) -> Response:
    """Two windows of a route beside each other: from since to until, and from since2 to until2."""
    asked = {"since": since, "until": until, "since2": since2, "until2": until2, "route": route or ""}
    return json_response(await run_in_threadpool(compare_requested_windows, request.app.state.server, asked))


def compare_requested_windows(server: ServerState, asked: Mapping[str, str]) -> seen.WindowComparison:
    """The windows that parameters ask for. Raises UsageError for what is no time, and for windows without length."""
    ends = [
        math.floor((seen.parse_selection([("since", asked.get(name, ""))]).since or 0) / 60)
        for name in ("since", "until", "since2", "until2")
    ]
    route = asked.get("route", "")
    wanted = None if route in ("", seen.NO_ROUTE) else route
    return seen.compare_windows(server, wanted, (ends[0], ends[1]), (ends[2], ends[3]))


@router.get("/insights.json")
async def get_insights(
    request: Request,
    route: TextParam = None,
    window: Annotated[int, Query(ge=1, le=7 * DAY_MINUTES)] = DAY_MINUTES,
) -> Response:
    """What goes together: the triad over time, how values lie, and what they go with."""
    found = "" if route == seen.NO_ROUTE else route or None
    return json_response(await run_in_threadpool(load_insights, request.app.state.server, found, window))


@router.get("/drift.json")
async def get_drift(
    request: Request,
    run: Annotated[str, Query(max_length=400)],
    route: TextParam = None,
    window: Annotated[int, Query(ge=1, le=366 * DAY_MINUTES)] = DAY_MINUTES,
) -> Response:
    """How far live traffic has moved from a run of the store."""
    found = "" if route == seen.NO_ROUTE else route or None
    return json_response(await run_in_threadpool(load_drift, request.app.state.server, run, found, window))


@router.get("/traces.json")
async def get_traces(
    request: Request, selection: Annotated[TraceSelection, Depends(read_selection)]
) -> Response:
    """A page of traces."""
    return json_response(
        await run_in_threadpool(traffic_views.list_traces, request.app.state.server, selection)
    )


@router.get("/traces/{id:path}.json")
async def get_trace(
    request: Request, id: str, named: Annotated[TextParam, Query(alias="id")] = None
) -> Response:
    """One trace with all that is known of it; one whose id no path can hold is asked for as `-`, with its id behind."""
    wanted = named if id == "-" and named is not None else id
    return json_response(await run_in_threadpool(traffic_views.load_trace, request.app.state.server, wanted))


@router.get("/alerts.json")
async def get_alerts(request: Request) -> Response:
    """Alerts, and what happened to them."""
    return json_response(await run_in_threadpool(traffic_views.load_alerts, request.app.state.server))


@router.get("/clusters.json")
async def get_clusters(request: Request) -> Response:
    """Failing traces that fail alike, as they were found last."""
    return json_response(await run_in_threadpool(seen.load_clusters, request.app.state.server))


@router.get("/judge.json")
async def get_judge(request: Request) -> Response:
    """How far the judge can be trusted."""
    return json_response(await run_in_threadpool(seen.load_judge_view, request.app.state.server))


@router.get("/settings.json")
async def get_settings(request: Request) -> Response:
    """What the server was told when it started, without anything secret."""
    return json_response(await run_in_threadpool(seen.load_settings, request.app.state.server))


@router.get("/runs.json")
async def get_runs(request: Request) -> Response:
    """The runs in the folder of the store."""
    return json_response(await run_in_threadpool(traffic_views.list_runs, request.app.state.server))


@router.get("/export.zip")
async def get_export(
    request: Request, selection: Annotated[TraceSelection, Depends(read_selection)]
) -> Response:
    """The judged traces of a selection as a run, packed."""
    packed = await run_in_threadpool(traffic_views.export_zip, request.app.state.server, selection)
    return Response(packed, media_type="application/zip")
