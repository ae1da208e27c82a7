"""The write queue of a store: one thread that runs submitted writes in order, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from ragfault.errors import OutputError

T = TypeVar("T")

BatchWork = Callable[[Sequence[Any]], Sequence[Any]]
"""A function of several payloads that returns a result for each."""


class WriteRequest(NamedTuple):
    """A queued write: `work` is called with the payload, alone or with others."""

    work: BatchWork
    payload: Any
    future: Future[Any]


class WriteQueue:
    """A thread that passes queued writes to `run_batch`, at most `max_batch` at a time.

    After `idle` seconds without a write, `run_batch` gets an empty batch.
    """

    def __init__(
        self, run_batch: Callable[[list[WriteRequest]], None], max_batch: int, idle: float | None = None
    ) -> None:
        self._run_batch, self._max_batch, self._idle = run_batch, max_batch, idle
        self._queue: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="ragfault-store", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """The approximate number of queued writes."""
        return self._queue.qsize()

    def submit(self, work: Callable[[Sequence[Any]], Sequence[T]], payload: Any) -> Future[T]:
        """Queue a write; its Future is done once the write is durable."""
        future: Future[T] = Future()
        with self._lock:
            if not self._open:
                future.set_exception(OutputError("the store is closed: it accepts no writes."))
                return future
            self._queue.put(WriteRequest(work, payload, future))
        return future

    def close(self) -> None:
        """Run the queued writes and end the thread. Safe to call twice."""
        with self._lock:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            requests, ended = self._next_requests()
            self._run_batch(requests)

    def _next_requests(self) -> tuple[list[WriteRequest], bool]:
        """Return the queued requests, and True for the last batch."""
        requests: list[WriteRequest] = []
        while len(requests) < self._max_batch:
            try:
                request = self._queue.get_nowait() if requests else self._queue.get(timeout=self._idle)
            except Empty:
                break
            if request is None:
                return requests, True
            requests.append(request)
        return requests, False


def run_requests(
    requests: list[WriteRequest],
    run: Callable[[list[WriteRequest]], Sequence[Any]],
    translate: Callable[[BaseException], BaseException] = lambda error: error,
) -> None:
    """Run requests together and settle their futures; where that fails, run each on its own."""
    try:
        results = run(requests)
    except BaseException as error:  # noqa: BLE001 - the error of a write belongs to the thread that submitted it
        if len(requests) == 1:
            requests[0].future.set_exception(translate(error))
            return
        for request in requests:
            run_requests([request], run, translate)
        return
    for request, result in zip(requests, results, strict=True):
        request.future.set_result(result)
