"""Discrimination and calibration of scores against binary labels: AUROC, best threshold, calibration error."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.bootstrap import FloatArray, divide_or_nan, encode_clusters
from ragfault.stats.estimates import CalibrationBin

ThresholdGoal = Literal["f1", "balanced_accuracy"]


class BestThreshold(NamedTuple):
    """A threshold: what scores that much or more is called positive."""

    threshold: float
    value: float
    """What the threshold was chosen for, as reached with it."""


class GroupedAuroc(NamedTuple):
    """The mean AUROC within groups, each counted by its size."""

    value: float
    groups: int
    """Groups that have positives and negatives; the others tell nothing."""
    n: int
    """Values in these groups."""


class RankedScores:
    """Scores and labels in order, sorted once; each method takes a row of weights for each resample.

    >>> ranked = RankedScores([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1])
    >>> positives, negatives = ranked.class_weights(np.ones((1, 4)))
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
        self._starts = np.flatnonzero(np.append(True, np.diff(ordered) > 0)) if score.size else np.array([], int)
        self._positive = label[self._order]
        self.thresholds: FloatArray = ordered[self._starts]
        """The distinct scores, the lowest first."""

    def class_weights(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weight of positives and of negatives at each distinct score, rows by scores."""
        if not self._starts.size:
            empty = np.zeros((len(weights), 0))
            return empty, empty
        ordered = weights[:, self._order]
        totals = np.add.reduceat(ordered, self._starts, axis=1)
        positives = np.add.reduceat(ordered * self._positive, self._starts, axis=1)
        return positives, totals - positives

    def auroc(self, positives: FloatArray, negatives: FloatArray) -> FloatArray:
        """Return the chance that a positive scores above a negative, ties counted half."""
        below = np.cumsum(negatives, axis=1) - negatives / 2
        wins: FloatArray = (positives * below).sum(axis=1)
        return divide_or_nan(wins, positives.sum(axis=1) * negatives.sum(axis=1))

    def average_precision(self, positives: FloatArray, negatives: FloatArray) -> FloatArray:
        """Return the mean precision at the positives; those of equal score share their precision."""
        positives_above, negatives_above = _sum_above(positives), _sum_above(negatives)
        precision = positives_above / np.maximum(positives_above + negatives_above, 1e-300)
        total = positives.sum(axis=1)
        area: FloatArray = (positives * precision).sum(axis=1)
        return divide_or_nan(area, np.where(negatives.sum(axis=1) > 0, total, 0.0))

    def recall_at_precision(self, precision: float, positives: FloatArray, negatives: FloatArray) -> FloatArray:
        """Return the largest recall of a threshold with at least this precision; 0 where no threshold has it."""
        positives_above, negatives_above = _sum_above(positives), _sum_above(negatives)
        reached = positives_above >= precision * (positives_above + negatives_above)
        best = (positives_above * reached).max(axis=1, initial=0.0)
        return divide_or_nan(best, positives.sum(axis=1))

    def evaluate_thresholds(self, goal: ThresholdGoal, positives: FloatArray, negatives: FloatArray) -> FloatArray:
        """Return F1 or balanced accuracy for the threshold at each distinct score, rows by scores."""
        positives_above, negatives_above = _sum_above(positives), _sum_above(negatives)
        n_pos, n_neg = positives.sum(axis=1)[:, None], negatives.sum(axis=1)[:, None]
        if goal == "f1":
            return divide_or_nan(2 * positives_above, positives_above + negatives_above + n_pos)
        return (divide_or_nan(positives_above, n_pos) + divide_or_nan(n_neg - negatives_above, n_neg)) / 2


def _sum_above(weights: FloatArray) -> FloatArray:
    above: FloatArray = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    return above


def auroc(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """Compute the area under the ROC curve: the chance that a positive scores above a negative, ties counted half.

    `labels` are 1 for positives and 0 for negatives, one for each score. In [0, 1]; 0.5 is guessing. None where one of
    the two classes is absent. It is the statistic of Mann and Whitney (1947) over the number of pairs.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), auroc([0.1, 0.2], [1, 1])
    (0.75, None)
    """
    return _compute_area(scores, labels, lambda ranked, tallies: ranked.auroc(*tallies))


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """Compute the area under the precision-recall curve, as a sum over the positives.

    Arguments as of `auroc`. The mean precision at the positives, those of equal score together. In (0, 1]; the share of
    positives is guessing. None where one of the two classes is absent.

    >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
    0.8333
    """
    return _compute_area(scores, labels, lambda ranked, tallies: ranked.average_precision(*tallies))


def _compute_area(
    scores: ArrayLike, labels: ArrayLike, area: Callable[[RankedScores, tuple[FloatArray, FloatArray]], FloatArray]
) -> float | None:
    ranked = RankedScores(scores, labels)
    value = float(area(ranked, ranked.class_weights(np.ones((1, np.size(scores)))))[0])
    return None if math.isnan(value) else value


def choose_threshold(scores: ArrayLike, labels: ArrayLike, goal: ThresholdGoal = "f1") -> BestThreshold | None:
    """Choose the threshold with the best F1 of the positives, or the best balanced accuracy.

    Return it with its value of the goal, in [0, 1], on these scores: on others that will be lower. Scores of at least
    the threshold are called positive. It lies halfway to the next lower score; the highest of equally good ones. None
    where a class is absent.

    >>> choose_threshold([0.25, 0.75, 0.5, 1.0], [0, 0, 1, 1])
    BestThreshold(threshold=0.375, value=0.8)
    """
    ranked = RankedScores(scores, labels)
    positives, negatives = ranked.class_weights(np.ones((1, np.size(scores))))
    if not positives.sum() or not negatives.sum():
        return None
    values = ranked.evaluate_thresholds(goal, positives, negatives)[0]
    index = len(values) - 1 - int(np.argmax(values[::-1]))
    threshold = float(
        ranked.thresholds[index] if index == 0 else (ranked.thresholds[index - 1] + ranked.thresholds[index]) / 2
    )
    return BestThreshold(threshold, float(values[index]))


def auroc_within_groups(scores: ArrayLike, labels: ArrayLike, groups: Sequence[Hashable]) -> GroupedAuroc | None:
    """Compute the mean AUROC within groups, weighted by their size; groups of one class are left out.

    What only tells the groups apart gains nothing here. None where no group has both classes.

    >>> auroc_within_groups([0.1, 0.9, 0.2, 0.8, 0.5], [0, 1, 1, 0, 1], ["a", "a", "b", "b", "c"])
    GroupedAuroc(value=0.5, groups=2, n=4)
    """
    ranked_groups = list(rank_within_groups(scores, labels, groups))
    n = sum(rows.size for rows, _ in ranked_groups)
    if not n:
        return None
    total = 0.0
    for rows, ranked in ranked_groups:
        total += rows.size * float(ranked.auroc(*ranked.class_weights(np.ones((1, rows.size))))[0])
    return GroupedAuroc(total / n, len(ranked_groups), n)


def rank_within_groups(
    scores: ArrayLike, labels: ArrayLike, groups: Sequence[Hashable]
) -> Iterator[tuple[NDArray[np.intp], RankedScores]]:
    """Yield the indices and the ranked scores of each group that has both classes."""
    score, label = np.asarray(scores, np.float64), np.asarray(labels, bool)
    index, count = encode_clusters(groups, score.size)
    order = np.argsort(index, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(index[order])) + 1) if count else ():
        if 0 < label[rows].sum() < rows.size:
            yield rows, RankedScores(score[rows], label[rows])


DEFAULT_BINS = 10


def assign_bins(scores: ArrayLike, bins: int = DEFAULT_BINS) -> NDArray[np.intp]:
    """Assign each score to a bin, from 0: bins of about equal mass, equal scores always in one.

    >>> assign_bins([0.1, 0.2, 0.2, 0.9], 2)
    array([0, 0, 0, 1])
    """
    score = np.asarray(scores, np.float64)
    if not score.size:
        return np.array([], np.intp)
    _, group, size = np.unique(score, return_inverse=True, return_counts=True)
    middle = (np.cumsum(size) - size / 2)[group]
    numbers: NDArray[np.intp] = np.ceil(middle / score.size * bins).astype(np.intp) - 1
    return numbers


def calibration_bins(scores: ArrayLike, labels: ArrayLike, bins: int = DEFAULT_BINS) -> tuple[CalibrationBin, ...]:
    """Compute the calibration curve: bins of about equal mass, each with its share of positives.

    Equal scores stand in one bin, so there may be fewer bins than asked for.

    >>> calibration_bins([0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1], 2)
    (CalibrationBin(mean=0.1, share=0.5, n=2), CalibrationBin(mean=0.9, share=1.0, n=2))
    """
    score, label = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    index = assign_bins(score, bins)
    return tuple(
        CalibrationBin(float(score[index == n].mean()), float(label[index == n].mean()), int((index == n).sum()))
        for n in np.unique(index)
    )


def calibration_error(scores: ArrayLike, labels: ArrayLike, bins: int = DEFAULT_BINS) -> float | None:
    """Compute the expected calibration error: the distance of mean probabilities from shares of positives.

    The mean distance over bins of about equal mass, weighted by their size (Naeini et al. 2015); chance alone
    makes it more than 0. None without scores.

    >>> round(calibration_error([0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1], 2), 4)
    0.25
    """
    curve = calibration_bins(scores, labels, bins)
    n = sum(bin_.n for bin_ in curve)
    return sum(bin_.n * abs(bin_.mean - bin_.share) for bin_ in curve) / n if n else None
