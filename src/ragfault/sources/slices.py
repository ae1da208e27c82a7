"""Slices: the traces of an input from the n-th to the m-th, read without those before them.

A worker then reads its own share: a range of bytes of JSON Lines, or row groups of Parquet. That can be done
where a trace depends on its own line alone: with plain (uncompressed) files of ragfault's own shape, in which
every line is a trace with an id of its own. `index` says whether an input is one.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.records import Trace
from ragfault.sources import files, scan, shapes, tables
from ragfault.sources.mould import Mould, Plan, parse
from ragfault.sources.remote import Remote, is_remote, readable, stamp
from ragfault.sources.values import Wrong

__all__ = ["Anchor", "Index", "Slice", "index", "marks"]

APART = 1024
"""Lines of JSON between two places at which the reading can begin."""

MARK = b"\xef\xbb\xbf"
"""What some files begin with."""


class Anchor(Struct, frozen=True, array_like=True):
    """A place at which the reading can begin."""

    trace: int
    """How many traces are before it, those of the files before included."""
    at: int
    """The byte, or in Parquet the row group."""


class File(Struct, frozen=True):
    """A file, with what tells it from another one of its name."""

    name: str
    stamp: str
    parquet: bool
    anchors: tuple[Anchor, ...]

    def same(self) -> bool:
        """Whether the file stands where this is asked, and is the one that was meant."""
        try:
            return stamp(self.name) == self.stamp
        except OSError:
            return False


class Slice(Struct, frozen=True):
    """So many traces of an input, from one on."""

    first: int
    count: int
    files: tuple[File, ...]
    """The files that hold them, with the last place each at which the reading can begin."""

    def here(self) -> bool:
        """Whether these very files can be read where this is asked."""
        return all(file.same() for file in self.files)

    def traces(self) -> Iterator[Trace]:
        """The traces; raises `Wrong` for what was a trace when the input was counted, and is none now."""
        skip = self.first - self.files[0].anchors[0].trace
        found = chain.from_iterable(_read(file, skip if not at else 0) for at, file in enumerate(self.files))
        return islice(found, self.count)


class Index(Struct, frozen=True):
    """Where the traces of an input stand."""

    count: int
    files: tuple[File, ...]

    def slice(self, first: int, count: int) -> Slice:
        """The traces from the first on, counted from 0."""
        begins = [file.anchors[0].trace for file in self.files]
        start, end = bisect_right(begins, first) - 1, bisect_right(begins, first + count - 1)
        held = list(self.files[start:end])
        places = [anchor.trace for anchor in held[0].anchors]
        near = held[0].anchors[bisect_right(places, first) - 1]
        cut = [msgspec.structs.replace(held[0], anchors=(near,))]
        cut += [msgspec.structs.replace(file, anchors=file.anchors[:1]) for file in held[1:]]
        return Slice(first, count, tuple(cut))

    def same(self) -> bool:
        """Whether no file has changed since."""
        return all(file.same() for file in self.files)


def marks(where: files.Where) -> dict[str, str]:
    """The files of an input, each with what tells it from another one of its name."""
    return {name: "" if name == "-" else stamp(name) for name in files.expand(where)}


def index(where: files.Where, count: int, marked: Mapping[str, str] | None = None) -> Index | None:
    """Where so many traces of an input stand; None where they can only be read one after the other.

    None also where its files are not those that were `marked` before they were counted.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.jsonl"
    >>> _ = path.write_text('{"id": "1", "query": "When?"}\\n{"id": "2", "query": "Who?"}\\n')
    >>> [trace.query for trace in index(path, 2).slice(1, 1).traces()]
    ['Who?']
    """
    found: list[File] = []
    total = 0
    now = marks(where)
    if now != (now if marked is None else marked) or "-" in now:
        return None
    for name, mark in now.items():
        told = _indexed(name, total)
        if told is None:
            return None
        parquet, anchors, here = told
        if here:
            found.append(File(name, mark, parquet, anchors))
        total += here
    return Index(total, tuple(found)) if total == count else None


def _indexed(name: str, before: int) -> tuple[bool, tuple[Anchor, ...], int] | None:
    """Whether it is Parquet, its anchors, how many traces are in it; None where it cannot be cut."""
    stream = files.open_bytes(name)
    with stream.body as body:
        if not body.peek(1):
            return False, (), 0
        form = files.form(name, body)
        if form == "parquet":
            return _groups(name, before)
        if form != "json" or stream.packed or scan.is_document(body.peek(4096)):
            return None
        found = _lines(body, before)
    return None if found is None else (False, *found)


def _lines(body: io.BufferedReader, before: int) -> tuple[tuple[Anchor, ...], int] | None:
    """The anchors of JSON Lines, and how many lines say something; None where the first is of another shape."""
    anchors: list[Anchor] = []
    at = count = 0
    for line in body:
        text = line if at else line.removeprefix(MARK)
        if not text.isspace():
            if not count and not _native(text):
                return None
            if count % APART == 0:
                anchors.append(Anchor(before + count, at))
            count += 1
        at += len(line)
    return tuple(anchors), count


def _native(line: bytes) -> bool:
    try:
        return shapes.recognise(parse(line)) is shapes.NATIVE
    except Wrong:
        return False


def _groups(name: str, before: int) -> tuple[bool, tuple[Anchor, ...], int] | None:
    """The same of Parquet, from its row groups."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(readable(name)) as file:
        if shapes.recognise(file.schema_arrow.names) is not shapes.NATIVE:
            return None
        sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    anchors, count = [], 0
    for at, size in enumerate(sizes):
        if size:
            anchors.append(Anchor(before + count, at))
        count += size
    return True, tuple(anchors), count


# --- reading a slice -------------------------------------------------------------------------------


def _read(file: File, skip: int) -> Iterator[Trace]:
    """The traces of a file from an anchor on, without the first few."""
    mould = Mould(file.name, Plan({}, shapes.NATIVE, None, files.MAX_LINE))
    at = file.anchors[0].at
    payloads = _rows(file.name, at, skip, mould) if file.parquet else _texts(file.name, at, skip)
    return map(mould.trace, payloads)


def _texts(name: str, at: int, skip: int) -> Iterator[bytes]:
    raw: Any = Remote(name).open() if is_remote(name) else open(name, "rb")  # noqa: SIM115 - closed below
    with io.BufferedReader(raw, 2**18) as body:
        body.seek(at)
        texts = (text for _, text, _ in files.lines(body) if not text.isspace())
        yield from islice(texts, skip, None)


def _rows(name: str, group: int, skip: int, mould: Mould) -> Iterator[Any]:
    rows = tables.parquet_rows(name, from_group=group, skip=skip)
    mould.header(next(rows)[1])
    return (row for _, row in rows)
