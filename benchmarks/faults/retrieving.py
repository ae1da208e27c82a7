"""The retriever: BM25, a small dense embedding, a fusion of both, and a reranker."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.records import Chunk, Gold, Span

from .chunking import ORIGINAL, cut
from .config import Indexing, Search
from .words import chance, sentences, words

__all__ = ["DIMENSIONS", "Index", "Sentence", "embed", "rewritten", "rotation", "search"]

DIMENSIONS = 64
"""So few that unlike texts come near each other now and then: the embedding is a rough one."""
Vector = NDArray[np.float32]


class Sentence:
    """A sentence of a chunk and the words it holds."""

    __slots__ = ("terms", "text", "tokens")

    def __init__(self, text: str, tokens: str) -> None:
        self.text = text
        self.tokens = tokens
        self.terms = frozenset(words(tokens))


@lru_cache(maxsize=200_000)
def _term(model: str, term: str) -> Vector:
    """Return the vector of a word: its own and, less so, that of all words that begin alike."""
    return _noise(model, term) + np.float32(0.6) * _noise(model, f"{term[:4]}…")


@lru_cache(maxsize=200_000)
def _noise(model: str, text: str) -> Vector:
    seed = int.from_bytes(blake2b(f"{model}|{text}".encode(), digest_size=8).digest())
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(DIMENSIONS, dtype=np.float32)


def embed(terms: Sequence[str], idf: Mapping[str, float], model: str) -> Vector:
    """Return the embedding of a text: its words by rarity, projected at random, of length 1."""
    total = np.zeros(DIMENSIONS, dtype=np.float32)
    for term, count in Counter(terms).items():
        total += np.float32(math.sqrt(count) * idf.get(term, 1.0)) * _term(model, term)
    return total / np.float32(max(1e-9, float(np.linalg.norm(total))))


@lru_cache(maxsize=8)
def rotation(seed: int = 7) -> Vector:
    """Return a random rotation of the space of embeddings."""
    turned, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((DIMENSIONS, DIMENSIONS)))
    return np.asarray(turned, dtype=np.float32)


class Index:
    """The chunks of a corpus, ready to be searched."""

    def __init__(self, documents: Mapping[str, str], settings: Indexing) -> None:
        self.how = settings
        self.chunks = cut(documents, settings)
        self.place = {chunk.id: i for i, chunk in enumerate(self.chunks)}
        self.documents = sorted({chunk.document or "" for chunk in self.chunks})
        self.inside = {name: np.array([chunk.document == name for chunk in self.chunks]) for name in self.documents}
        posting = [words(chunk.text) for chunk in self.chunks]
        self.terms = [frozenset(terms) for terms in posting]
        self.idf = _rarity(self.terms)
        self.postings = _postings(posting, self.idf)
        self.vectors = np.stack([self._vector(i, terms) for i, terms in enumerate(posting)])
        self._sentences: dict[int, list[Sentence]] = {}
        self._gold: dict[tuple[Span, ...], Gold] = {}

    def _vector(self, i: int, terms: Sequence[str]) -> Vector:
        how = self.how
        alien = how.mismatched and chance(how.seed, "model", self.chunks[i].id) < how.mismatched
        return embed(terms, self.idf, f"not {how.model}" if alien else how.model)

    def sentences(self, chunk: str) -> list[Sentence]:
        """Return the sentences of a chunk; a table line is said with the heads of its table."""
        place = self.place[chunk]
        if place not in self._sentences:
            text = self.chunks[place].text
            rows = [line for line in text.splitlines() if line.startswith("|") and line[1] != "-"]
            spans = [text[a:b] for a, b in sentences(text) if text[a] != "#"]
            self._sentences[place] = [
                Sentence(span, verbalised(span, rows) if span.startswith("|") else span)
                for span in spans
                if not (len(rows) > 1 and span == rows[0])
            ]
        return self._sentences[place]

    def gold(self, spans: tuple[Span, ...]) -> Gold:
        """Return the answer key in the terms of this index: the chunks that hold half of a span, or lie half in it."""
        if spans not in self._gold:
            grades: dict[str, float] = {}
            for span in spans:
                for chunk in self.chunks:
                    if chunk.document == span.document and _holds(chunk, span):
                        grades[chunk.id] = max(span.grade, grades.get(chunk.id, 0.0))
            self._gold[spans] = Gold(chunks=grades, spans=spans)
        return self._gold[spans]


def _holds(chunk: Chunk, span: Span) -> bool:
    start, end = chunk.start or 0, chunk.end or 0
    shared = min(end, span.end) - max(start, span.start)
    return 2 * shared >= min(end - start, span.end - span.start)


def _rarity(posting: Sequence[frozenset[str]]) -> dict[str, float]:
    seen = Counter(term for terms in posting for term in terms)
    return {term: math.log(1 + (len(posting) - n + 0.5) / (n + 0.5)) for term, n in seen.items()}


def _postings(
    posting: Sequence[Sequence[str]], idf: Mapping[str, float]
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return term → the chunks that hold it and what it adds to their BM25 score."""
    mean = sum(map(len, posting)) / max(1, len(posting))
    places: defaultdict[str, list[int]] = defaultdict(list)
    weights: defaultdict[str, list[float]] = defaultdict(list)
    for index, terms in enumerate(posting):
        norm = 1.2 * (0.25 + 0.75 * len(terms) / mean)
        for term, n in Counter(terms).items():
            places[term].append(index)
            weights[term].append(idf[term] * n * 2.2 / (n + norm))
    return {term: (np.array(places[term]), np.array(weights[term])) for term in places}


