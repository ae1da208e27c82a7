"""How alike two texts are: shingles for near-duplicates, spans for quotations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from rapidfuzz.distance import Indel

from ragfault.text.normal import plain
from ragfault.text.words import NEGATIONS, words

__all__ = ["shingles", "similar_span"]

TOKEN = re.compile(r"[^\W_]+(?:['.,:-][^\W_]+)*")
CUT = re.compile(r"\s*\[?\.\.\.\]?\s*")
SEEDS = 64
"""How many words of a quote, the rarest, and how many places of each vote for an alignment."""
LONGEST = 4000
"""How many words of a quote are looked at."""
TOUCHED = 0.9
"""The most that a quote can reach whose numbers or negations differ from the text."""


def shingles(text: str, n: int = 3) -> frozenset[str]:
    """All runs of `n` words of a text, for Jaccard similarity; one run where the text is shorter.

    >>> sorted(shingles("The cats sat on the mat", n=4))
    ['cat sat on the', 'sat on the mat', 'the cat sat on']
    """
    tokens = words(text)
    if not tokens:
        return frozenset()
    last = max(1, len(tokens) - n + 1)
    return frozenset(" ".join(tokens[at : at + n]) for at in range(last))


class Token(NamedTuple):
    """A word and where it stands."""

    word: str
    start: int
    end: int


def similar_span(quote: str, text: str) -> float:
    """How well the best span of a text fits a quote, in [0, 1]; 1 where it stands there word for word.

    White space, quotation marks and dashes do not count. An omission ("…") splits the quote, and the
    worst part decides. A changed word costs its share of the words, a slip inside a long word only its
    letters; a changed number or negation never passes for a slip.

    >>> text = "The fund was founded in Oslo in 1921 by three brothers from Bergen."
    >>> similar_span("founded in  Oslo in 1921", text)
    1.0
    >>> similar_span("founded in Oslo in 1922", text) < 0.95
    True
    """
    parts = [part for part in CUT.split(plain(quote).strip("\"' ")) if TOKEN.search(part)]
    if not parts:
        return 0.0
    text = plain(text)
    tokens = _tokens(text)
    return min(_fit(part, text, tokens) for part in parts)


def _tokens(text: str) -> list[Token]:
    """The words of a text, lower case, with their places."""
    return [Token(m.group().lower(), m.start(), m.end()) for m in TOKEN.finditer(text)]


def _fit(quote: str, text: str, tokens: list[Token]) -> float:
    """The best fit of one unbroken quote."""
    at = text.find(quote)
    if (
        at >= 0
        and not text[max(0, at - 1) : at].isalnum()
        and not text[at + len(quote) : at + len(quote) + 1].isalnum()
    ):
        return 1.0
    asked = _tokens(quote)[:LONGEST]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, token in enumerate(tokens):
        places[token.word].append(at)
    votes: Counter[int] = Counter()
    rarest = sorted((len(found), at) for at, token in enumerate(asked) if (found := places.get(token.word)))
    for _, at in rarest[:SEEDS]:
        votes.update(place - at for place in places[asked[at].word][:SEEDS])
    best = 0.0
    for shift, _ in votes.most_common(4):
        slack = max(1, len(asked) // 10)
        low, high = max(0, shift - slack), min(len(tokens), shift + len(asked) + slack)
        best = max(best, _compare(quote, asked, text, tokens[low:high]))
        if best == 1.0:
            break
    return best


def _compare(quote: str, asked: list[Token], text: str, window: list[Token]) -> float:
    """The fit of a quote to a window: the lesser of its fit by words and by letters."""
    left = [token.word for token in asked]
    right = [token.word for token in window]
    blocks = [block for block in Indel.opcodes(left, right) if block.tag == "equal"]
    if not blocks:
        return 0.0
    first, last = blocks[0], blocks[-1]
    low = max(0, first.dest_start - first.src_start)
    high = min(len(window), last.dest_end + len(left) - last.src_end)
    span = text[window[low].start : window[high - 1].end]
    inner = quote[asked[0].start : asked[-1].end]
    if inner == span:
        return 1.0
    letters = Indel.normalized_similarity(inner.lower(), span.lower()) if len(inner) < 20_000 else 1.0
    return min(letters, _by_words(left, right[low:high]), 1.0 if left == right[low:high] else 0.999)


def _by_words(left: list[str], right: list[str]) -> float:
    """The share of words kept; a slip in a long word counts by its letters."""
    kept = 0.0
    lost: list[str] = []
    gained: list[str] = []
    for block in Indel.opcodes(left, right):
        if block.tag == "equal":
            kept += block.src_end - block.src_start
        else:
            lost += left[block.src_start : block.src_end]
            gained += right[block.dest_start : block.dest_end]
    for old, new in zip(lost, gained, strict=False):
        if min(len(old), len(new)) >= 5 and old.isalpha() and new.isalpha():
            near = Indel.normalized_similarity(old, new)
            kept += near if near > 0.83 else 0.0
    score = kept / max(len(left), len(right))
    return min(score, TOUCHED) if any(map(_weighty, lost + gained)) else score


def _weighty(word: str) -> bool:
    """Whether a changed word changes the sense for certain."""
    return word in NEGATIONS or word.endswith("n't") or any(sign.isdigit() for sign in word)
