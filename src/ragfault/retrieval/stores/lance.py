"""Vectors in LanceDB with an approximate index; `LanceIndex` beside it keeps whole corpora and searches exactly."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ragfault.model.errors import OutputError, UsageError
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.store_index import StoreHits, import_client

INDEX_KINDS = ("IVF_PQ", "IVF_FLAT", "IVF_HNSW_SQ", "exact")
MIN_TRAINED = 256
"""Fewer vectors train no product quantisation; they are searched exactly."""


class LanceStore:
    """Table in a folder of LanceDB; `index` is IVF_PQ, IVF_FLAT, IVF_HNSW_SQ or exact.

    `breadth` is the number of partitions that are searched, `refine` by how many times `k` candidates are compared
    exactly.
    """

    name = "lance"

    def __init__(
        self,
        path: str | None = None,
        collection: str = "ragfault",
        index: str = "IVF_PQ",
        breadth: int | None = None,
        refine: int | None = None,
    ) -> None:
        if index not in INDEX_KINDS:
            raise UsageError(f'LanceDB has no index "{index}". There are: {", ".join(INDEX_KINDS)}')
        self._database: Any = import_client("lancedb", "lance").connect(path or tempfile.mkdtemp())
        self._name, self._index, self._breadth, self._refine = collection, index, breadth, refine
        self.exact = index == "exact"

    def write(self, vectors: Array) -> None:
        """Create the table with these vectors, and its index."""
        if self._exists():
            raise OutputError(f'LanceDB has a table "{self._name}" already. Name another one.')
        flat = pa.array(vectors.astype("float32").ravel())
        columns = {
            "place": pa.array(range(len(vectors))),
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        table = self._database.create_table(self._name, pa.table(columns))
        if self._index != "exact" and len(vectors) >= MIN_TRAINED:
            table.create_index(metric="cosine", vector_column_name="vector", index_type=self._index)

    def count(self) -> int:
        """Return the number of stored vectors; 0 where the table is not there."""
        return int(self._database.open_table(self._name).count_rows()) if self._exists() else 0

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions by cosine."""
        query = self._database.open_table(self._name).search(vector).distance_type("cosine")
        if self._breadth:
            query = query.nprobes(self._breadth)
        if self._refine:
            query = query.refine_factor(self._refine)
        if allowed is not None:
            query = query.where(f"place IN ({', '.join(map(str, allowed))})", prefilter=True)
        rows = query.select(["place", "_distance"]).limit(k).to_arrow().to_pylist()
        return [(row["place"], 1.0 - row["_distance"]) for row in rows]

    def drop(self) -> None:
        """Delete the table."""
        self._database.drop_table(self._name)

    def _exists(self) -> bool:
        return self._name in self._database.table_names(limit=10_000)
