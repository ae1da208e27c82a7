"""Reading: every trace of every file, and every fault told with its line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

from ragfault.errors import SHOWN, Fault, InputError, UnknownName
from ragfault.records import Trace
from ragfault.sources import files, frames, scan, shapes, tables
from ragfault.sources.desk import Desk, Long, OnBad, Places
from ragfault.sources.files import MAX_LINE, Where
from ragfault.sources.mould import Mould, Notice, Plan
from ragfault.sources.spans.foreign import table_rows
from ragfault.sources.spans.source import Spans, holds_spans
from ragfault.sources.values import Wrong

__all__ = ["read_traces"]


def read_traces(  # noqa: PLR0913 - the options of one verb
    where: Where | frames.Frame,
    *,
    map: Mapping[str, str] | str | Path | None = None,
    shape: str | None = None,
    qrels: str | os.PathLike[str] | None = None,
    on_bad: OnBad = "raise",
    notice: Notice | None = None,
    max_line: int = MAX_LINE,
    rest: bool = False,
    places: Places | None = None,
) -> Iterator[Trace]:
    """Every trace of one or many files, in order, as a stream: the memory it takes does not grow with them.

    `where` is a path, `-` for standard input, a directory, a glob, or a list of these; or a table in memory: a frame of
    pandas or polars, a dataset of Hugging Face, a table of Arrow. Files are JSON Lines
    (plain, gzip, Zstandard), a JSON array, CSV, TSV, Parquet, or a TREC run (with `qrels`).

    `map` says which foreign column is which field (a dict, or the path of a TOML file); without it the
    shape is recognised from the first record and told to `notice`, or forced by `shape`. Without a map,
    columns that no field takes are kept in `metadata`; with one, only what it names and what the shape
    knows is read, unless the `rest` is wanted too. A chunk without an id is named by its text, a trace without one
    by its query: `q-`, 12 hex digits, and from the second trace of the same query on `#2`, `#3` … in their
    order. A time without an offset is taken as UTC.

    Faults of single lines never stop the reading. `on_bad="raise"` gives every good trace and then raises
    `BadTraces`, with the first 20 faults and the count of all; a callable gets each fault as it comes, with
    the text of the line; "skip" passes them over. A line of more than `max_line` bytes is a fault, and
    so is the end of a truncated file. `places` is filled with the file and line of each trace by its id.

    Raises `InputError` for files that are not there, cannot be read, are empty or not recognised, and for a
    column of `map` that is not in a table, or in no record of the whole input; `UnknownName` for a shape or map
    key that does not exist – both before the first trace where they can.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "old.jsonl"
    >>> _ = path.write_text('{"user_input": "When?", "retrieved_contexts": ["In 1040."], "response": "1040"}')
    >>> [trace] = read_traces(path, notice=print)
    read as Ragas (user_input, retrieved_contexts, response)
    >>> trace.query, trace.chunks[0].text, trace.answer
    ('When?', 'In 1040.', '1040')
    """
    if not callable(on_bad) and on_bad not in ("raise", "skip"):
        raise UnknownName("way to treat bad lines", str(on_bad), ["raise", "skip", "a callable"])
    plan = Plan(
        shapes.columns(map),
        shapes.named(shape) if shape and shape != "trec" else None,
        notice,
        max_line,
        rest,
    )
    if frames.is_frame(where):
        return _framed(where, plan, Desk(on_bad, places))
    return _read(files.expand(cast(Where, where)), plan, Desk(on_bad, places), shape == "trec", qrels)


def _framed(frame: Any, plan: Plan, desk: Desk) -> Iterator[Trace]:
    """The traces of a table in memory."""
    name = frames.frame_name(frame)
    payloads, joined = _peeked(frames.frame_rows(frame), plan)
    if joined:
        spans = Spans(plan, desk)
        yield from spans.read(name, frames.frame_spans(frame))
        yield from spans.rest()
    else:
        yield from _traces(name, payloads, plan, desk)
    plan.close()
    desk.close([name])


def _read(names: list[str], plan: Plan, desk: Desk, trec: bool, qrels: Any) -> Iterator[Trace]:
    spans = Spans(plan, desk)
    for name in names:
        stream = files.open_bytes(name)
        with stream.body as body:
            if not body.peek(1):
                if stream.broken:
                    desk.fault(name, 1, stream.broken, b"")
                continue
            form = "trec" if trec else files.form(name, body)
            if form == "trec":
                yield from _trec(name, qrels, desk, plan)
                continue
            payloads, joined = _peeked(_payloads(name, form, stream, plan), plan)
            if joined:
                yield from spans.read(name, table_rows(name) if form == "parquet" else payloads)
            else:
                yield from _traces(name, payloads, plan, desk)
    yield from spans.rest()
    plan.close()
    desk.close(names)


def _peeked(payloads: Iterator[tuple[int, Any]], plan: Plan) -> tuple[Iterator[tuple[int, Any]], bool]:
    """The same payloads, and whether the first of them that can be told are spans, to be joined."""
    seen: list[tuple[int, Any]] = []
    told: bool | None = None
    while told is None and len(seen) < SHOWN and (item := next(payloads, None)):
        seen.append(item)
        told = holds_spans(item[1], plan)
    return chain(seen, payloads), bool(told)


def _trec(name: str, qrels: Any, desk: Desk, plan: Plan) -> Iterator[Trace]:
    from ragfault.sources.trec import read_trec

    if name == "-":
        raise InputError("a TREC run cannot be read from standard input: name the file")
    plan.tell("read as a TREC run" + (f" with the judgements of {qrels}" if qrels else ""))
    faults: list[Fault] = []
    for number, trace in enumerate(read_trec(Path(name), Path(qrels) if qrels else None, faults), 1):
        if desk.welcome(trace, name, number, b""):
            yield trace
    for fault in faults:
        desk.hand(fault)


# --- what a file gives -----------------------------------------------------------------------------


def _payloads(name: str, form: str, stream: files.Stream, plan: Plan) -> Iterator[tuple[int, Any]]:
    """Line or row numbers with what stands there; a table first gives the names of its columns as row 0."""
    if form == "parquet":
        yield from tables.parquet_rows(name)
    elif form in ("csv", "tsv"):
        yield from tables.text_rows(stream.body, name, form == "tsv", plan.limit)
    else:
        yield from _objects(stream, plan)
    if stream.broken and form != "parquet":
        yield -1, Wrong(stream.broken)


def _objects(stream: files.Stream, plan: Plan) -> Iterator[tuple[int, Any]]:
    """Objects with their lines; where the stream breaks, without what it broke in two."""
    if scan.is_document(stream.body.peek(4096), plan.knows):
        for number, found, whole in scan.elements(stream.body, plan.limit, plan.knows):
            if not isinstance(found, Wrong):
                yield number, found if whole else Long(found, plan.limit)
            elif not stream.broken:
                yield number, found
        return
    for number, text, whole in files.lines(stream.body, plan.limit):
        if not whole:
            yield number, Long(text, plan.limit)
        elif stream.broken and not text.endswith(b"\n"):
            return
        elif not text.isspace():
            yield number, text


def _traces(name: str, payloads: Iterator[tuple[int, Any]], plan: Plan, desk: Desk) -> Iterator[Trace]:
    mould = Mould(name, plan)
    last = 0
    for number, payload in payloads:
        if number == 0:
            mould.header(payload)
            continue
        last = number if number > 0 else last + 1
        try:
            trace = mould.trace(payload)
        except Wrong as wrong:
            desk.fault(name, last, str(wrong), payload)
            mould.doubt(desk)
            continue
        if not trace.id:
            trace = desk.name(trace)
        if desk.welcome(trace, name, last, payload):
            yield trace
