"""How far probabilities can be taken at their word."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Bin", "calibration_bins", "calibration_error", "masses"]

BINS = 10


class Bin(NamedTuple):
    """Values of like probability."""

    mean: float
    """The mean probability."""
    share: float
    """The share of positives among them."""
    n: int


def masses(scores: ArrayLike, bins: int = BINS) -> NDArray[np.intp]:
    """The bin of each score, from 0: bins of about equal mass, equal scores always in one.

    >>> masses([0.1, 0.2, 0.2, 0.9], 2)
    array([0, 0, 0, 1])
    """
    score = np.asarray(scores, np.float64)
    if not score.size:
        return np.array([], np.intp)
    _, group, size = np.unique(score, return_inverse=True, return_counts=True)
    middle = (np.cumsum(size) - size / 2)[group]
    found: NDArray[np.intp] = np.ceil(middle / score.size * bins).astype(np.intp) - 1
    return found


def calibration_bins(scores: ArrayLike, labels: ArrayLike, bins: int = BINS) -> tuple[Bin, ...]:
    """The calibration curve: probabilities in bins of about equal mass, each with its share of positives.

    Equal scores stand in one bin, so there may be fewer bins than asked for.

    >>> calibration_bins([0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1], 2)
    (Bin(mean=0.1, share=0.5, n=2), Bin(mean=0.9, share=1.0, n=2))
    """
    score, label = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    index = masses(score, bins)
    return tuple(
        Bin(float(score[index == at].mean()), float(label[index == at].mean()), int((index == at).sum()))
        for at in np.unique(index)
    )


def calibration_error(scores: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float | None:
    """The expected calibration error: how far the bins' mean probabilities are from their shares of positives.

    The mean distance over bins of about equal mass, weighted by their size (Naeini et al. 2015); chance alone
    makes it more than 0. None without scores.

    >>> round(calibration_error([0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1], 2), 4)
    0.25
    """
    found = calibration_bins(scores, labels, bins)
    n = sum(each.n for each in found)
    return sum(each.n * abs(each.mean - each.share) for each in found) / n if n else None
