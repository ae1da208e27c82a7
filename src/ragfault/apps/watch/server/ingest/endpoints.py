"""Ingest endpoints: request bodies are checked, stored, and then acknowledged; the rest is rejected with a reason."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ragfault.apps.watch.server.ingest.incoming_traces import ParsedTraces, RejectedRecord, read_marks, read_traces
from ragfault.apps.watch.server.json_routes import Server
from ragfault.apps.watch.server.state import ServerState
from ragfault.http.bodies import read_body
from ragfault.http.json_routes import JSON, JsonRoute, json_response
from ragfault.http.problems import RETRY_AFTER, SCHEMA_PREFIX, problem_response, problem_responses
from ragfault.http.security import require_role
from ragfault.io.otel.otlp import decode_request
from ragfault.io.otel.spans import DecodedRequest
from ragfault.model.errors import InputError, MissingExtra

PROTOBUF = "application/x-protobuf"
WRITE_ERRORS = (400, 401, 403, 408, 413, 415, 429, 503)

router = APIRouter(
    route_class=JsonRoute, dependencies=[Depends(require_role("ingest"))], responses=problem_responses(*WRITE_ERRORS)
)

# rejected records that a response lists
MAX_LISTED = 100


class MarksReceipt(msgspec.Struct):
    """Counts of accepted marks."""

    taken: int
    repeated: int


class TracesReceipt(msgspec.Struct):
    """Counts of accepted and rejected traces."""

    taken: int
    repeated: int
    """Traces whose id was stored before."""
    rejected: int
    refused: list[RejectedRecord]
    """The first hundred of the rejected."""
    unread: dict[str, int] = {}
    """Path of the records that is not read → the number of records that have it."""


class OtlpPartialSuccess(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Number of rejected records of an export request, with the reason."""

    rejected_spans: str = ""
    rejected_log_records: str = ""
    error_message: str = ""


