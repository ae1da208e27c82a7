"""An index whose dense search is done by a vector store, and the registry of stores."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, Self

import numpy as np
from msgspec.structs import replace

from ragfault.model.errors import UnknownName, UsageError, require_extra
from ragfault.model.expressions import Scalar, parse_expression
from ragfault.retrieval.index import Array, ChunkIndex
from ragfault.retrieval.pipeline import Hits, Query
from ragfault.retrieval.search import SearchKind

WRITE_BATCH = 1000
"""Vectors that are sent together."""

StoreHits = list[tuple[int, float]]
"""Positions of chunks with their cosine, the best first."""


class VectorStore(Protocol):
    """A collection of vectors in a store, each under the position of its chunk."""

    name: str
    exact: bool
    """True if it compares the query with every vector; False if it searches approximately."""

    def write(self, vectors: Array) -> None:
        """Create the collection with these vectors. Raises OutputError where one of its name is there."""
        ...

    def count(self) -> int:
        """Return the number of stored vectors; 0 where the collection is not there."""
        ...

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions, where `allowed` is given only of these."""
        ...

    def drop(self) -> None:
        """Delete the collection."""
        ...


STORES = {
    "memory": ("memory", "MemoryStore"), "qdrant": ("qdrant", "QdrantStore"), "chroma": ("chroma", "ChromaStore"),
    "milvus": ("milvus", "MilvusStore"), "pgvector": ("pgvector", "PgvectorStore"), "lance": ("lance", "LanceStore"),
}  # fmt: skip
"""Name → module and class."""


def load_store(expression: str, **options: Scalar) -> VectorStore:
    """Return the store of an expression such as `chroma(path="store", ef_search=200)`; `options` are added to its own.

    Raises UnknownName for a store that does not exist, UsageError for an option it does not take, MissingExtra where
    its client is not installed.

    >>> store = load_store("memory")
    >>> store.write(np.eye(3, dtype=np.float32))
    >>> store.search(np.array([0.0, 1.0, 0.0]), 1, None)
    [(1, 1.0)]
    """
    call = parse_expression(expression)
    if call.name not in STORES:
        raise UnknownName("vector store", call.name, STORES)
    module, kind = STORES[call.name]
    try:
        store: VectorStore = getattr(import_module(f"ragfault.retrieval.stores.{module}"), kind)(
            *call.arguments, **{**options, **call.options}
        )
    except TypeError as error:
        raise UsageError(f'the vector store "{expression}" cannot be made: {error}.') from None
    return store


def import_client(module: str, extra: str) -> Any:
    """Return the module of a client. Raises MissingExtra where it is not installed."""
    with require_extra(f"the vector store {extra}", extra):
        return import_module(module)


class StoreIndex(ChunkIndex):
    """Index whose dense search is done by a vector store; words, conditions and texts stay in this process.

    Every stage of a pipeline works on it as on a `ChunkIndex`. The positions that meet the conditions of a query are
    handed to the store, so that they are met before the search.

    >>> from ragfault.model.records import Chunk
    >>> from ragfault.retrieval.embedders.registry import load_embedder
    >>> chunks = [Chunk(id="a", text="The ferry leaves at ten."), Chunk(id="b", text="Dogs need a lead.")]
    >>> index = ChunkIndex.build(chunks, load_embedder("latent", dimensions=2))
    >>> found = StoreIndex.of(index, load_store("memory")).retrieve("dense", k=1)(Query(text="the ferry"), ())
    >>> [hit.id for hit in found.hits]
    ['a']
    """

    store: VectorStore

    @classmethod
    def of(cls, index: ChunkIndex, store: VectorStore) -> Self:
        """Return the index over a store; its vectors are written where the collection is not there.

        Raises UsageError where the index has no embedder, or the collection holds another number of vectors.
        """
        if index.embedder is None or index.vectors is None:
            raise UsageError("this index has no embedder: a vector store has nothing to hold. Build it with one.")
        stored = store.count()
        if stored == 0:
            store.write(index.vectors)
        elif stored != len(index.chunks):
            raise UsageError(
                f"the collection of {store.name} holds {stored:,} vectors and the index {len(index.chunks):,} chunks. "
                "Name another collection, or drop it and write it again."
            )
        of_store = cls(index.chunks, index.manifest, bm25=index.bm25, embedder=index.embedder, vectors=index.vectors)
        of_store.store = store
        return of_store

    def search(self, kind: SearchKind, text: str, k: int, query: Query) -> Hits:
        """Return the best chunks for a text by one search, among those that meet the conditions of the query."""
        if kind == "sparse":
            return super().search(kind, text, k, query)
        assert self.embedder is not None
        mask = self.mask_allowed(query)
        allowed = None if mask is None else np.flatnonzero(mask).tolist()
        if allowed == []:
            return ()
        hits = self.store.search(self.embedder.embed([text], query=True)[0], k, allowed)
        return tuple(replace(self.chunks[place], score=score) for place, score in hits)
