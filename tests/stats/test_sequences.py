"""Change points and confidence sequences: their laws, their level, and the formulas of their papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.stats.sequences import (
    MAX_BETTING_VALUES,
    _compute_bernstein_band,
    _compute_betting_band,
    confidence_sequence,
    detect_mean_shifts,
    locate_change_point,
)

units = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def test_a_change_is_located_at_its_step():
    """A fall of two deviations after step 30 is found there."""
    rng = np.random.default_rng(1)
    values = rng.normal(0.8, 0.1, size=50)
    values[30:] -= 0.2
    change = locate_change_point(values)
    assert abs(change.step - 30) <= 1
    assert change.low <= 30 <= change.high


@pytest.mark.long
def test_the_interval_contains_the_true_step():
    """Of 300 falls by one deviation at least 95 % have their step in the interval, but for chance."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(300):
        change = locate_change_point(rng.normal(0, 1, size=40) - (np.arange(40) >= 25), resamples=199)
        covered += change.low <= 25 <= change.high
    assert covered / 300 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.1, 100), st.floats(-5, 5))
def test_a_change_knows_neither_unit_nor_direction(seed: int, unit: float, shift: float):
    """Scaling, shifting and negating a sequence keep the step and its interval."""
    values = np.random.default_rng(seed).uniform(size=12)
    assert locate_change_point(values, resamples=99) == locate_change_point(shift - unit * values, resamples=99)


def test_a_change_needs_two_finite_steps():
    """A single step, a table, or a missing value raises."""
    for wrong in ([0.5], np.empty((0, 4))):
        with pytest.raises(ValueError, match="two steps"):
            locate_change_point(wrong)
    with pytest.raises(ValueError, match="not finite"):
        locate_change_point([0.5, math.nan])


def _capital(values: np.ndarray, mean: float, alpha: float) -> float:
    """Return the hedged capital against one mean, value by value, as in Waudby-Smith & Ramdas (2024)."""
    up = down = 1.0
    total, squares, variance = 0.5, 0.25, 0.25
    best = 0.0
    for t, x in enumerate(values, start=1):
        bet = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(t + 1)))
        up *= 1 + min(bet, 0.5 / mean) * (x - mean)
        down *= 1 - min(bet, 0.5 / (1 - mean)) * (x - mean)
        best = max(best, up / 2, down / 2)
        total += x
        squares += (x - total / (t + 1)) ** 2
        variance = squares / (t + 1)
    return best


def test_a_bad_step_between_good_ones_has_two_shifts():
    """A dip is found with its start and its end, a lasting change with its start, and a steady metric with none."""
    rng = np.random.default_rng(5)
    steady, dip, drop = (rng.binomial(1, 0.9, (120, 6)).astype(float) for _ in range(3))
    dip[:, 2] = rng.binomial(1, 0.5, 120)
    drop[:, 4:] = rng.binomial(1, 0.5, (120, 2))
    dip[:20] = math.nan  # not scored: left out
    results = detect_mean_shifts([steady, dip, drop])
    assert [[shift.step for shift in result.shifts] for result in results] == [[], [2, 3], [4]]
    assert all(shift.low <= shift.step <= shift.high for result in results for shift in result.shifts)


@pytest.mark.long
def test_shifts_are_claimed_at_their_level():
    """Over 150 sets of five unchanged, related metrics at most 13 claim any shift (5 %, and two standard errors)."""
    rng = np.random.default_rng(6)
    wrong = 0
    for trial in range(150):
        shared = rng.normal(size=(40, 4))
        tables = [(shared + rng.normal(size=(40, 4)) > 1).astype(float) for _ in range(5)]
        wrong += any(result.shifts for result in detect_mean_shifts(tables, seed=trial))
    assert wrong <= 13


def test_traces_of_one_cluster_count_once():
    """Ten copies of each of twelve rows show no more than the twelve rows."""
    rows = np.random.default_rng(7).normal(size=(12, 4)) + np.array([0, 0, 0.4, 0.4])
    alone = detect_mean_shifts([rows])[0]
    copied = detect_mean_shifts([np.repeat(rows, 10, axis=0)], np.repeat(np.arange(12), 10))[0]
    assert copied.p == pytest.approx(alone.p, abs=0.02)


