"""How long traces wait from being stored to being judged: a histogram since the start, and quantiles of late."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

__all__ = ["EDGES", "Delays"]

EDGES = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper ends of the bins, in seconds; the last bin has none."""

LATELY = 1000
"""Traces that the quantiles are of."""


class Delays:
    """Counts delays; one thread adds, any thread reads.

    >>> found = Delays()
    >>> for seconds in (0.05, 0.3, 0.4, 7.0): found.add(seconds)
    >>> found.count, found.quantile(0.5), found.quantile(0.95)
    (4, 0.4, 7.0)
    >>> found.below()[:4]
    [1, 1, 3, 3]
    """

    def __init__(self) -> None:
        self._bins = [0] * (len(EDGES) + 1)
        self._late: deque[float] = deque(maxlen=LATELY)
        self.sum = 0.0
        """Seconds, all together."""

    def add(self, seconds: float) -> None:
        """Count one; a clock that was set back counts as no delay."""
        seconds = max(0.0, seconds)
        self._bins[bisect_left(EDGES, seconds)] += 1
        self._late.append(seconds)
        self.sum += seconds

    @property
    def count(self) -> int:
        """How many, since the start."""
        return sum(self._bins)

    def below(self) -> list[int]:
        """How many lie at or below each of `EDGES`."""
        found, total = [], 0
        for n in self._bins[:-1]:
            total += n
            found.append(total)
        return found

    def quantile(self, share: float) -> float | None:
        """The delay that this share of the latest traces does not pass; None where there was none."""
        found = sorted(self._late.copy())
        return found[min(len(found) - 1, int(share * len(found)))] if found else None
