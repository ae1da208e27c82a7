"""The chunks of a run as a flat table, and their relevance and use by position, length, age, turn and route."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.diagnosis.records import ChunkBucket, ChunkInsight
from ragfault.diagnosis.score_matrix import NO_CODE, cluster_traces, estimate_mean, segment_codes
from ragfault.io.remote_paths import open_for_arrow
from ragfault.io.runs.run import Run
from ragfault.model.rules import RELEVANT_LEVELS
from ragfault.text.times import assume_utc

if TYPE_CHECKING:
    import pyarrow as pa


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

BATCH_ROWS = 4096  # traces in memory at once while the texts of chunks are measured
DAY_SECONDS = 86_400.0


class ChunkTable:
    """Table of every chunk of every trace, in order; verdicts that are not one for each chunk are left out."""

    def __init__(self, run: Run, clusters: Ints | None = None) -> None:
        shapes = _concatenate(_read_chunks(run))
        changed = run.manifest.gold == "apply" and run.has_gold()
        sights = _concatenate(_read_evidence(run) if changed else _read_verdicts(run))
        self.counts: Ints = shapes["counts"]  # chunks of each trace; −1: not recorded
        self.trace_count = len(self.counts)
        sizes = np.maximum(self.counts, 0)
        self.trace_index: Ints = np.repeat(np.arange(self.trace_count), sizes)  # the trace of each chunk
        begin = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        self.position: Ints = np.arange(len(self.trace_index)) - np.repeat(begin, sizes) + 1
        self.length: Ints = shapes["length"]  # characters
        self.age: Floats = (shapes["time"][self.trace_index] - shapes["updated"]) / DAY_SECONDS
        """Days from `updated_at` to the query; NaN: not known."""
        self.judged, places = _match_verdicts(self.counts, sights["chunk"], self.trace_index)
        self.relevance: Floats = np.full(len(self.trace_index), np.nan)
        self.relevance[self.judged] = sights["relevance"][places]
        self.relevant: Mask = np.zeros(len(self.trace_index), dtype=bool)
        self.relevant[self.judged] = sights["relevant"][places]
        self.use_judged, places = _match_verdicts(self.counts, sights["use"], self.trace_index)
        self.used: Mask = np.zeros(len(self.trace_index), dtype=bool)
        self.used[self.use_judged] = sights["used"][places]
        self.missing: Ints = sights["missing"]  # missing items of each trace; −1: nobody looked
        self.clusters: Ints = self.trace_index if clusters is None else clusters[self.trace_index]
        """The cluster of each chunk: its conversation, else its trace."""


def load_chunks(run: Run) -> ChunkTable:
    """Load the chunks of a run, clustered by conversation where there are any."""
    return ChunkTable(run, cluster_traces(run))


def _match_verdicts(counts: Ints, verdicts: Ints, trace: Ints) -> tuple[Mask, Mask]:
    """Return which chunks have a verdict, and which verdicts have a chunk, as masks."""
    fits = (counts == verdicts) & (counts > 0)
    return fits[trace], np.repeat(fits, np.maximum(verdicts, 0))


def _concatenate(parts: Iterator[Columns]) -> Columns:
    batches = list(parts)
    return {name: np.concatenate([part[name] for part in batches]) for name in batches[0]}


def _list_sizes(column: pa.Array) -> Ints:
    """Return the lengths of lists; −1 for null."""
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(column), -1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)


def _read_batches(run: Run, name: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(open_for_arrow(run.get_table_path(name))) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns)


def _read_chunks(run: Run) -> Iterator[Columns]:
    """Read counts, lengths and times of the chunks from the traces."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in _read_batches(run, "traces", ["chunks", "time"]):
        chunks = pc.list_flatten(batch["chunks"])
        length = pc.fill_null(pc.utf8_length(pc.struct_field(chunks, "text")), 0)
        time = pc.cast(batch["time"], pa.int64()).cast(pa.float64(), safe=False)
        yield {
            "counts": _list_sizes(batch["chunks"]),
            "length": length.to_numpy(zero_copy_only=False).astype(np.int64),
            "time": pc.fill_null(pc.divide(time, 1e6), np.nan).to_numpy(zero_copy_only=False),
            "updated": _updated_times(pc.struct_field(chunks, "metadata")),
        }


def _updated_times(metadata: pa.Array) -> Floats:
    """Return the `updated_at` of each chunk in epoch seconds; NaN where unknown."""
    import pyarrow.compute as pc

    times = np.full(len(metadata), np.nan)
    hits = pc.fill_null(pc.match_substring(metadata, '"updated_at"'), False)
    codes = pc.dictionary_encode(metadata.filter(hits))
    seconds = np.array([_parse_seconds(text) for text in codes.dictionary.to_pylist()], dtype=np.float64)
    if len(seconds):
        times[hits.to_numpy(zero_copy_only=False)] = seconds[codes.indices.to_numpy()]
    return times


def _parse_seconds(metadata: str) -> float:
    value = msgspec.json.decode(metadata).get("updated_at")
    try:
        return assume_utc(datetime.fromisoformat(value)).timestamp()
    except (TypeError, ValueError):
        return float("nan")