def test_the_band_is_that_of_the_paper():
    """Means outside the final band have made a bettor rich, means inside by more than a grid step have not."""
    values = np.random.default_rng(6).beta(2, 5, size=150)
    band = confidence_sequence(values)
    low, high = float(band.low[-1]), float(band.high[-1])
    for mean in (low - 0.001, high + 0.001, 0.001, 0.999):
        assert _capital(values, mean, 0.05) >= 1 / 0.05 * (1 - 1e-9)
    for mean in (low + 0.0021, high - 0.0021, values.mean()):
        assert _capital(values, mean, 0.05) < 1 / 0.05


def test_empirical_bernstein_is_that_of_the_paper():
    """The closed form equals theorem 2 written out value by value."""
    values = np.random.default_rng(7).beta(2, 5, size=50)
    floor, roof = _compute_bernstein_band(values, 0.05)
    bets = weighted = cost = 0.0
    total, squares, variance, mean = 0.5, 0.25, 0.25, 0.5
    for t, x in enumerate(values, start=1):
        bet = min(0.5, math.sqrt(2 * math.log(2 / 0.05) / (variance * t * math.log(t + 1))))
        bets, weighted = bets + bet, weighted + bet * x
        cost += 4 * (x - mean) ** 2 * (-math.log(1 - bet) - bet) / 4
        total += x
        mean = total / (t + 1)
        squares += (x - mean) ** 2
        variance = squares / (t + 1)
        half = (math.log(2 / 0.05) + cost) / bets
        assert floor[t - 1] == pytest.approx(max(0, weighted / bets - half))
        assert roof[t - 1] == pytest.approx(min(1, weighted / bets + half))
    assert (_compute_betting_band(values, 0.05)[0][-1], _compute_betting_band(values, 0.05)[1][-1]) > (floor[-1], 0)


@pytest.mark.long
def test_looking_after_every_value_stays_valid():
    """Over 400 sequences of 300 values the band ever misses the true mean in far fewer than 5 %."""
    rng = np.random.default_rng(8)
    missed = 0
    for number in range(400):
        chance = (0.5, 0.8, 0.97)[number % 3]
        band = confidence_sequence((rng.uniform(size=300) < chance).astype(float))
        missed += bool(((band.low > chance) | (band.high < chance)).any())
    assert missed / 400 <= 0.05


@settings(deadline=None, max_examples=40)
@given(units)
def test_a_band_only_narrows(values: list[float]):
    """low never falls, high never rises, and the band mirrors when the values do."""
    band = confidence_sequence(values)
    assert (np.diff(band.low) >= 0).all()
    assert (np.diff(band.high) <= 0).all()
    assert (band.low <= band.high).all()
    assert band.n == len(values)
    mirrored = confidence_sequence(1 - np.array(values))
    assert mirrored.low == pytest.approx(1 - band.high, abs=2.1e-3)


def test_other_bounds_are_shifted_units():
    """A band in other bounds is the unit band, stretched."""
    values = np.random.default_rng(9).uniform(size=80)
    unit, wide = confidence_sequence(values), confidence_sequence(10 + 5 * values, (10, 15))
    assert wide.low == pytest.approx(10 + 5 * unit.low)
    assert wide.mean == pytest.approx(10 + 5 * unit.mean)


def test_long_sequences_go_on_in_closed_form():
    """Past 20,000 values the band goes on narrowing, and still holds the mean."""
    values = (np.random.default_rng(11).uniform(size=MAX_BETTING_VALUES + 20_000) < 0.9).astype(float)
    band = confidence_sequence(values)
    assert band.low[-1] <= 0.9 <= band.high[-1]
    assert band.high[-1] - band.low[-1] < 0.02
    assert (np.diff(band.low) >= 0).all()


def test_values_outside_the_bounds_raise():
    """A confidence sequence needs finite bounds, values within them, and at least one."""
    with pytest.raises(ValueError, match="outside"):
        confidence_sequence([0.5, 1.5])
    with pytest.raises(ValueError, match="outside"):
        confidence_sequence([0.5, math.nan])
    with pytest.raises(ValueError, match="finite"):
        confidence_sequence([0.5], (0, math.inf))
    with pytest.raises(ValueError, match="no values"):
        confidence_sequence([])
