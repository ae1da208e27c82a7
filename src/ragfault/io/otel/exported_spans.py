"""Exported spans of other tools, one object or row each: Phoenix, the console exporter, plain OTLP spans."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from ragfault.io.field_values import InvalidRecord, parse_cell
from ragfault.io.formats.paths import parse_embedded
from ragfault.io.otel.recorded_content import unquote_json
from ragfault.io.otel.spans import (
    DEFAULT_LIMITS,
    VECTOR_SUFFIX,
    OtelSpan,
    SpanEvent,
    SpanStatus,
    add_events,
    build_rating,
    convert_decimal_id,
    parse_status,
)
from ragfault.io.remote_paths import open_for_arrow
from ragfault.model.errors import InputError
from ragfault.text.times import assume_utc

OBJECT_ATTRIBUTES = (
    "input.value", "output.value", "metadata", "gen_ai.input.messages", "gen_ai.output.messages",
    "gen_ai.retrieval.documents", "langfuse.observation.input", "langfuse.observation.output",
    "langfuse.observation.usage_details",
)  # fmt: skip
"""Attributes that hold an object or a list and are not flattened."""
LIST_SUFFIXES = ("documents", "messages")
"""Suffixes of columns that hold lists, also as printed by Python."""
LONG_FRACTION = re.compile(r"(\.\d{6})\d+")
BASE64_ID = re.compile(r"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{11}=")
"""An id of 16 or 8 bytes in base64."""
SPAN_BATCH_ROWS = 256
"""Rows per batch."""


def read_exported_spans(record: dict[str, Any]) -> tuple[OtelSpan, ...]:
    """Convert a record to spans: one span, or all spans of a trace as Phoenix's CLI and MLflow write them.

    >>> span = {"name": "ask", "context": {"trace_id": "a" * 32, "span_id": "b" * 16}, "parent_id": None}
    >>> [span.name for span in read_exported_spans({"traceId": "a" * 32, "spans": [span]})]
    ['ask']
    """
    trace = parse_embedded(record.get("trace"))
    places = [parse_embedded(holder.get("data")) for holder in (record, trace) if isinstance(holder, dict)]
    lists = [parse_embedded(place.get("spans")) for place in (*places, record) if isinstance(place, dict)]
    spans = next((item for item in lists if isinstance(item, list)), None)
    if spans is not None and _get_field(record, "span_id", "spanId") is None:
        inner = [read_exported_span(span) for span in spans if isinstance(span, dict)]
        return add_events(inner, _iterate_annotations(record))
    return (read_exported_span(record),)


def read_exported_span(record: dict[str, Any]) -> OtelSpan:
    """Convert the record of a span. Raises `InvalidRecord` where it names no trace or span.

    Ids are in `context` or in columns, flat or dotted; attributes are flat, nested or columns; times ISO or
    nanoseconds.

    >>> record = {"name": "chat", "context": {"trace_id": "0x" + "a" * 32, "span_id": "b" * 16}, "span_kind": "LLM"}
    >>> span = read_exported_span(record | {"attributes": {"llm": {"model_name": "m"}}})
    >>> span.trace[:4], span.attributes
    ('aaaa', {'llm.model_name': 'm', 'openinference.span.kind': 'LLM'})
    """
    trace = _normalize_hex(_get_field(record, "trace_id", "traceId"), 32)
    name = _normalize_hex(_get_field(record, "span_id", "spanId"), 16)
    for kind, text in (("trace", trace), ("span", name)):
        if not text.strip("0"):
            raise InvalidRecord(f"a span with no {kind} id")
    parent = _normalize_hex(_get_field(record, "parent_id", "parent_span_id", "parentSpanId"), 16)
    start = parse_nanoseconds(
        _get_field(record, "start_time", "start_timestamp", "startTimeUnixNano", "start_time_unix_nano")
    )
    end = parse_nanoseconds(_get_field(record, "end_time", "timestamp", "endTimeUnixNano", "end_time_unix_nano"))
    status, message = _parse_status(record)
    # which a frame spreads
    rated = "annotations" in record or "notes" in record or "context" not in record
    return OtelSpan(
        trace=trace,
        id=name,
        parent=parent if parent.strip("0") else None,
        name=str(record.get("name") or ""),
        start=start,
        end=end or start,
        complete=end > 0,
        status=status,
        message=message,
        attributes=_collect_attributes(record),
        events=(*_parse_events(parse_embedded(record.get("events"))), *(_iterate_annotations(record) if rated else ())),
        resource=_parse_resource(record.get("resource")),
    )


def _get_field(record: dict[str, Any], *names: str) -> Any:
    """Return the value under one of these names, in the record or its context."""
    context = parse_embedded(record.get("context") or record.get("trace"))
    for name in names:
        for value in (
            record.get(name),
            record.get(f"context.{name}"),
            context.get(name) if isinstance(context, dict) else None,
        ):
            if value is not None:
                return value
    return None


def _normalize_hex(value: Any, digits: int) -> str:
    """Return an id in hexadecimal digits; MLflow writes ids in base64, TruLens as decimal numbers."""
    if BASE64_ID.fullmatch(str(value)):
        return b64decode(str(value)).hex()
    text = str(value or "").lower()
    return convert_decimal_id(text, digits).removeprefix("0x").replace("-", "")


EPOCH_UNITS = ((range(5 * 10**11, 5 * 10**12), 10**6), (range(5 * 10**14, 5 * 10**15), 10**3))
"""Times in milliseconds and in microseconds between 1985 and 2128, with the nanoseconds of each unit."""


def parse_nanoseconds(value: Any) -> int:
    """Parse a time to nanoseconds, a number in the unit that its size tells; 0 where it cannot be read."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(LONG_FRACTION.sub(r"\1", value.strip()))
        except ValueError:
            return 0
    if isinstance(value, datetime):
        gap = assume_utc(value) - datetime(1970, 1, 1, tzinfo=UTC)
        return max(0, (gap.days * 86_400 + gap.seconds) * 1_000_000_000 + gap.microseconds * 1_000)
    if type(value) is not int or not 0 <= value < 2**63:
        return 0
    return value * next((unit for epoch, unit in EPOCH_UNITS if value in epoch), 1)


