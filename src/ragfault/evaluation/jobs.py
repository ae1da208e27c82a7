"""Jobs of an evaluation: which traces a worker reads, what it judges and scores, and which part it writes.

If the input can be sliced, a work item holds the position of its traces (a range of bytes, or row groups), and the
worker reads them. If it cannot, or the worker cannot see the files, the item holds the traces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Self, cast

import msgspec
from msgspec import Struct

from ragfault.diagnosis.causes.storage import tabulate_causes
from ragfault.evaluation.metric_choices import MetricChoice, parse_choices, score_chosen
from ragfault.evaluation.passage_places import ChunkPool, locate_passages
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.tables import TableLike, is_memory_table, write_memory_table
from ragfault.io.remote_paths import AnyPath, is_remote
from ragfault.io.runs.writer import PartialRun, RunPlan, TableBlobs, encode_part
from ragfault.io.slices import TraceIndex, TraceSlice
from ragfault.io.trace_writer import write_records
from ragfault.metrics.catalog import Metric, parse_metric
from ragfault.model.errors import BadLine, InputError, UsageError
from ragfault.model.protocols import Executor, Judge, MeteredJudge
from ragfault.model.records import GoldMode, Trace
from ragfault.text.number_format import format_count

TraceSource = str | Path | Sequence[str | Path]


@contextlib.contextmanager
def open_input_folder(run_folder: AnyPath) -> Iterator[Path]:
    """Yield the run's folder for input copies; for a run in an object store a temporary local one."""
    if isinstance(run_folder, Path):
        yield run_folder
        return
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        yield Path(folder)


def make_rereadable(trace_source: TraceSource | Iterable[Trace] | TableLike, run_folder: Path) -> TraceSource:
    """Return an input that workers can read again; copy standard input, pipes, traces and frames in memory."""
    if isinstance(trace_source, str | Path):
        return _copy_input(trace_source, run_folder, 0) if _is_single_use(trace_source) else trace_source
    if (
        isinstance(trace_source, Sequence)
        and trace_source
        and all(isinstance(item, str | Path) for item in trace_source)
    ):
        names = cast(Sequence[str | Path], trace_source)
        if "-" in map(str, names):
            raise UsageError('"-" (standard input) cannot be read together with other files.')
        return [_copy_input(name, run_folder, i) if _is_single_use(name) else name for i, name in enumerate(names)]
    if is_memory_table(trace_source):
        return write_memory_table(trace_source, _make_input_folder(run_folder))
    target = _make_input_folder(run_folder) / "traces.jsonl"
    if not write_records(trace_source, target):
        raise InputError("there is no trace to evaluate.")
    return target


def _is_single_use(name: str | Path) -> bool:
    """Return whether an input can be read only once: standard input, a pipe, a device."""
    if is_remote(name):
        return False
    path = Path(name)
    return str(name) == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def _copy_input(name: str | Path, run_folder: Path, number: int) -> Path:
    """Copy an input that can be read only once; keep the suffix of its name."""
    target = _make_input_folder(run_folder) / f"{number}{''.join(Path(name).suffixes)}"
    with convert_write_errors(target), target.open("wb") as file:
        if str(name) == "-":
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        else:
            with open(name, "rb") as pipe:
                shutil.copyfileobj(pipe, file, 1 << 20)
    return target


def _make_input_folder(run_folder: Path) -> Path:
    with convert_write_errors(run_folder):
        (run_folder / "input").mkdir(exist_ok=True)
    return run_folder / "input"


