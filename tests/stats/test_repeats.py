"""Laws of statistics of several attempts: no bias within a query, a query as the unit, noise split by its source."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ragfault.stats.intervals import bounded_interval, wilson_interval
from ragfault.stats.repeats import compare_sets, expect_disagreement, expect_extreme, split_variance

RNG = np.random.default_rng(5)
SIZES = [1, 2, 3, 5, 3, 2]
QUERIES = np.repeat(np.arange(len(SIZES)), SIZES)
VALUES = RNG.uniform(size=len(QUERIES)).round(1)
MEANINGS = RNG.integers(0, 2, size=len(QUERIES))


def average_subsets(values, k, function):
    """Return the mean of a function over all subsets of k values of each query that has so many."""
    groups = [values[query == QUERIES] for query in range(len(SIZES))]
    return [np.mean([function(part) for part in combinations(own, k)]) for own in groups if len(own) >= k]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize(("extreme", "choose"), [("lowest", min), ("highest", max)])
def test_an_extreme_is_the_mean_over_all_subsets(k, extreme, choose):
    """The expected extreme of k attempts is the mean over all subsets; queries with fewer attempts are left out."""
    result = expect_extreme(VALUES, QUERIES, k, extreme)
    np.testing.assert_allclose(result.values, average_subsets(VALUES, k, choose))
    assert result.left_out == sum(size < k for size in SIZES)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_disagreement_is_the_share_of_subsets_that_differ(k):
    """The probability of disagreement is the share of subsets of k attempts with more than one meaning."""
    expected = average_subsets(MEANINGS, k, lambda part: len(set(part)) > 1)
    np.testing.assert_allclose(expect_disagreement(MEANINGS, QUERIES, k).values, expected)


def test_the_order_of_attempts_makes_no_difference():
    """Shuffled attempts give the same values of the queries."""
    order = RNG.permutation(len(QUERIES))
    for k in (1, 2, 3):
        before, after = (
            np.sort(expect_extreme(values, queries, k, "lowest").values)
            for values, queries in ((VALUES, QUERIES), (VALUES[order], QUERIES[order]))
        )
        np.testing.assert_allclose(before, after)


def test_equal_sets_are_consistent_and_disjoint_ones_are_not():
    """Consistency is 1 for attempts that retrieved the same, in any order, and 0 for those that share nothing."""
    sets = [frozenset("ab"), frozenset("ba"), frozenset("a"), frozenset("b"), frozenset(), frozenset()]
    assert compare_sets(sets, [0, 0, 1, 1, 2, 2]).values.tolist() == [1, 0, 1]


def test_a_variance_is_that_of_its_source():
    """Without differences within queries all variance is of queries, with equal queries all of it is noise."""
    steady = np.repeat(RNG.uniform(size=40), 3)
    assert split_variance(steady, np.repeat(np.arange(40), 3)).shares == pytest.approx((1, 0, 0))
    noisy = np.tile([0.0, 0.5, 1.0], 40)
    assert split_variance(noisy, np.repeat(np.arange(40), 3)).queries == pytest.approx(0)


def test_the_noise_of_the_judge_is_taken_from_that_of_the_system():
    """System and judge add up to the noise; a judge that was not measured is not counted as silent."""
    queries = np.repeat(np.arange(60), 4)
    values = np.repeat(RNG.normal(0.5, 0.2, size=60), 4) + RNG.normal(0, 0.1, size=240)
    alone, split, unknown = (split_variance(values, queries, judge) for judge in (0.0, 0.004, None))
    assert split.system + split.judge == pytest.approx(alone.system)
    assert split.noise == alone.noise
    assert unknown.judge is None
    assert sum(split.shares) == pytest.approx(1)
    assert split.noise.low < 0.2 < split.noise.high


def test_few_queries_that_differ_tell_no_share_of_noise():
    """If the attempts of fewer than ten queries differ, the interval of the share of noise is all of 0 to 1."""
    values = np.ones((50, 3))
    values[:5, 0] = 0
    noise = split_variance(values.ravel(), np.repeat(np.arange(50), 3)).noise
    assert (noise.low, noise.high) == (0, 1)


def test_without_a_second_attempt_or_variance_nothing_is_split():
    """There is no split of single attempts, and none of values that are all alike."""
    assert split_variance(np.array([0.0, 1.0, 0.5]), [0, 1, 2]) is None
    assert split_variance(np.ones(6), [0, 0, 1, 1, 2, 2]) is None


def test_a_score_interval_is_that_of_wilson_at_the_ends_of_the_range():
    """Of right and wrong answers the interval is Wilson's, on any range."""
    expected = wilson_interval(17, 20)
    for low, high in ((0.0, 1.0), (-1.0, 1.0)):
        interval = bounded_interval([high] * 17 + [low] * 3, (low, high))
        assert [(end - low) / (high - low) for end in (interval.low, interval.high)] == pytest.approx(expected)


def test_a_score_interval_narrows_with_the_spread():
    """Values within the range have a narrower interval than right and wrong answers of the same mean, within bounds."""
    outcomes = bounded_interval([1.0] * 25 + [0.0] * 25)
    values = bounded_interval(RNG.uniform(0.3, 0.7, size=50))
    assert values.high - values.low < outcomes.high - outcomes.low
    assert 0 <= values.low < values.mean < values.high <= 1


def test_few_values_that_differ_do_not_narrow_an_interval():
    """If few values differ from the rest, each counts as one outcome: rare values may be unobserved."""
    few = bounded_interval([1.0] * 45 + [0.9] * 5)
    assert few.high - few.low == pytest.approx(np.subtract(*wilson_interval(49.5, 50)[::-1]))


@pytest.mark.parametrize("queries", [40, 1200])
def test_the_interval_of_a_share_of_noise_holds_its_estimate(queries):
    """The bootstrap of some queries and the formula for many both give an interval about the share of noise."""
    values = np.repeat(RNG.normal(0.5, 0.2, size=queries), 3) + RNG.normal(0, 0.1, size=3 * queries)
    noise = split_variance(values, np.repeat(np.arange(queries), 3)).noise
    assert 0 < noise.low < noise.mean < noise.high < 0.5
