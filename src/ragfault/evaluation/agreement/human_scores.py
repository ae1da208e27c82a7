"""Metric values from human labels or a stronger judge, for prediction-powered correction of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ragfault.analysis import HumanLabels, LabelProvenance
from ragfault.errors import MAX_FAULTS_SHOWN, InputError, InputFault, UsageError
from ragfault.evaluation.agreement.human_labels import (
    ANSWER_INDEPENDENT,
    HumanLabel,
    LabelConsensus,
    fingerprint_answer,
    read_labels,
    resolve_labels,
)
from ragfault.evaluation.agreement.human_verdicts import (
    ITEM_OVERLAYS,
    LabelReading,
    compute_values,
    list_metrics,
    read_grades,
    read_marks,
)
from ragfault.evaluation.agreement.labeled_traces import LabelOptions, load_labeled_traces
from ragfault.io import MAX_LINE
from ragfault.io.field_values import InvalidRecord
from ragfault.io.files import detect_format, get_format_suffix, iterate_lines, open_bytes
from ragfault.io.formats.tables import read_csv_rows
from ragfault.io.runs import Run
from ragfault.records import Trace, Verdicts

LabelForm = Literal["run", "labels", "values", "traces"]
MetricValues = dict[str, dict[str, float]]
LabelSource = str | Path

MAX_AUTHORS = 3
"""How many authors are named."""


def _ignore_notice(*_: object) -> None:
    """Tell nobody."""


def load_human_scores(
    source: LabelSource, run: Run, *, shared: bool = False, notice: Callable[[str], object] = _ignore_notice
) -> HumanLabels:
    """What was said of the traces of a run, as values of its metrics.

    `where` is one of four: another run over some of these traces, whose scores are taken for true (a stronger judge);
    labels as `ragfault label` writes them; a table (JSON Lines or CSV) with the column `trace` or `id` and columns
    named as metrics; or traces with labels as `measure` takes them: claims or stretches of the answer, grades of
    chunks. Labels and marks stand in the place of the judge's verdicts, and a metric is computed on a trace where
    all that it reads was said. Where the file is `shared` by two runs, words on an answer count only where it is
    known which answer they are on.

    Raises InputError for a file that cannot be read, with all its faults, or in which nothing fits the run;
    UsageError for a table of values that is shared by two runs.
    """
    kind = _detect_form(source, run)
    if kind == "values" and shared:
        raise UsageError(
            f"{source} gives values of one run, and there are two: give --human-labels twice, first that of the baseline."
        )
    by, found, labelled, disputed, chances = FORM_LOADERS[kind](source, run, shared)
    known = {name for each in found.values() for name in each}
    if not known:
        raise InputError(_no_match_message(source, run, labelled, kind))
    strangers = len(labelled) - len(known)
    made = LabelProvenance(labelers=by, traces=len(known), unmatched=strangers, disputed=disputed)
    _report_labels(notice, source, run, made)
    return HumanLabels(source=made, values=found, probabilities=chances)


def load_paired_scores(
    sources: Sequence[LabelSource], runs: tuple[Run, Run], *, notice: Callable[[str], object] = _ignore_notice
) -> tuple[HumanLabels | None, HumanLabels | None]:
    """What was said of a baseline and of a candidate: in one file of both, or in one of each, in this order.

    A file of both may tell of one of them only. Raises what `people` raises; UsageError for more than two files.
    """
    if len(sources) > 2:
        raise UsageError(
            f"--human-labels was given {len(sources)} times: once for both runs, or once for each."
        )
    if len(sources) == 2:
        return load_human_scores(sources[0], runs[0], notice=notice), load_human_scores(
            sources[1], runs[1], notice=notice
        )
    found: list[HumanLabels | None] = []
    faults: list[InputError] = []
    for run in runs if sources else ():
        try:
            found.append(load_human_scores(sources[0], run, shared=True, notice=notice))
        except InputError as fault:
            found.append(None)
            faults.append(fault)
    if len(faults) == 2:
        raise faults[0]
    return (found[0], found[1]) if found else (None, None)


def _report_labels(
    notice: Callable[[str], object], source: LabelSource, run: Run, correction: LabelProvenance
) -> None:
    told = f"rectified by {correction.labelers}: {correction.traces:,} of {run.manifest.traces:,} traces of {run.path.name}"
    if correction.unmatched:
        told += f"; {correction.unmatched:,} in {source} are of no trace (or another answer) of it, or say too little"
    if correction.disputed:
        told += f"; on {correction.disputed:,} items those who labelled differ"
    notice(told)


def _no_match_message(source: LabelSource, run: Run, labeled: Sequence[str], kind: LabelForm) -> str:
    """What to say where nothing fits the run."""
    here = set(run.to_arrow("traces", ["id"])["id"].to_pylist())
    met = [name for name in labeled if name in here]
    if not met:
        such = f" (such as {', '.join(labeled[:3])})" if labeled else ""
        return f"none of the {len(labeled):,} traces of {source}{such} is in {run.path}. Name the labels of this run."
    if kind == "run":
        return f"{source} and {run.path} share {len(met):,} ids, but no answer, or no metric that rests on verdicts."
    return (
        f"{source} has {len(met):,} traces of {run.path}, but of no metric all that it reads was said, of this answer. "
        "Label every claim (or chunk) of a trace, on the answers and claims of this run."
    )


# --- which form ------------------------------------------------------------------------------------


def _detect_form(source: LabelSource, run: Run) -> LabelForm:
    """What a file or folder holds."""
    path = Path(source)
    if path.is_dir():
        if (path / "manifest.json").is_file():
            return "run"
        return "traces"
    first = next((row for _, row in _iterate_rows(source)), None)
    if not isinstance(first, dict):
        return "traces"
    if isinstance(first.get("verdicts"), dict) and "trace" in first:
        return "labels"
    named = {"trace", "id"} & first.keys() and "query" not in first
    return "values" if named and _metric_columns(first, run) else "traces"


def _metric_columns(row: Mapping[str, Any], run: Run) -> list[str]:
    """The metrics of the run that a row has a column for."""
    return [measure.name for measure in run.manifest.metrics if measure.name in row]


def _iterate_rows(source: LabelSource) -> Iterator[tuple[int, Any]]:
    """The rows of a table of values with their lines; a `Wrong` in the place of one that cannot be read."""
    with open_bytes(str(source)).body as body:
        if not body.peek(1):
            raise InputError(f"{source}: empty, there is no label in it")
        kind = detect_format(str(source), body) if get_format_suffix(str(source)) else "json"
        if kind in ("csv", "tsv"):
            yield from (
                (line, row) for line, row in read_csv_rows(body, str(source), kind == "tsv", MAX_LINE) if line
            )
        elif kind == "json":
            for line, text, _ in iterate_lines(body):
                if not text.isspace():
                    yield line, _decode_object(text)


def _decode_object(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return InvalidRecord(str(error))


# --- the four forms --------------------------------------------------------------------------------

LoadedScores = tuple[str, MetricValues, list[str], int, Mapping[str, float]]
"""By whom, the values, the ids that were named, the items in dispute, and the chances of the traces."""


def _load_run(source: LabelSource, run: Run, _: bool) -> LoadedScores:
    """The scores of a stronger judge, on the traces whose chunks and answer are those of the run."""
    strong = Run.open(source)
    if strong.manifest.judge == run.manifest.judge:
        raise InputError(
            f"{source} was judged as {run.path} was, by {run.manifest.judge}: it can put nothing right."
        )
    there = {trace.id: trace for trace in strong.traces()}
    same = {t.id for t in run.traces(list(there)) if _same_inputs(t, there[t.id])}
    wanted = {str(metric) for metric in list_metrics(run)}
    found: MetricValues = {}
    for row in strong.scores(list(same)):
        if row.metric in wanted and row.value is not None:
            found.setdefault(row.metric, {})[row.trace] = row.value
    judge = strong.manifest.judge.partition(" ")[0]
    return f"{strong.path.name}, judged by {judge}", found, list(there), 0, {}


def _same_inputs(first: Trace, second: Trace) -> bool:
    """Whether two traces show a judge the same."""
    chunks = [[(chunk.id, chunk.text) for chunk in each.chunks or ()] for each in (first, second)]
    return first.answer == second.answer and chunks[0] == chunks[1]


def _load_labels(source: LabelSource, run: Run, shared: bool) -> LoadedScores:
    labels = read_labels(source)
    told = resolve_labels(labels)
    disputed, asked = 0, frozenset().union(*(each.reviewed_parts for each in told.values()))

    def readings(trace: Trace, verdicts: Verdicts) -> list[LabelReading]:
        nonlocal disputed
        said = told[trace.id]
        empty = {part for part in asked & ITEM_OVERLAYS.keys() if not getattr(verdicts, part)}
        disputed += said.disputed
        known = said.answer == fingerprint_answer(trace) if said.answer is not None else not shared
        looked = said.reviewed_parts if known else said.reviewed_parts & set(ANSWER_INDEPENDENT)
        return [LabelReading(said.values, looked | empty)]

    found = _overlay_run(run, list(told), readings)
    return _format_authors(labels, source), found, list(told), disputed, _sampling_chances(source, told)


def _sampling_chances(source: LabelSource, consensus: Mapping[str, LabelConsensus]) -> dict[str, float]:
    """The chances of the traces to be drawn; raises InputError where only some labels have one."""
    found = {trace: each.chance for trace, each in consensus.items() if each.chance is not None}
    if found and len(found) < len(consensus):
        raise InputError(
            f"{source}: {len(found):,} of {len(consensus):,} traces were drawn with a chance of their own, others not. "
            "Keep the labels of either draw in a file of its own."
        )
    return found


def _format_authors(labels: Iterable[HumanLabel], source: LabelSource) -> str:
    """Who labelled."""
    names = list(dict.fromkeys(label.by for label in labels if label.by))
    if not names:
        return Path(source).name
    more = f" and {len(names) - MAX_AUTHORS} more" if len(names) > MAX_AUTHORS else ""
    return ", ".join(names[:MAX_AUTHORS]) + more


def _overlay_run(
    run: Run, ids: Sequence[str], readings: Callable[[Trace, Verdicts], list[LabelReading]]
) -> MetricValues:
    """The values of the metrics of a run with the words of people in the place of the judge's."""
    wanted, found, vague = list_metrics(run), MetricValues(), set()
    for trace, verdicts in zip(run.traces(ids), run.verdicts(ids), strict=True):
        for metric, value in compute_values(wanted, trace, verdicts, readings(trace, verdicts)):
            if value is None:
                vague.add(metric)
            else:
                found.setdefault(metric, {})[trace.id] = value
    return {metric: each for metric, each in found.items() if metric not in vague}


