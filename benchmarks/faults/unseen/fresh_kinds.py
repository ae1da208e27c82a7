"""Kinds of fault that were written before the rules on stages were extended, and tried once, when these were done.

No rule and no weight comes from them: their figures are the ones to expect elsewhere.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Trace

from .kinds import BOTH, FORM, INGESTED, KINDS, kind
from .system import HEADS, REFUSALS, Parts
from .text import split_sentences

__all__ = ["FRESH"]

BEFORE = frozenset(KINDS)
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
BANNER = "Home | Products | About us | Contact. We use cookies: accept all or choose. Skip to content.\n"
EXAMPLE = "For example, the museum in the old port opens at nine and a ticket costs 12 crowns."


# --- generation --------------------------------------------------------------------------------------


@kind("rounded-figures", "generation", FORM)
def _rounded(parts: Parts) -> Parts:
    """Round every figure of the answers to its first digit."""

    def first_digit(match: re.Match[str]) -> str:
        return match[0][0] + re.sub(r"\d", "0", match[0][1:])

    return replace(parts, finish=lambda answer, _: FIGURE.sub(first_digit, answer))


@kind("shuffled-context", "generation", "prompt assembly, answer cache, cache, batching")
def _context_of_another(parts: Parts) -> Parts:
    """Write four answers of ten from the chunks that were retrieved for the query before it."""
    seen: list[list[str]] = [[]]

    def show(chunks: list[Chunk]) -> list[str]:
        texts = [chunk.text for chunk in chunks]
        before, seen[0] = seen[0], texts
        return before if chance("hit", *texts[:1]) < 0.4 and before else texts

    return replace(parts, show=show)


@kind("guard-too-strict", "generation", "refusal wording, prompt, system prompt, guardrail, model")
def _guard(parts: Parts) -> Parts:
    """Refuse where the query holds one of the words of a list that is too long."""
    listed = ("price", "power", "weight", "warranty", "much", "many", "percent", "gewicht", "preis", "garantie")
    refuse = lambda trace: any(word in trace.query.lower() for word in listed)  # noqa: E731
    return replace(parts, finish=lambda answer, trace: REFUSALS[0] if refuse(trace) else answer)


@kind("hot-sampling", "generation", "decoding, temperature, model")
def _hot(parts: Parts) -> Parts:
    """Replace a fifth of the words of every answer by other words of the documents."""
    pool = [word for chunk in parts.chunks[::7] for word in chunk.text.split() if word.isalpha()]

    def finish(answer: str, trace: Trace) -> str:
        words = re.split(r"(\s)", answer)
        chances = [chance("hot", trace.id, i) for i in range(len(words))]
        return "".join(
            pool[int(luck * 5 * len(pool))] if luck < 0.2 and word.strip() else word
            for word, luck in zip(words, chances, strict=True)
        )

    return replace(parts, finish=finish)


@kind("pointer-only", "generation", "prompt, system prompt, model, output schema")
def _pointer(parts: Parts) -> Parts:
    """Say where the answer stands instead of what it is, in half of the answers."""
    finish = lambda answer, trace: (  # noqa: E731
        "You will find the details in the first of the documents." if chance("hit", trace.id) < 0.5 else answer
    )
    return replace(parts, finish=finish)


@kind("example-leak", "generation", "prompt, system prompt, model")
def _example(parts: Parts) -> Parts:
    """Add the sentence of an example in the prompt to four answers of ten."""
    finish = lambda answer, trace: f"{answer}\n{EXAMPLE}" if chance("hit", trace.id) < 0.4 else answer  # noqa: E731
    return replace(parts, finish=finish)


# --- retrieval ---------------------------------------------------------------------------------------


@kind("query-truncated", "retrieval", "query rewriter, rewriter, tokenizer, embedder")
def _truncated(parts: Parts) -> Parts:
    """Search with the first four words of every query."""
    return replace(parts, rewrite=lambda query: " ".join(query.split()[:4]))


@kind("query-generic", "retrieval", "query rewriter, rewriter")
def _generic(parts: Parts) -> Parts:
    """Search with a general question for four queries of ten."""
    general = "What information do the documents give about this topic?"
    return replace(parts, rewrite=lambda query: general if chance("hit", query) < 0.4 else query)


@kind("length-bias", "retrieval", "reranker, ranking")
def _long_first(parts: Parts) -> Parts:
    """Rank long chunks higher, by a bonus as large as a good match."""
    most = max(len(chunk.text) for chunk in parts.chunks)
    return replace(parts, rank=lambda score, chunk, _: score + 0.8 * len(chunk.text) / most)


@kind("shard-down", "retrieval", "index, index coverage")
def _shard(parts: Parts) -> Parts:
    """Get no answer from one of three shards of the index for six queries of ten."""
    missing = lambda chunk, name: chance("down", name) < 0.6 and chance("shard", chunk.id) < 1 / 3  # noqa: E731
    return replace(parts, rank=lambda score, chunk, name: -9.0 if missing(chunk, name) else score)


@kind("wrong-section", "retrieval", "filter, query router, index")
def _section(parts: Parts) -> Parts:
    """Keep only chunks of one half of the documents for four queries of ten."""

    def rank(score: float, chunk: Chunk, name: str) -> float:
        return -9.0 if chance("hit", name) < 0.4 and chance("half", chunk.document) < 0.5 else score

    return replace(parts, rank=rank)


@kind("chunks-joined", "retrieval", "chunker, ingestion")
def _joined(parts: Parts) -> Parts:
    """Index chunks four times as long: four neighbours of a tenant joined, under the id of the first and a length."""
    joined = []
    for tenant in sorted({chunk.metadata["tenant"] for chunk in parts.chunks}):
        own = [chunk for chunk in parts.chunks if chunk.metadata["tenant"] == tenant]
        for index in range(0, len(own), 4):
            part = own[index : index + 4]
            text = "\n".join(chunk.text for chunk in part)
            joined.append(replace(part[0], id=f"{part[0].id}+{len(part)}", text=text, end=part[-1].end))
    return replace(parts, chunks=tuple(joined), top_k=2)


# --- ingestion ---------------------------------------------------------------------------------------


@kind("menu-in-texts", INGESTED, "ingestion, loader")
def _menu(parts: Parts) -> Parts:
    """Put the menu and the banner of the page twice before every text, and lose its last half."""
    shorten = lambda text: text[: max(40, len(text) // 2)]  # noqa: E731
    return replace(parts, chunks=tuple(replace(c, text=f"{BANNER * 2}{shorten(c.text)}") for c in parts.chunks))


@kind("columns-mixed", INGESTED, "ingestion, loader")
def _columns(parts: Parts) -> Parts:
    """Read two columns as one: the words of both halves of a text alternate."""

    def mix(text: str) -> str:
        words = text.split()
        half = len(words) // 2
        pairs = zip(words[half:], words[:half], strict=False)
        return " ".join(word for pair in pairs for word in pair)

    return replace(parts, chunks=tuple(replace(c, text=mix(c.text)) for c in parts.chunks))


@kind("lines-lost", INGESTED, "ingestion, loader, chunker, source documents")
def _lines(parts: Parts) -> Parts:
    """Leave out every second sentence or line of the texts."""

    def thin(text: str) -> str:
        spans = [span for span in split_sentences(text) if not text.startswith(tuple(HEADS), span[0])]
        return "\n".join(text[start:end] for start, end in spans[::2])

    return replace(parts, chunks=tuple(replace(c, text=thin(c.text)) for c in parts.chunks))


# --- nothing broke, or the logger --------------------------------------------------------------------


@kind("log-lower-case", "logging", systems=BOTH)
def _lower(parts: Parts) -> Parts:
    """Record answers in small letters."""
    return replace(parts, record=lambda trace, _: replace(trace, answer=trace.answer.lower()))


@kind("log-places-as-ids", "logging")
def _places(parts: Parts) -> Parts:
    """Record the place of a chunk in the list as its id."""

    def record(trace: Trace, _: list[Chunk]) -> Trace:
        return replace(trace, chunks=tuple(replace(c, id=str(i)) for i, c in enumerate(trace.chunks, 1)))

    return replace(parts, record=record)


@kind("greeting", "")
def _greeting(parts: Parts) -> Parts:
    """End every answer that is no refusal with an offer to help."""
    return replace(
        parts, finish=lambda answer, _: answer if answer in REFUSALS else f"{answer}\nLet me know if you need more."
    )


@kind("polite-rewriter", "")
def _polite(parts: Parts) -> Parts:
    """Search with two words before the query that no document holds."""
    return replace(parts, rewrite=lambda query: f"kindly tell {query}")


FRESH = frozenset(KINDS) - BEFORE
"""The names of these kinds."""
