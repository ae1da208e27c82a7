"""The kind of step that broke between two runs whose traces record steps.

Faults of the operation of steps (failures, wrong or repeated calls, answers without reading), the kind of the first
faulty step and the number of steps are paired metrics, tested and corrected with those of the layers. A fault of a
layer is traced to the kind of step at which the traces of a pair first differ, where its drop is confined to them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.checks.decisions import describe_shares, is_shown_rise
from ragfault.comparison.checks.table import STEP_FACTS, STEP_PREFIX, get_check, is_step_metric, split_step_metric
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import Comparison, LayerFault, MetricChange
from ragfault.diagnosis.steps.differences import SAME_CHUNKS, find_first_difference, list_kinds_in_order
from ragfault.diagnosis.steps.localization import localize_faulty_steps
from ragfault.diagnosis.steps.operations import drop_copies, list_operation_faults
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Step, StepKind, Trace
from ragfault.stats.differences import paired_difference
from ragfault.text.number_format import format_signed

COUNT_METRIC = f"{STEP_PREFIX}number"
FIRST, RETRIED = "first faulty step", "retried"
SHARES = "{share} of traces ({before} before; p {p})"
LEAST_MOVED = 6
"""Pairs that must differ: with fewer no test could show a change, whatever their signs."""
MAX_LOCALIZED = 500
"""Pairs in which the first faulty step is located, evenly spaced."""
# of the traces that take a kind of step, or record a part of one
USUAL_SHARE = 0.9
LEAST_PAIRS, CONFINED_SHARE = 8, 0.35
"""Pairs that must first differ at a kind of step to name it; share of their mean drop that later ones may have."""

Mask = NDArray[np.bool_]
Values = NDArray[np.float64]


def add_step_checks(paired: PairedRuns) -> tuple[str, ...]:
    """Add the metrics of steps on the pairs that record them on both sides; return those that differ on enough."""
    measured = [name for name in paired.list_added_metrics() if is_step_metric(name)]
    if not measured and bool(_find_recorded(paired).any()):
        for name, (old, new) in _measure_steps(paired).items():
            low, high = (0.0, None) if name == COUNT_METRIC else (0.0, 1.0)
            paired.add_metric(MetricInfo(name, "operation", "lower", low, high), old, new)
            measured.append(name)
    return tuple(name for name in measured if paired.find_moved(name).sum() >= LEAST_MOVED)


def _find_recorded(paired: PairedRuns) -> Mask:
    """Return the pairs that record steps on both sides and failed as a whole on neither."""
    sides = [(contents.has_steps & ~contents.errors) for contents in paired.contents]
    both: Mask = sides[0][paired.paired_rows(0)] & sides[1][paired.paired_rows(1)]
    return both


def _read_sides(paired: PairedRuns, places: Sequence[int]) -> list[list[Trace]]:
    """Read the traces of some pairs, of the baseline and of the candidate."""
    pairs = {place: traces for place, *traces in paired.iterate_pairs(np.array(places, dtype=np.int64))}
    return [
        [replace(trace, steps=_order_steps(trace.steps or ())) for trace in (pairs[place][side] for place in places)]
        for side in (0, 1)
    ]


def _order_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return steps by their starts where all are known, in whatever order they were logged, without copies."""
    known = drop_copies(steps)
    if any(step.start is None for step in known):
        return known
    return tuple(sorted(known, key=lambda step: step.start or 0.0))


def _record_alike(sides: Sequence[Sequence[Trace]]) -> bool:
    """Return whether both runs record the same parts of steps, and the kinds that nearly every trace of one takes."""
    for field in ("kind", "input", "output", "chunks"):
        shares: list[dict[object, float]] = []
        for traces in sides:
            parts = [
                {step.kind if field == "kind" else getattr(step, field) is not None for step in trace.steps or ()}
                for trace in traces
            ]
            counts = Counter(part for trace_parts in parts for part in trace_parts)
            shares.append({part: count / max(1, len(traces)) for part, count in counts.items() if part is not False})
        for old, new in (shares, shares[::-1]):
            if any(share >= USUAL_SHARE and not new.get(part) for part, share in old.items()):
                return False
    return True


