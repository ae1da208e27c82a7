"""Executors: where the pieces of an evaluation are worked on; here, processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from ragfault.errors import RunError, UsageError
from ragfault.judges.observing import ready

__all__ = ["Processes"]

P = TypeVar("P")
R = TypeVar("R")

AHEAD = 3
"""Pieces under way for each worker: one at work, and others so that it never waits."""


class Processes:
    """Worker processes of this machine, started afresh; they end when this process does.

    >>> sorted(Processes(1).spread(len, ["one", "three"]))
    [3, 5]
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise UsageError(f"workers are at least 1, got {workers}.")
        self.workers = workers

    def spread(self, work: Callable[[P], R], pieces: Iterable[P]) -> Iterator[R]:
        """What the work makes of each piece, as they are done."""
        pool = ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_enter,
            initargs=(work,),
        )
        under_way: set[Future[R]] = set()
        try:
            for piece in pieces:
                under_way.add(pool.submit(_do, piece))
                if len(under_way) >= AHEAD * self.workers:
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


_work: Callable[[Any], Any] | None = None


def _enter(work: Callable[[Any], Any]) -> None:
    """Make a worker process ready for the work."""
    global _work  # noqa: PLW0603 - one work for each worker process, given at its start
    ready()
    _work = work


def _do(piece: Any) -> Any:
    assert _work is not None
    return _work(piece)
