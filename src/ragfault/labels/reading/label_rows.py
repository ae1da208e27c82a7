"""Rows of a file that people filled in: CSV as a spreadsheet saves it, or JSON Lines."""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ragfault.io.formats.tables import find_delimiter, unescape_formula
from ragfault.model.errors import BadLine, BadRows, InputError

Converted = TypeVar("Converted")

MAX_CELL = 2**31 - 1


def read_label_rows(path: str | Path) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Yield the number and the content of each row, or why it cannot be read; empty lines are no rows.

    A file that ends in .csv is CSV, whose first row is the heading and whose second is number 2, with commas,
    semicolons, tabs or `|` between cells; any other is JSON Lines, numbered by its lines. The apostrophe before what a
    spreadsheet would run as a formula is taken away. Raises InputError for a file that cannot be opened or is neither
    UTF-8 nor UTF-16 with its mark.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "labels.jsonl")
    >>> _ = file.write_text('{"trace": "7", "value": 1}\\nnone\\n')
    >>> [(number, type(row).__name__) for number, row in read_label_rows(file)]
    [(1, 'dict'), (2, 'str')]
    """
    file = Path(path)
    try:
        content = file.read_bytes()
        text = content.decode("utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8. Save it as that.") from None
    return _iterate_csv(text) if file.suffix.lower() == ".csv" else _iterate_json_lines(text)


def convert_label_rows(path: str | Path, convert: Callable[[Mapping[str, Any]], Converted | str]) -> list[Converted]:
    """Convert the rows of a file to records; the function returns a text, the reason, where a row is no such record.

    Raises BadRows for rows that cannot be read or converted, and what `read_label_rows` raises.
    """
    records: list[Converted] = []
    bad_lines: list[BadLine] = []
    for number, row in read_label_rows(path):
        record = row if isinstance(row, str) else convert(row)
        if isinstance(record, str):
            bad_lines.append(BadLine(str(path), number, record))
        else:
            records.append(record)
    if bad_lines:
        raise BadRows(bad_lines, len(records))
    return records


def _iterate_csv(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
    delimiter = find_delimiter(text.split("\n", 1)[0].encode(), ",")
    for number, row in enumerate(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter), 2):
        yield number, {name: unescape_formula(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _iterate_json_lines(text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            yield number, f"it is not JSON: {error}"
        else:
            yield number, row if isinstance(row, dict) else "it is no object"
