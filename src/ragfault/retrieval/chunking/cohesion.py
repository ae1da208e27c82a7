"""Cohesion: where a text turns to something else, by how little the sentences on both sides have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ragfault.ports import Embedder
from ragfault.retrieval.chunking.cutting import Piece, between
from ragfault.text import words

__all__ = ["at_turns", "meanings", "turning"]

BATCH = 256
AROUND = 3
"""So many sentences are compared on each side (blocks, as in TextTiling: Hearst 1997)."""

Array = np.ndarray[Any, Any]


def meanings(texts: Sequence[str]) -> Array:
    """A row for each text out of the word vectors that come with ragfault: their sum by rarity, of length 1."""
    from ragfault.judges.embedded.vectors import vectors

    table = vectors()
    held = [words(text) for text in texts]
    told = [place for place, each in enumerate(held) if each]
    rows = np.zeros((len(texts), table.table.shape[1]), np.float32)
    if told:
        flat = [word for each in held for word in each]
        lines = table.lines(flat)
        weights = (table.weights(flat, lines) / table.lengths[lines]).astype(np.float32)
        starts = np.cumsum([0, *(len(held[place]) for place in told[:-1])])
        rows[told] = np.add.reduceat(table.meanings(lines) * weights[:, None], starts)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def turning(texts: Sequence[str], embedder: Embedder | None = None) -> list[float]:
    """For each sentence but the first how far it and the two after it are from the three before it, in [0, 1].

    Half of 1 less the cosine of the sums of their vectors; 0.5 where one side says nothing.
    """
    embed = meanings if embedder is None else embedder.embed
    found: list[float] = []
    for first in range(1, len(texts), BATCH):
        last = min(first + BATCH, len(texts))
        low, high = max(first - AROUND, 0), min(last - 1 + AROUND, len(texts))
        rows = np.asarray(embed(texts[low:high]), np.float32)
        found += _distances(rows, np.arange(first - low, last - low))
    return found


def _distances(rows: Array, here: Array) -> list[float]:
    """How far the rows from some places on are from those before."""
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0, dtype=np.float64)])
    left = sums[here] - sums[np.maximum(here - AROUND, 0)]
    right = sums[np.minimum(here + AROUND, len(rows))] - sums[here]
    scale = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = (left * right).sum(axis=1) / np.where(scale > 0, scale, 1)
    found: list[float] = np.round((1 - np.where(scale > 0, cosine, 0)) / 2, 6).tolist()
    return found


def at_turns(breaks: Sequence[int], strength: dict[int, float], room: int) -> Callable[[Piece], list[Piece]]:
    """The way to divide a run of tokens into pieces of at most `room`, at the strongest break in their second half.

    Equal breaks: the later one; no break in the second half: the last before; none at all: when it is full.

    >>> at_turns([3, 5, 6, 9], {3: 0.1, 5: 0.4, 6: 0.2, 9: 0.3}, 6)(Piece(0, 12))
    [Piece(start=0, end=5), Piece(start=5, end=9), Piece(start=9, end=12)]
    """
    known = between(breaks)

    def way(whole: Piece) -> list[Piece]:
        pieces: list[Piece] = []
        start = whole.start
        while whole.end - start > room:
            open_ = known(start, start + room + 1)
            late = [place for place in open_ if place - start >= (room + 1) // 2]
            if late:
                end = max(late, key=lambda place: (strength.get(place, 0.0), place))
            else:
                end = open_[-1] if open_ else start + room
            pieces.append(Piece(start, end))
            start = end
        return [*pieces, Piece(start, whole.end)]

    return way
