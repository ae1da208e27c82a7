"""Agreement of a judge's own verdicts with the gold of the run that it judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from ragfault.diagnosis.records import GoldAgreement
from ragfault.io.runs.run import Run
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.gold_evidence import match_answer, measure_coverage
from ragfault.model.records import Trace, Verdicts
from ragfault.stats.classification import auroc
from ragfault.stats.intervals import wilson_interval

MIN_CASES = 10
"""Cases of each class (of both together for a precision or recall) below which agreement is not decided."""
LEAST_AUROC, LEAST_SHARE = 0.7, 0.5
"""AUROC, and precision or recall, below which verdicts are too often wrong to act on."""
MAX_TRACES = 5_000
"""Traces that are compared, the first of a run."""

Case = tuple[float, bool]  # what the judge says, and whether gold says yes


def measure_gold_agreement(run: Run) -> tuple[GoldAgreement, ...]:
    """Measure how far the stored verdicts agree with gold, on the first 5,000 traces; empty without gold.

    Traces of one query with the same chunks count once.
    Chunk relevance: AUROC over the chunks of traces with gold. Missing context: precision and recall of the traces on
    which the judge misses something, against those on which some gold was not retrieved. Groundedness and completeness:
    AUROC of right against wrong answers, where the words of the reference tell without a judge.
    """
    if not run.has_gold():
        return ()
    cases: defaultdict[str, list[Case]] = defaultdict(list)
    first = islice(zip(run.traces(), run.verdicts(), strict=True), MAX_TRACES)
    distinct = {
        (pair[0].query, pair[0].history, *(chunk.text or chunk.id for chunk in pair[0].chunks or ())): pair
        for pair in first
    }
    for trace, verdicts in distinct.values():
        for verdict, case in _list_cases(trace, verdicts):
            cases[verdict].append(case)
    agreements = []
    for verdict in ("chunk relevance", "groundedness", "completeness"):
        if cases[verdict]:
            agreements.append(_measure_ranking(verdict, cases[verdict]))  # type: ignore[arg-type]
    if missing := cases["missing context"]:
        agreements[1:1] = [
            _measure_share("precision", [gold for alarm, gold in missing if alarm]),
            _measure_share("recall", [bool(alarm) for alarm, gold in missing if gold]),
        ]
    return tuple(agreements)


def count_unmatched_gold(run: Run) -> int:
    """Count the traces with chunks and chunk ids in gold, of the first 5,000; 0 where any of these ids is retrieved."""
    named: set[str] = set()
    retrieved: set[str] = set()
    traces = 0
    for trace in islice(run.traces(), MAX_TRACES if run.has_gold() else 0):
        if trace.chunks and trace.gold is not None and trace.gold.chunks:
            traces += 1
            named.update(trace.gold.chunks)
            retrieved.update(chunk.id for chunk in trace.chunks)
    return traces if traces >= MIN_CASES and named.isdisjoint(retrieved) else 0


def _list_cases(trace: Trace, verdicts: Verdicts) -> Iterator[tuple[str, Case]]:
    """Yield each verdict that gold can confirm or refute, with what gold says."""
    coverage = measure_coverage(trace)
    if coverage is not None:
        for verdict, level in zip(verdicts.chunk or (), coverage.levels, strict=False):
            yield "chunk relevance", (verdict.relevance, level is not None)
        if verdicts.missing is not None and (coverage.retrieved != "some" or coverage.absent_spans):
            yield "missing context", (float(len(verdicts.missing) > 0), coverage.retrieved != "all")
    refused = verdicts.answer is not None and verdicts.answer.refused
    right = None if refused else match_answer(trace)
    if right is not None:
        for name in ("groundedness", "completeness"):
            value = compute_score(parse_metric(name), trace, verdicts).value
            if value is not None:
                yield name, (value, right)


def _measure_ranking(
    verdict: Literal["chunk relevance", "groundedness", "completeness"], cases: list[Case]
) -> GoldAgreement:
    value = auroc([rating for rating, _ in cases], [gold for _, gold in cases])
    positives = sum(gold for _, gold in cases)
    negatives = len(cases) - positives
    decided = value is not None and min(positives, negatives) >= MIN_CASES
    return GoldAgreement(
        verdict=verdict,
        statistic="AUROC",
        value=value,
        interval=None,
        positives=positives,
        negatives=negatives,
        usable=value >= LEAST_AUROC if decided and value is not None else None,
    )


def _measure_share(statistic: Literal["precision", "recall"], right: list[bool]) -> GoldAgreement:
    hits, n = sum(right), len(right)
    return GoldAgreement(
        verdict="missing context",
        statistic=statistic,
        value=hits / n if n else None,
        positives=hits,
        interval=wilson_interval(hits, n) if n else None,
        negatives=n - hits,
        usable=hits / n >= LEAST_SHARE if n >= MIN_CASES else None,
    )
