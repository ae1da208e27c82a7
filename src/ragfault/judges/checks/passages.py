"""Passages split into sentences, records and tables included, and indexed by stem."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from ragfault.judges.checks.lexicon import ALIASES
from ragfault.judges.checks.tables import PassageRow, parse_rows
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_words
from ragfault.text.sentences import split_sentences

MAX_PASSAGE_CHARS = 200_000
"""Further characters of a passage are ignored."""
MAX_CACHED_CHARS = 20_000
"""Passages up to this length are cached: the same chunk occurs in many traces."""
MAX_FIELD_CHARS = 80
"""Maximum length of a field value in characters; a longer value is prose."""

NO_STEMS: frozenset[str] = frozenset()

Polarity = Literal["yes", "no", "absent", ""]


class PassageSentence(NamedTuple):
    """A sentence of a passage, or a field of a record, prepared for comparison."""

    start: int
    end: int
    tokens: tuple[str, ...]
    content: frozenset[str]
    negated: bool
    polarity: Polarity = ""
    """Value of a field as yes, no or absent."""
    key: frozenset[str] = frozenset()
    """Stems of the key of a field."""
    text: str = ""
    """The content in words: a field with its key, a row with its headings."""


def split_passage(text: str) -> tuple[PassageSentence, ...]:
    """Split a passage into sentences.

    A dict literal or JSON object becomes one sentence per field, a row of a Markdown table one sentence with
    its headings; spans refer to the passage as given.

    >>> [" ".join(sentence.tokens) for sentence in split_passage("{'attributes': {'WiFi': False}}")]
    ['attribut wifi no']
    """
    return _split_cached(text) if len(text) <= MAX_CACHED_CHARS else _split_uncached(text[:MAX_PASSAGE_CHARS])


def spell_record(text: str) -> str:
    """Return the fields of a record as lines in words; any other text as it is.

    >>> spell_record("{'name': 'Lyn Inn', 'attributes': {'WiFi': False}}")
    'name: Lyn Inn\\nattributes WiFi: no'
    """
    if _parse_record(text) is None:
        return text
    return "\n".join(sentence.text.strip() for sentence in split_passage(text))


@lru_cache(maxsize=256)
def _split_cached(text: str) -> tuple[PassageSentence, ...]:
    return _split_uncached(text)


def _split_uncached(text: str) -> tuple[PassageSentence, ...]:
    record = _parse_record(text)
    return tuple(_split_record(text, record)) if record is not None else tuple(_split_prose(text, 0))


def _build_sentence(start: int, end: int, text: str, polarity: Polarity = "", key: str = "") -> PassageSentence:
    tokens = split_words(normalize_spelling(text))
    words = frozenset(tokens)
    return PassageSentence(
        start,
        end,
        tokens,
        words - STOP_WORDS,
        polarity == "no" or not NEGATIONS.isdisjoint(words),
        polarity,
        frozenset(split_words(key)) - STOP_WORDS if key else NO_STEMS,
        text,
    )


FLAG_FIELD = re.compile(r"[-*•]?\s*([\w /&'-]{2,40}):\s*(yes|no|true|false|none|null|n/a)\.?", re.IGNORECASE)
TABLE_RULE = re.compile(r"[|\s:+=-]+")
FLAG_POLARITY: dict[str, Polarity] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}


def _split_prose(text: str, offset: int) -> Iterator[PassageSentence]:
    headings: list[str] = []
    for start, end in split_sentences(text):
        sentence = text[start:end]
        if sentence.count("|") >= 2:
            if TABLE_RULE.fullmatch(sentence):
                continue
            cells = [cell.strip() for cell in sentence.strip("|").split("|")]
            row = zip(headings, cells, strict=False) if len(headings) == len(cells) else ()
            row_text = "; ".join(f"{head}: {cell}" for head, cell in row) or sentence
            yield _build_sentence(offset + start, offset + end, row_text, key=" ".join(headings))
            headings = headings if row else cells
            continue
        flag = FLAG_FIELD.fullmatch(sentence)
        if flag:
            yield _build_flag(offset + start, offset + end, flag[1], FLAG_POLARITY.get(flag[2].lower(), "absent"))
        else:
            yield _build_sentence(offset + start, offset + end, sentence)


def _build_flag(start: int, end: int, key: str, polarity: Polarity, path: str = "") -> PassageSentence:
    """Build a field with the value yes, no or absent; an absent one has no content to support a claim with."""
    key = split_key(key)
    if polarity == "absent":
        return _build_sentence(start, end, "", polarity, key)._replace(text=f"{path} {key}: unknown".lstrip())
    return _build_sentence(start, end, f"{path} {key}: {polarity}", polarity, key)


def _parse_record(text: str) -> dict[object, object] | None:
    """Return the dict of which a passage is the literal, in Python or JSON; None if it is not one."""
    bare = text.strip()
    if not (bare.startswith("{") and bare.endswith("}") and ":" in bare):
        return None
    for parse in (json.loads, _parse_literal):
        try:
            record = parse(bare)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(record, dict):
            return record
    return None


def _parse_literal(text: str) -> object:
    """Parse a Python literal without warnings about its strings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)


