"""The three systems: search, rerank, prompt, writer, logger, each a part that a fault replaces.

`reports` finds windows of sentences with BM25 (bm25s) and answers in numbered bullets; `shop` finds sections of product
pages with TF-IDF of words and character n-grams in a latent space (scikit-learn) and answers in short lines, in the
language of the page; `handbook` finds sections of the demo handbook with BM25 and answers in sentences that it cites.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Citation, Latency, Trace

from .text import split_sentences, terms

__all__ = ["Parts", "answer_all", "write"]

Scores = NDArray[np.float64]
POOL = 30
"""Candidates that the reranker sees."""
REFUSALS = ("I could not find this in the documents.", "The documents do not say.")
HEADS = frozenset(("Property", "Eigenschaft", "---"))


class Parts(Struct, frozen=True, kw_only=True):
    """A system; the functions get what the parts before them made, and the id of the query."""

    name: Literal["reports", "shop", "handbook"]
    chunks: tuple[Chunk, ...]
    """What is indexed."""
    seed: int = 0
    """Which slips the writer makes."""
    index_terms: Callable[[str], list[str]] = terms
    query_terms: Callable[[str], list[str]] = terms
    rewrite: Callable[[str], str] = lambda query: query
    dimensions: int = 300
    """Of the latent space of `shop`."""
    distort: Callable[[Scores, str], Scores] = lambda scores, _: scores
    """What becomes of the scores of the search."""
    tenants: bool = True
    """Whether only chunks of the tenant of the query are found."""
    rank: Callable[[float, Chunk, str], float] = lambda score, _chunk, _name: score
    """The score of a reranked chunk; the highest come first."""
    top_k: int = 5
    least: float = 0.0
    """Chunks with a lower score are left out."""
    select: Callable[[list[Chunk]], list[Chunk]] = lambda chunks: chunks
    """Which of the ranked chunks are kept before the list is cut to top_k."""
    show: Callable[[list[Chunk]], list[str]] = lambda chunks: [chunk.text for chunk in chunks]
    """What of the chunks stands in the prompt."""
    ask: Callable[[str, Trace], str] = lambda query, _: query
    """Which question stands in the prompt."""
    choice: int = 0
    """Which sentence the writer takes for the best: 0 the best, 1 the second …"""
    finish: Callable[[str, Trace], str] = lambda answer, _: answer
    """What is done to the answer after it was written."""
    batch: Callable[[list[Trace]], list[Trace]] = lambda traces: traces
    """What is done to the answers of a batch."""
    record: Callable[[Trace, list[Chunk]], Trace] = lambda trace, _: trace
    """What the logger makes of a trace, given also the candidates before reranking."""
    model: str = "extractive-2"


class _Index:
    """Scores of all chunks for a query."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.texts = [chunk.text for chunk in parts.chunks]
        self.tokens = [parts.index_terms(text) for text in self.texts]
        seen = Counter(term for tokens in self.tokens for term in set(tokens))
        self.idf = {term: math.log(1 + len(self.texts) / count) for term, count in seen.items()}
        self.tenant = np.array([chunk.metadata["tenant"] for chunk in parts.chunks])
        self._build_latent() if parts.name == "shop" else self._build_bm25()

    def _build_bm25(self) -> None:
        import bm25s

        self.bm25 = bm25s.BM25()
        self.bm25.index(self.tokens, show_progress=False)

    def _build_latent(self) -> None:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize

        self.vectorizer = TfidfVectorizer(analyzer=lambda tokens: [*tokens, *_grams(tokens)], sublinear_tf=True)
        matrix = self.vectorizer.fit_transform(self.tokens)
        size = min(self.parts.dimensions, min(matrix.shape) - 1)
        self.space = TruncatedSVD(size, random_state=0)
        self.vectors = normalize(self.space.fit_transform(matrix))

    def score(self, query: str) -> Scores:
        """Return the score of every chunk."""
        asked = self.parts.query_terms(query)
        if self.parts.name != "shop":
            known = [term for term in asked if term in self.idf]
            return self.bm25.get_scores(known).astype(np.float64) if known else np.zeros(len(self.texts))
        vector = self.space.transform(self.vectorizer.transform([asked]))[0]
        return np.asarray(self.vectors @ (vector / max(1e-9, float(np.linalg.norm(vector)))), dtype=np.float64)

    def cover(self, asked: Iterable[str], text: str) -> float:
        """Return the share of the query's words, by rarity, that a text holds."""
        words = set(asked)
        weight = {term: self.idf.get(term, 3.0) for term in words}
        return sum(weight[term] for term in words & set(self.parts.index_terms(text))) / (sum(weight.values()) or 1.0)


