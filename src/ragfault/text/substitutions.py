"""What an answer says in the place of what was expected, where the rest of both sentences is the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from ragfault.text.entities import EntityIndex, extract_entities, extract_literals
from ragfault.text.frames import (
    COORDINATORS,
    LIGHT_WORDS,
    MAX_FRAME_WORDS,
    MIN_FRAME_WORDS,
    ValueDifference,
    find_value_difference,
    may_be_same_value,
)
from ragfault.text.normalization import ARTICLE_WORDS, NEGATIONS, STOP_WORDS, split_words
from ragfault.text.quantities import convert_number_words, parse_roman
from ragfault.text.sentences import split_sentences

_SAME_SENSE = """
can may could might | must shall should | no not never neither nor | each every all any | because since as for
if when where once | after once | but and however though although yet while whereas | that which who whom whose
also too | under below | over above | through via | onto upon | toward towards | into in | so thus therefore hence
"""
SAME_SENSE = tuple(frozenset(group.split()) for group in _SAME_SENSE.replace("\n", "|").split("|") if group.strip())
"""Function words that may stand for each other: the class is closed, so that it can be listed."""
MAX_REPLACED = 3
"""Words of a longer stretch say something in another way as often as they say something else."""
SAME_PREFIX = 4
"""Words that begin alike with so many letters are spellings or forms of one word."""


SPELLED_WORD = re.compile(r"[\w.,'’]*\w")


OPENING = re.compile(rf"\W*(?:yes|{'|'.join(sorted(NEGATIONS))})\W*[,.;:!]", re.IGNORECASE)
"""A whole answer of one word, before its reason."""


class Compared(NamedTuple):
    """The two texts, as they are spelled."""

    expected: str
    answer: str


class SharedWords(NamedTuple):
    """What two sentences have in common."""

    shared: list[str]
    """Words of weight in the same order in both."""
    common: int
    """All words in the same order in both, articles left out."""
    changes: int
    """Stretches in which they differ."""
    length: int
    """All words of the longer one, articles left out."""


class Substitution(NamedTuple):
    """What an answer says otherwise than expected."""

    text: str
    """In words, such as "Wednesday in place of Thursday"."""
    is_certain: bool
    """True if names or numbers stand in place of others, words are exchanged, or one side negates. Other words may say
    the same, such as "automobile" in place of "car"."""
    is_function_word: bool = False
    """True if one function word stands in place of another and nothing else differs, such as "before" in place of
    "after": rarely the same, as "as" in place of "because" is."""


class Replacement(NamedTuple):
    """The words of one stretch: those expected that the answer lacks, and those that it has there instead."""

    expected: list[str]
    stated: list[str]


# judge, metrics and causes ask the same of one trace
@lru_cache(maxsize=1 << 12)
def find_substitution(query: str, expected: str, answer: str) -> Substitution | None:
    """Find what an answer says in the place of what was expected; None unless the sentences are the same otherwise.

    One stretch of words is replaced, two words are exchanged, or one side negates what both say. Words that both texts
    have elsewhere, spellings of one amount, and what the query says already are no difference.

    >>> find_substitution("When is it open?", "The shop opens on Thursday.", "The shop opens on Wednesday.").text
    '"Wednesday" in place of "Thursday"'
    >>> find_substitution("Who taught whom?", "Marten taught Iska.", "Iska taught Marten.").text
    '"Iska" and "Marten" are exchanged'
    >>> find_substitution("When is it open?", "The shop opens on Thursday.", "You can go there on Thursdays.")
    """
    key = _list_words(expected)
    key_words = frozenset(key)
    sentences = [answer[start:end] for start, end in split_sentences(answer)]
    nearest = max(sentences, key=lambda sentence: len(key_words.intersection(_list_words(sentence))), default="")
    difference = find_value_difference(expected, nearest)
    if difference is not None:
        return _describe_values(difference)
    words = _list_words(nearest)
    if not 0 < len(key) <= MAX_FRAME_WORDS or not 0 < len(words) <= MAX_FRAME_WORDS:
        return None
    texts = Compared(expected, answer)
    if Counter(key) == Counter(words):
        return _find_exchange(key, words, texts)
    asked = frozenset(_list_words(query))
    stated = _know_words(frozenset(_list_words(answer)) | _list_amount_words(expected, answer))
    known = _know_words(key_words | _list_amount_words(answer, expected))
    heavy_key, heavy_words = ([word for word in text if word not in LIGHT_WORDS] for text in (key, words))
    blocks = SequenceMatcher(None, heavy_key, heavy_words, False).get_opcodes()
    replaced = [
        None
        if tag == "equal"
        else Replacement(
            [word for word in heavy_key[a:b] if word not in stated],
            [word for word in heavy_words[c:d] if word not in known],
        )
        for tag, a, b, c, d in blocks
    ]
    shared = [word for tag, a, b, _, _ in blocks if tag == "equal" for word in heavy_key[a:b]]
    # who repeats words of the query says nothing else by it, nor does who puts something before or after all of it
    outer = (0, len(blocks) - 1) if len(frozenset(shared) - STOP_WORDS) > MIN_FRAME_WORDS else ()
    inner = [
        part
        for number, part in enumerate(replaced)
        if part is not None and (part.expected or (number not in outer and not asked.issuperset(part.stated)))
    ]
    if len(inner) != 1:
        return None
    return _weigh_replacement(inner[0], asked, SharedWords(shared, *_compare_all_words(key, words)), texts)


def _describe_values(difference: ValueDifference) -> Substitution:
    old, new, _ = difference.pairs[0]
    return Substitution(
        f'"{new}" and "{old}" are exchanged' if difference.is_exchange else f'"{new}" in place of "{old}"', True
    )


def _weigh_replacement(
    part: Replacement, asked: frozenset[str], common_words: SharedWords, texts: Compared
) -> Substitution | None:
    """Return the one stretch that differs as a substitution; None where too little stands around it."""
    old, new = part
    content = [word for word in common_words.shared if word not in STOP_WORDS]
    is_same_otherwise = common_words.changes == 1 and 2 * common_words.common > common_words.length
    if len(content) < (1 if is_same_otherwise else MIN_FRAME_WORDS) or max(len(old), len(new)) > MAX_REPLACED:
        return None
    if len(old + new) == 1 and (old + new)[0] in NEGATIONS:
        return Substitution(f'"{(old + new)[0]}" on one side only', True)
    if not old or not new or (len(old + new) == 2 and _is_other_spelling(old[0], new[0])):
        return None
    is_functional = STOP_WORDS.issuperset(old + new)
    if not is_same_otherwise if is_functional else asked.issuperset(old):
        return None
    is_framed = len(content) >= MIN_FRAME_WORDS or (is_same_otherwise and common_words.common >= MIN_FRAME_WORDS)
    quoted = _quote(old, texts.expected), _quote(new, texts.answer)
    # as they stand in the texts: the stem of a decade is a year
    if may_be_same_value(*(text.strip('"') for text in quoted)):
        return None
    are_names = _are_names(old, texts.expected) and _are_names(new, texts.answer)
    may_agree = any(group.issuperset(old + new) for group in SAME_SENSE)
    is_function_word = is_functional and is_framed and len(old) == len(new) == 1 and not may_agree
    text = f"{quoted[1]} in place of {quoted[0]}"
    return Substitution(text, is_framed and are_names and len(old) == len(new), is_function_word)


def _are_names(words: Sequence[str], source: str) -> bool:
    """Return whether all words are of names or numbers of their text."""
    named = {word for entity in extract_entities(source) for word in split_words(entity)}
    return all(word in named for word in words)


def _is_other_spelling(left: str, right: str) -> bool:
    """Return whether a word abbreviates another one, or is the same number in Roman numerals."""
    shorter, longer = sorted((left, right), key=len)
    if any(str(parse_roman(roman.upper())) == number for roman, number in ((left, right), (right, left))):
        return True
    return len(shorter) > 1 and shorter.isalpha() and longer.startswith(shorter)


def _quote(words: Sequence[str], source: str) -> str:
    """Quote words as their text spells them."""
    spelled = {stem: word for word in reversed(SPELLED_WORD.findall(source)) for stem in split_words(word)}
    return '"' + " ".join(spelled.get(word, word) for word in words) + '"'


def _compare_all_words(key: Sequence[str], words: Sequence[str]) -> tuple[int, int, int]:
    """Count words in the same order, stretches that differ, and words of the longer text, as `SharedWords` has them."""
    left, right = ([word for word in text if word not in ARTICLE_WORDS] for text in (key, words))
    blocks = SequenceMatcher(None, left, right, False).get_opcodes()
    common = sum(end - start for tag, start, end, _, _ in blocks if tag == "equal")
    return common, sum(tag != "equal" for tag, *_ in blocks), max(len(left), len(right))


def _find_exchange(key: Sequence[str], words: Sequence[str], texts: Compared) -> Substitution | None:
    """Find an exchange of two words across others; None where the order is the same, or that of a list."""
    changed = [place for place, (left, right) in enumerate(zip(key, words, strict=True)) if left != right]
    if len(changed) != 2:
        return None
    first, last = changed
    between = [word for word in key[first + 1 : last] if word not in ARTICLE_WORDS]
    if not between or not COORDINATORS.isdisjoint(between):
        return None
    left, right = (_quote([words[place]], texts.answer) for place in changed)
    return Substitution(f"{left} and {right} are exchanged", True)


class KnownWords(Struct, frozen=True):
    """Words of a text, to look up whether it has a word in any form or spelling."""

    words: frozenset[str]
    starts: frozenset[str]

    def __contains__(self, word: object) -> bool:
        """Return whether a word, or a form or spelling of it, is among them."""
        start = str(word)[:SAME_PREFIX]
        return word in self.words or (start.isalpha() and start in self.starts)


def _know_words(words: frozenset[str]) -> KnownWords:
    return KnownWords(words, frozenset(word[:SAME_PREFIX] for word in words if len(word) >= SAME_PREFIX))


def _list_amount_words(source: str, target: str) -> frozenset[str]:
    """Return the words of the amounts, dates and times of one text that the other has too, in whatever spelling."""
    literals = extract_literals(source)
    if not literals:
        return frozenset()
    index = EntityIndex(target)
    texts = [" ".join(forms) for literal, forms in literals.items() if literal in index]
    return frozenset(word for text in texts for word in split_words(text))


def _list_words(text: str) -> list[str]:
    """List the words of a text; an opening answer ("No,", "Nothing:") is compared by itself (`model.gold_evidence`)."""
    words = list(split_words(convert_number_words(text)))
    return words[1:] if len(words) > 1 and OPENING.match(text) else words