def _split_record(text: str, record: dict[object, object]) -> Iterator[PassageSentence]:
    position = 0
    for path, value in _iterate_leaves(record, ()):
        key = path[-1] if path else ""
        start = max(text.find(key, position), position)
        parent_key = split_key(path[-2]) if len(path) > 1 else ""
        if value is None or isinstance(value, bool) or str(value).lower() in {"none", "null", "", "n/a"}:
            position = min(len(text), start + len(key))
            yield _build_flag(
                start, position, key, "absent" if not isinstance(value, bool) else "yes" if value else "no", parent_key
            )
            continue
        value_text = str(value)
        if len(value_text) > MAX_FIELD_CHARS:
            position = max(text.find(value_text[:20], start), start)
            for sentence in _split_prose(value_text, position):
                yield sentence._replace(start=min(sentence.start, len(text)), end=min(sentence.end, len(text)))
            position = min(len(text), position + len(value_text))
            continue
        value_start = text.find(value_text, start)
        position = value_start + len(value_text) if value_start >= 0 else min(len(text), start + len(key))
        yield _build_field(start, position, parent_key, split_key(key), value_text)


def _build_field(start: int, end: int, parent_key: str, key: str, value: str) -> PassageSentence:
    """Build a field with a value; "no" and "free" negate the key."""
    polarity = FLAG_POLARITY.get(value.lower(), "")
    return _build_sentence(start, end, f"{parent_key} {key}: {polarity or value}", polarity, key)


def _iterate_leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _iterate_leaves(inner, (*path, str(key)))
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from _iterate_leaves(inner, path)
    else:
        yield path, value


