"""Loss by approximate search: the best chunks that a vector store misses beside an exact search."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from msgspec import Struct

from ragfault.model.errors import InputError
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.memory import MemoryStore
from ragfault.retrieval.stores.store_index import VectorStore
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval

TIE = 1e-5
"""Cosines that differ by less are equal: stores compute in single precision."""


class StoreLoss(Struct, frozen=True, kw_only=True):
    """Recall of a vector store beside exact search, and its speed."""

    store: str
    exact: bool
    """True if the store compares the query with every vector."""
    k: int
    vectors: int
    queries: int
    recall: Interval
    """Mean share of the best k chunks by exact cosine that the store returns, over the queries."""
    filtered_recall: Interval | None
    """The same where conditions leave a tenth of the chunks; None where that would leave fewer than k."""
    complete: float
    """Share of the queries on which nothing is missed."""
    write_seconds: float
    latency_p50: float
    """Median time of a search in milliseconds, without embedding the query."""
    latency_p95: float

    @property
    def loss(self) -> float:
        """Return the recall lost beside exact search."""
        return 1.0 - self.recall.mean


def measure_store_loss(
    store: VectorStore, vectors: Array, queries: Array, k: int = 10, *, name: str | None = None
) -> StoreLoss:
    """Write vectors to a new collection of a store, search it beside exact search, and drop the collection.

    A returned chunk counts where its exact cosine reaches that of the k-th best, so that ties cost nothing. Rows of
    `vectors` are chunks, rows of `queries` queries. Raises InputError where there is no query or no vector, and
    OutputError where the collection exists.

    >>> rng = np.random.default_rng(0)
    >>> corpus, asked = rng.normal(size=(200, 8)), rng.normal(size=(20, 8))
    >>> measure_store_loss(MemoryStore(), corpus.astype(np.float32), asked.astype(np.float32), 5).loss
    0.0
    """
    if not len(vectors) or not len(queries):
        raise InputError(f"{len(vectors):,} vectors and {len(queries):,} queries: there is nothing to search.")
    k = min(k, len(vectors))
    start = perf_counter()
    store.write(vectors)
    write_seconds = perf_counter() - start
    try:
        control = MemoryStore()
        control.write(vectors)
        shares, times = _search_all(store, control, queries, k, None)
        sampled = np.random.default_rng(0).permutation(len(vectors))[: len(vectors) // 10]
        allowed = sorted(sampled.tolist()) if len(sampled) >= k else None
        filtered = None if allowed is None else _search_all(store, control, queries, k, allowed)[0]
    finally:
        store.drop()
    return StoreLoss(
        store=name or store.name,
        exact=store.exact,
        k=k,
        vectors=len(vectors),
        queries=len(queries),
        recall=mean_interval(shares, bounds=(0.0, 1.0)),
        filtered_recall=None if filtered is None else mean_interval(filtered, bounds=(0.0, 1.0)),
        complete=float(np.mean(np.asarray(shares) >= 1.0)),
        write_seconds=write_seconds,
        latency_p50=float(np.percentile(times, 50)),
        latency_p95=float(np.percentile(times, 95)),
    )


def _search_all(
    store: VectorStore, control: MemoryStore, queries: Array, k: int, allowed: Sequence[int] | None
) -> tuple[list[float], list[float]]:
    """Return for each query the share of the best chunks that the store returns, and the milliseconds it took."""
    shares, times = [], []
    for query in queries:
        start = perf_counter()
        hits = store.search(query, k, allowed)
        times.append(1000 * (perf_counter() - start))
        ranking = control.search(query, control.count(), allowed)
        scores, threshold = dict(ranking), ranking[k - 1][1] - TIE
        correct = {row for row, _ in hits[:k] if scores.get(row, -2.0) >= threshold}
        shares.append(len(correct) / k)
    return shares, times
