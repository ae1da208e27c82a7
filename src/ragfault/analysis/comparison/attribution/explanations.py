"""What explains a drop other than a fault: a trade-off, right refusals, shorter answers, or other texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragfault.analysis.comparison.attribution.edited_sources import is_lost_with_edits
from ragfault.analysis.comparison.attribution.second_faults import is_lost_with_chunks
from ragfault.analysis.comparison.compare import compare
from ragfault.analysis.comparison.decision_tree import TreeWalk, describe_change
from ragfault.analysis.comparison.paired_runs import PairedRuns
from ragfault.analysis.comparison.records import MetricChange
from ragfault.analysis.comparison.trade_offs import (
    REFUSED_METRICS,
    RIGHT_SHARE,
    find_exact_answers,
    find_gain,
    find_new_refusals,
    find_shorter_answers,
    is_outweighed,
)
from ragfault.analysis.score_matrix import metric_name
from ragfault.text.number_format import format_percent

VerdictSentence = tuple[Literal["fault", "no fault", "cannot tell"], str]


def explain_drop(
    paired: PairedRuns,
    walk: TreeWalk,
    names: Sequence[str],
    edits: str | None,
    pair_mask: NDArray[np.bool_] | None,
    options: Mapping[str, Any],
) -> VerdictSentence | None:
    """Return verdict and sentence where something else than a fault may explain what dropped; None elsewhere."""
    return (
        _explain_by_more_chunks(walk)
        or _explain_by_refusals(paired, walk, names, pair_mask, options)
        or _explain_by_references(paired, walk, names, pair_mask, options)
        or _explain_by_texts(paired, walk, edits, pair_mask, options)
        or _explain_by_length(paired, walk, names, pair_mask, options)
    )


def _explain_by_more_chunks(walk: TreeWalk) -> VerdictSentence | None:
    """Return verdict and sentence where more chunks of less use made the answers more complete; None elsewhere."""
    lost = [change for fault in walk.faults for change in fault.evidence]
    gain = walk.changes.get("completeness")
    if not lost or walk.faults[0].branch[0] != "6" or gain is None or gain.verdict != "better":
        return None
    return "no fault", f"No layer broke, a trade-off: {describe_change(gain)}, while {describe_change(lost[0])}."


def _explain_by_refusals(
    paired: PairedRuns,
    walk: TreeWalk,
    names: Sequence[str],
    pair_mask: NDArray[np.bool_] | None,
    options: Mapping[str, Any],
) -> VerdictSentence | None:
    """Return verdict and sentence where new refusals explain the fault, and enough of them are right; None elsewhere.

    It is a trade-off where groundedness rose, at least half of the new refusals are right, and on the other pairs
    nothing is shown to have dropped by more than groundedness rose there. Where no gain is shown and only right
    refusals explain the drop, the data cannot tell.
    """
    dropped = _list_answer_drops(walk)
    if not dropped:
        return None
    shift = find_new_refusals(paired, pair_mask)
    if not shift.accepted.any():
        return None
    everything = np.ones(len(paired.pairing), dtype=bool) if pair_mask is None else pair_mask
    gain = find_gain(dropped[0], walk.changes)
    without = shift.pairs if gain is not None and shift.right_share >= RIGHT_SHARE else shift.accepted
    rest = compare(paired, metrics=names, pair_mask=everything & ~without, **options)
    other = TreeWalk(rest, walk.differences)
    if any(not is_outweighed(change, other.changes) for fault in other.faults for change in fault.evidence):
        return None
    lost = describe_change(dropped[0])
    if without is shift.pairs and gain is not None:
        text = f"{describe_change(gain)}, while {lost}: {shift.describe()}"
        return "no fault", f"No layer broke, a trade-off: {text}."
    text = f"{lost}, but {shift.describe()}, and they explain the drop"
    return "cannot tell", f"No layer is shown to have broken: {text}."


def _list_answer_drops(walk: TreeWalk) -> list[MetricChange]:
    """Return the evidence of the faults where all of it is of metrics that refusals and short answers lower."""
    dropped = [change for fault in walk.faults for change in fault.evidence]
    return dropped if all(metric_name(change.metric) in REFUSED_METRICS for change in dropped) else []


def _explain_by_references(
    paired: PairedRuns,
    walk: TreeWalk,
    names: Sequence[str],
    pair_mask: NDArray[np.bool_] | None,
    options: Mapping[str, Any],
) -> VerdictSentence | None:
    """Return verdict and sentence where answers are only shorter, and hold the reference in full; None elsewhere.

    Nothing is shown to have dropped on the other pairs. What a judge misses in a short answer was not asked for.
    """
    dropped = _list_answer_drops(walk)
    if not dropped:
        return None
    exact = find_exact_answers(paired, pair_mask)
    if not exact.any() or _drops_without(paired, exact, names, pair_mask, options):
        return None
    share = format_percent(float(exact.sum() / (len(exact) if pair_mask is None else pair_mask.sum())))
    text = (
        f"{describe_change(dropped[0])}, but on {share} of pairs the answers are shorter and hold the reference in full"
    )
    return "cannot tell", f"No layer is shown to have broken: {text}, and no drop is shown on the others."


def _explain_by_length(
    paired: PairedRuns,
    walk: TreeWalk,
    names: Sequence[str],
    pair_mask: NDArray[np.bool_] | None,
    options: Mapping[str, Any],
) -> VerdictSentence | None:
    """Return verdict and sentence where answers without a key are only shorter, in known words; None elsewhere.

    A judge finds parts of the query missing in a short right answer, which does not repeat them, as in one that leaves
    them out.
    """
    dropped = _list_answer_drops(walk)
    if not dropped:
        return None
    shorter, (before, after) = find_shorter_answers(paired, pair_mask, find_new_refusals(paired, pair_mask).pairs)
    if not shorter.any() or _drops_without(paired, shorter, names, pair_mask, options):
        return None
    share = format_percent(float(shorter.sum() / (len(shorter) if pair_mask is None else pair_mask.sum())))
    text = (
        f"{describe_change(dropped[0])}, but on {share} of pairs the answers are shorter (median words {before:g} → "
        f"{after:g}) and most of their words stand in the former answers or the chunks"
    )
    left = "Whether they leave out what was asked cannot be told without references"
    return "cannot tell", f"No layer is shown to have broken: {text}. {left}; no drop is shown on the other pairs."


def _drops_without(
    paired: PairedRuns,
    pairs: NDArray[np.bool_],
    names: Sequence[str],
    pair_mask: NDArray[np.bool_] | None,
    options: Mapping[str, Any],
) -> bool:
    """Return whether a fault is shown on the compared pairs without some of them."""
    part = ~pairs if pair_mask is None else pair_mask & ~pairs
    return bool(part.any()) and bool(TreeWalk(compare(paired, metrics=names, pair_mask=part, **options), ()).faults)


def _explain_by_texts(
    paired: PairedRuns,
    walk: TreeWalk,
    edits: str | None,
    pair_mask: NDArray[np.bool_] | None,
    options: Mapping[str, Any],
) -> VerdictSentence | None:
    """Return verdict and sentence where answers say less, or leave the question, only on other texts; None elsewhere.

    Answers may follow sources that state less. Without gold a judge sees that chunks are less relevant, and hardly that
    they lack what was asked for. Groundedness and citations are judged against the chunks, whatever these say.
    """
    lost = [change for fault in walk.faults for change in fault.evidence]
    if not lost or walk.faults[0].branch[0] not in "47":
        return None
    begin = f"No layer is shown to have broken: {describe_change(lost[0])}, but"
    if edits and is_lost_with_edits(paired, lost[0], pair_mask, options):
        return "cannot tell", f"{begin} {edits}."
    if (walk.has_gold and walk.retrieval_steady) or not is_lost_with_chunks(paired, lost[0], pair_mask, options):
        return None
    return "cannot tell", f"{begin} only where other chunks were retrieved. Look at retrieval first."
