"""Quantiles and ratios: hand-worked ends, exact coverage, invariances and permutation tests."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.stats.distributions import binomial_cdf
from ragfault.stats.quantiles import paired_ratio, quantile_changes, quantile_interval, ratio_interval
from ragfault.stats.significance import mcnemar_test, sign_flip_test

DRAWS = np.random.default_rng(7)
OLD, NEW = DRAWS.lognormal(size=120), DRAWS.lognormal(size=120)


def test_ends_are_the_order_statistics_of_the_binomial():
    """Of ten values the median's ends are the 2nd and the 9th: P(B ≤ 1) = 11/1024 ≤ 0.025 < P(B ≤ 2) = 56/1024."""
    result = quantile_interval([7, 3, 9, 1, 10, 2, 8, 4, 6, 5], 0.5)
    assert (result.value, result.low, result.high, result.reason) == (5, 2, 9, None)


def test_coverage_of_the_ranks_is_at_least_nominal():
    """For every n to 120 and p50, p95, p99, an end misses with a probability of at most 0.025, just so."""
    for n, quantile in product(range(2, 121), (0.5, 0.95, 0.99)):
        result = quantile_interval(range(1, n + 1), quantile)
        if result.low is not None:
            low = int(result.low)
            assert binomial_cdf(low - 1, n, quantile) <= 0.025 < binomial_cdf(low, n, quantile)
        if result.high is not None:
            high = int(result.high)
            assert 1 - binomial_cdf(high - 1, n, quantile) <= 0.025 < 1 - binomial_cdf(high - 2, n, quantile)


@pytest.mark.parametrize(("quantile", "least"), [(0.5, 6), (0.95, 72), (0.99, 368)])
def test_the_upper_end_needs_enough_values(quantile: float, least: int):
    """One value fewer than 0.025 = quantile^n allows has no upper end, and says how many would."""
    assert quantile_interval(range(least), quantile).high == least - 1
    short = quantile_interval(range(least - 1), quantile)
    assert short.high is None
    assert f"needs about {least} values, not {least - 1}" in (short.reason or "")


@given(st.lists(st.floats(-20, 20), min_size=6, max_size=80), st.sampled_from([0.5, 0.9]))
def test_intervals_follow_a_rising_map(values: list[float], quantile: float):
    """The ends of mapped values are the mapped ends."""
    plain, mapped = (quantile_interval(sample, quantile) for sample in (values, [math.exp(v) for v in values]))
    for end in ("value", "low", "high"):
        expected = getattr(plain, end)
        assert getattr(mapped, end) == (None if expected is None else math.exp(expected))


def test_copies_within_a_cluster_add_no_certainty():
    """Ten copies of each value, clustered, give no narrower an interval than the values, and not twice as wide."""
    alone = quantile_interval(OLD, 0.5)
    copied = quantile_interval(np.repeat(OLD, 10), 0.5, np.repeat(np.arange(120), 10))
    assert None not in (alone.low, alone.high, copied.low, copied.high)
    assert copied.low <= alone.low <= alone.high <= copied.high  # type: ignore[operator]
    assert copied.high - copied.low < 2 * (alone.high - alone.low)  # type: ignore[operator]
    assert quantile_interval(OLD, 0.5, list(range(120))) == alone


def test_one_cluster_has_no_interval():
    """A single value or cluster has a quantile and no ends."""
    for result in (quantile_interval([3.0], 0.5), quantile_interval(OLD, 0.5, ["a"] * 120)):
        assert (result.low, result.high, result.clusters) == (None, None, 1)
        assert result.reason


def test_swapping_the_runs_mirrors_the_change():
    """Baseline and candidate swapped: the other sign, the same p, the mirrored interval."""
    for there, back in zip(
        quantile_changes(OLD, NEW, (0.5, 0.95)), quantile_changes(NEW, OLD, (0.5, 0.95)), strict=True
    ):
        assert (back.value, back.p) == (-there.value, there.p)
        assert (back.low, back.high) == (-there.high, -there.low)  # type: ignore[operator]


def test_no_change_is_no_finding():
    """Equal sides: a change of 0 with p = 1, at every quantile."""
    for change in quantile_changes(OLD, OLD, (0.5, 0.95, 0.99)):
        assert (change.value, change.p) == (0, 1)
    assert quantile_changes(OLD, OLD, (0.99,))[0].low is None


def test_the_test_of_a_quantile_is_mcnemars_at_the_pooled_quantile():
    """Ten of twelve pairs cross the median of both sides upwards, one downwards: McNemar's exact p of 10 and 1."""
    old, new = [1.0] * 10 + [9.0, 2.0], [8.0] * 10 + [1.5, 2.0]
    [result] = quantile_changes(old, new, (0.5,))
    assert result.p == mcnemar_test(10, 1)


