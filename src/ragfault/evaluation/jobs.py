"""The job of an evaluation: batches of traces, judged and scored here or by an executor.

Where the input can be cut, a piece says where its traces stand, and whoever works on it reads them: a range of
bytes, or row groups. Where it cannot, or its files are not seen there, the traces travel along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from importlib import import_module
from itertools import islice

import msgspec
from msgspec import Struct

from ragfault.errors import InputError
from ragfault.io.field_values import InvalidRecord
from ragfault.io.runs import PartialRun, RunPlan
from ragfault.io.runs.writer import TableBlobs, encode_part
from ragfault.io.slices import TraceIndex, TraceSlice
from ragfault.judges.observation import observe_traces
from ragfault.metrics import Metric, compute_score, parse_metric
from ragfault.protocols import Executor, Judge, MeteredJudge
from ragfault.records import Score, Trace, Verdicts

MAX_SHARD_TRACES = 2048
"""Traces of a share at the most."""
MIN_SHARDS = 64
"""Shares that an input is cut into at the least, as far as there are parts."""


class InlineBatch(Struct, frozen=True):
    """A part whose traces travel along."""

    number: int
    traces: bytes


class TraceShard(Struct, frozen=True):
    """Consecutive parts, whose traces are read by whoever works on them."""

    number: int
    """That of the first part."""
    slice: TraceSlice


WorkItem = InlineBatch | TraceShard


def plan_shards(index: TraceIndex, plan: RunPlan, finished: frozenset[int]) -> Iterator[TraceShard]:
    """The parts that are not done, in shares."""
    size = max(1, min(MAX_SHARD_TRACES, plan.traces // MIN_SHARDS) // plan.batch)
    first = held = 0
    for number in range(-(-plan.traces // plan.batch) + 1):
        ended = number * plan.batch >= plan.traces
        if held and (ended or number in finished or held == size):
            yield _make_shard(index, plan, first, held)
            held = 0
        if number not in finished and not ended:
            first, held = (number if not held else first), held + 1


def _make_shard(index: TraceIndex, plan: RunPlan, first: int, batch_count: int) -> TraceShard:
    start = first * plan.batch
    return TraceShard(first, index.slice(start, min(batch_count * plan.batch, plan.traces - start)))


def pack_batch(number: int, traces: list[Trace]) -> InlineBatch:
    """A part with its traces."""
    return InlineBatch(number, msgspec.msgpack.encode(traces))


def read_batches(item: WorkItem, batch_size: int) -> Iterator[tuple[int, list[Trace]]]:
    """The numbers of the parts of a piece, each with its traces; raises InputError where the input has changed."""
    if isinstance(item, InlineBatch):
        yield item.number, msgspec.msgpack.decode(item.traces, type=list[Trace])
        return
    count = 0
    try:
        for number, traces in enumerate(split_batches(item.slice.traces(), batch_size), item.number):
            yield number, traces
            count += len(traces)
    except InvalidRecord as wrong:
        raise make_changed_error() from wrong
    if count != item.slice.count:
        raise make_changed_error()


def split_batches(traces: Iterator[Trace], batch_size: int) -> Iterator[list[Trace]]:
    """The traces in parts."""
    while part := list(islice(traces, batch_size)):
        yield part


def make_changed_error() -> InputError:
    """What to raise where the input is not what it was."""
    return InputError("the input changed while it was read. Evaluate again when nothing writes to it.")


MAX_TRACES_IN_FLIGHT, MAX_BATCHES_IN_FLIGHT = 1024, 32
"""Of a judge that waits, so many traces are under way at once, in so many parts at the most."""
POLL_SECONDS = 0.5
"""Seconds after which is told what was spent, also where no part was done."""


class EvaluationJob(Struct, frozen=True, kw_only=True):
    """What a worker needs to know."""

    partial_run: PartialRun
    judge: Judge
    metrics: tuple[str, ...]
    modules: tuple[str, ...]
    """The modules that define the metrics; a fresh process must import them."""

    @classmethod
    def create(cls, partial_run: PartialRun, judge: Judge, metrics: Iterable[Metric]) -> EvaluationJob:
        """The job of scoring by these metrics."""
        metrics = list(metrics)
        return cls(
            partial_run=partial_run,
            judge=judge,
            metrics=tuple(map(str, metrics)),
            modules=list_metric_modules(metrics),
        )


def run_job(
    job: EvaluationJob,
    traces: Iterator[Trace],
    index: TraceIndex | None,
    executor: Executor | None,
    on_progress: Callable[[int, int], None],
) -> None:
    """Score every part that is not done yet.

    Without an executor the traces are worked on here; with one, by those it has, who read them themselves where
    there is an `index` of them.
    """
    total, size = job.partial_run.plan.traces, job.partial_run.plan.batch
    ready = job.partial_run.list_finished_parts()
    done = min(len(ready) * size, total)
    on_progress(done, total)
    todo = ((number, part) for number, part in enumerate(split_batches(traces, size)) if number not in ready)
    for count in _process_batches(job, todo, index, ready, executor):
        done += count
        on_progress(done, total)


def _process_batches(
    job: EvaluationJob,
    batches: Iterator[tuple[int, list[Trace]]],
    index: TraceIndex | None,
    finished: frozenset[int],
    executor: Executor | None,
) -> Iterator[int]:
    """Do the parts, and say of each how many traces it has."""
    if isinstance(job.judge, MeteredJudge):
        return _process_threaded(job, job.judge, batches)
    if executor is None:
        return (_score_batch(job, number, part) for number, part in batches)
    if index is None:
        return _distribute_items(job, executor, (pack_batch(number, part) for number, part in batches), [])
    return _process_shards(job, executor, index, finished)


def _process_threaded(
    job: EvaluationJob, judge: MeteredJudge, batches: Iterator[tuple[int, list[Trace]]]
) -> Iterator[int]:
    """Several parts at once on threads, for a judge that waits; 0 now and then, so that what was spent can be told."""
    size = min(MAX_BATCHES_IN_FLIGHT, max(2, -(-MAX_TRACES_IN_FLIGHT // job.partial_run.plan.batch)))
    pool = ThreadPoolExecutor(size, thread_name_prefix="ragfault part")
    under_way: set[Future[int]] = set()
    try:
        for number, part in batches:
            under_way.add(pool.submit(_score_batch, job, number, part))
            while len(under_way) >= size:
                finished, under_way = wait(under_way, POLL_SECONDS, FIRST_COMPLETED)
                yield sum(future.result() for future in finished)
        while under_way:
            finished, under_way = wait(under_way, POLL_SECONDS, FIRST_COMPLETED)
            yield sum(future.result() for future in finished)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        judge.end()
        raise
    finally:
        pool.shutdown(wait=True)


def _process_shards(
    job: EvaluationJob, executor: Executor, index: TraceIndex, finished: frozenset[int]
) -> Iterator[int]:
    """Do the parts where those who work on them read them; what they do not see is read here, and sent."""
    unseen: list[TraceShard] = []

    def pieces() -> Iterator[WorkItem]:
        for share in plan_shards(index, job.partial_run.plan, finished):
            if unseen:
                yield from _pack_shard(share, job.partial_run.plan.batch)
            else:
                yield share

    yield from _distribute_items(job, executor, pieces(), unseen)
    if unseen:
        left = (piece for share in unseen for piece in _pack_shard(share, job.partial_run.plan.batch))
        yield from _distribute_items(job, executor, left, [])
    if not index.is_unchanged():
        raise make_changed_error()


def _pack_shard(shard: TraceShard, batch_size: int) -> Iterator[WorkItem]:
    """The parts of a share, read here."""
    if not shard.slice.is_available():
        raise make_changed_error()
    for number, traces in read_batches(shard, batch_size):
        yield pack_batch(number, traces)


class WorkResult(Struct, frozen=True):
    """What became of a piece."""

    trace_count: int = 0
    """How many traces were scored."""
    pending_batches: tuple[tuple[int, TableBlobs], ...] = ()
    """The parts that are still to be written, where they were made before another disk."""
    unavailable_shard: TraceShard | None = None
    """The piece itself, where its files could not be read."""


def _distribute_items(
    job: EvaluationJob, executor: Executor, items: Iterator[WorkItem], unavailable: list[TraceShard]
) -> Iterator[int]:
    """Have the pieces done; those whose files were not seen go to `unseen`."""
    for outcome in executor.map_unordered(partial(_run_item, job), items):
        if outcome.unavailable_shard is not None:
            unavailable.append(outcome.unavailable_shard)
        for number, blobs in outcome.pending_batches:
            job.partial_run.write_blobs(number, blobs)
        yield outcome.trace_count


def _run_item(job: EvaluationJob, item: WorkItem) -> WorkResult:
    """Do a piece, wherever this is; its parts are written from here where the run is made before this disk."""
    import_modules(job.modules)
    if isinstance(item, TraceShard) and not item.slice.is_available():
        return WorkResult(unavailable_shard=item)
    here, count, kept = job.partial_run.is_reachable(), 0, []
    for number, traces in read_batches(item, job.partial_run.plan.batch):
        blobs = _score_traces(job, traces)
        if here:
            job.partial_run.write_blobs(number, blobs)
        else:
            kept.append((number, blobs))
        count += len(traces)
    return WorkResult(count, tuple(kept))


def list_metric_modules(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """The modules that define metrics."""
    return tuple(sorted({metric.definition.function.__module__ for metric in metrics}))


def import_modules(module_names: Iterable[str]) -> None:
    """Import the modules that define metrics, in a process that has not met them."""
    for module in module_names:
        if module != "__main__":
            import_module(module)


def _score_batch(job: EvaluationJob, number: int, traces: list[Trace]) -> int:
    """Judge and score one part, and leave it on disk."""
    job.partial_run.write_blobs(number, _score_traces(job, traces))
    return len(traces)


def _score_traces(job: EvaluationJob, traces: list[Trace]) -> TableBlobs:
    """The tables of one part, judged and scored."""
    verdicts = observe_traces(job.judge, traces)
    metrics = [parse_metric(text) for text in job.metrics]
    scores = [
        row
        for trace, seen in zip(traces, verdicts, strict=True)
        for row in compute_scores(metrics, trace, seen)
    ]
    return encode_part(traces, verdicts, scores)


def compute_scores(metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts) -> list[Score]:
    """One row for every metric on one trace; none is dropped."""
    return [compute_score(metric, trace, verdicts) for metric in metrics]
