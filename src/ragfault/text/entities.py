"""Entities of a text in one exact form: names, numbers, dates, amounts and identifiers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import TypeVar

from ragfault.text.normalization import STOP_WORDS, STRAIGHT_QUOTES, fold_case, normalize_typography
from ragfault.text.quantities import (
    DIGIT,
    HALF_DAY,
    SPELLED_NUMBER,
    EntityMatch,
    blank_matches,
    convert_number_words,
    extract_quantities,
    parse_quantities,
)
from ragfault.text.sentences import split_sentences

INITIALS = re.compile(r"\b(?:[A-Z]\.){2,}")
CAPITALIZED_WORD = r"[^\W\d_a-zß-öø-ÿ][^\W_]*(?:['&.-][^\W_]+){0,6}\.?"
NAME_PARTICLE = r"(?:of|de|da|di|del|della|van|von|der|den|la|le|du|bin|al|y|for)"
NAME_RUN = re.compile(rf"\b{CAPITALIZED_WORD}(?: (?:{NAME_PARTICLE} )?{CAPITALIZED_WORD}){{0,9}}")
NAME_FOLLOWER = re.compile(r"(?:'s)?,? (?:is|was|are|were|has|had|and [A-Z])|'s\b")
"""Words after a name, which distinguish it from a capitalized first word of a sentence."""


def extract_names(text: str) -> list[str]:
    """Extract the names of a text, case-folded, in order.

    >>> extract_names("The Oslo Accords were signed by Yitzhak Rabin of the U.S. side. Later came Nigeria.")
    ['oslo accords', 'yitzhak rabin', 'us', 'nigeria']
    """
    text = INITIALS.sub(lambda match: match.group().replace(".", ""), text)
    names: list[str] = []
    for start, end in split_sentences(text):
        sentence = text[start:end]
        if sentence.isupper() and sentence.count(" ") > 3:
            continue
        first = next((offset for offset, character in enumerate(sentence) if character.isalnum()), 0)
        last = len(sentence.rstrip(".,;:!?\"')"))
        for match in NAME_RUN.finditer(sentence):
            at_start = match.start() <= first
            opens_sentence = at_start and match.end() < last and not NAME_FOLLOWER.match(sentence, match.end())
            names += _split_name_run(match.group(), opens_sentence)
    return names


def _split_name_run(run: str, opens_sentence: bool) -> list[str]:
    """Split a run of capitalized words at full stops; drop stop words and a lone word that opens the sentence."""
    names = []
    for index, part in enumerate(re.split(r"(?<=[^\W_]{3})\. ", run)):
        parts = part.split()
        words = parts
        while words and fold_case(words[0]) in STOP_WORDS and not _is_acronym(words[0]):
            words = words[1:]
        if not words or (len(words) == 1 and len(words[0]) == 1):
            continue
        is_sentence_start = opens_sentence and index == 0 and len(parts) == 1 and not _is_acronym(parts[0])
        if not is_sentence_start:
            names.append(fold_case(" ".join(words)).removesuffix("'s").replace(".", ""))
    return names


def _is_acronym(word: str) -> bool:
    """Return whether a word has a second capital."""
    return sum(map(str.isupper, word)) > 1


ENTITY_HINT = re.compile(
    rf"\d|[$€£¥₹§@]|https?:|\b(?:{SPELLED_NUMBER.pattern}|percent|noon|midday|midnight|section|article|part|appendix)\b"
)
"""A lower-case text without a match has no entities except names."""
URL_OR_EMAIL = re.compile(r"\bhttps?://[^\s<>\"')\]]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}\b")
SECTION_PATTERN = (
    r"(?:\b(section|sec|article|art|chapter|clause|paragraph|para|figure|fig|table|page|step|rule|part|title"
    r"|appendix|annex|schedule|exhibit|question|item|phase|type|stage|grade|level)s?\b\.?|(§)§?)"
    r" ?(?:no\.? ?)?(\d+(?:\.\d+)*(?:\([a-z0-9]+\))*[a-z]?|[a-z]|[ivx]+)\b"
)
SECTION_REFERENCE = re.compile(SECTION_PATTERN, re.IGNORECASE)
SECTION_NAMES = {"sec": "section", "art": "article", "para": "paragraph", "fig": "figure", "§": "section"}
VERSION_NUMBER = re.compile(
    r"\b(?:version ?|v\.? ?)(\d+(?:\.\d+)*(?:-?[a-z]+\.?\d*)?)\b|\b(\d+\.\d+\.\d+(?:\.\d+)*)\b", re.I
)
PHONE_NUMBER = re.compile(r"(?<![\w-])(?:\+\d{1,3}[-. ])?\(?\d{3}\)?[-. ]\d{3}[-. ]\d{4}(?![\w-])")
IDENTIFIER_CODE = re.compile(
    r"(?<![\w-])(?=[\w-]{0,40}\d)(?=[\w-]{0,40}[A-Za-z])[A-Za-z0-9]{1,40}(?:[-_][A-Za-z0-9]{1,40}){0,8}(?![\w-])"
)
ORDINARY_CODE = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|k|m|bn?|x)|(?:\d+-)+[a-z]+|[a-z]+-\d+-[a-z]+", re.I)


@lru_cache(maxsize=1 << 12)
def extract_entities(text: str) -> frozenset[str]:
    """Extract the names, numbers, dates, amounts, units and identifiers of a text, each in one exact form.

    Two texts name the same entity exactly if their forms are equal; nothing is matched by similarity.
    Names are capitalized runs, case-folded; a capital that only opens a sentence makes no name.

    >>> sorted(extract_entities("On 14 March 2024 Ann Lee paid $1,234.00 for 5kg; see Section 12 of v2.3.1."))
    ['1234 usd', '2024-03-14', '5 kg', 'ann lee', 'section 12', 'v2.3.1']
    >>> extract_entities("2024-03-14, fifty percent") == extract_entities("March 14, 2024, 50 %")
    True
    """
    matches, remaining = _match_entities(text)
    return frozenset(match.form for match in matches).union(extract_names(remaining))


class EntityIndex:
    """All entities that some texts mention, each by itself: `entity in EntityIndex(text)`.

    Beyond `extract_entities`: year and month of a date, the number of an amount, and every run of words.

    >>> index = EntityIndex("the nigerian fund paid 5 kg of gold on 2024-03-14 in niger")
    >>> [entity in index for entity in ("niger", "nigeria", "5 kg", "5000 g", "5", "50", "2024-03", "fund paid")]
    [True, False, True, True, True, False, True, True]
    """

    __slots__ = ("_texts", "_word_sequence")

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self._word_sequence: str | None = None

    def __contains__(self, entity: str) -> bool:
        # Extracting the entities of a text takes much longer than joining its words: only where these do not tell.
        if entity[:1].isdigit():
            number = LEADING_NUMBER.match(entity)
            digits = _remove_points(number[0]).strip("0") if number and entity.isascii() else ""
            stated = any(
                (CLOCK_TIME.fullmatch(entity) or digits in _join_digits(text)) and entity in _index_literals(text)[0]
                for text in self._texts
            )
            return stated or self._contains_amount(entity)
        last = ""
        if not QUANTITY_PREFIX.search(entity):
            if self._contains_words(entity):
                return True
            runs = ALNUM_RUN.findall(entity.replace(".", ""))
            last = runs[-1] if runs and entity.isascii() and not DIGIT.search(entity) else ""
        return any(
            last in _join_words(text) and (entity in _index_literals(text)[0] or entity in _index_names(text))
            for text in self._texts
        )

    def _contains_amount(self, entity: str) -> bool:
        """Return whether a text states an amount in another unit of its kind: 6.55 kg for 6550 g."""
        amount = parse_quantities(entity)
        if not amount or not amount[0].unit:
            return False
        return any(amount == parse_quantities(form) for text in self._texts for form in _index_literals(text)[0])

    def _contains_words(self, entity: str) -> bool:
        if self._word_sequence is None:
            self._word_sequence = "|".join(map(_join_words, self._texts))
        return f" {' '.join(WORD_RUN.findall(entity.replace('.', '')))} " in self._word_sequence


MAX_CACHED_LENGTH = 8_000
"""Shorter texts are cached: a chunk is retrieved for many queries, and an answer compared several times."""
Result = TypeVar("Result")


def _cache_short(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """Cache the results of a function of a text for short texts."""
    cached = lru_cache(maxsize=1 << 10)(function)

    @wraps(function)
    def choose(text: str) -> Result:
        return cached(text) if len(text) < MAX_CACHED_LENGTH else function(text)

    return choose


@_cache_short
def _index_literals(text: str) -> tuple[frozenset[str], str]:
    """Return all forms of the entities of a text except names, and the text with these entities blanked out."""
    matches, remaining = _match_entities(text)
    return frozenset(form for match in matches for form in match.forms).union(_list_ordinals(text)), remaining


@_cache_short
def _index_names(text: str) -> frozenset[str]:
    return frozenset(extract_names(_index_literals(text)[1]))


@_cache_short
def _join_words(text: str) -> str:
    """Return the words of a text in order with a blank around each."""
    return f" {' '.join(WORD_RUN.findall(fold_case(normalize_typography(text)).replace('.', '')))} "


@_cache_short
def _join_digits(text: str) -> str:
    """Return a text in which the digits of every number stand side by side, with number words as digits."""
    text = _remove_points(convert_number_words(normalize_typography(text)))
    text = GROUP_SPACE.sub("", FOREIGN_DIGIT.sub(lambda match: str(int(match[0])), text))
    return f"{text} {' '.join(_list_ordinals(text))}"


def _list_ordinals(text: str) -> list[str]:
    """List the numbers that a text may state as words such as "third", which are none by themselves: a third party."""
    return [ORDINALS[word] for word in ORDINAL_WORD.findall(text.lower())]


CLOCK_TIME = re.compile(rf"\d\d:\d\d(?: {HALF_DAY})?")
"""Computed from other digits, as 18:00 from 6 pm."""
GROUP_SPACE = re.compile(r"(?<=\d) (?=\d{3}\b)")
ORDINAL_WORDS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
ORDINALS = {name: str(number) for number, name in enumerate(re.split(" ", ORDINAL_WORDS), 1)}
ORDINAL_WORD = re.compile(rf"\b({'|'.join(ORDINALS)})\b")
FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
LEADING_NUMBER = re.compile(r"[\d.]+")
ALNUM_RUN = re.compile(r"[^\W_]+")


def _remove_points(text: str) -> str:
    return text.replace(",", "").replace(".", "")


NUMBERED_PREFIXES = tuple(
    f"{word} " for word in ("section", "article", "chapter", "page", "step", "part", "table", "figure")
)
WORD_RUN = re.compile(r"[^\W_]+(?:'(?!s\b)[^\W_]+)*")
QUANTITY_PREFIX = re.compile(r"^(?:--|-?\d|v\d|tel |section |article |page )")


@lru_cache(maxsize=1 << 12)
def extract_literals(text: str) -> dict[str, tuple[str, ...]]:
    """Extract the entities of a text except names: each with all forms that it implies, its own first.

    >>> extract_literals("Ann paid 5 kg in March 2024")
    {'2024-03': ('2024-03', '2024'), '5 kg': ('5 kg', '5')}
    """
    matches, _ = _match_entities(text)
    return {match.form: match.forms for match in matches}


@lru_cache(maxsize=1 << 12)
def extract_readings(text: str) -> dict[str, tuple[str, ...]]:
    """Extract the entities of a text except names: each with all that may be the same, its own form first.

    >>> extract_readings("It weighs 12 lb")
    {'12 lb': ('12 lb', '12 pound')}
    """
    matches, _ = _match_entities(text)
    return {match.form: (match.form, *match.readings) for match in matches}


@lru_cache(maxsize=1 << 12)
def mark_literals(text: str) -> tuple[str, list[bool]]:
    """Return a text with number words as figures, and for each character whether it is part of a literal.

    >>> text, marks = mark_literals("Claims lapse after three years.")
    >>> text, "".join(letter for letter, mark in zip(text, marks, strict=True) if mark)
    ('Claims lapse after 3 years.', '3years')
    """
    text = convert_number_words(normalize_typography(text).translate(STRAIGHT_QUOTES))
    _, remaining = _match_entities(text)
    if len(remaining) != len(text):
        return text, [character.isdigit() for character in text]
    return text, [left != right for left, right in zip(text, remaining, strict=True)]


@_cache_short
def _match_entities(text: str) -> tuple[list[EntityMatch], str]:
    """Return the matches of all patterns but names, and the text with them blanked out."""
    text = normalize_typography(text).translate(STRAIGHT_QUOTES)
    matches: list[EntityMatch] = []
    if not ENTITY_HINT.search(text.lower()):
        return matches, text
    lower = text.lower()
    for hint, pattern, format_match in _IDENTIFIER_PATTERNS:
        if hint.search(lower):
            text = blank_matches(pattern, partial(_make_entity, format_match), text, matches)
    return matches, extract_quantities(text, matches)


def _make_entity(format_match: Callable[[re.Match[str]], str | None], match: re.Match[str]) -> EntityMatch | None:
    if (form := format_match(match)) is None:
        return None
    return EntityMatch(form, (form.rpartition(" ")[2],) if form.startswith(NUMBERED_PREFIXES) else ())


def _format_section(match: re.Match[str]) -> str | None:
    name, sign, label = match.groups()
    word = SECTION_NAMES.get((name or sign).lower(), (name or sign).lower())
    if not label[0].isdigit() and not (name and name[0].isupper() and label.isupper()):
        return None
    return f"{word} {label.lower()}"


def _format_code(match: re.Match[str]) -> str | None:
    code = match.group()
    return None if ORDINARY_CODE.fullmatch(code) or DIGITS_WITH_UNIT.fullmatch(code) else code.lower()


DIGITS_WITH_UNIT = re.compile(r"\d+[A-Za-zµ]{1,4}\d?|k?m[23]|\d+-\d+[a-z]*|\d{4}-\d\d-\d\dT.*")

_IDENTIFIER_PATTERNS: tuple[tuple[re.Pattern[str], re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    (re.compile("://|@"), URL_OR_EMAIL, lambda match: match.group().rstrip(".,;").lower()),
    (re.compile(r"\d{3}"), PHONE_NUMBER, lambda match: "tel " + "".join(filter(str.isdigit, match.group()))),
    (re.compile(SECTION_PATTERN), SECTION_REFERENCE, _format_section),
    (re.compile(r"\d"), VERSION_NUMBER, lambda match: f"v{(match[1] or match[2]).lower()}"),
    (re.compile(r"\d"), IDENTIFIER_CODE, _format_code),
)
"""A quick test on the lower-case text, the pattern of the identifier, and the function that formats a match."""
