"""Measurement of a judge against human labels, on labeled traces or on a labeled run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from ragfault.executors import choose_executor
from ragfault.io.files import describe_input
from ragfault.io.runs.run import Run
from ragfault.judges.calibration import wrap_judge
from ragfault.judges.loading import DEFAULT_JUDGE, apply_profile, limit_verdicts, load_judge
from ragfault.labels.consensus import resolve_labels
from ragfault.labels.judges.figures import (
    PositiveCalls,
    call_positive,
    compute_agreement,
    compute_curves,
    compute_order_figures,
    compute_span_agreement,
)
from ragfault.labels.judges.generator_order import compare_rankings
from ragfault.labels.judges.measurement import (
    AgreementFigure,
    JudgeMeasurement,
    JudgeSpeed,
    LabelTask,
    SpanAgreement,
    UnitAgreement,
)
from ragfault.labels.judges.permutation import DEFAULT_PERMUTED, PermutedTrace, permute_labels, restore_order
from ragfault.labels.judges.runner import RecordedJudge, run_judge
from ragfault.labels.judges.units import (
    ScoredUnits,
    build_answer_units,
    build_chunk_units,
    build_units,
    derive_claim_traces,
    get_failure,
    iterate_claims,
    iterate_sentences,
    iterate_spans,
    match_units,
)
from ragfault.labels.label import ANSWER_INDEPENDENT, Label, fingerprint_answer
from ragfault.labels.reading.human_verdicts import LabelReading, compare_metrics
from ragfault.labels.reading.label_columns import TASK_OBJECTS, check_columns, get_value
from ragfault.labels.reading.label_files import read_labels
from ragfault.labels.reading.labeled_traces import (
    GivenLabels,
    LabeledSource,
    LabeledTrace,
    LabeledTraces,
    load_labeled_traces,
    split_columns,
)
from ragfault.labels.settings import LabelSettings, MeasurementSettings
from ragfault.model.errors import InputError, JudgeError, UnknownName, UsageError, group_messages
from ragfault.model.protocols import Judge, MeteredJudge, VerdictKind
from ragfault.model.records import Trace, Verdicts
from ragfault.model.settings import accept_fields
from ragfault.stats.bootstrap import Resampling
from ragfault.stats.classification import rank_within_groups


class RunLabels(NamedTuple):
    """Human labels of a run."""

    given: GivenLabels
    readings: Mapping[str, LabelReading]
    judge: RecordedJudge
    notes: list[str]


def load_run_labels(run: str | Path | Run, labels: str | Path, task: LabelTask | None) -> RunLabels:
    """Load the labels that `ragfault label` wrote for a run, of claims and chunks.

    Labels of another answer than the run's are dropped, except those of the retrieval. Raises InputError
    where no label is on a trace of the run, or none is on a claim or a chunk; RunError where there is no run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    consensus_by_trace = resolve_labels(read_labels(labels))
    traces: list[Trace] = []
    labels_by_trace: dict[str, list[Label]] = {}
    readings, outdated = {}, 0
    for trace in run.traces(list(consensus_by_trace)):
        consensus = consensus_by_trace[trace.id]
        is_same = consensus.answer in (None, fingerprint_answer(trace))
        values = {key: value for key, value in consensus.values.items() if is_same or key[0] in ANSWER_INDEPENDENT}
        outdated += len(values) < len(consensus.values)
        readings[trace.id] = LabelReading(values, consensus.reviewed_parts)
        labels_by_trace[trace.id] = [Label(trace=trace.id, subject=key, value=value) for key, value in values.items()]
        traces.append(trace)
    kinds = {key[0] for item in readings.values() for key in item.values}
    if not kinds & {"claim", "chunk"}:
        raise InputError(
            f"{labels} holds no label of a claim or a chunk of {run.path}. Make some with: ragfault label {run.path}"
        )
    disputed = sum(item.disputed for item in consensus_by_trace.values())
    notes = [
        text
        for count, text in (
            (len(consensus_by_trace) - len(traces), "labels are of no trace of the run"),
            (outdated, "traces have another answer now: only labels of the retrieval count"),
            (disputed, "labels are disputed among annotators: the majority counts; without one the item has no label"),
        )
        if count
        for text in [f"{count:,} {text}"]
    ]
    if task == "answer":
        raise UsageError(
            f"{labels} holds labels of claims and chunks, not of answers. Name the task support or relevance."
        )
    given = GivenLabels(traces, labels_by_trace, task or ("support" if "claim" in kinds else "relevance"))
    return RunLabels(given, readings, RecordedJudge(run.manifest.judge, list(run.verdicts(list(readings)))), notes)


# rows of a column, of its largest values
MAX_SLICES = 100
# task → part of the verdicts it needs
TASK_PARTS = {"answer": "claim", "support": "claim", "relevance": "chunk"}


class JudgedLabels(NamedTuple):
    """Human labels and verdicts, trace by trace."""

    labeled: Sequence[LabeledTrace]
    verdicts: Sequence[Verdicts]
    # on labeled claims that are not in their answers
    claim_verdicts: Sequence[Verdicts]
    readings: Mapping[str, LabelReading] | None = None
    """Labels of the items of a run, by trace; None: only the labels of traces."""

    def groups(self, units: ScoredUnits) -> list[str]:
        """Return the group of each unit."""
        return [self.labeled[index].group for index in units.trace.tolist()]


class JudgedSource(NamedTuple):
    """Labeled traces with the verdicts of a judge."""

    # fingerprint
    judge: str
    labeled: LabeledTraces
    judged: JudgedLabels
    speed: JudgeSpeed
    # some of the traces, judged once more with their chunks in another order
    permuted: Sequence[PermutedTrace] = ()
    judged_again: JudgedLabels | None = None


class MeasurementOptions(NamedTuple):
    """Data and figures of a measurement."""

    source: tuple[str, ...]
    threshold: str
    within: tuple[str, ...]
    by: tuple[str, ...]
    intervals: Resampling


def build_measurement(judged_source: JudgedSource, options: MeasurementOptions) -> JudgeMeasurement:
    """Build all figures. Raises JudgeError where the judge has no verdict on any unit."""
    labeled, judged = judged_source.labeled, judged_source.judged
    main = build_main_units(labeled.task, judged)
    failures = _count_failures(labeled.task, judged, main)
    if not main.score.size:
        reason = next(iter(failures), "it has no verdict on what people labelled")
        name = judged_source.judge.split(maxsplit=1)[0]
        raise JudgeError(f'the judge "{name}" cannot be measured here: {reason}')
    groups, intervals = judged.groups(main), options.intervals
    calls = call_positive(main, groups, options.threshold, intervals.seed)
    inner_keys = _inner_keys(judged, main, options.within) if options.within else None
    divided = [_measure_slices(judged, main, calls, inner_keys, (name, intervals)) for name in options.by]
    measured, failed = len(set(main.trace.tolist())), sum(failures.values())
    overall = compute_agreement(main, groups, calls, intervals, inner=inner_keys)
    overall = replace(overall, figures=(*overall.figures, *_measure_order(judged_source, main)))
    traces = [judged.labeled[index].trace for index in main.trace.tolist()]
    return JudgeMeasurement(
        judge=judged_source.judge,
        **_describe_setup(labeled, options),
        cut=calls.threshold,
        traces=measured,
        failed=failed,
        unjudged=len(judged.labeled) - measured - failed,
        failures=failures,
        views=(overall, *_span_views(labeled.task, judged, options.threshold, intervals)),
        span_agreement=_measure_spans(judged, intervals) if labeled.task != "relevance" else None,
        slices=tuple(row for rows, _ in divided for row in rows),
        cells=len(list(rank_within_groups(main.score, main.label, inner_keys))) if inner_keys else 0,
        generator_rankings=tuple(compare_rankings(main, groups, traces, options.by, intervals)),
        curves=compute_curves(main),
        metrics=compare_metrics(judged.labeled, judged.verdicts, intervals, judged.readings),
        permutations=len(judged_source.permuted),
        speed=judged_source.speed,
        notes=(
            *labeled.notes,
            *_note_inversion(overall, labeled.positive),
            *_note_unmarked(judged),
            *(note for _, notes in divided for note in notes),
        ),
    )


def _describe_setup(labeled: LabeledTraces, options: MeasurementOptions) -> dict[str, Any]:
    """Return the fields that are known before any figure."""
    return {
        "source": options.source,
        "task": labeled.task,
        "columns": labeled.columns,
        "positive": labeled.positive,
        "threshold": options.threshold,
        "unlabelled": labeled.unlabeled,
        "skipped": labeled.skipped,
        "by": options.by,
        "within": options.within,
        "seed": options.intervals.seed,
        "resamples": options.intervals.resamples,
        "confidence": options.intervals.confidence,
    }


def build_main_units(task: LabelTask, judged: JudgedLabels) -> ScoredUnits:
    """Build the units of a task: answers, claims or chunks."""
    if task == "answer":
        return build_answer_units(judged.labeled, judged.verdicts)
    if task == "support":
        return build_units("claim", list(iterate_claims(judged.labeled, judged.verdicts, judged.claim_verdicts)))
    return build_chunk_units(judged.labeled, judged.verdicts)


def _measure_order(judged_source: JudgedSource, main: ScoredUnits) -> tuple[AgreementFigure, ...]:
    """Measure what another order of the chunks changes; nothing if no trace was judged again."""
    again = judged_source.judged_again
    if again is None:
        return ()
    moved = build_main_units(judged_source.labeled.task, again)
    indices = np.array([item.place for item in judged_source.permuted], np.intp)
    first, second = match_units(main.select(np.isin(main.trace, indices)), moved._replace(trace=indices[moved.trace]))
    return compute_order_figures(first, second, judged_source.judged.groups(first))


def _span_views(
    task: LabelTask, judged: JudgedLabels, threshold: str, intervals: Resampling
) -> Iterator[UnitAgreement]:
    """Yield the agreement on claims and sentences by labeled spans."""
    if task == "relevance" or all(item.spans is None for item in judged.labeled):
        return
    kinds = [build_units("sentence", list(iterate_sentences(judged.labeled, judged.verdicts)))]
    if task == "answer":
        kinds.insert(
            0, build_units("claim", list(iterate_claims(judged.labeled, judged.verdicts, judged.claim_verdicts)))
        )
    for units in kinds:
        if units.score.size:
            groups = judged.groups(units)
            yield compute_agreement(units, groups, call_positive(units, groups, threshold, intervals.seed), intervals)


def _measure_spans(judged: JudgedLabels, intervals: Resampling) -> SpanAgreement | None:
    overlaps = list(iterate_spans(judged.labeled, judged.verdicts))
    return compute_span_agreement(overlaps, [item.group for item in judged.labeled], intervals)


def _count_failures(task: LabelTask, judged: JudgedLabels, main: ScoredUnits) -> dict[str, int]:
    """Count the reasons of failures on labeled traces."""
    measured = set(main.trace.tolist())
    reasons = [
        get_failure(verdicts, TASK_PARTS[task])
        for index, verdicts in enumerate(judged.verdicts)
        if index not in measured
    ]
    return group_messages(Counter(reason for reason in reasons if reason is not None))


def _note_inversion(overall: UnitAgreement, positive: str) -> list[str]:
    """Note that the judge ranks worse than chance, as it does where the labels are read the wrong way round."""
    auroc = overall.figure("auroc")
    if auroc is None or auroc.value is None or overall.n < MIN_INVERTED_UNITS:
        return []
    if (auroc.value if auroc.high is None else auroc.high) >= INVERTED_AUROC:
        return []
    return [f"the judge ranks the other way round (AUROC {auroc.value:.2f}): does `{positive}` mean what it should?"]


INVERTED_AUROC, MIN_INVERTED_UNITS = 0.5, 10
"""An interval of AUROC below it, of so many units, says that the judge ranks the other way round."""


def _note_unmarked(judged: JudgedLabels) -> list[str]:
    """Note bad answers without a span, which say nothing of their claims."""
    count = sum(item.spans == () and bool(item.positive) for item in judged.labeled)
    return [f"{count:,} bad answers without a marked stretch count only as answers"] if count else []


def _inner_keys(judged: JudgedLabels, units: ScoredUnits, columns: Sequence[str]) -> list[Hashable]:
    """Return the values of some columns for each unit."""
    keys = [tuple(str(get_value(item.trace, name)) for name in columns) for item in judged.labeled]
    return [keys[index] for index in units.trace.tolist()]


def _measure_slices(
    judged: JudgedLabels,
    main: ScoredUnits,
    called: PositiveCalls,
    inner: list[Hashable] | None,
    division: tuple[str, Resampling],
) -> tuple[list[UnitAgreement], list[str]]:
    """Measure each value of a column (the largest, where there are too many), with a note on the others."""
    by, intervals = division
    values = [str(get_value(item.trace, by)) for item in judged.labeled]
    names = np.array([values[index] for index in main.trace.tolist()])
    groups = np.array(judged.groups(main))
    counts = Counter(names.tolist())
    largest = sorted(name for name, _ in counts.most_common(MAX_SLICES))
    slices = []
    for name in largest:
        selected = names == name
        selected_keys = [key for key, flag in zip(inner, selected.tolist(), strict=True) if flag] if inner else None
        calls = PositiveCalls(called.positive[selected], called.threshold)
        agreement = compute_agreement(
            main.select(selected), groups[selected].tolist(), calls, intervals, inner=selected_keys
        )
        slices.append(replace(agreement, column=by, value=str(name)))
    omitted = len(counts) - len(largest)
    return slices, [f"{omitted:,} smaller values of {by} have no row of their own"] if omitted else []


TASK_VERDICTS: dict[LabelTask, tuple[VerdictKind, ...]] = {
    "answer": ("answer", "claim"), "support": ("claim",), "relevance": ("chunk",),
}  # fmt: skip
"""Task of labels → kinds of verdict that are measured by them."""


@accept_fields(MeasurementSettings)
def measure_judge(source: LabeledSource | Iterable[Trace], settings: MeasurementSettings) -> JudgeMeasurement:
    """Measure how far a judge agrees with human labels.

    Labels and judge are those that `judge_labels` takes.

    Scores are 1 minus the probability of support, or the relevance of a chunk. Intervals resample whole groups: values
    of the column `group`. AUROC is also computed `within` columns; `by` columns give figures for each of their values.
    `permutations` judges so many traces once more with their chunks in another order (None: 200, 0 of a paid judge).
    F1 is computed at a `threshold`: "cv", the best of the other folds; "own", the judge's own; or a number. Figures do
    not depend on the order of lines or on what judges, `workers` or an `executor`.

    Raises what `judge_labels` raises; JudgeError where the judge has no verdict on any trace.

    >>> from ragfault import Chunk, Trace
    >>> labels = {"It opens at 7:30.": 0, "It opens at 9:00.": 1}
    >>> chunk = Chunk(id="a", text="The office opens at 7:30 on weekdays.")
    >>> traces = [
    ...     Trace(id=answer, query="When?", chunks=(chunk,), answer=answer, metadata={"label": label})
    ...     for answer, label in labels.items()
    ... ]
    >>> result = measure_judge(traces, group="id")
    >>> result.task, result.overall.n, result.overall.positives, result.overall.figure("auroc").value
    ('answer', 2, 1, 1.0)
    """
    within, by = split_columns(settings.within), split_columns(settings.by)
    threshold = _check_threshold(settings.threshold)
    judged = judge_labels(source, settings, columns=[*within, *by], permute=settings.permutations)
    traces = [item.trace for item in judged.labeled.labeled]
    within = within or find_columns(PAIR_COLUMNS, traces, len(traces))
    by = by or find_columns(KIND_COLUMNS, traces, MAX_KINDS)
    intervals = Resampling(settings.resamples, settings.seed)
    return build_measurement(judged, MeasurementOptions(describe_input(source), threshold, within, by, intervals))


PAIR_COLUMNS = ("pair", "pair_id")
"""Columns of the pair of a good and a bad answer to one query, within which AUROC is computed unasked."""
KIND_COLUMNS, MAX_KINDS = ("kind", "language", "lang"), 30
"""Columns whose values get figures of their own unasked, unless there are more of them."""


def find_columns(names: Sequence[str], traces: Sequence[Trace], most: int) -> tuple[str, ...]:
    """Find the columns that have at least two values and at most so many."""
    values = {name: {str(get_value(trace, name)) for trace in traces} for name in names}
    return tuple(name for name in names if 1 < len(values[name]) <= most)


