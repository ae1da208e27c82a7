"""Passages: a text as sentences, with structured records turned into sentences."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from ragfault.text import NEGATIONS, STOP, sentences, words

__all__ = ["Sentence", "even", "read"]

LONGEST = 200_000
"""How many characters of a passage are read."""
CACHED = 20_000
"""Passages up to this length are remembered: the same chunk serves many traces."""
LONG = 80
"""A value longer than this is a text of its own, not the value of a field."""

NONE: frozenset[str] = frozenset()

Polarity = Literal["yes", "no", "absent", ""]


class Sentence(NamedTuple):
    """A sentence of a passage, or a field of a record, with what comparison needs of it."""

    start: int
    end: int
    tokens: tuple[str, ...]
    content: frozenset[str]
    negated: bool
    polarity: Polarity = ""
    """Of a field: what it says of its key."""
    key: frozenset[str] = frozenset()
    """Of a field: the stems of its key."""
    text: str = ""
    """What it says, in words: a field with its key, a row with its headings."""


def read(text: str) -> tuple[Sentence, ...]:
    """The sentences of a passage.

    A dict literal or JSON object becomes one sentence per field, a row of a Markdown table one
    sentence with its headings; spans point into the passage as it was given.

    >>> [" ".join(sentence.tokens) for sentence in read("{'attributes': {'WiFi': False}}")]
    ['attribut wifi no']
    """
    return _remembered(text) if len(text) <= CACHED else _read(text[:LONGEST])


@lru_cache(maxsize=256)
def _remembered(text: str) -> tuple[Sentence, ...]:
    return _read(text)


def _read(text: str) -> tuple[Sentence, ...]:
    record = _record(text)
    return tuple(_fields(text, record)) if record is not None else tuple(_prose(text, 0))


def _make(start: int, end: int, text: str, polarity: Polarity = "", key: str = "") -> Sentence:
    tokens = words(even(text))
    held = frozenset(tokens)
    return Sentence(
        start,
        end,
        tokens,
        held - STOP,
        polarity == "no" or not NEGATIONS.isdisjoint(held),
        polarity,
        frozenset(words(key)) - STOP if key else NONE,
        text,
    )


# --- prose and tables ------------------------------------------------------------------------------

FLAG = re.compile(r"[-*•]?\s*([\w /&'-]{2,40}):\s*(yes|no|true|false|none|null|n/a)\.?", re.IGNORECASE)
RULE = re.compile(r"[|\s:+=-]+")
SAYS: dict[str, Polarity] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}


def _prose(text: str, offset: int) -> Iterator[Sentence]:
    """The sentences of a running text."""
    heads: list[str] = []
    for start, end in sentences(text):
        piece = text[start:end]
        if piece.count("|") >= 2:
            if RULE.fullmatch(piece):
                continue
            cells = [cell.strip() for cell in piece.strip("|").split("|")]
            row = zip(heads, cells, strict=False) if len(heads) == len(cells) else ()
            said = "; ".join(f"{head}: {cell}" for head, cell in row) or piece
            yield _make(offset + start, offset + end, said, key=" ".join(heads))
            heads = heads if row else cells
            continue
        flag = FLAG.fullmatch(piece)
        if flag:
            yield _flag(offset + start, offset + end, flag[1], SAYS.get(flag[2].lower(), "absent"))
        else:
            yield _make(offset + start, offset + end, piece)


def _flag(start: int, end: int, key: str, polarity: Polarity, path: str = "") -> Sentence:
    """A field that says yes, no or nothing; what is absent has no content to support a claim with."""
    key = spaced(key)
    if polarity == "absent":
        return _make(start, end, "", polarity, key)._replace(text=f"{path} {key}: unknown".lstrip())
    return _make(start, end, f"{path} {key}: {polarity}", polarity, key)


# --- records ---------------------------------------------------------------------------------------


def _record(text: str) -> dict[object, object] | None:
    """The dict that a passage is the literal of, as Python or JSON writes it."""
    bare = text.strip()
    if not (bare.startswith("{") and bare.endswith("}") and ":" in bare):
        return None
    for parse in (json.loads, _literal):
        try:
            record = parse(bare)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(record, dict):
            return record
    return None


def _literal(text: str) -> object:
    """A Python literal; what its strings look like is nobody's concern here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)


