"""Token spans: the tokens of a text, and their division at the best breaks into overlapping spans of a size."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ragfault.text.sentences import split_sentences

UNSPACED_SCRIPTS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts written without spaces: each sign is a token."""

TOKEN_PATTERN = re.compile(
    rf"\s*+(?:[{UNSPACED_SCRIPTS}]|[^\W{UNSPACED_SCRIPTS}]{{1,24}}|-{{1,24}}|={{1,24}}|\.{{1,24}}|\*{{1,24}}|\#{{1,24}}|[^\w\s])"
)
"""A word (of one longer than 24 letters, so many at a time), a rule of one sign, or any other sign that is no space."""

Array = np.ndarray[Any, Any]


class TokenOffsets:
    """Start and end of each token of a text; every character but white space is in one."""

    def __init__(self, text: str) -> None:
        lengths = TOKEN_PATTERN.findall(text.rstrip())
        bare = np.fromiter((len(token.lstrip()) for token in lengths), np.int64, len(lengths))
        ends = np.cumsum(np.fromiter(map(len, lengths), np.int64, len(lengths)))
        self.ends: list[int] = ends.tolist()
        self.starts: list[int] = (ends - bare).tolist()

    def __len__(self) -> int:
        return len(self.starts)

    def token_at(self, position: int) -> int:
        """Return the number of the first token that begins at or after an offset."""
        return bisect_left(self.starts, position)

    def tokens_at(self, characters: Iterable[int]) -> list[int]:
        """Return the distinct numbers of the tokens that begin at or after some offsets, in order."""
        return sorted({self.token_at(position) for position in characters})


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text: words and signs.

    English prose has 0.92 to 0.97 times as many of them as word pieces of MiniLM (three corpora: articles, a speech,
    reports), and 4.6 to 5.1 characters in each; to be sure not to pass the limit of a model, ask for a tenth less.

    >>> count_tokens("The ferry leaves at 22:40."), count_tokens("渡し船は十時")
    (8, 6)
    """
    return len(TOKEN_PATTERN.findall(text.rstrip()))


PARAGRAPH_GAP = re.compile(r"\n[ \t]*\n")
MAX_STRETCH = 4096
"""Maximum number of characters that are split into sentences together."""


class TokenSpan(NamedTuple):
    """A run of tokens: the number of its first one, and of the one after its last."""

    start: int
    end: int


BreakFinder = Callable[[int, int], Sequence[int]]
"""The breaks of one kind that lie between two tokens, both exclusive: numbers of the tokens that a part begins with."""


def make_break_finder(breaks: Sequence[int]) -> BreakFinder:
    """Return the finder of known breaks.

    >>> make_break_finder([3, 5, 9])(3, 9)
    [5]
    """
    return lambda start, end: breaks[bisect_right(breaks, start) : bisect_left(breaks, end)]


def make_sentence_finder(text: str, tokens: TokenOffsets) -> BreakFinder:
    """Return the finder of sentence breaks, which are computed on demand."""

    def level(start: int, end: int) -> Sequence[int]:
        breaks = tokens.tokens_at(
            begin + first
            for begin, stop in split_paragraphs(text, tokens.starts[start], tokens.ends[end - 1])
            for first, _ in split_sentences(text[begin:stop])
        )
        return [i for i in breaks if start < i < end]

    return level


def split_paragraphs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Iterate over paragraphs; one longer than `MAX_STRETCH` is split at white space where possible."""
    gaps = [match.start() for match in PARAGRAPH_GAP.finditer(text, start, end)]
    for gap, next_gap in pairwise([start, *gaps, end]):
        begin = gap
        while next_gap - begin > MAX_STRETCH:
            stop = text.rfind(" ", begin + 1, begin + MAX_STRETCH)
            stop = begin + MAX_STRETCH if stop < 0 else stop
            yield begin, stop
            begin = stop
        yield begin, next_gap


def make_divider(finders: Sequence[BreakFinder], max_tokens: int) -> Callable[[TokenSpan], list[TokenSpan]]:
    """Return the divider into spans of at most `max_tokens`, at the breaks of the first finder with any.

    Neighbouring parts that fit into one piece stay together; a part that fits in none is divided at the next level, and
    after the last one anywhere.

    >>> make_divider([make_break_finder([4, 6]), make_break_finder([2, 9])], 5)(TokenSpan(0, 12))
    [TokenSpan(start=0, end=4), TokenSpan(start=4, end=6), TokenSpan(start=6, end=9), TokenSpan(start=9, end=12)]
    """

    def parts(piece: TokenSpan, depth: int) -> list[TokenSpan]:
        start, end = piece
        if end - start <= max_tokens:
            return [piece]
        for below, level in enumerate(finders[depth:], depth + 1):
            breaks = level(start, end)
            if breaks:
                spans = map(TokenSpan._make, pairwise([start, *breaks, end]))
                return [part for run in _merge_spans(spans, max_tokens) for part in parts(run, below)]
        return [TokenSpan(i, min(i + max_tokens, end)) for i in range(start, end, max_tokens)]

    return lambda piece: parts(piece, 0)


def _merge_spans(spans: Iterator[TokenSpan], max_tokens: int) -> Iterator[TokenSpan]:
    """Return spans, merging neighbors that fit into one."""
    current = next(spans)
    for part in spans:
        if part.end - current.start <= max_tokens:
            current = TokenSpan(current.start, part.end)
        else:
            yield current
            current = part
    yield current


def split_with_overlap(
    span: TokenSpan,
    size: int,
    overlap: int,
    divider: Callable[[TokenSpan], list[TokenSpan]],
    overlap_breaks: BreakFinder,
) -> list[TokenSpan]:
    """Return the spans of a run of tokens, each but the first overlapping the end of the one before it.

    `divider` divides into pieces of at most `size - overlap` tokens. A piece reaches back to the first of the
    `overlap_breaks` among the `overlap` tokens before it, and over all of these where that would be less than half of
    them; but never beyond the beginning of the piece before. A run that is no longer than `size` is one piece.
    """
    if span.end - span.start <= size:
        return [span]
    pieces = divider(span)
    if not overlap:
        return pieces
    back = [
        TokenSpan(_extend_back(max(before.start, piece.start - overlap), piece.start, overlap_breaks), piece.end)
        for before, piece in pairwise(pieces)
    ]
    return [pieces[0], *back]


def _extend_back(low: int, start: int, overlap_breaks: BreakFinder) -> int:
    """Return the start of a span that may reach back to `low`."""
    if low <= 0:
        return low
    start_token = next(iter(overlap_breaks(low - 1, start)), low)
    return start_token if 2 * (start - start_token) >= start - low else low
