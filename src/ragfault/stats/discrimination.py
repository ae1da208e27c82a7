"""How well scores tell positives from negatives: areas, best thresholds, for any weights at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.groups import Floats, codes

__all__ = ["Cut", "Ranked", "Within", "auroc", "auroc_within", "average_precision", "best_cut", "cells"]

Goal = Literal["f1", "balanced_accuracy"]


class Cut(NamedTuple):
    """A threshold: what scores that much or more is called positive."""

    cut: float
    value: float
    """What the threshold was chosen for, as reached with it."""


class Within(NamedTuple):
    """The mean AUROC within groups, each counted by its size."""

    value: float
    groups: int
    """Groups that have positives and negatives; the others tell nothing."""
    n: int
    """Values in these groups."""


class Ranked:
    """Scores and labels in order, sorted once; each method takes a row of weights for each resample.

    `tallies` gives for each row the weight of positives and of negatives at every distinct score, the lowest
    first; the other methods read these and give one number for each row, NaN where a class has no weight.

    >>> ranked = Ranked([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1])
    >>> positives, negatives = ranked.tallies(np.ones((1, 4)))
    >>> ranked.auroc(positives, negatives)
    array([0.875])
    """

    def __init__(self, scores: ArrayLike, labels: ArrayLike) -> None:
        score, label = np.asarray(scores, np.float64), np.asarray(labels, bool)
        if score.shape != label.shape or score.ndim != 1:
            raise ValueError(f"{score.size} scores and {label.size} labels: give one label for each score")
        if not np.isfinite(score).all():
            raise ValueError("a score is not a finite number")
        self._order = np.argsort(score, kind="stable")
        ordered = score[self._order]
        self._starts = (
            np.flatnonzero(np.append(True, np.diff(ordered) > 0)) if score.size else np.array([], int)
        )
        self._positive = label[self._order]
        self.cuts: Floats = ordered[self._starts]
        """The distinct scores, the lowest first."""

    def tallies(self, weights: Floats) -> tuple[Floats, Floats]:
        """The weight of positives and of negatives at each distinct score, rows by scores."""
        if not self._starts.size:
            empty = np.zeros((len(weights), 0))
            return empty, empty
        ordered = weights[:, self._order]
        whole = np.add.reduceat(ordered, self._starts, axis=1)
        positives = np.add.reduceat(ordered * self._positive, self._starts, axis=1)
        return positives, whole - positives

    def auroc(self, positives: Floats, negatives: Floats) -> Floats:
        """The chance that a positive scores above a negative, ties counted half."""
        below = np.cumsum(negatives, axis=1) - negatives / 2
        wins: Floats = (positives * below).sum(axis=1)
        return _share(wins, positives.sum(axis=1) * negatives.sum(axis=1))

    def average_precision(self, positives: Floats, negatives: Floats) -> Floats:
        """The precision at each positive, on average; positives of one score share the precision there."""
        found, other = _above(positives), _above(negatives)
        precision = found / np.maximum(found + other, 1e-300)
        total = positives.sum(axis=1)
        area: Floats = (positives * precision).sum(axis=1)
        return _share(area, np.where(negatives.sum(axis=1) > 0, total, 0.0))

    def at(self, goal: Goal, positives: Floats, negatives: Floats) -> Floats:
        """F1 or balanced accuracy with the threshold at each distinct score, rows by scores."""
        found, other = _above(positives), _above(negatives)
        total, rest = positives.sum(axis=1)[:, None], negatives.sum(axis=1)[:, None]
        if goal == "f1":
            return _share(2 * found, found + other + total)
        return (_share(found, total) + _share(rest - other, rest)) / 2


def _above(tally: Floats) -> Floats:
    """The weight at each score and above it."""
    above: Floats = np.cumsum(tally[:, ::-1], axis=1)[:, ::-1]
    return above


def _share(part: Floats, whole: Floats) -> Floats:
    """A ratio, NaN where there is nothing to divide by."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.where(whole > 0, part / whole, math.nan)
    return share


def auroc(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """The area under the ROC curve: the chance that a positive scores above a negative, ties counted half.

    0.5 is guessing. None where one of the two classes is absent. It is the statistic of Mann and Whitney (1947)
    over the number of pairs.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), auroc([0.1, 0.2], [1, 1])
    (0.75, None)
    """
    return _single(scores, labels, lambda ranked, tallies: ranked.auroc(*tallies))


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """The area under the precision-recall curve, as a sum over the positives.

    The share of positives is guessing. None where one of the two classes is absent.

    >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
    0.8333
    """
    return _single(scores, labels, lambda ranked, tallies: ranked.average_precision(*tallies))


def _single(
    scores: ArrayLike, labels: ArrayLike, area: Callable[[Ranked, tuple[Floats, Floats]], Floats]
) -> float | None:
    ranked = Ranked(scores, labels)
    value = float(area(ranked, ranked.tallies(np.ones((1, np.size(scores)))))[0])
    return None if math.isnan(value) else value


def best_cut(scores: ArrayLike, labels: ArrayLike, goal: Goal = "f1") -> Cut | None:
    """The threshold that is best on these scores: for the F1 of the positives, or for balanced accuracy.

    It lies halfway to the next lower score, so that it carries over to others; of several that are equally good
    it is the highest. The value is what fitting reaches, and more than what other scores will. None where a class
    is absent.

    >>> best_cut([0.25, 0.75, 0.5, 1.0], [0, 0, 1, 1])
    Cut(cut=0.375, value=0.8)
    """
    ranked = Ranked(scores, labels)
    positives, negatives = ranked.tallies(np.ones((1, np.size(scores))))
    if not positives.sum() or not negatives.sum():
        return None
    values = ranked.at(goal, positives, negatives)[0]
    at = len(values) - 1 - int(np.argmax(values[::-1]))
    cut = float(ranked.cuts[at] if at == 0 else (ranked.cuts[at - 1] + ranked.cuts[at]) / 2)
    return Cut(cut, float(values[at]))


def auroc_within(scores: ArrayLike, labels: ArrayLike, groups: Sequence[Hashable]) -> Within | None:
    """The mean AUROC within groups, weighted by their size; groups of one class are left out.

    What only tells the groups apart gains nothing here. None where no group has both classes.

    >>> auroc_within([0.1, 0.9, 0.2, 0.8, 0.5], [0, 1, 1, 0, 1], ["a", "a", "b", "b", "c"])
    Within(value=0.5, groups=2, n=4)
    """
    found = list(cells(scores, labels, groups))
    n = sum(place.size for place, _ in found)
    if not n:
        return None
    total = 0.0
    for place, ranked in found:
        total += place.size * float(ranked.auroc(*ranked.tallies(np.ones((1, place.size))))[0])
    return Within(total / n, len(found), n)


def cells(
    scores: ArrayLike, labels: ArrayLike, groups: Sequence[Hashable]
) -> Iterator[tuple[NDArray[np.intp], Ranked]]:
    """The places of each group that has both classes, and its scores in order."""
    score, label = np.asarray(scores, np.float64), np.asarray(labels, bool)
    index, count = codes(groups, score.size)
    order = np.argsort(index, kind="stable")
    for place in np.split(order, np.flatnonzero(np.diff(index[order])) + 1) if count else ():
        if 0 < label[place].sum() < place.size:
            yield place, Ranked(score[place], label[place])
