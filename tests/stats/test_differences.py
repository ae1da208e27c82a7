"""Differences with intervals: scipy's bootstrap as an oracle, laws, and what cannot be told."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.stats.bootstrap import cluster_error, encode_clusters, expand_confidence, tabulate_clusters
from ragfault.stats.differences import paired_difference, paired_differences, unpaired_differences
from ragfault.stats.distributions import t_quantile
from ragfault.stats.estimates import Difference
from ragfault.stats.intervals import standard_error
from ragfault.stats.significance import equivalence_test, holm_adjust

RNG = np.random.default_rng(20)
BEFORE = RNG.beta(5, 2, size=40)
AFTER = np.clip(BEFORE + RNG.normal(-0.05, 0.2, size=40), 0, 1)

scores = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30)


@pytest.mark.parametrize("n", [8, 17, 40, 250])
def test_the_paired_interval_equals_scipys_bca(n: int):
    """With the same seed and the expanded confidence it is scipy's BCa, digit for digit; below 200, or t if wider."""
    before, after = np.resize(BEFORE, n), np.resize(AFTER, n)
    change = after - before
    difference = paired_difference(before, after, resamples=1999, seed=3)
    theirs = scipy.stats.bootstrap(
        (change,),
        np.mean,
        n_resamples=1999,
        confidence_level=expand_confidence(0.95, n - 1),
        method="BCa",
        rng=np.random.default_rng(3),
    ).confidence_interval
    t = scipy.stats.ttest_1samp(change, 0).confidence_interval()
    ends = (theirs.low, theirs.high) if n >= 200 else (min(theirs.low, t.low), max(theirs.high, t.high))
    assert (difference.low, difference.high) == pytest.approx(ends, abs=1e-12)
    assert difference.method == "bca"


@pytest.mark.parametrize(("m", "n"), [(30, 40), (210, 260)])
def test_the_unpaired_interval_equals_scipys_bca(m: int, n: int):
    """The same for two samples of unequal size: both are resampled, candidate first."""
    before, after = np.resize(BEFORE, m), np.resize(AFTER, n) ** 3
    [difference] = unpaired_differences(before, after, resamples=1999, seed=5)
    welch = scipy.stats.ttest_ind(after, before, equal_var=False)
    assert difference.df == pytest.approx(welch.df)
    theirs = scipy.stats.bootstrap(
        (after, before),
        lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis),
        n_resamples=1999,
        confidence_level=expand_confidence(0.95, difference.df),
        method="BCa",
        rng=np.random.default_rng(5),
    ).confidence_interval
    t = welch.confidence_interval()
    ends = (theirs.low, theirs.high) if m >= 200 else (min(theirs.low, t.low), max(theirs.high, t.high))
    assert (difference.low, difference.high) == pytest.approx(ends, abs=1e-12)


def test_without_resamples_the_interval_is_scipys_t():
    """resamples=0 gives the intervals of ttest_rel and of Welch's ttest_ind."""
    ours = paired_difference(BEFORE, AFTER, resamples=0)
    theirs = scipy.stats.ttest_rel(AFTER, BEFORE).confidence_interval()
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    [ours] = unpaired_differences(BEFORE[:25], AFTER, resamples=0)
    theirs = scipy.stats.ttest_ind(AFTER, BEFORE[:25], equal_var=False).confidence_interval()
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


def test_the_published_mean_difference():
    """The mean difference and the t test of mlflow's example, through the two-sided t interval that just touches 0."""
    # golden: mlflow/mlflow tests/genai/evaluate/test_comparison.py::test_compare_evaluations_dispatches_on_value_type
    baseline = [0.1, 0.3, 0.4, 0.2, 0.6, 0.7, 0.3, 0.2]
    candidate = [0.6, 0.7, 0.9, 0.8, 0.7, 0.9, 0.6, 0.4]
    difference = paired_difference(baseline, candidate, resamples=0, confidence=1 - 0.0008296808246244138)
    assert difference.mean == pytest.approx(0.35, abs=1e-9)
    assert difference.low == pytest.approx(0, abs=1e-9)


def test_errors_are_those_of_a_single_mean():
    """The error of a paired difference is the (clustered) standard error of the differences."""
    names = [f"c{i % 7}" for i in range(40)]
    assert paired_difference(BEFORE, AFTER).error == pytest.approx(standard_error(AFTER - BEFORE))
    difference = paired_difference(BEFORE, AFTER, names)
    assert difference.error == pytest.approx(
        cluster_error(tabulate_clusters((AFTER - BEFORE)[:, None], names, None), 0)[0]
    )
    assert (difference.n, difference.clusters, difference.cluster_size) == (40, 7, 40 / 7)
    assert 5.9 < difference.df < 6  # by Satterthwaite, for the clusters have 5 and 6 pairs
    assert difference.deviation == pytest.approx(difference.error * math.sqrt(40))