def _parse_status(record: dict[str, Any]) -> tuple[SpanStatus, str]:
    status = parse_embedded(record.get("status"))
    inner = status if isinstance(status, dict) else {}
    code = record.get("status_code") or inner.get("status_code") or inner.get("code") or status
    message = record.get("status_message") or inner.get("description") or inner.get("message") or ""
    return parse_status(code if type(code) is int else str(code)), str(message)


ATTRIBUTE_COLUMNS = ("attributes", "record_attributes", "span_attributes")


def _collect_attributes(record: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    own = next((record[key] for key in ATTRIBUTE_COLUMNS if record.get(key)), None)
    _flatten_value(parse_embedded(own), "", attributes)
    for name, value in record.items():
        if name.startswith("attributes.") and value is not None:
            listed = name.endswith(LIST_SUFFIXES) and isinstance(value, str)
            _flatten_value(
                parse_cell("metadata", value) if listed else value, name.removeprefix("attributes."), attributes
            )
    kind = record.get("span_kind")
    if isinstance(kind, str) and kind and kind != "UNKNOWN":
        attributes.setdefault("openinference.span.kind", kind)
    return _rename_attributes(attributes)


RENAMED_ATTRIBUTES = {
    "mlflow.spanInputs": "input.value",
    "mlflow.spanOutputs": "output.value",
    "mlflow.spanType": "openinference.span.kind",
    "ai.observability.record_root.input": "input.value",
    "ai.observability.record_root.output": "output.value",
    "ai.observability.retrieval.query_text": "input.value",
    "ai.observability.retrieval.retrieved_contexts": "gen_ai.retrieval.documents",
    "ai.observability.span_type": "openinference.span.kind",
}
"""Attributes of MLflow and TruLens → those of the conventions."""
SPAN_KINDS = {"RECORD_ROOT": "CHAIN", "RETRIEVAL": "RETRIEVER", "GENERATION": "LLM", "CHAT_MODEL": "LLM"}


def _rename_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Rename the attributes of MLflow and TruLens; values that are texts of JSON lose their quotes."""
    renamed = {RENAMED_ATTRIBUTES.get(name, name): value for name, value in attributes.items()}
    if len(renamed) < len(attributes) or renamed.keys() != attributes.keys():
        for name in set(RENAMED_ATTRIBUTES.values()) & renamed.keys():
            renamed[name] = parse_embedded(unquote_json(renamed[name]))
        kind = str(renamed.get("openinference.span.kind", "")).upper()
        renamed["openinference.span.kind"] = SPAN_KINDS.get(kind, kind)
    return renamed


def _flatten_value(value: Any, name: str, attributes: dict[str, Any], depth: int = 0) -> None:
    """Put a nested value down as flat attributes: objects by their keys, lists of objects by their places."""
    if (
        value is None
        or name.endswith(VECTOR_SUFFIX)
        or len(attributes) >= DEFAULT_LIMITS.attributes
        or depth > DEFAULT_LIMITS.depth
    ):
        return
    if isinstance(value, list) and value and set(map(type, value)) <= {dict} and "key" in value[0] and not name:
        # values of OTLP name their type
        pairs = [(str(pair.get("key")), pair.get("value")) for pair in value]
        value = {key: next(iter(x.values()), None) if isinstance(x, dict) else x for key, x in pairs}
    if isinstance(value, dict) and name not in OBJECT_ATTRIBUTES:
        for key, item in value.items():
            _flatten_value(item, f"{name}.{key}" if name else str(key), attributes, depth + 1)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value) and name not in OBJECT_ATTRIBUTES:
        for index, item in enumerate(value):
            _flatten_value(item, f"{name}.{index}", attributes, depth + 1)
    elif name:
        attributes[name] = value


def _parse_events(values: Any) -> Iterator[SpanEvent]:
    for event in values if isinstance(values, list) else ():
        if isinstance(event := parse_embedded(event), dict):
            attributes: dict[str, Any] = {}
            _flatten_value(parse_embedded(event.get("attributes")), "", attributes)
            time = parse_nanoseconds(event.get("timestamp") or event.get("timeUnixNano"))
            yield SpanEvent(name=str(event.get("name") or ""), time=time, attributes=attributes)


RATING_PARTS = ("score", "label", "explanation")


def _iterate_annotations(record: dict[str, Any]) -> Iterator[SpanEvent]:
    """Yield the ratings of Phoenix: the annotations and notes of a span or a trace, and the columns of evaluations."""
    for items in (parse_embedded(record.get("annotations")), parse_embedded(record.get("notes"))):
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and isinstance(result := item.get("result"), dict):
                yield build_rating(item.get("name"), *map(result.get, RATING_PARTS))
    for name in dict.fromkeys(column.rpartition(".")[0] for column in record if column.startswith("eval.")):
        yield build_rating(name.removeprefix("eval."), *(record.get(f"{name}.{part}") for part in RATING_PARTS))


def _parse_resource(value: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    resource = parse_embedded(value)
    _flatten_value(resource.get("attributes") if isinstance(resource, dict) else None, "", attributes)
    return attributes


def read_parquet_span_rows(name: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a Parquet file by number, times as nanoseconds. Raises `InputError` where it is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(open_for_arrow(name)) as file:
            batches = file.iter_batches(batch_size=SPAN_BATCH_ROWS)
            yield from enumerate(chain.from_iterable(map(iterate_batch_rows, batches)), 1)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as Parquet: {error}") from None


def iterate_batch_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow batch, times as nanoseconds."""
    names = batch.schema.names
    for values in zip(*map(_read_column, batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _read_column(column: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        nanoseconds: list[Any] = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_pylist()
        return nanoseconds
    try:
        return list(column.to_pylist())
    except (ValueError, ImportError):
        return [None] * len(column)
