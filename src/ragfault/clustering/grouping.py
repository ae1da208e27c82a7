"""Grouping: which failures belong together, by density where there are many, by kind and topic words where few."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.clustering.records import Failure
from ragfault.errors import MissingExtra
from ragfault.text import content

__all__ = ["FEW", "SAME", "SINGLE", "by_words", "dense", "joined", "least"]

FEW = 30
"""Below so many failures density says nothing, and they are grouped by kind and words."""

SINGLE = -1
"""The label of a failure that belongs to no group."""

NEAR = 3
"""The neighbours by which the density at a failure is measured, itself among them."""

SAME = 0.8
"""From this cosine of their middles on, two clusters are one."""

PAIR = 2
"""The least size of a group by words."""

Array = np.ndarray[Any, Any]


def least(failures: int) -> int:
    """The least size of a cluster among so many failures: half their root, and five at least.

    >>> least(40), least(500), least(10_000)
    (5, 11, 50)
    """
    return max(5, round(math.sqrt(failures) / 2))


def dense(rows: Array, smallest: int) -> list[int]:
    """A label for each row, SINGLE for what lies apart (HDBSCAN: Campello, Moulavi & Sander 2013).

    The leaves of its tree are the clusters: where most traces fail, the most stable node is often nearly all of them.

    Raises MissingExtra without scikit-learn.
    """
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError:
        raise MissingExtra("clustering by meaning", "cluster") from None
    made = HDBSCAN(min_cluster_size=smallest, min_samples=NEAR, cluster_selection_method="leaf", copy=True)
    found: list[int] = made.fit_predict(rows).tolist()
    return found


def joined(labels: Sequence[int], rows: Array) -> list[int]:
    """The labels after clusters are joined whose middles are nearly the same, as those of one query in many wordings.

    >>> joined([0, 0, 1, 1, 2, -1], np.array([[1, 0.1], [1, 0], [1, 0.2], [1, 0.1], [0, 1], [1, 1]]))
    [0, 0, 0, 0, 2, -1]
    """
    names = sorted(set(labels) - {SINGLE})
    if len(names) < 2:
        return list(labels)
    marks = np.asarray(labels)
    middles = np.stack([rows[marks == name].mean(axis=0) for name in names])
    lengths = np.linalg.norm(middles, axis=1, keepdims=True)
    middles = middles / np.where(lengths > 0, lengths, 1)
    near = np.round(middles @ middles.T, 6) >= SAME
    first = np.arange(len(names))
    while not np.array_equal(after := np.where(near, first[None, :], len(names)).min(axis=1), first):
        first = after
    now = {name: names[first[place]] for place, name in enumerate(names)} | {SINGLE: SINGLE}
    return [now[label] for label in labels]


def by_words(found: Sequence[Failure]) -> list[int]:
    """A label for each failure: those of one kind whose queries share a word that tells, SINGLE for the others.

    Within a kind, the word that most of the queries share makes a group (of several, the one that fewest of
    the other kinds' queries have, then by alphabet), until no two of the rest share one. A word of most queries and of
    three kinds or more tells nothing.
    """
    held = [frozenset(content(one.query)) for one in found]
    spread = Counter(word for each in held for word in each)
    across = Counter(
        word for word, _ in {(word, one.kind) for one, each in zip(found, held, strict=True) for word in each}
    )
    common = {word for word, count in spread.items() if 2 * count > len(found) and across[word] > 2}
    labels = [SINGLE] * len(found)
    kinds: defaultdict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(found):
        kinds[one.kind].append(place)
    number = 0
    for kind in sorted(kinds):
        rest = kinds[kind]
        while group := _sharing(rest, held, spread, common):
            for place in group:
                labels[place] = number
            rest = [place for place in rest if labels[place] == SINGLE]
            number += 1
    return labels


def _sharing(
    rest: Sequence[int], held: Sequence[frozenset[str]], spread: Counter[str], common: set[str]
) -> list[int]:
    """The places whose queries share the word that most of them have; none where no two share one."""
    counts = Counter(word for place in rest for word in held[place] - common)
    ranked = sorted(counts, key=lambda word: (-counts[word], spread[word], word))
    if not ranked or counts[ranked[0]] < PAIR:
        return []
    return [place for place in rest if ranked[0] in held[place]]
