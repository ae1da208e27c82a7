"""The background scorer: accept traces at once and score them in a worker process."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import msgspec

from ragfault import judges
from ragfault.errors import UsageError
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.evaluation.online.workers import ScoringWorker, WorkerConfig, build_failed_score
from ragfault.protocols import Judge
from ragfault.records import Trace

ScoreSink = Callable[[ScoredTrace], object]
"""The receiver of scores; called on a thread of the background scorer, one at a time."""
MAX_ATTEMPTS = 2
"""The number of workers that a trace may crash."""
POLL_SECONDS = 0.05
"""Seconds between checks for pending traces at the end."""
CRASH_REASON = "the worker process died of this trace, twice"
WORKER_DIED = "died"
"""A message in the queue: a worker has ended."""


class BackgroundScorer:
    """A scorer in the background: `submit` returns at once, and `sink` is called with each outcome.

    A worker process judges, so that the caller is not slowed; a judge object works on a thread of this
    process. At most `capacity` traces wait; further ones are dropped, counted in `dropped`, and warned of
    once. Nothing else is lost: `close`, or the end of the program, waits for every score, a worker that dies
    is replaced, and a trace that crashes two workers, or that cannot be sent, has `failed` scores. A forked
    process starts anew with its first trace.

    >>> results = []
    >>> with BackgroundScorer(results.append, judge="lexical", metrics=["context_relevance"]) as background:
    ...     background.submit(Trace(id="1", query="When?", chunks=()))
    True
    >>> [scored.trace.id for scored in results]
    ['1']
    """

    def __init__(
        self,
        sink: ScoreSink,
        *,
        judge: str | Judge = judges.DEFAULT_JUDGE,
        profile: str = "general",
        metrics: str | Sequence[str] = "default",
        capacity: int = 10_000,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"capacity is at least 1, got {capacity}.")
        self._sink, self._capacity = sink, capacity
        self._config = WorkerConfig.create(judge, profile, metrics)
        self._worker: ScoringWorker | None = None
        self._reset()
        atexit.register(self.close)

    def _reset(self) -> None:
        """Reset all state, in this process."""
        self._process = os.getpid()
        self._parent_worker = (
            self._worker
        )  # of the process that this one was forked from: never to be touched
        self._worker = None
        self._queue: SimpleQueue[Trace | str | None] = SimpleQueue()
        self._pending: OrderedDict[int, tuple[Trace, int]] = OrderedDict()
        self._lock, self._submit_lock, self._all_scored = (
            threading.Lock(),
            threading.Lock(),
            threading.Condition(),
        )
        self.submitted = self.scored = self.dropped = self.sink_failures = self.rejected = 0
        self._closed = False
        self._start_worker()  # at once: at the end of a program no thread can be started any more
        self._thread = threading.Thread(target=self._run, name="ragfault-background", daemon=True)
        self._thread.start()

    def submit(self, trace: Trace) -> bool:
        """Add a trace to the queue; return False if it was dropped, because too many wait or the scorer is closed."""
        if self._process != os.getpid():
            self._reset()
        with self._submit_lock:
            if not self._closed and self.submitted - self.scored < self._capacity:
                self.submitted += 1
                self._queue.put(trace)
                return True
            self.dropped += 1
            is_first = self.dropped == 1
        if is_first:
            warnings.warn(
                "ragfault drops traces: more come than are scored, or it is closed. See BackgroundScorer.dropped.",
                RuntimeWarning,
                stacklevel=2,
            )
        return False

    def reject(self, error: Exception) -> None:
        """Count an object that cannot become a trace in `rejected`, and warn of the first one."""
        self.rejected += 1
        if self.rejected == 1:
            warnings.warn(f"ragfault cannot score this: {error}", RuntimeWarning, stacklevel=3)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all submitted traces are scored; return False after `timeout` seconds."""
        with self._all_scored:
            return self._all_scored.wait_for(lambda: self.scored >= self.submitted, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Score the pending traces, and end. Safe to call twice."""
        if self._process == os.getpid():
            with self._submit_lock:
                if not self._closed:
                    self._closed = True
                    self._queue.put(None)
            self._thread.join(timeout)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        """Send traces to the worker, and replace one that dies; at the end wait for the pending ones."""
        number, is_open = 0, True
        while is_open or self._pending:
            try:
                message = self._queue.get(timeout=None if is_open else POLL_SECONDS)
            except Empty:
                continue
            if message is None:
                is_open = False
            elif isinstance(message, Trace):
                with self._lock:
                    self._pending[number] = (message, 1)
                self._send(number, message)
                number += 1
            elif self._pending and self._worker is not None and not self._worker.alive:
                self._replace_worker()
        if self._worker is not None:
            self._worker.close()

    def _notify_exit(self) -> None:
        """Notify the thread that a worker has ended."""
        self._queue.put(WORKER_DIED)

    def _send(self, number: int, trace: Trace) -> None:
        """Send a trace to the worker; one that cannot be encoded has failed."""
        if self._worker is None and not self._start_worker():
            return
        assert self._worker is not None
        try:
            sent = self._worker.send(number, trace)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            self._deliver(
                number, build_failed_score(trace, self._config, f"it cannot be sent to the worker: {error}")
            )
            return
        if not sent:  # it died before this one, perhaps while nothing waited
            self._replace_worker(spared=number)

    def _start_worker(self) -> bool:
        """Start a worker; if that is impossible, all pending traces have failed."""
        try:
            self._worker = self._config.start_worker(self._deliver, self._notify_exit)
        except (OSError, RuntimeError) as error:
            self._worker = None
            for number, (trace, _) in self._list_pending():
                self._deliver(
                    number, build_failed_score(trace, self._config, f"no worker can be started: {error}")
                )
            return False
        return True

    def _list_pending(self) -> list[tuple[int, tuple[Trace, int]]]:
        with self._lock:
            return list(self._pending.items())

    def _replace_worker(self, spared: int | None = None) -> None:
        """Start a new worker in the place of one that died, with its pending traces."""
        if self._worker is not None:
            self._worker.close()
        pending = self._list_pending()
        if pending and pending[0][0] != spared:  # the one that it was at when it died
            number, (trace, attempts) = pending[0]
            if attempts >= MAX_ATTEMPTS:
                self._deliver(number, build_failed_score(trace, self._config, CRASH_REASON))
            else:
                with self._lock:
                    self._pending[number] = (trace, attempts + 1)
        if self._start_worker():
            for number, (trace, _) in self._list_pending():
                if self._worker is None or not self._worker.send(number, trace):
                    return  # its death is in the queue, or will be

    def _deliver(self, number: int, scored: ScoredTrace) -> None:
        """Deliver an outcome to the sink, once."""
        with self._lock:
            if self._pending.pop(number, None) is None:
                return
        try:
            self._sink(scored)
        except BaseException as error:  # noqa: BLE001 - the door to what users write: their fault costs no other score
            self.sink_failures += 1
            if self.sink_failures == 1:
                warnings.warn(
                    f"the sink of ragfault's scores failed: {type(error).__name__}: {error}. "
                    "See BackgroundScorer.sink_failures.",
                    RuntimeWarning,
                    stacklevel=1,
                )
        with self._all_scored:
            self.scored += 1
            self._all_scored.notify_all()


def to_jsonl(path: str | Path) -> ScoreSink:
    """Return a sink that appends a line of JSON for each trace to a file: trace, verdicts, scores."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    encode: Any = msgspec.json.encode

    def sink(scored: ScoredTrace) -> None:
        with target.open("ab") as file:
            file.write(encode(scored) + b"\n")

    return sink
