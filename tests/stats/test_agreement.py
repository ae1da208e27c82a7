"""Agreement beyond chance: worked examples of the literature, golden values, definitions by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.stats.agreement import MultiRaterRatings, TwoRaterRatings, accuracy

N = None
FOUR = list(
    zip(
        [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
        [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
        strict=True,
    )
)
"""Four observers, twelve units, five values, missing ones: the example C of Krippendorff (2011)."""

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12)
UNITS = st.lists(st.lists(st.none() | st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=8)


def spread(table: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the ratings of two raters that give a table of counts."""
    cells = [(a, b) for a, row in enumerate(table) for b, count in enumerate(row) for _ in range(count)]
    return [a for a, _ in cells], [b for _, b in cells]


def cohen_kappa(first: list[Any], second: list[Any], weighting: Any = "none", order: Any = None) -> float:
    crossed = TwoRaterRatings(first, second, order)
    return float(crossed.kappa(crossed.confusion_matrices(np.ones((1, len(first)))), weighting)[0])


def krippendorff_alpha(units: list[Any], scale: Any = "nominal") -> float:
    rated = MultiRaterRatings(units)
    return float(rated.alpha(rated.coincidences(np.ones((1, len(units)))), scale)[0])


# --- two raters ------------------------------------------------------------------------------------


def test_kappa_is_that_of_the_literature():
    """Fleiss (1981, table 13.1): 89 % said alike, 66 % by chance; a yes-no table with 70 % and 50 %."""
    diagnoses = spread([[75, 1, 4], [5, 4, 1], [0, 0, 10]])
    assert accuracy(*diagnoses) == pytest.approx(0.89)
    assert cohen_kappa(*diagnoses) == pytest.approx(0.23 / 0.34)
    assert cohen_kappa(*spread([[20, 5], [10, 15]])) == pytest.approx(0.4)


def test_weighted_kappa_is_that_counted_by_hand():
    """Of 3 × 3 categories: the costs seen over those of the margins, by distance and by its square."""
    first, other = spread([[4, 1, 0], [1, 2, 1], [0, 1, 2]])
    # margins 5, 4, 3 and 5, 4, 3 of 12; four misses by one place, none by two
    linear = (5 * 4 + 4 * 5 + 4 * 3 + 3 * 4 + 2 * (5 * 3 + 3 * 5)) / 12
    quadratic = (5 * 4 + 4 * 5 + 4 * 3 + 3 * 4 + 4 * (5 * 3 + 3 * 5)) / 12
    assert cohen_kappa(first, other, "linear") == pytest.approx(1 - 4 / linear)
    assert cohen_kappa(first, other, "quadratic") == pytest.approx(1 - 4 / quadratic)


@given(PAIRS)
def test_kappa_is_one_less_the_cost_over_that_of_strangers(pairs: list[tuple[int, int]]):
    """Any kappa is 1 less the mean cost of pairs over the mean cost of every word of one with every of the other."""
    first, other = [a for a, _ in pairs], [b for _, b in pairs]
    for weighting, power in (("none", 0), ("linear", 1), ("quadratic", 2)):
        cost = lambda a, b, power=power: float(a != b) * abs(a - b) ** power  # noqa: E731
        seen = sum(cost(a, b) for a, b in pairs) / len(pairs)
        chance = sum(cost(a, b) for a, b in product(first, other)) / len(pairs) ** 2
        coefficient = cohen_kappa(first, other, weighting, order=range(4))
        assert (math.isnan(coefficient)) == (chance == 0)
        if chance:
            assert coefficient == pytest.approx(1 - seen / chance)
            assert cohen_kappa(other, first, weighting, order=range(4)) == pytest.approx(coefficient)


def test_weights_follow_the_order_that_is_given():
    """Words have the distance of their places: "none" lies next to "low", whatever the alphabet says."""
    order = ["none", "low", "medium", "high"]
    near = cohen_kappa(["none", "high", "low"], ["low", "high", "low"], "linear", order)
    far = cohen_kappa(["none", "high", "low"], ["high", "high", "low"], "linear", order)
    assert near > far
    with pytest.raises(ValueError, match="'some' is none of the categories"):
        cohen_kappa(["some"], ["none"], order=order)


