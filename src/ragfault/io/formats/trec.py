"""TREC files: a run (`query Q0 chunk rank score tag`) and its qrels (`query 0 chunk grade`).

Arrow reads regular files, a slower reader the others. Names that end in .gz, .zst or .bz2 are compressed.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ragfault.model.errors import MAX_BAD_LINES_SHOWN, BadLine, BadRows, InputError, OutputError
from ragfault.model.records import Chunk, Gold, Trace

FilePath = str | os.PathLike[str]
TrecRow = tuple[str, str, float]

PARSE_BLOCK_BYTES = 4 * 2**20
"""Bytes that one thread parses at a time."""


class TrecLayout(NamedTuple):
    """Layout of the lines of a file."""

    kind: str
    fields: tuple[str, ...]
    value_field: str
    """The field that is a number."""
    min_fields: int
    """Minimum number of fields."""
    max_fields: float
    """Maximum number of fields."""


RUN_LAYOUT = TrecLayout("run", ("query", "iteration", "chunk", "rank", "score", "tag"), "score", 5, math.inf)
QRELS_LAYOUT = TrecLayout("qrels", ("query", "iteration", "chunk", "grade"), "grade", 4, 4)
TABLE_LAYOUT = TrecLayout("qrels", ("query", "chunk", "grade"), "grade", 3, 3)
TABLE_HEADER = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:query|q|topic)[-_ ]?id\t(?:corpus|doc|document|passage|chunk)[-_ ]?id\t\w+\s*$"
)
"""First line of qrels as a table with a header, as BEIR has them."""


def read_run(path: FilePath, bad_lines: list[BadLine] | None = None) -> pa.Table:
    """Read a run file as columns `query`, `chunk` and `score`, in the order of its lines.

    Rank and tag are ignored, as trec_eval does. Raises `InputError` where the file cannot be opened or is empty, and
    `BadRows` with every bad line; with a list for `bad_lines`, they are put there and the good lines are returned.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.run")
    >>> _ = path.write_text("q1 Q0 d7 1 0.5 bm25\\n")
    >>> read_run(path).to_pylist()
    [{'query': 'q1', 'chunk': 'd7', 'score': 0.5}]
    """
    return _read_table(path, RUN_LAYOUT, bad_lines)


def count_ties(run: pa.Table) -> int:
    """Count the lines of a run that have the score, as a 32-bit float, of the line before and its query.

    >>> count_ties(pa.table({"query": ["a", "a", "a", "b"], "chunk": list("1231"), "score": [1.0, 1.0, 0.5, 0.5]}))
    1
    """
    score = run["score"].to_numpy().astype(np.float32)
    tied = np.flatnonzero(score[1:] == score[:-1])
    before, after = (run["query"].take(pa.array(rows)).to_pylist() for rows in (tied, tied + 1))
    return sum(map(operator.eq, before, after))


def read_qrels(path: FilePath, bad_lines: list[BadLine] | None = None) -> pa.Table:
    """Read a qrels file as columns `query`, `chunk` and `grade`, in the order of its lines.

    A table with the header `query-id corpus-id score`, as BEIR has it, is read, too. Grades may be negative or
    fractional. Raises, and takes `bad_lines`, as `read_run` does.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.qrels")
    >>> _ = path.write_text("q1 0 d7 2\\n")
    >>> read_qrels(path).to_pylist()
    [{'query': 'q1', 'chunk': 'd7', 'grade': 2.0}]
    """
    return _read_table(path, QRELS_LAYOUT, bad_lines)


def _read_table(path: FilePath, layout: TrecLayout, bad_lines: list[BadLine] | None) -> pa.Table:
    name = os.fspath(path)
    try:
        if layout is QRELS_LAYOUT and _has_table_header(name):
            return _read_lines(name, TABLE_LAYOUT, bad_lines)
        table = _read_columns(name, layout)
        return _read_lines(name, layout, bad_lines) if table is None else table
    except OSError as error:
        raise InputError(f"the {layout.kind} {name} cannot be read: {error}.") from error


def _has_table_header(name: str) -> bool:
    with pa.input_stream(name) as stream:
        return TABLE_HEADER.match(stream.read(4096).split(b"\n", 1)[0].lower()) is not None


def _read_columns(name: str, layout: TrecLayout) -> pa.Table | None:
    """Read the file by Arrow; None where it must be read line by line."""
    # A tag is not needed, and nothing that follows a score that is a number can be shifted. Bytes are checked alone.
    fields = [field for field in layout.fields if field != "tag"]
    types = {field: pa.string() if field in ("query", "chunk") else pa.binary() for field in fields}
    with pa.input_stream(name) as stream:
        tab = b"\t" in stream.read(4096).split(b"\n", 1)[0]
    with pa.input_stream(name) as stream:
        try:
            table = csv.read_csv(
                stream,
                csv.ReadOptions(column_names=layout.fields, block_size=PARSE_BLOCK_BYTES),
                csv.ParseOptions(delimiter="\t" if tab else " ", quote_char=False),
                csv.ConvertOptions(
                    column_types={**types, layout.value_field: pa.float64()}, include_columns=fields, null_values=[]
                ),
            )
        except pa.ArrowInvalid:
            return None
    if not _is_well_formed(table, b" " if tab else b"\t"):
        return None
    values = [_encode_runs(table["query"]), table["chunk"], table[layout.value_field]]
    return pa.table(values, ["query", "chunk", layout.value_field])


def _encode_runs(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Encode a column, equal values of which mostly follow each other, as a dictionary."""
    runs = [pc.run_end_encode(item) for item in column.chunks]
    names = pa.chunked_array([item.values for item in runs], pa.string()).combine_chunks().dictionary_encode()
    lengths = [np.diff(item.run_ends.to_numpy(), prepend=0) for item in runs]
    return pa.DictionaryArray.from_arrays(np.repeat(names.indices, np.concatenate(lengths)), names.dictionary)


