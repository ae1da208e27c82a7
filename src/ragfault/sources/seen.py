"""The ids that have been met, at about nine bytes each.

Only a 64-bit hash of each id is kept: recent ones in a set, the rest in sorted arrays, one for each of 256 ranges
of hashes, so that taking more in copies one range at a time. Two ids among a hundred million are taken for the same
with a chance of about 1 in 4,000.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

__all__ = ["Seen"]

RANGES, SHIFT = 256, 56
"""Ranges of hashes, told apart by their highest eight bits."""

RECENT = 2**16
"""How many hashes the set holds at least before they move to the array."""


class Seen:
    """A set of ids that only grows.

    >>> seen = Seen()
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (True, True, False)
    """

    def __init__(self) -> None:
        self.recent: set[int] = set()
        self.old: list[Any] = [memoryview(b"").cast("B")] * RANGES
        self.room = RECENT

    def __len__(self) -> int:
        return len(self.recent) + sum(map(len, self.old))

    def __contains__(self, name: str) -> bool:
        key = hash(name)
        return key in self.recent or self._kept(key)

    def add(self, name: str) -> bool:
        """Take the id in; False where it was in already."""
        key = hash(name)
        if key in self.recent or self._kept(key):
            return False
        self.recent.add(key)
        if len(self.recent) >= self.room:
            self._merge()
        return True

    def _kept(self, key: int) -> bool:
        old = self.old[(key >> SHIFT) + RANGES // 2]
        if not old:
            return False
        place = bisect_left(old, key)
        return place < len(old) and old[place] == key

    def _merge(self) -> None:
        import numpy as np

        new = np.fromiter(self.recent, np.int64, len(self.recent))
        new.sort()
        ends = np.searchsorted(new >> SHIFT, np.arange(RANGES) - RANGES // 2, side="right")
        for at, part in enumerate(np.split(new, ends[:-1])):
            kept = np.concatenate([np.asarray(self.old[at], np.int64), part])
            kept.sort(kind="stable")
            self.old[at] = memoryview(kept.data).cast("B").cast("q")
        self.recent.clear()
        self.room = max(RECENT, len(self) // 64)