class OtlpResponse(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The answer of OTLP to an export request: empty where everything was accepted."""

    partial_success: OtlpPartialSuccess | None = None


async def _receive_body(request: Request, server: ServerState, *, spans: bool = False) -> bytes:
    """Read the body of a request, unless its client sends too much. Raises 429 and what `read_body` raises."""
    try:
        server.rate_limiter.check(request.client.host if request.client else "")
        is_full = server.scoring_workers.is_full or (spans and server.trace_assembler.is_full)
        if is_full or server.store.queued_writes >= server.settings.limits.pending_writes:
            raise HTTPException(
                429,
                "more traces arrive than can be stored and scored. Send them again later.",
                {"Retry-After": RETRY_AFTER},
            )
        return await read_body(request, server.settings.limits)
    except HTTPException as error:
        server.counters.add("dropped" if error.status_code == 429 else "rejected")
        raise


def _describe_body(content: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Describe a request body for OpenAPI, by media type, with the encodings it may have."""
    return {
        "requestBody": {"required": True, "content": {kind: {"schema": content[kind]} for kind in content}},
        "parameters": [
            {
                "name": "Content-Encoding",
                "in": "header",
                "required": False,
                "description": "Compression of the body.",
                "schema": {"type": "string", "enum": ["gzip", "deflate", "identity"]},
            }
        ],
    }


def _one_or_list(name: str) -> dict[str, Any]:
    record = {"$ref": SCHEMA_PREFIX + name}
    return {"anyOf": [record, {"type": "array", "items": record, "minItems": 1}]}


@router.post(
    "/v1/ragfault/traces",
    openapi_extra=_describe_body({JSON: _one_or_list("SentTrace"), "application/x-ndjson": {"type": "string"}}),
)
async def post_traces(request: Request, server: Server) -> Annotated[Response, TracesReceipt]:
    """Store traces sent as JSON: one, several in a list, or one per line; an id is stored once."""
    body = await _receive_body(request, server)
    try:
        parsed = await run_in_threadpool(_parse_traces, server, body)
    except InputError as error:
        server.counters.add("rejected")
        return problem_response(400, str(error))
    server.counters.add("rejected", len(parsed.rejected))
    listed = list(parsed.rejected[:MAX_LISTED])
    if not parsed.traces:
        return problem_response(
            400, f"none of {len(parsed.rejected):,} is a trace: {listed[0].problem}", refused=listed
        )
    counted = (server.counters.minute, "repeated")
    appended = await asyncio.wrap_future(server.store.append_traces(parsed.traces, counted=counted))
    server.counters.add_stored("taken", appended.added)
    server.counters.add_stored("repeated", appended.duplicates)
    server.unread.add(parsed.unread)
    server.scoring_workers.add_waiting(appended.added)
    rejected_count = len(parsed.rejected)
    return json_response(TracesReceipt(appended.added, appended.duplicates, rejected_count, listed, parsed.unread))


def _parse_traces(server: ServerState, body: bytes) -> ParsedTraces:
    parsed = read_traces(body, server.settings.limits)
    return parsed._replace(traces=tuple(map(server.prepare_trace, parsed.traces)))


@router.post("/v1/ragfault/marks", openapi_extra=_describe_body({JSON: _one_or_list("SentMark")}))
async def post_marks(request: Request, server: Server) -> Annotated[Response, MarksReceipt]:
    """Store marks of deployments, new indexes and changed prompts."""
    try:
        marks = read_marks(await _receive_body(request, server))
    except InputError as error:
        return problem_response(400, str(error))
    added = await asyncio.wrap_future(server.store.add_marks(marks, server.now()))
    return json_response(MarksReceipt(added, len(marks) - added))


def _describe_otlp(resources: str, scopes: str, items: str) -> dict[str, Any]:
    """Describe an OTLP endpoint; its JSON schema covers what fails the whole request, not single items."""

    def list_of(name: str, inner: dict[str, Any] | None = None) -> dict[str, Any]:
        items = {} if inner is None else {"items": inner}
        return {"type": "object", "properties": {name: {"type": ["array", "null"], **items}}}

    body = list_of(resources, list_of(scopes, list_of(items)))
    return {
        "responses": {
            200: {"content": {PROTOBUF: {}}},
            **problem_responses(*WRITE_ERRORS, 501, media_types=(PROTOBUF,)),
        },
        "openapi_extra": _describe_body({JSON: body, PROTOBUF: {"type": "string", "format": "binary"}}),
    }


@router.post("/v1/traces", **_describe_otlp("resourceSpans", "scopeSpans", "spans"))
async def post_spans(request: Request, server: Server) -> Annotated[Response, OtlpResponse]:
    """Store spans sent by OTLP/HTTP as protobuf or JSON."""
    return await _store_otlp(request, server, "traces")


@router.post("/v1/logs", **_describe_otlp("resourceLogs", "scopeLogs", "logRecords"))
async def post_logs(request: Request, server: Server) -> Annotated[Response, OtlpResponse]:
    """Store log records sent by OTLP/HTTP; those that name a trace are added to it."""
    return await _store_otlp(request, server, "logs")


async def _store_otlp(request: Request, server: ServerState, signal: Literal["traces", "logs"]) -> Response:
    content_type = request.headers.get("content-type", PROTOBUF)
    kind = JSON if content_type.split(";")[0].strip().lower() == JSON else PROTOBUF
    try:
        body = await _receive_body(request, server, spans=True)
        decoded = await run_in_threadpool(_decode_otlp, server, body, signal, content_type)
    except InputError as error:
        server.counters.add("rejected")
        return _otlp_error(400, str(error), kind)
    except MissingExtra as error:
        return _otlp_error(501, str(error), kind)
    except HTTPException as error:
        return _otlp_error(error.status_code, str(error.detail), kind, dict(error.headers or {}))
    server.counters.add("rejected", decoded.rejected_count)
    decoded = server.trace_assembler.select_spans(decoded)
    if decoded.spans or decoded.events:
        await asyncio.wrap_future(server.trace_assembler.add_spans(decoded.spans, decoded.events))
    return _otlp_success(decoded.rejected_count, decoded.message, signal, kind)


def _decode_otlp(
    server: ServerState, body: bytes, signal: Literal["traces", "logs"], content_type: str
) -> DecodedRequest:
    return server.redaction.redact_spans(decode_request(body, signal, content_type=content_type))


def _otlp_success(rejected: int, message: str, signal: str, kind: str) -> Response:
    """Answer an OTLP request that was accepted, or accepted in part."""
    if kind == JSON:
        counted = "rejected_spans" if signal == "traces" else "rejected_log_records"
        partial = OtlpPartialSuccess(error_message=message, **{counted: str(rejected)}) if message else None
        return json_response(OtlpResponse(partial))
    count = b"\x08" + _encode_varint(rejected) if rejected else b""
    partial_success = count + _encode_field(0x12, message.encode())
    return Response(_encode_field(0x0A, partial_success) if message else b"", media_type=PROTOBUF)


def _otlp_error(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> Response:
    """Answer an OTLP request that was rejected, with a `google.rpc.Status`."""
    if kind == JSON:
        return problem_response(status, message, headers, message=message)
    return Response(_encode_field(0x12, message.encode()), status, headers, PROTOBUF)


# opentelemetry-proto is optional here: OTLP as JSON works without it
def _encode_field(tag: int, value: bytes) -> bytes:
    """Encode a length-delimited protobuf field; nothing where it is empty."""
    return bytes([tag]) + _encode_varint(len(value)) + value if value else b""


def _encode_varint(number: int) -> bytes:
    """Encode a whole number as protobuf does.

    >>> _encode_varint(300)
    b'\\xac\\x02'
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
