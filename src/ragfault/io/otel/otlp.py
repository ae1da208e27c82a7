"""OTLP export requests: decode JSON or protobuf, and apply the limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ragfault.io.otel.otlp_protobuf import read_logs_protobuf, read_spans_protobuf
from ragfault.io.otel.otlp_records import build_attributes, build_log_event, build_span
from ragfault.io.otel.spans import DEFAULT_LIMITS, DecodedRequest, DecodeLimits, LimitChecker
from ragfault.model.errors import InputError


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

    def WhichOneof(self, _: str) -> str | None:  # noqa: N802 - as messages in protobuf have it
        """Return the name of the field that holds the value."""
        return next((name for name in self.__struct_fields__ if getattr(self, name) is not None), None)


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
            span = build_span(SPAN_DECODER.decode(item), resource, checker)
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
            events.append(build_log_event(LOG_RECORD_DECODER.decode(item), checker))
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
    return build_attributes(message.attributes, checker)


def _decode_envelope(body: bytes, checker: LimitChecker) -> _ExportRequestMessage:
    checker.count_nodes(max(body.count(b"{") + body.count(b"["), body.count(b",") // 2))
    try:
        return REQUEST_DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"the request is not an OTLP message in JSON: {error}") from None
    except RecursionError:
        raise InputError("the request is nested too deeply to be an OTLP message") from None


Signal = Literal["traces", "logs"]


def decode_request(
    body: bytes,
    signal: Signal = "traces",
    *,
    content_type: str = "application/x-protobuf",
    limits: DecodeLimits = DEFAULT_LIMITS,
) -> DecodedRequest:
    """Decode an export request to spans, or to the events of its log records.

    `content_type` is the header of the request, whose body is unpacked. Spans that are malformed, too long or too many
    are counted by reason in `rejected`; embedding vectors are dropped, values beyond the limits cut and counted. Raises
    `InputError` for a body that is too long, too deep or no such request, `MissingExtra` where protobuf cannot be read.

    >>> span = '{"traceId": "0000000000000000000000000000000a", "spanId": "000000000000000b", "name": "chat"}'
    >>> body = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s, {}]}]}]}' % span
    >>> found = decode_request(body.encode(), content_type="application/json")
    >>> found.spans[0].name, found.rejected
    ('chat', {'no trace id': 1})
    """
    if len(body) > limits.body:
        raise InputError(f"the request holds more than {limits.body:,} bytes: send fewer spans at once")
    kind = content_type.split(";", 1)[0].strip().lower()
    if kind == "application/json":
        return read_spans_json(body, limits) if signal == "traces" else read_logs_json(body, limits)
    if kind in ("application/x-protobuf", "application/protobuf", "application/octet-stream"):
        return read_spans_protobuf(body, limits) if signal == "traces" else read_logs_protobuf(body, limits)
    raise InputError(f'the content type "{kind[:80]}" is not OTLP: send application/x-protobuf or application/json')
