"""Following: the clusters of runs under the ids that a registry knows, and beside those of an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ragfault.clustering.describing import key_of
from ragfault.clustering.failing import failures, fingerprint
from ragfault.clustering.records import Cluster, Clusters, Point, Registry
from ragfault.clustering.registering import remember
from ragfault.clustering.running import cluster_failures, told_apart
from ragfault.errors import UnknownName
from ragfault.runs import Run
from ragfault.stats import mean_interval

__all__ = ["follow", "held_against", "members"]


def follow(registry: Registry, runs: Sequence[Run], time: str, **options: Any) -> tuple[Registry, Clusters]:
    """The registry with the clusters of runs in it, and those clusters; `options` are those of `cluster`."""
    wholes = told_apart(runs)
    found = [one for place, run in enumerate(runs) for one in failures(run, place)]
    return remember(registry, cluster_failures(found, wholes, **options), wholes, time)


def held_against(
    registry: Registry, runs: Sequence[Run], old: Run, time: str, **options: Any
) -> tuple[Registry, Clusters]:
    """The same, each cluster with what it was in an old run; new is what that has not, gone what it alone has.

    The old run is remembered first, where it was not yet.
    """
    kept, before = follow(registry, [old], time, **options)
    kept, after = follow(kept, runs, time, **options)
    there = {one.id: one for one in before.clusters}
    here = {one.id for one in after.clusters}
    made = [
        replace(one, before=_point(there.get(one.id), before), new=one.id not in there)
        for one in after.clusters
    ]
    gone = [one.name for one in before.clusters if one.id not in here and one.state == "open"]
    return kept, replace(after, clusters=tuple(made), gone=tuple(gone))


def members(registry: Registry, name: str, run: Run, time: str) -> tuple[str, tuple[str, ...]]:
    """The name of a cluster, and the ids of its traces in a run: as it was seen there, else as it is seen now.

    Raises UnknownName where the run has no cluster of that id.
    """
    print_ = fingerprint(run)
    for entry in registry.clusters:
        for sighting in entry.sightings if entry.id == name else ():
            if sighting.fingerprint == print_ and sighting.keys:
                keys = frozenset(sighting.keys)
                return entry.name, tuple(one.trace for one in failures(run) if key_of(one) in keys)
    _, found = follow(registry, [run], time)
    there = [*found.clusters, *([found.singles] if found.singles else [])]
    for one in there:
        if one.id == name:
            return one.name, one.members
    hint = f"List them with: ragfault clusters {run.path}"
    raise UnknownName(f"cluster in {run.path.name}", name, [one.id for one in there], hint)


def _point(one: Cluster | None, before: Clusters) -> Point:
    """What a cluster was in the old run, which may be nothing."""
    size = one.size if one is not None else 0
    share = one.share if one is not None else mean_interval([0.0] * before.traces, bounds=(0, 1))
    return Point(label=before.runs[0], failures=size, traces=before.traces, share=share)
