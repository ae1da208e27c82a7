"""Power and sample size: scipy's noncentral t as an oracle, and laws that tie the functions together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.stats.differences import paired_difference
from ragfault.stats.power import (
    FurtherMoves,
    compute_power,
    detectable_effect,
    equivalence_power,
    required_equivalence_pairs,
    required_pairs,
    typical_jump,
)
from ragfault.stats.significance import equivalence_test, mcnemar_test, sign_flip_test


@pytest.mark.parametrize("n", [2, 3, 8, 30, 200, 5000])
@pytest.mark.parametrize("effect", [0.0, 0.01, 0.1, 0.4])
@pytest.mark.parametrize("alpha", [0.05, 0.0025])
def test_power_is_that_of_the_noncentral_t(n: int, effect: float, alpha: float):
    """The power of the two-sided paired t test equals scipy's noncentral t distribution, small n included."""
    df, shift = n - 1, effect / 0.2 * math.sqrt(n)
    t = scipy.stats.t.ppf(1 - alpha / 2, df)
    theirs = scipy.stats.nct.sf(t, df, shift) + np.nan_to_num(scipy.stats.nct.cdf(-t, df, shift))
    assert compute_power(effect, 0.2, n, alpha=alpha) == pytest.approx(theirs, abs=1e-8)


def test_power_without_an_effect_is_alpha():
    """The chance to find what is not there is the level of the test."""
    assert compute_power(0, 1, 12, alpha=0.03) == pytest.approx(0.03, abs=1e-9)
    assert equivalence_power(1e-9, 1, 12) == pytest.approx(0, abs=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 3000), st.floats(0.01, 2), st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from([0.05, 0.004]))
def test_detectable_and_required_are_inverse(n: int, deviation: float, chance: float, alpha: float):
    """n pairs are what their own smallest detectable effect requires."""
    effect = detectable_effect(deviation, n, power=chance, alpha=alpha)
    assert compute_power(effect, deviation, n, alpha=alpha) == pytest.approx(chance, abs=1e-6)
    assert required_pairs(effect, deviation, power=chance, alpha=alpha) == n


@settings(deadline=None, max_examples=25)
@given(st.floats(0.02, 1), st.floats(0.01, 0.5))
def test_required_is_the_smallest_number(effect: float, deviation: float):
    """One pair less does not reach the power, for a difference and for steadiness."""
    for need, chance in ((required_pairs, compute_power), (required_equivalence_pairs, equivalence_power)):
        n = need(effect, deviation)
        assert n is not None
        assert chance(effect, deviation, n) >= 0.8 - 1e-9
        assert n == 2 or chance(effect, deviation, n - 1) < 0.8


def test_more_certainty_needs_more_pairs():
    """Required n grows with power, with clusters' size, and as alpha, effect or margin shrink."""
    base = required_pairs(0.05, 0.2)
    assert base == 128
    assert required_pairs(0.05, 0.2, power=0.9) > base
    assert required_pairs(0.05, 0.2, alpha=0.05 / 8) > base
    assert required_pairs(0.04, 0.2) > base
    assert required_pairs(0.05, 0.2, 4.0) > base
    assert required_equivalence_pairs(0.02, 0.2) > required_equivalence_pairs(0.05, 0.2)


@pytest.mark.parametrize("tests", [1, 4, 12, 39])
def test_a_change_of_the_detectable_size_is_shown_in_pairs_that_do_not_move_by_chance(tests: int):
    """Falls from 1 to 0 of the detectable share reach McNemar's corrected test in 80 % of samples, and not always."""
    n, alpha = 200, 0.05 / tests
    effect = detectable_effect(0.02, n, alpha=alpha, moves=FurtherMoves(1.0))
    fell = np.random.default_rng(tests).binomial(n, effect, size=4000)
    power = np.mean([mcnemar_test(0, int(count)) <= alpha for count in fell])
    assert 0.78 <= power <= 0.97


@given(st.floats(0.01, 0.5), st.floats(0.05, 1), st.floats(0, 0.2))
def test_the_detectable_change_with_a_jump_requires_its_own_pairs(deviation: float, jump: float, seen: float):
    """With further moves by a jump, n pairs are still what their own smallest detectable effect requires."""
    effect = detectable_effect(deviation, 300, moves=FurtherMoves(jump, seen))
    if effect > seen or effect == pytest.approx(detectable_effect(deviation, 300)):
        assert required_pairs(effect, deviation, moves=FurtherMoves(jump, seen)) == 300


def test_a_plan_counts_on_larger_moves_than_those_seen():
    """The jump is half the range at least, and all of it where hardly anything moved."""
    assert typical_jump([0.1, -0.1] * 20, reach=1.0) == 0.5
    assert typical_jump([1.0, -1.0] * 20, reach=1.0) == 1.0
    assert typical_jump([0.1, 0, 0], reach=1.0) == 1.0
    assert typical_jump([2.0, 0, 0]) == 2.0
    assert typical_jump([0.5] * 40, [i // 2 for i in range(40)], reach=1.0) == 1.0


def test_what_no_number_can_tell():
    """An unknown deviation requires None and detects nothing; an effect of 0 or a power of 1 raises."""
    assert required_pairs(0.05, math.inf) is None
    assert required_equivalence_pairs(0.05, math.inf) is None
    assert detectable_effect(math.inf, 50) == math.inf
    assert detectable_effect(0.2, 3, 2.0) == math.inf
    assert required_pairs(1e-9, 1e3) is None
    with pytest.raises(ValueError, match="effect is 0"):
        required_pairs(0, 0.2)
    with pytest.raises(ValueError, match="margin"):
        required_equivalence_pairs(0, 0.2)
    with pytest.raises(ValueError, match="power"):
        detectable_effect(0.2, 50, power=1)
    with pytest.raises(ValueError, match="two clusters"):
        compute_power(0.1, 0.2, 1)
    with pytest.raises(ValueError, match="deviation"):
        compute_power(0.1, 0, 10)


def test_simulated_power_is_the_planned_one():
    """Simulated runs of the required size find the effect, and show steadiness, about as often as planned."""
    rng = np.random.default_rng(11)
    n, steady = required_pairs(0.1, 0.2), required_equivalence_pairs(0.1, 0.2)
    rate = shown = 0
    for _ in range(400):
        before, noise = rng.uniform(size=max(n, steady)), rng.normal(0, 0.2, size=max(n, steady))
        rate += sign_flip_test(before[:n], before[:n] + 0.1 + noise[:n], resamples=399).p <= 0.05
        same = paired_difference(before[:steady], before[:steady] + noise[:steady], resamples=0)
        shown += equivalence_test(same, 0.1).p < 0.05
    assert rate / 400 == pytest.approx(0.8, abs=0.06)
    assert shown / 400 == pytest.approx(0.8, abs=0.06)
