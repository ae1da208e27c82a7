"""Summing up: how bad an answer is, from how bad its claims are."""

from __future__ import annotations

import numpy as np

from ragfault.judges.embedded.features import PLACE, STYLE
from ragfault.judges.embedded.vectors import Array

__all__ = ["logistic", "summed"]

PLAIN = np.array([at for name, at in PLACE.items() if name not in STYLE])
EVERY = np.arange(len(PLACE))


def logistic(odds: Array) -> Array:
    """The probability of log-odds.

    >>> logistic(np.array([0.0])).tolist()
    [0.5]
    """
    p: Array = 1 / (1 + np.exp(-np.minimum(np.maximum(odds, -30), 30)))
    return p


def summed(odds: Array, features: Array, *, style: bool = False) -> Array:
    """One row for an answer: its worst claims, their mean, and the range of the features of all.

    Without `style` nothing tells how long the answer is or in what manner it is written.
    """
    p = logistic(odds).round(5)
    worst = np.zeros(3)
    ranked = np.sort(p)[::-1][:3]
    worst[: len(ranked)] = ranked
    count = len(p)
    told = [*worst, np.add.reduce(p) / count, np.count_nonzero(p > 0.15) / count]
    if style:
        told += [p.sum(), 1 - np.prod(1 - np.minimum(p, 0.999)), (p > 0.3).sum(), len(p)]
    held = features[:, EVERY if style else PLAIN]
    whole = np.maximum.reduce(held), np.add.reduce(held) / count, np.minimum.reduce(held)
    return np.concatenate([told, *whole])
