"""Shares corrected for the error of whoever counted them: worked by hand, laws, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.stats.estimates import CorrectedShare, Interval
from ragfault.stats.intervals import correct_share, mean_interval, wilson_interval


def make_interval(share: float, n: float) -> Interval:
    """Return a share of n with Wilson's interval; of width 0 if n is infinite."""
    return Interval(share, *((share, share) if math.isinf(n) else wilson_interval(share * n, n)), 0, 0)


def correct_rate(rate: float, n: int, se: float, sp: float, sizes: tuple[float, float]) -> CorrectedShare:
    """Correct a share of n by a sensitivity and a specificity of so many labelled things."""
    return correct_share(make_interval(rate, n), make_interval(se, sizes[0]), make_interval(sp, sizes[1]))


def corrected_share(rate: float, n: int, se: float, sp: float, sizes: tuple[float, float]) -> Interval:
    """Return the corrected share where there is one."""
    interval = correct_rate(rate, n, se, sp, sizes).interval
    assert interval is not None
    return interval


def test_the_share_is_rogan_and_gladens():
    """30 % called positive with sensitivity 0.8 and specificity 0.9 are (0.3 + 0.9 − 1) / (0.8 + 0.9 − 1) = 2/7."""
    assert corrected_share(0.3, 200, 0.8, 0.9, (100, 100)).mean == pytest.approx(2 / 7)
    # 23 of 150 cows tested positive; sensitivity 0.96, specificity 0.89: 5.1 in 100 (Reiczigel, Földi & Ózsvári 2010)
    assert corrected_share(23 / 150, 150, 0.96, 0.89, (math.inf, math.inf)).mean == pytest.approx(0.051, abs=5e-4)


def test_a_known_error_maps_the_ends_of_wilsons_interval():
    """Where sensitivity and specificity are known, each end goes through the formula, as in Reiczigel et al. 2010."""
    known = corrected_share(0.3, 200, 0.8, 0.9, (math.inf, math.inf))
    low, high = wilson_interval(60, 200)
    assert known.low == pytest.approx((low - 0.1) / 0.7)
    assert known.high == pytest.approx((high - 0.1) / 0.7)


def test_a_perfect_judge_corrects_nothing():
    """With sensitivity and specificity known to be 1 the corrected interval is the interval itself."""
    low, high = wilson_interval(60, 200)
    corrected = corrected_share(0.3, 200, 1.0, 1.0, (math.inf, math.inf))
    assert (corrected.mean, corrected.low, corrected.high) == pytest.approx((0.3, low, high))


def test_fewer_labels_widen_the_interval():
    """The interval of a figure that rests on 20 labelled things holds that of one that rests on 200, and on all."""
    wide, middle, narrow = (corrected_share(0.3, 200, 0.8, 0.9, (n, n)) for n in (20, 200, math.inf))
    assert wide.low < middle.low < narrow.low < narrow.high < middle.high < wide.high


@given(
    st.integers(5, 400), st.floats(0.55, 1), st.floats(0.55, 1), st.integers(30, 400), st.integers(30, 400), st.data()
)
def test_more_called_positive_are_more_positive(n, se, sp, bad, good, data):
    """The share and both its ends never fall while the rate rises, and the share lies within its ends, in [0, 1]."""
    first, second = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    first_share, second_share = (correct_rate(count / n, n, se, sp, (bad, good)).interval for count in (first, second))
    for item in (first_share, second_share):
        assert item is None or 0 <= item.low <= item.mean <= item.high <= 1
    if first_share is not None and second_share is not None:
        slack = 1e-9
        assert first_share.mean <= second_share.mean + slack
        assert first_share.low <= second_share.low + slack
        assert first_share.high <= second_share.high + slack


@given(st.integers(0, 60), st.floats(0.6, 1), st.floats(0.6, 1))
def test_the_share_of_the_good_is_the_rest(count, se, sp):
    """Correcting the negatives, with sensitivity and specificity changed about, gives what is left of 1."""
    item = correct_rate(count / 60, 60, se, sp, (80, 90)).interval
    other = correct_rate(1 - count / 60, 60, sp, se, (90, 80)).interval
    assert (item is None) == (other is None)
    if item is not None and other is not None:
        assert (other.mean, other.low, other.high) == pytest.approx((1 - item.mean, 1 - item.high, 1 - item.low))


