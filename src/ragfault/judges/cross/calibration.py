"""Calibration: the probabilities that a judge stands by, from what its model put out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Logits", "doubtful", "probability", "relevant"]

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


def probability(logits: Logits, features: Sequence[float]) -> float:  # noqa: ARG001
    """The probability that the evidence supports a claim; `features` are those of its words.

    >>> round(probability(Logits(-2.0, 0.0, ()), ()), 3)
    0.881
    """
    return _logistic(-logits.bad)


def relevant(logits: Logits) -> float:
    """The probability that a passage speaks to a query."""
    return _logistic(logits.relevant)


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


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, value))))
