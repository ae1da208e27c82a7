"""Outcomes counted into roll-ups, and roll-ups read: what is read costs the same at any traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ragfault.findings.monitoring_observing import DERIVED
from ragfault.findings.monitoring_rollups import Products, Rollup, Worst
from ragfault.runs import Measure
from ragfault.store.counting import (
    Counted,
    Fresh,
    outcome_columns,
    product_columns,
    rolled,
    rollup_columns,
    value_columns,
)
from ragfault.store.schema import BIN_NAMES, SUMS
from ragfault.store.traces import insert

__all__ = ["Handed", "ever", "measures", "products", "rollups", "score", "tidy", "worst"]

KEYS = "metric, route, cohort, minute"

_COLUMNS = f"metric, route, {', '.join(SUMS)}"

EVER = (
    f"SELECT metric, route, {', '.join(f'sum({name}) AS {name}' for name in SUMS)} FROM (SELECT {_COLUMNS} FROM sums "
    f"UNION ALL SELECT {_COLUMNS} FROM deltas WHERE cohort = '') all_ GROUP BY metric, route"
)
"""What was ever counted: the sums up to the last round, and what came since."""

NO_BINS = (0,) * len(BIN_NAMES)

_encode = msgspec.json.Encoder().encode


Handed = dict[str, int]
"""The numbers of traces that were handed out to be judged, by id: where they lie, so that not all are searched."""


def score(con: Any, counted: Sequence[Counted], known: Sequence[Measure], handed: Handed) -> int:
    """Add what was counted of traces that have no outcome yet."""
    fresh = _fresh(con, {each.trace: each for each in counted}, handed)
    if fresh:
        insert(con, "outcomes", outcome_columns(fresh))
        insert(con, "scores", value_columns(fresh))
        _add_measures(con, [*known, *DERIVED])
        rollups, products = rolled(fresh, known)
        insert(con, "deltas", rollup_columns(rollups))
        insert(con, "products", product_columns(products))
    return len(fresh)


def _fresh(con: Any, counted: Mapping[str, Counted], handed: Handed) -> Fresh:
    """Those that are in the store and not judged, in the order of arrival."""
    places = [handed.pop(name, None) for name in counted]
    known = [place for place in places if place is not None]
    low, high = (min(known), max(known)) if len(known) == len(places) > 0 else (0, 2**62)
    there = con.execute(
        "SELECT id, number, received FROM traces WHERE number BETWEEN ? AND ? AND id IN (SELECT unnest(?::VARCHAR[]))",
        [low, high, list(counted)],
    ).fetchall()
    numbers = [number for _, number, _ in there]
    judged = {
        number
        for (number,) in con.execute(
            "SELECT number FROM outcomes WHERE number BETWEEN ? AND ? AND number IN (SELECT unnest(?::BIGINT[]))",
            [min(numbers, default=0), max(numbers, default=0), numbers],
        ).fetchall()
    }
    return sorted(
        ((number, received, counted[name]) for name, number, received in there if number not in judged),
        key=lambda each: each[0],
    )


def _add_measures(con: Any, known: Iterable[Measure]) -> None:
    """Remember metrics that are met for the first time."""
    there = {name for (name,) in con.execute("SELECT name FROM metrics").fetchall()}
    for measure in known:
        if measure.name not in there:
            there.add(measure.name)
            con.execute(
                "INSERT INTO metrics VALUES (?, ?, ?)", [len(there), measure.name, _encode(measure).decode()]
            )


def _added(names: Iterable[str]) -> str:
    """Columns added up under their own names."""
    return ", ".join(f"sum({name}) AS {name}" for name in names)


def tidy(con: Any) -> None:
    """Merge the roll-ups that were added apart with those that are there, and with the sums of all time."""
    con.execute("CREATE TEMP TABLE touched AS SELECT DISTINCT minute FROM deltas")
    con.execute(
        f"CREATE TEMP TABLE merged AS SELECT {KEYS}, {_added(SUMS)} FROM ("
        "SELECT * FROM deltas UNION ALL SELECT * FROM rollups WHERE minute IN (SELECT minute FROM touched)) all_ "
        f"GROUP BY {KEYS}"
    )
    con.execute("DELETE FROM rollups WHERE minute IN (SELECT minute FROM touched)")
    con.execute("INSERT INTO rollups SELECT * FROM merged ORDER BY minute, metric, route, cohort")
    con.execute(f"CREATE TEMP TABLE summed AS {EVER}")
    con.execute("DELETE FROM sums")
    con.execute("INSERT INTO sums SELECT * FROM summed")
    con.execute("DELETE FROM deltas")
    for name in ("summed", "merged", "touched"):
        con.execute(f"DROP TABLE {name}")


# --- reading ---------------------------------------------------------------------------------------


def rollups(
    con: Any,
    since: int,
    until: int,
    metric: str | None,
    route: str | None,
    cohort: str | None,
    grain: int,
    bins: bool,
) -> tuple[Rollup, ...]:
    """Roll-ups merged over stretches of `grain` minutes, by key."""
    parts, given = ["minute >= ?", "minute < ?"], [since, until]
    for column, value in (("metric", metric), ("route", route)):
        if value is not None:
            parts.append(f"{column} = ?")
            given.append(value)  # type: ignore[arg-type]
    if cohort == "*":
        parts.append("cohort != ''")
    elif cohort is not None:
        parts.append("cohort = ?")
        given.append(cohort)  # type: ignore[arg-type]
    where = " AND ".join(parts)
    names = SUMS if bins else SUMS[: -len(BIN_NAMES)]
    columns = f"{KEYS}, {', '.join(names)}"
    rows = con.execute(
        f"SELECT metric, route, cohort, minute - (minute - ?) % ? AS stretch, {_added(names)} FROM ("
        f"SELECT {columns} FROM rollups WHERE {where} UNION ALL SELECT {columns} FROM deltas WHERE {where}) all_ "
        "GROUP BY metric, route, cohort, stretch ORDER BY metric, route, cohort, stretch",
        [since, grain, *given, *given],
    ).fetchall()
    return tuple(map(_rollup, rows))


def ever(con: Any) -> tuple[Rollup, ...]:
    """What was ever counted, by metric and route."""
    rows = con.execute(f"{EVER} ORDER BY metric, route").fetchall()
    return tuple(_rollup((metric, route, "", 0, *sums)) for metric, route, *sums in rows)


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


def products(con: Any, since: int, until: int) -> tuple[Products, ...]:
    """The sums of products of pairs of metrics, by minute."""
    rows = con.execute(
        "SELECT first, second, route, minute, sum(n), sum(x), sum(y), sum(xx), sum(yy), sum(xy) FROM products "
        "WHERE minute >= ? AND minute < ? GROUP BY first, second, route, minute ORDER BY first, second, route, minute",
        [since, until],
    ).fetchall()
    names = Products.__struct_fields__
    made = [dict(zip(names, row, strict=True)) for row in rows]
    return tuple(Products(**{**each, "route": each["route"] or None}) for each in made)


def worst(con: Any, metric: str, since: int, until: int, route: str | None, limit: int) -> tuple[Worst, ...]:
    """The traces with the worst values of a metric, the worst first."""
    measure = next((each for each in measures(con) if each.name == metric), None)
    if measure is None:
        return ()
    rising = measure.better == "higher"
    where, given = "metric = ? AND s.time >= ? AND s.time < ?", [metric, since * 60.0, until * 60.0]
    if route is not None:
        where, given = f"{where} AND s.route = ?", [*given, route]
    rows = con.execute(
        "SELECT t.id, worst.value FROM traces t JOIN (SELECT s.number, s.value FROM scores s WHERE "
        f"{where} ORDER BY s.value {'ASC' if rising else 'DESC'}, s.number DESC LIMIT ?) worst "
        "ON worst.number = t.number",
        [*given, limit],
    ).fetchall()
    return tuple(sorted(Worst(value if rising else -value, name, value) for name, value in rows))


def measures(con: Any) -> tuple[Measure, ...]:
    """The metrics that are kept, in the order in which they were met."""
    rows = con.execute("SELECT body FROM metrics ORDER BY place").fetchall()
    return tuple(msgspec.json.decode(body, type=Measure) for (body,) in rows)