def test_many_metrics_equal_each_alone():
    """A table of metrics gives what each metric gives by itself, and a missing pair is as if it had never been."""
    before, after = RNG.uniform(size=(25, 4)), RNG.uniform(size=(25, 4))
    for i, together in enumerate(paired_differences(before, after)):
        assert together is not None
        assert _ends(together) == pytest.approx(_ends(paired_difference(before[:, i], after[:, i])))
    defined = RNG.uniform(size=(25, 4)) < 0.7
    defined[:, 3] = False
    before[~defined] = math.nan
    difference = paired_differences(before, after, defined=defined, resamples=0)
    for i in range(3):
        there = defined[:, i]
        alone = paired_difference(before[there, i], after[there, i], resamples=0)
        assert difference[i] is not None
        assert (difference[i].mean, difference[i].low, difference[i].n) == pytest.approx(
            (alone.mean, alone.low, alone.n)
        )
    assert difference[3] is None


def test_missing_pairs_widen_the_bootstrap_as_they_should():
    """With a third of the pairs missing, BCa of the table is near BCa of the pairs that are there."""
    before, after = RNG.uniform(size=(300, 1)), RNG.uniform(size=(300, 1))
    there = RNG.uniform(size=(300, 1)) < 0.66
    difference = paired_differences(before, after, defined=there, resamples=5000)[0]
    alone = paired_difference(before[there], after[there], resamples=5000)
    assert difference is not None
    assert (difference.low, difference.high) == pytest.approx(
        (alone.low, alone.high), abs=0.05 * (alone.high - alone.low)
    )


def test_large_samples_agree_between_bootstrap_and_t():
    """At 5,000 skewed pairs BCa is Student's interval to a twentieth of its width, the noise of 2,000 resamples."""
    rng = np.random.default_rng(8)
    before = rng.beta(8, 1, size=5000)
    after = before * np.where(rng.uniform(size=5000) < 0.2, rng.beta(1, 3, size=5000), 1)
    bca, t = paired_difference(before, after), paired_difference(before, after, resamples=0)
    assert (bca.method, t.method) == ("bca", "t")
    assert (bca.low, bca.high) == pytest.approx((t.low, t.high), abs=0.05 * (t.high - t.low))


