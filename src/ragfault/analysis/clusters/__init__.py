"""Clusters of failing traces: named, tracked over runs, and promoted to cases of an evaluation set."""

from ragfault.analysis.clusters.clustering import cluster_failures, cluster_runs
from ragfault.analysis.clusters.description import TracePopulation, load_population, read_failures
from ragfault.analysis.clusters.promotion import accept_cases, build_cases, promote_cases
from ragfault.analysis.clusters.records import Cluster, ClusterRegistry, ClusterReport, FailingTrace
from ragfault.analysis.clusters.registry import (
    assign_cluster,
    load_registry,
    mute_cluster,
    record_clusters,
    resolve_cluster,
    save_registry,
)

__all__ = [
    "Cluster", "ClusterRegistry", "ClusterReport", "FailingTrace", "TracePopulation", "accept_cases", "assign_cluster",
    "build_cases", "cluster_failures", "cluster_runs", "load_population", "load_registry", "mute_cluster",
    "promote_cases", "read_failures", "record_clusters", "resolve_cluster", "save_registry",
]  # fmt: skip
