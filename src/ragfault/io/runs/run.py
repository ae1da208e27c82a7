"""A run on disk or in an object store: its directory, manifest and tables."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast
from uuid import uuid4

import msgspec
from msgspec import Struct

from ragfault.io.atomic_files import PART_SUFFIX, convert_write_errors
from ragfault.io.remote_paths import AnyPath, RemotePath, get_file_stamp, open_for_arrow, parse_path
from ragfault.io.runs.checksums import compare_checksums, compute_manifest_checksum, verify_table
from ragfault.io.runs.unfinished import DRAFT_FOLDER, describe_unfinished_run, get_partial_path
from ragfault.model.errors import MissingExtra, OutputError, RunError
from ragfault.model.records import GoldMode, Layer, Score, Trace, Usage, Verdicts

if TYPE_CHECKING:
    import datasets
    import pandas as pd
    import polars as pl
    import pyarrow as pa

RUN_FILES = frozenset({"manifest.json", "traces.parquet", "verdicts.parquet", "causes.parquet", "scores.parquet"})
"""Files of a run; a folder with any other file is never replaced."""
APP_RESULTS = "apps"
"""Folder of a run in which apps leave their results on it; it goes where the run goes, and is replaced with it."""
PARTIAL_FILES = frozenset({"lock", "plan.json", "parts", DRAFT_FOLDER, "old", "input", "bad.jsonl"})
"""Files of an unfinished run; a folder with any other file is never written to."""


def resolve_output(out: str | Path) -> Path:
    """Return the path as named; resolve a link or a name such as `.`."""
    out = Path(out)
    return out.resolve() if out.is_symlink() or out.name in ("", ".", "..") else out


def parse_output(out: str | AnyPath) -> AnyPath:
    """Do the same for a place that may be in an object store."""
    out = parse_path(out)
    return out if isinstance(out, RemotePath) else resolve_output(out)


def check_free(out: AnyPath, *, force: bool = False) -> None:
    """Refuse a place that is taken: by a run unless forced, by anything else always.

    Raises OutputError; also where a store cannot be asked.
    """
    with convert_write_errors(out):
        if not out.exists():
            return
    if not _has_run_manifest(out):
        if isinstance(out, RemotePath) and _is_interrupted_upload(out):
            return
        raise OutputError(f"{out} exists and is not a run. Choose another place with -o.")
    others = sorted(path.name for path in out.iterdir() if path.name not in RUN_FILES | {APP_RESULTS})
    if others and force:
        raise OutputError(
            f"{out} holds more than a run ({', '.join(others[:3])}), so it is not replaced. "
            "Move that away, or choose another place with -o."
        )
    if not force:
        raise OutputError(f"{out} exists already. Choose another path with -o, or replace it with --force.")


def _is_interrupted_upload(out: RemotePath) -> bool:
    """Tell whether an interrupted upload left only tables without a manifest."""
    return {file.name for file in out.iterdir()} <= RUN_FILES and get_partial_path(out).exists()


def _has_run_manifest(path: AnyPath) -> bool:
    try:
        msgspec.json.decode((path / "manifest.json").read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return False
    return True


@contextlib.contextmanager
def lock_run(out: AnyPath) -> Iterator[AnyPath]:
    """Yield the folder in which the run for `out` is built; on a disk it is locked for this process.

    In an object store nothing can be locked: equal evaluations write equal parts, others are refused by their plan.
    Raises OutputError where another evaluation is at work, or the folder holds what is not ragfault's.
    """
    place = get_partial_path(out)
    with convert_write_errors(place):
        _check_partial_folder(place)
    if isinstance(place, RemotePath):
        yield place
        return
    with convert_write_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("ab")
    with lock:
        _acquire_file_lock(lock.fileno(), out)
        lock.truncate(0)
        lock.write(uuid4().hex.encode())
        lock.flush()
        try:
            yield place
        finally:
            if not (place / "plan.json").exists():
                clear_partial_run(place)


def _check_partial_folder(folder: AnyPath) -> None:
    """Refuse a folder that holds what is not ragfault's."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    foreign = sorted(name for name in names - PARTIAL_FILES if not name.endswith(PART_SUFFIX))
    if foreign:
        raise OutputError(
            f"{folder} is needed to make the run, and it holds something else ({', '.join(foreign[:3])}). "
            "Move that away, or choose another place with -o."
        )


