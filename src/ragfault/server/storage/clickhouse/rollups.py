"""Roll-ups in ClickHouse: add each batch of outcomes once to summing tables, and read the roll-ups."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count as counting
from typing import Any, NamedTuple

import msgspec

from ragfault.analysis.monitoring.rollups import DERIVED_METRICS, ProductSums, Rollup, WorstTrace
from ragfault.io.runs import MetricInfo
from ragfault.records import Score, Trace, Verdicts
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.server.storage.clickhouse.metadata import StoredNote, add_notes, read_bodies
from ragfault.server.storage.duckdb.schema import BIN_COLUMNS, SUM_COLUMNS
from ragfault.server.storage.outcome_rows import (
    NumberedRows,
    OutcomeRow,
    build_outcome_columns,
    build_outcome_rows,
    build_product_columns,
    build_rollup_columns,
    build_rollups,
    build_value_columns,
)

EMPTY_BINS = (0,) * len(BIN_COLUMNS)

_encode_json = msgspec.json.Encoder().encode


class OutcomeBatch(NamedTuple):
    """Outcomes as they are counted, and what they were counted with."""

    rows: tuple[OutcomeRow, ...]
    measures: tuple[MetricInfo, ...]
    cohort_fields: tuple[str, ...]


class _JudgedTrace(NamedTuple):
    """A trace of the store with its outcome."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]


def add_outcomes(con: ClickHouseConnection, outcome_batch: OutcomeBatch, batches: Iterator[int]) -> int:
    """Add what was counted of traces that have no outcome yet; how many there were.

    The outcomes go first and name their batch. All else is made of them, under the token of that batch: what was not
    added because of a kill is added by `mend_batch`, and what was is not added twice.
    """
    fresh = _select_unjudged(con, outcome_batch.rows)
    if fresh:
        _add_measures(con, [*outcome_batch.measures, *DERIVED_METRICS])
        batch = next(batches)
        columns = _add_times(fresh, build_outcome_columns(fresh))
        columns["batch"] = [batch] * len(fresh)
        columns["cohorts"] = [_encode_json(outcome_batch.cohort_fields).decode()] * len(fresh)
        columns["values"] = [dict(each.values) for _, _, each in fresh]
        con.insert("outcomes", columns)
        _add_derived_rows(con, batch, fresh, outcome_batch.measures)
    return len(fresh)


def number_batches(con: ClickHouseConnection) -> Iterator[int]:
    """Numbers of batches, none of which was ever one before: tokens are remembered longer than outcomes may be kept."""
    return counting(max(time.time_ns(), _read_last_batch(con) + 1))


def _read_last_batch(con: ClickHouseConnection) -> int:
    """The number of the last batch; 0 where there is none."""
    return int(con.fetch_value("SELECT max(batch) FROM outcomes"))


def _select_unjudged(con: ClickHouseConnection, counted: Sequence[OutcomeRow]) -> NumberedRows:
    """Those that are in the store and not judged, in the order of arrival."""
    by_id = {each.trace: each for each in counted}
    query = "SELECT id, number, received FROM ids WHERE id IN {among:Array(String)}"
    rows = list(con.fetch_among(query, list(by_id)))
    query = "SELECT number FROM outcomes WHERE number IN {among:Array(Int64)}"
    judged = {number for (number,) in con.fetch_among(query, [number for _, number, _ in rows])}
    return sorted(
        ((number, received, by_id[name]) for name, number, received in rows if number not in judged),
        key=lambda each: each[0],
    )


