"""Layouts of label files: one table of how a row is recognised, and how it becomes labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.io.field_values import InvalidRecord
from ragfault.labels.label import Label
from ragfault.labels.reading.lines import (
    LabelLine,
    ReviewLine,
    build_label_line,
    build_review_line,
    list_label_line,
    list_review_line,
)

Row = Mapping[str, Any]
Line = TypeVar("Line", bound=Struct)


class ExpectedValues(NamedTuple):
    """What the values of a table may be of."""

    ranges: Mapping[str, tuple[float | None, float | None]] = {}
    """Metric, as its column is named → lowest and highest value; None: no end."""
    generators: Collection[str] = ()
    """Names of the generators."""


ANY_VALUES = ExpectedValues()


class LabelLayout(NamedTuple):
    """Layout of a label file."""

    noun: str
    """What its rows hold."""
    columns: tuple[frozenset[str], ...]
    """Columns of its rows: one name out of each set."""
    convert: Callable[[Row, ExpectedValues], list[Label]]
    """Row → labels; none for a row that nobody filled in. Raises InvalidRecord for any other row."""
    advice: str
    """How to get such a file."""
    build: Callable[[Label], Struct] | None = None
    """Label → line, in a layout that ragfault writes."""
    holds_metrics: bool = False
    """Whether its rows have a column named as an expected metric, and no query, which a trace has."""
    is_unique: bool = False
    """Whether a second value for a subject is an error, not a correction."""


def _convert_line(row: Row, line_type: type[Line]) -> Line:
    try:
        return msgspec.convert(row, line_type)
    except msgspec.ValidationError as error:
        raise InvalidRecord(str(error)) from None


def _get_cell(row: Row, *names: str) -> str:
    """Return the first cell that is filled in, with single spaces; empty without one."""
    return next((text for name in names if (text := " ".join(str(row.get(name) or "").split()))), "")


def _get_trace(row: Row, *names: str) -> str:
    """Return what identifies the trace, as it is written."""
    trace = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    if trace is None:
        raise InvalidRecord(f"neither {' nor '.join(f'`{name}`' for name in names)}")
    return str(trace)


def _parse_value(row: Row, column: str, low: float | None, high: float | None) -> float:
    try:
        value = float(row[column])
    except (KeyError, TypeError, ValueError):
        raise InvalidRecord(f'"{str(row.get(column) or "")[:40]}" is not a number - at `{column}`') from None
    if not (low is None or value >= low) or not (high is None or value <= high):
        ends = ["-∞" if low is None else f"{low:g}", "∞" if high is None else f"{high:g}"]
        raise InvalidRecord(f"{value:g} is not in [{ends[0]}, {ends[1]}] - at `{column}`")
    return value


def _convert_verdicts(row: Row, _: ExpectedValues) -> list[Label]:
    return list_label_line(_convert_line(row, LabelLine))


def _convert_review(row: Row, _: ExpectedValues) -> list[Label]:
    return list_review_line(_convert_line(row, ReviewLine))


def _convert_rubric_value(row: Row, _: ExpectedValues) -> list[Label]:
    label = Label(
        trace=_get_trace(row, "trace", "id"),
        subject=("rubric", str(row.get("rubric") or "")),
        value=_parse_value(row, "value", 0, 1),
        annotator=str(row.get("by") or ""),
        note=str(row.get("note") or ""),
    )
    return [label]


def _convert_metric_values(row: Row, expected: ExpectedValues) -> list[Label]:
    trace = _get_trace(row, "trace", "id")
    return [
        Label(
            trace=trace,
            subject=("metric", metric),
            value=_parse_value(row, metric, low, high),
            annotator=str(row.get("by") or ""),
            note=str(row.get("note") or ""),
        )
        for metric, (low, high) in expected.ranges.items()
        if row.get(metric) not in (None, "")
    ]


def _convert_generator_values(row: Row, expected: ExpectedValues) -> list[Label]:
    generator = row.get("generator")
    if generator not in expected.generators:
        raise InvalidRecord(f'`generator` is one of {", ".join(expected.generators)}, and is not "{generator}"')
    labels = _convert_metric_values(row, expected)
    if not labels:
        raise InvalidRecord(f"no value in the column {' or '.join(f'`{metric}`' for metric in expected.ranges)}")
    return [replace(label, subject=(*label.subject, str(generator))) for label in labels]


PREFERRED = {"1": 1.0, "first": 1.0, "2": 0.0, "second": 0.0, "tie": 0.5, "both": 0.5, "neither": 0.5, "equal": 0.5}
"""Winner of a row, in lower case → value of the preference."""


def _convert_preference(row: Row, _: ExpectedValues) -> list[Label]:
    first, second, winner = (_get_cell(row, name) for name in ("first", "second", "winner"))
    query = _get_cell(row, "id", "query")
    if not query or not first or not second:
        raise InvalidRecord("it needs id, first and second")
    if first == second:
        raise InvalidRecord(f'both versions are "{first}"')
    if not winner:
        return []
    # 1 and 2 are always the place, also if a version has that name.
    by_name = {first: 1.0, second: 0.0, "1": 1.0, "2": 0.0, "tie": 0.5}
    value = by_name.get(winner, PREFERRED.get(winner.lower().removesuffix(".0")))
    if value is None:
        raise InvalidRecord(f'the winner "{winner}" is not 1, 2, tie, {first} or {second}')
    subject, annotator = ("preference", first, second), _get_cell(row, "by")
    return [Label(trace=query, subject=subject, value=value, annotator=annotator, note=_get_cell(row, "note"))]


def _name(*names: str) -> tuple[frozenset[str], ...]:
    """Return the columns of a layout; names that mean the same are separated by `|`."""
    return tuple(frozenset(name.split("|")) for name in names)


LAYOUTS: dict[str, LabelLayout] = {
    "verdicts": LabelLayout(
        noun="labels of verdicts",
        columns=_name("trace", "verdicts"),
        convert=_convert_verdicts,
        advice="Make some with: ragfault label RUN",
        build=build_label_line,
    ),
    "reviews": LabelLayout(
        noun="reviews of items",
        columns=_name("item", "decision", "shown"),
        convert=_convert_review,
        advice="Make some with: ragfault testset review SET",
        build=build_review_line,
    ),
    "preferences": LabelLayout(
        noun="preferences",
        columns=_name("id|query", "first", "second", "winner"),
        convert=_convert_preference,
        advice="Write id, first, second and winner (1, 2 or tie) in each row.",
    ),
    "generator values": LabelLayout(
        noun="values of generators",
        columns=_name("generator", "trace|id"),
        convert=_convert_generator_values,
        holds_metrics=True,
        advice="Write generator, trace and a column named as the metric.",
    ),
    "metric values": LabelLayout(
        noun="values of metrics",
        columns=_name("trace|id"),
        convert=_convert_metric_values,
        holds_metrics=True,
        advice="Write trace and columns named as metrics.",
        is_unique=True,
    ),
    "rubric values": LabelLayout(
        noun="values of rubrics",
        columns=_name("trace|id", "value"),
        convert=_convert_rubric_value,
        advice="Write trace, rubric and value (0 to 1) for each answer.",
    ),
}
"""Layout → its rows; a row is of the first layout all of whose columns it has."""


def recognize_row(row: Row, expected: ExpectedValues = ANY_VALUES) -> str | None:
    """Return the layout of a row by its columns; None if no layout fits.

    >>> recognize_row({"trace": "1", "value": 1}), recognize_row({"query": "When?", "answer": "At 7."})
    ('rubric values', None)
    """
    has_metric = bool(expected.ranges.keys() & row.keys()) and "query" not in row
    for name, layout in LAYOUTS.items():
        if all(names & row.keys() for names in layout.columns) and (has_metric or not layout.holds_metrics):
            return name
    return None
