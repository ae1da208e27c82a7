"""Roll-ups in DuckDB: add outcomes to minute roll-ups, and read them at a cost independent of traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ragfault.analysis.monitoring.rollups import DERIVED_METRICS, ProductSums, Rollup, WorstTrace
from ragfault.io.runs import MetricInfo
from ragfault.server.storage.duckdb.schema import BIN_COLUMNS, SUM_COLUMNS
from ragfault.server.storage.duckdb.traces import insert_columns
from ragfault.server.storage.outcome_rows import (
    NumberedRows,
    OutcomeRow,
    build_outcome_columns,
    build_product_columns,
    build_rollup_columns,
    build_rollups,
    build_value_columns,
)

KEY_COLUMNS = "metric, route, cohort, minute"

_TOTAL_COLUMNS = f"metric, route, {', '.join(SUM_COLUMNS)}"

TOTALS_QUERY = (
    f"SELECT metric, route, {', '.join(f'sum({name}) AS {name}' for name in SUM_COLUMNS)} FROM (SELECT {_TOTAL_COLUMNS} FROM sums "
    f"UNION ALL SELECT {_TOTAL_COLUMNS} FROM deltas WHERE cohort = '') all_ GROUP BY metric, route"
)
"""What was ever counted: the sums up to the last round, and what came since."""

EMPTY_BINS = (0,) * len(BIN_COLUMNS)

_encode_json = msgspec.json.Encoder().encode


IssuedNumbers = dict[str, int]
"""The numbers of traces that were handed out to be judged, by id: where they lie, so that not all are searched."""


def add_outcomes(
    con: Any, counted: Sequence[OutcomeRow], measures: Sequence[MetricInfo], issued: IssuedNumbers
) -> int:
    """Add what was counted of traces that have no outcome yet."""
    fresh = _select_unjudged(con, {each.trace: each for each in counted}, issued)
    if fresh:
        insert_columns(con, "outcomes", build_outcome_columns(fresh))
        insert_columns(con, "scores", build_value_columns(fresh))
        _add_measures(con, [*measures, *DERIVED_METRICS])
        rollups, products = build_rollups(fresh, measures)
        insert_columns(con, "deltas", build_rollup_columns(rollups))
        insert_columns(con, "products", build_product_columns(products))
    return len(fresh)


def _select_unjudged(con: Any, counted: Mapping[str, OutcomeRow], issued: IssuedNumbers) -> NumberedRows:
    """Those that are in the store and not judged, in the order of arrival."""
    places = [issued.pop(name, None) for name in counted]
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


def _add_measures(con: Any, measures: Iterable[MetricInfo]) -> None:
    """Remember metrics that are met for the first time."""
    there = {name for (name,) in con.execute("SELECT name FROM metrics").fetchall()}
    for measure in measures:
        if measure.name not in there:
            there.add(measure.name)
            con.execute(
                "INSERT INTO metrics VALUES (?, ?, ?)",
                [len(there), measure.name, _encode_json(measure).decode()],
            )


def _sum_columns(names: Iterable[str]) -> str:
    """Columns added up under their own names."""
    return ", ".join(f"sum({name}) AS {name}" for name in names)


def compact(con: Any) -> None:
    """Merge the roll-ups that were added apart with those that are there, and with the sums of all time."""
    con.execute("CREATE TEMP TABLE touched AS SELECT DISTINCT minute FROM deltas")
    con.execute(
        f"CREATE TEMP TABLE merged AS SELECT {KEY_COLUMNS}, {_sum_columns(SUM_COLUMNS)} FROM ("
        "SELECT * FROM deltas UNION ALL SELECT * FROM rollups WHERE minute IN (SELECT minute FROM touched)) all_ "
        f"GROUP BY {KEY_COLUMNS}"
    )
    con.execute("DELETE FROM rollups WHERE minute IN (SELECT minute FROM touched)")
    con.execute("INSERT INTO rollups SELECT * FROM merged ORDER BY minute, metric, route, cohort")
    con.execute(f"CREATE TEMP TABLE summed AS {TOTALS_QUERY}")
    con.execute("DELETE FROM sums")
    con.execute("INSERT INTO sums SELECT * FROM summed")
    con.execute("DELETE FROM deltas")
    for name in ("summed", "merged", "touched"):
        con.execute(f"DROP TABLE {name}")


# --- reading ---------------------------------------------------------------------------------------


def read_rollups(
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
    names = SUM_COLUMNS if bins else SUM_COLUMNS[: -len(BIN_COLUMNS)]
    columns = f"{KEY_COLUMNS}, {', '.join(names)}"
    rows = con.execute(
        f"SELECT metric, route, cohort, minute - (minute - ?) % ? AS stretch, {_sum_columns(names)} FROM ("
        f"SELECT {columns} FROM rollups WHERE {where} UNION ALL SELECT {columns} FROM deltas WHERE {where}) all_ "
        "GROUP BY metric, route, cohort, stretch ORDER BY metric, route, cohort, stretch",
        [since, grain, *given, *given],
    ).fetchall()
    return tuple(map(_build_rollup, rows))


def read_total_rollups(con: Any) -> tuple[Rollup, ...]:
    """What was ever counted, by metric and route."""
    rows = con.execute(f"{TOTALS_QUERY} ORDER BY metric, route").fetchall()
    return tuple(_build_rollup((metric, route, "", 0, *sums)) for metric, route, *sums in rows)


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


def read_products(con: Any, since: int, until: int) -> tuple[ProductSums, ...]:
    """The sums of products of pairs of metrics, by minute."""
    rows = con.execute(
        "SELECT first, second, route, minute, sum(n), sum(x), sum(y), sum(xx), sum(yy), sum(xy) FROM products "
        "WHERE minute >= ? AND minute < ? GROUP BY first, second, route, minute ORDER BY first, second, route, minute",
        [since, until],
    ).fetchall()
    names = ProductSums.__struct_fields__
    made = [dict(zip(names, row, strict=True)) for row in rows]
    return tuple(ProductSums(**{**each, "route": each["route"] or None}) for each in made)


def read_worst_traces(
    con: Any, metric: str, since: int, until: int, route: str | None, limit: int
) -> tuple[WorstTrace, ...]:
    """The traces with the worst values of a metric, the worst first."""
    measure = next((each for each in read_measures(con) if each.name == metric), None)
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
    return tuple(sorted(WorstTrace(value if rising else -value, name, value) for name, value in rows))


def read_measures(con: Any) -> tuple[MetricInfo, ...]:
    """The metrics that are kept, in the order in which they were met."""
    rows = con.execute("SELECT body FROM metrics ORDER BY place").fetchall()
    return tuple(msgspec.json.decode(body, type=MetricInfo) for (body,) in rows)