def _add_times(numbered: NumberedRows, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns with the arrival and the time of their traces, by which they are kept and forgotten."""
    times = {
        number: (received, received if each.time is None else each.time)
        for number, received, each in numbered
    }
    return {
        **columns,
        "received": [times[number][0] for number in columns["number"]],
        "time": [times[number][1] for number in columns["number"]],
    }


def _add_derived_rows(
    con: ClickHouseConnection, batch: int, numbered: NumberedRows, measures: Sequence[MetricInfo]
) -> None:
    """Add the values of a batch, and what it adds to the roll-ups."""
    token = f"batch-{batch}"
    made, multiplied = build_rollups(numbered, measures)
    con.insert("scores", _add_times(numbered, build_value_columns(numbered)), token)
    con.insert("rollups", build_rollup_columns(made), token)
    whole = build_rollup_columns([each for each in made if each.cohort is None])
    con.insert("sums", {name: whole[name] for name in ("metric", "route", *SUM_COLUMNS)}, token)
    con.insert("products", build_product_columns(multiplied), token)


def restore_batch(con: ClickHouseConnection) -> None:
    """Add what the last batch lacks: no other can lack something, and what it has is known by its token."""
    batch = _read_last_batch(con)
    query = "SELECT number, cohorts, verdicts, scores FROM outcomes WHERE batch = {batch:Int64}"
    rows = {row[0]: row[1:] for row in con.fetch_rows(query, batch=batch)}
    if not rows:
        return
    fresh: list[tuple[int, float, OutcomeRow]] = []
    query = "SELECT number, received, body FROM traces WHERE number IN {among:Array(Int64)}"
    for number, received, body in con.fetch_among(query, sorted(rows)):
        cohorts, verdicts, scores = rows[number]
        seen = _JudgedTrace(
            msgspec.json.decode(body, type=Trace),
            msgspec.json.decode(verdicts, type=Verdicts),
            msgspec.json.decode(scores, type=tuple[Score, ...]),
        )
        [counted] = build_outcome_rows([seen], msgspec.json.decode(cohorts, type=tuple[str, ...]))
        fresh.append((number, received, counted))
    _add_derived_rows(con, batch, sorted(fresh, key=lambda each: each[0]), read_measures(con))


def _add_measures(con: ClickHouseConnection, measures: Sequence[MetricInfo]) -> None:
    """Remember metrics that are met for the first time."""
    place = len(there := {each.name for each in read_measures(con)})
    fresh = {each.name: each for each in measures if each.name not in there}
    add_notes(
        con,
        [
            StoredNote("metric", name, number=place + at, body=_encode_json(each).decode())
            for at, (name, each) in enumerate(fresh.items(), start=1)
        ],
    )


# --- reading ---------------------------------------------------------------------------------------


def read_rollups(
    con: ClickHouseConnection,
    since: int,
    until: int,
    metric: str | None,
    route: str | None,
    cohort: str | None,
    grain: int,
    bins: bool,
) -> tuple[Rollup, ...]:
    """Roll-ups merged over stretches of `grain` minutes, by key."""
    given: dict[str, Any] = {"since": since, "until": until, "grain": grain}
    parts = ["minute >= {since:Int64}", "minute < {until:Int64}"]
    for name, value in (("metric", metric), ("route", route), ("cohort", None if cohort == "*" else cohort)):
        if value is not None:
            parts.append(f"{name} = {{{name}:String}}")
            given[name] = value
    if cohort == "*":
        parts.append("cohort != ''")
    names = SUM_COLUMNS if bins else SUM_COLUMNS[: -len(BIN_COLUMNS)]
    rows = con.fetch_rows(
        "SELECT metric, route, cohort, minute - (minute - {since:Int64}) % {grain:Int64} AS stretch, "
        f"{', '.join(f'sum({name})' for name in names)} FROM rollups WHERE {' AND '.join(parts)} "
        "GROUP BY metric, route, cohort, stretch ORDER BY metric, route, cohort, stretch",
        **given,
    )
    return tuple(map(_build_rollup, rows))


def _build_rollup(row: tuple[Any, ...]) -> Rollup:
    return Rollup(
        metric=row[0],
        route=row[1] or None,
        cohort=row[2] or None,
        minute=row[3],
        n=row[4],
        sum=row[5],
        squares=row[6],
        undefined=row[7],
        failed=row[8],
        bins=row[9:] or EMPTY_BINS,
    )


def read_total_rollups(con: ClickHouseConnection) -> tuple[Rollup, ...]:
    """What was ever counted, by metric and route."""
    rows = con.fetch_rows(
        f"SELECT metric, route, {', '.join(f'sum({name})' for name in SUM_COLUMNS)} FROM sums "
        "GROUP BY metric, route ORDER BY metric, route"
    )
    return tuple(_build_rollup((metric, route, "", 0, *sums)) for metric, route, *sums in rows)


def read_products(con: ClickHouseConnection, since: int, until: int) -> tuple[ProductSums, ...]:
    """The sums of products of pairs of metrics, by minute."""
    rows = con.fetch_rows(
        "SELECT first, second, route, minute, sum(n), sum(x), sum(y), sum(xx), sum(yy), sum(xy) FROM products "
        "WHERE minute >= {since:Int64} AND minute < {until:Int64} "
        "GROUP BY first, second, route, minute ORDER BY first, second, route, minute",
        since=since,
        until=until,
    )
    names = ProductSums.__struct_fields__
    made = [dict(zip(names, row, strict=True)) for row in rows]
    return tuple(ProductSums(**{**each, "route": each["route"] or None}) for each in made)


def read_worst_traces(
    con: ClickHouseConnection, metric: str, since: int, until: int, route: str | None, limit: int
) -> tuple[WorstTrace, ...]:
    """The traces with the worst values of a metric, the worst first."""
    measure = next((each for each in read_measures(con) if each.name == metric), None)
    if measure is None:
        return ()
    rising = measure.better == "higher"
    given: dict[str, Any] = {"metric": metric, "since": since * 60.0, "until": until * 60.0, "limit": limit}
    where = "metric = {metric:String} AND time >= {since:Float64} AND time < {until:Float64}"
    if route is not None:
        where, given["route"] = where + " AND route = {route:String}", route
    values = dict(
        con.fetch_rows(
            f"SELECT number, value FROM scores WHERE {where} "
            f"ORDER BY value {'ASC' if rising else 'DESC'}, number DESC LIMIT {{limit:UInt64}}",
            **given,
        )
    )
    query = "SELECT number, id FROM traces WHERE number IN {among:Array(Int64)}"
    found = ((values[number], name) for number, name in con.fetch_among(query, list(values)))
    return tuple(sorted(WorstTrace(value if rising else -value, name, value) for value, name in found))


def read_measures(con: ClickHouseConnection) -> tuple[MetricInfo, ...]:
    """The metrics that are kept, in the order in which they were met."""
    return tuple(
        msgspec.json.decode(body, type=MetricInfo) for body in read_bodies(con, "metric", order="number")
    )
