"""Sentences: where each begins and ends."""

from __future__ import annotations

import re
from functools import lru_cache

import sentencex

__all__ = ["sentences"]

WRAP = re.compile(r"(?<=[^\s.!?:;|])[ \t]*\n[ \t]*(?=[a-z])")
"""A line break in the midst of a sentence: no full stop before it, a small letter after it."""
MARKER = re.compile(r"(?:[-*•–]|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,4})[.)]|#+)\s*")
"""The mark of a list item or a heading, by itself."""
SHORT = 20_000
"""Texts shorter than this are remembered for a while: an answer is looked through again and again."""
FAKE = re.compile(r"\b(?:[Nn]o|[Ff]ig|[Ss]ec|[Aa]rt|[Ee]q|[Vv]ol|[Pp]p?|[Cc]h)\.$")
"""Abbreviations that lead a number, not a new sentence."""


def sentences(text: str, language: str = "en") -> list[tuple[int, int]]:
    """The sentences of a text as character offsets, without the white space around them.

    Every line of a list or a table is a sentence of its own; a line break in the midst of a sentence
    is not its end; the mark of a list item belongs to the item.

    >>> text = "Dr. Lee came at 5 p.m. on Monday. She left.\\n1. Tea\\n2. Cakes"
    >>> [text[start:end] for start, end in sentences(text)]
    ['Dr. Lee came at 5 p.m. on Monday.', 'She left.', '1. Tea', '2. Cakes']
    """
    return list(_remembered(text, language)) if len(text) < SHORT else _sentences(text, language)


@lru_cache(maxsize=256)
def _remembered(text: str, language: str) -> tuple[tuple[int, int], ...]:
    return tuple(_sentences(text, language))


def _sentences(text: str, language: str) -> list[tuple[int, int]]:
    if not text.strip():
        return []
    joined = WRAP.sub(lambda match: " " * len(match.group()), text) if "\n" in text else text
    found: list[tuple[int, int]] = []
    held = -1
    for start, end in _pieces(joined, language):
        piece = joined[start:end]
        begin = start if held < 0 else held
        held = -1
        if MARKER.fullmatch(piece) and end < len(joined) and "\n" not in joined[end : end + 2]:
            held = begin
        elif found and begin == start and _continues(joined, found[-1], start):
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    if held >= 0:
        found.append((held, len(joined.rstrip())))
    return found


def _pieces(text: str, language: str) -> list[tuple[int, int]]:
    """What the splitter finds, cut at line breaks and trimmed; whatever it dropped stays out."""
    pieces: list[tuple[int, int]] = []
    place = 0
    for segment in sentencex.segment(language, text):
        start = text.find(segment, place)
        if start < 0:
            continue
        place = start + len(segment)
        for line in segment.split("\n") if "\n" in segment else (segment,):
            bare = line.strip()
            if bare:
                left = start + line.index(bare)
                pieces.append((left, left + len(bare)))
            start += len(line) + 1
    return pieces


def _continues(text: str, last: tuple[int, int], start: int) -> bool:
    """Whether the splitter cut a sentence in two: after "No.", or before a small letter."""
    gap = text[last[1] : start]
    if "\n" in gap:
        return False
    before = text[last[0] : last[1]]
    sign = text[start]
    if before.endswith((".", "...", "…")) and sign.islower():
        return True
    return sign.isdigit() and bool(FAKE.search(before))