def _read_verdicts(run: Run) -> Iterator[Columns]:
    """Read relevance and use of the chunks from the verdicts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    relevant = pa.array(RELEVANT_LEVELS)
    for batch in _read_batches(run, "verdicts", ["chunk", "use", "missing"]):
        chunk, use = pc.list_flatten(batch["chunk"]), pc.list_flatten(batch["use"])
        level = pc.is_in(pc.struct_field(chunk, "level"), value_set=relevant)
        yield {
            "chunk": _list_sizes(batch["chunk"]),
            "use": _list_sizes(batch["use"]),
            "missing": _list_sizes(batch["missing"]),
            "relevance": pc.struct_field(chunk, "relevance").to_numpy(zero_copy_only=False),
            "relevant": level.to_numpy(zero_copy_only=False),
            "used": pc.struct_field(use, "used").to_numpy(zero_copy_only=False),
        }


def _read_evidence(run: Run) -> Iterator[Columns]:
    """Read the same from the verdicts with gold applied, trace by trace."""
    evidence = (verdicts for _, verdicts in run.evidence())
    while batch := list(islice(evidence, BATCH_ROWS)):
        chunks = [chunk for verdicts in batch for chunk in verdicts.chunk or ()]
        yield {
            **{
                part: np.array([-1 if getattr(v, part) is None else len(getattr(v, part)) for v in batch], np.int64)
                for part in ("chunk", "use", "missing")
            },
            "relevance": np.array([chunk.relevance for chunk in chunks], np.float64),
            "relevant": np.array([chunk.level in RELEVANT_LEVELS for chunk in chunks], np.bool_),
            "used": np.array([use.used for verdicts in batch for use in verdicts.use or ()], np.bool_),
        }


ChunkProperty = Literal["chunks", "position", "length", "turn", "age", "route"]
Codes = NDArray[np.int64]

BucketCodes = tuple[Codes, list[str]]  # a bucket's number for each chunk, or NONE, and the labels of the buckets


def compute_insights(run: Run, chunks: ChunkTable | None = None) -> tuple[ChunkInsight, ...]:
    """Compute the mean relevance and the share used of the chunks in each bucket of each property.

    Age is in days at the time of the query, from `updated_at`. Everything is counted over chunks, those of one trace or
    conversation taken together; buckets that are empty, and properties that no chunk has, are left out.
    """
    seen = chunks or load_chunks(run)
    insights = []
    for by, (codes, names) in _chunk_properties(run, seen):
        for measure, values, there in (
            ("relevance", seen.relevance, seen.judged),
            ("use", seen.used.astype(np.float64), seen.use_judged),
        ):
            buckets = tuple(_fill_buckets(seen, codes, names, values, there))
            if buckets:
                unknown = int((there & (codes == NO_CODE)).sum())
                insights.append(ChunkInsight(measure=measure, by=by, buckets=buckets, unknown=unknown))  # type: ignore[arg-type]
    return tuple(insights)


def _fill_buckets(
    chunks: ChunkTable, codes: Codes, names: list[str], values: NDArray[np.float64], defined: NDArray[np.bool_]
) -> Iterator[ChunkBucket]:
    for code, name in enumerate(names):
        inside = defined & (codes == code)
        interval = estimate_mean(values[inside], chunks.clusters[inside])
        if interval is not None:
            yield ChunkBucket(label=name, traces=len(np.unique(chunks.trace_index[inside])), interval=interval)


def _chunk_properties(run: Run, chunks: ChunkTable) -> Iterator[tuple[ChunkProperty, BucketCodes]]:
    sizes = chunks.counts[chunks.trace_index]
    yield "chunks", (np.digitize(sizes, [4, 7, 11]), ["1–3", "4–6", "7–10", "11+"])
    yield "position", _bucket_numbers(chunks.position, 10)
    yield ("length", (np.digitize(chunks.length, [100, 500, 1001]), ["< 100", "100–500", "500–1000", "> 1000"]))
    turns, names = segment_codes(run, "turn")
    numbers = np.array([*map(int, names), NO_CODE], dtype=np.int64)
    yield "turn", _bucket_numbers(numbers[turns][chunks.trace_index], 4)
    aged = np.digitize(np.floor(np.nan_to_num(chunks.age, nan=-1.0)), [31, 91, 366])
    known = np.nan_to_num(chunks.age, nan=-1.0) >= 0
    yield "age", (np.where(known, aged, NO_CODE), ["0–30", "31–90", "91–365", "> 365"])
    routes, texts = segment_codes(run, "route")
    yield "route", (routes[chunks.trace_index], texts)


def _bucket_numbers(numbers: Codes, last: int) -> BucketCodes:
    """Assign one bucket to each number from 1 to `last`, and one to all above."""
    codes = np.where(numbers >= 1, np.minimum(numbers, last + 1) - 1, NO_CODE)
    return codes, [*map(str, range(1, last + 1)), f"{last + 1}+"]
