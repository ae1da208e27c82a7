"""Selection stages: which hits reach the generator, in which order, and which of their sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.protocols import Embedder, Reranker
from ragfault.model.records import Chunk
from ragfault.retrieval.pipeline import Hits, Query, Stage, StageResult
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences
from ragfault.text.similarity import make_shingles

if TYPE_CHECKING:
    import numpy as np


QUESTION_WORD = re.compile(r"\b(?:what|how|why|when|where|which)\b", re.IGNORECASE)
TECHNICAL_TERM = re.compile(r"\b[A-Z][A-Za-z]*[A-Z][A-Za-z]*\b")
LONG_QUERY, WORD_WEIGHT, TERM_WEIGHT, QUESTION_MARK_WEIGHT = 100, 0.2, 0.1, 0.3


def estimate_complexity(query: str) -> float:
    """Return the complexity of a query, in [0, 1].

    Its length over 100 characters (at most 1), 0.2 for each question word (what, how, why, when, where, which),
    0.1 for each technical term (a word with two capitals: API, JavaScript), and 0.3 for each question mark; at most 1.

    >>> estimate_complexity("ferry times"), estimate_complexity("What is an API?")
    (0.11, 0.75)
    >>> estimate_complexity("How do I renew it, and which papers do I need? What does it cost?")
    1.0
    """
    parts = (
        min(len(query) / LONG_QUERY, 1.0),
        WORD_WEIGHT * len(QUESTION_WORD.findall(query)),
        TERM_WEIGHT * len(TECHNICAL_TERM.findall(query)),
        QUESTION_MARK_WEIGHT * query.count("?"),
    )
    return min(round(sum(parts), 12), 1.0)


COMPLEXITY_COUNTS = ((0.3, 3), (0.7, 5), (float("inf"), 7))
"""Below each complexity so many chunks: 3 for a simple query, 5 for a middling one, 7 for a complex one."""


def select_top(k: int) -> Stage:
    """Return the stage that keeps the first `k` hits.

    >>> hits = tuple(Chunk(id=name) for name in "abc")
    >>> [hit.id for hit in select_top(2)(Query(text="?"), hits).hits]
    ['a', 'b']
    """
    _check_positive(k=k)
    return lambda query, hits: StageResult(query, hits[:k])


def select_by_complexity(threshold: float = 0.5) -> Stage:
    """Return the stage that keeps relevant hits, as many as the complexity of the query requires.

    It reads scores as relevance in [0, 1], as a reranker gives them; raises UsageError where they are not.

    >>> hits = tuple(Chunk(id=str(n), score=score) for n, score in enumerate([0.9, 0.8, 0.7, 0.6, 0.4]))
    >>> select = select_by_complexity()
    >>> [len(select(Query(text=text), hits).hits) for text in ("ferry times", "What does the API return?")]
    [3, 4]
    """

    def stage(query: Query, hits: Hits) -> StageResult:
        # BM25 scores have no upper end: a threshold on them would be arbitrary
        wrong = next((hit for hit in hits if hit.score is None or not 0 <= hit.score <= 1), None)
        if wrong is not None:
            raise UsageError(
                f'adaptive selection reads scores as relevance from 0 to 1, and chunk "{wrong.id}" has {wrong.score}. '
                "Put a stage before it that reranks."
            )
        many = next(count for limit, count in COMPLEXITY_COUNTS if estimate_complexity(query.text) < limit)
        selected = sorted((hit for hit in hits if _score_or_zero(hit) > threshold), key=_score_or_zero, reverse=True)
        return StageResult(query, tuple(selected[:many]))

    return stage


def select_within_budget(tokens: int) -> Stage:
    """Return the stage that keeps hits, in order, while their texts together have at most so many tokens.

    A hit that does not fit is passed over, and shorter ones behind it may still fit. Tokens are characters / 4, rounded
    up.

    >>> hits = tuple(Chunk(id=name, text=text) for name, text in {"a": "x" * 40, "b": "y" * 400, "c": "z" * 20}.items())
    >>> [hit.id for hit in select_within_budget(15)(Query(text="?"), hits).hits]
    ['a', 'c']
    """
    _check_positive(tokens=tokens)

    def stage(query: Query, hits: Hits) -> StageResult:
        selected, tokens_left = [], tokens
        for hit in hits:
            if (need := -(-len(hit.text) // 4)) <= tokens_left:
                selected.append(hit)
                tokens_left -= need
        return StageResult(query, tuple(selected))

    return stage


def drop_duplicates(threshold: float = 0.8) -> Stage:
    """Return the stage that drops near duplicates of earlier hits: Jaccard similarity of shingles ≥ `threshold`.

    >>> hits = (Chunk(id="a", text="The last ferry leaves at ten"), Chunk(id="b", text="The last ferry leaves at ten!"))
    >>> [hit.id for hit in drop_duplicates()(Query(text="?"), hits).hits]
    ['a']
    """

    def stage(query: Query, hits: Hits) -> StageResult:
        selected: list[Chunk] = []
        earlier: list[frozenset[str]] = []
        for hit in hits:
            runs = make_shingles(hit.text)
            if not any(runs and _compute_jaccard(runs, shingles) >= threshold for shingles in earlier):
                selected.append(hit)
                earlier.append(runs)
        return StageResult(query, tuple(selected))

    return stage


def select_diverse(k: int, embedder: Embedder, weight: float = 0.7) -> Stage:
    """Return the stage that keeps `k` hits by maximal marginal relevance (Carbonell & Goldstein 1998).

    Each next hit has the greatest `weight` × cosine with the query − (1 − `weight`) × greatest cosine with what is
    kept; ties go to the better rank. Raises UsageError for a `k` below 1, or a weight outside [0, 1].
    """
    _check_positive(k=k)
    if not 0 <= weight <= 1:
        raise UsageError(f"the weight of relevance is from 0 to 1, got {weight}.")

    def stage(query: Query, hits: Hits) -> StageResult:
        if not hits:
            return StageResult(query, hits)
        rows = embedder.embed([hit.text for hit in hits])
        similarity = rows @ embedder.embed([query.text], query=True)[0]
        return StageResult(query, tuple(hits[i] for i in _rank_marginal(rows, similarity, k, weight)))

    return stage


def _rank_marginal(rows: np.ndarray[Any, Any], similarity: np.ndarray[Any, Any], k: int, weight: float) -> list[int]:
    """Return the positions of the most relevant rows that repeat each other least."""
    import numpy as np

    selected: list[int] = []
    # a cosine may be below 0: minus infinity marks rows that nothing was compared with
    closest = np.full(len(rows), -np.inf)
    open_ = np.ones(len(rows), bool)
    while len(selected) < min(k, len(rows)):
        repeated = np.where(np.isfinite(closest), closest, 0.0)
        gain = np.where(open_, weight * similarity - (1 - weight) * repeated, -np.inf)
        best = int(np.argmax(gain))
        selected.append(best)
        open_[best] = False
        closest = np.maximum(closest, rows @ rows[best])
    return selected


def reorder(strategy: Literal["thirds", "ends"] = "thirds") -> Stage:
    """Return the stage that moves the best hits to the beginning and the end, where generators attend most.

    "thirds": the best third, then the worst, then the middle one (two hits stay as they are). "ends": alternately at
    the beginning and at the end, so that the worst are in the middle. Hits are taken in the order of their scores,
    else in the order that they have. Raises UnknownName for another strategy.

    >>> hits = tuple(Chunk(id=str(n), score=1 - n / 10) for n in range(1, 7))
    >>> ["".join(hit.id for hit in reorder(manner)(Query(text="?"), hits).hits) for manner in ("thirds", "ends")]
    ['125634', '135642']
    """
    if strategy not in REORDERINGS:
        raise UnknownName("manner of reordering", strategy, REORDERINGS)
    order = REORDERINGS[strategy]

    def stage(query: Query, hits: Hits) -> StageResult:
        # where a hit has no score, only the order of all says which are best
        scored = all(hit.score is not None for hit in hits)
        return StageResult(query, order(tuple(sorted(hits, key=_score_or_zero, reverse=True)) if scored else hits))

    return stage


def _order_thirds(hits: Hits) -> Hits:
    third, two = len(hits) // 3, 2 * len(hits) // 3
    return hits if len(hits) <= 2 else hits[:third] + hits[two:] + hits[third:two]


REORDERINGS: dict[str, Callable[[Hits], Hits]] = {
    "thirds": _order_thirds,
    "ends": lambda hits: hits[::2] + hits[1::2][::-1],
}


def _score_or_zero(hit: Chunk) -> float:
    return hit.score or 0.0


def _compute_jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    common = len(left & right)
    return common / (len(left) + len(right) - common)


def _check_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise UsageError(f"{name} is at least 1, got {value}.")


ELLIPSIS = " … "
RelevanceScorer = Callable[[str, Sequence[str]], Sequence[float]]


def compress(reranker: Reranker | None = None, *, threshold: float = 0.5, neighbors: int = 0) -> Stage:
    """Return the stage that keeps the relevant sentences of each hit, with `neighbors` on each side.

    A sentence is relevant where its score by the reranker is at least `threshold`; without one, where it shares at
    least this part of the content words of the best sentence among all hits. The best sentence of each hit always
    stays; tables and records stay as they are. An ellipsis marks an omission; `start` and `end` span the rest. Where
    the reranker fails, hits stay as they are, with a note. Raises UsageError for a threshold outside [0, 1].

    >>> text = "The museum was built in 1902. Dogs may enter the ferry on a lead. The cafe sells soup."
    >>> hit = Chunk(id="a", text=text, document="d", start=100, end=100 + len(text))
    >>> compressed = compress()(Query(text="May dogs enter the ferry?"), (hit,)).hits[0]
    >>> compressed.text, compressed.start, compressed.end
    ('Dogs may enter the ferry on a lead.', 130, 165)
    """
    if not 0 <= threshold <= 1 or neighbors < 0:
        raise UsageError(
            f"threshold is from 0 to 1 and neighbors at least 0, got threshold={threshold}, neighbors={neighbors}."
        )
    bearing: RelevanceScorer = reranker.relevance if reranker is not None else _score_overlap

    def stage(query: Query, hits: Hits) -> StageResult:
        # a row of a table or a field of a record means nothing without the others
        cut = {hit.id: split_sentences(hit.text) for hit in hits if hit.kind == "text"}
        texts = [hit.text[start:end] for hit in hits if hit.id in cut for start, end in cut[hit.id]]
        try:
            values = iter(bearing(query.text, texts) if texts else ())
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - a service error costs the compression, not the search
            note = f"compression failed, the hits are whole: {type(error).__name__}: {error}"
            return StageResult(query.with_failure(note), hits)
        compressed = []
        for hit in hits:
            spans = cut.get(hit.id, [])
            scores = [next(values) for _ in spans]
            compressed.append(_keep_sentences(hit, spans, scores, threshold, neighbors) if len(spans) > 1 else hit)
        return StageResult(query, tuple(compressed))

    return stage


def _score_overlap(query: str, texts: Sequence[str]) -> list[float]:
    """Return the share of the query's content words in each text, relative to the best text."""
    query_words = frozenset(split_content_words(query))
    counts = [len(query_words & frozenset(split_content_words(text))) for text in texts]
    best = max(counts, default=0)
    return [count / best if best else 1.0 for count in counts]


def _keep_sentences(
    hit: Chunk, spans: Sequence[tuple[int, int]], scores: Sequence[float], threshold: float, neighbors: int
) -> Chunk:
    """Return a hit with its relevant sentences and their neighbors."""
    best = max(range(len(scores)), key=scores.__getitem__)
    # every hit keeps its best sentence: whether it is needed at all was decided by the stages before
    bears = {i for i, score in enumerate(scores) if score >= threshold} | {best}
    selected = sorted({j for at in bears for j in range(at - neighbors, at + neighbors + 1)} & set(range(len(spans))))
    if len(selected) == len(spans):
        return hit
    text = hit.text[slice(*spans[selected[0]])]
    for before, place in pairwise(selected):
        start, end = spans[place]
        text += hit.text[spans[before][1] : end] if place == before + 1 else ELLIPSIS + hit.text[start:end]
    begin, end = spans[selected[0]][0], spans[selected[-1]][1]
    if hit.start is None:
        return replace(hit, text=text)
    return replace(hit, text=text, start=hit.start + begin, end=hit.start + end)
