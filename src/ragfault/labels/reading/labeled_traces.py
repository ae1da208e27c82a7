"""Reader of labeled traces: detects the label columns, parses the labels, samples whole groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from ragfault.io.error_collector import OnBad, TraceLocations
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.columns import load_column_map
from ragfault.io.formats.tables import is_memory_table
from ragfault.io.normalization import describe_missing_column
from ragfault.io.trace_reader import read_traces
from ragfault.labels.judges.measurement import LabelColumns, LabelTask
from ragfault.labels.reading.label_parser import (
    CLAIM_LABEL_KEYS,
    ChunkGrade,
    LabeledClaim,
    LabelRule,
    has_claim_label,
    is_absent,
    list_votes,
    parse_claims,
    parse_grades,
    parse_spans,
)
from ragfault.model.errors import MAX_BAD_LINES_SHOWN, BadLine, BadTraces, InputError, UnknownName
from ragfault.model.grouping import group_by
from ragfault.model.records import Trace

LABEL_KEYS = ("label", "spans", "claims", "grades")  # map keys of the label columns

COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "label": (
        *("label", "human_label", "gold_label", "labels", "hallucinated", "hallucination"),
        *("is_hallucinated", "is_hallucination", "has_hallucination", "attributable", "is_attributable"),
        *("attribution", "attribution_label", "supported", "is_supported", "grounded", "is_grounded"),
        *("faithful", "is_faithful", "consistent", "is_consistent", "annotation", "label_name", "groundedness_label"),
        *("faithfulness_label", "factuality_label", "annotations", "annotator_labels", "human_labels", "votes"),
        "verdict",
    ),
    "spans": ("spans", "hallucination_spans", "hallucinated_spans", "labels"),
    "claims": ("claims", "claim_labels", "statements"),
    "grades": ("grades", "grade", "relevances", "chunk_labels", "relevant", "relevance", "rel"),
}
"""Key → known column names, the most specific first."""

GROUP_COLUMNS = ("source_id", "group", "group_id", "conversation", "query")
TRACE_FIELDS = ("id", "query", "model", "route", "conversation", "turn")  # trace fields that can be named as a column


def split_map(map: Mapping[str, str] | str | Path | None) -> tuple[dict[str, str], dict[str, str]]:
    """Split a column map into trace columns and label columns.

    >>> split_map({"answer": "claim", "label": "verdict"})
    ({'answer': 'claim'}, {'label': 'verdict'})
    """
    table = load_column_map(map) if map is not None else {}
    label_columns = {key: table[key] for key in LABEL_KEYS if key in table}
    return {key: column for key, column in table.items() if key not in label_columns}, label_columns


def get_value(trace: Trace, path: str) -> Any:
    """Return the value of a column: metadata, also by a path with dots, or a trace field.

    >>> get_value(Trace(id="1", query="When?", metadata={"by": {"ann": 1}}), "by.ann")
    1
    """
    if path in trace.metadata:
        return trace.metadata[path]
    if path in TRACE_FIELDS:
        return getattr(trace, path)
    if path.startswith("chunks."):
        key = path.removeprefix("chunks.")
        return {chunk.id: chunk.metadata[key] for chunk in trace.chunks or () if key in chunk.metadata} or None
    value: Any = trace.metadata
    for step in path.removeprefix("metadata.").split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _list_columns(traces: Sequence[Trace]) -> dict[str, None]:
    """List the columns with a value in some trace."""
    columns = dict.fromkeys(name for trace in traces for name, value in trace.metadata.items() if not is_absent(value))
    return columns | dict.fromkeys(
        name for name in TRACE_FIELDS if any(getattr(trace, name) is not None for trace in traces)
    )


def to_texts(positive: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Return the labels of bad units as texts."""
    values = [positive] if isinstance(positive, (str, int, float)) else positive
    return tuple(str(value) for value in values)


