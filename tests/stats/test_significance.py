"""Permutation tests: scipy's permutation_test as an oracle, published values, and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.stats.significance import mcnemar_test, sign_flip_test, sign_flip_tests

tenths = st.integers(0, 10).map(lambda i: i / 10)


def test_mcnemar_equals_published_values():
    """The exact p of 12 against 2 and of 3 against 3; the chi-squared golden value is not applicable (not offered)."""
    # golden: mlflow/mlflow tests/genai/evaluate/test_comparison.py::test_binary_comparison_matches_scipy
    assert mcnemar_test(12, 2) == pytest.approx(0.012939453125, abs=1e-9)
    assert mcnemar_test(3, 3) == pytest.approx(1.0, abs=1e-9)


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_binomial_test(improved: int, regressed: int):
    """McNemar's exact p is scipy's two-sided binomial test of the changed pairs at one half, either way round."""
    expected = scipy.stats.binomtest(improved, improved + regressed).pvalue if improved + regressed else 1.0
    assert mcnemar_test(improved, regressed) == pytest.approx(expected, rel=1e-7, abs=1e-300)
    assert mcnemar_test(improved, regressed) == mcnemar_test(regressed, improved)


def test_mcnemar_takes_counts_only():
    """A negative count raises."""
    with pytest.raises(ValueError, match="counts"):
        mcnemar_test(-1, 3)


def test_signs_equal_published_values():
    """Eight pairs that all rise have p = 2 / 2**8, as their exact Wilcoxon test has."""
    # golden: mlflow/mlflow tests/genai/evaluate/test_comparison.py::test_compare_evaluations_dispatches_on_value_type
    baseline = [0.1, 0.3, 0.4, 0.2, 0.6, 0.7, 0.3, 0.2]
    candidate = [0.6, 0.7, 0.9, 0.8, 0.7, 0.9, 0.6, 0.4]
    test = sign_flip_test(baseline, candidate)
    assert (test.p, test.method) == (0.0078125, "exact")
    assert test.statistic == pytest.approx(0.35)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(tenths, tenths), min_size=2, max_size=10))
def test_few_signs_equal_scipys_permutation_test(rows: list[tuple[float, float]]):
    """With all sign patterns counted, ties included, p is scipy's."""
    change = np.array([after - before for before, after in rows]).round(6)
    theirs = scipy.stats.permutation_test(
        (change,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True, axis=0
    )
    test = sign_flip_test(np.zeros(len(rows)), change)
    assert test.p == pytest.approx(theirs.pvalue)
    assert test.method == "exact"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_signs_of_binary_metrics_are_mcnemar(rows: list[tuple[bool, bool]]):
    """For a 0/1 metric the sign-flip test is McNemar's exact test at every n."""
    before, after = np.array(rows, dtype=float).T
    rose, fell = int((after > before).sum()), int((after < before).sum())
    test = sign_flip_test(before, after)
    assert (test.p, test.method) == (mcnemar_test(rose, fell), "exact")


def test_random_signs_are_near_the_exact_ones():
    """Random signs give the exact p within Monte Carlo error, never 0, and the same again for the same seed."""
    rng = np.random.default_rng(3)
    change = rng.normal(0.15, 0.3, size=13)
    exact = sign_flip_test(np.zeros(13), change)
    random = sign_flip_test(np.zeros(13), change, resamples=5000)
    assert (exact.method, random.method) == ("exact", "permutation")
    assert random.p == pytest.approx(exact.p, abs=4 * math.sqrt(exact.p / 5000))
    assert random == sign_flip_test(np.zeros(13), change, resamples=5000)
    assert sign_flip_test(np.zeros(50), np.linspace(1, 2, 50), resamples=99).p == 1 / 100


def test_many_signs_are_near_the_t_test():
    """At 2,000 pairs the sign-flip p is that of the paired t test, with and without the normal limit."""
    rng = np.random.default_rng(4)
    before = rng.uniform(size=2000)
    after = before + rng.normal(0.009, 0.2, size=2000)
    theirs = scipy.stats.ttest_rel(after, before).pvalue
    assert sign_flip_test(before, after).p == pytest.approx(theirs, abs=0.01)
    wide = sign_flip_test(np.tile(before, 60), np.tile(after, 60))
    assert wide.method == "normal"
    assert wide.p == pytest.approx(scipy.stats.ttest_1samp(np.tile(after - before, 60), 0).pvalue, rel=0.2)


def test_clusters_flip_as_one():
    """Copies of each pair, clustered, give exactly the p of the pairs alone; unclustered they do not."""
    rng = np.random.default_rng(5)
    change = rng.normal(0.1, 0.3, size=10)
    names = np.repeat(np.arange(10), 4)
    alone = sign_flip_test(np.zeros(10), change)
    copied = sign_flip_test(np.zeros(40), np.repeat(change, 4), names)
    assert copied.p == alone.p
    assert (copied.n, copied.clusters) == (40, 10)
    assert sign_flip_test(np.zeros(40), np.repeat(change, 4)).p < 0.5 * alone.p


def test_tables_of_metrics_equal_each_metric_alone():
    """Many metrics tested together have the p each has by itself; a metric without pairs has none."""
    rng = np.random.default_rng(6)
    before, after = rng.uniform(size=(40, 3)), rng.uniform(size=(40, 3))
    test = sign_flip_tests(before, after, resamples=999)
    assert test == tuple(sign_flip_test(before[:, i], after[:, i], resamples=999) for i in range(3))
    defined = np.ones((40, 3), dtype=bool)
    defined[:, 1] = False
    assert sign_flip_tests(before, after, defined=defined, resamples=999)[1] is None
    with pytest.raises(ValueError, match="no pairs"):
        sign_flip_test([], [])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(tenths, tenths), min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_p_knows_neither_order_nor_direction(rows: list[tuple[float, float]], random: object):
    """Shuffled pairs and swapped runs keep p, which lies above 0 and at most at 1."""
    before, after = zip(*rows, strict=True)
    first = sign_flip_test(before, after)
    assert 0 < first.p <= 1
    assert sign_flip_test(after, before).p == pytest.approx(first.p)
    random.shuffle(rows)
    assert sign_flip_test(*zip(*rows, strict=True)).p == pytest.approx(first.p)
