"""Verdicts and scores as Arrow tables, derived from the records themselves.

A record becomes a struct, a tuple a list, a dict of texts a map; None becomes null. Every field is written,
also where it has its default, so that any Parquet reader sees it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from ragfault.records import Score, Verdicts

__all__ = ["SCORE_SCHEMA", "VERDICTS_SCHEMA", "from_table", "to_table"]

R = TypeVar("R", bound=msgspec.Struct)

_PLAIN = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}


@lru_cache
def _fields(record: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a record with their types."""
    hints = get_type_hints(record)
    return tuple((name, hints[name]) for name in record.__struct_fields__)


def _arrow(kind: Any) -> pa.DataType:
    """The Arrow type of an annotation."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _arrow(next(part for part in inner if part is not type(None)))
    if origin is Literal:
        return pa.string()
    if origin is tuple:
        return pa.list_(_arrow(inner[0]))
    if origin is dict:
        return pa.map_(pa.string(), pa.string())
    return pa.struct([(name, _arrow(part)) for name, part in _fields(kind)])


VERDICTS_SCHEMA = pa.schema([(name, _arrow(kind)) for name, kind in _fields(Verdicts)])
"""The columns of `verdicts.parquet`."""

SCORE_SCHEMA = pa.schema([(name, _arrow(kind)) for name, kind in _fields(Score)])
"""The columns of `scores.parquet`."""


def to_table(records: Sequence[msgspec.Struct], schema: pa.Schema) -> pa.Table:
    """The table that holds the records, one row each.

    >>> row = Score(trace="1", metric="error", layer="operation", status="scored", value=0.0)
    >>> to_table([row], SCORE_SCHEMA)["metric"].to_pylist()
    ['error']
    """
    columns = [_column([getattr(record, field.name) for record in records], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as an Arrow array, nested as deep as the type is."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [
            _column([None if v is None else getattr(v, name) for v in values], kind.field(name).type)
            for name in names
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        return pa.array([None if value is None else list(value.items()) for value in values], kind)
    if pa.types.is_list(kind):
        return _lists(values, kind)
    return pa.array(values, kind)


def _lists(values: list[Any], kind: pa.DataType) -> pa.Array:
    offsets, place = [0], 0
    for value in values:
        place += len(value) if value else 0
        offsets.append(place)
    flat = _column([item for value in values if value for item in value], kind.value_type)
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=kind, mask=mask)


def from_table(table: pa.Table, record: type[R]) -> Iterator[R]:
    """The records that a table holds, in order; the inverse of `to_table`.

    >>> verdicts = Verdicts(trace="1", missing=("a date",))
    >>> list(from_table(to_table([verdicts], VERDICTS_SCHEMA), Verdicts)) == [verdicts]
    True
    """
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            for name in maps:
                row[name] = dict(row[name] or ())
            yield msgspec.convert(row, record)