def split_columns(within: str | Sequence[str]) -> tuple[str, ...]:
    """Split column names given as a list or separated by commas."""
    names = within.split(",") if isinstance(within, str) else within
    return tuple(name.strip() for name in names if name.strip())


def check_columns(columns: Sequence[str], traces: Sequence[Trace]) -> None:
    """Raise UnknownName for a column that no trace has."""
    for name in columns:
        if all(get_value(trace, name) is None for trace in traces):
            raise UnknownName("column", name, _list_columns(traces))


def detect_columns(
    traces: Sequence[Trace], columns: Mapping[str, str], task: LabelTask | None
) -> tuple[LabelTask, LabelColumns]:
    """Detect the task and the label columns: as requested, else by their names.

    Raises InputError where a requested column is in no trace, or no column holds labels.
    """
    for key, path in columns.items():
        if all(get_value(trace, path) is None for trace in traces):
            raise InputError(describe_missing_column(key, path, _list_columns(traces)))
    detected = {key: columns.get(key) or _detect_column(key, traces, columns) for key in LABEL_KEYS}
    task = task or _infer_task(traces, detected, columns)
    if task == "relevance":
        requested = columns.get("grades") or columns.get("label")
        detected["grades"] = requested or detected["grades"] or detected["label"]
        detected["grades"] = detected["grades"] or _gold_column(traces) or _find_chunk_grades(traces)
    if task is None or not any(detected[key] for key in TASK_KEYS[task]):
        available = ", ".join([name for name in _list_columns(traces) if name not in TRACE_FIELDS][:30])
        keys = TASK_KEYS[task or "answer"]
        raise InputError(
            "no column is known to hold human labels"
            f"{f' of {TASK_OBJECTS[task]}' if task else ''}. There are: {available or 'none'}. "
            f"Name it with --map {' or --map '.join(f'{key}=COLUMN' for key in keys)}"
        )
    return task, LabelColumns(**{key: detected[key] if key in TASK_KEYS[task] else None for key in LABEL_KEYS})


TASK_KEYS: dict[LabelTask, tuple[str, ...]] = {
    "answer": ("label", "spans"),
    "support": ("claims", "spans", "label"),
    "relevance": ("grades",),
}
"""Task → keys of its labels."""

TASK_OBJECTS: dict[LabelTask, str] = {"answer": "answers", "support": "claims", "relevance": "chunks"}
"""Task → labeled units."""


def _detect_column(key: str, traces: Sequence[Trace], columns: Mapping[str, str]) -> str | None:
    """Return the first column of a known name with matching values."""
    requested = set(columns.values())
    for name in COLUMN_NAMES[key]:
        values = [trace.metadata[name] for trace in traces if not is_absent(trace.metadata.get(name))]
        if name not in requested and values and _matches_key(key, values):
            return name
    return None


def _matches_key(key: str, values: Sequence[Any]) -> bool:
    """Check that the values suit the key: single ones, or lists and objects; grades may be either."""
    if key == "grades":
        return True
    composite = any(isinstance(value, (list, tuple, dict)) or _is_json_cell(value) for value in values)
    if key == "claims":
        return any(_has_claim_labels(value) for value in values)
    if key in ("label", "spans") and any(list_votes(value) for value in values):
        return key == "label"
    return composite != (key == "label")


