"""Records of clustering: failing traces, their clusters, and the registry of known clusters."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.analysis.records import ProblemKind
from ragfault.records import Layer
from ragfault.stats import Interval

ClusterState = Literal["open", "muted", "resolved"]
"""How a cluster stands: to be looked at, not to be told of, or fixed."""

ClusterTrend = Literal["rising", "falling", "steady", "cannot tell"]  # where the share of a cluster is going


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """Base of the records of clustering: immutable, keyword-only."""


class FailingTrace(ClusterRecord, frozen=True):
    """Trace that failed, with the data that clustering reads."""

    run: int
    """The place of its run among those that were given."""
    row: int
    """Its place in the run."""
    trace: str
    query: str
    kind: ProblemKind
    """What is wrong with it, the cause before what follows from it."""
    kinds: tuple[ProblemKind, ...]
    """All that is wrong with it."""
    text: str
    """The problem of that kind itself, with its reason; from the trace, so not to be trusted as markup."""
    triad: float | None = None


class ClusterExample(ClusterRecord, frozen=True):
    """Trace that represents its cluster."""

    run: str
    trace: str
    query: str
    kind: ProblemKind
    text: str


class ClusterShare(ClusterRecord, frozen=True):
    """Size of a cluster in one run or period."""

    label: str
    failures: int
    traces: int
    """All traces of the run or stretch, failing or not."""
    share: Interval


class Cluster(ClusterRecord, frozen=True):
    """Failing traces that fail alike on similar queries."""

    id: str
    """The same as long as it is recognised, over runs and reruns."""
    name: str
    kind: ProblemKind
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
    examples: tuple[ClusterExample, ...]
    """Its medoids: the traces nearest to all others."""
    remedies: tuple[str, ...]
    """What mends it, the cheapest first."""
    shares: tuple[ClusterShare, ...]
    trend: ClusterTrend
    state: ClusterState = "open"
    assigned: str | None = None
    since: str | None = None
    """The run in which it was first seen."""
    reopened: bool = False
    """Whether it was resolved, and has come back in this run."""
    new: bool = True
    """Whether no earlier cluster was recognised in it."""
    terms: dict[str, float] = {}
    """Stem → how much it tells of the cluster (c-TF-IDF), of length 1; by this it is recognised."""
    failure_keys: tuple[tuple[str, ...], ...] = ()
    """What names its failures over runs, query and kind, hashed; a list for each run."""
    run_counts: tuple[int, ...] = ()
    """How many of its failures are in each run."""
    before: ClusterShare | None = None
    """What it was in the run that this one is held against; None where that was not asked for."""
    centroid: tuple[float, ...] = ()
    """The mean of its vectors, of length 1."""


class ClusterReport(ClusterRecord, frozen=True):
    """Clusters of the failing traces of some runs."""

    runs: tuple[str, ...]
    traces: int
    failures: int
    method: str
    """In words, how they were put together."""
    embedder: str
    clusters: tuple[Cluster, ...]
    """The largest first; muted and resolved ones last."""
    ungrouped: Cluster | None
    """The failures that are like no others; None where there are none."""
    gone: tuple[str, ...] = ()
    """Names of open clusters that were known and are not seen any more."""


class ClusterEvent(ClusterRecord, frozen=True):
    """Event in the history of a cluster."""

    time: str
    kind: Literal["seen", "assigned", "muted", "resolved", "reopened"]
    detail: str = ""


class ClusterSighting(ClusterRecord, frozen=True):
    """Occurrence of a cluster in one run."""

    run: str
    fingerprint: str
    created: str
    size: int
    traces: int
    failure_keys: tuple[str, ...] = ()
    """What names the failures that were in it then; forgotten of sightings long ago."""


class KnownCluster(ClusterRecord, frozen=True):
    """Cluster as the registry stores it."""

    id: str
    name: str
    kind: ProblemKind
    terms: dict[str, float]
    kinds: dict[str, float]
    """Kind of problem → share of the traces that show it."""
    centroid: tuple[float, ...] = ()
    embedder: str = ""
    state: ClusterState = "open"
    assigned: str | None = None
    resolved_until: str = ""
    """The making of the last run in which it had been seen when it was resolved."""
    sightings: tuple[ClusterSighting, ...] = ()
    history: tuple[ClusterEvent, ...] = ()


class ClusterRegistry(ClusterRecord, frozen=True):
    """All known clusters: the content of `clusters.json`."""

    format: int = 1
    clusters: tuple[KnownCluster, ...] = ()
