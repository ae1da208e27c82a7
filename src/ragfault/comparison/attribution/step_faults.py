"""The kind of step that broke between two runs whose traces record steps.

Faults of the operation of steps (failures, wrong or repeated calls, answers without reading), the kind of the first
faulty step and the number of steps are paired metrics, tested and corrected with those of the layers. A fault of a
layer is traced to the kind of step at which the traces of a pair first differ, where its drop is confined to them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pipeline_checks import decide_count, is_shown_rise
from ragfault.comparison.records import BranchDecision, Comparison, FaultLayer, LayerFault, MetricChange
from ragfault.diagnosis.steps.differences import SAME_CHUNKS, find_first_difference, list_kinds_in_order
from ragfault.diagnosis.steps.localization import localize_faulty_steps
from ragfault.diagnosis.steps.operations import drop_copies, list_operation_faults
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Step, StepKind, Trace
from ragfault.stats.differences import paired_difference
from ragfault.text.number_format import format_p_value, format_percent, format_signed

PREFIX = "steps: "
"""Begins the name of every metric of steps."""
COUNT_METRIC = f"{PREFIX}number"
FIRST, RETRIED = "first faulty step", "retried"
LEAST_MOVED = 6
"""Pairs that must differ: with fewer no test could show a change, whatever their signs."""
MAX_LOCALIZED = 500
"""Pairs in which the first faulty step is located, evenly spaced."""
# of the traces that take a kind of step, or record a part of one
USUAL_SHARE = 0.9
LEAST_PAIRS, CONFINED_SHARE = 8, 0.35
"""Pairs that must first differ at a kind of step to name it; share of their mean drop that later ones may have."""

FACTS: dict[str, str] = {
    "error": "{kind} steps fail on",
    "wrong_call": "calls of {kind} steps could not be executed on",
    "repeated_call": "{kind} steps repeat a call that was answered before on",
    "nothing_new": "{kind} steps return what they returned to another query on",
    "unfounded_answer": "{kind} steps answer before anything was read on",
}
REMEDIES: dict[str, tuple[str, ...]] = {
    "error": ("read the errors of the example traces", "set time limits and retries", "tell the model that it failed"),
    "wrong_call": ("check the schema and the description of the tool", "compare the prompt that plans the calls"),
    "repeated_call": ("show the model what it asked before", "stop after a call that returns nothing new"),
    "nothing_new": ("check the cache and the session of the retriever", "search for the queries of the example traces"),
    "unfounded_answer": ("require a search before an answer", "compare the prompt that plans the steps"),
}  # fmt: skip
CAUSES = ("error", "wrong_call", "unfounded_answer")
"""Faults that stand before those of layers; the others may follow from what was retrieved."""
LAYERS: dict[StepKind | None, FaultLayer] = {
    "rewrite": "retrieval", "memory": "retrieval", "retrieve": "retrieval", "rerank": "retrieval",
    "read": "generation", "generate": "generation", "cite": "generation",
}  # fmt: skip

Mask = NDArray[np.bool_]
Values = NDArray[np.float64]


def is_step_metric(name: str) -> bool:
    """Tell whether a metric is one of steps."""
    return name.startswith(PREFIX)


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
                    put(f"{PREFIX}{fault.kind or 'other'} {fault.fault}", side, place, 1.0, places)
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
                put(f"{PREFIX}{best.kind or 'other'} {FIRST}", side, place, 1.0, located)
    return values


def _did_the_same(step: Step, other: Trace) -> bool:
    """Tell whether a step of another trace did the same with the same."""
    done = (step.kind, step.name, step.input, step.output, step.chunks, step.error)
    return any(done == (s.kind, s.name, s.input, s.output, s.chunks, s.error) for s in other.steps or ())


def find_step_faults(comparison: Comparison) -> list[LayerFault]:
    """Return a fault for each fault of the operation of a kind of step that is shown to have risen."""
    faults = []
    for change in comparison.changes:
        kind, fault = _split_name(change.metric)
        if fault not in FACTS or not is_shown_rise(change, comparison.alpha):
            continue
        fact = FACTS[fault].format(kind=kind)
        faults.append(
            LayerFault(
                layer=LAYERS.get(kind, "pipeline"),
                branch=f"0 {kind} step",
                title=fact.removesuffix(" on"),
                evidence=(change,),
                suspects=(),
                remedies=REMEDIES[fault],
                step=None if kind == "other" else kind,
                step_evidence=f"{fact[0].upper()}{fact[1:]} {_describe_shares(change)}",
            )
        )
    return sorted(faults, key=lambda fault: (not is_cause(fault), _rank(fault.evidence[0])))


def is_cause(fault: LayerFault) -> bool:
    """Tell whether a fault of steps stands before those of layers, which may follow from it."""
    return _split_name(fault.evidence[0].metric)[1] in CAUSES


def _rank(change: MetricChange) -> float:
    return -(change.difference.mean if change.difference is not None else 0.0)


def _split_name(metric: str) -> tuple[Any, str]:
    """Split the name of a metric of steps into the kind of step and what is counted."""
    if not is_step_metric(metric):
        return "", ""
    kind, _, fault = metric.removeprefix(PREFIX).partition(" ")
    return kind, fault


def _describe_shares(change: MetricChange) -> str:
    p = format_p_value(change.adjusted)
    after, before = format_percent(change.candidate or 0.0), format_percent(change.baseline or 0.0)
    return f"{after} of traces ({before} before; p {p if p.startswith('<') else f'= {p}'})"


def describe_step_changes(comparison: Comparison, *, is_named: bool) -> tuple[str, ...]:
    """Describe the shown rises that are no fault by themselves: of the number of steps, and of first faulty steps.

    The latter are left out where the faults name a kind of step on stronger evidence.
    """
    texts = []
    for change in comparison.changes:
        kind, counted = _split_name(change.metric)
        if not kind or counted in FACTS or not is_shown_rise(change, comparison.alpha):
            continue
        if change.metric == COUNT_METRIC:
            texts.append(f"traces take {change.candidate:.1f} steps, {change.baseline:.1f} before")
        elif counted == RETRIED:
            texts.append(f"{kind} steps fail and succeed when they are made again on {_describe_shares(change)}")
        elif not is_named:
            texts.append(f"the first faulty step is a {kind} step on {_describe_shares(change)}")
    return tuple(texts)


def has_unexplained_rise(comparison: Comparison) -> bool:
    """Tell whether a kind of step is shown to be the first faulty one more often."""
    return any(FIRST in change.metric and is_shown_rise(change, comparison.alpha) for change in comparison.changes)


def decide_step_checks(comparison: Comparison) -> Iterator[BranchDecision]:
    """Yield the outcome of each fault of the operation of steps that enough pairs differ on."""
    for change in comparison.changes:
        kind, fault = _split_name(change.metric)
        if fault in FACTS and change.n:
            why = f"{FACTS[fault].format(kind=kind)} {_describe_shares(change)}"
            shown = is_shown_rise(change, comparison.alpha)
            yield decide_count(change, f"0 {kind} step", LAYERS.get(kind, "pipeline"), why, shown=shown)


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
