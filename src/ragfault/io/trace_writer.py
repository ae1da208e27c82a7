"""Writer of traces: many formats and the record shapes of other tools, each file complete or absent."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from ragfault.io.atomic_files import convert_write_errors, replace_on_success
from ragfault.io.decoder import NoticeCallback
from ragfault.io.field_values import build_plain_row, name_infinity
from ragfault.io.files import FORMATS_BY_SUFFIX, get_format_suffix, iterate_inputs
from ragfault.io.formats.tables import TableLike, escape_formula
from ragfault.io.trace_reader import iterate_traces
from ragfault.model.errors import InputError, OutputError, UnknownName
from ragfault.model.records import Trace
from ragfault.text.number_format import format_count

ExportRow = dict[str, Any]


def _build_ragas_row(trace: Trace) -> ExportRow:
    row: ExportRow = {"id": trace.id, "user_input": trace.query}
    if trace.chunks is not None:
        row["retrieved_contexts"] = [chunk.text for chunk in trace.chunks]
        row["retrieved_context_ids"] = [chunk.id for chunk in trace.chunks]
    row |= _drop_missing(response=trace.answer, reference=_get_first_reference(trace))
    if trace.gold and trace.gold.chunks:
        row["reference_context_ids"] = [name for name, grade in trace.gold.chunks.items() if grade > 0]
    return row


def _build_deepeval_row(trace: Trace) -> ExportRow:
    chunks = None if trace.chunks is None else [chunk.text for chunk in trace.chunks]
    row: ExportRow = {"id": trace.id, "input": trace.query}
    return row | _drop_missing(
        actual_output=trace.answer, expected_output=_get_first_reference(trace), retrieval_context=chunks
    )


def _build_ragchecker_row(trace: Trace) -> ExportRow:
    row: ExportRow = {"query_id": trace.id, "query": trace.query}
    row |= _drop_missing(gt_answer=_get_first_reference(trace), response=trace.answer)
    if trace.chunks is not None:
        row["retrieved_context"] = [{"doc_id": chunk.id, "text": chunk.text} for chunk in trace.chunks]
    return row


def _build_trulens_row(trace: Trace) -> ExportRow:
    row: ExportRow = {"record_id": trace.id, "input": trace.query}
    row |= _drop_missing(output=trace.answer, main_error=trace.error, app_id=trace.route)
    if trace.chunks is not None:
        row["contexts"] = [chunk.text for chunk in trace.chunks]
    if trace.time is not None:
        row["ts"] = trace.time.isoformat()
    if trace.latency and trace.latency.total is not None:
        row["latency"] = trace.latency.total / 1000
    return row


def _drop_missing(**values: Any) -> ExportRow:
    return {name: value for name, value in values.items() if value is not None}


def _get_first_reference(trace: Trace) -> str | None:
    """Return the first reference: shapes of other tools have only one."""
    return trace.references[0] if trace.references else None


EXPORT_SHAPES: dict[str, tuple[Callable[[Trace], ExportRow], tuple[str, ...]]] = {
    "ragfault": (build_plain_row, tuple(Trace.__struct_fields__)),
    "ragas": (
        _build_ragas_row,
        (
            "id",
            "user_input",
            "retrieved_contexts",
            "retrieved_context_ids",
            "response",
            "reference",
            "reference_context_ids",
        ),
    ),
    "deepeval": (_build_deepeval_row, ("id", "input", "actual_output", "expected_output", "retrieval_context")),
    "ragchecker": (_build_ragchecker_row, ("query_id", "query", "gt_answer", "response", "retrieved_context")),
    "trulens": (
        _build_trulens_row,
        ("record_id", "input", "output", "main_error", "app_id", "contexts", "ts", "latency"),
    ),
}
"""Shape → its row builder and its columns."""


EXPORTED_FIELDS = {
    "ragas": (
        "id query chunks answer reference gold",
        "of chunks it has ids and texts, of gold the ids, of references the first",
    ),
    "deepeval": ("id query chunks answer reference", "of chunks it has the texts, of references the first"),
    "ragchecker": ("id query chunks answer reference", "of chunks it has ids and texts, of references the first"),
    "trulens": ("id query chunks answer error route time latency", "of chunks it has the texts, of latency the total"),
    "trec": ("id chunks", "of chunks it has ids and scores"),
}
"""Shape of another tool → the fields of a trace that it has a place for, and the parts of them that it has."""


def _report_left_out(
    traces: Iterable[Trace], shape: str, more: tuple[str, ...], notice: NoticeCallback
) -> Iterator[Trace]:
    """Yield the traces, and report at the end which of their fields a shape has no place for."""
    left: Counter[str] = Counter()
    fields = [name for name in Trace.__struct_fields__ if name not in (*EXPORTED_FIELDS[shape][0].split(), *more)]
    empty = 0
    default = Trace(id="", query="")
    for trace in traces:
        empty += not trace.chunks
        left.update(name for name in fields if getattr(trace, name) not in (None, (), getattr(default, name)))
        yield trace
    names = ", ".join(f"{name} ({format_count(count, 'trace')})" for name, count in left.items())
    if shape == "trec" and empty:
        notice(f"left out, as a TREC run has no line for it: {format_count(empty, 'trace')} without chunks")
    notice(f"left out, as {shape} has no place for it: {names or 'no field'}; {EXPORTED_FIELDS[shape][1]}")


REFERENCE_COLUMNS = ("reference", "expected_output", "gt_answer")
"""Columns that may hold a list of texts: a text that looks like a list is written as a list of one."""


def format_cells(row: ExportRow, names: tuple[str, ...], escape: Callable[[str], str]) -> list[str]:
    """Format a row as cells of text: lists and objects as JSON, absent values empty.

    >>> format_cells({"id": "1", "contexts": ["a"]}, ("id", "answer", "contexts"), str)
    ['1', '', '["a"]']
    """
    return [_format_cell(row.get(name), name, escape) for name in names]


def _format_cell(value: Any, name: str, escape: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not (name in REFERENCE_COLUMNS and value.lstrip().startswith("[")):
        return escape(value)
    if isinstance(value, str):
        value = [value]
    return msgspec.json.encode(value).decode()


ROW_GROUP_TRACES = 512
"""Traces per row group of Parquet."""


def write_traces(
    traces: Iterable[Trace | Mapping[str, Any]] | TableLike,
    where: str | os.PathLike[str],
    *,
    shape: str = "ragfault",
    qrels: str | os.PathLike[str] | None = None,
    force: bool = False,
    notice: NoticeCallback | None = None,
) -> int:
    """Write traces to a file and return their number; records as dicts and frames are read as `read_traces` does.

    The ending of the name tells the format: `.jsonl`, `.ndjson`, `.json` (one array), `.csv`, `.tsv` – each also with
    `.gz` or `.zst` behind – `.parquet`, or `.run` and `.trec` for a TREC run, with the gold chunks in `qrels`; `-` is
    standard output as JSON Lines. `shape` is `ragfault`, which loses nothing, `ragas`, `deepeval`, `ragchecker`,
    `trulens`, or `trec`; what these have no place for is left out, and reported to `notice`. Traces are taken one by
    one: the memory it takes does not grow with them.

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
    traces = iterate_traces(traces)
    form = _choose_output_format(name, shape)
    if notice is not None and (target := "trec" if form == "trec" else shape) in EXPORTED_FIELDS:
        traces = _report_left_out(traces, target, () if qrels is None else ("gold",), notice)
    if form == "trec":
        return _write_trec_files(traces, name, None if qrels is None else os.fspath(qrels), force)
    if qrels is not None:
        raise InputError("qrels are written only next to a TREC run: name the output *.run, or ask for shape trec")
    if name == "-":
        with convert_write_errors("standard output"):
            return _write_json_lines(traces, sys.stdout.buffer, shape)
    outputs = _check_outputs([name], force)
    with convert_write_errors(name), replace_on_success(outputs) as [part]:
        if form == "parquet":
            return _write_parquet(traces, part, shape)
        with _open_compressed(part, Path(name).suffix.lower()) as out:
            return FORMAT_WRITERS[form](traces, out, shape)


