"""Clustering: failing traces become named clusters that are recognised over runs, and cases of an evaluation set."""

from ragfault.clustering.failing import Whole, failures, whole
from ragfault.clustering.promoting import Promoted, accept, cases, promote
from ragfault.clustering.records import (
    Cluster,
    Clusters,
    Event,
    Failure,
    Known,
    Point,
    Registry,
    Shown,
    Sighting,
)
from ragfault.clustering.registering import assign, mute, read_registry, remember, resolve, write_registry
from ragfault.clustering.running import cluster, cluster_failures

__all__ = [
    "Cluster",
    "Clusters",
    "Event",
    "Failure",
    "Known",
    "Point",
    "Promoted",
    "Registry",
    "Shown",
    "Sighting",
    "Whole",
    "accept",
    "assign",
    "cases",
    "cluster",
    "cluster_failures",
    "failures",
    "mute",
    "promote",
    "read_registry",
    "remember",
    "resolve",
    "whole",
    "write_registry",
]
