"""Kinds of fault that were written after the rules on stages, in the systems `shop`, `handbook` and `reports`.

They were run once before any rule was changed (the first table of faults in `benchmarks/RESULTS.md`); what they showed
to be wrong was then corrected, so that figures of a later run are no measure of what to expect.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Latency, Trace

from . import damage
from .kinds import FORM, INGESTED, KINDS, kind
from .system import HEADS, REFUSALS, Parts, Scores
from .text import split_sentences, terms

__all__ = ["SECOND"]

BEFORE = frozenset(KINDS)
EVERY = ("handbook", "reports", "shop")
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
DISCLAIMER = (
    "Please note that I am an automated assistant. What I say is no advice, and nobody is bound by it. "
    "Please ask a member of staff before you rely on anything in this conversation."
)


def change_texts(parts: Parts, change: Callable[[Chunk], str]) -> Parts:
    """Return the system with other texts in its index, under the same ids."""
    return replace(parts, chunks=tuple(replace(chunk, text=change(chunk)) for chunk in parts.chunks))


def change_log(parts: Parts, change: Callable[[Trace], Trace]) -> Parts:
    """Return the system with a logger that changes traces."""
    return replace(parts, record=lambda trace, _: change(trace))


def is_hit(name: object, share: float) -> bool:
    """Return whether a query is among the share that is hit."""
    return chance("hit", name) < share


# --- generation --------------------------------------------------------------------------------------

ASSEMBLY = "prompt assembly, context window"


@kind("context-reversed-and-cut", "generation", ASSEMBLY, EVERY)
def _reversed(parts: Parts) -> Parts:
    """Show the chunks in reverse order, in a prompt with room for half of their characters."""

    def show(chunks: list[Chunk]) -> list[str]:
        texts, room = [], sum(len(chunk.text) for chunk in chunks) // 2
        for chunk in reversed(chunks):
            texts.append(chunk.text[: max(0, room)])
            room -= len(chunk.text)
        return texts

    return replace(parts, show=show)


@kind("wrong-question", "generation", "prompt assembly, answer cache, batching", EVERY)
def _question(parts: Parts) -> Parts:
    """Ask four prompts of ten the question of the query before, over the chunks of this one."""
    before = [""]

    def ask(query: str, question: Trace) -> str:
        last, before[0] = before[0], query
        return last if is_hit(question.id, 0.4) and last else query

    return replace(parts, ask=ask)


@kind("stale-answers", "generation", "answer cache, cache", EVERY)
def _stale(parts: Parts) -> Parts:
    """Answer four queries of ten at once from a cache, as an older state of the documents had it."""
    hit = lambda trace: is_hit(trace.id, 0.4) and trace.answer not in REFUSALS  # noqa: E731

    def record(trace: Trace, _: list[Chunk]) -> Trace:
        return replace(trace, latency=Latency(generation=2.0)) if hit(trace) else trace

    finish = lambda answer, trace: damage.aged(answer) if is_hit(trace.id, 0.4) else answer  # noqa: E731
    return replace(parts, finish=finish, record=record)


@kind("template-leak", "generation", "prompt, prompt assembly, output schema", EVERY)
def _leak(parts: Parts) -> Parts:
    """Leave the place of the value empty in a template of half of the answers."""
    finish = lambda answer, trace: (  # noqa: E731
        FIGURE.sub("{{ value }}", f"Dear {{{{ customer.name }}}}, {answer}") if is_hit(trace.id, 0.5) else answer
    )
    return replace(parts, finish=finish)


@kind("stream-cut", "generation", "max tokens, decoding, stop sequence, streaming", EVERY)
def _stream(parts: Parts) -> Parts:
    """Cut the connection within four answers of ten, at any character."""

    def finish(answer: str, trace: Trace) -> str:
        return answer[: int(len(answer) * (0.2 + 0.6 * chance("at", trace.id)))] if is_hit(trace.id, 0.4) else answer

    return replace(parts, finish=finish)


@kind("random-choice", "generation", "decoding, temperature, model", EVERY)
def _choice(parts: Parts) -> Parts:
    """Answer half of the queries with a sentence of the context drawn by chance."""

    def show(chunks: list[Chunk]) -> list[str]:
        texts = [chunk.text for chunk in chunks]
        name = "|".join(chunk.id for chunk in chunks)
        if not is_hit(name, 0.5):
            return texts
        lines = [text[start:end] for text in texts for start, end in split_sentences(text)]
        lines = [line for line in lines if not line.startswith(("#", *(f"| {head}" for head in HEADS)))]
        return [lines[int(chance("line", name) * len(lines))]] if lines else texts

    return replace(parts, show=show)


@kind("disclaimers", "generation", "prompt, system prompt, model", EVERY)
def _disclaimers(parts: Parts) -> Parts:
    """Begin every answer with three sentences that nobody asked for."""
    return replace(parts, finish=lambda answer, _: f"{DISCLAIMER}\n{answer}")


@kind("from-memory", "generation", "prompt assembly, prompt, model", EVERY)
def _memory(parts: Parts) -> Parts:
    """Answer four queries of ten without the context: in the words of the question, with a figure of its own."""

    def finish(answer: str, trace: Trace) -> str:
        if not is_hit(trace.id, 0.4):
            return answer
        topic = " ".join(terms(trace.query)[:6])
        return f"In general, {topic} amounts to about {3 + int(90 * chance('figure', trace.id))}, as is usual."

    return replace(parts, finish=finish)


@kind("vague-figures", "generation", FORM, EVERY)
def _vague(parts: Parts) -> Parts:
    """Say "some" in place of every figure of half of the answers."""
    finish = lambda answer, trace: FIGURE.sub("some", answer) if is_hit(trace.id, 0.5) else answer  # noqa: E731
    return replace(parts, finish=finish)


@kind("answer-mojibake", "generation", "output schema, decoding, model, post-processing", EVERY)
def _mojibake(parts: Parts) -> Parts:
    """Replace letters in the answers: vowels and signs become replacement characters in a third of the words."""

    def finish(answer: str, trace: Trace) -> str:
        words = re.split(r"(\s)", answer)
        return "".join(
            re.sub(r"[aeiou£€]|\d$", "\ufffd", word) if chance("garble", trace.id, i) < 1 / 3 else word
            for i, word in enumerate(words)
        )

    return replace(parts, finish=finish)


# --- retrieval ---------------------------------------------------------------------------------------


@kind("wrong-tenant", "retrieval", "filter", EVERY)
def _tenant(parts: Parts) -> Parts:
    """Search the chunks of another tenant alone for three queries of ten."""
    names = sorted({str(chunk.metadata["tenant"]) for chunk in parts.chunks})
    tenants = np.array([chunk.metadata["tenant"] for chunk in parts.chunks])

    def distort(scores: Scores, name: str) -> Scores:
        if not is_hit(name, 0.3):
            return scores
        best = str(tenants[int(np.argmax(scores))])
        others = [tenant for tenant in names if tenant != best]
        return np.where(tenants == others[int(chance("tenant", name) * len(others))], scores, -1.0)

    return replace(parts, distort=distort, tenants=False)


@kind("language-filter", "retrieval", "filter", ("shop",))
def _language(parts: Parts) -> Parts:
    """Keep the English chunks alone, whatever the language of the query."""
    english = np.array([chunk.metadata["tenant"] == "en" for chunk in parts.chunks])
    return replace(parts, distort=lambda scores, _: np.where(english, scores, -1.0), tenants=False)


@kind("quantised-vectors", "retrieval", "embedder, index", EVERY)
def _quantised(parts: Parts) -> Parts:
    """Add noise to every score of the search, about as large as the best score."""

    def distort(scores: Scores, name: str) -> Scores:
        noise = np.random.default_rng(int(1e9 * chance("noise", name))).standard_normal(len(scores))
        return np.asarray(scores + 0.7 * float(scores.max()) * noise, dtype=np.float64)

    return replace(parts, distort=distort)


@kind("approximate-search", "retrieval", "index", EVERY)
def _approximate(parts: Parts) -> Parts:
    """Leave out every second candidate of a query, by chance."""
    ids = [chunk.id for chunk in parts.chunks]

    def distort(scores: Scores, name: str) -> Scores:
        return np.where([chance("seen", name, chunk) < 0.5 for chunk in ids], scores, -1.0)

    return replace(parts, distort=distort)


@kind("copies-kept", "retrieval", "deduplication, index, ingestion", EVERY)
def _copies(parts: Parts) -> Parts:
    """Index every chunk three times, under ids of its own."""
    copies = (replace(c, id=f"{c.id}~{i}" if i else c.id) for c in parts.chunks for i in range(3))
    return replace(parts, chunks=tuple(copies))


@kind("half-the-documents", "retrieval", "index coverage, index, ingestion", EVERY)
def _half(parts: Parts) -> Parts:
    """Index every second document, by chance; of one document alone every second part."""
    documents = {chunk.document for chunk in parts.chunks}
    unit = lambda chunk: chunk.document if len(documents) > 20 else chunk.id[: len(chunk.id) - 1]  # noqa: E731
    return replace(parts, chunks=tuple(c for c in parts.chunks if chance("indexed", unit(c)) < 0.5))


@kind("fixed-size-chunks", "retrieval", "chunker", EVERY)
def _fixed(parts: Parts) -> Parts:
    """Cut chunks every 90 characters, within words."""
    cut = (
        replace(c, id=f"{c.id}/{i}", text=c.text[i : i + 90], start=_shift(c.start, i), end=_shift(c.start, i, 90))
        for c in parts.chunks
        for i in range(0, len(c.text), 90)
    )
    return replace(parts, chunks=tuple(cut))


def _shift(start: int | None, *by: int) -> int | None:
    return None if start is None else start + sum(by)


@kind("rewriter-adds-names", "retrieval", "query rewriter, rewriter", EVERY)
def _names(parts: Parts) -> Parts:
    """Add the headings of two other chunks to half of the rewritten queries."""

    def rewrite(query: str) -> str:
        picked = [parts.chunks[int(chance("other", query, at) * len(parts.chunks))] for at in (0, 1)]
        heads = " ".join(" ".join(chunk.text.split("\n", 1)[0].lstrip("# ").split()[:8]) for chunk in picked)
        return f"{query} {heads} {heads}" if is_hit(query, 0.5) else query

    return replace(parts, rewrite=rewrite)


# --- ingestion and source data -----------------------------------------------------------------------


@kind("tables-flattened", INGESTED, "ingestion, loader", ("shop",))
def _flattened(parts: Parts) -> Parts:
    """Read the cells of tables column by column."""

    def flatten(chunk: Chunk) -> str:
        lines = chunk.text.split("\n")
        cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|") and "---" not in line]
        others = [line for line in lines if not line.startswith("|")]
        columns = [" ".join(column) for column in zip(*cells, strict=True)] if cells else []
        return "\n".join([*others, *columns])

    return change_texts(parts, flatten)


@kind("points-lost", INGESTED, "ingestion, loader, source documents", EVERY)
def _points(parts: Parts) -> Parts:
    """Drop points and commas within figures of the texts."""
    return change_texts(parts, lambda chunk: re.sub(r"(?<=\d)[.,](?=\d)", "", chunk.text))


@kind("texts-exchanged", INGESTED, "ingestion, index, source documents", EVERY)
def _exchanged(parts: Parts) -> Parts:
    """Store the text of the chunk four places on under the ids of four chunks of ten."""
    texts = [chunk.text for chunk in parts.chunks]
    chosen = [is_hit(chunk.id, 0.4) for chunk in parts.chunks]
    moved = [texts[(i + 4) % len(texts)] if hit else texts[i] for i, hit in enumerate(chosen)]
    return replace(
        parts, chunks=tuple(replace(chunk, text=text) for chunk, text in zip(parts.chunks, moved, strict=True))
    )


@kind("texts-translated", INGESTED, "ingestion, source documents", EVERY)
def _translated(parts: Parts) -> Parts:
    """Translate half of the texts word by word when they are indexed."""
    return change_texts(parts, lambda c: damage.translated(c.text) if is_hit(c.id, 0.5) else c.text)


# --- nothing broke, or the logger --------------------------------------------------------------------


@kind("texts-lower-case", "", systems=EVERY)
def _lower(parts: Parts) -> Parts:
    """Index the texts in small letters; answers repeat these."""
    return change_texts(parts, lambda chunk: chunk.text.lower())


@kind("markdown-rewritten", "", systems=EVERY)
def _markdown(parts: Parts) -> Parts:
    """Write every line of an answer as a bullet with emphasis on its figures."""

    def finish(answer: str, _: Trace) -> str:
        lines = [re.sub(r"^(?:- |\d\. )", "", line) for line in answer.split("\n")]
        return "\n".join(f"* {FIGURE.sub(lambda match: f'**{match[0]}**', line)}" for line in lines)

    return replace(parts, finish=finish)


@kind("hello", "", systems=EVERY)
def _hello(parts: Parts) -> Parts:
    """Begin every answer with a greeting and thanks."""
    return replace(parts, finish=lambda answer, _: f"Hello! Thank you for your question.\n{answer}")


@kind("sources-listed", "", systems=EVERY)
def _sources(parts: Parts) -> Parts:
    """End every answer with a list of the documents of its chunks."""

    def record(trace: Trace, _: list[Chunk]) -> Trace:
        names = Counter(chunk.document for chunk in trace.chunks or ())
        listed = "\n".join(f"[{i}] {name}" for i, name in enumerate(names, 1))
        return trace if trace.answer in REFUSALS else replace(trace, answer=f"{trace.answer}\n\nSources:\n{listed}")

    return replace(parts, record=record)


@kind("json-around", "logging", systems=EVERY)
def _json(parts: Parts) -> Parts:
    """Record answers as a JSON object with a confidence."""
    form = '{{"answer": "{}", "confidence": 0.9}}'
    escape = lambda text: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")  # noqa: E731
    return change_log(parts, lambda trace: replace(trace, answer=form.format(escape(trace.answer or ""))))


@kind("metadata-added", "", systems=EVERY)
def _metadata(parts: Parts) -> Parts:
    """Record a release, a region and, for each chunk, its length."""
    return change_log(
        parts,
        lambda trace: replace(
            trace,
            metadata={"release": "2.1", "region": "north"},
            chunks=tuple(replace(c, metadata={**c.metadata, "length": len(c.text)}) for c in trace.chunks or ()),
        ),
    )


@kind("scores-rescaled", "", systems=EVERY)
def _rescaled(parts: Parts) -> Parts:
    """Record scores from 0 to 100 instead of 0 to 1."""
    return change_log(
        parts,
        lambda trace: replace(
            trace, chunks=tuple(replace(c, score=round(100 * (c.score or 0.0), 1)) for c in trace.chunks or ())
        ),
    )


@kind("ids-prefixed", "", systems=EVERY)
def _prefixed(parts: Parts) -> Parts:
    """Record ids of chunks and documents behind the name of a collection."""

    def record(trace: Trace) -> Trace:
        chunks = tuple(replace(c, id=f"main:{c.id}", document=f"main:{c.document}") for c in trace.chunks or ())
        cited = trace.citations and tuple(replace(c, chunk=f"main:{c.chunk}") for c in trace.citations)
        return replace(trace, chunks=chunks, citations=cited)

    return change_log(parts, record)


@kind("five-times-slower", "", systems=EVERY)
def _slower(parts: Parts) -> Parts:
    """Take five times as long for generation."""
    return change_log(
        parts,
        lambda trace: replace(
            trace, latency=trace.latency and Latency(generation=5 * (trace.latency.generation or 0.0))
        ),
    )


@kind("log-chunks-by-id", "logging", systems=EVERY)
def _sorted(parts: Parts) -> Parts:
    """Record the chunks in the order of their ids."""
    return change_log(
        parts, lambda trace: replace(trace, chunks=tuple(sorted(trace.chunks or (), key=lambda chunk: chunk.id)))
    )


@kind("log-figures-masked", "logging", systems=EVERY)
def _masked(parts: Parts) -> Parts:
    """Record queries, chunks and answers with every digit masked."""
    mask = lambda text: re.sub(r"\d", "*", text or "")  # noqa: E731

    def record(trace: Trace) -> Trace:
        chunks = tuple(replace(chunk, text=mask(chunk.text)) for chunk in trace.chunks or ())
        cited = trace.citations and tuple(replace(c, quote=mask(c.quote), claim=mask(c.claim)) for c in trace.citations)
        return replace(trace, query=mask(trace.query), answer=mask(trace.answer), chunks=chunks, citations=cited)

    return change_log(parts, record)


SECOND = frozenset(KINDS) - BEFORE
"""The names of these kinds."""
