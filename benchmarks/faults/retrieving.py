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

from ragfault.model.records import Chunk, Gold, Span

from .chunking import COPY_SUFFIX, cut
from .config import Indexing, Search
from .words import chance, extract_words, split_sentences

__all__ = ["DIMENSIONS", "Index", "IndexedSentence", "draw_rotation", "embed", "rewrite_query", "search"]

DIMENSIONS = 64
"""So few that different texts are sometimes close to each other: the embedding is a rough one."""
Vector = NDArray[np.float32]


class IndexedSentence:
    """A sentence of a chunk, its form in an answer (`tokens`), and the words of this."""

    __slots__ = ("terms", "text", "tokens")

    def __init__(self, text: str, tokens: str) -> None:
        self.text = text
        self.tokens = tokens
        self.terms = frozenset(extract_words(tokens))


@lru_cache(maxsize=200_000)
def _embed_word(model: str, term: str) -> Vector:
    """Embed a word: its own vector plus, with weight 0.6, the one of all words with the same first four letters."""
    return _draw_vector(model, term) + np.float32(0.6) * _draw_vector(model, f"{term[:4]}…")


@lru_cache(maxsize=200_000)
def _draw_vector(model: str, text: str) -> Vector:
    seed = int.from_bytes(blake2b(f"{model}|{text}".encode(), digest_size=8).digest())
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(DIMENSIONS, dtype=np.float32)


def embed(terms: Sequence[str], idf: Mapping[str, float], model: str) -> Vector:
    """Embed a text: its words by rarity, projected at random, of length 1."""
    total = np.zeros(DIMENSIONS, dtype=np.float32)
    for term, count in Counter(terms).items():
        total += np.float32(math.sqrt(count) * idf.get(term, 1.0)) * _embed_word(model, term)
    return total / np.float32(max(1e-9, float(np.linalg.norm(total))))


@lru_cache(maxsize=8)
def draw_rotation(seed: int = 7) -> Vector:
    """Draw a random rotation of the space of embeddings."""
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((DIMENSIONS, DIMENSIONS)))
    return np.asarray(rotation, dtype=np.float32)


class Index:
    """An index of the chunks of a corpus, with their words, vectors and sentences."""

    def __init__(self, documents: Mapping[str, str], settings: Indexing) -> None:
        self.settings = settings
        self.chunks = cut(documents, settings)
        self.positions = {chunk.id: i for i, chunk in enumerate(self.chunks)}
        self.documents = sorted({chunk.document or "" for chunk in self.chunks})
        self.inside = {name: np.array([chunk.document == name for chunk in self.chunks]) for name in self.documents}
        chunk_words = [extract_words(chunk.text) for chunk in self.chunks]
        self.terms = [frozenset(terms) for terms in chunk_words]
        self.idf = _compute_idf(self.terms)
        self.postings = _build_postings(chunk_words, self.idf)
        self.vectors = np.stack([self._embed_chunk(i, terms) for i, terms in enumerate(chunk_words)])
        self._sentences: dict[int, list[IndexedSentence]] = {}
        self._gold: dict[tuple[Span, ...], Gold] = {}

    def _embed_chunk(self, i: int, terms: Sequence[str]) -> Vector:
        settings = self.settings
        is_mismatched = (
            settings.mismatched_share and chance(settings.seed, "model", self.chunks[i].id) < settings.mismatched_share
        )
        return embed(terms, self.idf, f"not {settings.model}" if is_mismatched else settings.model)

    def split_chunk(self, chunk: str) -> list[IndexedSentence]:
        """Split a chunk into sentences; a table line is rewritten with the heads of its table."""
        position = self.positions[chunk]
        if position not in self._sentences:
            text = self.chunks[position].text
            rows = [line for line in text.splitlines() if line.startswith("|") and line[1] != "-"]
            spans = [text[a:b] for a, b in split_sentences(text) if text[a] != "#"]
            self._sentences[position] = [
                IndexedSentence(span, describe_table_row(span, rows) if span.startswith("|") else span)
                for span in spans
                if not (len(rows) > 1 and span == rows[0])
            ]
        return self._sentences[position]

    def map_gold(self, spans: tuple[Span, ...]) -> Gold:
        """Map the spans of an answer key to chunks of this index: those with half of a span, or half within it."""
        if spans not in self._gold:
            grades: dict[str, float] = {}
            for span in spans:
                for chunk in self.chunks:
                    if chunk.document == span.document and _is_relevant(chunk, span):
                        grades[chunk.id] = max(span.grade, grades.get(chunk.id, 0.0))
            self._gold[spans] = Gold(chunks=grades, spans=spans)
        return self._gold[spans]


def _is_relevant(chunk: Chunk, span: Span) -> bool:
    start, end = chunk.start or 0, chunk.end or 0
    shared = min(end, span.end) - max(start, span.start)
    return 2 * shared >= min(end - start, span.end - span.start)


def _compute_idf(chunk_words: Sequence[frozenset[str]]) -> dict[str, float]:
    document_counts = Counter(term for terms in chunk_words for term in terms)
    return {term: math.log(1 + (len(chunk_words) - n + 0.5) / (n + 0.5)) for term, n in document_counts.items()}


