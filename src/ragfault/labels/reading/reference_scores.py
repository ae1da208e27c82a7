"""Reference scores of a sample of traces, by people or a stronger judge, for prediction-powered correction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ragfault.io.runs.run import Run
from ragfault.judges.combined import list_second_verdicts
from ragfault.labels.consensus import LabelConsensus, resolve_labels
from ragfault.labels.correction import HumanLabels, LabeledItems
from ragfault.labels.judges.runner import hash_inputs
from ragfault.labels.label import ANSWER_INDEPENDENT, Label, fingerprint_answer
from ragfault.labels.reading.human_verdicts import (
    ITEM_OVERLAYS,
    LabelReading,
    compute_values,
    list_labeled_items,
    list_metrics,
    read_grades,
    read_marks,
)
from ragfault.labels.reading.label_files import iterate_label_rows, read_labels
from ragfault.labels.reading.labeled_traces import load_labeled_traces
from ragfault.labels.reading.layouts import ExpectedValues, recognize_row
from ragfault.labels.reading.lines import iterate_values
from ragfault.labels.records import LabelProvenance
from ragfault.labels.settings import LabelSettings
from ragfault.metrics.catalog import compute_score
from ragfault.model.errors import InputError, UsageError
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import Trace, Verdicts
from ragfault.model.work_settings import ignore_report

LabelForm = Literal["run", "labels", "values", "traces"]
MetricValues = dict[str, dict[str, float]]
LabelSource = str | Path

# annotators that are named
MAX_LABELERS_SHOWN = 3


def load_reference_scores(
    source: LabelSource, run: Run, *, shared: bool = False, notice: Callable[[str], object] = ignore_report
) -> HumanLabels:
    """Load human labels of a run as values of its metrics.

    `source` has one of four forms: another run over some of these traces, whose scores are taken as true (a stronger
    judge); labels as `ragfault label` writes them; a table (JSON Lines or CSV) with the column `trace` or `id` and
    columns named as metrics; or labeled traces as `measure_judge` takes them: claims or spans of the answer, grades of
    chunks. Labels replace the judge's verdicts, and a metric has a value on a trace where everything it reads was
    labeled. Where two runs share the file, labels of an answer count only where the answer is known.

    Raises InputError for an unreadable file, with all its bad lines, or one in which nothing matches the run;
    UsageError for a table of values shared by two runs.
    """
    kind = _detect_form(source, run)
    if kind == "values" and shared:
        raise UsageError(
            f"{source} has values of one run, and there are two: give --human-labels for each, first for the baseline."
        )
    loaded = FORM_LOADERS[kind](source, run, shared)
    matched = {name for value_by_trace in loaded.values.values() for name in value_by_trace}
    matched |= {name for name, items in loaded.items.items() if ("cause",) in items}
    if not matched:
        raise InputError(_no_match_message(source, run, loaded.labeled, kind))
    provenance = LabelProvenance(
        labelers=loaded.labelers,
        traces=len(matched),
        unmatched=len(loaded.labeled) - len(matched),
        disputed=loaded.disputed,
    )
    notice(_describe_labels(source, run, provenance))
    return HumanLabels(source=provenance, values=loaded.values, probabilities=loaded.probabilities, items=loaded.items)


def load_second_scores(run: Run, *, notice: Callable[[str], object] = ignore_report) -> HumanLabels | None:
    """Load what the second judge of a cascade would score, on the traces that it saw; None for another judge's run.

    They correct means for the choice of traces: the second judge saw all that the first was unsure of, and a known
    share of the others.
    """
    if not run.manifest.judge.startswith("cascade/"):
        return None
    metrics, values, chances = list_metrics(run), MetricValues(), {}
    for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
        for second in list_second_verdicts(verdicts):
            chances[trace.id] = verdicts.chance or 1.0
            judged = apply_gold(trace, second) if run.manifest.gold == "apply" else second
            for metric in metrics:
                if (value := compute_score(metric, trace, judged).value) is not None:
                    values.setdefault(str(metric), {})[trace.id] = value
    if not chances:
        return None
    provenance = LabelProvenance(
        labelers="the second judge of the cascade", traces=len(chances), unmatched=0, disputed=0
    )
    notice(_describe_labels(run.path, run, provenance))
    return HumanLabels(source=provenance, values=values, probabilities=chances)


def load_paired_reference_scores(
    sources: Sequence[LabelSource], runs: tuple[Run, Run], *, notice: Callable[[str], object] = ignore_report
) -> tuple[HumanLabels | None, HumanLabels | None]:
    """Load the labels of a baseline and a candidate: one file for both, or one for each, in this order.

    A shared file may match one of them only. Raises what `load_reference_scores` raises; UsageError for more than
    two files. Without a file the runs of a cascade are corrected by its second judge.
    """
    if not sources:
        return load_second_scores(runs[0], notice=notice), load_second_scores(runs[1], notice=notice)
    if len(sources) > 2:
        raise UsageError(f"--human-labels was given {len(sources)} times: once for both runs, or for each.")
    if len(sources) == 2:
        return load_reference_scores(sources[0], runs[0], notice=notice), load_reference_scores(
            sources[1], runs[1], notice=notice
        )
    labels: list[HumanLabels | None] = []
    errors: list[InputError] = []
    for run in runs:
        try:
            labels.append(load_reference_scores(sources[0], run, shared=True, notice=notice))
        except InputError as error:
            labels.append(None)
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]
    return labels[0], labels[1]


def _describe_labels(source: LabelSource, run: Run, labels: LabelProvenance) -> str:
    count = f"{labels.traces:,} of {run.manifest.traces:,} traces of {run.path.name}"
    message = f"corrected by labels of {labels.labelers}: {count}"
    if labels.unmatched:
        message += f"; {labels.unmatched:,} in {source} belong to no trace (or another answer), or are incomplete"
    if labels.disputed:
        message += f"; annotators differ on {labels.disputed:,} items"
    return message


def _no_match_message(source: LabelSource, run: Run, labeled: Sequence[str], kind: LabelForm) -> str:
    """Return the message for labels that do not match the run."""
    run_ids = set(run.to_arrow("traces", ["id"])["id"].to_pylist())
    matched = [name for name in labeled if name in run_ids]
    if not matched:
        examples = f" (such as {', '.join(labeled[:3])})" if labeled else ""
        count = f"none of the {len(labeled):,} traces of {source}{examples}"
        return f"{count} is in {run.path}. Name the labels of this run."
    if kind == "run":
        return f"{source} and {run.path} share {len(matched):,} ids, but no answer, or no metric based on verdicts."
    hint = (
        f" Labels of whole answers name no claim: set them against the judge with `ragfault judge measure {source}`."
        if kind == "traces"
        else ""
    )
    return (
        f"{source} has {len(matched):,} traces of {run.path}, but no metric is labeled completely for these answers. "
        f"Label every claim (or chunk) of a trace, on the answers and claims of this run.{hint}"
    )


def _detect_form(source: LabelSource, run: Run) -> LabelForm:
    """Detect the form of a file or folder."""
    path = Path(source)
    if path.is_dir():
        return "run" if (path / "manifest.json").is_file() else "traces"
    first_row = next((row for _, row, _ in iterate_label_rows(source)), None)
    if first_row is None:
        raise InputError(f"{source}: empty, there is no label in it")
    if not isinstance(first_row, dict):
        return "traces"
    forms: dict[str | None, LabelForm] = {"verdicts": "labels", "metric values": "values"}
    return forms.get(recognize_row(first_row, _expect_values(run)), "traces")


class LoadedScores(NamedTuple):
    """Metric values from a file of labels."""

    labelers: str
    values: MetricValues
    # ids of all traces in the file
    labeled: list[str]
    # items on which annotators differ
    disputed: int = 0
    # sampling probabilities of the traces
    probabilities: Mapping[str, float] = {}
    # labels of the items of each trace
    items: Mapping[str, LabeledItems] = {}


def _load_run(source: LabelSource, run: Run, _: bool) -> LoadedScores:
    """Return the scores of a stronger judge, on the traces with the same chunks and answer."""
    better_run = Run.open(source)
    if better_run.manifest.judge == run.manifest.judge:
        raise InputError(f"{source} was judged as {run.path} was, by {run.manifest.judge}: it can correct nothing.")
    inputs = {trace.id: hash_inputs(trace) for trace in better_run.traces()}
    shared_ids = {trace.id for trace in run.traces(list(inputs)) if hash_inputs(trace) == inputs[trace.id]}
    names = {str(metric) for metric in list_metrics(run)}
    values: MetricValues = {}
    for row in better_run.scores(list(shared_ids)):
        if row.metric in names and row.value is not None:
            values.setdefault(row.metric, {})[row.trace] = row.value
    judge = better_run.manifest.judge.partition(" ")[0]
    items = {verdicts.trace: _list_judged_items(verdicts) for verdicts in better_run.verdicts(list(shared_ids))}
    return LoadedScores(f"{better_run.path.name}, judged by {judge}", values, list(inputs), items=items)


def _list_judged_items(verdicts: Verdicts) -> LabeledItems:
    """List the verdicts of a stronger judge on claims and chunks as labels."""
    return {
        subject: (value,)
        for subject, value in iterate_values(verdicts)
        if subject[0] in ("claim", "chunk") and len(subject) > 1 and value is not None
    }


def _load_labels(source: LabelSource, run: Run, shared: bool) -> LoadedScores:
    labels = read_labels(source)
    consensus = resolve_labels(labels)
    disputed, reviewed = 0, frozenset().union(*(item.reviewed_parts for item in consensus.values()))

    def readings(trace: Trace, verdicts: Verdicts) -> list[LabelReading]:
        nonlocal disputed
        labels_of_trace = consensus[trace.id]
        disputed += labels_of_trace.disputed
        answer, parts = labels_of_trace.answer, labels_of_trace.reviewed_parts
        if (shared and answer is None) or answer not in (None, fingerprint_answer(trace)):
            parts &= set(ANSWER_INDEPENDENT)
        empty_parts = {kind for kind in reviewed & ITEM_OVERLAYS.keys() if not getattr(verdicts, kind)}
        return [LabelReading(labels_of_trace.values, parts | empty_parts)]

    values, items = _compute_metrics_from_labels(run, list(consensus), readings)
    probabilities = _get_sampling_probabilities(source, consensus)
    return LoadedScores(_format_authors(labels, source), values, list(consensus), disputed, probabilities, items)


def _get_sampling_probabilities(source: LabelSource, consensus: Mapping[str, LabelConsensus]) -> dict[str, float]:
    """Return the sampling probabilities; raises InputError where only some labels have one."""
    chances = {trace: item.chance for trace, item in consensus.items() if item.chance is not None}
    if chances and len(chances) < len(consensus):
        raise InputError(
            f"{source}: {len(chances):,} of {len(consensus):,} traces have a sampling probability, others do not. "
            "Keep the labels of each sample in a file of its own."
        )
    return chances


def _format_authors(labels: Iterable[Label], source: LabelSource) -> str:
    names = list({label.person: label.annotator.strip() for label in labels if label.person}.values())
    if not names:
        return Path(source).name
    more = f" and {len(names) - MAX_LABELERS_SHOWN} more" if len(names) > MAX_LABELERS_SHOWN else ""
    return ", ".join(names[:MAX_LABELERS_SHOWN]) + more


def _compute_metrics_from_labels(
    run: Run, ids: Sequence[str], readings: Callable[[Trace, Verdicts], list[LabelReading]]
) -> tuple[MetricValues, dict[str, LabeledItems]]:
    """Compute the metrics of a run with labels in place of verdicts, and list the labelled items of each trace."""
    metrics, values, undetermined = list_metrics(run), MetricValues(), set()
    items: dict[str, LabeledItems] = {}
    for trace, verdicts in zip(run.traces(ids), run.verdicts(ids), strict=True):
        possible = readings(trace, verdicts)
        items[trace.id] = list_labeled_items(possible)
        for metric, value in compute_values(metrics, trace, verdicts, possible):
            if value is None:
                undetermined.add(metric)
            else:
                values.setdefault(metric, {})[trace.id] = value
    determined = {metric: known for metric, known in values.items() if metric not in undetermined}
    return determined, items


def _load_traces(source: LabelSource, run: Run, _: bool) -> LoadedScores:
    """Load labels of traces, in place of verdicts."""
    labeled = load_labeled_traces(source, LabelSettings())
    items = {item.trace.id: item for item in labeled.labeled}

    def readings(trace: Trace, verdicts: Verdicts) -> list[LabelReading]:
        item = items[trace.id]
        if item.grades is not None:
            return read_grades(item)
        if item.trace.answer == trace.answer:
            return read_marks(item, verdicts)
        return [LabelReading({}, frozenset())]

    values, labeled_items = _compute_metrics_from_labels(run, list(items), readings)
    return LoadedScores(Path(source).name, values, list(items), items=labeled_items)


def _expect_values(run: Run) -> ExpectedValues:
    """Return the metrics of a run with their ranges."""
    return ExpectedValues({measure.name: (measure.low, measure.high) for measure in run.manifest.metrics})


def _load_values(source: LabelSource, run: Run, _: bool) -> LoadedScores:
    """Load a table of metric values."""
    values: MetricValues = {}
    labels = read_labels(source, "metric values", expected=_expect_values(run))
    run_ids = set(run.to_arrow("traces", ["id"])["id"].to_pylist())
    for label in labels:
        if label.trace in run_ids:
            values.setdefault(str(label.subject[1]), {})[label.trace] = float(label.value)  # type: ignore[arg-type]
    return LoadedScores(Path(source).name, values, list(dict.fromkeys(label.trace for label in labels)))


FORM_LOADERS: dict[LabelForm, Callable[[LabelSource, Run, bool], LoadedScores]] = {
    "run": _load_run,
    "labels": _load_labels,
    "values": _load_values,
    "traces": _load_traces,
}
"""Form → loader."""
