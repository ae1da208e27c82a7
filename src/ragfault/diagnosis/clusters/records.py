"""Records of clustering: failing traces, their clusters, and the registry of known clusters."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.records import ProblemKind
from ragfault.model.causes import CauseName
from ragfault.model.records import Layer
from ragfault.stats.estimates import Interval

ClusterState = Literal["open", "muted", "resolved"]
"""State of a cluster: to be examined, not to be reported, or fixed."""

# where the share of a cluster is going
ClusterTrend = Literal["rising", "falling", "steady", "cannot tell"]


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """Base of the records of clustering: immutable, keyword-only."""


class FailingTrace(ClusterRecord, frozen=True):
    """Trace that failed, with the data that clustering reads."""

    run: int
    """The place of its run among those that were given."""
    row: int
    """Position in the run."""
    trace: str
    query: str
    kind: ProblemKind
    """Leading problem of the trace: causes rank before their consequences."""
    kinds: tuple[ProblemKind, ...]
    """All that is wrong with it."""
    text: str
    """The problem of that kind itself, with its reason; from the trace, so not to be trusted as markup."""
    triad: float | None = None
    cause: CauseName | None = None
    """Why its answer is bad; None if that is right or unsure, or was not rated."""


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
    """Problem of most of its traces."""
    layer: Layer
    cause: CauseName | None
    """Why the answers of all its traces are bad; None for traces whose answers are right or unsure."""
    size: int
    share: Interval
    """Share of all examined traces; its `n` counts them."""
    words: tuple[str, ...]
    """Words that distinguish its queries from the others."""
    kinds: dict[str, int]
    """Kind of problem → traces that show it, the commonest first."""
    layers: dict[str, int]
    """Layer → traces whose leading problem lies there."""
    members: tuple[str, ...]
    """The ids of its traces, in order; with several runs each after its run and a slash."""
    memberships: dict[str, float]
    """Trace → its membership in this cluster, members or not, the largest first; what is below 0.1 is left out."""
    examples: tuple[ClusterExample, ...]
    """Medoids of the cluster: the traces nearest to all others."""
    remedies: tuple[str, ...]
    """Changes that may fix it, the cheapest first."""
    shares: tuple[ClusterShare, ...]
    trend: ClusterTrend
    state: ClusterState = "open"
    assigned: str | None = None
    since: str | None = None
    """The run in which it was first seen."""
    reopened: bool = False
    """True if it was resolved and occurs again in this run."""
    new: bool = True
    """True if it matches no earlier cluster."""
    terms: dict[str, float] = {}
    """Stem → how much it tells of the cluster (c-TF-IDF), of length 1; by this it is recognised."""
    failure_keys: tuple[tuple[str, ...], ...] = ()
    """Hashes of query and problem kind that identify its failures across runs; a list for each run."""
    run_counts: tuple[int, ...] = ()
    """Number of its failures in each run."""
    before: ClusterShare | None = None
    """Share in the run that this one is compared with; None without a comparison."""
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
    judges: tuple[str, ...] = ()
    """Fingerprints of the judges of the runs, and of the one that they are compared with."""
    unjudged: tuple[str, ...] = ()
    """Runs without a judge, of which only failures of the pipeline are known."""
    population: int = 0
    """Traces of the runs where the clustered traces are a random sample of them; 0: they are no sample."""


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
    """Hashes that identify its failures at the time; removed from old sightings."""


class KnownCluster(ClusterRecord, frozen=True):
    """Cluster as the registry stores it."""

    id: str
    name: str
    kind: ProblemKind
    terms: dict[str, float]
    kinds: dict[str, float]
    """Kind of problem → share of the traces that show it."""
    cause: CauseName | None = None
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
