"""Tests of prediction-powered means and differences: by hand, against scipy, and by coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from ragfault.stats.bootstrap import cluster_error, tabulate_clusters
from ragfault.stats.intervals import mean_interval
from ragfault.stats.ppi import MIN_LABELS, UnlabeledSums, ppi_mean, ppi_paired_difference, ppi_unpaired_difference

RNG = np.random.default_rng(11)
JUDGED = RNG.normal(0.7, 0.2, size=400)
PEOPLE = 0.1 + 0.8 * JUDGED + RNG.normal(0, 0.1, size=400)
HUMAN = np.where(np.arange(400) < 60, PEOPLE, np.nan)


def ends(estimate):
    assert estimate.interval is not None
    return estimate.interval.low, estimate.interval.high


# --- oracles ---------------------------------------------------------------------------------------


def test_without_the_judge_it_is_the_interval_of_the_labels():
    """With λ = 0 nothing of the judge is left: Student's interval of the labels, as scipy has it."""
    estimate = ppi_mean(JUDGED, HUMAN, judge_weight=0.0)
    want = scipy.stats.t.interval(0.95, 59, PEOPLE[:60].mean(), scipy.stats.sem(PEOPLE[:60]))
    assert estimate.interval.mean == pytest.approx(PEOPLE[:60].mean())
    assert ends(estimate) == pytest.approx(want)
    assert (estimate.judge_weight, estimate.width_ratio) == (0.0, pytest.approx(1.0))


def test_with_the_judge_in_full_it_is_classical_inference():
    """With λ = 1 it is the judge's mean off the labels plus the mean error on them (Angelopoulos et al. 2023)."""
    estimate = ppi_mean(JUDGED, HUMAN, judge_weight=1.0)
    off, error = JUDGED[60:], PEOPLE[:60] - JUDGED[:60]
    assert estimate.interval.mean == pytest.approx(off.mean() + error.mean())
    half = 1.96 * math.sqrt(scipy.stats.sem(off) ** 2 + scipy.stats.sem(error) ** 2)
    assert ends(estimate)[1] - estimate.interval.mean == pytest.approx(half, rel=0.03)


def test_a_perfect_judge_gives_the_interval_of_all_traces():
    """Where the judge says what people say, it is as if they had labelled everything."""
    estimate = ppi_mean(PEOPLE, HUMAN)
    assert estimate.interval.mean == pytest.approx(PEOPLE.mean())
    assert ends(estimate) == pytest.approx(scipy.stats.t.interval(0.95, 399, PEOPLE.mean(), scipy.stats.sem(PEOPLE)))
    assert estimate.judge_weight == pytest.approx(340 / 400)


def test_a_judge_that_is_off_by_a_constant_is_as_good():
    """A constant error of the judge does not widen anything, and is taken out."""
    estimate, plain = ppi_mean(JUDGED + 5, HUMAN), ppi_mean(JUDGED, HUMAN)
    assert estimate.interval.mean == pytest.approx(plain.interval.mean)
    assert ends(estimate) == pytest.approx(ends(plain))


def test_by_hand():
    """Ten labels of twelve traces, computed on paper: residuals after the slope, and the mean of the judge."""
    judged = np.array([0.0, 1.0] * 5 + [1.0, 1.0])
    people = np.array([0.1, 1.1] * 5 + [math.nan, math.nan])
    estimate = ppi_mean(judged, people)
    assert estimate.interval.mean == pytest.approx(7 / 12 + 0.1)
    assert ends(estimate)[1] - estimate.interval.mean == pytest.approx(
        scipy.stats.t.ppf(0.975, 11) * judged.std(ddof=1) / math.sqrt(12)
    )


def test_clusters_are_those_of_the_labels_alone_where_the_judge_says_nothing():
    """A judge that says one thing of all leaves the clustered interval of the labels."""
    groups = np.arange(400) // 4
    estimate = ppi_mean(np.full(400, 0.5), HUMAN, groups)
    error = cluster_error(tabulate_clusters(PEOPLE[:60, None], groups[:60], None), 0)[0]
    assert ends(estimate) == pytest.approx(scipy.stats.t.interval(0.95, 14, PEOPLE[:60].mean(), error))


