"""The writer of ClickHouse: one thread; what waits of one kind is written as one insert, and told when it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from ragfault.errors import OutputError

__all__ = ["Writer"]

T = TypeVar("T")

TOGETHER = 512
"""Deeds that are done together, at most."""

LINGER = 0.02
"""Seconds between two rounds, at least: few large inserts are what ClickHouse is made for."""

Work = Callable[[Sequence[Any]], Sequence[Any]]
"""What is done with all that was given at once; a result for each."""


class _Deed(NamedTuple):
    work: Work
    given: Any
    future: Future[Any]


class Writer:
    """A thread that does deeds in order, those of one kind that follow each other together.

    Where several fail together, each is done by itself. `before` is called before each round and, with nothing to do,
    every `idle` seconds; where it raises, the deeds of the round fail.
    """

    def __init__(self, before: Callable[[], None], idle: float) -> None:
        self._before, self._idle = before, idle
        self._queue: SimpleQueue[_Deed | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="ragfault-store", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Deeds that wait, about."""
        return self._queue.qsize()

    def submit(self, work: Callable[[Sequence[Any]], Sequence[T]], given: Any) -> Future[T]:
        """Have something done; the Future is done when the server has acknowledged it."""
        future: Future[T] = Future()
        with self._lock:
            if not self._open:
                future.set_exception(OutputError("the store is closed: nothing more is written to it."))
                return future
            self._queue.put(_Deed(work, given, future))
        return future

    def close(self) -> None:
        """Do what waits, and end. Safe to call twice."""
        with self._lock:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        ended, last = False, 0.0
        while not ended:
            time.sleep(max(0.0, last + LINGER - time.monotonic()))
            deeds, ended = self._waiting_deeds()
            fault = self._ready()
            for work, group in groupby(deeds, key=lambda deed: deed.work):
                self._together(work, list(group), fault)
            last = time.monotonic()

    def _waiting_deeds(self) -> tuple[list[_Deed], bool]:
        """What waits, and whether this is the end; nothing where nothing came for a while."""
        deeds: list[_Deed] = []
        while len(deeds) < TOGETHER:
            try:
                found = self._queue.get_nowait() if deeds else self._queue.get(timeout=self._idle)
            except Empty:
                break
            if found is None:
                return deeds, True
            deeds.append(found)
        return deeds, False

    def _ready(self) -> Exception | None:
        """What keeps a round from being done, if anything."""
        try:
            self._before()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the deeds of the round
            return error
        return None

    def _together(self, work: Work, deeds: list[_Deed], fault: Exception | None) -> None:
        """Deeds of one kind together; where that fails, each by itself."""
        try:
            if fault is not None:
                raise fault
            results = work([deed.given for deed in deeds])
        except BaseException as error:  # noqa: BLE001 - whatever a deed raises belongs to whoever asked for it
            if len(deeds) == 1 or fault is not None:
                for deed in deeds:
                    deed.future.set_exception(error)
                return
            for deed in deeds:
                self._together(work, [deed], self._ready())
            return
        for deed, result in zip(deeds, results, strict=True):
            deed.future.set_result(result)
