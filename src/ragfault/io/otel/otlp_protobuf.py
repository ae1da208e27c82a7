"""OTLP as protobuf: walk the envelope by hand and parse each span alone.

A malformed span then costs one span, not the request, and parsing holds one span in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ragfault.io.otel.otlp_records import build_attributes, build_log_event, build_span
from ragfault.io.otel.spans import DecodedRequest, DecodeLimits, LimitChecker, OtelSpan, SpanEvent
from ragfault.model.errors import InputError, require_extra

RESOURCE_FIELD, SCOPES_FIELD = 1, 2
"""Field numbers of `ResourceSpans` and `ResourceLogs`."""
ITEMS_FIELD = 2
"""Field number of the items in a scope."""

FieldRange = tuple[int, int, int]
"""Number, start and end of a field."""


class MalformedMessage(ValueError):
    """The bytes are no message."""


def read_spans_protobuf(body: bytes, limits: DecodeLimits) -> DecodedRequest:
    """Decode the spans of an `ExportTraceServiceRequest`. Raises `InputError`."""
    message = _load_message_types()
    checker = LimitChecker(limits)
    spans: list[OtelSpan] = []

    def take(part: bytes, resource: dict[str, Any]) -> None:
        span = message.span.FromString(part)
        built = build_span(span, resource, checker)
        if built is not None:
            spans.append(built)

    _walk_request(body, checker, take, message.resource)
    return checker.build_result(spans, [])


def read_logs_protobuf(body: bytes, limits: DecodeLimits) -> DecodedRequest:
    """Decode the log records of an `ExportLogsServiceRequest`. Raises `InputError`."""
    message = _load_message_types()
    checker = LimitChecker(limits)
    events: list[SpanEvent] = []

    def take(part: bytes, _: dict[str, Any]) -> None:
        events.append(build_log_event(message.record.FromString(part), checker))

    _walk_request(body, checker, take, message.resource)
    return checker.build_result([], events)


class _ProtobufMessageTypes:
    """Message types of the OTLP package."""

    def __init__(self) -> None:
        with require_extra("OTLP as protobuf", "otlp"):
            from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
            from opentelemetry.proto.resource.v1.resource_pb2 import Resource
            from opentelemetry.proto.trace.v1.trace_pb2 import Span
        self.span, self.record, self.resource = Span, LogRecord, Resource


LOADED_TYPES: list[_ProtobufMessageTypes] = []


def _load_message_types() -> _ProtobufMessageTypes:
    if not LOADED_TYPES:
        LOADED_TYPES.append(_ProtobufMessageTypes())
    return LOADED_TYPES[0]


def _walk_request(
    body: bytes, checker: LimitChecker, take: Callable[[bytes, dict[str, Any]], None], resource_type: Any
) -> None:
    """Hand out each span or record as its own bytes, with its resource."""
    from google.protobuf.message import DecodeError

    try:
        for number, begin, end in _iterate_fields(body, 0, len(body), checker):
            if number != 1:
                continue
            resource = _decode_resource(body, begin, end, resource_type, checker)
            for start, stop in _iterate_items(body, begin, end, checker):
                if checker.accept_item(stop - start):
                    _decode_item(body[start:stop], resource, take, checker)
    except (MalformedMessage, DecodeError):
        raise InputError(
            "the request is not an OTLP message in protobuf; JSON needs the content type application/json"
        ) from None


def _decode_item(part: bytes, resource: dict[str, Any], take: Any, checker: LimitChecker) -> None:
    from google.protobuf.message import DecodeError

    try:
        take(part, resource)
    except DecodeError:
        checker.reject("malformed")


def _decode_resource(body: bytes, begin: int, end: int, resource_type: Any, checker: LimitChecker) -> dict[str, Any]:
    """Decode a resource; one that is too long is empty and counted as cut."""
    attributes: dict[str, Any] = {}
    for number, start, stop in _iterate_fields(body, begin, end, checker):
        if number == RESOURCE_FIELD:
            if stop - start <= checker.limits.span:
                attributes = build_attributes(resource_type.FromString(body[start:stop]).attributes, checker)
            else:
                checker.cut_count += 1
    return attributes


def _iterate_items(body: bytes, begin: int, end: int, checker: LimitChecker) -> Iterator[tuple[int, int]]:
    for number, first, last in _iterate_fields(body, begin, end, checker):
        if number == SCOPES_FIELD:
            for inner, start, stop in _iterate_fields(body, first, last, checker):
                if inner == ITEMS_FIELD:
                    yield start, stop


def _iterate_fields(body: bytes, position: int, end: int, checker: LimitChecker) -> Iterator[FieldRange]:
    """Yield the length-delimited fields between two positions."""
    while position < end:
        checker.count_nodes()
        tag, position = _read_varint(body, position, end)
        wire = tag & 7
        if wire == 2:
            size, position = _read_varint(body, position, end)
            if size > end - position:
                raise MalformedMessage
            yield tag >> 3, position, position + size
            position += size
        elif wire == 0:
            _, position = _read_varint(body, position, end)
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
        else:
            raise MalformedMessage
    if position > end:
        raise MalformedMessage


def _read_varint(body: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedMessage
