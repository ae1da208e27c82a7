"""Agreement of a judge's own verdicts with the gold of the run that it judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

from ragfault.diagnosis.records import GoldAgreement
from ragfault.diagnosis.run_scan import TraceBatch, scan_run
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.io.runs.run import AnyRun
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.gold_evidence import has_answer_key, match_answer, measure_coverage
from ragfault.model.records import Trace, Verdicts
from ragfault.stats.classification import auroc
from ragfault.stats.intervals import wilson_interval

MIN_CASES = 10
"""Cases of each class (of both together for a precision or recall) below which agreement is not decided."""
LEAST_AUROC, LEAST_SHARE = 0.7, 0.5
"""AUROC, and precision or recall, below which verdicts are too often wrong to act on."""
MAX_TRACES = 5_000
"""Traces that are compared, the first of a run."""

# what the judge says, and whether gold says yes
Case = tuple[float, bool]


class GoldObserver:
    """Cases in which gold confirms or refutes a verdict, and whether its chunk ids are retrieved."""

    trace_columns: Sequence[str] | None = None
    verdict_columns: Sequence[str] | None = None

    def __init__(self) -> None:
        self.is_done = False
        self._distinct: dict[int, list[tuple[str, Case]]] = {}
        self._named: set[str] = set()
        self._retrieved: set[str] = set()
        self._named_traces = 0

    def add(self, batch: TraceBatch) -> None:
        """Observe the next traces, up to `MAX_TRACES` of the run."""
        left = MAX_TRACES - batch.start
        self.is_done = left <= len(batch)
        for trace, verdicts in islice(zip(batch.traces, batch.verdicts, strict=True), left):
            # The last trace of one query with the same chunks stands for all of them.
            contents = (chunk.text or chunk.id for chunk in trace.chunks or ())
            self._distinct[hash((trace.query, str(trace.history), *contents))] = (
                list(_list_cases(trace, verdicts)) if has_answer_key(trace) else []
            )
            if trace.chunks and trace.gold is not None and trace.gold.chunks:
                self._named_traces += 1
                self._named.update(trace.gold.chunks)
                self._retrieved.update(chunk.id for chunk in trace.chunks)

    def measure_agreement(self) -> tuple[GoldAgreement, ...]:
        """Measure how far the stored verdicts agree with gold; empty without gold."""
        cases: defaultdict[str, list[Case]] = defaultdict(list)
        for verdict, case in (pair for pairs in self._distinct.values() for pair in pairs):
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

    def count_unmatched(self) -> int:
        """Count the traces with chunks and chunk ids in gold; 0 where any of these ids is retrieved."""
        is_unmatched = self._named_traces >= MIN_CASES and self._named.isdisjoint(self._retrieved)
        return self._named_traces if is_unmatched else 0


def measure_gold_agreement(source: AnyRun | RunTable) -> tuple[GoldAgreement, ...]:
    """Measure how far the stored verdicts agree with gold, on the first 5,000 traces; empty without gold.

    Traces of one query with the same chunks count once.
    Chunk relevance: AUROC over the chunks of traces with gold. Missing context: precision and recall of the traces on
    which the judge misses something, against those on which some gold was not retrieved. Groundedness and completeness:
    AUROC of right against wrong answers, where the words of the reference tell without a judge.
    """
    table = open_table(source)
    if not table.has_key:
        return ()
    observer = GoldObserver()
    scan_run(table.run, [observer])
    return observer.measure_agreement()


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
