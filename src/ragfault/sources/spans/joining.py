"""Joining: spans come one by one, late, twice and in any order, and go out as whole traces."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from ragfault.errors import InputError
from ragfault.sources.spans.operation import Event, Operation, fuller

__all__ = ["Counts", "Joined", "Window"]

Why = Literal["settled", "expired", "crowded"]
"""What made a trace go out: its root had come and the time to settle was over; it was open for too long; others
needed its room."""

FORMAT = 1

OVERHEAD = 400
"""About how many bytes an operation or an event takes beside its texts."""


class Joined(NamedTuple):
    """The operations of one trace."""

    trace: str
    operations: tuple[Operation, ...]
    """In the order of their begin."""
    events: tuple[Event, ...]
    why: Why

    @property
    def whole(self) -> bool:
        """Whether the root is among them."""
        return any(one.parent is None for one in self.operations)


class Counts(Struct):
    """What became of the spans that came."""

    taken: int = 0
    """Spans and events that were let in."""
    doubled: int = 0
    """Spans and events that had come before."""
    late: int = 0
    """Spans and events of traces that had gone out already."""
    over: int = 0
    """Spans and events beyond what one trace may have."""
    loose: int = 0
    """Events that name no trace."""
    settled: int = 0
    """Traces that went out with their root."""
    expired: int = 0
    """Traces that went out without it, or after `longest`."""
    crowded: int = 0
    """Traces that went out early, for want of room."""


class Open(Struct):
    """A trace that is not complete."""

    begun: float
    """When the first of it came."""
    rooted: float | None = None
    """When its root came."""
    operations: dict[str, Operation] = field(default_factory=dict)
    events: dict[bytes, Event] = field(default_factory=dict)
    """By their own bytes, hashed."""
    size: int = 0


class State(Struct):
    """All that a window knows."""

    format: int
    settle: float
    longest: float
    room: int
    most: int
    memory: int
    open: dict[str, Open]
    gone: list[str]
    counts: Counts


class Window:
    """Where spans wait for the others of their trace.

    A trace goes out when its root has come and `settle` seconds have passed since, or `longest` seconds after
    the first of it came; where the texts of all that wait pass `room` bytes, the one that is open the longest
    goes out early, those with a root first. A trace keeps `most` spans, and the names of the last `memory`
    traces that went out are kept, so that what comes of them later is known as late. Times are given, never
    taken from a clock: the same calls make the same traces.

    >>> window = Window(settle=5)
    >>> window.add([Operation(trace="a", id="2", parent="1", start=3)], now=0)
    >>> window.add([Operation(trace="a", id="1", start=1), Operation(trace="a", id="1", start=1)], now=1)
    >>> window.finished(now=2), window.counts.doubled
    ([], 1)
    >>> [joined] = window.finished(now=6)
    >>> joined.trace, [one.id for one in joined.operations], joined.why
    ('a', ['1', '2'], 'settled')
    """

    def __init__(
        self,
        settle: float = 10.0,
        longest: float = 600.0,
        *,
        room: int = 256 * 2**20,
        most: int = 5_000,
        memory: int = 100_000,
    ) -> None:
        self.settle, self.longest, self.room, self.most, self.memory = settle, longest, room, most, memory
        self.counts = Counts()
        self.size = 0
        """About how many bytes wait."""
        self._open: OrderedDict[str, Open] = OrderedDict()
        self._rooted: OrderedDict[str, None] = OrderedDict()
        self._due: list[tuple[float, str]] = []
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, trace: str) -> bool:
        """Whether a trace of that id waits."""
        return trace in self._open

    def add(self, operations: Iterable[Operation], now: float, events: Iterable[Event] = ()) -> None:
        """Take in spans, and records of a log that name a trace."""
        for one in operations:
            trace = self._trace(one.trace, now)
            if trace is not None:
                self._operation(trace, one, now)
        for event in events:
            self._event(event, now)

    def finished(self, now: float) -> list[Joined]:
        """The traces that go out by now: those that are due in the order of it, then those without room."""
        found = []
        while self._due and self._due[0][0] <= now:
            due, name = heappop(self._due)
            trace = self._open.get(name)
            if trace is not None and self._deadline(trace) <= due:
                settled = trace.rooted is not None and trace.rooted + self.settle <= due
                found.append(self._let_go(name, "settled" if settled else "expired"))
        while self.size > self.room and self._open:
            found.append(self._let_go(next(iter(self._rooted or self._open)), "crowded"))
        return found

    def flush(self) -> Iterator[Joined]:
        """All that is left, those first that came first; where nothing more will come."""
        for name in list(self._open):
            rooted = self._open[name].rooted is not None
            yield self._let_go(name, "settled" if rooted else "expired")

    # --- one of them ---------------------------------------------------------------------------

    def _trace(self, name: str, now: float) -> Open | None:
        """The open trace of that name; None for one that has gone out, or has all that it may have."""
        trace = self._open.get(name)
        if trace is None:
            if name in self._gone:
                self.counts.late += 1
                return None
            trace = self._open[name] = Open(now)
            heappush(self._due, (now + self.longest, name))
        return trace

    def _operation(self, trace: Open, one: Operation, now: float) -> None:
        known = trace.operations.get(one.id)
        if known is not None:
            self.counts.doubled += 1
            if known == one or fuller(known, one) is known:
                return
            self._grow(trace, -weight(known))
        elif len(trace.operations) + len(trace.events) >= self.most and one.parent is not None:
            self.counts.over += 1
            return
        else:
            self.counts.taken += 1
        trace.operations[one.id] = one
        self._grow(trace, weight(one))
        if one.parent is None and trace.rooted is None:
            trace.rooted = now
            self._rooted[one.trace] = None
            heappush(self._due, (self._deadline(trace), one.trace))

    def _event(self, event: Event, now: float) -> None:
        if not event.trace.strip("0"):
            self.counts.loose += 1
            return
        trace = self._trace(event.trace, now)
        if trace is None:
            return
        key = blake2b(msgspec.msgpack.encode(event), digest_size=16).digest()
        if key in trace.events:
            self.counts.doubled += 1
            return
        if len(trace.operations) + len(trace.events) >= self.most:
            self.counts.over += 1
            return
        self.counts.taken += 1
        trace.events[key] = event
        self._grow(trace, weight(event))

    def _grow(self, trace: Open, size: int) -> None:
        trace.size += size
        self.size += size

    def _deadline(self, trace: Open) -> float:
        longest = trace.begun + self.longest
        return longest if trace.rooted is None else min(longest, trace.rooted + self.settle)

    def _let_go(self, name: str, why: Why) -> Joined:
        trace = self._open.pop(name)
        self._rooted.pop(name, None)
        self.size -= trace.size
        self._gone[name] = None
        while len(self._gone) > self.memory:
            self._gone.popitem(last=False)
        setattr(self.counts, why, getattr(self.counts, why) + 1)
        operations = sorted(trace.operations.values(), key=lambda one: (one.start, -one.end, one.id))
        events = sorted(trace.events.items(), key=lambda pair: (pair[1].time, pair[0]))
        if len(self._due) > 1000 + 4 * len(self._open):
            self._plan()
        return Joined(name, tuple(operations), tuple(event for _, event in events), why)

    def _plan(self) -> None:
        """Make the list of what is due anew, without what has gone out."""
        self._due = [(self._deadline(trace), name) for name, trace in self._open.items()]
        heapify(self._due)

    # --- on disk -------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """All that the window knows, to go on from with `Window.load`."""
        return msgspec.msgpack.encode(
            State(
                FORMAT,
                self.settle,
                self.longest,
                self.room,
                self.most,
                self.memory,
                dict(self._open),
                list(self._gone),
                self.counts,
            )
        )

    @staticmethod
    def load(data: bytes) -> Window:
        """The window that was dumped; raises `InputError` where the data is of another making.

        >>> window = Window()
        >>> window.add([Operation(trace="a", id="1")], now=0)
        >>> len(Window.load(window.dump()))
        1
        """
        try:
            state = msgspec.msgpack.decode(data, type=State)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InputError("the data is not a window of spans: begin with an empty one") from None
        if state.format != FORMAT:
            raise InputError(f"the window is of format {state.format}, and this is {FORMAT}: begin anew")
        window = Window(state.settle, state.longest, room=state.room, most=state.most, memory=state.memory)
        window.counts = state.counts
        window._open.update(state.open)
        window._gone.update(dict.fromkeys(state.gone))
        rooted = [(trace.rooted, name) for name, trace in state.open.items() if trace.rooted is not None]
        window._rooted.update({name: None for _, name in sorted(rooted, key=lambda pair: pair[0])})
        window._plan()
        window.size = sum(trace.size for trace in state.open.values())
        return window


def weight(record: Operation | Event) -> int:
    """About how many bytes a record takes."""
    size = OVERHEAD + len(record.name) + _bytes(record.attributes)
    if isinstance(record, Operation):
        size += len(record.message) + _bytes(record.resource) + sum(map(weight, record.events))
    return size


def _bytes(value: object) -> int:
    if isinstance(value, str):
        return 64 + len(value)
    if isinstance(value, dict):
        return 64 + sum(len(name) + _bytes(part) for name, part in value.items())
    if isinstance(value, list):
        return 64 + sum(map(_bytes, value))
    return 64
