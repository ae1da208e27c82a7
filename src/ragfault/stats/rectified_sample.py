"""The sample behind a rectified mean: all traces, and what people said of some."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.difference import Bounds
from ragfault.stats.groups import Clusters, Floats, codes

__all__ = ["LEAST_LABELS", "Codes", "Rest", "Sample", "few", "less", "sampled"]

LEAST_LABELS = 10
"""Fewer independent labels than this (clusters, else traces) say too little of how the judge errs."""

Codes = NDArray[np.intp]


class Rest(NamedTuple):
    """A judge's values on further traces that nobody labelled, each a cluster of its own, as sums."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    """The sum of the squares."""

    def around(self, centre: float) -> float:
        """The sum of the squares of how far they lie from a value."""
        return max(0.0, self.squares - 2 * centre * self.total + self.n * centre**2)


class Sample(NamedTuple):
    """All traces, and what people said of some."""

    judged: Floats
    """The judge on every trace."""
    group: Codes
    """The cluster of each."""
    groups: int
    places: Codes
    """Where the labelled traces are."""
    people: Floats
    weights: Floats
    """How much each label counts; together 1."""
    rest: Rest = Rest()
    """Further traces, without a label."""

    @property
    def size(self) -> int:
        """How many traces there are in all."""
        return self.judged.size + self.rest.n

    @property
    def centre(self) -> float:
        """The judge's mean over all of them."""
        return (float(self.judged.sum()) + self.rest.total) / self.size

    @property
    def ours(self) -> Codes:
        """The clusters of the labelled traces."""
        return self.group[self.places]

    @property
    def clusters(self) -> int:
        """How many of them there are."""
        return int(np.unique(self.ours).size)

    @property
    def scale(self) -> float:
        """What λ is multiplied with to give the slope: all traces for each without a label."""
        rest = self.size - self.people.size
        return self.size / rest if rest else 1.0

    def padded(self, ends: Bounds) -> Sample:
        """The sample with a label at each end where the judge says what it usually says."""
        size, n, usual = self.judged.size, self.people.size, self.centre
        return Sample(
            judged=np.append(self.judged, [usual, usual]),
            group=np.append(self.group, [self.groups, self.groups + 1]),
            groups=self.groups + 2,
            places=np.append(self.places, [size, size + 1]),
            people=np.append(self.people, ends),
            weights=np.append(self.weights, [1 / n, 1 / n]) / (1 + 2 / n),
            rest=self.rest,
        )


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def less(candidate: ArrayLike, baseline: ArrayLike) -> Floats:
    """Candidate less baseline; raises ValueError where there is not one for one."""
    after, before = _floats(candidate), _floats(baseline)
    if after.shape != before.shape:
        raise ValueError(f"baseline has {before.size} values, candidate {after.size}: pairs need both")
    return after - before


def sampled(
    judged: ArrayLike, people: ArrayLike, clusters: Clusters | None, chances: ArrayLike | None = None
) -> Sample:
    judge, said = _floats(judged), _floats(people)
    if judge.ndim != 1 or judge.shape != said.shape:
        raise ValueError(
            f"the judge has {judge.size} values, people {said.size}: give NaN where nobody spoke"
        )
    if not np.isfinite(judge).all():
        raise ValueError("a value of the judge is not finite: leave out the traces that it could not judge")
    index, groups = codes(np.arange(judge.size) if clusters is None else clusters, judge.size)
    places = np.flatnonzero(np.isfinite(said))
    chance = np.ones(places.size) if chances is None else _floats(chances)[places]
    if not (chance > 0).all():
        raise ValueError("a chance is not above 0: what could not be drawn was not drawn")
    weights = 1 / chance
    return Sample(judge, index, groups, places, said[places], weights / (weights.sum() or 1.0))


def few(sample: Sample) -> str | None:
    """Why there are too few labels, if there are."""
    n, groups = sample.people.size, sample.clusters
    if groups >= LEAST_LABELS:
        return None
    labels = f"{n} label{'' if n == 1 else 's'}"
    told = labels if groups == n else f"{labels} in {groups} cluster{'' if groups == 1 else 's'}"
    return f"only {told}: at least {LEAST_LABELS} are needed"
