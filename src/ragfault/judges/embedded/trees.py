"""Boosted trees evaluated in numpy from packed arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.vectors import Array

ALL_LEAVES, LOWEST_BIT = np.uint32(0xFFFFFFFF), np.uint32(1)
BLOCK_ROWS = 4
"""So many rows at a time, which a processor holds at hand."""


class TreeEnsemble(NamedTuple):
    """A sum of decision trees of at most 32 leaves, all of whose questions are asked at once.

    A node asks whether one feature is at most its bar. If it is not, no leaf on its left can be the one: what all
    answers leave over, of a tree's leaves from left to right, begins with its leaf. That is QuickScorer (Lucchese and
    others, SIGIR 2015) with whole rows of numbers in the place of its loops.
    """

    feature: Array
    """For each node the feature it asks of: the first node of each tree, then the second of each, and so on; a tree
    with fewer nodes repeats its last."""
    threshold: Array
    mask: Array
    """For each node which leaves of its tree are not on its left, as bits."""
    leaf_values: Array
    """[32 × trees] What each leaf adds."""

    @staticmethod
    def unpack(arrays: Mapping[str, Array], name: str) -> TreeEnsemble:
        """The trees of a name in a file of weights, where each node stands before those below it, left before right.

        >>> arrays = {"roots": [0], "feature": [0, 0, 0], "bar": [0.5, 0, 0], "left": [1, 1, 2], "right": [2, 1, 2]}
        >>> arrays |= {"value": [0, -1.0, 2.0]}
        >>> one = TreeEnsemble.unpack({f"t.{field}": np.array(part) for field, part in arrays.items()}, "t")
        >>> one(np.array([[0.5], [0.6]])).tolist()
        [-1.0, 2.0]
        """
        roots, feature, bar, left, right, value = (
            arrays[f"{name}.{field}"] for field in ("roots", "feature", "bar", "left", "right", "value")
        )
        leaf = left == np.arange(len(left))
        tree = np.repeat(np.arange(len(roots)), np.diff(np.append(roots, len(left))))
        before = np.cumsum(leaf) - leaf  # so many leaves stand before a node, and so many of its own tree:
        rank = (before - before[roots][tree]).astype(np.uint64)
        one = np.uint64(1)
        mask = (ALL_LEAVES ^ ((one << rank[right]) - (one << rank[left]))).astype(np.uint32)
        inner = np.flatnonzero(~leaf)
        sizes = np.bincount(tree[inner], minlength=len(roots))
        starts = np.cumsum(sizes) - sizes
        at = inner[starts + np.minimum(np.arange(sizes.max())[:, None], sizes - 1)]
        values = np.zeros((32, len(roots)))
        values[rank[leaf].astype(int), tree[leaf]] = value[leaf]
        return TreeEnsemble(feature[at].astype(np.int64), bar[at].astype(float), mask[at], values)

    def __call__(self, features: Array) -> Array:
        """The log-odds for each row of features."""
        rows = range(0, len(features), BLOCK_ROWS)
        summed: Array = np.concatenate([self._score_block(features[row : row + BLOCK_ROWS]) for row in rows])
        return summed

    def _score_block(self, features: Array) -> Array:
        above = features.take(self.feature, axis=1) > self.threshold
        left = np.bitwise_and.reduce(self.mask | (above.view(np.uint8) - LOWEST_BIT), axis=1)
        first = (left & (~left + LOWEST_BIT)).astype(np.float32).view(
            np.uint32
        ) >> 23  # the exponent of 2^n is n
        trees = self.leaf_values.shape[1]
        at = (first - np.uint32(127)) * np.uint32(trees) + np.arange(trees, dtype=np.uint32)
        summed: Array = self.leaf_values.ravel().take(at).sum(1)
        return summed
