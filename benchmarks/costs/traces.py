"""Make the traces that every tool judges: answers of the demo handbook, five chunks each, with citation marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.judges.checks.claims import extract_claims
from ragfault.model.records import Chunk, Trace
from ragfault.text.sentences import split_sentences

__all__ = ["CHUNKS", "export_plain", "make_traces"]

CHUNKS = 5
HEADING = re.compile(r"^## Section \d+\. (.*)$", re.MULTILINE)


def make_traces(count: int) -> list[Trace]:
    """Make traces of the answers with most claims, each with its retrieved chunks and others of the corpus up to five.

    Line breaks are taken out of the chunks, and behind each cited sentence stands the number of its chunk, in
    brackets: one tool reads them there.
    """
    answered = [trace for trace in load_handbook().traces["v1"] if trace.answer and trace.reference]
    answered.sort(key=lambda trace: -len(extract_claims(trace.answer or "")))
    pool = {chunk.id: flatten_chunk(chunk) for trace in answered for chunk in trace.chunks or ()}
    return [add_citation_marks(fill_chunks(trace, list(pool.values()), i)) for i, trace in enumerate(answered[:count])]


def flatten_chunk(chunk: Chunk) -> Chunk:
    """Return a chunk in one line, its heading without the number of the section."""
    return replace(chunk, text=" ".join(HEADING.sub(r"\1:", chunk.text).split()))


def fill_chunks(trace: Trace, pool: list[Chunk], place: int) -> Trace:
    """Return a trace with five chunks: its own first, then those of the pool from a position on."""
    chunks = {chunk.id: flatten_chunk(chunk) for chunk in (trace.chunks or ())[:CHUNKS]}
    for chunk in pool[place:] + pool[:place]:
        if len(chunks) < CHUNKS:
            chunks.setdefault(chunk.id, replace(chunk, score=None))
    return replace(trace, chunks=tuple(chunks.values()))


def add_citation_marks(trace: Trace) -> Trace:
    """Return a trace whose answer carries the numbers of the chunks that it cites."""
    order = [chunk.id for chunk in trace.chunks or ()]
    answer, citations = trace.answer or "", []
    for citation in trace.citations or ():
        claim = citation.claim or ""
        numbered = (
            f"{claim[:-1]} [{order.index(citation.chunk) + 1}]{claim[-1]}" if claim in answer and claim else claim
        )
        answer = answer.replace(claim, numbered, 1) if claim else answer
        citations.append(replace(citation, claim=numbered))
    return replace(trace, answer=answer, citations=tuple(citations) if trace.citations else trace.citations)


def export_plain(trace: Trace) -> dict[str, Any]:
    """Return a trace in the form of the other tools, with its texts in sentences for the endpoint."""
    chunks = [chunk.text for chunk in trace.chunks or ()]
    reference = trace.reference if isinstance(trace.reference, str) else " ".join(trace.reference or ())
    return {
        "id": trace.id,
        "query": trace.query,
        "chunks": chunks,
        "answer": trace.answer,
        "reference": reference,
        "said": [claim.text for claim in extract_claims(trace.answer or "")],
        "expected": list(split_text(reference)),
        "passages": [list(split_text(chunk)) for chunk in chunks],
    }


def split_text(text: str) -> Iterator[str]:
    """Yield the sentences of a text."""
    return (text[start:end].strip() for start, end in split_sentences(text))
