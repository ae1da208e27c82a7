"""The stack: one probability of support for a claim, from what the encoder reads of it and what its words tell."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.support import TEXT_TYPES, TextType, combine_claims, logistic
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.encoder.model import load_heads

SIGNS = ("support read", "contradiction read", "words against it")
"""What is known of a claim: the encoder's log-odds that it is supported, its log-odds of contradicted against not
stated, and the embedded judge's log-odds that it is not supported."""
INPUTS = (*SIGNS, "overlap", *(f"{name} × overlap" for name in SIGNS), "intercept")
"""What has a weight: the signs, the Jaccard index of the claim and the sentence that is nearest to it, and its products
with the signs, so that other signs may decide a near copy than a claim in other words."""
PASSING = 0.5
"""A claim passes from this probability of support on, and an answer if its claims do."""
LARGEST_FAILING = 0.4999
"""The highest probability of an answer of which a claim does not pass."""
LEAST_RELEVANCE = 1e-3
"""A relevance by words that is nearer to 0 or 1 counts as this one."""
PROBABILITY_DIGITS = 4
"""Probabilities are rounded, so that processors with another order of additions agree."""


def build_inputs(logits: Array, word_odds: Array, overlap: Array) -> Array:
    """Build the inputs of the stack, a row a claim: `INPUTS` without the intercept.

    `logits` are the encoder's of supported, contradicted and not stated, `word_odds` the embedded judge's log-odds that
    a claim is not supported, `overlap` the Jaccard index of its words and those of the sentence nearest to it.

    >>> build_inputs(np.array([[2.0, 0.0, -1.0]]), np.array([-1.0]), np.array([0.5])).round(2).tolist()
    [[1.69, 1.0, -1.0, 0.5, 0.84, 0.5, -0.5]]
    """
    support = logits[:, 0] - np.logaddexp(logits[:, 1], logits[:, 2])
    signs = np.column_stack([support, logits[:, 1] - logits[:, 2], word_odds])
    inputs: Array = np.column_stack([signs, overlap, signs * overlap[:, None]])
    return inputs


class SupportStack(NamedTuple):
    """The fitted numbers of the stack (`training/encoder/calibrate.py`)."""

    weights: Array
    """A weight for each input, the intercept last, for the log-odds that a claim is not supported."""
    claim_lines: Array
    """Slope and intercept of the calibration of claims of each type of text."""
    answer_lines: Array
    """The same for answers: those of which a claim does not pass, and those of which all do, [types × 2 × 2]."""
    relevance: Array
    """Weights of the encoder's and of the embedded judge's log-odds that a passage is relevant, and the intercept."""

    @classmethod
    def unpack(cls, arrays: Mapping[str, Array]) -> SupportStack:
        """Unpack the stack from the packaged heads."""
        return cls(*(arrays[f"stack.{name}"].astype(float) for name in cls._fields))

    def predict_odds(self, inputs: Array) -> Array:
        """Return the log-odds that each claim is not supported, from rows of `build_inputs`."""
        odds: Array = inputs @ self.weights[:-1] + self.weights[-1]
        return odds

    def predict_support(self, odds: Array, text_type: TextType) -> Array:
        """Return the probability that each claim is supported, from its log-odds."""
        slope, intercept = self.claim_lines[TEXT_TYPES.index(text_type)]
        return logistic(-(slope * odds + intercept)).round(PROBABILITY_DIGITS)

    def predict_groundedness(self, odds: Array, text_type: TextType) -> float:
        """Return the probability that all claims of an answer are supported, from the log-odds of its claims.

        One decision, not two: it is below one half exactly if that of a claim is.
        """
        passes = bool(self.predict_support(odds, text_type).min() >= PASSING)
        slope, intercept = self.answer_lines[TEXT_TYPES.index(text_type), int(passes)]
        p = round(float(logistic(-(slope * np.array(combine_claims(odds)) + intercept))), PROBABILITY_DIGITS)
        return max(p, PASSING) if passes else min(p, LARGEST_FAILING)

    def predict_relevance(self, read: float, by_words: float) -> float:
        """Return the probability that a passage is relevant, from the encoder's log-odds and a probability by words."""
        p = min(max(by_words, LEAST_RELEVANCE), 1 - LEAST_RELEVANCE)
        odds = self.relevance @ np.array([read, np.log(p / (1 - p)), 1.0])
        return round(float(logistic(odds)), PROBABILITY_DIGITS)


@cache
def load_stack() -> SupportStack:
    """Load the packaged stack, once."""
    return SupportStack.unpack(load_heads())
