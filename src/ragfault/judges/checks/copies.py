"""Claims that copy a sentence of a passage but for one point, in which they say something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ragfault.judges.checks.passages import Passage, PassageSentence, split_passage
from ragfault.text.normalization import STOP_WORDS, split_words
from ragfault.text.substitutions import Substitution, find_substitution

MIN_COVERED = 0.5
"""A sentence that has fewer of a claim's words is not one that it copies; another one that has so many of its content
words, and what differs, may state it in other words."""

OPENING_LABEL = re.compile(r"\W*(?:[^\W\d]+ )?\(?\d{1,3}[.):]\s+")
"""The number of a step or an item in front of a sentence, which counts the sentences of that text."""


class CopiedSentence(NamedTuple):
    """The sentence that a claim copies, and what the claim says otherwise."""

    passage: Passage
    sentence: PassageSentence
    substitution: Substitution


Candidate = tuple[Passage, PassageSentence]


def list_candidates(passages: Sequence[Passage]) -> list[Candidate]:
    """List the sentences that a claim may copy: all but the fields of records."""
    return [(passage, sentence) for passage in passages for sentence in split_passage(passage.text) if not sentence.key]


def find_copied_difference(query: str, claim: str, candidates: Sequence[Candidate]) -> CopiedSentence | None:
    """Find the sentence that a claim copies but for another value, an exchange, a negation or a function word.

    None if the claim is a sentence of a passage or a part of one, if what differs stands in another sentence with half
    of the claim's content words, or if other content words differ: they may say the same.

    >>> text = "Claims lapse three years after the end of the year. They can be renewed."
    >>> sentences = list_candidates([Passage("a", text)])
    >>> find_copied_difference("", "Claims lapse ten years after the end of the year.", sentences).substitution.text
    '"10 years" in place of "3 years"'
    >>> find_copied_difference("", "Claims lapse three years after the end of the year.", sentences)
    """
    words = split_words(claim)
    known = frozenset(words)
    if not known:
        return None
    sentences = [
        (len(known.intersection(sentence.tokens)) / len(known), passage, sentence) for passage, sentence in candidates
    ]
    covered, passage, sentence = max(sentences, key=_rank, default=(0.0, Passage("", ""), None))
    if sentence is None or covered < MIN_COVERED or f" {' '.join(words)} " in f" {' '.join(sentence.tokens)} ":
        return None
    source, stated = (OPENING_LABEL.sub("", text) for text in (passage.text[sentence.start : sentence.end], claim))
    substitution = None if source.rstrip().endswith("?") else find_substitution(query, source, stated)
    if substitution is None or not (substitution.is_certain or substitution.is_function_word):
        return None
    new, content = known.difference(sentence.tokens), known - STOP_WORDS
    is_elsewhere = new and any(
        new.issubset(other.tokens) and len(content & other.content) >= MIN_COVERED * len(content)
        for _, _, other in sentences
    )
    return None if is_elsewhere else CopiedSentence(passage, sentence, substitution)


def _rank(candidate: tuple[float, Passage, PassageSentence]) -> tuple[float, int]:
    covered, _, sentence = candidate
    return covered, -len(sentence.tokens)
