"""Pairs of answers that differ, with the words that they say without markup."""

from __future__ import annotations

import html
import json
import operator
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_plus

import numpy as np

from ragfault.comparison.comparability import LocatedMismatch
from ragfault.comparison.pairing import QUERY_ENDS, ChunkPair, ChunkRow, Mask, RunContents, TracePairing
from ragfault.io.runs.run import Run
from ragfault.judges.checks.sentence_kinds import is_talk
from ragfault.model.records import Trace
from ragfault.text.markup import (
    REASONING_PATTERN,
    TABLE_PATTERN,
    TAG_PATTERN,
    is_json,
    is_url_encoded,
    is_wrapped,
    may_reason,
    strip_markdown,
    unfence,
)
from ragfault.text.normalization import fold_case, split_content_words
from ragfault.text.sentences import split_sentences

# fewer pairs show no habit of a logger
LEAST_PAIRS = 5
SIDES = ("baseline", "candidate")
# of the pairs
CUT_SHARE = 0.02
# a shorter answer may be known by heart
LEAST_WORDS = 5
# words of a query; a shorter one begins an answer by chance
LEAST_ECHO = 4
MARK_PATTERN = re.compile(
    r"(?m)^\s*(?:[-*+•]|\d{1,2}[.)])\s+|^#{1,6}\s|^\|\s*\d{1,3}\s*(?=\|)|[*_`]{1,3}|\|(?:\s*:?-{3,}:?\s*\|)*"
)
QUOTE_MARKS = "\"'“”‘’«»"
CURRENCY_NAMES = {"£": "gbp", "€": "eur", "$": "usd", "¥": "jpy"}
CURRENCY_NAME = re.compile("gbp|eur|usd|jpy")
SEPARATOR = re.compile(r"(?<=\d)[.,](?=\d)")
FIGURE_PATTERN = re.compile(r"\d+")
# after the words that lead in what follows
LEAD_PATTERN = re.compile(r"(?<=[^\W\d]:)\s+")
PUNCTUATION_PATTERN = re.compile(r"[.,;:!?]")


class AnswerPair(NamedTuple):
    """The answers of a pair that differ in the record or rest on other chunks."""

    place: int
    """Of the pair in the pairing."""
    answers: tuple[str, str]
    chunks: tuple[tuple[str, ...], tuple[str, ...]]
    words: tuple[str, str]
    """The words of each answer, without markup and a repeated query in front."""
    wrapped: tuple[bool, bool]
    """Whether the answers hold tags, are JSON or URL-encoded, or begin with the query."""

    @property
    def is_same(self) -> bool:
        """Return whether the answers say the same words; punctuation counts unless one side has none at all.

        With the punctuation that side may have lost the symbols of currencies. Two answers in JSON state all figures
        alike, too: their values are answers, and not the wrapping of a text.
        """
        old, new = self.words
        if all(map(is_json, self.answers)) and operator.ne(*map(FIGURE_PATTERN.findall, self.answers)):
            return False
        if old == new or self.unpunctuated[0] == self.unpunctuated[1]:
            return old == new
        if bool(CURRENCY_NAME.search(old)) != bool(CURRENCY_NAME.search(new)):
            old, new = (CURRENCY_NAME.sub("", words) for words in self.words)
        return letters_of(old) == letters_of(new)

    @property
    def unpunctuated(self) -> tuple[bool, bool]:
        """Return of which sides the answer holds no punctuation."""
        old, new = (not PUNCTUATION_PATTERN.search(answer) for answer in self.answers)
        return old, new


def differ_in_talk(pair: AnswerPair) -> bool:
    """Return whether two answers differ in nothing but talk, such as a greeting or an offer of help.

    >>> answers = ("It leaves at ten.", "Here is what I found: It leaves at ten. Let me know if you need more.")
    >>> differ_in_talk(AnswerPair(0, answers, ((), ()), answers, (False, False)))
    True
    """
    sides = [split_parts(answer) for answer in pair.answers]
    other = set(sides[0]) ^ set(sides[1])
    common = [[part for part in side if part not in other] for side in sides]
    return bool(other and common[0]) and common[0] == common[1] and all(map(is_talk, other))


def split_parts(answer: str) -> list[str]:
    """Return the sentences of an answer without Markdown; what a colon leads in is one of its own."""
    plain = strip_markdown(answer)
    sentences = [plain[start:end] for start, end in split_sentences(plain)]
    return [part for sentence in sentences for part in LEAD_PATTERN.split(sentence) if part]


