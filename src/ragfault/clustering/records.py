"""What clustering says: failing traces, their clusters, and what is remembered of clusters over time."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.findings import Kind
from ragfault.records import Layer
from ragfault.stats import Interval

__all__ = [
    "Cluster",
    "Clusters",
    "Event",
    "Failure",
    "Known",
    "Point",
    "Registry",
    "Shown",
    "Sighting",
    "State",
    "Trend",
]

State = Literal["open", "muted", "resolved"]
"""How a cluster stands: to be looked at, not to be told of, or mended."""

Trend = Literal["rising", "falling", "steady", "cannot tell"]
"""Where the share of a cluster is going."""


class Record(Struct, frozen=True, kw_only=True):
    """The common shape of the records of clustering: immutable, by keyword."""


class Failure(Record, frozen=True):
    """A trace that failed, with what clustering reads of it."""

    run: int
    """The place of its run among those that were given."""
    row: int
    """Its place in the run."""
    trace: str
    query: str
    kind: Kind
    """What is wrong with it, the cause before what follows from it."""
    kinds: tuple[Kind, ...]
    """All that is wrong with it."""
    text: str
    """The problem of that kind itself, with its reason; from the trace, so not to be trusted as markup."""
    triad: float | None = None


class Shown(Record, frozen=True):
    """A trace that stands for its cluster."""

    run: str
    trace: str
    query: str
    kind: Kind
    text: str


class Point(Record, frozen=True):
    """How much of a run, or of a stretch of time, a cluster was."""

    label: str
    failures: int
    traces: int
    """All traces of the run or stretch, failing or not."""
    share: Interval


class Cluster(Record, frozen=True):
    """Failing traces that fail alike, on like queries."""

    id: str
    """The same as long as it is recognised, over runs and reruns."""
    name: str
    kind: Kind
    """What most of its traces fail by."""
    layer: Layer
    size: int
    share: Interval
    """Of all traces that were looked at; its `n` counts them."""
    words: tuple[str, ...]
    """What its queries have, and those of the others have not."""
    kinds: dict[str, int]
    """Kind of problem → traces that show it, the commonest first."""
    layers: dict[str, int]
    """Layer → traces whose leading problem lies there."""
    members: tuple[str, ...]
    """The ids of its traces, in order; with several runs each after its run and a slash."""
    shown: tuple[Shown, ...]
    """Its medoids: the traces nearest to all others."""
    remedies: tuple[str, ...]
    """What mends it, the cheapest first."""
    points: tuple[Point, ...]
    trend: Trend
    state: State = "open"
    assigned: str | None = None
    since: str | None = None
    """The run in which it was first seen."""
    reopened: bool = False
    """Whether it was resolved, and has come back in this run."""
    new: bool = True
    """Whether no earlier cluster was recognised in it."""
    terms: dict[str, float] = {}
    """Stem → how much it tells of the cluster (c-TF-IDF), of length 1; by this it is recognised."""
    keys: tuple[tuple[str, ...], ...] = ()
    """What names its failures over runs, query and kind, hashed; a list for each run."""
    seen: tuple[int, ...] = ()
    """How many of its failures are in each run."""
    before: Point | None = None
    """What it was in the run that this one is held against; None where that was not asked for."""
    centroid: tuple[float, ...] = ()
    """The mean of its vectors, of length 1."""


class Clusters(Record, frozen=True):
    """The clusters of the failing traces of some runs."""

    runs: tuple[str, ...]
    traces: int
    failures: int
    how: str
    """In words, how they were put together."""
    embedder: str
    clusters: tuple[Cluster, ...]
    """The largest first; muted and resolved ones last."""
    singles: Cluster | None
    """The failures that are like no others; None where there are none."""
    gone: tuple[str, ...] = ()
    """Names of open clusters that were known and are not seen any more."""


# --- over time -------------------------------------------------------------------------------------


class Event(Record, frozen=True):
    """Something that happened to a cluster."""

    time: str
    what: Literal["seen", "assigned", "muted", "resolved", "reopened"]
    detail: str = ""


class Sighting(Record, frozen=True):
    """A cluster as it was seen in one run."""

    run: str
    fingerprint: str
    created: str
    size: int
    traces: int
    keys: tuple[str, ...] = ()
    """What names the failures that were in it then; forgotten of sightings long ago."""


class Known(Record, frozen=True):
    """A cluster as it is remembered."""

    id: str
    name: str
    kind: Kind
    terms: dict[str, float]
    kinds: dict[str, float]
    """Kind of problem → share of the traces that show it."""
    centroid: tuple[float, ...] = ()
    embedder: str = ""
    state: State = "open"
    assigned: str | None = None
    until: str = ""
    """The making of the last run in which it had been seen when it was resolved."""
    sightings: tuple[Sighting, ...] = ()
    history: tuple[Event, ...] = ()


class Registry(Record, frozen=True):
    """All clusters that are remembered: the content of `clusters.json`."""

    format: int = 1
    clusters: tuple[Known, ...] = ()
