"""Joining spans: those of one trace are kept until it is whole, in whatever order and however late they come.

What comes in is held in the store before it is acknowledged, so that a kill loses none of it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import msgspec

from ragfault.records import Trace
from ragfault.server.native import unsound
from ragfault.server.tallies import Tallies
from ragfault.sources.spans import Event, Operation, to_trace
from ragfault.store import Store

__all__ = ["Joiner"]

KIND = "spans"
QUIET = 2.0
"""Seconds without a further span after which a trace with a root is whole."""
PATIENCE = 30.0
"""Seconds after which one without a root is taken as it is."""
LOOK = 0.25


class Packed(msgspec.Struct, frozen=True):
    """What one request says of one trace."""

    trace: str
    operations: tuple[Operation, ...] = ()
    events: tuple[Event, ...] = ()


class Draft:
    """A trace in the making."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.events: list[Event] = []
        self.numbers: list[int] = []
        self.last = time.monotonic()

    def add(self, number: int, packed: Packed) -> None:
        """Take in what one request says."""
        self.operations += packed.operations
        self.events += packed.events
        self.numbers.append(number)
        self.last = time.monotonic()

    def whole(self, now: float, quiet: float) -> bool:
        """Whether it has waited long enough."""
        rooted = any(operation.parent is None for operation in self.operations)
        return now - self.last >= (quiet if rooted else max(quiet, PATIENCE))


class Joiner:
    """Keeps spans until their trace is whole, then brings the trace to the store."""

    def __init__(
        self,
        store: Store,
        tallies: Tallies,
        called: Callable[[int], None],
        redact: Callable[[Trace], Trace],
        quiet: float = QUIET,
    ) -> None:
        self._store, self._tallies, self._called, self._quiet = store, tallies, called, quiet
        self._redact = redact
        self._drafts: OrderedDict[str, Draft] = OrderedDict()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-joiner", daemon=True)

    def start(self) -> None:
        """Begin with what was held when the server last ended."""
        after = 0
        while found := self._store.held(KIND, after):
            for held in found:
                self._add(held.number, msgspec.msgpack.decode(held.body, type=Packed))
                after = held.number
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
            for number, each in zip(done.result(), packed, strict=True):
                self._add(number, each)

    def _add(self, number: int, packed: Packed) -> None:
        with self._lock:
            self._drafts.setdefault(packed.trace, Draft()).add(number, packed)

    @property
    def waiting(self) -> int:
        """Traces that are not whole yet."""
        return len(self._drafts)

    def close(self) -> None:
        """End; what is not whole is held in the store for the next time."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._ending.wait(min(LOOK, self._quiet)):
            self._settle(time.monotonic())

    def _settle(self, now: float) -> None:
        """Bring what is whole to the store."""
        with self._lock:
            ready = [name for name, draft in self._drafts.items() if draft.whole(now, self._quiet)]
            drafts = [self._drafts.pop(name) for name in ready]
        if not drafts:
            return
        traces = [trace for draft in drafts if (trace := self._made(draft)) is not None]
        numbers = [number for draft in drafts for number in draft.numbers]
        found = self._store.append(traces, numbers).result()
        self._tallies.add("late", found.repeated)
        self._tallies.add("taken", found.taken)
        self._called(found.taken)

    def _made(self, draft: Draft) -> Trace | None:
        """The trace of a draft; one that is none of a RAG system is counted."""
        trace = to_trace(draft.operations, draft.events)
        if trace is None:
            self._tallies.add("not_rag")
        elif unsound(trace):
            self._tallies.add("rejected")
            return None
        return trace and self._redact(trace)
