"""Worker processes that score stored traces and write the scores back to the store.

A trace is acknowledged when it is stored and scored afterwards; the queue is read from the store, so that a killed
server resumes where it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from msgspec.structs import replace

from ragfault.apps.watch.server.counters import LatencyHistogram
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import ReceivedTrace
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import OutputError
from ragfault.model.records import Trace

log = logging.getLogger("ragfault.server")

# traces queued per worker
WORKER_QUEUE_SIZE = 256
TRACE_SECONDS = 60.0
"""Seconds that one trace may take a worker, its start included; then it has failed, and the next ones go on."""
# maximum number of outcomes stored in one write
BATCH_SIZE = 128
# seconds for which outcomes are collected into one write
GATHER_SECONDS = 0.5
# seconds between checks for shutdown
POLL_SECONDS = 0.5
# seconds between polls of the store without a notification
IDLE_SECONDS = 30.0
# seconds before a failed write is retried
RETRY_SECONDS = 2.0


class ScoringWorkers:
    """Worker processes with the threads that feed them and store their outcomes."""

    def __init__(
        self,
        settings: ServerSettings,
        store: TraceStore,
        draw_sample: Callable[[Sequence[ScoredTrace]], Future[None]] | None = None,
    ) -> None:
        self._settings, self._store, self._draw_sample = settings, store, draw_sample
        self.measures = tuple(map(describe_metric, select_metrics(settings.metrics)))
        self.on_scored: Callable[[Sequence[ScoredTrace]], None] = lambda _: None
        """Called with the outcomes that were stored; must return at once."""
        self.limit_cohorts: Callable[[Trace, Sequence[str]], Trace] = lambda trace, _: trace
        """Returns a trace as it is counted in cohorts of these fields."""
        self._outcomes: SimpleQueue[ScoredTrace | None] = SimpleQueue()
        self._wake = threading.Event()
        self._capacity = threading.Semaphore(WORKER_QUEUE_SIZE * max(1, settings.workers))
        self._stopping = threading.Event()
        self._workers: list[BackgroundScorer] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._waiting = 0
        self._scored_count, self._started_at = 0, time.monotonic()
        self._in_flight: dict[str, ReceivedTrace] = {}
        """Traces that are with a worker or whose outcome is not stored, by id."""
        self._last_stored = time.monotonic()
        self.latency = LatencyHistogram()
        """Delay from storing a trace to storing its scores, in seconds."""

    def start(self) -> None:
        """Start workers and threads with the traces that wait in the store."""
        self._waiting = self._store.compute_totals().waiting
        for _ in range(self._settings.workers):
            self._workers.append(
                BackgroundScorer(
                    self._outcomes.put,
                    judge=self._settings.judge,
                    profile=self._settings.profile,
                    calibration=self._settings.calibration,
                    metrics=self._settings.metrics,
                    time_limit=TRACE_SECONDS,
                    capacity=10 * WORKER_QUEUE_SIZE * self._settings.workers,
                )
            )
        if self._workers:
            for work in (self._feed_workers, self._store_outcomes):
                thread = threading.Thread(target=work, name=f"ragfault{work.__name__}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def add_waiting(self, n: int) -> None:
        """Notify the workers of new traces in the store."""
        with self._lock:
            self._waiting += n
        self._wake.set()

    def recount(self) -> None:
        """Recount the waiting traces after a deletion or a replacement."""
        waiting = self._store.compute_totals().waiting
        with self._lock:
            self._waiting = waiting
        self._wake.set()

    @property
    def is_alive(self) -> bool:
        """True if the threads that feed the worker processes and store their outcomes run, or there are none."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last outcome was stored, or since the start."""
        return time.monotonic() - self._last_stored

    @property
    def is_full(self) -> bool:
        """True if more traces wait than the limit allows."""
        return bool(self._workers) and self._waiting >= self._settings.limits.unscored

    def summarize(self) -> dict[str, float]:
        """Return throughput, latency and backlog."""
        rate = self._scored_count / max(1e-9, time.monotonic() - self._started_at)
        return {
            "waiting": float(max(0, self._waiting)),
            "scored": float(self._scored_count),
            "per_second": round(rate, 3),
            "workers": float(len(self._workers)),
            "delay_p50": round(self.latency.quantile(0.5) or 0.0, 3),
            "delay_p95": round(self.latency.quantile(0.95) or 0.0, 3),
        }

    def close(self) -> None:
        """Store the outcomes that there are and stop, however slow the judge is; the other traces wait in the store."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads[:1]:
            thread.join()
        for worker in self._workers:
            worker.abandon()
        self._outcomes.put(None)
        for thread in self._threads[1:]:
            thread.join()

    def _feed_workers(self) -> None:
        """Pass waiting traces to the workers as fast as they take them."""
        after = turn = 0
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                batch = self._store.list_unscored(after)
            except Exception:
                # a failed read is logged and retried
                log.exception("the waiting traces cannot be read")
                self._stopping.wait(RETRY_SECONDS)
                continue
            for received in batch:
                while not self._capacity.acquire(timeout=POLL_SECONDS):
                    if self._stopping.is_set():
                        return
                # an earlier version of a reopened trace goes first, so that its outcome is known by its number
                while received.trace.id in self._in_flight and not self._stopping.wait(GATHER_SECONDS / 10):
                    pass
                if self._stopping.is_set():
                    return
                self._in_flight[received.trace.id] = received
                self._workers[turn % len(self._workers)].submit(received.trace)
                turn, after = turn + 1, received.number
            if not batch:
                self._wake.wait(IDLE_SECONDS)

    def _store_outcomes(self) -> None:
        """Store outcomes in batches until None arrives."""
        open_ = True
        while open_ and (first := self._outcomes.get()) is not None:
            outcomes, open_ = self._collect_batch(first)
            added, stored = self._store_with_retry(outcomes)
            self.on_scored(stored)
            now = time.time()
            received = {outcome.trace.id: self._in_flight.pop(outcome.trace.id, None) for outcome in outcomes}
            for outcome in stored:
                if (row := received[outcome.trace.id]) is not None:
                    self.latency.add(now - row.received)
            self._capacity.release(len(outcomes))
            if stored:
                self._last_stored = time.monotonic()
            with self._lock:
                self._waiting -= added
                self._scored_count += added

    def _store_with_retry(self, outcomes: list[ScoredTrace]) -> tuple[int, list[ScoredTrace]]:
        """Store outcomes; return the number of traces judged by them, and those that the store took.

        While the store is unavailable the write is retried, except at shutdown; what it rejects is logged. These traces
        wait in the store for the next start.
        """
        while True:
            try:
                return self._store_batch(outcomes), outcomes
            except OutputError as error:
                log.error("outcomes cannot be stored: %s", error)
                if self._stopping.wait(RETRY_SECONDS):
                    return 0, []
            except Exception:
                if len(outcomes) > 1:
                    parts = [self._store_with_retry([outcome]) for outcome in outcomes]
                    return sum(added for added, _ in parts), [outcome for _, stored in parts for outcome in stored]
                log.exception("an outcome cannot be stored")
                return 0, []

    def _store_batch(self, outcomes: list[ScoredTrace]) -> int:
        """Store outcomes and draw a sample from them; stored scores are never overwritten."""
        fields = self._settings.cohort_fields
        counted = [replace(outcome, trace=self.limit_cohorts(outcome.trace, fields)) for outcome in outcomes]
        rows = ((outcome.trace.id, self._in_flight.get(outcome.trace.id)) for outcome in outcomes)
        numbers = {id: row.number for id, row in rows if row is not None}
        stored = self._store.add_outcomes(counted, self.measures, fields, numbers=numbers)
        if self._draw_sample is not None:
            self._draw_sample(outcomes).result()
        return stored.result()

    def _collect_batch(self, first: ScoredTrace) -> tuple[list[ScoredTrace], bool]:
        """Collect outcomes for a batch; return it, and whether more may follow."""
        outcomes, until = [first], time.monotonic() + GATHER_SECONDS
        while len(outcomes) < BATCH_SIZE:
            try:
                following = self._outcomes.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            if following is None:
                return outcomes, False
            outcomes.append(following)
        return outcomes, True
