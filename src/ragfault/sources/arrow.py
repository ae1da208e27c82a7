"""Traces as an Arrow table: nested columns, the shape of `traces.parquet` and of every Parquet file.

Each field of a trace is a column; chunks, citations and gold nest; `metadata` is one column of JSON text,
so that it keeps whatever was in it and the difference between 1 and 1.0. What a round trip changes, and
all that it changes:

- a `time` comes back in UTC, the same instant; one without an offset is taken as UTC;
- a `reference` that is a tuple of one comes back as that one string;
- in `metadata`, what JSON cannot hold comes back as msgspec writes it (a date as text, NaN as null).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ragfault.errors import InputError
from ragfault.records import Chunk, Citation, Gold, Latency, Span, Timing, Tokens, Trace

__all__ = ["TRACE_SCHEMA", "from_table", "to_table"]

BATCH = 1024
"""Traces to a record batch."""

Columns = dict[str, pa.DataType]

CHUNK: Columns = {
    "id": pa.string(),
    "text": pa.string(),
    "score": pa.float64(),
    "document": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "kind": pa.string(),
    "metadata": pa.string(),
}
CITATION: Columns = {"chunk": pa.string(), "quote": pa.string(), "claim": pa.string()}
GRADE: Columns = {"id": pa.string(), "grade": pa.float64()}
SPAN: Columns = {"document": pa.string(), "start": pa.int64(), "end": pa.int64(), "grade": pa.float64()}
LATENCY: Columns = dict.fromkeys(("retrieval", "generation", "total"), pa.float64())
TIMING: Columns = {"name": pa.string(), "start": pa.float64(), "took": pa.float64(), "chunks": pa.int64()}
TOKENS: Columns = dict.fromkeys(("prompt", "completion"), pa.int64())


def _struct(columns: Columns) -> pa.DataType:
    return pa.struct(list(columns.items()))


def _list(columns: Columns) -> pa.DataType:
    return pa.list_(_struct(columns))


TRACE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        ("chunks", _list(CHUNK)),
        ("answer", pa.string()),
        ("citations", _list(CITATION)),
        ("reference", pa.list_(pa.string())),
        ("facts", pa.list_(pa.string())),
        ("gold", pa.struct([("chunks", _list(GRADE)), ("spans", _list(SPAN))])),
        ("route", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("conversation", pa.string()),
        ("turn", pa.int64()),
        ("model", pa.string()),
        ("latency", _struct(LATENCY)),
        ("timings", _list(TIMING)),
        ("tokens", _struct(TOKENS)),
        ("error", pa.string()),
        ("metadata", pa.string()),
    ]
)
"""The columns of a table of traces."""


def to_table(traces: Iterable[Trace]) -> pa.Table:
    """The table that holds the traces, one row each, in `TRACE_SCHEMA`.

    The whole table is in memory: for many traces, make one table for each thousand or so.

    >>> table = to_table([Trace(id="1", query="When?", chunks=(Chunk(id="a", text="In 1040."),))])
    >>> table.num_rows, table["chunks"][0].as_py()[0]["text"]
    (1, 'In 1040.')
    """
    traces = iter(traces)
    batches: list[pa.RecordBatch] = []
    while part := list(islice(traces, BATCH)):
        batches += _batches(part)
    return pa.Table.from_batches(batches, TRACE_SCHEMA)


def from_table(table: pa.Table) -> Iterator[Trace]:
    """The traces that a table in `TRACE_SCHEMA` holds, in order.

    A column that is absent reads as absent in every trace, columns of other names are passed over.
    Raises `InputError` where `id` or `query` is absent or null, or a column is of another type.

    >>> trace = Trace(id="1", query="When?", answer="In 1040.", metadata={"shop": 3})
    >>> list(from_table(to_table([trace]))) == [trace]
    True
    """
    names = [name for name in TRACE_SCHEMA.names if name in table.column_names]
    lacking = [name for name in ("id", "query") if name not in names or table[name].null_count]
    if lacking:
        raise InputError(f"no {' and '.join(f'`{name}`' for name in lacking)} in every row of the table")
    table = table.select(names)
    wanted = pa.schema([TRACE_SCHEMA.field(name) for name in names])
    if table.schema.types != wanted.types:
        try:
            table = table.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise InputError(f"the columns are not those of a table of traces: {error}") from None
    for batch in table.to_batches(max_chunksize=BATCH):
        yield from _rows(batch)


# --- from records to columns -----------------------------------------------------------------------


def _batches(traces: Sequence[Trace]) -> list[pa.RecordBatch]:
    """One batch, or several where the texts together pass the 2 GiB that one array can hold."""
    try:
        return [_batch(traces)]
    except pa.ArrowCapacityError:
        if len(traces) == 1:
            raise
        middle = len(traces) // 2
        return _batches(traces[:middle]) + _batches(traces[middle:])


def _batch(traces: Sequence[Trace]) -> pa.RecordBatch:
    columns = {
        "chunks": _lists([trace.chunks for trace in traces], CHUNK, {"metadata": _dump}),
        "citations": _lists([trace.citations for trace in traces], CITATION),
        "reference": _texts([None if t.reference is None else t.references for t in traces]),
        "facts": _texts([trace.facts for trace in traces]),
        "gold": _golds([trace.gold for trace in traces]),
        "time": _array([_utc(trace.time) for trace in traces], TRACE_SCHEMA.field("time").type),
        "latency": _records([trace.latency for trace in traces], LATENCY),
        "timings": _lists([trace.timings for trace in traces], TIMING),
        "tokens": _records([trace.tokens for trace in traces], TOKENS),
        "metadata": _array([_dump(trace.metadata) for trace in traces], pa.string()),
    }
    arrays = [
        columns[field.name]
        if field.name in columns
        else _array([getattr(trace, field.name) for trace in traces], field.type)
        for field in TRACE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TRACE_SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    array = pa.array(values, kind)
    if isinstance(array, pa.ChunkedArray):
        raise pa.ArrowCapacityError("more than 2 GiB of text in one array")
    return array


def _lists(
    parts: Sequence[Sequence[Any] | None],
    columns: Columns,
    writers: dict[str, Callable[[Any], Any]] | None = None,
) -> pa.Array:
    """A column of lists of records; None is a null list, unlike an empty one."""
    flat = [record for part in parts if part for record in part]
    writers = writers or {}
    arrays = []
    for name, kind in columns.items():
        values = [getattr(record, name) for record in flat]
        if name in writers:
            values = [writers[name](value) for value in values]
        arrays.append(_array(values, kind))
    return _nest(parts, pa.StructArray.from_arrays(arrays, fields=list(_struct(columns))))


def _texts(parts: Sequence[Sequence[str] | None]) -> pa.Array:
    return _nest(parts, _array([text for part in parts if part for text in part], pa.string()))


def _nest(parts: Sequence[Sequence[Any] | None], values: pa.Array) -> pa.Array:
    """The values, cut into the lists that they came from."""
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + (len(part) if part else 0))
    mask = pa.array([part is None for part in parts], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def _records(records: list[Any], columns: Columns) -> pa.Array:
    arrays = [_array([getattr(r, name, None) for r in records], kind) for name, kind in columns.items()]
    return _masked(arrays, list(_struct(columns)), records)


def _golds(golds: list[Gold | None]) -> pa.Array:
    grades = [tuple(gold.chunks.items()) if gold else None for gold in golds]
    flat = [pair for part in grades if part for pair in part]
    pairs = [
        _array([pair[0] for pair in flat], pa.string()),
        _array([pair[1] for pair in flat], pa.float64()),
    ]
    chunks = _nest(grades, pa.StructArray.from_arrays(pairs, fields=list(_struct(GRADE))))
    spans = _lists([gold.spans if gold else None for gold in golds], SPAN)
    return _masked([chunks, spans], list(TRACE_SCHEMA.field("gold").type), golds)


def _masked(arrays: list[pa.Array], fields: list[pa.Field], records: list[Any]) -> pa.Array:
    mask = pa.array([record is None for record in records], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _dump(metadata: dict[str, Any]) -> str | None:
    return msgspec.json.encode(metadata).decode() if metadata else None


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


# --- from columns to records -----------------------------------------------------------------------


def _rows(batch: pa.RecordBatch) -> Iterator[Trace]:
    columns: dict[str, list[Any]] = {}
    for name in batch.schema.names:
        column = batch.column(name)
        read = READERS.get(name)
        columns[name] = read(column) if read else column.to_pylist()
    for values in zip(*columns.values(), strict=True):
        yield Trace(**dict(zip(columns, values, strict=True)))


def _chunk(metadata: str | None, **values: Any) -> Chunk:
    if values.get("kind") in (None, "text"):
        values.pop("kind", None)
    return Chunk(metadata=_load(metadata), **values)


def _unlist(column: pa.Array, make: Callable[..., Any]) -> list[tuple[Any, ...] | None]:
    """The lists of a column, each row of them made into a record."""
    flat = column.flatten()
    names = [field.name for field in flat.type]
    fields = [array.to_pylist() for array in flat.flatten()]
    rows = (make(**dict(zip(names, row, strict=True))) for row in zip(*fields, strict=True))
    return _cut(column, rows)


def _cut(column: pa.Array, values: Iterator[Any]) -> list[tuple[Any, ...] | None]:
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else tuple(islice(values, length)) for length in lengths]


def _unpack(column: pa.Array, make: Callable[..., Any]) -> list[Any]:
    return [None if row is None else make(**row) for row in column.to_pylist()]


def _ungold(column: pa.Array) -> list[Gold | None]:
    grades, spans = column.flatten()
    pairs = _unlist(grades, lambda id, grade: (id, grade))
    rows = zip(column.is_valid().to_pylist(), pairs, _unlist(spans, Span), strict=True)
    return [
        Gold(chunks=dict(chunks or ()), spans=found or ()) if valid else None for valid, chunks, found in rows
    ]


def _unref(column: pa.Array) -> list[str | tuple[str, ...] | None]:
    found = _cut(column, iter(column.flatten().to_pylist()))
    return [texts[0] if texts is not None and len(texts) == 1 else texts for texts in found]


def _untime(column: pa.Array) -> list[datetime | None]:
    """Instants in UTC, by arithmetic: pyarrow would ask for a package of time zones."""
    micros = column.cast(pa.int64()).to_pylist()
    return [None if value is None else _instant(value) for value in micros]


def _instant(micros: int) -> datetime:
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def _load(metadata: str | None) -> dict[str, Any]:
    return msgspec.json.decode(metadata, type=dict[str, Any]) if metadata else {}


READERS: dict[str, Callable[[pa.Array], list[Any]]] = {
    "chunks": lambda column: _unlist(column, _chunk),
    "citations": lambda column: _unlist(column, Citation),
    "reference": _unref,
    "facts": lambda column: _cut(column, iter(column.flatten().to_pylist())),
    "gold": _ungold,
    "time": _untime,
    "latency": lambda column: _unpack(column, Latency),
    "timings": lambda column: _unlist(column, Timing),
    "tokens": lambda column: _unpack(column, Tokens),
    "metadata": lambda column: [_load(text) for text in column.to_pylist()],
}
"""Columns that are more than plain values, and how they become values again."""
