"""Strength of versions from pairwise preferences: the model of Bradley and Terry, with an effect of the order shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragfault.stats.bootstrap import FloatArray, encode_clusters

PRIOR_DEVIATION = 3.0
"""Standard deviation, in log-odds, of the normal prior on strengths and order: it keeps them finite where one version
wins every time, and moves others little."""
MAX_STEPS = 50
PERMUTATIONS = 1999
"""Permutations of the test of a preference."""


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
    design = _build_design(first, second, versions, has_order=has_order)
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


def estimate_covariance(
    first: NDArray[np.intp], second: NDArray[np.intp], solution: FloatArray, *, has_order: bool = True
) -> FloatArray:
    """Estimate the covariance of the strengths and the advantage that `fit_bradley_terry` fitted, from its curvature.

    Strength and advantage are uncertain together: where the order was hardly varied neither is known. Comparisons are
    taken as independent.

    >>> pairs = np.array([0, 0, 0, 1]), np.array([1, 1, 1, 0])
    >>> bool(estimate_covariance(*pairs, np.zeros(3))[2, 2] > 0.5)
    True
    """
    versions = len(solution) - 1
    design = _build_design(first, second, versions, has_order=has_order)
    p = 1 / (1 + np.exp(-(design @ solution)))
    covariance = np.linalg.inv((design * (p * (1 - p))[:, None]).T @ design + np.eye(versions + 1) / PRIOR_DEVIATION**2)
    center = np.eye(versions + 1)
    center[:versions, :versions] -= 1 / versions
    return np.asarray(center @ covariance @ center.T)


def compute_preference_p(
    is_first: NDArray[np.bool_], outcome: FloatArray, clusters: Sequence[str], *, seed: int = 0
) -> float:
    """Compute the two-sided p-value of a version that wins more often than its order explains.

    `is_first` says in which comparisons with one other version it was shown first, `outcome` whether the one shown
    first won. Without a preference the outcome depends on the order alone, so that the orders may be exchanged between
    clusters (queries) of the same size, and flipped where a cluster has as many of each: a permutation test (for
    single comparisons Fisher's exact test), whatever the advantage of the first. 1 where nothing can be exchanged.

    >>> is_first = np.array([True, False] * 5)
    >>> compute_preference_p(is_first, is_first.astype(float), [str(n) for n in range(10)]) < 0.05
    True
    >>> compute_preference_p(is_first, np.ones(10), [str(n) for n in range(10)])
    1.0
    """
    if not len(outcome):
        return 1.0
    index, groups = encode_clusters(clusters, len(clusters))
    rows = [np.flatnonzero(index == group) for group in range(groups)]
    sides = np.where(is_first, 1.0, -1.0)
    balanced = np.array([sides[at] @ outcome[at] for at in rows if sides[at].sum() == 0])
    sizes: dict[int, list[NDArray[np.intp]]] = {}
    for at in rows:
        if sides[at].sum() != 0:
            sizes.setdefault(len(at), []).append(at)
    tables = [np.array(group) for group in sizes.values()]
    observed = balanced.sum() + sum((sides[table] * outcome[table]).sum() for table in tables)
    rng = np.random.default_rng(seed)
    permuted = rng.choice((-1.0, 1.0), size=(PERMUTATIONS, len(balanced))) @ balanced
    for table in tables:
        permuted += [(rng.permutation(sides[table]) * outcome[table]).sum() for _ in range(PERMUTATIONS)]
    tail = min((permuted >= observed - 1e-9).sum(), (permuted <= observed + 1e-9).sum())
    return float(min(1.0, 2 * (1 + tail) / (1 + PERMUTATIONS)))


def _build_design(first: NDArray[np.intp], second: NDArray[np.intp], versions: int, *, has_order: bool) -> FloatArray:
    rows = np.arange(len(first))
    design = np.zeros((len(first), versions + 1))
    design[rows, first] += 1
    design[rows, second] -= 1
    design[:, versions] = float(has_order)
    return design
