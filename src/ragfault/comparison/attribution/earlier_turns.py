"""Drops of retrieval on turns that were asked after other answers than in the baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.decision_tree import describe_change
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask, normalize_space
from ragfault.comparison.records import LayerFault
from ragfault.diagnosis.steps.differences import have_same_words
from ragfault.model.records import Trace

LEAST_SAME, SAME_SHARE = 30, 0.5
"""Pairs with the same earlier turns whose mean drop, by this share of that on the others, confirms one."""

SPEAKERS = ("user", "assistant")


def withdraw_by_turns(scope: PairScope, faults: Sequence[LayerFault]) -> tuple[list[LayerFault], str | None]:
    """Return the faults without one of retrieval that only other earlier turns show, and why in words.

    A search for a follow-up depends on the answers before it. Where these differ, the layer that wrote them may be at
    fault: what counts are the pairs whose earlier turns are the same in both runs.
    """
    paired, fault = scope.paired, next((fault for fault in faults if fault.layer == "retrieval"), None)
    if fault is None or not (other := find_other_turns(paired) & scope.pairs).any():
        return list(faults), None
    same, metrics = scope.pairs & ~other, [change.metric for change in fault.evidence]
    if any(scope.find_drops(metrics, same)):
        return list(faults), None
    moved = paired.values(metrics[0], 1) - paired.values(metrics[0], 0)
    means = [float(moved[part & np.isfinite(moved)].mean()) if part.any() else 0.0 for part in (same, other)]
    if same.sum() >= LEAST_SAME and means[0] / (means[1] or 1.0) >= SAME_SHARE:
        return list(faults), None
    text = (
        f"{describe_change(fault.evidence[0])}, but no drop is shown on the {int(same.sum()):,} pairs whose earlier "
        f"turns are the same in both runs; on the {int(other.sum()):,} others the search may follow from the answers "
        "before. Look at the first turn that differs"
    )
    return [other_fault for other_fault in faults if other_fault is not fault], text


def find_other_turns(paired: PairedRuns) -> Mask:
    """Return the pairs whose earlier turns are not the same in both runs, names and numbers in any wording.

    They are those of the recorded history, else the answers of the conversation before. A history that one run lacks
    may be another.
    """
    codes = [side.histories[paired.paired_rows(at)] for at, side in enumerate(paired.contents)]
    other: Mask = codes[0] != codes[1]
    for place, old, new in paired.iterate_pairs(np.flatnonzero(other & (codes[0] != 0) & (codes[1] != 0))):
        texts = [_list_messages(trace) for trace in (old, new)]
        other[place] = len(texts[0]) != len(texts[1]) or not all(map(have_same_words, *texts))
    table = paired.runs[0].to_arrow("traces", ["conversation", "turn"]).take(paired.paired_rows(0))
    talks: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, (talk, turn) in enumerate(zip(*(table[name].to_pylist() for name in table.column_names), strict=True)):
        if talk is not None:
            talks[talk].append((turn or 0, place))
    changed = [place for turns in talks.values() for _, place in turns if not paired.pairing.same_answers[place]]
    differ = {
        place
        for place, old, new in paired.iterate_pairs(np.array(changed, dtype=np.int64))
        if not have_same_words(old.answer or "", new.answer or "")
    }
    for turns in talks.values():
        places = [place for _, place in sorted(turns)]
        first = next((at for at, place in enumerate(places) if place in differ), len(places))
        other[[place for place in places[first + 1 :] if not (codes[0][place] or codes[1][place])]] = True
    return other


def _list_messages(trace: Trace) -> list[str]:
    """List the texts of the earlier turns of user and assistant."""
    return [normalize_space(turn.text) for turn in trace.history or () if turn.role in SPEAKERS]
