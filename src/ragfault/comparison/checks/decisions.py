"""Decisions on checks: which counts surely rose, the faults that follow, and their sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ragfault.comparison.checks.table import CHECK_METRICS, DEFECT_METRICS, Check, get_check
from ragfault.comparison.comparability import MISSING_SHARE
from ragfault.comparison.decision_tree import BRANCHES
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import BranchDecision, BranchOutcome, Comparison, LayerFault, MetricChange
from ragfault.text.number_format import format_p_value, format_percent


def is_defect(metric: str) -> bool:
    """Return whether a metric is that of a defect of answers or lists."""
    return metric in DEFECT_METRICS


def is_shown_rise(change: MetricChange, alpha: float) -> bool:
    """Return whether the traces that show a check became significantly more."""
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
    is_sampled = change.metric in CHECK_METRICS and may_be_sampling(change, comparison)
    return is_shown_rise(change, comparison.alpha) and not is_sampled


def find_check_faults(paired: PairedRuns, comparison: Comparison, changes: Sequence[MetricChange]) -> list[LayerFault]:
    """Return a fault for each of some changes that is of a check and shown to have risen."""
    faults = []
    for change in changes:
        check = get_check(change.metric)
        if check is None or not _is_proven_rise(change, comparison):
            continue
        branch = next((branch for branch in BRANCHES if branch.name == check.branch), None)
        if branch is not None:
            faults.append(branch.build_fault([change], title=check.title))
            continue
        stage = _describe_failed_stage(paired) if check.metric == "error" else ""
        faults.append(
            LayerFault(
                layer=check.layer,
                branch=check.branch,
                title=f"{check.title}{stage}",
                evidence=(change,),
                suspects=(),
                remedies=check.remedies,
                step=check.step,
                step_evidence=describe_shares(check.fact, change) if check.metric not in CHECK_METRICS else None,
            )
        )
    return faults


def _describe_failed_stage(paired: PairedRuns) -> str:
    """Describe the stage at which the candidate failed, as far as its traces tell."""
    contents, rows = paired.contents[1], paired.paired_rows(1)
    named = [(name, count) for name, count in contents.failed_steps.most_common() if name]
    if named:
        return f" at the step {named[0][0]}"
    after = contents.chunk_counts[rows][contents.errors[rows]] > 0
    if after.all():
        return " after retrieval"
    records_chunks = bool((contents.chunk_counts[rows][~contents.errors[rows]] > 0).any())
    return " before anything is retrieved" if not after.any() and records_chunks else ""


def find_silent_pairs(paired: PairedRuns, faults: Sequence[LayerFault]) -> Mask:
    """Return the pairs that a shown fault of the pipeline leaves without chunks or answer on either side."""
    silent = np.zeros(len(paired.pairing), dtype=bool)
    for check in filter(None, (get_check(fault.evidence[0].metric) for fault in faults)):
        if check.blocks:
            silent |= (paired.values(check.metric, 0) == 1) | (paired.values(check.metric, 1) == 1)
    return silent


def describe_shares(fact: str, change: MetricChange) -> str:
    """Fill a fact with the share of traces that show it, the share before, and p."""
    p = format_p_value(change.adjusted)
    after, before = format_percent(change.candidate or 0.0), format_percent(change.baseline or 0.0)
    return fact.format(share=after, before=before, p=p if p.startswith("<") else f"= {p}")


def describe_fault_fact(fault: LayerFault) -> str:
    """Describe a fault of the pipeline or of a step: the share of traces that show it, before and after."""
    check = get_check(fault.evidence[0].metric)
    if check is None or check.metric not in CHECK_METRICS:
        return fault.step_evidence or fault.title
    return describe_shares(check.fact, fault.evidence[0]) + fault.title.removeprefix(check.title)


def decide_checks(comparison: Comparison) -> list[BranchDecision]:
    """Return the outcome of each check of the pipeline or of steps that was tested, as branches before the tree."""
    known = [(get_check(change.metric), change) for change in comparison.changes if change.n]
    return [
        _decide_check(check, change, comparison)
        for check, change in known
        if check is not None and check.branch.startswith("0")
    ]


def _decide_check(check: Check, change: MetricChange, comparison: Comparison) -> BranchDecision:
    """Decide on a check: a fault if the count surely rose, ruled out if it did not rise."""
    shown = _is_proven_rise(change, comparison)
    why = count_traces(change) if check.name else describe_shares(check.fact, change)
    note = " (not significant)" if check.name and change.rises and not shown else ""
    outcome: BranchOutcome = "fault" if shown else "cannot tell" if change.rises else "ruled out"
    return BranchDecision(branch=check.branch, layer=check.layer, outcome=outcome, why=f"{why}{note}")


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
    check = get_check(change.metric)
    return f"{check.name if check else change.metric}: {after:,} of {change.n:,} traces, {before:,} before"
