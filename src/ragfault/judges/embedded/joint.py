"""Joint: several grounds in a row, so that claims about different passages are held against them all at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ragfault.judges.embedded.ground import Ground, sequences
from ragfault.judges.embedded.vectors import Array

__all__ = ["Joint"]


class Joint:
    """Grounds in a row, each with sentences and words of its own; G of them, S sentences, D words."""

    def __init__(self, grounds: Sequence[Ground]) -> None:
        self.grounds = grounds
        self.table, self.rarity = grounds[0].table, grounds[0].rarity
        counts = np.array([len(one.sizes) for one in grounds])
        self.firsts: Array = counts.cumsum() - counts
        """[G] The first sentence of each ground."""
        self.counts: Array = counts
        """[G] So many sentences each has."""
        self.group: Array = np.arange(len(grounds)).repeat(counts)
        """[S] The ground that each sentence belongs to."""
        sizes = [len(one.numbers) for one in grounds]
        self.words = [sum(sizes[:place]) for place in range(len(grounds) + 1)]
        """[G + 1] The number of the first word of each ground, and of all words."""
        self.base = self.words[-1] + 1
        self.tokens: Array = _row(
            [one.tokens + first for one, first in zip(grounds, self.words, strict=False)]
        )
        self.sizes: Array = _row([one.sizes for one in grounds])
        self.starts: Array = grounds[0].starts if len(grounds) == 1 else np.append(0, self.sizes.cumsum())
        self.rows: Array = _row([one.rows for one in grounds])
        self.mass: Array = _row([one.mass for one in grounds])
        self.meanings: Array = _row([one.meanings for one in grounds])
        self.negated: Array = _row([one.negated for one in grounds])
        self.keyed: Array = _row([one.keyed for one in grounds])

    def runs(self, size: int) -> Array:
        """All runs of so many words, as sorted numbers; those from one ground into the next are no claim's."""
        return self.grounds[0].runs(size) if len(self.grounds) == 1 else self._runs[size]

    @cached_property
    def _runs(self) -> dict[int, Array]:
        return sequences(self.tokens, self.base)


def _row(arrays: Sequence[Array]) -> Array:
    """Arrays one after another."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
