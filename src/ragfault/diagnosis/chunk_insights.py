"""The chunks of a run as a flat table, and their relevance and use by position, length, age, turn and route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.diagnosis.records import ChunkBucket, ChunkInsight
from ragfault.diagnosis.run_scan import TraceBatch
from ragfault.diagnosis.score_matrix import NO_CODE, CodedTexts, estimate_mean
from ragfault.model.records import Verdicts
from ragfault.model.rules import RELEVANT_LEVELS
from ragfault.text.times import assume_utc

if TYPE_CHECKING:
    import pyarrow as pa


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

DAY_SECONDS = 86_400.0


class ChunkTable:
    """Table of every chunk of every trace, in order; verdicts that are not one for each chunk are left out."""

    def __init__(self, columns: Columns, clusters: Ints | None = None) -> None:
        shapes = sights = columns
        # chunks of each trace; −1: not recorded
        self.counts: Ints = shapes["counts"]
        self.trace_count = len(self.counts)
        sizes = np.maximum(self.counts, 0)
        # the trace of each chunk
        self.trace_index: Ints = np.repeat(np.arange(self.trace_count), sizes)
        begin = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        self.position: Ints = np.arange(len(self.trace_index)) - np.repeat(begin, sizes) + 1
        # characters
        self.length: Ints = shapes["length"]
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
        # missing items of each trace; −1: nobody looked
        self.missing: Ints = sights["missing"]
        self.clusters: Ints = self.trace_index if clusters is None else clusters[self.trace_index]
        """The cluster of each chunk: its conversation, else its trace."""


def _match_verdicts(counts: Ints, verdicts: Ints, trace: Ints) -> tuple[Mask, Mask]:
    """Return which chunks have a verdict, and which verdicts have a chunk, as masks."""
    fits = (counts == verdicts) & (counts > 0)
    return fits[trace], np.repeat(fits, np.maximum(verdicts, 0))


def _list_sizes(column: pa.Array) -> Ints:
    """Return the lengths of lists; −1 for null."""
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(column), -1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)


class ChunkObserver:
    """Shapes, times and verdicts of the chunks of a run, as columns."""

    is_done = False

    def __init__(self, *, from_gold: bool) -> None:
        self._from_gold = from_gold
        """Gold is applied to the verdicts, which needs whole traces."""
        self.trace_columns = None if from_gold else ("chunks", "time")
        self.verdict_columns = None if from_gold else ("chunk", "use", "missing")
        self._parts: list[Columns] = []

    def add(self, batch: TraceBatch) -> None:
        """Measure the chunks of the next traces."""
        verdicts = _describe_evidence(batch.evidence) if self._from_gold else _read_verdicts(batch.verdict_columns)
        self._parts.append(_measure_chunks(batch.columns) | verdicts)

    def join(self) -> Columns:
        """Return the columns of the whole run."""
        return {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}


def _measure_chunks(columns: pa.Table) -> Columns:
    """Return counts, lengths and times of the chunks of some traces."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = columns["chunks"].combine_chunks()
    chunks = pc.list_flatten(column)
    length = pc.fill_null(pc.utf8_length(pc.struct_field(chunks, "text")), 0)
    time = pc.cast(columns["time"].combine_chunks(), pa.int64()).cast(pa.float64(), safe=False)
    return {
        "counts": _list_sizes(column),
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


def _read_verdicts(columns: pa.Table | None) -> Columns:
    """Return relevance and use of the chunks of some traces by the verdicts on them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # this observer asks for them
    assert columns is not None
    chunks, uses, missing = (columns[name].combine_chunks() for name in ("chunk", "use", "missing"))
    chunk, use = pc.list_flatten(chunks), pc.list_flatten(uses)
    level = pc.is_in(pc.struct_field(chunk, "level"), value_set=pa.array(RELEVANT_LEVELS))
    return {
        "chunk": _list_sizes(chunks),
        "use": _list_sizes(uses),
        "missing": _list_sizes(missing),
        "relevance": pc.struct_field(chunk, "relevance").to_numpy(zero_copy_only=False),
        "relevant": level.to_numpy(zero_copy_only=False),
        "used": pc.struct_field(use, "used").to_numpy(zero_copy_only=False),
    }


def _describe_evidence(evidence: Sequence[Verdicts]) -> Columns:
    """Return the same of verdicts to which gold is applied."""
    chunks = [chunk for verdicts in evidence for chunk in verdicts.chunk or ()]
    return {
        **{
            part: np.array([-1 if getattr(v, part) is None else len(getattr(v, part)) for v in evidence], np.int64)
            for part in ("chunk", "use", "missing")
        },
        "relevance": np.array([chunk.relevance for chunk in chunks], np.float64),
        "relevant": np.array([chunk.level in RELEVANT_LEVELS for chunk in chunks], np.bool_),
        "used": np.array([use.used for verdicts in evidence for use in verdicts.use or ()], np.bool_),
    }


ChunkProperty = Literal["chunks", "position", "length", "turn", "age", "route"]
Codes = NDArray[np.int64]

# a bucket's number for each chunk, or NONE, and the labels of the buckets
BucketCodes = tuple[Codes, list[str]]


def compute_chunk_insights(chunks: ChunkTable, turns: CodedTexts, routes: CodedTexts) -> tuple[ChunkInsight, ...]:
    """Compute the mean relevance and the share used of the chunks in each bucket of each property.

    `turns` and `routes` are those of the traces. Age is in days at the time of the query, from `updated_at`. Everything
    is counted over chunks, those of one trace or conversation taken together; buckets that are empty, and properties
    that no chunk has, are left out.
    """
    insights = []
    for by, (codes, names) in _chunk_properties(chunks, turns, routes):
        for measure, values, there in (
            ("relevance", chunks.relevance, chunks.judged),
            ("use", chunks.used.astype(np.float64), chunks.use_judged),
        ):
            buckets = tuple(_fill_buckets(chunks, codes, names, values, there))
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


def _chunk_properties(
    chunks: ChunkTable, turns: CodedTexts, routes: CodedTexts
) -> Iterator[tuple[ChunkProperty, BucketCodes]]:
    sizes = chunks.counts[chunks.trace_index]
    yield "chunks", (np.digitize(sizes, [4, 7, 11]), ["1–3", "4–6", "7–10", "11+"])
    yield "position", _bucket_numbers(chunks.position, 10)
    yield ("length", (np.digitize(chunks.length, [100, 500, 1001]), ["< 100", "100–500", "500–1000", "> 1000"]))
    codes, names = turns
    numbers = np.array([*map(int, names), NO_CODE], dtype=np.int64)
    yield "turn", _bucket_numbers(numbers[codes][chunks.trace_index], 4)
    aged = np.digitize(np.floor(np.nan_to_num(chunks.age, nan=-1.0)), [31, 91, 366])
    known = np.nan_to_num(chunks.age, nan=-1.0) >= 0
    yield "age", (np.where(known, aged, NO_CODE), ["0–30", "31–90", "91–365", "> 365"])
    yield "route", (routes[0][chunks.trace_index], routes[1])


def _bucket_numbers(numbers: Codes, last: int) -> BucketCodes:
    """Assign one bucket to each number from 1 to `last`, and one to all above."""
    codes = np.where(numbers >= 1, np.minimum(numbers, last + 1) - 1, NO_CODE)
    return codes, [*map(str, range(1, last + 1)), f"{last + 1}+"]
