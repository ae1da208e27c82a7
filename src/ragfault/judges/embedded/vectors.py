"""Vectors: what words mean, as a table of stems, so that "physician" is near "doctor"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from ragfault.judges.rarity import rarity
from ragfault.text import STOP

__all__ = ["Array", "Vectors", "load", "vectors"]

Array = np.ndarray[Any, Any]


class Vectors(NamedTuple):
    """The table: a row for each stem it knows, then one for each stop word, for numbers and for the unknown."""

    rows: dict[str, int]
    """Stem or stop word → its row."""
    table: Array
    """Whole numbers from -127 to 127, so that their products are exact on every machine; a zero row stands for a
    word without meaning of its own."""
    lengths: Array
    """The length of each row, 1 where it is zero."""
    rarities: Array
    """What the word of each row tells; not so for numbers and the unknown."""
    stems: int
    """So many stems come first, then the stop words."""
    number: int
    """The row of a number that is not in the table."""
    unknown: int
    """The row of any other word that is not."""
    blank: int
    """The row of no word at all."""

    def row(self, word: str) -> int:
        """The row of a word in normal form (see `ragfault.text.words`)."""
        found = self.rows.get(word)
        if found is not None:
            return found
        return self.number if word[0].isdigit() else self.unknown

    def lines(self, words: Sequence[str]) -> Array:
        """The rows of many words."""
        get, unknown = self.rows.get, self.unknown
        rows = [get(word, unknown) for word in words]
        if unknown in rows:
            for place, row in enumerate(rows):
                if row == unknown and words[place][0].isdigit():
                    rows[place] = self.number
        return np.array(rows, np.int64)

    def meanings(self, rows: Array) -> Array:
        """The vectors of some rows, in single precision."""
        found: Array = self.table[rows].astype(np.float32)
        return found

    def weights(self, words: Sequence[str], rows: Array) -> Array:
        """What some words in these rows tell, by their rarity."""
        found: Array = self.rarities[rows]
        for place in np.flatnonzero(rows >= self.number).tolist():
            found[place] = rarity()(words[place])
        return found

    def told(self, rows: Array) -> Array:
        """Whether the words of some rows carry content."""
        return (rows < self.stems) | (rows >= self.number)


def load(name: str) -> dict[str, Array]:
    """The arrays of one of the files that come with the package."""
    with files(__package__).joinpath(name).open("rb") as file, np.load(file, allow_pickle=False) as packed:
        return {key: packed[key] for key in packed.files}


@cache
def vectors() -> Vectors:
    """The table that the package carries, read once.

    >>> table = vectors()
    >>> def near(one, two):
    ...     a, b = table.meanings(table.lines([one, two]))
    ...     return float(a @ b / np.sqrt((a @ a) * (b @ b)))
    >>> near("physician", "doctor") > 0.6 > near("physician", "restaur")
    True
    """
    packed = load("vectors.npz")
    stems = bytes(packed["stems"]).decode().split("\n")
    words = [*map(intern, stems), *sorted(STOP)]
    table = np.zeros((len(words) + 3, packed["table"].shape[1]), np.int8)
    table[: len(stems)] = packed["table"]
    lengths = np.sqrt((table.astype(float) ** 2).sum(1)).astype(np.float32)
    lengths[lengths == 0] = 1.0
    rows = {word: place for place, word in enumerate(words)}
    rarities = np.zeros(len(table), np.float32)
    tell = rarity()
    rarities[: len(words)] = [tell(word) for word in words]
    return Vectors(rows, table, lengths, rarities, len(stems), len(words), len(words) + 1, len(words) + 2)
