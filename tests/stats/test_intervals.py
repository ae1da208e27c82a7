"""Means with intervals: golden values, scipy as an oracle, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.stats.bootstrap import Clusters, Values, as_matrix, cluster_error, tabulate_clusters
from ragfault.stats.distributions import binomial_cdf, normal_cdf, normal_quantile, t_cdf, t_quantile
from ragfault.stats.intervals import mean_interval, standard_error, wilson_interval


def test_t_quantiles_equal_published_values():
    """The 0.975 quantiles of Student's t for 1 to 1000 degrees of freedom, and scipy's over a grid."""
    # golden: UKGovernmentBEIS/inspect_ai tests/scorer/test_metric.py::test_t_inv_cdf_known_values
    known = {
        1: 12.706204736432095,
        2: 4.302652729911275,
        4: 2.7764451051977987,
        9: 2.2621571627409915,
        30: 2.0422724563012373,
        1000: 1.9623390808264078,
    }
    for df, expected in known.items():
        assert t_quantile(0.975, df) == pytest.approx(expected, abs=1e-9)
    scipy = pytest.importorskip("scipy.stats")
    for df in (1, 1.5, 3, 7, 50, 400, 1e5):
        for p in (0.001, 0.05, 0.2, 0.5001, 0.9, 0.995, 0.9999):
            assert t_quantile(p, df) == pytest.approx(float(scipy.t.ppf(p, df)), rel=1e-8, abs=1e-9)


def test_distributions_equal_scipys():
    """The t, normal and binomial distribution functions keep their digits in the tails."""
    scipy = pytest.importorskip("scipy.stats")
    for t, df in ((-40, 7), (-2.5, 3.5), (-1e-3, 1e6), (0, 4), (3, 12), (-6, 1e5)):
        assert t_cdf(t, df) == pytest.approx(float(scipy.t.cdf(t, df)), rel=1e-9)
    for z in (-30, -8, -1, 0, 2.5):
        assert normal_cdf(z) == pytest.approx(float(scipy.norm.cdf(z)), rel=1e-12)
    for p in (1e-12, 0.3, 0.999):
        assert normal_quantile(p) == pytest.approx(float(scipy.norm.ppf(p)), rel=1e-12)
    assert (normal_quantile(0), normal_quantile(1)) == (-math.inf, math.inf)
    for k, n, p in ((-1, 3, 0.5), (3, 3, 0.2), (2, 14, 0.5), (40, 90, 0.3), (49_700, 100_000, 0.5)):
        assert binomial_cdf(k, n, p) == pytest.approx(float(scipy.binom.cdf(k, n, p)), rel=1e-9)


def test_wilson_equals_published_values():
    """8 of 10 gives 0.4902 to 0.9433, and scipy's interval for any count."""
    # golden: mlflow/mlflow tests/genai/evaluate/test_statistics.py::test_wilson_interval_reference_values
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    scipy = pytest.importorskip("scipy.stats")
    for successes, n in ((0, 5), (5, 5), (3, 40), (999, 1000)):
        expected = scipy.binomtest(successes, n).proportion_ci(method="wilson")
        assert wilson_interval(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def clustered_standard_error(values: Values, clusters: Clusters) -> float:
    """Return the standard error of the mean of values that are correlated within clusters."""
    return cluster_error(tabulate_clusters(as_matrix(values), clusters, None), 0)[0]


def test_standard_errors_equal_published_values():
    """The plain and the clustered standard error of inspect_ai's examples."""
    # golden: UKGovernmentBEIS/inspect_ai tests/scorer/test_metric.py::test_stderr, test_clustered_stderr
    assert standard_error(range(10)) == pytest.approx(0.957, abs=5e-4)
    assert clustered_standard_error(range(20), [0, 1, 2, 3] * 5) == pytest.approx(0.645, abs=5e-4)


def test_clusters_of_one_change_nothing():
    """With every value its own cluster, the clustered error is the plain one."""
    values = np.random.default_rng(1).normal(size=40)
    assert clustered_standard_error(values, list(range(40))) == pytest.approx(standard_error(values))
    assert mean_interval(values, list(range(40))) == mean_interval(values)


def test_repeating_each_value_adds_no_certainty_when_clustered():
    """Ten copies of each value, clustered, give about the interval of the values alone; unclustered, far less."""
    values = np.random.default_rng(2).uniform(size=30)
    alone = mean_interval(values, bounds=(0, 1))
    copied = mean_interval(np.repeat(values, 10), list(np.repeat(np.arange(30), 10)), bounds=(0, 1))
    naive = mean_interval(np.repeat(values, 10), bounds=(0, 1))
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.02)
    assert naive.high - naive.low < 0.4 * (alone.high - alone.low)
    binary = (values > 0.5).astype(float)
    clustered = mean_interval(np.repeat(binary, 10), list(np.repeat(np.arange(30), 10)), bounds=(0, 1))
    assert clustered.high - clustered.low == pytest.approx(
        mean_interval(binary, bounds=(0, 1)).high - mean_interval(binary, bounds=(0, 1)).low, rel=0.08
    )


def test_all_perfect_is_not_certain():
    """Eight perfect scores leave room below 1; one value, or one cluster, says nothing about spread."""
    perfect = mean_interval([1.0] * 8, bounds=(0, 1))
    assert perfect.high == 1.0
    assert 0.6 < perfect.low < 0.75
    assert (mean_interval([0.7], bounds=(0, 1)).low, mean_interval([0.7], bounds=(0, 1)).high) == (0.0, 1.0)
    first = mean_interval([0.2, 0.9, 0.4], ["c", "c", "c"], bounds=(0, 1))
    assert (first.low, first.high, first.clusters) == (0.0, 1.0, 1)
    assert mean_interval([5.0]).high == math.inf