def test_repeated_labels_of_a_cluster_count_once():
    """Every trace doubled within its cluster leaves mean and interval as they are."""
    groups = np.arange(400)
    twice = ppi_mean(np.repeat(JUDGED, 2), np.repeat(HUMAN, 2), np.repeat(groups, 2))
    assert ends(twice) == pytest.approx(ends(ppi_mean(JUDGED, HUMAN, groups)))


def test_traces_without_a_label_may_be_given_as_sums():
    """Their count, sum and sum of squares say all that the estimate needs of them."""
    judged, human = np.asarray(JUDGED, dtype=float), np.asarray(HUMAN, dtype=float)
    known = np.isfinite(human)
    others = judged[~known]
    rest = UnlabeledSums(others.size, float(others.sum()), float(others @ others))
    full, summed = ppi_mean(judged, human), ppi_mean(judged[known], human[known], unlabeled=rest)
    assert summed.interval.mean == pytest.approx(full.interval.mean)
    assert (summed.interval.low, summed.interval.high) == pytest.approx((full.interval.low, full.interval.high))
    assert (summed.interval.n, summed.width_ratio) == (full.interval.n, pytest.approx(full.width_ratio))


def test_equal_chances_change_nothing():
    """Only the ratios of chances matter."""
    estimate = ppi_mean(JUDGED, HUMAN, sampling_probabilities=np.full(400, 0.15))
    assert ends(estimate) == pytest.approx(ends(ppi_mean(JUDGED, HUMAN)))


def test_chances_weigh_the_labels():
    """A label of half the chance stands for twice as many traces."""
    judged = np.full(40, 0.5)
    people = np.array([0.0, 1.0] * 10 + [math.nan] * 20)
    chances = np.array([0.2, 0.4] * 10 + [math.nan] * 20)
    assert ppi_mean(judged, people, sampling_probabilities=chances).interval.mean == pytest.approx(1 / 3)


def test_a_paired_difference_is_the_mean_of_differences():
    """Paired, the result is the corrected mean of the differences of each pair."""
    after, later = JUDGED - 0.1, HUMAN - 0.15
    estimate = ppi_paired_difference((JUDGED, HUMAN), (after + JUDGED**2, later))
    want = ppi_mean(after + JUDGED**2 - JUDGED, later - HUMAN)
    assert estimate.difference.mean == pytest.approx(want.interval.mean)
    assert (estimate.labelled, estimate.difference.method, estimate.paired) == (60, "ppi", True)


def test_an_unpaired_difference_is_one_mean_less_the_other():
    """Unpaired, means are subtracted and errors added as squares."""
    other = np.where(np.arange(400) >= 330, PEOPLE, np.nan)
    estimate = ppi_unpaired_difference((JUDGED, HUMAN), (JUDGED, other))
    old, new = ppi_mean(JUDGED, HUMAN), ppi_mean(JUDGED, other)
    assert estimate.difference.mean == pytest.approx(new.interval.mean - old.interval.mean)
    assert (estimate.labelled, estimate.paired) == (130, False)
    assert 0 < estimate.p < 1


def test_the_p_of_a_difference_is_that_of_its_interval():
    """p is below 5 % exactly where the 95 % interval leaves 0 out."""
    for shift in (0.0, 0.01, 0.02, 0.04, 0.08):
        noise = np.random.default_rng(2).normal(0, 0.1, size=400)
        estimate = ppi_paired_difference((JUDGED, HUMAN), (JUDGED + noise, HUMAN + 0.5 * noise - shift))
        inside = estimate.difference.low <= 0 <= estimate.difference.high
        assert inside == (estimate.p >= 0.05)


# --- edges -----------------------------------------------------------------------------------------


