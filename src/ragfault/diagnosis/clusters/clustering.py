"""Clustering of failing traces: by density where there are many, by kind and shared words where few."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ragfault.diagnosis.clusters.description import (
    ClusterTerms,
    TracePopulation,
    compute_trends,
    describe_cluster,
    distinctive_terms,
    format_member_id,
    load_population,
    name_cluster,
    read_failures,
)
from ragfault.diagnosis.clusters.records import Cluster, ClusterReport, FailingTrace
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.io.runs.run import Run, open_run
from ragfault.io.runs.samples import sample_run
from ragfault.model.errors import UsageError, require_extra
from ragfault.model.grouping import group_positions
from ragfault.model.protocols import Embedder
from ragfault.text.normalization import split_content_words

# of a run with more traces so many are drawn at random
CLUSTERED_TRACES = 8_000
# to so many dimensions failures are brought before they are clustered
DIMENSIONS = 20
# the name of the embedding that needs no embedder
WORD_VECTORS = "word vectors"

Array = np.ndarray[Any, Any]


def failure_texts(failures: Sequence[FailingTrace]) -> list[str]:
    """Return the text to embed of each failure: its query and what failed."""
    return [f"{failure.query}\n{failure.text}" for failure in failures]


def fit_embedder(embedder: Embedder | None, failures: Sequence[FailingTrace]) -> Embedder | None:
    """Fit an embedder that needs a corpus on the failures; return it."""
    if embedder is not None and getattr(embedder, "fitted", True) is False:
        embedder.fit(failure_texts(failures))  # type: ignore[attr-defined]
    return embedder


def embed_failures(failures: Sequence[FailingTrace], embedder: Embedder | None = None) -> Array:
    """Embed each failure as a unit vector, by the embedder or by the bundled word vectors."""
    from ragfault.judges.embedded.word_vectors import embed_word_vectors

    embed = embed_word_vectors if embedder is None else embedder.embed
    return np.asarray(embed(failure_texts(failures)), np.float64).reshape(len(failures), -1)


def encode_kinds(failures: Sequence[FailingTrace]) -> Array:
    """Encode the problem kinds of each failure as a unit vector that weighs rarer kinds more."""
    place = {kind: i for i, kind in enumerate(PROBLEM_KINDS)}
    counted = Counter(kind for failure in failures for kind in failure.kinds)
    rows = np.zeros((len(failures), len(place)))
    for index, failure in enumerate(failures):
        for kind in failure.kinds:
            if kind != "irrelevant_chunk":
                rows[index, place[kind]] = math.log(1 + len(failures) / (1 + counted[kind]))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit_rows: Array = rows / np.where(lengths > 0, lengths, 1)
    return unit_rows


def reduce_dimensions(meaning: Array, kinds: Array) -> Array:
    """Reduce meaning and kinds, side by side, to at most DIMENSIONS (principal components: Hotelling 1933)."""
    with require_extra("clustering by meaning", "cluster"):
        from sklearn.decomposition import PCA
    rows = np.hstack([meaning, kinds])
    # without variance there are no components
    if (rows == rows[0]).all():
        return np.zeros((len(rows), 1))
    size = min(DIMENSIONS, *rows.shape)
    components: Array = PCA(size, svd_solver="covariance_eigh").fit_transform(rows)
    return np.round(components, 6)


# below so many failures density says nothing, and they are grouped by kind and words
DENSITY_MINIMUM = 30
# the label of a failure that belongs to no group
NO_CLUSTER = -1
# the neighbours by which the density at a failure is measured, itself among them
NEIGHBORS = 3
# from this cosine of their middles on, two clusters are one
MERGE_SIMILARITY = 0.8
# the least size of a group by words
MIN_WORD_GROUP = 2


def minimum_size(failures: int) -> int:
    """Return the default minimum cluster size: half the root of the number of failures, at least five.

    >>> minimum_size(40), minimum_size(500), minimum_size(10_000)
    (5, 11, 50)
    """
    return max(5, round(math.sqrt(failures) / 2))


def cluster_by_density(vectors: Array, smallest: int) -> list[int]:
    """Label each row by density clustering, NO_CLUSTER for noise (HDBSCAN: Campello, Moulavi & Sander 2013).

    The leaves of its tree are the clusters: where most traces fail, the most stable node is often nearly all of them.
    Rows that are the same are a cluster, too, where nothing else is dense beside them.
    """
    with require_extra("clustering by meaning", "cluster"):
        from sklearn.cluster import HDBSCAN
    clusterer = HDBSCAN(min_cluster_size=smallest, min_samples=NEIGHBORS, cluster_selection_method="leaf", copy=True)
    labels = clusterer.fit_predict(vectors)
    _, same, counts = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
    copies = (labels == NO_CLUSTER) & (counts[same.reshape(-1)] >= smallest)
    labels[copies] = labels.max() + 1 + same.reshape(-1)[copies]
    numbered: list[int] = labels.tolist()
    return numbered


def merge_similar(labels: Sequence[int], vectors: Array) -> list[int]:
    """Merge clusters whose centroids are nearly the same, such as many wordings of one query.

    >>> merge_similar([0, 0, 1, 1, 2, -1], np.array([[1, 0.1], [1, 0], [1, 0.2], [1, 0.1], [0, 1], [1, 1]]))
    [0, 0, 0, 0, 2, -1]
    """
    names = sorted(set(labels) - {NO_CLUSTER})
    if len(names) < 2:
        return list(labels)
    marks = np.asarray(labels)
    middles = np.stack([vectors[marks == name].mean(axis=0) for name in names])
    lengths = np.linalg.norm(middles, axis=1, keepdims=True)
    middles = middles / np.where(lengths > 0, lengths, 1)
    near = np.round(middles @ middles.T, 6) >= MERGE_SIMILARITY
    first = np.arange(len(names))
    while not np.array_equal(after := np.where(near, first[None, :], len(names)).min(axis=1), first):
        first = after
    now = {name: names[first[i]] for i, name in enumerate(names)} | {NO_CLUSTER: NO_CLUSTER}
    return [now[label] for label in labels]


# 1 is all or nothing, and the greater it is, the more equal are the memberships
FUZZIFIER = 1.5
# memberships below it are not listed
MIN_MEMBERSHIP = 0.1


def compute_memberships(vectors: Array, groups: Sequence[Sequence[int]]) -> Array:
    """Compute the membership of each row in each group, from its distances to their centroids (Bezdek 1981).

    Shape (rows, groups), in [0, 1]; a row sums to 1. It is relative to these groups: a row that is equally far from all
    of them has equal memberships. A row at a single centroid belongs to it alone.

    >>> compute_memberships(np.array([[0.0, 0], [0, 2], [4, 0], [2, 1]]), [[0, 1], [2]]).round(2).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.61, 0.39]]
    """
    if not groups:
        return np.zeros((len(vectors), 0))
    centroids = np.stack([vectors[list(group)].mean(axis=0) for group in groups])
    squares = (vectors**2).sum(axis=1)[:, None] + (centroids**2).sum(axis=1) - 2 * vectors @ centroids.T
    squares = np.maximum(squares, 1e-9)
    weights = (squares.min(axis=1, keepdims=True) / squares) ** (1 / (FUZZIFIER - 1))
    memberships: Array = weights / weights.sum(axis=1, keepdims=True)
    return memberships


def _add_memberships(
    clusters: Sequence[Cluster],
    failures: Sequence[FailingTrace],
    memberships: Array,
    populations: Sequence[TracePopulation],
) -> list[Cluster]:
    """Add the memberships that are large enough to be listed, the largest first."""
    names = [format_member_id(failure, populations) for failure in failures]
    rounded = np.round(memberships, 4)
    return [
        replace(
            cluster,
            memberships={
                names[place]: float(column[place])
                for place in np.argsort(-column, kind="stable")
                if column[place] >= MIN_MEMBERSHIP
            },
        )
        for cluster, column in zip(clusters, rounded.T, strict=True)
    ]


def group_by_words(failures: Sequence[FailingTrace]) -> list[int]:
    """Group failures of one kind whose queries share a distinctive word; NO_CLUSTER for the others.

    A kind is divided by the word that most of its queries share (of several, the one rarest in other kinds) until none
    is shared. A word of most queries and of three kinds or more tells nothing.
    """
    words_by_failure = [frozenset(split_content_words(failure.query)) for failure in failures]
    spread = Counter(word for words in words_by_failure for word in words)
    across = Counter(
        word
        for word, _ in {
            (word, failure.kind) for failure, words in zip(failures, words_by_failure, strict=True) for word in words
        }
    )
    common = {word for word, count in spread.items() if 2 * count > len(failures) and across[word] > 2}
    labels = [NO_CLUSTER] * len(failures)
    kinds = group_positions(failure.kind for failure in failures)
    number = 0
    for kind in sorted(kinds):
        rest = kinds[kind]
        while group := _share_word(rest, words_by_failure, spread, common):
            for place in group:
                labels[place] = number
            rest = [place for place in rest if labels[place] == NO_CLUSTER]
            number += 1
    return labels


def _share_word(
    candidates: Sequence[int], words_by_failure: Sequence[frozenset[str]], word_counts: Counter[str], common: set[str]
) -> list[int]:
    """Return the candidates whose queries share their most common word; none where no two share one."""
    counts = Counter(word for place in candidates for word in words_by_failure[place] - common)
    ranked = sorted(counts, key=lambda word: (-counts[word], word_counts[word], word))
    if not ranked or counts[ranked[0]] < MIN_WORD_GROUP:
        return []
    return [place for place in candidates if ranked[0] in words_by_failure[place]]


# what failures are called that are like no others
UNGROUPED_NAME = "single failures"


def cluster_runs(
    runs: Sequence[Run | str | Path],
    *,
    embedder: Embedder | None = None,
    min_size: int | None = None,
    seed: int = 0,
    sample: int = CLUSTERED_TRACES,
) -> ClusterReport:
    """Cluster the failing traces of runs, given in the order in which they were made.

    A trace fails by its diagnosis, by a low triad, or by an error of its pipeline, unless its answer is right; a kind
    of problem that `suggest_remedies` leaves out of every run does not count. Failures are embedded by query
    and by what failed, beside their kinds of problem, brought to 20 dimensions and clustered by density (HDBSCAN) with
    at least `min_size` to a cluster; below 30 failures they are grouped by kind and topic words. The order of the
    traces does not matter, and the same runs give the same clusters; `seed` is that of the resampling behind trends.
    Of a larger run a random sample of `sample` traces is taken, and `population` of the report says so; 0 takes all.

    Raises UsageError without a run, RunError where one cannot be read, MissingExtra without scikit-learn where there
    are 30 failures or more.
    """
    opened = [sample_run(open_run(run), sample) for run in runs]
    if not opened:
        raise UsageError("clusters are made of the failing traces of runs: name one run or more.")
    _, failures = read_failures(opened)
    return cluster_failures(failures, load_populations(opened), embedder=embedder, min_size=min_size, seed=seed)


def load_populations(sources: Sequence[Run | RunTable]) -> list[TracePopulation]:
    """Load the population of each run, under names that are all different."""
    tables = [open_table(source) for source in sources]
    populations = [load_population(table) for table in tables]
    names = [population.name for population in populations]
    return [
        population if names.count(population.name) == 1 else population._replace(name=str(table.run.path))
        for population, table in zip(populations, tables, strict=True)
    ]


def cluster_failures(
    failures: Sequence[FailingTrace],
    populations: Sequence[TracePopulation],
    *,
    embedder: Embedder | None = None,
    min_size: int | None = None,
    seed: int = 0,
) -> ClusterReport:
    """Cluster failures that were picked from runs or from a store; see `cluster_runs`."""
    failures = sorted(failures, key=lambda item: (item.trace, item.run, item.row))
    embedder = fit_embedder(embedder, failures) if failures else embedder
    rows = _feature_blocks(failures, embedder)
    labels, how = _label_failures(failures, rows, min_size)
    groups = group_positions(labels)
    names = sorted(number for number in groups if number != NO_CLUSTER)
    members = [[failures[place] for place in groups[number]] for number in names]
    clusters = [
        describe_cluster(group, np.hstack([side[groups[number]] for side in rows]), terms, "", populations)
        for number, group, terms in zip(names, members, distinctive_terms(members), strict=True)
    ]
    clusters = _add_memberships(
        clusters, failures, compute_memberships(np.hstack(rows), [groups[number] for number in names]), populations
    )
    clusters = [
        replace(item, name=name_cluster(item.kind, item.words, item.cause), shares=points, trend=trend)
        for item, (points, trend) in zip(clusters, compute_trends(members, populations, seed), strict=True)
    ]
    return ClusterReport(
        runs=tuple(population.name for population in populations),
        traces=sum(population.traces for population in populations),
        failures=len(failures),
        method=how,
        embedder=embedder.fingerprint if embedder is not None else WORD_VECTORS,
        clusters=tuple(sorted(clusters, key=lambda item: (-item.size, item.id))),
        ungrouped=_describe_ungrouped(failures, groups.get(NO_CLUSTER, []), rows, populations),
        judges=tuple(dict.fromkeys(part.judge for part in populations)),
        unjudged=tuple(part.name for part in populations if part.judge.startswith("none")),
        population=sum(part.total or part.traces for part in populations if any(item.total for item in populations)),
    )


def _feature_blocks(failures: Sequence[FailingTrace], embedder: Embedder | None) -> tuple[Array, Array]:
    """Return the two feature blocks: meaning and problem kinds."""
    if not failures:
        return np.zeros((0, 1)), np.zeros((0, 1))
    return embed_failures(failures, embedder), encode_kinds(failures)


def _label_failures(
    failures: Sequence[FailingTrace], blocks: tuple[Array, Array], min_size: int | None
) -> tuple[list[int], str]:
    """Return the label of each failure, all of one cause within a label, and the method in words."""
    if not failures:
        return [], "nothing to group"
    labels, methods = [NO_CLUSTER] * len(failures), []
    for _, rows in sorted(group_positions(failure.cause or "" for failure in failures).items()):
        own, method = _label_cause([failures[row] for row in rows], [side[rows] for side in blocks], min_size)
        methods.append(method)
        first = max(labels) + 1
        for row, label in zip(rows, own, strict=True):
            labels[row] = NO_CLUSTER if label == NO_CLUSTER else first + label
    return labels, f"within each cause: {'; '.join(dict.fromkeys(methods))}"


def _label_cause(
    failures: Sequence[FailingTrace], blocks: Sequence[Array], min_size: int | None
) -> tuple[list[int], str]:
    """Label the failures of one cause, with the method in words."""
    if len(failures) < DENSITY_MINIMUM:
        how = (
            f"fewer than {DENSITY_MINIMUM} failures: grouped by kind of failure and by the words that their queries "
            "share"
        )
        return group_by_words(failures), how
    size = min_size or minimum_size(len(failures))
    if size < 2:
        raise UsageError(f"a cluster has 2 failures or more, not {size}.")
    labels = merge_similar(cluster_by_density(reduce_dimensions(blocks[0], blocks[1]), size), np.hstack(blocks))
    return labels, f"clustered by density (HDBSCAN), at least {size} failures to a cluster"


def _describe_ungrouped(
    failures: Sequence[FailingTrace],
    indices: Sequence[int],
    blocks: tuple[Array, Array],
    populations: Sequence[TracePopulation],
) -> Cluster | None:
    """Describe the failures outside all clusters as if they were one cluster."""
    if not indices:
        return None
    group = [failures[place] for place in indices]
    vectors = np.hstack([side[list(indices)] for side in blocks])
    cluster = describe_cluster(group, vectors, ClusterTerms((), {}), UNGROUPED_NAME, populations)
    return replace(cluster, id="single", new=False, failure_keys=(), centroid=())
