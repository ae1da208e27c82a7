"""OTLP export requests: decompress the body, decode JSON or protobuf, and apply the limits."""

from __future__ import annotations

import binascii
import zlib
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ragfault.io.otel.otlp_protobuf import read_logs_protobuf, read_spans_protobuf
from ragfault.io.otel.spans import (
    DEFAULT_LIMITS,
    VECTOR_SUFFIX,
    DecodedRequest,
    DecodeLimits,
    LimitChecker,
    OtelSpan,
    SpanEvent,
    check_span_ids,
    convert_decimal_id,
    parse_linked_id,
    parse_status,
)
from ragfault.model.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
ZLIB_AUTO_DETECT = 32 + zlib.MAX_WBITS
"""Window size with which zlib detects gzip or deflate itself."""
MAX_MEMBERS = 64
"""Maximum number of compressed members of a body."""


def decompress_body(body: bytes, encoding: str | None, limit: int) -> bytes:
    """Decompress the body of a request.

    `encoding` is gzip, deflate, identity or none; what begins as gzip is taken for it. Raises `InputError` for a body
    that is broken, packed in another way or longer than `limit` bytes.

    >>> import gzip
    >>> decompress_body(gzip.compress(b"spans"), "gzip", limit=100)
    b'spans'
    >>> decompress_body(gzip.compress(bytes(1000)), "gzip", limit=100)
    Traceback (most recent call last):
    ragfault.model.errors.InputError: the request holds more than 100 bytes: send fewer spans at once
    """
    named = (encoding or "identity").strip().lower()
    if named not in ("identity", "gzip", "x-gzip", "deflate"):
        raise InputError(f'the encoding "{named[:40]}" is not known: send gzip, deflate or plain bytes')
    if len(body) <= limit and (named != "identity" or body[:2] == GZIP_MAGIC):
        body = _inflate_members(body, limit)
    if len(body) > limit:
        raise InputError(f"the request holds more than {limit:,} bytes: send fewer spans at once")
    return body


def _inflate_members(body: bytes, limit: int) -> bytes:
    """Decompress at most one byte more than the limit allows, over all members."""
    parts: list[bytes] = []
    room = limit + 1
    while body and room > 0:
        if len(parts) == MAX_MEMBERS:
            raise InputError(f"the packed request is made of more than {MAX_MEMBERS} parts: pack it as one")
        member = zlib.decompressobj(ZLIB_AUTO_DETECT)
        try:
            part = member.decompress(body, room)
        except zlib.error as error:
            raise InputError(f"the request is not what its encoding says: {error}") from None
        parts.append(part)
        room -= len(part)
        if room > 0 and not member.eof:
            raise InputError("the packed request breaks off: send it again, whole")
        body = member.unused_data
    return b"".join(parts)


INT64_LIMIT = 2**63


class OtlpMessage(Struct, gc=False, rename="camel"):
    """A message of OTLP in JSON; unknown fields are ignored, as the protocol demands."""


class _KeyValueMessage(OtlpMessage):
    key: str = ""
    value: _AnyValueMessage | None = None


class _ArrayValueMessage(OtlpMessage):
    values: list[_AnyValueMessage] | None = None


class _KeyValueListMessage(OtlpMessage):
    values: list[_KeyValueMessage] | None = None


class _AnyValueMessage(OtlpMessage):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _ArrayValueMessage | None = None
    kvlist_value: _KeyValueListMessage | None = None
    bytes_value: str | None = None


class _StatusMessage(OtlpMessage):
    code: int | str = 0
    message: str = ""


class _EventMessage(OtlpMessage):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[_KeyValueMessage] | None = None


class _SpanMessage(OtlpMessage):
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str | None = None
    name: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_KeyValueMessage] | None = None
    events: list[_EventMessage] | None = None
    status: _StatusMessage | None = None


class _LogRecordMessage(OtlpMessage):
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    attributes: list[_KeyValueMessage] | None = None
    body: _AnyValueMessage | None = None


class _ResourceMessage(OtlpMessage):
    attributes: list[_KeyValueMessage] | None = None


class _ScopeMessage(OtlpMessage):
    spans: list[Raw] | None = None
    log_records: list[Raw] | None = None


class _ResourceGroupMessage(OtlpMessage):
    """Spans or log records of one resource."""

    resource: Raw = Raw(b"null")
    scope_spans: list[_ScopeMessage] | None = None
    scope_logs: list[_ScopeMessage] | None = None


