"""Writer of a run: write it in parts, so that a killed evaluation resumes and many workers can share it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct

from ragfault.io.atomic_files import convert_write_errors, write_atomically
from ragfault.io.remote_paths import AnyPath, RemotePath, read_files
from ragfault.io.runs.checksums import compute_manifest_checksum
from ragfault.io.runs.run import (
    Manifest,
    MetricInfo,
    Run,
    check_free,
    clear_partial_run,
    parse_output,
    publish_run,
    read_lock_token,
    remove_folder,
)
from ragfault.io.runs.unfinished import DRAFT_FOLDER, get_partial_path
from ragfault.model.errors import RunError
from ragfault.model.records import GoldMode, Trace, Usage, Verdicts

if TYPE_CHECKING:
    import pyarrow as pa


RUN_TABLES = ("traces", "verdicts", "causes", "scores")
"""Tables of a part in write order: the part is complete when the last one exists."""
PARTS_PER_FETCH = 16
"""Parts fetched at once from an object store."""

TableBlobs = Mapping[str, bytes]
"""The tables of a part, each as the bytes of a Parquet file."""
ROW_GROUP_SIZES = {"traces": 2048, "verdicts": 2048, "causes": 2048, "scores": 65536}
"""Least rows per row group; the files do not depend on the parts."""
ROW_GROUP_BYTES = 2**24
"""Bytes in memory up to which a row group takes a multiple of these rows: few groups are read and described faster."""
WRITE_BUFFER_BYTES = 2**18
"""Bytes written at once: Parquet writes a small table in a hundred pieces of a few bytes."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """The plan of an evaluation; a killed one resumes under an equal plan."""

    ragfault: str
    judge: str
    metrics: tuple[MetricInfo, ...]
    gold: GoldMode = "ignore"
    fingerprint: str
    traces: int
    source: tuple[str, ...] = ()
    skipped: int = 0
    batch: int = 64
    """Traces per part; a resumed evaluation keeps its size."""
    metrics_by: tuple[str, ...] = ()
    """Choices of metrics by the tags of a trace, as they were written."""

    def matches(self, existing: RunPlan) -> bool:
        """Tell whether a run begun with `existing` can be resumed; names of the input do not matter."""
        same = msgspec.structs.replace(existing, batch=self.batch, source=self.source, skipped=self.skipped)
        return same == self


class PartialRun:
    """An unfinished run: `RUN.partial/` beside its final place."""

    def __init__(self, out: AnyPath, plan: RunPlan, *, resumed: bool = False) -> None:
        self.out, self.plan = out, plan
        self.path = get_partial_path(out)
        self.resumed = resumed
        """True if an earlier command began the run."""
        self.token = read_lock_token(self.path)

    @classmethod
    def begin(cls, out: str | AnyPath, plan: RunPlan, *, force: bool = False) -> PartialRun:
        """Begin a run, or resume one with the same plan.

        Raises OutputError for a place that is taken, RunError where another plan was begun here (`force` drops it).
        """
        out = parse_output(out)
        check_free(out, force=force)
        partial = cls(out, plan)
        begun = partial._read_existing_plan()
        if begun is not None and not plan.matches(begun):
            if not force and partial.list_finished_parts():
                raise RunError(_describe_conflict(partial.path, begun, plan))
            remove_folder(partial.path / "parts")
            begun = None
        if begun is not None:
            return cls(out, begun, resumed=True)
        with convert_write_errors(partial.path):
            if isinstance(partial.path, Path):
                (partial.path / "parts").mkdir(parents=True, exist_ok=True)
            write_atomically(partial.path / "plan.json", msgspec.json.format(msgspec.json.encode(plan)))
        return partial

    def _read_existing_plan(self) -> RunPlan | None:
        try:
            return msgspec.json.decode((self.path / "plan.json").read_bytes(), type=RunPlan)
        except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
            return None

    def list_finished_parts(self) -> frozenset[int]:
        """Return the numbers of the complete parts."""
        parts = self.path / "parts"
        if isinstance(parts, RemotePath):
            last = [file for file in parts.list_files() if file.name == f"{RUN_TABLES[-1]}.parquet"]
            return frozenset(int(file.parent.name) for file in last)
        return frozenset(int(place.name) for place in parts.iterdir() if place.name.isdigit())

    def is_reachable(self) -> bool:
        """Tell whether this process sees the disk or store where the run is built."""
        return read_lock_token(self.path) == self.token

    def write_blobs(self, number: int, blobs: TableBlobs) -> None:
        """Write one part from the bytes of its tables; an existing one is left unchanged."""
        place = self._get_part_path(number)
        with convert_write_errors(self.path):
            if isinstance(place, RemotePath):
                for name in RUN_TABLES:
                    (place / f"{name}.parquet").write_bytes(blobs[name])
            elif not place.is_dir():
                draft = place.with_name(f"{place.name}.{uuid4().hex[:8]}.draft")
                draft.mkdir()
                for name in RUN_TABLES:
                    (draft / f"{name}.parquet").write_bytes(blobs[name])
                _publish_part(draft, place)

    def _get_part_path(self, number: int) -> AnyPath:
        return self.path / "parts" / f"{number:07d}"

    def finish(self, *, force: bool = False, usage: Usage | None = None) -> Run:
        """Concatenate the parts, write the manifest, and move the run to its place.

        In an object store the manifest is written last. `usage` is that of a judge that is paid for.
        """
        count = -(-self.plan.traces // self.plan.batch)
        missing = count - len(self.list_finished_parts())
        if missing > 0:
            raise RunError(f"{self.path} lacks {missing} of {count} parts. Run the same command again.")
        draft = self.out if isinstance(self.out, RemotePath) else self.path / DRAFT_FOLDER
        with convert_write_errors(self.path):
            if isinstance(draft, RemotePath):
                check_free(draft, force=force)
                (draft / "manifest.json").unlink(missing_ok=True)
            else:
                remove_folder(draft)
                draft.mkdir()
            tables = {name: self._merge_parts(name, range(count), draft) for name in RUN_TABLES}
            write_manifest(draft, build_manifest(self.plan, tables, usage))
            if isinstance(draft, Path) and isinstance(self.out, Path):
                publish_run(draft, self.out, force=force)
        clear_partial_run(self.path)
        return Run.open(self.out)

    def keep_finished(self, usage: Usage | None = None) -> Run | None:
        """Write what is done of a stopped evaluation as a run of its own within the unfinished one.

        None where no part is done. The next finished run of this place removes it.
        """
        numbers = sorted(self.list_finished_parts())
        if not numbers:
            return None
        draft = self.path / DRAFT_FOLDER
        with convert_write_errors(self.path):
            remove_folder(draft)
            if isinstance(draft, Path):
                draft.mkdir()
            tables = {name: self._merge_parts(name, numbers, draft) for name in RUN_TABLES}
            manifest = build_manifest(self.plan, tables, usage)
            digest = hashlib.sha256(f"{self.plan.fingerprint} {numbers}".encode()).hexdigest()
            traces = tables["traces"].rows
            write_manifest(
                draft, msgspec.structs.replace(manifest, traces=traces, planned=self.plan.traces, fingerprint=digest)
            )
        return Run.open(draft)

    def _merge_parts(self, name: str, numbers: Iterable[int], draft: AnyPath) -> WrittenTable:
        """Concatenate the parts of one table."""
        parts = (self._get_part_path(number) / f"{name}.parquet" for number in numbers)
        return write_row_groups(_read_parts(parts), draft / f"{name}.parquet", ROW_GROUP_SIZES[name])


def encode_part(
    traces: Sequence[Trace], verdicts: Sequence[Verdicts], causes: pa.Table, scores: pa.Table
) -> TableBlobs:
    """Encode the tables of a part, each as the bytes of a Parquet file."""
    from ragfault.io.formats.arrow import VERDICTS_SCHEMA, records_to_table, traces_to_table

    judged = records_to_table(verdicts, VERDICTS_SCHEMA)
    tables = {"traces": traces_to_table(traces), "verdicts": judged, "causes": causes, "scores": scores}
    return encode_tables(tables)


def encode_tables(tables: Mapping[str, pa.Table]) -> TableBlobs:
    """Encode tables, each as the bytes of a Parquet file."""
    import pyarrow.parquet as pq

    blobs = {}
    for name, table in tables.items():
        file = io.BytesIO()
        pq.write_table(table, file, compression="lz4")
        blobs[name] = file.getvalue()
    return blobs


def _publish_part(draft: Path, place: Path) -> None:
    """Rename a part to its final name; an equal part of another worker is kept."""
    try:
        draft.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        shutil.rmtree(draft, ignore_errors=True)


def _read_parts(parts: Iterator[AnyPath]) -> Iterator[pa.Table]:
    """Yield the tables of parts, in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    while some := list(islice(parts, PARTS_PER_FETCH)):
        far = [item for item in some if isinstance(item, RemotePath)]
        for item in [pa.BufferReader(blob) for blob in read_files(far)] or some:
            with pq.ParquetFile(item) as file:
                yield file.read(use_threads=False)


