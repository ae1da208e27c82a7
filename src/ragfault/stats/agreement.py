"""Agreement of raters beyond chance: accuracy, Cohen's kappa, Krippendorff's alpha."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import FloatArray, divide_or_nan

KappaWeighting = Literal["none", "linear", "quadratic"]
"""Cost of a disagreement: the same for all, the distance of the categories, or its square."""

MeasurementScale = Literal["nominal", "ordinal", "interval"]
"""Scale of the ratings: names, ranks, or numbers whose differences are meaningful."""
TINY = 1e-12
"""Weights up to this are rounding errors of 0."""
ALL_RATINGS_EQUAL = "every rating is the same: chance would agree as well"


class AgreementCoefficient(NamedTuple):
    """A coefficient of agreement, or the reason why it is undefined."""

    value: float | None
    """1: perfect; 0: chance; below 0: worse than chance. None if undefined."""
    reason: str | None = None


def _index_categories(values: Sequence[Any], order: Sequence[Hashable] | None) -> tuple[list[int], list[Hashable]]:
    """Return the index of each value among the categories, and the categories in order."""
    names = list(order) if order is not None else sorted(set(values))
    index = {name: number for number, name in enumerate(names)}
    unknown = next((value for value in values if value not in index), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is none of the categories {names}")
    return [index[value] for value in values], names


class TwoRaterRatings:
    """Two raters' ratings of the same units, tabulated once; each method takes one row of weights per resample.

    >>> crossed = TwoRaterRatings(["a", "a", "b", "b"], ["a", "b", "b", "b"])
    >>> crossed.kappa(crossed.confusion_matrices(np.ones((1, 4))))
    array([0.5])
    """

    def __init__(self, first: Sequence[Any], second: Sequence[Any], order: Sequence[Hashable] | None = None) -> None:
        if len(first) != len(second):
            raise ValueError(f"{len(first)} and {len(second)} ratings: give one of each rater for each unit")
        codes, self.categories = _index_categories([*first, *second], order)
        self.size = len(self.categories)
        cells = np.array(codes[: len(first)], np.intp) * self.size + np.array(codes[len(first) :], np.intp)
        self._member = np.zeros((len(first), self.size**2))
        self._member[np.arange(len(first)), cells] = 1.0

    def confusion_matrices(self, weights: FloatArray) -> FloatArray:
        """Return the weight of each pair of categories, resamples by categories by categories."""
        matrices: FloatArray = (weights @ self._member).reshape(len(weights), self.size, self.size)
        return matrices

    def accuracy(self, tables: FloatArray) -> FloatArray:
        """Return the share of units on which both agree."""
        return divide_or_nan(np.trace(tables, axis1=1, axis2=2), tables.sum(axis=(1, 2)), TINY)

    def kappa(self, tables: FloatArray, weighting: KappaWeighting = "none") -> FloatArray:
        """Return 1 less the disagreement over the disagreement expected by chance."""
        distance = np.abs(np.subtract.outer(np.arange(self.size), np.arange(self.size)))
        cost = {"none": distance > 0, "linear": distance, "quadratic": distance**2}[weighting].astype(np.float64)
        expected = np.einsum("ri,ij,rj->r", tables.sum(axis=2), cost, tables.sum(axis=1))
        return 1 - divide_or_nan((tables * cost).sum(axis=(1, 2)) * tables.sum(axis=(1, 2)), expected, TINY)

    def alpha(self, tables: FloatArray, scale: MeasurementScale) -> FloatArray:
        """Return Krippendorff's alpha, in which the raters are exchangeable."""
        return _compute_alpha(tables + tables.transpose(0, 2, 1), self.categories, scale)


