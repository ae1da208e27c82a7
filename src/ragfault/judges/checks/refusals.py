"""What the words of a reply tell of whether it refuses: a trained weight for each word, word pair and stem."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from ragfault.judges.checks.word_weights import hash_terms
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import split_words

WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?|\d+|[?!.,:;]")
READ_WORDS = 60
"""Words of a reply that are read: a refusal says so in its first sentences."""
SLOTS = 1 << 13
"""The weights: words that share one are rare, and their weight is what both tell."""


def hash_words(reply: str) -> list[int]:
    """Return the slots of the weights of a reply's words, pairs of words and its first word, ascending and once each.

    >>> hash_words("I don't know.") == hash_words("i don’t  know.")
    True
    """
    words = WORD.findall(reply.lower().replace("’", "'"))[:READ_WORDS]
    first = [f"^{words[0]}"] if words else []
    pairs = [f"{left} {right}" for left, right in pairwise(words)]
    return hash_terms((*first, *words, *pairs), SLOTS)


class RefusalWeights(NamedTuple):
    """The weights that `training/refusals.py` fitted."""

    words: list[float]
    """The weight of each slot of `hash_words`."""
    stems: dict[str, float]
    """Stem → its weight: near meanings have near weights, so that words count which no training reply had."""
    bias: float
    threshold: float
    """Log-odds from which a reply refuses."""
    sure: float
    """Log-odds from which it refuses though it holds a name or a number."""


@cache
def load_weights() -> RefusalWeights:
    """Load the packaged weights, once."""
    # claims are read where no figure is computed
    import numpy as np

    with files(__package__).joinpath("refusals.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        scale, bias, threshold, sure = arrays["facts"].tolist()
        stems = bytes(arrays["stems"]).decode().split("\n")
        weights = (arrays["stem_weights"].astype(float) * scale).tolist()
        return RefusalWeights(
            arrays["words"].astype(float).tolist(), dict(zip(stems, weights, strict=True)), bias, threshold, sure
        )


def score_refusal(reply: str) -> float:
    """Return the log-odds that a reply refuses, by its words.

    >>> score_refusal("I could not locate that in the documents.") > score_refusal("The ferry does not run on Sundays.")
    True
    """
    weights = load_weights()
    stems = split_words(reply)[:READ_WORDS]
    meaning = sum(weights.stems.get(stem, 0.0) for stem in stems) / sqrt(len(stems) or 1)
    return sum(weights.words[slot] for slot in hash_words(reply)) + meaning + weights.bias


@lru_cache(maxsize=1 << 12)
def is_refusal_sentence(sentence: str) -> bool:
    """Return whether a sentence says that the question cannot be answered, or that the sources are silent.

    One that holds a name or a number, which may be the answer, has to say so more surely.

    >>> is_refusal_sentence("The passages do not mention a deadline."), is_refusal_sentence("Dogs cannot provide wool.")
    (True, False)
    """
    score = score_refusal(sentence)
    return score >= load_weights().threshold and (score >= load_weights().sure or not extract_entities(sentence))
