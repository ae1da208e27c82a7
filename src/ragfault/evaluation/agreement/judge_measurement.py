"""Measure how far a judge agrees with human labels, on labeled traces or on a labeled run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from ragfault.errors import InputError, JudgeError, UnknownName, UsageError
from ragfault.evaluation.agreement import units as beside
from ragfault.evaluation.agreement.figures import (
    IntervalOptions,
    PositiveCalls,
    call_positive,
    compute_agreement,
    compute_curves,
    compute_span_agreement,
)
from ragfault.evaluation.agreement.human_labels import (
    ANSWER_INDEPENDENT,
    LabelConsensus,
    VerdictKey,
    VerdictValue,
    fingerprint_answer,
    read_labels,
    resolve_labels,
)
from ragfault.evaluation.agreement.human_verdicts import LabelReading, compare_metrics
from ragfault.evaluation.agreement.judge_runner import run_judge
from ragfault.evaluation.agreement.labeled_traces import (
    TASK_OBJECTS,
    LabeledSource,
    LabeledTrace,
    LabeledTraces,
    LabelOptions,
    check_columns,
    get_value,
    load_labeled_traces,
)
from ragfault.evaluation.agreement.measurement import (
    JudgeMeasurement,
    JudgeSpeed,
    LabelTask,
    SpanAgreement,
    UnitAgreement,
)
from ragfault.evaluation.agreement.units import ScoredUnits, derive_claim_traces
from ragfault.io.error_collector import OnBad
from ragfault.io.files import describe_input
from ragfault.io.runs import Run
from ragfault.judges import DEFAULT_JUDGE, apply_profile, load_judge
from ragfault.judges.domain.profile import DomainProfile
from ragfault.protocols import VERDICT_KINDS, Judge, VerdictKind
from ragfault.records import Trace, Verdicts
from ragfault.stats.classification import rank_within_groups

BAD_CLAIMS = ("unsupported", "contradicted")


class RecordedJudge:
    """A judge that says again what it said in a run; of other traces it says nothing.

    >>> judge = RecordedJudge("recorded/1", [Verdicts(trace="1", missing=("the year",))])
    >>> [seen.missing for seen in judge.observe([Trace(id="1", query="When?"), Trace(id="2", query="Who?")])]
    [('the year',), None]
    """

    offers: frozenset[VerdictKind] = frozenset(VERDICT_KINDS)

    def __init__(self, fingerprint: str, verdicts: Sequence[Verdicts]) -> None:
        self.fingerprint = fingerprint
        self._verdicts = {each.trace: each for each in verdicts}

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [self._verdicts.get(trace.id) or Verdicts(trace=trace.id) for trace in traces]


class RunLabels(NamedTuple):
    """What people said of a run."""

    traces: list[Trace]
    """Those with labels, which stand in their metadata as `claims` and `grades`."""
    readings: Mapping[str, LabelReading]
    judge: RecordedJudge
    task: LabelTask
    notes: list[str]


def load_run_labels(run: str | Path | Run, labels: str | Path, task: LabelTask | None) -> RunLabels:
    """The labels that `ragfault label` wrote on a run, in the form that a measurement takes.

    Words on another answer than that of the run are left out, save those on the retrieval. Raises InputError where
    no label is on a trace of the run, or none is on a claim or a chunk; RunError where there is no run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    said = resolve_labels(read_labels(labels))
    traces, words, other = [], {}, 0
    for trace in run.traces(list(said)):
        mine = _valid_values(said[trace.id], trace)
        other += len(mine) < len(said[trace.id].values)
        words[trace.id] = LabelReading(mine, said[trace.id].reviewed_parts)
        traces.append(replace(trace, metadata={**trace.metadata, **_label_columns(mine)}))
    kinds = {key[0] for each in words.values() for key in each.values}
    if not kinds & {"claim", "chunk"}:
        raise InputError(
            f"{labels} holds no label of a claim or a chunk of {run.path}. Make some with: ragfault label {run.path}"
        )
    disputed = sum(each.disputed for each in said.values())
    notes = [
        text
        for count, text in (
            (len(said) - len(traces), "labels are of no trace of the run"),
            (other, "traces have another answer now: only what was said of the retrieval counts"),
            (
                disputed,
                "words are disputed among people: the majority counts, and none where there is no majority",
            ),
        )
        if count
        for text in [f"{count:,} {text}"]
    ]
    told: LabelTask = task or ("support" if "claim" in kinds else "relevance")
    return RunLabels(
        traces, words, RecordedJudge(run.manifest.judge, list(run.verdicts(list(words)))), told, notes
    )


