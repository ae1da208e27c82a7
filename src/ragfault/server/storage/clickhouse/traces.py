"""Traces in ClickHouse: append, read, select by page, and delete what is past its retention."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from ragfault.records import Score, Trace, Verdicts
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.server.storage.duckdb.traces import EXTRA_SHARE
from ragfault.server.storage.outcome_rows import get_trace_time
from ragfault.server.storage.records import (
    MAX_SHOWN_CHARACTERS,
    AppendResult,
    PendingBody,
    ReceivedTrace,
    StoredTrace,
    StoreTotals,
    TracePage,
    TraceSelection,
    TraceSummary,
    build_summary,
    check_page_limit,
    decode_page_key,
    encode_page_key,
)

QueryParameters = dict[str, Any]


def build_conditions(
    con: ClickHouseConnection, selection: TraceSelection, judged_floor: int
) -> tuple[str, QueryParameters]:
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
        value = getattr(selection, name)
        if value is not None:
            parts.append(condition)
            given[name] = value
    if selection.ids is not None:
        query = "SELECT number FROM ids WHERE id IN {among:Array(String)}"
        parts.append("t.number IN {numbers:Array(Int64)}")
        given["numbers"] = [number for (number,) in con.fetch_among(query, selection.ids)]
    if selection.text:
        columns = ("t.id", "t.query", "ifNull(t.answer, '')")
        each = (f"position(lowerUTF8({column}), lowerUTF8({{text:String}})) > 0" for column in columns)
        parts.append(f"({' OR '.join(each)})")
        given["text"] = selection.text
    _add_state_condition(selection, judged_floor, parts, given)
    _add_metric_condition(selection, parts, given)
    return " AND ".join(parts), given


def _add_state_condition(
    selection: TraceSelection, judged_floor: int, parts: list[str], parameters: QueryParameters
) -> None:
    """The conditions on the state."""
    if selection.state == "error":
        parts.append("ifNull(t.error, '') != ''")
    elif selection.state == "waiting":
        parts.append(
            "ifNull(t.error, '') = '' AND t.number > {floor:Int64} AND t.number NOT IN "
            "(SELECT number FROM outcomes WHERE number > {floor:Int64})"
        )
        parameters["floor"] = judged_floor
    elif selection.state is not None:
        parts.append("t.number IN (SELECT number FROM outcomes WHERE state = {state:String})")
        parameters["state"] = selection.state


def _add_metric_condition(selection: TraceSelection, parts: list[str], parameters: QueryParameters) -> None:
    """The conditions on the value of a metric."""
    if selection.metric is None:
        return
    inner = ["metric = {metric:String}"]
    parameters["metric"] = selection.metric
    for name, condition in (("low", "value >= {low:Float64}"), ("high", "value <= {high:Float64}")):
        value = getattr(selection, name)
        if value is not None:
            inner.append(condition)
            parameters[name] = value
    parts.append(f"t.number IN (SELECT number FROM scores WHERE {' AND '.join(inner)})")


def count_traces(con: ClickHouseConnection, selection: TraceSelection, judged_floor: int) -> int:
    """How many traces a selection holds."""
    where, given = build_conditions(con, selection, judged_floor)
    return int(con.fetch_value(f"SELECT count() FROM traces t WHERE {where}", **given))


def list_traces(con: ClickHouseConnection, selection: TraceSelection, judged_floor: int) -> TracePage:
    """A page of a selection. Raises UsageError for a limit or a key that is none."""
    check_page_limit(selection)
    where, given = build_conditions(con, selection, judged_floor)
    key, table = "time", "traces t"
    if selection.sort != "time":
        key, table = "value", "scores s"
        inner = "" if where == "true" else f" AND number IN (SELECT number FROM traces t WHERE {where})"
        where = "metric = {sort:String}" + inner
        given["sort"] = selection.sort
    down = selection.order == "descending"
    if selection.after is not None:
        given["last"], given["number"] = decode_page_key(selection.after)
        sign = "<" if down else ">"
        where += (
            f" AND {key} {sign}= {{last:Float64}} AND ({key} {sign} {{last:Float64}} OR number {sign} {{number:Int64}})"
        )  # fmt: skip
    way = "DESC" if down else "ASC"
    rows = con.fetch_rows(
        f"SELECT number, {key} FROM {table} WHERE {where} ORDER BY {key} {way}, number {way} LIMIT {{limit:UInt64}}",
        **given,
        limit=selection.limit + 1,
    )
    shown = rows[: selection.limit]
    following = encode_page_key(shown[-1][1], shown[-1][0]) if len(rows) > selection.limit else None
    return TracePage(lines=_load_summaries(con, [number for number, _ in shown]), next=following)


def _load_summaries(con: ClickHouseConnection, numbers: Sequence[int]) -> tuple[TraceSummary, ...]:
    """Some traces as a list shows them, in the order of the numbers."""
    rows = con.fetch_among(
        f"SELECT number, id, time, route, model, substringUTF8(query, 1, {MAX_SHOWN_CHARACTERS}), "
        f"substringUTF8(answer, 1, {MAX_SHOWN_CHARACTERS}), error FROM traces WHERE number IN {{among:Array(Int64)}}",
        numbers,
    )
    query = "SELECT number, state, `values` FROM outcomes WHERE number IN {among:Array(Int64)}"
    outcomes = {number: (state, values) for number, state, values in con.fetch_among(query, numbers)}
    found = {row[0]: build_summary(row, *outcomes.get(row[0], (None, {}))) for row in rows}
    return tuple(found[number] for number in numbers if number in found)


READ_BATCH = 256
"""Traces that are read at once."""

NUMBER_BATCH = 65_536
"""Numbers that are read at once."""

RELEASED_QUERY = "SELECT number FROM held WHERE sign = -1"

AppendRequest = tuple[Sequence[Trace], Sequence[int]]
"""Traces, and the numbers of what is let go of with them."""

_decode_trace = msgspec.json.Decoder(Trace).decode
_decode_verdicts = msgspec.json.Decoder(Verdicts).decode
_decode_scores = msgspec.json.Decoder(tuple[Score, ...]).decode
_encode_json = msgspec.json.Encoder().encode


def append_traces(
    con: ClickHouseConnection, requests: Sequence[AppendRequest], numbers: count[int]
) -> list[AppendResult]:
    """Add those traces whose id is not there yet, and let go of what was held for them.

    What is held goes last: after a kill in between it makes the same traces again, which are there then.
    """
    wanted = list(dict.fromkeys(each.id for traces, _ in requests for each in traces))
    there = {
        name for (name,) in con.fetch_among("SELECT id FROM ids WHERE id IN {among:Array(String)}", wanted)
    }
    fresh: list[Trace] = []
    told: list[AppendResult] = []
    for traces, _ in requests:
        before = len(fresh)
        for each in traces:
            if each.id not in there:
                there.add(each.id)
                fresh.append(each)
        taken = len(fresh) - before
        told.append(AppendResult(taken, len(traces) - taken))
    _add_traces(con, fresh, numbers)
    _release_pending(con, [number for _, release in requests for number in release])
    return told


def _add_traces(con: ClickHouseConnection, traces: Sequence[Trace], numbers: count[int]) -> None:
    """Add traces, then their ids: `mend_ids` makes up for a kill in between."""
    now = time.time()
    columns: dict[str, list[Any]] = {
        "number": [next(numbers) for _ in traces],
        "id": [each.id for each in traces],
        "received": [now] * len(traces),
        "time": [get_trace_time(each, now) for each in traces],
        "route": [each.route or "" for each in traces],
        "model": [each.model for each in traces],
        "conversation": [each.conversation for each in traces],
        "query": [each.query for each in traces],
        "answer": [each.answer for each in traces],
        "error": [each.error for each in traces],
        "body": [_encode_json(each).decode() for each in traces],
    }
    con.insert("traces", columns)
    con.insert("ids", {name: columns[name] for name in ("id", "number", "received", "time")})


def restore_ids(con: ClickHouseConnection) -> None:
    """Enter the ids of traces whose own were not entered: numbers rise, so that they are the last ones."""
    con.execute(
        "INSERT INTO ids SELECT id, number, received, time FROM traces "
        "WHERE number > (SELECT max(number) FROM ids)"
    )


# --- reading ---------------------------------------------------------------------------------------


def list_unscored(con: ClickHouseConnection, after: int, limit: int) -> list[ReceivedTrace]:
    """Traces without an outcome, behind a number."""
    numbers = con.fetch_rows(
        "SELECT number FROM traces WHERE number > {after:Int64} AND number NOT IN "
        "(SELECT number FROM outcomes WHERE number > {after:Int64}) ORDER BY number LIMIT {limit:UInt64}",
        after=after,
        limit=limit,
    )
    return load_received(con, _take_first(numbers))


def load_received(con: ClickHouseConnection, numbers: Sequence[int]) -> list[ReceivedTrace]:
    """Some traces, in the order of their numbers."""
    return [
        ReceivedTrace(number, received, _decode_trace(body))
        for number, received, body in _load_bodies(con, numbers)
    ]


def get_trace(con: ClickHouseConnection, id: str) -> StoredTrace | None:
    """One trace with its outcome."""
    found = con.fetch_rows("SELECT number FROM ids WHERE id = {id:String}", id=id)
    return next(_load_stored(con, _take_first(found)), None)


def iterate_judged(
    con: ClickHouseConnection, selection: TraceSelection, judged_floor: int
) -> Iterator[StoredTrace]:
    """All judged traces of a selection in the order of arrival, a bounded number in memory."""
    where, given = build_conditions(con, selection, judged_floor)
    after = 0
    while True:
        numbers = con.fetch_rows(
            f"SELECT number FROM traces t WHERE {where} AND number > {{after:Int64}} "
            f"AND number IN (SELECT number FROM outcomes) ORDER BY number LIMIT {NUMBER_BATCH}",
            **given,
            after=after,
        )
        for at in range(0, len(numbers), READ_BATCH):
            yield from _load_stored(con, _take_first(numbers[at : at + READ_BATCH]))
        if len(numbers) < NUMBER_BATCH:
            return
        after = numbers[-1][0]


def _take_first(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


def _load_bodies(con: ClickHouseConnection, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    """Number, arrival and body of some traces, in the order of their numbers."""
    query = "SELECT number, received, body FROM traces WHERE number IN {among:Array(Int64)}"
    return sorted(con.fetch_among(query, numbers), key=lambda row: row[0])


def _load_stored(con: ClickHouseConnection, numbers: Sequence[int]) -> Iterator[StoredTrace]:
    """Some traces with their outcomes, in the order of their numbers."""
    query = (
        "SELECT number, state, scored, verdicts, scores FROM outcomes WHERE number IN {among:Array(Int64)}"
    )
    outcomes = {number: rest for number, *rest in con.fetch_among(query, numbers)}
    for number, received, body in _load_bodies(con, numbers):
        made = _decode_trace(body)
        if number not in outcomes:
            yield StoredTrace(trace=made, received=received, state="error" if made.error else "waiting")
            continue
        state, scored, verdicts, scores = outcomes[number]
        yield StoredTrace(
            trace=made,
            received=received,
            state=state,
            verdicts=_decode_verdicts(verdicts),
            scores=_decode_scores(scores),
            scored=scored,
        )


# --- what is held ----------------------------------------------------------------------------------


def add_pending(
    con: ClickHouseConnection, requests: Sequence[tuple[str, Sequence[bytes]]], numbers: count[int]
) -> list[tuple[int, ...]]:
    """Keep bodies that are not yet traces."""
    made = [tuple(next(numbers) for _ in bodies) for _, bodies in requests]
    flat = [number for each in made for number in each]
    columns: dict[str, list[Any]] = {
        "number": flat,
        "received": [time.time()] * len(flat),
        "kind": [kind for kind, bodies in requests for _ in bodies],
        "body": [bytes(body) for _, bodies in requests for body in bodies],
        "sign": [1] * len(flat),
    }
    con.insert("held", columns)
    return made


def _release_pending(con: ClickHouseConnection, numbers: Sequence[int]) -> None:
    """Let go of bodies: a row of the other sign, and the two vanish when parts are merged."""
    size = len(numbers)
    columns: dict[str, list[Any]] = {
        "number": list(numbers),
        "received": [0.0] * size,
        "kind": [""] * size,
        "body": [b""] * size,
        "sign": [-1] * size,
    }
    con.insert("held", columns)


def list_pending(con: ClickHouseConnection, kind: str, after: int, limit: int) -> list[PendingBody]:
    """What is held, in the order of arrival."""
    rows = con.fetch_rows(
        "SELECT number, received, kind, body FROM held WHERE sign = 1 AND kind = {kind:String} "
        f"AND number > {{after:Int64}} AND number NOT IN ({RELEASED_QUERY}) ORDER BY number LIMIT {{limit:UInt64}}",
        as_bytes=("body",),
        kind=kind,
        after=after,
        limit=limit,
    )
    return [PendingBody(*row) for row in rows]


EXPIRING_TABLES = ("traces", "outcomes", "scores", "draws", "checks")
"""The tables of what is forgotten, by day. The traces go first: what is left of one that went is met by nobody."""


def compute_totals(con: ClickHouseConnection, schema: int) -> StoreTotals:
    """What the store holds."""
    [[traces, oldest, newest]] = con.fetch_rows("SELECT count(), min(time), max(time) FROM traces")
    judged = con.fetch_value("SELECT count() FROM outcomes")
    held = con.fetch_value(f"SELECT count() FROM held WHERE sign = 1 AND number NOT IN ({RELEASED_QUERY})")
    return StoreTotals(
        traces=traces,
        waiting=max(0, traces - judged),
        pending=held,
        oldest=oldest if traces else None,
        newest=newest if traces else None,
        bytes=measure_size(con),
        schema=schema,
    )


def measure_size(con: ClickHouseConnection) -> int:
    """Bytes on the disk; of what is marked as deleted, and goes when parts are merged, its share is left out."""
    rows = con.fetch_rows(
        "SELECT table, sum(bytes_on_disk), sum(rows) FROM system.parts "
        "WHERE database = currentDatabase() AND active GROUP BY table"
    )
    used = 0
    for table, taken, rows_there in rows:
        live = con.fetch_value(f"SELECT count() FROM {table}") if table in EXPIRING_TABLES else rows_there
        used += math.ceil(taken * live / max(1, rows_there))
    return used


def delete_expired(con: ClickHouseConnection, before: float | None, max_bytes: int | None) -> int:
    """Remove the traces older than a time, and the oldest where more bytes are used; how many went.

    Roll-ups stay: they hold figures and no texts.
    """
    gone = 0
    if before is not None:
        gone += _delete_older(con, before)
    if max_bytes is not None and (used := measure_size(con)) > max_bytes:
        share = min(1.0, 1 - max_bytes / used + EXTRA_SHARE)
        there = int(con.fetch_value("SELECT count() FROM traces"))
        if there:
            at = min(there - 1, int(share * there))
            bound = con.fetch_value("SELECT time FROM traces ORDER BY time LIMIT 1 OFFSET {at:UInt64}", at=at)
            gone += _delete_older(con, math.nextafter(bound, math.inf))
    return gone


def _delete_older(con: ClickHouseConnection, bound: float) -> int:
    """Remove what is older than a time; how many traces that were."""
    gone = int(con.fetch_value("SELECT count() FROM traces WHERE time < {bound:Float64}", bound=bound))
    if not gone and not con.fetch_value("SELECT count() FROM ids WHERE time < {bound:Float64}", bound=bound):
        return 0
    days = con.fetch_rows(
        "SELECT intDiv(toInt64(received), 86400) AS day FROM traces GROUP BY day HAVING max(time) < {bound:Float64}",
        bound=bound,
    )
    for table in EXPIRING_TABLES:
        for (day,) in days:
            con.execute(f"ALTER TABLE {table} DROP PARTITION {{day:Int64}}", day=day)
        con.execute(f"DELETE FROM {table} WHERE time < {{bound:Float64}}", bound=bound)
    con.execute(
        "DELETE FROM notes WHERE kind = 'label' AND name IN (SELECT id FROM ids WHERE time < {bound:Float64})",
        bound=bound,
    )
    con.execute("DELETE FROM ids WHERE time < {bound:Float64}", bound=bound)
    return gone
