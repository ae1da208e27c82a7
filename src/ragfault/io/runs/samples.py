"""Random samples of large runs, so that what reads whole traces stays bounded in memory and time."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.io.runs.run import Run, TableName

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_TRACES = 20_000
"""Most traces of a run of which every text is analysed; of a larger run a random sample is."""
MIN_SHARED_IDS = 0.5  # least share of the smaller run with an id of the other; else runs are paired by query
STATUSES = ("scored", "undefined", "failed")

Hashes = NDArray[np.uint64]
SampleKey = Literal["id", "query"]


class RunSample(Run):
    """Random sample of a run, read and named like the run itself; its tables lie in a temporary folder."""

    def __init__(self, run: Run, key: SampleKey, highest: int) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ragfault-sample-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        counts = _write_sample(run, folder, key, highest)
        population = run.manifest.population or run.manifest.traces
        super().__init__(run.path, msgspec.structs.replace(run.manifest, **counts, population=population, checksums={}))
        self.tables = folder


def sample_run(run: Run, most: int = SAMPLE_TRACES) -> Run:
    """Draw a random sample of about `most` traces of a run; return the run itself where it has no more, or `most` is 0.

    A trace is drawn by a hash of its id: the same run always gives the same sample, and a larger one includes it.
    """
    if not 0 < most < run.manifest.traces:
        return run
    return RunSample(run, "id", _highest_hash(_hash_column(run, "id"), most))


def sample_runs(runs: Sequence[Run], most: int = SAMPLE_TRACES) -> tuple[Run, ...]:
    """Draw the same random sample of about `most` traces of several runs, or return them where they share no more.

    The traces that all runs have are drawn, by a hash of the id, or of the query where fewer than half of the smallest
    run's ids are in all. Others are drawn at the same rate, so that the share without a partner stays what it is.
    """
    if not 0 < most < max(run.manifest.traces for run in runs):
        return tuple(runs)
    key: SampleKey = "id"
    shared = _shared_hashes(runs, key)
    if len(shared) < MIN_SHARED_IDS * min(run.manifest.traces for run in runs):
        key = "query"
        shared = _shared_hashes(runs, key)
    if 0 < len(shared) <= most:
        return tuple(runs)
    highest = _highest_hash(shared if len(shared) else _hash_column(runs[0], key), most)
    return tuple(RunSample(run, key, highest) for run in runs)


def _shared_hashes(runs: Sequence[Run], key: SampleKey) -> Hashes:
    """Return the hashes of the traces of the first run that all runs have."""
    first, *others = (_hash_column(run, key) for run in runs)
    shared: Hashes = first
    for other in others:
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


def _write_sample(run: Run, folder: Path, key: SampleKey, highest: int) -> dict[str, int]:
    """Write the tables of a sample, and return what its manifest counts."""
    import pyarrow as pa

    parts: list[pa.Array] = []
    for batch in run.iterate_batches("traces", ["id", key] if key != "id" else ["id"]):
        mask = _hash_texts(batch.column(key)) <= np.uint64(highest)
        parts.append(batch.column("id").filter(pa.array(mask)))
    ids = pa.concat_arrays(parts)
    counts = {"traces": len(ids), **dict.fromkeys(STATUSES, 0)}
    for name, column in (("traces", "id"), ("verdicts", "trace"), ("scores", "trace")):
        statuses = _filter_table(run, folder, name, column, ids)  # type: ignore[arg-type]
        counts.update((status, count) for status, count in statuses.items() if status in STATUSES)
    return counts


def _filter_table(run: Run, folder: Path, name: TableName, column: str, ids: pa.Array) -> dict[str, int]:
    """Copy the rows of the drawn traces, batch by batch; return the number of scores by status."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    counts: dict[str, int] = {}
    writer = None
    try:
        for batch in run.iterate_batches(name):
            rows = batch.filter(pc.is_in(batch.column(column), value_set=ids))
            writer = writer or pq.ParquetWriter(folder / f"{name}.parquet", batch.schema, compression="lz4")
            writer.write_batch(rows)
            if name == "scores":
                for entry in rows.column("status").value_counts().to_pylist():
                    counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
    finally:
        if writer is not None:
            writer.close()
    return counts
