"""Read labeled traces: detect the label columns, parse the labels, sample whole groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from ragfault.errors import MAX_FAULTS_SHOWN, BadTraces, InputError, InputFault, UnknownName
from ragfault.evaluation.agreement.label_parser import (
    ChunkGrade,
    LabeledClaim,
    LabelRule,
    is_absent,
    parse_claims,
    parse_grades,
    parse_spans,
)
from ragfault.evaluation.agreement.measurement import LabelColumns, LabelTask
from ragfault.io import read_traces
from ragfault.io.error_collector import OnBad, TraceLocations
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import load_column_map
from ragfault.io.normalization import describe_missing_column as no_column
from ragfault.records import Trace

LABEL_KEYS = ("label", "spans", "claims", "grades")
"""The map keys that say where the words of people stand."""

COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "label": (
        *("label", "human_label", "gold_label", "labels", "hallucinated", "hallucination"),
        *("is_hallucinated", "is_hallucination", "has_hallucination", "attributable", "is_attributable"),
        *("attribution", "attribution_label", "supported", "is_supported", "grounded", "is_grounded"),
        *("faithful", "is_faithful", "consistent", "is_consistent", "annotation", "label_name"),
        "verdict",
    ),
    "spans": ("spans", "hallucination_spans", "hallucinated_spans", "labels"),
    "claims": ("claims", "claim_labels", "statements"),
    "grades": ("grades", "grade", "relevances", "chunk_labels", "relevant", "relevance", "rel"),
}
"""Key → the columns it is looked for in, the most telling first."""

GROUP_COLUMNS = ("source_id", "group", "group_id", "conversation", "query")
TRACE_FIELDS = ("id", "query", "model", "route", "conversation", "turn")
"""Fields of a trace that can be named as a column."""


def split_map(map: Mapping[str, str] | str | Path | None) -> tuple[dict[str, str], dict[str, str]]:
    """A map in two: what traces are read by, and where the words of people stand.

    >>> split_map({"answer": "claim", "label": "verdict"})
    ({'answer': 'claim'}, {'label': 'verdict'})
    """
    table = load_column_map(map) if map is not None else {}
    mine = {key: table[key] for key in LABEL_KEYS if key in table}
    return {key: column for key, column in table.items() if key not in mine}, mine


def get_value(trace: Trace, path: str) -> Any:
    """What a trace has in a column: one of its metadata, also by a path with dots, or one of its fields.

    >>> get_value(Trace(id="1", query="When?", metadata={"by": {"ann": 1}}), "by.ann")
    1
    """
    if path in trace.metadata:
        return trace.metadata[path]
    if path in TRACE_FIELDS:
        return getattr(trace, path)
    inner: Any = trace.metadata
    for step in path.removeprefix("metadata.").split("."):
        inner = inner.get(step) if isinstance(inner, dict) else None
    return inner


def _list_columns(traces: Sequence[Trace]) -> dict[str, None]:
    """The columns in which some trace has something."""
    found = dict.fromkeys(
        name for trace in traces for name, held in trace.metadata.items() if not is_absent(held)
    )
    return found | dict.fromkeys(
        name for name in TRACE_FIELDS if any(getattr(trace, name) is not None for trace in traces)
    )


def check_columns(columns: Sequence[str], traces: Sequence[Trace]) -> None:
    """Raise UnknownName for a column that no trace has."""
    for name in columns:
        if all(get_value(trace, name) is None for trace in traces):
            raise UnknownName("column", name, _list_columns(traces))


def detect_columns(
    traces: Sequence[Trace], columns: Mapping[str, str], task: LabelTask | None
) -> tuple[LabelTask, LabelColumns]:
    """What people judged, and the columns that say so: as it was asked for, else by their names.

    Raises InputError where a column that was named is in no trace, or no column tells.
    """
    for key, path in columns.items():
        if all(get_value(trace, path) is None for trace in traces):
            raise InputError(no_column(key, path, _list_columns(traces)))
    found = {key: columns.get(key) or _detect_column(key, traces, columns) for key in LABEL_KEYS}
    task = task or _infer_task(traces, found, columns)
    if task == "relevance":
        named = columns.get("grades") or columns.get("label")
        found["grades"] = named or found["grades"] or found["label"] or _gold_column(traces)
    if task is None or not any(found[key] for key in TASK_KEYS[task]):
        there = ", ".join([name for name in _list_columns(traces) if name not in TRACE_FIELDS][:30])
        keys = TASK_KEYS[task or "answer"]
        raise InputError(
            "no column is known to hold what people said"
            f"{f' of {TASK_OBJECTS[task]}' if task else ''}. There are: {there or 'none'}. "
            f"Name it with --map {' or --map '.join(f'{key}=COLUMN' for key in keys)}"
        )
    return task, LabelColumns(**{key: found[key] if key in TASK_KEYS[task] else None for key in LABEL_KEYS})


TASK_KEYS: dict[LabelTask, tuple[str, ...]] = {
    "answer": ("label", "spans"),
    "support": ("claims", "spans", "label"),
    "relevance": ("grades",),
}
"""Task → the keys that it reads."""

TASK_OBJECTS: dict[LabelTask, str] = {"answer": "answers", "support": "claims", "relevance": "chunks"}
"""Task → what people judged."""


def _detect_column(key: str, traces: Sequence[Trace], columns: Mapping[str, str]) -> str | None:
    """The first column of a known name that holds what the key stands for."""
    taken = set(columns.values())
    for name in COLUMN_NAMES[key]:
        held = [trace.metadata[name] for trace in traces if not is_absent(trace.metadata.get(name))]
        if name not in taken and held and _matches_key(key, held):
            return name
    return None


def _matches_key(key: str, values: Sequence[Any]) -> bool:
    """Whether the values of a column are of the kind: single ones, or lists and objects; grades may be either."""
    if key == "grades":
        return True
    several = any(isinstance(each, (list, tuple, dict)) or _is_json_cell(each) for each in values)
    if key == "claims":
        return any(_has_claim_labels(each) for each in values)
    return several != (key == "label")


def _is_json_cell(cell: Any) -> bool:
    """Whether a cell of text looks like a list or an object."""
    return isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{")


def _has_claim_labels(cell: Any) -> bool:
    """Whether these are claims with labels, or the text of such a list."""
    if isinstance(cell, str):
        return _is_json_cell(cell) and '"label"' in cell
    return isinstance(cell, (list, tuple)) and any(isinstance(one, dict) and "label" in one for one in cell)


def _gold_column(traces: Sequence[Trace]) -> str | None:
    """The gold of the traces, where it has grades of chunks."""
    return "gold" if any(trace.gold is not None and trace.gold.chunks for trace in traces) else None


def _infer_task(
    traces: Sequence[Trace], columns: Mapping[str, str | None], requested: Mapping[str, str]
) -> LabelTask | None:
    """What people judged, by the columns that there are."""
    if "grades" in requested:
        return "relevance"
    if "claims" in requested or (columns["claims"] and not columns["label"] and not columns["spans"]):
        return "support"
    answered = any(trace.answer is not None for trace in traces)
    if answered and (columns["label"] or columns["spans"]):
        return "answer"
    if columns["grades"] or (not answered and (columns["label"] or _gold_column(traces))):
        return "relevance"
    return None


def group_traces(traces: Sequence[Trace], column: str | None) -> tuple[str | None, list[str]]:
    """The column whose values are never split, and the group of each trace; one without a value is its own."""
    if column is not None:
        check_columns([column], traces)
    else:
        column = next(
            (name for name in GROUP_COLUMNS if any(not is_absent(get_value(t, name)) for t in traces)), None
        )
    held = [get_value(trace, column) if column else None for trace in traces]
    return column, [
        f"={trace.id}" if is_absent(each) else str(each) for trace, each in zip(traces, held, strict=True)
    ]


LabeledSource = str | Path | Sequence[str | Path]


class LabeledTrace(NamedTuple):
    """A trace and what people said of it."""

    trace: Trace
    group: str
    positive: bool | None = None
    """Of the answer as a whole."""
    spans: tuple[tuple[int, int], ...] | None = None
    claims: tuple[LabeledClaim, ...] | None = None
    grades: Mapping[str, ChunkGrade] | None = None


class LabeledTraces(NamedTuple):
    """Everything that is to be measured."""

    task: LabelTask
    columns: LabelColumns
    positive: str
    labeled: list[LabeledTrace]
    unlabeled: int
    skipped: int
    notes: list[str]


class _LabelFaults:
    """Faults of lines and of labels, together."""

    def __init__(self, on_bad: OnBad) -> None:
        if not callable(on_bad) and on_bad not in ("raise", "skip"):
            raise UnknownName("way to treat bad lines", str(on_bad), ["raise", "skip", "a callable"])
        self.on_bad, self.count = on_bad, 0
        self.first_faults: list[InputFault] = []

    def add(self, fault: InputFault) -> None:
        self.count += 1
        if len(self.first_faults) < MAX_FAULTS_SHOWN:
            self.first_faults.append(fault)
        if callable(self.on_bad):
            self.on_bad(fault)

    def close(self, good: int) -> None:
        """Raise them all where they are not to be passed over, or nothing good is left."""
        if self.count and (self.on_bad == "raise" or not good):
            raise BadTraces(self.first_faults, good, self.count)


class LabelOptions(NamedTuple):
    """What was asked for, as far as it concerns labels."""

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
    """Read traces and labels, all faults at once; keep those with labels, sorted by group and id.

    Raises BadTraces for lines and labels that cannot be read (unless they are passed over), InputError where
    nothing has a label, UnknownName for a column or a positive label that is nowhere.
    """
    faults, places = _LabelFaults(on_bad), TraceLocations()
    plain, mine = split_map(read_options.get("map"))
    traces = _read_all_traces(source, faults, places, notice, **{**read_options, "map": plain or None})
    if not traces:
        faults.close(0)
        raise InputError("there is no trace to measure on.")
    task, columns = detect_columns(traces, mine, options.task)
    name, groups = group_traces(traces, options.group)
    rule = LabelRule(task, _label_column(columns), options.positive)
    found, bare, loose = _read_labels(zip(traces, groups, strict=True), task, columns, rule, (faults, places))
    _check_positive(rule)
    if not found:
        raise InputError(f"none of {len(traces):,} traces has a label in `{_label_column(columns)}`.")
    notes = [f"{loose:,} claims have no label and are left out"] if loose else []
    if rule.inverted:
        notes.append(f"in `{rule.column}` 1 is taken for good and 0 for bad, by its name")
    kept = sorted(
        _sample_groups(found, options.limit, options.seed), key=lambda one: (one.group, one.trace.id)
    )
    if len(kept) < len(found):
        size = f"{len(kept):,} of {len(found):,} labelled traces"
        notes.append(f"a sample of {size}, by whole groups, seed {options.seed}")
    words = rule.describe() if rule.labels else f"a stretch in `{columns.spans}`"
    columns = msgspec.structs.replace(columns, group=name)
    return LabeledTraces(task, columns, words, kept, bare, faults.count, notes)


def _read_labels(
    traces: Iterable[tuple[Trace, str]],
    task: LabelTask,
    columns: LabelColumns,
    rule: LabelRule,
    faults_and_places: tuple[_LabelFaults, TraceLocations],
) -> tuple[list[LabeledTrace], int, int]:
    """The traces with labels, how many have none, and how many claims have none; raises all faults together."""
    faults, places = faults_and_places
    found: list[LabeledTrace] = []
    bare = loose = 0
    for trace, group in traces:
        try:
            one, without = _label_trace(LabeledTrace(trace, group), task, columns, rule)
        except InvalidRecord as wrong:
            faults.add(InputFault(*places[trace.id], str(wrong), msgspec.json.encode(trace).decode()))
            continue
        loose += without
        found += [one] if one else []
        bare += not one
    faults.close(len(found) + bare)
    return found, bare, loose


def _label_column(columns: LabelColumns) -> str:
    """The column that labels are read from."""
    return columns.grades or columns.claims or columns.label or columns.spans or ""


def _read_all_traces(
    source: LabeledSource | Iterable[Trace],
    faults: _LabelFaults,
    places: TraceLocations,
    notice: Callable[[str], object],
    **read_options: Any,
) -> list[Trace]:
    """Every trace of the files, or of memory, with the place of each."""
    named = isinstance(source, str | Path) or (
        isinstance(source, Sequence) and all(isinstance(one, str | os.PathLike) for one in source)
    )
    if named:
        files = cast(LabeledSource, source)
        return list(
            read_traces(files, on_bad=faults.add, notice=notice, rest=True, locations=places, **read_options)
        )
    traces = list(cast("Iterable[Trace]", source))
    places.update({trace.id: ("traces in memory", at) for at, trace in enumerate(traces, 1)})
    return traces


def _label_trace(
    labeled: LabeledTrace, task: LabelTask, columns: LabelColumns, rule: LabelRule
) -> tuple[LabeledTrace | None, int]:
    """A trace with what people said of it, or None where they said nothing; and how many claims lack a label."""
    trace, answer = labeled.trace, labeled.trace.answer or ""
    if task == "relevance":
        held = _get_grades(trace, columns)
        grades = {} if is_absent(held) else parse_grades(held, trace.chunks or (), rule, columns.grades or "")
        return (labeled._replace(grades=grades) if grades else None), 0
    if columns.claims and not is_absent(held := get_value(trace, columns.claims)):
        claims, loose = parse_claims(held, answer, rule, columns.claims)
        return (labeled._replace(claims=claims) if claims else None), loose
    marked = None
    if columns.spans and not is_absent(held := get_value(trace, columns.spans)):
        marked = parse_spans(held, answer, columns.spans)
    positive = bool(marked) if marked is not None else None
    if columns.label and not is_absent(held := get_value(trace, columns.label)):
        positive = rule.is_positive(held)
    if positive is None or trace.answer is None:
        return None, 0
    return labeled._replace(positive=positive, spans=marked), 0


def _get_grades(trace: Trace, columns: LabelColumns) -> Any:
    """The grades of the chunks, in whatever form they stand."""
    if columns.grades == "gold" and "gold" not in trace.metadata:
        gold = trace.gold.chunks if trace.gold else {}
        return {chunk.id: gold[chunk.id] for chunk in trace.chunks or () if chunk.id in gold}
    return get_value(trace, columns.grades or "")


def _check_positive(rule: LabelRule) -> None:
    """Raise UnknownName for a label that was called positive and is nowhere."""
    if rule.threshold is None and rule.labels:
        for wanted in rule.positive_labels:
            if not any(rule.matches(word, wanted) for word in rule.labels):
                raise UnknownName("label", wanted, rule.labels, hint="Name one of them with --positive.")


def _sample_groups(labeled: list[LabeledTrace], limit: int | None, seed: int) -> list[LabeledTrace]:
    """Whole groups in an order drawn at random, until there are so many traces."""
    if limit is None or limit >= len(labeled):
        return labeled
    groups: dict[str, list[LabeledTrace]] = {}
    for one in labeled:
        groups.setdefault(one.group, []).append(one)
    kept: list[LabeledTrace] = []
    for name in sorted(groups, key=lambda name: rank_randomly(name, seed)):
        if len(kept) >= limit:
            break
        kept += groups[name]
    return kept


def rank_randomly(name: str, seed: int) -> bytes:
    """The place of a name in an order drawn at random, which is the same wherever the name stands.

    >>> sorted(["a", "b", "c"], key=lambda name: rank_randomly(name, 0))
    ['a', 'c', 'b']
    """
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=str(seed).encode()).digest()
