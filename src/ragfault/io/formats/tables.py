"""Rows of tables: CSV, TSV and Parquet files, and tables in memory (pandas, polars, Arrow, Hugging Face).

Text that a spreadsheet would run as a formula is escaped with an apostrophe; an empty text is a lone apostrophe.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from ragfault.io.field_values import InvalidRecord, encode_object
from ragfault.io.formats.texts import parse_list_text
from ragfault.io.remote_paths import open_for_arrow, parse_path
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

FORMULA_START = re.compile(r"'*([=+\-@\t\r]|\Z)")
ESCAPED_FORMULA = re.compile(r"'+([=+\-@\t\r]|\Z)")
END_OF_FILE = ""
"""Marker after the last line."""
PARQUET_BATCH_ROWS = 256
"""Rows per batch of a Parquet file."""


def escape_formula(text: str) -> str:
    """Escape text that a spreadsheet would run as a formula.

    >>> escape_formula("=1+1"), escape_formula("Oslo"), unescape_formula(escape_formula("=1+1"))
    ("'=1+1", 'Oslo', '=1+1')
    """
    return "'" + text if FORMULA_START.match(text) else text


def unescape_formula(text: str) -> str | None:
    """Remove the escape of a formula; return None for an empty cell."""
    if not text:
        return None
    return text[1:] if text[0] == "'" and ESCAPED_FORMULA.match(text) else text


MAX_HEADER_WORDS = 9
"""A column whose name has more words is taken for a text."""
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "the sign |"}


SEPARATOR_LINE = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=([^\w"\r\n])"?\r?\n')
"""A first line by which a spreadsheet is told what separates the cells."""


def find_delimiter(head: bytes, expected: str) -> str:
    """Find what separates the cells of the first line, outside of quotes; the expected one where it is there.

    >>> find_delimiter(b'question;"a,b;c";answer', ","), find_delimiter(b"question", ",")
    (';', ',')
    """
    line = re.sub(rb'"[^"]*"', b"", head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0])
    counts = {mark: line.count(mark.encode()) for mark in DELIMITERS}
    if counts[expected] and not counts[";"] > counts[expected]:
        return expected
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else expected


def read_csv_rows(
    body: io.BufferedReader, name: str, tab_separated: bool, limit: int, notify: Callable[[str], object] = str
) -> Iterator[tuple[int, Any]]:
    """Yield the header as line 0, then each row with its first line; an `InvalidRecord` replaces a bad row.

    A column that is written twice with equal cells, as pandas writes an index beside its column, counts once. Raises
    `InputError` where there is no header.
    """
    header: list[str] | None = None
    expected = "\t" if tab_separated else ","
    head = body.peek(2**16)
    named = SEPARATOR_LINE.match(head)
    if named is not None:
        body.readline()
    delimiter = find_delimiter(head, expected) if named is None else named[1].decode()
    if delimiter != expected:
        notify(f"{name}: cells are separated by {DELIMITERS.get(delimiter, f'the sign {delimiter}')}")
    for place, row in _iterate_csv_cells(body, delimiter, limit):
        line = place + (named is not None)
        if isinstance(row, InvalidRecord):
            yield line, row
        elif not row:
            continue
        elif header is None:
            header = [cell.strip() for cell in row]
            if any(len(cell.split()) > MAX_HEADER_WORDS for cell in header):
                raise InputError(
                    f"{name}: the first line holds texts, not the names of columns: put a line of names above it"
                )
            yield 0, list(dict.fromkeys(header))
        else:
            yield line, _build_row(header, row)


def _iterate_csv_cells(
    body: io.BufferedReader, delimiter: str, limit: int
) -> Iterator[tuple[int, list[str] | InvalidRecord]]:
    """Yield the cells of each row with its line.

    A quote followed by more than a delimiter is a character in a row of one line; in a longer row it was left open.
    """
    csv.field_size_limit(max(csv.field_size_limit(), min(limit, 2**31 - 1)))
    lines: list[str] = []
    reader = csv.reader(_decode_lines(body, limit, lines), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        lines.clear()
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _recover_row(lines, line, delimiter, error)


def _recover_row(
    lines: list[str], line: int, delimiter: str, error: csv.Error
) -> tuple[int, list[str] | InvalidRecord]:
    """Return the cells of lines that are no strict row, or what is wrong with them and where."""
    text = "".join(lines).encode("utf-8", "surrogateescape")
    if lines[-1] != END_OF_FILE and len(lines) > 1:
        last = line + len(lines) - 1
        return line, InvalidRecord(f"malformed row: {error} in line {last}; a quote may be left open", text)
    try:
        [cells] = csv.reader(lines, delimiter=delimiter)
    except csv.Error:
        # Python's message here advises a mode of opening files that no user of the reader can choose.
        is_split = "\r" in lines[0].rstrip("\r\n")
        reason = "a carriage return outside quotes (end lines in LF or CR LF; or it is not CSV)" if is_split else error
        return line, InvalidRecord(f"malformed row: {reason}", text)
    if lines[-1] != END_OF_FILE:
        return line, cells
    inside = cells[-1].removesuffix("\n").count("\n") + 1
    return line + len(lines) - 1 - inside, InvalidRecord("the quote that opens here is never closed", text)


def _build_row(header: list[str], row: list[str]) -> dict[str, Any] | InvalidRecord:
    if len(row) != len(header):
        return InvalidRecord(f"{len(row)} cells in a table of {len(header)} columns")
    for column, cell in zip(header, row, strict=True):
        if not cell.isascii() and any("\udc80" <= letter <= "\udcff" for letter in cell):
            return InvalidRecord(
                f"invalid UTF-8 in the column `{column}`: name the encoding with --encoding, such as latin-1"
            )
    cells = dict(zip(header, row, strict=True))
    double = next((column for column, cell in zip(header, row, strict=True) if cells[column] != cell), None)
    if double is not None:
        return InvalidRecord(f"two columns are named `{double}`, and their cells differ")
    return {column: _parse_object(unescape_formula(cell)) for column, cell in cells.items()}


def _parse_object(cell: str | None) -> Any:
    """Parse an object as Python prints it; return anything else unchanged."""
    parsed = parse_list_text(cell) if cell is not None and cell.startswith("{'") else cell
    return parsed if isinstance(parsed, dict) else cell


def _decode_lines(body: io.BufferedReader, limit: int, buffer: list[str]) -> Iterator[str]:
    """Yield lines as text and append each to `buffer`, with `END_OF_FILE` after the last."""
    first = True
    while line := body.readline(limit + 1):
        if first:
            line, first = line.removeprefix(b"\xef\xbb\xbf"), False
        buffer.append(line.decode("utf-8", "surrogateescape"))
        yield buffer[-1]
    buffer.append(END_OF_FILE)


def read_parquet_rows(name: str, from_group: int = 0, skip: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield the column names as row 0, then each row by its number; a native table yields traces.

    The rows come from a row group on, without the first few of it, and are numbered from there.
    Raises `InputError` where the file is no Parquet file or breaks off.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if name == "-":
        raise InputError("Parquet cannot be read from standard input: name the file")
    try:
        with pq.ParquetFile(open_for_arrow(name)) as file:
            yield 0, file.schema_arrow.names
            native = _is_trace_schema(file.schema_arrow)
            groups = range(from_group, file.num_row_groups)
            batches = _skip_rows(file.iter_batches(batch_size=PARQUET_BATCH_ROWS, row_groups=groups), skip)
            yield from enumerate(chain.from_iterable(_iterate_batch_records(batch, native) for batch in batches), 1)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as Parquet: {error}") from None


def read_arrow_rows(name: str) -> Iterator[tuple[int, Any]]:
    """Yield the column names of an Arrow file or stream (Feather) as row 0, then each row by its number.

    Raises `InputError` where the file is neither or breaks off.
    """
    import pyarrow as pa

    if name == "-":
        raise InputError("Arrow cannot be read from standard input: name the file")
    try:
        with parse_path(name).open("rb") as source:
            try:
                reader: Any = pa.ipc.open_file(source)
                batches: Iterable[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(0)
                batches = reader = pa.ipc.open_stream(source)
            yield 0, reader.schema.names
            native = _is_trace_schema(reader.schema)
            yield from enumerate(chain.from_iterable(_iterate_batch_records(batch, native) for batch in batches), 1)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as Arrow: {error}") from None


def _skip_rows(batches: Iterator[Any], skip: int) -> Iterator[Any]:
    """Yield batches without the first `skip` rows."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def _iterate_batch_records(batch: Any, native: bool) -> Iterator[Trace | dict[str, Any]]:
    import pyarrow as pa

    if not native:
        yield from batch.to_pylist()
        return
    from ragfault.io.formats.arrow import table_to_traces

    try:
        traces = list(table_to_traces(pa.Table.from_batches([batch])))
    except (InputError, ValueError):
        yield from batch.to_pylist()
    else:
        yield from traces


