"""The work of an evaluation: parts of the traces, judged and scored, here or on worker processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from itertools import islice

import msgspec
from msgspec import Struct

from ragfault.errors import RunError
from ragfault.judges.observing import observe, ready
from ragfault.metrics import Metric, parse, score
from ragfault.ports import Judge, Metered
from ragfault.records import Score, Trace, Verdicts
from ragfault.runs import Partial

__all__ = ["Job", "score_all", "work_off"]

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
            modules=tuple(sorted({metric.definition.function.__module__ for metric in metrics})),
        )


def work_off(job: Job, traces: Iterator[Trace], workers: int, progress: Callable[[int, int], None]) -> None:
    """Score every part that is not done yet."""
    total, size = job.partial.plan.traces, job.partial.plan.batch
    ready = job.partial.done()
    done = min(len(ready) * size, total)
    progress(done, total)
    todo = ((number, part) for number, part in enumerate(_parts(traces, size)) if number not in ready)
    for count in _worked(job, todo, workers):
        done += count
        progress(done, total)


def _parts(traces: Iterator[Trace], size: int) -> Iterator[list[Trace]]:
    while part := list(islice(traces, size)):
        yield part


def _worked(job: Job, todo: Iterator[tuple[int, list[Trace]]], workers: int) -> Iterator[int]:
    """Do the parts, and say of each how many traces it has."""
    if isinstance(job.judge, Metered):
        return _together(job, job.judge, todo)
    return _inline(job, todo) if workers == 1 else _spread(job, todo, workers)


def _inline(job: Job, todo: Iterator[tuple[int, list[Trace]]]) -> Iterator[int]:
    for number, part in todo:
        yield _score_part(job, number, part)


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


def _spread(job: Job, todo: Iterator[tuple[int, list[Trace]]], workers: int) -> Iterator[int]:
    """The same on worker processes, with a bounded number of parts under way."""
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_enter, initargs=(job,)
    )
    under_way: set[Future[int]] = set()
    try:
        for number, part in todo:
            under_way.add(pool.submit(_work, number, msgspec.msgpack.encode(part)))
            if len(under_way) >= 3 * workers:
                finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        while under_way:
            finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    except BrokenProcessPool:
        raise RunError(
            "a worker process was killed (out of memory, perhaps). What was done is kept: "
            "run the same command again, with fewer --workers or a smaller --batch."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_job: Job | None = None


def _enter(job: Job) -> None:
    """Make a worker process ready for the job."""
    global _job  # noqa: PLW0603 - one job for each worker process, given at its start
    ready()
    for module in job.modules:
        if module != "__main__":
            import_module(module)
    _job = job


def _work(number: int, part: bytes) -> int:
    assert _job is not None
    return _score_part(_job, number, msgspec.msgpack.decode(part, type=list[Trace]))


def _score_part(job: Job, number: int, traces: list[Trace]) -> int:
    """Judge and score one part, and leave it on disk."""
    verdicts = observe(job.judge, traces)
    metrics = [parse(text) for text in job.metrics]
    scores = [
        row for trace, seen in zip(traces, verdicts, strict=True) for row in score_all(metrics, trace, seen)
    ]
    job.partial.write(number, traces, verdicts, scores)
    return len(traces)


def score_all(metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts) -> list[Score]:
    """One row for every metric on one trace; none is dropped."""
    return [score(metric, trace, verdicts) for metric in metrics]