def _is_json_cell(cell: Any) -> bool:
    """Check for the text of a list or an object."""
    return isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{")


def _has_claim_labels(cell: Any) -> bool:
    """Check for claims with labels, or the text of such a list."""
    if isinstance(cell, str):
        return _is_json_cell(cell) and any(f'"{key}"' in cell for key in CLAIM_LABEL_KEYS)
    return isinstance(cell, (list, tuple)) and any(has_claim_label(item) for item in cell)


def _gold_column(traces: Sequence[Trace]) -> str | None:
    """Return "gold" where the gold of a trace has grades of chunks."""
    return "gold" if any(trace.gold is not None and trace.gold.chunks for trace in traces) else None


def _find_chunk_grades(traces: Sequence[Trace]) -> str | None:
    """Return `chunks.NAME` where the chunks themselves carry grades under a known name."""
    keys = {key for trace in traces for chunk in trace.chunks or () for key in chunk.metadata}
    return next((f"chunks.{name}" for name in (*COLUMN_NAMES["grades"], "label") if name in keys), None)


def _infer_task(
    traces: Sequence[Trace], columns: Mapping[str, str | None], requested: Mapping[str, str]
) -> LabelTask | None:
    """Infer the task from the available columns."""
    if "grades" in requested:
        return "relevance"
    if "claims" in requested or (columns["claims"] and not columns["label"] and not columns["spans"]):
        return "support"
    answered = any(trace.answer is not None for trace in traces)
    if answered and (columns["label"] or columns["spans"]):
        return "answer"
    if columns["grades"] or (not answered and (columns["label"] or _gold_column(traces) or _find_chunk_grades(traces))):
        return "relevance"
    return None


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


class LabeledTrace(NamedTuple):
    """Trace with its human labels."""

    trace: Trace
    group: str
    positive: bool | None = None  # label of the whole answer
    spans: tuple[tuple[int, int], ...] | None = None
    claims: tuple[LabeledClaim, ...] | None = None
    grades: Mapping[str, ChunkGrade] | None = None


class LabeledTraces(NamedTuple):
    """Labeled traces of a measurement."""

    task: LabelTask
    columns: LabelColumns
    positive: str
    labeled: list[LabeledTrace]
    unlabeled: int
    skipped: int
    notes: list[str]


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


class LabelOptions(NamedTuple):
    """Options of a measurement that concern labels."""

    task: LabelTask | None
    positive: tuple[str, ...]
    group: str | None
    limit: int | None
    seed: int


def load_labeled_traces(
    source: LabeledSource | Iterable[Trace],
    options: LabelOptions,
    on_bad: OnBad,
    notice: Callable[[str], object],
    read_options: Mapping[str, Any],
) -> LabeledTraces:
    """Load traces and labels, collecting all bad lines; keep those with labels, sorted by group and id.

    Raises BadTraces for unreadable lines and labels (unless skipped), InputError where nothing has a label,
    UnknownName for an unknown column or positive label.
    """
    collector, locations = _LabelErrors(on_bad), TraceLocations()
    trace_columns, label_columns = split_map(read_options.get("map"))
    traces = _read_all_traces(source, collector, locations, notice, **{**read_options, "map": trace_columns or None})
    if not traces:
        collector.close(0)
        raise InputError("there is no trace to measure on.")
    task, columns = detect_columns(traces, label_columns, options.task)
    name, groups = group_traces(traces, options.group)
    rule = LabelRule(task, _label_column(columns), options.positive)
    labeled, unlabeled, unlabeled_claims = _read_labels(
        zip(traces, groups, strict=True), task, columns, rule, collector, locations
    )
    _check_positive(rule)
    if not labeled:
        raise InputError(f"none of {len(traces):,} traces has a label in `{_label_column(columns)}`.")
    notes = [f"{unlabeled_claims:,} claims have no label and are left out"] if unlabeled_claims else []
    if columns.label and any(list_votes(get_value(item.trace, columns.label)) for item in labeled):
        notes.append(f"`{columns.label}` lists the labels of several people: the majority counts, a tie is no label")
    if split := _count_contradictions(labeled):
        notes.append(f"labels contradict each other on {split:,} {TASK_OBJECTS[task]}: no judge agrees with both")
    if rule.inverted:
        notes.append(f"in `{rule.column}` 1 is taken for good and 0 for bad, by its name")
    sample = sorted(_sample_groups(labeled, options.limit, options.seed), key=lambda item: (item.group, item.trace.id))
    if len(sample) < len(labeled):
        size = f"{len(sample):,} of {len(labeled):,} labelled traces"
        notes.append(f"a sample of {size}, by whole groups, seed {options.seed}")
    positive = rule.describe() if rule.labels else f"a stretch in `{columns.spans}`"
    columns = msgspec.structs.replace(columns, group=name)
    return LabeledTraces(task, columns, positive, sample, unlabeled, collector.count, notes)


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
    task: LabelTask,
    columns: LabelColumns,
    rule: LabelRule,
    collector: _LabelErrors,
    locations: TraceLocations,
) -> tuple[list[LabeledTrace], int, int]:
    """Return the labeled traces, and the numbers of traces and claims without a label; raise all bad lines together."""
    labeled: list[LabeledTrace] = []
    unlabeled = unlabeled_claims = 0
    for trace, group in traces:
        try:
            item, count = _label_trace(LabeledTrace(trace, group), task, columns, rule)
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


