"""The cluster registry: match clusters with known ones, so that ids, owners and states last over runs.

    clusters.json    {"format": 1, "clusters": [{"id": "c-5f21aa", "name": …, "state": "open", "history": […], …}]}

Only `load_registry` and `save_registry` touch the disk; the other functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ragfault.diagnosis.clusters.clustering import (
    CLUSTERED_TRACES,
    MERGE_SIMILARITY,
    cluster_failures,
    load_populations,
)
from ragfault.diagnosis.clusters.description import TracePopulation, read_failures, run_fingerprint
from ragfault.diagnosis.clusters.records import (
    Cluster,
    ClusterEvent,
    ClusterRegistry,
    ClusterReport,
    ClusterShare,
    ClusterSighting,
    FailingTrace,
    KnownCluster,
)
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.atomic_files import write_atomically
from ragfault.io.runs.run import Run
from ragfault.io.runs.samples import sample_run
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.whole_files import read_record
from ragfault.stats.intervals import mean_interval

# from this similarity on a cluster is the known one
MATCH_THRESHOLD = 0.5


def cluster_similarity(cluster: Cluster, known: KnownCluster, embedder: str = "") -> float:
    """Return how similar a cluster is to a known one, in [0, 1]; from MATCH_THRESHOLD on they are the same.

    A cluster of another cause is another one. Else it is the maximum of three: shared failures (Ochiai 1957); words ×
    kinds of problem; and, with the same embedder, the cosine of the centroids, shifted so that clusters that would be
    merged within a run match.
    """
    if known.cause is not None and known.cause != cluster.cause:
        return 0.0
    kinds = {kind: count / cluster.size for kind, count in cluster.kinds.items()}
    word_similarity = cosine_similarity(cluster.terms, known.terms) * cosine_similarity(kinds, known.kinds)
    near = 0.0
    if embedder and embedder == known.embedder and len(cluster.centroid) == len(known.centroid):
        near = (
            sum(a * b for a, b in zip(cluster.centroid, known.centroid, strict=True))
            + MATCH_THRESHOLD
            - MERGE_SIMILARITY
        )
    return max(_shared_failures(cluster, known), word_similarity, near)


def _shared_failures(cluster: Cluster, known: KnownCluster) -> float:
    """Return the overlap of the failures (Ochiai), at the best sighting or at all together."""
    ours = set().union(*cluster.failure_keys)
    key_sets = [set(sighting.failure_keys) for sighting in known.sightings if sighting.failure_keys]
    key_sets.append(set().union(*key_sets))
    return max(len(ours & keys) / math.sqrt(len(ours) * len(keys)) if ours and keys else 0.0 for keys in key_sets)


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
        (-similarity, entry.id, index, known_index)
        for index, cluster in enumerate(clusters)
        for known_index, entry in enumerate(known)
        if (similarity := round(cluster_similarity(cluster, entry, embedder), 6)) >= MATCH_THRESHOLD
    )
    matches: dict[int, KnownCluster] = {}
    matched_entries: set[int] = set()
    for _, _, index, known_index in pairs:
        if index not in matches and known_index not in matched_entries:
            matches[index] = known[known_index]
            matched_entries.add(known_index)
    return matches


# number of the newest sightings whose failure keys are stored
MAX_REMEMBERED = 8


def record_clusters(
    registry: ClusterRegistry, report: ClusterReport, populations: Sequence[TracePopulation], time: str
) -> tuple[ClusterRegistry, ClusterReport]:
    """Record a report in the registry; return the registry, and the report under the known ids.

    A cluster takes the id of the known one that it is most similar to, else a new id. A resolved one is open again if
    it has failures in a run that is new and not older than its last. Runs that were seen before change nothing.
    """
    known = match_clusters(report.clusters, registry.clusters, report.embedder)
    entries = {known_entry.id: known_entry for known_entry in registry.clusters}
    before = set(entries)
    clusters: list[Cluster] = []
    for index, cluster in enumerate(report.clusters):
        old = known.get(index)
        entry = _new_entry(cluster, entries, report.embedder) if old is None else entries[old.id]
        entry = _add_sightings(entry, cluster, populations, report.embedder, time)
        entries[entry.id] = entry
        clusters.append(replace(cluster, id=entry.id, new=entry.id not in before))
    gone = [
        known_entry.name
        for known_entry in registry.clusters
        if known_entry.state == "open" and all(cluster.id != known_entry.id for cluster in clusters)
        if not report.unjudged
    ]
    updated = replace(registry, clusters=tuple(entries.values()))
    return updated, apply_registry(replace(report, clusters=tuple(clusters), gone=tuple(gone)), updated)


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
    there = {sighting.fingerprint for sighting in entry.sightings}
    fresh = [
        ClusterSighting(
            run=population.name,
            fingerprint=population.fingerprint,
            created=population.created,
            size=cluster.run_counts[i],
            traces=population.traces,
            failure_keys=cluster.failure_keys[i],
        )
        for i, population in enumerate(populations)
        if cluster.run_counts[i] and population.fingerprint not in there
    ]
    if not fresh:
        return entry
    first = () if entry.sightings else (ClusterEvent(time=time, kind="seen", detail=fresh[0].run),)
    entry = replace(
        entry,
        kind=cluster.kind,
        cause=cluster.cause,
        terms=cluster.terms,
        kinds={kind: round(count / cluster.size, 4) for kind, count in cluster.kinds.items()},
        centroid=cluster.centroid,
        embedder=embedder,
        sightings=_trim_sightings((*entry.sightings, *fresh)),
        history=(*entry.history, *first),
    )
    back = [sighting for sighting in fresh if sighting.created >= entry.resolved_until]
    if entry.state == "resolved" and back:
        return reopen_cluster(entry, time, f"{back[0].size} failures in {back[0].run}")
    return entry


def _trim_sightings(sightings: tuple[ClusterSighting, ...]) -> tuple[ClusterSighting, ...]:
    """Drop the failure keys of all but the newest sightings."""
    late = len(sightings) - MAX_REMEMBERED
    return tuple(replace(sighting, failure_keys=()) if i < late else sighting for i, sighting in enumerate(sightings))


def apply_registry(report: ClusterReport, registry: ClusterRegistry) -> ClusterReport:
    """Apply names, states and owners of the registry to a report; clusters that are not open come last."""
    entries = {item.id: item for item in registry.clusters}
    clusters = [_apply_entry(item, entries[item.id]) if item.id in entries else item for item in report.clusters]
    clusters.sort(key=lambda item: (item.state != "open", -item.size, item.id))
    return replace(report, clusters=tuple(clusters))


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


def assign_cluster(registry: ClusterRegistry, cluster_id: str, owner: str, time: str) -> ClusterRegistry:
    """Assign a cluster to an owner; an empty name removes the owner. Raises UnknownName for its id."""
    event = ClusterEvent(time=time, kind="assigned", detail=owner)
    return _update_entry(registry, cluster_id, lambda entry: _add_event(entry, event, assigned=owner or None))


def mute_cluster(registry: ClusterRegistry, cluster_id: str, time: str) -> ClusterRegistry:
    """Mute a cluster, so that it is no longer reported. Raises UnknownName for its id."""
    event = ClusterEvent(time=time, kind="muted")
    return _update_entry(registry, cluster_id, lambda entry: _add_event(entry, event, state="muted"))


def resolve_cluster(registry: ClusterRegistry, cluster_id: str, time: str) -> ClusterRegistry:
    """Resolve a cluster; it reopens where a later run has it. Raises UnknownName for its id."""

    def resolve(entry: KnownCluster) -> KnownCluster:
        until = max((sighting.created for sighting in entry.sightings), default="")
        return _add_event(entry, ClusterEvent(time=time, kind="resolved"), state="resolved", resolved_until=until)

    return _update_entry(registry, cluster_id, resolve)


def reopen_cluster(entry: KnownCluster, time: str, why: str) -> KnownCluster:
    """Reopen an entry."""
    return _add_event(entry, ClusterEvent(time=time, kind="reopened", detail=why), state="open")


def _add_event(entry: KnownCluster, event: ClusterEvent, **changes: Any) -> KnownCluster:
    """Change fields of an entry, and add the event to its history."""
    return replace(entry, **changes, history=(*entry.history, event))


def _update_entry(
    registry: ClusterRegistry, cluster_id: str, change: Callable[[KnownCluster], KnownCluster]
) -> ClusterRegistry:
    if all(entry.id != cluster_id for entry in registry.clusters):
        raise UnknownName(
            "cluster", cluster_id, [entry.id for entry in registry.clusters], "List them with: ragfault clusters RUN"
        )
    return replace(
        registry, clusters=tuple(change(entry) if entry.id == cluster_id else entry for entry in registry.clusters)
    )


def load_registry(path: str | Path) -> ClusterRegistry:
    """Load the registry from a file; empty where there is none. Raises InputError for any other file."""
    if not Path(path).exists():
        return ClusterRegistry()
    note = " Name another file with --registry."
    registry = read_record(path, ClusterRegistry, "a registry of clusters", note)
    if registry.format > ClusterRegistry().format:
        raise InputError(f"{path} has format {registry.format}. Upgrade ragfault to read it.")
    return registry


def save_registry(path: str | Path, registry: ClusterRegistry) -> None:
    """Write the registry to a file atomically. Raises OutputError where it cannot be written."""
    write_atomically(Path(path), msgspec.json.format(msgspec.json.encode(registry), indent=1) + b"\n")


def track_clusters(
    registry: ClusterRegistry,
    runs: Sequence[Run | RunTable],
    time: str,
    failures: Sequence[FailingTrace] | None = None,
    **options: Any,
) -> tuple[ClusterRegistry, ClusterReport]:
    """Cluster runs and record the result in the registry; `options` are those of `cluster_runs`.

    Their `failures` are by default those without the kinds of problem that are doubtful in all of the runs. Human
    labels of a table go before the verdicts of its run.
    """
    populations = load_populations(runs)
    failures = read_failures(runs)[1] if failures is None else failures
    return record_clusters(registry, cluster_failures(failures, populations, **options), populations, time)


def track_changes(
    registry: ClusterRegistry, runs: Sequence[Run | RunTable], baseline: Run, time: str, **options: Any
) -> tuple[ClusterRegistry, ClusterReport]:
    """Cluster runs against a baseline run, recorded first; `new` and `gone` are relative to it."""
    _, failures = read_failures([*runs, baseline])
    earlier = [replace(failure, run=0) for failure in failures if failure.run == len(runs)]
    later = [failure for failure in failures if failure.run < len(runs)]
    updated, before = track_clusters(registry, [baseline], time, earlier, **options)
    updated, after = track_clusters(updated, runs, time, later, **options)
    there = {cluster.id: cluster for cluster in before.clusters}
    here = {cluster.id for cluster in after.clusters}
    clusters = [
        replace(cluster, before=_previous_share(there.get(cluster.id), before), new=cluster.id not in there)
        for cluster in after.clusters
    ]
    gone = () if after.unjudged else (c.name for c in before.clusters if c.id not in here and c.state == "open")
    judges = tuple(dict.fromkeys([*before.judges, *after.judges]))
    return updated, replace(after, clusters=tuple(clusters), gone=tuple(gone), judges=judges)


def cluster_members(registry: ClusterRegistry, cluster_id: str, run: Run, time: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a cluster and the ids of its traces in a run: as recorded there, else as clustered now.

    Raises UnknownName where the run has no cluster of that id.
    """
    fingerprint = run_fingerprint(run)
    for entry in registry.clusters:
        for sighting in entry.sightings if entry.id == cluster_id else ():
            if sighting.fingerprint == fingerprint and sighting.failure_keys:
                failures = chain(*read_failures([run], frozenset(sighting.failure_keys)))
                return entry.name, tuple(dict.fromkeys(failure.trace for failure in failures))
    _, report = track_clusters(registry, [sample_run(run, CLUSTERED_TRACES)], time)
    there = [*report.clusters, *([report.ungrouped] if report.ungrouped else [])]
    for item in there:
        if item.id == cluster_id:
            return item.name, item.members
    hint = f"List them with: ragfault clusters {run.path}"
    raise UnknownName(f"cluster in {run.path.name}", cluster_id, [item.id for item in there], hint)


def _previous_share(cluster: Cluster | None, before: ClusterReport) -> ClusterShare:
    """Return the share of a cluster in the baseline run; zero where it had none."""
    size = cluster.size if cluster is not None else 0
    share = cluster.share if cluster is not None else mean_interval([0.0] * before.traces, bounds=(0, 1))
    return ClusterShare(label=before.runs[0], failures=size, traces=before.traces, share=share)
