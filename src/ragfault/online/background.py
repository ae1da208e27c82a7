"""Background scoring: traces are taken at once, and judged by another process while the caller goes on."""

from __future__ import annotations

import atexit
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
from ragfault.online.scoring import Scored
from ragfault.online.working import Config, Worker, lost
from ragfault.ports import Judge
from ragfault.records import Trace

__all__ = ["Background", "Sink", "to_jsonl"]

Sink = Callable[[Scored], object]
"""Whoever takes scores as they come; called on a thread of the background, one at a time."""
ATTEMPTS = 2
"""How often a trace is given to a worker that dies of it."""
PAUSE = 0.05
"""Seconds between looks at what still waits at the end."""
DIED = "died"
"""In the queue: a worker has ended."""


class Background:
    """Scores traces without the caller waiting: `submit` returns at once, and `sink` is called with each outcome.

    A worker process judges, so that the caller's own work is not slowed; a judge that is no name but an object works on
    a thread here. At most `capacity` traces wait; what is submitted beyond is dropped, counted in `dropped`, and warned
    of once. Nothing else is lost: `close`, or the end of the program, waits for every score, a worker that dies is
    replaced, and a trace that kills two has `failed` scores.

    >>> found = []
    >>> with Background(found.append, judge="lexical", metrics=["context_relevance"]) as background:
    ...     background.submit(Trace(id="1", query="When?", chunks=()))
    True
    >>> [scored.trace.id for scored in found]
    ['1']
    """

    def __init__(
        self,
        sink: Sink,
        *,
        judge: str | Judge = judges.DEFAULT,
        lens: str = "general",
        metrics: str | Sequence[str] = "default",
        capacity: int = 10_000,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"capacity is at least 1, got {capacity}.")
        self._sink, self._capacity = sink, capacity
        self._config = Config.of(judge, lens, metrics)
        self._queue: SimpleQueue[Trace | str | None] = SimpleQueue()
        self._waiting: OrderedDict[int, tuple[Trace, int]] = OrderedDict()
        self._lock, self._idle = threading.Lock(), threading.Condition()
        self.submitted = self.scored = self.dropped = self.unsunk = self.unread = 0
        self._closed = False
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._work, name="ragfault-background", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, trace: Trace) -> bool:
        """Take a trace to be scored; False where it was dropped, because too many wait or all is closed."""
        if self._closed or self.submitted - self.scored >= self._capacity:
            self.dropped += 1
            if self.dropped == 1:
                warnings.warn(
                    "ragfault drops traces: more come than are scored, or it is closed. See Background.dropped.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return False
        self.submitted += 1
        self._queue.put(trace)
        return True

    def pass_over(self, error: Exception) -> None:
        """Count what cannot be made into a trace, in `unread`, and warn of it once; the caller goes on."""
        self.unread += 1
        if self.unread == 1:
            warnings.warn(f"ragfault cannot score this: {error}", RuntimeWarning, stacklevel=3)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was submitted is scored; False where that took longer than `timeout` seconds."""
        with self._idle:
            return self._idle.wait_for(lambda: self.scored >= self.submitted, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Score what waits, and end. Safe to call twice."""
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

    def _work(self) -> None:
        """Hand traces to the worker, and replace one that dies; at the end wait for what it still has."""
        number, open_ = 0, True
        while open_ or self._waiting:
            try:
                given = self._queue.get(timeout=None if open_ else PAUSE)
            except Empty:
                continue
            if given is None:
                open_ = False
            elif isinstance(given, Trace):
                with self._lock:
                    self._waiting[number] = (given, 1)
                self._send(number, given)
                number += 1
            elif self._waiting and self._worker is not None and not self._worker.alive:
                self._replace()
        if self._worker is not None:
            self._worker.close()

    def _died(self) -> None:
        """A worker has ended: the thread looks whether it still had something."""
        self._queue.put(DIED)

    def _send(self, number: int, trace: Trace) -> None:
        if self._worker is None:
            self._worker = self._config.start(self._take, self._died)
        self._worker.send(number, trace)  # where it has died, the queue will say so

    def _replace(self) -> None:
        """A new worker in the place of one that died; it gets what the other still had."""
        if self._worker is not None:
            self._worker.close()
        with self._lock:
            first = next(iter(self._waiting), None)
            if first is not None:  # the one that it was at when it died
                trace, tries = self._waiting[first]
                self._waiting[first] = (trace, tries + 1)
        if first is not None and tries >= ATTEMPTS:
            self._take(first, lost(trace, self._config))
        self._worker = self._config.start(self._take, self._died)
        with self._lock:
            again = [(number, trace) for number, (trace, _) in self._waiting.items()]
        for number, trace in again:
            if not self._worker.send(number, trace):
                return  # it will be told of its death, too

    def _take(self, number: int, scored: Scored) -> None:
        """An outcome: it goes to the sink, once."""
        with self._lock:
            if self._waiting.pop(number, None) is None:
                return
        try:
            self._sink(scored)
        except Exception as error:  # noqa: BLE001 - the door to what users write: their fault costs no other score
            self.unsunk += 1
            if self.unsunk == 1:
                warnings.warn(
                    f"the sink of ragfault's scores failed: {type(error).__name__}: {error}. See Background.unsunk.",
                    RuntimeWarning,
                    stacklevel=1,
                )
        with self._idle:
            self.scored += 1
            self._idle.notify_all()


def to_jsonl(path: str | Path) -> Sink:
    """The sink that adds a line of JSON for each trace to a file: trace, verdicts, scores."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    encode: Any = msgspec.json.encode

    def sink(scored: Scored) -> None:
        with place.open("ab") as file:
            file.write(encode(scored) + b"\n")

    return sink
