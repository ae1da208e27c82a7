"""Writing: traces into files of many formats and shapes, whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from ragfault.errors import InputError, OutputError, UnknownName
from ragfault.records import Trace
from ragfault.sources.export import EXPORTS, cells
from ragfault.sources.files import FORMS, ending
from ragfault.sources.tables import guard

__all__ = ["write_traces"]

ROWS = 512
"""Traces to a row group of Parquet."""


def write_traces(
    traces: Iterable[Trace],
    where: str | os.PathLike[str],
    *,
    shape: str = "ragfault",
    qrels: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> int:
    """Write traces to a file and say how many they were.

    The ending of the name tells the format: `.jsonl`, `.ndjson`, `.json` (one array), `.csv`, `.tsv` – each
    also with `.gz` or `.zst` behind – `.parquet`, or `.run` and `.trec` for a TREC run, with the gold chunks
    in `qrels`; `-` is standard output as JSON Lines. `shape` is `ragfault`, which loses nothing, `ragas`,
    `deepeval`, `ragchecker`, `trulens`, or `trec`. Traces are taken one by one: the memory it
    takes does not grow with them.

    In CSV and TSV, lists and objects stand as JSON, and a text that a spreadsheet would run as a formula
    (`=`, `+`, `-`, `@` first) gets an apostrophe in front, which `read_traces` takes away again.

    The file appears under its name when it is whole. Raises `OutputError` where it exists (unless `force`),
    cannot be written, or the disk is full, `UnknownName` for a shape or format that does not exist; then,
    and whenever the traces themselves raise, nothing is left behind.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.jsonl"
    >>> write_traces([Trace(id="1", query="When?", answer="In 1040.")], path, shape="ragas")
    1
    >>> path.read_text()
    '{"id":"1","user_input":"When?","response":"In 1040."}\\n'
    """
    name = os.fspath(where)
    form = _form(name, shape)
    if form == "trec":
        return _trec(traces, name, None if qrels is None else os.fspath(qrels), force)
    if qrels is not None:
        raise InputError(
            "qrels are written beside a TREC run only: name the output *.run, or ask for shape trec"
        )
    if name == "-":
        with _told("standard output"):
            return _lines(traces, sys.stdout.buffer, shape)
    with _told(name), _whole([name], force) as [partial]:
        if form == "parquet":
            return _parquet(traces, partial, shape)
        with _packed(partial, Path(name).suffix.lower()) as out:
            return WRITERS[form](traces, out, shape)


def _form(name: str, shape: str) -> str:
    if shape != "trec" and shape not in EXPORTS:
        raise UnknownName("shape to write", shape, [*EXPORTS, "trec"])
    promised = "jsonl" if name == "-" else ending(name).removeprefix(".")
    form = {"ndjson": "jsonl", "pq": "parquet", "run": "trec"}.get(promised, promised)
    if shape == "trec" or form == "trec":
        return "trec"
    if form != "parquet" and form not in WRITERS:
        if Path(name).exists() and not Path(name).is_file():
            return "jsonl"
        raise UnknownName(
            "format", f"{ending(name) or name}", list(FORMS), f"The ending of {name} tells the format."
        )
    return form


# --- whole or not at all ---------------------------------------------------------------------------


@contextlib.contextmanager
def _whole(names: list[str], force: bool) -> Iterator[list[str]]:
    """Names to write to, which become the files when all is well and vanish when not."""
    partial = [_partial(Path(name), force) for name in names]
    try:
        yield partial
        for temporary, name in zip(partial, names, strict=True):
            if temporary != name:
                os.replace(temporary, name)
    finally:
        for temporary, name in zip(partial, names, strict=True):
            if temporary != name:
                Path(temporary).unlink(missing_ok=True)


def _partial(path: Path, force: bool) -> str:
    """A name beside the file; a device or a pipe is written to as it is."""
    if path.is_dir():
        raise OutputError(f"{path} is a directory: name a file in it")
    if path.exists() and not path.is_file():
        return str(path)
    if path.exists() and not force:
        raise OutputError(f"{path} exists already: name another file, or overwrite it with --force")
    if not path.parent.is_dir():
        raise OutputError(f"there is no directory {path.parent} to write {path.name} into")
    return str(path.parent / f".{path.name}.{os.getpid()}.part")


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Failures of the file system told as an `OutputError`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OutputError(f"{name} cannot be written: the disk is full") from None
        raise OutputError(f"{name} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def _packed(name: str, suffix: str) -> Iterator[IO[bytes]]:
    """An open file, compressed as its name says, and on the disk when it closes."""
    with open(name, "wb") as file:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        elif suffix == ".zst":
            import pyarrow as pa

            with pa.PythonFile(file, "w") as beneath, pa.CompressedOutputStream(beneath, "zstd") as packed:
                yield packed
            return
        else:
            yield file
        file.flush()
        if Path(name).is_file():
            os.fsync(file.fileno())


# --- formats ---------------------------------------------------------------------------------------


def _lines(traces: Iterable[Trace], out: IO[bytes], shape: str) -> int:
    encode, row = msgspec.json.Encoder().encode, EXPORTS[shape][0]
    count = 0
    for trace in traces:
        out.write(encode(trace if shape == "ragfault" else row(trace)) + b"\n")
        count += 1
    return count


def _array(traces: Iterable[Trace], out: IO[bytes], shape: str) -> int:
    encode, row = msgspec.json.Encoder().encode, EXPORTS[shape][0]
    count = 0
    out.write(b'{"results": [' if shape == "ragchecker" else b"[")
    for trace in traces:
        out.write((b",\n" if count else b"\n") + encode(row(trace)))
        count += 1
    out.write(b"\n]}\n" if shape == "ragchecker" else b"\n]\n")
    return count


def _table(traces: Iterable[Trace], out: IO[bytes], shape: str, delimiter: str = ",") -> int:
    row, names = EXPORTS[shape]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(names)
    count = 0
    for trace in traces:
        writer.writerow(cells(row(trace), names, guard))
        out.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()
        count += 1
    out.write(text.getvalue().encode())
    return count


WRITERS: dict[str, Callable[[Iterable[Trace], IO[bytes], str], int]] = {
    "jsonl": _lines,
    "json": _array,
    "csv": _table,
    "tsv": lambda traces, out, shape: _table(traces, out, shape, "\t"),
}


def _parquet(traces: Iterable[Trace], name: str, shape: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ragfault.sources.arrow import TRACE_SCHEMA, to_table

    row, names = EXPORTS[shape]
    kinds = _kinds()
    schema = (
        TRACE_SCHEMA if shape == "ragfault" else pa.schema([(n, kinds.get(n, pa.string())) for n in names])
    )
    traces = iter(traces)
    count = 0
    with pq.ParquetWriter(name, schema, compression="zstd") as writer:
        while part := list(islice(traces, ROWS)):
            made: Any = (
                to_table(part)
                if shape == "ragfault"
                else pa.Table.from_pylist([row(t) for t in part], schema)
            )
            writer.write_table(made)
            count += len(part)
    return count


def _kinds() -> dict[str, Any]:
    """The columns of foreign shapes that are more than text."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    lists = (
        "retrieved_contexts",
        "retrieved_context_ids",
        "reference_context_ids",
        "retrieval_context",
        "contexts",
    )
    passages = pa.list_(pa.struct([("doc_id", pa.string()), ("text", pa.string())]))
    return {**dict.fromkeys(lists, texts), "retrieved_context": passages, "latency": pa.float64()}


def _trec(traces: Iterable[Trace], run: str, qrels: str | None, force: bool) -> int:
    from ragfault.sources.trec import write_trec

    count = 0

    def counted() -> Iterator[Trace]:
        nonlocal count
        for trace in traces:
            count += 1
            yield trace

    with _told(run), _whole([run] if qrels is None else [run, qrels], force) as partial:
        write_trec(counted(), *partial)
    return count
