"""Pooling: passages of several retrievers to be labelled, and an estimate of the relevant ones that none retrieved.

The pool of a query is the union of the best passages of each retriever (Spärck Jones & van Rijsbergen 1975). Of the
relevant passages that exactly one retriever returned (f1) and exactly two (f2), the number that m retrievers missed is
at least about (m − 1) / m · f1 (f1 − 1) / (2 (f2 + 1)) (Chao 1987), were retrievers independent; as they are alike, it
is more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.labels.label import Label
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Document, Gold, Trace
from ragfault.stats.bootstrap import FloatArray
from ragfault.text.normalization import split_content_words

RELEVANT = 0.5
"""Relevance from which on a labelled passage is gold."""
LEVELS = {"high": 1.0, "medium": 0.5, "low": 0.25, "none": 0.0}
RESAMPLES = 500

Retriever = Callable[[str], FloatArray]
"""Query → the score of each passage."""


class PoolEstimate(Struct, frozen=True, kw_only=True):
    """Labels of a pool, and the number of relevant passages that it misses."""

    queries: int
    """Queries with a labelled passage."""
    labelled: int
    """Labelled passages."""
    relevant: int
    unseen: float | None
    """Least number of relevant passages outside the pool, estimated; None without a relevant one."""
    unseen_low: float | None = None
    unseen_high: float | None = None
    """Its 95 % interval, by queries."""


def load_retrievers(index: CorpusIndex) -> dict[str, Retriever]:
    """Load the retrievers: words by rarity, word vectors, and with the extra `tune` BM25 and latent vectors."""

    def score_words(query: str) -> FloatArray:
        scores = np.zeros(len(index.passages))
        for at, score in index.score_passages(split_content_words(query)).items():
            scores[at] = score
        return scores

    retrievers: dict[str, Retriever] = {
        "words": score_words,
        "vectors": lambda query: np.asarray(index.embeddings @ embed_word_vectors([query])[0], np.float64),
    }
    texts = [passage.text for passage in index.passages]
    try:
        from ragfault.retrieval.embedders.latent import LatentEmbedder
        from ragfault.retrieval.index import BM25Index

        bm25 = BM25Index().fit(texts)
        latent = LatentEmbedder().fit(texts)
        rows = latent.embed(texts)
    except ImportError:
        return retrievers
    retrievers["bm25"] = lambda query: np.asarray(bm25.score_texts(query), np.float64)
    retrievers["latent"] = lambda query: np.asarray(rows @ latent.embed([query])[0], np.float64)
    return retrievers


def pool_passages(
    documents: Iterable[Document], items: Sequence[Trace], *, depth: int = 10, seed: int = 0
) -> list[Trace]:
    """Pool the best passages of several retrievers for each item, in an order that hides their ranks.

    A pooled item has the passages as chunks, with the retrievers of each in `metadata.pool`. Raises UsageError for a
    depth below 1, InputError for a corpus without a passage or a set without an item.

    >>> text = "The canal bridge was opened by Ann Lee in 1907. It carries 40 carts an hour across the river Bren."
    >>> pooled = pool_passages([Document(id="bridge.md", text=text)], [Trace(id="1", query="Who opened the bridge?")])
    >>> [chunk.document for chunk in pooled[0].chunks]
    ['bridge.md']
    """
    if depth < 1:
        raise UsageError("a pool is at least 1 passage deep.")
    index = CorpusIndex(documents)
    if not index.passages or not items:
        raise InputError("a pool needs a passage of twelve words or more, and an item.")
    retrievers, rng = load_retrievers(index), random.Random(seed)
    pooled = []
    for item in items:
        sources: dict[int, list[str]] = {}
        for name, score in retrievers.items():
            scores = score(item.query)
            best = [i for i in np.argsort(-scores, kind="stable")[:depth].tolist() if scores[i] > 0]
            for i in best:
                sources.setdefault(i, []).append(name)
        passages = sorted(sources)
        rng.shuffle(passages)
        chunks = tuple(_make_chunk(index, i) for i in passages)
        returned_by = {chunk.id: sources[i] for chunk, i in zip(chunks, passages, strict=True)}
        metadata = {**item.metadata, "pool": {"retrievers": list(retrievers), "depth": depth, "chunks": returned_by}}
        pooled.append(replace(item, chunks=chunks, answer=None, metadata=metadata))
    return pooled


def _make_chunk(index: CorpusIndex, at: int) -> Chunk:
    passage = index.passages[at]
    name = f"{passage.document}#{passage.start}-{passage.end}"
    return Chunk(id=name, text=passage.text, document=passage.document, start=passage.start, end=passage.end)


def apply_pool_labels(
    documents: Iterable[Document], pooled: Sequence[Trace], labels: Iterable[Label], *, seed: int = 0
) -> tuple[list[Trace], PoolEstimate]:
    """Return the items of a pool with the passages that people call relevant as gold, and an estimate of those missed.

    Of several labels of a passage the last one counts. An item without a relevant passage gets no gold.
    """
    grades: dict[tuple[str, str], float] = {}
    for label in labels:
        if label.part == "chunk" and not label.is_empty_review:
            value = LEVELS[label.value] if isinstance(label.value, str) else float(label.value)  # type: ignore[arg-type]
            grades[label.trace, str(label.subject[1])] = value
    index = CorpusIndex(documents)
    items, tables = [], []
    labelled = 0
    for item in pooled:
        chunks = [chunk for chunk in item.chunks or () if (item.id, chunk.id) in grades]
        relevant = [chunk for chunk in chunks if grades[item.id, chunk.id] >= RELEVANT]
        labelled += len(chunks)
        if chunks:
            sources = item.metadata.get("pool", {}).get("chunks", {})
            tables.append(Counter(len(sources.get(chunk.id, ())) for chunk in relevant))
        items.append(_add_gold(index, item, relevant, grades))
    names = {name for item in pooled for name in item.metadata.get("pool", {}).get("retrievers", ())}
    relevant_count = sum(sum(table.values()) for table in tables)
    estimate = PoolEstimate(queries=len(tables), labelled=labelled, relevant=relevant_count, unseen=None)
    if relevant_count and len(names) > 1:
        rng = random.Random(seed)
        draws = sorted(estimate_unseen([rng.choice(tables) for _ in tables], len(names)) for _ in range(RESAMPLES))
        estimate = replace(
            estimate,
            unseen=estimate_unseen(tables, len(names)),
            unseen_low=draws[RESAMPLES // 40],
            unseen_high=draws[-1 - RESAMPLES // 40],
        )
    return items, estimate


def estimate_unseen(tables: Sequence[Mapping[int, int]], retrievers: int) -> float:
    """Estimate the relevant passages that no retriever returned; tables: number of retrievers → relevant passages.

    >>> estimate_unseen([{1: 10, 2: 4, 3: 9}], 4)
    6.75
    """
    once, twice = (sum(table.get(count, 0) for table in tables) for count in (1, 2))
    return (retrievers - 1) / retrievers * once * max(0, once - 1) / (2 * (twice + 1))


def _add_gold(
    index: CorpusIndex, item: Trace, relevant: Sequence[Chunk], grades: Mapping[tuple[str, str], float]
) -> Trace:
    """Return an item without its pool, with gold spans for relevant passages that its gold does not overlap yet."""
    metadata = {name: value for name, value in item.metadata.items() if name != "pool"}
    spans = list(item.gold.spans) if item.gold is not None else []
    for chunk in relevant:
        start, end = chunk.start or 0, chunk.end or 0
        is_covered = any(span.document == chunk.document and span.start < end and start < span.end for span in spans)
        if not is_covered and chunk.document is not None:
            spans.append(replace(index.make_span(chunk.document, start, end), grade=grades[item.id, chunk.id]))
    gold = replace(item.gold or Gold(), spans=tuple(spans)) if spans else item.gold
    return replace(item, chunks=None, metadata=metadata, gold=gold)
