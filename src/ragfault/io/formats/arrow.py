"""Arrow tables of traces, verdicts and scores: the schemas of the Parquet files, and conversion both ways.

A record becomes a struct, a tuple a list, a dict of texts a map, metadata JSON text. A round trip returns a `time` in
UTC, a tuple of one `reference` as a string, and metadata as msgspec writes it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ragfault.model.errors import InputError
from ragfault.model.records import (
    Chunk,
    Citation,
    ConversationTurn,
    Gold,
    Latency,
    Score,
    Span,
    Step,
    TokenCounts,
    Trace,
    Verdicts,
)
from ragfault.text.times import assume_utc

TRACES_PER_BATCH = 1024
"""Traces per record batch."""

RecordType = TypeVar("RecordType", bound=msgspec.Struct)

PLAIN_TYPES = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}


@lru_cache
def _get_field_types(record: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(record)
    return tuple((name, hints[name]) for name in record.__struct_fields__)


def _choose_arrow_type(kind: Any) -> pa.DataType:
    """Choose the Arrow type of an annotation."""
    if kind in PLAIN_TYPES:
        return PLAIN_TYPES[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _choose_arrow_type(next(item for item in inner if item is not type(None)))
    if origin is Literal:
        return pa.string()
    if origin is tuple:
        return pa.list_(_choose_arrow_type(inner[0]))
    if origin is dict:
        return pa.map_(pa.string(), pa.string())
    return pa.struct([(name, _choose_arrow_type(item)) for name, item in _get_field_types(kind)])


ColumnTypes = dict[str, pa.DataType]

CHUNK_COLUMNS: ColumnTypes = {
    "id": pa.string(),
    "text": pa.string(),
    "score": pa.float64(),
    "document": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "kind": pa.string(),
    "metadata": pa.string(),
}
CITATION_COLUMNS: ColumnTypes = {
    **dict.fromkeys(("chunk", "quote", "claim"), pa.string()),
    **dict.fromkeys(("start", "end"), pa.int64()),
}
GRADE_COLUMNS: ColumnTypes = {"id": pa.string(), "grade": pa.float64()}
SPAN_COLUMNS: ColumnTypes = {
    "document": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "grade": pa.float64(),
    **dict.fromkeys(("quote", "prefix", "suffix"), pa.string()),
}
LATENCY_COLUMNS: ColumnTypes = dict.fromkeys(("retrieval", "generation", "total"), pa.float64())
TOKENS_COLUMNS: ColumnTypes = dict.fromkeys(("prompt", "completion"), pa.int64())


def _make_struct_type(columns: ColumnTypes) -> pa.DataType:
    return pa.struct(list(columns.items()))


def _make_list_type(columns: ColumnTypes) -> pa.DataType:
    return pa.list_(_make_struct_type(columns))


HISTORY_TYPE = _choose_arrow_type(tuple[ConversationTurn, ...])
STEPS_TYPE = _choose_arrow_type(tuple[Step, ...])

TRACE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        ("attempt", pa.int64()),
        ("history", HISTORY_TYPE),
        ("chunks", _make_list_type(CHUNK_COLUMNS)),
        ("answer", pa.string()),
        ("citations", _make_list_type(CITATION_COLUMNS)),
        ("messages", HISTORY_TYPE),
        ("reference", pa.list_(pa.string())),
        ("facts", pa.list_(pa.string())),
        ("gold", pa.struct([("chunks", _make_list_type(GRADE_COLUMNS)), ("spans", _make_list_type(SPAN_COLUMNS))])),
        ("answerable", pa.bool_()),
        ("route", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("conversation", pa.string()),
        ("turn", pa.int64()),
        ("model", pa.string()),
        ("finish_reason", pa.string()),
        ("latency", _make_struct_type(LATENCY_COLUMNS)),
        ("steps", STEPS_TYPE),
        ("tokens", _make_struct_type(TOKENS_COLUMNS)),
        ("error", pa.string()),
        ("metadata", pa.string()),
    ]
)
"""The columns of a table of traces."""
EARLIER_TYPES = {"citations": _make_list_type(dict.fromkeys(("chunk", "quote", "claim"), pa.string()))}
"""Columns with the type that earlier versions wrote: their records lack some fields."""


def traces_to_table(traces: Iterable[Trace]) -> pa.Table:
    """Convert traces to a table in `TRACE_SCHEMA`, one row each.

    The whole table is in memory: for many traces, make one table for each thousand or so.

    >>> table = traces_to_table([Trace(id="1", query="When?", chunks=(Chunk(id="a", text="In 1040."),))])
    >>> table.num_rows, table["chunks"][0].as_py()[0]["text"]
    (1, 'In 1040.')
    """
    traces = iter(traces)
    batches: list[pa.RecordBatch] = []
    while batch := list(islice(traces, TRACES_PER_BATCH)):
        batches += _build_batches(batch)
    return pa.Table.from_batches(batches, TRACE_SCHEMA)


def table_to_traces(table: pa.Table) -> Iterator[Trace]:
    """Yield the traces of a table in `TRACE_SCHEMA`, in order.

    Absent columns read as absent in every trace. Raises `InputError` where `id` or `query` is missing or a type
    differs.

    >>> trace = Trace(id="1", query="When?", answer="In 1040.", metadata={"shop": 3})
    >>> list(table_to_traces(traces_to_table([trace]))) == [trace]
    True
    """
    names = [name for name in TRACE_SCHEMA.names if name in table.column_names]
    lacking = [name for name in ("id", "query") if name not in names or table[name].null_count]
    if lacking:
        raise InputError(f"no {' and '.join(f'`{name}`' for name in lacking)} in every row of the table")
    table = table.select(names)
    schema = pa.schema([TRACE_SCHEMA.field(name) for name in names])
    if table.schema.types != schema.types:
        try:
            table = table.cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise InputError(f"the columns are not those of a table of traces: {error}") from None
    for batch in table.to_batches(max_chunksize=TRACES_PER_BATCH):
        yield from _read_batch(batch)


def _build_batches(traces: Sequence[Trace]) -> list[pa.RecordBatch]:
    """Build one batch, or several where the texts exceed the 2 GiB that one array can hold."""
    try:
        return [_build_batch(traces)]
    except pa.ArrowCapacityError:
        if len(traces) == 1:
            raise
        middle = len(traces) // 2
        return _build_batches(traces[:middle]) + _build_batches(traces[middle:])


def _build_batch(traces: Sequence[Trace]) -> pa.RecordBatch:
    columns = {
        "history": _build_column([trace.history for trace in traces], HISTORY_TYPE),
        "chunks": _build_record_lists(
            [trace.chunks for trace in traces], CHUNK_COLUMNS, {"metadata": _encode_metadata}
        ),
        "citations": _build_record_lists([trace.citations for trace in traces], CITATION_COLUMNS),
        "messages": _build_column([trace.messages for trace in traces], HISTORY_TYPE),
        "reference": _build_text_lists([_list_references(trace.reference) for trace in traces]),
        "facts": _build_text_lists([trace.facts for trace in traces]),
        "gold": _build_gold([trace.gold for trace in traces]),
        "time": _build_array(
            [trace.time and assume_utc(trace.time) for trace in traces], TRACE_SCHEMA.field("time").type
        ),
        "latency": _build_structs([trace.latency for trace in traces], LATENCY_COLUMNS),
        "steps": _build_column([trace.steps for trace in traces], STEPS_TYPE),
        "tokens": _build_structs([trace.tokens for trace in traces], TOKENS_COLUMNS),
        "metadata": _build_array([_encode_metadata(trace.metadata) for trace in traces], pa.string()),
    }
    arrays = [
        columns[field.name]
        if field.name in columns
        else _build_array([getattr(trace, field.name) for trace in traces], field.type)
        for field in TRACE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TRACE_SCHEMA)


def _list_references(reference: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    return (reference,) if isinstance(reference, str) else reference


def _build_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    array = pa.array(values, kind)
    if isinstance(array, pa.ChunkedArray):
        raise pa.ArrowCapacityError("more than 2 GiB of text in one array")
    return array


def _build_record_lists(
    parts: Sequence[Sequence[Any] | None], columns: ColumnTypes, writers: dict[str, Callable[[Any], Any]] | None = None
) -> pa.Array:
    """Build a column of lists of records; None becomes a null list."""
    flat = [record for part in parts if part for record in part]
    writers = writers or {}
    arrays = []
    for name, kind in columns.items():
        values = [getattr(record, name) for record in flat]
        if name in writers:
            values = [writers[name](value) for value in values]
        arrays.append(_build_array(values, kind))
    return _nest_values(parts, pa.StructArray.from_arrays(arrays, fields=list(_make_struct_type(columns))))


def _build_text_lists(parts: Sequence[Sequence[str] | None]) -> pa.Array:
    return _nest_values(parts, _build_array([text for part in parts if part for text in part], pa.string()))


def _nest_values(parts: Sequence[Sequence[Any] | None], values: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    """Group flat values into lists of the lengths of `parts`."""
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + (len(part) if part else 0))
    mask = pa.array([part is None for part in parts], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind, mask=mask)


def _build_structs(records: list[Any], columns: ColumnTypes) -> pa.Array:
    arrays = [_build_array([getattr(record, name, None) for record in records], kind) for name, kind in columns.items()]
    return _build_nullable_struct(arrays, list(_make_struct_type(columns)), records)


def _build_gold(golds: list[Gold | None]) -> pa.Array:
    grades = [tuple(gold.chunks.items()) if gold else None for gold in golds]
    flat = [pair for graded in grades if graded for pair in graded]
    pairs = [
        _build_array([pair[0] for pair in flat], pa.string()),
        _build_array([pair[1] for pair in flat], pa.float64()),
    ]
    chunks = _nest_values(grades, pa.StructArray.from_arrays(pairs, fields=list(_make_struct_type(GRADE_COLUMNS))))
    spans = _build_record_lists([gold.spans if gold else None for gold in golds], SPAN_COLUMNS)
    return _build_nullable_struct([chunks, spans], list(TRACE_SCHEMA.field("gold").type), golds)


def _build_nullable_struct(arrays: list[pa.Array], fields: list[pa.Field], records: list[Any]) -> pa.Array:
    mask = pa.array([record is None for record in records], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _encode_metadata(metadata: dict[str, Any]) -> str | None:
    return msgspec.json.encode(metadata).decode() if metadata else None


def _read_batch(batch: pa.RecordBatch) -> Iterator[Trace]:
    columns = {name: COLUMN_READERS.get(name, list_values)(batch.column(name)) for name in batch.schema.names}
    for values in zip(*columns.values(), strict=True):
        yield Trace(**dict(zip(columns, values, strict=True)))


def list_values(array: pa.Array, interned: dict[str, str] | None = None) -> list[Any]:
    """List the values of an array.

    Equal texts are one object, that of `interned` if it has one; new ones are added there.
    """
    if array.null_count == len(array):
        return [None] * len(array)
    if pa.types.is_string(array.type):
        encoded = array.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        known = dict(enumerate(texts if interned is None else map(interned.setdefault, texts, texts)))
        return list(map(known.get, encoded.indices.to_pylist()))
    values: list[Any] = array.to_pylist()
    return values


def _read_chunks(column: pa.Array) -> list[Any]:
    fields = map(list_values, column.flatten().flatten())
    chunks = (
        Chunk(
            id=name,
            text=text,
            score=score,
            document=document,
            start=start,
            end=end,
            # the object of the default, which is not written
            kind="text" if kind in (None, "text") else kind,
            metadata=_decode_metadata(metadata),
        )
        for name, text, score, document, start, end, kind, metadata in zip(*fields, strict=True)
    )
    return split_values(column, chunks)


def _read_citations(column: pa.Array) -> list[Any]:
    return split_values(column, _read_structs(column.flatten(), Citation))


def split_values(column: pa.Array, values: Iterable[Any]) -> list[Any]:
    """Group flat values as the lists of a column."""
    values = iter(values)
    lengths = list_values(pc.list_value_length(column))
    return [None if length is None else tuple(islice(values, length)) for length in lengths]


def _read_structs(column: pa.StructArray, make: Callable[..., Any]) -> list[Any]:
    names = [field.name for field in column.type]
    rows = zip(list_values(column.is_valid()), *map(list_values, column.flatten()), strict=True)
    return [make(**dict(zip(names, row, strict=True))) if valid else None for valid, *row in rows]


def _read_gold(column: pa.StructArray) -> list[Gold | None]:
    grades, spans = column.flatten()
    pairs = split_values(grades, zip(*map(list_values, grades.flatten().flatten()), strict=True))
    flat_spans = spans.flatten()
    gold_spans = split_values(spans, _read_structs(flat_spans, Span))
    rows = zip(list_values(column.is_valid()), pairs, gold_spans, strict=True)
    return [Gold(chunks=dict(chunks or ()), spans=spans or ()) if valid else None for valid, chunks, spans in rows]


def _read_texts(column: pa.Array) -> list[Any]:
    return split_values(column, list_values(column.flatten()))


def _read_references(column: pa.Array) -> list[str | tuple[str, ...] | None]:
    return [texts[0] if texts is not None and len(texts) == 1 else texts for texts in _read_texts(column)]


def _read_times(column: pa.Array) -> list[datetime | None]:
    """Read instants in UTC by arithmetic: pyarrow would need a time zone package."""
    micros = column.cast(pa.int64()).to_pylist()
    return [None if value is None else _convert_to_datetime(value) for value in micros]


def _convert_to_datetime(micros: int) -> datetime:
    seconds, remainder = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=remainder)


def _read_turns(column: pa.Array) -> list[tuple[ConversationTurn, ...] | None]:
    return msgspec.convert(list_rows(column), list[tuple[ConversationTurn, ...] | None])


_METADATA_DECODER = msgspec.json.Decoder(dict[str, Any])


def _decode_metadata(metadata: str | None) -> dict[str, Any]:
    return _METADATA_DECODER.decode(metadata) if metadata else {}


COLUMN_READERS: dict[str, Callable[[pa.Array], list[Any]]] = {
    "attempt": lambda column: list_values(column.fill_null(1)),
    "history": _read_turns,
    "messages": _read_turns,
    "chunks": _read_chunks,
    "citations": _read_citations,
    "reference": _read_references,
    "facts": _read_texts,
    "gold": _read_gold,
    "time": _read_times,
    "latency": lambda column: _read_structs(column, Latency),
    "steps": lambda column: msgspec.convert(list_rows(column), list[tuple[Step, ...] | None]),
    "tokens": lambda column: _read_structs(column, TokenCounts),
    "metadata": lambda column: list(map(_decode_metadata, list_values(column))),
}
"""Readers of columns that are not plain values."""


@lru_cache
def make_schema(record: type[msgspec.Struct]) -> pa.Schema:
    """Make the schema of a table of records: a column for each field.

    >>> make_schema(TokenCounts).names
    ['prompt', 'completion']
    """
    return pa.schema([(name, _choose_arrow_type(kind)) for name, kind in _get_field_types(record)])


VERDICTS_SCHEMA = make_schema(Verdicts)
"""The columns of `verdicts.parquet`."""
SCORE_SCHEMA = make_schema(Score)
"""The columns of `scores.parquet`."""


def records_to_table(records: Sequence[msgspec.Struct], schema: pa.Schema) -> pa.Table:
    """Convert records to a table, one row each.

    >>> row = Score(trace="1", metric="error", layer="operation", status="scored", value=0.0)
    >>> records_to_table([row], SCORE_SCHEMA)["metric"].to_pylist()
    ['error']
    """
    columns = [_build_column([getattr(record, field.name) for record in records], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _build_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Build an Arrow array, nested as deep as the type is."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [
            _build_column([None if value is None else getattr(value, name) for value in values], kind.field(name).type)
            for name in names
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        return pa.array([None if value is None else list(value.items()) for value in values], kind)
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    return _nest_values(
        values, _build_column([item for value in values if value for item in value], kind.value_type), kind
    )


def table_to_records(table: pa.Table, record: type[RecordType]) -> Iterator[RecordType]:
    """Yield the records of a table, in order; the inverse of `records_to_table`.

    >>> verdicts = Verdicts(trace="1", missing=("a date",))
    >>> list(table_to_records(records_to_table([verdicts], VERDICTS_SCHEMA), Verdicts)) == [verdicts]
    True
    """
    for batch in table.to_batches(max_chunksize=TRACES_PER_BATCH):
        yield from msgspec.convert(list_rows(batch.to_struct_array()), list[record])  # type: ignore[valid-type]


def list_rows(array: pa.Array, interned: dict[str, str] | None = None) -> list[Any]:
    """List nested values, as `to_pylist` does, with absent maps empty and equal texts one object.

    Claims, facts and ids of chunks stand in several columns.
    """
    interned = {} if interned is None else interned
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [list_rows(item, interned) for item in array.flatten()]
        rows: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]
    elif pa.types.is_map(kind):
        return [dict(pairs or ()) for pairs in array.to_pylist()]
    elif pa.types.is_list(kind):
        return split_values(array, list_rows(array.flatten(), interned))
    else:
        is_plain = pa.types.is_string(kind) or pa.types.is_primitive(kind)
        return list_values(array, interned) if is_plain else array.to_pylist()
    if not array.null_count:
        return rows
    return [row if is_valid else None for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
