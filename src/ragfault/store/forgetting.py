"""How much a store holds, and forgetting by age and by size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragfault.store.records import Totals

__all__ = ["forget", "totals"]

SPARE = 0.1
"""Share of the traces that goes at once where the store has grown too large."""


def totals(con: Any, schema: int) -> Totals:
    """What the store holds."""
    traces, oldest, newest = con.execute("SELECT count(*), min(time), max(time) FROM traces").fetchone()
    judged = con.execute("SELECT count(*) FROM outcomes").fetchone()[0]
    held = con.execute("SELECT count(*) FROM held").fetchone()[0]
    return Totals(
        traces=traces, waiting=traces - judged, held=held, oldest=oldest, newest=newest, bytes=size(con), schema=schema
    )  # fmt: skip


def size(con: Any) -> int:
    """Bytes on the disk that hold something: those of the file that are used, and the log of what is fresh."""
    block, used = con.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchone()
    [path] = con.execute(
        "SELECT path FROM duckdb_databases() WHERE NOT internal AND path IS NOT NULL"
    ).fetchone()
    log = Path(f"{path}.wal")
    return int(block * used) + (log.stat().st_size if log.exists() else 0)


def forget(con: Any, before: float | None, bytes: int | None) -> int:
    """Remove the traces older than a time, and the oldest where more bytes are used; how many went.

    Roll-ups stay: they hold figures and no texts.
    """
    gone = 0
    if before is not None:
        gone += _remove(con, "time < ?", before)
    if bytes is not None and (used := size(con)) > bytes:
        share = min(1.0, 1 - bytes / used + SPARE)
        bound = con.execute("SELECT quantile_cont(time, ?) FROM traces", [share]).fetchone()[0]
        if bound is not None:
            gone += _remove(con, "time <= ?", bound)
    return gone


def _remove(con: Any, where: str, bound: float) -> int:
    gone = int(con.execute(f"SELECT count(*) FROM traces WHERE {where}", [bound]).fetchone()[0])
    if gone:
        inner = f"(SELECT number FROM traces WHERE {where})"
        for table in ("scores", "outcomes", "draws", "checks", "checked"):
            con.execute(f"DELETE FROM {table} WHERE number IN {inner}", [bound])
        con.execute(f"DELETE FROM labels WHERE trace IN (SELECT id FROM traces WHERE {where})", [bound])
        con.execute(f"DELETE FROM traces WHERE {where}", [bound])
    return gone
