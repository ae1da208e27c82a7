"""Payloads of a file: its lines, rows or objects by their numbers, in each format that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragfault.io import files
from ragfault.io.decoder import ReadOptions
from ragfault.io.error_collector import LineTooLong
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats import json_stream, tables
from ragfault.io.formats.record_lists import is_record_line
from ragfault.io.payloads.log_lines import read_log_line
from ragfault.io.payloads.yaml_documents import read_yaml_records


def iterate_payloads(
    name: str, file_format: str, stream: files.InputStream, options: ReadOptions
) -> Iterator[tuple[int, Any]]:
    """Yield line or row numbers with the payload there; a table first yields its column names as row 0."""
    if file_format == "parquet":
        yield from tables.read_parquet_rows(name)
    elif file_format == "arrow":
        yield from tables.read_arrow_rows(name)
    elif file_format in ("csv", "tsv"):
        yield from tables.read_csv_rows(stream.body, name, file_format == "tsv", options.max_line, options.notify)
    elif file_format == "yaml":
        yield from read_yaml_records(stream.body.read(), name)
    elif file_format == "log":
        yield from _iterate_log(name, stream, options)
    else:
        yield from _iterate_objects(stream, options)
    if stream.read_error and file_format not in ("parquet", "arrow"):
        yield -1, InvalidRecord(stream.read_error)


def _iterate_objects(stream: files.InputStream, options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Yield JSON objects with their lines, without one that is cut by a broken stream."""
    head = stream.body.peek(4096)
    query = options.column_map.get("query") or ()
    if json_stream.is_json_document(head, options.is_record) and not is_record_line(head, query):
        for number, element, complete in json_stream.iterate_elements(stream.body, options.max_line, options.is_record):
            if not isinstance(element, InvalidRecord):
                yield number, element if complete else LineTooLong(element, options.max_line)
            elif not stream.read_error:
                yield number, element
        return
    for number, text, complete in files.iterate_lines(stream.body, options.max_line):
        if not complete:
            yield number, LineTooLong(text, options.max_line)
        elif stream.read_error and not text.endswith(b"\n"):
            return
        elif text.lstrip().startswith((b"#", b"//")):
            options.notify("lines that begin with # or // are taken for comments")
        elif not text.isspace():
            yield number, text


def _iterate_log(name: str, stream: files.InputStream, options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Yield the objects in the lines of a log, and count the lines that hold none."""
    passed = 0
    options.notify(f"{name}: a log, whose lines hold objects behind a text")
    for number, text, complete in files.iterate_lines(stream.body, options.max_line):
        record = read_log_line(text) if complete else LineTooLong(text, options.max_line)
        passed += record is None
        if record is not None:
            yield number, record
    if passed:
        options.notify(f"{name}: {passed:,} lines of the log hold no object")
