"""Checks that the pipeline answered: errors, empty retrievals, blank answers and lost citations, before the tree.

Each is a paired binary metric, tested with the others by McNemar's exact test (by sign flips over clusters). A trace
counts once: one that failed is neither an empty retrieval nor a blank answer, and one for which nothing was retrieved
on one side only is neither a blank nor an uncited answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.comparison.comparability import MISSING_SHARE
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import NOT_RECORDED, Mask
from ragfault.comparison.records import BranchDecision, BranchOutcome, Comparison, FaultLayer, LayerFault, MetricChange
from ragfault.io.runs.run import MetricInfo
from ragfault.text.number_format import format_p_value, format_percent

LEAST_CITED = 20
"""Pairs that still retrieve what the former answer drew on, from which lost citations are counted on these only."""


class PipelineCheck(Struct, frozen=True, kw_only=True):
    """A check of one stage of the pipeline."""

    metric: str
    # what it counts
    name: str
    layer: FaultLayer
    title: str
    # what is so, with a place for the share of traces
    fact: str
    # whether other metrics say nothing of a trace that shows it
    blocks: bool
    remedies: tuple[str, ...]


CHECKS = (
    PipelineCheck(
        metric="error",
        name="errors",
        layer="pipeline",
        title="the pipeline fails",
        fact="The pipeline fails on {share} of traces (errors, {before} before; p {p})",
        blocks=False,
        remedies=("read the errors of the example traces", "retry or raise the time limit", "revert the last change"),
    ),
    PipelineCheck(
        metric="empty_retrieval",
        name="empty retrievals",
        layer="retrieval",
        title="nothing is retrieved",
        fact="Retrieval returns nothing on {share} of traces ({before} before; p {p})",
        blocks=True,
        remedies=(
            "search for the queries of the example traces without filters",
            "check that the filter does not exclude every chunk and that the index holds every document",
            "lower the minimum score",
        ),
    ),
    PipelineCheck(
        metric="blank_answer",
        name="blank answers",
        layer="generation",
        title="the answers are blank",
        fact="Answers are blank on {share} of traces ({before} before; p {p})",
        blocks=True,
        remedies=(
            "inspect the raw output of the model on the example traces",
            "raise the token limit of the answer",
            "check the code that parses or filters the output",
        ),
    ),
    PipelineCheck(
        metric="uncited_answer",
        name="answers without citations",
        layer="generation",
        title="citations are gone",
        fact="Citations are gone: {share} of answers cite nothing ({before} before; p {p})",
        blocks=False,
        remedies=("restore the instruction and the schema for citations", "check the code that parses them"),
    ),
)
"""In the order of the pipeline."""

CHECK_METRICS = tuple(check.metric for check in CHECKS)

Values = NDArray[np.float64]


def add_pipeline_checks(paired: PairedRuns) -> tuple[str, ...]:
    """Add the checks as metrics of the pairs; return those that differ on any pair.

    A check without a pair that differs has p = 1 whatever the signs, so that it is left out of the correction.
    """
    values = _measure_checks(paired)
    for metric, (baseline, candidate) in values.items():
        if not paired.has_metric(metric):
            paired.add_metric(MetricInfo(metric, "operation", "lower", 0.0, 1.0), baseline, candidate)
    return tuple(metric for metric in values if bool(paired.find_moved(metric).any()))


def _measure_checks(paired: PairedRuns) -> dict[str, tuple[Values, Values]]:
    """Return the values of each check on the pairs of both sides."""
    sides = list(zip(paired.contents, (paired.paired_rows(0), paired.paired_rows(1)), strict=True))
    errors = [contents.errors[rows] for contents, rows in sides]
    counts = [contents.chunk_counts[rows] for contents, rows in sides]
    blanks = [contents.blank[rows] for contents, rows in sides]
    cited = [contents.citation_counts[rows] for contents, rows in sides]
    failed = errors[0] | errors[1]
    emptied = (counts[0] == 0) != (counts[1] == 0)
    silent = failed | emptied
    # the answer is the same, whatever was retrieved or recorded
    unread = emptied & paired.pairing.same_answers
    uncited = bool((cited[0] == 0).any() or (cited[1] == 0).any())
    none = np.zeros(len(failed), dtype=bool)
    # a refusal has nothing to cite, nor has an answer whose passage is no longer retrieved
    excused = paired.find_refusals(0) | paired.find_refusals(1) if uncited else none
    if uncited and (paired.keeps_used_texts & ~excused).sum() >= LEAST_CITED:
        excused = excused | ~paired.keeps_used_texts
    measured = {
        "error": [(error, none) for error in errors],
        "empty_retrieval": [(count == 0, failed | unread | (count == NOT_RECORDED)) for count in counts],
        "blank_answer": [(blank, silent) for blank in blanks],
        "uncited_answer": [
            (count == 0, silent | excused | blanks[0] | blanks[1] | (count == NOT_RECORDED)) for count in cited
        ],
    }
    return {metric: (_to_values(*pair[0]), _to_values(*pair[1])) for metric, pair in measured.items()}


def _to_values(shown: Mask, undefined: Mask) -> Values:
    return np.where(undefined, math.nan, shown.astype(np.float64))


def is_shown_rise(change: MetricChange, alpha: float) -> bool:
    """Return whether a check is shown to have risen."""
    return change.rises and change.adjusted is not None and change.adjusted <= alpha


def may_be_sampling(change: MetricChange, comparison: Comparison) -> bool:
    """Return whether a check may have risen only because a log keeps failed traces more often than others.

    So it may where many traces of the baseline are missing from the candidate, and where it would not be shown to be
    more frequent than before (two counts, 95 %) if none of these showed it.
    """
    missing, n = comparison.unpaired[0], change.n
    after, before = (change.candidate or 0.0) * n, (change.baseline or 0.0) * n
    scale = (missing + n) / max(n, 1)
    excess, variance = after - scale * before, after + scale**2 * before
    return missing > MISSING_SHARE * (missing + n) and excess <= 1.96 * math.sqrt(variance)


def _is_proven_rise(change: MetricChange, comparison: Comparison) -> bool:
    return is_shown_rise(change, comparison.alpha) and not may_be_sampling(change, comparison)


def find_pipeline_faults(paired: PairedRuns, comparison: Comparison) -> tuple[LayerFault, ...]:
    """Return a fault for each check that is shown to have risen."""
    changes = {change.metric: change for change in comparison.changes}
    faults = []
    for check in CHECKS:
        change = changes.get(check.metric)
        if change is not None and _is_proven_rise(change, comparison):
            stage = _describe_failed_stage(paired) if check.metric == "error" else ""
            faults.append(
                LayerFault(
                    layer=check.layer,
                    branch=f"0 {check.metric.replace('_', ' ')}",
                    title=f"{check.title}{stage}",
                    evidence=(change,),
                    suspects=(),
                    remedies=check.remedies,
                )
            )
    return tuple(faults)


def _describe_failed_stage(paired: PairedRuns) -> str:
    """Describe the stage at which the candidate failed, as far as its traces tell."""
    contents, rows = paired.contents[1], paired.paired_rows(1)
    named = [(name, count) for name, count in contents.failed_steps.most_common() if name]
    if named:
        return f" at the step {named[0][0]}"
    after = contents.chunk_counts[rows][contents.errors[rows]] > 0
    if after.all():
        return " after retrieval"
    return " before anything is retrieved" if not after.any() and _records_chunks(paired) else ""


def _records_chunks(paired: PairedRuns) -> bool:
    contents, rows = paired.contents[1], paired.paired_rows(1)
    return bool((contents.chunk_counts[rows][~contents.errors[rows]] > 0).any())


def find_silent_pairs(paired: PairedRuns, faults: Sequence[LayerFault]) -> Mask:
    """Return the pairs that a shown fault of the pipeline leaves without chunks or answer on either side."""
    shown = {fault.evidence[0].metric for fault in faults}
    silent = np.zeros(len(paired.pairing), dtype=bool)
    for check in CHECKS:
        if check.blocks and check.metric in shown:
            silent |= (paired.values(check.metric, 0) == 1) | (paired.values(check.metric, 1) == 1)
    return silent


def describe_fault_fact(fault: LayerFault) -> str:
    """Describe a fault of the pipeline or of a step: the share of traces that show it, before and after."""
    change = fault.evidence[0]
    check = next((check for check in CHECKS if check.metric == change.metric), None)
    if check is None:
        return fault.step_evidence or fault.title
    stage = fault.title.removeprefix(check.title)
    p = format_p_value(change.adjusted)
    return (
        check.fact.format(
            share=format_percent(change.candidate or 0.0),
            before=format_percent(change.baseline or 0.0),
            p=p if p.startswith("<") else f"= {p}",
        )
        + stage
    )


def decide_checks(comparison: Comparison) -> list[BranchDecision]:
    """Return the outcome of each check that differs on any pair, as branches before the tree."""
    decisions = []
    for change in comparison.changes:
        check = next((check for check in CHECKS if check.metric == change.metric), None)
        if check is not None and change.n:
            shown = _is_proven_rise(change, comparison)
            note = " (not significant)" if change.rises and not shown else ""
            branch = f"0 {check.metric.replace('_', ' ')}"
            decisions.append(decide_count(change, branch, check.layer, f"{count_traces(change)}{note}", shown=shown))
    return decisions


def decide_count(change: MetricChange, branch: str, layer: FaultLayer, why: str, *, shown: bool) -> BranchDecision:
    """Decide on a check that counts traces: a fault if the count surely rose, ruled out if it did not rise."""
    outcome: BranchOutcome = "fault" if shown else "cannot tell" if change.rises else "ruled out"
    return BranchDecision(branch=branch, layer=layer, outcome=outcome, why=why)


def describe_unshown_rises(comparison: Comparison, metrics: Sequence[str]) -> tuple[str, ...]:
    """Describe the checks among some metrics that rose, but not significantly, as counts."""
    return tuple(
        f"{count_traces(change)} (not significant)"
        for change in comparison.changes
        if change.metric in metrics and change.rises and not is_shown_rise(change, comparison.alpha)
    )


def describe_sampled_rises(comparison: Comparison) -> tuple[str, ...]:
    """Describe the checks that rose significantly, which a log that lost traces of the baseline may explain."""
    lost = f"{comparison.unpaired[0]:,} traces of the baseline are missing from the candidate"
    return tuple(
        f"{count_traces(change)}. {lost}, whose log may keep failed ones more often: if none of these failed, the rise "
        "is not significant"
        for change in comparison.changes
        if change.metric in CHECK_METRICS
        and is_shown_rise(change, comparison.alpha)
        and may_be_sampling(change, comparison)
    )


def count_traces(change: MetricChange) -> str:
    """Return how many traces a check is true of: `errors: 3 of 104 traces, 1 before`."""
    after, before = (round((mean or 0.0) * change.n) for mean in (change.candidate, change.baseline))
    name = next(check.name for check in CHECKS if check.metric == change.metric)
    return f"{name}: {after:,} of {change.n:,} traces, {before:,} before"
