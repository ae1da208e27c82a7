"""Rarity: how much a word tells, from a background table of many texts."""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Rarity", "rarity"]


class Rarity(NamedTuple):
    """How rare each stem is: the natural logarithm of texts per text that holds it."""

    levels: dict[str, float]
    unseen: float
    """Of a stem that is not in the table."""
    digest: str
    """Names the table in a judge's fingerprint."""

    def __call__(self, stem: str) -> float:
        """The rarity of one stem."""
        return self.levels.get(stem, self.unseen)

    def total(self, stems: Iterable[str]) -> float:
        """The rarity of some stems together."""
        get, unseen = self.levels.get, self.unseen
        return sum([get(stem, unseen) for stem in stems])


@cache
def rarity() -> Rarity:
    """The table that the package carries, read once.

    >>> table = rarity()
    >>> table("peopl") < table("glacier") < table("xyzzy")
    True
    """
    packed = files(__package__).joinpath("rarity.txt.gz").read_bytes()
    head, *lines = gzip.decompress(packed).decode().split("\n")
    facts = dict(zip(head.split()[::2], map(float, head.split()[1::2]), strict=True))
    levels = {
        sys.intern(stem): int(level) / facts["step"]
        for level, _, stems in (line.partition(" ") for line in lines)
        for stem in stems.split(" ")
    }
    return Rarity(levels, facts["unseen"] / facts["step"], hashlib.sha256(packed).hexdigest()[:8])