def build_manifest(plan: RunPlan, tables: Mapping[str, WrittenTable], usage: Usage | None = None) -> Manifest:
    """Build the manifest of a finished run from its plan and its tables by name."""
    states = tables["scores"].states
    return Manifest(
        ragfault=plan.ragfault,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=plan.judge,
        metrics=plan.metrics,
        gold=plan.gold,
        source=plan.source,
        fingerprint=plan.fingerprint,
        traces=plan.traces,
        scored=states.get("scored", 0),
        undefined=states.get("undefined", 0),
        failed=states.get("failed", 0),
        skipped=plan.skipped,
        usage=usage,
        checksums={f"{name}.parquet": table.checksum for name, table in tables.items()},
    )


def write_manifest(folder: AnyPath, manifest: Manifest) -> None:
    """Write a run's manifest into its folder, with its checksum."""
    checksum = compute_manifest_checksum(msgspec.json.encode(manifest))
    content = msgspec.json.encode(msgspec.structs.replace(manifest, checksum=checksum))
    (folder / "manifest.json").write_bytes(msgspec.json.format(content) + b"\n")


class WrittenTable(NamedTuple):
    """A Parquet file that was written."""

    checksum: str
    """SHA-256 in hex."""
    states: dict[str, int]
    """Number of rows of each status, if the table has that column."""
    rows: int = 0


