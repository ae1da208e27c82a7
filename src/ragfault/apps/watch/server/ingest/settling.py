"""How long a trace waits for spans after its root, learned from the traffic, and the spans kept for late ones."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

SPAN_TIMEOUT = 6.0
"""Seconds from the root of a trace to its end, at least: OpenTelemetry's exporters send every 5 s by default."""
# at most, whatever the traffic does: traces with later spans are reopened
MAX_SPAN_TIMEOUT = 60.0
# of the traces are to be whole when they are stored
COMPLETE_SHARE = 0.99
# of the latest spans of a trace the wait is longer by this factor
MARGIN = 1.25
# latest traces that the wait is learned from
LEARNED_COUNT = 1000
REOPEN_SECONDS = 600.0
"""Seconds for which a stored trace takes further spans."""
# bytes of spans that are kept for that, at most; the traces that were stored first lose theirs
MAX_RETAINED_BYTES = 256_000_000


class SpanWait:
    """Seconds that a trace waits after its root: longer than the spans of 99 % of the latest traces needed.

    >>> wait = SpanWait(6.0)
    >>> for late in (0.1, 12.0, 12.0): wait.add(late)
    >>> wait.seconds, wait.latest
    (15.0, 12.0)
    """

    def __init__(self, least: float = SPAN_TIMEOUT) -> None:
        self._least, self.seconds = least, least
        self._delays: deque[float] = deque(maxlen=LEARNED_COUNT)

    def add(self, delay: float) -> None:
        """Learn the seconds from the root of a trace to the arrival of its last span."""
        self._delays.append(delay)
        # most traces are whole long before, and change nothing
        if delay * MARGIN > self._least or self.seconds > self._least:
            ordered = sorted(self._delays)
            needed = MARGIN * ordered[int(COMPLETE_SHARE * (len(ordered) - 1))]
            self.seconds = min(max(self._least, needed), max(self._least, MAX_SPAN_TIMEOUT))

    @property
    def latest(self) -> float:
        """The longest of the delays; 0 without any."""
        return max(self._delays, default=0.0)


class RetainedTrace(NamedTuple):
    """The spans of a stored trace, as numbers of bodies in the store."""

    numbers: tuple[int, ...]
    size: int
    until: float
    root_seen: float | None


class RetainedSpans:
    """Stored traces that take further spans, for a while."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, RetainedTrace] = OrderedDict()
        self._size = 0

    def add(self, trace: str, retained: RetainedTrace) -> None:
        """Keep the spans of a trace that was stored."""
        self._traces[trace] = retained
        self._size += retained.size

    def pop(self, trace: str) -> RetainedTrace | None:
        """Return the spans of a trace that is reopened; None where they are not kept."""
        retained = self._traces.pop(trace, None)
        self._size -= 0 if retained is None else retained.size
        return retained

    def pop_expired(self, now: float) -> list[int]:
        """Return the numbers of the bodies whose time is over, or that have no room."""
        numbers: list[int] = []
        while self._traces:
            trace, retained = next(iter(self._traces.items()))
            if retained.until > now and self._size <= MAX_RETAINED_BYTES:
                break
            self.pop(trace)
            numbers += retained.numbers
        return numbers
