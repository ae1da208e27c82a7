"""Sentence segmentation with character offsets."""

from __future__ import annotations

import re
from functools import lru_cache

import sentencex

LINE_WRAP = re.compile(r"(?<=[^\s.!?:;|])[ \t]*\n[ \t]*(?=[a-z])")
"""A line break within a sentence: no full stop before it, a lower-case letter after it."""
LIST_MARKER = re.compile(r"(?:[-*•–]|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,4})[.)]|#+)\s*")
"""The marker of a list item or heading."""
MAX_CACHED_LENGTH = 20_000
"""Shorter texts are cached, since an answer is split several times."""
DAY_OF_MONTH = re.compile(r"\b[0-3]?\d\.$")
MONTH = re.compile(r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b")
"""A German month, before which a day ends with a stop."""
NUMBER_ABBREVIATION = re.compile(r"\b(?:[Nn]o|[Ff]ig|[Ss]ec|[Aa]rt|[Ee]q|[Vv]ol|[Pp]p?|[Cc]h)\.$")
"""Abbreviations before a number, which end no sentence."""


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Split a text into sentences as character offsets, without surrounding white space.

    Every line of a list or a table is its own sentence; a line break within a sentence does not end it; a list marker
    belongs to its item.

    >>> text = "Dr. Lee came at 5 p.m. on Monday. She left.\\n1. Tea\\n2. Cakes"
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['Dr. Lee came at 5 p.m. on Monday.', 'She left.', '1. Tea', '2. Cakes']
    """
    return list(_split_cached(text)) if len(text) < MAX_CACHED_LENGTH else _split_text(text)


@lru_cache(maxsize=256)
def _split_cached(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(_split_text(text))


def _split_text(text: str) -> list[tuple[int, int]]:
    if not text.strip():
        return []
    joined = LINE_WRAP.sub(lambda match: " " * len(match.group()), text) if "\n" in text else text
    sentences: list[tuple[int, int]] = []
    marker_start = -1
    for start, end in _split_segments(joined):
        segment = joined[start:end]
        sentence_start = start if marker_start < 0 else marker_start
        marker_start = -1
        if LIST_MARKER.fullmatch(segment) and end < len(joined) and "\n" not in joined[end : end + 2]:
            marker_start = sentence_start
        elif sentences and sentence_start == start and _continues_sentence(joined, sentences[-1], start):
            sentences[-1] = (sentences[-1][0], end)
        else:
            sentences.append((sentence_start, end))
    if marker_start >= 0:
        sentences.append((marker_start, len(joined.rstrip())))
    return sentences


def _split_segments(text: str) -> list[tuple[int, int]]:
    """Split with sentencex, cut at line breaks and trim."""
    segments: list[tuple[int, int]] = []
    position = 0
    for segment in sentencex.segment("en", text):
        start = text.find(segment, position)
        if start < 0:
            continue
        position = start + len(segment)
        for line in segment.split("\n") if "\n" in segment else (segment,):
            stripped = line.strip()
            if stripped:
                begin = start + line.index(stripped)
                segments.append((begin, begin + len(stripped)))
            start += len(line) + 1
    return segments


def _continues_sentence(text: str, last: tuple[int, int], start: int) -> bool:
    """Return whether the splitter cut a sentence in two: after "No." or "1." of a date, or before a small letter.

    >>> _continues_sentence("Am 1. Juli", (0, 5), 6), _continues_sentence("It has 1. It", (0, 9), 10)
    (True, False)
    """
    separator = text[last[1] : start]
    if "\n" in separator:
        return False
    before = text[last[0] : last[1]]
    character = text[start]
    if before.endswith((".", "...", "…")) and character.islower():
        return True
    if DAY_OF_MONTH.search(before) and MONTH.match(text, start):
        return True
    return character.isdigit() and bool(NUMBER_ABBREVIATION.search(before))
