"""Clusters as numbers: which values belong together, whatever names them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clusters", "Values", "codes"]

Values = Sequence[float] | NDArray[np.float64]
Clusters = Sequence[Hashable] | NDArray[np.generic]
"""One name for each value; any hashables, or an array. Integer arrays are fastest."""


def codes(clusters: Clusters, size: int) -> tuple[NDArray[np.intp], int]:
    """The number of each value's cluster, from 0 to the count less 1, and that count.

    Raises ValueError where there is not one name for each of `size` values.

    >>> codes(["b", "a", "b"], 3)
    (array([0, 1, 0]), 2)
    """
    if len(clusters) != size:
        raise ValueError(f"{len(clusters)} clusters for {size} values: give one cluster for each value")
    if isinstance(clusters, np.ndarray):
        if clusters.dtype.kind in "iub":
            return _integers(clusters)
        clusters = clusters.tolist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    return np.fromiter(map(numbers.__getitem__, clusters), dtype=np.intp, count=size), len(numbers)


def _integers(clusters: NDArray[np.generic]) -> tuple[NDArray[np.intp], int]:
    """Integer names: counted where they are small, else sorted."""
    names = clusters.astype(np.int64, copy=False) if clusters.dtype.kind != "u" else clusters
    if clusters.size and int(names.min()) >= 0 and int(names.max()) < 4 * clusters.size + 16:
        index = names.astype(np.intp, copy=False)
        used = np.bincount(index) > 0
        if used.all():
            return index, used.size
        return (np.cumsum(used) - 1)[index], int(used.sum())
    found, index = np.unique(names, return_inverse=True)
    return index.astype(np.intp, copy=False), found.size
