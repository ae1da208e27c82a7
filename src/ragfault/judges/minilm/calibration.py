"""Calibration: probabilities from the logits of the encoder and the odds of the embedded judge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import msgspec
import numpy as np

from ragfault.judges.embedded.support import TEXT_TYPES, TextType, logistic
from ragfault.judges.embedded.vectors import Array

MAX_TOKEN_GAP = 3
"""Doubtful tokens so many characters apart belong to one stretch."""


class Logits(NamedTuple):
    """What the model puts out for two texts."""

    bad: float
    """How much speaks against the first, given the second."""
    relevant: float
    """How much the second speaks to the first."""
    tokens: tuple[float, ...]
    """How much speaks against each token of the first."""


class StackedCalibration(msgspec.Struct, frozen=True):
    """What words and model weigh together; the last number of each row is the intercept."""

    claims: tuple[float, ...]
    """For the odds of the embedded judge, the model's own, and those of its worst and its mean token."""
    answers: tuple[float, ...]
    """For the odds of the embedded judge, and what `summary` says of the claims."""
    relevance: tuple[float, float, float]
    """For the model's logit and the cosine of query and passage."""
    claim_lines: tuple[tuple[float, float], ...]
    """For each shape slope and intercept of the calibration."""
    answer_lines: tuple[tuple[float, float], ...]

    def predict_odds(self, rows: Array) -> Array:
        """The log-odds that each claim is bad, from rows of `sides`."""
        summed: Array = rows @ np.array(self.claims[:-1]) + self.claims[-1]
        return summed

    def predict_support(self, odds: Array, text_type: TextType) -> Array:
        """The calibrated probability that each claim is supported."""
        slope, intercept = self.claim_lines[TEXT_TYPES.index(text_type)]
        return logistic(-(slope * odds + intercept))

    def predict_groundedness(self, answer_odds: float, odds: Array, text_type: TextType) -> float:
        """The calibrated probability that all claims are supported."""
        told = float(
            np.array([answer_odds, *summarize_odds(odds)]) @ np.array(self.answers[:-1]) + self.answers[-1]
        )
        slope, intercept = self.answer_lines[TEXT_TYPES.index(text_type)]
        return float(logistic(-(slope * np.array(told) + intercept)))

    def predict_relevance(self, logit: float, cosine: float) -> float:
        """The probability that a passage speaks to a query."""
        model, alike, intercept = self.relevance
        return float(logistic(np.array(model * logit + alike * cosine + intercept)))


@cache
def load_calibration() -> StackedCalibration:
    """The numbers that the package carries, fitted by training/stacking.py."""
    return msgspec.json.decode(_read_packed(), type=StackedCalibration)


def digest_calibration() -> str:
    """Names the numbers in a judge's fingerprint."""
    return sha256(_read_packed()).hexdigest()[:8]


def _read_packed() -> bytes:
    return files(__package__).joinpath("stack.json").read_bytes()


def build_claim_inputs(odds: float, logits: Logits) -> tuple[float, ...]:
    """What the embedded judge and the model say of a claim.

    >>> build_claim_inputs(-1.0, Logits(0.5, 0.0, (1.0, -1.0)))
    (-1.0, 0.5, 1.0, 0.0)
    """
    tokens = logits.tokens or (logits.bad,)
    return odds, logits.bad, max(tokens), sum(tokens) / len(tokens)


def summarize_odds(odds: Array) -> list[float]:
    """The claims of an answer in few numbers: the worst's log-odds, the second's probability, mean and share of bad.

    >>> [round(value, 3) for value in summarize_odds(np.array([0.0, -2.0]))]
    [0.0, 0.119, 0.31, 0.5]
    """
    p = np.sort(logistic(odds))[::-1]
    return [float(odds.max()), float(p[1]) if len(p) > 1 else 0.0, float(p.mean()), float((p > 0.15).mean())]


def locate_doubtful_span(claim: str, spans: Sequence[tuple[int, int]], tokens: Sequence[float]) -> str | None:
    """The stretch of a claim whose tokens are most doubtful; None where none is more doubtful than not.

    >>> locate_doubtful_span("Oslo is red", [(0, 4), (5, 7), (8, 11)], [-3.0, 0.1, 2.0])
    'is red'
    """
    best, most = "", 0.0
    start = end = -MAX_TOKEN_GAP
    total = 0.0
    for (left, right), value in zip(spans, tokens, strict=True):
        if value <= 0:
            continue
        if left - end > MAX_TOKEN_GAP or end < 0:
            start, total = left, 0.0
        end, total = right, total + value
        if total > most:
            best, most = claim[start:end], total
    return best or None
