"""Selections as SQL: conditions, sorting, and paging by key, so that no page is counted off from the first."""

from __future__ import annotations

from typing import Any

from ragfault.store.paging import SHOWN, check_limit, closed, line, opened
from ragfault.store.records import Line, Page, Wanted

__all__ = ["conditions", "count", "find"]


def conditions(wanted: Wanted, table: str, *, judged: bool = False) -> tuple[str, list[Any]]:
    """The conditions of a selection on the table of traces, and what stands for their marks.

    `judged`: the outcomes are joined as `o`; else conditions on them ask for themselves.
    """
    parts, given = ["true"], []
    for column, sign, value in (
        ("time", ">=", wanted.since),
        ("time", "<", wanted.until),
        ("route", "=", wanted.route),
        ("model", "=", wanted.model),
        ("conversation", "=", wanted.conversation),
    ):
        if value is not None:
            parts.append(f"{table}.{column} {sign} ?")
            given.append(value)
    if wanted.ids is not None:
        parts.append(f"{table}.id IN ({', '.join('?' * len(wanted.ids)) or 'NULL'})")
        given += wanted.ids
    if wanted.text:
        columns = (f"{table}.id", f"{table}.query", f"coalesce({table}.answer, '')")
        parts.append("(" + " OR ".join(f"contains(lower({each}), lower(?))" for each in columns) + ")")
        given += [wanted.text] * 3
    for more, values in (_outcome(wanted, table, judged), _metric(wanted, table)):
        parts += more
        given += values
    return " AND ".join(parts), given


def _outcome(wanted: Wanted, table: str, judged: bool) -> tuple[list[str], list[Any]]:
    """The conditions on the outcome."""
    parts: list[str] = []
    given: list[Any] = []
    if wanted.state == "error":
        parts.append(f"coalesce({table}.error, '') != ''")
    elif wanted.state == "waiting":
        parts.append(
            f"coalesce({table}.error, '') = '' AND {table}.number NOT IN (SELECT number FROM outcomes)"
        )
    for column, value in (
        ("state", wanted.state if wanted.state in ("scored", "failed") else None),
        ("judge", wanted.judge),
    ):
        if value is not None:
            inner = f"{table}.number IN (SELECT number FROM outcomes WHERE {column} = ?)"
            parts.append(f"o.{column} = ?" if judged else inner)
            given.append(value)
    return parts, given


def _metric(wanted: Wanted, table: str) -> tuple[list[str], list[Any]]:
    """The conditions on the value of a metric."""
    if wanted.metric is None:
        return [], []
    inner, given = ["metric = ?"], [wanted.metric]
    for sign, value in ((">=", wanted.low), ("<=", wanted.high)):
        if value is not None:
            inner.append(f"value {sign} ?")
            given.append(value)  # type: ignore[arg-type]
    return [f"{table}.number IN (SELECT number FROM scores WHERE {' AND '.join(inner)})"], given


def count(con: Any, wanted: Wanted) -> int:
    """How many traces a selection holds."""
    where, given = conditions(wanted, "t")
    return int(con.execute(f"SELECT count(*) FROM traces t WHERE {where}", given).fetchone()[0])


def find(con: Any, wanted: Wanted) -> Page:
    """A page of a selection. Raises UsageError for a limit or a key that is none."""
    check_limit(wanted)
    where, given = conditions(wanted, "t")
    key, source = "t.time", "traces t"
    if wanted.sort != "time":
        key, source = "s.value", "scores s JOIN traces t ON t.number = s.number"
        where, given = f"s.metric = ? AND {where}", [wanted.sort, *given]
    down = wanted.order == "descending"
    if wanted.after is not None:
        last, number = opened(wanted.after)
        sign = "<" if down else ">"
        where += f" AND ({key} {sign} ? OR ({key} = ? AND t.number {sign} ?))"
        given += [last, last, number]
    way = "DESC" if down else "ASC"
    rows = con.execute(
        f"SELECT t.number, {key} FROM {source} WHERE {where} ORDER BY {key} {way}, t.number {way} LIMIT ?",
        [*given, wanted.limit + 1],
    ).fetchall()
    shown = rows[: wanted.limit]
    following = closed(shown[-1][1], shown[-1][0]) if len(rows) > wanted.limit else None
    return Page(lines=_lines(con, [number for number, _ in shown]), next=following)


def _lines(con: Any, numbers: list[int]) -> tuple[Line, ...]:
    """Some traces as a list shows them, in the order of the numbers."""
    if not numbers:
        return ()
    marks = ", ".join("?" * len(numbers))
    rows = con.execute(
        f"SELECT number, id, time, route, model, query[:{SHOWN}], answer[:{SHOWN}], error FROM traces "
        f"WHERE number IN ({marks}) AND number BETWEEN ? AND ?",
        [*numbers, min(numbers), max(numbers)],
    ).fetchall()
    more = [*numbers, min(numbers), max(numbers)]
    states = dict(
        con.execute(
            f"SELECT number, state FROM outcomes WHERE number IN ({marks}) AND number BETWEEN ? AND ?", more
        ).fetchall()
    )
    values: dict[int, dict[str, float]] = {}
    for number, metric, value in con.execute(
        f"SELECT number, metric, value FROM scores WHERE number IN ({marks}) AND number BETWEEN ? AND ?", more
    ).fetchall():
        values.setdefault(number, {})[metric] = value
    found = {row[0]: line(row, states.get(row[0]), values.get(row[0], {})) for row in rows}
    return tuple(found[number] for number in numbers if number in found)
