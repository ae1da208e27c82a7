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
from ragfault.text import NEGATIONS, STOP_WORDS, split_sentences, split_words

MAX_PASSAGE_CHARS = 200_000
"""How many characters of a passage are read."""
MAX_CACHED_CHARS = 20_000
"""Passages up to this length are remembered: the same chunk serves many traces."""
MAX_FIELD_CHARS = 80
"""A value longer than this is a text of its own, not the value of a field."""

NO_STEMS: frozenset[str] = frozenset()

Polarity = Literal["yes", "no", "absent", ""]


class PassageSentence(NamedTuple):
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


def split_passage(text: str) -> tuple[PassageSentence, ...]:
    """The sentences of a passage.

    A dict literal or JSON object becomes one sentence per field, a row of a Markdown table one
    sentence with its headings; spans point into the passage as it was given.

    >>> [" ".join(sentence.tokens) for sentence in split_passage("{'attributes': {'WiFi': False}}")]
    ['attribut wifi no']
    """
    return _split_cached(text) if len(text) <= MAX_CACHED_CHARS else _split_uncached(text[:MAX_PASSAGE_CHARS])


@lru_cache(maxsize=256)
def _split_cached(text: str) -> tuple[PassageSentence, ...]:
    return _split_uncached(text)


def _split_uncached(text: str) -> tuple[PassageSentence, ...]:
    record = _parse_record(text)
    return tuple(_split_record(text, record)) if record is not None else tuple(_split_prose(text, 0))


def _build_sentence(
    start: int, end: int, text: str, polarity: Polarity = "", key: str = ""
) -> PassageSentence:
    tokens = split_words(normalize_spelling(text))
    held = frozenset(tokens)
    return PassageSentence(
        start,
        end,
        tokens,
        held - STOP_WORDS,
        polarity == "no" or not NEGATIONS.isdisjoint(held),
        polarity,
        frozenset(split_words(key)) - STOP_WORDS if key else NO_STEMS,
        text,
    )


# --- prose and tables ------------------------------------------------------------------------------

FLAG_FIELD = re.compile(r"[-*•]?\s*([\w /&'-]{2,40}):\s*(yes|no|true|false|none|null|n/a)\.?", re.IGNORECASE)
TABLE_RULE = re.compile(r"[|\s:+=-]+")
FLAG_POLARITY: dict[str, Polarity] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}


def _split_prose(text: str, offset: int) -> Iterator[PassageSentence]:
    """The sentences of a running text."""
    heads: list[str] = []
    for start, end in split_sentences(text):
        piece = text[start:end]
        if piece.count("|") >= 2:
            if TABLE_RULE.fullmatch(piece):
                continue
            cells = [cell.strip() for cell in piece.strip("|").split("|")]
            row = zip(heads, cells, strict=False) if len(heads) == len(cells) else ()
            said = "; ".join(f"{head}: {cell}" for head, cell in row) or piece
            yield _build_sentence(offset + start, offset + end, said, key=" ".join(heads))
            heads = heads if row else cells
            continue
        flag = FLAG_FIELD.fullmatch(piece)
        if flag:
            yield _build_flag(
                offset + start, offset + end, flag[1], FLAG_POLARITY.get(flag[2].lower(), "absent")
            )
        else:
            yield _build_sentence(offset + start, offset + end, piece)


def _build_flag(start: int, end: int, key: str, polarity: Polarity, path: str = "") -> PassageSentence:
    """A field that says yes, no or nothing; what is absent has no content to support a claim with."""
    key = split_key(key)
    if polarity == "absent":
        return _build_sentence(start, end, "", polarity, key)._replace(text=f"{path} {key}: unknown".lstrip())
    return _build_sentence(start, end, f"{path} {key}: {polarity}", polarity, key)


# --- records ---------------------------------------------------------------------------------------


def _parse_record(text: str) -> dict[object, object] | None:
    """The dict that a passage is the literal of, as Python or JSON writes it."""
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
    """A Python literal; what its strings look like is nobody's concern here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)


def _split_record(text: str, record: dict[object, object]) -> Iterator[PassageSentence]:
    """The fields of a record as sentences."""
    place = 0
    for path, value in _iterate_leaves(record, ()):
        key = path[-1] if path else ""
        start = max(text.find(key, place), place)
        over = split_key(path[-2]) if len(path) > 1 else ""
        if value is None or isinstance(value, bool) or str(value).lower() in {"none", "null", "", "n/a"}:
            place = min(len(text), start + len(key))
            yield _build_flag(
                start, place, key, "absent" if not isinstance(value, bool) else "yes" if value else "no", over
            )
            continue
        said = str(value)
        if len(said) > MAX_FIELD_CHARS:
            place = max(text.find(said[:20], start), start)
            for sentence in _split_prose(said, place):
                yield sentence._replace(
                    start=min(sentence.start, len(text)), end=min(sentence.end, len(text))
                )
            place = min(len(text), place + len(said))
            continue
        at = text.find(said, start)
        place = at + len(said) if at >= 0 else min(len(text), start + len(key))
        yield _build_field(start, place, over, split_key(key), said)


def _build_field(start: int, end: int, parent_key: str, key: str, value: str) -> PassageSentence:
    """A field with a value of its own; "no" and "free" are said of the key."""
    polarity = FLAG_POLARITY.get(value.lower(), "")
    return _build_sentence(start, end, f"{parent_key} {key}: {polarity or value}", polarity, key)


def _iterate_leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """All values that hold no others, with the keys above them."""
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
    """A key as words, with WiFi kept whole.

    >>> split_key("RestaurantsTakeOut"), split_key("review_date")
    ('Restaurants Take Out', 'review date')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")).replace("Wi Fi", "WiFi")


