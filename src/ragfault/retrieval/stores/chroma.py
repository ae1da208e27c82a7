"""Vectors in Chroma, by its client: in memory, in a folder, or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import OutputError
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.store_index import WRITE_BATCH, StoreHits, import_client


class ChromaStore:
    """Collection in Chroma: `path` is a folder, `host` a server; `ef_search` the breadth of its search (HNSW).

    Its telemetry is switched off.
    """

    name, exact = "chroma", False

    def __init__(
        self,
        path: str | None = None,
        host: str | None = None,
        port: int = 8000,
        collection: str = "ragfault",
        ef_search: int | None = None,
    ) -> None:
        chromadb = import_client("chromadb", "chroma")
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        self._client: Any
        if host:
            self._client = chromadb.HttpClient(host=host, port=port, settings=settings)
        elif path:
            self._client = chromadb.PersistentClient(path=path, settings=settings)
        else:
            self._client = chromadb.EphemeralClient(settings=settings)
        self._name, self._ef = collection, ef_search
        self._collection: Any = None
        self._absence_error: Any = chromadb.errors.NotFoundError

    def write(self, vectors: Array) -> None:
        """Create the collection with these vectors."""
        if self._open() is not None:
            raise OutputError(f'Chroma has a collection "{self._name}" already. Name another one.')
        shape: dict[str, Any] = {"space": "cosine", **({"ef_search": self._ef} if self._ef else {})}
        self._collection = self._client.create_collection(
            self._name, configuration={"hnsw": shape}, embedding_function=None
        )
        for start in range(0, len(vectors), WRITE_BATCH):
            batch = vectors[start : start + WRITE_BATCH]
            self._collection.add(ids=[str(start + i) for i in range(len(batch))], embeddings=batch)

    def count(self) -> int:
        """Return the number of stored vectors; 0 where the collection is not there."""
        collection = self._open()
        return 0 if collection is None else int(collection.count())

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions by cosine."""
        filters = {} if allowed is None else {"ids": [str(row) for row in allowed]}
        result = self._open().query(query_embeddings=[vector], n_results=k, include=["distances"], **filters)
        return [
            (int(name), 1.0 - float(distance))
            for name, distance in zip(result["ids"][0], result["distances"][0], strict=True)
        ]

    def drop(self) -> None:
        """Delete the collection."""
        self._client.delete_collection(self._name)
        self._collection = None

    def _open(self) -> Any:
        """Return the collection; None where it is not there."""
        if self._collection is None:
            try:
                self._collection = self._client.get_collection(self._name, embedding_function=None)
            except self._absence_error:
                return None
        return self._collection