class _ExportRequestMessage(OtlpMessage):
    resource_spans: list[_ResourceGroupMessage] | None = None
    resource_logs: list[_ResourceGroupMessage] | None = None


REQUEST_DECODER = msgspec.json.Decoder(_ExportRequestMessage)
SPAN_DECODER = msgspec.json.Decoder(_SpanMessage)
LOG_RECORD_DECODER = msgspec.json.Decoder(_LogRecordMessage)
RESOURCE_DECODER = msgspec.json.Decoder(_ResourceMessage | None)


def read_spans_json(body: bytes, limits: DecodeLimits) -> DecodedRequest:
    """Decode the spans of an export request in JSON. Raises `InputError`."""
    checker = LimitChecker(limits)
    spans = []
    for item, resource in _iterate_items(body, checker, "resource_spans", "scope_spans", "spans"):
        try:
            span = _build_span(SPAN_DECODER.decode(item), resource, checker)
        except (ValueError, RecursionError) as error:
            checker.reject(_describe_error(error))
            continue
        if span is not None:
            spans.append(span)
    return checker.build_result(spans, [])


def read_logs_json(body: bytes, limits: DecodeLimits) -> DecodedRequest:
    """Decode the log records of an export request in JSON. Raises `InputError`."""
    checker = LimitChecker(limits)
    events = []
    for item, _ in _iterate_items(body, checker, "resource_logs", "scope_logs", "log_records"):
        try:
            events.append(_build_log_event(LOG_RECORD_DECODER.decode(item), checker))
        except (ValueError, RecursionError) as error:
            checker.reject(_describe_error(error))
    return checker.build_result([], events)


