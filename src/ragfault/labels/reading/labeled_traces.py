"""Traces with what their labels mean, from columns or given; a sample of whole groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from ragfault.io.attempts import rename_attempts
from ragfault.io.error_collector import OnBad, TraceLocations
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.tables import is_memory_table
from ragfault.io.trace_reader import read_traces
from ragfault.labels.judges.measurement import LabelColumns, LabelTask
from ragfault.labels.label import Label, Subject
from ragfault.labels.reading.label_columns import (
    GIVEN_COLUMNS,
    TASK_OBJECTS,
    check_columns,
    detect_columns,
    get_value,
    list_trace_labels,
    split_map,
)
from ragfault.labels.reading.label_parser import ChunkGrade, LabelRule, is_absent, list_votes
from ragfault.labels.settings import LabelSettings
from ragfault.model.errors import MAX_BAD_LINES_SHOWN, BadLine, BadTraces, InputError, UnknownName
from ragfault.model.grouping import group_by
from ragfault.model.records import Trace, name_attempt


def to_texts(positive: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Return the labels of bad units as texts."""
    values = [positive] if isinstance(positive, (str, int, float)) else positive
    return tuple(str(value) for value in values)


def split_columns(within: str | Sequence[str]) -> tuple[str, ...]:
    """Split column names given as a list or separated by commas."""
    names = within.split(",") if isinstance(within, str) else within
    return tuple(name.strip() for name in names if name.strip())


GROUP_COLUMNS = ("source_id", "group", "group_id", "conversation", "query")


def group_traces(traces: Sequence[Trace], column: str | None) -> tuple[str | None, list[str]]:
    """Return the group column and the group of each trace; a trace without a value is its own group."""
    if column is not None:
        check_columns([column], traces)
    else:
        column = next((name for name in GROUP_COLUMNS if any(not is_absent(get_value(t, name)) for t in traces)), None)
    values = [get_value(trace, column) if column else None for trace in traces]
    return column, [
        f"={trace.id}" if is_absent(value) else str(value) for trace, value in zip(traces, values, strict=True)
    ]


LabeledSource = str | Path | Sequence[str | Path]


class LabeledClaim(NamedTuple):
    """Claim with its human label."""

    text: str
    # offset in the answer; -1 where the answer does not contain it
    start: int
    end: int
    positive: bool


class LabeledTrace(NamedTuple):
    """Trace with its human labels."""

    trace: Trace
    group: str
    # label of the whole answer
    positive: bool | None = None
    spans: tuple[tuple[int, int], ...] | None = None
    claims: tuple[LabeledClaim, ...] | None = None
    grades: Mapping[str, ChunkGrade] | None = None


class GivenLabels(NamedTuple):
    """Traces whose labels were read from elsewhere."""

    traces: list[Trace]
    labels: Mapping[str, Sequence[Label]]
    """Trace → labels of its claims and chunks."""
    task: LabelTask


class LabeledTraces(NamedTuple):
    """Labeled traces of a measurement."""

    task: LabelTask
    columns: LabelColumns
    positive: str
    labeled: list[LabeledTrace]
    unlabeled: int
    skipped: int
    notes: list[str]
    # all traces of the source, also those without a label
    traces: Sequence[Trace] = ()


class _LabelErrors:
    """Collector of bad lines and bad labels."""

    def __init__(self, on_bad: OnBad) -> None:
        if not callable(on_bad) and on_bad not in ("raise", "skip"):
            raise UnknownName("way to treat bad lines", str(on_bad), ["raise", "skip", "a callable"])
        self.on_bad, self.count = on_bad, 0
        self.first_bad_lines: list[BadLine] = []

    def add(self, bad_line: BadLine) -> None:
        self.count += 1
        if len(self.first_bad_lines) < MAX_BAD_LINES_SHOWN:
            self.first_bad_lines.append(bad_line)
        if callable(self.on_bad):
            self.on_bad(bad_line)

    def close(self, good: int) -> None:
        """Raise all bad lines unless they are skipped; raise them also if nothing valid is left."""
        if self.count and (self.on_bad == "raise" or not good):
            raise BadTraces(self.first_bad_lines, good, self.count)


