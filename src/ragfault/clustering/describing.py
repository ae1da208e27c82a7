"""Describing: what a group of failures is, in figures with intervals, in traces that show it, and in what mends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from ragfault.clustering.failing import Whole, common_lead
from ragfault.clustering.naming import Told
from ragfault.clustering.records import Cluster, Failure, Point, Shown, Trend
from ragfault.findings import KINDS
from ragfault.sources.values import content_id
from ragfault.stats import Interval, mean_interval, unpaired_differences
from ragfault.text import squad

__all__ = ["Part", "describe", "key_of", "parts", "trends"]

MEDOIDS = 3
STRETCHES = 8
"""Into at most so many stretches of time a run is divided, and"""
APIECE = 10
"""at most so many that each would hold this many traces if they came evenly."""
STEADY = 0.05
"""A change of share that is certainly smaller than this is none."""
DAY = 86_400_000_000
"""Microseconds."""

Array = np.ndarray[Any, Any]


class Part(NamedTuple):
    """A run, or a stretch of time of one, in which clusters are counted."""

    label: str
    run: int
    rows: Array
    """The rows of the run that lie in it."""


def key_of(one: Failure) -> str:
    """What names a failure over runs: its query in normal form and its kind, hashed.

    >>> a, b = [Failure(run=r, row=0, trace=t, query=q, kind="absent_fact", kinds=(), text="") for r, t, q in
    ...         ((0, "1", "When does it leave?"), (1, "9", "when does it leave"))]
    >>> key_of(a) == key_of(b)
    True
    """
    return content_id(f"{one.kind}\n{squad(one.query) or one.query}", "")


def describe(
    group: Sequence[Failure], rows: Array, told: Told, name: str, wholes: Sequence[Whole]
) -> Cluster:
    """A group as a cluster that was never seen before; its rows are those of the space of meaning and kinds."""
    keys = [sorted({key_of(one) for one in group if one.run == place}) for place in range(len(wholes))]
    layers = Counter(KINDS[one.kind].layer for one in group)
    kinds = Counter(each for one in group for each in one.kinds)
    kind = common_lead(kinds, len(group))
    middle = rows.mean(axis=0)
    length = float(np.linalg.norm(middle)) or 1.0
    return Cluster(
        id=content_id("\n".join((kind, *sorted(set().union(*keys)))), "c-")[:8],
        name=name,
        kind=kind,
        layer=KINDS[kind].layer,
        size=len(group),
        share=_share(group, wholes),
        words=told.words,
        kinds=dict(sorted(kinds.items(), key=lambda each: (-each[1], each[0]))),
        layers=dict(sorted(layers.items(), key=lambda each: (-each[1], each[0]))),
        members=tuple(_member(one, wholes) for one in group),
        shown=tuple(_shown(group[place], wholes) for place in _medoids(rows)),
        remedies=KINDS[kind].steps,
        points=(),
        trend="cannot tell",
        terms=told.terms,
        keys=tuple(map(tuple, keys)),
        seen=tuple(sum(one.run == place for one in group) for place in range(len(wholes))),
        centroid=tuple(np.round(middle / length, 5).tolist()),
    )


def _member(one: Failure, wholes: Sequence[Whole]) -> str:
    return one.trace if len(wholes) == 1 else f"{wholes[one.run].name}/{one.trace}"


def _shown(one: Failure, wholes: Sequence[Whole]) -> Shown:
    """A trace that stands for its cluster; a problem that is the query itself is told by its reason alone."""
    name, text = wholes[one.run].name, one.text
    if text.startswith(f"{one.query} ("):
        text = text[len(one.query) + 2 :].removesuffix(")")
    return Shown(run=name, trace=one.trace, query=one.query, kind=one.kind, text=text)


def _medoids(rows: Array) -> list[int]:
    """The rows nearest to all others by cosine; of equals the first."""
    near = np.round(rows @ rows.mean(axis=0), 6)
    found: list[int] = np.argsort(-near, kind="stable")[:MEDOIDS].tolist()
    return found


def _share(group: Sequence[Failure], wholes: Sequence[Whole]) -> Interval:
    """The share of all traces; those of one conversation, or of one query in several runs, taken together."""
    starts = np.cumsum([0, *(each.traces for each in wholes)])
    values = np.zeros(starts[-1])
    values[[int(starts[one.run]) + one.row for one in group]] = 1
    return mean_interval(values, _together(wholes), bounds=(0, 1))


def _together(wholes: Sequence[Whole]) -> Array | None:
    """Which traces are not independent."""
    if len(wholes) == 1:
        return wholes[0].groups
    if any(each.queries is None for each in wholes):
        return None
    codes: dict[str, int] = {}
    return np.array([codes.setdefault(query, len(codes)) for each in wholes for query in each.queries or ()])


# --- over runs, or over time -----------------------------------------------------------------------


def parts(wholes: Sequence[Whole]) -> list[Part]:
    """The runs, where there are several; else the stretches of time of the one, where it has times; else nothing."""
    if len(wholes) > 1:
        return [Part(each.name, place, np.arange(each.traces)) for place, each in enumerate(wholes)]
    times = wholes[0].times
    if times is None:
        return []
    known = np.flatnonzero(times >= 0)
    count = min(STRETCHES, len(known) // APIECE)
    if count < 2 or times[known].min() == times[known].max():
        return []
    first, last = int(times[known].min()), int(times[known].max())
    ends = np.linspace(first, last, count + 1)
    bucket = np.clip(np.searchsorted(ends, times[known], side="right") - 1, 0, count - 1)
    made = [Part(_when(int(ends[place]), last - first), 0, known[bucket == place]) for place in range(count)]
    return [part for part in made if len(part.rows)]


def _when(moment: int, span: int) -> str:
    """The beginning of a stretch: its day, or its minute where all of it is a few days."""
    made = datetime.fromtimestamp(moment / 1e6, UTC)
    return f"{made:%Y-%m-%d}" if span > 4 * DAY else f"{made:%Y-%m-%d %H:%M}"


def trends(
    groups: Sequence[Sequence[Failure]], wholes: Sequence[Whole], seed: int = 0
) -> list[tuple[tuple[Point, ...], Trend]]:
    """The course of each group, and where it goes: the last run against the first, or the later half of the time
    against the earlier one, by the interval of the difference of shares.
    """
    over = parts(wholes)
    if len(over) < 2:
        return [((), "cannot tell") for _ in groups]
    tables = [np.stack([_marks(group, part) for group in groups], axis=1) for part in over]
    if len(wholes) > 1:
        early, late = tables[0], tables[-1]
    else:
        half = len(over) // 2
        early, late = np.concatenate(tables[:half]), np.concatenate(tables[half:])
    changes = unpaired_differences(early, late, bounds=[(0.0, 1.0)] * len(groups), seed=seed)
    return [
        (
            tuple(_point(part, table[:, at]) for part, table in zip(over, tables, strict=True)),
            _trend(changes[at]),
        )
        for at in range(len(groups))
    ]


def _marks(group: Sequence[Failure], part: Part) -> Array:
    """1 for each trace of a part that is in the group, else 0."""
    rows = [one.row for one in group if one.run == part.run]
    return np.isin(part.rows, rows).astype(np.float64)


def _point(part: Part, marks: Array) -> Point:
    return Point(
        label=part.label,
        failures=int(marks.sum()),
        traces=len(marks),
        share=mean_interval(marks, bounds=(0, 1)),
    )


def _trend(change: Any) -> Trend:
    if change is None:
        return "cannot tell"
    if change.low > 0:
        return "rising"
    if change.high < 0:
        return "falling"
    return "steady" if max(-change.low, change.high) < STEADY else "cannot tell"
