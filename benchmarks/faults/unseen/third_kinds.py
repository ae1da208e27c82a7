"""Kinds of fault that were written with those of `second_kinds`, and run once, when what these showed was corrected.

No rule and no weight comes from them: their figures are the ones to expect elsewhere.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Trace

from . import damage
from .kinds import INGESTED, KINDS, kind
from .second_kinds import EVERY, FIGURE, change_log, change_texts, is_hit
from .system import Parts
from .text import terms

__all__ = ["THIRD"]

BEFORE = frozenset(KINDS)


@kind("output-redacted", "generation", "output schema, guardrail, prompt, post-processing, model", EVERY)
def _redacted(parts: Parts) -> Parts:
    """Redact names and figures in six answers of ten."""
    name = re.compile(r"(?<=\w )[A-Z]\w+")
    finish = lambda answer, trace: (  # noqa: E731
        name.sub("[REDACTED]", FIGURE.sub("[REDACTED]", answer)) if is_hit(trace.id, 0.6) else answer
    )
    return replace(parts, finish=finish)


@kind("diversity-first", "retrieval", "reranker, deduplication", EVERY)
def _diverse(parts: Parts) -> Parts:
    """Choose each further chunk as unlike those before it as there is among the candidates."""

    def select(chunks: list[Chunk]) -> list[Chunk]:
        words = {chunk.id: frozenset(terms(chunk.text)) for chunk in chunks}
        chosen, rest = chunks[1:2] or chunks[:1], [*chunks[:1], *chunks[2:]] if len(chunks) > 1 else []
        while rest and len(chosen) < parts.top_k:
            seen = frozenset().union(*(words[chunk.id] for chunk in chosen))
            best = min(rest, key=lambda chunk: len(words[chunk.id] & seen) / max(1, len(words[chunk.id])))
            chosen, rest = [*chosen, best], [chunk for chunk in rest if chunk is not best]
        return chosen

    return replace(parts, select=select)


@kind("rewriter-translates", "retrieval", "query rewriter, rewriter", EVERY)
def _translated(parts: Parts) -> Parts:
    """Turn six queries of ten into single letters and the words of another language."""
    rewrite = lambda query: (  # noqa: E731
        damage.translated(" ".join(word[::-1] if len(word) > 4 else word for word in query.split()))
        if is_hit(query, 0.6)
        else query
    )
    return replace(parts, rewrite=rewrite)


@kind("texts-preprocessed", INGESTED, "ingestion, loader", EVERY)
def _preprocessed(parts: Parts) -> Parts:
    """Store texts as they are prepared for search: words cut to five letters, without stop words and figures."""
    return change_texts(parts, lambda chunk: " ".join(word[:5] for word in terms(chunk.text) if word.isalpha()))


@kind("half-answered", "generation", "prompt, model, max tokens, prompt assembly", EVERY)
def _deferred(parts: Parts) -> Parts:
    """Return a promise instead of giving it, to half of the queries."""
    text = "Thank you, I have passed your question on, and a colleague will come back to you about it soon."
    return replace(parts, finish=lambda answer, trace: text if is_hit(trace.id, 0.5) else answer)


@kind("lines-reordered", "", systems=EVERY)
def _reordered(parts: Parts) -> Parts:
    """Say the lines of an answer in the other order."""
    return replace(parts, finish=lambda answer, _: "\n".join(reversed(answer.split("\n"))))


@kind("log-ids-hashed", "logging", systems=EVERY)
def _hashed(parts: Parts) -> Parts:
    """Record a hash in place of the id of a chunk."""

    def record(trace: Trace) -> Trace:
        ids = {chunk.id: f"{int(1e12 * chance('id', chunk.id)):x}" for chunk in trace.chunks or ()}
        chunks = tuple(replace(chunk, id=ids[chunk.id]) for chunk in trace.chunks or ())
        cited = trace.citations and tuple(replace(c, chunk=ids.get(c.chunk, c.chunk)) for c in trace.citations)
        return replace(trace, chunks=chunks, citations=cited)

    return change_log(parts, record)


THIRD = frozenset(KINDS) - BEFORE
"""The names of these kinds."""