def judge_labels(
    source: LabeledSource | Iterable[Trace] | GivenLabels,
    settings: LabelSettings,
    *,
    columns: Sequence[str] = (),
    permute: int | None = 0,
) -> JudgedSource:
    """Load labels and let a judge look at their traces.

    `judge` is a name (loaded with `options`) or an object, with a domain `profile`; None: the default judge. With a
    `run`, `source` is a file of labels that `ragfault label` wrote for it, and without a judge its recorded verdicts
    are taken. `source` and the settings of reading are what `read_traces` takes; `map` has four more keys, `label`,
    `spans`, `claims` and `grades`, for the label columns, which are else detected by their names. `task` is "answer"
    (labels of whole answers, with `spans` also of claims and sentences), "support" (of single claims) or "relevance"
    (of chunks); None: inferred from the columns. `positive` names the labels that are bad (relevance: the lowest
    relevant grade). `limit` samples whole groups up to so many traces; `columns` must be there. `permute` traces are
    judged once more with their chunks in another order; None: 200 by a judge that costs nothing.

    Raises BadTraces for unreadable lines and labels, all at once (`on_bad` as for `read_traces`), InputError,
    UsageError and UnknownName.
    """
    executor = choose_executor(settings.workers, settings.executor, settings.ray)
    run_labels = None
    if settings.run is not None:
        run_labels = load_run_labels(settings.run, cast("str | Path", source), settings.task)
    labeled = load_labeled_traces(run_labels.given if run_labels else source, settings)
    traces = [item.trace for item in labeled.labeled]
    check_columns(columns, traces)
    judge = wrap_judge(_resolve_judge(settings, labeled.task, run_labels), settings.calibration)
    settings.on_notice(_summarize_labels(labeled))
    permuted = permute_labels(labeled.labeled, _count_permuted(judge, permute), settings.seed)
    again = [item.labeled for item in permuted]
    parts = (traces, derive_claim_traces(labeled.labeled), [item.trace for item in again], derive_claim_traces(again))
    verdicts, speed = run_judge(judge, [trace for part in parts for trace in part], executor, settings.on_progress)
    remaining = iter(verdicts)
    on_traces, on_claims, on_permuted, on_permuted_claims = ([next(remaining) for _ in part] for part in parts)
    labeled = labeled._replace(notes=[*(run_labels.notes if run_labels else ()), *labeled.notes])
    judged = JudgedLabels(labeled.labeled, on_traces, on_claims, run_labels.readings if run_labels else None)
    restored = [restore_order(seen, traces[item.place]) for seen, item in zip(on_permuted, permuted, strict=True)]
    judged_again = JudgedLabels(again, restored, on_permuted_claims) if permuted else None
    return JudgedSource(judge.fingerprint, labeled, judged, speed, permuted, judged_again)


def _count_permuted(judge: Judge, permute: int | None) -> int:
    """Return how many traces are judged again: none of a run, and none unasked by a judge that costs money."""
    if isinstance(judge, RecordedJudge):
        return 0
    return (0 if isinstance(judge, MeteredJudge) else DEFAULT_PERMUTED) if permute is None else permute


def _resolve_judge(settings: LabelSettings, task: LabelTask, run_labels: RunLabels | None) -> Judge:
    """Return the given judge, else that of the run, else the default one."""
    if settings.judge is None and run_labels is not None:
        return run_labels.judge
    judge = DEFAULT_JUDGE if settings.judge is None else settings.judge
    if isinstance(judge, str):
        judge = load_judge(judge, **limit_verdicts(judge, TASK_VERDICTS[task]) | dict(settings.options or {}))
    return apply_profile(judge, settings.profile)


def _check_threshold(threshold: str | float) -> str:
    """Return the normalized threshold; raises UsageError for one that is none."""
    text = str(threshold)
    if text in ("cv", "own"):
        return text
    try:
        number = float(text)
    except ValueError:
        raise UnknownName("threshold", text, ["cv", "own", "a number from 0 to 1"]) from None
    if not 0 <= number <= 1:
        raise UsageError(f"the threshold {text} is not a score: give a number from 0 to 1, cv, or own.")
    return f"{number:g}"


def _summarize_labels(labeled: LabeledTraces) -> str:
    """Describe the measurement in a line."""
    bad = "relevant" if labeled.task == "relevance" else "bad"
    group = f"groups by {labeled.columns.group}" if labeled.columns.group else "every trace by itself"
    return f"task {labeled.task}: the labels are of {TASK_OBJECTS[labeled.task]}; {labeled.positive} is {bad}; {group}"
