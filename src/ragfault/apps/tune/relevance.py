"""Relevance of documents to one query, by several judges side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from ragfault.judges.loading import DEFAULT_JUDGE, load_judge
from ragfault.model.errors import InputError, RagfaultError, UsageError
from ragfault.model.protocols import Judge, MeteredJudge
from ragfault.model.records import Chunk, Document, Trace
from ragfault.retrieval.chunking.chunker import load_chunker


class JudgeRelevance(Struct, frozen=True, kw_only=True):
    """A judge, and how relevant it finds each chunk."""

    judge: str
    fingerprint: str
    values: tuple[float, ...]
    """In [0, 1], in the order of the chunks."""
    seconds: float
    cost: float | None
    """US$; 0 for a judge on this machine, None where no price is known."""


class RelevanceComparison(Struct, frozen=True, kw_only=True):
    """A query, chunks of documents, and their relevance by each judge."""

    query: str
    chunks: tuple[Chunk, ...]
    scored: tuple[JudgeRelevance, ...]

    @property
    def gaps(self) -> tuple[float, ...]:
        """For each chunk the greatest value less the least: how far the judges differ."""
        columns = zip(*(scored_judge.values for scored_judge in self.scored), strict=True)
        return tuple(max(column) - min(column) for column in columns)

    @property
    def documents(self) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """Each document with its best chunk's relevance by each judge, the best by the first judge first."""
        best: dict[str, list[float]] = {}
        for index, chunk in enumerate(self.chunks):
            best_values = best.setdefault(chunk.document or chunk.id, [0.0] * len(self.scored))
            for i, judge_scores in enumerate(self.scored):
                best_values[i] = max(best_values[i], judge_scores.values[index])
        return tuple((name, tuple(values)) for name, values in sorted(best.items(), key=lambda pair: -pair[1][0]))


def compare_relevance(
    query: str,
    documents: Sequence[Document],
    judges: Sequence[str | Judge] = (DEFAULT_JUDGE,),
    chunker: str = "sentences(256)",
) -> RelevanceComparison:
    """Score documents against a query, chunk by chunk, by each judge.

    Raises InputError for an empty query or documents without text, UsageError for a judge that sees no relevance.

    >>> texts = {"ferry": "The ferry leaves at ten.", "dogs": "Dogs need a lead."}
    >>> documents = [Document(id=name, text=text) for name, text in texts.items()]
    >>> found = compare_relevance("When does the ferry leave?", documents, ["lexical"])
    >>> [name for name, _ in found.documents]
    ['ferry', 'dogs']
    """
    if not query.strip():
        raise InputError("the query is empty: there is nothing to be relevant to.")
    divide = load_chunker(chunker)
    chunks = tuple(chunk for document in documents for chunk in divide(document) if chunk.text.strip())
    if not chunks:
        raise InputError(f"none of {len(documents):,} documents has any text.")
    return RelevanceComparison(
        query=query, chunks=chunks, scored=tuple(_score_by_judge(query, chunks, judge) for judge in judges)
    )


def _score_by_judge(query: str, chunks: tuple[Chunk, ...], judge_or_name: str | Judge) -> JudgeRelevance:
    """Return the relevance of all chunks by one judge."""
    judge = load_judge(judge_or_name) if isinstance(judge_or_name, str) else judge_or_name
    name = judge_or_name if isinstance(judge_or_name, str) else judge.fingerprint.split()[0]
    if "chunk" not in judge.offers:
        raise UsageError(
            f'the judge "{name}" does not say how relevant a chunk is. Take encoder, embedded, lexical or llm:MODEL.'
        )
    metered = judge if isinstance(judge, MeteredJudge) else None
    before = metered.usage.cost if metered is not None else 0.0
    start = time.perf_counter()
    try:
        verdicts = judge.observe([Trace(id="relevance", query=query, chunks=chunks)])[0]
    finally:
        if metered is not None:
            metered.end()
    if verdicts.chunk is None or len(verdicts.chunk) != len(chunks):
        why = verdicts.failures.get("chunk") or verdicts.failures.get("*") or "it saw none of the chunks"
        raise RagfaultError(f'the judge "{name}" could not judge them: {why}.')
    after = metered.usage.cost if metered is not None else 0.0
    return JudgeRelevance(
        judge=name,
        fingerprint=judge.fingerprint,
        values=tuple(chunk_verdict.relevance for chunk_verdict in verdicts.chunk),
        seconds=time.perf_counter() - start,
        cost=None if before is None or after is None else after - before,
    )