def _valid_values(consensus: LabelConsensus, trace: Trace) -> dict[VerdictKey, VerdictValue]:
    """What holds of the words with the answer that the trace has."""
    same = consensus.answer in (None, fingerprint_answer(trace))
    return {key: word for key, word in consensus.values.items() if same or key[0] in ANSWER_INDEPENDENT}


def _label_columns(values: Mapping[VerdictKey, VerdictValue]) -> dict[str, Any]:
    """The words on claims and chunks as columns beside a trace."""
    claims = [
        {"start": key[1], "end": key[2], "label": "unsupported" if word in BAD_CLAIMS else "supported"}
        for key, word in values.items()
        if key[0] == "claim"
    ]
    grades = {key[1]: word for key, word in values.items() if key[0] == "chunk" and key[2] == "level"}
    return {"claims": claims or None, "grades": grades or None}


MAX_SLICES = 100
"""So many values of a column have a row each; the largest, where there are more."""

TASK_PARTS = {"answer": "claim", "support": "claim", "relevance": "chunk"}
"""Task → the part of the verdicts that it lives on."""


class JudgedLabels(NamedTuple):
    """What people and the judge said, trace by trace."""

    labeled: Sequence[LabeledTrace]
    verdicts: Sequence[Verdicts]
    claim_verdicts: Sequence[Verdicts]
    """On the claims of people that are not in their answers."""
    readings: Mapping[str, LabelReading] | None = None
    """What people said of the items of a run, by trace; None: the labels are all there is."""

    def groups(self, units: ScoredUnits) -> list[str]:
        """The group of each unit."""
        return [self.labeled[place].group for place in units.trace.tolist()]


class MeasurementOptions(NamedTuple):
    """Who was measured on what, and what figures are wanted."""

    judge: str
    source: tuple[str, ...]
    threshold: str
    within: tuple[str, ...]
    by: str | None
    intervals: IntervalOptions


def build_measurement(
    labeled: LabeledTraces, judged: JudgedLabels, options: MeasurementOptions, speed: JudgeSpeed
) -> JudgeMeasurement:
    """All figures. Raises JudgeError where the judge has no verdict on any unit."""
    main = _main_units(labeled.task, judged)
    failures = _count_failures(labeled.task, judged, main)
    if not main.score.size:
        reason = next(iter(failures), "it has no verdict on what people labelled")
        name = options.judge.split(maxsplit=1)[0]
        raise JudgeError(f'the judge "{name}" cannot be measured here: {reason}')
    groups, terms = judged.groups(main), options.intervals
    called = call_positive(main, groups, options.threshold, terms.seed)
    inner = _inner_keys(judged, main, options.within) if options.within else None
    slices, note = _measure_slices(judged, main, called, inner, options) if options.by else ([], [])
    measured, lost = len(set(main.trace.tolist())), sum(failures.values())
    whole = compute_agreement(main, groups, called, terms, inner=inner)
    return JudgeMeasurement(
        **_describe_setup(labeled, options),
        cut=called.threshold,
        traces=measured,
        failed=lost,
        unjudged=len(judged.labeled) - measured - lost,
        failures=failures,
        views=(whole, *_span_views(labeled.task, judged, options.threshold, terms)),
        span_agreement=_measure_spans(judged, terms) if labeled.task != "relevance" else None,
        slices=tuple(slices),
        cells=len(list(rank_within_groups(main.score, main.label, inner))) if inner else 0,
        curves=compute_curves(main),
        metrics=compare_metrics(judged.labeled, judged.verdicts, terms, judged.readings),
        speed=speed,
        notes=(*labeled.notes, *_note_unmarked(judged), *note),
    )


