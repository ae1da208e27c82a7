"""Rows of scored traces as both engines store them: outcomes, values, roll-ups and products."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ragfault.apps.watch.monitoring.rollups import (
    BINS,
    Observation,
    ProductSums,
    Rollup,
    add_derived,
    observe_trace,
    roll_up,
    sum_products,
)
from ragfault.apps.watch.server.storage.records import TraceState
from ragfault.apps.watch.server.storage.store_engine import encode_json
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.runs.run import MetricInfo
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import GoldMode, Trace
from ragfault.text.times import assume_utc

BIN_COLUMNS = tuple(f"b{i}" for i in range(BINS))
"""The columns of a histogram."""

SUM_COLUMNS = ("n", "total", "squares", "undefined", "failed", *BIN_COLUMNS)
"""The columns of a roll-up that merging adds up."""

PRODUCT_COLUMNS = ("n", "x", "y", "xx", "yy", "xy")
"""The columns of sums of products that merging adds up."""

METRIC_PAIRS = tuple(
    combinations(("answer_relevance", "chunk_utilization", "context_relevance", "groundedness", "latency"), 2)
)
"""The pairs of metrics whose correlation is monitored."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OutcomeRow(Struct, frozen=True, kw_only=True):
    """An outcome as stores represent it: texts, values, and observations for the roll-ups."""

    trace: str
    """The id."""
    time: float | None
    """Time of the trace in seconds since 1970, UTC; None: the time of its arrival, which the store knows."""
    route: str
    judge: str
    state: TraceState
    verdicts: str
    """As JSON."""
    scores: str
    """As JSON."""
    values: tuple[tuple[str, float], ...]
    """Metric and value, of those that have one."""
    gold: GoldMode
    """Use of gold in the scores."""
    observations: tuple[Observation, ...]
    """An observation whose `time` is None counts as of 1970."""


class NumberedRow(NamedTuple):
    """The outcome of a stored trace, with the number and arrival of the trace."""

    number: int
    received: float
    row: OutcomeRow

    @property
    def time(self) -> float:
        """The time of the trace, else of its arrival."""
        return self.received if self.row.time is None else self.row.time


def get_trace_time(trace: Trace, received: float) -> float:
    """Return the time of a trace in seconds since 1970, else that of its arrival."""
    return received if trace.time is None else assume_utc(trace.time).timestamp()


def classify_outcome(outcome: ScoredTrace) -> TraceState:
    """Return the state of a judged trace."""
    if outcome.trace.error:
        return "error"
    incomplete = outcome.verdicts.failures or any(score.status == "failed" for score in outcome.scores)
    return "failed" if incomplete else "scored"


def build_outcome_rows(
    outcomes: Iterable[ScoredTrace], cohort_fields: Sequence[str] = (), gold: GoldMode = "apply"
) -> tuple[OutcomeRow, ...]:
    """Return outcomes as rows, each trace once; `cohort_fields` name the fields whose values are cohorts.

    `gold` is the use of gold in the scores.

    >>> from ragfault.evaluation.online.scorer import score_response
    >>> outcome = score_response("When?", ["At noon."], "At noon.", judge="lexical", metrics=["groundedness"])
    >>> [(row.state, row.values, len(row.observations)) for row in build_outcome_rows([outcome, outcome])]
    [('scored', (('groundedness', 1.0),), 9)]
    """
    first: dict[str, ScoredTrace] = {}
    for outcome in outcomes:
        first.setdefault(outcome.trace.id, outcome)
    return tuple(_build_outcome_row(outcome, cohort_fields, gold) for outcome in first.values())


def _build_outcome_row(outcome: ScoredTrace, cohort_fields: Sequence[str], gold: GoldMode) -> OutcomeRow:
    trace = outcome.trace
    verdicts = apply_gold(trace, outcome.verdicts) if gold == "apply" else outcome.verdicts
    timed = trace if trace.time is not None else msgspec.structs.replace(trace, time=EPOCH)
    return OutcomeRow(
        trace=trace.id,
        time=None if trace.time is None else get_trace_time(trace, 0.0),
        route=trace.route or "",
        judge=outcome.verdicts.judge,
        state=classify_outcome(outcome),
        verdicts=encode_json(outcome.verdicts).decode(),
        scores=encode_json(outcome.scores).decode(),
        values=tuple((score.metric, score.value) for score in outcome.scores if score.value is not None),
        gold=gold,
        observations=tuple(observe_trace(timed, verdicts, outcome.scores, cohort_fields)),
    )


def build_outcome_columns(numbered: Sequence[NumberedRow]) -> dict[str, list[Any]]:
    """Return the columns of the table of outcomes."""
    columns: dict[str, list[Any]] = {
        name: [getattr(outcome.row, name) for outcome in numbered]
        for name in ("judge", "state", "verdicts", "scores", "gold")
    }
    columns["number"] = [outcome.number for outcome in numbered]
    columns["scored"] = [time.time()] * len(numbered)
    return columns


def build_value_columns(numbered: Sequence[NumberedRow]) -> dict[str, list[Any]]:
    """Return the columns of the table of scores: one row for each value of a metric."""
    rows = [
        (outcome.number, outcome.time, outcome.row.route, metric, value)
        for outcome in numbered
        for metric, value in outcome.row.values
    ]
    names = ("number", "time", "route", "metric", "value")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def build_rollups(
    numbered: Sequence[NumberedRow], measures: Sequence[MetricInfo]
) -> tuple[tuple[Rollup, ...], tuple[ProductSums, ...]]:
    """Return the roll-ups of outcomes, and their sums of products."""
    observations: list[Observation] = []
    for outcome in numbered:
        if outcome.row.time is None:
            observations += (
                msgspec.structs.replace(observation, time=outcome.received) for observation in outcome.row.observations
            )
        else:
            observations += outcome.row.observations
    return roll_up(observations, add_derived(measures)), sum_products(observations, METRIC_PAIRS)


def build_rollup_columns(rollups: Sequence[Rollup], grain: int = 1) -> dict[str, list[Any]]:
    """Return the columns of a table of roll-ups; their minutes are those in which segments of `grain` minutes begin."""
    columns: dict[str, list[Any]] = {
        name: [getattr(rollup, name) for rollup in rollups]
        for name in ("metric", "n", "squares", "undefined", "failed")
    }
    columns["minute"] = [rollup.minute - rollup.minute % grain for rollup in rollups]
    columns["route"] = [rollup.route or "" for rollup in rollups]
    columns["cohort"] = [rollup.cohort or "" for rollup in rollups]
    columns["total"] = [rollup.sum for rollup in rollups]
    return columns | {name: [rollup.bins[i] for rollup in rollups] for i, name in enumerate(BIN_COLUMNS)}


def build_product_columns(products: Sequence[ProductSums], grain: int = 1) -> dict[str, list[Any]]:
    """Return the columns of a table of sums of products; for `grain` see `build_rollup_columns`."""
    columns = {name: [getattr(product, name) for product in products] for name in ProductSums.__struct_fields__}
    columns["minute"] = [product.minute - product.minute % grain for product in products]
    return columns | {"route": [product.route or "" for product in products]}


def negate_columns(columns: dict[str, list[Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns of sums that take back what they counted."""
    return columns | {name: [-value for value in columns[name]] for name in names}
