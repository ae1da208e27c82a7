"""Selections on ClickHouse: conditions, sorting, and paging by key; every value is a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.store.clickhouse_connection import Connection
from ragfault.store.paging import SHOWN, check_limit, closed, line, opened
from ragfault.store.records import Line, Page, Wanted

__all__ = ["conditions", "count", "find"]

Given = dict[str, Any]


def conditions(con: Connection, wanted: Wanted, floor: int) -> tuple[str, Given]:
    """The conditions of a selection on the table of traces as `t`, and the parameters in them.

    `floor`: no trace up to this number waits to be judged.
    """
    parts, given = ["true"], {}
    for name, condition in (
        ("since", "t.time >= {since:Float64}"),
        ("until", "t.time < {until:Float64}"),
        ("route", "t.route = {route:String}"),
        ("model", "t.model = {model:String}"),
        ("conversation", "t.conversation = {conversation:String}"),
        ("judge", "t.number IN (SELECT number FROM outcomes WHERE judge = {judge:String})"),
    ):
        value = getattr(wanted, name)
        if value is not None:
            parts.append(condition)
            given[name] = value
    if wanted.ids is not None:
        query = "SELECT number FROM ids WHERE id IN {among:Array(String)}"
        parts.append("t.number IN {numbers:Array(Int64)}")
        given["numbers"] = [number for (number,) in con.among(query, wanted.ids)]
    if wanted.text:
        columns = ("t.id", "t.query", "ifNull(t.answer, '')")
        each = (f"position(lowerUTF8({column}), lowerUTF8({{text:String}})) > 0" for column in columns)
        parts.append(f"({' OR '.join(each)})")
        given["text"] = wanted.text
    _state(wanted, floor, parts, given)
    _metric(wanted, parts, given)
    return " AND ".join(parts), given


def _state(wanted: Wanted, floor: int, parts: list[str], given: Given) -> None:
    """The conditions on the state."""
    if wanted.state == "error":
        parts.append("ifNull(t.error, '') != ''")
    elif wanted.state == "waiting":
        parts.append(
            "ifNull(t.error, '') = '' AND t.number > {floor:Int64} AND t.number NOT IN "
            "(SELECT number FROM outcomes WHERE number > {floor:Int64})"
        )
        given["floor"] = floor
    elif wanted.state is not None:
        parts.append("t.number IN (SELECT number FROM outcomes WHERE state = {state:String})")
        given["state"] = wanted.state


def _metric(wanted: Wanted, parts: list[str], given: Given) -> None:
    """The conditions on the value of a metric."""
    if wanted.metric is None:
        return
    inner = ["metric = {metric:String}"]
    given["metric"] = wanted.metric
    for name, condition in (("low", "value >= {low:Float64}"), ("high", "value <= {high:Float64}")):
        value = getattr(wanted, name)
        if value is not None:
            inner.append(condition)
            given[name] = value
    parts.append(f"t.number IN (SELECT number FROM scores WHERE {' AND '.join(inner)})")


def count(con: Connection, wanted: Wanted, floor: int) -> int:
    """How many traces a selection holds."""
    where, given = conditions(con, wanted, floor)
    return int(con.one(f"SELECT count() FROM traces t WHERE {where}", **given))


def find(con: Connection, wanted: Wanted, floor: int) -> Page:
    """A page of a selection. Raises UsageError for a limit or a key that is none."""
    check_limit(wanted)
    where, given = conditions(con, wanted, floor)
    key, table = "time", "traces t"
    if wanted.sort != "time":
        key, table = "value", "scores s"
        inner = "" if where == "true" else f" AND number IN (SELECT number FROM traces t WHERE {where})"
        where = "metric = {sort:String}" + inner
        given["sort"] = wanted.sort
    down = wanted.order == "descending"
    if wanted.after is not None:
        given["last"], given["number"] = opened(wanted.after)
        sign = "<" if down else ">"
        where += (
            f" AND {key} {sign}= {{last:Float64}} AND ({key} {sign} {{last:Float64}} OR number {sign} {{number:Int64}})"
        )  # fmt: skip
    way = "DESC" if down else "ASC"
    rows = con.rows(
        f"SELECT number, {key} FROM {table} WHERE {where} ORDER BY {key} {way}, number {way} LIMIT {{limit:UInt64}}",
        **given,
        limit=wanted.limit + 1,
    )
    shown = rows[: wanted.limit]
    following = closed(shown[-1][1], shown[-1][0]) if len(rows) > wanted.limit else None
    return Page(lines=_lines(con, [number for number, _ in shown]), next=following)


def _lines(con: Connection, numbers: Sequence[int]) -> tuple[Line, ...]:
    """Some traces as a list shows them, in the order of the numbers."""
    rows = con.among(
        f"SELECT number, id, time, route, model, substringUTF8(query, 1, {SHOWN}), "
        f"substringUTF8(answer, 1, {SHOWN}), error FROM traces WHERE number IN {{among:Array(Int64)}}",
        numbers,
    )
    query = "SELECT number, state, `values` FROM outcomes WHERE number IN {among:Array(Int64)}"
    outcomes = {number: (state, values) for number, state, values in con.among(query, numbers)}
    found = {row[0]: line(row, *outcomes.get(row[0], (None, {}))) for row in rows}
    return tuple(found[number] for number in numbers if number in found)
