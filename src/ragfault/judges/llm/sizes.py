"""Sizes: how much fits into one request and its reply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from ragfault.judges.llm.fences import Fenced

__all__ = ["IMAGE", "entries", "packed", "pieces", "tokens", "weight"]

SAFETY = 1.25
"""No tokenizer is at hand, so more is taken for certain: four bytes a token, and a quarter on top."""
FENCE = 32
"""The lines round a text."""
IMAGE = 1_500
"""A picture."""
REPLY = {
    "chunks": 45,
    "statements": 60,
    "claims": 90,
    "used": 16,
    "citations": 26,
    "facts": 24,
    "truth": 18,
    "passages": 18,
}
"""Tokens of one entry of a reply."""
SLACK = 500
"""A piece of a chunk may be shorter by so many characters, to end where a word does."""

T = TypeVar("T")


def tokens(text: str) -> int:
    """About how many tokens a text has, rather too many than too few.

    Four bytes of UTF-8 for one token: of English four characters, of Chinese one and a third.

    >>> tokens("a" * 400), tokens("")
    (125, 0)
    """
    return math.ceil((len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) / 4 * SAFETY)


def weight(part: Fenced) -> int:
    """About how many tokens a text has between its fences."""
    return tokens(part.text) + FENCE


def entries(fields: Sequence[str]) -> int:
    """About how many tokens a reply has for one thing that these fields have an entry for."""
    return sum(REPLY[field] for field in fields)


def packed(things: Sequence[T], sizes: Sequence[float], room: float) -> list[list[T]]:
    """Neighbours together as long as they fit into the room; what does not fit by itself is alone.

    >>> packed("abcd", [3, 3, 5, 9], 8)
    [['a', 'b'], ['c'], ['d']]
    """
    groups: list[list[T]] = []
    filled = math.inf
    for thing, size in zip(things, sizes, strict=True):
        if filled + size > room:
            groups.append([])
            filled = 0.0
        groups[-1].append(thing)
        filled += size
    return groups


def pieces(part: Fenced, room: float) -> list[Fenced]:
    """A text that is larger than the room as several, all under its name, cut where a word ends.

    >>> [piece.name for piece in pieces(Fenced("c1", "word " * 1_000), 600)]
    ['c1 part 1 of 3', 'c1 part 2 of 3', 'c1 part 3 of 3']
    """
    if weight(part) <= room:
        return [part]
    text = part.text
    longest = max(40, int((room - FENCE) * 4 / SAFETY * len(text) / len(text.encode("utf-8", "replace"))))
    cut: list[str] = []
    place = 0
    while place < len(text):
        end = min(len(text), place + longest)
        if end < len(text):
            gap = max(text.rfind(sign, max(place + 1, end - SLACK), end) for sign in "\n ")
            end = gap + 1 if gap > place else end
        cut.append(text[place:end])
        place = end
    return [Fenced(f"{part.name} part {at} of {len(cut)}", one) for at, one in enumerate(cut, 1)]
