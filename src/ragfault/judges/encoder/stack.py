"""The stack: one probability of support for a claim, from what the encoder reads of it and what its words tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.support import WORST_COUNT, combine_claims, logistic
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.encoder.model import ENGLISH, load_heads

SIGNS = ("support read", "contradiction read", "words against it", "support that the second model adds")
"""What is known of a claim: the log-odds that it is supported, as it was read, those of contradicted against not
stated, the embedded judge's log-odds that it is not supported, and how much surer of support the second model is."""
INPUTS = (*SIGNS, "overlap", *(f"{name} × overlap" for name in SIGNS), "intercept")
"""What has a weight: the signs, the Jaccard index of the claim and the sentence that is nearest to it, and its products
with the signs, so that other signs may decide a near copy than a claim in other words."""
LEAST_RELEVANCE = 1e-3
"""A relevance by words that is nearer to 0 or 1 counts as this one."""
PROBABILITY_DIGITS = 4
"""Probabilities are rounded, so that processors with another order of additions agree."""


def build_inputs(readings: Sequence[Array], word_odds: Array, overlap: Array) -> Array:
    """Build the inputs of the stack, a row a claim: `INPUTS` without the intercept.

    `readings` are the logits of supported, contradicted and not stated by each model that read the claims, of which the
    mean counts, `word_odds` the embedded judge's log-odds that a claim is not supported, `overlap` the Jaccard index of
    its words and those of the sentence nearest to it.

    >>> logits = np.array([[2.0, 0.0, -1.0]])
    >>> build_inputs([logits, logits], np.array([-1.0]), np.array([0.5])).round(2).tolist()
    [[1.69, 1.0, -1.0, 0.0, 0.5, 0.84, 0.5, -0.5, 0.0]]
    """
    supports = [logits[:, 0] - np.logaddexp(logits[:, 1], logits[:, 2]) for logits in readings]
    denials = [logits[:, 1] - logits[:, 2] for logits in readings]
    signs = np.column_stack(
        [np.mean(supports, axis=0), np.mean(denials, axis=0), word_odds, supports[-1] - supports[0]]
    )
    inputs: Array = np.column_stack([signs, overlap, signs * overlap[:, None]])
    return inputs


class SupportStack(NamedTuple):
    """The fitted numbers of the stack (`training/encoder/calibrate.py`)."""

    weights: Array
    """A weight for each input, the intercept last, for the log-odds that a claim is not supported."""
    relevance: Array
    """Weights of the encoder's and of the embedded judge's log-odds that a passage is relevant, and the intercept."""
    answering: Array
    """Weight of the encoder's log-odds that an answer is relevant, and the intercept, of whether it answers."""

    @classmethod
    def unpack(cls, arrays: Mapping[str, Array]) -> SupportStack:
        """Unpack the stack from the packaged heads."""
        return cls(*(arrays[f"stack.{name}"].astype(float) for name in cls._fields))

    def predict_odds(self, inputs: Array) -> Array:
        """Return the log-odds that each claim of an answer is not supported, from rows of `build_inputs`."""
        return share_prior(inputs @ self.weights[:-1] + self.weights[-1])

    def predict_relevance(self, read: float, by_words: float) -> float:
        """Return the probability that a passage is relevant, from the encoder's log-odds and a probability by words."""
        p = min(max(by_words, LEAST_RELEVANCE), 1 - LEAST_RELEVANCE)
        odds = self.relevance @ np.array([read, np.log(p / (1 - p)), 1.0])
        return round(float(logistic(odds)), PROBABILITY_DIGITS)

    def predict_answering(self, read: float) -> float:
        """Return the probability that an answer is one to its question, from the encoder's log-odds of relevance."""
        return round(float(logistic(self.answering @ np.array([read, 1.0]))), PROBABILITY_DIGITS)


def share_prior(odds: Array) -> Array:
    """Return the log-odds against each claim of an answer, from those against it as the only claim.

    An answer of many claims is not as many times as likely to be bad: its claims share the prior odds of an answer.

    >>> share_prior(np.array([1.0])).tolist(), share_prior(np.array([1.0, 1.0])).round(2).tolist()
    ([1.0], [0.31, 0.31])
    """
    shared: Array = odds - np.log(min(len(odds), WORST_COUNT)) if len(odds) else odds
    return shared


def predict_support(odds: Array) -> Array:
    """Return the probability that each claim is supported, from its log-odds.

    >>> predict_support(np.array([0.0, -2.0])).tolist()
    [0.5, 0.8808]
    """
    return logistic(-odds).round(PROBABILITY_DIGITS)


def predict_groundedness(odds: Array) -> float:
    """Return the probability that all claims of an answer are supported, from the log-odds of its claims.

    The odds against an answer are the sum of those against its worst claims, so that one calibration serves both and an
    answer passes only if its claims do. Doubts add up: one with many doubtful claims may fail though each passes.

    >>> predict_groundedness(np.array([-1.0])), predict_groundedness(np.array([-1.0, -0.5, -1.0]))
    (0.7311, 0.4269)
    """
    return round(float(logistic(np.array(-combine_claims(odds)))), PROBABILITY_DIGITS)


@cache
def load_stack(folder: str = ENGLISH) -> SupportStack:
    """Load the packed stack of a model, once."""
    return SupportStack.unpack(load_heads(folder))
