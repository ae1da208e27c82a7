"""The DuckDB writer: one thread that runs queued writes in transactions; a future is done after the commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ragfault.errors import OutputError

T = TypeVar("T")
MAX_BATCH = 128
"""Deeds to a transaction, at most."""

QueuedWrite = tuple[Callable[[Any], Any], "Future[Any]"]


class DuckDBWriter:
    """A thread that owns a connection: what is submitted is done in order, in transactions of several deeds.

    A deed that raises undoes nothing of the others: the transaction is rolled back, and each is done by itself.
    """

    def __init__(self, con: Any) -> None:
        self._connection = con
        self._queue: SimpleQueue[QueuedWrite | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="ragfault-store", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Deeds that wait, about."""
        return self._queue.qsize()

    def submit(self, write: Callable[[Any], T]) -> Future[T]:
        """Have something done to the connection; the Future is done when it is on the disk."""
        future: Future[T] = Future()
        with self._lock:
            if not self._open:
                future.set_exception(OutputError("the store is closed: nothing more is written to it."))
                return future
            self._queue.put((write, future))
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
        while (first := self._queue.get()) is not None:
            deeds, ended = [first], False
            while len(deeds) < MAX_BATCH and not ended:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                if following is None:
                    ended = True
                else:
                    deeds.append(following)
            self._run_batch(deeds)
            if ended:
                return

    def _run_batch(self, writes: list[QueuedWrite]) -> None:
        """Several deeds in one transaction; where that fails, each in its own."""
        try:
            results = self._transact([deed for deed, _ in writes])
        except BaseException as error:  # noqa: BLE001 - whatever a deed raises belongs to whoever asked for it
            if len(writes) == 1:
                writes[0][1].set_exception(_translate_error(error))
                return
            for each in writes:
                self._run_batch([each])
            return
        for (_, future), result in zip(writes, results, strict=True):
            future.set_result(result)

    def _transact(self, writes: list[Callable[[Any], Any]]) -> list[Any]:
        self._connection.execute("BEGIN")
        try:
            results = [deed(self._connection) for deed in writes]
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        return results

    def _roll_back(self) -> None:
        """Undo a transaction; one that ended by itself is undone already."""
        try:
            self._connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - there is nothing left to undo
            return


def _translate_error(error: BaseException) -> BaseException:
    """An error as it is told: a disk or a memory that is full is no fault of what was to be written."""
    import duckdb

    if isinstance(error, (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.FatalException)):
        return OutputError(f"the store cannot be written: {str(error).splitlines()[0]}")
    return error