def _is_trace_schema(schema: Any) -> bool:
    from ragfault.io.formats.arrow import EARLIER_TYPES, TRACE_SCHEMA

    return all(
        name in TRACE_SCHEMA.names
        and schema.field(name).type in (TRACE_SCHEMA.field(name).type, EARLIER_TYPES.get(name))
        for name in schema.names
    )


class ArrowStreamable(Protocol):
    """An object with an Arrow stream: pandas, polars, Arrow, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream in a capsule."""
        ...


class HuggingFaceDataset(Protocol):
    """A dataset of Hugging Face."""

    def with_format(self, type: Any = None) -> Any:
        """Return the dataset with rows of another kind of object."""
        ...


TableLike = ArrowStreamable | HuggingFaceDataset
"""A table in memory; none of the packages that make them is imported here."""
TABLE_BATCH_ROWS = 256
"""Rows per batch of a table in memory."""
PANDAS_INDEX_PREFIX = "__index_level_"
"""Prefix of the column that pandas makes of an unnamed index."""


def is_memory_table(where: object) -> bool:
    """Tell whether this is a table in memory.

    >>> import pyarrow as pa
    >>> is_memory_table(pa.table({"query": ["When?"]})), is_memory_table("traces.jsonl")
    (True, False)
    """
    return hasattr(where, "__arrow_c_stream__") or hasattr(where, "collect_schema") or _is_hugging_face_dataset(where)


