"""The registry: what is remembered of clusters, so that they keep their ids, their owners and their states.

    clusters.json    {"format": 1, "clusters": [{"id": "c-5f21aa", "name": …, "state": "open", "history": […], …}]}

The functions are pure, save `read_registry` and `write_registry`; whoever keeps clusters elsewhere calls the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ragfault.clustering.failing import Whole
from ragfault.clustering.matching import match
from ragfault.clustering.records import Cluster, Clusters, Event, Known, Registry, Sighting
from ragfault.clustering.storing import put
from ragfault.errors import InputError, UnknownName

__all__ = ["assign", "mute", "read_registry", "remember", "reopen", "resolve", "shown_as", "write_registry"]

REMEMBERED = 8
"""The failures of so many sightings are remembered, the newest."""


# --- what is seen ----------------------------------------------------------------------------------


def remember(
    registry: Registry, found: Clusters, wholes: Sequence[Whole], time: str
) -> tuple[Registry, Clusters]:
    """The registry with what was found in it, and what was found under the ids that are known.

    A cluster is the known one that it is most like; else it is entered as new. A resolved one that has failures in a
    run that it was not seen in, and that is not older than the last in which it had been, is open again. Runs that were
    seen before change nothing.
    """
    known = match(found.clusters, registry.clusters, found.embedder)
    entries = {one.id: one for one in registry.clusters}
    before = set(entries)
    made: list[Cluster] = []
    for place, cluster in enumerate(found.clusters):
        old = known.get(place)
        entry = _fresh(cluster, entries, found.embedder) if old is None else entries[old.id]
        entry = _seen(entry, cluster, wholes, found.embedder, time)
        entries[entry.id] = entry
        made.append(replace(cluster, id=entry.id, new=entry.id not in before))
    gone = [
        one.name
        for one in registry.clusters
        if one.state == "open" and all(cluster.id != one.id for cluster in made)
    ]
    kept = replace(registry, clusters=tuple(entries.values()))
    return kept, shown_as(replace(found, clusters=tuple(made), gone=tuple(gone)), kept)


def _fresh(cluster: Cluster, entries: dict[str, Known], embedder: str) -> Known:
    """An entry for a cluster that is not known, under an id that no other has."""
    name, number = cluster.id, 2
    while name in entries:
        name, number = f"{cluster.id}-{number}", number + 1
    return Known(id=name, name=cluster.name, kind=cluster.kind, terms={}, kinds={}, embedder=embedder)


def _seen(entry: Known, cluster: Cluster, wholes: Sequence[Whole], embedder: str, time: str) -> Known:
    """An entry after it was seen in runs."""
    there = {one.fingerprint for one in entry.sightings}
    fresh = [
        Sighting(
            run=each.name,
            fingerprint=each.fingerprint,
            created=each.created,
            size=cluster.seen[place],
            traces=each.traces,
            keys=cluster.keys[place],
        )
        for place, each in enumerate(wholes)
        if cluster.seen[place] and each.fingerprint not in there
    ]
    if not fresh:
        return entry
    first = () if entry.sightings else (Event(time=time, what="seen", detail=fresh[0].run),)
    entry = replace(
        entry,
        kind=cluster.kind,
        terms=cluster.terms,
        kinds={kind: round(count / cluster.size, 4) for kind, count in cluster.kinds.items()},
        centroid=cluster.centroid,
        embedder=embedder,
        sightings=_kept((*entry.sightings, *fresh)),
        history=(*entry.history, *first),
    )
    back = [one for one in fresh if one.created >= entry.until]
    if entry.state == "resolved" and back:
        return reopen(entry, time, f"{back[0].size} failures in {back[0].run}")
    return entry


def _kept(sightings: tuple[Sighting, ...]) -> tuple[Sighting, ...]:
    """Sightings, of which the older ones forget their failures."""
    late = len(sightings) - REMEMBERED
    return tuple(replace(one, keys=()) if at < late else one for at, one in enumerate(sightings))


def shown_as(found: Clusters, registry: Registry) -> Clusters:
    """Clusters with their names, states and owners as the registry has them; those that are not open last."""
    entries = {one.id: one for one in registry.clusters}
    made = [_dressed(one, entries[one.id]) if one.id in entries else one for one in found.clusters]
    made.sort(key=lambda one: (one.state != "open", -one.size, one.id))
    return replace(found, clusters=tuple(made))


def _dressed(cluster: Cluster, entry: Known) -> Cluster:
    last = [event.what for event in entry.history if event.what in ("resolved", "reopened")]
    return replace(
        cluster,
        name=entry.name,
        state=entry.state,
        assigned=entry.assigned,
        since=entry.sightings[0].run if entry.sightings else None,
        reopened=bool(last) and last[-1] == "reopened",
    )


# --- what people say -------------------------------------------------------------------------------


def assign(registry: Registry, name: str, to: str, time: str) -> Registry:
    """The registry with a cluster given to somebody; to nobody by an empty name. Raises UnknownName for its id."""
    return _changed(
        registry,
        name,
        lambda one: replace(
            one, assigned=to or None, history=(*one.history, Event(time=time, what="assigned", detail=to))
        ),
    )


def mute(registry: Registry, name: str, time: str) -> Registry:
    """The registry with a cluster that is not told of any more. Raises UnknownName for its id."""
    return _changed(
        registry,
        name,
        lambda one: replace(one, state="muted", history=(*one.history, Event(time=time, what="muted"))),
    )


def resolve(registry: Registry, name: str, time: str) -> Registry:
    """The registry with a cluster that is mended; it opens again where a later run has it. Raises UnknownName."""
    return _changed(
        registry,
        name,
        lambda one: replace(
            one,
            state="resolved",
            until=max((each.created for each in one.sightings), default=""),
            history=(*one.history, Event(time=time, what="resolved")),
        ),
    )


def reopen(entry: Known, time: str, why: str) -> Known:
    """An entry that is open again."""
    return replace(
        entry, state="open", history=(*entry.history, Event(time=time, what="reopened", detail=why))
    )


def _changed(registry: Registry, name: str, change: Callable[[Known], Known]) -> Registry:
    if all(one.id != name for one in registry.clusters):
        raise UnknownName(
            "cluster", name, [one.id for one in registry.clusters], "List them with: ragfault clusters RUN"
        )
    return replace(
        registry, clusters=tuple(change(one) if one.id == name else one for one in registry.clusters)
    )


# --- on disk ---------------------------------------------------------------------------------------


def read_registry(path: str | Path) -> Registry:
    """The registry in a file; an empty one where there is none. Raises InputError where it is something else."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=Registry)
    except FileNotFoundError:
        return Registry()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{path} is not a registry of clusters: {error}. Name another file with --registry."
        ) from None
    if found.format > Registry().format:
        raise InputError(f"{path} has format {found.format}. Upgrade ragfault to read it.")
    return found


def write_registry(path: str | Path, registry: Registry) -> None:
    """Write a registry to a file, whole or not at all. Raises OutputError where it cannot be written."""
    put(Path(path), msgspec.json.format(msgspec.json.encode(registry), indent=1) + b"\n")
