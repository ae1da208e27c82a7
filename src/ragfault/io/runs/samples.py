"""Random samples of large runs, so that what reads whole traces stays bounded in memory and time."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragfault.io.remote_paths import open_for_arrow
from ragfault.io.runs.run import BATCH_TRACES, SAMPLE_TRACES, Run
from ragfault.model.errors import RunError
from ragfault.model.records import get_query_id

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# least share of the smaller run with an id of the other; else runs are paired by query
MIN_SHARED_IDS = 0.5
STATUSES = ("scored", "undefined", "failed")
DICTIONARY_BYTES = 2**20
"""A column of a row group whose dictionary is larger is stored as plain texts from there on."""

Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]


class RunSample(Run):
    """Random sample of a run, read and named like the run itself; its tables lie in a temporary folder.

    Scores are counted, and so copied at once; the other tables are copied when they are first read.
    """

    def __init__(self, run: Run, rows: Mask) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ragfault-sample-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._source, self._rows, self._ids = run, rows, _list_ids(run, rows)
        counts = _copy_rows(run, self._folder / "scores.parquet", "scores", rows, self._ids)
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
            # two threads may read it first
            part = path.with_suffix(f".{uuid4().hex}")
            _copy_rows(self._source, part, name, self._rows, self._ids)
            part.replace(path)
        return path


def sample_run(run: Run, most: int = SAMPLE_TRACES) -> Run:
    """Draw a random sample of about `most` traces of a run; return the run itself where it has no more, or `most` is 0.

    A trace is drawn by a hash of its id: the same run always gives the same sample, and a larger one includes it.
    """
    if not 0 < most < run.manifest.traces:
        return run
    (rows,) = _draw_rows(_hash_column([run], "id"), most)
    return RunSample(run, rows)


def sample_runs(runs: Sequence[Run], most: int = SAMPLE_TRACES) -> tuple[Run, ...]:
    """Draw the same random sample of about `most` traces of several runs, or return them where they share no more.

    The traces that all runs have are drawn, by a hash of the id, or of the query where fewer than half of the smallest
    run's ids are in all. Others are drawn at the same rate, so that the share without a partner stays what it is.
    """
    if not 0 < most < max(run.manifest.traces for run in runs):
        return tuple(runs)
    hashes = _hash_column(runs, "id")
    shared = _select_shared(hashes)
    if len(shared) < MIN_SHARED_IDS * min(map(len, hashes)):
        hashes = _hash_column(runs, "query")
        shared = _select_shared(hashes)
    if 0 < len(shared) <= most:
        return tuple(runs)
    rows = _draw_rows(hashes, most, shared)
    # they grow with the runs, and samples do not
    del hashes, shared

    def draw(run: Run, mask: Mask) -> Run:
        sample = RunSample(run, mask)
        sample.get_table_path("traces")
        return sample

    # Arrow copies tables of two runs at once
    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(draw, runs, rows))


def count_population(runs: Iterable[Run]) -> int:
    """Count the traces of the runs that samples were drawn from; 0 where none of some runs is a sample."""
    sizes = [(run.manifest.traces, run.manifest.population) for run in runs]
    return sum(population or traces for traces, population in sizes) if any(size[1] for size in sizes) else 0


def _select_shared(hashes: Sequence[Hashes]) -> Hashes:
    """Return the hashes of the first run that all runs have."""
    shared = hashes[0]
    for other in hashes[1:]:
        shared = shared if np.array_equal(shared, other) else shared[np.isin(shared, other)]
    return shared


def _draw_rows(hashes: Sequence[Hashes], most: int, shared: Hashes | None = None) -> list[Mask]:
    """Return the rows of each run whose hash is among the `most` lowest of the shared ones, else of the first run."""
    pool = hashes[0] if shared is None or not len(shared) else shared
    # about 1.5 times as many, to copy fewer than all
    bound = min(2**64 - 1, 2**63 // max(len(pool), 1) * 3 * most)
    lowest = pool[pool <= np.uint64(bound)]
    lowest = lowest if len(lowest) >= most else pool
    highest = np.partition(lowest, most - 1)[most - 1] if most < len(lowest) else lowest.max(initial=0)
    return [column <= highest for column in hashes]


def _hash_column(runs: Sequence[Run], column: str) -> list[Hashes]:
    """Hash the texts of a column of each run; what several runs have at one place is hashed once."""
    parts: list[list[Hashes]] = [[np.empty(0, np.uint64)] for _ in runs]
    columns = [column, "attempt"] if column == "id" else [column]
    for batches in zip_longest(*(run.iterate_batches("traces", columns) for run in runs)):
        known: list[tuple[pa.Array, Hashes]] = []
        for batch, own in zip(batches, parts, strict=True):
            if batch is not None:
                texts = list_query_ids(batch) if column == "id" else batch.column(0)
                hashes = next((hashes for other, hashes in known if other.equals(texts)), None)
                own.append(_hash_texts(texts) if hashes is None else hashes)
                known.append((texts, own[-1]))
    return [np.concatenate(own) for own in parts]


def list_query_ids(batch: pa.RecordBatch) -> pa.Array:
    """List the ids of the queries, so that the attempts of one are drawn together."""
    import pyarrow as pa

    ids = batch.column("id")
    if "attempt" not in batch.schema.names:
        return ids
    numbers = batch.column("attempt").fill_null(1).to_pylist()
    if all(number == 1 for number in numbers):
        return ids
    return pa.array(map(get_query_id, ids.to_pylist(), numbers), pa.string())


def _hash_texts(texts: pa.Array) -> Hashes:
    """Hash texts, their case and white space aside: queries are paired so."""
    values = texts.to_numpy(zero_copy_only=False).tolist()
    together = "".join(values)
    if together.split() != [together] or together.lower() != together:
        values = [" ".join(text.lower().split()) for text in values]
    empty, digests = blake2b(digest_size=8), []
    for text in values:
        # takes less time than a new one
        state = empty.copy()
        state.update(text.encode())
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8")


def _list_ids(run: Run, rows: Mask) -> pa.ChunkedArray:
    """List the ids of some rows."""
    import pyarrow as pa

    ids, end = [], 0
    for batch in run.iterate_batches("traces", ["id"]):
        begin, end = end, end + batch.num_rows
        ids.append(batch.column("id").filter(pa.array(rows[begin:end])))
    return pa.chunked_array(ids, pa.string())


def _copy_rows(run: Run, path: Path, name: str, rows: Mask, ids: pa.ChunkedArray) -> Counter[str]:
    """Copy the rows of some traces, which have the ids, from a table to a file; return the number of scores by status.

    Raises RunError where the table does not have the traces in the order of the run.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts: Counter[str] = Counter()
    width = len(run.manifest.metrics) if name == "scores" else 1
    writer, done = None, 0
    try:
        for table in _select_rows(run, name, rows, width):
            end = done + table.num_rows
            if table["id" if name == "traces" else "trace"] != ids.take(pa.array(np.arange(done, end) // width)):
                raise _describe_other_order(run, name)
            done = end
            if name == "scores":
                counts.update(
                    {entry["values"]: entry["counts"] for entry in table["status"].value_counts().to_pylist()}
                )
            writer = writer or pq.ParquetWriter(path, table.schema, compression="lz4")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
        # what was read was many times what is left of it
        pa.default_memory_pool().release_unused()
    return counts


def _select_rows(run: Run, name: str, rows: Mask, width: int) -> Iterator[pa.Table]:
    """Yield the rows of some traces, each trace with `width` of them.

    Most rows are dropped: what repeats is read as codes, and decoded in the rest.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = open_for_arrow(run.get_table_path(name))
    with run.convert_read_errors(name), pq.ParquetFile(place) as file:
        metadata, schema = file.metadata, file.schema_arrow
        if metadata.num_rows != len(rows) * width:
            raise _describe_other_order(run, name)
        coded = pq.ParquetFile(place, metadata=metadata, read_dictionary=_list_repeated_texts(metadata))
        places = (np.flatnonzero(rows)[:, None] * width + np.arange(width)).ravel()
        parts, begin = [], 0
        for group in range(metadata.num_row_groups):
            table = coded.read_row_group(group, use_threads=False)
            first, last = np.searchsorted(places, (begin, begin + table.num_rows))
            # Codes would hold every text of the row group.
            parts.append(table.take(pa.array(places[first:last] - begin)).cast(schema))
            begin += table.num_rows
            if group == metadata.num_row_groups - 1 or sum(part.num_rows for part in parts) >= BATCH_TRACES * width:
                yield pa.concat_tables(parts)
                parts = []


def _list_repeated_texts(metadata: pq.FileMetaData) -> list[str]:
    """List the columns of texts that are stored as codes throughout: no row group has filled its dictionary."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [
        groups[0].column(i).path_in_schema
        for i in range(metadata.num_columns if groups else 0)
        if groups[0].column(i).physical_type == "BYTE_ARRAY"
        and all(group.column(i).total_uncompressed_size < DICTIONARY_BYTES for group in groups)
    ]


def _describe_other_order(run: Run, name: str) -> RunError:
    return RunError(
        f"{run.path / name}.parquet does not hold the rows of every trace in the order of the run. "
        "Evaluate the traces again."
    )
