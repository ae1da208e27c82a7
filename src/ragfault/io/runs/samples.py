"""Random samples of large runs, so that what reads whole traces stays bounded in memory and time."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.io.runs.run import BATCH_TRACES, Run, TableName

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_TRACES = 20_000
"""Most traces of a run of which every text is analysed; of a larger run a random sample is."""
MIN_SHARED_IDS = 0.5  # least share of the smaller run with an id of the other; else runs are paired by query
STATUSES = ("scored", "undefined", "failed")

Hashes = NDArray[np.uint64]


class RunSample(Run):
    """Random sample of a run, read and named like the run itself; its tables lie in a temporary folder."""

    def __init__(self, run: Run, rows: NDArray[np.bool_]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ragfault-sample-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        counts = _write_sample(run, folder, rows)
        population = run.manifest.population or run.manifest.traces
        super().__init__(run.path, msgspec.structs.replace(run.manifest, **counts, population=population, checksums={}))
        self.tables = folder


def sample_run(run: Run, most: int = SAMPLE_TRACES) -> Run:
    """Draw a random sample of about `most` traces of a run; return the run itself where it has no more, or `most` is 0.

    A trace is drawn by a hash of its id: the same run always gives the same sample, and a larger one includes it.
    """
    if not 0 < most < run.manifest.traces:
        return run
    hashes = _hash_column(run, "id")
    return RunSample(run, hashes <= np.uint64(_highest_hash(hashes, most)))


def sample_runs(runs: Sequence[Run], most: int = SAMPLE_TRACES) -> tuple[Run, ...]:
    """Draw the same random sample of about `most` traces of several runs, or return them where they share no more.

    The traces that all runs have are drawn, by a hash of the id, or of the query where fewer than half of the smallest
    run's ids are in all. Others are drawn at the same rate, so that the share without a partner stays what it is.
    """
    if not 0 < most < max(run.manifest.traces for run in runs):
        return tuple(runs)
    hashes = [_hash_column(run, "id") for run in runs]
    shared = _select_shared(hashes)
    if len(shared) < MIN_SHARED_IDS * min(map(len, hashes)):
        hashes = [_hash_column(run, "query") for run in runs]
        shared = _select_shared(hashes)
    if 0 < len(shared) <= most:
        return tuple(runs)
    highest = np.uint64(_highest_hash(shared if len(shared) else hashes[0], most))
    return tuple(RunSample(run, column <= highest) for run, column in zip(runs, hashes, strict=True))


def count_population(runs: Iterable[Run]) -> int:
    """Count the traces of the runs that samples were drawn from; 0 where none of some runs is a sample."""
    sizes = [(run.manifest.traces, run.manifest.population) for run in runs]
    return sum(population or traces for traces, population in sizes) if any(size[1] for size in sizes) else 0


def _select_shared(hashes: Sequence[Hashes]) -> Hashes:
    """Return the hashes of the first run that all runs have."""
    shared = hashes[0]
    for other in hashes[1:]:
        shared = shared[np.isin(shared, other)]
    return shared


def _highest_hash(hashes: Hashes, most: int) -> int:
    """Return the highest hash of the `most` lowest ones."""
    return int(np.partition(hashes, most - 1)[most - 1]) if most < len(hashes) else int(hashes.max(initial=0))


def _hash_column(run: Run, column: str) -> Hashes:
    parts = [_hash_texts(batch.column(0)) for batch in run.iterate_batches("traces", [column])]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _hash_texts(texts: pa.Array) -> Hashes:
    """Hash texts, their case and white space aside: queries are paired so."""
    joined = (blake2b(" ".join(text.lower().split()).encode(), digest_size=8).digest() for text in texts.to_pylist())
    return np.frombuffer(b"".join(joined), dtype="<u8")


def _write_sample(run: Run, folder: Path, rows: NDArray[np.bool_]) -> dict[str, int]:
    """Write the tables of a sample, and return what its manifest counts."""
    import pyarrow as pa

    parts, end = [], 0
    for batch in run.iterate_batches("traces", ["id"]):
        begin, end = end, end + batch.num_rows
        parts.append(batch.column("id").filter(pa.array(rows[begin:end])))
    ids = pa.chunked_array(parts, pa.string())
    counts = {"traces": len(ids), **dict.fromkeys(STATUSES, 0)}
    for name, column in (("traces", "id"), ("verdicts", "trace"), ("scores", "trace")):
        statuses = _filter_table(run, folder, name, column, ids)  # type: ignore[arg-type]
        counts.update((status, count) for status, count in statuses.items() if status in STATUSES)
    return counts


def _filter_table(run: Run, folder: Path, name: TableName, column: str, ids: pa.Array) -> dict[str, int]:
    """Copy the rows of the drawn traces in row groups of some thousands; return the number of scores by status."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    counts: dict[str, int] = {}
    writer, parts = None, []
    try:
        for batch in run.iterate_batches(name):
            writer = writer or pq.ParquetWriter(folder / f"{name}.parquet", batch.schema, compression="lz4")
            parts.append(batch.filter(pc.is_in(batch.column(column), value_set=ids)))
            if name == "scores":
                for entry in parts[-1].column("status").value_counts().to_pylist():
                    counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
            if sum(part.num_rows for part in parts) >= BATCH_TRACES:
                writer.write_table(pa.Table.from_batches(parts))
                parts = []
        if writer is not None and parts:
            writer.write_table(pa.Table.from_batches(parts))
    finally:
        if writer is not None:
            writer.close()
    return counts
