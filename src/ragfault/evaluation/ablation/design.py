"""Experiment designs: the configurations to run, and the weights of each effect on their means.

A configuration is a number: bit i is set where part i is the candidate's. Every effect is a weighted sum over
configurations, so it can be computed query by query and its interval is that of a mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import factorial

import numpy as np
from msgspec import Struct

from ragfault.stats.clusters import FloatArray

MAX_FACTORIAL_PARTS = 4
"""Up to so many parts all 2^k configurations are run, unless orders are asked for."""


class ExperimentDesign(Struct, frozen=True, kw_only=True):
    """Configurations of an experiment and the weights of its effects on them."""

    masks: tuple[int, ...]
    """The configurations, by how many parts they take from the candidate."""
    total: FloatArray
    """Weights of the whole change."""
    shares: FloatArray
    """Parts by configurations: weights of the Shapley shares."""
    interactions: tuple[tuple[int, int, FloatArray], ...]
    """Weights of the interaction of two parts, for each pair."""
    permutations: int | None
    """How many orders of swapping the shares are a mean of; None: all."""


def factorial_design(k: int) -> ExperimentDesign:
    """Return the design that runs every configuration of k parts once (Fisher 1935; Yates 1937).

    A part's share is its Shapley value (Shapley 1953): the mean, over all orders in which the parts may be
    swapped, of what swapping it changes. The interaction of two parts is the Shapley interaction index
    (Grabisch & Roubens 1999): how much more both change together than each alone. For two parts these are the
    main effects and the interaction of the 2 × 2 factorial.

    >>> design = factorial_design(2)
    >>> design.masks
    (0, 1, 2, 3)
    >>> design.shares
    array([[-0.5,  0.5, -0.5,  0.5],
           [-0.5, -0.5,  0.5,  0.5]])
    >>> design.interactions[0][2]
    array([ 1., -1., -1.,  1.])
    """
    masks = _sort_masks(range(1 << k))
    place = {mask: at for at, mask in enumerate(masks)}
    shares = np.zeros((k, len(masks)))
    for part in range(k):
        for mask in masks:
            if not mask >> part & 1:
                weight = _shapley_weight(mask.bit_count(), k)
                shares[part, place[mask | 1 << part]] += weight
                shares[part, place[mask]] -= weight
    pairs = tuple((i, j, _interaction_weights(i, j, k, place)) for i, j in combinations(range(k), 2))
    return ExperimentDesign(
        masks=masks, total=_total_weights(masks), shares=shares, interactions=pairs, permutations=None
    )


def permutation_design(k: int, permutations: Sequence[Sequence[int]]) -> ExperimentDesign:
    """Return the design that swaps the parts in these orders only, and takes the mean over them.

    The shares still sum to the whole change, and a part without effect has none (Castro, Gómez & Tejada 2009).

    >>> design = permutation_design(2, [(1, 0)])
    >>> design.masks, design.shares.tolist()
    ((0, 2, 3), [[0.0, -1.0, 1.0], [-1.0, 1.0, 0.0]])
    """
    steps = [(part, _part_mask(order[:at])) for order in permutations for at, part in enumerate(order)]
    masks = _sort_masks({0, (1 << k) - 1} | {mask for _, mask in steps})
    place = {mask: at for at, mask in enumerate(masks)}
    shares = np.zeros((k, len(masks)))
    for part, mask in steps:
        shares[part, place[mask | 1 << part]] += 1 / len(permutations)
        shares[part, place[mask]] -= 1 / len(permutations)
    return ExperimentDesign(
        masks=masks,
        total=_total_weights(masks),
        shares=shares,
        interactions=(),
        permutations=len(permutations),
    )


def draw_permutations(k: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """Draw random orders of k parts in which each part comes about equally often at each place.

    Orders are drawn in blocks: a random one and its rotations.

    >>> draw_permutations(3, 4, seed=1)
    [(0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 0, 1)]
    """
    rng = np.random.default_rng(seed)
    permutations: list[tuple[int, ...]] = []
    while len(permutations) < count:
        order = rng.permutation(k).tolist()
        permutations += [tuple(order[at:] + order[:at]) for at in range(k)]
    return permutations[:count]


def _sort_masks(masks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(masks, key=lambda mask: (mask.bit_count(), mask)))


def _shapley_weight(before: int, k: int) -> float:
    """Return the share of the orders of k parts in which given `before` parts come first and a given one next."""
    return factorial(before) * factorial(k - before - 1) / factorial(k)


def _part_mask(parts: Iterable[int]) -> int:
    return sum(1 << part for part in parts)


def _total_weights(masks: Sequence[int]) -> FloatArray:
    weights = np.zeros(len(masks))
    weights[0] -= 1
    weights[-1] += 1
    return weights


def _interaction_weights(i: int, j: int, k: int, column_by_mask: dict[int, int]) -> FloatArray:
    weights = np.zeros(len(column_by_mask))
    both = 1 << i | 1 << j
    for mask in column_by_mask:
        if not mask & both:
            weight = _shapley_weight(mask.bit_count(), k - 1)
            for more, sign in ((both, 1), (1 << i, -1), (1 << j, -1), (0, 1)):
                weights[column_by_mask[mask | more]] += sign * weight
    return weights
