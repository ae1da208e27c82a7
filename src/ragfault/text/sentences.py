"""Sentence segmentation with character offsets."""

from __future__ import annotations

import re
from functools import lru_cache

import sentencex

LINE_WRAP = re.compile(r"(?<=[^\s.!?:;|])[ \t]*\n[ \t]*(?=[a-z])")
"""A line break in the midst of a sentence: no full stop before it, a small letter after it."""
LIST_MARKER = re.compile(r"(?:[-*•–]|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,4})[.)]|#+)\s*")
"""The mark of a list item or a heading, by itself."""
MAX_CACHED_LENGTH = 20_000
"""Texts shorter than this are remembered for a while: an answer is looked through again and again."""
NUMBER_ABBREVIATION = re.compile(r"\b(?:[Nn]o|[Ff]ig|[Ss]ec|[Aa]rt|[Ee]q|[Vv]ol|[Pp]p?|[Cc]h)\.$")
"""Abbreviations that lead a number, not a new sentence."""


def split_sentences(text: str, language: str = "en") -> list[tuple[int, int]]:
    """The sentences of a text as character offsets, without the white space around them.

    Every line of a list or a table is a sentence of its own; a line break in the midst of a sentence
    is not its end; the mark of a list item belongs to the item.

    >>> text = "Dr. Lee came at 5 p.m. on Monday. She left.\\n1. Tea\\n2. Cakes"
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['Dr. Lee came at 5 p.m. on Monday.', 'She left.', '1. Tea', '2. Cakes']
    """
    return (
        list(_split_cached(text, language)) if len(text) < MAX_CACHED_LENGTH else _split_text(text, language)
    )


@lru_cache(maxsize=256)
def _split_cached(text: str, language: str) -> tuple[tuple[int, int], ...]:
    return tuple(_split_text(text, language))


def _split_text(text: str, language: str) -> list[tuple[int, int]]:
    if not text.strip():
        return []
    joined = LINE_WRAP.sub(lambda match: " " * len(match.group()), text) if "\n" in text else text
    found: list[tuple[int, int]] = []
    held = -1
    for start, end in _split_segments(joined, language):
        piece = joined[start:end]
        begin = start if held < 0 else held
        held = -1
        if LIST_MARKER.fullmatch(piece) and end < len(joined) and "\n" not in joined[end : end + 2]:
            held = begin
        elif found and begin == start and _continues_sentence(joined, found[-1], start):
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    if held >= 0:
        found.append((held, len(joined.rstrip())))
    return found


def _split_segments(text: str, language: str) -> list[tuple[int, int]]:
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


def _continues_sentence(text: str, last: tuple[int, int], start: int) -> bool:
    """Whether the splitter cut a sentence in two: after "No.", or before a small letter."""
    gap = text[last[1] : start]
    if "\n" in gap:
        return False
    before = text[last[0] : last[1]]
    sign = text[start]
    if before.endswith((".", "...", "…")) and sign.islower():
        return True
    return sign.isdigit() and bool(NUMBER_ABBREVIATION.search(before))