def _measure_steps(paired: PairedRuns) -> dict[str, tuple[Values, Values]]:
    """Measure every pair; a kind of step that one run never takes is a change of the agent and is not tested.

    A step that did the same in both runs did not become faulty between them, and is not counted as the first faulty one
    on either side: what comes after it makes it more or less suspect. Where one run records other parts of steps, or
    lacks a kind that the other always takes, the first faulty one is not looked for.
    """
    places = np.flatnonzero(_find_recorded(paired)).tolist()
    sides = _read_sides(paired, places)
    taken = [{step.kind for trace in traces for step in trace.steps or ()} for traces in sides]
    values: dict[str, tuple[Values, Values]] = {}
    spaced = set(np.linspace(0, len(places) - 1, min(len(places), MAX_LOCALIZED)).astype(int).tolist())

    def put(name: str, side: int, place: int, value: float, scope: Sequence[int]) -> None:
        if name not in values:
            blank = np.full(len(paired.pairing), math.nan)
            blank[list(scope)] = 0.0
            values[name] = (blank.copy(), blank.copy())
        values[name][side][place] = value

    located, alike = [places[at] for at in sorted(spaced)], _record_alike(sides)
    for side, traces in enumerate(sides):
        for place, trace in zip(places, traces, strict=True):
            put(COUNT_METRIC, side, place, len(trace.steps or ()), places)
            for fault in list_operation_faults(trace):
                if fault.kind in taken[0] & taken[1]:
                    put(f"{STEP_PREFIX}{fault.kind or 'other'} {fault.fault}", side, place, 1.0, places)
        chosen = [traces[at] for at in sorted(spaced)] if alike else []
        others = [sides[1 - side][at] for at in sorted(spaced)]
        pairs = {trace.id: (place, trace, other) for place, trace, other in zip(located, chosen, others, strict=False)}
        for finding in localize_faulty_steps(chosen, compared=True).traces:
            place, trace, other = pairs[finding.trace]
            best = finding.best
            if finding.status != "fault" or best is None or best.fault == "unexplained":
                continue
            retried = {fault.step for fault in list_operation_faults(trace) if fault.fault == RETRIED}
            step = next(step for step in trace.steps or () if step.id == best.step)
            if step.id not in retried and not _did_the_same(step, other):
                put(f"{STEP_PREFIX}{best.kind or 'other'} {FIRST}", side, place, 1.0, located)
    return values


def _did_the_same(step: Step, other: Trace) -> bool:
    """Tell whether a step of another trace did the same with the same."""
    done = (step.kind, step.name, step.input, step.output, step.chunks, step.error)
    return any(done == (s.kind, s.name, s.input, s.output, s.chunks, s.error) for s in other.steps or ())


def order_by_cause(faults: Sequence[LayerFault], on_steps: Sequence[LayerFault]) -> list[LayerFault]:
    """Order the faults of layers and steps: failures of steps first, what may follow from a layer's fault last."""
    ranked = sorted(on_steps, key=lambda fault: -_get_rise(fault.evidence[0]))
    causes = [fault for fault in ranked if (check := get_check(fault.evidence[0].metric)) and check.is_cause]
    return [*causes, *faults, *(fault for fault in ranked if fault not in causes)]


def _get_rise(change: MetricChange) -> float:
    return 0.0 if change.difference is None else change.difference.mean