def read_lock_token(folder: AnyPath) -> str:
    """Read the token of the process that locked a folder: equal tokens mean the same disk."""
    if isinstance(folder, RemotePath):
        return folder.url
    try:
        return (folder / "lock").read_text()
    except OSError:
        return ""


def _acquire_file_lock(handle: int, out: AnyPath) -> None:
    """Lock a file for this process; where the system has no such locks, trust the user."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"another evaluation is writing {out}. Wait for it, or choose another place with -o."
        ) from None


def clear_partial_run(place: AnyPath) -> None:
    """Remove what ragfault made in a folder, and the folder if that was all."""
    if isinstance(place, RemotePath):
        place.remove_tree()
        return
    for path in (*(place / name for name in PARTIAL_FILES), *place.glob(f".*{PART_SUFFIX}")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        place.rmdir()


def remove_folder(folder: AnyPath) -> None:
    """Remove a folder that ragfault made, with all that is in it."""
    if isinstance(folder, RemotePath):
        folder.remove_tree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def publish_run(draft: Path, out: AnyPath, *, force: bool) -> None:
    """Move a whole run to its place; a run that stood there gives way only to `force`.

    In an object store the manifest is put last: a run is there when its manifest is.
    """
    check_free(out, force=force)
    if isinstance(out, RemotePath):
        (out / "manifest.json").unlink(missing_ok=True)
        for name in sorted(RUN_FILES - {"manifest.json"}):
            with (draft / name).open("rb") as file, (out / name).open("wb") as there:
                shutil.copyfileobj(file, there, 1 << 20)
        (out / "manifest.json").write_bytes((draft / "manifest.json").read_bytes())
        return
    if out.exists():
        old = draft.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    draft.rename(out)


RUN_FORMAT = 2
"""The version of the layout; a run of another version is refused."""

TableName = Literal["traces", "verdicts", "causes", "scores"]

RecordType = TypeVar("RecordType", bound=Struct)

BATCH_TRACES = 2048
"""Traces in memory at once while a run is read."""

SAMPLE_TRACES = 20_000
"""Most traces of a run of which every text is analysed; of a larger run a random sample is."""


class MetricInfo(Struct, frozen=True):
    """A metric as the manifest stores it, so that the run can be read without its definition."""

    name: str
    """The metric as it prints, with its parameters: `ndcg@10`."""
    layer: Layer
    better: Literal["higher", "lower"] = "higher"
    low: float | None = 0.0
    """Minimum value; None: unbounded."""
    high: float | None = 1.0
    """Maximum value; None: unbounded."""


class Manifest(Struct, frozen=True, kw_only=True):
    """Description of a run."""

    format: int = RUN_FORMAT
    """The version of the layout."""
    ragfault: str
    """The version that wrote the run."""
    created: str
    """Time of creation in UTC, ISO 8601."""
    judge: str
    """The judge's fingerprint: runs with different ones are never compared silently."""
    metrics: tuple[MetricInfo, ...]
    """The metrics asked for, with their layers and ranges, in order."""
    gold: GoldMode = "ignore"
    """Use of gold in the metrics: apply where it exists, or ignore (as in runs made before there was a choice)."""
    source: tuple[str, ...]
    """The input, as it was named."""
    fingerprint: str
    """A hash of the traces, in order."""
    traces: int
    planned: int = 0
    """Traces of the input, where the evaluation stopped before the last one; 0: all were evaluated."""
    population: int = 0
    """Traces of the run of which this is a random sample; 0: it is no sample."""
    scored: int
    """Scores with a value."""
    undefined: int
    failed: int
    """Scores lost to a failure of the judge or of a metric."""
    skipped: int = 0
    """Lines of the input that were not traces and were left out on request."""
    usage: Usage | None = None
    """Calls, tokens and cost of a paid judge; None for other judges."""
    checksums: dict[str, str] = {}
    """The SHA-256 of each other file of the run, in hex, by its name; a table is checked when it is first read."""
    checksum: str = ""
    """The SHA-256 of the manifest without this field, in hex; checked when the run is opened."""


MAX_CACHED_TRACES = 2000
"""Most traces of a run whose tables and records are cached, since several analyses read them."""


