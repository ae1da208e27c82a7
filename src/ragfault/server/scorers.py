"""Scoring what was stored: worker processes are fed from the store, and their outcomes go back into it.

A trace is acknowledged when it is stored, and judged afterwards. What waits is read from the store, never held in
memory alone, so that a server that was killed goes on where it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from ragfault.errors import OutputError
from ragfault.evaluation.evaluating import measure
from ragfault.metrics import choose
from ragfault.online import Background, Scored
from ragfault.server.delays import Delays
from ragfault.server.settings import Settings
from ragfault.store import Store

__all__ = ["Scorers"]

log = logging.getLogger("ragfault.server")

AHEAD = 256
"""Traces that a worker may have before it."""
TOGETHER = 128
"""Outcomes that are stored at once, at most."""
GATHER = 0.5
"""Seconds for which outcomes are gathered: to store a hundred at once costs little more than to store one."""
PAUSE = 0.5
"""Seconds between looks at whether it is time to end."""
IDLE = 30.0
"""Seconds between looks at the store where nobody calls."""
AGAIN = 2.0
"""Seconds until a store that did not answer is asked again."""


class Scorers:
    """Worker processes between the store and the store."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        draw: Callable[[Sequence[Scored]], Future[None]] | None = None,
    ) -> None:
        self._settings, self._store, self._draw = settings, store, draw
        self.measures = tuple(map(measure, choose(settings.metrics)))
        self.told: Callable[[Sequence[Scored]], None] = lambda _: None
        """Is told of outcomes that are stored, and returns at once."""
        self._outcomes: SimpleQueue[Scored | None] = SimpleQueue()
        self._call = threading.Event()
        self._free = threading.Semaphore(AHEAD * max(1, settings.workers))
        self._ending = threading.Event()
        self._workers: list[Background] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._waiting = 0
        self._done, self._since = 0, time.monotonic()
        self._came: dict[str, float] = {}
        self.delays = Delays()
        """From being stored to having scores that are stored, in seconds of the machine's clock."""

    def start(self) -> None:
        """Begin with what waits in the store."""
        self._waiting = self._store.totals().waiting
        for _ in range(self._settings.workers):
            self._workers.append(
                Background(
                    self._outcomes.put,
                    judge=self._settings.judge,
                    lens=self._settings.lens,
                    metrics=self._settings.metrics,
                    capacity=10 * AHEAD * self._settings.workers,
                )
            )
        if self._workers:
            for work in (self._feed, self._keep):
                thread = threading.Thread(target=work, name=f"ragfault{work.__name__}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def called(self, n: int) -> None:
        """So many traces have come into the store."""
        with self._lock:
            self._waiting += n
        self._call.set()

    def recount(self) -> None:
        """See in the store how many wait, where some were forgotten."""
        waiting = self._store.totals().waiting
        with self._lock:
            self._waiting = waiting

    @property
    def full(self) -> bool:
        """Whether more wait than may."""
        return bool(self._workers) and self._waiting >= self._settings.limits.waiting

    @property
    def rate(self) -> float:
        """Traces that were scored in a second, since the server began."""
        return self._done / max(1e-9, time.monotonic() - self._since)

    def figures(self) -> dict[str, float]:
        """How scoring goes."""
        return {
            "waiting": float(max(0, self._waiting)),
            "scored": float(self._done),
            "per_second": round(self.rate, 3),
            "workers": float(len(self._workers)),
            "delay_p50": round(self.delays.quantile(0.5) or 0.0, 3),
            "delay_p95": round(self.delays.quantile(0.95) or 0.0, 3),
        }

    def close(self) -> None:
        """Wait for what the workers have, store it, and end them; what they were not given waits for the next time."""
        self._ending.set()
        self._call.set()
        for thread in self._threads[:1]:
            thread.join()
        for worker in self._workers:
            worker.close()
        self._outcomes.put(None)
        for thread in self._threads[1:]:
            thread.join()

    # --- on the threads ----------------------------------------------------------------------------

    def _feed(self) -> None:
        """Give the workers what waits, as far as they keep up."""
        after = turn = 0
        while not self._ending.is_set():
            self._call.clear()
            try:
                found = self._store.unscored(after)
            except Exception:  # a store that does not answer is told, and asked again
                log.exception("what waits to be judged cannot be read")
                self._ending.wait(AGAIN)
                continue
            for kept in found:
                while not self._free.acquire(timeout=PAUSE):
                    if self._ending.is_set():
                        return
                if self._ending.is_set():
                    return
                self._came[kept.trace.id] = kept.received
                self._workers[turn % len(self._workers)].submit(kept.trace)
                turn, after = turn + 1, kept.number
            if not found:
                self._call.wait(IDLE)

    def _keep(self) -> None:
        """Bring outcomes to the store, until None says that no more come."""
        open_ = True
        while open_ and (first := self._outcomes.get()) is not None:
            outcomes, open_ = self._gathered(first)
            stored = self._stored(outcomes)
            self.told(stored)
            now = time.time()
            came = {each.trace.id: self._came.pop(each.trace.id, now) for each in outcomes}
            for each in stored:
                self.delays.add(now - came[each.trace.id])
            self._free.release(len(outcomes))
            with self._lock:
                self._waiting -= len(stored)
                self._done += len(stored)

    def _stored(self, outcomes: list[Scored]) -> list[Scored]:
        """Store outcomes; those that were.

        While the store does not answer it is asked again. What it does not take is told; so is what there is no time
        for at the end: these traces wait in the store for the next start.
        """
        while True:
            try:
                self._store_all(outcomes)
            except OutputError as error:
                log.error("outcomes cannot be stored: %s", error)
                if self._ending.wait(AGAIN):
                    return []
            except Exception:
                if len(outcomes) > 1:
                    return [one for each in outcomes for one in self._stored([each])]
                log.exception("an outcome cannot be stored")
                return []
            else:
                return outcomes

    def _store_all(self, outcomes: list[Scored]) -> None:
        """Store outcomes and what became of them in the draw; what was stored before stays as it is."""
        kept = self._store.score(outcomes, self.measures, self._settings.by)
        if self._draw is not None:
            self._draw(outcomes).result()
        kept.result()

    def _gathered(self, first: Scored) -> tuple[list[Scored], bool]:
        """An outcome and those that come soon after it; and whether more may come."""
        outcomes, until = [first], time.monotonic() + GATHER
        while len(outcomes) < TOGETHER:
            try:
                following = self._outcomes.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            if following is None:
                return outcomes, False
            outcomes.append(following)
        return outcomes, True
