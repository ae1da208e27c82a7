"""Insights: how relevance and use go with the number, place, length and age of chunks, the turn and the route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragfault.findings.chunks import Chunks, open_chunks
from ragfault.findings.grid import NONE, labels, span
from ragfault.findings.records import Bucket, Insight
from ragfault.runs import Run

__all__ = ["insights"]

By = Literal["chunks", "position", "length", "turn", "age", "route"]
Codes = NDArray[np.int64]

Sorted = tuple[Codes, list[str]]
"""A bucket's number for each chunk, or NONE, and the labels of the buckets."""


def insights(run: Run, chunks: Chunks | None = None) -> tuple[Insight, ...]:
    """Mean relevance, and share used, of the chunks in each bucket of each property.

    The properties: the number of chunks of the trace (1–3, 4–6, 7–10, 11+), the position (1 to 10, 11+),
    the length in characters (< 100, 100–500, 500–1000, > 1000), the turn of the conversation (1 to 4, 5+), the
    age in days at the time of the query (0–30, 31–90, 91–365, > 365; from `updated_at`), and the route.
    Everything is counted over chunks, those of one trace or conversation taken together; buckets that
    are empty, and properties that no chunk has, are left out.
    """
    seen = chunks or open_chunks(run)
    found = []
    for by, (codes, names) in _properties(run, seen):
        for measure, values, there in (
            ("relevance", seen.relevance, seen.judged),
            ("use", seen.used.astype(np.float64), seen.tried),
        ):
            buckets = tuple(_buckets(seen, codes, names, values, there))
            if buckets:
                unknown = int((there & (codes == NONE)).sum())
                found.append(Insight(measure=measure, by=by, buckets=buckets, unknown=unknown))  # type: ignore[arg-type]
    return tuple(found)


def _buckets(
    seen: Chunks, codes: Codes, names: list[str], values: NDArray[np.float64], there: NDArray[np.bool_]
) -> Iterator[Bucket]:
    for code, name in enumerate(names):
        inside = there & (codes == code)
        interval = span(values[inside], seen.groups[inside])
        if interval is not None:
            yield Bucket(label=name, traces=len(np.unique(seen.trace[inside])), interval=interval)


def _properties(run: Run, seen: Chunks) -> Iterator[tuple[By, Sorted]]:
    sizes = seen.counts[seen.trace]
    yield "chunks", (np.digitize(sizes, [4, 7, 11]), ["1–3", "4–6", "7–10", "11+"])
    yield "position", _upto(seen.position, 10)
    yield (
        "length",
        (np.digitize(seen.length, [100, 500, 1001]), ["< 100", "100–500", "500–1000", "> 1000"]),
    )
    turns, names = labels(run, "turn")
    numbers = np.array([*map(int, names), NONE], dtype=np.int64)
    yield "turn", _upto(numbers[turns][seen.trace], 4)
    aged = np.digitize(np.floor(np.nan_to_num(seen.age, nan=-1.0)), [31, 91, 366])
    known = np.nan_to_num(seen.age, nan=-1.0) >= 0
    yield "age", (np.where(known, aged, NONE), ["0–30", "31–90", "91–365", "> 365"])
    routes, texts = labels(run, "route")
    yield "route", (routes[seen.trace], texts)


def _upto(numbers: Codes, last: int) -> Sorted:
    """One bucket for each number from 1 to `last`, and one for all above."""
    codes = np.where(numbers >= 1, np.minimum(numbers, last + 1) - 1, NONE)
    return codes, [*map(str, range(1, last + 1)), f"{last + 1}+"]
