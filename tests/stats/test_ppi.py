"""Rectified means and differences: against hand, against scipy, and against what they shall cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy

from ragfault.stats import (
    MIN_LABELS,
    UnlabeledSums,
    mean_interval,
    ppi_mean,
    ppi_paired_difference,
    ppi_unpaired_difference,
)

RNG = np.random.default_rng(11)
JUDGED = RNG.normal(0.7, 0.2, size=400)
PEOPLE = 0.1 + 0.8 * JUDGED + RNG.normal(0, 0.1, size=400)
SAID = np.where(np.arange(400) < 60, PEOPLE, np.nan)


def ends(found):
    assert found.interval is not None
    return found.interval.low, found.interval.high


# --- oracles ---------------------------------------------------------------------------------------


def test_without_the_judge_it_is_the_interval_of_the_labels():
    """With λ = 0 nothing of the judge is left: Student's interval of the labels, as scipy has it."""
    found = ppi_mean(JUDGED, SAID, judge_weight=0.0)
    want = scipy.t.interval(0.95, 59, PEOPLE[:60].mean(), scipy.sem(PEOPLE[:60]))
    assert found.interval.mean == pytest.approx(PEOPLE[:60].mean())
    assert ends(found) == pytest.approx(want)
    assert (found.judge_weight, found.width_ratio) == (0.0, pytest.approx(1.0))


def test_with_the_judge_in_full_it_is_classical_inference():
    """With λ = 1 it is the judge's mean off the labels plus the mean error on them (Angelopoulos et al. 2023)."""
    found = ppi_mean(JUDGED, SAID, judge_weight=1.0)
    off, error = JUDGED[60:], PEOPLE[:60] - JUDGED[:60]
    assert found.interval.mean == pytest.approx(off.mean() + error.mean())
    half = 1.96 * math.sqrt(scipy.sem(off) ** 2 + scipy.sem(error) ** 2)
    assert ends(found)[1] - found.interval.mean == pytest.approx(half, rel=0.03)


def test_a_perfect_judge_gives_the_interval_of_all_traces():
    """Where the judge says what people say, it is as if they had labelled everything."""
    found = ppi_mean(PEOPLE, SAID)
    whole = mean_interval(PEOPLE)
    assert found.interval.mean == pytest.approx(whole.mean)
    assert ends(found) == pytest.approx((whole.low, whole.high))
    assert found.judge_weight == pytest.approx(340 / 400)


def test_a_judge_that_is_off_by_a_constant_is_as_good():
    """A constant error of the judge does not widen anything, and is taken out."""
    found, plain = ppi_mean(JUDGED + 5, SAID), ppi_mean(JUDGED, SAID)
    assert found.interval.mean == pytest.approx(plain.interval.mean)
    assert ends(found) == pytest.approx(ends(plain))


def test_by_hand():
    """Ten labels of twelve traces, computed on paper: residuals after the slope, and the mean of the judge."""
    judged = np.array([0.0, 1.0] * 5 + [1.0, 1.0])
    people = np.array([0.1, 1.1] * 5 + [math.nan, math.nan])
    found = ppi_mean(judged, people)
    assert found.interval.mean == pytest.approx(7 / 12 + 0.1)
    assert ends(found)[1] - found.interval.mean == pytest.approx(
        scipy.t.ppf(0.975, 11) * judged.std(ddof=1) / math.sqrt(12)
    )


def test_clusters_are_those_of_the_labels_alone_where_the_judge_says_nothing():
    """A judge that says one thing of all leaves the clustered interval of the labels."""
    groups = np.arange(400) // 4
    found = ppi_mean(np.full(400, 0.5), SAID, groups)
    alone = mean_interval(PEOPLE[:60], groups[:60])
    assert ends(found) == pytest.approx((alone.low, alone.high))


