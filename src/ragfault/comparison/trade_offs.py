"""Trade-offs between metrics, new refusals that were right, and shorter answers that may say what was asked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import MetricChange
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.model.grouping import group_positions
from ragfault.model.records import Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS
from ragfault.text.number_format import format_percent

COUNTERPARTS = {
    "groundedness": ("completeness",),
    "completeness": ("groundedness",),
    "answer_relevance": ("groundedness", "context_adherence"),
    "context_recall": ("context_precision", "context_relevance"),
    "context_precision": ("context_recall",),
    "context_relevance": ("completeness", "context_recall", "recall", "span_recall"),
    "chunk_utilization": ("completeness", "context_recall", "recall", "span_recall"),
}
"""Metric → the metrics that may have risen at its expense, in the order in which they are named."""

# share of the new refusals that must be right in a trade-off
RIGHT_SHARE = 0.5
# share of the baseline's claims without support from which a refusal was better
UNSUPPORTED_SHARE = 0.5
# of the words of a shorter answer stand in the former answer or the chunks
KNOWN_SHARE = 0.8


class RefusalShift(Struct, frozen=True, eq=False):
    """New refusals of the candidate on the compared pairs."""

    pairs: NDArray[np.bool_]
    """Pairs on which the candidate refuses and the baseline answered."""
    accepted: NDArray[np.bool_]
    """Those of them on which refusing was right."""
    shares: tuple[float, float]
    """Share of refusals of the baseline and of the candidate."""

    @property
    def right_share(self) -> float:
        """Return the share of the new refusals that are right."""
        return float(self.accepted.sum() / self.pairs.sum()) if self.pairs.any() else 0.0

    def describe(self) -> str:
        """Describe the shift in words."""
        before, after = (format_percent(share) for share in self.shares)
        right = f"{format_percent(self.right_share)} of the new refusals are right"
        return f"the candidate refuses on {after} of the pairs, the baseline on {before}, and {right}"


def find_new_refusals(paired: PairedRuns, mask: NDArray[np.bool_] | None = None) -> RefusalShift:
    """Find the pairs on which only the candidate refuses, and those of them on which it was right to.

    A refusal is right where the query cannot be answered (`answerable` is False), or none of the gold was retrieved.
    Without a key: where the judge finds no relevant chunk, or the chunks do not support half of the claims of the
    baseline's answer.
    """
    size = len(paired.pairing)
    sides = [paired.find_refusals(side) for side in (0, 1)]
    inside = np.ones(size, dtype=bool) if mask is None else mask
    newly = ~sides[0] & sides[1] & inside
    right = np.zeros(size, dtype=bool)
    places = np.flatnonzero(newly).tolist()
    rows = [paired.paired_rows(side)[places].tolist() for side in (0, 1)]
    old_rows, places_by_row = set(rows[0]), group_positions(rows[1])
    unsupported = {
        row: _unsupported_share(verdicts) for row, verdicts in enumerate(paired.runs[0].verdicts()) if row in old_rows
    }
    run = paired.runs[1]
    for row, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True)):
        for position in places_by_row.get(row, ()):
            right[places[position]] = _refusal_is_right(trace, verdicts, unsupported[rows[0][position]])
    count = max(1, int(inside.sum()))
    return RefusalShift(
        newly, right, (float((sides[0] & inside).sum()) / count, float((sides[1] & inside).sum()) / count)
    )


def _unsupported_share(verdicts: Verdicts) -> float:
    claims = verdicts.claim or ()
    return sum(claim.support in ("unsupported", "contradicted") for claim in claims) / len(claims) if claims else 0.0


def _refusal_is_right(trace: Trace, verdicts: Verdicts, unsupported: float) -> bool:
    if trace.answerable is not None:
        return not trace.answerable
    if trace.gold is not None and trace.gold.chunks and trace.chunks is not None:
        return not any(trace.gold.chunks.get(chunk.id, 0.0) > 0 for chunk in trace.chunks)
    relevant = any(chunk.level in RELEVANT_LEVELS for chunk in verdicts.chunk or ())
    return (verdicts.chunk is not None and not relevant) or unsupported >= UNSUPPORTED_SHARE


def find_gain(change: MetricChange, changes: Mapping[str, MetricChange]) -> MetricChange | None:
    """Return the counterpart of a metric that got better where the metric got worse; None where none is shown."""
    for name in COUNTERPARTS.get(metric_name(change.metric), ()):
        gain = changes.get(name)
        if gain is not None and gain.verdict == "better":
            return gain
    return None
