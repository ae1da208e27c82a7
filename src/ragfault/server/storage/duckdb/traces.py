"""Traces in DuckDB: append, read, select by page, and delete what is past its retention."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ragfault.io.error_collector import IdSet
from ragfault.records import Score, Trace, Verdicts
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


def build_conditions(selection: TraceSelection, table: str, *, judged: bool = False) -> tuple[str, list[Any]]:
    """The conditions of a selection on the table of traces, and what stands for their marks.

    `judged`: the outcomes are joined as `o`; else conditions on them ask for themselves.
    """
    parts, given = ["true"], []
    for column, sign, value in (
        ("time", ">=", selection.since),
        ("time", "<", selection.until),
        ("route", "=", selection.route),
        ("model", "=", selection.model),
        ("conversation", "=", selection.conversation),
    ):
        if value is not None:
            parts.append(f"{table}.{column} {sign} ?")
            given.append(value)
    if selection.ids is not None:
        parts.append(f"{table}.id IN ({', '.join('?' * len(selection.ids)) or 'NULL'})")
        given += selection.ids
    if selection.text:
        columns = (f"{table}.id", f"{table}.query", f"coalesce({table}.answer, '')")
        parts.append("(" + " OR ".join(f"contains(lower({each}), lower(?))" for each in columns) + ")")
        given += [selection.text] * 3
    for more, values in (
        _build_outcome_conditions(selection, table, judged),
        _build_metric_conditions(selection, table),
    ):
        parts += more
        given += values
    return " AND ".join(parts), given


def _build_outcome_conditions(
    selection: TraceSelection, table: str, judged: bool
) -> tuple[list[str], list[Any]]:
    """The conditions on the outcome."""
    parts: list[str] = []
    given: list[Any] = []
    if selection.state == "error":
        parts.append(f"coalesce({table}.error, '') != ''")
    elif selection.state == "waiting":
        parts.append(
            f"coalesce({table}.error, '') = '' AND {table}.number NOT IN (SELECT number FROM outcomes)"
        )
    for column, value in (
        ("state", selection.state if selection.state in ("scored", "failed") else None),
        ("judge", selection.judge),
    ):
        if value is not None:
            inner = f"{table}.number IN (SELECT number FROM outcomes WHERE {column} = ?)"
            parts.append(f"o.{column} = ?" if judged else inner)
            given.append(value)
    return parts, given


def _build_metric_conditions(selection: TraceSelection, table: str) -> tuple[list[str], list[Any]]:
    """The conditions on the value of a metric."""
    if selection.metric is None:
        return [], []
    inner, given = ["metric = ?"], [selection.metric]
    for sign, value in ((">=", selection.low), ("<=", selection.high)):
        if value is not None:
            inner.append(f"value {sign} ?")
            given.append(value)  # type: ignore[arg-type]
    return [f"{table}.number IN (SELECT number FROM scores WHERE {' AND '.join(inner)})"], given


def count_traces(con: Any, selection: TraceSelection) -> int:
    """How many traces a selection holds."""
    where, given = build_conditions(selection, "t")
    return int(con.execute(f"SELECT count(*) FROM traces t WHERE {where}", given).fetchone()[0])


def list_traces(con: Any, selection: TraceSelection) -> TracePage:
    """A page of a selection. Raises UsageError for a limit or a key that is none."""
    check_page_limit(selection)
    where, given = build_conditions(selection, "t")
    key, source = "t.time", "traces t"
    if selection.sort != "time":
        key, source = "s.value", "scores s JOIN traces t ON t.number = s.number"
        where, given = f"s.metric = ? AND {where}", [selection.sort, *given]
    down = selection.order == "descending"
    if selection.after is not None:
        last, number = decode_page_key(selection.after)
        sign = "<" if down else ">"
        where += f" AND ({key} {sign} ? OR ({key} = ? AND t.number {sign} ?))"
        given += [last, last, number]
    way = "DESC" if down else "ASC"
    rows = con.execute(
        f"SELECT t.number, {key} FROM {source} WHERE {where} ORDER BY {key} {way}, t.number {way} LIMIT ?",
        [*given, selection.limit + 1],
    ).fetchall()
    shown = rows[: selection.limit]
    following = encode_page_key(shown[-1][1], shown[-1][0]) if len(rows) > selection.limit else None
    return TracePage(lines=_load_summaries(con, [number for number, _ in shown]), next=following)


def _load_summaries(con: Any, numbers: list[int]) -> tuple[TraceSummary, ...]:
    """Some traces as a list shows them, in the order of the numbers."""
    if not numbers:
        return ()
    marks = ", ".join("?" * len(numbers))
    rows = con.execute(
        f"SELECT number, id, time, route, model, query[:{MAX_SHOWN_CHARACTERS}], answer[:{MAX_SHOWN_CHARACTERS}], error FROM traces "
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
    found = {row[0]: build_summary(row, states.get(row[0]), values.get(row[0], {})) for row in rows}
    return tuple(found[number] for number in numbers if number in found)


READ_BATCH = 256
"""Traces that are read at once."""

_decode_trace = msgspec.json.Decoder(Trace).decode
_decode_verdicts = msgspec.json.Decoder(Verdicts).decode
_decode_scores = msgspec.json.Decoder(tuple[Score, ...]).decode
_encode_json = msgspec.json.Encoder().encode


def insert_columns(con: Any, table: str, columns: dict[str, list[Any]]) -> None:
    """Add rows, given as columns in the order of the table's; none where they are empty."""
    import pyarrow as pa

    if all(map(len, columns.values())):
        _insert_rows(con, table, pa.table(columns))