def _grams(tokens: Sequence[str]) -> list[str]:
    return [f"#{token[i : i + 4]}" for token in tokens for i in range(max(1, len(token) - 3))]


def answer_all(parts: Parts, questions: Sequence[Trace]) -> list[Trace]:
    """Return the traces of a system on the questions, as its logger records them."""
    index = _Index(parts)
    answered, pools = [], []
    for question in questions:
        query = parts.rewrite(question.query)
        pool, chunks = _retrieve(index, query, question)
        lines = write(index, parts.ask(query, question), parts.show(list(chunks)), question.id)
        answer = lines[0] if lines[0] in REFUSALS else FORMS[parts.name](lines)
        took = round((300 + 4 * len(answer)) * (0.8 + 0.4 * chance(parts.seed, "took", question.id)), 1)
        trace = replace(
            question,
            chunks=tuple(chunks),
            answer=parts.finish(answer, question),
            citations=_cite(lines, chunks) if parts.name == "handbook" else None,
            model=parts.model,
            latency=Latency(generation=took),
        )
        answered.append(trace)
        pools.append(pool)
    return [parts.record(trace, pool) for trace, pool in zip(parts.batch(answered), pools, strict=True)]


def _retrieve(index: _Index, query: str, question: Trace) -> tuple[list[Chunk], list[Chunk]]:
    """Return the first candidates, and the chunks after reranking, selection and the cut."""
    parts = index.parts
    scores = parts.distort(index.score(query), question.id)
    if parts.tenants:
        scores = np.where(index.tenant == question.route, scores, -1.0)
    candidates = [int(at) for at in np.argsort(-scores, kind="stable")[:POOL] if scores[at] > 0]
    best = max(1e-9, float(scores.max()))
    asked = parts.query_terms(query)
    ranked = []
    for at in candidates:
        chunk = parts.chunks[at]
        score = 0.6 * index.cover(asked, chunk.text) + 0.4 * float(scores[at]) / best
        ranked.append(replace(chunk, score=round(parts.rank(score, chunk, question.id), 4)))
    pool = list(ranked)
    ranked.sort(key=lambda chunk: -(chunk.score or 0.0))
    remaining = [chunk for chunk in ranked if (chunk.score or 0.0) >= parts.least]
    return pool, parts.select(remaining)[: parts.top_k]


def _cite(lines: Sequence[str], chunks: Iterable[Chunk]) -> tuple[Citation, ...]:
    """Return for each line of an answer the chunk that holds it; none for what no chunk holds word for word."""
    holding = [(line, next((chunk.id for chunk in chunks if line in chunk.text), None)) for line in lines]
    return tuple(Citation(chunk=name, quote=line, claim=line) for line, name in holding if name is not None)


FORMS: dict[str, Callable[[Sequence[str]], str]] = {
    "reports": lambda lines: "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1)),
    "shop": lambda lines: "\n".join(f"- {line}" for line in lines),
    "handbook": " ".join,
}
"""How each system writes the lines of an answer."""


def write(index: _Index, query: str, texts: Sequence[str], name: str) -> list[str]:
    """Return the lines of an answer from the texts in the prompt, with the small slips that every model has."""
    parts = index.parts
    asked = terms(query)
    lines: list[tuple[float, str]] = []
    for rank, text in enumerate(texts):
        head = text.split("\n", 1)[0].lstrip("# ") if text.startswith("#") else ""
        for start, end in split_sentences(text):
            line = text[start:end].strip()
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            if line.startswith("#") or (cells and cells[0] in HEADS):
                continue
            statement = f"{head.split(' (')[0]}: {' '.join(cells)}." if cells else line
            lines.append((index.cover(asked, statement) - 0.02 * rank, statement))
    lines.sort(key=lambda item: -item[0])
    slip = int(len(lines) > 1 and chance(parts.seed, "second", name) < 0.05)
    lines = lines[min(parts.choice + slip, max(0, len(lines) - 1)) :]
    if not lines or lines[0][0] < 0.15 or chance(parts.seed, "shy", name) < 0.02:
        return [REFUSALS[int(2 * chance(parts.seed, "refusal", name))]]
    most = 3 if parts.name == "reports" else 2
    statement = list(dict.fromkeys(line for score, line in lines[:most] if score >= 0.75 * lines[0][0]))
    if len(statement) > 1 and chance(parts.seed, "short", name) < 0.05:
        statement = statement[:-1]
    return statement