def _build_postings(
    chunk_words: Sequence[Sequence[str]], idf: Mapping[str, float]
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return term → the chunks that have it, and its summand of their BM25 score."""
    mean = sum(map(len, chunk_words)) / max(1, len(chunk_words))
    places: defaultdict[str, list[int]] = defaultdict(list)
    weights: defaultdict[str, list[float]] = defaultdict(list)
    for index, terms in enumerate(chunk_words):
        norm = 1.2 * (0.25 + 0.75 * len(terms) / mean)
        for term, n in Counter(terms).items():
            places[term].append(index)
            weights[term].append(idf[term] * n * 2.2 / (n + norm))
    return {term: (np.array(places[term]), np.array(weights[term])) for term in places}


def describe_table_row(line: str, rows: Sequence[str]) -> str:
    """Return a table line as a sentence; without the head of the table the figures have no names.

    >>> describe_table_row("| Cabin | £9 |", ["| Kind | Price |", "| Cabin | £9 |"])
    'For Cabin the table gives: Price £9.'
    """
    name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    heads = [cell.strip() for cell in rows[0].strip("|").split("|")][1:]
    if len(rows) < 2 or any(char.isdigit() for char in rows[0]) or len(heads) != len(cells):
        return f"For {name} the table gives: {', '.join(cells)}."
    return f"For {name} the table gives: {', '.join(f'{h} {c}' for h, c in zip(heads, cells, strict=True))}."


# --- the search ------------------------------------------------------------------------------------


def search(query: str, index: Index, settings: Search, seed: object) -> tuple[Chunk, ...]:
    """Search the chunks for a query: by words and vectors, filtered, reranked, cut to k and to the prompt's budget."""
    terms = sorted(set(extract_words(rewrite_query(query, settings, seed))))
    scores = _fuse_scores(terms, index, settings)
    if settings.unindexed_share:
        scores = np.where(_mask_indexed(index, settings), scores, -1.0)
    if settings.misfiltered_share and chance(settings.seed, "filter", seed) < settings.misfiltered_share:
        best = COPY_SUFFIX.sub("", index.chunks[int(np.argmax(scores))].document or "")
        others = [name for name in index.documents if COPY_SUFFIX.sub("", name) != best]
        wrong = others[int(chance(settings.seed, "wrong", seed) * len(others))]
        scores = np.where(index.inside[wrong], scores, -1.0)
    selected = [
        (float(scores[i]), int(i))
        for i in np.argsort(-scores, kind="stable")[: max(settings.rerank_depth, settings.top_k)]
        if scores[i] > 0 and chance(settings.seed, "missed", seed, index.chunks[i].id) >= settings.missed_share
    ]
    if chance(settings.seed, "unranked", seed) >= settings.unranked_share:
        reranked = [(_rerank(terms, i, index) + 0.3 * s, i) for s, i in selected[: settings.rerank_depth]]
        selected = [*sorted(reranked, key=lambda item: -item[0]), *selected[settings.rerank_depth :]]
    selected = [item for item in selected if item[0] >= settings.min_score]
    return _cut_to_budget(
        [replace(index.chunks[i], score=round(s, 4)) for s, i in selected[: settings.top_k]], settings.budget
    )


def rewrite_query(query: str, settings: Search, seed: object) -> str:
    """Return the query, or its last three words where it is in the misread share."""
    if settings.misread_share and chance(settings.seed, "misread", seed) < settings.misread_share:
        return " ".join(query.split()[-3:])
    return query


@lru_cache(maxsize=8)
def _mask_indexed(index: Index, settings: Search) -> NDArray[np.bool_]:
    """Return a mask of the chunks that are in the index."""
    return np.array([chance(settings.seed, "covered", chunk.id) >= settings.unindexed_share for chunk in index.chunks])


def _fuse_scores(terms: Sequence[str], index: Index, settings: Search) -> NDArray[np.float64]:
    """Return the weighted sum of BM25, as a share of the best, and the cosine."""
    sparse = np.zeros(len(index.chunks))
    for term in terms:
        if term in index.postings:
            places, weights = index.postings[term]
            sparse[places] += weights
    query_vector = embed(terms, index.idf, index.settings.model)
    if settings.rotation_angle:
        radians = math.radians(settings.rotation_angle)
        query_vector = np.float32(math.cos(radians)) * query_vector + np.float32(math.sin(radians)) * (
            draw_rotation() @ query_vector
        )
    cosine = (index.vectors @ query_vector).astype(np.float64)
    return settings.dense_weight * cosine + (1 - settings.dense_weight) * sparse / max(1e-9, float(sparse.max()))


def _rerank(terms: Sequence[str], position: int, index: Index) -> float:
    """Return the mean share of the query that a chunk and its best sentence cover."""
    weight = {term: index.idf.get(term, 3.0) for term in terms}
    total = sum(weight.values()) or 1.0
    full_score = sum(weight[term] for term in terms if term in index.terms[position])
    query_terms = frozenset(terms)
    best = max(
        (sum(weight[t] for t in query_terms & chunk.terms) for chunk in index.split_chunk(index.chunks[position].id)),
        default=0.0,
    )
    return (0.5 * full_score + 0.5 * best) / total


def _cut_to_budget(chunks: Sequence[Chunk], budget: int) -> tuple[Chunk, ...]:
    """Return the first chunks whose texts are within the budget, at least one."""
    selected: list[Chunk] = []
    for chunk in chunks:
        if selected and sum(len(item.text) for item in selected) + len(chunk.text) > budget:
            break
        selected.append(chunk)
    return tuple(selected)
