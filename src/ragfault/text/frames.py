"""Sentences as a frame of words and the values in it: two of one frame are compared value by value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from ragfault.text.entities import EntityIndex, extract_literals, extract_names, mark_literals
from ragfault.text.normalization import ARTICLE_WORDS, STOP_WORDS, fold_case, split_words
from ragfault.text.quantities import parse_quantities

SLOT = "valueslot"
"""Stands for a value among the words of a frame."""
MAX_FRAME_WORDS = 40
"""Words of a sentence that is compared; a longer one is another sentence."""
MIN_FRAME_WORDS = 2
"""Content words that two sentences share around what differs; one is enough where no other word differs."""
MAX_ROUNDED = Decimal("0.05")
"""By how much of itself a number is rounded at most: 12 is not rounded to 10."""
_LIGHT = """
a an the am is are was were be been being do does did has have had will would shall s t
it its this that these those there here they them he she his her him you your yours we our us i me my so just then
to of in on at for by from with mr mrs ms dr prof
"""
LIGHT_WORDS = frozenset(_LIGHT.split())
"""Words that may be put or left out without a change of meaning."""
COORDINATORS = frozenset({"and", "or"})
SPELLED_VALUE = re.compile(r"\d+(?:[.,:/]\d+)*%?|[^\W_]+(?:['’.-][^\W_]+)*")
NAME_WORD = re.compile(r"[^\W_]+")
VALUE_JOINT = re.compile(r"[\s$€£/-]*")
"""What stands between the words of one value, such as the blank of "3 March" or the slash of "5 km/h"."""
DIGIT = re.compile(r"\d")


class WordsAndValues(NamedTuple):
    """The words of a sentence with `SLOT` in the place of each value, and the values in order."""

    words: list[str]
    values: list[str]


class PairedValue(NamedTuple):
    """The values of two sentences in one place of their frame."""

    expected: str
    stated: str
    place: int
    """The place among the words of the frame of the expected sentence."""


class ValueDifference(NamedTuple):
    """The places in which two sentences of one frame have other values."""

    pairs: tuple[PairedValue, ...]
    is_exchange: bool
    """True if the same values stand in each other's places."""


def find_value_difference(expected: str, stated: str) -> ValueDifference | None:
    """Find the numbers that differ between two sentences that are the same otherwise, or values that are exchanged.

    None if the sentences are not of one frame, if a value of one of them stands elsewhere in the other (then the
    places cannot be told apart), or if a number is the other one rounded.

    >>> find_value_difference("Boil 2 kg of plums with 600 g of sugar.", "Boil 600 g of plums with 2 kg of sugar.")[1]
    True
    >>> pairs = find_value_difference("Claims lapse after three years.", "Claims lapse after ten years.").pairs
    >>> [(pair.expected, pair.stated) for pair in pairs]
    [('3 years', '10 years')]
    >>> find_value_difference("Claims lapse after three years.", "After ten years they are paid.")
    """
    names = _list_name_words(expected) | _list_name_words(stated)
    sides = split_values(expected, names), split_values(stated, names)
    if not all(side.values and len(side.words) <= MAX_FRAME_WORDS for side in sides):
        return None
    aligned = _align_values(*sides)
    if aligned is None:
        return None
    pairs, is_light = aligned
    differing = tuple(pair for pair in pairs if not may_be_same_value(pair.expected, pair.stated))
    if not differing:
        return None
    if Counter(fold_case(pair.expected) for pair in differing) == Counter(fold_case(pair.stated) for pair in differing):
        is_exchange = not is_light and _are_apart(differing, sides[0].words) and len(_list_kinds(differing)) == 1
        return ValueDifference(differing, True) if is_exchange else None
    is_anchored = len(differing) == 1 or len(differing) < len(pairs)
    is_certain = is_anchored and _list_kinds(differing) == {True} and _are_new(differing, expected, stated)
    return ValueDifference(differing, False) if is_certain else None


def split_values(text: str, names: frozenset[str]) -> WordsAndValues:
    """Split a sentence into its frame and its values: amounts, dates, other numbers, and words that are `names`.

    >>> split_values("On 3 March Ann Lee paid 5 kg.", frozenset({"ann", "lee"}))
    WordsAndValues(words=['on', 'valueslot', 'valueslot', 'paid', 'valueslot'], values=['3 March', 'Ann Lee', '5 kg'])
    """
    words: list[str] = []
    values: list[str] = []
    was_literal = False
    for word, parts, name_words, is_literal, is_joined in _list_spelled_words(text):
        if not is_literal and (name_words is None or not names.issuperset(name_words)):
            words += parts
        elif is_joined and words[-1:] == [SLOT] and is_literal == was_literal:
            values[-1] = f"{values[-1]} {word}"
        else:
            words.append(SLOT)
            values.append(word)
        was_literal = is_literal
    return WordsAndValues(words, values)


class SpelledWord(NamedTuple):
    """A word or a figure as a text spells it."""

    word: str
    parts: tuple[str, ...]
    """Its words as they are compared, articles left out."""
    name_words: tuple[str, ...] | None
    """Those that it has if it is a name; None if it begins with a small letter or a figure."""
    is_literal: bool
    """True for an amount, a date or another number, or a part of one."""
    is_joined: bool
    """True if nothing but marks that values have in them stand between the last word and this one."""


