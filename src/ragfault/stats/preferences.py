"""Strength of versions from pairwise preferences: the model of Bradley and Terry, with an effect of the order shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import FloatArray

PRIOR_DEVIATION = 3.0
"""Standard deviation, in log-odds, of the normal prior on strengths and order: it keeps them finite where one version
wins every time, and moves others little."""
MAX_STEPS = 50


def fit_bradley_terry(
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    outcome: FloatArray,
    weights: FloatArray,
    versions: int,
    *,
    has_order: bool = True,
) -> FloatArray:
    """Fit the strengths of versions, in log-odds with mean 0, and last the advantage of being shown first.

    The first of a pair wins with the odds exp(strength of the first − of the second + advantage) (Bradley & Terry 1952;
    the order as in Davidson & Beaver 1977); a tie (`outcome` 0.5) counts as half a win of each. `weights` are those of
    the comparisons. Without `has_order` the advantage is 0. Newton's method on the posterior of a weak normal prior.

    >>> pairs = np.array([0, 1, 0, 1]), np.array([1, 0, 1, 0])
    >>> strengths = fit_bradley_terry(*pairs, np.array([1.0, 0.0, 1.0, 1.0]), np.ones(4), 2)
    >>> bool(strengths[0] > strengths[1]), bool(strengths[2] > 0)
    (True, True)
    """
    rows = np.arange(len(first))
    design = np.zeros((len(first), versions + 1))
    design[rows, first] += 1
    design[rows, second] -= 1
    design[:, versions] = float(has_order)
    solution = np.zeros(versions + 1)
    precision = np.eye(versions + 1) / PRIOR_DEVIATION**2
    for _ in range(MAX_STEPS):
        p = 1 / (1 + np.exp(-(design @ solution)))
        gradient = design.T @ (weights * (outcome - p)) - precision @ solution
        curvature = (design * (weights * p * (1 - p))[:, None]).T @ design + precision
        step = np.linalg.solve(curvature, gradient)
        solution = solution + step
        if np.abs(step).max() < 1e-9:
            break
    solution[:versions] -= solution[:versions].mean()
    return solution
