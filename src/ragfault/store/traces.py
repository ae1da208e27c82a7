"""Traces in the store: taking them in, once each, and reading them one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from ragfault.records import Score, Trace, Verdicts
from ragfault.sources.seen import Seen
from ragfault.store.counting import moment
from ragfault.store.records import Appended, Held, Kept, Wanted, Whole
from ragfault.store.selecting import conditions

__all__ = ["append", "hold", "insert", "read_held", "trace", "unscored", "walk"]

CHUNK = 256
"""Traces that are read at once."""

_trace = msgspec.json.Decoder(Trace).decode
_verdicts = msgspec.json.Decoder(Verdicts).decode
_scores = msgspec.json.Decoder(tuple[Score, ...]).decode
_encode = msgspec.json.Encoder().encode


def insert(con: Any, table: str, columns: dict[str, list[Any]]) -> None:
    """Add rows, given as columns in the order of the table's; none where they are empty."""
    import pyarrow as pa

    if all(map(len, columns.values())):
        _put(con, table, pa.table(columns))


def _put(con: Any, table: str, rows: Any) -> None:  # noqa: ARG001 - the statement names it
    """Add a table of Arrow; DuckDB finds it by the name that it has here, at half the cost of registering it."""
    con.execute(f"INSERT INTO {table} SELECT * FROM rows")


def append(
    con: Any, traces: Sequence[Trace], release: Sequence[int], seen: Seen, numbers: count[int]
) -> Appended:
    """Add those traces whose id is not there yet, and let go of what was held for them."""
    first: dict[str, Trace] = {}
    for trace in traces:
        first.setdefault(trace.id, trace)
    met = [name for name in first if name in seen]
    there = set(_present(con, met)) if met else set()
    fresh = [trace for name, trace in first.items() if name not in there]
    if fresh:
        _add(con, fresh, numbers)
        for trace in fresh:
            seen.add(trace.id)
    if release:
        con.execute("DELETE FROM held WHERE number IN (SELECT unnest(?::BIGINT[]))", [list(release)])
    return Appended(len(fresh), len(traces) - len(fresh))


def _add(con: Any, traces: Sequence[Trace], numbers: count[int]) -> None:
    now = time.time()
    insert(
        con,
        "traces",
        {
            "number": [next(numbers) for _ in traces],
            "id": [each.id for each in traces],
            "received": [now for _ in traces],
            "time": [moment(each, now) for each in traces],
            "route": [each.route or "" for each in traces],
            "model": _texts([each.model for each in traces]),
            "conversation": _texts([each.conversation for each in traces]),
            "query": [each.query for each in traces],
            "answer": _texts([each.answer for each in traces]),
            "error": _texts([each.error for each in traces]),
            "body": [_encode(each).decode() for each in traces],
        },
    )


def _texts(values: list[str | None]) -> Any:
    """A column of texts that may all be absent."""
    import pyarrow as pa

    return pa.array(values, pa.string())


def _present(con: Any, ids: Sequence[str]) -> Iterator[str]:
    """Those of some ids that are in the table."""
    marks = ", ".join("?" * len(ids))
    for (name,) in con.execute(f"SELECT id FROM traces WHERE id IN ({marks})", list(ids)).fetchall():
        yield name


# --- reading ---------------------------------------------------------------------------------------


def unscored(con: Any, after: int, limit: int) -> list[Kept]:
    """Traces without an outcome, behind a number; the long texts are read of these alone."""
    numbers = [
        number
        for (number,) in con.execute(
            "SELECT number FROM traces t WHERE number > ? AND NOT EXISTS "
            "(SELECT 1 FROM outcomes o WHERE o.number = t.number AND o.number > ?) ORDER BY number LIMIT ?",
            [after, after, limit],
        ).fetchall()
    ]
    if not numbers:
        return []
    rows = con.execute(
        "SELECT number, received, body FROM traces WHERE number BETWEEN ? AND ? "
        "AND number IN (SELECT unnest(?::BIGINT[])) ORDER BY number",
        [numbers[0], numbers[-1], numbers],
    ).fetchall()
    return [Kept(number, received, _trace(body)) for number, received, body in rows]


def trace(con: Any, id: str) -> Whole | None:
    """One trace with its outcome."""
    row = con.execute("SELECT number, received, body FROM traces WHERE id = ?", [id]).fetchone()
    if row is None:
        return None
    number, received, body = row
    found = con.execute(
        "SELECT state, scored, verdicts, scores FROM outcomes WHERE number = ?", [number]
    ).fetchone()
    made = _trace(body)
    if found is None:
        return Whole(trace=made, received=received, state="error" if made.error else "waiting")
    state, scored, verdicts, scores = found
    return Whole(
        trace=made, received=received, state=state, verdicts=_verdicts(verdicts), scores=_scores(scores), scored=scored
    )  # fmt: skip


def walk(con: Any, wanted: Wanted) -> Iterator[Whole]:
    """All judged traces of a selection in the order of arrival, a bounded number in memory."""
    where, given = conditions(wanted, "t", judged=True)
    after = 0
    while True:
        rows = con.execute(
            "SELECT t.number, t.received, t.body, o.state, o.scored, o.verdicts, o.scores FROM traces t "
            f"JOIN outcomes o ON o.number = t.number WHERE {where} AND t.number > ? ORDER BY t.number LIMIT {CHUNK}",
            [*given, after],
        ).fetchall()
        for number, received, body, state, scored, verdicts, scores in rows:
            after = number
            yield Whole(
                trace=_trace(body),
                received=received,
                state=state,
                verdicts=_verdicts(verdicts),
                scores=_scores(scores),
                scored=scored,
            )
        if len(rows) < CHUNK:
            return


# --- what is held ----------------------------------------------------------------------------------


def hold(con: Any, kind: str, bodies: Sequence[bytes], numbers: count[int]) -> tuple[int, ...]:
    """Keep bodies that are not yet traces."""
    made = tuple(next(numbers) for _ in bodies)
    now = time.time()
    insert(
        con,
        "held",
        {
            "number": list(made),
            "received": [now] * len(made),
            "kind": [kind] * len(made),
            "body": list(bodies),
        },
    )
    return made


def read_held(con: Any, kind: str, after: int, limit: int) -> list[Held]:
    """What is held, in the order of arrival."""
    rows = con.execute(
        "SELECT number, received, kind, body FROM held WHERE kind = ? AND number > ? ORDER BY number LIMIT ?",
        [kind, after, limit],
    ).fetchall()
    return [Held(*row) for row in rows]
