"""Recompute the metrics of a run from its stored verdicts, without judging again."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from ragfault.diagnosis.causes.storage import count_endings, tabulate_causes
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.jobs import import_modules, list_metric_modules
from ragfault.evaluation.settings import RescoringSettings
from ragfault.executors import choose_executor
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.remote_paths import AnyPath, open_for_arrow
from ragfault.io.runs.checksums import compare_checksums, compute_checksum
from ragfault.io.runs.run import BATCH_TRACES, Manifest, Run, check_free, parse_output, publish_run
from ragfault.io.runs.writer import ROW_GROUP_SIZES, TableBlobs, encode_tables, write_manifest, write_row_groups
from ragfault.metrics.catalog import Metric, compute_score_table, parse_metric
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import RunError
from ragfault.model.protocols import Executor
from ragfault.model.records import GoldMode, Verdicts
from ragfault.model.settings import accept_fields
from ragfault.model.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa


RESCORED_TABLES = ("causes", "scores")
"""Tables that follow from the traces and their verdicts."""


@accept_fields(RescoringSettings)
def rescore(run: str | AnyPath | Run, out: str | AnyPath, settings: RescoringSettings) -> Run:
    """Compute metrics and causes on the stored verdicts of a run, and write the result as another run.

    `metrics`, `workers`, `ray` and `executor` are as for `evaluate`; metrics=None computes the metrics of the run
    again. `gold` is "apply" or "ignore", else as in the run.
    Nothing is judged: a changed weight, penalty or threshold costs milliseconds a trace. A metric that reads verdicts
    which the run's judge did not make is undefined, and says so.

    Raises RunError where there is no run, OutputError where the place is taken, and what `select_metrics` raises.

    >>> import tempfile
    >>> from ragfault import Chunk, Trace, evaluate
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At noon."),), answer="At noon.")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate([trace], f"{folder}/run", metrics=["redundancy"])
    ...     again = rescore(run, f"{folder}/again", metrics=["redundancy(threshold=0.5)"])
    ...     [(score.metric, score.value) for score in again.scores()]
    [('redundancy(threshold=0.5)', 0.0)]
    """
    run = run if isinstance(run, Run) else Run.open(run)
    out = parse_output(out)
    gold, metrics = settings.gold or run.manifest.gold, settings.metrics
    check_free(out, force=settings.force)
    selected = select_metrics(metrics if metrics is not None else [metric.name for metric in run.manifest.metrics])
    executor = choose_executor(settings.workers, settings.executor, settings.ray)
    with (
        convert_write_errors(out),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=_prepare_parent(out)) as folder,
    ):
        draft, parts = Path(folder, "run"), Path(folder, "parts")
        draft.mkdir()
        parts.mkdir()
        written = {}
        for name in ("traces", "verdicts"):
            copy = draft / f"{name}.parquet"
            _copy_table(run.path / copy.name, copy)
            written[copy.name] = compute_checksum(copy)
            expected = run.manifest.checksums.get(copy.name, written[copy.name])
            compare_checksums(run.path / copy.name, written[copy.name], expected)
        job = RescoreJob(run, tuple(map(str, selected)), gold, list_metric_modules(selected), count_endings(run).closed)
        _write_parts(job, executor, parts)
        tables = {
            name: write_row_groups(_read_parts(job, parts, name), draft / f"{name}.parquet", ROW_GROUP_SIZES[name])
            for name in RESCORED_TABLES
        }
        checksums = {**written, **{f"{name}.parquet": table.checksum for name, table in tables.items()}}
        write_manifest(draft, _make_manifest(run.manifest, selected, gold, tables["scores"].states, checksums))
        publish_run(draft, out, force=settings.force)
    return Run.open(out)


def _prepare_parent(out: AnyPath) -> Path | None:
    """Create the parent folder of the output; None for an object store, which uses a temporary folder."""
    if not isinstance(out, Path):
        return None
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent


def _copy_table(source: AnyPath, target: Path) -> None:
    """Copy a table of a run, local or remote."""
    if isinstance(source, Path):
        shutil.copyfile(source, target)
        return
    with source.open("rb") as file, target.open("wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)


def _make_manifest(
    old: Manifest, metrics: Sequence[Metric], gold: GoldMode, states: dict[str, int], checksums: dict[str, str]
) -> Manifest:
    """Return the manifest of the rescored run."""
    return msgspec.structs.replace(
        old,
        ragfault=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        metrics=tuple(map(describe_metric, metrics)),
        gold=gold,
        scored=states.get("scored", 0),
        undefined=states.get("undefined", 0),
        failed=states.get("failed", 0),
        checksums=checksums,
    )


class RescoreJob(NamedTuple):
    """The run and the metrics of a rescoring, as sent to the workers."""

    run: Run
    metrics: tuple[str, ...]
    gold: GoldMode
    modules: tuple[str, ...]
    closed: bool
    """Whether the answers end with a stop."""


def _list_batches(job: RescoreJob) -> range:
    """List the numbers of the batches of BATCH_TRACES traces."""
    return range(-(-job.run.manifest.traces // BATCH_TRACES))


def _write_parts(job: RescoreJob, executor: Executor | None, folder: Path) -> None:
    """Write the tables of each batch to a folder, scored by the executor if its workers see the run."""
    left: Sequence[int] = _list_batches(job)
    if executor is not None:
        done = executor.map_unordered(partial(_rescore_batch, job), left)
        left = [number for number, blobs in done if not _write_blobs(folder, number, blobs)]
    for number in left:
        _write_blobs(folder, number, _score_batch(job, number))


def _write_blobs(folder: Path, number: int, blobs: TableBlobs | None) -> bool:
    """Write the tables of a batch; False if there are none."""
    for name, blob in (blobs or {}).items():
        (folder / f"{number}.{name}").write_bytes(blob)
    return blobs is not None


def _read_parts(job: RescoreJob, folder: Path, name: str) -> Iterator[pa.Table]:
    """Yield one table of each batch, in order."""
    import pyarrow.parquet as pq

    for number in _list_batches(job):
        with pq.ParquetFile(folder / f"{number}.{name}") as file:
            yield file.read()


def _rescore_batch(job: RescoreJob, number: int) -> tuple[int, TableBlobs | None]:
    """Return a number, and the tables of that batch; None if the worker cannot see the run."""
    import_modules(job.modules)
    with contextlib.suppress(RunError):
        if Run.open(job.run.path).manifest == job.run.manifest:
            return number, _score_batch(job, number)
    return number, None


def _score_batch(job: RescoreJob, number: int) -> TableBlobs:
    """Score one batch of traces and find its causes."""
    from ragfault.io.formats.arrow import table_to_records, table_to_traces

    tables = [_read_rows(job.run, name, number * BATCH_TRACES, BATCH_TRACES) for name in ("traces", "verdicts")]
    metrics = [parse_metric(text) for text in job.metrics]
    traces, verdicts = list(table_to_traces(tables[0])), list(table_to_records(tables[1], Verdicts))
    causes = tabulate_causes(traces, verdicts, job.gold, closed=job.closed)
    return encode_tables({"causes": causes, "scores": compute_score_table(metrics, traces, verdicts, job.gold)})


def _read_rows(run: Run, name: str, begin: int, count: int) -> pa.Table:
    """Read so many rows of a table of a run, from the row groups that hold them."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(open_for_arrow(run.path / f"{name}.parquet")) as file:
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        first, last = np.searchsorted(starts, (begin, begin + count - 1), side="right") - 1
        groups = range(first, min(last + 1, len(sizes)))
        return file.read_row_groups(groups).slice(begin - starts[first], count)
