"""Several attempts of one query in a run: how reliable the system is, and whose noise its scores have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.diagnosis.attempts.records import (
    AttemptAnswer,
    AttemptReport,
    ComparisonMethod,
    FlakyQuery,
    MetricAttempts,
)
from ragfault.diagnosis.causes.records import AnswerCause, AnswerOutcome
from ragfault.diagnosis.run_scan import TraceBatch, scan_run
from ragfault.diagnosis.thresholds import AttemptStatistic, Threshold
from ragfault.judges.assembly import observe_traces
from ragfault.judges.encoder.agreement import settle_agreement
from ragfault.judges.encoder.judge import EncoderJudge
from ragfault.judges.loading import LOCAL_JUDGES
from ragfault.labels.correction import Codes, Mask, metric_bounds
from ragfault.labels.judges.flakiness import JudgeFlakiness, check_judge
from ragfault.model.gold_evidence import AGREEMENT_UNSURE
from ragfault.model.grouping import group_by, group_positions
from ragfault.model.protocols import Judge
from ragfault.model.records import Chunk, Trace
from ragfault.model.rules import BAD_SUPPORT
from ragfault.stats.estimates import VarianceSplit
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
MAX_COMPARED = 200
"""Pairs of answers that a judge compares: flakiness is that of as many queries, drawn at random."""


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

    A query is the unit of all intervals. Copies of an attempt count once. Answers that nobody could decide on are left
    out of pass^k and pass@k.
    """
    observer = AnswerObserver()
    scan_run(table.run, [observer])
    original = ~np.array(observer.copies, bool)
    queries = table.queries if table.queries is not None else np.arange(table.traces)
    sizes = Counter(np.unique(queries[original], return_counts=True)[1].tolist())
    k = int(np.median(np.repeat(list(sizes), list(sizes.values()))))
    outcomes = [cause.rating.outcome for cause in causes]
    meanings = group_meanings(observer.traces, queries, table.run.manifest.judge)
    decided = original & np.array([outcome != "unsure" for outcome in outcomes])
    right = np.array([outcome == "right" for outcome in outcomes], float)
    compared = original & meanings.is_compared
    disagreement = expect_disagreement(meanings.codes[compared], queries[compared], k)
    return AttemptReport(
        queries=sum(sizes.values()),
        k=k,
        sizes=dict(sorted(sizes.items())),
        copies=int((~original).sum()),
        all_right=expect_extreme(right[decided], queries[decided], k, "lowest").estimate(),
        any_right=expect_extreme(right[decided], queries[decided], k, "highest").estimate(),
        flakiness=disagreement.estimate(),
        compared_by=meanings.method,
        consistency=_compare_chunks(observer.traces, queries, original).estimate(),
        metrics=tuple(_assess_metrics(table, queries, original, k)),
        flaky=_list_flaky(observer.traces, queries, original, outcomes, meanings.codes),
    )


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


class AnswerMeanings(NamedTuple):
    """Which answers of a query mean the same."""

    codes: Codes
    """A number for the meaning of each answer within its query, from 1."""
    is_compared: Mask
    """Which answers are of queries whose answers were all compared."""
    method: ComparisonMethod


def group_meanings(traces: Sequence[Trace], queries: Codes, judge: str) -> AnswerMeanings:
    """Group the answers of each query by what they say.

    Two answers mean the same if they are equal in another spelling, if neither answers, or if a judge finds that one
    says what the other says: by the agreement head of the encoder if it is installed, read in both directions. Where it
    is unsure or not installed, all claims of one answer have to be supported by the other. A judge that costs money is
    not asked. Queries are compared in random order until `MAX_COMPARED`
    pairs were judged, so that those compared are a sample of all. Without a judge a run is compared if words settle
    every pair.
    """
    compare = _PairJudge(judge)
    codes, is_compared = np.ones(len(traces), np.int64), np.zeros(len(traces), bool)
    groups = list(group_positions(queries.tolist()).values())
    for place in np.random.default_rng(0).permutation(len(groups)).tolist():
        rows = groups[place]
        numbers = _number_meanings([traces[row] for row in rows], compare)
        if numbers is None:
            break
        codes[rows], is_compared[rows] = numbers, True
    if compare.method == "spelling" and not is_compared.all():
        # the queries that words settle are no sample of all queries
        is_compared[:] = False
    return AnswerMeanings(codes, is_compared, compare.method)


def _number_meanings(attempts: Sequence[Trace], compare: _PairJudge) -> list[int] | None:
    """Return the numbers of the meanings of the answers to a query; None if two of them could not be compared."""
    firsts: list[Trace] = []
    numbers = []
    for trace in attempts:
        for number, first in enumerate(firsts, 1):
            same = compare(trace, first)
            if same is None:
                return None
            if same:
                numbers.append(number)
                break
        else:
            firsts.append(trace)
            numbers.append(len(firsts))
    return numbers


class _PairJudge:
    """Comparison of two answers to one query, by words where they settle it, else by the encoder."""

    def __init__(self, judge: str) -> None:
        self._judge = None if judge.partition("/")[0] == "none" else EncoderJudge()
        self.method: ComparisonMethod = "spelling" if self._judge is None else "agreement"
        self._left = MAX_COMPARED
        self._known: dict[tuple[str, str, str], bool | None] = {}

    def __call__(self, first: Trace, second: Trace) -> bool | None:
        left, right = ((trace.answer or "").strip() for trace in (first, second))
        if not left or not right:
            return left == right
        key = (first.query, left, right)
        if key not in self._known:
            settled = settle_agreement(left, right)
            self._known[key] = self._judge_pair(*key) if settled is None else settled
        return self._known[key]

    def _judge_pair(self, query: str, left: str, right: str) -> bool | None:
        if self._judge is None or self._left <= 0:
            return None
        self._left -= 1
        session = self._judge.open_session(query)
        refusals = [session.is_refusal(left), session.is_refusal(right)]
        if any(refusals):
            return all(refusals)
        readings = (session.score_agreement(left, [right]), session.score_agreement(right, [left]))
        agreement = sum(reading or 0.0 for reading in readings) / len(readings)
        if not AGREEMENT_UNSURE[0] < agreement < AGREEMENT_UNSURE[1]:
            return agreement >= AGREEMENT_UNSURE[1]
        return _compare_claims(self._judge, query, left, right)


def _compare_claims(judge: Judge, query: str, left: str, right: str) -> bool:
    """Return whether a judge finds all claims of one answer supported by the other, or that neither answers."""
    pair = [
        Trace(id=f"{place}", query=query, answer=answer, chunks=(Chunk(id="other", text=other),))
        for place, (answer, other) in enumerate(((left, right), (right, left)))
    ]
    verdicts = observe_traces(judge, pair)
    refusals = [item.answer is not None and item.answer.refused for item in verdicts]
    if any(refusals):
        return all(refusals)
    return any(item.claim and all(claim.support not in BAD_SUPPORT for claim in item.claim) for item in verdicts)


def _list_flaky(
    traces: Sequence[Trace], queries: Codes, original: Mask, outcomes: Sequence[AnswerOutcome], meanings: Codes
) -> tuple[FlakyQuery, ...]:
    """List the queries whose attempts disagree: those that are right in some attempts only first, then by meaning."""
    listed = []
    for rows in group_by(np.flatnonzero(original).tolist(), lambda row: int(queries[row])).values():
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
