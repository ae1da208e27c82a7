"""Vectors in Milvus, by its client: in a file (Milvus Lite) or on a server."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragfault.model.errors import OutputError, UsageError
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.store_index import WRITE_BATCH, StoreHits, import_client

INDEX_PARAMS: dict[str, dict[str, int]] = {
    "FLAT": {},
    "IVF_FLAT": {"nlist": 128},
    "HNSW": {"M": 16, "efConstruction": 200},
}
"""Kind of index → how it is built."""
SEARCH_PARAM = {"IVF_FLAT": "nprobe", "HNSW": "ef"}
"""Kind of index → the name of the breadth of its search."""


class MilvusStore:
    """Collection in Milvus: `path` is a file of Milvus Lite, `uri` a server; `index` FLAT (exact), IVF_FLAT or HNSW.

    `breadth` is nprobe of IVF_FLAT and ef of HNSW.
    """

    name = "milvus"

    def __init__(
        self,
        path: str | None = None,
        uri: str | None = None,
        collection: str = "ragfault",
        index: str = "IVF_FLAT",
        breadth: int | None = None,
    ) -> None:
        pymilvus = import_client("pymilvus", "milvus")
        self._types: Any = pymilvus.DataType
        if index not in INDEX_PARAMS:
            raise UsageError(f'Milvus is used with no index "{index}". There are: {", ".join(INDEX_PARAMS)}')
        self._client: Any = pymilvus.MilvusClient(
            uri or (path and f"{path.removesuffix('.db')}.db") or str(Path(tempfile.mkdtemp()) / "milvus.db")
        )
        self._collection, self._index, self._breadth = collection, index, breadth
        self.exact = index == "FLAT"

    def write(self, vectors: Array) -> None:
        """Create the collection with these vectors."""
        if self._client.has_collection(self._collection):
            raise OutputError(f'Milvus has a collection "{self._collection}" already. Name another one.')
        schema = self._client.create_schema(auto_id=False)
        schema.add_field("place", self._types.INT64, is_primary=True)
        schema.add_field("vector", self._types.FLOAT_VECTOR, dim=vectors.shape[1])
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type=self._index, metric_type="COSINE", params=INDEX_PARAMS[self._index])
        self._client.create_collection(self._collection, schema=schema, index_params=index)
        for start in range(0, len(vectors), WRITE_BATCH):
            rows = enumerate(vectors[start : start + WRITE_BATCH].tolist(), start)
            self._client.insert(self._collection, [{"place": place, "vector": row} for place, row in rows])
        self._client.flush(self._collection)
        self._client.load_collection(self._collection)

    def count(self) -> int:
        """Return the number of stored vectors; 0 where the collection is not there."""
        if not self._client.has_collection(self._collection):
            return 0
        return int(self._client.query(self._collection, output_fields=["count(*)"])[0]["count(*)"])

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions by cosine."""
        breadth = {SEARCH_PARAM[self._index]: self._breadth} if self._breadth and not self.exact else {}
        [hits] = self._client.search(
            self._collection,
            data=[vector.tolist()],
            limit=k,
            filter="" if allowed is None else f"place in {list(allowed)}",
            search_params={"metric_type": "COSINE", "params": breadth},
        )
        return [(int(hit["place"]), float(hit["distance"])) for hit in hits]

    def drop(self) -> None:
        """Delete the collection."""
        self._client.drop_collection(self._collection)
