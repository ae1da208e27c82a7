"""Ingest: what comes in is checked, stored, and then acknowledged; what cannot be taken is refused aloud."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ragfault.errors import InputError, MissingExtra
from ragfault.server.access import require
from ragfault.server.bodies import read_body
from ragfault.server.desk import Desk
from ragfault.server.native import Read, read_marks, read_traces
from ragfault.server.problems import problem
from ragfault.sources.spans import Decoded, decode

__all__ = ["router"]

router = APIRouter(dependencies=[Depends(require("ingest"))])

RETRY = "2"
"""Seconds after which one that was refused for now may come again."""

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


async def _body(request: Request) -> bytes:
    """The body of a request that may be taken now."""
    desk: Desk = request.app.state.desk
    try:
        desk.rates.check(request.client.host if request.client else "")
        if desk.store.pending >= desk.settings.limits.pending or desk.scorers.full:
            raise HTTPException(
                429, "more comes than can be stored and scored. Send it again later.", {"Retry-After": RETRY}
            )
        return await read_body(request, desk.settings.limits)
    except HTTPException as error:
        desk.tallies.add("dropped" if error.status_code == 429 else "rejected")
        raise


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=JSON)


# --- native ----------------------------------------------------------------------------------------


@router.post("/v1/ragfault/traces", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_traces(request: Request) -> Response:
    """Take traces as JSON: one, several in a list, or one a line. Each is taken once, by its id."""
    desk: Desk = request.app.state.desk
    body = await _body(request)
    try:
        read: Read = await run_in_threadpool(_read, desk, body)
    except InputError as error:
        desk.tallies.add("rejected")
        return problem(400, str(error))
    desk.tallies.add("rejected", len(read.refused))
    faults = [each._asdict() for each in read.refused[:100]]
    if not read.traces:
        return problem(
            400, f"none of {len(read.refused):,} is a trace: {faults[0]['problem']}", refused=faults
        )
    found = await asyncio.wrap_future(desk.store.append(read.traces))
    desk.tallies.add("taken", found.taken)
    desk.tallies.add("repeated", found.repeated)
    desk.scorers.called(found.taken)
    return _json({**found._asdict(), "rejected": len(read.refused), "refused": faults})


def _read(desk: Desk, body: bytes) -> Read:
    """The traces of a body as they may be kept."""
    found = read_traces(body, desk.settings.limits)
    return found._replace(traces=desk.redaction.traces(found.traces))


@router.post("/v1/ragfault/marks", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_marks(request: Request) -> Response:
    """Take marks: deployments, new indexes, changed prompts."""
    desk: Desk = request.app.state.desk
    try:
        found = read_marks(await _body(request))
    except InputError as error:
        return problem(400, str(error))
    added = await asyncio.wrap_future(desk.store.mark(found, desk.now()))
    return _json({"taken": added, "repeated": len(found) - added})


# --- OTLP ------------------------------------------------------------------------------------------


@router.post("/v1/traces", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_spans(request: Request) -> Response:
    """Take spans by OTLP/HTTP: protobuf or JSON, gzip or not."""
    return await _otlp(request, "traces")


@router.post("/v1/logs", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_logs(request: Request) -> Response:
    """Take the records of a log by OTLP/HTTP; those that name a trace are joined to it."""
    return await _otlp(request, "logs")


async def _otlp(request: Request, signal: Any) -> Response:
    desk: Desk = request.app.state.desk
    content = request.headers.get("content-type", PROTOBUF)
    kind = JSON if content.split(";")[0].strip().lower() == JSON else PROTOBUF
    try:
        body = await _body(request)
        found = await run_in_threadpool(_decoded, desk, body, signal, content)
    except InputError as error:
        desk.tallies.add("rejected")
        return _status(400, str(error), kind)
    except MissingExtra as error:
        return _status(501, str(error), kind)
    except HTTPException as error:
        return _status(error.status_code, str(error.detail), kind, dict(error.headers or {}))
    desk.tallies.add("rejected", found.refused)
    if found.operations or found.events:
        await asyncio.wrap_future(desk.joiner.take(found.operations, found.events))
    return _partial(found.refused, found.message, signal, kind)


def _decoded(desk: Desk, body: bytes, signal: Any, content: str) -> Decoded:
    """What an export request holds, as it may be held."""
    return desk.redaction.decoded(decode(body, signal, content=content))


def _partial(refused: int, message: str, signal: str, kind: str) -> Response:
    """The answer that OTLP has for a request that was taken, or taken in part."""
    if kind == JSON:
        name = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
        said = {"partialSuccess": {name: str(refused), "errorMessage": message}} if message else {}
        return _json(said)
    inner = (b"\x08" + _varint(refused) if refused else b"") + _field(0x12, message.encode())
    return Response(_field(0x0A, inner) if message else b"", media_type=PROTOBUF)


def _status(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> Response:
    """The answer that OTLP has for a request that was refused: a `google.rpc.Status`."""
    if kind == JSON:
        return problem(status, message, headers, message=message)
    return Response(_field(0x12, message.encode()), status, headers, PROTOBUF)


def _field(tag: int, value: bytes) -> bytes:
    """A field of a protobuf message that has a length; nothing where it is empty."""
    return bytes([tag]) + _varint(len(value)) + value if value else b""


def _varint(number: int) -> bytes:
    """A whole number as protobuf writes it.

    >>> _varint(300)
    b'\\xac\\x02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