def _read_all_traces(
    source: LabeledSource | Iterable[Trace],
    collector: _LabelErrors,
    locations: TraceLocations,
    notice: Callable[[str], object],
    **read_options: Any,
) -> list[Trace]:
    """Read every trace of files or of memory, with its location."""
    from_files = isinstance(source, str | Path) or (
        isinstance(source, Sequence) and all(isinstance(item, str | os.PathLike) for item in source)
    )
    if from_files:
        files = cast(LabeledSource, source)
        return list(
            read_traces(files, on_bad=collector.add, notice=notice, labeled=True, locations=locations, **read_options)
        )
    rows = source if is_memory_table(source) else list(cast("Iterable[Any]", source))
    if is_memory_table(rows) or (rows and all(isinstance(row, Mapping) for row in cast(list[Any], rows))):
        return list(
            read_traces(
                cast(Any, rows), on_bad=collector.add, notice=notice, labeled=True, locations=locations, **read_options
            )
        )
    traces = cast(list[Trace], rows)
    locations.update({trace.id: ("traces in memory", number) for number, trace in enumerate(traces, 1)})
    return traces


def _label_trace(
    labeled: LabeledTrace, task: LabelTask, columns: LabelColumns, rule: LabelRule
) -> tuple[LabeledTrace | None, int]:
    """Return a trace with its labels, or None without any, and the number of claims without a label."""
    trace, answer = labeled.trace, labeled.trace.answer or ""
    if task == "relevance":
        value = _get_grades(trace, columns)
        grades = {} if is_absent(value) else parse_grades(value, trace.chunks or (), rule, columns.grades or "")
        return (labeled._replace(grades=grades) if grades else None), 0
    if columns.claims and not is_absent(value := get_value(trace, columns.claims)):
        claims, unlabeled = parse_claims(value, answer, rule, columns.claims)
        return (labeled._replace(claims=claims) if claims else None), unlabeled
    spans = None
    if columns.spans and not is_absent(value := get_value(trace, columns.spans)):
        spans = parse_spans(value, answer, columns.spans)
    positive = bool(spans) if spans is not None else None
    if columns.label and not is_absent(value := get_value(trace, columns.label)):
        votes = [rule.is_positive(vote) for vote in list_votes(value)]
        if votes and 2 * sum(votes) == len(votes):
            return None, 0  # as many for as against
        positive = 2 * sum(votes) > len(votes) if votes else rule.is_positive(value)
    if positive is None or trace.answer is None:
        return None, 0
    return labeled._replace(positive=positive, spans=spans), 0


def _get_grades(trace: Trace, columns: LabelColumns) -> Any:
    """Return the grades of the chunks in any form."""
    if columns.grades == "gold" and "gold" not in trace.metadata:
        gold = trace.gold.chunks if trace.gold else {}
        return {chunk.id: gold[chunk.id] for chunk in trace.chunks or () if chunk.id in gold}
    return get_value(trace, columns.grades or "")


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
