"""The ids that have been met, at about nine bytes each.

Only a 64-bit hash of each id is kept: recent ones in a set, the rest in one sorted array. Two ids among a
hundred million are taken for the same with a chance of about 1 in 4,000.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

__all__ = ["Seen"]

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
        self.old: Any = memoryview(b"").cast("B")
        self.room = RECENT

    def __len__(self) -> int:
        return len(self.recent) + len(self.old)

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
        old = self.old
        if not old:
            return False
        place = bisect_left(old, key)
        return place < len(old) and old[place] == key

    def _merge(self) -> None:
        import numpy as np

        new = np.fromiter(self.recent, np.int64, len(self.recent))
        kept = np.concatenate([np.asarray(self.old, np.int64), new])
        kept.sort(kind="stable")
        self.old = memoryview(kept.data).cast("B").cast("q")
        self.recent.clear()
        self.room = max(RECENT, len(kept) // 64)
