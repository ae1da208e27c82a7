"""Whether a text is a message of a system that came in place of an answer, by its words."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from ragfault.judges.checks.sentence_kinds import SLOTS, hash_sentence
from ragfault.judges.checks.word_weights import hash_terms
from ragfault.text.normalization import split_content_words

MARK = re.compile(r"[{}<>\[\]\"_=/\\]|\b[45]\d\d\b")
"""A mark of code, or a number as errors of the web have them."""
OWN_WORDS = 0.5
"""A text with at least this share of known words is an answer: answers to questions about errors look like messages.
Chosen, not measured."""
MAX_LENGTH = 400
"""Characters whose marks and words are read."""
MAX_WORDS = 60
"""A longer text says more than that something broke."""


def hash_text(text: str, known: str) -> set[int]:
    """Return the slots of the weights of a text: its words, its marks of code, and whether what it is about is known.

    `known` is its question, with the passages beside it: an answer shares words with them, a message hardly any.
    """
    marks = {f"mark {match}" if len(match) == 1 else "code" for match in MARK.findall(text[:MAX_LENGTH])}
    marks.add("own" if share_known(text, known) else "alien")
    return hash_sentence(text) | set(hash_terms(marks, SLOTS))


def share_known(text: str, known: str) -> float:
    """Return the share of the words of a text that are known."""
    words = frozenset(split_content_words(text[:MAX_LENGTH]))
    return len(words.intersection(split_content_words(known))) / len(words) if words else 0.0


@cache
def load_weights() -> tuple[list[float], float]:
    """Load the packaged weights of the slots and the intercept, once (`training/messages.py`)."""
    import numpy as np

    with (
        files(__package__).joinpath("system_messages.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        scale, bias = arrays["facts"].tolist()
        return (arrays["slots"].astype(float) * scale).tolist(), bias


def is_system_message(text: str, known: str) -> bool:
    """Return whether a text says that something broke, and does not answer its question beside the passages `known`.

    >>> known = "How do I pay the harbour dues? Dues are paid at the office of the harbour master."
    >>> is_system_message("Error 429: too many requests", known)
    True
    >>> is_system_message("You pay the dues at the office.", known)
    False
    """
    if not text.strip() or len(text.split()) > MAX_WORDS or share_known(text, known) >= OWN_WORDS:
        return False
    weights, bias = load_weights()
    return bias + sum(map(weights.__getitem__, hash_text(text, known))) >= 0
