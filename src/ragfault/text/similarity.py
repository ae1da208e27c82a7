"""Similarity of texts: shingles for near-duplicates, and the spans of a text that match a quotation."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ragfault.text.normalization import NEGATIONS, TYPOGRAPHY_MAP, normalize_typography, split_words

QUOTE_WORD = re.compile(r"[^\W_]+(?:['.,:-][^\W_]+)*")
ELLIPSIS = re.compile(r"\s*\[?\.\.\.\]?\s*")
MAX_ALIGNMENT_VOTES = 64
"""Number of words of a quote, the rarest first, and of positions of each, that vote for an alignment."""
MAX_QUOTE_WORDS = 4000
"""Longest quote in words; the rest is ignored."""
MAX_ALTERED_SCORE = 0.9
"""Highest score of a quote whose numbers or negations differ from the text."""


def make_shingles(text: str, n: int = 3) -> frozenset[str]:
    """Return all runs of `n` words of a text, for Jaccard similarity; one run if the text is shorter.

    >>> sorted(make_shingles("The cats sat on the mat", n=4))
    ['cat sat on the', 'sat on the mat', 'the cat sat on']
    """
    tokens = split_words(text)
    if not tokens:
        return frozenset()
    if len(tokens) < n:
        return frozenset((" ".join(tokens),))
    return frozenset(map(" ".join, zip(*(tokens[start:] for start in range(n)), strict=False)))


class WordPosition(NamedTuple):
    """A word and its character offsets."""

    word: str
    start: int
    end: int


def score_quote_match(quote: str, text: str) -> float:
    """Score how well the best span of a text matches a quote, in [0, 1]; 1 for a verbatim match.

    White space, quotation marks and dashes do not count; an omission ("…") splits the quote, and the worst part
    decides. A changed word costs its share of the words, a slip in a long word its letters; numbers and negations must
    agree.

    >>> text = "The fund was founded in Oslo in 1921 by three brothers from Bergen."
    >>> score_quote_match("founded in  Oslo in 1921", text)
    1.0
    >>> score_quote_match("founded in Oslo in 1922", text) < 0.95
    True
    """
    parts = [part for part in ELLIPSIS.split(normalize_typography(quote).strip("\"' ")) if QUOTE_WORD.search(part)]
    if not parts:
        return 0.0
    text = normalize_typography(text)
    altered = [part for part in parts if not _is_verbatim(part, text)]
    words = _locate_words(text) if altered else []
    return min((_score_segment(part, text, words) for part in altered), default=1.0)


def _locate_words(text: str) -> list[WordPosition]:
    return [WordPosition(match.group().lower(), match.start(), match.end()) for match in QUOTE_WORD.finditer(text)]


def _is_verbatim(quote: str, text: str) -> bool:
    """Return whether a text first holds a quote between words, not within one."""
    position = text.find(quote)
    end = position + len(quote)
    return position >= 0 and not text[max(0, position - 1) : position].isalnum() and not text[end : end + 1].isalnum()


def _score_segment(quote: str, text: str, words: list[WordPosition]) -> float:
    """Score the best match of a quote without omissions that is not verbatim."""
    quote_words = _locate_words(quote)[:MAX_QUOTE_WORDS]
    positions_by_word: defaultdict[str, list[int]] = defaultdict(list)
    for at, word in enumerate(words):
        positions_by_word[word.word].append(at)
    votes: Counter[int] = Counter()
    rarest = sorted(
        (len(positions), i) for i, word in enumerate(quote_words) if (positions := positions_by_word.get(word.word))
    )
    for _, at in rarest[:MAX_ALIGNMENT_VOTES]:
        votes.update(position - at for position in positions_by_word[quote_words[at].word][:MAX_ALIGNMENT_VOTES])
    best = 0.0
    for shift, _ in votes.most_common(4):
        slack = max(1, len(quote_words) // 10)
        low, high = max(0, shift - slack), min(len(words), shift + len(quote_words) + slack)
        best = max(best, _score_window(quote, quote_words, text, words[low:high]))
        if best == 1.0:
            break
    return best


def _score_window(quote: str, quote_words: list[WordPosition], text: str, window: list[WordPosition]) -> float:
    """Score a quote against a window: the lower of the scores by words and by letters."""
    from rapidfuzz.distance import Indel

    quoted = [token.word for token in quote_words]
    actual = [token.word for token in window]
    blocks = [block for block in Indel.opcodes(quoted, actual) if block.tag == "equal"]
    if not blocks:
        return 0.0
    first, last = blocks[0], blocks[-1]
    low = max(0, first.dest_start - first.src_start)
    high = min(len(window), last.dest_end + len(quoted) - last.src_end)
    span = text[window[low].start : window[high - 1].end]
    inner = quote[quote_words[0].start : quote_words[-1].end]
    if inner == span:
        return 1.0
    letters = Indel.normalized_similarity(inner.lower(), span.lower()) if len(inner) < 20_000 else 1.0
    return min(letters, _score_word_overlap(quoted, actual[low:high]), 1.0 if quoted == actual[low:high] else 0.999)


def _score_word_overlap(quoted: list[str], actual: list[str]) -> float:
    """Return the share of equal words; a typo in a long word counts by its letters."""
    from rapidfuzz.distance import Indel

    matched = 0.0
    removed: list[str] = []
    added: list[str] = []
    for block in Indel.opcodes(quoted, actual):
        if block.tag == "equal":
            matched += block.src_end - block.src_start
        else:
            removed += quoted[block.src_start : block.src_end]
            added += actual[block.dest_start : block.dest_end]
    for old, new in zip(removed, added, strict=False):
        if min(len(old), len(new)) >= 5 and old.isalpha() and new.isalpha():
            similarity = Indel.normalized_similarity(old, new)
            matched += similarity if similarity > 0.83 else 0.0
    score = matched / max(len(quoted), len(actual))
    changes_meaning = any(
        word in NEGATIONS or word.endswith("n't") or any(map(str.isdigit, word)) for word in removed + added
    )
    return min(score, MAX_ALTERED_SCORE) if changes_meaning else score


FIRST_UNSPACED_SCRIPT = "\u2e80"
"""First character of the scripts without spaces, where a word has no visible boundary."""
MAX_FUZZY_QUOTE = 4_000
"""Longer quotes are only searched verbatim."""
MAX_FUZZY_TEXT = 2_000_000
"""Largest text (in thousands of characters times the quote) that is searched for a similar span."""


class NormalizedText(NamedTuple):
    """A text in the form in which quotes are compared, and the original offset of each character."""

    text: str
    offsets: tuple[int, ...]


def locate_quote(quote: str, text: str, tolerance: float = 0.95) -> tuple[tuple[int, int], ...]:
    """Return the spans of a text that match a quote, as character offsets; none if it does not match.

    Verbatim up to white space, quotation marks, dashes and invisible characters; else within the `tolerance` of
    `score_quote_match`. An omission ("…") splits the quote, and every part must match.

    >>> text = "The ferry\\nleaves at “noon” sharp. It returns at six."
    >>> [text[start:end] for start, end in locate_quote('ferry leaves at "noon" … returns at six', text)]
    ['ferry\\nleaves at “noon”', 'returns at six']
    >>> locate_quote("leaves at one", text)
    ()
    """
    parts = [part for part in ELLIPSIS.split(normalize_typography(quote).strip("\"' ")) if QUOTE_WORD.search(part)]
    spans = [_locate_segment(part, text, tolerance) for part in parts]
    return tuple(span for span in spans if span) if all(spans) else ()


def _locate_segment(quote: str, text: str, tolerance: float) -> tuple[int, int] | None:
    """Locate a quote without omissions."""
    for start in _iterate_matches(quote, text):
        return start, start + len(quote)
    if not text:
        return None
    normalized = _normalize_with_offsets(text)
    target = _normalize_with_offsets(quote).text
    for start in _iterate_matches(target, normalized.text):
        return normalized.offsets[start], normalized.offsets[start + len(target) - 1] + 1
    if len(target) > MAX_FUZZY_QUOTE or score_quote_match(quote, text) < tolerance:
        return None
    return _locate_similar(target, normalized, tolerance)


def _iterate_matches(quote: str, text: str) -> Iterator[int]:
    """Yield the offsets of a quote in a text at word boundaries."""
    offset = text.find(quote) if quote else -1
    while offset >= 0:
        if _is_word_boundary(text, offset) and _is_word_boundary(text, offset + len(quote)):
            yield offset
        offset = text.find(quote, offset + 1)


def _is_word_boundary(text: str, offset: int) -> bool:
    """Return whether no word runs across an offset."""
    if offset <= 0 or offset >= len(text):
        return True
    left, right = text[offset - 1], text[offset]
    return not (left.isalnum() and right.isalnum()) or left >= FIRST_UNSPACED_SCRIPT or right >= FIRST_UNSPACED_SCRIPT


def _locate_similar(quote: str, normalized: NormalizedText, tolerance: float) -> tuple[int, int] | None:
    """Locate the span most similar to a quote, extended to word boundaries."""
    lower = normalized.text.lower()
    if len(lower) != len(normalized.text) or len(lower) * len(quote) > MAX_FUZZY_TEXT * 1_000:
        return None
    from rapidfuzz import fuzz

    alignment = fuzz.partial_ratio_alignment(quote.lower(), lower)
    if alignment is None or alignment.dest_end <= alignment.dest_start:
        return None
    start, end = alignment.dest_start, alignment.dest_end
    while not _is_word_boundary(lower, start):
        start -= 1
    while not _is_word_boundary(lower, end):
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
    """Normalize spaces, quotation marks and dashes character by character; drop invisible characters."""
    characters: list[str] = []
    offsets: list[int] = []
    after_space = True
    for offset, original in enumerate(text):
        for character in (original,) if original.isascii() else _normalize_character(original):
            if character.isspace():
                if after_space:
                    continue
                character = " "  # noqa: PLW2901
            after_space = character == " "
            characters.append(character)
            offsets.append(offset)
    return NormalizedText("".join(characters).rstrip(), tuple(offsets))


@lru_cache(maxsize=4_096)
def _normalize_character(character: str) -> str:
    """Decompose a character, map quotation marks and dashes to common ones, and drop invisible parts."""
    decomposed = unicodedata.normalize("NFKD", character.translate(TYPOGRAPHY_MAP))
    return "".join(
        mark for mark in decomposed if unicodedata.category(mark) not in {"Cf", "Cc", "Cs"} or mark.isspace()
    )
