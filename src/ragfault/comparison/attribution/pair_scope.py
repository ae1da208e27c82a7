"""Compared pairs of two runs, with what a comparison of a part of them needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import MetricChange, RunDifference
from ragfault.comparison.settings import BisectionSettings


class PairScope(NamedTuple):
    """Pairs in which a fault is looked for, and how."""

    paired: PairedRuns
    pairs: Mask
    settings: BisectionSettings
    differences: tuple[RunDifference, ...]
    """Between the runs."""

    @property
    def has_edited_texts(self) -> bool:
        """Return whether texts changed under the same chunk ids."""
        return any(difference.name == "texts" for difference in self.differences)

    def find_drops(self, metrics: Sequence[str], part: Mask) -> list[MetricChange | None]:
        """Return the change of each metric on a part of the pairs; None where no drop is shown there."""
        pairs = self.pairs & part
        if not pairs.any():
            return [None] * len(metrics)
        compared = compare_pairs(self.paired, self.settings, metrics=metrics, pair_mask=pairs).changes
        dropped = {change.metric: change for change in compared if change.state == "dropped"}
        return [dropped.get(name) for name in metrics]

    def find_drop_within(self, metric: str, part: Mask) -> MetricChange | None:
        """Return the drop of a metric on some of the pairs if the others show none; None otherwise."""
        there, elsewhere = (self.find_drops([metric], side)[0] for side in (part, ~part))
        return there if elsewhere is None else None
