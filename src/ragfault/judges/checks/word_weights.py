"""Slots of trained weights of words: terms that share a slot are rare, and its weight is what they tell together."""

from __future__ import annotations

import zlib
from collections.abc import Iterable


def hash_terms(terms: Iterable[str], slots: int) -> list[int]:
    """Return the slots of some terms, ascending and once each.

    >>> hash_terms(["a", "b", "a"], 8192)
    [4089, 7747]
    """
    return sorted({zlib.crc32(term.encode()) % slots for term in terms})
