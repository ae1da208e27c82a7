"""Second faults: other layers, checked on the pairs on which the first fault cannot be the cause."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragfault.comparison.attribution.edited_sources import find_lost_facts, place_by_texts
from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.checks.table import COPIES_METRIC
from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.controls import walk_controlled
from ragfault.comparison.decision_tree import EQUAL_DEPTH, GOLD_METRICS, describe_change
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import BranchDecision, Comparison, LayerFault
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.model.rules import RELEVANT_LEVELS
from ragfault.text.number_format import format_count

# branch name of the check of a layer behind another fault
SECOND_LOOK = "{layer}, rechecked"
Outcome = Literal["fault", "ruled out", "cannot tell", "not measured"]


def find_second_faults(
    scope: PairScope, comparison: Comparison, first: LayerFault
) -> tuple[list[LayerFault], list[BranchDecision]]:
    """Return the first fault with those of other layers, and what was decided of these.

    Behind retrieval, generation is checked on the pairs whose retrieval did not get worse; behind the source data, on
    those on which the texts that the baseline's answer draws on are the same. Behind either other layer, the source
    data are checked by what their texts lost.
    """
    behind: list[LayerFault] = []
    decisions: list[BranchDecision] = []
    scopes = {"retrieval": "with unchanged retrieval", "source data": "with the same texts behind the answer"}
    if first.layer in scopes:
        calm = scope._replace(pairs=_find_unaffected(scope, comparison))
        behind, decision = _recheck_generation(calm, comparison, scopes[first.layer])
        decisions.append(decision)
    if scope.has_edited_texts and all(fault.layer != "source data" for fault in (first, *behind)):
        lost = find_lost_facts(scope)
        if lost is not None:
            behind.append(lost)
            decisions.append(_decide("source data", "fault", describe_change(lost.evidence[0])))
    return [first, *behind], decisions


def _decide(layer: str, outcome: Outcome, why: str) -> BranchDecision:
    return BranchDecision(branch=SECOND_LOOK.format(layer=layer), layer=layer, outcome=outcome, why=why)


def _recheck_generation(calm: PairScope, comparison: Comparison, why: str) -> tuple[list[LayerFault], BranchDecision]:
    """Find the fault of generation, or of the source data, on pairs on which the first fault is not the cause.

    Source data is named only where texts changed under the same ids: other chunks may contradict the key by themselves.
    """
    chosen = [
        c.metric for c in comparison.changes if c.layer != "retrieval" or metric_name(c.metric) == "chunk_attribution"
    ]
    where = f"on the {format_count(int(calm.pairs.sum()), 'pair')} {why}"
    if not bool(calm.pairs.any()) or not chosen:
        return [], _decide("generation", "not measured", where)
    part = compare_pairs(calm.paired, calm.settings, metrics=chosen, pair_mask=calm.pairs)
    walk, _ = walk_controlled(calm.paired, part, calm.differences, calm.pairs, retrieval_unaffected=True)
    placed = [place_by_texts(calm, fault) for fault in walk.faults]
    faults = [
        fault
        for fault in placed
        if fault.layer == "generation" or (fault.layer == "source data" and calm.has_edited_texts)
    ]
    if faults:
        reason = f"{where}: {'; '.join(describe_change(fault.evidence[0]) for fault in faults)}"
        return faults, _decide("generation", "fault", reason)
    outcome: Outcome = "ruled out" if walk.verdict == "no fault" else "cannot tell"
    return [], _decide("generation", outcome, f"no drop {where}")


def _find_unaffected(scope: PairScope, comparison: Comparison) -> Mask:
    """Return the pairs whose retrieval got no worse, lost nothing that answers draw on, and holds no new copies."""
    paired, calm = scope.paired, scope.pairs.copy()
    for change in comparison.changes:
        if change.metric == EQUAL_DEPTH or metric_name(change.metric) in GOLD_METRICS:
            old, new = paired.values(change.metric, 0), paired.values(change.metric, 1)
            calm &= ~(new < old - change.margin)
    relevant = [_count_relevant_texts(paired, side)[paired.paired_rows(side)] for side in (0, 1)]
    calm &= relevant[1] >= relevant[0]
    calm &= ~(paired.values(COPIES_METRIC, 1) > paired.values(COPIES_METRIC, 0))
    calm &= paired.keeps_used_texts
    return calm


def _count_relevant_texts(paired: PairedRuns, side: int) -> NDArray[np.int64]:
    """Count the relevant chunks of each trace; copies of a text count once."""
    contents = paired.contents[side]
    counts = []
    for places, levels in zip(contents.trace_keys, paired.chunk_levels(side), strict=True):
        texts = [contents.keys[place].text or contents.keys[place].id for place in places]
        relevant = {text for text, level in zip(texts, levels, strict=False) if level in RELEVANT_LEVELS}
        counts.append(len(relevant))
    return np.array(counts, dtype=np.int64)