def test_a_quantile_is_tested_alike_alone_and_beside_others():
    """The p of a quantile does not depend on which others are asked for, since all are swapped by the same signs."""
    clusters = [number // 2 for number in range(OLD.size)]
    together = quantile_changes(OLD, NEW, [0.5, 0.75, 0.9], clusters)
    alone = [quantile_changes(OLD, NEW, [quantile], clusters)[0] for quantile in (0.5, 0.75, 0.9)]
    assert [change.p for change in together] == [change.p for change in alone]
    assert quantile_changes(OLD, NEW, [], clusters) == ()


def test_a_change_needs_eight_clusters():
    """With seven clusters the change has no interval and says why."""
    [result] = quantile_changes(OLD[:70], NEW[:70], (0.5,), np.repeat(np.arange(7), 10))
    assert result.low is None
    assert result.reason


def test_a_longer_tail_shows_where_the_median_stays():
    """The slowest tenth takes three times as long: p95 changes, p50 does not."""
    old = DRAWS.lognormal(sigma=0.3, size=400)
    new = np.where(old > np.quantile(old, 0.9), 3 * old, old)
    median, tail = quantile_changes(old, new, (0.5, 0.95))
    assert tail.low is not None
    assert tail.low > 0
    assert tail.p < 0.001
    assert (median.value, median.p) == (0, 1)


def test_ratios_by_hand():
    """Six dollars for every four answered traces of five are 1.5 each; a dearer candidate is 2 times as dear."""
    result = ratio_interval([1, 2, 1, 1, 1] * 8, [1, 1, 1, 1, 0] * 8)
    assert result.value == pytest.approx(1.5)
    assert result.low is not None
    assert result.low < 1.5 < result.high  # type: ignore[operator]
    assert paired_ratio([1, 2, 3], [2, 5, 5]).value == pytest.approx(2)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_ratios_scale_with_their_units(first: float, second: float):
    """Units of numerator and denominator multiply the ratio and its ends."""
    plain, scaled = ratio_interval(OLD, NEW), ratio_interval(first * OLD, second * NEW)
    for end in ("value", "low", "high"):
        assert getattr(scaled, end) == pytest.approx(getattr(plain, end) * first / second)


def test_swapping_the_runs_inverts_the_ratio():
    """Candidate and baseline swapped: the inverse ratio and ends, and the same p, which is that of the means."""
    there, back = paired_ratio(OLD, NEW), paired_ratio(NEW, OLD)
    assert (1 / there.value, 1 / there.low, 1 / there.high) == pytest.approx((back.value, back.high, back.low))  # type: ignore[operator]
    assert there.p == back.p == sign_flip_test(OLD, NEW).p


def test_ratios_without_a_denominator_are_undefined():
    """A sum of 0 has no ratio; one cluster, few traces of one ratio, and a sum that may be 0 have no whole interval."""
    assert ratio_interval([1, 2], [0, 0]).value is None
    for result in (
        ratio_interval([1, 2], [2, 4]),
        ratio_interval(OLD, NEW, ["a"] * 120),
        ratio_interval([1, 2, 1, 1], [1, 0, 0, 1]),
    ):
        assert result.value is not None
        assert None in (result.low, result.high)
        assert result.reason


def test_impossible_input_is_refused():
    """No values, quantiles outside (0, 1), values that are not finite or below 0, and sides of different length."""
    for wrong in (
        lambda: quantile_interval([], 0.5),
        lambda: quantile_interval([1.0], 1.0),
        lambda: quantile_interval([math.nan, 1.0], 0.5),
        lambda: quantile_changes([1, 2], [1], (0.5,)),
        lambda: ratio_interval([-1, 2], [1, 1]),
        lambda: ratio_interval([1, 2], [1]),
    ):
        with pytest.raises(ValueError, match=r"give|below 0|undefined"):
            wrong()


@pytest.mark.long
def test_intervals_of_clustered_values_cover():
    """Over 300 samples of 20 clusters of 10 lognormal values, correlation 0.2, at least 91.5 % of intervals hold."""
    rng, clusters = np.random.default_rng(11), np.repeat(np.arange(20), 10)
    covered = np.zeros(4)
    for _ in range(300):
        old, new = (
            np.exp(math.sqrt(0.2) * rng.normal(size=20)[clusters] + math.sqrt(0.8) * rng.normal(size=200))
            for _ in range(2)
        )
        [median], ratio = quantile_changes(old, new, (0.5,), clusters), paired_ratio(old, new, clusters)
        for at, (result, true) in enumerate(
            ((median.baseline, 1.0), (median.candidate, 1.0), (median, 0.0), (ratio, 1.0))
        ):
            assert result.low is not None
            assert result.high is not None
            covered[at] += result.low <= true <= result.high
    assert (covered / 300 >= 0.915).all()
