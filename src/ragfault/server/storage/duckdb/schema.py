"""The DuckDB schema as numbered migrations, each applied once in one transaction."""

from __future__ import annotations

from ragfault.server.storage.engine import DatabaseConnection
from ragfault.server.storage.outcome_rows import SUM_COLUMNS


def _declare_sums(integer: str) -> str:
    return ", ".join(
        f"{name} {'DOUBLE' if name in ('total', 'squares') else integer} NOT NULL" for name in SUM_COLUMNS
    )


_ROLLUP_COLUMNS = (
    "metric VARCHAR NOT NULL, route VARCHAR NOT NULL, cohort VARCHAR NOT NULL, minute INTEGER NOT NULL, "
    + _declare_sums("INTEGER")
)

_TOTAL_NAMES = ", ".join(("metric", "route", *SUM_COLUMNS))

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE traces (number BIGINT NOT NULL, id VARCHAR NOT NULL, received DOUBLE NOT NULL, "
        "time DOUBLE NOT NULL, route VARCHAR NOT NULL, model VARCHAR, conversation VARCHAR, query VARCHAR NOT NULL, "
        "answer VARCHAR, error VARCHAR, body VARCHAR NOT NULL)",
        "CREATE VIEW ids AS SELECT id, number, received, time FROM traces",
        "CREATE TABLE outcomes (number BIGINT NOT NULL, judge VARCHAR NOT NULL, scored DOUBLE NOT NULL, "
        "state VARCHAR NOT NULL, verdicts VARCHAR NOT NULL, scores VARCHAR NOT NULL)",
        "CREATE TABLE scores (number BIGINT NOT NULL, time DOUBLE NOT NULL, route VARCHAR NOT NULL, "
        "metric VARCHAR NOT NULL, value DOUBLE NOT NULL)",
        f"CREATE TABLE deltas ({_ROLLUP_COLUMNS})",
        f"CREATE TABLE rollups ({_ROLLUP_COLUMNS})",
        f"CREATE TABLE sums (metric VARCHAR NOT NULL, route VARCHAR NOT NULL, {_declare_sums('BIGINT')})",
        "CREATE VIEW all_rollups AS SELECT * FROM rollups UNION ALL SELECT * FROM deltas",
        f"CREATE VIEW all_sums AS SELECT {_TOTAL_NAMES} FROM sums "
        f"UNION ALL SELECT {_TOTAL_NAMES} FROM deltas WHERE cohort = ''",
        "CREATE TABLE products (first VARCHAR NOT NULL, second VARCHAR NOT NULL, route VARCHAR NOT NULL, "
        "minute INTEGER NOT NULL, n INTEGER NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL, xx DOUBLE NOT NULL, "
        "yy DOUBLE NOT NULL, xy DOUBLE NOT NULL)",
        "CREATE TABLE pending (number BIGINT NOT NULL, received DOUBLE NOT NULL, kind VARCHAR NOT NULL, "
        "body BLOB NOT NULL)",
        "CREATE TABLE notes (kind VARCHAR NOT NULL, name VARCHAR NOT NULL, slot BIGINT NOT NULL, "
        "number BIGINT NOT NULL, time DOUBLE NOT NULL, body VARCHAR NOT NULL)",
        "CREATE TABLE counts (name VARCHAR NOT NULL, minute INTEGER NOT NULL, n BIGINT NOT NULL)",
        "CREATE TABLE draws (number BIGINT NOT NULL, received DOUBLE NOT NULL, time DOUBLE NOT NULL, "
        "route VARCHAR NOT NULL, conversation VARCHAR NOT NULL, judge VARCHAR NOT NULL, chance DOUBLE NOT NULL, "
        "taken BOOLEAN NOT NULL)",
        "CREATE TABLE checks (number BIGINT NOT NULL, received DOUBLE NOT NULL, time DOUBLE NOT NULL, "
        "judge VARCHAR NOT NULL, asked DOUBLE NOT NULL, state VARCHAR NOT NULL, cost DOUBLE, "
        "verdicts VARCHAR NOT NULL, scores VARCHAR NOT NULL)",
        "CREATE TABLE check_values (number BIGINT NOT NULL, judge VARCHAR NOT NULL, metric VARCHAR NOT NULL, "
        "value DOUBLE NOT NULL)",
    ),
)
"""Statements by number, from 1. A released migration never changes: a new one follows it."""


def apply_migration(con: DatabaseConnection, number: int) -> None:
    """Apply a migration in one transaction."""
    con.execute("BEGIN")
    for statement in MIGRATIONS[number - 1]:
        con.execute(statement)
    con.insert("migrations", {"number": [number]})
    con.execute("COMMIT")
