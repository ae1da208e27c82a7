"""The DuckDB schema as numbered migrations, each applied once in one transaction."""

from __future__ import annotations

from typing import Any

from ragfault.analysis.monitoring.rollups import BINS
from ragfault.errors import RunError

BIN_COLUMNS = tuple(f"b{at}" for at in range(BINS))
"""The columns of a histogram."""

SUM_COLUMNS = ("n", "total", "squares", "undefined", "failed", *BIN_COLUMNS)
"""The columns of a roll-up that merging adds up."""

_FLOAT_COLUMNS = ("total", "squares")

_ROLLUP_COLUMNS = (
    "metric VARCHAR NOT NULL, route VARCHAR NOT NULL, cohort VARCHAR NOT NULL, minute INTEGER NOT NULL, "
    "n INTEGER NOT NULL, total DOUBLE NOT NULL, squares DOUBLE NOT NULL, undefined INTEGER NOT NULL, "
    "failed INTEGER NOT NULL, " + ", ".join(f"{name} INTEGER NOT NULL" for name in BIN_COLUMNS)
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE traces (number BIGINT NOT NULL, id VARCHAR NOT NULL, received DOUBLE NOT NULL, "
        "time DOUBLE NOT NULL, route VARCHAR NOT NULL, model VARCHAR, conversation VARCHAR, query VARCHAR NOT NULL, "
        "answer VARCHAR, error VARCHAR, body VARCHAR NOT NULL)",
        "CREATE TABLE outcomes (number BIGINT NOT NULL, judge VARCHAR NOT NULL, scored DOUBLE NOT NULL, "
        "state VARCHAR NOT NULL, verdicts VARCHAR NOT NULL, scores VARCHAR NOT NULL)",
        "CREATE TABLE scores (number BIGINT NOT NULL, time DOUBLE NOT NULL, route VARCHAR NOT NULL, "
        "metric VARCHAR NOT NULL, value DOUBLE NOT NULL)",
        f"CREATE TABLE deltas ({_ROLLUP_COLUMNS})",
        f"CREATE TABLE rollups ({_ROLLUP_COLUMNS})",
        "CREATE TABLE products (first VARCHAR NOT NULL, second VARCHAR NOT NULL, route VARCHAR NOT NULL, "
        "minute INTEGER NOT NULL, n INTEGER NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL, xx DOUBLE NOT NULL, "
        "yy DOUBLE NOT NULL, xy DOUBLE NOT NULL)",
        "CREATE TABLE metrics (place INTEGER NOT NULL, name VARCHAR NOT NULL, body VARCHAR NOT NULL)",
        "CREATE TABLE held (number BIGINT NOT NULL, received DOUBLE NOT NULL, kind VARCHAR NOT NULL, "
        "body BLOB NOT NULL)",
        "CREATE TABLE marks (id VARCHAR NOT NULL, time DOUBLE NOT NULL, body VARCHAR NOT NULL)",
        "CREATE TABLE events (number BIGINT NOT NULL, alert VARCHAR NOT NULL, time DOUBLE NOT NULL, "
        "body VARCHAR NOT NULL)",
        "CREATE TABLE labels (number BIGINT NOT NULL, trace VARCHAR NOT NULL, body VARCHAR NOT NULL)",
        "CREATE TABLE settings (name VARCHAR NOT NULL, value VARCHAR NOT NULL)",
        "CREATE TABLE tokens (name VARCHAR NOT NULL, role VARCHAR NOT NULL, hash VARCHAR NOT NULL, "
        "created DOUBLE NOT NULL)",
        "CREATE TABLE counts (name VARCHAR NOT NULL, minute INTEGER NOT NULL, n BIGINT NOT NULL)",
    ),
    (
        "CREATE TABLE draws (number BIGINT NOT NULL, received DOUBLE NOT NULL, route VARCHAR NOT NULL, "
        "conversation VARCHAR NOT NULL, judge VARCHAR NOT NULL, chance DOUBLE NOT NULL, taken BOOLEAN NOT NULL)",
        "CREATE TABLE checks (number BIGINT NOT NULL, judge VARCHAR NOT NULL, time DOUBLE NOT NULL, "
        "state VARCHAR NOT NULL, cost DOUBLE, verdicts VARCHAR NOT NULL, scores VARCHAR NOT NULL)",
        "CREATE TABLE checked (number BIGINT NOT NULL, judge VARCHAR NOT NULL, metric VARCHAR NOT NULL, "
        "value DOUBLE NOT NULL)",
    ),
    (
        "CREATE TABLE sums (metric VARCHAR NOT NULL, route VARCHAR NOT NULL, "
        + ", ".join(
            f"{name} {'DOUBLE' if name in _FLOAT_COLUMNS else 'BIGINT'} NOT NULL" for name in SUM_COLUMNS
        )
        + ")",
        f"INSERT INTO sums SELECT metric, route, {', '.join(f'sum({name})' for name in SUM_COLUMNS)} FROM rollups "
        "WHERE cohort = '' GROUP BY metric, route",
    ),
)
"""Statements by number, from 1. What stands here never changes: what is to be different is a migration behind it."""


def migrate(con: Any) -> int:
    """Bring the tables to the last migration; its number. Raises RunError where a later version made them."""
    con.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER NOT NULL)")
    done = con.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()[0]
    if done > len(MIGRATIONS):
        raise RunError(
            f"the store has schema {done}, this ragfault knows up to {len(MIGRATIONS)}. Upgrade ragfault to open it."
        )
    for number, statements in enumerate(MIGRATIONS[done:], start=done + 1):
        con.execute("BEGIN")
        for statement in statements:
            con.execute(statement)
        con.execute("INSERT INTO migrations VALUES (?)", [number])
        con.execute("COMMIT")
    return len(MIGRATIONS)
