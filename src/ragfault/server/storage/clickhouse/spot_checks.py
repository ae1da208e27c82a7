"""Spot checks in ClickHouse: the sample of traces sent to a stronger judge, and the values of both judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from ragfault.records import Score, Verdicts
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.server.storage.clickhouse.traces import load_received
from ragfault.server.storage.records import (
    ReceivedTrace,
    SampleDraw,
    SpotCheck,
    SpotCheckCounts,
    SpotCheckSample,
)

WAITING_DRAWS = "taken AND judge = {judge:String} AND number NOT IN (SELECT number FROM checks WHERE judge = {judge:String})"
"""Of draws: those that wait for a judge."""

DAY_EXPRESSION = "intDiv(toInt64(received), 86400)"

_decode_verdicts = msgspec.json.Decoder(Verdicts).decode
_decode_scores = msgspec.json.Decoder(tuple[Score, ...]).decode
_encode_json = msgspec.json.Encoder().encode

SubmitWrite = Callable[[Callable[[], Any]], Future[Any]]
"""Has the writer of a store do something."""


class ClickHouseSpotChecks:
    """The port `Checking` on the connections of a store."""

    def __init__(
        self,
        read_connection: ClickHouseConnection,
        write_connection: ClickHouseConnection,
        submit: SubmitWrite,
    ) -> None:
        self._read_connection, self._write_connection, self._submit = (
            read_connection,
            write_connection,
            submit,
        )

    def add_draws(self, draws: Sequence[SampleDraw]) -> Future[None]:
        return self._submit(lambda: _add_draws(self._write_connection, draws))

    def count_draws(self) -> dict[str, int]:
        return dict(self._read_connection.fetch_rows("SELECT route, count() FROM draws GROUP BY route"))

    def list_waiting(self, judge: str, limit: int = 256) -> Sequence[ReceivedTrace]:
        rows = self._read_connection.fetch_rows(
            f"SELECT number FROM draws WHERE {WAITING_DRAWS} ORDER BY number LIMIT {{limit:UInt64}}",
            judge=judge,
            limit=limit,
        )
        return load_received(self._read_connection, [number for (number,) in rows])

    def add_checks(self, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> Future[None]:
        return self._submit(lambda: _add_checks(self._write_connection, checks, numbers))

    def skip_waiting(self, judge: str, now: float) -> Future[int]:
        return self._submit(lambda: _skip_waiting(self._write_connection, judge, now))

    def count_checks(self, judge: str, since: float = 0.0) -> SpotCheckCounts:
        [found] = self._read_connection.fetch_rows(
            "SELECT countIf(state = 'checked'), countIf(state = 'failed'), countIf(state = 'left'), "
            "ifNull(sum(cost), 0), count() - count(cost) FROM checks "
            "WHERE judge = {judge:String} AND asked >= {since:Float64}",
            judge=judge,
            since=since,
        )
        checked, failed, left, cost, unpriced = found
        return SpotCheckCounts(
            checked=checked,
            failed=failed,
            left=left,
            waiting=self._read_connection.fetch_value(
                f"SELECT count() FROM draws WHERE {WAITING_DRAWS}", judge=judge
            ),
            cost=None if unpriced else float(cost),
        )

    def read_trace_checks(self, trace: str) -> tuple[SpotCheck, ...]:
        number = "number IN (SELECT number FROM ids WHERE id = {trace:String})"
        rows = self._read_connection.fetch_rows(
            f"SELECT judge, asked, state, cost, verdicts, scores FROM checks WHERE {number} ORDER BY asked",
            trace=trace,
        )
        chances = dict(
            self._read_connection.fetch_rows(f"SELECT judge, chance FROM draws WHERE {number}", trace=trace)
        )
        return tuple(
            SpotCheck(
                trace=trace,
                judge=judge,
                time=asked,
                chance=chances.get(judge, 1.0),
                state=state,
                cost=cost,
                verdicts=_decode_verdicts(verdicts) if verdicts else None,
                scores=_decode_scores(scores),
            )
            for judge, asked, state, cost, verdicts, scores in rows
        )

    def read_samples(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[SpotCheckSample, ...]:
        given = {"judge": judge, "since": since, "until": until, "metric": metric, "route": route}
        return _read_samples(
            self._read_connection, {name: value for name, value in given.items() if value is not None}
        )


# --- writing ---------------------------------------------------------------------------------------


def _add_draws(con: ClickHouseConnection, draws: Sequence[SampleDraw]) -> None:
    """Keep the draws of traces that are there; one that was drawn for the same judge before stays as it is."""
    query = "SELECT id, number FROM ids WHERE id IN {among:Array(String)}"
    numbers = dict(con.fetch_among(query, list({each.trace for each in draws})))
    query = (
        "SELECT number, received, time, route, ifNull(conversation, '') FROM traces "
        "WHERE number IN {among:Array(Int64)}"
    )
    places = {row[0]: row for row in con.fetch_among(query, sorted(numbers.values()))}
    query = "SELECT number, judge FROM draws WHERE number IN {among:Array(Int64)}"
    there = set(con.fetch_among(query, sorted(places)))
    fresh: dict[tuple[int, str], SampleDraw] = {}
    for each in draws:
        key = (numbers.get(each.trace, 0), each.judge)
        if key[0] in places and key not in there:
            fresh.setdefault(key, each)
    names = ("number", "received", "time", "route", "conversation")
    columns = {name: [places[number][at] for number, _ in fresh] for at, name in enumerate(names)}
    columns |= {
        name: [getattr(each, name) for each in fresh.values()] for name in ("judge", "chance", "taken")
    }
    con.insert("draws", columns)


def _add_checks(con: ClickHouseConnection, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> None:
    """Keep what a better judge said of traces with these numbers, those that are there yet."""
    query = "SELECT number, received, time FROM traces WHERE number IN {among:Array(Int64)}"
    places = {row[0]: row[1:] for row in con.fetch_among(query, list(numbers))}
    rows = [(number, each) for number, each in zip(numbers, checks, strict=True) if number in places]
    con.insert(
        "checks",
        {
            "number": [number for number, _ in rows],
            "received": [places[number][0] for number, _ in rows],
            "time": [places[number][1] for number, _ in rows],
            "judge": [each.judge for _, each in rows],
            "asked": [each.time for _, each in rows],
            "state": [each.state for _, each in rows],
            "cost": [each.cost for _, each in rows],
            "values": [
                {one.metric: one.value for one in each.scores if one.value is not None} for _, each in rows
            ],
            "verdicts": [
                "" if each.verdicts is None else _encode_json(each.verdicts).decode() for _, each in rows
            ],
            "scores": [_encode_json(each.scores).decode() for _, each in rows],
        },
    )


def _skip_waiting(con: ClickHouseConnection, judge: str, now: float) -> int:
    """Leave out what waits for a judge; how many traces that were."""
    numbers = con.fetch_rows(f"SELECT number FROM draws WHERE {WAITING_DRAWS} ORDER BY number", judge=judge)
    left = [SpotCheck(trace="", judge=judge, time=now, state="left") for _ in numbers]
    _add_checks(con, left, [number for (number,) in numbers])
    return len(left)


# --- reading ---------------------------------------------------------------------------------------


def _build_values_query(parameters: dict[str, Any]) -> str:
    """The values of metrics by the judge of every trace, beside what a better judge said, as a query."""
    where = "time >= {since:Float64} AND time < {until:Float64}"
    for name in ("metric", "route"):
        if name in parameters:
            where += f" AND {name} = {{{name}:String}}"
    return (
        "(SELECT s.metric AS metric, s.route AS route, s.value AS judged, mapContains(c.`values`, s.metric) AS asked, "
        "if(asked, c.`values`[s.metric], nan) AS said, d.chance AS chance, d.taken AS taken, "
        "ifNull(c.cost, nan) AS cost, if(d.talk = '', toUInt64(0), cityHash64(d.talk)) AS conversation, "
        "d.drawn AND (u.first = 0 OR s.number < u.first) AS covered, "
        "covered AND NOT asked AND conversation = 0 AS alone "
        f"FROM (SELECT metric, route, value, number, {DAY_EXPRESSION} AS day FROM scores WHERE {where}) s "
        "LEFT ANY JOIN (SELECT number, true AS drawn, chance, taken, conversation AS talk FROM draws "
        "WHERE judge = {judge:String}) d ON d.number = s.number "
        "LEFT ANY JOIN (SELECT number, cost, `values` FROM checks WHERE judge = {judge:String}) c "
        "ON c.number = s.number "
        f"LEFT ANY JOIN (SELECT {DAY_EXPRESSION} AS day, min(number) AS first FROM draws WHERE taken AND judge = {{judge:String}} "
        "AND number NOT IN (SELECT number FROM checks WHERE judge = {judge:String} AND state IN "
        "('checked', 'failed')) GROUP BY day) u ON u.day = s.day)"
    )


def _read_samples(con: ClickHouseConnection, parameters: dict[str, Any]) -> tuple[SpotCheckSample, ...]:
    """Sums and columns by metric and route, all of one moment."""
    import numpy as np

    columns = {
        "judged": np.float64,
        "said": np.float64,
        "chance": np.float64,
        "cost": np.float64,
        "conversation": np.uint64,
    }
    arrays = ", ".join(f"groupArrayIf({name}, covered AND NOT alone)" for name in columns)
    rows = con.fetch_rows(
        "SELECT metric, route, count(), countIf(covered), countIf(covered AND taken AND NOT asked), countIf(alone), "
        f"sumIf(judged, alone), sumIf(judged * judged, alone), {arrays} FROM {_build_values_query(parameters)} "
        "GROUP BY metric, route ORDER BY metric, route",
        **parameters,
    )
    made: list[SpotCheckSample] = []
    for metric, route, scored, covered, failed, n, total, squares, *found in rows:
        sides: list[Any] = [
            np.array(column, kind) for column, kind in zip(found, columns.values(), strict=True)
        ]
        rest = (int(n), float(total), float(squares))
        made.append(SpotCheckSample(metric, route, scored, covered, failed, rest, *sides))
    return tuple(made)
