"""Mining of queries from traces: near-duplicates merged, and a sample that represents topics, lengths and routes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from ragfault.io.field_values import make_content_id
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.errors import InputError, UsageError
from ragfault.model.grouping import group_by
from ragfault.model.records import Trace
from ragfault.stats.bootstrap import FloatArray
from ragfault.text.normalization import normalize_answer, split_content_words
from ragfault.text.similarity import make_shingles

MAX_TOPICS = 20
MIN_TOPIC_QUERIES = 8
"""Distinct queries for each topic; of fewer there is one topic."""
ITERATIONS = 30
SIMILAR = 0.8
"""Jaccard similarity of pairs of content words from which on two long queries count as one."""
LONG_QUERY = 6
"""Content words from which on queries are compared by pairs of words; shorter ones by all their words in order."""
LENGTHS = ("short", "middle", "long")
"""Thirds of the distinct queries by their number of words."""


class QueryStratum(Struct, frozen=True, kw_only=True):
    """Queries of one topic, length and route: their share of the traffic and of the sample."""

    topic: str
    """The words that tell the topic from the others."""
    length: str
    route: str | None
    traffic: float
    sample: float


class MinedQueries(Struct, frozen=True, kw_only=True):
    """A representative sample of the queries of traces."""

    items: tuple[Trace, ...]
    traces: int
    distinct: int
    """Queries that are no near-duplicates of each other."""
    strata: tuple[QueryStratum, ...]
    """The largest share of the traffic first."""


class _Query(Struct):
    trace: Trace
    count: int = 1
    topic: int = 0
    length: int = 0


def mine_queries(traces: Iterable[Trace], n: int, *, seed: int = 0) -> MinedQueries:
    """Draw a sample of at most n distinct queries from traces, which represents their topics, lengths and routes.

    Near-duplicates (one text but for case, punctuation and small words, or long ones that share four fifths of their
    pairs of words) become one query, the first one, with the number of traces as weight. Each combination of topic
    (clusters of word vectors), third by length, and route gets its share of the traffic; within it queries are drawn by
    weight. Items have no gold and no reference: people, or `testset pool`, add them. The same traces, number and seed
    give the same sample. Raises UsageError for n below 1, InputError where no trace has a query with a word.

    >>> traces = [Trace(id=str(i), query=query) for i, query in enumerate(("When does it open?", "when does it OPEN"))]
    >>> mined = mine_queries(traces, 5)
    >>> len(mined.items), mined.items[0].metadata["provenance"]["traces"]
    (1, 2)
    """
    if n < 1:
        raise UsageError("a sample has at least 1 query.")
    searchable = [trace for trace in traces if split_content_words(trace.query)]
    if not searchable:
        raise InputError("no trace has a query of words to mine.")
    queries = merge_near_duplicates(searchable)
    names = _assign_topics(queries, seed)
    _assign_lengths(queries)
    strata = group_by(queries, lambda query: (query.topic, query.length, query.trace.route))
    counts = _allocate(
        {key: [query.count for query in members] for key, members in strata.items()}, min(n, len(queries))
    )
    rng = random.Random(seed)
    items = []
    for key, members in strata.items():
        for query in _draw(members, counts[key], rng):
            items.append(_build_item(query, names[query.topic], seed, len(searchable)))
    rng.shuffle(items)
    total, size = sum(query.count for query in queries), max(1, len(items))
    described = [
        QueryStratum(
            topic=names[key[0]],
            length=LENGTHS[key[1]],
            route=key[2],
            traffic=sum(query.count for query in members) / total,
            sample=counts[key] / size,
        )
        for key, members in strata.items()
    ]
    return MinedQueries(
        items=tuple(items),
        traces=len(searchable),
        distinct=len(queries),
        strata=tuple(sorted(described, key=lambda item: (-item.traffic, item.topic, item.length, str(item.route)))),
    )


def merge_near_duplicates(traces: Sequence[Trace]) -> list[_Query]:
    """Merge the near-duplicates of one route; the first of them stands for all."""
    by_words: dict[tuple[str | None, tuple[str, ...]], _Query] = {}
    holders: defaultdict[tuple[str | None, str], list[tuple[frozenset[str], _Query]]] = defaultdict(list)
    for trace in traces:
        words = tuple(split_content_words(trace.query))
        earlier = by_words.get((trace.route, words))
        if earlier is None and len(words) >= LONG_QUERY:
            pairs = make_shingles(" ".join(words), 2)
            rivals = (item for pair in sorted(pairs) for item in holders[trace.route, pair])
            earlier = next(
                (query for theirs, query in rivals if len(pairs & theirs) >= SIMILAR * len(pairs | theirs)), None
            )
        if earlier is not None:
            earlier.count += 1
            continue
        query = by_words[trace.route, words] = _Query(trace)
        if len(words) >= LONG_QUERY:
            for pair in pairs:
                holders[trace.route, pair].append((pairs, query))
    return list(by_words.values())


def _assign_topics(queries: Sequence[_Query], seed: int) -> list[str]:
    """Assign each query a topic by k-means of its word vectors; return the names of the topics."""
    k = min(MAX_TOPICS, len(queries) // MIN_TOPIC_QUERIES)
    if k > 1:
        vectors = np.asarray(embed_word_vectors([query.trace.query for query in queries]), np.float64)
        for query, topic in zip(queries, cluster_vectors(vectors, k, seed).tolist(), strict=True):
            query.topic = topic
    words = [Counter[str]() for _ in range(max(1, k))]
    for query in queries:
        words[query.topic].update(set(split_content_words(query.trace.query)))
    everywhere = sum(words, Counter[str]())
    return [
        " ".join(sorted(counts, key=lambda word: (-(counts[word] ** 2) / everywhere[word], word))[:3]) or "other"
        for counts in words
    ]


def cluster_vectors(vectors: FloatArray, k: int, seed: int) -> FloatArray:
    """Cluster unit vectors by k-means, begun by k-means++; return the number of the cluster of each."""
    rng = np.random.default_rng(seed)
    centres = vectors[[int(rng.integers(len(vectors)))]]
    for _ in range(k - 1):
        distance = np.maximum(0.0, 1 - (vectors @ centres.T).max(axis=1))
        total = distance.sum()
        if total <= 1e-9:
            break
        centres = np.vstack([centres, vectors[int(rng.choice(len(vectors), p=distance / total))]])
    labels = np.zeros(len(vectors), int)
    for _ in range(ITERATIONS):
        new = (vectors @ centres.T).argmax(axis=1)
        if (new == labels).all():
            break
        labels = new
        for index in range(len(centres)):
            if (labels == index).any():
                centre = vectors[labels == index].mean(axis=0)
                centres[index] = centre / max(1e-9, float(np.linalg.norm(centre)))
    return labels


def _assign_lengths(queries: Sequence[_Query]) -> None:
    sizes = sorted(len(query.trace.query.split()) for query in queries)
    bounds = [sizes[len(sizes) * third // 3] for third in (1, 2)]
    for query in queries:
        size = len(query.trace.query.split())
        query.length = sum(size >= bound for bound in bounds) if bounds[0] < bounds[1] else int(size >= bounds[0])


def _allocate(weights: dict[tuple[int, int, str | None], list[int]], n: int) -> dict[tuple[int, int, str | None], int]:
    """Divide n by the traffic of the strata, each at most its number of queries, the largest remainders first."""
    counts = dict.fromkeys(weights, 0)
    total = sum(map(sum, weights.values()))
    exact = {key: n * sum(members) / total for key, members in weights.items()}
    for key, value in exact.items():
        counts[key] = min(int(value), len(weights[key]))
    while sum(counts.values()) < n:
        open_keys = [key for key in weights if counts[key] < len(weights[key])]
        key = max(open_keys, key=lambda key: (exact[key] - counts[key], str(key)))
        counts[key] += 1
    return counts


def _draw(members: Sequence[_Query], count: int, rng: random.Random) -> list[_Query]:
    """Draw queries without replacement, with chances by their weights (Efraimidis & Spirakis 2006)."""
    keyed = [(rng.random() ** (1 / query.count), i) for i, query in enumerate(members)]
    return [members[at] for _, at in sorted(keyed, reverse=True)[:count]]


def _build_item(query: _Query, topic: str, seed: int, traces: int) -> Trace:
    trace = query.trace
    provenance = {"maker": "mined", "seed": seed, "trace": trace.id, "traces": query.count, "of": traces}
    return Trace(
        id=make_content_id(f"{normalize_answer(trace.query)} {trace.route}", "m-"),
        query=trace.query,
        history=trace.history,
        route=trace.route,
        metadata={"kind": "mined", "review": "pending", "topic": topic, "provenance": provenance},
    )