def load_labeled_traces(
    source: LabeledSource | Iterable[Trace] | GivenLabels, settings: LabelSettings
) -> LabeledTraces:
    """Load traces and labels, collecting all bad lines; keep those with labels, sorted by group and id.

    Raises BadTraces for unreadable lines and labels (unless skipped), InputError where nothing has a label,
    UnknownName for an unknown column or positive label.
    """
    collector, locations = _LabelErrors(settings.on_bad), TraceLocations()
    trace_columns, label_columns = split_map(settings.map)
    given = source if isinstance(source, GivenLabels) else None
    in_memory = given.traces if given is not None else cast("LabeledSource | Iterable[Trace]", source)
    reading = replace(settings, map=trace_columns or None, labeled=True)
    traces = _read_all_traces(in_memory, collector, locations, reading)
    if not traces:
        collector.close(0)
        raise InputError("there is no trace to measure on.")
    task, columns = (
        (given.task, GIVEN_COLUMNS[given.task]) if given else detect_columns(traces, label_columns, settings.task)
    )
    name, groups = group_traces(traces, settings.group)
    rule = LabelRule(task, _label_column(columns), to_texts(settings.positive))

    def list_labels(trace: Trace) -> tuple[Sequence[Label], int]:
        return list_trace_labels(trace, task, columns) if given is None else (given.labels.get(trace.id, ()), 0)

    labeled, unlabeled, unlabeled_claims = _read_labels(
        zip(traces, groups, strict=True), list_labels, rule, collector, locations
    )
    _check_positive(rule)
    if not labeled:
        raise InputError(f"none of {len(traces):,} traces has a label in `{_label_column(columns)}`.")
    notes = [f"{unlabeled_claims:,} claims have no label and do not count"] if unlabeled_claims else []
    if columns.label and any(list_votes(get_value(item.trace, columns.label)) for item in labeled):
        notes.append(f"`{columns.label}` lists the labels of several people: the majority counts, a tie does not count")
    if split := _count_contradictions(labeled):
        notes.append(f"labels contradict each other on {split:,} {TASK_OBJECTS[task]}: no judge agrees with both")
    if rule.inverted:
        notes.append(f"in `{rule.column}` 1 is taken for good and 0 for bad, by its name")
    sample = sorted(
        _sample_groups(labeled, settings.limit, settings.seed), key=lambda item: (item.group, item.trace.id)
    )
    if len(sample) < len(labeled):
        size = f"{len(sample):,} of {len(labeled):,} labelled traces"
        notes.append(f"a sample of {size}, by whole groups, seed {settings.seed}")
    positive = rule.describe() if rule.labels else f"a stretch in `{columns.spans}`"
    columns = replace(columns, group=name)
    return LabeledTraces(task, columns, positive, sample, unlabeled, collector.count, notes, traces)


def _count_contradictions(labeled: Iterable[LabeledTrace]) -> int:
    """Count the answers, claims or chunks with labels of several traces of one content that are not the same."""
    votes: dict[tuple[str | None, ...], set[bool]] = {}
    for trace, _, positive, _, claims, grades in labeled:
        texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}
        content = (trace.query, trace.answer, *texts.values())
        several: list[tuple[tuple[str | None, ...], bool]] = [
            ((*content, item.text), item.positive) for item in claims or ()
        ]
        several += [((trace.query, texts.get(name)), grade.relevant) for name, grade in (grades or {}).items()]
        for item, mark in several if positive is None else [(content, positive)]:
            votes.setdefault(item, set()).add(mark)
    return sum(len(marks) > 1 for marks in votes.values())


def _read_labels(
    traces: Iterable[tuple[Trace, str]],
    list_labels: Callable[[Trace], tuple[Sequence[Label], int]],
    rule: LabelRule,
    collector: _LabelErrors,
    locations: TraceLocations,
) -> tuple[list[LabeledTrace], int, int]:
    """Return the labeled traces, and the numbers of traces and claims without a label; raise all bad lines together."""
    labeled: list[LabeledTrace] = []
    unlabeled = unlabeled_claims = 0
    for trace, group in traces:
        try:
            labels, count = list_labels(trace)
            item = build_labeled_trace(trace, group, labels, rule)
        except InvalidRecord as error:
            collector.add(BadLine(*locations[trace.id], str(error), msgspec.json.encode(trace).decode()))
            continue
        unlabeled_claims += count
        labeled += [item] if item else []
        unlabeled += not item
    collector.close(len(labeled) + unlabeled)
    return labeled, unlabeled, unlabeled_claims


