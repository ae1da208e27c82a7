"""Scores against labels: areas, thresholds and calibration, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.stats.bootstrap import Resampling, bootstrap_estimates
from ragfault.stats.classification import (
    RankedScores,
    auroc,
    auroc_within_groups,
    average_precision,
    calibration_bins,
    calibration_error,
    choose_threshold,
)

SCORES = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]), st.booleans()), max_size=14)


def pairs(scores: list[float], labels: list[bool]) -> float | None:
    """Return the area by its definition: over all pairs of a positive and a negative."""
    good = [s for s, y in zip(scores, labels, strict=True) if y]
    bad = [s for s, y in zip(scores, labels, strict=True) if not y]
    wins = [(a > b) + (a == b) / 2 for a in good for b in bad]
    return sum(wins) / len(wins) if wins else None


def f1(scores: list[float], labels: list[bool], cut: float) -> float:
    """Return F1 by counting."""
    called = [s >= cut for s in scores]
    hits = sum(c and y for c, y in zip(called, labels, strict=True))
    return 2 * hits / (sum(called) + sum(labels))


@given(SCORES)
def test_the_area_is_the_share_of_pairs_in_order(values: list[tuple[float, bool]]):
    """AUROC counts the pairs in which the positive is above, ties half; without pairs there is none."""
    scores, labels = [s for s, _ in values], [y for _, y in values]
    result, truth = auroc(scores, labels), pairs(scores, labels)
    assert (result is None) == (truth is None)
    if truth is not None:
        assert result == pytest.approx(truth)
        assert auroc([-s for s in scores], labels) == pytest.approx(1 - truth)


def test_average_precision_is_summed_over_positives():
    """Of + - + + the precisions at the positives are 1, 2/3 and 3/4; tied scores share the last of theirs."""
    assert average_precision([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1]) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision([0.5, 0.5, 0.5, 0.5], [1, 0, 1, 0]) == pytest.approx(0.5)
    assert average_precision([0.5, 0.4], [1, 1]) is None


@given(SCORES)
def test_no_threshold_is_better_than_the_best(values: list[tuple[float, bool]]):
    """The best F1 is reached with the cut that is given, and no other cut reaches more."""
    scores, labels = [s for s, _ in values], [y for _, y in values]
    best = choose_threshold(scores, labels)
    if best is None:
        assert sum(labels) in (0, len(labels))
        return
    assert f1(scores, labels, best.threshold) == pytest.approx(best.value)
    assert best.value == pytest.approx(max(f1(scores, labels, cut) for cut in scores))


def test_the_best_balanced_accuracy_is_the_best_mean_of_both_shares():
    """With 3 of 4 positives above 2 of 2 negatives the cut that parts them has balanced accuracy 7/8."""
    best = choose_threshold([0.1, 0.6, 0.7, 0.8, 0.2, 0.3], [1, 1, 1, 1, 0, 0], "balanced_accuracy")
    assert best is not None
    assert best.value == pytest.approx(7 / 8)
    assert 0.3 < best.threshold <= 0.6


def test_of_equal_thresholds_the_highest_is_taken():
    """Where two thresholds are equally good, fewer are called positive."""
    assert choose_threshold([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], "balanced_accuracy") == pytest.approx((0.35, 0.75))


def test_separating_groups_gains_nothing_within_groups():
    """Scores that only name the group have AUROC 0.5 within; a group of one class does not count."""
    scores, labels = [0.9] * 4 + [0.1] * 4 + [0.5], [1, 1, 1, 0, 0, 0, 0, 1, 1]
    groups = ["a"] * 4 + ["b"] * 4 + ["c"]
    result = auroc_within_groups(scores, labels, groups)
    assert result is not None
    assert (result.value, result.groups, result.n) == (0.5, 2, 8)
    assert auroc(scores[:8], labels[:8]) == pytest.approx(0.75)


def test_larger_groups_count_for_more():
    """A perfect group of four and a reversed one of two have the mean 2/3."""
    result = auroc_within_groups([1, 1, 0, 0, 0, 1], [1, 1, 0, 0, 1, 0], ["a"] * 4 + ["b"] * 2)
    assert result is not None
    assert result.value == pytest.approx(2 / 3)


def test_weights_are_repetitions():
    """A value of weight two counts as two values, for every area."""
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 6, 40) / 5, rng.integers(0, 2, 40)
    weights = rng.integers(0, 3, 40)
    ranked = RankedScores(scores, labels)
    tallies = ranked.class_weights(weights[None, :].astype(float))
    repeated = np.repeat(scores, weights), np.repeat(labels, weights)
    assert ranked.auroc(*tallies)[0] == pytest.approx(auroc(*repeated))
    assert ranked.average_precision(*tallies)[0] == pytest.approx(average_precision(*repeated))
    result = choose_threshold(*repeated)
    assert result is not None
    assert np.nanmax(ranked.evaluate_thresholds("f1", *tallies)[0]) == pytest.approx(result.value)


def test_the_calibration_error_is_the_mean_distance_of_the_bins():
    """Bins of 0.2 with 1 in 2 and 0.8 with 2 in 2 are off by 0.3 and 0.2: 0.25 on average."""
    scores, labels = [0.2, 0.2, 0.8, 0.8], [1, 0, 1, 1]
    assert [tuple(bin_) for bin_ in calibration_bins(scores, labels, 2)] == [(0.2, 0.5, 2), (0.8, 1.0, 2)]
    assert calibration_error(scores, labels, 2) == pytest.approx(0.25)
    assert calibration_error([], []) is None


def test_equal_scores_are_never_parted():
    """However many bins are asked for, scores that are all alike are one."""
    assert [bin_.n for bin_ in calibration_bins([0.3] * 50, [0, 1] * 25, 10)] == [50]


def test_the_bootstrap_covers_the_area():
    """Over 200 clustered samples the 95 % interval of AUROC holds the true area in at least 90 %."""
    rng = np.random.default_rng(1)
    truth, hits = 0.7602, 0  # the chance that N(1, 1) is above N(0, 1)
    for _ in range(200):
        labels = rng.integers(0, 2, 120)
        scores = rng.normal(size=120) + labels
        ranked = RankedScores(scores, labels)
        [result] = bootstrap_estimates(
            lambda w, r=ranked: r.auroc(*r.class_weights(w))[:, None], np.arange(120) // 2, Resampling(300)
        )
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= truth <= result.high
    assert hits / 200 >= 0.9


def test_what_chance_makes_larger_is_mirrored():
    """The distance of a mean from its truth is inflated: mirrored, its interval reaches lower, and holds the value."""
    values = np.random.default_rng(3).normal(size=30)

    def distance(weights: np.ndarray) -> np.ndarray:
        return np.abs(weights @ values / weights.sum(axis=1))[:, None]

    plain, mirrored = (bootstrap_estimates(distance, range(30), inflated=places)[0] for places in ((), (0,)))
    assert mirrored.value == plain.value
    assert mirrored.low < plain.low
    assert mirrored.low <= mirrored.value <= mirrored.high


def test_what_resamples_do_not_tell_has_no_interval():
    """One cluster, or a statistic that is the same in every resample, has a value and no interval."""
    values = np.array([0.2, 0.4, 0.9])

    def mean(weights: np.ndarray) -> np.ndarray:
        return (weights @ values / weights.sum(axis=1))[:, None]

    assert bootstrap_estimates(mean, ["a"] * 3)[0][1:] == (None, None)
    values = np.ones(3)
    assert bootstrap_estimates(mean, range(3)) == [(1.0, None, None)]
