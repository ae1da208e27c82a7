"""Matching: which of the clusters that are known a cluster is, by its failures, its words and its kinds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ragfault.clustering.grouping import SAME
from ragfault.clustering.records import Cluster, Known

__all__ = ["ALIKE", "likeness", "match"]

ALIKE = 0.5
"""From here on a cluster is the one that is known."""


def likeness(found: Cluster, known: Known, embedder: str = "") -> float:
    """How like a known cluster a cluster is, in [0, 1]; from ALIKE on it is the same.

    The greatest of three: the failures that both have, over the root of the product of their sizes (Ochiai 1957), at
    the best sighting or at all together; how alike their words are × how alike their kinds of problem are; and, where
    one embedder made both, how near their middles are, those counting as the same that would be joined within a run.
    """
    kinds = {kind: count / found.size for kind, count in found.kinds.items()}
    said = cosine(found.terms, known.terms) * cosine(kinds, known.kinds)
    near = 0.0
    if embedder and embedder == known.embedder and len(found.centroid) == len(known.centroid):
        near = sum(a * b for a, b in zip(found.centroid, known.centroid, strict=True)) + ALIKE - SAME
    return max(_common(found, known), said, near)


def _common(found: Cluster, known: Known) -> float:
    """How far the failures are the same."""
    ours = set().union(*found.keys)
    held = [set(one.keys) for one in known.sightings if one.keys]
    held.append(set().union(*held))
    return max(len(ours & each) / math.sqrt(len(ours) * len(each)) if ours and each else 0.0 for each in held)


def cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The cosine of two sparse rows; 0 where one is empty.

    >>> cosine({"a": 3.0, "b": 4.0}, {"a": 1.0})
    0.6
    """
    product = sum(weight * other.get(name, 0.0) for name, weight in one.items())
    lengths = math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))
    return product / lengths if lengths else 0.0


def match(found: Sequence[Cluster], known: Sequence[Known], embedder: str = "") -> dict[int, Known]:
    """The known cluster that each cluster is, by its place; each known one at most once, the likest pairs first."""
    pairs = sorted(
        (-near, one.id, place, at)
        for place, cluster in enumerate(found)
        for at, one in enumerate(known)
        if (near := round(likeness(cluster, one, embedder), 6)) >= ALIKE
    )
    made: dict[int, Known] = {}
    taken: set[int] = set()
    for _, _, place, at in pairs:
        if place not in made and at not in taken:
            made[place] = known[at]
            taken.add(at)
    return made
