"""Sums and counts of values by cluster, for values that are not independent."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Values = Sequence[float] | NDArray[np.float64]
Clusters = Sequence[Hashable] | NDArray[np.generic]
"""The cluster of each value: any hashables, or an array. Integer arrays are fastest."""


def encode_clusters(clusters: Clusters, size: int) -> tuple[NDArray[np.intp], int]:
    """Return the number of each value's cluster, counted from 0, and the count of clusters.

    Raises ValueError where there is not one name for each of `size` values.

    >>> encode_clusters(["b", "a", "b"], 3)
    (array([0, 1, 0]), 2)
    """
    if len(clusters) != size:
        raise ValueError(f"{len(clusters)} clusters for {size} values: give one cluster for each value")
    if isinstance(clusters, np.ndarray):
        if clusters.dtype.kind in "iub":
            return _encode_integers(clusters)
        clusters = clusters.tolist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
    return np.fromiter(map(numbers.__getitem__, clusters), dtype=np.intp, count=size), len(numbers)


def _encode_integers(clusters: NDArray[np.generic]) -> tuple[NDArray[np.intp], int]:
    """Encode integer names: by counting if they are small, else by sorting."""
    names = clusters.astype(np.int64, copy=False) if clusters.dtype.kind != "u" else clusters
    if clusters.size and int(names.min()) >= 0 and int(names.max()) < 4 * clusters.size + 16:
        index = names.astype(np.intp, copy=False)
        used = np.bincount(index) > 0
        if used.all():
            return index, used.size
        return (np.cumsum(used) - 1)[index], int(used.sum())
    distinct, index = np.unique(names, return_inverse=True)
    return index.astype(np.intp, copy=False), distinct.size


class ClusterTable(NamedTuple):
    """Sums and counts of the values of each cluster, clusters by metrics."""

    sums: FloatArray
    counts: FloatArray

    @property
    def n(self) -> FloatArray:
        """Number of values of each metric."""
        total: FloatArray = self.counts.sum(axis=0)
        return total

    @property
    def clusters(self) -> NDArray[np.intp]:
        """Number of clusters with a value of each metric."""
        present: NDArray[np.intp] = np.count_nonzero(self.counts, axis=0)
        return present

    def means(self) -> FloatArray:
        """Return the mean of each metric; 0 without values."""
        mean: FloatArray = self.sums.sum(axis=0) / np.maximum(self.n, 1)
        return mean

    def standard_errors(self) -> FloatArray:
        """Return the clustered standard error of each mean (Liang & Zeger 1986); infinite below two clusters."""
        g = self.clusters.astype(np.float64)
        residuals = self.sums - self.means() * self.counts
        squares = np.einsum("ij,ij->j", residuals, residuals)
        enough = g > 1
        scale = np.where(enough, g / np.where(enough, g - 1, 1), math.inf)
        with np.errstate(invalid="ignore"):
            error: FloatArray = np.where(enough, np.sqrt(scale * squares) / np.maximum(self.n, 1), math.inf)
        return error


def as_matrix(values: ArrayLike) -> FloatArray:
    """Return values as an array of traces by metrics; a sequence is one metric."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise ValueError(f"values have {table.ndim} dimensions: give traces by metrics")
    return table


def subtract_pairs(baseline: ArrayLike, candidate: ArrayLike, defined: ArrayLike | None) -> FloatArray:
    """Return candidate less baseline, traces by metrics; 0 where there is no pair.

    >>> subtract_pairs([1, 2], [3, math.inf], [True, False]).ravel()
    array([2., 0.])
    """
    before, after = as_matrix(baseline), as_matrix(candidate)
    if before.shape != after.shape:
        raise ValueError(f"baseline is {before.shape}, candidate {after.shape}: pairs need the same shape")
    if defined is None:
        return after - before
    exists = np.asarray(defined, dtype=bool)
    exists = exists[:, None] if exists.ndim == 1 else exists
    if exists.shape != after.shape:
        raise ValueError(f"defined has the shape {exists.shape}, the values have {after.shape}")
    return np.subtract(after, before, out=np.zeros_like(after), where=exists)


def tabulate_clusters(
    values: FloatArray, clusters: Clusters | None, defined: ArrayLike | None
) -> ClusterTable:
    """Sum and count the values of each cluster, for every metric at once.

    `defined` says which values exist; the others are never read. Raises ValueError where a value that
    exists is not finite, or where the shapes differ.

    >>> tabulate_clusters(as_matrix([1, 2, 4]), ["a", "b", "a"], None).sums.ravel()
    array([5., 2.])
    """
    exists = np.ones(values.shape, dtype=bool) if defined is None else np.asarray(defined, dtype=bool)
    if exists.ndim == 1:
        exists = exists[:, None]
    if exists.shape != values.shape:
        raise ValueError(f"defined has the shape {exists.shape}, the values have {values.shape}")
    known = values if defined is None else np.where(exists, values, 0.0)
    if not np.isfinite(known).all():
        raise ValueError("a value is not finite: name the values that exist with `defined`")
    counts = exists.astype(np.float64)
    if clusters is None:
        return ClusterTable(known, counts)
    index, g = encode_clusters(clusters, len(values))
    return ClusterTable(_sum_by_cluster(index, known, g), _sum_by_cluster(index, counts, g))


def _sum_by_cluster(index: NDArray[np.intp], values: FloatArray, g: int) -> FloatArray:
    sums = np.empty((g, values.shape[1]))
    for metric in range(values.shape[1]):
        sums[:, metric] = np.bincount(index, weights=values[:, metric], minlength=g)
    return sums


def divide_or_nan(numerator: FloatArray, denominator: FloatArray, tiny: float = 0.0) -> FloatArray:
    """Divide elementwise; NaN where the denominator is not above `tiny`."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: FloatArray = np.where(denominator > tiny, numerator / denominator, math.nan)
    return ratio