def test_values_said_twice_in_a_cluster_count_once():
    """Every trace doubled within its cluster leaves mean and interval as they are."""
    groups = np.arange(400)
    twice = ppi_mean(np.repeat(JUDGED, 2), np.repeat(SAID, 2), np.repeat(groups, 2))
    assert ends(twice) == pytest.approx(ends(ppi_mean(JUDGED, SAID, groups)))


def test_traces_without_a_label_may_be_given_as_sums():
    """Their count, sum and sum of squares say all that the estimate needs of them."""
    judged, said = np.asarray(JUDGED, dtype=float), np.asarray(SAID, dtype=float)
    known = np.isfinite(said)
    others = judged[~known]
    rest = UnlabeledSums(others.size, float(others.sum()), float(others @ others))
    whole, summed = ppi_mean(judged, said), ppi_mean(judged[known], said[known], unlabeled=rest)
    assert summed.interval.mean == pytest.approx(whole.interval.mean)
    assert (summed.interval.low, summed.interval.high) == pytest.approx(
        (whole.interval.low, whole.interval.high)
    )
    assert (summed.interval.n, summed.width_ratio) == (whole.interval.n, pytest.approx(whole.width_ratio))


def test_equal_chances_change_nothing():
    """Only the ratios of chances matter."""
    found = ppi_mean(JUDGED, SAID, sampling_probabilities=np.full(400, 0.15))
    assert ends(found) == pytest.approx(ends(ppi_mean(JUDGED, SAID)))


def test_chances_weigh_the_labels():
    """A label of half the chance stands for twice as many traces."""
    judged = np.full(40, 0.5)
    people = np.array([0.0, 1.0] * 10 + [math.nan] * 20)
    chances = np.array([0.2, 0.4] * 10 + [math.nan] * 20)
    assert ppi_mean(judged, people, sampling_probabilities=chances).interval.mean == pytest.approx(1 / 3)


def test_a_paired_difference_is_the_mean_of_differences():
    """Paired, it is the rectified mean of what people (and the judge) say of each pair."""
    after, later = JUDGED - 0.1, SAID - 0.15
    found = ppi_paired_difference((JUDGED, SAID), (after + JUDGED**2, later))
    want = ppi_mean(after + JUDGED**2 - JUDGED, later - SAID)
    assert found.difference.mean == pytest.approx(want.interval.mean)
    assert (found.labelled, found.difference.method, found.paired) == (60, "ppi", True)


def test_an_unpaired_difference_is_one_mean_less_the_other():
    """Unpaired, means are subtracted and errors added as squares."""
    other = np.where(np.arange(400) >= 330, PEOPLE, np.nan)
    found = ppi_unpaired_difference((JUDGED, SAID), (JUDGED, other))
    old, new = ppi_mean(JUDGED, SAID), ppi_mean(JUDGED, other)
    assert found.difference.mean == pytest.approx(new.interval.mean - old.interval.mean)
    assert (found.labelled, found.paired) == (130, False)
    assert 0 < found.p < 1


def test_the_p_of_a_difference_is_that_of_its_interval():
    """p is below 5 % exactly where the 95 % interval leaves 0 out."""
    for shift in (0.0, 0.01, 0.02, 0.04, 0.08):
        noise = np.random.default_rng(2).normal(0, 0.1, size=400)
        found = ppi_paired_difference((JUDGED, SAID), (JUDGED + noise, SAID + 0.5 * noise - shift))
        inside = found.difference.low <= 0 <= found.difference.high
        assert inside == (found.p >= 0.05)


# --- edges -----------------------------------------------------------------------------------------


