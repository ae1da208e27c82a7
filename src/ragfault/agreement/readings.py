"""Marks and grades of people as words on the judge's items: every way in which they can be understood."""

from __future__ import annotations

from itertools import product

from ragfault.agreement.gathering import Labelled
from ragfault.agreement.overlay import Reading
from ragfault.judges.assemble import level
from ragfault.records import Verdicts
from ragfault.runs.labels import Key, Word

__all__ = ["graded", "marked"]

WORDS: dict[bool, tuple[str, str]] = {True: ("unsupported", "contradicted"), False: ("supported", "inferred")}
"""Whether people call a claim bad → what they may have meant by it."""

GRADES: dict[bool, tuple[tuple[str, float], ...]] = {
    True: (("high", 1.0), ("medium", 0.5)),
    False: (("none", 0.0), ("low", 0.25)),
}
"""Whether people call a chunk relevant → what they may have meant by it."""


def graded(one: Labelled, top: int = 1) -> list[Reading]:
    """Chunks that people call relevant or not: highly or just so, and not at all or a little, in every combination.

    With a highest grade above 1 their grades say which, as shares of it.
    """
    found = []
    for good, bad in product(*(GRADES[relevant] for relevant in (True, False))):
        words: dict[Key, Word] = {}
        for chunk, grade in (one.grades or {}).items():
            word, relevance = good if grade.relevant else bad
            if top > 1 and grade.grade is not None:
                relevance = grade.grade / top
                word = level(relevance)
            words["chunk", chunk, "level"], words["chunk", chunk, "relevance"] = word, relevance
        found.append(Reading(words, frozenset(["chunk"])))
    return found


def marked(one: Labelled, verdicts: Verdicts) -> list[Reading]:
    """The judge's claims by whether they touch what people marked: bad by any bad one."""
    marks = [(claim.start, claim.end, claim.positive) for claim in one.claims or () if claim.start >= 0]
    whole = one.claims is None and one.spans is not None and (bool(one.spans) or not one.positive)
    marks += [(start, end, True) for start, end in one.spans or ()]
    if not marks and not whole:
        return [Reading({}, frozenset())]
    found: list[dict[Key, Word]] = [{}, {}]
    for claim in verdicts.claim or ():
        touching = [bad for start, end, bad in marks if start < claim.end and claim.start < end]
        if touching or whole:
            for words, word in zip(found, WORDS[any(touching)], strict=True):
                words["claim", claim.start, claim.end] = word
    return [Reading(words, frozenset(["claim"])) for words in found]