class Run:
    """A finished run, read on demand.

    `Run("runs/v1")` opens the one at a path, or in an object store (`s3://bucket/run`), as `Run.open` does; make one
    with `ragfault.evaluate`. Raises RunError where there is none, where it was never finished, or where a later version
    made it.
    """

    def __init__(self, path: str | AnyPath, manifest: Manifest | None = None) -> None:
        if not isinstance(path, (str, os.PathLike)) and not hasattr(path, "read_bytes"):
            from ragfault.io.formats.tables import is_memory_table

            kind = "a frame or records" if is_memory_table(path) else f"the type {type(path).__name__}"
            raise RunError(
                f"a run or its path is needed, not {kind}. Make one of traces: ragfault evaluate TRACES -o RUN"
            )
        # a place in a store has the methods of a path that are used on runs
        self.path = cast(Path, parse_path(path))
        self.manifest = _load_manifest(self.path) if manifest is None else manifest
        self._evidence: list[tuple[Trace, Verdicts]] | None = None
        self._cached: dict[tuple[TableName, type[Struct] | None], tuple[str, Any]] = {}

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"<Run {self.path}: {manifest.traces:,} traces × {len(manifest.metrics)} metrics by {manifest.judge}>"

    def _repr_html_(self) -> str:
        # Found by name: reports lie in a layer above.
        return str(import_module("ragfault.report.results").render_result_html(self))

    @classmethod
    def open(cls, path: str | AnyPath) -> Run:
        """Open the run at a path, with what `Run` raises."""
        return cls(path)

    def get_table_path(self, name: str) -> Path:
        """Return the path of a table."""
        return self.path / f"{name}.parquet"

    def verify_checksums(self) -> None:
        """Compare the checksum of every file of the run with the manifest's.

        Each state of a file is read once by a process. Raises RunError for the first file that differs.
        """
        for name, checksum in self.manifest.checksums.items():
            with self.convert_read_errors(Path(name).stem):
                verify_table(self.path / name, checksum)

    def traces(self, ids: Sequence[str] | None = None, fields: Sequence[str] = ()) -> Iterator[Trace]:
        """Yield the traces in order; with `ids`, only those; with `fields`, only with these, the id and the query."""
        from ragfault.io.formats.arrow import table_to_traces

        if self._is_cached() and not fields:
            yield from self._choose_records("traces", Trace, table_to_traces, ids)
            return
        for table in self._read_batches("traces", ids, ["id", "query", *fields] if fields else ()):
            yield from table_to_traces(table)

    def verdicts(self, ids: Sequence[str] | None = None) -> Iterator[Verdicts]:
        """Yield the verdicts in order of the traces; with `ids`, only those on these traces."""
        yield from self.read_records("verdicts", Verdicts, ids)

    def evidence(self, ids: Sequence[str] | None = None) -> Iterator[tuple[Trace, Verdicts]]:
        """Yield each trace with the verdicts that its metrics read: the judge's, with gold applied if the run does so.

        Those of a small run are cached. Raises RunError where traces and verdicts are not in the same order.
        """
        if ids is not None or not self._is_cached():
            return self._read_evidence(ids)
        self._evidence = self._evidence or list(self._read_evidence(None))
        return iter(self._evidence)

    def _read_evidence(self, ids: Sequence[str] | None) -> Iterator[tuple[Trace, Verdicts]]:
        from ragfault.model.gold_evidence import apply_gold

        for trace, verdicts in zip(self.traces(ids), self.verdicts(ids), strict=True):
            if trace.id != verdicts.trace:
                raise RunError(f"{self.path}: traces and verdicts are not in the same order. Evaluate again.")
            yield trace, apply_gold(trace, verdicts) if self.manifest.gold == "apply" else verdicts

    def has_gold(self) -> bool:
        """Return whether any trace has gold, facts, a reference or an answerability label."""
        table = self.to_arrow("traces", ["gold", "facts", "reference", "answerable"])
        return any(column.null_count < len(column) for column in table.columns)

    def scores(self, ids: Sequence[str] | None = None) -> Iterator[Score]:
        """Yield the scores by trace and, within it, by metric; with `ids`, only those of these traces."""
        yield from self.read_records("scores", Score, ids)

    def has_table(self, name: TableName) -> bool:
        """Return whether the run has a table; those of earlier versions have no causes."""
        return (self.path / f"{name}.parquet").is_file()

    def read_records(
        self, name: TableName, record: type[RecordType], ids: Sequence[str] | None = None
    ) -> Iterator[RecordType]:
        """Yield the rows of a table as records, in order; with `ids`, only those of these traces."""
        from ragfault.io.formats.arrow import table_to_records

        if self._is_cached():
            yield from self._choose_records(name, record, lambda table: table_to_records(table, record), ids)
            return
        for table in self._read_batches(name, ids, ()):
            yield from table_to_records(table, record)

    def _is_cached(self) -> bool:
        return self.manifest.traces <= MAX_CACHED_TRACES

    def _choose_records(
        self,
        name: TableName,
        record: type[RecordType],
        decode: Callable[[pa.Table], Iterator[RecordType]],
        ids: Sequence[str] | None,
    ) -> Iterator[RecordType]:
        """Yield the records of a table of a small run, decoded once; with `ids`, only those of these traces."""
        with self.convert_read_errors(name):
            records = self._cache(
                name, record, lambda: [item for table in self._read_batches(name, None, ()) for item in decode(table)]
            )
        if ids is None:
            return iter(records)
        chosen, key = set(ids), "id" if name == "traces" else "trace"
        return (item for item in records if getattr(item, key) in chosen)

    def _load_columns(self, name: TableName, columns: Sequence[str] | None) -> pa.Table:
        """Load a table of a small run, which is read once, or some of its columns."""
        import pyarrow.parquet as pq

        path = self.get_table_path(name)
        with self.convert_read_errors(name):
            table = self._cache(
                name, None, lambda: pq.read_table(open_for_arrow(path), partitioning=None, use_threads=False)
            )
            return table.select(list(dict.fromkeys(columns))) if columns else table

    def _cache(self, name: TableName, record: type[Struct] | None, read: Callable[[], Any]) -> Any:
        """Return what a table was read as, by an earlier reading if its file is still the same."""
        stamp = get_file_stamp(str(self.get_table_path(name)))
        if self._cached.get((name, record), ("", None))[0] != stamp:
            self._cached[name, record] = stamp, read()
        return self._cached[name, record][1]

    def _read_batches(self, name: TableName, ids: Sequence[str] | None, fields: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a table, a bounded number at a time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        id_set = None if ids is None else pa.array(ids, pa.string())
        with self.convert_read_errors(name):
            for batch in self.iterate_batches(name, fields):
                table = pa.Table.from_batches([batch])
                if id_set is not None:
                    table = table.filter(pc.is_in(table["id" if name == "traces" else "trace"], value_set=id_set))
                if table.num_rows:
                    yield table

    def to_arrow(
        self, table: TableName = "scores", columns: Sequence[str] | None = None, dictionary_columns: Sequence[str] = ()
    ) -> pa.Table:
        """Load a whole table as Arrow, `dictionary_columns` dictionary-encoded."""
        import pyarrow.parquet as pq

        if self._is_cached() and not dictionary_columns:
            return self._load_columns(table, columns)
        with self.convert_read_errors(table):
            return pq.read_table(
                open_for_arrow(self.get_table_path(table)),
                columns=list(columns) if columns else None,
                read_dictionary=list(dictionary_columns),
                partitioning=None,
            )

    def iterate_batches(
        self, table: TableName = "scores", columns: Sequence[str] | None = None, dictionary_columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield a table as record batches, for tables that are large; those that hold long texts have fewer rows."""
        import pyarrow.parquet as pq

        if self._is_cached() and not dictionary_columns:
            yield from self._load_columns(table, columns).to_batches()
            return
        place = open_for_arrow(self.get_table_path(table))
        rows = 2**16 if table == "scores" or (columns and "chunks" not in columns) else BATCH_TRACES
        with self.convert_read_errors(table), pq.ParquetFile(place, read_dictionary=list(dictionary_columns)) as file:
            yield from file.iter_batches(rows, columns=list(columns) if columns else None, use_threads=False)

    @contextlib.contextmanager
    def convert_read_errors(self, name: str) -> Iterator[None]:
        """Check the checksum of a table, and convert errors of a damaged one to RunError."""
        import pyarrow as pa

        try:
            verify_table(self.get_table_path(name), self.manifest.checksums.get(f"{name}.parquet"))
            yield
        except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as error:
            raise RunError(
                f"{self.path / f'{name}.parquet'} is damaged or not of a run ({str(error).splitlines()[0]}). "
                "Copy the run again, or evaluate again."
            ) from error

    def to_pandas(self, table: TableName = "scores", **options: Any) -> pd.DataFrame:
        """Load a whole table as a pandas DataFrame. Raises MissingExtra without pandas."""
        if find_spec("pandas") is None:
            raise MissingExtra("a data frame", "", "pip install pandas")
        return self.to_arrow(table).to_pandas(**options)

    def to_frame(self) -> pd.DataFrame:
        """Load a pandas DataFrame with one row a trace, indexed by its id: query, answer, route, and every metric.

        A metric without a value on a trace is NaN there; `scores()` says why. Raises MissingExtra without pandas.
        """
        if find_spec("pandas") is None:
            raise MissingExtra("a data frame", "", "pip install pandas")
        traces = self.to_arrow("traces", ["id", "query", "answer", "route"]).to_pandas().set_index("id")
        scores = self.to_arrow("scores", ["trace", "metric", "value"]).to_pandas()
        wide = scores.pivot_table(index="trace", columns="metric", values="value", aggfunc="first", dropna=False)
        names = [measure.name for measure in self.manifest.metrics]
        return cast("pd.DataFrame", traces.join(wide.reindex(columns=names).astype("float64")))

    def to_polars(self, table: TableName = "scores") -> pl.DataFrame:
        """Load a whole table as a polars DataFrame; polars must be installed."""
        import polars

        return cast("pl.DataFrame", polars.from_arrow(self.to_arrow(table)))

    def to_dataset(self, table: TableName = "scores") -> datasets.Dataset:
        """Load a whole table as a Hugging Face dataset; `datasets` must be installed."""
        import datasets

        return datasets.Dataset(self.to_arrow(table))


AnyRun = Run | str | AnyPath
"""A run, or the path of one."""


def open_run(run: AnyRun) -> Run:
    """Return a run as it is, or the one at a path. Raises RunError where there is none."""
    return run if isinstance(run, Run) else Run(run)


def _load_manifest(path: AnyPath) -> Manifest:
    """Load the manifest of the run at a path, with what `Run` raises."""
    try:
        content = (path / "manifest.json").read_bytes()
        manifest = msgspec.json.decode(content, type=Manifest)
        checksum = compute_manifest_checksum(content)
    except FileNotFoundError:
        raise RunError(_describe_missing_run(path)) from None
    except NotADirectoryError:
        raise RunError(f"{path} is a file, not a run. Make one with: ragfault evaluate {path} -o RUN") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunError(f"{path / 'manifest.json'} is not the manifest of a run: {error}") from None
    if manifest.format != RUN_FORMAT:
        raise RunError(_describe_other_format(path, manifest))
    if manifest.checksum:
        compare_checksums(path / "manifest.json", checksum, manifest.checksum)
    for name in dict.fromkeys(("traces.parquet", "verdicts.parquet", "scores.parquet", *manifest.checksums)):
        if not (path / name).is_file():
            raise RunError(f"{path} is incomplete: {name} is missing. Copy the run again.")
    return manifest


def _describe_other_format(path: AnyPath, manifest: Manifest) -> str:
    """Say which format a run has, and how to get one that can be read."""
    if manifest.format > RUN_FORMAT:
        return f"{path} has format {manifest.format}, this ragfault reads {RUN_FORMAT}. Upgrade ragfault to open it."
    metrics = " ".join(f"-m {shlex.quote(measure.name)}" for measure in manifest.metrics)
    sources = " ".join(map(shlex.quote, manifest.source)) or "TRACES"
    return (
        f"{path} has format {manifest.format}, this ragfault reads {RUN_FORMAT}. Make it anew with: "
        f"ragfault evaluate {sources} -o {shlex.quote(str(path))} {metrics} --force "
        f"(it was judged by {manifest.judge})"
    )


def _describe_missing_run(path: AnyPath) -> str:
    """Describe what is at a path that holds no run."""
    unfinished = describe_unfinished_run(path)
    if unfinished is not None:
        return unfinished
    if path.is_dir():
        return f"{path} is not a run: it holds no manifest.json."
    manifests = path.parent.glob("*/manifest.json") if isinstance(path, Path) else ()
    near = sorted(manifest.parent.name for manifest in manifests)
    more = f" and {len(near) - 5:,} more" if len(near) > 5 else ""
    there = f" There is: {', '.join(near[:5])}{more}." if near else ""
    return f"no run at {path}.{there} Make one with: ragfault evaluate TRACES -o {path}"
