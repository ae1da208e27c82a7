"""The chunks of a run with what the judge saw in them, flat, in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.rules import RELEVANT
from ragfault.runs import Run
from ragfault.sources.remote import readable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Chunks", "open_chunks"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

ROWS = 4096
"""Traces in memory at once while the texts of chunks are measured."""

DAY = 86_400.0


class Chunks:
    """Every chunk of every trace: one entry each, in order.

    Verdicts that are not one for each chunk of their trace are left out.
    """

    def __init__(self, run: Run, clusters: Ints | None = None) -> None:
        shapes = _join(_shapes(run))
        sights = _join(_sights(run))
        self.counts: Ints = shapes["counts"]
        """Chunks of each trace; −1: not recorded."""
        self.traces = len(self.counts)
        sizes = np.maximum(self.counts, 0)
        self.trace: Ints = np.repeat(np.arange(self.traces), sizes)
        """The trace of each chunk."""
        begin = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        self.position: Ints = np.arange(len(self.trace)) - np.repeat(begin, sizes) + 1
        self.length: Ints = shapes["length"]
        """Characters."""
        self.age: Floats = (shapes["time"][self.trace] - shapes["updated"]) / DAY
        """Days from `updated_at` to the query; NaN: not known."""
        self.judged, places = _matched(self.counts, sights["chunk"], self.trace)
        self.relevance: Floats = np.full(len(self.trace), np.nan)
        self.relevance[self.judged] = sights["relevance"][places]
        self.relevant: Mask = np.zeros(len(self.trace), dtype=bool)
        self.relevant[self.judged] = sights["relevant"][places]
        self.tried, places = _matched(self.counts, sights["use"], self.trace)
        self.used: Mask = np.zeros(len(self.trace), dtype=bool)
        self.used[self.tried] = sights["used"][places]
        self.missing: Ints = sights["missing"]
        """Missing items of each trace; −1: nobody looked."""
        self.groups: Ints = self.trace if clusters is None else clusters[self.trace]
        """The cluster of each chunk: its conversation, else its trace."""


def open_chunks(run: Run) -> Chunks:
    """The chunks of a run, clustered by conversation where there are any."""
    from ragfault.findings.grid import conversations

    return Chunks(run, conversations(run))


def _matched(counts: Ints, verdicts: Ints, trace: Ints) -> tuple[Mask, Mask]:
    """Which chunks have a verdict, and which verdicts have a chunk."""
    fits = (counts == verdicts) & (counts > 0)
    return fits[trace], np.repeat(fits, np.maximum(verdicts, 0))


def _join(parts: Iterator[Columns]) -> Columns:
    held = list(parts)
    return {name: np.concatenate([part[name] for part in held]) for name in held[0]}


def _sizes(column: pa.Array) -> Ints:
    """The lengths of lists; −1 for null."""
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(column), -1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)


def _batches(run: Run, name: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(readable(run.path / f"{name}.parquet")) as file:
        yield from file.iter_batches(batch_size=ROWS, columns=columns)


def _shapes(run: Run) -> Iterator[Columns]:
    """What the traces say of their chunks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in _batches(run, "traces", ["chunks", "time"]):
        chunks = pc.list_flatten(batch["chunks"])
        length = pc.fill_null(pc.utf8_length(pc.struct_field(chunks, "text")), 0)
        time = pc.cast(batch["time"], pa.int64()).cast(pa.float64(), safe=False)
        yield {
            "counts": _sizes(batch["chunks"]),
            "length": length.to_numpy(zero_copy_only=False).astype(np.int64),
            "time": pc.fill_null(pc.divide(time, 1e6), np.nan).to_numpy(zero_copy_only=False),
            "updated": _updated(pc.struct_field(chunks, "metadata")),
        }


def _updated(metadata: pa.Array) -> Floats:
    """When each chunk was updated, in seconds of the epoch; NaN where its metadata do not say."""
    import pyarrow.compute as pc

    found = np.full(len(metadata), np.nan)
    hits = pc.fill_null(pc.match_substring(metadata, '"updated_at"'), False)
    codes = pc.dictionary_encode(metadata.filter(hits))
    seconds = np.array([_seconds(text) for text in codes.dictionary.to_pylist()], dtype=np.float64)
    if len(seconds):
        found[hits.to_numpy(zero_copy_only=False)] = seconds[codes.indices.to_numpy()]
    return found


def _seconds(metadata: str) -> float:
    value = msgspec.json.decode(metadata).get("updated_at")
    try:
        date = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return float("nan")
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _sights(run: Run) -> Iterator[Columns]:
    """What the verdicts say of chunks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    relevant = pa.array(RELEVANT)
    for batch in _batches(run, "verdicts", ["chunk", "use", "missing"]):
        chunk, use = pc.list_flatten(batch["chunk"]), pc.list_flatten(batch["use"])
        level = pc.is_in(pc.struct_field(chunk, "level"), value_set=relevant)
        yield {
            "chunk": _sizes(batch["chunk"]),
            "use": _sizes(batch["use"]),
            "missing": _sizes(batch["missing"]),
            "relevance": pc.struct_field(chunk, "relevance").to_numpy(zero_copy_only=False),
            "relevant": level.to_numpy(zero_copy_only=False),
            "used": pc.struct_field(use, "used").to_numpy(zero_copy_only=False),
        }
