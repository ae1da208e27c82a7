"""Second faults: other layers, checked on the pairs on which the first fault cannot be the cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.attribution.answer_defects import COPIES_METRIC
from ragfault.comparison.attribution.edited_sources import find_drops, find_lost_facts, place_by_texts
from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.controls import walk_controlled
from ragfault.comparison.decision_tree import EQUAL_DEPTH, GOLD_METRICS, describe_change
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import BranchDecision, Comparison, LayerFault, MetricChange, RunDifference
from ragfault.comparison.settings import BisectionSettings
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.model.rules import RELEVANT_LEVELS
from ragfault.text.number_format import format_count

# branch name of the check of a layer behind another fault
SECOND_LOOK = "{layer}, rechecked"
LEAST_UNMOVED, UNMOVED_SHARE = 30, 0.2
"""Pairs with the same chunks, and their share, from which a second fault must show there as well."""

PairMask = NDArray[np.bool_]
Outcome = Literal["fault", "ruled out", "cannot tell", "not measured"]


def find_second_faults(
    paired: PairedRuns,
    comparison: Comparison,
    first: LayerFault,
    pair_mask: PairMask | None,
    settings: BisectionSettings,
    differences: Sequence[RunDifference],
) -> tuple[list[LayerFault], list[BranchDecision]]:
    """Return the first fault with those of other layers, in the order of their evidence, and what was decided of these.

    Behind retrieval, generation is checked on the pairs whose retrieval did not get worse; behind the source data, on
    those on which the texts that the baseline's answer draws on are the same. Behind either other layer, the source
    data are checked by what their texts lost. A fault stands before one of retrieval only where the chunks cannot be
    its cause: it shows, and more clearly than that of retrieval, on the pairs with the same chunks, or in the texts.
    """
    everything = np.ones(len(paired.pairing), dtype=bool) if pair_mask is None else pair_mask
    behind: list[LayerFault] = []
    decisions: list[BranchDecision] = []
    scopes = {"retrieval": "with unchanged retrieval", "source data": "with the same texts behind the answer"}
    if first.layer in scopes:
        calm = _find_unaffected(paired, comparison, everything)
        behind, decision = _recheck_generation(paired, comparison, calm, scopes[first.layer], settings, differences)
        behind = [replace(fault, certain=first.layer != "retrieval") for fault in behind]
        decisions.append(decision)
    edited = any(difference.name == "texts" for difference in differences)
    if edited and all(fault.layer != "source data" for fault in (first, *behind)):
        lost = find_lost_facts(paired, everything, differences, settings)
        if lost is not None:
            behind.append(lost)
            decisions.append(_decide("source data", "fault", describe_change(lost.evidence[0])))
    behind.sort(key=lambda fault: _measure_strength(fault.evidence), reverse=True)
    strength = _measure_strength(first.evidence)
    ahead = [fault for fault in behind if _exceeds(paired, fault, first, strength, everything, settings)]
    return [*ahead, first, *(fault for fault in behind if fault not in ahead)], decisions


def _exceeds(
    paired: PairedRuns,
    fault: LayerFault,
    first: LayerFault,
    strength: float,
    everything: PairMask,
    settings: BisectionSettings,
) -> bool:
    """Return whether a fault has stronger evidence than the first one, which is not its cause."""
    evidence = fault.evidence
    if first.layer == "retrieval" and all(metric_name(change.metric) != "context_recall" for change in evidence):
        shown = find_drops(paired, [evidence[0].metric], everything & paired.pairing.same_chunks, settings)
        evidence = tuple(change for change in shown if change is not None)
    return bool(evidence) and _measure_strength(evidence) > strength


def _measure_strength(evidence: Sequence[MetricChange]) -> float:
    """Measure the strongest evidence of a fault: the size of a change in widths of its interval."""
    differences = [change.difference for change in evidence if change.difference is not None]
    return max(abs(change.mean) / max(change.high - change.low, 1e-9) for change in differences)


def _decide(layer: str, outcome: Outcome, why: str) -> BranchDecision:
    return BranchDecision(branch=SECOND_LOOK.format(layer=layer), layer=layer, outcome=outcome, why=why)


def _recheck_generation(
    paired: PairedRuns,
    comparison: Comparison,
    part: PairMask,
    scope: str,
    settings: BisectionSettings,
    differences: Sequence[RunDifference],
) -> tuple[list[LayerFault], BranchDecision]:
    """Find the fault of generation, or of the source data, on pairs on which the first fault is not the cause.

    Source data is named only where texts changed under the same ids: other chunks may contradict the key by themselves.
    """
    chosen = [
        c.metric for c in comparison.changes if c.layer != "retrieval" or metric_name(c.metric) == "chunk_attribution"
    ]
    scope = f"on the {format_count(int(part.sum()), 'pair')} {scope}"
    if not bool(part.any()) or not chosen:
        return [], _decide("generation", "not measured", scope)
    calm = compare_pairs(paired, settings, metrics=chosen, pair_mask=part)
    walk, _ = walk_controlled(paired, calm, differences, part, retrieval_unaffected=True)
    edited = any(difference.name == "texts" for difference in differences)
    placed = [place_by_texts(paired, fault, part, settings) for fault in walk.faults]
    faults = [
        fault
        for fault in placed
        if (fault.layer == "generation" and _drops_without_retrieval(paired, fault.evidence[0], part))
        or (fault.layer == "source data" and edited)
    ]
    if faults:
        why = f"{scope}: {'; '.join(describe_change(fault.evidence[0]) for fault in faults)}"
        return faults, _decide("generation", "fault", why)
    outcome: Outcome = "ruled out" if walk.verdict == "no fault" else "cannot tell"
    return [], _decide("generation", outcome, f"no drop {scope}")


def _find_unaffected(paired: PairedRuns, comparison: Comparison, everything: PairMask) -> PairMask:
    """Return the pairs whose retrieval got no worse, lost nothing that answers draw on, and holds no new copies."""
    calm = everything.copy()
    for change in comparison.changes:
        if change.metric == EQUAL_DEPTH or metric_name(change.metric) in GOLD_METRICS:
            old, new = paired.values(change.metric, 0), paired.values(change.metric, 1)
            calm &= ~(new < old - change.margin)
    relevant = [_count_relevant_texts(paired, side)[paired.paired_rows(side)] for side in (0, 1)]
    calm &= relevant[1] >= relevant[0]
    calm &= ~(paired.values(COPIES_METRIC, 1) > paired.values(COPIES_METRIC, 0))
    calm &= paired.keeps_used_texts
    return calm


def _drops_without_retrieval(paired: PairedRuns, change: MetricChange, calm: NDArray[np.bool_]) -> bool:
    """Return whether a drop is at least half as large where the chunks are the same; true where few pairs tell."""
    assert change.difference is not None
    moved = paired.values(change.metric, 1) - paired.values(change.metric, 0)
    same = moved[calm & paired.pairing.same_chunks & np.isfinite(moved)]
    if len(same) < max(LEAST_UNMOVED, UNMOVED_SHARE * change.n):
        return True
    return bool(abs(same.mean()) >= 0.5 * abs(change.difference.mean) and same.mean() * change.difference.mean > 0)


def is_lost_with_chunks(
    paired: PairedRuns, change: MetricChange, pair_mask: PairMask | None, settings: BisectionSettings
) -> bool:
    """Return whether a drop is shown where other chunks were retrieved, and not where they are the same.

    False where too few pairs have the same chunks to tell, or none has other ones.
    """
    everything = np.ones(len(paired.pairing), dtype=bool) if pair_mask is None else pair_mask
    if _drops_without_retrieval(paired, change, everything):
        return False
    same = paired.pairing.same_chunks
    there, elsewhere = (find_drops(paired, [change.metric], everything & part, settings)[0] for part in (~same, same))
    return there is not None and elsewhere is None


def _count_relevant_texts(paired: PairedRuns, side: int) -> NDArray[np.int64]:
    """Count the relevant chunks of each trace; copies of a text count once."""
    contents = paired.contents[side]
    counts = []
    for places, levels in zip(contents.trace_keys, paired.chunk_levels(side), strict=True):
        texts = [contents.keys[place].text or contents.keys[place].id for place in places]
        relevant = {text for text, level in zip(texts, levels, strict=False) if level in RELEVANT_LEVELS}
        counts.append(len(relevant))
    return np.array(counts, dtype=np.int64)
