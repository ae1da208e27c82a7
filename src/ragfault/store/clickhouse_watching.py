"""Outcomes on ClickHouse, counted into roll-ups that sum themselves up, each batch once; and roll-ups read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count as counting
from typing import Any, NamedTuple

import msgspec

from ragfault.findings.monitoring_observing import DERIVED
from ragfault.findings.monitoring_rollups import Products, Rollup, Worst
from ragfault.records import Score, Trace, Verdicts
from ragfault.runs import Measure
from ragfault.store.clickhouse_connection import Connection
from ragfault.store.clickhouse_keeping import Note, add_notes, bodies
from ragfault.store.counting import (
    Counted,
    Fresh,
    count,
    outcome_columns,
    product_columns,
    rolled,
    rollup_columns,
    value_columns,
)
from ragfault.store.schema import BIN_NAMES, SUMS

__all__ = ["Judged", "batches", "ever", "measures", "mend_batch", "products", "rollups", "score", "worst"]

NO_BINS = (0,) * len(BIN_NAMES)

_encode = msgspec.json.Encoder().encode


class Judged(NamedTuple):
    """Outcomes as they are counted, and what they were counted with."""

    counted: tuple[Counted, ...]
    measures: tuple[Measure, ...]
    by: tuple[str, ...]


class _Seen(NamedTuple):
    """A trace of the store with its outcome."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]


def score(con: Connection, given: Judged, batches: Iterator[int]) -> int:
    """Add what was counted of traces that have no outcome yet; how many there were.

    The outcomes go first and name their batch. All else is made of them, under the token of that batch: what was not
    added because of a kill is added by `mend_batch`, and what was is not added twice.
    """
    fresh = _fresh(con, given.counted)
    if fresh:
        _add_measures(con, [*given.measures, *DERIVED])
        batch = next(batches)
        columns = _placed(fresh, outcome_columns(fresh))
        columns["batch"] = [batch] * len(fresh)
        columns["cohorts"] = [_encode(given.by).decode()] * len(fresh)
        columns["values"] = [dict(each.values) for _, _, each in fresh]
        con.add("outcomes", columns)
        _add_parts(con, batch, fresh, given.measures)
    return len(fresh)


def batches(con: Connection) -> Iterator[int]:
    """Numbers of batches, none of which was ever one before: tokens are remembered longer than outcomes may be kept."""
    return counting(max(time.time_ns(), _last(con) + 1))


def _last(con: Connection) -> int:
    """The number of the last batch; 0 where there is none."""
    return int(con.one("SELECT max(batch) FROM outcomes"))


def _fresh(con: Connection, counted: Sequence[Counted]) -> Fresh:
    """Those that are in the store and not judged, in the order of arrival."""
    by_id = {each.trace: each for each in counted}
    query = "SELECT id, number, received FROM ids WHERE id IN {among:Array(String)}"
    rows = list(con.among(query, list(by_id)))
    query = "SELECT number FROM outcomes WHERE number IN {among:Array(Int64)}"
    judged = {number for (number,) in con.among(query, [number for _, number, _ in rows])}
    return sorted(
        ((number, received, by_id[name]) for name, number, received in rows if number not in judged),
        key=lambda each: each[0],
    )


