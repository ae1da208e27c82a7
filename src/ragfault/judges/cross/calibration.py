"""Calibration: the probabilities that a judge stands by, from what its model put out and what words say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import msgspec
import numpy as np

from ragfault.judges.embedded.shapes import SHAPES, Shape
from ragfault.judges.embedded.summing import logistic
from ragfault.judges.embedded.vectors import Array

__all__ = ["Logits", "Stack", "digest", "doubtful", "sides", "stack", "summary"]

GAP = 3
"""Doubtful tokens so many characters apart belong to one stretch."""


class Logits(NamedTuple):
    """What the model puts out for two texts."""

    bad: float
    """How much speaks against the first, given the second."""
    relevant: float
    """How much the second speaks to the first."""
    tokens: tuple[float, ...]
    """How much speaks against each token of the first."""


class Stack(msgspec.Struct, frozen=True):
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

    def odds(self, rows: Array) -> Array:
        """The log-odds that each claim is bad, from rows of `sides`."""
        summed: Array = rows @ np.array(self.claims[:-1]) + self.claims[-1]
        return summed

    def support(self, odds: Array, shape: Shape) -> Array:
        """The calibrated probability that each claim is supported."""
        slope, intercept = self.claim_lines[SHAPES.index(shape)]
        return logistic(-(slope * odds + intercept))

    def grounded(self, whole: float, odds: Array, shape: Shape) -> float:
        """The calibrated probability that all claims are supported."""
        told = float(np.array([whole, *summary(odds)]) @ np.array(self.answers[:-1]) + self.answers[-1])
        slope, intercept = self.answer_lines[SHAPES.index(shape)]
        return float(logistic(-(slope * np.array(told) + intercept)))

    def relevant(self, logit: float, cosine: float) -> float:
        """The probability that a passage speaks to a query."""
        model, alike, intercept = self.relevance
        return float(logistic(np.array(model * logit + alike * cosine + intercept)))


@cache
def stack() -> Stack:
    """The numbers that the package carries, fitted by training/stacking.py."""
    return msgspec.json.decode(_packed(), type=Stack)


def digest() -> str:
    """Names the numbers in a judge's fingerprint."""
    return sha256(_packed()).hexdigest()[:8]


def _packed() -> bytes:
    return files(__package__).joinpath("stack.json").read_bytes()


def sides(odds: float, logits: Logits) -> tuple[float, ...]:
    """What the embedded judge and the model say of a claim.

    >>> sides(-1.0, Logits(0.5, 0.0, (1.0, -1.0)))
    (-1.0, 0.5, 1.0, 0.0)
    """
    tokens = logits.tokens or (logits.bad,)
    return odds, logits.bad, max(tokens), sum(tokens) / len(tokens)


def summary(odds: Array) -> list[float]:
    """The claims of an answer in few numbers: the worst's log-odds, the second's probability, mean and share of bad.

    >>> [round(value, 3) for value in summary(np.array([0.0, -2.0]))]
    [0.0, 0.119, 0.31, 0.5]
    """
    p = np.sort(logistic(odds))[::-1]
    return [float(odds.max()), float(p[1]) if len(p) > 1 else 0.0, float(p.mean()), float((p > 0.15).mean())]


def doubtful(claim: str, spans: Sequence[tuple[int, int]], tokens: Sequence[float]) -> str | None:
    """The stretch of a claim whose tokens are most doubtful; None where none is more doubtful than not.

    >>> doubtful("Oslo is red", [(0, 4), (5, 7), (8, 11)], [-3.0, 0.1, 2.0])
    'is red'
    """
    best, most = "", 0.0
    start = end = -GAP
    total = 0.0
    for (left, right), value in zip(spans, tokens, strict=True):
        if value <= 0:
            continue
        if left - end > GAP or end < 0:
            start, total = left, 0.0
        end, total = right, total + value
        if total > most:
            best, most = claim[start:end], total
    return best or None
