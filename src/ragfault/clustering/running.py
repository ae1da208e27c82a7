"""Clustering from end to end: the failing traces of runs, or of a store, as clusters that are named and described."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ragfault.clustering.describing import describe, trends
from ragfault.clustering.failing import Whole, failures, run_of, whole
from ragfault.clustering.grouping import FEW, SINGLE, by_words, dense, joined, least
from ragfault.clustering.naming import Told, called, telling_terms
from ragfault.clustering.records import Cluster, Clusters, Failure
from ragfault.clustering.spacing import OWN, by_kind, fitted, meant, space
from ragfault.errors import UsageError
from ragfault.ports import Embedder, Generator
from ragfault.runs import Run

__all__ = ["SINGLES", "cluster", "cluster_failures", "told_apart"]

SINGLES = "single failures"
"""What failures are called that are like no others."""

LISTED = 20
"""So many queries of a cluster a generator is shown."""

Array = np.ndarray[Any, Any]


def cluster(
    runs: Sequence[Run | str | Path],
    *,
    embedder: Embedder | None = None,
    generator: Generator | None = None,
    smallest: int | None = None,
    seed: int = 0,
) -> Clusters:
    """The clusters of the failing traces of runs, the runs in the order in which they were made.

    A trace fails by its diagnosis, by a low triad, or by an error of its pipeline. Failures are embedded by query
    and by what failed, beside their kinds of problem, brought to 20 dimensions and clustered by density (HDBSCAN) with
    at least `smallest` to a cluster; below 30 failures they are grouped by kind and topic words. The order of the
    traces does not matter, and the same runs give the same clusters; `seed` is that of the resampling behind trends.

    Raises UsageError without a run, RunError where one cannot be read, MissingExtra without scikit-learn where there
    are 30 failures or more.
    """
    opened = [run_of(run) for run in runs]
    if not opened:
        raise UsageError("clusters are made of the failing traces of runs: name one run or more.")
    found = [one for place, run in enumerate(opened) for one in failures(run, place)]
    return cluster_failures(
        found, told_apart(opened), embedder=embedder, generator=generator, smallest=smallest, seed=seed
    )


def told_apart(runs: Sequence[Run]) -> list[Whole]:
    """The runs with names that are all different."""
    made = [whole(run) for run in runs]
    names = [each.name for each in made]
    return [
        each if names.count(each.name) == 1 else each._replace(name=str(run.path))
        for each, run in zip(made, runs, strict=True)
    ]


def cluster_failures(
    found: Sequence[Failure],
    wholes: Sequence[Whole],
    *,
    embedder: Embedder | None = None,
    generator: Generator | None = None,
    smallest: int | None = None,
    seed: int = 0,
) -> Clusters:
    """The clusters of failures that were picked from runs or from a store; see `cluster`."""
    found = sorted(found, key=lambda one: (one.trace, one.run, one.row))
    embedder = fitted(embedder, found) if found else embedder
    rows = _sides(found, embedder)
    labels, how = _labels(found, rows, smallest)
    groups = _places(labels)
    names = sorted(number for number in groups if number != SINGLE)
    held = [[found[place] for place in groups[number]] for number in names]
    made = [
        describe(group, np.hstack([side[groups[number]] for side in rows]), told, "", wholes)
        for number, group, told in zip(names, held, telling_terms(held), strict=True)
    ]
    made = [_titled(one, group, generator) for one, group in zip(made, held, strict=True)]
    made = [
        replace(one, points=points, trend=trend)
        for one, (points, trend) in zip(made, trends(held, wholes, seed), strict=True)
    ]
    return Clusters(
        runs=tuple(each.name for each in wholes),
        traces=sum(each.traces for each in wholes),
        failures=len(found),
        how=how,
        embedder=embedder.fingerprint if embedder is not None else OWN,
        clusters=tuple(sorted(made, key=lambda one: (-one.size, one.id))),
        singles=_singles(found, groups.get(SINGLE, []), rows, wholes),
    )


def _sides(found: Sequence[Failure], embedder: Embedder | None) -> tuple[Array, Array]:
    """The two sides of the space: what they mean, and how they fail."""
    if not found:
        return np.zeros((0, 1)), np.zeros((0, 1))
    return meant(found, embedder), by_kind(found)


def _labels(
    found: Sequence[Failure], rows: tuple[Array, Array], smallest: int | None
) -> tuple[list[int], str]:
    """The label of each failure, and in words how it came about."""
    if len(found) < FEW:
        how = (
            f"fewer than {FEW} failures: grouped by kind of failure and by the words that their queries share"
        )
        return by_words(found), how
    size = smallest or least(len(found))
    if size < 2:
        raise UsageError(f"a cluster has 2 failures or more, not {size}.")
    labels = joined(dense(space(*rows), size), np.hstack(rows))
    return labels, f"clustered by density (HDBSCAN), at least {size} failures to a cluster"


def _places(labels: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        found.setdefault(label, []).append(place)
    return found


def _titled(one: Cluster, group: Sequence[Failure], generator: Generator | None) -> Cluster:
    first = [each.query for each in one.shown]
    queries = list(dict.fromkeys([*first, *(each.query for each in group)]))[:LISTED]
    return replace(one, name=called(one.kind, Told(one.words, one.terms), queries, generator))


def _singles(
    found: Sequence[Failure], places: Sequence[int], rows: tuple[Array, Array], wholes: Sequence[Whole]
) -> Cluster | None:
    """The failures that are like no others, described as if they were one cluster."""
    if not places:
        return None
    group = [found[place] for place in places]
    held = np.hstack([side[list(places)] for side in rows])
    made = describe(group, held, Told((), {}), SINGLES, wholes)
    return replace(made, id="single", new=False, keys=(), centroid=())
