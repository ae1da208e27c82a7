"""Search of an index by words, by meaning or both, with the fusion of several rankings into one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Chunk
from ragfault.retrieval.pipeline import Hits, Query, Stage, StageResult
from ragfault.retrieval.service_client import ServiceFailed

Ranking = Mapping[str, float]
"""Id → score; a higher score is a better rank, and equal scores share the better one."""


class RankPosition(NamedTuple):
    """Position of an item in a ranking."""

    rank: int
    """From 1; ties share the best of their ranks."""
    score: float
    """Normalised."""
    size: int
    """Number of items of the ranking."""


def _rescale(scores: Sequence[float], low: float, span: float, tied: float) -> list[float]:
    """Return scores as (score - `low`) / `span`; all `tied` where the span is 0."""
    return [(score - low) / span if span > 0 else tied for score in scores]


SCORE_NORMS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "none": list,
    "minmax": lambda scores: _rescale(scores, min(scores), max(scores) - min(scores), 1.0),
    "max": lambda scores: _rescale(scores, 0.0, max(map(abs, scores)), 0.0),
    "sum": lambda scores: _rescale(
        scores, min(scores), sum(score - min(scores) for score in scores), 1.0 / len(scores)
    ),
    "z": lambda scores: _rescale(scores, fmean(scores), pstdev(scores), 0.0),
}
"""Normalizations of the scores of a ranking. All are defined if every score is the same: `minmax` makes them
1, `sum` equal shares, `z` 0."""

FUSION_METHODS: dict[str, Callable[[Sequence[RankPosition], Sequence[float], float], float]] = {
    "rrf": lambda places, weights, k: sum(w / (k + place.rank) for place, w in zip(places, weights, strict=True)),
    "isr": lambda places, weights, _: (
        len(places) * sum(w / place.rank**2 for place, w in zip(places, weights, strict=True))
    ),
    "log_isr": lambda places, weights, _: (
        math.log(1 + len(places)) * sum(w / place.rank**2 for place, w in zip(places, weights, strict=True))
    ),
    "borda": lambda places, weights, _: sum(
        w * (place.size - place.rank + 1) for place, w in zip(places, weights, strict=True)
    ),
    "sum": lambda places, weights, _: sum(w * place.score for place, w in zip(places, weights, strict=True)),
    "mnz": lambda places, weights, _: (
        len(places) * sum(w * place.score for place, w in zip(places, weights, strict=True))
    ),
    "anz": lambda places, weights, _: fmean(w * place.score for place, w in zip(places, weights, strict=True)),
    "max": lambda places, weights, _: max(w * place.score for place, w in zip(places, weights, strict=True)),
    "min": lambda places, weights, _: min(w * place.score for place, w in zip(places, weights, strict=True)),
    "med": lambda places, weights, _: median(w * place.score for place, w in zip(places, weights, strict=True)),
}
"""Method → the score of an item from its places in the rankings that hold it. `rrf`: reciprocal rank fusion (Cormack,
Clarke & Büttcher 2009); `sum`, `mnz`, `anz`, `max`, `min`, `med`: Fox & Shaw 1994; `isr`, `log_isr`: Mourão and
others 2013."""


def fuse_rankings(
    rankings: Sequence[Ranking],
    method: str = "rrf",
    *,
    constant: float = 60,
    first: int = 1,
    weights: Sequence[float] | None = None,
    norm: str = "minmax",
) -> dict[str, float]:
    """Return the fused scores of all items, the best first.

    For `rrf` an item gets 1 / (constant + rank) from each ranking that holds it, with ranks from `first`: 1 as in the
    paper, 0 as some implementations have it. The methods of scores add up what `norm` makes comparable. An item that a
    ranking lacks gets nothing from it. Ties are ordered by their best rank, then by their first
    appearance.

    Raises UnknownName for a method or norm that does not exist, UsageError where there are not as many weights as
    rankings.

    >>> words, meaning = {"d1": 0.95, "d2": 0.87, "d3": 0.76}, {"d2": 0.92, "d1": 0.88, "d4": 0.71}
    >>> {name: round(score, 4) for name, score in fuse_rankings([words, meaning], first=0).items()}
    {'d1': 0.0331, 'd2': 0.0331, 'd3': 0.0161, 'd4': 0.0161}
    >>> fuse_rankings([{"a": 3.0, "b": 1.0}, {"b": 9.0}], "sum")
    {'a': 1.0, 'b': 1.0}
    """
    check_fusion(method, norm, len(rankings), weights)
    shares = [1.0] * len(rankings) if weights is None else list(weights)
    ranks: dict[str, list[tuple[RankPosition, float]]] = {}
    for ranking, weight in zip(rankings, shares, strict=True):
        for name, position in _rank_items(ranking, norm).items():
            ranks.setdefault(name, []).append((position, weight))
    score = FUSION_METHODS[method]
    # some tools count ranks from 0: with the same constant their scores differ by one rank
    offset = constant + first - 1
    scores = {
        name: score([position for position, _ in item_ranks], [weight for _, weight in item_ranks], offset)
        for name, item_ranks in ranks.items()
    }
    best = {name: min(position.rank for position, _ in item_ranks) for name, item_ranks in ranks.items()}
    return {name: scores[name] for name in sorted(scores, key=lambda name: (-scores[name], best[name]))}


def check_fusion(method: str, norm: str, rankings: int, weights: Sequence[float] | None) -> None:
    """Refuse a fusion that cannot be."""
    if method not in FUSION_METHODS:
        raise UnknownName("method of fusion", method, FUSION_METHODS)
    if norm not in SCORE_NORMS:
        raise UnknownName("norm of scores", norm, SCORE_NORMS)
    if weights is not None and len(weights) != rankings:
        raise UsageError(f"{rankings} rankings are fused with {len(weights)} weights. Give one weight for each.")


def _rank_items(ranking: Ranking, norm: str) -> dict[str, RankPosition]:
    """Return the rank of each item; ties share the best of their ranks."""
    if not ranking:
        return {}
    scores = dict(zip(ranking, SCORE_NORMS[norm](list(ranking.values())), strict=True))
    ordered = sorted(ranking, key=lambda name: -ranking[name])
    positions: dict[str, RankPosition] = {}
    rank = 0
    for number, name in enumerate(ordered, 1):
        if number == 1 or ranking[name] != ranking[ordered[number - 2]]:
            rank = number
        positions[name] = RankPosition(rank, scores[name], len(ordered))
    return positions


class FusionSettings(NamedTuple):
    """How the rankings of several retrievers become one; see `fuse_rankings`."""

    method: str = "rrf"
    """A key of FUSION_METHODS."""
    constant: float = 60
    first: int = 1
    weights: Mapping[str, float] | None = None
    """Retriever → weight; 1 for those not named."""
    norm: str = "minmax"
    """A key of SCORE_NORMS."""


RANK_FUSION = FusionSettings()


def fuse_retrievers(
    retrievers: Mapping[str, Stage], fusion: FusionSettings = RANK_FUSION, top: int | None = None
) -> Stage:
    """Return the stage that fuses the hits of several retrievers; `top` limits their number.

    Hits without scores count by their order. Raises what `fuse_rankings` raises, and UnknownName for the weight of a
    retriever that is not there.
    """
    if not retrievers:
        raise UsageError("a fusion has no retriever. Give at least one, by name.")
    method, constant, first, weights, norm = fusion
    for name in weights or ():
        if name not in retrievers:
            raise UnknownName("retriever of the fusion", name, retrievers)
    shares = None if weights is None else [weights.get(name, 1.0) for name in retrievers]
    check_fusion(method, norm, len(retrievers), shares)

    def stage(query: Query, hits: Hits) -> StageResult:
        results = [retriever(query, hits) for retriever in retrievers.values()]
        notes = dict.fromkeys(note for result in results for note in result.query.notes)
        rankings = [_read_scores(result.hits) for result in results]
        scores = fuse_rankings(rankings, method, constant=constant, first=first, weights=shares, norm=norm)
        # the first retriever's copy of a chunk wins, so that its metadata do not depend on the scores
        chunks: dict[str, Chunk] = {}
        for result in results:
            for chunk in result.hits:
                chunks.setdefault(chunk.id, chunk)
        fused = tuple(replace(chunks[name], score=score) for name, score in scores.items())
        failed = tuple(dict.fromkeys(note for result in results for note in result.query.failures))
        return StageResult(replace(query, notes=tuple(notes), failures=failed), fused[:top])

    return stage


def _read_scores(hits: Hits) -> dict[str, float]:
    """Return the scores of hits, else their descending ranks; of a repeated chunk, the first."""
    scored = all(hit.score is not None for hit in hits)
    scores: dict[str, float] = {}
    for index, hit in enumerate(hits):
        scores.setdefault(hit.id, float(hit.score or 0.0) if scored else float(len(hits) - index))
    return scores


SearchKind = Literal["sparse", "dense", "hybrid"]
SEARCH_KINDS: tuple[SearchKind, ...] = ("sparse", "dense", "hybrid")


class SearchableIndex(Protocol):
    """An index that can be searched by words, and by meaning where it `embeds`."""

    @property
    def has_embedder(self) -> bool:
        """True if the index has vectors for semantic search."""
        ...

    def search(self, kind: SearchKind, text: str, k: int, query: Query) -> Hits:
        """Return the best chunks for a text by one search, among those that meet the conditions of the query."""
        ...

    def count_matching(self, query: Query) -> int:
        """Count the chunks that meet the conditions of a query."""
        ...


def make_retriever(
    index: SearchableIndex, kind: SearchKind = "hybrid", k: int = 100, fusion: FusionSettings = RANK_FUSION
) -> Stage:
    """Return the stage that retrieves the best `k` chunks of an index (see `ChunkIndex.retrieve`).

    Raises UnknownName for another kind of search, UsageError for a `k` below 1 or an index that has no embedder.
    """
    if kind not in SEARCH_KINDS:
        raise UnknownName("kind of search", kind, SEARCH_KINDS)
    if k < 1:
        raise UsageError(f"k is at least 1, got {k}.")
    if kind != "sparse" and not index.has_embedder:
        raise UsageError("this index has no embedder: it was built to be searched by words. Build it with one.")
    if kind == "hybrid":
        retrievers = {"sparse": make_retriever(index, "sparse", k), "dense": make_retriever(index, "dense", k)}
        return fuse_retrievers(retrievers, fusion, top=k)

    def stage(query: Query, hits: Hits) -> StageResult:  # noqa: ARG001
        texts = [text for text in query.search_texts if text.strip()]
        if not texts:
            note = "the query is empty: nothing was searched for"
            return StageResult(replace(query, notes=(*query.notes, note)), ())
        try:
            hit_lists = [index.search(kind, text, k, query) for text in texts]
        except ServiceFailed as error:
            return StageResult(query.with_failure(f"the {kind} search failed and found nothing: {error}"), ())
        merged = hit_lists[0] if len(hit_lists) == 1 else _merge_variant_hits(hit_lists, k)
        # nothing found is a fault of the search, nothing allowed one of the conditions: the note tells them apart
        bound = query.conditions or query.user is not None or query.time is not None
        if not merged and bound and not index.count_matching(query):
            return StageResult(
                replace(query, notes=(*query.notes, f"no chunk meets the conditions: {_describe_conditions(query)}")),
                (),
            )
        return StageResult(query, merged)

    return stage


def _merge_variant_hits(hit_lists: Sequence[Hits], k: int) -> Hits:
    """Fuse the hits of several variants of a query by reciprocal ranks."""
    # BM25 scores of texts of different length are not comparable, ranks are
    hits_by_id = {hit.id: hit for hits in hit_lists for hit in hits}
    scores = fuse_rankings([{hit.id: float(hit.score or 0.0) for hit in hits} for hits in hit_lists])
    return tuple(replace(hits_by_id[name], score=score) for name, score in list(scores.items())[:k])


def _describe_conditions(query: Query) -> str:
    texts = [f"{condition.field} {condition.test} {condition.value}" for condition in query.conditions]
    texts += [f"groups {', '.join(query.user) or 'none'}"] if query.user is not None else []
    return "; ".join(texts + ([f"valid at {query.time:%Y-%m-%d}"] if query.time else []))
