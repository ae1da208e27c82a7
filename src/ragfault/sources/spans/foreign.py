"""Spans as other tools export them, one object or row for each: Phoenix, the console exporter, plain OTLP spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ragfault.errors import InputError
from ragfault.sources.remote import readable
from ragfault.sources.spans.contents import opened
from ragfault.sources.spans.operation import LIMITS, VECTOR, Event, Operation, Result, lacking
from ragfault.sources.values import Wrong, cell

__all__ = ["batch_rows", "nanoseconds", "operation_of", "operations_of", "table_rows"]

WHOLE = (
    "input.value",
    "output.value",
    "metadata",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.retrieval.documents",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.observation.usage_details",
)
"""Attributes whose value is an object or a list by itself, and not one attribute for each of its parts."""

LISTED = ("documents", "messages")
"""How the columns end that hold lists, also where a table of text has them as Python prints them."""

RESULTS: dict[str, Result] = {"ok": "ok", "error": "error"}
CODES: tuple[Result, ...] = ("unset", "ok", "error")
FRACTION = re.compile(r"(\.\d{6})\d+")
ROWS = 256
"""Rows of a table that are held at once."""


def operations_of(record: dict[str, Any]) -> tuple[Operation, ...]:
    """The operations that a record stands for: a span, or all spans of a trace, as Phoenix's CLI prints it.

    >>> span = {"name": "ask", "context": {"trace_id": "a" * 32, "span_id": "b" * 16}, "parent_id": None}
    >>> [one.name for one in operations_of({"traceId": "a" * 32, "spans": [span]})]
    ['ask']
    """
    spans = opened(record.get("spans"))
    if isinstance(spans, list) and _field(record, "span_id", "spanId") is None:
        return tuple(operation_of(span) for span in spans if isinstance(span, dict))
    return (operation_of(record),)


def operation_of(record: dict[str, Any]) -> Operation:
    """The operation that a record of a span stands for; raises `Wrong` where it names no trace or span.

    Ids stand in `context`, in `trace_id` and `span_id`, or in columns such as `context.trace_id`; attributes
    are flat, nested, or columns `attributes.…`; times are ISO texts or nanoseconds.

    >>> record = {"name": "chat", "context": {"trace_id": "0x" + "a" * 32, "span_id": "b" * 16}, "span_kind": "LLM"}
    >>> made = operation_of(record | {"attributes": {"llm": {"model_name": "m"}}})
    >>> made.trace[:4], made.attributes
    ('aaaa', {'llm.model_name': 'm', 'openinference.span.kind': 'LLM'})
    """
    trace = _hex(_field(record, "trace_id", "traceId"))
    name = _hex(_field(record, "span_id", "spanId"))
    wrong = lacking(trace, name)
    if wrong:
        raise Wrong(f"a span with {wrong}")
    parent = _hex(_field(record, "parent_id", "parent_span_id", "parentSpanId"))
    start = nanoseconds(_field(record, "start_time", "startTimeUnixNano", "start_time_unix_nano"))
    status, message = _status(record)
    return Operation(
        trace=trace,
        id=name,
        parent=parent if parent.strip("0") else None,
        name=str(record.get("name") or ""),
        start=start,
        end=nanoseconds(_field(record, "end_time", "endTimeUnixNano", "end_time_unix_nano")) or start,
        status=status,
        message=message,
        attributes=_attributes(record),
        events=tuple(_events(opened(record.get("events")))),
        resource=_resource(record.get("resource")),
    )


def _field(record: dict[str, Any], *names: str) -> Any:
    """The value under one of these names, here or in the context."""
    context = opened(record.get("context"))
    for name in names:
        for value in (
            record.get(name),
            record.get(f"context.{name}"),
            context.get(name) if isinstance(context, dict) else None,
        ):
            if value is not None:
                return value
    return None


def _hex(value: Any) -> str:
    return str(value or "").lower().removeprefix("0x").replace("-", "")


def nanoseconds(value: Any) -> int:
    """A moment in nanoseconds; none where it is not to be read."""
    if isinstance(value, str):
        if value.isdecimal() and len(value) < 20:
            return int(value)
        try:
            value = datetime.fromisoformat(FRACTION.sub(r"\1", value.strip()))
        except ValueError:
            return 0
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        gap = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return max(0, (gap.days * 86_400 + gap.seconds) * 1_000_000_000 + gap.microseconds * 1_000)
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _status(record: dict[str, Any]) -> tuple[Result, str]:
    status = opened(record.get("status"))
    inner = status if isinstance(status, dict) else {}
    code = record.get("status_code") or inner.get("status_code") or inner.get("code") or status
    message = record.get("status_message") or inner.get("description") or inner.get("message") or ""
    if type(code) is int:
        return (CODES[code] if 0 <= code < 3 else "unset"), str(message)
    named = str(code).lower().removeprefix("status_code_").rpartition(".")[2]
    return RESULTS.get(named, "unset"), str(message)


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    _flatten(opened(record.get("attributes")), "", made)
    for name, value in record.items():
        if name.startswith("attributes.") and value is not None:
            listed = name.endswith(LISTED) and isinstance(value, str)
            _flatten(cell("metadata", value) if listed else value, name.removeprefix("attributes."), made)
    kind = record.get("span_kind")
    if isinstance(kind, str) and kind and kind != "UNKNOWN":
        made.setdefault("openinference.span.kind", kind)
    return made


def _flatten(value: Any, name: str, made: dict[str, Any], depth: int = 0) -> None:
    """Put a nested value down as flat attributes: objects by their keys, lists of objects by their places."""
    if value is None or name.endswith(VECTOR) or len(made) >= LIMITS.attributes or depth > LIMITS.depth:
        return
    if (
        isinstance(value, list)
        and value
        and set(map(type, value)) <= {dict}
        and "key" in value[0]
        and not name
    ):
        value = {str(pair.get("key")): _any(pair.get("value")) for pair in value}
    if isinstance(value, dict) and name not in WHOLE:
        for key, part in value.items():
            _flatten(part, f"{name}.{key}" if name else str(key), made, depth + 1)
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value) and name not in WHOLE:
        for place, part in enumerate(value):
            _flatten(part, f"{name}.{place}", made, depth + 1)
    elif name:
        made[name] = value


def _any(value: Any) -> Any:
    """The value of an attribute in the manner of OTLP."""
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def _events(found: Any) -> Iterator[Event]:
    for event in found if isinstance(found, list) else ():
        if isinstance(event := opened(event), dict):
            held: dict[str, Any] = {}
            _flatten(opened(event.get("attributes")), "", held)
            time = nanoseconds(event.get("timestamp") or event.get("timeUnixNano"))
            yield Event(name=str(event.get("name") or ""), time=time, attributes=held)


def _resource(value: Any) -> dict[str, Any]:
    held: dict[str, Any] = {}
    resource = opened(value)
    _flatten(resource.get("attributes") if isinstance(resource, dict) else None, "", held)
    return held


def table_rows(name: str) -> Iterator[tuple[int, Any]]:
    """The rows of a Parquet file by their numbers, times as nanoseconds; raises `InputError` where it is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(readable(name)) as file:
            for batch in file.iter_batches(batch_size=ROWS):
                for record in batch_rows(batch):
                    row += 1
                    yield row, record
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as Parquet: {error}") from None


def batch_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a batch of Arrow, times as nanoseconds."""
    names = batch.schema.names
    for values in zip(*map(_column, batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _column(column: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        found: list[Any] = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_pylist()
        return found
    try:
        return list(column.to_pylist())
    except (ValueError, ImportError):
        return [None] * len(column)
