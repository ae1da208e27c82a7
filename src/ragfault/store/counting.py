"""Counting: outcomes as the rows that a store keeps of them, made without the store, by whoever has time for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.findings.monitoring_observing import DERIVED, observations
from ragfault.findings.monitoring_rollups import Observation, Products, Rollup, multiply, roll
from ragfault.records import Trace
from ragfault.runs import Measure
from ragfault.store.records import Outcome, State
from ragfault.store.schema import BIN_NAMES

__all__ = [
    "PAIRED",
    "Counted",
    "Fresh",
    "count",
    "moment",
    "outcome_columns",
    "outcome_state",
    "product_columns",
    "rolled",
    "rollup_columns",
    "value_columns",
]

PAIRED = tuple(
    combinations(("answer_relevance", "chunk_utilization", "context_relevance", "groundedness", "latency"), 2)
)
"""The pairs of metrics whose correlation is watched."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_encode = msgspec.json.Encoder().encode


class Counted(Struct, frozen=True, kw_only=True):
    """An outcome as a store keeps it: texts, values, and what it adds to the roll-ups."""

    trace: str
    """The id."""
    time: float | None
    """The trace's own, in seconds since 1970, UTC; None: that of its arrival, which the store knows."""
    route: str
    judge: str
    state: State
    verdicts: str
    """As JSON."""
    scores: str
    """As JSON."""
    values: tuple[tuple[str, float], ...]
    """Metric and value, of those that have one."""
    seen: tuple[Observation, ...]
    """Where `time` is None, as of 1970."""


Fresh = Sequence[tuple[int, float, Counted]]
"""Number and arrival of a trace, and what is counted of it."""


def moment(trace: Trace, received: float) -> float:
    """When a trace was, in seconds since 1970: its own time, else that of its arrival."""
    if trace.time is None:
        return received
    return (trace.time if trace.time.tzinfo else trace.time.replace(tzinfo=UTC)).timestamp()


def outcome_state(outcome: Outcome) -> State:
    """The state of a trace that was judged."""
    if outcome.trace.error:
        return "error"
    lost = outcome.verdicts.failures or any(score.status == "failed" for score in outcome.scores)
    return "failed" if lost else "scored"


def count(outcomes: Iterable[Outcome], by: Sequence[str] = ()) -> tuple[Counted, ...]:
    """Outcomes as a store keeps them, each trace once; `by` names the fields whose values are cohorts.

    >>> from ragfault.online import score_response
    >>> found = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
    >>> [(each.state, each.values, len(each.seen)) for each in count([found, found])]
    [('scored', (('groundedness', 1.0),), 8)]
    """
    first: dict[str, Outcome] = {}
    for outcome in outcomes:
        first.setdefault(outcome.trace.id, outcome)
    return tuple(_counted(outcome, by) for outcome in first.values())


def _counted(outcome: Outcome, by: Sequence[str]) -> Counted:
    trace = outcome.trace
    timed = trace if trace.time is not None else msgspec.structs.replace(trace, time=EPOCH)
    return Counted(
        trace=trace.id,
        time=None if trace.time is None else moment(trace, 0.0),
        route=trace.route or "",
        judge=outcome.verdicts.judge,
        state=outcome_state(outcome),
        verdicts=_encode(outcome.verdicts).decode(),
        scores=_encode(outcome.scores).decode(),
        values=tuple((one.metric, one.value) for one in outcome.scores if one.value is not None),
        seen=tuple(observations(timed, outcome.verdicts, outcome.scores, by)),
    )


# --- as columns ------------------------------------------------------------------------------------


def outcome_columns(fresh: Fresh) -> dict[str, list[Any]]:
    """The columns of the table of outcomes."""
    now = time.time()
    return {
        "number": [number for number, _, _ in fresh],
        "judge": [each.judge for _, _, each in fresh],
        "scored": [now] * len(fresh),
        "state": [each.state for _, _, each in fresh],
        "verdicts": [each.verdicts for _, _, each in fresh],
        "scores": [each.scores for _, _, each in fresh],
    }


def value_columns(fresh: Fresh) -> dict[str, list[Any]]:
    """The columns of the table of scores: the values of all metrics as rows."""
    rows = [
        (number, received if each.time is None else each.time, each.route, metric, value)
        for number, received, each in fresh
        for metric, value in each.values
    ]
    names = ("number", "time", "route", "metric", "value")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def rolled(fresh: Fresh, known: Sequence[Measure]) -> tuple[tuple[Rollup, ...], tuple[Products, ...]]:
    """What outcomes add to the roll-ups, and to the sums of products."""
    seen: list[Observation] = []
    for _, received, each in fresh:
        if each.time is None:
            seen += (msgspec.structs.replace(one, time=received) for one in each.seen)
        else:
            seen += each.seen
    return roll(seen, [*known, *DERIVED]), multiply(seen, PAIRED)


def rollup_columns(made: Sequence[Rollup]) -> dict[str, list[Any]]:
    """The columns of a table of roll-ups."""
    columns: dict[str, list[Any]] = {
        "metric": [each.metric for each in made],
        "route": [each.route or "" for each in made],
        "cohort": [each.cohort or "" for each in made],
        "minute": [each.minute for each in made],
        "n": [each.n for each in made],
        "total": [each.sum for each in made],
        "squares": [each.squares for each in made],
        "undefined": [each.undefined for each in made],
        "failed": [each.failed for each in made],
    }
    return columns | {name: [each.bins[at] for each in made] for at, name in enumerate(BIN_NAMES)}


def product_columns(made: Sequence[Products]) -> dict[str, list[Any]]:
    """The columns of the table of sums of products."""
    names = Products.__struct_fields__
    return {
        name: [(getattr(each, name) or "") if name == "route" else getattr(each, name) for each in made]
        for name in names
    }