@lru_cache(maxsize=4096)
def split_key(name: str) -> str:
    """Split a key into words; WiFi stays one word.

    >>> split_key("RestaurantsTakeOut"), split_key("review_date")
    ('Restaurants Take Out', 'review date')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")).replace("Wi Fi", "WiFi")


CLOCK_TIME = re.compile(
    r"(\d(?<!\w\d)\d?)(?:(?::(\d{1,2}))?(?::\d\d)?\s?([ap])\.?m\b\.?|:(\d{1,2})(?![\d:]))", re.IGNORECASE
)
HOUR_HINT = re.compile(r"\d(?::\d| ?[apAP]\.?[mM])")
SHORT_HYPHENATED = re.compile(
    r"-(?:(?:(?<=\b[A-Za-z]-)|(?<=\b[A-Za-z]{2}-)|(?<=\b[A-Za-z]{3}-))[A-Za-z]{1,4}\b|(?<=\b[Nn]on-)[A-Za-z])"
)
"""A text with a short hyphenated word; a search from the hyphen is faster."""
NUMBER_ABBREVIATION = re.compile(r"\b[Nn]o\. (?=#?\d)")
"""The abbreviation of "number", which is no negation."""
HYPHENATED_WORD = re.compile(r"\b([A-Za-z]{1,3}(?=-[A-Za-z]{1,4}\b)|[Nn]on)-([A-Za-z]+)\b")


def normalize_spelling(text: str) -> str:
    """Write times on the 24-hour clock, short hyphenated words as one word, and "No. 5" as "number 5".

    >>> normalize_spelling("Wi-Fi from 8:30 a.m. to 5PM, or 9:0-17:0")
    'WiFi from 8:30 to 17:00, or 9:00-17:00'
    """
    if "o. " in text:
        text = NUMBER_ABBREVIATION.sub("number ", text)
    if "-" in text and SHORT_HYPHENATED.search(text):
        text = HYPHENATED_WORD.sub(r"\1\2", text)
    return CLOCK_TIME.sub(_format_time, text) if HOUR_HINT.search(text) else text


def _format_time(match: re.Match[str]) -> str:
    hour, minute, half = int(match[1]), int(match[2] or match[4] or 0), (match[3] or "").lower()
    if hour > 24 or minute > 59 or (half and not 0 < hour <= 12):
        return match.group()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour}:{minute:02d}"


NO_ALIASES: frozenset[str] = frozenset()
MAX_POSTINGS = 300
"""A word is counted for at most this many sentences; a more frequent one carries no information."""


class Passage(NamedTuple):
    """A named text: a chunk, an answer or a reference."""

    name: str
    text: str


class SentenceIndex:
    """An index of the sentences of some passages by their stems.

    >>> index = SentenceIndex([Passage("a", "Cats sleep. Dogs bark."), Passage("b", "Dogs sleep.")])
    >>> [index.passage_numbers[place] for place in index.postings["sleep"]]
    [0, 1]
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = tuple(passages)
        self.sentences: list[PassageSentence] = []
        self.passage_numbers: list[int] = []
        """For each sentence the number of its passage."""
        self.postings: defaultdict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self.passages):
            sentences = split_passage(passage.text)
            self.sentences += sentences
            self.passage_numbers += [number] * len(sentences)
        for index, sentence in enumerate(self.sentences):
            for word in sentence.content:
                self.postings[word].append(index)
        self._variant_cache: dict[tuple[str, bool], bool] = {}
        self.record_fields = tuple(
            dict.fromkeys(
                (sentence.key, sentence.polarity) for sentence in self.sentences if sentence.key and sentence.polarity
            )
        )
        """The polarity that records give each of their keys."""

    @cached_property
    def table_rows(self) -> list[PassageRow]:
        """The rows of all Markdown tables."""
        return parse_rows([passage.text for passage in self.passages], normalize_spelling)

    @cached_property
    def prose(self) -> list[frozenset[str]]:
        """The content of the sentences outside of tables."""
        return [sentence.content for i, sentence in enumerate(self.sentences) if "|" not in self.get_source(i)]

    @cached_property
    def tokens(self) -> list[str]:
        """All words in order."""
        return [word for sentence in self.sentences for word in sentence.tokens]

    @cached_property
    def bigrams(self) -> frozenset[tuple[str, str]]:
        """All pairs of neighbours."""
        return frozenset(pairwise(self.tokens))

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All words."""
        return frozenset(self.tokens)

    @cached_property
    def trigrams(self) -> frozenset[tuple[str, str, str]]:
        """All runs of three words."""
        return frozenset(zip(self.tokens, self.tokens[1:], self.tokens[2:], strict=False))

    @cached_property
    def prefixes(self) -> frozenset[str]:
        """The first six letters of long stems."""
        return frozenset([stem[:6] for stem in self.postings if len(stem) >= 6 and stem.isalpha()])

    def get_source(self, position: int) -> str:
        sentence = self.sentences[position]
        return self.passages[self.passage_numbers[position]].text[sentence.start : sentence.end]

    def has_variant(self, word: str, *, is_name: bool = False) -> bool:
        """Return whether a word not in the index is there in another form: an alias, a derivation, or two words."""
        is_variant = self._variant_cache.get((word, is_name))
        if is_variant is None:
            is_variant = self._variant_cache[word, is_name] = self._detect_variant(word, is_name)
        return is_variant

    def _detect_variant(self, word: str, is_name: bool) -> bool:
        if not ALIASES.get(word, NO_ALIASES).isdisjoint(self.postings):
            return True
        if not word.isalpha():
            return False
        if not is_name and len(word) >= 6 and word[:6] in self.prefixes:
            return True
        vocabulary = self.vocabulary
        return any(
            word[:cut] in vocabulary and word[cut:] in vocabulary and (word[:cut], word[cut:]) in self.bigrams
            for cut in range(1 if len(word) < 4 else 2, min(len(word) - 1, 12))
        )

    def are_adjacent(self, first: str, second: str) -> bool:
        """Return whether two words are neighbours somewhere; without a second word, whether the first occurs."""
        return (first, second) in self.bigrams or (not second and first in self.postings)

    def sum_shared_weights(self, weights: dict[str, float]) -> dict[int, float]:
        """Return, for each sentence that shares words with `weights`, their total weight."""
        totals: defaultdict[int, float] = defaultdict(float)
        for word, weight in weights.items():
            for position in self.postings.get(word, ())[:MAX_POSTINGS]:
                totals[position] += weight
        return totals
