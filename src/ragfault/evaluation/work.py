"""The work of an evaluation: parts of the traces, judged and scored, here or wherever an executor has it done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from importlib import import_module

from msgspec import Struct

from ragfault.evaluation.pieces import Piece, Share, changed, cut, read, sent, shares
from ragfault.judges.observing import observe
from ragfault.metrics import Metric, parse, score
from ragfault.ports import Executor, Judge, Metered
from ragfault.records import Score, Trace, Verdicts
from ragfault.runs import Partial
from ragfault.runs.writing import Blobs, packed
from ragfault.sources.slices import Index

__all__ = ["Job", "modules", "prepare", "score_all", "work_off"]

AHEAD, PARTS = 1024, 32
"""Of a judge that waits, so many traces are under way at once, in so many parts at the most."""
TICK = 0.5
"""Seconds after which is told what was spent, also where no part was done."""


class Job(Struct, frozen=True, kw_only=True):
    """What a worker needs to know."""

    partial: Partial
    judge: Judge
    metrics: tuple[str, ...]
    modules: tuple[str, ...]
    """The modules that define the metrics; a fresh process must import them."""

    @classmethod
    def of(cls, partial: Partial, judge: Judge, metrics: Iterable[Metric]) -> Job:
        """The job of scoring by these metrics."""
        metrics = list(metrics)
        return cls(
            partial=partial,
            judge=judge,
            metrics=tuple(map(str, metrics)),
            modules=modules(metrics),
        )


def work_off(
    job: Job,
    traces: Iterator[Trace],
    index: Index | None,
    executor: Executor | None,
    progress: Callable[[int, int], None],
) -> None:
    """Score every part that is not done yet.

    Without an executor the traces are worked on here; with one, by those it has, who read them themselves where
    there is an `index` of them.
    """
    total, size = job.partial.plan.traces, job.partial.plan.batch
    ready = job.partial.done()
    done = min(len(ready) * size, total)
    progress(done, total)
    todo = ((number, part) for number, part in enumerate(cut(traces, size)) if number not in ready)
    for count in _worked(job, todo, index, ready, executor):
        done += count
        progress(done, total)


def _worked(
    job: Job,
    todo: Iterator[tuple[int, list[Trace]]],
    index: Index | None,
    ready: frozenset[int],
    executor: Executor | None,
) -> Iterator[int]:
    """Do the parts, and say of each how many traces it has."""
    if isinstance(job.judge, Metered):
        return _together(job, job.judge, todo)
    if executor is None:
        return (_score_part(job, number, part) for number, part in todo)
    if index is None:
        return _spread(job, executor, (sent(number, part) for number, part in todo), [])
    return _shared(job, executor, index, ready)


def _together(job: Job, judge: Metered, todo: Iterator[tuple[int, list[Trace]]]) -> Iterator[int]:
    """Several parts at once on threads, for a judge that waits; 0 now and then, so that what was spent can be told."""
    size = min(PARTS, max(2, -(-AHEAD // job.partial.plan.batch)))
    pool = ThreadPoolExecutor(size, thread_name_prefix="ragfault part")
    under_way: set[Future[int]] = set()
    try:
        for number, part in todo:
            under_way.add(pool.submit(_score_part, job, number, part))
            while len(under_way) >= size:
                finished, under_way = wait(under_way, TICK, FIRST_COMPLETED)
                yield sum(future.result() for future in finished)
        while under_way:
            finished, under_way = wait(under_way, TICK, FIRST_COMPLETED)
            yield sum(future.result() for future in finished)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        judge.end()
        raise
    finally:
        pool.shutdown(wait=True)


def _shared(job: Job, executor: Executor, index: Index, ready: frozenset[int]) -> Iterator[int]:
    """Do the parts where those who work on them read them; what they do not see is read here, and sent."""
    unseen: list[Share] = []

    def pieces() -> Iterator[Piece]:
        for share in shares(index, job.partial.plan, ready):
            if unseen:
                yield from _sent(share, job.partial.plan.batch)
            else:
                yield share

    yield from _spread(job, executor, pieces(), unseen)
    if unseen:
        left = (piece for share in unseen for piece in _sent(share, job.partial.plan.batch))
        yield from _spread(job, executor, left, [])
    if not index.same():
        raise changed()


def _sent(share: Share, batch: int) -> Iterator[Piece]:
    """The parts of a share, read here."""
    if not share.slice.here():
        raise changed()
    for number, traces in read(share, batch):
        yield sent(number, traces)


class Outcome(Struct, frozen=True):
    """What became of a piece."""

    count: int = 0
    """How many traces were scored."""
    parts: tuple[tuple[int, Blobs], ...] = ()
    """The parts that are still to be written, where they were made before another disk."""
    unseen: Share | None = None
    """The piece itself, where its files could not be read."""


def _spread(job: Job, executor: Executor, pieces: Iterator[Piece], unseen: list[Share]) -> Iterator[int]:
    """Have the pieces done; those whose files were not seen go to `unseen`."""
    for outcome in executor.spread(partial(_do, job), pieces):
        if outcome.unseen is not None:
            unseen.append(outcome.unseen)
        for number, blobs in outcome.parts:
            job.partial.lay(number, blobs)
        yield outcome.count


def _do(job: Job, piece: Piece) -> Outcome:
    """Do a piece, wherever this is; its parts are written from here where the run is made before this disk."""
    prepare(job.modules)
    if isinstance(piece, Share) and not piece.slice.here():
        return Outcome(unseen=piece)
    here, count, kept = job.partial.here(), 0, []
    for number, traces in read(piece, job.partial.plan.batch):
        blobs = _scored(job, traces)
        if here:
            job.partial.lay(number, blobs)
        else:
            kept.append((number, blobs))
        count += len(traces)
    return Outcome(count, tuple(kept))


def modules(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """The modules that define metrics."""
    return tuple(sorted({metric.definition.function.__module__ for metric in metrics}))


def prepare(names: Iterable[str]) -> None:
    """Import the modules that define metrics, in a process that has not met them."""
    for module in names:
        if module != "__main__":
            import_module(module)


def _score_part(job: Job, number: int, traces: list[Trace]) -> int:
    """Judge and score one part, and leave it on disk."""
    job.partial.lay(number, _scored(job, traces))
    return len(traces)


def _scored(job: Job, traces: list[Trace]) -> Blobs:
    """The tables of one part, judged and scored."""
    verdicts = observe(job.judge, traces)
    metrics = [parse(text) for text in job.metrics]
    scores = [
        row for trace, seen in zip(traces, verdicts, strict=True) for row in score_all(metrics, trace, seen)
    ]
    return packed(traces, verdicts, scores)


def score_all(metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts) -> list[Score]:
    """One row for every metric on one trace; none is dropped."""
    return [score(metric, trace, verdicts) for metric in metrics]
