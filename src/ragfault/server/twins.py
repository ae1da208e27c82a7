"""The JSON twins of the pages, health, and the description of the interface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ragfault.findings.monitoring_windows import DAY
from ragfault.server import dashboard_views as seen
from ragfault.server import views
from ragfault.server.access import require
from ragfault.server.dashboard_drift import drifted
from ragfault.server.dashboard_insights import together
from ragfault.server.description import describe
from ragfault.server.desk import Desk
from ragfault.server.exposition import exposition
from ragfault.store import State, Wanted

__all__ = ["as_json", "asked", "compared", "public", "router"]

public = APIRouter()
router = APIRouter(dependencies=[Depends(require("read"))])

Seconds = Annotated[float | None, Query(allow_inf_nan=False)]
Value = Annotated[float | None, Query(allow_inf_nan=False)]
Text = Annotated[str | None, Query(max_length=1000)]
Moment = Annotated[str, Query(max_length=40)]
"""Seconds since 1970, or a day and a time of day in UTC."""


def asked(  # noqa: PLR0913, PLR0917 - the parameters of a page
    since: Seconds = None,
    until: Seconds = None,
    route: Text = None,
    model: Text = None,
    conversation: Text = None,
    state: State | None = None,
    judge: Text = None,
    text: Text = None,
    metric: Text = None,
    low: Value = None,
    high: Value = None,
    sort: Annotated[str, Query(max_length=200)] = "time",
    order: Literal["descending", "ascending"] = "descending",
    after: Text = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Wanted:
    """The selection that a page's parameters ask for."""
    return Wanted(**locals())


def as_json(content: Any) -> Response:
    """A record as a response."""
    return Response(msgspec.json.encode(content), media_type="application/json")


@public.get("/healthz")
async def health() -> Response:
    """Whether the server is up."""
    return as_json({"status": "ok"})


@router.get("/openapi.json")
async def interface(request: Request) -> Response:
    """The description of the interface, as OpenAPI 3.1."""
    return as_json(await run_in_threadpool(described, request.app))


def described(app: FastAPI) -> dict[str, Any]:
    """The description, made once for each server; whether a token is needed may change while it runs."""
    if app.openapi_schema is None:
        app.openapi_schema = describe(app)
    return app.openapi_schema | ({"security": [{}, {"token": []}]} if app.state.access.open else {})


@router.get("/metrics")
async def prometheus(request: Request) -> Response:
    """Histograms per metric and route, and how the server fares, as Prometheus reads it."""
    text = await run_in_threadpool(exposition, request.app.state.desk)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/overview.json")
async def overview(request: Request) -> Response:
    """How everything stands now."""
    return as_json(await run_in_threadpool(views.overview, request.app.state.desk))


@router.get("/metrics/{name}.json")
async def metric(
    request: Request,
    name: str,
    route: Text = None,
    window: Annotated[int, Query(ge=1, le=366 * DAY)] = DAY,
) -> Response:
    """How one metric went."""
    found = "" if route == seen.UNROUTED else route
    return as_json(await run_in_threadpool(views.metric, request.app.state.desk, name, found, window))


@router.get("/compare.json")
async def compare(
    request: Request,
    since: Moment,
    until: Moment,
    since2: Moment,
    until2: Moment,
    route: Text = None,
) -> Response:
    """Two windows of a route beside each other: from since to until, and from since2 to until2."""
    asked = {"since": since, "until": until, "since2": since2, "until2": until2, "route": route or ""}
    return as_json(await run_in_threadpool(compared, request.app.state.desk, asked))


def compared(desk: Desk, asked: Mapping[str, str]) -> seen.Compared:
    """The windows that parameters ask for. Raises UsageError for what is no time, and for windows without length."""
    ends = [
        math.floor((seen.selection([("since", asked.get(name, ""))]).since or 0) / 60)
        for name in ("since", "until", "since2", "until2")
    ]
    route = asked.get("route", "")
    wanted = None if route in ("", seen.UNROUTED) else route
    return seen.compare(desk, wanted, (ends[0], ends[1]), (ends[2], ends[3]))


@router.get("/insights.json")
async def insights(
    request: Request,
    route: Text = None,
    window: Annotated[int, Query(ge=1, le=7 * DAY)] = DAY,
) -> Response:
    """What goes together: the triad over time, how values lie, and what they go with."""
    found = "" if route == seen.UNROUTED else route or None
    return as_json(await run_in_threadpool(together, request.app.state.desk, found, window))


@router.get("/drift.json")
async def drift(
    request: Request,
    run: Annotated[str, Query(max_length=400)],
    route: Text = None,
    window: Annotated[int, Query(ge=1, le=366 * DAY)] = DAY,
) -> Response:
    """How far live traffic has moved from a run of the store."""
    found = "" if route == seen.UNROUTED else route or None
    return as_json(await run_in_threadpool(drifted, request.app.state.desk, run, found, window))


@router.get("/traces.json")
async def traces(request: Request, wanted: Annotated[Wanted, Depends(asked)]) -> Response:
    """A page of traces."""
    return as_json(await run_in_threadpool(views.traces, request.app.state.desk, wanted))


@router.get("/traces/{id:path}.json")
async def trace(request: Request, id: str, named: Annotated[Text, Query(alias="id")] = None) -> Response:
    """One trace with all that is known of it; one whose id no path can hold is asked for as `-`, with its id behind."""
    wanted = named if id == "-" and named is not None else id
    return as_json(await run_in_threadpool(views.trace, request.app.state.desk, wanted))


@router.get("/alerts.json")
async def alerts(request: Request) -> Response:
    """Alerts, and what happened to them."""
    return as_json(await run_in_threadpool(views.alerts, request.app.state.desk))


@router.get("/clusters.json")
async def clusters(request: Request) -> Response:
    """Failing traces that fail alike, as they were found last."""
    return as_json(await run_in_threadpool(seen.grouped, request.app.state.desk))


@router.get("/judge.json")
async def judge(request: Request) -> Response:
    """How far the judge can be trusted."""
    return as_json(await run_in_threadpool(seen.judge, request.app.state.desk))


@router.get("/settings.json")
async def settings(request: Request) -> Response:
    """What the server was told when it started, without anything secret."""
    return as_json(await run_in_threadpool(seen.settings, request.app.state.desk))


@router.get("/runs.json")
async def runs(request: Request) -> Response:
    """The runs in the folder of the store."""
    return as_json(await run_in_threadpool(views.runs, request.app.state.desk))


@router.get("/export.zip")
async def export(request: Request, wanted: Annotated[Wanted, Depends(asked)]) -> Response:
    """The judged traces of a selection as a run, packed."""
    packed = await run_in_threadpool(views.packed, request.app.state.desk, wanted)
    return Response(packed, media_type="application/zip")