def _describe_setup(labeled: LabeledTraces, options: MeasurementOptions) -> dict[str, Any]:
    """What is known before any figure."""
    return {
        "judge": options.judge,
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


def _main_units(task: LabelTask, judged: JudgedLabels) -> ScoredUnits:
    """The units of the task."""
    if task == "answer":
        return beside.build_units("answer", list(beside.iterate_answers(judged.labeled, judged.verdicts)))
    if task == "support":
        return beside.build_units(
            "claim", list(beside.iterate_claims(judged.labeled, judged.verdicts, judged.claim_verdicts))
        )
    return beside.build_chunk_units(judged.labeled, judged.verdicts)


def _span_views(
    task: LabelTask, judged: JudgedLabels, threshold: str, intervals: IntervalOptions
) -> Iterator[UnitAgreement]:
    """What the marked stretches tell of claims and sentences."""
    if task == "relevance" or all(one.spans is None for one in judged.labeled):
        return
    kinds = [beside.build_units("sentence", list(beside.iterate_sentences(judged.labeled, judged.verdicts)))]
    if task == "answer":
        kinds.insert(
            0,
            beside.build_units(
                "claim", list(beside.iterate_claims(judged.labeled, judged.verdicts, judged.claim_verdicts))
            ),
        )
    for units in kinds:
        if units.score.size:
            groups = judged.groups(units)
            yield compute_agreement(
                units, groups, call_positive(units, groups, threshold, intervals.seed), intervals
            )


def _measure_spans(judged: JudgedLabels, intervals: IntervalOptions) -> SpanAgreement | None:
    found = list(beside.iterate_spans(judged.labeled, judged.verdicts))
    return compute_span_agreement(found, [one.group for one in judged.labeled], intervals)


def _count_failures(task: LabelTask, judged: JudgedLabels, main: ScoredUnits) -> dict[str, int]:
    """Why the judge lost traces that people labelled, and how many."""
    there = set(main.trace.tolist())
    reasons = [
        beside.get_failure(verdicts, TASK_PARTS[task])
        for place, verdicts in enumerate(judged.verdicts)
        if place not in there
    ]
    return dict(Counter(reason for reason in reasons if reason is not None).most_common())


def _note_unmarked(judged: JudgedLabels) -> list[str]:
    """Bad answers in which nothing is marked say nothing of their claims."""
    count = sum(one.spans == () and bool(one.positive) for one in judged.labeled)
    return [f"{count:,} bad answers without a marked stretch count as answers alone"] if count else []


def _inner_keys(judged: JudgedLabels, units: ScoredUnits, columns: Sequence[str]) -> list[Hashable]:
    """The values of some columns, for each unit."""
    each = [tuple(str(get_value(one.trace, name)) for name in columns) for one in judged.labeled]
    return [each[place] for place in units.trace.tolist()]


def _measure_slices(
    judged: JudgedLabels,
    main: ScoredUnits,
    called: PositiveCalls,
    inner: list[Hashable] | None,
    options: MeasurementOptions,
) -> tuple[list[UnitAgreement], list[str]]:
    """The figures for each value of a column (the largest, where there are too many), and what to say of the rest."""
    by, terms = options.by or "", options.intervals
    values = [str(get_value(one.trace, by)) for one in judged.labeled]
    names = np.array([values[place] for place in main.trace.tolist()])
    groups = np.array(judged.groups(main))
    counts = Counter(names.tolist())
    kept = sorted(name for name, _ in counts.most_common(MAX_SLICES))
    found = []
    for name in kept:
        here = names == name
        mine = [key for key, flag in zip(inner, here.tolist(), strict=True) if flag] if inner else None
        part = PositiveCalls(called.positive[here], called.threshold)
        found.append(
            compute_agreement(
                main.select(here), groups[here].tolist(), part, terms, inner=mine, value=str(name)
            )
        )
    more = len(counts) - len(kept)
    return found, [f"{more:,} smaller values of {by} have no row of their own"] if more else []


TASKS: tuple[LabelTask, ...] = ("answer", "support", "relevance")


def _ignore_progress(*_: object) -> None:
    """Tell nobody."""


def measure_judge(  # noqa: PLR0913 - the options of one verb
    source: LabeledSource | Iterable[Trace],
    *,
    run: str | Path | Run | None = None,
    judge: str | Judge | None = None,
    profile: str | Path | DomainProfile = "general",
    options: Mapping[str, Any] | None = None,
    task: LabelTask | None = None,
    positive: str | float | Sequence[str | float] = (),
    group: str | None = None,
    within: str | Sequence[str] = (),
    by: str | None = None,
    threshold: str | float = "cv",
    limit: int | None = None,
    seed: int = 0,
    resamples: int = 1000,
    workers: int = 1,
    on_bad: OnBad = "raise",
    progress: Callable[[int, int], None] = _ignore_progress,
    notice: Callable[[str], object] = _ignore_progress,
    **reading: Any,
) -> JudgeMeasurement:
    """How far a judge agrees with people, on traces with labels.

    `judge` is a name (made with `options`) or an object of the port's shape, looking through a `lens`; without it the
    default one. With a `run`, `where` is a file of labels that `ragfault label` wrote on it, and without a judge the
    verdicts of the run are measured as they stand.
    `where` and `reading` are what `read_traces` takes; `map` has four keys more, `label`, `spans`, `claims` and
    `grades`, for the columns of what people said, which are else known by their names. `task` is what people judged:
    "answer" as a whole (with marked `spans` also by claim and by sentence), "support" of single claims, or
    "relevance" of chunks; without it the columns tell. `positive` names the labels that are bad (relevance: the
    lowest grade that is relevant).

    A score is one less the judge's probability that an answer or a claim is supported, or the relevance of a
    chunk. Intervals resample whole groups: those of the column `group`. AUROC is also taken `within` columns; `by`
    a column gives figures for each of its values. F1 is taken at a `threshold`: "cv", the best of the other
    folds of groups; "own", the judge's word; or a number. `limit` draws whole groups until there are so many
    traces. Figures are the same for any order of the lines and any number of `workers`.

    Raises BadTraces for lines and labels that cannot be read, all at once (`on_bad` as for `read_traces`),
    InputError, UsageError, UnknownName; JudgeError where the judge has no verdict on any trace.

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
    columns = _split_columns(within)
    level = _check_options(task, threshold, workers, limit, seed)
    told = None if run is None else load_run_labels(run, cast("str | Path", source), task)
    judge = _resolve_judge(judge, profile, options, told)
    asked = LabelOptions(told.task if told else task, _to_texts(positive), group, limit, seed)
    given = load_labeled_traces(
        told.traces if told else source, asked, on_bad, notice, {**reading, **_label_map(told)}
    )
    traces = [one.trace for one in given.labeled]
    check_columns([*columns, *([by] if by else [])], traces)
    notice(_summarize_labels(given))
    seen, speed = run_judge(judge, [*traces, *derive_claim_traces(given.labeled)], workers, progress)
    given = given._replace(notes=[*(told.notes if told else ()), *given.notes])
    said = JudgedLabels(
        given.labeled, seen[: len(traces)], seen[len(traces) :], told.readings if told else None
    )
    frame = MeasurementOptions(
        judge.fingerprint, describe_input(source), level, columns, by, IntervalOptions(resamples, seed)
    )
    return build_measurement(given, said, frame, speed)


def _resolve_judge(
    judge: str | Judge | None,
    profile: str | Path | DomainProfile,
    options: Mapping[str, Any] | None,
    run_labels: RunLabels | None,
) -> Judge:
    """Who is measured: the one that was named, else that of the run, else the default one."""
    if judge is None and run_labels is not None:
        return run_labels.judge
    judge = DEFAULT_JUDGE if judge is None else judge
    made = load_judge(judge, **(options or {})) if isinstance(judge, str) else judge
    return apply_profile(made, profile)


def _label_map(run_labels: RunLabels | None) -> dict[str, Any]:
    """Where the labels of a run stand beside its traces."""
    if run_labels is None:
        return {}
    return {"map": {"claims": "claims"} if run_labels.task == "support" else {"grades": "grades"}}


def _split_columns(within: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that were named, in a list or with commas between them."""
    names = within.split(",") if isinstance(within, str) else within
    return tuple(name.strip() for name in names if name.strip())


def _check_options(
    task: LabelTask | None, threshold: str | float, workers: int, limit: int | None, seed: int
) -> str:
    """The threshold as it is known by; raises UsageError for what cannot be."""
    if task is not None and task not in TASKS:
        raise UnknownName("task", task, TASKS)
    if workers < 1 or (limit is not None and limit < 1):
        raise UsageError(f"workers and limit are at least 1, got workers={workers}, limit={limit}.")
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed is a whole number from 0 to 2**63 - 1, got {seed}.")
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


def _to_texts(positive: str | float | Sequence[str | float]) -> tuple[str, ...]:
    listed = [positive] if isinstance(positive, (str, int, float)) else positive
    return tuple(str(one) for one in listed)


def _summarize_labels(labeled: LabeledTraces) -> str:
    """What is measured, in a line."""
    bad = "relevant" if labeled.task == "relevance" else "bad"
    group = f"groups by {labeled.columns.group}" if labeled.columns.group else "every trace by itself"
    return f"task {labeled.task}: people judged {TASK_OBJECTS[labeled.task]}; {labeled.positive} is {bad}; {group}"
