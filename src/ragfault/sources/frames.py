"""Frames: tables in memory of pandas, polars, Hugging Face datasets or Arrow, as sources of traces.

Arrow is the exchange: whatever exports an Arrow stream is read batch by batch, and so is a dataset of Hugging Face.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ragfault.errors import InputError

__all__ = ["Frame", "frame_name", "frame_rows", "frame_spans", "is_frame", "lay_down"]


class Streamed(Protocol):
    """What exports its columns as a stream of Arrow: a frame of pandas or polars, a table of Arrow or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The stream, in a capsule."""
        ...


class Formatted(Protocol):
    """A dataset of Hugging Face."""

    def with_format(self, type: Any = None) -> Any:
        """The same, whose rows come as another kind of object."""
        ...


Frame = Streamed | Formatted
"""A table in memory; none of the packages that make them is imported here."""
ROWS = 256
"""Rows that are held at once as plain objects."""
INDEX = "__index_level_"
"""How the column begins that pandas makes of an index without a name."""


def is_frame(where: object) -> bool:
    """Whether this is a table in memory.

    >>> import pyarrow as pa
    >>> is_frame(pa.table({"query": ["When?"]})), is_frame("traces.jsonl")
    (True, False)
    """
    return hasattr(where, "__arrow_c_stream__") or hasattr(where, "collect_schema") or _hugging(where)


def _hugging(where: object) -> bool:
    splits = list(where.values()) if isinstance(where, Mapping) else []
    found = [where, *splits[:1]]
    return any(hasattr(one, "with_format") and hasattr(one, "iter") for one in found)


def frame_name(frame: object) -> str:
    """What a frame is called, for people and in the manifest of a run.

    >>> import pyarrow as pa
    >>> frame_name(pa.table({"query": ["When?"]}))
    'a Table of pyarrow in memory'
    """
    kind = type(frame)
    return f"a {kind.__name__} of {kind.__module__.partition('.')[0]} in memory"


def frame_rows(frame: Any) -> Iterator[tuple[int, Any]]:
    """The names of the columns (as row 0), then each row by its number: a Trace where the table is one of traces.

    Raises InputError for a dataset of several splits, and for columns that Arrow cannot hold.
    """
    row = 0
    for batch in _batches(frame):
        names = [name for name in batch.schema.names if not name.startswith(INDEX)]
        if row == 0:
            yield 0, names
        for record in _records(batch.select(names)):
            row += 1
            yield row, record


def frame_spans(frame: Any) -> Iterator[tuple[int, Any]]:
    """The rows of a frame of spans by their numbers, times as nanoseconds."""
    from ragfault.sources.spans.foreign import batch_rows

    row = 0
    for batch in _batches(frame):
        for record in batch_rows(batch):
            row += 1
            yield row, record


def lay_down(frame: Any, folder: Path) -> Path:
    """Write a frame to a file of Parquet in a folder, so that it can be read again and by others; its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, writer = folder / "frame.parquet", None
    try:
        for batch in _batches(frame):
            table = pa.Table.from_batches([batch])
            table = table.cast(pa.schema([(field.name, _storable(field.type)) for field in table.schema]))
            writer = writer or pq.ParquetWriter(place, table.schema, compression="zstd")
            writer.write_table(table)
    except pa.ArrowException as error:
        raise InputError(f"{frame_name(frame)} cannot be written as Parquet: {error}") from None
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise InputError("there is no trace to evaluate.")
    return place


def _batches(frame: Any) -> Iterator[Any]:
    """The frame as batches of Arrow, never more of it at once than it holds itself."""
    import pyarrow as pa

    if isinstance(frame, Mapping):
        names = ", ".join(map(str, frame))
        raise InputError(
            f"this dataset holds several splits: {names}. Name one of them: data[{next(iter(frame))!r}]."
        )
    if _hugging(frame):
        found: Iterable[Any] = (b for t in frame.with_format("arrow").iter(ROWS) for b in t.to_batches())
    else:
        found = _stream(
            frame.collect() if hasattr(frame, "collect_schema") and hasattr(frame, "collect") else frame
        )
    try:
        for batch in found:
            for start in range(0, batch.num_rows, ROWS):
                yield batch.slice(start, ROWS)
    except pa.ArrowException as error:
        raise InputError(f"{frame_name(frame)} cannot be read: {error}") from None


def _stream(frame: Any) -> Iterable[Any]:
    import pyarrow as pa

    try:
        found: Iterable[Any] = pa.RecordBatchReader.from_stream(frame)
        return found
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"{frame_name(frame)} has a column of values of several kinds ({error}). Give it one kind, "
            "or write the frame as JSON Lines and read that."
        ) from None


def _records(batch: Any) -> list[Any]:
    """The rows of a batch, as traces where its columns are theirs."""
    import pyarrow as pa

    from ragfault.sources.arrow import TRACE_SCHEMA, from_table

    if {"id", "query"} <= set(batch.schema.names) <= set(TRACE_SCHEMA.names):
        try:
            return list(from_table(pa.Table.from_batches([batch])))
        except (InputError, ValueError, TypeError):
            pass
    return list(batch.to_pylist())


def _storable(kind: Any) -> Any:
    """The type as Parquet can hold it: views become what they show."""
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_storable(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _storable(field.type)) for field in kind])
    return kind
