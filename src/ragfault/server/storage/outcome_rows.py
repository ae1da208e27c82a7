"""Rows of scored traces as both engines store them: outcomes, values, roll-ups and products."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.analysis.monitoring.rollups import (
    DERIVED_METRICS,
    Observation,
    ProductSums,
    Rollup,
    observe_trace,
    roll_up,
    sum_products,
)
from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.server.storage.duckdb.schema import BIN_COLUMNS
from ragfault.server.storage.records import TraceOutcome, TraceState

METRIC_PAIRS = tuple(
    combinations(("answer_relevance", "chunk_utilization", "context_relevance", "groundedness", "latency"), 2)
)
"""The pairs of metrics whose correlation is watched."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_encode_json = msgspec.json.Encoder().encode


class OutcomeRow(Struct, frozen=True, kw_only=True):
    """An outcome as a store keeps it: texts, values, and what it adds to the roll-ups."""

    trace: str
    """The id."""
    time: float | None
    """The trace's own, in seconds since 1970, UTC; None: that of its arrival, which the store knows."""
    route: str
    judge: str
    state: TraceState
    verdicts: str
    """As JSON."""
    scores: str
    """As JSON."""
    values: tuple[tuple[str, float], ...]
    """Metric and value, of those that have one."""
    observations: tuple[Observation, ...]
    """Where `time` is None, as of 1970."""


NumberedRows = Sequence[tuple[int, float, OutcomeRow]]
"""Number and arrival of a trace, and what is counted of it."""


def get_trace_time(trace: Trace, received: float) -> float:
    """When a trace was, in seconds since 1970: its own time, else that of its arrival."""
    if trace.time is None:
        return received
    return (trace.time if trace.time.tzinfo else trace.time.replace(tzinfo=UTC)).timestamp()


def classify_outcome(outcome: TraceOutcome) -> TraceState:
    """The state of a trace that was judged."""
    if outcome.trace.error:
        return "error"
    lost = outcome.verdicts.failures or any(score.status == "failed" for score in outcome.scores)
    return "failed" if lost else "scored"


def build_outcome_rows(
    outcomes: Iterable[TraceOutcome], cohort_fields: Sequence[str] = ()
) -> tuple[OutcomeRow, ...]:
    """Outcomes as a store keeps them, each trace once; `by` names the fields whose values are cohorts.

    >>> from ragfault.evaluation.online import score_response
    >>> found = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
    >>> [(each.state, each.values, len(each.observations)) for each in build_outcome_rows([found, found])]
    [('scored', (('groundedness', 1.0),), 8)]
    """
    first: dict[str, TraceOutcome] = {}
    for outcome in outcomes:
        first.setdefault(outcome.trace.id, outcome)
    return tuple(_build_outcome_row(outcome, cohort_fields) for outcome in first.values())


def _build_outcome_row(outcome: TraceOutcome, cohort_fields: Sequence[str]) -> OutcomeRow:
    trace = outcome.trace
    timed = trace if trace.time is not None else msgspec.structs.replace(trace, time=EPOCH)
    return OutcomeRow(
        trace=trace.id,
        time=None if trace.time is None else get_trace_time(trace, 0.0),
        route=trace.route or "",
        judge=outcome.verdicts.judge,
        state=classify_outcome(outcome),
        verdicts=_encode_json(outcome.verdicts).decode(),
        scores=_encode_json(outcome.scores).decode(),
        values=tuple((one.metric, one.value) for one in outcome.scores if one.value is not None),
        observations=tuple(observe_trace(timed, outcome.verdicts, outcome.scores, cohort_fields)),
    )


# --- as columns ------------------------------------------------------------------------------------


def build_outcome_columns(numbered: NumberedRows) -> dict[str, list[Any]]:
    """The columns of the table of outcomes."""
    now = time.time()
    return {
        "number": [number for number, _, _ in numbered],
        "judge": [each.judge for _, _, each in numbered],
        "scored": [now] * len(numbered),
        "state": [each.state for _, _, each in numbered],
        "verdicts": [each.verdicts for _, _, each in numbered],
        "scores": [each.scores for _, _, each in numbered],
    }


def build_value_columns(numbered: NumberedRows) -> dict[str, list[Any]]:
    """The columns of the table of scores: the values of all metrics as rows."""
    rows = [
        (number, received if each.time is None else each.time, each.route, metric, value)
        for number, received, each in numbered
        for metric, value in each.values
    ]
    names = ("number", "time", "route", "metric", "value")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def build_rollups(
    numbered: NumberedRows, measures: Sequence[MetricInfo]
) -> tuple[tuple[Rollup, ...], tuple[ProductSums, ...]]:
    """What outcomes add to the roll-ups, and to the sums of products."""
    seen: list[Observation] = []
    for _, received, each in numbered:
        if each.time is None:
            seen += (msgspec.structs.replace(one, time=received) for one in each.observations)
        else:
            seen += each.observations
    return roll_up(seen, [*measures, *DERIVED_METRICS]), sum_products(seen, METRIC_PAIRS)


def build_rollup_columns(rollups: Sequence[Rollup]) -> dict[str, list[Any]]:
    """The columns of a table of roll-ups."""
    columns: dict[str, list[Any]] = {
        "metric": [each.metric for each in rollups],
        "route": [each.route or "" for each in rollups],
        "cohort": [each.cohort or "" for each in rollups],
        "minute": [each.minute for each in rollups],
        "n": [each.n for each in rollups],
        "total": [each.sum for each in rollups],
        "squares": [each.squares for each in rollups],
        "undefined": [each.undefined for each in rollups],
        "failed": [each.failed for each in rollups],
    }
    return columns | {name: [each.bins[at] for each in rollups] for at, name in enumerate(BIN_COLUMNS)}


def build_product_columns(products: Sequence[ProductSums]) -> dict[str, list[Any]]:
    """The columns of the table of sums of products."""
    names = ProductSums.__struct_fields__
    return {
        name: [(getattr(each, name) or "") if name == "route" else getattr(each, name) for each in products]
        for name in names
    }