def _load_traces(source: LabelSource, run: Run, _: bool) -> LoadedScores:
    """Marks and grades of people, in the place of verdicts."""
    given = load_labeled_traces(source, LabelOptions(None, (), None, None, 0), "raise", _ignore_notice, {})
    said = {one.trace.id: one for one in given.labeled}

    def readings(trace: Trace, verdicts: Verdicts) -> list[LabelReading]:
        one = said[trace.id]
        if one.grades is not None:
            return read_grades(one)
        return (
            read_marks(one, verdicts) if one.trace.answer == trace.answer else [LabelReading({}, frozenset())]
        )

    return Path(source).name, _overlay_run(run, list(said), readings), list(said), 0, {}


def _load_values(source: LabelSource, run: Run, _: bool) -> LoadedScores:
    """Values that stand in a table."""
    found: MetricValues = {}
    faults: list[InputFault] = []
    seen: dict[str, None] = {}
    here = set(run.to_arrow("traces", ["id"])["id"].to_pylist())
    ranges = {measure.name: (measure.low, measure.high) for measure in run.manifest.metrics}
    for line, row in _iterate_rows(source):
        try:
            name, given = _parse_row(row, ranges)
        except InvalidRecord as wrong:
            faults.append(InputFault(str(source), line, str(wrong)))
            continue
        if name in seen:
            faults.append(InputFault(str(source), line, f'the trace "{name[:80]}" stands twice'))
        seen[name] = None
        for metric, value in given.items() if name in here else ():
            found.setdefault(metric, {})[name] = value
    if faults:
        told = [
            f"{len(faults):,} rows cannot be read:",
            *(f"  {fault}" for fault in faults[:MAX_FAULTS_SHOWN]),
        ]
        raise InputError(
            "\n".join(
                [
                    *told,
                    *(
                        [f"  … and {len(faults) - MAX_FAULTS_SHOWN:,} more"]
                        * (len(faults) > MAX_FAULTS_SHOWN)
                    ),
                ]
            )
        )
    return Path(source).name, found, list(seen), 0, {}


def _parse_row(
    row: Any, ranges: Mapping[str, tuple[float | None, float | None]]
) -> tuple[str, dict[str, float]]:
    """The trace of a row and the values it gives; raises `Wrong`."""
    if isinstance(row, InvalidRecord):
        raise row
    name = row.get("trace", row.get("id"))
    if name is None or name == "":
        raise InvalidRecord("neither `trace` nor `id`")
    found = {}
    for metric, (low, high) in ranges.items():
        if row.get(metric) in (None, ""):
            continue
        try:
            value = float(row[metric])
        except (TypeError, ValueError):
            raise InvalidRecord(f'"{str(row[metric])[:40]}" is no number - at `{metric}`') from None
        if not (low is None or value >= low) or not (high is None or value <= high):
            raise InvalidRecord(f"{value:g} is outside the range of the metric - at `{metric}`")
        found[metric] = value
    return str(name), found


FORM_LOADERS: dict[LabelForm, Callable[[LabelSource, Run, bool], LoadedScores]] = {
    "run": _load_run,
    "labels": _load_labels,
    "values": _load_values,
    "traces": _load_traces,
}
"""Form → what reads it."""
