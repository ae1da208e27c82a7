"""Vectors in Qdrant, by its client: in a folder (local mode, which searches exactly) or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import OutputError
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.store_index import WRITE_BATCH, StoreHits, import_client


class QdrantStore:
    """Collection in Qdrant: `path` is a folder of the local mode, `url` a server; the key comes from the client.

    The local mode compares with every vector; `ef` (the breadth of its search) counts on a server only.
    """

    name = "qdrant"

    def __init__(
        self, path: str | None = None, url: str | None = None, collection: str = "ragfault", ef: int | None = None
    ) -> None:
        qdrant_client = import_client("qdrant_client", "qdrant")
        self._models: Any = qdrant_client.models
        location: dict[str, Any] = {"url": url} if url else {"path": path} if path else {"location": ":memory:"}
        self._client: Any = qdrant_client.QdrantClient(**location)
        self._collection, self._ef = collection, ef
        self.exact = url is None

    def write(self, vectors: Array) -> None:
        """Create the collection with these vectors."""
        if self._client.collection_exists(self._collection):
            raise OutputError(f'Qdrant has a collection "{self._collection}" already. Name another one.')
        shape = self._models.VectorParams(size=vectors.shape[1], distance=self._models.Distance.COSINE)
        self._client.create_collection(self._collection, vectors_config=shape)
        for start in range(0, len(vectors), WRITE_BATCH):
            batch = vectors[start : start + WRITE_BATCH]
            points = self._models.Batch(ids=list(range(start, start + len(batch))), vectors=batch.tolist())
            self._client.upsert(self._collection, points=points, wait=True)

    def count(self) -> int:
        """Return the number of stored vectors; 0 where the collection is not there."""
        if not self._client.collection_exists(self._collection):
            return 0
        return int(self._client.count(self._collection, exact=True).count)

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions by cosine."""
        condition = None
        if allowed is not None:
            condition = self._models.Filter(must=[self._models.HasIdCondition(has_id=list(allowed))])
        params = None if self._ef is None else self._models.SearchParams(hnsw_ef=self._ef)
        result = self._client.query_points(
            self._collection, query=vector.tolist(), limit=k, query_filter=condition, search_params=params
        )
        return [(int(point.id), float(point.score)) for point in result.points]

    def drop(self) -> None:
        """Delete the collection."""
        self._client.delete_collection(self._collection)
