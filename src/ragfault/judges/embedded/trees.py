"""Boosted trees evaluated in numpy from packed arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.vectors import Array

ALL_LEAVES, LOWEST_BIT = np.uint32(0xFFFFFFFF), np.uint32(1)
BLOCK_ROWS = 4
"""Rows evaluated at a time, few enough for the processor's cache."""


class TreeEnsemble(NamedTuple):
    """A sum of decision trees of at most 32 leaves, all of whose nodes are evaluated at once.

    A node compares one feature with its threshold. Above it, no leaf on its left can be reached: of the
    leaves from left to right, the first one that all nodes leave over is the result. This is QuickScorer
    (Lucchese et al., SIGIR 2015) with array operations in place of its loops.
    """

    feature: Array
    """The feature of each node: the first node of each tree, then the second of each, and so on; a tree with
    fewer nodes repeats its last.
    """
    threshold: Array
    mask: Array
    """The leaves of its tree that are not on the left of each node, as bits."""
    leaf_values: Array
    """[32 × trees] The value of each leaf."""

    @staticmethod
    def unpack(arrays: Mapping[str, Array], name: str) -> TreeEnsemble:
        """Unpack the trees of a name from a file of weights, in which parents come before children, left before right.

        >>> arrays = {"roots": [0], "feature": [0, 0, 0], "bar": [0.5, 0, 0], "left": [1, 1, 2], "right": [2, 1, 2]}
        >>> arrays |= {"value": [0, -1.0, 2.0]}
        >>> trees = TreeEnsemble.unpack({f"t.{field}": np.array(part) for field, part in arrays.items()}, "t")
        >>> trees(np.array([[0.5], [0.6]])).tolist()
        [-1.0, 2.0]
        """
        roots, feature, threshold, left, right, leaf_value = (
            arrays[f"{name}.{field}"] for field in ("roots", "feature", "bar", "left", "right", "value")
        )
        leaf = left == np.arange(len(left))
        tree = np.repeat(np.arange(len(roots)), np.diff(np.append(roots, len(left))))
        leaves_before = (
            np.cumsum(leaf) - leaf
        )  # so many leaves stand before a node, and so many of its own tree:
        rank = (leaves_before - leaves_before[roots][tree]).astype(np.uint64)
        unit = np.uint64(1)
        mask = (ALL_LEAVES ^ ((unit << rank[right]) - (unit << rank[left]))).astype(np.uint32)
        inner = np.flatnonzero(~leaf)
        sizes = np.bincount(tree[inner], minlength=len(roots))
        starts = np.cumsum(sizes) - sizes
        nodes = inner[starts + np.minimum(np.arange(sizes.max())[:, None], sizes - 1)]
        values = np.zeros((32, len(roots)))
        values[rank[leaf].astype(int), tree[leaf]] = leaf_value[leaf]
        return TreeEnsemble(
            feature[nodes].astype(np.int64), threshold[nodes].astype(float), mask[nodes], values
        )

    def __call__(self, features: Array) -> Array:
        """Return the log-odds for each row of features."""
        rows = range(0, len(features), BLOCK_ROWS)
        summed: Array = np.concatenate([self._score_block(features[row : row + BLOCK_ROWS]) for row in rows])
        return summed

    def _score_block(self, features: Array) -> Array:
        is_above = features.take(self.feature, axis=1) > self.threshold
        remaining = np.bitwise_and.reduce(self.mask | (is_above.view(np.uint8) - LOWEST_BIT), axis=1)
        leaf = (remaining & (~remaining + LOWEST_BIT)).astype(np.float32).view(
            np.uint32
        ) >> 23  # the exponent of 2^n is n
        trees = self.leaf_values.shape[1]
        positions = (leaf - np.uint32(127)) * np.uint32(trees) + np.arange(trees, dtype=np.uint32)
        summed: Array = self.leaf_values.ravel().take(positions).sum(1)
        return summed