def test_too_few_labels_are_undefined():
    """Below the least number of labels, or of their clusters, there is no interval but a reason."""
    few = np.where(np.arange(400) < MIN_LABELS - 1, PEOPLE, np.nan)
    assert ppi_mean(JUDGED, few).reason == "only 9 labels: at least 10 are needed"
    grouped = ppi_mean(JUDGED, HUMAN, np.arange(400) // 30)
    assert grouped.reason == "only 60 labels in 2 clusters: at least 10 are needed"
    assert ppi_paired_difference((JUDGED, few), (JUDGED, HUMAN)).difference is None
    assert ppi_unpaired_difference((JUDGED, HUMAN), (JUDGED, few)).reason.startswith("only 9 labels")


def test_where_all_are_labelled_the_judge_is_not_asked():
    """Labels on every trace are what they are."""
    estimate = ppi_mean(JUDGED, PEOPLE)
    assert (estimate.interval, estimate.judge_weight) == (mean_interval(PEOPLE), 0.0)


def test_agreement_on_few_labels_is_not_certainty():
    """A judge that is right on twenty labels may be wrong on others: the interval keeps a width."""
    judged = np.array([1.0] * 190 + [0.0] * 10)
    human = np.where(np.arange(200) % 10 == 0, judged, np.nan)
    estimate = ppi_mean(judged, human, bounds=(0, 1))
    full = mean_interval(judged, bounds=(0, 1))
    assert ends(estimate)[0] < full.low - 0.02


def test_intervals_stay_within_the_bounds():
    """Neither mean nor end leaves the range of the metric."""
    judged = np.array([0.0] * 30 + [1.0] * 170)
    estimate = ppi_mean(judged, [1.0] * 30 + [None] * 170, bounds=(0, 1))
    assert 0 <= estimate.interval.low <= estimate.interval.mean <= estimate.interval.high <= 1


def test_a_harmful_judge_is_not_used():
    """A judge that runs against people gets no weight."""
    assert ppi_mean(-JUDGED, HUMAN).judge_weight == 0.0


@pytest.mark.parametrize(
    ("judged", "people", "chances"),
    [([0.5, math.nan] * 10, [1.0] * 20, None), ([0.5] * 20, [1.0] * 19, None), ([0.5] * 20, [1.0] * 20, [0.0] * 20)],
)
def test_what_cannot_be_is_refused(judged, people, chances):
    """A judge without a value, labels of another number, or a chance of nothing raise ValueError."""
    with pytest.raises(ValueError, match=r"judge|values|probability"):
        ppi_mean(judged, people, sampling_probabilities=chances)


def test_a_sample_that_is_not_random_is_detected():
    """Labels on the traces that the judge likes best are no random draw; weighted by their chances they may be one."""
    assert ppi_mean(JUDGED, HUMAN).random_sample_p > 0.01
    best = np.where(np.quantile(JUDGED, 0.8) < JUDGED, PEOPLE, np.nan)
    assert ppi_mean(JUDGED, best).random_sample_p < 1e-6
    chances = np.clip(JUDGED, 0.1, 1.0) * 0.4
    labeled = np.where(np.random.default_rng(4).uniform(size=400) < chances, PEOPLE, np.nan)
    assert ppi_mean(JUDGED, labeled, sampling_probabilities=chances).random_sample_p > 0.01


# --- coverage --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("n", [12, 25, 100])
@pytest.mark.parametrize("agreement", [0.0, 0.9])
def test_intervals_cover(n, agreement):
    """The truth is inside as often as stated, with few labels, and a biased judge that is right or at random."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(300):
        people = rng.beta(6, 1.5, size=300)
        judged = np.where(rng.uniform(size=300) < agreement, people, rng.beta(6, 1.5, size=300)) * 0.8
        human = np.full(300, np.nan)
        chosen = rng.choice(300, n, replace=False)
        human[chosen] = people[chosen]
        low, high = ends(ppi_mean(judged, human, bounds=(0, 1)))
        inside += low <= 0.8 <= high
    assert inside / 300 > 0.91


def test_a_judge_that_says_one_thing_is_of_no_use_and_no_harm():
    """What it says everywhere tells nothing of people: the interval is that of the labels alone."""
    people = [0.0, 1.0, 0.5, 0.25] * 5 + [None] * 80
    estimate = ppi_mean([0.5] * 100, people, bounds=(0, 1))
    assert estimate.judge_weight == 0
    assert estimate.width_ratio == pytest.approx(1)
    assert estimate.interval is not None
    assert estimate.interval.mean == pytest.approx(0.4375)
