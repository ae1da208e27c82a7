"""Random numbers, words and sentences of the system under test; on purpose not the tokenization of the judge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

__all__ = ["NUMBER", "chance", "extract_words", "pick", "split_sentences"]

STOP_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        "a an and are as at be been by can did do does for from had has have how i if in into is it its me my of on "
        "or our s so than that the their them there these they this to was we were what when where which who whom "
        "whose why will with would you your under section say about",
    )
)
SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z0-9])|\n+")
NUMBER = re.compile(r"(?<![\w.,:-])\d+(?:[.,:]\d+)*(?![\w:])")
"""A figure that stands alone: an amount, a time, a year; not the digits of a code."""


def chance(*parts: object) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    digest = blake2b("|".join(map(str, parts)).encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


def pick(options: Sequence[str], *parts: object) -> str:
    """Return one of several options, by the number of the parts."""
    return options[int(chance(*parts) * len(options))]


def extract_words(text: str) -> list[str]:
    """Return the words and figures of a text in lower case, without stop words and plural endings."""
    result = re.findall(r"[^\W\d_]+|\d+(?:[.,:]\d+)*", text.lower())
    return [w[:-1] if len(w) > 3 and w[-1] == "s" != w[-2] else w for w in result if w not in STOP_WORDS]


def split_sentences(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Return the spans of the sentences, headings and table lines of a text, without the rules of tables."""
    end = len(text) if end is None else end
    position = start
    for separator in [*SENTENCE.finditer(text, start, end), None]:
        stop = separator.start() if separator else end
        if separator and separator[0] == " " and text.startswith("#", position):
            continue
        if text[position:stop].strip() and not text.startswith("|---", position):
            yield position, stop
        position = separator.end() if separator else end
