"""Selection: which of the chunks that were found reach the generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Embedder
from ragfault.records import Chunk
from ragfault.retrieval.complexity import complexity
from ragfault.retrieval.records import Found, Hits, Query, Stage
from ragfault.text import shingles

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SIMPLE", "adaptive", "budget", "distinct", "diverse", "reorder", "top"]

SIMPLE = ((0.3, 3), (0.7, 5), (float("inf"), 7))
"""Below each complexity so many chunks: 3 for a simple query, 5 for a middling one, 7 for a complex one."""


def top(k: int) -> Stage:
    """The stage that keeps the first `k` hits.

    >>> hits = tuple(Chunk(id=name) for name in "abc")
    >>> [hit.id for hit in top(2)(Query(text="?"), hits).hits]
    ['a', 'b']
    """
    _positive(k=k)
    return lambda query, hits: Found(query, hits[:k])


def adaptive(bar: float = 0.5, counts: Sequence[tuple[float, int]] = SIMPLE) -> Stage:
    """The stage that keeps hits above a relevance, as many as the complexity of the query calls for.

    It reads scores as relevance in [0, 1], as a reranker gives them; raises UsageError where they are not.

    >>> hits = tuple(Chunk(id=str(n), score=score) for n, score in enumerate([0.9, 0.8, 0.7, 0.6, 0.4]))
    >>> [len(adaptive()(Query(text=text), hits).hits) for text in ("ferry times", "What does the API return?")]
    [3, 4]
    """

    def stage(query: Query, hits: Hits) -> Found:
        wrong = next((hit for hit in hits if hit.score is None or not 0 <= hit.score <= 1), None)
        if wrong is not None:
            raise UsageError(
                f'adaptive selection reads scores as relevance from 0 to 1, and chunk "{wrong.id}" has {wrong.score}. '
                "Put a stage before it that reranks."
            )
        many = next(count for limit, count in counts if complexity(query.text) < limit)
        kept = sorted((hit for hit in hits if _score(hit) > bar), key=_score, reverse=True)
        return Found(query, tuple(kept[:many]))

    return stage


def budget(tokens: int, count: Callable[[str], int] | None = None) -> Stage:
    """The stage that keeps hits, in order, as long as their texts together have at most so many tokens.

    A hit that does not fit is passed over, and shorter ones behind it may still fit. Tokens are characters / 4, rounded
    up, where no `count` is given.

    >>> hits = tuple(Chunk(id=name, text=text) for name, text in {"a": "x" * 40, "b": "y" * 400, "c": "z" * 20}.items())
    >>> [hit.id for hit in budget(15)(Query(text="?"), hits).hits]
    ['a', 'c']
    """
    _positive(tokens=tokens)
    size = count or (lambda text: -(-len(text) // 4))

    def stage(query: Query, hits: Hits) -> Found:
        kept, left = [], tokens
        for hit in hits:
            if (need := size(hit.text)) <= left:
                kept.append(hit)
                left -= need
        return Found(query, tuple(kept))

    return stage


def distinct(threshold: float = 0.8) -> Stage:
    """The stage that drops hits that nearly repeat an earlier one: Jaccard similarity of their shingles ≥ `threshold`.

    >>> hits = (Chunk(id="a", text="The last ferry leaves at ten"), Chunk(id="b", text="The last ferry leaves at ten!"))
    >>> [hit.id for hit in distinct()(Query(text="?"), hits).hits]
    ['a']
    """

    def stage(query: Query, hits: Hits) -> Found:
        kept: list[Chunk] = []
        seen: list[frozenset[str]] = []
        for hit in hits:
            runs = shingles(hit.text)
            if not any(runs and _jaccard(runs, other) >= threshold for other in seen):
                kept.append(hit)
                seen.append(runs)
        return Found(query, tuple(kept))

    return stage


def diverse(k: int, embedder: Embedder, weight: float = 0.7) -> Stage:
    """The stage that keeps `k` hits by maximal marginal relevance (Carbonell & Goldstein 1998).

    Each next hit has the greatest `weight` × cosine with the query − (1 − `weight`) × greatest cosine with what is
    kept; ties go to the better rank.
    """
    _positive(k=k)
    if not 0 <= weight <= 1:
        raise UsageError(f"the weight of relevance is from 0 to 1, got {weight}.")

    def stage(query: Query, hits: Hits) -> Found:
        if not hits:
            return Found(query, hits)
        rows = embedder.embed([hit.text for hit in hits])
        near = rows @ embedder.embed([query.text], query=True)[0]
        return Found(query, tuple(hits[place] for place in _marginal(rows, near, k, weight)))

    return stage


def _marginal(rows: np.ndarray[Any, Any], near: np.ndarray[Any, Any], k: int, weight: float) -> list[int]:
    """The places of the most relevant rows that repeat each other least."""
    import numpy as np

    chosen: list[int] = []
    likest = np.full(len(rows), -np.inf)
    open_ = np.ones(len(rows), bool)
    while len(chosen) < min(k, len(rows)):
        repeated = np.where(np.isfinite(likest), likest, 0.0)
        gain = np.where(open_, weight * near - (1 - weight) * repeated, -np.inf)
        best = int(np.argmax(gain))
        chosen.append(best)
        open_[best] = False
        likest = np.maximum(likest, rows @ rows[best])
    return chosen


def reorder(manner: Literal["thirds", "ends"] = "thirds") -> Stage:
    """The stage that puts the best hits where a generator looks: at the beginning and at the end.

    "thirds": the best third, then the worst, then the middle one (two hits stay as they are). "ends": alternately at
    the beginning and at the end, so that the worst stand in the middle. Hits are taken in the order of their scores,
    else in the order that they have.

    >>> hits = tuple(Chunk(id=str(n), score=1 - n / 10) for n in range(1, 7))
    >>> ["".join(hit.id for hit in reorder(manner)(Query(text="?"), hits).hits) for manner in ("thirds", "ends")]
    ['125634', '135642']
    """
    if manner not in ORDERS:
        raise UnknownName("manner of reordering", manner, ORDERS)
    order = ORDERS[manner]

    def stage(query: Query, hits: Hits) -> Found:
        scored = all(hit.score is not None for hit in hits)
        return Found(query, order(tuple(sorted(hits, key=_score, reverse=True)) if scored else hits))

    return stage


def _thirds(hits: Hits) -> Hits:
    third, two = len(hits) // 3, 2 * len(hits) // 3
    return hits if len(hits) <= 2 else hits[:third] + hits[two:] + hits[third:two]


def _ends(hits: Hits) -> Hits:
    return hits[::2] + hits[1::2][::-1]


ORDERS: dict[str, Callable[[Hits], Hits]] = {"thirds": _thirds, "ends": _ends}


def _score(hit: Chunk) -> float:
    return hit.score or 0.0


def _jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    both = len(left & right)
    return both / (len(left) + len(right) - both)


def _positive(**given: int) -> None:
    for name, value in given.items():
        if value < 1:
            raise UsageError(f"{name} is at least 1, got {value}.")