def _label_column(columns: LabelColumns) -> str:
    return columns.grades or columns.claims or columns.label or columns.spans or ""


def _rename_located(traces: list[Trace], locations: TraceLocations) -> list[Trace]:
    """Return traces with the ids that they have in a run, and note their locations under these."""
    renamed = rename_attempts(traces)
    places = [locations.get(name_attempt(trace.query_id, trace.attempt)) or locations[trace.id] for trace in traces]
    locations.update({trace.id: place for trace, place in zip(renamed, places, strict=True)})
    return renamed


def _read_all_traces(
    source: LabeledSource | Iterable[Trace], collector: _LabelErrors, locations: TraceLocations, settings: LabelSettings
) -> list[Trace]:
    """Read every trace of files or of memory, with its location."""
    from_files = isinstance(source, str | Path) or (
        isinstance(source, Sequence) and all(isinstance(item, str | os.PathLike) for item in source)
    )
    rows: Any = source if from_files or is_memory_table(source) else list(cast("Iterable[Any]", source))
    if from_files or is_memory_table(rows) or (rows and all(isinstance(row, Mapping) for row in rows)):
        read = read_traces(
            rows, on_bad=collector.add, notice=settings.on_notice, locations=locations, **settings.reading
        )
        return _rename_located(list(read), locations)
    traces = rename_attempts(cast(list[Trace], rows))
    locations.update({trace.id: ("traces in memory", number) for number, trace in enumerate(traces, 1)})
    return traces


def build_labeled_trace(trace: Trace, group: str, labels: Sequence[Label], rule: LabelRule) -> LabeledTrace | None:
    """Build a trace with what its labels mean; None if they decide nothing, such as a tie of several people.

    Raises InvalidRecord for a label that the rule does not know.
    """
    by_part = group_by(labels, lambda label: label.part)
    labeled = LabeledTrace(trace, group)
    if rule.task == "relevance":
        chunks = [label for label in by_part.get("chunk", ()) if label.subject[-1] != "relevance"]
        grades = {str(label.subject[1]): rule.grade(label.value) for label in chunks}
        return labeled._replace(grades=grades) if grades else None
    if claims := by_part.get("claim"):
        return labeled._replace(claims=tuple(_build_claim(label, trace.answer or "", rule) for label in claims))
    votes = [rule.is_positive(label.value) for label in by_part.get("answer", ())]
    spans = None
    if "span" in by_part:
        spans = tuple((int(start), int(end)) for _, start, end in _list_subjects(by_part["span"]))
    if votes and 2 * sum(votes) == len(votes):
        # as many for as against
        return None
    positive = 2 * sum(votes) > len(votes) if votes else bool(spans)
    return labeled._replace(positive=positive, spans=spans) if votes or spans is not None else None


def _list_subjects(labels: Iterable[Label]) -> list[Subject]:
    return [label.subject for label in labels if not label.is_empty_review]


def _build_claim(label: Label, answer: str, rule: LabelRule) -> LabeledClaim:
    positive = rule.is_positive(label.value)
    if len(label.subject) == 2:
        text = str(label.subject[1])
        return LabeledClaim(text, -1, len(text) - 1, positive)
    start, end = int(label.subject[1]), int(label.subject[2])
    return LabeledClaim(answer[start:end], start, end, positive)


def _check_positive(rule: LabelRule) -> None:
    """Raise UnknownName for a positive label that never occurs."""
    if rule.threshold is None and rule.labels:
        for positive_label in rule.positive_labels:
            if not any(rule.matches(word, positive_label) for word in rule.labels):
                raise UnknownName("label", positive_label, rule.labels, hint="Name one of them with --positive.")


def _sample_groups(labeled: list[LabeledTrace], limit: int | None, seed: int) -> list[LabeledTrace]:
    """Sample whole groups in random order until there are enough traces."""
    if limit is None or limit >= len(labeled):
        return labeled
    groups = group_by(labeled, lambda item: item.group)
    sample: list[LabeledTrace] = []
    for name in sorted(groups, key=lambda name: hash_rank(name, seed)):
        if len(sample) >= limit:
            break
        sample += groups[name]
    return sample


def hash_rank(name: str, seed: int) -> bytes:
    """Return the rank of a name in a random order that depends on name and seed alone.

    >>> sorted(["a", "b", "c"], key=lambda name: hash_rank(name, 0))
    ['a', 'c', 'b']
    """
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=str(seed).encode()).digest()