def _insert_rows(con: Any, table: str, rows: Any) -> None:  # noqa: ARG001 - the statement names it
    """Add a table of Arrow; DuckDB finds it by the name that it has here, at half the cost of registering it."""
    con.execute(f"INSERT INTO {table} SELECT * FROM rows")


def append_traces(
    con: Any, traces: Sequence[Trace], released: Sequence[int], known_ids: IdSet, numbers: count[int]
) -> AppendResult:
    """Add those traces whose id is not there yet, and let go of what was held for them."""
    first: dict[str, Trace] = {}
    for trace in traces:
        first.setdefault(trace.id, trace)
    met = [name for name in first if name in known_ids]
    there = set(_select_present(con, met)) if met else set()
    fresh = [trace for name, trace in first.items() if name not in there]
    if fresh:
        _add_traces(con, fresh, numbers)
        for trace in fresh:
            known_ids.add(trace.id)
    if released:
        con.execute("DELETE FROM held WHERE number IN (SELECT unnest(?::BIGINT[]))", [list(released)])
    return AppendResult(len(fresh), len(traces) - len(fresh))


def _add_traces(con: Any, traces: Sequence[Trace], numbers: count[int]) -> None:
    now = time.time()
    insert_columns(
        con,
        "traces",
        {
            "number": [next(numbers) for _ in traces],
            "id": [each.id for each in traces],
            "received": [now for _ in traces],
            "time": [get_trace_time(each, now) for each in traces],
            "route": [each.route or "" for each in traces],
            "model": _make_text_column([each.model for each in traces]),
            "conversation": _make_text_column([each.conversation for each in traces]),
            "query": [each.query for each in traces],
            "answer": _make_text_column([each.answer for each in traces]),
            "error": _make_text_column([each.error for each in traces]),
            "body": [_encode_json(each).decode() for each in traces],
        },
    )


def _make_text_column(values: list[str | None]) -> Any:
    """A column of texts that may all be absent."""
    import pyarrow as pa

    return pa.array(values, pa.string())


def _select_present(con: Any, ids: Sequence[str]) -> Iterator[str]:
    """Those of some ids that are in the table."""
    marks = ", ".join("?" * len(ids))
    for (name,) in con.execute(f"SELECT id FROM traces WHERE id IN ({marks})", list(ids)).fetchall():
        yield name


# --- reading ---------------------------------------------------------------------------------------


def list_unscored(con: Any, after: int, limit: int) -> list[ReceivedTrace]:
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
    return [ReceivedTrace(number, received, _decode_trace(body)) for number, received, body in rows]


def get_trace(con: Any, id: str) -> StoredTrace | None:
    """One trace with its outcome."""
    row = con.execute("SELECT number, received, body FROM traces WHERE id = ?", [id]).fetchone()
    if row is None:
        return None
    number, received, body = row
    found = con.execute(
        "SELECT state, scored, verdicts, scores FROM outcomes WHERE number = ?", [number]
    ).fetchone()
    made = _decode_trace(body)
    if found is None:
        return StoredTrace(trace=made, received=received, state="error" if made.error else "waiting")
    state, scored, verdicts, scores = found
    return StoredTrace(
        trace=made, received=received, state=state, verdicts=_decode_verdicts(verdicts), scores=_decode_scores(scores), scored=scored
    )  # fmt: skip


