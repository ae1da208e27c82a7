"""Joining spans: those of one trace wait in a window until it is whole, then it goes to the store.

What comes in is held in the store before it is acknowledged, so that a kill loses none of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import msgspec

from ragfault.errors import OutputError
from ragfault.records import Trace
from ragfault.server.native import unsound
from ragfault.server.rating import OTLP
from ragfault.server.tallies import Tallies
from ragfault.sources.normalise import settle
from ragfault.sources.spans import Event, Joined, Operation, Window, origin_of, to_trace
from ragfault.sources.values import Wrong
from ragfault.store import Appended, Store

__all__ = ["Joiner"]

log = logging.getLogger("ragfault.server")

KIND = "spans"
SETTLE = 2.0
"""Seconds after the root of a trace has come after which the trace is whole."""
LONGEST = 120.0
"""Seconds after the first of its spans after which a trace is taken as it is."""
LOOK = 0.25
"""Seconds between looks at what is whole."""
TOGETHER = 512
"""Traces that are stored at once, at most."""
AGAIN = 2.0
"""Seconds until a store that did not answer is asked again."""


class Packed(msgspec.Struct, frozen=True):
    """What one request says of one trace."""

    trace: str
    operations: tuple[Operation, ...] = ()
    events: tuple[Event, ...] = ()


class Joiner:
    """Keeps spans until their trace is whole, then brings the trace to the store."""

    def __init__(
        self,
        store: Store,
        tallies: Tallies,
        called: Callable[[int], None],
        redact: Callable[[Trace], Trace],
        settle: float = SETTLE,
        *,
        origins: bool = False,
    ) -> None:
        self._store, self._tallies, self._called, self._redact = store, tallies, called, redact
        self._origins = origins
        self._window = Window(settle, max(settle, LONGEST))
        self._look = min(LOOK, settle)
        self._coming: SimpleQueue[tuple[int, Packed]] = SimpleQueue()
        self._numbers: dict[str, list[int]] = {}
        """The numbers under which the store holds what is known of a trace."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-joiner", daemon=True)

    def start(self) -> None:
        """Begin with what was held when the server last ended."""
        after = 0
        while found := self._store.held(KIND, after):
            for held in found:
                self._coming.put((held.number, msgspec.msgpack.decode(held.body, type=Packed)))
                after = held.number
            self._let_go(self._add(time.monotonic()))
        self._thread.start()

    def take(self, operations: Iterable[Operation], events: Iterable[Event] = ()) -> Future[tuple[int, ...]]:
        """Hold spans and events of logs; the Future is done when they would survive a kill."""
        parts: dict[str, tuple[list[Operation], list[Event]]] = {}
        for operation in operations:
            parts.setdefault(operation.trace, ([], []))[0].append(operation)
        for event in events:
            if event.trace:
                parts.setdefault(event.trace, ([], []))[1].append(event)
        packed = [Packed(name, tuple(ops), tuple(said)) for name, (ops, said) in parts.items()]
        future = self._store.hold(KIND, [msgspec.msgpack.encode(each) for each in packed])
        future.add_done_callback(lambda done: self._held(done, packed))
        return future

    def _held(self, done: Future[tuple[int, ...]], packed: list[Packed]) -> None:
        if done.exception() is None:
            for pair in zip(done.result(), packed, strict=True):
                self._coming.put(pair)

    @property
    def waiting(self) -> int:
        """Traces that are not whole yet."""
        return len(self._window)

    def close(self) -> None:
        """End; what is not whole is held in the store for the next time."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- on the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ending.wait(self._look):
            try:
                self._round(time.monotonic())
            except (
                Exception
            ):  # a round that fails is told, and the next one comes; what was held is held still
                log.exception("spans cannot be joined")

    def _round(self, now: float) -> None:
        """Let in what has come, and bring what is whole to the store."""
        spare = self._add(now)
        joined = self._window.finished(now)
        for first in range(0, len(joined), TOGETHER):
            self._bring(joined[first : first + TOGETHER])
        self._let_go(spare)

    def _add(self, now: float) -> list[int]:
        """Let in what has come; the numbers of what was held for nothing, because its trace has gone out."""
        counts, spare = self._window.counts, []
        late, over = counts.late, counts.over
        while True:
            try:
                number, packed = self._coming.get_nowait()
            except Empty:
                break
            self._window.add(packed.operations, now, packed.events)
            if packed.trace in self._window:
                self._numbers.setdefault(packed.trace, []).append(number)
            else:
                spare.append(number)
        self._tallies.add("late", counts.late - late)
        self._tallies.add("over", counts.over - over)
        return spare

    def _bring(self, joined: list[Joined]) -> None:
        """Bring what is whole to the store, and let go of what was held for it."""
        traces = [trace for each in joined if (trace := self._made(each)) is not None]
        numbers = [number for each in joined for number in self._numbers.pop(each.trace, ())]
        found = self._appended(traces, numbers)
        self._tallies.add("late", found.repeated)
        self._tallies.add("taken", found.taken)
        self._called(found.taken)

    def _let_go(self, numbers: list[int]) -> None:
        if numbers:
            self._appended([], numbers)

    def _appended(self, traces: list[Trace], numbers: list[int]) -> Appended:
        """What became of traces; while the store does not answer it is asked again, once more at the end."""
        while True:
            try:
                return self._store.append(traces, numbers).result()
            except OutputError as error:
                if self._ending.is_set():
                    raise
                log.error("traces cannot be stored: %s", error)
                self._ending.wait(AGAIN)

    def _made(self, joined: Joined) -> Trace | None:
        """The trace of some spans; None, and counted, where they are not of a RAG system or hold what no trace may."""
        try:
            return self._read(joined)
        except Wrong:
            self._tallies.add("rejected")
        except Exception:  # spans that nobody foresaw cost no other trace
            log.exception("spans cannot be read")
            self._tallies.add("rejected")
        return None

    def _read(self, joined: Joined) -> Trace | None:
        """The same, where nothing is wrong with them."""
        trace = to_trace(joined.operations, joined.events)
        trace = trace and settle(trace, check=True)
        if trace is None:
            self._tallies.add("not_rag")
            return None
        if self._origins:
            held = {OTLP: msgspec.to_builtins(origin_of(joined.operations))}
            trace = msgspec.structs.replace(trace, metadata={**trace.metadata, **held})
        if fault := unsound(trace):
            raise Wrong(fault)
        return self._redact(trace)
