"""Exact search in memory: the control that every approximate search is measured against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragfault.model.errors import OutputError
from ragfault.retrieval.embedders.latent import normalize_rows
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.store_index import StoreHits


class MemoryStore:
    """Vectors in memory, each compared with the query."""

    name, exact = "memory", True

    def __init__(self, collection: str = "ragfault") -> None:
        self.collection = collection
        self._vectors: Array = np.empty((0, 0), np.float32)

    def write(self, vectors: Array) -> None:
        """Keep these vectors."""
        if len(self._vectors):
            raise OutputError("the store in memory holds vectors already. Make another one.")
        self._vectors = normalize_rows(vectors)

    def count(self) -> int:
        """Return the number of stored vectors."""
        return len(self._vectors)

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions by cosine; equal ones keep their order."""
        scores = self._vectors @ normalize_rows(np.asarray(vector, np.float32)[None, :])[0]
        rows = np.arange(len(scores)) if allowed is None else np.asarray(allowed, np.int64)
        order = rows[np.argsort(-scores[rows], kind="stable")[:k]]
        return [(int(row), float(scores[row])) for row in order]

    def drop(self) -> None:
        """Forget the vectors."""
        self._vectors = np.empty((0, 0), np.float32)
