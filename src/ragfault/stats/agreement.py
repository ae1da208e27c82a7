"""Agreement of raters beyond chance: accuracy, Cohen's kappa, Krippendorff's alpha."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import FloatArray, divide_or_nan

KappaWeighting = Literal["none", "linear", "quadratic"]
"""Cost of a disagreement: the same for all, the distance of the categories, or its square."""

MeasurementScale = Literal["nominal", "ordinal", "interval"]
"""Scale of the ratings: names, ranks, or numbers whose differences are meaningful."""
TINY = 1e-12
"""Weights up to this are rounding errors of 0."""


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
        """Return Cohen's kappa: 1 less the disagreement over that expected by the raters' shares (Cohen 1960, 1968).

        At most 1, and 0 for chance; NaN where both say one and the same of every unit. Weighted, a miss costs the
        distance of the categories, or its square.
        """
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
        """Return Krippendorff's alpha: 1 less the distance of values within a unit over that of any two (2004).

        At most 1, and 0 for chance; NaN where no unit has two ratings, and where all are the same. The distance is 1
        ("nominal"), the square of the ratings between two in the order ("ordinal"), or the squared difference.
        """
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
