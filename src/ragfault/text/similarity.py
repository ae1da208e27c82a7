"""Similarity of texts: shingles for near-duplicates, and the spans of a text that match a quotation."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import Indel

from ragfault.text.normalization import NEGATIONS, TYPOGRAPHY_MAP, normalize_typography, split_words

QUOTE_WORD = re.compile(r"[^\W_]+(?:['.,:-][^\W_]+)*")
ELLIPSIS = re.compile(r"\s*\[?\.\.\.\]?\s*")
MAX_ALIGNMENT_VOTES = 64
"""How many words of a quote, the rarest, and how many places of each vote for an alignment."""
MAX_QUOTE_WORDS = 4000
"""How many words of a quote are looked at."""
MAX_ALTERED_SCORE = 0.9
"""The most that a quote can reach whose numbers or negations differ from the text."""


def make_shingles(text: str, n: int = 3) -> frozenset[str]:
    """All runs of `n` words of a text, for Jaccard similarity; one run where the text is shorter.

    >>> sorted(make_shingles("The cats sat on the mat", n=4))
    ['cat sat on the', 'sat on the mat', 'the cat sat on']
    """
    tokens = split_words(text)
    if not tokens:
        return frozenset()
    last = max(1, len(tokens) - n + 1)
    return frozenset(" ".join(tokens[at : at + n]) for at in range(last))


class WordPosition(NamedTuple):
    """A word and where it stands."""

    word: str
    start: int
    end: int


def score_quote_match(quote: str, text: str) -> float:
    """How well the best span of a text fits a quote, in [0, 1]; 1 where it stands there word for word.

    White space, quotation marks and dashes do not count. An omission ("…") splits the quote, and the
    worst part decides. A changed word costs its share of the words, a slip inside a long word only its
    letters; a changed number or negation never passes for a slip.

    >>> text = "The fund was founded in Oslo in 1921 by three brothers from Bergen."
    >>> score_quote_match("founded in  Oslo in 1921", text)
    1.0
    >>> score_quote_match("founded in Oslo in 1922", text) < 0.95
    True
    """
    parts = [
        part for part in ELLIPSIS.split(normalize_typography(quote).strip("\"' ")) if QUOTE_WORD.search(part)
    ]
    if not parts:
        return 0.0
    text = normalize_typography(text)
    tokens = _locate_words(text)
    return min(_score_segment(part, text, tokens) for part in parts)


def _locate_words(text: str) -> list[WordPosition]:
    """The words of a text, lower case, with their places."""
    return [WordPosition(m.group().lower(), m.start(), m.end()) for m in QUOTE_WORD.finditer(text)]


def _score_segment(quote: str, text: str, words: list[WordPosition]) -> float:
    """The best fit of one unbroken quote."""
    at = text.find(quote)
    if (
        at >= 0
        and not text[max(0, at - 1) : at].isalnum()
        and not text[at + len(quote) : at + len(quote) + 1].isalnum()
    ):
        return 1.0
    asked = _locate_words(quote)[:MAX_QUOTE_WORDS]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, token in enumerate(words):
        places[token.word].append(at)
    votes: Counter[int] = Counter()
    rarest = sorted((len(found), at) for at, token in enumerate(asked) if (found := places.get(token.word)))
    for _, at in rarest[:MAX_ALIGNMENT_VOTES]:
        votes.update(place - at for place in places[asked[at].word][:MAX_ALIGNMENT_VOTES])
    best = 0.0
    for shift, _ in votes.most_common(4):
        slack = max(1, len(asked) // 10)
        low, high = max(0, shift - slack), min(len(words), shift + len(asked) + slack)
        best = max(best, _score_window(quote, asked, text, words[low:high]))
        if best == 1.0:
            break
    return best


def _score_window(
    quote: str, quote_words: list[WordPosition], text: str, window: list[WordPosition]
) -> float:
    """The fit of a quote to a window: the lesser of its fit by words and by letters."""
    left = [token.word for token in quote_words]
    right = [token.word for token in window]
    blocks = [block for block in Indel.opcodes(left, right) if block.tag == "equal"]
    if not blocks:
        return 0.0
    first, last = blocks[0], blocks[-1]
    low = max(0, first.dest_start - first.src_start)
    high = min(len(window), last.dest_end + len(left) - last.src_end)
    span = text[window[low].start : window[high - 1].end]
    inner = quote[quote_words[0].start : quote_words[-1].end]
    if inner == span:
        return 1.0
    letters = Indel.normalized_similarity(inner.lower(), span.lower()) if len(inner) < 20_000 else 1.0
    return min(letters, _score_word_overlap(left, right[low:high]), 1.0 if left == right[low:high] else 0.999)


def _score_word_overlap(left: list[str], right: list[str]) -> float:
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
    return min(score, MAX_ALTERED_SCORE) if any(map(_changes_meaning, lost + gained)) else score


def _changes_meaning(word: str) -> bool:
    """Whether a changed word changes the sense for certain."""
    return word in NEGATIONS or word.endswith("n't") or any(sign.isdigit() for sign in word)


FIRST_UNSPACED_SCRIPT = "\u2e80"
"""From here on scripts are written without spaces: a word has no edge that could be seen."""
MAX_FUZZY_QUOTE = 4_000
"""A quote that is longer is looked for word by word only."""
MAX_FUZZY_TEXT = 2_000_000
"""A text that is longer than this, times the quote, is not searched for a likeness."""


class NormalizedText(NamedTuple):
    """A text in the form in which quotes are compared, and where each of its signs stood."""

    text: str
    offsets: tuple[int, ...]


def locate_quote(quote: str, text: str, tolerance: float = 0.95) -> tuple[tuple[int, int], ...]:
    """The stretches of a text that a quote stands for, as character offsets; none where it does not stand there.

    Word for word, whatever the white space, quotation marks and dashes, and whatever is not seen in the text; else
    within the `tolerance` of `similar_span`. An omission ("…") splits the quote, and every part of it must stand there.

    >>> text = "The ferry\\nleaves at “noon” sharp. It returns at six."
    >>> [text[start:end] for start, end in locate_quote('ferry leaves at "noon" … returns at six', text)]
    ['ferry\\nleaves at “noon”', 'returns at six']
    >>> locate_quote("leaves at one", text)
    ()
    """
    parts = [
        part for part in ELLIPSIS.split(normalize_typography(quote).strip("\"' ")) if QUOTE_WORD.search(part)
    ]
    found = [_locate_segment(part, text, tolerance) for part in parts]
    return tuple(span for span in found if span) if all(found) else ()


def _locate_segment(quote: str, text: str, tolerance: float) -> tuple[int, int] | None:
    """Where one unbroken quote stands."""
    for start in _iterate_matches(quote, text):
        return start, start + len(quote)
    if not text:
        return None
    held = _normalize_with_offsets(text)
    wanted = _normalize_with_offsets(quote).text
    for start in _iterate_matches(wanted, held.text):
        return held.offsets[start], held.offsets[start + len(wanted) - 1] + 1
    if len(wanted) > MAX_FUZZY_QUOTE or score_quote_match(quote, text) < tolerance:
        return None
    return _locate_similar(wanted, held, tolerance)


def _iterate_matches(quote: str, text: str) -> Iterator[int]:
    """Where a quote stands in a text and cuts no word in two."""
    at = text.find(quote) if quote else -1
    while at >= 0:
        if _is_word_boundary(text, at) and _is_word_boundary(text, at + len(quote)):
            yield at
        at = text.find(quote, at + 1)


def _is_word_boundary(text: str, offset: int) -> bool:
    """Whether no word runs across a place."""
    if offset <= 0 or offset >= len(text):
        return True
    left, right = text[offset - 1], text[offset]
    return (
        not (left.isalnum() and right.isalnum())
        or left >= FIRST_UNSPACED_SCRIPT
        or right >= FIRST_UNSPACED_SCRIPT
    )


def _locate_similar(quote: str, normalized: NormalizedText, tolerance: float) -> tuple[int, int] | None:
    """The stretch most like a quote, from the edge of a word to the edge of a word."""
    low = normalized.text.lower()
    if len(low) != len(normalized.text) or len(low) * len(quote) > MAX_FUZZY_TEXT * 1_000:
        return None
    at = fuzz.partial_ratio_alignment(quote.lower(), low)
    if at is None or at.dest_end <= at.dest_start:
        return None
    start, end = at.dest_start, at.dest_end
    while not _is_word_boundary(low, start):
        start -= 1
    while not _is_word_boundary(low, end):
        end += 1
    if score_quote_match(quote, normalized.text[start:end]) < tolerance:
        return None
    while normalized.text[start].isspace():
        start += 1
    while normalized.text[end - 1].isspace():
        end -= 1
    return normalized.offsets[start], normalized.offsets[end - 1] + 1


@lru_cache(maxsize=64)
def _normalize_with_offsets(text: str) -> NormalizedText:
    """A text with one kind of space, quotation mark and dash, sign by sign; nothing in it that is not seen."""
    signs: list[str] = []
    places: list[int] = []
    space = True
    for at, sign in enumerate(text):
        for one in (sign,) if sign.isascii() else _normalize_character(sign):
            if one.isspace():
                if space:
                    continue
                one = " "  # noqa: PLW2901
            space = one == " "
            signs.append(one)
            places.append(at)
    return NormalizedText("".join(signs).rstrip(), tuple(places))


@lru_cache(maxsize=4_096)
def _normalize_character(character: str) -> str:
    """A sign taken apart, as a quotation mark or dash of the common kind, or nothing where it is not seen."""
    made = unicodedata.normalize("NFKD", character.translate(TYPOGRAPHY_MAP))
    return "".join(
        one for one in made if unicodedata.category(one) not in {"Cf", "Cc", "Cs"} or one.isspace()
    )
