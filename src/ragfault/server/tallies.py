"""Tallies: how often something was refused, dropped, repeated or sent, so that nothing is lost in silence."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable

from ragfault.store import Count, Store

__all__ = ["Tallies"]


class Tallies:
    """Counts by name, kept in the store by the minute."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._fresh: Counter[tuple[str, int]] = Counter()
        self._total: Counter[str] = Counter()

    def add(self, name: str, n: int = 1) -> None:
        """Count something."""
        if n:
            with self._lock:
                self._fresh[name, math.floor(self._clock() / 60)] += n
                self._total[name] += n

    @property
    def total(self) -> dict[str, int]:
        """What was counted since the server began."""
        with self._lock:
            return dict(sorted(self._total.items()))

    def flush(self) -> None:
        """Bring what was counted to the store."""
        with self._lock:
            fresh, self._fresh = self._fresh, Counter()
        if fresh:
            self._store.add_counts([Count(name, minute, n) for (name, minute), n in sorted(fresh.items())])