def _placed(fresh: Fresh, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns with the arrival and the time of their traces, by which they are kept and forgotten."""
    times = {
        number: (received, received if each.time is None else each.time) for number, received, each in fresh
    }
    return {
        **columns,
        "received": [times[number][0] for number in columns["number"]],
        "time": [times[number][1] for number in columns["number"]],
    }


def _add_parts(con: Connection, batch: int, fresh: Fresh, known: Sequence[Measure]) -> None:
    """Add the values of a batch, and what it adds to the roll-ups."""
    token = f"batch-{batch}"
    made, multiplied = rolled(fresh, known)
    con.add("scores", _placed(fresh, value_columns(fresh)), token)
    con.add("rollups", rollup_columns(made), token)
    whole = rollup_columns([each for each in made if each.cohort is None])
    con.add("sums", {name: whole[name] for name in ("metric", "route", *SUMS)}, token)
    con.add("products", product_columns(multiplied), token)


def mend_batch(con: Connection) -> None:
    """Add what the last batch lacks: no other can lack something, and what it has is known by its token."""
    batch = _last(con)
    query = "SELECT number, cohorts, verdicts, scores FROM outcomes WHERE batch = {batch:Int64}"
    rows = {row[0]: row[1:] for row in con.rows(query, batch=batch)}
    if not rows:
        return
    fresh: list[tuple[int, float, Counted]] = []
    query = "SELECT number, received, body FROM traces WHERE number IN {among:Array(Int64)}"
    for number, received, body in con.among(query, sorted(rows)):
        cohorts, verdicts, scores = rows[number]
        seen = _Seen(
            msgspec.json.decode(body, type=Trace),
            msgspec.json.decode(verdicts, type=Verdicts),
            msgspec.json.decode(scores, type=tuple[Score, ...]),
        )
        [counted] = count([seen], msgspec.json.decode(cohorts, type=tuple[str, ...]))
        fresh.append((number, received, counted))
    _add_parts(con, batch, sorted(fresh, key=lambda each: each[0]), measures(con))


def _add_measures(con: Connection, known: Sequence[Measure]) -> None:
    """Remember metrics that are met for the first time."""
    place = len(there := {each.name for each in measures(con)})
    fresh = {each.name: each for each in known if each.name not in there}
    add_notes(
        con,
        [
            Note("metric", name, number=place + at, body=_encode(each).decode())
            for at, (name, each) in enumerate(fresh.items(), start=1)
        ],
    )


# --- reading ---------------------------------------------------------------------------------------


def rollups(
    con: Connection,
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
    names = SUMS if bins else SUMS[: -len(BIN_NAMES)]
    rows = con.rows(
        "SELECT metric, route, cohort, minute - (minute - {since:Int64}) % {grain:Int64} AS stretch, "
        f"{', '.join(f'sum({name})' for name in names)} FROM rollups WHERE {' AND '.join(parts)} "
        "GROUP BY metric, route, cohort, stretch ORDER BY metric, route, cohort, stretch",
        **given,
    )
    return tuple(map(_rollup, rows))


def _rollup(row: tuple[Any, ...]) -> Rollup:
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
        bins=row[9:] or NO_BINS,
    )


def ever(con: Connection) -> tuple[Rollup, ...]:
    """What was ever counted, by metric and route."""
    rows = con.rows(
        f"SELECT metric, route, {', '.join(f'sum({name})' for name in SUMS)} FROM sums "
        "GROUP BY metric, route ORDER BY metric, route"
    )
    return tuple(_rollup((metric, route, "", 0, *sums)) for metric, route, *sums in rows)


def products(con: Connection, since: int, until: int) -> tuple[Products, ...]:
    """The sums of products of pairs of metrics, by minute."""
    rows = con.rows(
        "SELECT first, second, route, minute, sum(n), sum(x), sum(y), sum(xx), sum(yy), sum(xy) FROM products "
        "WHERE minute >= {since:Int64} AND minute < {until:Int64} "
        "GROUP BY first, second, route, minute ORDER BY first, second, route, minute",
        since=since,
        until=until,
    )
    names = Products.__struct_fields__
    made = [dict(zip(names, row, strict=True)) for row in rows]
    return tuple(Products(**{**each, "route": each["route"] or None}) for each in made)


def worst(
    con: Connection, metric: str, since: int, until: int, route: str | None, limit: int
) -> tuple[Worst, ...]:
    """The traces with the worst values of a metric, the worst first."""
    measure = next((each for each in measures(con) if each.name == metric), None)
    if measure is None:
        return ()
    rising = measure.better == "higher"
    given: dict[str, Any] = {"metric": metric, "since": since * 60.0, "until": until * 60.0, "limit": limit}
    where = "metric = {metric:String} AND time >= {since:Float64} AND time < {until:Float64}"
    if route is not None:
        where, given["route"] = where + " AND route = {route:String}", route
    values = dict(
        con.rows(
            f"SELECT number, value FROM scores WHERE {where} "
            f"ORDER BY value {'ASC' if rising else 'DESC'}, number DESC LIMIT {{limit:UInt64}}",
            **given,
        )
    )
    query = "SELECT number, id FROM traces WHERE number IN {among:Array(Int64)}"
    found = ((values[number], name) for number, name in con.among(query, list(values)))
    return tuple(sorted(Worst(value if rising else -value, name, value) for value, name in found))


def measures(con: Connection) -> tuple[Measure, ...]:
    """The metrics that are kept, in the order in which they were met."""
    return tuple(msgspec.json.decode(body, type=Measure) for body in bodies(con, "metric", by="number"))