class BadLineWriter:
    """The side file of bad lines, created with the first one and named at the end; it never replaces another file."""

    def __init__(self, path: AnyPath, on_notice: Callable[[str], None]) -> None:
        self.path, self.on_notice, self.count = path, on_notice, 0
        self._draft: Path | None = None
        self._file: Any = None
        # the first, and the last
        self._problems: list[BadLine] = []

    def write(self, bad_line: BadLine) -> None:
        """Write a bad line."""
        with convert_write_errors(self.path):
            if self._file is None:
                folder = self.path.parent if isinstance(self.path, Path) else None
                handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=folder)
                self._draft = Path(name)
                self._file = os.fdopen(handle, "w", encoding="utf-8", errors="replace")
            self._file.write(bad_line.text.rstrip("\r\n") + "\n")
        self.count += 1
        self._problems[1:] = [bad_line]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._draft is None:
            return
        self._file.close()
        if kind is not None:
            self._draft.unlink(missing_ok=True)
            return
        path = choose_free_path(self.path)
        _move_draft(self._draft, path)
        shown = "; ".join(str(bad_line) for bad_line in self._problems)
        self.on_notice(f"left out {format_count(self.count, 'bad line')}, kept in {path}: {shown}")


def _move_draft(draft: Path, target: AnyPath) -> None:
    if isinstance(target, Path):
        draft.rename(target)
        return
    with convert_write_errors(target), draft.open("rb") as file, target.open("wb") as output:
        shutil.copyfileobj(file, output, 1 << 20)
    draft.unlink()


def choose_free_path(path: AnyPath) -> AnyPath:
    """Return the path, or the first free one with a number: `run.bad-2.jsonl`."""
    number, candidate = 1, path
    stem, suffix = os.path.splitext(path.name)
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{stem}-{number}{suffix}")
    return candidate


# most traces of a shard
MAX_SHARD_TRACES = 2048
# least number of shards of an input, if it has as many batches
MIN_SHARDS = 64


class InlineBatch(Struct, frozen=True):
    """A batch that holds its traces."""

    number: int
    traces: bytes


class TraceShard(Struct, frozen=True):
    """Consecutive batches, whose traces the worker reads."""

    # number of the first batch
    number: int
    slice: TraceSlice


WorkItem = InlineBatch | TraceShard