# --- spellings -------------------------------------------------------------------------------------

CLOCK_TIME = re.compile(
    r"(\d(?<!\w\d)\d?)(?:(?::(\d{1,2}))?(?::\d\d)?\s?([ap])\.?m\b\.?|:(\d{1,2})(?![\d:]))", re.IGNORECASE
)
HOUR_HINT = re.compile(r"\d(?::\d| ?[apAP]\.?[mM])")
SHORT_HYPHENATED = re.compile(
    r"-(?:(?:(?<=\b[A-Za-z]-)|(?<=\b[A-Za-z]{2}-)|(?<=\b[A-Za-z]{3}-))[A-Za-z]{1,4}\b|(?<=\b[Nn]on-)[A-Za-z])"
)
"""What a text holds, if there is a short hyphenated word in it; sought from its hyphen, it is found sooner."""
HYPHENATED_WORD = re.compile(r"\b([A-Za-z]{1,3}(?=-[A-Za-z]{1,4}\b)|[Nn]on)-([A-Za-z]+)\b")


def normalize_spelling(text: str) -> str:
    """A text with its times on the clock of 24 hours and short hyphenated words in one piece.

    >>> normalize_spelling("Wi-Fi from 8:30 a.m. to 5PM, or 9:0-17:0")
    'WiFi from 8:30 to 17:00, or 9:00-17:00'
    """
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
"""A word votes for at most so many sentences; beyond that it tells nothing."""


class Passage(NamedTuple):
    """A text under a name: a chunk, an answer or a reference."""

    name: str
    text: str


class SentenceIndex:
    """All sentences of some passages, found by the stems they hold.

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
            held = split_passage(passage.text)
            self.sentences += held
            self.passage_numbers += [number] * len(held)
        for place, sentence in enumerate(self.sentences):
            for word in sentence.content:
                self.postings[word].append(place)
        self._variant_cache: dict[tuple[str, bool], bool] = {}
        self.record_fields = tuple(
            dict.fromkeys((one.key, one.polarity) for one in self.sentences if one.key and one.polarity)
        )
        """What records say of their keys."""

    @cached_property
    def tokens(self) -> list[str]:
        """All words in a row."""
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
        """All runs of three."""
        return frozenset(zip(self.tokens, self.tokens[1:], self.tokens[2:], strict=False))

    @cached_property
    def prefixes(self) -> frozenset[str]:
        """How the long words begin."""
        return frozenset([stem[:6] for stem in self.postings if len(stem) >= 6 and stem.isalpha()])

    def get_source(self, place: int) -> str:
        """The text of a sentence as its passage has it."""
        sentence = self.sentences[place]
        return self.passages[self.passage_numbers[place]].text[sentence.start : sentence.end]

    def has_variant(self, word: str, *, is_name: bool = False) -> bool:
        """Whether a word not in the index is there in another form: as an alias, derived, or in two words."""
        known = self._variant_cache.get((word, is_name))
        if known is None:
            known = self._variant_cache[word, is_name] = self._detect_variant(word, is_name)
        return known

    def _detect_variant(self, word: str, is_name: bool) -> bool:
        if not ALIASES.get(word, NO_ALIASES).isdisjoint(self.postings):
            return True
        if not word.isalpha():
            return False
        if not is_name and len(word) >= 6 and word[:6] in self.prefixes:
            return True
        known = self.vocabulary
        return any(
            word[:cut] in known and word[cut:] in known and (word[:cut], word[cut:]) in self.bigrams
            for cut in range(1 if len(word) < 4 else 2, min(len(word) - 1, 12))
        )

    def are_adjacent(self, first: str, second: str) -> bool:
        """Whether two words stand side by side somewhere; alone, whether the first is there."""
        return (first, second) in self.bigrams or (not second and first in self.postings)

    def sum_shared_weights(self, weights: dict[str, float]) -> dict[int, float]:
        """For each sentence that shares a word with the weights, the weight it shares."""
        votes: defaultdict[int, float] = defaultdict(float)
        for word, weight in weights.items():
            for place in self.postings.get(word, ())[:MAX_POSTINGS]:
                votes[place] += weight
        return votes
