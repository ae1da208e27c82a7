"""Features of an answer and its reference that need no model: identity, canonical forms and shared words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ragfault.text.entities import EntityIndex, extract_entities, extract_literals, extract_readings
from ragfault.text.normalization import NEGATIONS, normalize_answer, split_content_words, split_words
from ragfault.text.quantities import EntityMatch, convert_number_words, extract_quantities, parse_quantities

WORD_FEATURES = (
    "new words of the reference",
    "words of the reference",
    "names and numbers of the reference",
    "the reference has some",
    "numbers of the reference",
    "only one side negates",
    "contains the reference",
    "is the reference",
)
"""Features of `compare_words`; a share is the part that occurs in the answer."""
MAX_REFERENCES = 4
"""References that the model reads: those that share most words with the answer."""


def settle_agreement(answer: str, reference: str) -> bool | None:
    """Return whether an answer is its reference in another spelling; None if that does not settle it.

    Two amounts in one unit are the same or not, whatever their spelling; of two dates one may be less exact.

    >>> settle_agreement("64 degrees Celsius", "64 °C"), settle_agreement("1,500 m", "1.5 km")
    (True, True)
    >>> settle_agreement("46 °C", "64 °C"), settle_agreement("Oslo", "Bergen")
    (False, None)
    """
    is_restated = normalize_answer(answer) == normalize_answer(reference)
    # without punctuation 4.5 and 45 are one
    if is_restated and extract_literals(answer).keys() == extract_literals(reference).keys():
        return True
    if _list_forms(answer) == _list_forms(reference) != []:
        return True
    left, right = (parse_quantities(convert_number_words(text)) for text in (answer, reference))
    if left and [quantity.unit for quantity in left] == [quantity.unit for quantity in right]:
        return left == right
    return None


def _list_forms(text: str) -> list[str]:
    """List the normal forms of the amounts, dates and times of a text that says nothing else."""
    matches: list[EntityMatch] = []
    rest = extract_quantities(text, matches)
    return [match.form for match in matches] if not split_words(rest) else []


MIN_SENTENCE_WORDS = 5
"""Words of a text that can be a sentence."""


def restates_reference(query: str, reference: str, answer: str) -> bool:
    """Return whether an answer holds a whole sentence of reference, or nothing but its question and one with a figure.

    Figures have no roles that the sentence could exchange, as names have, so it cannot say another thing than the
    reference, unless by a word of degree ("more than"), which the chunks tell. A reference of `MIN_SENTENCE_WORDS`
    words that stands in the answer word for word is said by it, unless the rest takes it back.

    >>> restates_reference("What is the fee?", "420 kroner", "The fee is 420 kroner.")
    True
    >>> restates_reference("By how much did it rise?", "5 per cent", "It fell by 5 per cent.")
    False
    """
    stated, bare = f" {normalize_answer(answer)} ", f" {normalize_answer(reference)} "
    rest, asked = stated.replace(bare, " ", 1), frozenset(split_words(query))
    if bare not in stated or not NEGATIONS.isdisjoint(frozenset(split_words(rest)) - asked):
        return False
    if len(bare.split()) >= MIN_SENTENCE_WORDS:
        return True
    figures = extract_literals(reference).keys()
    adds_nothing = frozenset(split_content_words(rest)) <= frozenset(split_content_words(query))
    return bool(figures) and figures <= extract_literals(answer).keys() and adds_nothing


def compare_words(query: str, reference: str, answer: str) -> np.ndarray:
    """Compare the words of an answer with its reference: the values of `WORD_FEATURES`, each in [0, 1]."""
    asked, stated = frozenset(split_words(query)), frozenset(split_content_words(reference))
    answer_words = frozenset(split_words(answer))
    new = stated - asked or stated
    entities, literals = extract_entities(reference) - extract_entities(query), extract_literals(reference).keys()
    index = EntityIndex(answer)
    answer_literals = {form for forms in extract_readings(answer).values() for form in forms}
    bare, bare_reference = normalize_answer(answer), normalize_answer(reference)
    return np.array(
        [
            _share(new & answer_words, new),
            _share(stated & answer_words, stated),
            _share([entity for entity in entities if entity in index], entities),
            bool(entities),
            _share(literals & answer_literals, literals),
            NEGATIONS.isdisjoint(answer_words) != NEGATIONS.isdisjoint(split_words(reference)),
            f" {bare_reference} " in f" {bare} ",
            bare == bare_reference,
        ],
        np.float64,
    )


def _share(part: Collection[str], total: Collection[str]) -> float:
    return len(part) / len(total) if total else 0.0


def select_references(answer: str, references: Sequence[str]) -> list[str]:
    """Select the references that share most of their words with an answer, at most `MAX_REFERENCES`."""
    answer_words = frozenset(split_words(answer))
    distinct = dict.fromkeys(reference for reference in references if reference.strip())

    def measure(reference: str) -> float:
        words = frozenset(split_words(reference))
        return _share(words & answer_words, words)

    return sorted(distinct, key=measure, reverse=True)[:MAX_REFERENCES]
