"""Rescore: the metrics of a run computed anew from its stored verdicts, without judging again."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ragfault import __version__
from ragfault.errors import RunError
from ragfault.evaluation.evaluating import measure
from ragfault.evaluation.executors import Processes
from ragfault.evaluation.work import modules, prepare, score_all
from ragfault.metrics import Metric, choose, parse
from ragfault.ports import Executor
from ragfault.records import Trace, Verdicts
from ragfault.runs import Manifest, Run
from ragfault.runs.places import check_free, placed, settle, writing
from ragfault.runs.run import ROWS
from ragfault.runs.writing import GROUP, write_groups, write_manifest
from ragfault.sources.remote import Place, readable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["rescore"]


def rescore(
    run: str | Place | Run,
    out: str | Place,
    *,
    metrics: str | Sequence[str] | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    force: bool = False,
) -> Run:
    """Compute metrics on the verdicts of a run, and leave the result as another run.

    `metrics`, `workers` and `executor` as for `evaluate`; None computes the metrics of the run again. Nothing is
    judged: a changed weight, penalty or threshold costs milliseconds a trace. A metric that reads verdicts which the
    run's judge did not make is undefined, and says so.

    Raises RunError where there is no run, OutputError where the place is taken, and what `choose` raises.

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
    out = placed(out)
    check_free(out, force=force)
    chosen = choose(metrics if metrics is not None else [made.name for made in run.manifest.metrics])
    by = executor or (Processes(workers) if workers != 1 else None)
    with writing(out), tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=_beside(out)) as folder:
        draft, parts = Path(folder, "run"), Path(folder, "parts")
        draft.mkdir()
        parts.mkdir()
        for name in ("traces", "verdicts"):
            _copy(run.path / f"{name}.parquet", draft / f"{name}.parquet")
        tables = _scores(run, chosen) if by is None else _spread(run, chosen, by, parts)
        states = write_groups(tables, draft / "scores.parquet", GROUP["scores"])
        write_manifest(draft, _manifest(run.manifest, chosen, states))
        settle(draft, out, force=force)
    return Run.open(out)


def _beside(out: Place) -> Path | None:
    """The folder in which the run is made: that of its place, for an object store one of this machine's own."""
    if not isinstance(out, Path):
        return None
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent


def _copy(source: Place, target: Path) -> None:
    """Copy a table of a run, wherever it lies."""
    if isinstance(source, Path):
        shutil.copyfile(source, target)
        return
    with source.open("rb") as file, target.open("wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)


def _manifest(old: Manifest, metrics: Sequence[Metric], states: dict[str, int]) -> Manifest:
    """The manifest of a run that is scored anew."""
    return msgspec.structs.replace(
        old,
        ragfault=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        metrics=tuple(map(measure, metrics)),
        scored=states.get("scored", 0),
        undefined=states.get("undefined", 0),
        failed=states.get("failed", 0),
    )


def _scores(run: Run, metrics: Sequence[Metric]) -> Iterator[pa.Table]:
    """The scores as tables, a bounded number of traces at a time."""
    from ragfault.runs.tables import SCORE_SCHEMA, to_table

    held = []
    for number, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True), 1):
        held += score_all(metrics, trace, verdicts)
        if number % ROWS == 0:
            yield to_table(held, SCORE_SCHEMA)
            held = []
    if held:
        yield to_table(held, SCORE_SCHEMA)


# --- by an executor --------------------------------------------------------------------------------


class Job(NamedTuple):
    """What a worker needs to know."""

    run: Run
    metrics: tuple[str, ...]
    modules: tuple[str, ...]


class Group(NamedTuple):
    """The scores of one row group, as the bytes of a Parquet file; None where the run was not seen."""

    number: int
    scores: bytes | None


def _spread(run: Run, metrics: Sequence[Metric], by: Executor, folder: Path) -> Iterator[pa.Table]:
    """The scores as tables, in order, each row group worked on wherever the executor has it done."""
    import pyarrow.parquet as pq

    count = _groups(run)
    if count is None:
        yield from _scores(run, metrics)
        return
    job = Job(run, tuple(map(str, metrics)), modules(metrics))
    unseen = []
    for number, scores in by.spread(partial(_rescored, job), range(count)):
        if scores is None:
            unseen.append(number)
        else:
            (folder / f"{number}").write_bytes(scores)
    for number in range(count):
        table = folder / f"{number}"
        if number in unseen:
            table.write_bytes(_scored(job, number))
        with pq.ParquetFile(table) as file:
            yield file.read()
        table.unlink()


def _groups(run: Run) -> int | None:
    """How many row groups a run has; None where those of traces and verdicts do not hold the same traces."""
    import pyarrow.parquet as pq

    sizes = []
    for name in ("traces", "verdicts"):
        with pq.ParquetFile(readable(run.path / f"{name}.parquet")) as file:
            told = file.metadata
            sizes.append([told.row_group(number).num_rows for number in range(told.num_row_groups)])
    return len(sizes[0]) if sizes[0] == sizes[1] else None


def _rescored(job: Job, number: int) -> Group:
    """The scores of one row group, where the run is seen."""
    prepare(job.modules)
    with contextlib.suppress(RunError):
        if Run.open(job.run.path).manifest == job.run.manifest:
            return Group(number, _scored(job, number))
    return Group(number, None)


def _scored(job: Job, number: int) -> bytes:
    """The scores of one row group, as the bytes of a Parquet file."""
    import pyarrow.parquet as pq

    from ragfault.runs.tables import SCORE_SCHEMA, from_table, to_table
    from ragfault.sources.arrow import from_table as traces_of

    found = []
    for name in ("traces", "verdicts"):
        with pq.ParquetFile(readable(job.run.path / f"{name}.parquet")) as file:
            found.append(file.read_row_group(number))
    metrics = [parse(text) for text in job.metrics]
    pairs: Iterator[tuple[Trace, Verdicts]] = zip(
        traces_of(found[0]), from_table(found[1], Verdicts), strict=True
    )
    rows = list(chain.from_iterable(score_all(metrics, trace, verdicts) for trace, verdicts in pairs))
    file = io.BytesIO()
    pq.write_table(to_table(rows, SCORE_SCHEMA), file, compression="lz4")
    return file.getvalue()
