"""Several attempts of one query in a run: how reliable the system is, and whose noise its scores have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.diagnosis.attempts.meanings import group_meanings
from ragfault.diagnosis.attempts.records import AttemptAnswer, AttemptReport, FlakyQuery, MetricAttempts
from ragfault.diagnosis.causes.records import AnswerCause, AnswerOutcome
from ragfault.diagnosis.run_scan import TraceBatch, scan_run
from ragfault.diagnosis.thresholds import AttemptStatistic, AttemptSubject, Threshold
from ragfault.judges.loading import LOCAL_JUDGES
from ragfault.labels.correction import Codes, Mask, metric_bounds
from ragfault.labels.judges.flakiness import JudgeFlakiness, check_judge
from ragfault.model.grouping import group_by
from ragfault.model.records import Chunk, Trace
from ragfault.stats.estimates import Interval, VarianceSplit
from ragfault.stats.repeats import (
    Extreme,
    QueryValues,
    compare_sets,
    expect_disagreement,
    expect_extreme,
    split_variance,
)

if TYPE_CHECKING:
    from ragfault.diagnosis.records import Findings
    from ragfault.diagnosis.run_table import RunTable

FLAKY_SHOWN = 10
"""Flaky queries that a report shows with their answers."""


def estimate_statistic(
    table: RunTable, column: int, statistic: AttemptStatistic, right: Threshold | None
) -> QueryValues:
    """Estimate a statistic of a metric over k attempts of each query; copies of an attempt count once.

    `right` says which values are right; the worst value needs none.
    """
    observer = AnswerObserver()
    scan_run(table.run, [observer])
    queries = table.queries if table.queries is not None else np.arange(table.traces)
    rows = table.scored_rows(column)
    rows = rows[~np.array(observer.copies, bool)[rows]]
    values, own = table.values[rows, column], queries[rows]
    if statistic.name == "worst@" or right is None:
        worst: Extreme = "lowest" if table.measures[column].better == "higher" else "highest"
        return expect_extreme(values, own, statistic.k, worst)
    reached = right.is_reached_by(values)
    if statistic.name == "flaky@":
        return expect_disagreement(reached.astype(np.int64), own, statistic.k)
    return expect_extreme(reached.astype(float), own, statistic.k, "lowest" if statistic.name == "pass^" else "highest")


def estimate_subject(table: RunTable, subject: AttemptSubject, statistic: AttemptStatistic) -> SubjectEstimate:
    """Estimate a statistic of the answers or chunks of k attempts of each query; copies of an attempt count once."""
    observer = AnswerObserver()
    scan_run(table.run, [observer])
    original = ~np.array(observer.copies, bool)
    queries = table.queries if table.queries is not None else np.arange(table.traces)
    if subject == "chunks":
        estimate = _compare_chunks(observer.traces, queries, original)
    elif statistic.name == "flaky@":
        meanings = group_meanings(observer.traces, queries, table.run.manifest.judge)
        compared = original & meanings.is_compared
        estimate = expect_disagreement(meanings.codes[compared], queries[compared], statistic.k)
    else:
        outcomes = np.array([cause.rating.outcome for cause in table.causes])[original]
        extreme: Extreme = "lowest" if statistic.name == "pass^" else "highest"
        interval = _bound_right(outcomes, queries[original], statistic.k, extreme)
        counted = 0 if interval is None else interval.n
        unsure = int((outcomes == "unsure").sum())
        return SubjectEstimate(interval, len(np.unique(queries)) - counted, unsure)
    return SubjectEstimate(estimate.estimate(), estimate.left_out)


class SubjectEstimate(NamedTuple):
    """A statistic of answers or chunks over the attempts of queries."""

    interval: Interval | None
    left_out: int
    """Number of queries with too few attempts."""
    unsure: int = 0
    """Attempts that nobody could rate; the interval holds whether they are right or bad."""


class AnswerObserver:
    """What each trace retrieved and answered, and which traces are copies of an attempt."""

    trace_columns = ("id", "query", "attempt", "chunks", "answer", "time", "latency", "tokens", "error")
    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.copies: list[bool] = []
        self._seen: set[int] = set()

    def add(self, batch: TraceBatch) -> None:
        """Keep the next traces, without the texts of their chunks."""
        for trace in batch.traces:
            chunks = tuple(Chunk(id=chunk.id, text="") for chunk in trace.chunks) if trace.chunks is not None else None
            self.traces.append(replace(trace, chunks=chunks))
            key = hash((trace.query_id, trace.answer, str(trace.chunks), trace.time, trace.latency, trace.tokens))
            is_measured = trace.time is not None or trace.latency is not None
            self.copies.append(is_measured and key in self._seen)
            self._seen.add(key)


def assess_attempts(table: RunTable, causes: Sequence[AnswerCause]) -> AttemptReport:
    """Assess the attempts of a run whose queries have several; `causes` say which answers are right.

    A query is the unit of all intervals. Copies of an attempt count once.
    """
    observer = AnswerObserver()
    scan_run(table.run, [observer])
    original = ~np.array(observer.copies, bool)
    queries = table.queries if table.queries is not None else np.arange(table.traces)
    sizes = Counter(np.unique(queries[original], return_counts=True)[1].tolist())
    k = int(np.median(np.repeat(list(sizes), list(sizes.values()))))
    outcomes = [cause.rating.outcome for cause in causes]
    meanings = group_meanings(observer.traces, queries, table.run.manifest.judge)
    rated = np.array(outcomes)[original], queries[original]
    compared = original & meanings.is_compared
    disagreement = expect_disagreement(meanings.codes[compared], queries[compared], k)
    return AttemptReport(
        queries=sum(sizes.values()),
        k=k,
        sizes=dict(sorted(sizes.items())),
        copies=int((~original).sum()),
        unsure=int((rated[0] == "unsure").sum()),
        all_right=_bound_right(*rated, k, "lowest"),
        any_right=_bound_right(*rated, k, "highest"),
        flakiness=disagreement.estimate(),
        compared_by=meanings.method,
        consistency=_compare_chunks(observer.traces, queries, original).estimate(),
        metrics=tuple(_assess_metrics(table, queries, original, k)),
        flaky=_list_flaky(observer.traces, queries, original, outcomes, meanings.codes),
    )


def _bound_right(outcomes: NDArray[np.str_], queries: Codes, k: int, extreme: Extreme) -> Interval | None:
    """Return pass^k or pass@k with an interval that holds whether unsure answers are right or bad; they count half.

    To leave them out would leave out the queries with most disagreement: refusals are unsure without an answer key.
    """
    bounds = [
        expect_extreme(np.isin(outcomes, right).astype(float), queries, k, extreme).estimate()
        for right in (["right"], ["right", "unsure"])
    ]
    worst, best = bounds
    if worst is None or best is None:
        return None
    return Interval((worst.mean + best.mean) / 2, worst.low, best.high, worst.n, worst.clusters)


def _assess_metrics(table: RunTable, queries: Codes, original: Mask, k: int) -> Iterable[MetricAttempts]:
    """Yield the reliability of each metric of retrieval, generation and both."""
    for column, measure in enumerate(table.measures):
        rows = table.scored_rows(column)
        rows = rows[original[rows]]
        if measure.layer == "operation" or not len(rows):
            continue
        values, own = table.values[rows, column], queries[rows]
        lowest = expect_extreme(values, own, k, "lowest" if measure.better == "higher" else "highest")
        yield MetricAttempts(
            metric=measure.name,
            layer=measure.layer,
            worst=lowest.estimate(metric_bounds(measure)),
            variance=split_metric(table, column, rows),
        )


def split_metric(table: RunTable, column: int, rows: Codes | None = None) -> VarianceSplit | None:
    """Split the variance of a metric into queries, system and judge; None without several attempts or any variance."""
    rows = table.scored_rows(column) if rows is None else rows
    queries = table.queries if table.queries is not None else np.arange(table.traces)
    # A local judge always says the same of a trace; the noise of another one is told by `tell_judge_noise`.
    judge_noise = 0.0 if table.run.manifest.judge.partition("/")[0] in (*LOCAL_JUDGES, "none") else None
    return split_variance(table.values[rows, column], queries[rows], judge_noise)


def tell_judge_noise(findings: Findings, flakiness: JudgeFlakiness) -> Findings:
    """Return findings in which the noise of the judge, as it was measured, is told from that of the system.

    Raises UsageError for the flakiness of another judge.
    """
    variances = {item.metric: item.deviation**2 for item in check_judge(flakiness, [findings.manifest.judge]).metrics}
    if findings.attempts is None:
        return findings
    metrics = tuple(
        replace(item, variance=item.variance.tell_judge(variances[item.metric]))
        if item.variance is not None and item.metric in variances
        else item
        for item in findings.attempts.metrics
    )
    return replace(findings, attempts=replace(findings.attempts, metrics=metrics))


def _compare_chunks(traces: Sequence[Trace], queries: Codes, original: Mask) -> QueryValues:
    rows = [row for row in np.flatnonzero(original).tolist() if traces[row].chunks is not None]
    sets = [frozenset(chunk.id for chunk in traces[row].chunks or ()) for row in rows]
    return compare_sets(sets, queries[rows]) if rows else QueryValues(np.empty(0), 0)


def _list_flaky(
    traces: Sequence[Trace], queries: Codes, original: Mask, outcomes: Sequence[AnswerOutcome], meanings: Codes
) -> tuple[FlakyQuery, ...]:
    """List the queries whose attempts disagree: those that are right in some attempts only first, then by meaning."""
    listed = []
    for rows in group_by(np.flatnonzero(original).tolist(), lambda row: int(queries[row])).values():
        rows.sort(key=lambda row: traces[row].attempt)
        decided = [outcomes[row] == "right" for row in rows if outcomes[row] != "unsure"]
        right = sum(decided) / len(decided) if decided else 0.0
        different = len({int(meanings[row]) for row in rows})
        if 0 < right < 1 or different > 1:
            listed.append((-right * (1 - right), -different, rows[0], right, rows))
    return tuple(
        FlakyQuery(
            query_id=traces[first].query_id,
            query=traces[first].query,
            right=right,
            answers=tuple(_build_answer(traces[row], outcomes[row], int(meanings[row])) for row in rows),
        )
        for _, _, first, right, rows in sorted(listed)[:FLAKY_SHOWN]
    )


def _build_answer(trace: Trace, outcome: AnswerOutcome, meaning: int) -> AttemptAnswer:
    return AttemptAnswer(trace=trace.id, attempt=trace.attempt, answer=trace.answer, outcome=outcome, meaning=meaning)