def _is_well_formed(table: pa.Table, other_separator: bytes) -> bool:
    """Tell whether the columns are surely those that any white space would have made."""
    # Two blanks in a row leave an empty field between them: with one field too few the count still fits.
    texts = [column for column in table.columns if not pa.types.is_floating(column.type)]
    numbers = [column for column in table.columns if pa.types.is_floating(column.type)]
    if not all(pc.min(pc.binary_length(column)).as_py() for column in texts) or pc.any(pc.is_nan(*numbers)).as_py():
        return False
    return not any(other_separator in bytes(item.buffers()[2] or b"") for column in texts for item in column.chunks)


def _read_lines(name: str, layout: TrecLayout, bad_lines: list[BadLine] | None) -> pa.Table:
    """Read the file line by line; raise or collect bad lines."""
    with pa.input_stream(name) as stream:
        lines = stream.read().removeprefix(b"\xef\xbb\xbf").splitlines()
    rows: list[TrecRow] = []
    collected: list[BadLine] = []
    count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip() or (number == 1 and layout is TABLE_LAYOUT):
            continue
        try:
            rows.append(_parse_line(line, layout))
        except ValueError as error:
            count += 1
            if bad_lines is not None or count <= MAX_BAD_LINES_SHOWN:
                collected.append(BadLine(name, number, str(error), line.decode("utf-8", "replace")))
    if not rows and not count:
        raise InputError(f"the {layout.kind} {name} is empty.")
    if count and bad_lines is None:
        if not rows and layout is not TABLE_LAYOUT:
            raise InputError(
                f"{name} is no TREC {layout.kind}: no line of it is `{' '.join(layout.fields)}`; {collected[0]}. "
                "Make both files of traces with: ragfault run convert TRACES run.trec --to trec --to-qrels qrels.txt"
            )
        raise BadRows(collected, len(rows), count)
    if bad_lines is not None:
        bad_lines += collected
    query, chunk, value = ([row[i] for row in rows] for i in range(3))
    return pa.table(
        {
            "query": pa.array(query, pa.string()).dictionary_encode(),
            "chunk": pa.array(chunk, pa.string()),
            layout.value_field: pa.array(value, pa.float64()),
        }
    )


def _parse_line(line: bytes, layout: TrecLayout) -> TrecRow:
    """Return query, chunk and number of a line. Raises ValueError with the reason."""
    try:
        # As bytes: white space is that of ASCII, here as in trec_eval.
        fields = [field.decode() for field in line.split()]
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not layout.min_fields <= len(fields) <= layout.max_fields:
        raise ValueError(f"{len(fields)} fields where there should be {' '.join(layout.fields)}")
    text = fields[layout.fields.index(layout.value_field)]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or "_" in text:
        raise ValueError(f'the {layout.value_field} "{text}" is not a number')
    return fields[0], fields[layout.fields.index("chunk")], value


def read_trec(run: FilePath, qrels: FilePath | None = None, bad_lines: list[BadLine] | None = None) -> Iterator[Trace]:
    """Read a run, and its qrels if there are any, as traces: one for each query.

    The id of the query stands for its text. Chunks are in trec_eval's order: by score as a 32-bit float, highest first,
    equal scores by id, last first. Queries that only the qrels name come last, without chunks. Raises, and takes
    `bad_lines`, as `read_run` does; `InputError` for a chunk judged twice with different grades.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.run")
    >>> _ = path.write_text("q1 Q0 d7 1 0.5 bm25\\nq1 Q0 d9 2 0.8 bm25\\n")
    >>> [[chunk.id for chunk in trace.chunks] for trace in read_trec(path)]
    [['d9', 'd7']]
    """
    gold = {} if qrels is None else _load_gold(qrels, bad_lines)
    for query, chunks in _rank_chunks(read_run(run, bad_lines)):
        grades = gold.pop(query, None)
        yield Trace(id=query, query=query, chunks=chunks, gold=None if grades is None else Gold(chunks=grades))
    for query, grades in gold.items():
        yield Trace(id=query, query=query, chunks=(), gold=Gold(chunks=grades))


