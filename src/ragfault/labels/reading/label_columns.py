"""Labels in the columns of traces: which columns hold them, and the labels that a trace has there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragfault.io.formats.columns import load_column_map
from ragfault.io.normalization import describe_missing_column
from ragfault.io.reading_settings import ColumnMapSource
from ragfault.labels.judges.measurement import LabelColumns, LabelTask
from ragfault.labels.label import Label, Subject
from ragfault.labels.reading.label_parser import (
    CLAIM_LABEL_KEYS,
    has_claim_label,
    is_absent,
    list_votes,
    parse_claims,
    parse_grades,
    parse_spans,
)
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Trace

# map keys of the label columns
LABEL_KEYS = ("label", "spans", "claims", "grades")

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

# trace fields that can be named as a column
TRACE_FIELDS = ("id", "query", "model", "route", "conversation", "turn")


def split_map(map: ColumnMapSource | None) -> tuple[dict[str, Any], dict[str, str]]:
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

GIVEN_COLUMNS: dict[LabelTask, LabelColumns] = {
    "support": LabelColumns(claims="claims"),
    "relevance": LabelColumns(grades="grades"),
}
"""Task → how a report names labels that do not come from columns."""

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


def list_trace_labels(trace: Trace, task: LabelTask, columns: LabelColumns) -> tuple[list[Label], int]:
    """List the labels in the columns of a trace, as people gave them, and count the claims without one.

    Raises InvalidRecord for a column that cannot be read.

    >>> trace = Trace(id="1", query="When?", answer="At 7.", metadata={"votes": ["bad", "good", "bad"]})
    >>> [label.value for label in list_trace_labels(trace, "answer", LabelColumns(label="votes"))[0]]
    ['bad', 'good', 'bad']
    """
    if task == "relevance":
        value = _get_grades(trace, columns)
        grades = {} if is_absent(value) else parse_grades(value, trace.chunks or (), columns.grades or "")
        return [_make_label(trace, ("chunk", chunk, "grade"), grade) for chunk, grade in grades.items()], 0
    if columns.claims and not is_absent(value := get_value(trace, columns.claims)):
        claims, unlabeled = parse_claims(value, trace.answer or "", columns.claims)
        return [_make_label(trace, subject, label) for subject, label in claims], unlabeled
    return list(_iterate_answer_labels(trace, columns)), 0


def _make_label(trace: Trace, subject: Subject, value: Any, annotator: str = "") -> Label:
    return Label(trace=trace.id, subject=subject, value=value, annotator=annotator)


def _iterate_answer_labels(trace: Trace, columns: LabelColumns) -> Iterator[Label]:
    """Yield the labels of spans of the answer, then those of the answer, one for each person."""
    if trace.answer is None:
        return
    if columns.spans and not is_absent(value := get_value(trace, columns.spans)):
        spans = parse_spans(value, trace.answer, columns.spans)
        yield from (_make_label(trace, ("span", *span), True) for span in spans)
        if not spans:
            yield _make_label(trace, ("span",), ())
    if columns.label and not is_absent(value := get_value(trace, columns.label)):
        for number, vote in enumerate(list_votes(value) or [value], 1):
            yield _make_label(trace, ("answer", "label"), vote, f"{number}")


def _get_grades(trace: Trace, columns: LabelColumns) -> Any:
    """Return the grades of the chunks in any form."""
    if columns.grades == "gold" and "gold" not in trace.metadata:
        gold = trace.gold.chunks if trace.gold else {}
        return {chunk.id: gold[chunk.id] for chunk in trace.chunks or () if chunk.id in gold}
    return get_value(trace, columns.grades or "")
