"""The cluster registry: match clusters with known ones, so that ids, owners and states last over runs.

    clusters.json    {"format": 1, "clusters": [{"id": "c-5f21aa", "name": …, "state": "open", "history": […], …}]}

Only `load_registry` and `save_registry` touch the disk; the other functions are pure.

    clusters.json    {"format": 1, "clusters": [{"id": "c-5f21aa", "name": …, "state": "open", "history": […], …}]}

The functions are pure, save `read_registry` and `write_registry`; whoever keeps clusters elsewhere calls the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ragfault.analysis.clusters.atomic_files import replace_file
from ragfault.analysis.clusters.clustering import MERGE_SIMILARITY, cluster_failures, load_populations
from ragfault.analysis.clusters.description import failure_key
from ragfault.analysis.clusters.failures import TracePopulation, collect_failures, run_fingerprint
from ragfault.analysis.clusters.records import (
    Cluster,
    ClusterEvent,
    ClusterRegistry,
    ClusterReport,
    ClusterShare,
    ClusterSighting,
    KnownCluster,
)
from ragfault.errors import InputError, UnknownName
from ragfault.io.runs import Run
from ragfault.stats import mean_interval

MATCH_THRESHOLD = 0.5
"""From here on a cluster is the one that is known."""


def cluster_similarity(cluster: Cluster, known: KnownCluster, embedder: str = "") -> float:
    """Return how similar a cluster is to a known one, in [0, 1]; from MATCH_THRESHOLD on they are the same.

    The greatest of three: the failures that both have, over the root of the product of their sizes (Ochiai 1957), at
    the best sighting or at all together; how alike their words are × how alike their kinds of problem are; and, where
    one embedder made both, how near their middles are, those counting as the same that would be joined within a run.
    """
    kinds = {kind: count / cluster.size for kind, count in cluster.kinds.items()}
    said = cosine_similarity(cluster.terms, known.terms) * cosine_similarity(kinds, known.kinds)
    near = 0.0
    if embedder and embedder == known.embedder and len(cluster.centroid) == len(known.centroid):
        near = (
            sum(a * b for a, b in zip(cluster.centroid, known.centroid, strict=True))
            + MATCH_THRESHOLD
            - MERGE_SIMILARITY
        )
    return max(_shared_failures(cluster, known), said, near)


def _shared_failures(cluster: Cluster, known: KnownCluster) -> float:
    """Return the overlap of the failures (Ochiai), at the best sighting or at all together."""
    ours = set().union(*cluster.failure_keys)
    held = [set(one.failure_keys) for one in known.sightings if one.failure_keys]
    held.append(set().union(*held))
    return max(len(ours & each) / math.sqrt(len(ours) * len(each)) if ours and each else 0.0 for each in held)


def cosine_similarity(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Compute the cosine of two sparse vectors; 0 where one is empty.

    >>> cosine_similarity({"a": 3.0, "b": 4.0}, {"a": 1.0})
    0.6
    """
    product = sum(weight * second.get(name, 0.0) for name, weight in first.items())
    lengths = math.sqrt(sum(w * w for w in first.values()) * sum(w * w for w in second.values()))
    return product / lengths if lengths else 0.0


def match_clusters(
    clusters: Sequence[Cluster], known: Sequence[KnownCluster], embedder: str = ""
) -> dict[int, KnownCluster]:
    """Match clusters with known ones, by index; greedily by similarity, each known cluster at most once."""
    pairs = sorted(
        (-near, one.id, place, at)
        for place, cluster in enumerate(clusters)
        for at, one in enumerate(known)
        if (near := round(cluster_similarity(cluster, one, embedder), 6)) >= MATCH_THRESHOLD
    )
    made: dict[int, KnownCluster] = {}
    taken: set[int] = set()
    for _, _, place, at in pairs:
        if place not in made and at not in taken:
            made[place] = known[at]
            taken.add(at)
    return made


MAX_REMEMBERED = 8
"""The failures of so many sightings are remembered, the newest."""


# --- what is seen ----------------------------------------------------------------------------------


