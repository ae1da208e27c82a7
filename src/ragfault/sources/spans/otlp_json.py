"""OTLP as JSON: ids are hex, names are camelCase, 64-bit numbers may be texts, enums numbers or names."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ragfault.errors import InputError
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

__all__ = ["read_logs_json", "read_spans_json"]

KINDS = ("internal", "internal", "server", "client", "producer", "consumer")
RESULTS: tuple[Result, ...] = ("unset", "ok", "error")
LONG = 2**63


# --- the messages ----------------------------------------------------------------------------------


class Message(Struct, gc=False, rename="camel"):
    """A message of OTLP in JSON; fields of other names are passed over, as the protocol wants it."""


class KeyValue(Message):
    key: str = ""
    value: AnyValue | None = None


class Values(Message):
    values: list[AnyValue] | None = None


class Pairs(Message):
    values: list[KeyValue] | None = None


class AnyValue(Message):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: Values | None = None
    kvlist_value: Pairs | None = None
    bytes_value: str | None = None


class StatusMessage(Message):
    code: int | str = 0
    message: str = ""


class EventMessage(Message):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[KeyValue] | None = None


class SpanMessage(Message):
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str | None = None
    name: str = ""
    kind: int | str = 0
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[KeyValue] | None = None
    events: list[EventMessage] | None = None
    status: StatusMessage | None = None


class RecordMessage(Message):
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    attributes: list[KeyValue] | None = None
    body: AnyValue | None = None


class ResourceMessage(Message):
    attributes: list[KeyValue] | None = None


class Scope(Message):
    spans: list[Raw] | None = None
    log_records: list[Raw] | None = None


class Sent(Message):
    """What one resource sent."""

    resource: Raw = Raw(b"null")
    scope_spans: list[Scope] | None = None
    scope_logs: list[Scope] | None = None


class Request(Message):
    resource_spans: list[Sent] | None = None
    resource_logs: list[Sent] | None = None


REQUEST = msgspec.json.Decoder(Request)
SPAN = msgspec.json.Decoder(SpanMessage)
RECORD = msgspec.json.Decoder(RecordMessage)
RESOURCE = msgspec.json.Decoder(ResourceMessage | None)


def read_spans_json(body: bytes, limits: Limits) -> Decoded:
    """The spans of an export request in JSON; raises `InputError` where the body is none."""
    scale = Scale(limits)
    operations = []
    for part, resource in _parts(body, scale, "resource_spans", "scope_spans", "spans"):
        try:
            made = _operation(SPAN.decode(part), resource, scale)
        except (ValueError, RecursionError) as error:
            scale.reject(_reason(error))
            continue
        if made is not None:
            operations.append(made)
    return scale.close(operations, [])


def read_logs_json(body: bytes, limits: Limits) -> Decoded:
    """The records of a log of an export request in JSON; raises `InputError` where the body is none."""
    scale = Scale(limits)
    events = []
    for part, _ in _parts(body, scale, "resource_logs", "scope_logs", "log_records"):
        try:
            events.append(_logged(RECORD.decode(part), scale))
        except (ValueError, RecursionError) as error:
            scale.reject(_reason(error))
    return scale.close([], events)


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else f"malformed: {error}"[:120]


def _parts(
    body: bytes, scale: Scale, sent: str, scopes: str, items: str
) -> Iterator[tuple[Raw, dict[str, Any]]]:
    """Each span or record as its own text, with its resource."""
    count = 0
    for part in getattr(_request(body, scale), sent) or ():
        resource = _resource(part.resource, scale)
        for scope in getattr(part, scopes) or ():
            for item in getattr(scope, items) or ():
                count += 1
                if count > scale.limits.spans:
                    scale.reject(f"more than {scale.limits.spans:,} in one request")
                elif len(memoryview(item)) > scale.limits.span:
                    scale.reject(f"longer than {scale.limits.span:,} bytes")
                else:
                    yield item, resource


def _resource(part: Raw, scale: Scale) -> dict[str, Any]:
    """What is known of a resource; nothing, and a cut, where it is too long or malformed."""
    try:
        found = RESOURCE.decode(part) if len(memoryview(part)) <= scale.limits.span else None
    except (ValueError, RecursionError):
        found = None
    if found is None:
        scale.cut += bytes(part) != b"null"
        return {}
    return _attributes(found.attributes, scale)


def _request(body: bytes, scale: Scale) -> Request:
    scale.mark(max(body.count(b"{") + body.count(b"["), body.count(b",") // 2))
    try:
        return REQUEST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"the request is no OTLP message in JSON: {error}") from None
    except RecursionError:
        raise InputError("the request is nested too deeply to be an OTLP message") from None


# --- from messages to records ----------------------------------------------------------------------


def _operation(span: SpanMessage, resource: dict[str, Any], scale: Scale) -> Operation | None:
    trace, name = _id(span.trace_id, 32), _id(span.span_id, 16)
    wrong = lacking(trace, name)
    if wrong:
        scale.reject(wrong)
        return None
    parent = linked(_id(span.parent_span_id or "", 16), 16)
    status = span.status or StatusMessage()
    return Operation(
        trace=trace,
        id=name,
        parent=parent or None,
        name=scale.text(span.name),
        kind=_enum(span.kind, KINDS, "SPAN_KIND_"),
        start=_nanoseconds(span.start_time_unix_nano),
        end=_nanoseconds(span.end_time_unix_nano),
        status=_enum(status.code, RESULTS, "STATUS_CODE_"),  # type: ignore[arg-type]
        message=scale.text(status.message),
        attributes=_attributes(span.attributes, scale),
        events=tuple(_event(event, scale) for event in scale.few(span.events or (), scale.limits.events)),
        resource=resource,
    )


def _event(event: EventMessage, scale: Scale) -> Event:
    return Event(
        name=scale.text(event.name),
        time=_nanoseconds(event.time_unix_nano),
        attributes=_attributes(event.attributes, scale),
    )


def _logged(record: RecordMessage, scale: Scale) -> Event:
    attributes = _attributes(record.attributes, scale)
    if record.body is not None:
        attributes["body"] = _value(record.body, scale, 0)
    return Event(
        name=scale.text(record.event_name or str(attributes.get("event.name", ""))),
        time=_nanoseconds(record.time_unix_nano) or _nanoseconds(record.observed_time_unix_nano),
        attributes=attributes,
        trace=linked(_id(record.trace_id or "", 32), 32),
        span=linked(_id(record.span_id or "", 16), 16),
    )


def _id(text: str, digits: int) -> str:
    """An id in lower-case hex; some exporters write base64, as protobuf does elsewhere."""
    if text.endswith("=") and len(text) == (24 if digits == 32 else 12):
        try:
            return b64decode(text, validate=True).hex()
        except binascii.Error:
            return text
    return text.lower()


def _enum(value: int | str, names: tuple[str, ...], prefix: str) -> str:
    """What a number stands for, or a name such as `SPAN_KIND_SERVER`."""
    if isinstance(value, str):
        bare = value.removeprefix(prefix).lower()
        if not bare.isdecimal():
            return bare if bare in names else names[0]
        value = int(bare[:4])
    return names[value] if 0 <= value < len(names) else names[0]


def _nanoseconds(value: int | str) -> int:
    number = _whole(value)
    return number if isinstance(number, int) and number >= 0 else 0


def _whole(value: int | str) -> int | str:
    """The number that a text of digits is; else, and where it is beyond 64 bits, the text."""
    if isinstance(value, str):
        try:
            number = int(value) if len(value) <= 20 else LONG
        except ValueError:
            return value
        return number if -LONG <= number < LONG else value
    return value if -LONG <= value < LONG else str(value)[:40]


def _attributes(pairs: list[KeyValue] | None, scale: Scale) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for pair in scale.few(pairs or (), scale.limits.attributes):
        if not pair.key.endswith(VECTOR):
            made[pair.key] = _value(pair.value, scale, 0)
    return made


def _value(value: AnyValue | None, scale: Scale, depth: int) -> Any:
    if value is None:
        return None
    if value.string_value is not None:
        return scale.text(value.string_value)
    if value.int_value is not None:
        return _whole(value.int_value)
    if value.bool_value is not None:
        return value.bool_value
    if value.double_value is not None:
        return _double(value.double_value)
    if value.bytes_value is not None:
        return scale.text(value.bytes_value)
    if value.array_value is None and value.kvlist_value is None:
        return None
    if depth >= scale.limits.depth:
        scale.cut += 1
        return None
    if value.array_value is not None:
        parts = scale.few(value.array_value.values or (), scale.limits.items)
        return [_value(part, scale, depth + 1) for part in parts]
    pairs = scale.few(value.kvlist_value.values or (), scale.limits.items) if value.kvlist_value else ()
    return {pair.key: _value(pair.value, scale, depth + 1) for pair in pairs}


def _double(value: float | str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
