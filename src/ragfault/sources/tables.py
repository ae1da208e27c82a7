"""Tables: the rows of CSV and Parquet files, a few at a time.

Spreadsheets run a cell that begins with `=`, `+`, `-` or `@` as a formula, and an answer of a model may
begin so. `guard` puts an apostrophe before such a text (and leaves an empty text as a lone apostrophe, which
keeps it apart from a cell that is absent); `unguard` takes exactly that away again.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from ragfault.errors import InputError
from ragfault.records import Trace
from ragfault.sources.remote import readable
from ragfault.sources.values import Wrong

__all__ = ["guard", "parquet_rows", "text_rows", "unguard"]

RISKY = re.compile(r"'*([=+\-@\t\r]|\Z)")
GUARDED = re.compile(r"'+([=+\-@\t\r]|\Z)")
END = ""
"""What stands in the place of a line after the last."""
ROWS = 256
"""Rows of a Parquet file that are held at once."""


def guard(text: str) -> str:
    """The text as it may stand in a spreadsheet.

    >>> guard("=1+1"), guard("Oslo"), unguard(guard("=1+1"))
    ("'=1+1", 'Oslo', '=1+1')
    """
    return "'" + text if RISKY.match(text) else text


def unguard(text: str) -> str | None:
    """The text that was guarded; None for an empty cell."""
    if not text:
        return None
    return text[1:] if text[0] == "'" and GUARDED.match(text) else text


# --- CSV and TSV -----------------------------------------------------------------------------------


def text_rows(body: io.BufferedReader, name: str, tab: bool, limit: int) -> Iterator[tuple[int, Any]]:
    """The header (as line 0), then each row with the line that it begins on, or a `Wrong` in its place.

    Raises `InputError` where there is no header.
    """
    header: list[str] | None = None
    for line, row in _rows(body, "\t" if tab else ",", limit):
        if isinstance(row, Wrong):
            yield line, row
        elif not row:
            continue
        elif header is None:
            header = [cell.strip() for cell in row]
            if len(set(header)) < len(header):
                double = next(cell for cell in header if header.count(cell) > 1)
                raise InputError(f"{name}: two columns are named `{double}`")
            yield 0, header
        else:
            yield line, _row(header, row)


def _rows(body: io.BufferedReader, delimiter: str, limit: int) -> Iterator[tuple[int, list[str] | Wrong]]:
    """The cells of each row with its line.

    A quote that is followed by more than a delimiter is a mere character where the row is one line; where the
    row goes over several, it is more likely that one was left open, and rows after it were taken for a cell.
    """
    csv.field_size_limit(max(csv.field_size_limit(), min(limit, 2**31 - 1)))
    lines: list[str] = []
    reader = csv.reader(_texts(body, limit, lines), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        lines.clear()
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _mended(lines, line, delimiter, error)


def _mended(lines: list[str], line: int, delimiter: str, error: csv.Error) -> tuple[int, list[str] | Wrong]:
    """The cells of lines that are no sound row, or what is wrong with them and where."""
    text = "".join(lines).encode("utf-8", "surrogateescape")
    if lines[-1] != END and len(lines) > 1:
        last = line + len(lines) - 1
        return line, Wrong(f"malformed row: {error} in line {last}; a quote may be left open", text)
    try:
        [cells] = csv.reader(lines, delimiter=delimiter)
    except csv.Error:
        return line, Wrong(f"malformed row: {error}", text)
    if lines[-1] != END:
        return line, cells
    inside = cells[-1].removesuffix("\n").count("\n") + 1
    return line + len(lines) - 1 - inside, Wrong("the quote that opens here is never closed", text)


def _row(header: list[str], row: list[str]) -> dict[str, Any] | Wrong:
    if len(row) != len(header):
        return Wrong(f"{len(row)} cells in a table of {len(header)} columns")
    for column, cell in zip(header, row, strict=True):
        if not cell.isascii() and any("\udc80" <= letter <= "\udcff" for letter in cell):
            return Wrong(f"invalid UTF-8 in the column `{column}`")
    return {column: unguard(cell) for column, cell in zip(header, row, strict=True)}


def _texts(body: io.BufferedReader, limit: int, kept: list[str]) -> Iterator[str]:
    """Lines as text, each also put to those `kept`, and `END` put there after the last.

    A line longer than the limit comes in pieces, and its cell is then refused by `csv`.
    """
    first = True
    while line := body.readline(limit + 1):
        if first:
            line, first = line.removeprefix(b"\xef\xbb\xbf"), False
        kept.append(line.decode("utf-8", "surrogateescape"))
        yield kept[-1]
    kept.append(END)


# --- Parquet ---------------------------------------------------------------------------------------


def parquet_rows(name: str, from_group: int = 0, skip: int = 0) -> Iterator[tuple[int, Any]]:
    """The column names (as row 0), then each row by its number: a Trace where the table is one of traces.

    The rows come from a row group on, without the first few of it, and are numbered from there.
    Raises `InputError` where the file is no Parquet file or breaks off.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if name == "-":
        raise InputError("Parquet cannot be read from standard input: name the file")
    try:
        with pq.ParquetFile(readable(name)) as file:
            yield 0, file.schema_arrow.names
            native = _native(file.schema_arrow)
            row = 0
            groups = range(from_group, file.num_row_groups)
            for batch in _without(file.iter_batches(batch_size=ROWS, row_groups=groups), skip):
                for record in _records(batch, native):
                    row += 1
                    yield row, record
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as Parquet: {error}") from None


def _without(batches: Iterator[Any], skip: int) -> Iterator[Any]:
    """The batches without their first few rows."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def _records(batch: Any, native: bool) -> Iterator[Trace | dict[str, Any]]:
    import pyarrow as pa

    if not native:
        yield from batch.to_pylist()
        return
    from ragfault.sources.arrow import from_table

    try:
        traces = list(from_table(pa.Table.from_batches([batch])))
    except (InputError, ValueError):
        yield from batch.to_pylist()
    else:
        yield from traces


def _native(schema: Any) -> bool:
    from ragfault.sources.arrow import TRACE_SCHEMA

    return all(
        name in TRACE_SCHEMA.names and TRACE_SCHEMA.field(name).type.equals(schema.field(name).type)
        for name in schema.names
    )