def describe_step_changes(comparison: Comparison, *, is_named: bool) -> tuple[str, ...]:
    """Describe the shown rises that are no fault by themselves: of the number of steps, and of first faulty steps.

    The latter are left out where the faults name a kind of step on stronger evidence.
    """
    texts = []
    for change in comparison.changes:
        kind, counted = split_step_metric(change.metric)
        if not kind or counted in STEP_FACTS or not is_shown_rise(change, comparison.alpha):
            continue
        if change.metric == COUNT_METRIC:
            texts.append(f"traces take {change.candidate:.1f} steps, {change.baseline:.1f} before")
        elif counted == RETRIED:
            texts.append(f"{kind} steps fail and succeed when they are made again on {describe_shares(SHARES, change)}")
        elif not is_named:
            texts.append(f"the first faulty step is a {kind} step on {describe_shares(SHARES, change)}")
    return tuple(texts)


def has_unexplained_rise(comparison: Comparison) -> bool:
    """Tell whether a kind of step is shown to be the first faulty one more often."""
    return any(FIRST in change.metric and is_shown_rise(change, comparison.alpha) for change in comparison.changes)


def trace_to_steps(paired: PairedRuns, faults: Sequence[LayerFault], pair_mask: Mask | None) -> list[LayerFault]:
    """Return the faults of layers with the kind of step at which each begins, where the pairs tell.

    A pair on which everything before a step is the same in both runs can only have dropped through that step or a later
    one. So the kind is named whose pairs dropped while those that first differ later, or nowhere, hardly did. Where the
    pairs that differ earlier dropped more, a step before it may have broken as well, and none is named.
    """
    recorded = _find_recorded(paired) & (True if pair_mask is None else pair_mask)
    places = np.flatnonzero(recorded).tolist()
    if not faults or len(places) < 2 * LEAST_PAIRS:
        return list(faults)
    old, new = _read_sides(paired, places)
    order = list_kinds_in_order([*old, *new])
    traced = []
    for fault in faults:
        # one chunk less can be all that retrieval lost
        same = 1.0 if fault.layer == "retrieval" else SAME_CHUNKS
        firsts = [find_first_difference(left, right, same) for left, right in zip(old, new, strict=True)]
        ranks = np.full(len(paired.pairing), -1)
        ranks[places] = [len(order) if first is None else order.index(first.kind) for first in firsts]
        traced.append(_trace_fault(paired, fault, ranks, order))
    return traced


def _trace_fault(
    paired: PairedRuns, fault: LayerFault, ranks: NDArray[np.int64], order: Sequence[StepKind | None]
) -> LayerFault:
    change = fault.evidence[0]
    worse = paired.values(change.metric, 0) - paired.values(change.metric, 1)
    drops = worse if change.better == "higher" else -worse
    known = np.isfinite(drops) & (ranks >= 0)
    clusters = paired.pairing.clusters
    for rank in reversed(range(len(order))):
        here, later = known & (ranks == rank), known & (ranks > rank)
        if here.sum() < LEAST_PAIRS or not _is_shown_drop(drops, here, clusters):
            continue
        kind, mean = order[rank], drops[here].mean()
        earlier = known & (ranks < rank)
        calm = later.sum() >= LEAST_PAIRS and drops[later].mean() <= CONFINED_SHARE * mean
        if kind is None or not calm or (earlier.any() and drops[earlier].mean() > mean):
            return fault
        fell, every = int((here & (drops > 0)).sum()), int((known & (drops > 0)).sum())
        moved = float(drops[later].mean()) * (-1 if change.better == "higher" else 1)
        text = (
            f"on {fell:,} of the {every:,} pairs on which {change.metric} got worse, the first step that differs is a "
            f"{kind} step; on the {int(later.sum()):,} on which all is the same up to there, it moved by "
            f"{format_signed(moved)}"
        )
        return replace(fault, step=kind, step_evidence=text)
    return fault


def _is_shown_drop(drops: Values, part: Mask, clusters: NDArray[np.int64] | None) -> bool:
    if bool((drops[part] > 0).all()):
        # the spread of equal values is not known, but their sign is the same on every pair
        return True
    rows = None if clusters is None else clusters[part]
    return paired_difference(np.zeros(int(part.sum())), drops[part], rows).low > 0