def letters_of(text: str) -> str:
    """Return the letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def read_answer_pairs(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing, chunks: ChunkPair
) -> list[AnswerPair]:
    """Read the answers of the pairs that differ and are answered on both sides, beside their chunk texts."""
    old, new = contents
    left, right = pairing.baseline, pairing.candidate
    differ = ~(pairing.same_answers & pairing.same_chunks) & ~old.blank[left] & ~new.blank[right]
    places = np.flatnonzero(differ)
    sides = []
    for run, rows, lists in zip(runs, (left[places].tolist(), right[places].tolist()), chunks, strict=True):
        chosen, traces = set(rows), enumerate(run.traces(fields=["answer", "query"]))
        texts = {row: _read_answer(trace, lists[row] or ()) for row, trace in traces if row in chosen}
        sides.append([texts[row] for row in rows])
    return [
        AnswerPair(place, *zip(before, after, strict=True))
        for place, before, after in zip(places.tolist(), *sides, strict=True)
    ]


def _read_answer(trace: Trace, chunks: Sequence[ChunkRow]) -> tuple[str, tuple[str, ...], str, bool]:
    """Return an answer, its chunk texts, the words of the answer, and whether markup surrounds them."""
    answer = trace.answer or ""
    plain = _strip_query(answer, trace.query)
    return answer, tuple(chunk.text for chunk in chunks), strip_markup(plain), is_wrapped(answer) or plain != answer


def mark_places(places: Sequence[int], size: int) -> Mask:
    """Return the mask of some pairs."""
    mask: Mask = np.zeros(size, dtype=bool)
    mask[list(places)] = True
    return mask


def name_mismatch(text: str, places: Sequence[int], size: int, *fields: str) -> list[LocatedMismatch]:
    """Return the mismatch of some pairs, on which these fields are not compared."""
    mask = mark_places(places, size)
    return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out=dict.fromkeys(fields, mask))]


def cover_words(words: frozenset[str], texts: Sequence[str]) -> float:
    """Return the share of the words that the text with the most of them holds."""
    return max((len(words & _collect_words(text)) / len(words) for text in texts), default=0.0)


@lru_cache(maxsize=1 << 11)
def _collect_words(text: str) -> frozenset[str]:
    """Return the content words of a text; those of recent ones are cached, since chunks are retrieved many times."""
    return frozenset(split_content_words(text))


def is_beginning(part: str, longer: str) -> bool:
    """Return whether a text begins another that goes on, an ellipsis at its end apart."""
    stem = part.rstrip().removesuffix("…").removesuffix("...")
    return len(longer.rstrip()) > len(part.rstrip()) and longer.startswith(stem)


def _strip_query(answer: str, query: str) -> str:
    """Return an answer without the query that it begins with; one of fewer than four words stays.

    >>> _strip_query("“When does the ferry leave?”: At ten.", "When does the ferry leave?")
    'At ten.'
    """
    stem = query.strip().rstrip(QUERY_ENDS)
    begin = answer.lstrip(f"{QUOTE_MARKS} *_#>")
    if len(stem.split()) < LEAST_ECHO or not begin.casefold().startswith(stem.casefold()):
        return answer
    return begin[len(stem) :].lstrip(f"{QUERY_ENDS}{QUOTE_MARKS}:*_-–—\n") or answer


def strip_markup(text: str) -> str:
    """Return the words of an answer without markup, case, accents, quotation marks around it and a final full stop.

    Separators in numbers are alike, and symbols of currencies are codes.

    >>> strip_markup("<p>1. It&#39;s <b>ten</b>.<br></p>") == strip_markup("- IT'S **ten**")
    True
    """
    plain = unquote_plus(text) if is_url_encoded(text) else _unwrap_json(text)
    table = TABLE_PATTERN.match(plain)
    plain = table[1].replace("|", " ") if table else plain
    plain = REASONING_PATTERN.sub("", plain) if may_reason(plain) else plain
    plain = TAG_PATTERN.sub("\n", plain) if "<" in plain else plain
    plain = MARK_PATTERN.sub(" ", html.unescape(plain).strip())
    words = "".join(fold_case(plain).split())
    for symbol, name in CURRENCY_NAMES.items():
        words = words.replace(symbol, name)
    return SEPARATOR.sub(".", words.strip(QUOTE_MARKS)).rstrip(".")


def _unwrap_json(text: str) -> str:
    """Return the longest text of a JSON object or list, which may stand between code fences, else the text as it is.

    Of nested values the outermost that are texts of several words count, else the outermost that are texts at all:
    within an answer stand its sources.

    >>> _unwrap_json('[{"role": "assistant", "content": "It costs £10."}]')
    'It costs £10.'
    >>> _unwrap_json('[1] It costs £10.')
    '[1] It costs £10.'
    """
    if not is_json(text):
        return text
    try:
        values = [json.loads(unfence(text))]
    except (ValueError, RecursionError):
        # no JSON, or nested deeper than any answer is
        return text
    longest = None
    while values and (longest is None or " " not in longest):
        inner = [item for value in values for item in (value.values() if isinstance(value, dict) else value)]
        texts = [item for item in inner if isinstance(item, str)]
        longest = max([text for text in texts if " " in text] or ([] if longest else texts), key=len, default=longest)
        values = [item for item in inner if isinstance(item, dict | list)]
    return text if longest is None else longest