def test_values_that_are_alike_are_not_certain():
    """A few values that are all alike leave room for others, between bounds and without."""
    interval = mean_interval([0.9, 0.9], bounds=(0, 1))
    assert interval.low < 0.3
    assert mean_interval([0.5] * 200, bounds=(0, 1)).high < 0.52
    assert mean_interval([0.0, 0.0], bounds=(0, math.inf)).high == math.inf
    assert mean_interval([0.0] * 50, bounds=(0, math.inf)).high == 0.0


@pytest.mark.parametrize("n", [3, 5, 10, 30])
def test_rare_low_values_are_covered(n: int):
    """Of values that are 0.9 in 85 % of cases and else 0.2 the interval holds the mean in at least 92 %."""
    rng = np.random.default_rng(n)
    sample = np.where(rng.uniform(size=(2000, n)) < 0.85, 0.9, 0.2)
    truth = 0.85 * 0.9 + 0.15 * 0.2
    interval = [mean_interval(row, bounds=(0, 1)) for row in sample]
    assert np.mean([values.low <= truth <= values.high for values in interval]) >= 0.92


@pytest.mark.parametrize("groups", [3, 5, 10])
def test_few_clusters_of_binary_values_are_covered(groups: int):
    """With few conversations of 0/1 outcomes that move together the interval still holds the mean in 92 %."""
    rng = np.random.default_rng(groups)
    hits = 0
    for _ in range(1500):
        chances = rng.beta(2, 2, size=groups)
        values = (rng.uniform(size=(groups, 8)) < chances[:, None]).astype(float).ravel()
        interval = mean_interval(values, np.repeat(np.arange(groups), 8), bounds=(0, 1))
        hits += interval.low <= 0.5 <= interval.high
    assert hits / 1500 >= 0.92


@pytest.mark.parametrize("groups", [5, 8, 20])
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_uneven_clusters_are_covered(groups: int, shared: float):
    """With one cluster that holds half of the values the interval still holds the mean in 93 %."""
    rng = np.random.default_rng(groups)
    index = np.repeat(np.arange(groups), [8 * (groups - 1)] + [8] * (groups - 1))
    effects = shared * rng.normal(size=(600, groups))
    samples = effects[:, index] + rng.normal(size=(600, index.size))
    intervals = [mean_interval(sample, index) for sample in samples]
    assert np.mean([interval.low <= 0 <= interval.high for interval in intervals]) >= 0.93


@pytest.mark.parametrize("n", [20, 50, 200])
def test_means_of_skewed_values_are_covered(n: int):
    """For values near an end of the range, and without a range, the interval holds the mean in about 93 %."""
    rng = np.random.default_rng(n)
    near_end = [mean_interval(sample, bounds=(0, 1)) for sample in rng.beta(0.5, 5, size=(1500, n))]
    waiting = [mean_interval(sample, bounds=(0, math.inf)) for sample in rng.lognormal(0, 1, size=(1500, n))]
    for intervals, truth in ((near_end, 0.5 / 5.5), (waiting, math.exp(0.5))):
        assert np.mean([interval.low <= truth <= interval.high for interval in intervals]) >= 0.925


def test_equal_clusters_have_their_number_less_one_degrees_of_freedom():
    """Satterthwaite's degrees of freedom are clusters less 1 for one size, and far fewer where one cluster is half."""
    values = np.random.default_rng(3).normal(size=(80, 1))
    equal = tabulate_clusters(values, np.repeat(np.arange(10), 8), None)
    half = tabulate_clusters(values, np.repeat(np.arange(11), [40] + [4] * 10), None)
    assert cluster_error(equal, 0)[1] == pytest.approx(9)
    assert cluster_error(half, 0)[1] < 4


def test_no_values_have_no_mean():
    """An empty sample raises instead of giving 0."""
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.data())
def test_the_interval_holds_the_mean_and_stays_in_bounds(values: list[float], data: st.DataObject):
    """low ≤ mean ≤ high inside the bounds, whatever the order of the values."""
    interval = mean_interval(values, bounds=(0, 1))
    assert 0 <= interval.low <= interval.mean + 1e-12
    assert interval.mean - 1e-12 <= interval.high <= 1
    shuffled = mean_interval(data.draw(st.permutations(values)), bounds=(0, 1))
    assert (shuffled.low, shuffled.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("n", [8, 30, 200])
@pytest.mark.parametrize("kind", ["binary", "uniform", "clustered"])
def test_the_interval_covers_the_truth(n: int, kind: str):
    """Over 1,500 samples the 95 % interval holds the true mean in at least 92 % (seeded)."""
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(1500):
        clusters = None
        if kind == "binary":
            values = (rng.uniform(size=n) < 0.7).astype(float)
            truth = 0.7
        elif kind == "uniform":
            values, truth = rng.uniform(size=n), 0.5
        else:
            clusters = list(np.repeat(np.arange(n), 3))
            shift = np.repeat(rng.uniform(-0.3, 0.3, size=n), 3)
            values, truth = 0.5 + shift + rng.uniform(-0.2, 0.2, size=3 * n), 0.5
        interval = mean_interval(values, clusters, bounds=(0, 1))
        hits += interval.low <= truth <= interval.high
    assert hits / 1500 >= 0.92
