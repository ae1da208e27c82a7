"""The quality gate: check a run against thresholds, and for regressions against a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.comparison.gate.records import GateResult, RegressionReport, ThresholdDecision
from ragfault.comparison.gate.regression import check_regression
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import MAX_NEEDED, describe_dependence
from ragfault.comparison.settings import DEFAULT_GATE, GateSettings
from ragfault.diagnosis.attempts.assessment import estimate_statistic, estimate_subject
from ragfault.diagnosis.records import GateOutcome, MetricAggregate
from ragfault.diagnosis.run_table import RunTable, list_text_warnings
from ragfault.diagnosis.score_matrix import match_metrics
from ragfault.diagnosis.scorecard import aggregate_metric, find_default_target
from ragfault.diagnosis.thresholds import (
    SUBJECT_STATISTICS,
    AttemptSubject,
    Threshold,
    check_threshold,
    parse_thresholds,
)
from ragfault.io.runs.run import AnyRun, Run, open_run
from ragfault.labels.correction import metric_bounds
from ragfault.labels.judges.flakiness import load_flakiness
from ragfault.labels.rubrics.proofs import RubricMeasurement, check_rubric_proofs, load_rubric_measurement
from ragfault.model.errors import RunError, UsageError
from ragfault.model.settings import accept_fields
from ragfault.stats.estimates import Interval, PpiMean
from ragfault.text.number_format import MIN_INDEPENDENT, format_count, format_interval, format_percent, has_too_few


@accept_fields(GateSettings)
def gate(
    source: AnyRun | RunTable, thresholds: Iterable[Threshold | str] = (), settings: GateSettings = DEFAULT_GATE
) -> GateResult:
    """Check a run against thresholds on the 95 % interval of each mean, and against a baseline for regressions.

    A threshold passes where all of the interval reaches it and fails where none of it does; otherwise the run
    cannot tell, and the decision says about how many scored traces would, at the present mean and spread.
    A threshold does not pass where scores of its metric were lost to failures, since traces on which a judge fails
    are not like the others, nor where less than `coverage` of the traces are scored; one that fails still fails.

    Beside a baseline a metric fails where a significant worsening beyond its margin is shown, and passes where
    one is ruled out, as `check_regression` decides it. The gate fails where any threshold or metric fails, else
    cannot tell where any cannot. With human `labels` of some traces (of the baseline, of the run) decisions use
    label-corrected figures where there are any. A rubric decides only where `rubric_proof` has its measured agreement
    with people and with itself.

    Raises UsageError for an unreadable threshold, one outside the metric's range, a rubric without proof, or neither
    thresholds nor baseline; UnknownName for a metric that is not in the run; RunError where any file of a run is
    damaged, read or not, or its evaluation stopped before the end; with a baseline what `check_regression` raises.

    >>> import tempfile
    >>> from ragfault import Chunk, Gold, Trace, gate, evaluate
    >>> def retrieve(number, chunk):
    ...     chunks, gold = (Chunk(id=chunk, text=f"Pier {chunk}."),), Gold(chunks={"a": 1.0})
    ...     return Trace(id=f"{number}", query=f"When does ferry {number} leave?", chunks=chunks, gold=gold)
    >>> traces = [retrieve(number, "ab"[number % 2]) for number in range(40)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = gate(evaluate(traces, f"{folder}/run", metrics=["recall"]), ["recall >= 0.9"])
    >>> result.result, result.exit_code
    ('fail', 1)
    """
    baseline, labels = settings.baseline, settings.labels
    parsed = parse_thresholds(thresholds)
    if not parsed and baseline is None:
        raise UsageError('no threshold was set. Set one (--threshold "groundedness>=0.85"), or give a --baseline.')
    if settings.set_for_baseline and baseline is None:
        raise UsageError(
            f"{', '.join(settings.set_for_baseline)}: without a baseline there is nothing to compare with."
        )
    run = source.run if isinstance(source, RunTable) else open_run(source)
    _check_complete(run)
    metrics = {_match_metric(run, item) for item in parsed if item.metric not in SUBJECT_STATISTICS}
    proofs = [
        proof if isinstance(proof, RubricMeasurement) else load_rubric_measurement(proof)
        for proof in settings.rubric_proof
    ]
    check_rubric_proofs(run, [*sorted(metrics), *(settings.metrics or ())], proofs)
    table = source if isinstance(source, RunTable) else RunTable(run, labels[1], metrics=metrics)
    return GateResult(
        run=table.run.path.name,
        traces=table.traces,
        decisions=tuple(_decide_threshold(table, threshold, settings.coverage) for threshold in parsed),
        regression=None if baseline is None else _check_baseline(baseline, table, settings),
        label_source=None if table.labels is None else table.labels.source,
        warnings=list_text_warnings(table),
    )


def _check_complete(run: Run) -> None:
    """Raise RunError for a run that is damaged or partial: its figures are not those of the whole input."""
    run.verify_checksums()
    if run.manifest.planned:
        raise RunError(
            f"{run.path} holds {run.manifest.traces:,} of {run.manifest.planned:,} traces, its evaluation stopped: "
            "nothing is decided on a part. Run the same evaluate command again to finish it."
        )


def _check_baseline(baseline: AnyRun, table: RunTable, settings: GateSettings) -> RegressionReport:
    baseline = open_run(baseline)
    _check_complete(baseline)
    flakiness = settings.flakiness
    if isinstance(flakiness, str | Path):
        flakiness = load_flakiness(flakiness)
    side = pair_runs(
        baseline, table.run, anyway=settings.anyway, labels=settings.labels, flakiness=flakiness, sample=settings.sample
    )
    return check_regression(side, settings)


class ThresholdEvidence(NamedTuple):
    """What a threshold is decided on: values of traces, or of queries with several attempts."""

    interval: Interval | None
    share: float
    """The share of the traces or queries that have a value."""
    lacking: str
    """Why the others have none, in words."""
    unit: str
    """What the values are of, in the plural."""
    ppi: PpiMean | None = None
    """The correction by labels, where it decides."""
    unsure: int = 0
    """Answers that nobody could rate."""


def _read_traces(table: RunTable, aggregate: MetricAggregate) -> ThresholdEvidence:
    """Return the evidence of the scored traces, corrected by labels where there are some."""
    ppi = aggregate.ppi if aggregate.ppi and aggregate.ppi.interval else None
    lacking = f"only {aggregate.scored:,} of {table.traces:,} traces are scored"
    unit = "labels" if ppi else "scored traces"
    return ThresholdEvidence(aggregate.decision_interval, aggregate.scored / table.traces, lacking, unit, ppi)


def _read_attempts(table: RunTable, threshold: Threshold, at: int) -> ThresholdEvidence:
    """Return the evidence of a statistic over the attempts of each query."""
    statistic = threshold.attempts
    # the caller has checked it
    assert statistic is not None
    right = statistic.right or find_default_target(threshold.metric)
    is_worst = statistic.name == "worst@"
    if right is None and not is_worst:
        raise UsageError(
            f"{threshold}: {threshold.metric} has no target, so that nothing says when an attempt is right. Say it: "
            f'"{threshold.metric}>=0.9 {statistic.name}{statistic.k}{threshold.sign}{threshold.value:g}"'
        )
    if not is_worst:
        _check_share(threshold)
    estimate = estimate_statistic(table, at, statistic, right)
    interval = estimate.estimate(metric_bounds(table.measures[at]) if is_worst else (0.0, 1.0))
    return _describe_queries(interval, estimate.left_out, statistic.k)


def _describe_queries(interval: Interval | None, left_out: int, k: int, unsure: int = 0) -> ThresholdEvidence:
    """Describe the evidence of a figure over queries, some of which have too few attempts."""
    count = 0 if interval is None else interval.n
    lacking = f"{left_out:,} queries have fewer attempts with a value"
    share = count / max(1, count + left_out)
    return ThresholdEvidence(interval, share, lacking, f"queries with {k} attempts", unsure=unsure)


def _read_subject(
    table: RunTable, threshold: Threshold, subject: AttemptSubject
) -> tuple[MetricAggregate, ThresholdEvidence]:
    """Return the figures of the answers or the chunks of the attempts of each query, as a metric has them."""
    statistic = threshold.attempts
    if statistic is None:
        raise UsageError(f'{threshold}: {subject} have only figures over attempts, such as "answers pass^3>=0.8".')
    _check_share(threshold)
    estimate = estimate_subject(table, subject, statistic)
    aggregate = MetricAggregate(
        metric=subject,
        layer="retrieval" if subject == "chunks" else "generation",
        better="lower" if statistic.name == "flaky@" else "higher",
        low=0.0,
        high=1.0,
        interval=estimate.interval,
        scored=table.traces,
        undefined=0,
        failed=0,
    )
    return aggregate, _describe_queries(estimate.interval, estimate.left_out, statistic.k, estimate.unsure)


def _read_metric(table: RunTable, threshold: Threshold, at: int) -> tuple[MetricAggregate, ThresholdEvidence]:
    """Return the figures of a metric, of its traces or over the attempts of each query."""
    aggregate = aggregate_metric(table, at, target=None if threshold.attempts else threshold)
    if threshold.attempts is None or threshold.attempts.name == "worst@":
        _check_range(threshold, aggregate)
    is_single = threshold.attempts is None
    return aggregate, _read_traces(table, aggregate) if is_single else _read_attempts(table, threshold, at)


def _check_share(threshold: Threshold) -> None:
    """Refuse a threshold on a share that is a percentage."""
    if not 0 <= threshold.value <= 1:
        raise UsageError(f"{threshold}: a share of queries lies between 0 and 1. Write 0.85, not 85.")


def _decide_threshold(table: RunTable, threshold: Threshold, coverage: float) -> ThresholdDecision:
    """Decide on a threshold by the interval of its evidence; the reason begins with what keeps it from passing."""
    subject = next((name for name in SUBJECT_STATISTICS if name == threshold.metric), None)
    if subject is not None:
        aggregate, evidence = _read_subject(table, threshold, subject)
    else:
        at = table.metric_names.index(_match_metric(table.run, threshold))
        threshold = replace(threshold, metric=table.metric_names[at])
        aggregate, evidence = _read_metric(table, threshold, at)
    interval, why, needed = evidence.interval, _reason_text(aggregate), None
    result: GateOutcome = "cannot tell" if interval is None else check_threshold(threshold, interval)
    nothing = "no trace is scored" if threshold.attempts is None else f"no {evidence.unit} with a value"
    reason = f"{nothing}{why}" if interval is None else _interval_text(result, interval, evidence)
    doubts = []
    if interval is not None and result == "cannot tell":
        sample = interval if evidence.ppi is None else replace(interval, n=evidence.ppi.labelled)
        needed = _needed_values(threshold, sample, (aggregate.low, aggregate.high))
        reason = f"{reason}; {_advice_text(needed, interval, evidence.unit)}"
        if evidence.unsure:
            unsure = format_count(evidence.unsure, "answer")
            needed, reason = None, f"{reason}; {unsure} that nobody could rate may be right or bad: label them"
    elif threshold.attempts is None and aggregate.result == "cannot tell":
        doubts.append("the judge does not know the language of traces that may change this; as judged")
    if aggregate.failed and result == "pass":
        doubts.append(
            f"{aggregate.failed:,} scores were lost to failures{why}, and their values are unknown; of the others"
        )
    if interval is not None and evidence.share < coverage and result != "fail":
        asked = f"({format_percent(evidence.share)}, and {format_percent(coverage)} are asked for)"
        doubts.append(f"{evidence.lacking} {asked}{why}; of these")
    if doubts:
        result, reason = "cannot tell", ": ".join([*reversed(doubts), reason])
    return ThresholdDecision(
        threshold=threshold, result=result, reason=reason, aggregate=aggregate, coverage=evidence.share, needed=needed
    )


def _match_metric(run: Run, threshold: Threshold) -> str:
    """Return the metric of the run that a threshold names, also by its name in another tool."""
    names, kind = [measure.name for measure in run.manifest.metrics], f"metric of {run.path.name}"
    [name] = match_metrics(threshold.metric, names, kind, exact=True, hint="Compute it with: ragfault run rescore")
    return name


def _check_range(threshold: Threshold, aggregate: MetricAggregate) -> None:
    """Refuse a threshold outside the metric's range, such as a percentage."""
    low = -math.inf if aggregate.low is None else aggregate.low
    high = math.inf if aggregate.high is None else aggregate.high
    if not low <= threshold.value <= high:
        raise UsageError(
            f"{threshold}: {threshold.metric} lies between {low:g} and {high:g}, so the threshold decides nothing. "
            "Write a share as 0.85, not as 85."
        )


def _interval_text(result: GateOutcome, interval: Interval, evidence: ThresholdEvidence) -> str:
    where = {
        "pass": "the whole interval reaches the threshold",
        "fail": "the whole interval misses the threshold",
        "cannot tell": "the interval contains the threshold",
    }[result]
    of_queries = evidence.unit.startswith("queries")
    if has_too_few(interval) and result == "cannot tell":
        where = f"fewer than {MIN_INDEPENDENT} independent {'queries' if of_queries else 'traces'} pass nothing"
    dependence = describe_dependence(interval.n, [interval])
    lead = f"{interval.n:,} {evidence.unit}: " if of_queries else ""
    source = "" if of_queries else f" from {format_count(interval.n, 'trace')}"
    labels = f" and {evidence.ppi.labelled:,} labels" if evidence.ppi else ""
    return f"{lead}mean {format_interval(interval)}{source}{labels}{f' ({dependence})' if dependence else ''}: {where}"


def _reason_text(aggregate: MetricAggregate) -> str:
    reasons = aggregate.why_failed or aggregate.why_undefined
    return f" ({reasons[0].text})" if reasons else ""


def _needed_values(threshold: Threshold, interval: Interval, bounds: tuple[float | None, float | None]) -> int | None:
    """Return about how many values would decide; the interval shrinks with their root, or number at an end."""
    gap = abs(interval.mean - threshold.value)
    reach = interval.mean - interval.low if interval.mean > threshold.value else interval.high - interval.mean
    if has_too_few(interval) or gap == 0 or not math.isfinite(reach):
        return None
    power = 1 if interval.mean in bounds else 2
    estimate = interval.n * (reach / gap) ** power
    return max(interval.n + 1, math.ceil(estimate)) if estimate <= MAX_NEEDED else None


def _advice_text(needed: int | None, interval: Interval, unit: str) -> str:
    if needed is None:
        return (
            f"no realistic number of {unit} would tell"
            if not has_too_few(interval)
            else f"more independent {unit} are needed"
        )
    return f"about {needed:,} {unit} would tell, if mean and spread stay as they are"
