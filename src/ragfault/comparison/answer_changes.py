"""What happened to the answers between two runs: how many became bad or right, and for which cause."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.decision_tree import BAD_ANSWERS, RIGHT_ANSWERS
from ragfault.comparison.paired_causes import CausePair
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import AnswerChanges, CauseChange, FaultLayer, LayerFault
from ragfault.diagnosis.causes.records import AnswerCause, Stage
from ragfault.diagnosis.causes.summary import MAX_EXAMPLES, rank_example
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.io.runs.run import MetricInfo
from ragfault.model.causes import CauseName
from ragfault.stats.differences import paired_difference

Mask = NDArray[np.bool_]

STAGES_AT_FAULT: dict[FaultLayer, frozenset[Stage]] = {
    "pipeline": frozenset({"pipeline"}),
    "retrieval": frozenset({"query", "retrieval"}),
    "source data": frozenset({"source"}),
    "generation": frozenset({"generation"}),
}
"""A layer → the stages whose causes a fault of it explains."""


def count_answer_changes(paired: PairedRuns, pair_mask: Mask | None = None, seed: int = 0) -> AnswerChanges | None:
    """Count the answers that became bad or right on some pairs; None if no pair is rated on both sides.

    Pairs with an unsure answer are left out, and counted.
    """
    chosen = np.arange(len(paired.pairing)) if pair_mask is None else np.flatnonzero(pair_mask)
    pairs = [paired.causes[place] for place in chosen.tolist()]
    rated = np.array([is_rated(pair) for pair in pairs], dtype=bool)
    if not rated.any():
        return None
    bad = np.array([[side.rating.outcome == "bad" for side in pair] for pair in pairs], dtype=bool)[rated]
    clusters = None if paired.pairing.clusters is None else paired.pairing.clusters[chosen][rated]
    same = paired.pairing.same_answers[chosen][rated]
    became_bad = ~bad[:, 0] & bad[:, 1]
    shares = bad.astype(np.float64)
    return AnswerChanges(
        pairs=int(rated.sum()),
        unsure=int((~rated).sum()),
        bad=(int(bad[:, 0].sum()), int(bad[:, 1].sum())),
        became_bad=int(became_bad.sum()),
        became_right=int((bad[:, 0] & ~bad[:, 1]).sum()),
        unchanged=int((became_bad & same).sum()),
        difference=paired_difference(shares[:, 0], shares[:, 1], clusters, bounds=(0.0, 1.0), seed=seed),
        causes=tuple(_count_causes([pair for pair, known in zip(pairs, rated.tolist(), strict=True) if known])),
    )


def add_right_answers(paired: PairedRuns) -> None:
    """Add the probability that each answer is right as a metric of the pairs; NaN where neither answer is rated."""
    if paired.has_metric(RIGHT_ANSWERS):
        return
    right = [[1.0 - side.rating.probability for side in pair] for pair in paired.causes]
    rated = [any(side.rating.source != "none" for side in pair) for pair in paired.causes]
    values = np.where(np.array(rated)[:, None], np.array(right), math.nan)
    paired.add_metric(MetricInfo(RIGHT_ANSWERS, "crosscut", "higher", 0.0, 1.0), values[:, 0], values[:, 1])


def mark_bad_answers(paired: PairedRuns) -> NDArray[np.float64]:
    """Return whether each answer is bad, pairs × sides; NaN on both sides where one is unsure."""
    bad = np.array([[side.rating.outcome == "bad" for side in pair] for pair in paired.causes], dtype=np.float64)
    bad[[not is_rated(pair) for pair in paired.causes]] = math.nan
    return bad


def mark_unharmed(paired: PairedRuns) -> Mask:
    """Return the pairs whose answer did not become bad: it was bad before, or is right now."""
    unharmed = [old.rating.outcome == "bad" or new.rating.outcome == "right" for old, new in paired.causes]
    return np.array(unharmed, dtype=bool)


def add_bad_answers(paired: PairedRuns) -> None:
    """Add whether each answer is bad as a metric of the pairs on which both runs retrieved the same chunks.

    Elsewhere it does not move: what became bad there may follow from the chunks. NaN where an answer is unsure.
    """
    if paired.has_metric(BAD_ANSWERS):
        return
    bad = mark_bad_answers(paired)
    bad[~paired.pairing.same_chunks & np.isfinite(bad[:, 0])] = 0.0
    paired.add_metric(MetricInfo(BAD_ANSWERS, "generation", "lower", 0.0, 1.0), bad[:, 0], bad[:, 1])


def is_rated(pair: CausePair) -> bool:
    """Return whether both answers of a pair are right or bad, and not unsure."""
    return all(side.rating.outcome != "unsure" for side in pair)


def _list_became_bad(pairs: Sequence[CausePair]) -> Iterator[AnswerCause]:
    return (after for before, after in pairs if before.rating.outcome == "right" and after.rating.outcome == "bad")


def _count_causes(pairs: Sequence[CausePair]) -> list[CauseChange]:
    """Count each cause on both sides: those of most answers that became bad first, undecided last."""
    counts = [Counter(pair[side].cause for pair in pairs) for side in (0, 1)]
    harmed: dict[CauseName, list[AnswerCause]] = {}
    for cause in _list_became_bad(pairs):
        if cause.cause is not None:
            harmed.setdefault(cause.cause, []).append(cause)
    changes = [
        CauseChange(
            cause=name,
            stage=definition.stage,
            title=definition.title,
            became_bad=len(harmed.get(name, ())),
            bad=(counts[0][name], counts[1][name]),
            examples=tuple(item.trace for item in sorted(harmed.get(name, ()), key=rank_example)[:MAX_EXAMPLES]),
        )
        for name, definition in CAUSES.items()
        if any(side[name] for side in counts)
    ]
    return sorted(changes, key=lambda item: (item.cause == "undecided", -item.became_bad, -item.bad[1]))


def order_by_harm(paired: PairedRuns, faults: Sequence[LayerFault], pair_mask: Mask | None) -> list[LayerFault]:
    """Return faults with the answers that each made bad, those of most answers first, then in order of layers."""
    if not faults:
        return []
    pairs = paired.causes if pair_mask is None else [paired.causes[row] for row in np.flatnonzero(pair_mask).tolist()]
    stages = Counter(cause.stage for cause in _list_became_bad(pairs))
    counted = [
        replace(fault, became_bad=max(fault.became_bad, sum(stages[stage] for stage in STAGES_AT_FAULT[fault.layer])))
        for fault in faults
    ]
    layers = list(STAGES_AT_FAULT)
    return sorted(counted, key=lambda fault: (-fault.became_bad, layers.index(fault.layer)))