def _load_gold(path: FilePath, bad_lines: list[BadLine] | None) -> dict[str, dict[str, float]]:
    gold: dict[str, dict[str, float]] = {}
    columns = (column.to_pylist() for column in read_qrels(path, bad_lines).columns)
    for query, chunk, grade in zip(*columns, strict=True):
        if gold.setdefault(query, {}).setdefault(chunk, grade) != grade:
            raise InputError(f'{os.fspath(path)}: query "{query}" judges chunk "{chunk}" twice, differently.')
    return gold


def _rank_chunks(run: pa.Table) -> Iterator[tuple[str, tuple[Chunk, ...]]]:
    """Yield the queries of a run, each with its chunks in order."""
    query = run["query"].unify_dictionaries().combine_chunks()
    if not len(query):
        return
    keys = pa.table(
        {"query": query.indices, "score": run["score"].cast(pa.float32(), safe=False), "chunk": run["chunk"]}
    )
    falling = [("query", "ascending"), ("score", "descending"), ("chunk", "descending")]
    order = pc.sort_indices(keys, sort_keys=falling)
    rows = run.take(order)
    place = query.indices.take(order).to_numpy()
    cuts = np.flatnonzero(np.diff(place)) + 1
    names = query.dictionary
    for start, end in pairwise([0, *cuts.tolist(), len(place)]):
        part = rows.slice(start, end - start)
        pairs = zip(part["chunk"].to_pylist(), part["score"].to_pylist(), strict=True)
        yield names[int(place[start])].as_py(), tuple(Chunk(id=id, score=score) for id, score in pairs)


def write_trec(traces: Iterable[Trace], run: FilePath, qrels: FilePath | None = None) -> None:
    """Write the chunks of the traces as a run file, and their gold as a qrels file.

    Where scores are absent or would order the chunks otherwise, descending whole numbers are written. Traces without
    chunks or gold leave no line. Raises `OutputError` for a file that cannot be written or an id that is empty or has
    white space.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.run")
    >>> write_trec([Trace(id="q1", query="When?", chunks=(Chunk(id="a"), Chunk(id="b", score=0.3)))], path)
    >>> print(path.read_text(), end="")
    q1 Q0 a 1 2 ragfault
    q1 Q0 b 2 1 ragfault
    """
    try:
        with ExitStack() as stack:
            results = stack.enter_context(pa.output_stream(os.fspath(run)))
            judged = None if qrels is None else stack.enter_context(pa.output_stream(os.fspath(qrels)))
            for trace in traces:
                results.write("".join(_format_results(trace)).encode())
                if judged is not None:
                    judged.write("".join(_format_grades(trace)).encode())
    except OSError as error:
        raise OutputError(f"the TREC files cannot be written: {error}.") from error


def _format_results(trace: Trace) -> Iterator[str]:
    chunks = trace.chunks or ()
    scores = _choose_scores(chunks)
    for rank, (chunk, score) in enumerate(zip(chunks, scores, strict=True), 1):
        yield f"{_check_id(trace.id)} Q0 {_check_id(chunk.id)} {rank} {score} ragfault\n"


def _format_grades(trace: Trace) -> Iterator[str]:
    for chunk, grade in (trace.gold.chunks if trace.gold else {}).items():
        yield f"{_check_id(trace.id)} 0 {_check_id(chunk)} {int(grade) if grade == int(grade) else grade}\n"


def _choose_scores(chunks: tuple[Chunk, ...]) -> list[float]:
    """Return the chunks' own scores where sorting by them keeps the order, else integers."""
    scores = [chunk.score for chunk in chunks if chunk.score is not None]
    if len(scores) == len(chunks) and not any(map(math.isnan, scores)):
        with np.errstate(over="ignore"):
            single = np.array(scores).astype(np.float32).tolist()
        keys = list(zip(single, (chunk.id for chunk in chunks), strict=True))
        if all(above >= below for above, below in pairwise(keys)):
            return scores
    return list(range(len(chunks), 0, -1))


def _check_id(id: str) -> str:
    if id.encode().split() != [id.encode()]:
        raise OutputError(f'the id "{id}" is empty or has white space, which a TREC file cannot hold.')
    return id
