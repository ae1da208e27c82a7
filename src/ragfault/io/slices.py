"""Slices of an input: read traces n to m without reading those before them.

A worker reads its own byte range of JSON Lines or row groups of Parquet: uncompressed, native shape, unique ids.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.io import files
from ragfault.io.decoder import ReadOptions, TraceDecoder
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats import json_stream, record_shapes, tables
from ragfault.io.payloads.json_records import parse_record
from ragfault.io.remote_paths import RemotePath, get_file_stamp, is_remote, open_for_arrow
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

SEEK_INTERVAL = 1024
"""JSON lines between two seek points."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Mark at the start of some files."""


class SeekPoint(Struct, frozen=True, array_like=True):
    """A position at which reading can begin."""

    traces_before: int
    """Number of traces before it, earlier files included."""
    position: int
    """Byte offset, or row group in Parquet."""


class IndexedFile(Struct, frozen=True):
    """A file with its stamp and seek points."""

    name: str
    stamp: str
    is_parquet: bool
    seek_points: tuple[SeekPoint, ...]

    def is_unchanged(self) -> bool:
        """Tell whether the file is readable here and has the expected stamp."""
        try:
            return get_file_stamp(self.name) == self.stamp
        except OSError:
            return False


class TraceSlice(Struct, frozen=True):
    """A range of the traces of an input."""

    first: int
    count: int
    files: tuple[IndexedFile, ...]
    """The files of the range, each with its last seek point before it."""

    def is_available(self) -> bool:
        """Tell whether these very files can be read on this machine."""
        return all(file.is_unchanged() for file in self.files)

    def traces(self) -> Iterator[Trace]:
        """Yield the traces. Raises `InvalidRecord` for a line that is no trace any more."""
        skip = self.first - self.files[0].seek_points[0].traces_before
        traces = chain.from_iterable(_read_file(file, skip if not i else 0) for i, file in enumerate(self.files))
        return islice(traces, self.count)


class TraceIndex(Struct, frozen=True):
    """Positions of the traces of an input."""

    count: int
    files: tuple[IndexedFile, ...]

    def slice(self, first: int, count: int) -> TraceSlice:
        """Return `count` traces from the `first` on, counted from 0."""
        begins = [file.seek_points[0].traces_before for file in self.files]
        start, end = bisect_right(begins, first) - 1, bisect_right(begins, first + count - 1)
        overlapping = list(self.files[start:end])
        places = [anchor.traces_before for anchor in overlapping[0].seek_points]
        near = overlapping[0].seek_points[bisect_right(places, first) - 1]
        cut = [msgspec.structs.replace(overlapping[0], seek_points=(near,))]
        cut += [msgspec.structs.replace(file, seek_points=file.seek_points[:1]) for file in overlapping[1:]]
        return TraceSlice(first, count, tuple(cut))

    def is_unchanged(self) -> bool:
        """Tell whether all files are unchanged."""
        return all(file.is_unchanged() for file in self.files)


def get_file_stamps(where: files.InputPaths) -> dict[str, str]:
    """Return the files of an input with their stamps (size and time, or the mark of the object store)."""
    return {name: "" if name == "-" else get_file_stamp(name) for name in files.expand_paths(where)}


def index_traces(
    where: files.InputPaths, count: int, expected_stamps: Mapping[str, str] | None = None
) -> TraceIndex | None:
    r"""Index the positions of `count` traces; return None where the input can only be read in sequence.

    None also where its files are not those of `expected_stamps`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.jsonl"
    >>> _ = path.write_text('{"id": "1", "query": "When?"}\n{"id": "2", "query": "Who?"}\n')
    >>> [trace.query for trace in index_traces(path, 2).slice(1, 1).traces()]
    ['Who?']
    """
    indexed: list[IndexedFile] = []
    total = 0
    now = get_file_stamps(where)
    if now != (now if expected_stamps is None else expected_stamps) or "-" in now:
        return None
    for name, mark in now.items():
        index = _index_file(name, total)
        if index is None:
            return None
        parquet, anchors, here = index
        if here:
            indexed.append(IndexedFile(name, mark, parquet, anchors))
        total += here
    return TraceIndex(total, tuple(indexed)) if total == count else None


def _index_file(name: str, traces_before: int) -> tuple[bool, tuple[SeekPoint, ...], int] | None:
    """Return whether a file is Parquet, its seek points and its count; None where it cannot be sliced."""
    stream = files.open_bytes(name)
    with stream.body as body:
        if not body.peek(1):
            return False, (), 0
        form = files.detect_format(name, body)
        if form == "parquet":
            return _index_row_groups(name, traces_before)
        if form != "json" or stream.is_compressed or json_stream.is_json_document(body.peek(4096)):
            return None
        index = _index_lines(body, traces_before)
    return None if index is None else (False, *index)


def _index_lines(body: io.BufferedReader, traces_before: int) -> tuple[tuple[SeekPoint, ...], int] | None:
    """Return the seek points and the count of JSON Lines; None where the first line is of another shape."""
    anchors: list[SeekPoint] = []
    at = count = 0
    for line in body:
        text = line if at else line.removeprefix(BYTE_ORDER_MARK)
        if not text.isspace():
            if not count and not _is_native_line(text):
                return None
            if count % SEEK_INTERVAL == 0:
                anchors.append(SeekPoint(traces_before + count, at))
            count += 1
        at += len(line)
    return tuple(anchors), count


def _is_native_line(line: bytes) -> bool:
    decoder = TraceDecoder("", ReadOptions({}, None, None, files.MAX_LINE))
    try:
        decoder.inspect([parse_record(line)])
    except (InvalidRecord, InputError):
        return False
    return decoder.is_native


def _index_row_groups(name: str, traces_before: int) -> tuple[bool, tuple[SeekPoint, ...], int] | None:
    """Return the same for the row groups of a Parquet file."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(open_for_arrow(name)) as file:
        if not {"query"} <= set(file.schema_arrow.names) <= set(record_shapes.TRACE_FIELDS):
            return None
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    anchors, count = [], 0
    for index, size in enumerate(sizes):
        if size:
            anchors.append(SeekPoint(traces_before + count, index))
        count += size
    return True, tuple(anchors), count


def _read_file(file: IndexedFile, skip: int) -> Iterator[Trace]:
    """Yield the traces of a file from its seek point on, without the first `skip`."""
    decoder = TraceDecoder(file.name, ReadOptions({}, record_shapes.NATIVE_SHAPE, None, files.MAX_LINE))
    at = file.seek_points[0].position
    payloads = (
        _read_parquet_rows(file.name, at, skip, decoder) if file.is_parquet else _read_json_lines(file.name, at, skip)
    )
    return map(decoder.decode_record, payloads)


def _read_json_lines(name: str, position: int, skip: int) -> Iterator[bytes]:
    raw: Any = RemotePath(name).open() if is_remote(name) else open(name, "rb")  # noqa: SIM115 - closed below
    with io.BufferedReader(raw, 2**18) as body:
        body.seek(position)
        texts = (text for _, text, _ in files.iterate_lines(body) if not text.isspace())
        yield from islice(texts, skip, None)


def _read_parquet_rows(name: str, group: int, skip: int, decoder: TraceDecoder) -> Iterator[Any]:
    rows = tables.read_parquet_rows(name, from_group=group, skip=skip)
    decoder.read_header(next(rows)[1])
    return (row for _, row in rows)
