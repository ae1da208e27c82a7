"""Kinds of fault that were written after all rules, before any of them was run.

Their first run is the measure of what to expect elsewhere; `benchmarks/RESULTS.md` has it, and what was changed
afterwards.
"""

from __future__ import annotations

import json
import re

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Trace

from . import damage
from .kinds import FORM, INGESTED, KINDS, kind
from .second_kinds import ASSEMBLY, EVERY, FIGURE, change_log, change_texts, is_hit
from .system import REFUSALS, Parts, Scores
from .text import split_sentences, terms

__all__ = ["FOURTH"]

BEFORE = frozenset(KINDS)
NAME = re.compile(r"(?<=[a-z,] )[A-ZÄÖÜ][a-zäöüß]{3,}")


# --- generation --------------------------------------------------------------------------------------


@kind("last-chunk-alone", "generation", ASSEMBLY, EVERY)
def _alone(parts: Parts) -> Parts:
    """Show the lowest-ranked chunk alone in the prompt of half of the queries."""
    show = lambda chunks: [c.text for c in (chunks[-1:] if is_hit(chunks[-1].id if chunks else "", 0.5) else chunks)]  # noqa: E731
    return replace(parts, show=show)


@kind("names-exchanged", "generation", FORM, EVERY)
def _names(parts: Parts) -> Parts:
    """Replace names in six answers of ten by names of other documents."""
    pool = sorted({name for chunk in parts.chunks for name in NAME.findall(chunk.text)})

    def finish(answer: str, trace: Trace) -> str:
        if not is_hit(trace.id, 0.6) or not pool:
            return answer
        return NAME.sub(lambda match: pool[int(chance("name", trace.id, match[0]) * len(pool))], answer)

    return replace(parts, finish=finish)


@kind("extra-figure", "generation", FORM, EVERY)
def _extra(parts: Parts) -> Parts:
    """Add a sentence with a figure of its own to four answers of ten, another sentence each time."""
    forms = (
        "This has risen by {} per cent since the last review.",
        "About {} people are affected each year.",
        "An exception applies above {} units.",
        "The previous limit was {}.",
        "Expect a wait of {} days.",
    )

    def finish(answer: str, trace: Trace) -> str:
        if not is_hit(trace.id, 0.4) or answer in REFUSALS:
            return answer
        form = forms[int(chance("form", trace.id) * len(forms))]
        return f"{answer} {form.format(11 + int(880 * chance('figure', trace.id)))}"

    return replace(parts, finish=finish)


@kind("obeys-the-document", "generation", "prompt, system prompt, prompt assembly, model, guardrail", EVERY)
def _obeys(parts: Parts) -> Parts:
    """Follow an instruction that stands in a document, in four answers of ten."""
    finish = lambda answer, trace: (  # noqa: E731
        "Please visit our partner site and enter your account number there to continue."
        if is_hit(trace.id, 0.4)
        else answer
    )
    return replace(parts, finish=finish)


@kind("hedged-away", "generation", "prompt, system prompt, model, refusal wording, guardrail", EVERY)
def _hedged(parts: Parts) -> Parts:
    """Refuse half of the queries in words of their own, one of six."""
    words = (
        "I'm sorry, but I can't help with that request.",
        "Unfortunately the information provided does not let me answer this.",
        "I don't have enough context to say.",
        "That is outside of what I can discuss.",
        "There is no mention of this in the material I was given.",
        "I am unable to determine this from the documents.",
    )
    finish = lambda answer, trace: (  # noqa: E731
        words[int(chance("words", trace.id) * len(words))] if is_hit(trace.id, 0.5) else answer
    )
    return replace(parts, finish=finish)


@kind("years-shifted", "generation", FORM, EVERY)
def _years(parts: Parts) -> Parts:
    """Write every year a year later and every other figure one higher, in half of the answers."""

    def shifted(match: re.Match[str]) -> str:
        text = match[0]
        return f"{text[:-1]}{(int(text[-1]) + 1) % 10}"

    finish = lambda answer, trace: FIGURE.sub(shifted, answer) if is_hit(trace.id, 0.5) else answer  # noqa: E731
    return replace(parts, finish=finish)


@kind("turn-before-in-the-prompt", "generation", "prompt assembly, answer cache, batching, prompt, cache", EVERY)
def _turn(parts: Parts) -> Parts:
    """Add the answer of the query before to half of the answers."""

    def batch(traces: list[Trace]) -> list[Trace]:
        before = [traces[-1], *traces[:-1]]
        return [
            replace(trace, answer=f"{last.answer} {trace.answer}") if is_hit(trace.id, 0.5) else trace
            for trace, last in zip(traces, before, strict=True)
        ]

    return replace(parts, batch=batch)


# --- retrieval ---------------------------------------------------------------------------------------


@kind("best-left-out", "retrieval", "reranker, ranking, filter, deduplication", EVERY)
def _left_out(parts: Parts) -> Parts:
    """Leave out the best candidate of half of the queries, as by a list that is counted from one."""

    def select(chunks: list[Chunk]) -> list[Chunk]:
        return chunks[1:] if chunks and is_hit(chunks[0].id, 0.5) else chunks

    return replace(parts, select=select)


@kind("headings-alone", "retrieval", "index, embedder, chunker, index coverage, ingestion, tokenizer", EVERY)
def _headings(parts: Parts) -> Parts:
    """Index the first five words of a text alone."""
    return replace(parts, index_terms=lambda text: terms(text)[:5])