def _fields(text: str, record: dict[object, object]) -> Iterator[Sentence]:
    """The fields of a record as sentences."""
    place = 0
    for path, value in _leaves(record, ()):
        key = path[-1] if path else ""
        start = max(text.find(key, place), place)
        over = spaced(path[-2]) if len(path) > 1 else ""
        if value is None or isinstance(value, bool) or str(value).lower() in {"none", "null", "", "n/a"}:
            place = min(len(text), start + len(key))
            yield _flag(
                start, place, key, "absent" if not isinstance(value, bool) else "yes" if value else "no", over
            )
            continue
        said = str(value)
        if len(said) > LONG:
            place = max(text.find(said[:20], start), start)
            for sentence in _prose(said, place):
                yield sentence._replace(
                    start=min(sentence.start, len(text)), end=min(sentence.end, len(text))
                )
            place = min(len(text), place + len(said))
            continue
        at = text.find(said, start)
        place = at + len(said) if at >= 0 else min(len(text), start + len(key))
        yield _field(start, place, over, spaced(key), said)


def _field(start: int, end: int, over: str, key: str, said: str) -> Sentence:
    """A field with a value of its own; "no" and "free" are said of the key."""
    polarity = SAYS.get(said.lower(), "")
    return _make(start, end, f"{over} {key}: {polarity or said}", polarity, key)


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """All values that hold no others, with the keys above them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from _leaves(inner, path)
    else:
        yield path, value


@lru_cache(maxsize=4096)
def spaced(name: str) -> str:
    """A key as words, with WiFi kept whole.

    >>> spaced("RestaurantsTakeOut"), spaced("review_date")
    ('Restaurants Take Out', 'review date')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")).replace("Wi Fi", "WiFi")


# --- spellings -------------------------------------------------------------------------------------

TIME = re.compile(
    r"(\d(?<!\w\d)\d?)(?:(?::(\d{1,2}))?(?::\d\d)?\s?([ap])\.?m\b\.?|:(\d{1,2})(?![\d:]))", re.IGNORECASE
)
HOUR = re.compile(r"\d(?::\d| ?[apAP]\.?[mM])")
SHORT = re.compile(
    r"-(?:(?:(?<=\b[A-Za-z]-)|(?<=\b[A-Za-z]{2}-)|(?<=\b[A-Za-z]{3}-))[A-Za-z]{1,4}\b|(?<=\b[Nn]on-)[A-Za-z])"
)
"""What a text holds, if there is a short hyphenated word in it; sought from its hyphen, it is found sooner."""
HYPHEN = re.compile(r"\b([A-Za-z]{1,3}(?=-[A-Za-z]{1,4}\b)|[Nn]on)-([A-Za-z]+)\b")


def even(text: str) -> str:
    """A text with its times on the clock of 24 hours and short hyphenated words in one piece.

    >>> even("Wi-Fi from 8:30 a.m. to 5PM, or 9:0-17:0")
    'WiFi from 8:30 to 17:00, or 9:00-17:00'
    """
    if "-" in text and SHORT.search(text):
        text = HYPHEN.sub(r"\1\2", text)
    return TIME.sub(_time, text) if HOUR.search(text) else text


def _time(match: re.Match[str]) -> str:
    hour, minute, half = int(match[1]), int(match[2] or match[4] or 0), (match[3] or "").lower()
    if hour > 24 or minute > 59 or (half and not 0 < hour <= 12):
        return match.group()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour}:{minute:02d}"