def iterate_judged(con: Any, selection: TraceSelection) -> Iterator[StoredTrace]:
    """All judged traces of a selection in the order of arrival, a bounded number in memory."""
    where, given = build_conditions(selection, "t", judged=True)
    after = 0
    while True:
        rows = con.execute(
            "SELECT t.number, t.received, t.body, o.state, o.scored, o.verdicts, o.scores FROM traces t "
            f"JOIN outcomes o ON o.number = t.number WHERE {where} AND t.number > ? ORDER BY t.number LIMIT {READ_BATCH}",
            [*given, after],
        ).fetchall()
        for number, received, body, state, scored, verdicts, scores in rows:
            after = number
            yield StoredTrace(
                trace=_decode_trace(body),
                received=received,
                state=state,
                verdicts=_decode_verdicts(verdicts),
                scores=_decode_scores(scores),
                scored=scored,
            )
        if len(rows) < READ_BATCH:
            return


# --- what is held ----------------------------------------------------------------------------------


def add_pending(con: Any, kind: str, bodies: Sequence[bytes], numbers: count[int]) -> tuple[int, ...]:
    """Keep bodies that are not yet traces."""
    made = tuple(next(numbers) for _ in bodies)
    now = time.time()
    insert_columns(
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


def list_pending(con: Any, kind: str, after: int, limit: int) -> list[PendingBody]:
    """What is held, in the order of arrival."""
    rows = con.execute(
        "SELECT number, received, kind, body FROM held WHERE kind = ? AND number > ? ORDER BY number LIMIT ?",
        [kind, after, limit],
    ).fetchall()
    return [PendingBody(*row) for row in rows]


EXTRA_SHARE = 0.1
"""Share of the traces that goes at once where the store has grown too large."""


def compute_totals(con: Any, schema: int) -> StoreTotals:
    """What the store holds."""
    traces, oldest, newest = con.execute("SELECT count(*), min(time), max(time) FROM traces").fetchone()
    judged = con.execute("SELECT count(*) FROM outcomes").fetchone()[0]
    held = con.execute("SELECT count(*) FROM held").fetchone()[0]
    return StoreTotals(
        traces=traces, waiting=traces - judged, pending=held, oldest=oldest, newest=newest, bytes=measure_size(con), schema=schema
    )  # fmt: skip


def measure_size(con: Any) -> int:
    """Bytes on the disk that hold something: those of the file that are used, and the log of what is fresh."""
    block, used = con.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchone()
    [path] = con.execute(
        "SELECT path FROM duckdb_databases() WHERE NOT internal AND path IS NOT NULL"
    ).fetchone()
    log = Path(f"{path}.wal")
    return int(block * used) + (log.stat().st_size if log.exists() else 0)


def delete_expired(con: Any, before: float | None, max_bytes: int | None) -> int:
    """Remove the traces older than a time, and the oldest where more bytes are used; how many went.

    Roll-ups stay: they hold figures and no texts.
    """
    gone = 0
    if before is not None:
        gone += _delete_traces(con, "time < ?", before)
    if max_bytes is not None and (used := measure_size(con)) > max_bytes:
        share = min(1.0, 1 - max_bytes / used + EXTRA_SHARE)
        bound = con.execute("SELECT quantile_cont(time, ?) FROM traces", [share]).fetchone()[0]
        if bound is not None:
            gone += _delete_traces(con, "time <= ?", bound)
    return gone


def _delete_traces(con: Any, where: str, bound: float) -> int:
    gone = int(con.execute(f"SELECT count(*) FROM traces WHERE {where}", [bound]).fetchone()[0])
    if gone:
        inner = f"(SELECT number FROM traces WHERE {where})"
        for table in ("scores", "outcomes", "draws", "checks", "checked"):
            con.execute(f"DELETE FROM {table} WHERE number IN {inner}", [bound])
        con.execute(f"DELETE FROM labels WHERE trace IN (SELECT id FROM traces WHERE {where})", [bound])
        con.execute(f"DELETE FROM traces WHERE {where}", [bound])
    return gone
