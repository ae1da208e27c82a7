"""OTLP as protobuf: the frame is walked by hand, each span is parsed by itself.

So a broken span is one span lost and not a request, the memory that parsing takes is that of one span, and
spans beyond the limit cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ragfault.errors import InputError, MissingExtra
from ragfault.sources.spans.operation import (
    VECTOR,
    Decoded,
    Event,
    Limits,
    Operation,
    Result,
    Scale,
    lacking,
    linked,
)

__all__ = ["read_logs_message", "read_spans_message"]

KINDS: Final = ("internal", "internal", "server", "client", "producer", "consumer")
RESULTS: Final[tuple[Result, ...]] = ("unset", "ok", "error")

RESOURCE, SCOPES = 1, 2
"""The fields of what one resource sent."""
ITEMS = 2
"""The field of a scope that holds its spans or records."""

Piece = tuple[int, int, int]
"""A field: its number, where it begins, where it ends."""


class Broken(ValueError):
    """The bytes are no message."""


def read_spans_message(body: bytes, limits: Limits) -> Decoded:
    """The spans of an `ExportTraceServiceRequest`; raises `InputError` where the body is none."""
    message = _messages()
    scale = Scale(limits)
    operations: list[Operation] = []

    def take(part: bytes, resource: dict[str, Any]) -> None:
        span = message.span.FromString(part)
        made = _operation(span, resource, scale)
        if made is not None:
            operations.append(made)

    _walk(body, scale, take, message.resource)
    return scale.close(operations, [])


def read_logs_message(body: bytes, limits: Limits) -> Decoded:
    """The records of an `ExportLogsServiceRequest`; raises `InputError` where the body is none."""
    message = _messages()
    scale = Scale(limits)
    events: list[Event] = []

    def take(part: bytes, _: dict[str, Any]) -> None:
        events.append(_logged(message.record.FromString(part), scale))

    _walk(body, scale, take, message.resource)
    return scale.close([], events)


class _Messages:
    """The messages of OTLP that are parsed, once the package that knows them is there."""

    def __init__(self) -> None:
        try:
            from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
            from opentelemetry.proto.resource.v1.resource_pb2 import Resource
            from opentelemetry.proto.trace.v1.trace_pb2 import Span
        except ImportError:
            raise MissingExtra("OTLP as protobuf", "otlp") from None
        self.span, self.record, self.resource = Span, LogRecord, Resource


KNOWN: list[_Messages] = []


def _messages() -> _Messages:
    if not KNOWN:
        KNOWN.append(_Messages())
    return KNOWN[0]


# --- the frame -------------------------------------------------------------------------------------


def _walk(body: bytes, scale: Scale, take: Callable[[bytes, dict[str, Any]], None], resources: Any) -> None:
    """Hand out each span or record as its own bytes, with its resource."""
    from google.protobuf.message import DecodeError

    count = 0
    try:
        for number, begin, end in _fields(body, 0, len(body), scale):
            if number != 1:
                continue
            resource = _resource(body, begin, end, resources, scale)
            for start, stop in _items(body, begin, end, scale):
                count += 1
                if count > scale.limits.spans:
                    scale.reject(f"more than {scale.limits.spans:,} in one request")
                elif stop - start > scale.limits.span:
                    scale.reject(f"longer than {scale.limits.span:,} bytes")
                else:
                    _one(body[start:stop], resource, take, scale)
    except (Broken, DecodeError):
        raise InputError(
            "the request is no OTLP message in protobuf; JSON needs the content type application/json"
        ) from None


def _one(part: bytes, resource: dict[str, Any], take: Any, scale: Scale) -> None:
    from google.protobuf.message import DecodeError

    try:
        take(part, resource)
    except DecodeError:
        scale.reject("malformed")


def _resource(body: bytes, begin: int, end: int, resources: Any, scale: Scale) -> dict[str, Any]:
    """What is known of a resource; nothing, and a cut, where it is too long."""
    made: dict[str, Any] = {}
    for number, start, stop in _fields(body, begin, end, scale):
        if number == RESOURCE:
            if stop - start <= scale.limits.span:
                made = _attributes(resources.FromString(body[start:stop]).attributes, scale)
            else:
                scale.cut += 1
    return made


def _items(body: bytes, begin: int, end: int, scale: Scale) -> Iterator[tuple[int, int]]:
    for number, first, last in _fields(body, begin, end, scale):
        if number == SCOPES:
            for inner, start, stop in _fields(body, first, last, scale):
                if inner == ITEMS:
                    yield start, stop


def _fields(body: bytes, at: int, end: int, scale: Scale) -> Iterator[Piece]:
    """The fields between two places that have a length; those of other kinds are passed over."""
    while at < end:
        scale.mark()
        tag, at = _varint(body, at, end)
        wire = tag & 7
        if wire == 2:
            size, at = _varint(body, at, end)
            if size > end - at:
                raise Broken
            yield tag >> 3, at, at + size
            at += size
        elif wire == 0:
            _, at = _varint(body, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise Broken
    if at > end:
        raise Broken


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Broken


# --- its messages ----------------------------------------------------------------------------------


def _operation(span: Any, resource: dict[str, Any], scale: Scale) -> Operation | None:
    trace, name = span.trace_id.hex(), span.span_id.hex()
    wrong = lacking(trace, name)
    if wrong:
        scale.reject(wrong)
        return None
    parent = linked(span.parent_span_id.hex(), 16)
    events = scale.few(span.events, scale.limits.events) if span.events else ()
    return Operation(
        trace=trace,
        id=name,
        parent=parent or None,
        name=scale.text(span.name),
        kind=KINDS[span.kind] if 0 <= span.kind < len(KINDS) else "internal",
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=RESULTS[span.status.code] if 0 <= span.status.code < len(RESULTS) else "unset",
        message=scale.text(span.status.message),
        attributes=_attributes(span.attributes, scale),
        events=tuple(_event(event, scale) for event in events),
        resource=resource,
    )


def _event(event: Any, scale: Scale) -> Event:
    return Event(
        name=scale.text(event.name),
        time=event.time_unix_nano,
        attributes=_attributes(event.attributes, scale),
    )


def _logged(record: Any, scale: Scale) -> Event:
    attributes = _attributes(record.attributes, scale)
    if record.HasField("body"):
        attributes["body"] = _value(record.body, scale, 0)
    return Event(
        name=scale.text(record.event_name or str(attributes.get("event.name", ""))),
        time=record.time_unix_nano or record.observed_time_unix_nano,
        attributes=attributes,
        trace=linked(record.trace_id.hex(), 32),
        span=linked(record.span_id.hex(), 16),
    )


def _attributes(pairs: Any, scale: Scale) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for pair in scale.few(pairs, scale.limits.attributes):
        if not pair.key.endswith(VECTOR):
            made[pair.key] = _value(pair.value, scale, 0)
    return made


def _value(value: Any, scale: Scale, depth: int) -> Any:
    which = value.WhichOneof("value")
    if which == "string_value":
        return scale.text(value.string_value)
    if which is None:
        return None
    if which in ("array_value", "kvlist_value"):
        if depth >= scale.limits.depth:
            scale.cut += 1
            return None
        if which == "array_value":
            found = scale.few(value.array_value.values, scale.limits.items)
            return [_value(part, scale, depth + 1) for part in found]
        pairs = scale.few(value.kvlist_value.values, scale.limits.items)
        return {pair.key: _value(pair.value, scale, depth + 1) for pair in pairs}
    found = getattr(value, which)
    if which == "bytes_value":
        from base64 import b64encode

        return scale.text(b64encode(found).decode())
    return found
