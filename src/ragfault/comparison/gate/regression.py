"""Regression check: whether a metric got worse than in the baseline by more than its margin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.comparison.attribution.edited_sources import describe_unverified_edits
from ragfault.comparison.checks.decisions import describe_fault_fact, describe_sampled_rises, find_check_faults
from ragfault.comparison.checks.table import CHECK_METRICS
from ragfault.comparison.checks.values import add_checks
from ragfault.comparison.comparability import describe_unpaired_traces, drop_spoiled_differences, hides_a_fault
from ragfault.comparison.compare import compare_pairs, least_clusters, split_changes
from ragfault.comparison.controls import WeighedDrops, compare_right_answers, suffers, weigh_drops
from ragfault.comparison.decision_tree import EQUAL_DEPTH, GOLD_METRICS, TREE_METRICS, describe_change, excludes_harm
from ragfault.comparison.equal_depth import add_equal_depth
from ragfault.comparison.gate.records import RegressionDecision, RegressionReport
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import MAX_NEEDED, Comparison, LayerFault, MetricChange
from ragfault.comparison.run_profile import GOLD_ID_METRICS, compare_profiles, stale_gold_share
from ragfault.comparison.settings import DEFAULT_GATE, BisectionSettings, GateSettings
from ragfault.diagnosis.records import GateOutcome
from ragfault.diagnosis.score_matrix import match_metrics, metric_name
from ragfault.model.errors import UsageError
from ragfault.stats.power import required_pairs
from ragfault.stats.significance import equivalence_test
from ragfault.text.number_format import (
    MIN_INDEPENDENT,
    format_count,
    format_interval,
    format_number,
    format_percent,
    has_too_few,
)


def check_regression(side: PairedRuns, settings: GateSettings = DEFAULT_GATE) -> RegressionReport:
    """Decide for every metric whether it got worse than in the baseline by more than its margin.

    A metric *fails* where the change is for the worse and significant (sign-flip test, corrected by Holm over the
    metrics decided together, at `alpha`), its 95 % interval leaves 0 out, and its mean exceeds the margin. It
    *passes* where a worsening of the margin is ruled out: the one-sided bound at 1 − `alpha` of the difference
    (Student's t, by cluster) lies within the margin, as for a non-inferiority test. All metrics must pass
    for the full to pass, which keeps the chance of passing a worse candidate at `alpha` without correction.
    Otherwise the data cannot tell, with about how many pairs would.

    A metric does not pass where scores were lost to failures, where less than `coverage` of the candidate's traces
    pair, where over a tenth of the baseline's are missing (they may be those that failed), or where less than
    `coverage` of the pairs scored in either run are scored in both. The data cannot tell for a metric whose gold ids
    no longer describe the candidate's corpus.

    Without named metrics right answers are decided as well. Completeness, answer relevance and factual accuracy, which
    move with the wording of answers that are as good, pass if a loss of right answers is ruled out; completeness and
    answer relevance fail only if answers became bad where they moved.

    A shown rise of errors, empty retrievals, blank or uncited answers, or of a defect of answers that `bisect` names
    (other units, cut or repeated answers, copies among the chunks), fails whichever metrics are named. Where a rise of
    errors or blank answers is neither shown nor ruled out the data cannot tell.

    `metrics` names them (with parameters, or all of one bare name); by default those of the decision tree that
    both runs have and that have a value anywhere. The margin is `max_drop` times the width of the metric's range,
    5 % of the baseline's mean where the range has no end, or what `margins` gives for a metric in its own units.

    Raises UnknownName for a metric that not both runs have; UsageError where none is left.
    """
    chosen = _select_metrics(side, settings.metrics)
    added = [name for name in add_checks(side) if name not in chosen]
    checks = [name for name in added if name in CHECK_METRICS]
    named = {name: value for key, value in (settings.margins or {}).items() for name in _match_metrics(side, key)}
    shared = replace(BisectionSettings.select(settings), margin=settings.max_drop, margins=named)
    full = compare_pairs(side, shared, metrics=[*added, *chosen])
    apart, comparison = split_changes(full, added.__contains__)
    broken = find_check_faults(side, full, apart)
    failed = {fault.evidence[0].metric for fault in broken}
    failures = tuple(map(_decide_failure, broken))
    tests = sum(change.adjusted is not None for change in full.changes)
    alone = describe_unpaired_traces(comparison, side.failed_alone)
    differences = drop_spoiled_differences(compare_profiles(*side.profiles), side.mismatch_list)
    obstacle = (
        _low_coverage_text(side, settings.coverage)
        or (alone if hides_a_fault(comparison, side.failed_alone) else None)
        or describe_unverified_edits(side, None, comparison.changes, differences)
    )
    options = _RegressionOptions(settings, shared, tests, _lost_gold_share(side, comparison), obstacle)
    rises = [_decide_metric(c, options) for c in full.changes if c.metric in checks and c.metric not in failed]
    decided = [_decide_metric(change, options) for change in comparison.changes]
    every = np.ones(len(side.pairing), dtype=bool)
    weighed = weigh_drops(side, [row.change for row in decided if row.result == "fail"], every)
    decided = [_leave_open(row, weighed.doubts) for row in decided]
    if settings.metrics is None:
        decided = _bound_harm(side, decided, weighed, options)
    return RegressionReport(
        baseline=comparison.baseline,
        pairs=comparison.pairs,
        paired_by=comparison.paired_by,
        unpaired=comparison.unpaired,
        alpha=settings.alpha,
        power=settings.power,
        decisions=(
            *failures,
            *(replace(decision, result="cannot tell") for decision in rises if decision.result != "pass"),
            *decided,
        ),
        warnings=(*comparison.warnings, *describe_sampled_rises(full), *([alone] if alone else [])),
        mismatches=comparison.mismatches,
    )


def _leave_open(decision: RegressionDecision, doubts: Mapping[str, str]) -> RegressionDecision:
    """Return the decision on a metric; undecided if there is a doubt that its fall is a fault."""
    doubt = doubts.get(decision.change.metric)
    return decision if doubt is None else replace(decision, result="cannot tell", reason=doubt)


def _bound_harm(
    paired: PairedRuns, decisions: Sequence[RegressionDecision], weighed: WeighedDrops, options: _RegressionOptions
) -> list[RegressionDecision]:
    """Add the decision on right answers; worded metrics pass where it rules harm out."""
    decisions = [_leave_open(decision, weighed.unknown | weighed.harmless) for decision in decisions]
    right = next((change for change in compare_right_answers(paired, options.terms) if change.n), None)
    if right is None:
        return decisions
    harm = _decide_metric(right, options)
    if harm.result == "fail" and not suffers(paired, np.ones(len(paired.pairing), dtype=bool)):
        # A judge that is less sure of answers which it still calls right shows no harm.
        harm = replace(harm, result="cannot tell", reason=f"{harm.reason}; answers are not shown to suffer")
    return [*(_pass_harmless(decision, right, harm, weighed) for decision in decisions), harm]


def _pass_harmless(
    decision: RegressionDecision, right: MetricChange, harm: RegressionDecision, weighed: WeighedDrops
) -> RegressionDecision:
    """Return the decision on a metric; an open one passes if right answers do, and they bound its harm."""
    # A metric that no pair has on both sides was not compared, and stays open.
    is_open = decision.result == "cannot tell" and decision.change.difference is not None
    is_known = decision.change.metric not in weighed.unknown
    if not is_open or not is_known or harm.result != "pass" or not excludes_harm(decision.change, right):
        return decision
    text = weighed.harmless.get(decision.change.metric, _change_text(decision.change))
    return replace(decision, result="pass", reason=f"{text}; {harm.reason}", needed=None)


class _RegressionOptions(Struct, frozen=True):
    """Options of a regression check."""

    gate: GateSettings
    terms: BisectionSettings
    # number of metrics corrected together
    tests: int
    # share of missing gold ids, where the gold no longer describes the corpus
    lost_gold: float | None
    # message where too little of the run is paired
    low_coverage: str | None


def _select_metrics(paired: PairedRuns, metrics: Sequence[str] | None) -> list[str]:
    """Select the metrics to decide, by their full text."""
    if metrics:
        return list(dict.fromkeys(name for text in metrics for name in _match_metrics(paired, text)))
    scored = [name for name in paired.shared_names() if paired.is_scored(name)]
    names = [name for name in scored if metric_name(name) in TREE_METRICS]
    if not names:
        raise UsageError(
            f"no metric of the decision tree has a value in {paired.runs[0].path} or {paired.runs[1].path}. "
            "Name the metrics to compare with the baseline with -m."
        )
    add_equal_depth(paired)
    # What people marked as relevant outranks what a judge finds so.
    is_judged = paired.has_metric(EQUAL_DEPTH) and not any(metric_name(name) in GOLD_METRICS for name in names)
    return [*names, EQUAL_DEPTH] if is_judged else names


def _match_metrics(paired: PairedRuns, text: str) -> list[str]:
    """Return the metrics of both runs that a text names: the exact one, else all of that bare name."""
    names = paired.shared_names()
    both = f"both {paired.runs[0].path.name} and {paired.runs[1].path.name}"
    return match_metrics(text, names, f"metric of {both}", hint="Compute it with: ragfault run rescore")


def _lost_gold_share(paired: PairedRuns, comparison: Comparison) -> float | None:
    """Return the share of gold ids missing from the candidate's corpus, where that voids a metric decided here."""
    if not any(metric_name(change.metric) in GOLD_ID_METRICS for change in comparison.changes):
        return None
    return stale_gold_share(*paired.profiles)


def _low_coverage_text(paired: PairedRuns, coverage: float) -> str | None:
    """Return a message where too little of the run is paired, else None."""
    traces, pairs = paired.runs[1].manifest.traces, len(paired.pairing)
    if pairs >= coverage * traces:
        return None
    return (
        f"only {pairs:,} of {traces:,} traces of the run have a partner in the baseline "
        f"({format_percent(pairs / traces)}, and {format_percent(coverage)} are asked for)"
    )


def _decide_failure(fault: LayerFault) -> RegressionDecision:
    """Fail a gate for a shown rise of what a check of the pipeline, or a defect of answers, counts."""
    change = fault.evidence[0]
    is_check = change.metric in CHECK_METRICS
    reason = describe_fault_fact(fault) if is_check else f"{fault.title}: {describe_change(change)}"
    return RegressionDecision(change=change, result="fail", reason=reason, bound=None, coverage=1.0)


def _decide_metric(change: MetricChange, options: _RegressionOptions) -> RegressionDecision:
    bound, within = _worst_bound(change, options.terms.alpha)
    either = change.n + sum(change.lost)
    share = change.n / either if either else 0.0
    result, reason, needed = _decide_outcome(change, bound, within, options)
    obstacle = _pass_obstacle(change, options, share)
    if options.lost_gold is not None and metric_name(change.metric) in GOLD_ID_METRICS:
        gone = f"{format_percent(options.lost_gold)} of gold ids are gone"
        result, needed = "cannot tell", None
        reason = f"labels no longer describe the corpus: {gone}; use gold spans"
    elif result == "pass" and obstacle:
        result, reason = "cannot tell", f"{obstacle}; of the others: {reason}"
    return RegressionDecision(change=change, result=result, reason=reason, bound=bound, coverage=share, needed=needed)


def _decide_outcome(
    change: MetricChange, bound: float | None, within: bool, options: _RegressionOptions
) -> tuple[GateOutcome, str, int | None]:
    """Return outcome, reason and needed pairs from the pairs scored on both sides."""
    if change.difference is None:
        return "cannot tell", "no pair of traces is scored on both sides", None
    if within or change.identical:
        return "pass", _pass_text(change, bound), None
    if change.verdict == "worse" and _worsening(change) > change.margin:
        return "fail", f"{_change_text(change)}: beyond the margin of {change.margin:.3g}", None
    needed, aim = _needed_pairs(change, bound, options)
    what = change.evidence_count[1]
    advice = f"no realistic number of {what} would tell"
    if has_too_few(change.difference):
        advice = f"more independent {what} are needed"
    if change.ratio is not None:
        needed, advice = None, f"more {what} are needed, and of amounts nobody knows how many"
    if needed is not None:
        advice = f"about {needed:,} {what} would {aim}"
    return "cannot tell", f"{_change_text(change)}: {_undecided_text(change, bound)}; {advice}", needed


def _pass_obstacle(change: MetricChange, options: _RegressionOptions, share: float) -> str | None:
    """Return the reason that keeps a metric from passing whatever its values, or None."""
    if any(change.failed):
        return (
            f"{sum(change.failed):,} scores were lost to failures ({change.failed[0]:,} of the baseline, "
            f"{change.failed[1]:,} of the candidate), and their values are unknown"
        )
    if options.low_coverage is not None:
        return options.low_coverage
    if share < options.gate.coverage:
        return (
            f"only {change.n:,} of the {change.n + sum(change.lost):,} pairs that are scored in either run are "
            f"scored in both ({format_percent(share)}, and {format_percent(options.gate.coverage)} are asked for)"
        )
    return None


def _worsening(change: MetricChange) -> float:
    """Return how much worse the metric got, in its units; below 0 where it got better."""
    assert change.difference is not None
    return -change.difference.mean if change.better == "higher" else change.difference.mean


def _worst_bound(change: MetricChange, alpha: float) -> tuple[float | None, bool]:
    """Return the worst difference that is not ruled out, and whether it lies within the margin."""
    if change.difference is None or has_too_few(change.difference):
        return None, False
    tests = equivalence_test(change.difference, change.margin, alpha)
    bound, p = (tests.low, tests.p_drop) if change.better == "higher" else (tests.high, tests.p_rise)
    return (bound if math.isfinite(bound) else None), p <= alpha


def _needed_pairs(change: MetricChange, bound: float | None, options: _RegressionOptions) -> tuple[int | None, str]:
    """Return about how many pairs would decide, and what they would decide.

    They would show a worsening of the present size, pass an unchanged metric, or rule out a worsening of the margin.
    """
    difference = change.difference
    if difference is None or bound is None:
        return None, ""
    if not change.rose and not change.fell and change.judge_difference is None:
        # a cluster is added at each end of the range
        ends = 2 * difference.cluster_size
        estimate = (change.n + ends) * abs(bound) / change.margin - ends
        return _round_needed(estimate, change.n), "pass it, if none of them changes"

    def enough(effect: float, alpha: float) -> int | None:
        count = required_pairs(
            effect, difference.deviation, difference.cluster_size, power=options.terms.power, alpha=min(alpha, 0.999)
        )
        return _round_needed(math.inf if count is None else count, change.evidence_count[0])

    harm, stays = _worsening(change), "if mean and spread stay as they are"
    points_worse = difference.high < 0 if change.better == "higher" else difference.low > 0
    if harm > change.margin:
        if points_worse:
            level = options.terms.alpha / max(1, options.tests)
            shown, least = enough(harm, level), math.ceil(difference.cluster_size * least_clusters(level))
            return None if shown is None else max(shown, least), f"show it, {stays}"
        return enough(change.margin, 2 * options.terms.alpha), "rule it out, if there is none, at the present spread"
    unchanged = enough(change.margin, 2 * options.terms.alpha)
    if unchanged is None or unchanged > change.evidence_count[0] + 1 or harm == change.margin:
        return unchanged, "rule it out, if there is none, at the present spread"
    return enough(change.margin - harm, 2 * options.terms.alpha), f"rule it out, {stays}"


def _round_needed(estimate: float, n: int) -> int | None:
    return max(n + 1, math.ceil(estimate)) if estimate <= MAX_NEEDED else None


def _change_text(change: MetricChange) -> str:
    difference = change.difference
    assert difference is not None
    assert change.baseline is not None
    assert change.candidate is not None
    p = ""
    if change.adjusted is not None:
        p = f", corrected p {'< 0.001' if change.adjusted < 0.001 else f'= {change.adjusted:.3f}'}"
    moved = f"mean {format_number(change.baseline)} → {format_number(change.candidate)}"
    if change.judge_difference is not None:
        labels, what = change.evidence_count
        moved, p = f"{moved} as judged", f", corrected by {labels:,} {what}{p}"
    return f"{moved}, {format_interval(difference, signed=True)} on {format_count(change.n, 'pair')}{p}"


def _pass_text(change: MetricChange, bound: float | None) -> str:
    if change.identical:
        return "all inputs of the metric are the same in both runs"
    word = "drop" if change.better == "higher" else "rise"
    assert bound is not None
    worst = max(0.0, -bound if change.better == "higher" else bound)
    what = f"more than {format_number(worst)}" if worst else "any size"
    return f"{_change_text(change)}: a {word} of {what} is ruled out, and the margin is {change.margin:.3g}"


def _undecided_text(change: MetricChange, bound: float | None) -> str:
    word = "drop" if change.better == "higher" else "rise"
    if bound is None:
        return f"fewer than {MIN_INDEPENDENT} independent pairs decide nothing"
    return f"a {word} of {format_number(abs(bound))} is not ruled out, and the margin is {change.margin:.3g}"
