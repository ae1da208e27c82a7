"""How much a store on ClickHouse holds, and forgetting: whole days of arrival as partitions, the rest by marks."""

from __future__ import annotations

import math

from ragfault.store.clickhouse_connection import Connection
from ragfault.store.clickhouse_traces import RELEASED
from ragfault.store.forgetting import SPARE
from ragfault.store.records import Totals

__all__ = ["forget", "size", "totals"]

KEPT = ("traces", "outcomes", "scores", "draws", "checks")
"""The tables of what is forgotten, by day. The traces go first: what is left of one that went is met by nobody."""


def totals(con: Connection, schema: int) -> Totals:
    """What the store holds."""
    [[traces, oldest, newest]] = con.rows("SELECT count(), min(time), max(time) FROM traces")
    judged = con.one("SELECT count() FROM outcomes")
    held = con.one(f"SELECT count() FROM held WHERE sign = 1 AND number NOT IN ({RELEASED})")
    return Totals(
        traces=traces,
        waiting=max(0, traces - judged),
        held=held,
        oldest=oldest if traces else None,
        newest=newest if traces else None,
        bytes=size(con),
        schema=schema,
    )


def size(con: Connection) -> int:
    """Bytes on the disk; of what is marked as deleted, and goes when parts are merged, its share is left out."""
    rows = con.rows(
        "SELECT table, sum(bytes_on_disk), sum(rows) FROM system.parts "
        "WHERE database = currentDatabase() AND active GROUP BY table"
    )
    used = 0
    for table, taken, rows_there in rows:
        live = con.one(f"SELECT count() FROM {table}") if table in KEPT else rows_there
        used += math.ceil(taken * live / max(1, rows_there))
    return used


def forget(con: Connection, before: float | None, bytes: int | None) -> int:
    """Remove the traces older than a time, and the oldest where more bytes are used; how many went.

    Roll-ups stay: they hold figures and no texts.
    """
    gone = 0
    if before is not None:
        gone += _remove(con, before)
    if bytes is not None and (used := size(con)) > bytes:
        share = min(1.0, 1 - bytes / used + SPARE)
        there = int(con.one("SELECT count() FROM traces"))
        if there:
            at = min(there - 1, int(share * there))
            bound = con.one("SELECT time FROM traces ORDER BY time LIMIT 1 OFFSET {at:UInt64}", at=at)
            gone += _remove(con, math.nextafter(bound, math.inf))
    return gone


def _remove(con: Connection, bound: float) -> int:
    """Remove what is older than a time; how many traces that were."""
    gone = int(con.one("SELECT count() FROM traces WHERE time < {bound:Float64}", bound=bound))
    if not gone and not con.one("SELECT count() FROM ids WHERE time < {bound:Float64}", bound=bound):
        return 0
    days = con.rows(
        "SELECT intDiv(toInt64(received), 86400) AS day FROM traces GROUP BY day HAVING max(time) < {bound:Float64}",
        bound=bound,
    )
    for table in KEPT:
        for (day,) in days:
            con.do(f"ALTER TABLE {table} DROP PARTITION {{day:Int64}}", day=day)
        con.do(f"DELETE FROM {table} WHERE time < {{bound:Float64}}", bound=bound)
    con.do(
        "DELETE FROM notes WHERE kind = 'label' AND name IN (SELECT id FROM ids WHERE time < {bound:Float64})",
        bound=bound,
    )
    con.do("DELETE FROM ids WHERE time < {bound:Float64}", bound=bound)
    return gone
