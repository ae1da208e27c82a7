"""Traces on ClickHouse: taking them in, once each, and reading them one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from ragfault.records import Score, Trace, Verdicts
from ragfault.store.clickhouse_connection import Connection
from ragfault.store.clickhouse_selecting import conditions
from ragfault.store.counting import moment
from ragfault.store.records import Appended, Held, Kept, Wanted, Whole

__all__ = ["append", "hold", "kept", "mend_ids", "read_held", "trace", "unscored", "walk"]

CHUNK = 256
"""Traces that are read at once."""

STRIDE = 65_536
"""Numbers that are read at once."""

RELEASED = "SELECT number FROM held WHERE sign = -1"

Appending = tuple[Sequence[Trace], Sequence[int]]
"""Traces, and the numbers of what is let go of with them."""

_trace = msgspec.json.Decoder(Trace).decode
_verdicts = msgspec.json.Decoder(Verdicts).decode
_scores = msgspec.json.Decoder(tuple[Score, ...]).decode
_encode = msgspec.json.Encoder().encode


def append(con: Connection, given: Sequence[Appending], numbers: count[int]) -> list[Appended]:
    """Add those traces whose id is not there yet, and let go of what was held for them.

    What is held goes last: after a kill in between it makes the same traces again, which are there then.
    """
    wanted = list(dict.fromkeys(each.id for traces, _ in given for each in traces))
    there = {name for (name,) in con.among("SELECT id FROM ids WHERE id IN {among:Array(String)}", wanted)}
    fresh: list[Trace] = []
    told: list[Appended] = []
    for traces, _ in given:
        before = len(fresh)
        for each in traces:
            if each.id not in there:
                there.add(each.id)
                fresh.append(each)
        taken = len(fresh) - before
        told.append(Appended(taken, len(traces) - taken))
    _add(con, fresh, numbers)
    _release(con, [number for _, release in given for number in release])
    return told


def _add(con: Connection, traces: Sequence[Trace], numbers: count[int]) -> None:
    """Add traces, then their ids: `mend_ids` makes up for a kill in between."""
    now = time.time()
    columns: dict[str, list[Any]] = {
        "number": [next(numbers) for _ in traces],
        "id": [each.id for each in traces],
        "received": [now] * len(traces),
        "time": [moment(each, now) for each in traces],
        "route": [each.route or "" for each in traces],
        "model": [each.model for each in traces],
        "conversation": [each.conversation for each in traces],
        "query": [each.query for each in traces],
        "answer": [each.answer for each in traces],
        "error": [each.error for each in traces],
        "body": [_encode(each).decode() for each in traces],
    }
    con.add("traces", columns)
    con.add("ids", {name: columns[name] for name in ("id", "number", "received", "time")})


def mend_ids(con: Connection) -> None:
    """Enter the ids of traces whose own were not entered: numbers rise, so that they are the last ones."""
    con.do(
        "INSERT INTO ids SELECT id, number, received, time FROM traces "
        "WHERE number > (SELECT max(number) FROM ids)"
    )


# --- reading ---------------------------------------------------------------------------------------


def unscored(con: Connection, after: int, limit: int) -> list[Kept]:
    """Traces without an outcome, behind a number."""
    numbers = con.rows(
        "SELECT number FROM traces WHERE number > {after:Int64} AND number NOT IN "
        "(SELECT number FROM outcomes WHERE number > {after:Int64}) ORDER BY number LIMIT {limit:UInt64}",
        after=after,
        limit=limit,
    )
    return kept(con, _first(numbers))


def kept(con: Connection, numbers: Sequence[int]) -> list[Kept]:
    """Some traces, in the order of their numbers."""
    return [Kept(number, received, _trace(body)) for number, received, body in _bodies(con, numbers)]


def trace(con: Connection, id: str) -> Whole | None:
    """One trace with its outcome."""
    found = con.rows("SELECT number FROM ids WHERE id = {id:String}", id=id)
    return next(_wholes(con, _first(found)), None)


def walk(con: Connection, wanted: Wanted, floor: int) -> Iterator[Whole]:
    """All judged traces of a selection in the order of arrival, a bounded number in memory."""
    where, given = conditions(con, wanted, floor)
    after = 0
    while True:
        numbers = con.rows(
            f"SELECT number FROM traces t WHERE {where} AND number > {{after:Int64}} "
            f"AND number IN (SELECT number FROM outcomes) ORDER BY number LIMIT {STRIDE}",
            **given,
            after=after,
        )
        for at in range(0, len(numbers), CHUNK):
            yield from _wholes(con, _first(numbers[at : at + CHUNK]))
        if len(numbers) < STRIDE:
            return
        after = numbers[-1][0]


def _first(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


def _bodies(con: Connection, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    """Number, arrival and body of some traces, in the order of their numbers."""
    query = "SELECT number, received, body FROM traces WHERE number IN {among:Array(Int64)}"
    return sorted(con.among(query, numbers), key=lambda row: row[0])


def _wholes(con: Connection, numbers: Sequence[int]) -> Iterator[Whole]:
    """Some traces with their outcomes, in the order of their numbers."""
    query = (
        "SELECT number, state, scored, verdicts, scores FROM outcomes WHERE number IN {among:Array(Int64)}"
    )
    outcomes = {number: rest for number, *rest in con.among(query, numbers)}
    for number, received, body in _bodies(con, numbers):
        made = _trace(body)
        if number not in outcomes:
            yield Whole(trace=made, received=received, state="error" if made.error else "waiting")
            continue
        state, scored, verdicts, scores = outcomes[number]
        yield Whole(
            trace=made,
            received=received,
            state=state,
            verdicts=_verdicts(verdicts),
            scores=_scores(scores),
            scored=scored,
        )


# --- what is held ----------------------------------------------------------------------------------


def hold(
    con: Connection, given: Sequence[tuple[str, Sequence[bytes]]], numbers: count[int]
) -> list[tuple[int, ...]]:
    """Keep bodies that are not yet traces."""
    made = [tuple(next(numbers) for _ in bodies) for _, bodies in given]
    flat = [number for each in made for number in each]
    columns: dict[str, list[Any]] = {
        "number": flat,
        "received": [time.time()] * len(flat),
        "kind": [kind for kind, bodies in given for _ in bodies],
        "body": [bytes(body) for _, bodies in given for body in bodies],
        "sign": [1] * len(flat),
    }
    con.add("held", columns)
    return made


def _release(con: Connection, numbers: Sequence[int]) -> None:
    """Let go of bodies: a row of the other sign, and the two vanish when parts are merged."""
    size = len(numbers)
    columns: dict[str, list[Any]] = {
        "number": list(numbers),
        "received": [0.0] * size,
        "kind": [""] * size,
        "body": [b""] * size,
        "sign": [-1] * size,
    }
    con.add("held", columns)


def read_held(con: Connection, kind: str, after: int, limit: int) -> list[Held]:
    """What is held, in the order of arrival."""
    rows = con.rows(
        "SELECT number, received, kind, body FROM held WHERE sign = 1 AND kind = {kind:String} "
        f"AND number > {{after:Int64}} AND number NOT IN ({RELEASED}) ORDER BY number LIMIT {{limit:UInt64}}",
        as_bytes=("body",),
        kind=kind,
        after=after,
        limit=limit,
    )
    return [Held(*row) for row in rows]