def accuracy(first: Sequence[Any], second: Sequence[Any]) -> float | None:
    """Return the share of units on which two raters agree; None without units.

    In [0, 1]. Raises ValueError where there is not one rating of each for each unit.

    >>> accuracy(["a", "b", "b"], ["a", "b", "a"]), accuracy([], [])
    (0.666..., None)
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} ratings: give one of each rater for each unit")
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first) if len(first) else None


def cohen_kappa(
    first: Sequence[Any],
    second: Sequence[Any],
    weighting: KappaWeighting = "none",
    order: Sequence[Hashable] | None = None,
) -> AgreementCoefficient:
    """Compute Cohen's kappa: the agreement of two raters beyond chance, given their shares (Cohen 1960).

    At most 1; 0 is chance. Weighted, a miss by several categories counts for more (Cohen 1968): by their distance in
    `order` (sorted, where it is not given), or by its square. Undefined without units, and where both say one and the
    same of every unit. Raises ValueError where there is not one rating of each for each unit, or one is not in `order`.

    >>> cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]).value, cohen_kappa([1, 2, 3], [1, 3, 3], "linear").value
    (0.5, 0.666...)
    >>> cohen_kappa([1, 1], [1, 1]).reason
    'every rating is the same: chance would agree as well'
    """
    crossed = TwoRaterRatings(first, second, order)
    if not len(first):
        return AgreementCoefficient(None, "there are no units")
    value = float(crossed.kappa(crossed.confusion_matrices(np.ones((1, len(first)))), weighting)[0])
    return AgreementCoefficient(None, ALL_RATINGS_EQUAL) if math.isnan(value) else AgreementCoefficient(value)


class MultiRaterRatings:
    """Ratings by several raters, tabulated once; each method takes one row of weights per resample.

    `ratings` are units by raters, None (or NaN) where a rater said nothing; units with fewer than two ratings
    tell nothing.

    >>> rated = MultiRaterRatings([[1, 1], [0, 0], [1, 0], [0, None]])
    >>> rated.alpha(rated.coincidences(np.ones((1, 4))), "nominal")
    array([0.444...])
    """

    def __init__(self, ratings: Sequence[Sequence[Any]], order: Sequence[Hashable] | None = None) -> None:
        ratings_by_unit = [[rating for rating in unit if not _is_missing(rating)] for unit in ratings]
        codes, self.categories = _index_categories([rating for unit in ratings_by_unit for rating in unit], order)
        size = self.size = len(self.categories)
        ends = np.cumsum([0, *map(len, ratings_by_unit)])
        table = np.zeros((len(ratings_by_unit), size))
        for row in range(len(ratings_by_unit)):
            np.add.at(table[row], codes[ends[row] : ends[row + 1]], 1.0)
        raters = table.sum(axis=1)
        pairs = table[:, :, None] * table[:, None, :]
        pairs[:, np.arange(size), np.arange(size)] -= table
        scale = np.where(raters > 1, 1 / np.maximum(raters - 1, 1), 0.0)
        self._pairs = (pairs * scale[:, None, None]).reshape(len(ratings_by_unit), size * size)

    def coincidences(self, weights: FloatArray) -> FloatArray:
        """Count how often two values occur on one unit, each unit weighted by its ratings."""
        counts: FloatArray = (weights @ self._pairs).reshape(len(weights), self.size, self.size)
        return counts

    def alpha(self, coincidences: FloatArray, scale: MeasurementScale) -> FloatArray:
        """Return 1 less the distance of values within a unit over that of any two values."""
        return _compute_alpha(coincidences, self.categories, scale)


def _compute_alpha(coincidences: FloatArray, categories: Sequence[Any], scale: MeasurementScale) -> FloatArray:
    """Return alpha from the coincidences of each two values."""
    totals = coincidences.sum(axis=2)
    distance = _compute_distances(totals, categories, scale)
    within = (coincidences * distance).sum(axis=(1, 2))
    any_two = np.einsum("ri,rij,rj->r", totals, distance, totals)
    return 1 - divide_or_nan(within * (totals.sum(axis=1) - 1), any_two, TINY)


def _compute_distances(totals: FloatArray, categories: Sequence[Any], scale: MeasurementScale) -> FloatArray:
    """Return the squared distance of each two values, for each row."""
    size = len(categories)
    if scale == "nominal":
        return np.broadcast_to(1 - np.eye(size), (len(totals), size, size))
    if scale == "interval":
        value = np.array(categories, np.float64)
        return np.broadcast_to(np.subtract.outer(value, value) ** 2, (len(totals), size, size))
    middle = np.cumsum(totals, axis=1) - totals / 2
    ranks: NDArray[np.float64] = (middle[:, :, None] - middle[:, None, :]) ** 2
    return ranks


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def krippendorff_alpha(
    ratings: Sequence[Sequence[Any]], scale: MeasurementScale = "nominal", order: Sequence[Hashable] | None = None
) -> AgreementCoefficient:
    """Compute Krippendorff's alpha: agreement beyond chance of any number of raters, with missing ratings (2004).

    `ratings` are units by raters, None where one said nothing. 1 is perfect, 0 is chance. `scale` weighs a miss:
    "nominal" all alike; "ordinal" by the square of the ratings between them in `order`; "interval" by squared distance.
    Undefined where no unit has two ratings, and where all ratings are the same.

    >>> krippendorff_alpha([[1, 1, 1], [0, 0, None], [1, 1, 0], [0, None, None]]).value
    0.533...
    >>> krippendorff_alpha([[1], [0]]).reason
    'no unit has two ratings'
    """
    rated = MultiRaterRatings(ratings, order)
    coincidences = rated.coincidences(np.ones((1, len(ratings))))
    if not coincidences.sum():
        return AgreementCoefficient(None, "no unit has two ratings")
    value = float(rated.alpha(coincidences, scale)[0])
    return AgreementCoefficient(None, ALL_RATINGS_EQUAL) if math.isnan(value) else AgreementCoefficient(value)
