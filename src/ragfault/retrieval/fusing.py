"""Fusion: several rankings of one query made into one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.errors import UnknownName, UsageError
from ragfault.records import Chunk
from ragfault.retrieval.records import Found, Hits, Query, Stage

__all__ = ["METHODS", "NORMS", "Ranking", "fuse", "fused"]

Ranking = Mapping[str, float]
"""Id → score; a higher score is a better rank, and equal scores share the better one."""

RANKED = ("rrf", "isr", "log_isr", "borda")
"""Methods that look at ranks alone; the others add up normalised scores."""


class Place(NamedTuple):
    """Where a ranking has put an item."""

    rank: int
    """From 1; ties share the best of their ranks."""
    score: float
    """Normalised."""
    size: int
    """How many items the ranking holds."""


def _even(scores: Sequence[float], low: float, span: float, tied: float) -> list[float]:
    """Scores less `low` over `span`; all `tied` where there is no span."""
    return [(score - low) / span if span > 0 else tied for score in scores]


NORMS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "none": list,
    "minmax": lambda scores: _even(scores, min(scores), max(scores) - min(scores), 1.0),
    "max": lambda scores: _even(scores, 0.0, max(map(abs, scores)), 0.0),
    "sum": lambda scores: _even(
        scores, min(scores), sum(score - min(scores) for score in scores), 1.0 / len(scores)
    ),
    "z": lambda scores: _even(scores, fmean(scores), pstdev(scores), 0.0),
}
"""How the scores of a ranking are made comparable. All are defined where every score is the same: `minmax` makes them
1, `sum` equal shares, `z` 0."""

METHODS: dict[str, Callable[[Sequence[Place], Sequence[float], float], float]] = {
    "rrf": lambda places, weights, k: sum(
        w / (k + place.rank) for place, w in zip(places, weights, strict=True)
    ),
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
    "anz": lambda places, weights, _: fmean(
        w * place.score for place, w in zip(places, weights, strict=True)
    ),
    "max": lambda places, weights, _: max(w * place.score for place, w in zip(places, weights, strict=True)),
    "min": lambda places, weights, _: min(w * place.score for place, w in zip(places, weights, strict=True)),
    "med": lambda places, weights, _: median(
        w * place.score for place, w in zip(places, weights, strict=True)
    ),
}
"""Method → the score of an item from its places in the rankings that hold it. `rrf`: reciprocal rank fusion (Cormack,
Clarke & Büttcher 2009); `sum`, `mnz`, `anz`, `max`, `min`, `med`: Fox & Shaw 1994; `isr`, `log_isr`: Mourão and
others 2013."""


def fused(
    rankings: Sequence[Ranking],
    method: str = "rrf",
    *,
    constant: float = 60,
    first: int = 1,
    weights: Sequence[float] | None = None,
    norm: str = "minmax",
) -> dict[str, float]:
    """The fused scores of all items, the best first.

    For `rrf` an item gets 1 / (constant + rank) from each ranking that holds it, with ranks from `first`: 1 as in the
    paper, 0 as some implementations have it. The methods of scores add up what `norm` makes comparable. An item that a
    ranking lacks gets nothing from it. Equal results stand in the order of their best rank, then in that of their first
    appearance.

    Raises UnknownName for a method or norm that does not exist, UsageError where there are not as many weights as
    rankings.

    >>> words, meaning = {"d1": 0.95, "d2": 0.87, "d3": 0.76}, {"d2": 0.92, "d1": 0.88, "d4": 0.71}
    >>> {name: round(score, 4) for name, score in fused([words, meaning], first=0).items()}
    {'d1': 0.0331, 'd2': 0.0331, 'd3': 0.0161, 'd4': 0.0161}
    >>> fused([{"a": 3.0, "b": 1.0}, {"b": 9.0}], "sum")
    {'a': 1.0, 'b': 1.0}
    """
    check(method, norm, len(rankings), weights)
    shares = [1.0] * len(rankings) if weights is None else list(weights)
    found: dict[str, list[tuple[Place, float]]] = {}
    for ranking, weight in zip(rankings, shares, strict=True):
        for name, place in _places(ranking, norm).items():
            found.setdefault(name, []).append((place, weight))
    score = METHODS[method]
    offset = constant + first - 1
    scores = {
        name: score([place for place, _ in each], [weight for _, weight in each], offset)
        for name, each in found.items()
    }
    best = {name: min(place.rank for place, _ in each) for name, each in found.items()}
    return {name: scores[name] for name in sorted(scores, key=lambda name: (-scores[name], best[name]))}


def check(method: str, norm: str, rankings: int, weights: Sequence[float] | None) -> None:
    """Refuse a fusion that cannot be."""
    if method not in METHODS:
        raise UnknownName("method of fusion", method, METHODS)
    if norm not in NORMS:
        raise UnknownName("norm of scores", norm, NORMS)
    if weights is not None and len(weights) != rankings:
        raise UsageError(
            f"{rankings} rankings are fused with {len(weights)} weights. Give one weight for each."
        )


def _places(ranking: Ranking, norm: str) -> dict[str, Place]:
    """The place of each item; ties share the best of their ranks."""
    if not ranking:
        return {}
    scores = dict(zip(ranking, NORMS[norm](list(ranking.values())), strict=True))
    ordered = sorted(ranking, key=lambda name: -ranking[name])
    places: dict[str, Place] = {}
    rank = 0
    for number, name in enumerate(ordered, 1):
        if number == 1 or ranking[name] != ranking[ordered[number - 2]]:
            rank = number
        places[name] = Place(rank, scores[name], len(ordered))
    return places


def fuse(
    retrievers: Mapping[str, Stage],
    method: str = "rrf",
    *,
    constant: float = 60,
    first: int = 1,
    weights: Mapping[str, float] | None = None,
    norm: str = "minmax",
    top: int | None = None,
) -> Stage:
    """The stage that asks several retrievers and fuses what they find (see `fused`); `top` keeps the first of them.

    Hits without scores count by their order. Raises what `fused` raises, and UnknownName for the weight of a retriever
    that is not there.
    """
    if not retrievers:
        raise UsageError("a fusion has no retriever. Give at least one, by name.")
    for name in weights or ():
        if name not in retrievers:
            raise UnknownName("retriever of the fusion", name, retrievers)
    shares = None if weights is None else [weights.get(name, 1.0) for name in retrievers]
    check(method, norm, len(retrievers), shares)

    def stage(query: Query, hits: Hits) -> Found:
        each = [retriever(query, hits) for retriever in retrievers.values()]
        notes = dict.fromkeys(note for found in each for note in found.query.notes)
        rankings = [_scores(found.hits) for found in each]
        scores = fused(rankings, method, constant=constant, first=first, weights=shares, norm=norm)
        chunks: dict[str, Chunk] = {}
        for found in each:
            for chunk in found.hits:
                chunks.setdefault(chunk.id, chunk)
        made = tuple(replace(chunks[name], score=score) for name, score in scores.items())
        failed = tuple(dict.fromkeys(note for found in each for note in found.query.failed))
        return Found(replace(query, notes=tuple(notes), failed=failed), made[:top])

    return stage


def _scores(hits: Hits) -> dict[str, float]:
    """The scores of hits, else their order from the last; of a chunk that is there twice, the first."""
    scored = all(hit.score is not None for hit in hits)
    found: dict[str, float] = {}
    for place, hit in enumerate(hits):
        found.setdefault(hit.id, float(hit.score or 0.0) if scored else float(len(hits) - place))
    return found