def record_clusters(
    registry: ClusterRegistry, report: ClusterReport, populations: Sequence[TracePopulation], time: str
) -> tuple[ClusterRegistry, ClusterReport]:
    """Record a report in the registry; return the registry, and the report under the known ids.

    A cluster is the known one that it is most like; else it is entered as new. A resolved one that has failures in a
    run that it was not seen in, and that is not older than the last in which it had been, is open again. Runs that were
    seen before change nothing.
    """
    known = match_clusters(report.clusters, registry.clusters, report.embedder)
    entries = {one.id: one for one in registry.clusters}
    before = set(entries)
    made: list[Cluster] = []
    for place, cluster in enumerate(report.clusters):
        old = known.get(place)
        entry = _new_entry(cluster, entries, report.embedder) if old is None else entries[old.id]
        entry = _add_sightings(entry, cluster, populations, report.embedder, time)
        entries[entry.id] = entry
        made.append(replace(cluster, id=entry.id, new=entry.id not in before))
    gone = [
        one.name
        for one in registry.clusters
        if one.state == "open" and all(cluster.id != one.id for cluster in made)
    ]
    kept = replace(registry, clusters=tuple(entries.values()))
    return kept, apply_registry(replace(report, clusters=tuple(made), gone=tuple(gone)), kept)


def _new_entry(cluster: Cluster, entries: dict[str, KnownCluster], embedder: str) -> KnownCluster:
    """Create an entry for a new cluster under an unused id."""
    name, number = cluster.id, 2
    while name in entries:
        name, number = f"{cluster.id}-{number}", number + 1
    return KnownCluster(id=name, name=cluster.name, kind=cluster.kind, terms={}, kinds={}, embedder=embedder)


def _add_sightings(
    entry: KnownCluster, cluster: Cluster, populations: Sequence[TracePopulation], embedder: str, time: str
) -> KnownCluster:
    """Add the sightings of a cluster to its entry; reopen a resolved one that failed again."""
    there = {one.fingerprint for one in entry.sightings}
    fresh = [
        ClusterSighting(
            run=each.name,
            fingerprint=each.fingerprint,
            created=each.created,
            size=cluster.run_counts[place],
            traces=each.traces,
            failure_keys=cluster.failure_keys[place],
        )
        for place, each in enumerate(populations)
        if cluster.run_counts[place] and each.fingerprint not in there
    ]
    if not fresh:
        return entry
    first = () if entry.sightings else (ClusterEvent(time=time, kind="seen", detail=fresh[0].run),)
    entry = replace(
        entry,
        kind=cluster.kind,
        terms=cluster.terms,
        kinds={kind: round(count / cluster.size, 4) for kind, count in cluster.kinds.items()},
        centroid=cluster.centroid,
        embedder=embedder,
        sightings=_trim_sightings((*entry.sightings, *fresh)),
        history=(*entry.history, *first),
    )
    back = [one for one in fresh if one.created >= entry.resolved_until]
    if entry.state == "resolved" and back:
        return reopen_cluster(entry, time, f"{back[0].size} failures in {back[0].run}")
    return entry


def _trim_sightings(sightings: tuple[ClusterSighting, ...]) -> tuple[ClusterSighting, ...]:
    """Drop the failure keys of all but the newest sightings."""
    late = len(sightings) - MAX_REMEMBERED
    return tuple(replace(one, failure_keys=()) if at < late else one for at, one in enumerate(sightings))


def apply_registry(report: ClusterReport, registry: ClusterRegistry) -> ClusterReport:
    """Apply names, states and owners of the registry to a report; clusters that are not open come last."""
    entries = {one.id: one for one in registry.clusters}
    made = [_apply_entry(one, entries[one.id]) if one.id in entries else one for one in report.clusters]
    made.sort(key=lambda one: (one.state != "open", -one.size, one.id))
    return replace(report, clusters=tuple(made))


def _apply_entry(cluster: Cluster, entry: KnownCluster) -> Cluster:
    last = [event.kind for event in entry.history if event.kind in ("resolved", "reopened")]
    return replace(
        cluster,
        name=entry.name,
        state=entry.state,
        assigned=entry.assigned,
        since=entry.sightings[0].run if entry.sightings else None,
        reopened=bool(last) and last[-1] == "reopened",
    )


# --- what people say -------------------------------------------------------------------------------


def assign_cluster(registry: ClusterRegistry, cluster_id: str, owner: str, time: str) -> ClusterRegistry:
    """Assign a cluster to an owner; an empty name removes the owner. Raises UnknownName for its id."""
    return _update_entry(
        registry,
        cluster_id,
        lambda one: replace(
            one,
            assigned=owner or None,
            history=(*one.history, ClusterEvent(time=time, kind="assigned", detail=owner)),
        ),
    )


def mute_cluster(registry: ClusterRegistry, cluster_id: str, time: str) -> ClusterRegistry:
    """Mute a cluster, so that it is no longer reported. Raises UnknownName for its id."""
    return _update_entry(
        registry,
        cluster_id,
        lambda one: replace(
            one, state="muted", history=(*one.history, ClusterEvent(time=time, kind="muted"))
        ),
    )


