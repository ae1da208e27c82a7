"""Intervals of statistics at the edge of their range."""

from __future__ import annotations

import numpy as np
import pytest

from ragfault.labels.judges.generator_order import kendall_tau
from ragfault.stats.bootstrap import Resampling, bootstrap_estimates
from ragfault.stats.estimates import BootstrapEstimate

DRAWS = 120


def estimate_order(labels: np.ndarray, scores: np.ndarray, seed: int) -> BootstrapEstimate:
    """Estimate Kendall's τ of the rates of some generators by labels and by scores, sources resampled."""

    def order(weights: np.ndarray) -> np.ndarray:
        total = weights.sum(1, keepdims=True)
        return kendall_tau(weights @ labels / total, weights @ scores / total)[:, None]

    [result] = bootstrap_estimates(order, range(len(labels)), Resampling(300, seed), limits={0: (-1.0, 1.0)})
    return result


@pytest.mark.parametrize("size", [100, 300])
@pytest.mark.parametrize(
    ("people", "judge"),
    [
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (0.1, 0.2, 0.3, 0.4, 0.52, 0.5)),
        ((0.2, 0.25, 0.3, 0.35, 0.4, 0.45), (0.25, 0.2, 0.3, 0.35, 0.45, 0.4)),
    ],
)
def test_the_interval_of_an_order_holds_the_true_order(size, people, judge):
    """Of simulated samples at least nine in ten have an interval that holds the true τ, at its edge and inside."""
    truth = float(kendall_tau(np.array([people]), np.array([judge]))[0])
    rng = np.random.default_rng(size)
    holds = 0
    for draw in range(DRAWS):
        labels = (rng.random((size, len(people))) < people).astype(float)
        scores = (rng.random((size, len(judge))) < judge).astype(float)
        result = estimate_order(labels, scores, draw)
        low, high = (result.low, result.high) if result.low is not None else (result.value, result.value)
        holds += low - 1e-9 <= truth <= high + 1e-9
    assert holds / DRAWS >= 0.9


def test_a_perfect_order_is_as_uncertain_as_its_resamples():
    """A τ of 1 whose resamples reach far below is not stated as certain."""
    rng = np.random.default_rng(3)
    people = np.array([0.2, 0.3, 0.4, 0.5, 0.6])
    while True:
        labels = (rng.random((60, 5)) < people).astype(float)
        result = estimate_order(labels, (rng.random((60, 5)) < people).astype(float), 0)
        if result.value == 1.0:
            break
    assert result.high == 1.0
    assert result.low < 0.8