def write_row_groups(tables: Iterable[pa.Table], target: AnyPath, rows: int) -> WrittenTable:
    """Write tables into one Parquet file; a row group has `rows` rows, or a multiple of them up to ROW_GROUP_BYTES."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    states: Counter[str] = Counter()
    rows_written = 0
    group: list[pa.Table] = []
    writer: pq.ParquetWriter | None = None
    with _open_sink(target) as sink, io.BufferedWriter(sink, WRITE_BUFFER_BYTES) as buffered:
        try:
            for table in _split_rows(tables, rows):
                rows_written += table.num_rows
                if "status" in table.column_names:
                    states.update({row["values"]: row["counts"] for row in table["status"].value_counts().to_pylist()})
                writer = writer or pq.ParquetWriter(buffered, table.schema, compression="zstd")
                if group and sum(part.nbytes for part in group) + table.nbytes > ROW_GROUP_BYTES:
                    writer.write_table(pa.concat_tables(group))
                    group = []
                group.append(table)
            if writer is not None and group:
                writer.write_table(pa.concat_tables(group))
        finally:
            if writer is not None:
                writer.close()
    return WrittenTable(sink.checksum, dict(states), rows_written)


def _split_rows(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of `rows`, the last of fewer, each in one piece and independent of the tables given."""
    import pyarrow as pa

    pending: pa.Table | None = None
    for table in tables:
        pending = table if pending is None else pa.concat_tables([pending, table])
        while pending.num_rows >= rows:
            # An empty piece makes Arrow copy even what is in one piece, and leave out bitmaps without a null.
            yield pa.concat_tables([pending.slice(0, 0), pending.slice(0, rows)]).combine_chunks()
            pending = pending.slice(rows)
    if pending is not None:
        yield pa.concat_tables([pending.slice(0, 0), pending]).combine_chunks()


@contextlib.contextmanager
def _open_sink(target: AnyPath) -> Iterator[_ChecksumFile]:
    """Open a file for pyarrow to write; one in an object store appears there when all went well."""
    file: Any = target.open("wb")
    try:
        yield _ChecksumFile(file)
    except BaseException:
        with contextlib.suppress(Exception):
            if isinstance(target, RemotePath):
                file.discard()
            else:
                file.close()
        raise
    file.close()


class _ChecksumFile(io.RawIOBase):
    """A file opened for writing that computes the checksum of what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._hash.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    @property
    def checksum(self) -> str:
        """The SHA-256 of what was written so far, in hex."""
        return self._hash.hexdigest()


def _describe_conflict(path: AnyPath, existing: RunPlan, requested: RunPlan) -> str:
    """Describe how the plan of a begun run differs from the requested one."""
    words = {"traces": "traces", "fingerprint": "their fingerprint"}
    differing = [
        f"{words.get(name, name)} was {_shorten(getattr(existing, name))}, now {_shorten(getattr(requested, name))}"
        for name in ("judge", "metrics", "gold", "ragfault", "traces", "fingerprint")
        if getattr(existing, name) != getattr(requested, name)
    ]
    return (
        f"{path} holds an unfinished run of another making ({'; '.join(differing[:2])}). "
        "Drop it with --force, or choose another place with -o."
    )


def _shorten(value: object) -> str:
    text = ", ".join(measure.name for measure in value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
