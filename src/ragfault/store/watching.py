"""Outcomes counted into roll-ups, and roll-ups read: what is read costs the same at any traffic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import msgspec

from ragfault.findings.monitoring_observing import DERIVED, observations
from ragfault.findings.monitoring_rollups import Observation, Products, Rollup, Worst, multiply, roll
from ragfault.runs import Measure
from ragfault.store.records import Outcome
from ragfault.store.schema import BIN_NAMES, SUMS
from ragfault.store.traces import insert, moment, outcome_state

__all__ = ["PAIRED", "measures", "products", "rollups", "score", "tidy", "worst"]

PAIRED = tuple(
    combinations(("answer_relevance", "chunk_utilization", "context_relevance", "groundedness", "latency"), 2)
)
"""The pairs of metrics whose correlation is watched."""

KEYS = "metric, route, cohort, minute"

NO_BINS = (0,) * len(BIN_NAMES)

_encode = msgspec.json.Encoder().encode


def score(con: Any, outcomes: Sequence[Outcome], known: Sequence[Measure], by: Sequence[str]) -> int:
    """Add the outcomes of traces that have none, and count them."""
    first: dict[str, Outcome] = {}
    for outcome in outcomes:
        first.setdefault(outcome.trace.id, outcome)
    rows = con.execute(
        f"SELECT id, number, received FROM traces WHERE id IN ({', '.join('?' * len(first)) or 'NULL'})",
        list(first),
    ).fetchall()
    numbers = [number for _, number, _ in rows]
    judged = {
        number
        for (number,) in con.execute(
            f"SELECT number FROM outcomes WHERE number IN ({', '.join('?' * len(numbers)) or 'NULL'})",
            numbers,
        ).fetchall()
    }
    fresh = sorted(
        ((number, received, first[name]) for name, number, received in rows if number not in judged),
        key=lambda each: each[0],
    )
    if fresh:
        _add_outcomes(con, fresh)
        _add_values(con, fresh)
        _count(con, fresh, known, by)
    return len(fresh)


Fresh = Sequence[tuple[int, float, Outcome]]


def _add_outcomes(con: Any, fresh: Fresh) -> None:
    now = time.time()
    insert(
        con,
        "outcomes",
        {
            "number": [number for number, _, _ in fresh],
            "judge": [each.verdicts.judge for _, _, each in fresh],
            "scored": [now for _ in fresh],
            "state": [outcome_state(each) for _, _, each in fresh],
            "verdicts": [_encode(each.verdicts).decode() for _, _, each in fresh],
            "scores": [_encode(each.scores).decode() for _, _, each in fresh],
        },
    )


def _add_values(con: Any, fresh: Fresh) -> None:
    """The values of all metrics as rows."""
    rows = [
        (number, moment(each.trace, received), each.trace.route or "", one.metric, one.value)
        for number, received, each in fresh
        for one in each.scores
        if one.value is not None
    ]
    if rows:
        names = ("number", "time", "route", "metric", "value")
        insert(con, "scores", dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _count(con: Any, fresh: Fresh, known: Sequence[Measure], by: Sequence[str]) -> None:
    """Count outcomes into the roll-ups."""
    seen: list[Observation] = []
    for _, received, each in fresh:
        trace = each.trace
        if trace.time is None:
            trace = msgspec.structs.replace(trace, time=datetime.fromtimestamp(received, UTC))
        seen += observations(trace, each.verdicts, each.scores, by)
    _add_measures(con, [*known, *DERIVED])
    _add_rollups(con, roll(seen, [*known, *DERIVED]))
    made = multiply(seen, PAIRED)
    if made:
        names = Products.__struct_fields__
        columns = {
            name: [(getattr(each, name) or "") if name == "route" else getattr(each, name) for each in made]
            for name in names
        }
        insert(con, "products", columns)


def _add_rollups(con: Any, made: Sequence[Rollup]) -> None:
    if not made:
        return
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
    columns |= {name: [each.bins[at] for each in made] for at, name in enumerate(BIN_NAMES)}
    insert(con, "deltas", columns)


def _add_measures(con: Any, known: Iterable[Measure]) -> None:
    """Remember metrics that are met for the first time."""
    there = {name for (name,) in con.execute("SELECT name FROM metrics").fetchall()}
    for measure in known:
        if measure.name not in there:
            there.add(measure.name)
            con.execute(
                "INSERT INTO metrics VALUES (?, ?, ?)", [len(there), measure.name, _encode(measure).decode()]
            )


def tidy(con: Any) -> None:
    """Merge the roll-ups that were added apart with those that are there."""
    con.execute("CREATE TEMP TABLE touched AS SELECT DISTINCT minute FROM deltas")
    con.execute(
        f"CREATE TEMP TABLE merged AS SELECT {KEYS}, {_added(SUMS)} FROM ("
        "SELECT * FROM deltas UNION ALL SELECT * FROM rollups WHERE minute IN (SELECT minute FROM touched)) all_ "
        f"GROUP BY {KEYS}"
    )
    con.execute("DELETE FROM rollups WHERE minute IN (SELECT minute FROM touched)")
    con.execute("INSERT INTO rollups SELECT * FROM merged ORDER BY minute, metric, route, cohort")
    con.execute("DELETE FROM deltas")
    con.execute("DROP TABLE merged")
    con.execute("DROP TABLE touched")


def _added(names: Iterable[str]) -> str:
    """Columns added up under their own names."""
    return ", ".join(f"sum({name}) AS {name}" for name in names)


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