def test_too_few_labels_are_said_to_be_too_few():
    """Below the least number of labels, or of their clusters, there is no interval but a reason."""
    few = np.where(np.arange(400) < MIN_LABELS - 1, PEOPLE, np.nan)
    assert ppi_mean(JUDGED, few).reason == "only 9 labels: at least 10 are needed"
    grouped = ppi_mean(JUDGED, SAID, np.arange(400) // 30)
    assert grouped.reason == "only 60 labels in 2 clusters: at least 10 are needed"
    assert ppi_paired_difference((JUDGED, few), (JUDGED, SAID)).difference is None
    assert ppi_unpaired_difference((JUDGED, SAID), (JUDGED, few)).reason.startswith("only 9 labels")


def test_where_all_are_labelled_the_judge_is_not_asked():
    """Labels on every trace are what they are."""
    found = ppi_mean(JUDGED, PEOPLE)
    assert (found.interval, found.judge_weight) == (mean_interval(PEOPLE), 0.0)


def test_agreement_on_few_labels_is_not_certainty():
    """A judge that is right on twenty labels may be wrong on others: the interval keeps a width."""
    judged = np.array([1.0] * 190 + [0.0] * 10)
    said = np.where(np.arange(200) % 10 == 0, judged, np.nan)
    found = ppi_mean(judged, said, bounds=(0, 1))
    whole = mean_interval(judged, bounds=(0, 1))
    assert ends(found)[0] < whole.low - 0.02


def test_intervals_stay_within_the_bounds():
    """Neither mean nor end leaves the range of the metric."""
    judged = np.array([0.0] * 30 + [1.0] * 170)
    found = ppi_mean(judged, [1.0] * 30 + [None] * 170, bounds=(0, 1))
    assert 0 <= found.interval.low <= found.interval.mean <= found.interval.high <= 1


def test_a_harmful_judge_is_not_used():
    """A judge that runs against people gets no weight."""
    assert ppi_mean(-JUDGED, SAID).judge_weight == 0.0


@pytest.mark.parametrize(
    ("judged", "people", "chances"),
    [
        ([0.5, math.nan] * 10, [1.0] * 20, None),
        ([0.5] * 20, [1.0] * 19, None),
        ([0.5] * 20, [1.0] * 20, [0.0] * 20),
    ],
)
def test_what_cannot_be_is_refused(judged, people, chances):
    """A judge without a value, labels of another number, or a chance of nothing raise ValueError."""
    with pytest.raises(ValueError, match=r"judge|values|chance"):
        ppi_mean(judged, people, sampling_probabilities=chances)


def test_a_draw_that_is_none_is_found_out():
    """Labels on the traces that the judge likes best are no random draw; weighted by their chances they may be one."""
    assert ppi_mean(JUDGED, SAID).random_sample_p > 0.01
    best = np.where(np.quantile(JUDGED, 0.8) < JUDGED, PEOPLE, np.nan)
    assert ppi_mean(JUDGED, best).random_sample_p < 1e-6
    chances = np.clip(JUDGED, 0.1, 1.0) * 0.4
    drawn = np.where(np.random.default_rng(4).uniform(size=400) < chances, PEOPLE, np.nan)
    assert ppi_mean(JUDGED, drawn, sampling_probabilities=chances).random_sample_p > 0.01


# --- coverage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, 25, 100])
@pytest.mark.parametrize("agreement", [0.0, 0.9])
def test_intervals_cover(n, agreement):
    """The truth is inside as often as stated, with few labels, and a biased judge that is right or at random."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(300):
        people = rng.beta(6, 1.5, size=300)
        judged = np.where(rng.uniform(size=300) < agreement, people, rng.beta(6, 1.5, size=300)) * 0.8
        said = np.full(300, np.nan)
        chosen = rng.choice(300, n, replace=False)
        said[chosen] = people[chosen]
        low, high = ends(ppi_mean(judged, said, bounds=(0, 1)))
        inside += low <= 0.8 <= high
    assert inside / 300 > 0.91


def test_a_judge_that_says_one_thing_is_of_no_use_and_no_harm():
    """What it says everywhere tells nothing of people: the interval is that of the labels alone."""
    people = [0.0, 1.0, 0.5, 0.25] * 5 + [None] * 80
    found = ppi_mean([0.5] * 100, people, bounds=(0, 1))
    assert found.judge_weight == 0
    assert found.width_ratio == pytest.approx(1)
    assert found.interval is not None
    assert found.interval.mean == pytest.approx(0.4375)
