"""The scores of a run as a grid, traces × metrics, in numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragfault.errors import RunError, UnknownName
from ragfault.findings.rectifying import People, Said, bounds
from ragfault.runs import Measure, Run
from ragfault.stats import Interval, mean_interval

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SCORED", "Grid", "Labels", "conversations", "encode", "labels", "open_grid", "span"]

SCORED, UNDEFINED, FAILED = range(3)
STATES = ("scored", "undefined", "failed")

NONE = -1
"""The code of what is not there."""

TEXTS = ("metric", "status", "reason")
"""Columns of the scores that hold few texts, many times."""

Small = NDArray[Any]
"""Small whole numbers, in as few bytes as they need."""
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Labels = tuple[Codes, list[str]]
"""A code for each trace, or NONE, and the texts that the codes stand for."""


class Grid:
    """The scores of a run: row i is its trace i, column j its metric j; with what people said of some of them."""

    def __init__(self, run: Run, people: People | None = None) -> None:
        self.run, self.measures, self.people = run, run.manifest.metrics, people
        self.names = [measure.name for measure in self.measures]
        self.status, self.values, self.why, self.reasons = _scores(run)
        self.values[self.status != SCORED] = math.nan
        self.clusters: Codes | None = conversations(run)

    @property
    def traces(self) -> int:
        """How many traces there are."""
        return len(self.status)

    def find(self, name: str) -> int | None:
        """The column of the metric that prints so, or None."""
        return self.names.index(name) if name in self.names else None

    def base(self, name: str) -> int | None:
        """The column of the first metric of that name, whatever its parameters."""
        exact = self.find(name)
        if exact is not None:
            return exact
        return next((at for at, text in enumerate(self.names) if bare(text) == name), None)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the traces."""
        found: list[str] = self.run.to_arrow("traces", ["id"])["id"].to_pylist()
        return found

    def said(self, at: int) -> Said | None:
        """The values of a metric by people; None where they gave none."""
        return None if self.people is None else self.people.column(self.names[at], self.ids)

    def column(self, at: int, rows: Codes | None = None) -> tuple[Floats, Codes | None]:
        """The values of a metric where it has one, and the clusters of their traces."""
        kept = self.scored(at, rows)
        return self.values[kept, at], None if self.clusters is None else self.clusters[kept]

    def scored(self, at: int, rows: Codes | None = None) -> Codes:
        """The rows on which a metric has a value."""
        states = self.status[:, at] if rows is None else self.status[rows, at]
        return np.flatnonzero(states == SCORED) if rows is None else rows[states == SCORED]


def open_grid(source: Run | Grid, people: People | None = None) -> Grid:
    """The grid of a run; a grid is taken as it is, so that several findings can share one."""
    return source if isinstance(source, Grid) else Grid(source, people)


def bare(metric: str) -> str:
    """The name of a metric without parameters and cut-off.

    >>> bare("recall(relevant=2)@20")
    'recall'
    """
    return metric.split("(", 1)[0].split("@", 1)[0].strip()


def span(
    values: Floats | Mask,
    clusters: Codes | None,
    measure: Measure | None = None,
) -> Interval | None:
    """The mean and interval of some values, cut at the range of their metric (else [0, 1]); None for none."""
    if not len(values):
        return None
    groups = None if clusters is None else clusters.tolist()
    ends = (0.0, 1.0) if measure is None else bounds(measure)
    return mean_interval(values.astype(np.float64), groups, bounds=ends)


def encode(column: pa.ChunkedArray | pa.Array) -> Labels:
    """A column of texts as codes; null is NONE."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    whole = column.unify_dictionaries().combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    codes = pc.fill_null(whole.indices, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, whole.dictionary.to_pylist()


def _floats(column: pa.Array) -> Floats:
    import pyarrow.compute as pc

    return np.array(pc.fill_null(column, math.nan).to_numpy(), dtype=np.float64)


def _scores(run: Run) -> tuple[Small, Floats, Small, list[str]]:
    """States, values and reasons, traces × metrics, checked to be every one in order; and what the reasons stand for.

    13 bytes for each trace and metric, and no more: the file is read a piece at a time.
    """
    names = [measure.name for measure in run.manifest.metrics]
    shape = (run.manifest.traces, len(names))
    status, values, why = np.empty(shape, np.int8), np.empty(shape), np.empty(shape, np.int32)
    reasons: dict[str, int] = {}
    at = 0
    for batch in run.batches("scores", [*TEXTS, "value"], encoded=TEXTS):
        rows = slice(at, at + batch.num_rows)
        if rows.stop > status.size or not _in_order(batch["metric"], names, at):
            raise _broken(run)
        state, states = encode(batch["status"])
        status.reshape(-1)[rows] = np.array([STATES.index(name) for name in states], np.int8)[state]
        values.reshape(-1)[rows] = _floats(batch["value"])
        told, texts = encode(batch["reason"])
        why.reshape(-1)[rows] = np.array([*(reasons.setdefault(t, len(reasons)) for t in texts), NONE])[told]
        at = rows.stop
    if at != status.size:
        raise _broken(run)
    return status, values, why, list(reasons)


def _in_order(column: pa.Array, names: Sequence[str], at: int) -> bool:
    """Whether the metrics of rows, from one on, are those that should stand there."""
    codes, found = encode(column)
    wanted = np.array([found.index(name) if name in found else NONE for name in names])
    return bool((codes == wanted[np.arange(at, at + len(codes)) % len(names)]).all())


def _broken(run: Run) -> RunError:
    return RunError(
        f"{run.path / 'scores.parquet'} does not hold one row for every trace and metric of the manifest, "
        "in order. Evaluate the traces again."
    )


def conversations(run: Run) -> Codes | None:
    """A code for each trace, shared by the traces of one conversation; None where there are none."""
    codes, names = encode(run.to_arrow("traces", ["conversation"])["conversation"])
    if not names:
        return None
    return np.where(codes == NONE, len(names) + np.arange(len(codes)), codes)


# --- what divides the traces -----------------------------------------------------------------------

FIELDS = ("route", "conversation", "model", "turn")
KEY = "metadata."


def labels(run: Run, by: str) -> Labels:
    """The value of a field for each trace: route, conversation, model, turn, or metadata.KEY.

    Raises UnknownName for another field, or a metadata key that no trace has.
    """
    import pyarrow as pa

    if by in FIELDS:
        return encode(run.to_arrow("traces", [by])[by].cast(pa.string()))
    if not by.startswith(KEY):
        raise UnknownName("field to divide by", by, [*FIELDS, f"{KEY}KEY"])
    key = by.removeprefix(KEY)
    whole, texts = encode(run.to_arrow("traces", ["metadata"])["metadata"])
    objects = [_object(text) for text in texts]
    if not any(key in entry for entry in objects):
        keys = sorted({name for entry in objects for name in entry})
        raise UnknownName("field to divide by", by, [*FIELDS, *(KEY + name for name in keys)])
    return _compact(whole, [_label(entry.get(key)) for entry in objects])


def _compact(codes: Codes, texts: Sequence[str | None]) -> Labels:
    """Codes over texts that may repeat or lack, as codes over distinct ones."""
    names = list(dict.fromkeys(text for text in texts if text is not None))
    place = {name: at for at, name in enumerate(names)}
    table = np.array([NONE if text is None else place[text] for text in texts] + [NONE], dtype=np.int64)
    return table[codes], names


def _label(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()


def _object(text: str) -> dict[str, Any]:
    import msgspec

    value = msgspec.json.decode(text)
    return value if isinstance(value, dict) else {}
