"""What explains a drop other than a fault: a trade-off, right refusals, shorter answers, or other texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ragfault.comparison.attribution.edited_sources import find_edited_pairs
from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.attribution.second_faults import is_lost_with_chunks
from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.controls import walk_controlled
from ragfault.comparison.decision_tree import TreeWalk, describe_change
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import MetricChange
from ragfault.comparison.trade_offs import (
    REFUSED_METRICS,
    RIGHT_SHARE,
    find_exact_answers,
    find_gain,
    find_new_refusals,
    find_shorter_answers,
    is_outweighed,
)
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.text.number_format import format_percent

VerdictSentence = tuple[Literal["fault", "no fault", "cannot tell"], str]


class PairedDrop(NamedTuple):
    """A drop between two runs: the faults of a walk over some of their pairs, with what a further walk needs."""

    scope: PairScope
    walk: TreeWalk
    names: Sequence[str]
    """Metrics of the tree."""

    @property
    def lost(self) -> list[MetricChange]:
        """Return the evidence of the faults."""
        return [change for fault in self.walk.faults for change in fault.evidence]

    @property
    def lost_in_answers(self) -> list[MetricChange]:
        """Return the evidence of the faults where all of it is of metrics that refusals and short answers lower."""
        return self.lost if all(metric_name(change.metric) in REFUSED_METRICS for change in self.lost) else []

    def walk_without(self, pairs: Mask) -> TreeWalk:
        """Return the walk over the compared pairs without some of them."""
        paired, part = self.scope.paired, self.scope.pairs & ~pairs
        rest = compare_pairs(paired, self.scope.settings, metrics=self.names, pair_mask=part)
        return walk_controlled(paired, rest, self.scope.differences, part).walk


def explain_drop(drop: PairedDrop, edits: str | None) -> VerdictSentence | None:
    """Return verdict and sentence where something else than a fault may explain what dropped; None elsewhere."""
    return (
        _explain_by_refusals(drop)
        or _explain_by_length(drop, keyed=True)
        or _explain_by_texts(drop, edits)
        or _explain_by_length(drop, keyed=False)
    )


def _explain_by_refusals(drop: PairedDrop) -> VerdictSentence | None:
    """Return verdict and sentence where new refusals explain the fault, and enough of them are right; None elsewhere.

    It is a trade-off where groundedness rose, at least half of the new refusals are right, and on the other pairs
    nothing is shown to have dropped by more than groundedness rose there. Where no gain is shown and only right
    refusals explain the drop, the data cannot tell.
    """
    dropped = drop.lost_in_answers
    if not dropped:
        return None
    shift = find_new_refusals(drop.scope.paired, drop.scope.pairs)
    if not shift.accepted.any():
        return None
    gain = find_gain(dropped[0], drop.walk.changes)
    without = shift.pairs if gain is not None and shift.right_share >= RIGHT_SHARE else shift.accepted
    other = drop.walk_without(without)
    if any(not is_outweighed(change, other.changes) for fault in other.faults for change in fault.evidence):
        return None
    lost = describe_change(dropped[0])
    if without is shift.pairs and gain is not None:
        text = f"{describe_change(gain)}, while {lost}: {shift.describe()}"
        return "no fault", f"No layer broke, a trade-off: {text}."
    text = f"{lost}, but {shift.describe()}, and they explain the drop"
    return "cannot tell", f"No layer is shown to have broken: {text}."


def _explain_by_length(drop: PairedDrop, *, keyed: bool) -> VerdictSentence | None:
    """Return verdict and sentence where answers are only shorter and may say all that was asked; None elsewhere.

    They hold the reference in full, or there is no key: a judge finds parts of the query missing in a short right
    answer, which does not repeat them, as in one that leaves them out. No drop is shown on the other pairs.
    """
    if not drop.lost_in_answers:
        return None
    if keyed:
        exact = find_exact_answers(drop.scope.paired, drop.scope.pairs)
        return _explain_by_pairs(drop, exact, "the answers are shorter and hold the reference in full")
    pairs, (before, after) = find_shorter_answers(drop.scope.paired, drop.scope.pairs)
    text = f"(median words {before:g} → {after:g}) and most of their words stand in the former answers or the chunks"
    left = " Whether they leave out what was asked cannot be told without references."
    return _explain_by_pairs(drop, pairs, f"the answers are shorter {text}", left)


def _explain_by_pairs(drop: PairedDrop, pairs: Mask, text: str, left: str = "") -> VerdictSentence | None:
    """Return verdict and sentence where no drop is shown but on pairs of which `text` tells; None elsewhere."""
    if not pairs.any() or ((drop.scope.pairs & ~pairs).any() and drop.walk_without(pairs).faults):
        return None
    lead = f"No layer is shown to have broken: {describe_change(drop.lost[0])}, but on"
    share = format_percent(float(pairs.sum() / drop.scope.pairs.sum()))
    return "cannot tell", f"{lead} {share} of pairs {text}, and no drop is shown on the others.{left}"


def _explain_by_texts(drop: PairedDrop, edits: str | None) -> VerdictSentence | None:
    """Return verdict and sentence where answers say less, or leave the question, only on other texts; None elsewhere.

    Answers may follow sources that state less. Without gold a judge sees that chunks are less relevant, and hardly that
    they lack what was asked for. Groundedness and citations are judged against the chunks, whatever these say.
    """
    walk = drop.walk
    if not drop.lost or walk.faults[0].branch[0] not in "46":
        return None
    scope, lost = drop.scope, drop.lost[0]
    begin = f"No layer is shown to have broken: {describe_change(lost)}, but"
    if edits and scope.find_drop_within(lost.metric, find_edited_pairs(scope.paired)):
        return "cannot tell", f"{begin} {edits}."
    if (walk.has_gold and walk.retrieval_steady) or not is_lost_with_chunks(scope, lost):
        return None
    return "cannot tell", f"{begin} only where other chunks were retrieved. Look at retrieval first."