def test_what_two_raters_must_give():
    """One rating each for each unit; without variation kappa is undefined."""
    with pytest.raises(ValueError, match="2 and 1 ratings"):
        cohen_kappa([1, 0], [1])
    with pytest.raises(ValueError, match="2 and 1 ratings"):
        accuracy([1, 0], [1])
    assert math.isnan(cohen_kappa([1, 1], [1, 1]))
    assert cohen_kappa([1, 1], [1, 0]) == 0.0


# --- any number of raters --------------------------------------------------------------------------


def test_alpha_is_that_of_krippendorff():
    """The published values of his four observers (2011): nominal 0.743, ordinal 0.815, interval 0.849."""
    for scale, value in (("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)):
        assert krippendorff_alpha(FOUR, scale) == pytest.approx(value, abs=5e-4)


def test_alpha_of_two_raters_is_that_of_krippendorff():
    """His example A of yes and no has 0.095, his example B of five names 0.692."""
    yes = zip("0100000010", "1110010000", strict=True)
    names = zip("aabbdcccedda", "babbbccceddd", strict=True)
    assert krippendorff_alpha(list(yes)) == pytest.approx(0.095, abs=5e-4)
    assert krippendorff_alpha(list(names)) == pytest.approx(0.692, abs=5e-4)


@pytest.mark.parametrize(
    ("units", "value"),
    [
        ([[0, 1], [0, 1], [1, 0], [1, 0]], -0.75),
        ([[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], 0.6857142857142857),
        ([[1, 1, 0], [0, 0]], 0.3333333333333333),
    ],
)
def test_alpha_of_small_tables_is_the_published_one(units: list[list[int]], value: float):
    """Golden values of inspect_ai's test suite (tests/scorer/test_krippendorff.py)."""
    assert krippendorff_alpha(units) == pytest.approx(value, abs=1e-12)


@given(UNITS)
def test_alpha_is_one_less_the_distance_within_over_that_of_any_two(units: list[list[Any]]):
    """By its definition: pairs within units, each unit counted by its ratings, over pairs of all ratings."""
    units = [[first for first in unit if first is not None] for unit in units]
    rated = [unit for unit in units if len(unit) > 1]
    every = [first for unit in rated for first in unit]
    ranks = {v: sum(o < v for o in every) + sum(o == v for o in every) / 2 for v in every}
    for scale, place in (("nominal", None), ("ordinal", ranks.get), ("interval", float)):
        apart = lambda a, b, p=place: float(a != b) if p is None else (p(a) - p(b)) ** 2  # noqa: E731
        within = sum(sum(apart(a, b) for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in rated)
        total = sum(apart(a, b) for a, b in permutations(every, 2))
        coefficient = krippendorff_alpha(units, scale)
        assert (math.isnan(coefficient)) == (not total)
        if total:
            assert coefficient == pytest.approx(1 - within / len(every) * len(every) * (len(every) - 1) / total)


def test_alpha_may_be_undefined():
    """One rater alone, and ratings that are all the same, have no alpha."""
    for units in ([[1], [0], [1]], [[1, None], [float("nan"), 0]], [[1, 1], [1, 1, 1]]):
        assert math.isnan(krippendorff_alpha(units))


def test_weights_count_units_as_often_as_they_say():
    """A unit of weight two is a unit that stands there twice, for two raters and for many."""
    first, other = [0, 1, 2, 1], [0, 1, 1, 2]
    crossed, twice = TwoRaterRatings(first, other), TwoRaterRatings([*first, 2, 2], [*other, 1, 1])
    weights = np.array([[1.0, 1.0, 3.0, 1.0]])
    assert crossed.kappa(crossed.confusion_matrices(weights), "linear") == pytest.approx(
        twice.kappa(twice.confusion_matrices(np.ones((1, 6))), "linear")
    )
    rated, more = MultiRaterRatings(FOUR), MultiRaterRatings([*FOUR, FOUR[5]])
    sample = np.ones((1, 12))
    sample[0, 5] = 2
    assert rated.alpha(rated.coincidences(sample), "ordinal") == pytest.approx(
        more.alpha(more.coincidences(np.ones((1, 13))), "ordinal")
    )