def test_a_rate_within_error_of_nothing_is_cut_at_0():
    """8 of 100 called positive, 10 expected in error: the share is 0, and its interval still ends above."""
    none = corrected_share(0.08, 100, 0.8, 0.9, (100, 100))
    assert (none.mean, none.low) == (0, 0)
    assert 0.02 < none.high < 0.2
    every = corrected_share(0.82, 100, 0.8, 0.9, (100, 100))
    assert (every.mean, every.high) == (1, 1)


def test_a_rate_beyond_what_the_errors_allow_is_undefined():
    """None of 200 called positive where 30 in 100 are in error: the error is another, and no share is made up."""
    fewer = correct_rate(0.0, 200, 0.8, 0.7, (200, 200))
    assert fewer.interval is None
    assert fewer.reason == (
        "fewer are called positive (0.000) than the 0.300 expected only in error: the error here is another"
    )
    more = correct_rate(1.0, 200, 0.7, 0.8, (200, 200))
    assert more.interval is None
    assert "more are called positive (1.000) than the 0.700" in (more.reason or "")


def test_a_judge_no_better_than_chance_corrects_nothing():
    """Where sensitivity + specificity ≤ 1, or may be by their intervals, the share is undefined with the reason."""
    coin = correct_rate(0.3, 200, 0.5, 0.5, (1000, 1000))
    assert coin.interval is None
    assert "no better than chance" in (coin.reason or "")
    few = correct_rate(0.3, 200, 0.7, 0.6, (10, 10))
    assert few.interval is None
    assert "do not show" in (few.reason or "")


def test_clusters_widen_the_corrected_interval():
    """Ten copies of each outcome, clustered, are corrected to about the interval of the outcomes alone."""
    outcomes = np.random.default_rng(3).integers(0, 2, size=60)
    sides = Interval(0.85, 0.8, 0.9, 200, 200), Interval(0.9, 0.85, 0.94, 200, 200)
    alone, copied, naive = (
        correct_share(mean_interval(values, groups, bounds=(0, 1)), *sides).interval
        for values, groups in (
            (outcomes, None),
            (np.repeat(outcomes, 10), list(np.repeat(np.arange(60), 10))),
            (np.repeat(outcomes, 10), None),
        )
    )
    assert alone is not None
    assert copied is not None
    assert naive is not None
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert naive.high - naive.low < 0.6 * (alone.high - alone.low)


@pytest.mark.parametrize(("n", "labelled"), [(30, 40), (300, 100)])
@pytest.mark.parametrize("truth", [0.0, 0.1, 0.5])
def test_intervals_hold_the_truth(n, labelled, truth):
    """In 19 of 20 simulated runs and labellings the corrected interval holds the true share (600, seeded)."""
    rng = np.random.default_rng(17)
    se, sp, runs = 0.8, 0.85, 600
    called = rng.binomial(n, truth * se + (1 - truth) * (1 - sp), runs)
    covered = missed = 0
    for x, y, z in zip(called, rng.binomial(labelled, se, runs), rng.binomial(labelled, sp, runs), strict=True):
        corrected = correct_rate(x / n, n, y / labelled, z / labelled, (labelled, labelled))
        if "do not show" not in (corrected.reason or ""):
            span = corrected.interval
            inside = span is not None and span.low <= truth <= span.high
            covered, missed = covered + inside, missed + (not inside)
    assert covered + missed > 0.98 * runs
    assert covered / (covered + missed) > 0.93


def test_means_of_shares_hold_the_truth():
    """The mean over traces of a share of claims, judged with error, is corrected to hold the truth (400, seeded)."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        sizes = rng.integers(1, 9, size=60)
        shares = rng.beta(0.6, 2.4, size=60)
        bad = rng.binomial(sizes, shares)
        flagged = rng.binomial(bad, 0.75) + rng.binomial(sizes - bad, 0.12)
        rate = mean_interval(flagged / sizes, bounds=(0, 1))
        sides = (mean_interval(rng.binomial(1, p, size=150), bounds=(0, 1)) for p in (0.75, 0.88))
        span = correct_share(rate, *sides).interval
        covered += span is not None and span.low <= 0.2 <= span.high
    assert covered / 400 > 0.925
