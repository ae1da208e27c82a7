"""Analysis of a run: the diagnosis of every trace, the worst traces, the remedies, and all findings at once."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import overload

import numpy as np
from msgspec.structs import replace

from ragfault.diagnosis.assessment import assess_trace
from ragfault.diagnosis.attempts.assessment import assess_attempts
from ragfault.diagnosis.causes.agreement import measure_cause_agreement
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.diagnosis.causes.retrieval import RetrievalOutcome, observe_retrieval, summarize_retrieval
from ragfault.diagnosis.causes.storage import rate_trace, read_causes
from ragfault.diagnosis.causes.summary import assess_health, count_causes
from ragfault.diagnosis.chunk_insights import compute_chunk_insights
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS, WORDLESS_KINDS, diagnose_trace
from ragfault.diagnosis.gold_agreement import GoldObserver, measure_gold_agreement
from ragfault.diagnosis.languages import WORD_JUDGES
from ragfault.diagnosis.records import (
    ChunkInsight,
    Diagnosis,
    Findings,
    GoldAgreement,
    KeyOutcome,
    ProblemExample,
    ProblemKind,
    Remedy,
)
from ragfault.diagnosis.run_scan import TraceBatch
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.diagnosis.score_matrix import SEGMENT_FIELDS, estimate_mean, metric_name
from ragfault.diagnosis.scorecard import (
    TARGETS,
    Thresholds,
    assess_rag,
    build_scorecard,
    build_segments,
    count_quality,
    pair_tradeoffs,
    quality_level,
)
from ragfault.diagnosis.steps.localization import localize_recorded_step
from ragfault.diagnosis.steps.records import FaultyStep
from ragfault.io.runs.run import SAMPLE_TRACES, AnyRun, Run, open_run
from ragfault.io.runs.samples import sample_run
from ragfault.labels.correction import CardChoice, HumanLabels, LabeledItems, apply_labels
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Trace, Verdicts

RIGHT_OUTCOMES: tuple[KeyOutcome, ...] = ("right answer", "right refusal")
"""Outcomes by the answer key that are no failure."""
PIPELINE_FAILURE = 4.0
"""The score of a trace whose pipeline failed, whatever its answer."""
GOOD_LEVELS = ("excellent", "good")
"""Quality levels at which an answer is returned."""
UNCOVERED_KINDS: Set[ProblemKind] = frozenset(("nothing_retrieved", "nothing_relevant", "uncovered_statement"))
"""Problems of which each says that the chunks do not cover the query."""
# how many traces a remedy names
MAX_EXAMPLES = 5
FALSE_POSITIVE_RATES: Mapping[ProblemKind, float] = {
    "missing_context": 0.17, "missed_refusal": 0.19, "unanswered_aspect": 0.11, "irrelevant_answer": 0.11,
    "nothing_relevant": 0.12, "irrelevant_chunk": 0.05, "unsupported_claim": 0.18, "contradicted_claim": 0.05,
}  # fmt: skip
"""Share of the traces on which people see no such problem and the default judge does, the largest of up to five sets
(`benchmarks/false_positives.py`); other judges by words are not better. A share that is not shown to be above it may be
false positives alone."""
PART_BY_KIND: Mapping[ProblemKind, str] = {
    "missing_context": "missing", "unanswered_aspect": "aspect", "irrelevant_answer": "answer",
    "nothing_relevant": "chunk", "irrelevant_chunk": "chunk", "unsupported_claim": "claim",
    "contradicted_claim": "claim",
}  # fmt: skip
"""Part of the verdicts whose labels decide a kind of problem."""
DOUBTFUL_KINDS: Set[ProblemKind] = frozenset(("missing_context",))
"""Kinds that are left out where a run shows that its judge is mostly wrong about them, or hardly sees them."""
RELEVANCE_KINDS: Set[ProblemKind] = frozenset(("nothing_relevant", "irrelevant_chunk", "missed_refusal"))
"""Kinds that gold decides where it is applied."""


@overload
def diagnose(source: Trace, verdicts: Verdicts) -> Diagnosis: ...
@overload
def diagnose(source: AnyRun, *, ids: Sequence[str] | None = None) -> tuple[Diagnosis, ...]: ...
def diagnose(
    source: Trace | AnyRun, verdicts: Verdicts | None = None, *, ids: Sequence[str] | None = None
) -> Diagnosis | tuple[Diagnosis, ...]:
    """Diagnose a trace from its verdicts, or every trace of a run (of `ids`) in order, each problem with remedies.

    `diagnose("runs/v1")` takes a run or the path of one; `diagnose(trace, verdicts)` a single trace. What the judge did
    not look at is not a problem. A chunk is irrelevant at level none. Where the answer refuses, what it leaves out is
    not held against it; a refusal is wrong where the chunks cover what was asked. An expected fact that the chunks do
    not hold is the retriever's (uncovered_statement), one that they hold, or may hold, and the answer lacks is the
    generator's (absent_fact).

    Raises UnknownName for an id that no trace has, UsageError for a trace without verdicts, RunError where there is no
    run at a path.

    >>> from ragfault import Chunk, Trace, Verdicts
    >>> from ragfault.model.records import ChunkVerdict
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="On dogs."),))
    >>> verdicts = Verdicts(trace="1", chunk=(ChunkVerdict(chunk="a", relevance=0.1, level="none"),))
    >>> [problem.kind for problem in diagnose(trace, verdicts).problems]
    ['nothing_relevant', 'irrelevant_chunk']
    """
    if not isinstance(source, Trace):
        return tuple(diagnose_run(source, ids))
    if verdicts is None:
        raise UsageError("a single trace is diagnosed from its verdicts: give diagnose(trace, verdicts), or a run.")
    return _complete_diagnosis(source, verdicts, rate_trace(source, verdicts, {}), localize_recorded_step(source))


def diagnose_run(source: AnyRun | RunTable, ids: Sequence[str] | None = None) -> Iterator[Diagnosis]:
    """Diagnose every trace (of `ids`) in order, with its triad and quality level where the run has them.

    Where a score table has human labels, they take the place of verdicts. The first faulty step is located where `ids`
    are given: it takes some milliseconds a trace.
    Raises UnknownName for an id that no trace has.
    """
    table = open_table(source)
    run, items = table.run, table.labels.items if table.labels else {}
    if ids is None:
        triads = table.list_triads()
        for row, (trace, verdicts) in enumerate(run.evidence()):
            labeled = apply_labels(verdicts, items.get(trace.id, {}))
            yield _complete_diagnosis(trace, labeled, table.causes[row], triad=triads[row])
        return
    _check_ids(run, ids)
    rows = [row for row in run.scores(ids) if metric_name(row.metric) == "triad"]
    values = {row.trace: row.value for row in reversed(rows) if row.value is not None}
    for (trace, verdicts), cause in zip(run.evidence(ids), read_causes(run, ids, items), strict=True):
        labeled = apply_labels(verdicts, items.get(trace.id, {}))
        step, triad = localize_recorded_step(trace), values.get(trace.id, math.nan)
        yield _complete_diagnosis(trace, labeled, cause, step, triad)


def _complete_diagnosis(
    trace: Trace, verdicts: Verdicts, cause: AnswerCause, faulty_step: FaultyStep | None = None, triad: float = math.nan
) -> Diagnosis:
    """Diagnose a trace, with its faulty step, its triad and quality level where there is one, and its assessment."""
    diagnosis = replace(diagnose_trace(trace, verdicts), faulty_step=faulty_step)
    if not math.isnan(triad):
        diagnosis = replace(diagnosis, triad=float(triad), quality=quality_level(triad).name)
    return replace(diagnosis, assessment=assess_trace(trace, verdicts, diagnosis, cause.rating), cause=cause)


def _check_ids(run: Run, ids: Sequence[str]) -> None:
    known = RunTable(run).ids if ids else []
    missing = set(ids).difference(known)
    if missing:
        raise UnknownName(f"trace in {run.path.name}", next(name for name in ids if name in missing), known)


def worst_traces(source: AnyRun | RunTable, n: int = 10) -> tuple[Diagnosis, ...]:
    """Return the `n` worst traces, worst first, without those that have no problem.

    Traces whose pipeline failed come first, then those whose answer or refusal is wrong by the answer key, most of the
    key contradicted or left out first, then other bad answers, then answers that nothing rates. Among these a trace is
    as bad as 1 − its triad, or, if it has none, as the share of the things looked at that are problems; then by the
    number of problems, then in the order of the run. An answer that
    agrees with its reference, and a refusal that is right by gold, are not among them, nor is one of which the answer
    key does not tell and whose level is good.
    """
    return _summarize(diagnose_run(source), n)[0].worst_traces()


def suggest_remedies(source: AnyRun | RunTable, examples: int = MAX_EXAMPLES) -> tuple[Remedy, ...]:
    """Return the kinds of problem of a run with their remedies, the most frequent first.

    Left out is missing context by words alone, where the gold of the run shows that most of these verdicts are wrong,
    and where no more traces have it than by mistake: the lower end of the share's interval is at most 0.18. So is then
    an answer although the chunks do not cover the query, where nothing but missing context says that.
    """
    table = open_table(source)
    summaries = _summarize(diagnose_run(table), 0, table.labels)
    return _choose_remedies(summaries, table, measure_gold_agreement(table), examples)


def find_doubtful_kinds(runs: Sequence[Run], diagnoses: Iterable[Iterable[Diagnosis]]) -> frozenset[ProblemKind]:
    """Find the kinds of problem that `suggest_remedies` leaves out of every one of these runs that has them.

    `diagnoses` are those of all traces of each run.
    """
    doubtful: set[ProblemKind] = set()
    believed: set[ProblemKind] = set()
    for run, own in zip(runs, diagnoses, strict=True):
        table = open_table(run)
        remedies = _summarize(own, 0)[0].suggest_remedies(table, 0)
        left_out = _find_doubtful(remedies, run, measure_gold_agreement(table))
        doubtful.update(left_out)
        believed.update(remedy.kind for remedy in remedies if remedy.kind not in left_out)
    return frozenset(doubtful - believed)


def leave_out(diagnosis: Diagnosis, kinds: Set[ProblemKind]) -> Diagnosis:
    """Return a diagnosis without the problems of some kinds.

    Without missing context, an answer although the chunks do not cover the query is none where nothing else says so.
    """
    present = {problem.kind for problem in diagnosis.problems}
    if present.isdisjoint(kinds):
        return diagnosis
    if "missing_context" in present.intersection(kinds) and not present & UNCOVERED_KINDS:
        kinds = {*kinds, "missed_refusal"}
    return replace(diagnosis, problems=tuple(problem for problem in diagnosis.problems if problem.kind not in kinds))


def _summarize(
    diagnoses: Iterable[Diagnosis], n: int, labels: HumanLabels | None = None
) -> tuple[DiagnosisSummary, DiagnosisSummary]:
    """Summarize diagnoses with and without the kinds that may be doubtful; the first summary keeps the `n` worst."""
    summary, believed = DiagnosisSummary(n, labels), DiagnosisSummary(0, labels)
    for row, diagnosis in enumerate(diagnoses):
        _add_to_summaries((summary, believed), row, diagnosis)
    return summary, believed


def _add_to_summaries(summaries: tuple[DiagnosisSummary, DiagnosisSummary], row: int, diagnosis: Diagnosis) -> None:
    summaries[0].add(row, diagnosis)
    summaries[1].add(row, leave_out(diagnosis, DOUBTFUL_KINDS))


class DiagnosisObserver:
    """Diagnoses of the traces in a pass, summarized with and without the kinds that may be doubtful."""

    trace_columns: Sequence[str] | None = None
    verdict_columns: Sequence[str] | None = None
    is_done = False

    def __init__(self, table: RunTable, n: int) -> None:
        self.summaries = DiagnosisSummary(n, table.labels), DiagnosisSummary(0, table.labels)
        """With all kinds, storing the `n` worst traces, and without the kinds that may be doubtful."""
        self.retrieval: list[RetrievalOutcome] = []
        self._items = table.labels.items if table.labels else {}
        self._causes = table.causes
        at = table.triad_column()
        # An analysis reads all scores anyway, so they are not read for the triad only.
        self._triads = [math.nan] * table.traces if at is None else table.values[:, at].tolist()

    def add(self, batch: TraceBatch) -> None:
        """Diagnose the next traces."""
        for row, (trace, verdicts) in enumerate(zip(batch.traces, batch.evidence, strict=True), batch.start):
            seen = apply_labels(verdicts, self._items.get(trace.id, {}))
            self.retrieval.append(observe_retrieval(trace, seen))
            diagnosis = _complete_diagnosis(trace, seen, self._causes[row], triad=self._triads[row])
            _add_to_summaries(self.summaries, row, diagnosis)


def _choose_remedies(
    summaries: Sequence[DiagnosisSummary], table: RunTable, agreements: tuple[GoldAgreement, ...], examples: int
) -> tuple[Remedy, ...]:
    """Return the remedies of the first summary, or those of the second where a kind in the first is doubtful."""
    remedies = summaries[0].suggest_remedies(table, examples)
    if _find_doubtful(remedies, table.run, agreements):
        return summaries[1].suggest_remedies(table, examples)
    return remedies


def _find_doubtful(
    remedies: tuple[Remedy, ...], run: Run, agreements: tuple[GoldAgreement, ...]
) -> frozenset[ProblemKind]:
    """Find missing context where it rests on verdicts by words that are mostly wrong, or as rare as false alarms."""
    if run.manifest.gold == "apply" and agreements:
        return frozenset()
    is_wrong = any(
        item.verdict == "missing context" and item.statistic == "precision" and item.usable is False
        for item in agreements
    )
    by_words = run.manifest.judge.startswith(WORD_JUDGES)
    return frozenset(
        remedy.kind
        for remedy in remedies
        if remedy.kind in DOUBTFUL_KINDS
        and (is_wrong or (by_words and remedy.share.low <= FALSE_POSITIVE_RATES[remedy.kind]))
    )


def failure_score(diagnosis: Diagnosis) -> float:
    """Return how bad a trace is, for ranking.

    0 if the answer key says it is right, in [0, 1] if nothing says that it is bad, in (1, 2] if the judge, people or
    the record say so, in [2, 3] if the key does, and 4 if the pipeline failed.
    """
    if any(problem.kind == "pipeline_error" for problem in diagnosis.problems):
        return PIPELINE_FAILURE
    rating = None if diagnosis.cause is None else diagnosis.cause.rating
    if rating is not None and rating.source == "answer key" and rating.outcome != "unsure":
        return 0.0 if rating.outcome == "right" else 3.0 - (diagnosis.key_agreement or 0.0)
    # A refusal that nothing rates has no triad, and would come before each answer that is known to be bad.
    rated_bad = 1.0 if rating is not None and rating.outcome == "bad" else 0.0
    if diagnosis.triad is not None:
        return rated_bad + 1 - diagnosis.triad
    return rated_bad + (min(1.0, len(diagnosis.problems) / diagnosis.checked) if diagnosis.checked else 0.0)


def _is_right(diagnosis: Diagnosis) -> bool:
    """Return whether the answer is right by the answer key, or of a good level where that does not tell."""
    is_good = diagnosis.key_outcome == "cannot tell" and diagnosis.quality in GOOD_LEVELS
    rating = None if diagnosis.cause is None else diagnosis.cause.rating
    return is_good or (rating is not None and (rating.source, rating.outcome) == ("answer key", "right"))


class DiagnosisSummary:
    """Summary of the diagnoses of a run that stores only the worst ones."""

    def __init__(self, n: int, labels: HumanLabels | None = None) -> None:
        self._n = n
        self._items: Mapping[str, LabeledItems] = {} if labels is None else labels.items
        self._worst_heap: list[tuple[float, int, int, Diagnosis]] = []
        self._problem_counts: Counter[ProblemKind] = Counter()
        self._confirmed: set[ProblemKind] = set()
        self._rows_by_kind: defaultdict[ProblemKind, list[int]] = defaultdict(list)
        self._worst_by_kind: defaultdict[ProblemKind, list[tuple[float, int, ProblemExample]]] = defaultdict(list)
        self.key_outcomes: Counter[KeyOutcome] = Counter()
        """What the answer key says of the answers → traces."""
        self.causes: list[AnswerCause] = []

    def add(self, row: int, diagnosis: Diagnosis) -> None:
        """Add the diagnosis of a row."""
        if diagnosis.cause is not None:
            self.causes.append(diagnosis.cause)
        if diagnosis.key_outcome is not None:
            self.key_outcomes[diagnosis.key_outcome] += 1
        if not diagnosis.problems:
            return
        bad = failure_score(diagnosis)
        if self._n and (bad == PIPELINE_FAILURE or not _is_right(diagnosis)):
            push = heapq.heappush if len(self._worst_heap) < self._n else heapq.heappushpop
            push(self._worst_heap, (bad, len(diagnosis.problems), -row, diagnosis))
        kinds = Counter(problem.kind for problem in diagnosis.problems)
        self._problem_counts += kinds
        if diagnosis.key_outcome not in (None, "cannot tell", *RIGHT_OUTCOMES):
            self._confirmed.update(kinds)
        labeled_parts = {key[0] for key in self._items.get(diagnosis.trace, ())}
        self._confirmed.update(kind for kind in kinds if PART_BY_KIND.get(kind) in labeled_parts)
        for kind in kinds:
            self._rows_by_kind[kind].append(row)
            examples = self._worst_by_kind[kind]
            push_example = heapq.heappush if len(examples) < MAX_EXAMPLES else heapq.heappushpop
            # a failed pipeline explains the rest
            shown = bad if bad < PIPELINE_FAILURE or kind == "pipeline_error" else 0.0
            push_example(examples, (shown, -row, _build_example(diagnosis, kind)))

    def worst_traces(self) -> tuple[Diagnosis, ...]:
        """Return the worst traces, worst first."""
        return tuple(entry[-1] for entry in sorted(self._worst_heap, key=lambda entry: entry[:3], reverse=True))

    def suggest_remedies(self, table: RunTable, examples: int = MAX_EXAMPLES) -> tuple[Remedy, ...]:
        """Return the remedies, the most frequent first, and last what may be false positives alone.

        Their examples are the worst traces.
        """
        remedies = [self._build_remedy(kind, table, examples) for kind in self._rows_by_kind]
        return tuple(
            sorted(
                remedies,
                key=lambda remedy: (remedy.may_be_false_positives, -remedy.traces, -remedy.problems, remedy.kind),
            )
        )

    def _get_false_positive_rate(self, kind: ProblemKind, table: RunTable) -> float | None:
        """Return how often the judge sees a kind of problem where there is none; None where that does not decide.

        It does not where the answer key or a label says that any of the traces is wrong, and for what gold decides.
        The share of traces in a language that the judge does not know counts as well.
        """
        run = table.run
        by_gold = kind in RELEVANCE_KINDS and run.manifest.gold == "apply" and table.has_gold
        if by_gold or kind in self._confirmed or not run.manifest.judge.startswith(WORD_JUDGES):
            return None
        rate = FALSE_POSITIVE_RATES.get(kind)
        unknown = 0.0 if kind in WORDLESS_KINDS else table.estimate_unknown_share()
        return min(1.0, (rate or 0.0) + unknown) if unknown else rate

    def _build_remedy(self, kind: ProblemKind, table: RunTable, examples: int) -> Remedy:
        shows = np.zeros(table.traces, dtype=bool)
        shows[self._rows_by_kind[kind]] = True
        share = estimate_mean(shows, table.clusters)
        # a run has traces
        assert share is not None
        meaning = PROBLEM_KINDS[kind]
        shown = [entry[-1] for entry in sorted(self._worst_by_kind[kind], key=lambda entry: entry[:2], reverse=True)]
        return Remedy(
            kind=kind,
            layer=meaning.layer,
            title=meaning.title,
            steps=meaning.steps,
            problems=self._problem_counts[kind],
            traces=len(self._rows_by_kind[kind]),
            share=share,
            examples=tuple(example.trace for example in shown)[:examples],
            example=shown[0],
            false_positive_rate=self._get_false_positive_rate(kind, table),
        )


def _build_example(diagnosis: Diagnosis, kind: ProblemKind) -> ProblemExample:
    first = next(problem for problem in diagnosis.problems if problem.kind == kind)
    return ProblemExample(trace=diagnosis.trace, query=diagnosis.query, text=first.text, reason=first.reason)


def analyze(
    run: AnyRun,
    *,
    n: int = 10,
    by: str = "route",
    targets: Thresholds = TARGETS,
    routes: Mapping[str, Thresholds] | None = None,
    corrected: CardChoice = False,
    labels: HumanLabels | None = None,
    sample: int = SAMPLE_TRACES,
) -> Findings:
    """Analyze a run in one pass over its data.

    `n` is the number of worst traces, `by` what the scorecard is divided by (left out where all traces are of one
    segment). `targets` are thresholds of means, `routes` those of single routes, which go before them; with `corrected`
    figures are corrected for the judge's error by its card, with human `labels` of some traces by these. Of a larger
    run without labels a random sample of `sample` traces is analyzed, and the manifest in the findings says so; 0
    takes all.

    Raises UnknownName for another field than there is, RunError where the run is not whole, UsageError where the
    judge has no card to correct by.

    >>> import tempfile
    >>> from ragfault import Chunk, Gold, Trace, analyze, evaluate
    >>> def retrieve(number, chunk):
    ...     chunks, gold = (Chunk(id=chunk, text=f"Pier {chunk}."),), Gold(chunks={"a": 1.0})
    ...     return Trace(id=f"{number}", query=f"When does ferry {number} leave?", chunks=chunks, gold=gold)
    >>> traces = [retrieve(number, "ab"[number % 2]) for number in range(40)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     findings = analyze(evaluate(traces, f"{folder}/run", metrics=["recall"]))
    >>> [(row.metric, row.interval.mean, row.result) for row in findings.scorecard.aggregates]
    [('recall', 0.5, 'fail')]
    """
    table = RunTable(sample_run(open_run(run), 0 if labels else sample), labels)
    targets = tuple(targets)
    diagnoses, gold = DiagnosisObserver(table, n), GoldObserver()
    segmented = [by] if by in SEGMENT_FIELDS else ["metadata"]
    table.load(diagnoses, gold, columns=["route", "turn", *segmented])
    levels, unrated = count_quality(table)
    parts = build_segments(table, by, targets, routes)
    agreements = gold.measure_agreement()
    causes, retrieval = diagnoses.summaries[0].causes, summarize_retrieval(diagnoses.retrieval, table.clusters)
    return Findings(
        run=table.run.path.name,
        manifest=table.run.manifest,
        scorecard=build_scorecard(table, targets, corrected=corrected),
        health=assess_health(causes, retrieval, table.clusters),
        rag=assess_rag(table),
        quality=levels,
        unrated=unrated,
        pairs=pair_tradeoffs(table),
        insights=compute_insights(table),
        worst=diagnoses.summaries[0].worst_traces(),
        remedies=_choose_remedies(diagnoses.summaries, table, agreements, MAX_EXAMPLES),
        segments=parts if len(parts) > 1 else (),
        gold_agreement=agreements,
        cause_agreement=None if labels is None else measure_cause_agreement(list(read_causes(table.run)), labels.items),
        answers=count_causes(causes, table.clusters),
        attempts=None if table.queries is None else assess_attempts(table, causes),
        retrieval=retrieval,
        key_outcomes=dict(diagnoses.summaries[0].key_outcomes),
        suspected_injections=table.injections,
        languages=table.languages,
        markup_answers=table.texts.wrapped,
        unmatched_gold=gold.count_unmatched(),
    )


def compute_insights(source: AnyRun | RunTable) -> tuple[ChunkInsight, ...]:
    """Compute the mean relevance and the share used of the chunks of a run in each bucket of each property."""
    table = open_table(source)
    return compute_chunk_insights(table.chunks, table.segment_codes("turn"), table.segment_codes("route"))
