"""Buffer of spans: collect spans that arrive late, twice and out of order until their trace is complete."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from ragfault.errors import InputError
from ragfault.io.otel.spans import OtelSpan, SpanEvent, choose_fuller_span

ReleaseReason = Literal["settled", "expired", "crowded"]
"""What made a trace go out: its root had come and the time to settle was over; it was open for too long; others
needed its room."""

BUFFER_FORMAT = 1

RECORD_OVERHEAD = 400
"""About how many bytes an operation or an event takes beside its texts."""


class CollectedTrace(NamedTuple):
    """The operations of one trace."""

    trace: str
    spans: tuple[OtelSpan, ...]
    """In the order of their begin."""
    events: tuple[SpanEvent, ...]
    reason: ReleaseReason

    @property
    def has_root(self) -> bool:
        """Whether the root is among them."""
        return any(one.parent is None for one in self.spans)


class SpanCounts(Struct):
    """What became of the spans that came."""

    accepted: int = 0
    """Spans and events that were let in."""
    duplicates: int = 0
    """Spans and events that had come before."""
    late: int = 0
    """Spans and events of traces that had gone out already."""
    over_limit: int = 0
    """Spans and events beyond what one trace may have."""
    without_trace: int = 0
    """Events that name no trace."""
    settled: int = 0
    """Traces that went out with their root."""
    expired: int = 0
    """Traces that went out without it, or after `longest`."""
    crowded: int = 0
    """Traces that went out early, for want of room."""


class OpenTrace(Struct):
    """A trace that is not complete."""

    first_seen: float
    """When the first of it came."""
    root_seen: float | None = None
    """When its root came."""
    spans: dict[str, OtelSpan] = field(default_factory=dict)
    events: dict[bytes, SpanEvent] = field(default_factory=dict)
    """By their own bytes, hashed."""
    size: int = 0


class BufferState(Struct):
    """All that a window knows."""

    format: int
    settle_time: float
    max_wait: float
    max_bytes: int
    max_spans: int
    max_released: int
    open_traces: dict[str, OpenTrace]
    released: list[str]
    counts: SpanCounts


class SpanBuffer:
    """Where spans wait for the others of their trace.

    A trace goes out when its root has come and `settle` seconds have passed since, or `longest` seconds after
    the first of it came; where the texts of all that wait pass `room` bytes, the one that is open the longest
    goes out early, those with a root first. A trace keeps `most` spans, and the names of the last `memory`
    traces that went out are kept, so that what comes of them later is known as late. Times are given, never
    taken from a clock: the same calls make the same traces.

    >>> window = SpanBuffer(settle=5)
    >>> window.add([OtelSpan(trace="a", id="2", parent="1", start=3)], now=0)
    >>> window.add([OtelSpan(trace="a", id="1", start=1), OtelSpan(trace="a", id="1", start=1)], now=1)
    >>> window.finished(now=2), window.counts.doubled
    ([], 1)
    >>> [joined] = window.finished(now=6)
    >>> joined.trace, [one.id for one in joined.operations], joined.why
    ('a', ['1', '2'], 'settled')
    """

    def __init__(
        self,
        settle_time: float = 10.0,
        max_wait: float = 600.0,
        *,
        max_bytes: int = 256 * 2**20,
        max_spans: int = 5_000,
        max_released: int = 100_000,
    ) -> None:
        self.settle_time, self.max_wait, self.max_bytes, self.max_spans, self.max_released = (
            settle_time,
            max_wait,
            max_bytes,
            max_spans,
            max_released,
        )
        self.counts = SpanCounts()
        self.size = 0
        """About how many bytes wait."""
        self._open_traces: OrderedDict[str, OpenTrace] = OrderedDict()
        self._rooted_traces: OrderedDict[str, None] = OrderedDict()
        self._deadlines: list[tuple[float, str]] = []
        self._released: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open_traces)

    def __contains__(self, trace: str) -> bool:
        """Whether a trace of that id waits."""
        return trace in self._open_traces

    def add(self, spans: Iterable[OtelSpan], now: float, events: Iterable[SpanEvent] = ()) -> None:
        """Take in spans, and records of a log that name a trace."""
        for one in spans:
            trace = self._get_open_trace(one.trace, now)
            if trace is not None:
                self._add_span(trace, one, now)
        for event in events:
            self._add_event(event, now)

    def pop_finished(self, now: float) -> list[CollectedTrace]:
        """The traces that go out by now: those that are due in the order of it, then those without room."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            due, name = heappop(self._deadlines)
            trace = self._open_traces.get(name)
            if trace is not None and self._get_deadline(trace) <= due:
                settled = trace.root_seen is not None and trace.root_seen + self.settle_time <= due
                found.append(self._release(name, "settled" if settled else "expired"))
        while self.size > self.max_bytes and self._open_traces:
            found.append(self._release(next(iter(self._rooted_traces or self._open_traces)), "crowded"))
        return found

    def flush(self) -> Iterator[CollectedTrace]:
        """All that is left, those first that came first; where nothing more will come."""
        for name in list(self._open_traces):
            rooted = self._open_traces[name].root_seen is not None
            yield self._release(name, "settled" if rooted else "expired")

    # --- one of them ---------------------------------------------------------------------------

    def _get_open_trace(self, name: str, now: float) -> OpenTrace | None:
        """The open trace of that name; None for one that has gone out, or has all that it may have."""
        trace = self._open_traces.get(name)
        if trace is None:
            if name in self._released:
                self.counts.late += 1
                return None
            trace = self._open_traces[name] = OpenTrace(now)
            heappush(self._deadlines, (now + self.max_wait, name))
        return trace

    def _add_span(self, trace: OpenTrace, span: OtelSpan, now: float) -> None:
        known = trace.spans.get(span.id)
        if known is not None:
            self.counts.duplicates += 1
            if known == span or choose_fuller_span(known, span) is known:
                return
            self._add_size(trace, -estimate_record_size(known))
        elif len(trace.spans) + len(trace.events) >= self.max_spans and span.parent is not None:
            self.counts.over_limit += 1
            return
        else:
            self.counts.accepted += 1
        trace.spans[span.id] = span
        self._add_size(trace, estimate_record_size(span))
        if span.parent is None and trace.root_seen is None:
            trace.root_seen = now
            self._rooted_traces[span.trace] = None
            heappush(self._deadlines, (self._get_deadline(trace), span.trace))

    def _add_event(self, event: SpanEvent, now: float) -> None:
        if not event.trace.strip("0"):
            self.counts.without_trace += 1
            return
        trace = self._get_open_trace(event.trace, now)
        if trace is None:
            return
        key = blake2b(msgspec.msgpack.encode(event), digest_size=16).digest()
        if key in trace.events:
            self.counts.duplicates += 1
            return
        if len(trace.spans) + len(trace.events) >= self.max_spans:
            self.counts.over_limit += 1
            return
        self.counts.accepted += 1
        trace.events[key] = event
        self._add_size(trace, estimate_record_size(event))

    def _add_size(self, trace: OpenTrace, size: int) -> None:
        trace.size += size
        self.size += size

    def _get_deadline(self, trace: OpenTrace) -> float:
        longest = trace.first_seen + self.max_wait
        return longest if trace.root_seen is None else min(longest, trace.root_seen + self.settle_time)

    def _release(self, name: str, reason: ReleaseReason) -> CollectedTrace:
        trace = self._open_traces.pop(name)
        self._rooted_traces.pop(name, None)
        self.size -= trace.size
        self._released[name] = None
        while len(self._released) > self.max_released:
            self._released.popitem(last=False)
        setattr(self.counts, reason, getattr(self.counts, reason) + 1)
        operations = sorted(trace.spans.values(), key=lambda one: (one.start, -one.end, one.id))
        events = sorted(trace.events.items(), key=lambda pair: (pair[1].time, pair[0]))
        if len(self._deadlines) > 1000 + 4 * len(self._open_traces):
            self._rebuild_deadlines()
        return CollectedTrace(name, tuple(operations), tuple(event for _, event in events), reason)

    def _rebuild_deadlines(self) -> None:
        """Make the list of what is due anew, without what has gone out."""
        self._deadlines = [(self._get_deadline(trace), name) for name, trace in self._open_traces.items()]
        heapify(self._deadlines)

    # --- on disk -------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """All that the window knows, to go on from with `Window.load`."""
        return msgspec.msgpack.encode(
            BufferState(
                BUFFER_FORMAT,
                self.settle_time,
                self.max_wait,
                self.max_bytes,
                self.max_spans,
                self.max_released,
                dict(self._open_traces),
                list(self._released),
                self.counts,
            )
        )

    @staticmethod
    def load(data: bytes) -> SpanBuffer:
        """The window that was dumped; raises `InputError` where the data is of another making.

        >>> window = SpanBuffer()
        >>> window.add([OtelSpan(trace="a", id="1")], now=0)
        >>> len(SpanBuffer.load(window.dump()))
        1
        """
        try:
            state = msgspec.msgpack.decode(data, type=BufferState)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InputError("the data is not a window of spans: begin with an empty one") from None
        if state.format != BUFFER_FORMAT:
            raise InputError(
                f"the window is of format {state.format}, and this is {BUFFER_FORMAT}: begin anew"
            )
        window = SpanBuffer(
            state.settle_time,
            state.max_wait,
            max_bytes=state.max_bytes,
            max_spans=state.max_spans,
            max_released=state.max_released,
        )
        window.counts = state.counts
        window._open_traces.update(state.open_traces)
        window._released.update(dict.fromkeys(state.released))
        rooted = [
            (trace.root_seen, name)
            for name, trace in state.open_traces.items()
            if trace.root_seen is not None
        ]
        window._rooted_traces.update({name: None for _, name in sorted(rooted, key=lambda pair: pair[0])})
        window._rebuild_deadlines()
        window.size = sum(trace.size for trace in state.open_traces.values())
        return window


def estimate_record_size(record: OtelSpan | SpanEvent) -> int:
    """About how many bytes a record takes."""
    size = RECORD_OVERHEAD + len(record.name) + _estimate_value_size(record.attributes)
    if isinstance(record, OtelSpan):
        size += (
            len(record.message)
            + _estimate_value_size(record.resource)
            + sum(map(estimate_record_size, record.events))
        )
    return size


def _estimate_value_size(value: object) -> int:
    if isinstance(value, str):
        return 64 + len(value)
    if isinstance(value, dict):
        return 64 + sum(len(name) + _estimate_value_size(part) for name, part in value.items())
    if isinstance(value, list):
        return 64 + sum(map(_estimate_value_size, value))
    return 64
