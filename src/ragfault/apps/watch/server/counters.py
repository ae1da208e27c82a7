"""Event counters and the latency histogram that the server reports about itself."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from itertools import accumulate

from ragfault.apps.watch.server.storage.records import EventCount
from ragfault.apps.watch.server.storage.store import TraceStore


class EventCounters:
    """Counts by name and minute, buffered in memory and flushed to the store."""

    def __init__(self, store: TraceStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._pending: Counter[tuple[str, int]] = Counter()
        self._totals: Counter[str] = Counter()

    def add(self, name: str, n: int = 1) -> None:
        """Add to a count."""
        if n:
            with self._lock:
                self._pending[name, self.minute] += n
                self._totals[name] += n

    def add_stored(self, name: str, n: int) -> None:
        """Add to a count since the start that the store has already."""
        if n:
            with self._lock:
                self._totals[name] += n

    @property
    def minute(self) -> int:
        """The present minute, under which events are counted."""
        return math.floor(self._clock() / 60)

    @property
    def totals(self) -> dict[str, int]:
        """The counts since the server started."""
        with self._lock:
            return dict(sorted(self._totals.items()))

    def flush(self) -> None:
        """Write the buffered counts to the store."""
        with self._lock:
            fresh, self._pending = self._pending, Counter()
        if fresh:
            self._store.add_counts([EventCount(name, minute, count) for (name, minute), count in sorted(fresh.items())])


LATENCY_EDGES = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper ends of the bins, in seconds; the last bin has none."""

# the number of latest traces that the quantiles describe
RECENT_COUNT = 1000


class LatencyHistogram:
    """Histogram of delays; one thread adds, any thread reads.

    >>> latency = LatencyHistogram()
    >>> for seconds in (0.05, 0.3, 0.4, 7.0): latency.add(seconds)
    >>> latency.count, latency.quantile(0.5), latency.quantile(0.95)
    (4, 0.4, 7.0)
    >>> latency.cumulative_counts()[:4]
    [1, 1, 3, 3]
    """

    def __init__(self) -> None:
        self._bins = [0] * (len(LATENCY_EDGES) + 1)
        self._recent: deque[float] = deque(maxlen=RECENT_COUNT)
        self.sum = 0.0
        """Sum of all delays in seconds."""

    def add(self, seconds: float) -> None:
        """Add a delay; a negative one (a clock set back) counts as 0."""
        seconds = max(0.0, seconds)
        self._bins[bisect_left(LATENCY_EDGES, seconds)] += 1
        self._recent.append(seconds)
        self.sum += seconds

    @property
    def count(self) -> int:
        """The number of delays since the start."""
        return sum(self._bins)

    def cumulative_counts(self) -> list[int]:
        """Return the number of delays at or below each of `LATENCY_EDGES`."""
        return list(accumulate(self._bins[:-1]))

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the latest delays; None without any."""
        ordered = sorted(self._recent.copy())
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