# a claim is compared with the sentences of several chunks, and these with several claims
@lru_cache(maxsize=1 << 12)
def _list_spelled_words(text: str) -> tuple[SpelledWord, ...]:
    text, is_literal = mark_literals(text)
    words: list[SpelledWord] = []
    end = -1
    for match in SPELLED_VALUE.finditer(text):
        word, start = match.group(), match.start()
        literal = any(is_literal[start : match.end()]) or word[0].isdigit()
        parts = () if literal else tuple([part for part in split_words(word) if part not in ARTICLE_WORDS])
        name_words = tuple(NAME_WORD.findall(fold_case(word))) if word[0].isupper() else None
        is_joined = end >= 0 and VALUE_JOINT.fullmatch(text[end:start]) is not None
        words.append(SpelledWord(word, parts, name_words, literal, is_joined))
        end = match.end()
    return tuple(words)


@lru_cache(maxsize=1 << 12)
def _list_name_words(text: str) -> frozenset[str]:
    words = {word for name in extract_names(text) for word in NAME_WORD.findall(fold_case(name))}
    return frozenset(words) - STOP_WORDS


def _align_values(expected: WordsAndValues, stated: WordsAndValues) -> tuple[list[PairedValue], bool] | None:
    """Pair the values of two sentences of one frame, and say whether light words differ; None for other frames.

    The stated sentence may leave out the beginning or the end of the expected one.
    """
    blocks = SequenceMatcher(None, expected.words, stated.words, False).get_opcodes()
    pairs: list[PairedValue] = []
    equal, content, is_light = 0, 0, False
    for number, (tag, start, end, other_start, other_end) in enumerate(blocks):
        if tag == "equal":
            equal += end - start
            for offset, word in enumerate(expected.words[start:end]):
                content += word != SLOT and word not in STOP_WORDS
                if word == SLOT:
                    left = expected.words[: start + offset].count(SLOT)
                    right = stated.words[: other_start + offset].count(SLOT)
                    pairs.append(PairedValue(expected.values[left], stated.values[right], start + offset))
        elif tag != "delete" or number not in (0, len(blocks) - 1):
            is_light = True
            if not LIGHT_WORDS.issuperset(expected.words[start:end] + stated.words[other_start:other_end]):
                return None
    is_all_equal = len(blocks) == 1
    if content < (1 if is_all_equal else MIN_FRAME_WORDS) or 2 * equal <= len(stated.words):
        return None
    return pairs, is_light


def may_be_same_value(left: str, right: str) -> bool:
    """Return whether two values may be the same: equal in some form or unit, a part of one another, or rounded.

    >>> may_be_same_value("24 months", "2 years"), may_be_same_value("4.98 million", "5 million")
    (True, True)
    >>> may_be_same_value("Ms Ortega", "Ana Ortega"), may_be_same_value("12 kg", "15 kg")
    (True, False)
    """
    words = frozenset(split_words(left)), frozenset(split_words(right))
    if words[0] <= words[1] or words[1] <= words[0]:
        return True
    forms = [{form for forms in extract_literals(text).values() for form in forms} for text in (left, right)]
    if forms[0] & forms[1] or (forms[0] and all(form in EntityIndex(right) for form in extract_literals(left))):
        return True
    names = [extract_names(text) for text in (left, right)]
    if all(names) and words[0] & words[1]:
        return True
    return _may_be_same_amount(left, right)


def _may_be_same_amount(left: str, right: str) -> bool:
    """Return whether two amounts are near each other, or in units that cannot be converted.

    Two with the same letters and as many digits, such as 1994 and 1995, say different things, however near they are.
    """
    forms = [(DIGIT.sub("", text), len(DIGIT.findall(text))) for text in (left, right)]
    amounts = [parse_quantities(text) for text in (left, right)]
    if forms[0] == forms[1] or not all(amounts):
        return False
    (unit, value), (other_unit, other) = amounts[0][0], amounts[1][0]
    # what begins otherwise is the rest of a clock time
    if not all(name in ("", "%") or name[0].isalpha() for name in (unit, other_unit)):
        return False
    return unit != other_unit or abs(value - other) <= MAX_ROUNDED * value


def _are_apart(differing: Sequence[PairedValue], words: Sequence[str]) -> bool:
    """Return whether more than a list separates exchanged values: the order of a list says nothing."""
    between = words[differing[0].place : differing[-1].place + 1]
    return not COORDINATORS.union({SLOT}).issuperset(between)


def _list_kinds(differing: Sequence[PairedValue]) -> set[bool]:
    """Return whether values have digits: both where clauses with their numbers and names have changed places."""
    return {any(letter.isdigit() for letter in value) for pair in differing for value in (pair.expected, pair.stated)}


def _are_new(differing: Sequence[PairedValue], expected: str, stated: str) -> bool:
    """Return whether neither text has the differing values of the other one anywhere."""
    words = frozenset(split_words(expected)), frozenset(split_words(stated))
    return not any(
        words[0].issuperset(split_words(pair.stated)) or words[1].issuperset(split_words(pair.expected))
        for pair in differing
    )