def write_records(records: Any, path: Path) -> int:
    """Write traces, or records as they are, as JSON Lines, to be read later; return their number.

    Raises `InputError` for anything else, and for a value that JSON cannot hold.
    """
    try:
        with convert_write_errors(str(path)), path.open("wb") as out:
            return _write_json_lines(map(name_infinity, map(build_plain_row, iterate_inputs(records))), out, "ragfault")
    except (TypeError, ValueError) as error:
        raise InputError(f"a record in memory cannot be read: {error}") from None


def _choose_output_format(name: str, shape: str) -> str:
    if shape != "trec" and shape not in EXPORT_SHAPES:
        raise UnknownName("shape to write", shape, [*EXPORT_SHAPES, "trec"])
    promised = "jsonl" if name == "-" else get_format_suffix(name).removeprefix(".")
    form = {"ndjson": "jsonl", "pq": "parquet", "run": "trec"}.get(promised, promised)
    if shape == "trec" or form == "trec":
        return "trec"
    if form != "parquet" and form not in FORMAT_WRITERS:
        if Path(name).exists() and not Path(name).is_file():
            return "jsonl"
        raise UnknownName(
            "format",
            f"{get_format_suffix(name) or name}",
            [suffix for suffix, kind in FORMATS_BY_SUFFIX.items() if kind != "arrow"],
            f"The ending of {name} tells the format.",
        )
    return form


