"""Ingest endpoints: request bodies are checked, stored, and then acknowledged; the rest is rejected with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ragfault.errors import InputError, MissingExtra
from ragfault.io.otel import DecodedRequest, decode_request
from ragfault.server.ingest.incoming_traces import ParsedTraces, read_marks, read_traces
from ragfault.server.problem_details import problem_response
from ragfault.server.request_limits import read_body
from ragfault.server.security import require_role
from ragfault.server.state import ServerState

router = APIRouter(dependencies=[Depends(require_role("ingest"))])

RETRY_AFTER = "2"
"""Seconds after which one that was refused for now may come again."""

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


async def _receive_body(request: Request) -> bytes:
    """The body of a request that may be taken now."""
    desk: ServerState = request.app.state.server
    try:
        desk.rate_limiter.check(request.client.host if request.client else "")
        if desk.store.queued_writes >= desk.settings.limits.pending_writes or desk.scoring_workers.is_full:
            raise HTTPException(
                429,
                "more comes than can be stored and scored. Send it again later.",
                {"Retry-After": RETRY_AFTER},
            )
        return await read_body(request, desk.settings.limits)
    except HTTPException as error:
        desk.counters.add("dropped" if error.status_code == 429 else "rejected")
        raise


def _json_response(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=JSON)


# --- native ----------------------------------------------------------------------------------------


@router.post("/v1/ragfault/traces", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_traces(request: Request) -> Response:
    """Take traces as JSON: one, several in a list, or one a line. Each is taken once, by its id."""
    desk: ServerState = request.app.state.server
    body = await _receive_body(request)
    try:
        read: ParsedTraces = await run_in_threadpool(_parse_traces, desk, body)
    except InputError as error:
        desk.counters.add("rejected")
        return problem_response(400, str(error))
    desk.counters.add("rejected", len(read.rejected))
    faults = [each._asdict() for each in read.rejected[:100]]
    if not read.traces:
        return problem_response(
            400, f"none of {len(read.rejected):,} is a trace: {faults[0]['problem']}", refused=faults
        )
    found = await asyncio.wrap_future(desk.store.append_traces(read.traces))
    desk.counters.add("taken", found.added)
    desk.counters.add("repeated", found.duplicates)
    desk.scoring_workers.add_waiting(found.added)
    return _json_response(
        {
            "taken": found.added,
            "repeated": found.duplicates,
            "rejected": len(read.rejected),
            "refused": faults,
        }
    )


def _parse_traces(server: ServerState, body: bytes) -> ParsedTraces:
    """The traces of a body as they may be kept."""
    found = read_traces(body, server.settings.limits)
    return found._replace(traces=server.redaction.redact_traces(found.traces))


@router.post("/v1/ragfault/marks", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_marks(request: Request) -> Response:
    """Take marks: deployments, new indexes, changed prompts."""
    desk: ServerState = request.app.state.server
    try:
        found = read_marks(await _receive_body(request))
    except InputError as error:
        return problem_response(400, str(error))
    added = await asyncio.wrap_future(desk.store.add_marks(found, desk.now()))
    return _json_response({"taken": added, "repeated": len(found) - added})


# --- OTLP ------------------------------------------------------------------------------------------


@router.post("/v1/traces", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_spans(request: Request) -> Response:
    """Take spans by OTLP/HTTP: protobuf or JSON, gzip or not."""
    return await _take_otlp(request, "traces")


@router.post("/v1/logs", openapi_extra={"requestBody": {"content": {JSON: {"schema": {}}}}})
async def post_logs(request: Request) -> Response:
    """Take the records of a log by OTLP/HTTP; those that name a trace are joined to it."""
    return await _take_otlp(request, "logs")


async def _take_otlp(request: Request, signal: Any) -> Response:
    desk: ServerState = request.app.state.server
    content = request.headers.get("content-type", PROTOBUF)
    kind = JSON if content.split(";")[0].strip().lower() == JSON else PROTOBUF
    try:
        body = await _receive_body(request)
        found = await run_in_threadpool(_decode_otlp, desk, body, signal, content)
    except InputError as error:
        desk.counters.add("rejected")
        return _otlp_error(400, str(error), kind)
    except MissingExtra as error:
        return _otlp_error(501, str(error), kind)
    except HTTPException as error:
        return _otlp_error(error.status_code, str(error.detail), kind, dict(error.headers or {}))
    desk.counters.add("rejected", found.rejected_count)
    if found.spans or found.events:
        await asyncio.wrap_future(desk.trace_assembler.add_spans(found.spans, found.events))
    return _otlp_success(found.rejected_count, found.message, signal, kind)


def _decode_otlp(server: ServerState, body: bytes, signal: Any, content: str) -> DecodedRequest:
    """What an export request holds, as it may be held."""
    return server.redaction.redact_spans(decode_request(body, signal, content_type=content))


def _otlp_success(refused: int, message: str, signal: str, kind: str) -> Response:
    """The answer that OTLP has for a request that was taken, or taken in part."""
    if kind == JSON:
        name = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
        said = {"partialSuccess": {name: str(refused), "errorMessage": message}} if message else {}
        return _json_response(said)
    inner = (b"\x08" + _encode_varint(refused) if refused else b"") + _encode_field(0x12, message.encode())
    return Response(_encode_field(0x0A, inner) if message else b"", media_type=PROTOBUF)


def _otlp_error(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> Response:
    """The answer that OTLP has for a request that was refused: a `google.rpc.Status`."""
    if kind == JSON:
        return problem_response(status, message, headers, message=message)
    return Response(_encode_field(0x12, message.encode()), status, headers, PROTOBUF)


def _encode_field(tag: int, value: bytes) -> bytes:
    """A field of a protobuf message that has a length; nothing where it is empty."""
    return bytes([tag]) + _encode_varint(len(value)) + value if value else b""


def _encode_varint(number: int) -> bytes:
    """A whole number as protobuf writes it.

    >>> _encode_varint(300)
    b'\\xac\\x02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
