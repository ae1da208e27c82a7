"""Queries: the parts of a question, and what of it no chunk speaks of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragfault.judges.passages import even, read
from ragfault.judges.rarity import rarity
from ragfault.judges.relevance import ASKING, TASK
from ragfault.judges.scorer import Passage, Reading
from ragfault.text import STOP, content, words

__all__ = ["aspects", "missing"]

PART = re.compile(
    r"(?<=\?)\s+|\s*(?:\n+|;)\s*(?:\d+[.)]\s*|[-*•]\s*)?"
    r"|,?\s+(?:and|or|also|as well as),?\s+"
    r"(?=(?:what|when|where|who|whom|whose|why|how|which|is|are|was|were|do|does|did|can|should)\b)",
    re.IGNORECASE,
)
TERM = re.compile(r"[^\W_][\w.'’:/-]*[^\W_]|[^\W_]")
TELLING = 6.5
"""A word at least so rare is missed when no chunk holds it."""
FEW = 0.25
"""A part of the query below this relevance in every chunk is missing as a whole."""
ENOUGH = 0.75
"""Where a chunk covers so much of the query, only names and numbers are missed."""
MOST = 5
"""At most so many items are named."""


def aspects(query: str) -> list[str]:
    """The things that a query asks for: its questions, one by one.

    >>> aspects("When was Oslo founded, and who founded it? How many live there?")
    ['When was Oslo founded', 'who founded it?', 'How many live there?']
    """
    if TASK.match(query) or len(query) > 2000:
        return [query]
    parts = [part.strip() for part in PART.split(query)]
    parts = [part for part in parts if content(part)]
    return parts[:12] if len(parts) > 1 else [query]


def missing(query: str, chunks: Sequence[Passage], reading: Reading) -> tuple[str, ...]:
    """What the query needs and no chunk holds, in the query's own words."""
    if TASK.match(query) and chunks:
        return ()
    parts = aspects(query)
    if not chunks:
        return tuple(part.strip(" ?.") for part in parts)[:MOST]
    held: set[str] = set()
    for chunk in chunks:
        for sentence in read(chunk.text):
            held |= sentence.content
    prefixes = {word[:6] for word in held if len(word) >= 6}
    found: list[str] = []
    for part in parts:
        best = max(seen.value for seen in reading.coverage(part, chunks))
        if best < FEW and len(parts) > 1:
            found.append(part.strip(" ?."))
        else:
            found += _terms(part, held, prefixes, strict=best >= ENOUGH)
    return tuple(dict.fromkeys(found))[:MOST]


def _terms(part: str, held: set[str], prefixes: set[str], *, strict: bool) -> list[str]:
    """The telling words of a part that no chunk holds, neighbours together."""
    found: list[str] = []
    last = -2
    for at, match in enumerate(TERM.finditer(part)):
        term = match.group()
        name = at > 0 and term[0].isupper()
        stems = [word for word in words(even(term)) if word not in STOP and word not in ASKING]
        lost = [
            word for word in stems if word not in held and (name or word[:6] not in prefixes or len(word) < 6)
        ]
        table = rarity()
        if not any(name or word[0].isdigit() or (not strict and table(word) >= TELLING) for word in lost):
            continue
        if last == at - 1:
            found[-1] = f"{found[-1]} {term}"
        else:
            found.append(term)
        last = at
    return found
