"""The judge at work: every verdict, and what it cost."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from ragfault.agreement.records import Speed
from ragfault.errors import RunError
from ragfault.judges.observing import observe, ready
from ragfault.ports import Judge, Metered
from ragfault.records import Trace, Usage, Verdicts

__all__ = ["judged"]

BATCH = 64
WALL, OWN = time.perf_counter, time.process_time
WARM = 5
"""So many traces of each process are not timed: what is loaded then is not loaded again."""


class Piece(NamedTuple):
    """A batch that was judged."""

    verdicts: list[Verdicts]
    timed: int
    seconds: float
    memory: int | None


def judged(
    judge: Judge,
    traces: Sequence[Trace],
    workers: int,
    progress: Callable[[int, int], None],
    purse: str | None = None,
) -> tuple[list[Verdicts], Speed]:
    """The verdicts on each trace, in order, the same for any number of workers; and the cost in time and memory.

    A judge that is paid for is asked from this process alone, by the clock on the wall, and ended; what all judges
    spend that are given one `purse` counts against the budget of each.
    """
    verdicts: list[Verdicts] = []
    timed, seconds, memory = 0, 0.0, None
    paid = isinstance(judge, Metered)
    progress(0, len(traces))
    before = _begun(judge, purse)
    try:
        pieces = _inline(judge, traces, paid) if workers == 1 or paid else _spread(judge, traces, workers)
        for piece in pieces:
            verdicts += piece.verdicts
            timed += piece.timed
            seconds += piece.seconds
            memory = max(memory or 0, piece.memory) if piece.memory is not None else memory
            progress(len(verdicts), len(traces))
        usage = _less(judge.usage, before) if isinstance(judge, Metered) else None
    finally:
        if isinstance(judge, Metered):
            judge.end()
    rate = timed / seconds if timed and seconds > 0 else None
    return verdicts, Speed(traces=timed, seconds=seconds, rate=rate, memory=memory, wall=paid, usage=usage)


def _begun(judge: Judge, purse: str | None) -> Usage:
    """Have a judge that is paid for spend from a purse; what is gone from it already."""
    if purse is None or not isinstance(judge, Metered):
        return Usage()
    judge.begin(purse, afresh=False)
    return judge.usage


def _less(after: Usage, before: Usage) -> Usage:
    """What was spent in between."""
    cost = None if after.cost is None or before.cost is None else after.cost - before.cost
    return Usage(
        calls=after.calls - before.calls,
        cached=after.cached - before.cached,
        prompt=after.prompt - before.prompt,
        completion=after.completion - before.completion,
        cost=cost,
    )


def _batches(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    rest = iter(traces)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _inline(judge: Judge, traces: Sequence[Trace], paid: bool) -> Iterator[Piece]:
    for number, batch in enumerate(_batches(traces)):
        yield _piece(judge, batch, cold=not number and not paid, clock=WALL if paid else OWN)


def _piece(judge: Judge, batch: Sequence[Trace], *, cold: bool, clock: Callable[[], float] = OWN) -> Piece:
    """Judge a batch by the clock; the first traces of a process are not timed."""
    warm = observe(judge, batch[:WARM]) if cold else []
    rest = batch[len(warm) :]
    start = clock()
    verdicts = observe(judge, rest) if rest else []
    return Piece(warm + verdicts, len(rest), clock() - start, _peak())


def _peak() -> int | None:
    """The peak memory of this process in bytes, where the system tells."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- on worker processes ---------------------------------------------------------------------------


class _Bench:
    """What a worker process has at hand."""

    judge: Judge | None = None
    cold = True


def _spread(judge: Judge, traces: Sequence[Trace], workers: int) -> Iterator[Piece]:
    """The same on worker processes, in order."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_enter, initargs=(judge,))
    try:
        for verdicts, timed, seconds, memory in pool.map(_work, map(_packed, _batches(traces))):
            found = msgspec.msgpack.decode(verdicts, type=list[Verdicts])
            yield Piece(found, timed, seconds, memory)
    except BrokenProcessPool:
        raise RunError(
            "a worker process was killed (out of memory, perhaps). Run the same command again with fewer --workers."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _packed(batch: list[Trace]) -> bytes:
    return msgspec.msgpack.encode(batch)


def _enter(judge: Judge) -> None:
    """Make a worker process ready for the judging."""
    ready()
    _Bench.judge = judge


def _work(batch: bytes) -> tuple[bytes, int, float, int | None]:
    assert _Bench.judge is not None
    found = _piece(_Bench.judge, msgspec.msgpack.decode(batch, type=list[Trace]), cold=_Bench.cold)
    _Bench.cold = False
    return msgspec.msgpack.encode(found.verdicts), found.timed, found.seconds, found.memory
