"""Labels of answers by rubrics: a CSV or JSON Lines file with the trace, the rubric and the value that people give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from ragfault.labels.reading.label_rows import convert_label_rows
from ragfault.model.errors import InputError

TRACE_COLUMNS = ("trace", "id")


class RubricLabel(Struct, frozen=True, kw_only=True):
    """Value of one answer by one rubric, as a person gives it."""

    trace: str
    rubric: str
    """"" where the file names none: then the run has a single rubric."""
    value: float
    by: str = ""


def read_rubric_labels(path: str | Path) -> list[RubricLabel]:
    """Read labels: columns `trace` (or `id`), `value`, and where there are several rubrics `rubric`; `by` names people.

    A file that ends in .csv is CSV, any other JSON Lines. Raises BadRows for rows that are no label, and InputError for
    a file without any.
    """
    file = Path(path)
    labels = convert_label_rows(file, _convert_row)
    if not labels:
        raise InputError(f"{file} holds no label. Write trace, rubric and value for each answer.")
    return labels


def _convert_row(row: Mapping[str, Any]) -> RubricLabel | str:
    """Convert a row to a label; return the reason where it is none."""
    trace = next((row[name] for name in TRACE_COLUMNS if row.get(name) not in (None, "")), None)
    if trace is None:
        return "there is no trace"
    try:
        value = float(row.get("value", ""))
    except (TypeError, ValueError):
        return f"the value is no number: {row.get('value')!r}"
    if not 0 <= value <= 1:
        return f"the value {value:g} is not from 0 to 1"
    return RubricLabel(trace=str(trace), rubric=str(row.get("rubric") or ""), value=value, by=str(row.get("by") or ""))


def settle_labels(labels: list[RubricLabel], only: str | None) -> dict[str, dict[str, float]]:
    """Map rubric → trace → value: the last label of each person, then the lower median of all persons.

    `only` is the rubric of labels that name none; raises InputError for such labels where it is None.
    """
    votes: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for label in labels:
        name = label.rubric or only
        if name is None:
            raise InputError(f"the label of {label.trace} names no rubric, and the run has several. Add the column.")
        votes[name, label.trace][label.by] = label.value
    settled: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, trace), values in votes.items():
        ordered = sorted(values.values())
        settled[name][trace] = ordered[(len(ordered) - 1) // 2] if len(ordered) % 2 == 0 else median(ordered)
    return dict(settled)