def _check_outputs(names: list[str], force: bool) -> list[Path]:
    """Return the paths of files that may be written. Raises `OutputError`."""
    paths = [Path(name) for name in names]
    for path in paths:
        if path.is_dir():
            raise OutputError(f"{path} is a directory: name a file in it")
        if path.is_file() and not force:
            raise OutputError(f"{path} exists already: name another file, or overwrite it with --force")
        if not path.exists() and not path.parent.is_dir():
            raise OutputError(f"there is no directory {path.parent} to write {path.name} into")
    return paths


@contextlib.contextmanager
def _open_compressed(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    """Open a file, compressed by its suffix, and sync it to disk on close."""
    with path.open("wb") as file:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        elif suffix == ".zst":
            import pyarrow as pa

            with pa.PythonFile(file, "w") as raw, pa.CompressedOutputStream(raw, "zstd") as packed:
                yield packed
            return
        else:
            yield file
        file.flush()
        if path.is_file():
            os.fsync(file.fileno())


def append_json_lines(path: str | Path) -> Callable[[Any], None]:
    """Return a sink that appends each record to a file, a line of JSON each, from one thread at a time.

    The folder of the file is made. Raises OSError where that is impossible.
    """
    target, lock = Path(path), threading.Lock()
    target.parent.mkdir(parents=True, exist_ok=True)

    def append(record: Any) -> None:
        line = msgspec.json.encode(record) + b"\n"
        with lock, target.open("ab") as file:
            file.write(line)

    return append


def _write_json_lines(traces: Iterable[Trace], out: IO[bytes], shape: str) -> int:
    encode, row = msgspec.json.Encoder().encode, EXPORT_SHAPES[shape][0]
    count = 0
    for trace in traces:
        out.write(encode(trace if shape == "ragfault" else row(trace)) + b"\n")
        count += 1
    return count


def _write_json_array(traces: Iterable[Trace], out: IO[bytes], shape: str) -> int:
    encode, row = msgspec.json.Encoder().encode, EXPORT_SHAPES[shape][0]
    count = 0
    out.write(b'{"results": [' if shape == "ragchecker" else b"[")
    for count, trace in enumerate(traces, 1):
        out.write((b",\n" if count > 1 else b"\n") + encode(row(trace)))
    out.write(b"\n]}\n" if shape == "ragchecker" else b"\n]\n")
    return count


def _write_csv(traces: Iterable[Trace], out: IO[bytes], shape: str, delimiter: str = ",") -> int:
    row, names = EXPORT_SHAPES[shape]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(names)
    count = 0
    for trace in traces:
        writer.writerow(format_cells(row(trace), names, escape_formula))
        out.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()
        count += 1
    out.write(text.getvalue().encode())
    return count


FORMAT_WRITERS: dict[str, Callable[[Iterable[Trace], IO[bytes], str], int]] = {
    "jsonl": _write_json_lines,
    "json": _write_json_array,
    "csv": _write_csv,
    "tsv": lambda traces, out, shape: _write_csv(traces, out, shape, "\t"),
}


def _write_parquet(traces: Iterable[Trace], path: Path, shape: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ragfault.io.formats.arrow import TRACE_SCHEMA, traces_to_table

    row, names = EXPORT_SHAPES[shape]
    kinds = _get_parquet_types()
    schema = TRACE_SCHEMA if shape == "ragfault" else pa.schema([(n, kinds.get(n, pa.string())) for n in names])
    traces = iter(traces)
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while part := list(islice(traces, ROW_GROUP_TRACES)):
            table: Any = (
                traces_to_table(part) if shape == "ragfault" else pa.Table.from_pylist([row(t) for t in part], schema)
            )
            writer.write_table(table)
            count += len(part)
    return count


def _get_parquet_types() -> dict[str, Any]:
    """Return the types of columns of other shapes that are not text."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    lists = ("retrieved_contexts", "retrieved_context_ids", "reference_context_ids", "retrieval_context", "contexts")
    passages = pa.list_(pa.struct([("doc_id", pa.string()), ("text", pa.string())]))
    return {**dict.fromkeys(lists, texts), "retrieved_context": passages, "latency": pa.float64()}


def _write_trec_files(traces: Iterable[Trace], run: str, qrels: str | None, force: bool) -> int:
    from ragfault.io.formats.trec import write_trec

    count = 0

    def counted() -> Iterator[Trace]:
        nonlocal count
        for trace in traces:
            count += bool(trace.chunks)
            yield trace

    outputs = _check_outputs([run] if qrels is None else [run, qrels], force)
    with convert_write_errors(run), replace_on_success(outputs) as parts:
        write_trec(counted(), parts[0], None if qrels is None else parts[1])
    return count