def verbalised(line: str, rows: Sequence[str]) -> str:
    """Return a table line as a sentence; without the head of the table the figures stay bare.

    >>> verbalised("| Cabin | £9 |", ["| Kind | Price |", "| Cabin | £9 |"])
    'For Cabin the table gives: Price £9.'
    """
    name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    heads = [cell.strip() for cell in rows[0].strip("|").split("|")][1:]
    if len(rows) < 2 or any(char.isdigit() for char in rows[0]) or len(heads) != len(cells):
        return f"For {name} the table gives: {', '.join(cells)}."
    return f"For {name} the table gives: {', '.join(f'{h} {c}' for h, c in zip(heads, cells, strict=True))}."


# --- the search ------------------------------------------------------------------------------------


def search(query: str, index: Index, settings: Search, seed: object) -> tuple[Chunk, ...]:
    """Return the chunks for a query: found by words and vectors, filtered, reranked, cut to k and the prompt."""
    terms = sorted(set(words(rewritten(query, settings, seed))))
    scores = _fused(terms, index, settings)
    if settings.uncovered:
        scores = np.where(_covered(index, settings), scores, -1.0)
    if settings.misfiltered and chance(settings.seed, "filter", seed) < settings.misfiltered:
        best = ORIGINAL.sub("", index.chunks[int(np.argmax(scores))].document or "")
        others = [name for name in index.documents if ORIGINAL.sub("", name) != best]
        wrong = others[int(chance(settings.seed, "wrong", seed) * len(others))]
        scores = np.where(index.inside[wrong], scores, -1.0)
    selected = [
        (float(scores[i]), int(i))
        for i in np.argsort(-scores, kind="stable")[: max(settings.pool, settings.top_k)]
        if scores[i] > 0 and chance(settings.seed, "missed", seed, index.chunks[i].id) >= settings.missed
    ]
    if chance(settings.seed, "unranked", seed) >= settings.unranked:
        seen = [(_rerank(terms, i, index) + 0.3 * s, i) for s, i in selected[: settings.pool]]
        selected = [*sorted(seen, key=lambda item: -item[0]), *selected[settings.pool :]]
    selected = [item for item in selected if item[0] >= settings.least_score]
    return _room([replace(index.chunks[i], score=round(s, 4)) for s, i in selected[: settings.top_k]], settings.budget)


def rewritten(query: str, settings: Search, seed: object) -> str:
    """Return what the rewriter makes of a query: the query itself, or only its last words."""
    if settings.misread and chance(settings.seed, "misread", seed) < settings.misread:
        return " ".join(query.split()[-3:])
    return query


@lru_cache(maxsize=8)
def _covered(index: Index, settings: Search) -> NDArray[np.bool_]:
    """Return which chunks reached the index."""
    return np.array([chance(settings.seed, "covered", chunk.id) >= settings.uncovered for chunk in index.chunks])


def _fused(terms: Sequence[str], index: Index, settings: Search) -> NDArray[np.float64]:
    """Return the weighted sum of BM25, as a share of the best, and the cosine."""
    sparse = np.zeros(len(index.chunks))
    for term in terms:
        if term in index.postings:
            places, weights = index.postings[term]
            sparse[places] += weights
    asked = embed(terms, index.idf, index.how.model)
    if settings.angle:
        turn = math.radians(settings.angle)
        asked = np.float32(math.cos(turn)) * asked + np.float32(math.sin(turn)) * (rotation() @ asked)
    cosine = (index.vectors @ asked).astype(np.float64)
    return settings.dense * cosine + (1 - settings.dense) * sparse / max(1e-9, float(sparse.max()))


def _rerank(terms: Sequence[str], place: int, index: Index) -> float:
    """Return how much of the query a chunk covers: as a whole, and in its best sentence."""
    weight = {term: index.idf.get(term, 3.0) for term in terms}
    total = sum(weight.values()) or 1.0
    text = sum(weight[term] for term in terms if term in index.terms[place])
    asked = frozenset(terms)
    best = max(
        (sum(weight[t] for t in asked & chunk.terms) for chunk in index.sentences(index.chunks[place].id)), default=0.0
    )
    return (0.5 * text + 0.5 * best) / total


def _room(chunks: Sequence[Chunk], budget: int) -> tuple[Chunk, ...]:
    """Return the first chunks that fit."""
    selected: list[Chunk] = []
    for chunk in chunks:
        if selected and sum(len(item.text) for item in selected) + len(chunk.text) > budget:
            break
        selected.append(chunk)
    return tuple(selected)
