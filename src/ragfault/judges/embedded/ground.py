"""Ground: the passages of a trace as arrays, ready to hold claims against."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property

import numpy as np

from ragfault.judges.embedded.vectors import Array, Vectors
from ragfault.judges.index import Index
from ragfault.judges.rarity import Rarity

__all__ = ["Ground", "foreign", "sequences"]

ENOUGH, MANY = 4, 8
"""A text of fewer words is of no language; one of so many without any stop word is foreign."""
EXACT = 1000
"""So many words, weighed and added up, are exact in single precision."""
UNKNOWN, STOPS = 0.2, 0.25
"""A text is foreign where so large a share of its words is unknown and so small a share are stop words."""


def foreign(rows: Array, table: Vectors, owner: Array | None = None, shared: Array | None = None) -> Array:
    """Whether words, by their rows in the table, are of another language than English: for each text that owns some.

    Numbers are of none; nor are unknown words that are `shared` with an English text: they are names.
    """
    owner = np.zeros(len(rows), np.int64) if owner is None else owner
    strange = rows == table.unknown if shared is None else (rows == table.unknown) & ~shared
    told, unknown, stops = (
        np.bincount(owner, hits, 1) for hits in (rows != table.number, strange, ~table.told(rows))
    )
    other = (unknown >= UNKNOWN * told) & (stops < STOPS * told)
    found: Array = (told >= ENOUGH) & (other | ((told >= MANY) & (stops == 0)))
    return found


def sequences(tokens: Array, base: int) -> dict[int, Array]:
    """All runs of two, three and four words, each as one number, sorted."""
    found, code = {}, tokens
    for size in (2, 3, 4):
        code = code[:-1] * base + tokens[size - 1 :] if len(tokens) >= size else code[:0]
        found[size] = np.sort(code)
    return found


class Ground:
    """What is known of some passages: their words by number, their runs of words, their sentences as vectors.

    Every array here is made from the passages alone.
    """

    def __init__(self, index: Index, table: Vectors, rarity: Rarity) -> None:
        self.index, self.table, self.rarity = index, table, rarity
        sentences, spoken = index.sentences, index.tokens
        stems = list(dict.fromkeys(spoken))
        self.numbers = {stem: number for number, stem in enumerate(stems)}
        """Stem → its number in this trace."""
        self.tokens: Array = np.array(list(map(self.numbers.__getitem__, spoken)), np.int64)
        self.sizes: Array = np.array([len(one.tokens) for one in sentences], np.int64)
        self.starts: Array = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.rows: Array = table.lines(stems)
        told = table.told(self.rows)
        self.weights: Array = table.weights(stems, self.rows) * told
        self.vectors: Array = table.meanings(self.rows)
        self.vectors[~told] = 0.0
        self.lengths: Array = table.lengths[self.rows]
        self.mass: Array = self._mass()
        """For each sentence, what its words of content tell together."""
        self.negated: Array = np.array([one.negated for one in sentences], bool)
        self.keyed: Array = np.array([bool(one.key) for one in sentences], bool)

    def _mass(self) -> Array:
        place = np.sort(np.arange(len(self.sizes)).repeat(self.sizes) * self.base + self.tokens)
        first = np.ones(len(place), bool)
        first[1:] = place[1:] != place[:-1]
        sentence, word = np.divmod(place[first], self.base)
        mass: Array = np.bincount(sentence, self.weights.astype(float)[word], len(self.sizes))
        return mass

    @property
    def base(self) -> int:
        """The base in which runs of words are written as one number."""
        return len(self.numbers) + 1

    def runs(self, size: int) -> Array:
        """All runs of so many words, as sorted numbers."""
        return self._runs[size]

    @cached_property
    def _runs(self) -> dict[int, Array]:
        return sequences(self.tokens, self.base)

    @cached_property
    def meanings(self) -> Array:
        """For each sentence its vector of length 1: the weighted sum of those of its words."""
        sums = np.zeros((len(self.sizes), self.vectors.shape[1]))
        if len(self.tokens):
            some = self.sizes > 0
            # Weights are whole numbers of eighths: single precision holds the sums of all but very long sentences.
            exact = np.float32 if self.sizes.max() < EXACT else float
            weighted = self.vectors.astype(exact, copy=False) * self.weights[:, None]
            sums[some] = np.add.reduceat(weighted[self.tokens], self.starts[:-1][some], axis=0)
        unit: Array = sums / (np.sqrt(np.add.reduce(sums**2, axis=1, keepdims=True)) + 1e-9)
        return unit

    @cached_property
    def denied(self) -> float:
        """The share of sentences that deny something."""
        return np.count_nonzero(self.negated) / len(self.negated)

    @cached_property
    def records(self) -> float:
        """The share of sentences that are fields of records."""
        return np.count_nonzero(self.keyed) / len(self.keyed)

    @cached_property
    def keys(self) -> dict[str, Set[str]]:
        """What records say: the stems of keys that are absent, that say no, and that say yes."""
        said: dict[str, set[str]] = {"absent": set(), "no": set(), "yes": set()}
        for key, polarity in self.index.fields:
            said[polarity] |= key
        yes = frozenset(said["yes"])
        return {"absent": said["absent"] - yes, "no": said["no"] - yes, "yes": yes}