def resolve_cluster(registry: ClusterRegistry, cluster_id: str, time: str) -> ClusterRegistry:
    """Resolve a cluster; it reopens where a later run has it. Raises UnknownName for its id."""
    return _update_entry(
        registry,
        cluster_id,
        lambda one: replace(
            one,
            state="resolved",
            resolved_until=max((each.created for each in one.sightings), default=""),
            history=(*one.history, ClusterEvent(time=time, kind="resolved")),
        ),
    )


def reopen_cluster(entry: KnownCluster, time: str, why: str) -> KnownCluster:
    """Reopen an entry."""
    return replace(
        entry, state="open", history=(*entry.history, ClusterEvent(time=time, kind="reopened", detail=why))
    )


def _update_entry(
    registry: ClusterRegistry, cluster_id: str, change: Callable[[KnownCluster], KnownCluster]
) -> ClusterRegistry:
    if all(one.id != cluster_id for one in registry.clusters):
        raise UnknownName(
            "cluster",
            cluster_id,
            [one.id for one in registry.clusters],
            "List them with: ragfault clusters RUN",
        )
    return replace(
        registry, clusters=tuple(change(one) if one.id == cluster_id else one for one in registry.clusters)
    )


# --- on disk ---------------------------------------------------------------------------------------


def load_registry(path: str | Path) -> ClusterRegistry:
    """Load the registry from a file; empty where there is none. Raises InputError for any other file."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=ClusterRegistry)
    except FileNotFoundError:
        return ClusterRegistry()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{path} is not a registry of clusters: {error}. Name another file with --registry."
        ) from None
    if found.format > ClusterRegistry().format:
        raise InputError(f"{path} has format {found.format}. Upgrade ragfault to read it.")
    return found


def save_registry(path: str | Path, registry: ClusterRegistry) -> None:
    """Write the registry to a file atomically. Raises OutputError where it cannot be written."""
    replace_file(Path(path), msgspec.json.format(msgspec.json.encode(registry), indent=1) + b"\n")


def track_clusters(
    registry: ClusterRegistry, runs: Sequence[Run], time: str, **options: Any
) -> tuple[ClusterRegistry, ClusterReport]:
    """Cluster runs and record the result in the registry; `options` are those of `cluster_runs`."""
    wholes = load_populations(runs)
    found = [one for place, run in enumerate(runs) for one in collect_failures(run, place)]
    return record_clusters(registry, cluster_failures(found, wholes, **options), wholes, time)


def track_changes(
    registry: ClusterRegistry, runs: Sequence[Run], baseline: Run, time: str, **options: Any
) -> tuple[ClusterRegistry, ClusterReport]:
    """Cluster runs against a baseline run: each cluster with its size there; `new` and `gone` are relative to it.

    The old run is remembered first, where it was not yet.
    """
    kept, before = track_clusters(registry, [baseline], time, **options)
    kept, after = track_clusters(kept, runs, time, **options)
    there = {one.id: one for one in before.clusters}
    here = {one.id for one in after.clusters}
    made = [
        replace(one, before=_previous_share(there.get(one.id), before), new=one.id not in there)
        for one in after.clusters
    ]
    gone = [one.name for one in before.clusters if one.id not in here and one.state == "open"]
    return kept, replace(after, clusters=tuple(made), gone=tuple(gone))


def cluster_members(
    registry: ClusterRegistry, cluster_id: str, run: Run, time: str
) -> tuple[str, tuple[str, ...]]:
    """Return the name of a cluster and the ids of its traces in a run: as recorded there, else as clustered now.

    Raises UnknownName where the run has no cluster of that id.
    """
    print_ = run_fingerprint(run)
    for entry in registry.clusters:
        for sighting in entry.sightings if entry.id == cluster_id else ():
            if sighting.fingerprint == print_ and sighting.failure_keys:
                keys = frozenset(sighting.failure_keys)
                return entry.name, tuple(
                    one.trace for one in collect_failures(run) if failure_key(one) in keys
                )
    _, found = track_clusters(registry, [run], time)
    there = [*found.clusters, *([found.ungrouped] if found.ungrouped else [])]
    for one in there:
        if one.id == cluster_id:
            return one.name, one.members
    hint = f"List them with: ragfault clusters {run.path}"
    raise UnknownName(f"cluster in {run.path.name}", cluster_id, [one.id for one in there], hint)


def _previous_share(cluster: Cluster | None, before: ClusterReport) -> ClusterShare:
    """Return the share of a cluster in the baseline run; zero where it had none."""
    size = cluster.size if cluster is not None else 0
    share = cluster.share if cluster is not None else mean_interval([0.0] * before.traces, bounds=(0, 1))
    return ClusterShare(label=before.runs[0], failures=size, traces=before.traces, share=share)
