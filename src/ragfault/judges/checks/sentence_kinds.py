"""What the words of a sentence tell of its kind: a claim, talk about answering, or thinking about the task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate, pairwise
from math import exp, log
from typing import NamedTuple

from ragfault.judges.checks.word_weights import hash_terms

KINDS = ("claim", "talk", "reasoning")
"""A statement; asking, answering and courtesy ("Here you go!"); thinking that leaked ("Okay, the user wants ...")."""
TERM = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+(?:'[^\W\d_]+)*|\d+|[?!.,:;…。？！：，、；—|\[\]]"
)
"""A word, a sign of Chinese or Japanese, a number or a mark."""
READ_TERMS = 40
"""Terms of a sentence that are read."""
PIECE_SIZES = (3, 4, 5)
"""Lengths of the pieces of words that are read besides, for their stems and endings."""
SLOTS = 1 << 16


def list_terms(words: Sequence[str]) -> list[str]:
    """Return the pairs and threes of words of a sentence, its first and last words, and its length."""
    terms = [f"{left} {right}" for left, right in pairwise(words)]
    terms += [f"{left} {right}" for left, right in zip(terms, words[2:], strict=False)]
    terms += [f"^{' '.join(words[:size])}" for size in (1, 2)]
    terms += [f"{' '.join(words[-size:])}$" for size in (1, 2)]
    return [*terms, f"#{len(words).bit_length()}"]


@lru_cache(maxsize=1 << 14)
def hash_word(word: str) -> tuple[int, ...]:
    """Return the slots of a word and its pieces."""
    padded = f" {word} "
    pieces = (padded[start : start + size] for size in PIECE_SIZES for start in range(len(padded) - size + 1))
    return tuple(hash_terms((word, *pieces), SLOTS))


def hash_sentence(sentence: str) -> set[int]:
    """Return the slots of the weights of a sentence. All numbers are one word, and a name within it is a term.

    >>> hash_sentence("I hope so, at 9.") == hash_sentence("i **hope** so, at 17.")
    True
    """
    spelled = TERM.findall(sentence.replace("’", "'"))[:READ_TERMS]
    words = ["0" if word[0].isdigit() else word.lower() for word in spelled]
    terms = list_terms(words)
    if any(word[0].isupper() and word != "I" for word in spelled[1:]):
        terms.append("#name")
    return set(hash_terms(terms, SLOTS)).union(*map(hash_word, set(words)))


MIN_THOUGHTS = 3
"""Sentences from which a text can be told to be reasoning: of two systems made later, two plain answers of one or two
sentences were taken for some."""


class KindWeights(NamedTuple):
    """The weights that `training/sentences.py` fitted; the log-odds are those against a claim."""

    talk: list[float]
    """The weight of each slot of `hash_sentence`."""
    reasoning: list[float]
    talk_bias: float
    reasoning_bias: float
    sure: float
    """Log-odds from which a sentence is not a claim."""
    prior: float
    """What is added to the log-odds of reasoning: training texts hold far less of it than a leaked one."""
    leaked: float
    """Sum of log-odds over the sentences of a text, from which it is reasoning."""


class KindOdds(NamedTuple):
    """Log-odds of what a sentence is, against all else."""

    no_claim: float
    reasoning: float


@cache
def load_weights() -> KindWeights:
    """Load the packaged weights, once."""
    # claims are read where no figure is computed
    import numpy as np

    with (
        files(__package__).joinpath("sentence_kinds.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        scale, *facts = arrays["facts"].tolist()
        talk, reasoning = (arrays["slots"].astype(float) * scale).tolist()
        return KindWeights(talk, reasoning, *facts)


@lru_cache(maxsize=1 << 12)
def score_kinds(sentence: str) -> KindOdds:
    """Return what the words of a sentence tell of its kind.

    >>> score_kinds("I hope this helps!").no_claim > 0 > score_kinds("The ferry does not run on Sundays.").no_claim
    True
    """
    weights = load_weights()
    slots = hash_sentence(sentence)
    talk = weights.talk_bias + sum(map(weights.talk.__getitem__, slots))
    reasoning = weights.reasoning_bias + sum(map(weights.reasoning.__getitem__, slots))
    return KindOdds(_add_odds(talk, reasoning), reasoning - _add_odds(0.0, talk) + weights.prior)


def _add_odds(first: float, second: float) -> float:
    """Return the logarithm of the sum of two odds that are given as logarithms."""
    return max(first, second) + log(1 + exp(-abs(first - second)))


def is_talk(sentence: str) -> bool:
    """Return whether a sentence surely states nothing: it is about answering, or thinks about the task.

    >>> is_talk("Let me know if you have any other questions!"), is_talk("You may ask the guard at the gate.")
    (True, False)
    """
    return score_kinds(sentence).no_claim >= load_weights().sure


def is_leaked_reasoning(sentences: Iterable[str]) -> bool:
    """Return whether the sentences of a text think about a task up to the end, without an answer after it.

    >>> thoughts = ["Okay, the user wants the fee.", "Hmm, chunk 2 says otherwise, so I should check.", "Draft:"]
    >>> is_leaked_reasoning(thoughts)
    True
    """
    odds = [score_kinds(sentence).reasoning for sentence in sentences]
    if len(odds) < MIN_THOUGHTS:
        return False
    return sum(odds) >= load_weights().leaked and min(accumulate(reversed(odds)), default=0.0) >= 0
