"""A frame: two runs side by side, their scores and which trace stands against which."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ragfault.errors import UsageError
from ragfault.findings.clues import Circumstances, circumstances
from ragfault.findings.flaking import Flakiness, checked
from ragfault.findings.grid import SCORED, UNDEFINED, Grid
from ragfault.findings.pairing import Pairing, pair, same_terms
from ragfault.findings.rectifying import People, Rectification, Said
from ragfault.runs import Measure, Run

__all__ = ["Frame", "frame"]

Peoples = tuple[People | None, People | None]
"""What people said of the baseline and of the candidate."""


class Frame:
    """Two runs side by side: their grids and which row stands against which."""

    def __init__(
        self,
        baseline: Run,
        candidate: Run,
        *,
        anyway: bool = False,
        people: Peoples = (None, None),
        flakiness: Flakiness | None = None,
    ) -> None:
        self.flakiness = flakiness and checked(flakiness, [r.manifest.judge for r in (baseline, candidate)])
        """How far the judge of both differs from itself."""
        self.runs = (baseline, candidate)
        self.warnings = same_terms(baseline, candidate, anyway=anyway)
        self.grids = (Grid(baseline, people[0]), Grid(candidate, people[1]))
        self.pairing: Pairing = pair(baseline, candidate)
        self._names: tuple[list[str], list[str]] | None = None
        self._added: dict[str, tuple[Measure, tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}

    @property
    def rectification(self) -> tuple[Rectification | None, Rectification | None]:
        """By whose labels each run is put right."""
        old, new = (None if grid.people is None else grid.people.made for grid in self.grids)
        return old, new

    def names(self) -> tuple[list[str], list[str]]:
        """The ids and queries of the candidate's traces."""
        if self._names is None:
            table = self.runs[1].to_arrow("traces", ["id", "query"])
            self._names = (table["id"].to_pylist(), table["query"].to_pylist())
        return self._names

    @cached_property
    def circumstances(self) -> tuple[Circumstances, Circumstances]:
        """What the traces of each run say of the system that made them."""
        return circumstances(self.runs[0]), circumstances(self.runs[1])

    def partial(self, keep: NDArray[np.bool_]) -> tuple[Circumstances, Circumstances]:
        """The same, of some of the pairs."""
        rows = [frozenset(self.rows(side)[keep].tolist()) for side in (0, 1)]
        return circumstances(self.runs[0], rows[0]), circumstances(self.runs[1], rows[1])

    def partners(self, ids: Sequence[str]) -> dict[str, str]:
        """For traces of the candidate, the ids of their partners in the baseline."""
        wanted = set(ids)
        names, _ = self.names()
        old = self.runs[0].to_arrow("traces", ["id"])["id"]
        rows = zip(self.pairing.baseline.tolist(), self.pairing.candidate.tolist(), strict=True)
        return {names[new]: old[before].as_py() for before, new in rows if names[new] in wanted}

    def has(self, metric: str) -> bool:
        """Whether a metric was added to those of the runs."""
        return metric in self._added

    def add(self, measure: Measure, left: NDArray[np.float64], right: NDArray[np.float64]) -> None:
        """Add a metric by its values on the pairs, NaN where it has none."""
        self._added[measure.name] = (measure, (left, right))

    def rows(self, side: int) -> NDArray[np.int64]:
        """The rows of one run that have a partner."""
        return self.pairing.candidate if side else self.pairing.baseline

    def values(self, metric: str, side: int) -> NDArray[np.float64]:
        """The values of a metric on the paired traces of one run; NaN where it has none."""
        if metric in self._added:
            return self._added[metric][1][side]
        grid = self.grids[side]
        at = grid.find(metric)
        if at is None:
            raise UsageError(f"{metric} is not in {self.runs[side].path}.")
        found: NDArray[np.float64] = grid.values[self.rows(side), at]
        return found

    def states(self, metric: str, side: int) -> NDArray[np.int64]:
        """Whether the metric is scored, undefined or failed on them."""
        if metric in self._added:
            return np.where(np.isfinite(self._added[metric][1][side]), SCORED, UNDEFINED)
        at = self.grids[side].find(metric)
        assert at is not None
        found: NDArray[np.int64] = self.grids[side].status[self.rows(side), at]
        return found

    def said(self, metric: str, side: int) -> Said | None:
        """The values of a metric by people on the paired traces of one run; None where they gave none."""
        at = None if metric in self._added else self.grids[side].find(metric)
        found = None if at is None else self.grids[side].said(at)
        return None if found is None else found.of(self.rows(side))

    def shared(self) -> list[Measure]:
        """The metrics that both runs have, in the order of the candidate."""
        there = {measure.name for measure in self.grids[0].measures}
        mine = [measure for measure in self.grids[1].measures if measure.name in there]
        return [*mine, *(measure for measure, _ in self._added.values())]


def frame(
    baseline: Run | Frame,
    candidate: Run | None = None,
    *,
    anyway: bool = False,
    people: Peoples = (None, None),
    flakiness: Flakiness | None = None,
) -> Frame:
    """Two runs side by side; a frame is taken as it is, so that several findings can share one.

    With what `people` said of some traces (of the baseline, of the candidate), differences are put right by it; with
    the `flakiness` of the judge their intervals are wider.
    """
    if isinstance(baseline, Frame):
        return baseline
    assert candidate is not None
    return Frame(baseline, candidate, anyway=anyway, people=people, flakiness=flakiness)