def _is_hugging_face_dataset(where: object) -> bool:
    splits = list(where.values()) if isinstance(where, Mapping) else []
    candidates = [where, *splits[:1]]
    return any(hasattr(candidate, "with_format") and hasattr(candidate, "iter") for candidate in candidates)


def describe_memory_table(table: object) -> str:
    """Describe a table in memory, for messages and for the manifest of a run.

    >>> import pyarrow as pa
    >>> describe_memory_table(pa.table({"query": ["When?"]}))
    'a Table of pyarrow in memory'
    """
    kind = type(table)
    return f"a {kind.__name__} of {kind.__module__.partition('.')[0]} in memory"


def read_memory_rows(table: Any) -> Iterator[tuple[int, Any]]:
    """Yield the column names as row 0, then each row by its number; a native table yields traces.

    Raises InputError for a dataset of several splits, and for columns that Arrow cannot hold.
    """
    row = 0
    for batch in _iterate_batches(table):
        names = [name for name in batch.schema.names if not name.startswith(PANDAS_INDEX_PREFIX)]
        if row == 0:
            yield 0, names
        for record in _decode_batch(batch.select(names)):
            row += 1
            yield row, record


def read_memory_span_rows(table: Any) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a table of spans by their numbers, times as nanoseconds."""
    from ragfault.io.otel.exported_spans import iterate_batch_rows

    yield from enumerate(chain.from_iterable(map(iterate_batch_rows, _iterate_batches(table))), 1)


def write_memory_table(source: Any, folder: Path) -> Path:
    """Write a frame to a file of Parquet in a folder, so that it can be read again and by others; its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, writer = folder / "frame.parquet", None
    try:
        for batch in _iterate_batches(source):
            table = pa.Table.from_batches([batch])
            table = table.cast(pa.schema([(field.name, _choose_parquet_type(field.type)) for field in table.schema]))
            writer = writer or pq.ParquetWriter(place, table.schema, compression="zstd")
            writer.write_table(table)
    except pa.ArrowException as error:
        raise InputError(f"{describe_memory_table(source)} cannot be written as Parquet: {error}") from None
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise InputError("there is no trace to evaluate.")
    return place


def _iterate_batches(table: Any) -> Iterator[Any]:
    """Yield the table as Arrow batches, never more at once than it holds itself."""
    import pyarrow as pa

    if isinstance(table, Mapping):
        names = ", ".join(map(str, table))
        raise InputError(f"this dataset holds several splits: {names}. Name one of them: data[{next(iter(table))!r}].")
    if _is_hugging_face_dataset(table):
        batches: Iterable[Any] = (b for t in table.with_format("arrow").iter(TABLE_BATCH_ROWS) for b in t.to_batches())
    else:
        batches = _open_arrow_stream(
            table.collect() if hasattr(table, "collect_schema") and hasattr(table, "collect") else table
        )
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, TABLE_BATCH_ROWS):
                yield batch.slice(start, TABLE_BATCH_ROWS)
    except pa.ArrowException as error:
        raise InputError(f"{describe_memory_table(table)} cannot be read: {error}") from None


def _open_arrow_stream(table: Any) -> Iterable[Any]:
    import pyarrow as pa

    try:
        reader: Iterable[Any] = pa.RecordBatchReader.from_stream(table)
        return reader
    except (pa.ArrowException, TypeError, ValueError) as error:
        # pandas: columns hold objects of any kinds
        if hasattr(table, "select_dtypes") and table.columns.is_unique:
            objects = table.loc[:, [str(kind) == "object" for kind in table.dtypes]]
            texts = objects.map(encode_object).where(objects.notna(), None)
            batches: Iterable[Any] = pa.Table.from_pandas(table.assign(**texts)).to_batches()
            return batches
        raise InputError(
            f"{describe_memory_table(table)} cannot be read as a table: {error}. Write it as JSON Lines and read that."
        ) from None


def _decode_batch(batch: Any) -> list[Any]:
    """Decode the rows of a batch, as traces where its columns are those of a trace."""
    import pyarrow as pa

    from ragfault.io.formats.arrow import TRACE_SCHEMA, table_to_traces

    if {"id", "query"} <= set(batch.schema.names) <= set(TRACE_SCHEMA.names):
        try:
            return list(table_to_traces(pa.Table.from_batches([batch])))
        except (InputError, ValueError, TypeError):
            pass
    return list(batch.to_pylist())


def _choose_parquet_type(kind: Any) -> Any:
    """Choose the type that Parquet can hold: views become plain types."""
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_choose_parquet_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _choose_parquet_type(field.type)) for field in kind])
    return kind
