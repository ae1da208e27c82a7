"""Cutting: the tokens of a text divided at the best breaks there are, into pieces of a size that overlap."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ragfault.retrieval.chunking.tokens import Tokens
from ragfault.text import sentences

__all__ = ["Level", "Piece", "between", "cut", "divide", "sentence_level", "stretches"]

GAP = re.compile(r"\n[ \t]*\n")
STRETCH = 4096
"""So many characters at most are looked at together for sentences."""


class Piece(NamedTuple):
    """A run of tokens: the number of its first one, and of the one after its last."""

    start: int
    end: int


Level = Callable[[int, int], Sequence[int]]
"""The breaks of one kind that lie between two tokens, both exclusive: numbers of the tokens that a part begins with."""


def between(breaks: Sequence[int]) -> Level:
    """The level of breaks that are known.

    >>> between([3, 5, 9])(3, 9)
    [5]
    """
    return lambda start, end: breaks[bisect_right(breaks, start) : bisect_left(breaks, end)]


def sentence_level(text: str, tokens: Tokens) -> Level:
    """The level of sentences, which are looked for where they are asked for."""

    def level(start: int, end: int) -> Sequence[int]:
        found = tokens.places(
            begin + first
            for begin, stop in stretches(text, tokens.starts[start], tokens.ends[end - 1])
            for first, _ in sentences(text[begin:stop])
        )
        return [place for place in found if start < place < end]

    return level


def stretches(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Paragraphs, and of one longer than `STRETCH` parts that end at white space where there is any."""
    gaps = [match.start() for match in GAP.finditer(text, start, end)]
    for left, right in pairwise([start, *gaps, end]):
        begin = left
        while right - begin > STRETCH:
            stop = text.rfind(" ", begin + 1, begin + STRETCH)
            stop = begin + STRETCH if stop < 0 else stop
            yield begin, stop
            begin = stop
        yield begin, right


def divide(levels: Sequence[Level], room: int) -> Callable[[Piece], list[Piece]]:
    """The way to divide a run of tokens into pieces of at most `room`: at the breaks of the first level that has any.

    Neighbouring parts that fit into one piece stay together; a part that fits in none is divided at the next level, and
    after the last one anywhere.

    >>> divide([between([4, 6]), between([2, 9])], 5)(Piece(0, 12))
    [Piece(start=0, end=4), Piece(start=4, end=6), Piece(start=6, end=9), Piece(start=9, end=12)]
    """

    def parts(piece: Piece, depth: int) -> list[Piece]:
        start, end = piece
        if end - start <= room:
            return [piece]
        for below, level in enumerate(levels[depth:], depth + 1):
            breaks = level(start, end)
            if breaks:
                each = map(Piece._make, pairwise([start, *breaks, end]))
                return [one for run in _together(each, room) for one in parts(run, below)]
        return [Piece(place, min(place + room, end)) for place in range(start, end, room)]

    return lambda piece: parts(piece, 0)


def _together(each: Iterator[Piece], room: int) -> Iterator[Piece]:
    """Parts, with those neighbours put together that fit into one piece."""
    held = next(each)
    for part in each:
        if part.end - held.start <= room:
            held = Piece(held.start, part.end)
        else:
            yield held
            held = part
    yield held


def cut(
    whole: Piece, size: int, overlap: int, way: Callable[[Piece], list[Piece]], level: Level
) -> list[Piece]:
    """The pieces of a run of tokens, each but the first reaching back over the end of the one before it.

    `way` divides into pieces of at most `size - overlap`. A piece reaches back to the first break of `level` among the
    `overlap` tokens before it, and over all of these where that would be less than half of them; but never
    beyond the beginning of the piece before. A run that is no longer than `size` is one piece.
    """
    if whole.end - whole.start <= size:
        return [whole]
    pieces = way(whole)
    if not overlap:
        return pieces
    back = [
        Piece(_reach(max(before.start, piece.start - overlap), piece.start, level), piece.end)
        for before, piece in pairwise(pieces)
    ]
    return [pieces[0], *back]


def _reach(low: int, start: int, level: Level) -> int:
    """Where a piece begins that may reach back as far as `low`."""
    if low <= 0:
        return low
    first = next(iter(level(low - 1, start)), low)
    return first if 2 * (start - first) >= start - low else low
