"""Quotes: where in a text the words stand that someone quotes from it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz import fuzz

from ragfault.text.alike import CUT, TOKEN, similar_span
from ragfault.text.normal import MARKS, plain

__all__ = ["quoted"]

WIDE = "\u2e80"
"""From here on scripts are written without spaces: a word has no edge that could be seen."""
LONGEST = 4_000
"""A quote that is longer is looked for word by word only."""
FAR = 2_000_000
"""A text that is longer than this, times the quote, is not searched for a likeness."""


class Plain(NamedTuple):
    """A text in the form in which quotes are compared, and where each of its signs stood."""

    text: str
    places: tuple[int, ...]


def quoted(quote: str, text: str, tolerance: float = 0.95) -> tuple[tuple[int, int], ...]:
    """The stretches of a text that a quote stands for, as character offsets; none where it does not stand there.

    Word for word, whatever the white space, quotation marks and dashes, and whatever is not seen in the text; else
    within the `tolerance` of `similar_span`. An omission ("…") splits the quote, and every part of it must stand there.

    >>> text = "The ferry\\nleaves at “noon” sharp. It returns at six."
    >>> [text[start:end] for start, end in quoted('ferry leaves at "noon" … returns at six', text)]
    ['ferry\\nleaves at “noon”', 'returns at six']
    >>> quoted("leaves at one", text)
    ()
    """
    parts = [part for part in CUT.split(plain(quote).strip("\"' ")) if TOKEN.search(part)]
    found = [_found(part, text, tolerance) for part in parts]
    return tuple(span for span in found if span) if all(found) else ()


def _found(quote: str, text: str, tolerance: float) -> tuple[int, int] | None:
    """Where one unbroken quote stands."""
    for start in _places(quote, text):
        return start, start + len(quote)
    if not text:
        return None
    held = _plain(text)
    wanted = _plain(quote).text
    for start in _places(wanted, held.text):
        return held.places[start], held.places[start + len(wanted) - 1] + 1
    if len(wanted) > LONGEST or similar_span(quote, text) < tolerance:
        return None
    return _near(wanted, held, tolerance)


def _places(quote: str, text: str) -> Iterator[int]:
    """Where a quote stands in a text and cuts no word in two."""
    at = text.find(quote) if quote else -1
    while at >= 0:
        if _edge(text, at) and _edge(text, at + len(quote)):
            yield at
        at = text.find(quote, at + 1)


def _edge(text: str, at: int) -> bool:
    """Whether no word runs across a place."""
    if at <= 0 or at >= len(text):
        return True
    left, right = text[at - 1], text[at]
    return not (left.isalnum() and right.isalnum()) or left >= WIDE or right >= WIDE


def _near(quote: str, held: Plain, tolerance: float) -> tuple[int, int] | None:
    """The stretch most like a quote, from the edge of a word to the edge of a word."""
    low = held.text.lower()
    if len(low) != len(held.text) or len(low) * len(quote) > FAR * 1_000:
        return None
    at = fuzz.partial_ratio_alignment(quote.lower(), low)
    if at is None or at.dest_end <= at.dest_start:
        return None
    start, end = at.dest_start, at.dest_end
    while not _edge(low, start):
        start -= 1
    while not _edge(low, end):
        end += 1
    if similar_span(quote, held.text[start:end]) < tolerance:
        return None
    while held.text[start].isspace():
        start += 1
    while held.text[end - 1].isspace():
        end -= 1
    return held.places[start], held.places[end - 1] + 1


@lru_cache(maxsize=64)
def _plain(text: str) -> Plain:
    """A text with one kind of space, quotation mark and dash, sign by sign; nothing in it that is not seen."""
    signs: list[str] = []
    places: list[int] = []
    space = True
    for at, sign in enumerate(text):
        for one in (sign,) if sign.isascii() else _normal(sign):
            if one.isspace():
                if space:
                    continue
                one = " "  # noqa: PLW2901
            space = one == " "
            signs.append(one)
            places.append(at)
    return Plain("".join(signs).rstrip(), tuple(places))


@lru_cache(maxsize=4_096)
def _normal(sign: str) -> str:
    """A sign taken apart, as a quotation mark or dash of the common kind, or nothing where it is not seen."""
    made = unicodedata.normalize("NFKD", sign.translate(MARKS))
    return "".join(
        one for one in made if unicodedata.category(one) not in {"Cf", "Cc", "Cs"} or one.isspace()
    )