def _describe_error(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else f"malformed: {error}"[:120]


def _iterate_items(
    body: bytes, checker: LimitChecker, group_field: str, scope_field: str, item_field: str
) -> Iterator[tuple[Raw, dict[str, Any]]]:
    """Yield each span or log record as raw JSON, with its resource."""
    for part in getattr(_decode_envelope(body, checker), group_field) or ():
        resource = _decode_resource(part.resource, checker)
        for scope in getattr(part, scope_field) or ():
            for item in getattr(scope, item_field) or ():
                if checker.accept_item(len(memoryview(item))):
                    yield item, resource


def _decode_resource(part: Raw, checker: LimitChecker) -> dict[str, Any]:
    """Decode a resource; one that is too long or malformed is empty and counted as cut."""
    try:
        message = RESOURCE_DECODER.decode(part) if len(memoryview(part)) <= checker.limits.span else None
    except (ValueError, RecursionError):
        message = None
    if message is None:
        checker.cut_count += bytes(part) != b"null"
        return {}
    return _build_attributes(message.attributes, checker)


def _decode_envelope(body: bytes, checker: LimitChecker) -> _ExportRequestMessage:
    checker.count_nodes(max(body.count(b"{") + body.count(b"["), body.count(b",") // 2))
    try:
        return REQUEST_DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"the request is not an OTLP message in JSON: {error}") from None
    except RecursionError:
        raise InputError("the request is nested too deeply to be an OTLP message") from None


def _build_span(span: _SpanMessage, resource: dict[str, Any], checker: LimitChecker) -> OtelSpan | None:
    trace, name = _parse_id(span.trace_id, 32), _parse_id(span.span_id, 16)
    wrong = check_span_ids(trace, name)
    if wrong:
        checker.reject(wrong)
        return None
    parent = parse_linked_id(_parse_id(span.parent_span_id or "", 16), 16)
    status = span.status or _StatusMessage()
    return OtelSpan(
        trace=trace,
        id=name,
        parent=parent or None,
        name=checker.cut_text(span.name),
        start=_parse_nanoseconds(span.start_time_unix_nano),
        end=_parse_nanoseconds(span.end_time_unix_nano),
        status=parse_status(status.code),
        message=checker.cut_text(status.message),
        attributes=_build_attributes(span.attributes, checker),
        events=tuple(
            _build_event(event, checker) for event in checker.cut_values(span.events or (), checker.limits.events)
        ),
        resource=resource,
    )


def _build_event(event: _EventMessage, checker: LimitChecker) -> SpanEvent:
    return SpanEvent(
        name=checker.cut_text(event.name),
        time=_parse_nanoseconds(event.time_unix_nano),
        attributes=_build_attributes(event.attributes, checker),
    )


def _build_log_event(record: _LogRecordMessage, checker: LimitChecker) -> SpanEvent:
    attributes = _build_attributes(record.attributes, checker)
    if record.body is not None:
        attributes["body"] = _convert_value(record.body, checker, 0)
    return SpanEvent(
        name=checker.cut_text(record.event_name or str(attributes.get("event.name", ""))),
        time=_parse_nanoseconds(record.time_unix_nano) or _parse_nanoseconds(record.observed_time_unix_nano),
        attributes=attributes,
        trace=parse_linked_id(_parse_id(record.trace_id or "", 32), 32),
        span=parse_linked_id(_parse_id(record.span_id or "", 16), 16),
    )


def _parse_id(text: str, digits: int) -> str:
    """Return an id in lower-case hex; some exporters write base64, as protobuf does elsewhere."""
    if text.endswith("=") and len(text) == (24 if digits == 32 else 12):
        try:
            return b64decode(text, validate=True).hex()
        except binascii.Error:
            return text
    return convert_decimal_id(text.lower(), digits)


def _parse_nanoseconds(value: int | str) -> int:
    number = _parse_int64(value)
    return number if isinstance(number, int) and number >= 0 else 0


def _parse_int64(value: int | str) -> int | str:
    """Parse digits to a number; keep the text of anything else and beyond 64 bits."""
    if isinstance(value, str):
        try:
            number = int(value) if len(value) <= 20 else INT64_LIMIT
        except ValueError:
            return value
        return number if -INT64_LIMIT <= number < INT64_LIMIT else value
    return value if -INT64_LIMIT <= value < INT64_LIMIT else str(value)[:40]


def _build_attributes(pairs: list[_KeyValueMessage] | None, checker: LimitChecker) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in checker.cut_values(pairs or (), checker.limits.attributes):
        if not pair.key.endswith(VECTOR_SUFFIX):
            attributes[pair.key] = _convert_value(pair.value, checker, 0)
    return attributes


def _convert_value(value: _AnyValueMessage | None, checker: LimitChecker, depth: int) -> Any:
    if value is None:
        return None
    if value.string_value is not None:
        return checker.cut_text(value.string_value)
    if value.int_value is not None:
        return _parse_int64(value.int_value)
    if value.bool_value is not None:
        return value.bool_value
    if value.double_value is not None:
        return _parse_double(value.double_value)
    if value.bytes_value is not None:
        return checker.cut_text(value.bytes_value)
    if value.array_value is None and value.kvlist_value is None:
        return None
    if depth >= checker.limits.depth:
        checker.cut_count += 1
        return None
    if value.array_value is not None:
        parts = checker.cut_values(value.array_value.values or (), checker.limits.items)
        return [_convert_value(part, checker, depth + 1) for part in parts]
    pairs = checker.cut_values(value.kvlist_value.values or (), checker.limits.items) if value.kvlist_value else ()
    return {pair.key: _convert_value(pair.value, checker, depth + 1) for pair in pairs}


def _parse_double(value: float | str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


Signal = Literal["traces", "logs"]


def decode_request(
    body: bytes,
    signal: Signal = "traces",
    *,
    content_type: str = "application/x-protobuf",
    encoding: str | None = None,
    limits: DecodeLimits = DEFAULT_LIMITS,
) -> DecodedRequest:
    """Decode an export request to spans, or to the events of its log records.

    `content_type` and `encoding` are the headers of the request. Spans that are malformed, too long or too many are
    counted by reason in `rejected`; embedding vectors are dropped, values beyond the limits cut and counted. Raises
    `InputError` for a body that is too long, too deep or no such request, `MissingExtra` where protobuf cannot be read.

    >>> span = '{"traceId": "0000000000000000000000000000000a", "spanId": "000000000000000b", "name": "chat"}'
    >>> body = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s, {}]}]}]}' % span
    >>> found = decode_request(body.encode(), content_type="application/json")
    >>> found.spans[0].name, found.rejected
    ('chat', {'no trace id': 1})
    """
    body = decompress_body(body, encoding, limits.body)
    kind = content_type.split(";", 1)[0].strip().lower()
    if kind == "application/json":
        return read_spans_json(body, limits) if signal == "traces" else read_logs_json(body, limits)
    if kind in ("application/x-protobuf", "application/protobuf", "application/octet-stream"):
        return read_spans_protobuf(body, limits) if signal == "traces" else read_logs_protobuf(body, limits)
    raise InputError(f'the content type "{kind[:80]}" is not OTLP: send application/x-protobuf or application/json')
