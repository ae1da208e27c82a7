"""Spans and log events of decoded OTLP messages, whether they came as JSON or as protobuf: the fields have one name."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any

from ragfault.io.otel.spans import (
    VECTOR_SUFFIX,
    LimitChecker,
    OtelSpan,
    SpanEvent,
    check_span_ids,
    convert_decimal_id,
    parse_linked_id,
    parse_status,
)

INT64_LIMIT = 2**63


def build_span(span: Any, resource: dict[str, Any], checker: LimitChecker) -> OtelSpan | None:
    """Build a span of its message; None where its ids are wrong, which is counted."""
    trace, name = _parse_id(span.trace_id, 32), _parse_id(span.span_id, 16)
    wrong = check_span_ids(trace, name)
    if wrong:
        checker.reject(wrong)
        return None
    return OtelSpan(
        trace=trace,
        id=name,
        parent=parse_linked_id(_parse_id(span.parent_span_id, 16), 16) or None,
        name=checker.cut_text(span.name),
        start=_parse_nanoseconds(span.start_time_unix_nano),
        end=_parse_nanoseconds(span.end_time_unix_nano),
        status="unset" if span.status is None else parse_status(span.status.code),
        message="" if span.status is None else checker.cut_text(span.status.message),
        attributes=build_attributes(span.attributes, checker),
        events=tuple(
            SpanEvent(
                name=checker.cut_text(event.name),
                time=_parse_nanoseconds(event.time_unix_nano),
                attributes=build_attributes(event.attributes, checker),
            )
            for event in checker.cut_values(span.events or (), checker.limits.events)
        ),
        resource=resource,
    )


def build_log_event(record: Any, checker: LimitChecker) -> SpanEvent:
    """Build the event of a log record."""
    attributes = build_attributes(record.attributes, checker)
    if (body := _convert_value(record.body, checker, 0)) is not None:
        attributes["body"] = body
    return SpanEvent(
        name=checker.cut_text(record.event_name or str(attributes.get("event.name", ""))),
        time=_parse_nanoseconds(record.time_unix_nano) or _parse_nanoseconds(record.observed_time_unix_nano),
        attributes=attributes,
        trace=parse_linked_id(_parse_id(record.trace_id, 32), 32),
        span=parse_linked_id(_parse_id(record.span_id, 16), 16),
    )


def _parse_id(content: str | bytes | None, digits: int) -> str:
    """Return an id in lower-case hex; some exporters write base64 into JSON, as protobuf does elsewhere."""
    if isinstance(content, bytes):
        return content.hex()
    text = content or ""
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


def build_attributes(pairs: Any, checker: LimitChecker) -> dict[str, Any]:
    """Build attributes of their pairs, without vectors and within the limits."""
    attributes: dict[str, Any] = {}
    limits = checker.limits
    for pair in checker.cut_values(pairs or (), limits.attributes):
        key, value = pair.key, pair.value
        if not key.endswith(VECTOR_SUFFIX):
            # most are texts, and one that is not empty needs no look at its type
            text = None if value is None else value.string_value
            is_plain = text and len(text) <= limits.text
            attributes[key] = text if is_plain else _convert_value(value, checker, 0)
    return attributes


def _convert_value(value: Any, checker: LimitChecker, depth: int) -> Any:
    which = None if value is None else value.WhichOneof("value")
    if which is None:
        return None
    content = getattr(value, which)
    if which == "string_value":
        return checker.cut_text(content)
    if which == "int_value":
        return _parse_int64(content)
    if which == "double_value":
        return _parse_double(content)
    if which == "bytes_value":
        return checker.cut_text(content if isinstance(content, str) else b64encode(content).decode())
    if which == "bool_value":
        return content
    if depth >= checker.limits.depth:
        checker.cut_count += 1
        return None
    values = checker.cut_values(content.values or (), checker.limits.items)
    if which == "array_value":
        return [_convert_value(item, checker, depth + 1) for item in values]
    return {pair.key: _convert_value(pair.value, checker, depth + 1) for pair in values}


def _parse_double(value: float | str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
