"""Calibration: probabilities from the logits of the encoder and the odds of the embedded judge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import msgspec
import numpy as np

from ragfault.judges.embedded.support import TEXT_TYPES, TextType, combine_claims, logistic
from ragfault.judges.embedded.word_vectors import Array

MAX_TOKEN_GAP = 3
"""Doubtful tokens at most this many characters apart belong to one span."""


class Logits(NamedTuple):
    """The output of the model for two texts."""

    bad: float
    """Evidence against the first text, given the second."""
    tokens: tuple[float, ...]
    """Evidence against each token of the first text."""


class StackedCalibration(msgspec.Struct, frozen=True):
    """Weights that combine words and model; the last number of each row is the intercept."""

    claims: tuple[float, ...]
    """For the odds of the embedded judge, those of the model, and those of its worst and its mean token."""
    relevance: tuple[float, float]
    """For the cosine of query and passage."""
    claim_lines: tuple[tuple[float, float], ...]
    """Slope and intercept of the calibration of each type of text."""
    answer_lines: tuple[tuple[float, float], ...]

    def predict_odds(self, rows: Array) -> Array:
        """Return the log-odds that each claim is unsupported, from rows of `build_claim_inputs`."""
        summed: Array = rows @ np.array(self.claims[:-1]) + self.claims[-1]
        return summed

    def predict_support(self, odds: Array, text_type: TextType) -> Array:
        slope, intercept = self.claim_lines[TEXT_TYPES.index(text_type)]
        return logistic(-(slope * odds + intercept))

    def predict_groundedness(self, odds: Array, text_type: TextType) -> float:
        """Return the probability that all claims of an answer are supported, from the log-odds that each is not."""
        slope, intercept = self.answer_lines[TEXT_TYPES.index(text_type)]
        return float(logistic(-(slope * np.array(combine_claims(odds)) + intercept)))

    def predict_relevance(self, cosine: float) -> float:
        slope, intercept = self.relevance
        return float(logistic(np.array(slope * cosine + intercept)))


@cache
def load_calibration() -> StackedCalibration:
    """Load the packaged weights, fitted by training/stacking.py."""
    return msgspec.json.decode(_read_packed(), type=StackedCalibration)


def digest_calibration() -> str:
    """Return the digest of the weights for a judge's fingerprint."""
    return sha256(_read_packed()).hexdigest()[:8]


def _read_packed() -> bytes:
    return files(__package__).joinpath("stack.json").read_bytes()


def build_claim_inputs(odds: float, logits: Logits) -> tuple[float, ...]:
    """Return the numbers of the embedded judge and the model for a claim."""
    tokens = logits.tokens or (logits.bad,)
    return odds, logits.bad, max(tokens), sum(tokens) / len(tokens)


def locate_doubtful_span(claim: str, spans: Sequence[tuple[int, int]], tokens: Sequence[float]) -> str | None:
    """Return the part of a claim whose tokens are most doubtful; None if no token is more doubtful than not.

    >>> locate_doubtful_span("Oslo is red", [(0, 4), (5, 7), (8, 11)], [-3.0, 0.1, 2.0])
    'is red'
    """
    best, best_total = "", 0.0
    start = end = -MAX_TOKEN_GAP
    total = 0.0
    for (left, right), value in zip(spans, tokens, strict=True):
        if value <= 0:
            continue
        if left - end > MAX_TOKEN_GAP or end < 0:
            start, total = left, 0.0
        end, total = right, total + value
        if total > best_total:
            best, best_total = claim[start:end], total
    return best or None
