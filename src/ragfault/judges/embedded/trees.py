"""Boosted trees, read from arrays: no library is needed to use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.vectors import Array

__all__ = ["Trees"]


class Trees(NamedTuple):
    """A sum of decision trees.

    All trees lie in one table: a node asks whether one feature is at most its bar and goes to its first child if
    so, to its second if not; a leaf goes to itself.
    """

    roots: Array
    feature: Array
    bar: Array
    children: Array
    """Two for each node, in a row."""
    value: Array
    depth: int

    @staticmethod
    def unpack(arrays: Mapping[str, Array], name: str) -> Trees:
        """The trees of a name in a file of weights."""
        part = {
            field: arrays[f"{name}.{field}"]
            for field in ("roots", "feature", "bar", "left", "right", "value")
        }
        children = np.stack([part["left"], part["right"]], axis=1).ravel().astype(np.int64)
        roots, feature = part["roots"].astype(np.int64), part["feature"].astype(np.int64)
        depth = int(arrays[f"{name}.depth"])
        return Trees(roots, feature, part["bar"].astype(float), children, part["value"].astype(float), depth)

    def __call__(self, features: Array) -> Array:
        """The log-odds for each row of features.

        >>> one = Trees(*map(np.array, ([0], [0, 0, 0], [0.5, 0, 0], [1, 2, 1, 1, 2, 2], [0.0, -1.0, 2.0])), 1)
        >>> one(np.array([[0.5], [0.6]])).tolist()
        [-1.0, 2.0]
        """
        count, width = features.shape
        flat = np.ascontiguousarray(features, float).ravel()
        row = np.repeat(np.arange(count) * width, len(self.roots))
        at = np.tile(self.roots, count)
        for _ in range(self.depth):
            above = flat.take(row + self.feature.take(at)) > self.bar.take(at)
            at = self.children.take(2 * at + above)
        summed: Array = self.value.take(at).reshape(count, -1).sum(1)
        return summed