def plan_shards(index: TraceIndex, plan: RunPlan, finished: frozenset[int]) -> Iterator[TraceShard]:
    """Yield the unfinished batches as shards."""
    size = max(1, min(MAX_SHARD_TRACES, plan.traces // MIN_SHARDS) // plan.batch)
    first_number = batch_count = 0
    for number in range(-(-plan.traces // plan.batch) + 1):
        is_end = number * plan.batch >= plan.traces
        if batch_count and (is_end or number in finished or batch_count == size):
            start = first_number * plan.batch
            yield TraceShard(first_number, index.slice(start, min(batch_count * plan.batch, plan.traces - start)))
            batch_count = 0
        if number not in finished and not is_end:
            first_number, batch_count = (number if not batch_count else first_number), batch_count + 1


def pack_batch(number: int, traces: list[Trace]) -> InlineBatch:
    """Encode a batch with its traces."""
    return InlineBatch(number, msgspec.msgpack.encode(traces))


def read_batches(item: WorkItem, batch_size: int) -> Iterator[tuple[int, list[Trace]]]:
    """Yield the numbers and traces of the batches of an item; raise InputError if the input has changed."""
    if isinstance(item, InlineBatch):
        yield item.number, msgspec.msgpack.decode(item.traces, type=list[Trace])
        return
    count = 0
    try:
        for number, traces in enumerate(split_batches(item.slice.traces(), batch_size), item.number):
            yield number, traces
            count += len(traces)
    except InvalidRecord as error:
        raise make_changed_error() from error
    if count != item.slice.count:
        raise make_changed_error()


def split_batches(traces: Iterator[Trace], batch_size: int) -> Iterator[list[Trace]]:
    """Split traces into batches."""
    while batch := list(islice(traces, batch_size)):
        yield batch


def read_unfinished(partial_run: PartialRun, traces: Iterator[Trace]) -> Iterator[Trace]:
    """Yield the traces of the parts that are not done yet."""
    ready = partial_run.list_finished_parts()
    for number, batch in enumerate(split_batches(traces, partial_run.plan.batch)):
        if number not in ready:
            yield from batch


def make_changed_error() -> InputError:
    """Return the error for an input that has changed."""
    return InputError("the input changed while it was read. Evaluate again when nothing writes to it.")


MAX_TRACES_IN_FLIGHT, MAX_BATCHES_IN_FLIGHT = 1024, 32
"""Maximum numbers of traces and of batches in flight, for a judge that waits on a network."""
# seconds after which usage is reported, also if no batch is finished
POLL_SECONDS = 0.5


class EvaluationJob(Struct, frozen=True, kw_only=True):
    """The judge, the metrics and the output of an evaluation, as sent to the workers."""

    partial_run: PartialRun
    judge: Judge
    metrics: tuple[str, ...]
    gold: GoldMode
    # the modules that define the metrics; a fresh process must import them
    modules: tuple[str, ...]
    choices: tuple[MetricChoice, ...] = ()
    # whether the answers of the run end with a stop
    closed: bool = False
    # the chunks of all traces, if something is judged
    pool: ChunkPool | None = None

    @classmethod
    def create(
        cls,
        partial_run: PartialRun,
        judge: Judge,
        metrics: Iterable[Metric],
        *,
        closed: bool = False,
        pool: ChunkPool | None = None,
    ) -> EvaluationJob:
        """Create the job of scoring by these metrics."""
        metrics = list(metrics)
        return cls(
            partial_run=partial_run,
            judge=judge,
            metrics=tuple(map(str, metrics)),
            gold=partial_run.plan.gold,
            modules=list_metric_modules(metrics),
            choices=parse_choices(partial_run.plan.metrics_by),
            closed=closed,
            pool=pool,
        )


def run_job(
    job: EvaluationJob,
    traces: Iterator[Trace],
    index: TraceIndex | None,
    executor: Executor | None,
    on_progress: Callable[[int, int], None],
    on_notice: Callable[[str], None],
) -> None:
    """Score every part that is not done yet, here or on an executor whose workers read the traces by an `index`."""
    total, size = job.partial_run.plan.traces, job.partial_run.plan.batch
    ready = job.partial_run.list_finished_parts()
    done = min(len(ready) * size, total)
    on_progress(done, total)
    todo = ((number, batch) for number, batch in enumerate(split_batches(traces, size)) if number not in ready)
    for count in _process_batches(job, todo, index, ready, executor, on_notice):
        done += count
        on_progress(done, total)


def _process_batches(
    job: EvaluationJob,
    batches: Iterator[tuple[int, list[Trace]]],
    index: TraceIndex | None,
    finished: frozenset[int],
    executor: Executor | None,
    on_notice: Callable[[str], None],
) -> Iterator[int]:
    """Process the batches, and yield the number of traces of each."""
    if isinstance(job.judge, MeteredJudge):
        return _process_threaded(job, job.judge, batches, on_notice)
    if executor is None:
        return (_score_batch(job, number, batch) for number, batch in batches)
    if index is None:
        return _distribute_items(job, executor, (pack_batch(number, batch) for number, batch in batches), [])
    return _process_shards(job, executor, index, finished)


def _process_threaded(
    job: EvaluationJob,
    judge: MeteredJudge,
    batches: Iterator[tuple[int, list[Trace]]],
    on_notice: Callable[[str], None],
) -> Iterator[int]:
    """Process batches on threads, for a judge that waits; yield 0 regularly, so that usage can be reported."""
    size = min(MAX_BATCHES_IN_FLIGHT, max(2, -(-MAX_TRACES_IN_FLIGHT // job.partial_run.plan.batch)))
    pool = ThreadPoolExecutor(size, thread_name_prefix="ragfault part")
    in_flight: set[Future[int]] = set()
    try:
        for number, batch in batches:
            in_flight.add(pool.submit(_score_batch, job, number, batch))
            while len(in_flight) >= size:
                finished, in_flight = wait(in_flight, POLL_SECONDS, FIRST_COMPLETED)
                yield sum(future.result() for future in finished)
        while in_flight:
            finished, in_flight = wait(in_flight, POLL_SECONDS, FIRST_COMPLETED)
            yield sum(future.result() for future in finished)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            on_notice("waiting for the replies to calls under way, which are kept; interrupt again to give them up")
        pool.shutdown(wait=False, cancel_futures=True)
        judge.end()
        raise
    finally:
        pool.shutdown(wait=True)


def _process_shards(
    job: EvaluationJob, executor: Executor, index: TraceIndex, finished: frozenset[int]
) -> Iterator[int]:
    """Let the workers read and process the shards; read and send those they cannot see."""
    unavailable: list[TraceShard] = []

    def pieces() -> Iterator[WorkItem]:
        for shard in plan_shards(index, job.partial_run.plan, finished):
            if unavailable:
                yield from _pack_shard(shard, job.partial_run.plan.batch)
            else:
                yield shard

    yield from _distribute_items(job, executor, pieces(), unavailable)
    if unavailable:
        items = (piece for shard in unavailable for piece in _pack_shard(shard, job.partial_run.plan.batch))
        yield from _distribute_items(job, executor, items, [])
    if not index.is_unchanged():
        raise make_changed_error()


def _pack_shard(shard: TraceShard, batch_size: int) -> Iterator[WorkItem]:
    """Read the batches of a shard here, and encode them."""
    if not shard.slice.is_available():
        raise make_changed_error()
    for number, traces in read_batches(shard, batch_size):
        yield pack_batch(number, traces)


class WorkResult(Struct, frozen=True):
    """The result of a work item."""

    # number of scored traces
    trace_count: int = 0
    pending_batches: tuple[tuple[int, TableBlobs], ...] = ()
    """Batches that are still to be written, if the worker cannot reach the run."""
    # the item itself, if the worker cannot read its files
    unavailable_shard: TraceShard | None = None


def _distribute_items(
    job: EvaluationJob, executor: Executor, items: Iterator[WorkItem], unavailable: list[TraceShard]
) -> Iterator[int]:
    """Run the items on the executor; collect the shards whose files the workers cannot see."""
    for outcome in executor.map_unordered(partial(_run_item, job), items):
        if outcome.unavailable_shard is not None:
            unavailable.append(outcome.unavailable_shard)
        for number, blobs in outcome.pending_batches:
            job.partial_run.write_blobs(number, blobs)
        yield outcome.trace_count


def _run_item(job: EvaluationJob, item: WorkItem) -> WorkResult:
    """Process an item on a worker; write its batches if the run is reachable from there."""
    import_modules(job.modules)
    if isinstance(item, TraceShard) and not item.slice.is_available():
        return WorkResult(unavailable_shard=item)
    is_reachable, count, pending = job.partial_run.is_reachable(), 0, []
    for number, traces in read_batches(item, job.partial_run.plan.batch):
        blobs = _score_traces(job, traces)
        if is_reachable:
            job.partial_run.write_blobs(number, blobs)
        else:
            pending.append((number, blobs))
        count += len(traces)
    return WorkResult(count, tuple(pending))


def list_metric_modules(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return the modules that define some metrics."""
    return tuple(sorted({metric.definition.function.__module__ for metric in metrics}))


def import_modules(module_names: Iterable[str]) -> None:
    """Import the modules that define metrics, in a fresh process."""
    for module in module_names:
        if module != "__main__":
            import_module(module)


def _score_batch(job: EvaluationJob, number: int, traces: list[Trace]) -> int:
    """Judge, score and write one batch."""
    job.partial_run.write_blobs(number, _score_traces(job, traces))
    return len(traces)


def _score_traces(job: EvaluationJob, traces: list[Trace]) -> TableBlobs:
    """Judge and score traces, and encode the tables of their batch."""
    metrics = [parse_metric(text) for text in job.metrics]
    verdicts, scores = score_chosen(job.judge, metrics, traces, job.choices, job.gold)
    if job.pool is not None:
        verdicts = locate_passages(traces, verdicts, job.pool, job.judge)
    causes = tabulate_causes(traces, verdicts, job.gold, closed=job.closed)
    return encode_part(traces, verdicts, causes, scores)