def test_no_difference_in_few_pairs_is_not_certain():
    """Identical runs leave room for a difference that shrinks with n, and "steady" is only said when n is enough."""
    wide = paired_difference([1.0] * 10, [1.0] * 10, bounds=(0, 1))
    assert wide.method == "sparse"
    assert -0.4 < wide.low < -0.15
    assert wide.high == -wide.low
    assert equivalence_test(wide, 0.02).p > 0.3
    assert equivalence_test(paired_difference([1.0] * 400, [1.0] * 400, bounds=(0, 1)), 0.02).p < 0.05
    names = [i // 40 for i in range(400)]
    assert equivalence_test(paired_difference([1.0] * 400, [1.0] * 400, names, bounds=(0, 1)), 0.02).p > 0.3


def test_unknown_spread_has_an_infinite_interval():
    """One cluster, or unbounded differences all alike, say nothing about spread: the interval is all there can be."""
    first = paired_difference([0.1, 0.2], [0.3, 0.9], ["c", "c"], bounds=(0, 1))
    assert (first.low, first.high, first.method) == (-1, 1, "none")
    alike = paired_difference([10.0, 20.0, 30.0], [11.0, 21.0, 31.0])
    assert (alike.low, alike.high, alike.error) == (-math.inf, math.inf, math.inf)
    assert equivalence_test(alike, 100).p == 1
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference([], [])
    assert unpaired_differences([1.0], []) == (None,)


def test_wrong_shapes_and_values_raise():
    """Shapes that differ, missing bounds and values that are not finite raise with what to do."""
    with pytest.raises(ValueError, match="same shape"):
        paired_difference([1, 2], [1])
    with pytest.raises(ValueError, match="defined"):
        paired_difference([1, math.nan], [1, 2])
    with pytest.raises(ValueError, match="2 bounds for 1 metrics"):
        paired_differences([1, 2], [2, 3], bounds=[(0, 1), (0, 1)])
    with pytest.raises(ValueError, match="defined has the shape"):
        paired_differences([1, 2], [2, 3], defined=[True])
    with pytest.raises(ValueError, match="3 clusters for 2 values"):
        paired_difference([1, 2], [2, 3], [1, 2, 3])
    with pytest.raises(ValueError, match="confidence"):
        paired_difference([1, 2], [2, 3], confidence=95)
    with pytest.raises(ValueError, match="metrics"):
        unpaired_differences(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="dimensions"):
        paired_differences(np.ones((2, 2, 2)), np.ones((2, 2, 2)))


def _ends(difference: Difference) -> tuple[float, ...]:
    return difference.mean, difference.low, difference.high


@settings(deadline=None, max_examples=60)
@given(scores)
def test_swapping_the_runs_mirrors_the_t_interval(rows: list[tuple[float, float]]):
    """Candidate against baseline is the mirror image of baseline against candidate."""
    before, after = zip(*rows, strict=True)
    first = paired_difference(before, after, bounds=(0, 1), resamples=0)
    two = paired_difference(after, before, bounds=(0, 1), resamples=0)
    assert _ends(first) == pytest.approx((-two.mean, -two.high, -two.low))


@settings(deadline=None, max_examples=60)
@given(scores, st.randoms(use_true_random=False))
def test_order_of_the_traces_changes_nothing(rows: list[tuple[float, float]], random: object):
    """Shuffling the pairs leaves mean, error and t interval as they were."""
    first = paired_difference(*zip(*rows, strict=True), bounds=(0, 1), resamples=0)
    random.shuffle(rows)
    two = paired_difference(*zip(*rows, strict=True), bounds=(0, 1), resamples=0)
    assert first.method == two.method
    assert _ends(first) == pytest.approx(_ends(two), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(8, 30), st.integers(0, 99), st.sampled_from([0.01, 0.5, 3.0, 1000.0]))
def test_a_change_of_unit_changes_only_the_unit(n: int, seed: int, unit: float):
    """Scaling the values and their bounds scales mean, interval and error, bootstrap included."""
    rng = np.random.default_rng(seed)
    before, after = rng.uniform(size=n), rng.uniform(size=n)
    first = paired_difference(before, after, bounds=(0, 1), resamples=300)
    two = paired_difference(unit * before, unit * after, bounds=(0, unit), resamples=300)
    assert [unit * end for end in _ends(first)] == pytest.approx(list(_ends(two)))


@settings(deadline=None, max_examples=60)
@given(scores, st.integers(0, 3))
def test_the_interval_holds_the_mean_and_stays_within_reach(rows: list[tuple[float, float]], seed: int):
    """low ≤ mean ≤ high between -1 and 1, and the same seed gives the same interval."""
    before, after = zip(*rows, strict=True)
    difference = paired_difference(before, after, bounds=(0, 1), resamples=200, seed=seed)
    assert -1 <= difference.low <= difference.mean <= difference.high <= 1
    assert difference == paired_difference(before, after, bounds=(0, 1), resamples=200, seed=seed)


def test_clusters_may_be_named_by_anything():
    """Integers near or far, negative ones, strings, tuples and arrays of them name the same clusters."""
    names = [3, 1, 3, 2, 1, 3]
    expected = cluster_error(tabulate_clusters(np.arange(6.0)[:, None], names, None), 0)
    for other in (
        np.array(names),
        np.array(names) * 10**12,
        -np.array(names),
        np.array(names, dtype=np.uint8),
        [str(n) for n in names],
        np.array([str(n) for n in names]),
        [(n, None) for n in names],
    ):
        assert cluster_error(tabulate_clusters(np.arange(6.0)[:, None], other, None), 0) == expected
    index, count = encode_clusters(np.array([7, 7, 9]), 3)
    assert (index.tolist(), count) == ([0, 0, 1], 2)
    assert tabulate_clusters(np.ones((6, 2)), names, None).counts.tolist() == [[3, 3], [2, 2], [1, 1]]


def test_equivalence_is_inclusion_of_the_ninety_percent_interval():
    """p < 0.05 exactly where the 90 % t interval lies within the margin; the two sides are scipy's one-sided tests."""
    difference = paired_difference(BEFORE, AFTER)
    for margin in np.linspace(0.005, 0.3, 60):
        shown = equivalence_test(difference, float(margin))
        assert (shown.p < 0.05) == (-margin < shown.low and shown.high < margin)
        change = AFTER - BEFORE
        drop = scipy.stats.ttest_1samp(change, -margin, alternative="greater").pvalue
        rise = scipy.stats.ttest_1samp(change, margin, alternative="less").pvalue
        assert (shown.p_drop, shown.p_rise) == pytest.approx((drop, rise))
        assert shown.p == max(shown.p_drop, shown.p_rise)
    t = t_quantile(0.95, 39)
    assert shown.high - shown.low == pytest.approx(2 * t * difference.error)
    with pytest.raises(ValueError, match="margin"):
        equivalence_test(difference, 0)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_the_closure_by_bonferroni(p: list[float]):
    """The adjusted p is the largest of (m - rank) times p so far; it keeps the order and never falls below p."""
    adjusted = holm_adjust(p)
    order = sorted(range(len(p)), key=lambda i: p[i])
    threshold = 0.0
    for rank, i in enumerate(order):
        threshold = max(threshold, min(1.0, (len(p) - rank) * p[i]))
        assert adjusted[i] == pytest.approx(threshold)
    assert all(a >= b for a, b in zip(adjusted, p, strict=True))


def test_holm_equals_published_values():
    """Holm's adjusted values of R's p.adjust for five p values; a p outside 0 to 1 raises."""
    # worked by hand from Holm (1979): sorted p times 5, 4, 3, 2, 1, made monotone
    assert holm_adjust([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    with pytest.raises(ValueError, match="outside"):
        holm_adjust([0.2, 1.2])
