"""Small agent for `ragfault replay --agent`: it rewrites a question, takes three passages, and copies a sentence."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from msgspec.structs import replace

from ragfault import Chunk, Trace, read_traces


def split_words(text: str) -> set[str]:
    """Return the words of a text that have four letters or more."""
    return set(re.findall(r"\w{4,}", text.lower()))


@cache
def list_passages() -> tuple[Chunk, ...]:
    """List every passage of the traces of the demo, in the order of their ids."""
    chunks = {chunk.id: chunk for trace in read_traces("agent/agent-v1.jsonl") for chunk in trace.chunks or ()}
    return tuple(chunks[name] for name in sorted(chunks))


def answer(question: Trace, recorded: Any) -> Trace:
    """Answer a question by the first two words of it, unless its rewrite is recorded."""
    words = split_words(recorded.take("rewrite", lambda: " ".join(question.query.split()[:2])))
    ranked = sorted(list_passages(), key=lambda chunk: -len(words & split_words(chunk.text or "")))[:3]
    sentences = re.split(r"(?<=\.)\s+", ranked[0].text or "")
    best = max(sentences, key=lambda sentence: len(words & split_words(sentence)))
    return replace(question, chunks=tuple(ranked), answer=best, steps=None)
