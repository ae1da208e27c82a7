"""Semantic breaks: where the topic of a text shifts, by the similarity of the sentences on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ragfault.judges.embedded.vectors import embed_word_vectors
from ragfault.protocols import Embedder
from ragfault.retrieval.chunking.token_spans import TokenSpan, make_break_finder

SENTENCE_BATCH = 256
CONTEXT_SENTENCES = 3
"""So many sentences are compared on each side (blocks, as in TextTiling: Hearst 1997)."""

Array = np.ndarray[Any, Any]


def measure_topic_shifts(texts: Sequence[str], embedder: Embedder | None = None) -> list[float]:
    """Return the distance of each sentence but the first, with the two after it, from the three before, in [0, 1].

    Half of 1 less the cosine of the sums of their vectors; 0.5 where one side says nothing.
    """
    embed = embed_word_vectors if embedder is None else embedder.embed
    shifts: list[float] = []
    for first in range(1, len(texts), SENTENCE_BATCH):
        last = min(first + SENTENCE_BATCH, len(texts))
        low, high = max(first - CONTEXT_SENTENCES, 0), min(last - 1 + CONTEXT_SENTENCES, len(texts))
        rows = np.asarray(embed(texts[low:high]), np.float32)
        shifts += _compute_distances(rows, np.arange(first - low, last - low))
    return shifts


def _compute_distances(rows: Array, places: Array) -> list[float]:
    """Return the distance of the rows from each position on from the rows before."""
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0, dtype=np.float64)])
    left = sums[places] - sums[np.maximum(places - CONTEXT_SENTENCES, 0)]
    right = sums[np.minimum(places + CONTEXT_SENTENCES, len(rows))] - sums[places]
    scale = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = (left * right).sum(axis=1) / np.where(scale > 0, scale, 1)
    distances: list[float] = np.round((1 - np.where(scale > 0, cosine, 0)) / 2, 6).tolist()
    return distances


def make_semantic_divider(
    breaks: Sequence[int], strengths: dict[int, float], max_tokens: int
) -> Callable[[TokenSpan], list[TokenSpan]]:
    """Return the divider into spans of at most `max_tokens`, at the strongest break in their second half.

    Equal breaks: the later one; no break in the second half: the last before; none at all: when it is full.

    >>> make_semantic_divider([3, 5, 6, 9], {3: 0.1, 5: 0.4, 6: 0.2, 9: 0.3}, 6)(TokenSpan(0, 12))
    [TokenSpan(start=0, end=5), TokenSpan(start=5, end=9), TokenSpan(start=9, end=12)]
    """
    known = make_break_finder(breaks)

    def way(span: TokenSpan) -> list[TokenSpan]:
        pieces: list[TokenSpan] = []
        start = span.start
        while span.end - start > max_tokens:
            open_ = known(start, start + max_tokens + 1)
            late = [place for place in open_ if place - start >= (max_tokens + 1) // 2]
            if late:
                end = max(late, key=lambda place: (strengths.get(place, 0.0), place))
            else:
                end = open_[-1] if open_ else start + max_tokens
            pieces.append(TokenSpan(start, end))
            start = end
        return [*pieces, TokenSpan(start, span.end)]

    return way
