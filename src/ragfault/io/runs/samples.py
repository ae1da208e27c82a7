"""Random samples of large runs, so that what reads whole traces stays bounded in memory and time."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

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
CODED_COLUMNS = ("trace", "metric", "layer", "status", "reason")
"""Texts of scores."""

Hashes = NDArray[np.uint64]


class RunSample(Run):
    """Random sample of a run, read and named like the run itself; its tables lie in a temporary folder.

    Scores are counted, and so copied at once; the other tables are copied when they are first read.
    """

    def __init__(self, run: Run, rows: NDArray[np.bool_]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ragfault-sample-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._source, self._ids = run, _list_ids(run, rows)
        counts = _copy_rows(run, self._folder / "scores.parquet", "scores", self._ids)
        population = run.manifest.population or run.manifest.traces
        manifest = msgspec.structs.replace(
            run.manifest,
            traces=len(self._ids),
            **{status: counts.get(status, 0) for status in STATUSES},
            population=population,
            checksums={},
        )
        super().__init__(run.path, manifest)

    def get_table_path(self, name: str) -> Path:
        """Return where a table of the sample lies."""
        path = self._folder / f"{name}.parquet"
        if not path.exists():
            part = path.with_suffix(f".{uuid4().hex}")  # two threads may read it first
            _copy_rows(self._source, part, name, self._ids)
            part.replace(path)
        return path


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
    values = texts.to_numpy(zero_copy_only=False).tolist()
    joined = [blake2b(" ".join(text.lower().split()).encode(), digest_size=8).digest() for text in values]
    return np.frombuffer(b"".join(joined), dtype="<u8")


def _list_ids(run: Run, rows: NDArray[np.bool_]) -> frozenset[str]:
    """List the ids of some rows."""
    import pyarrow as pa

    ids: list[str] = []
    end = 0
    for batch in run.iterate_batches("traces", ["id"]):
        begin, end = end, end + batch.num_rows
        ids += batch.column("id").filter(pa.array(rows[begin:end])).to_pylist()
    return frozenset(ids)


def _copy_rows(run: Run, path: Path, name: str, ids: Set[str]) -> Counter[str]:
    """Copy the rows of some traces from a table to a file, in order; return the number of scores by status."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts: Counter[str] = Counter()
    # Texts of scores repeat, and most rows are dropped: codes are read, and decoded in the rest.
    coded, size = (CODED_COLUMNS, 2**16) if name == "scores" else ((), BATCH_TRACES)
    key = "id" if name == "traces" else "trace"
    writer, parts = None, []
    try:
        for batch in run.iterate_batches(cast(TableName, name), dictionary_columns=coded):
            part = _decode_columns(_select_rows(batch, batch.column(key), ids))
            writer = writer or pq.ParquetWriter(path, part.schema, compression="lz4")
            parts.append(part)
            if name == "scores":
                counts.update({entry["values"]: entry["counts"] for entry in part["status"].value_counts().to_pylist()})
            if sum(part.num_rows for part in parts) >= size:
                writer.write_table(pa.concat_tables(parts))
                parts = []
        if writer is not None and parts:
            writer.write_table(pa.concat_tables(parts))
    finally:
        if writer is not None:
            writer.close()
    return counts


def _select_rows(batch: pa.RecordBatch, keys: pa.Array, ids: Set[str]) -> pa.Table:
    """Return the rows of a batch whose key is one of the ids."""
    import pyarrow as pa

    encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    chosen = [text in ids for text in encoded.dictionary.to_numpy(zero_copy_only=False).tolist()]
    return pa.Table.from_batches([batch.filter(pa.array(chosen, pa.bool_()).take(encoded.indices))])


def _decode_columns(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            kind = field.type.value_type
            table = table.set_column(at, field.with_type(kind), table.column(at).cast(kind))
    return table