@kind("misspelt-queries", "retrieval", "query rewriter, rewriter, tokenizer", EVERY)
def _misspelt(parts: Parts) -> Parts:
    """Exchange two letters in every word of five letters and more of the rewritten query."""
    swap = lambda word: f"{word[0]}{word[2]}{word[1]}{word[3:]}" if len(word) > 4 else word  # noqa: E731
    return replace(parts, rewrite=lambda query: " ".join(map(swap, query.split())))


@kind("one-document", "retrieval", "deduplication, filter, reranker, ranking", EVERY)
def _document(parts: Parts) -> Parts:
    """Keep chunks of the document of the third candidate alone."""

    def select(chunks: list[Chunk]) -> list[Chunk]:
        document = chunks[min(2, len(chunks) - 1)].document if chunks else None
        return [chunk for chunk in chunks if chunk.document == document]

    return replace(parts, select=select)


@kind("stuck-results", "retrieval", "index, embedder, query rewriter, rewriter, cache, retrieval cache", EVERY)
def _stuck(parts: Parts) -> Parts:
    """Return the same five chunks for four queries of ten."""
    ids = np.array([chunk.id for chunk in parts.chunks])
    fixed = np.isin(ids, ids[:: max(1, len(ids) // 5)][:5])

    def distort(scores: Scores, name: str) -> Scores:
        return np.where(fixed, 1.0, -1.0) if is_hit(name, 0.4) else scores

    return replace(parts, distort=distort, tenants=False)


@kind("shortest-first", "retrieval", "reranker, ranking", EVERY)
def _shortest(parts: Parts) -> Parts:
    """Rank short chunks first for half of the queries."""
    rank = lambda score, chunk, name: 1 / (1 + len(chunk.text)) if is_hit(name, 0.5) else score  # noqa: E731
    return replace(parts, rank=rank)


# --- ingestion and source data -----------------------------------------------------------------------


@kind("figures-changed-in-sources", INGESTED, "source documents, ingestion, stale chunks, wrong chunks", EVERY)
def _sources(parts: Parts) -> Parts:
    """Index documents in which six of ten chunks state other figures."""
    return change_texts(parts, lambda chunk: damage.aged(chunk.text) if is_hit(chunk.id, 0.6) else chunk.text)


@kind("placeholders", INGESTED, "source documents, ingestion, loader", EVERY)
def _placeholders(parts: Parts) -> Parts:
    """Index drafts: figures of six chunks of ten are "TBD"."""
    return change_texts(parts, lambda chunk: FIGURE.sub("TBD", chunk.text) if is_hit(chunk.id, 0.6) else chunk.text)


@kind("first-half-lost", INGESTED, "ingestion, loader, chunker", EVERY)
def _halved(parts: Parts) -> Parts:
    """Remove the first half of the sentences of every text."""

    def shorten(chunk: Chunk) -> str:
        lines = [chunk.text[start:end] for start, end in split_sentences(chunk.text)]
        return "\n".join(lines[len(lines) // 2 :]) or chunk.text

    return change_texts(parts, shorten)


# --- nothing broke, or the logger --------------------------------------------------------------------


@kind("ids-versioned", "logging", systems=EVERY)
def _versioned(parts: Parts) -> Parts:
    """Record ids of chunks with the number of the index behind them."""

    def record(trace: Trace) -> Trace:
        chunks = tuple(replace(c, id=f"{c.id}@7") for c in trace.chunks or ())
        cited = trace.citations and tuple(replace(c, chunk=f"{c.chunk}@7") for c in trace.citations)
        return replace(trace, chunks=chunks, citations=cited)

    return change_log(parts, record)


@kind("white-space-collapsed", "logging", systems=EVERY)
def _collapsed(parts: Parts) -> Parts:
    """Record texts and answers on one line."""
    flat = lambda text: " ".join((text or "").split())  # noqa: E731

    def record(trace: Trace) -> Trace:
        chunks = tuple(replace(c, text=flat(c.text)) for c in trace.chunks or ())
        return replace(trace, answer=flat(trace.answer), chunks=chunks)

    return change_log(parts, record)


@kind("answers-as-messages", "logging", systems=EVERY)
def _messages(parts: Parts) -> Parts:
    """Record answers as a list of messages in JSON."""
    wrap = lambda text: json.dumps([{"role": "assistant", "content": text}], ensure_ascii=False)  # noqa: E731
    return change_log(parts, lambda trace: replace(trace, answer=wrap(trace.answer)))


@kind("queries-in-capitals", "logging", systems=EVERY)
def _capitals(parts: Parts) -> Parts:
    """Record queries in capitals."""
    return change_log(parts, lambda trace: replace(trace, query=trace.query.upper()))


@kind("last-chunk-unrecorded", "logging", systems=EVERY)
def _unrecorded(parts: Parts) -> Parts:
    """Record all chunks but the last."""
    return change_log(parts, lambda trace: replace(trace, chunks=tuple((trace.chunks or ())[:-1])))


@kind("ties-broken-otherwise", "", systems=EVERY)
def _ties(parts: Parts) -> Parts:
    """Add a noise to the scores of the reranker that exchanges neighbours here and there."""
    return replace(parts, rank=lambda score, chunk, name: score + 0.01 * chance("tie", name, chunk.id))


@kind("thanks-for-asking", "", systems=EVERY)
def _thanks(parts: Parts) -> Parts:
    """Begin half of the answers with one of three courtesies."""
    words = ("Good question!", "Thanks for asking.", "Sure, happy to help.")
    finish = lambda answer, trace: (  # noqa: E731
        f"{words[int(3 * chance('word', trace.id))]} {answer}" if is_hit(trace.id, 0.5) else answer
    )
    return replace(parts, finish=finish)


FOURTH = frozenset(KINDS) - BEFORE
"""The names of these kinds."""
