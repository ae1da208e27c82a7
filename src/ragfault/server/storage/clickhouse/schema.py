"""The ClickHouse schema as numbered migrations; each can be repeated, since there are no transactions."""

from __future__ import annotations

from ragfault.server.storage.engine import DatabaseConnection
from ragfault.server.storage.outcome_rows import SUM_COLUMNS

DAY_PARTITION = "PARTITION BY intDiv(toInt64(received), 86400)"
"""Partitions by day of arrival: an insert touches one of them, and an old day is dropped as a whole."""

_DEDUPLICATION = "SETTINGS non_replicated_deduplication_window = 1000"
"""Number of inserts whose token is remembered; replicated tables remember tokens by default."""

_WIDE_ROWS = f"{_DEDUPLICATION}, index_granularity = 1024"
"""Settings of tables with wide rows, a few of which are read at a time."""

_NUMBER_INDEX = "INDEX near number TYPE minmax GRANULARITY 1"
"""An index by number: numbers rise with time, so that a query reads few granules."""

_SUM_COLUMNS = ", ".join(
    f"{name} {'Float64' if name in ('total', 'squares') else 'Int64'}" for name in SUM_COLUMNS
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS traces (number Int64, id String, received Float64, time Float64, "
        "route LowCardinality(String), model LowCardinality(Nullable(String)), conversation Nullable(String), "
        f"query String, answer Nullable(String), error Nullable(String), body String CODEC(ZSTD(3)), {_NUMBER_INDEX}) "
        f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (time, number) {_WIDE_ROWS}",
        "CREATE TABLE IF NOT EXISTS ids (id String, number Int64, received Float64, time Float64) "
        f"ENGINE = ReplacingMergeTree ORDER BY id {_WIDE_ROWS}",
        "CREATE TABLE IF NOT EXISTS outcomes (number Int64, received Float64, time Float64, batch Int64, "
        "cohorts String, judge LowCardinality(String), scored Float64, state LowCardinality(String), "
        "`values` Map(LowCardinality(String), Float64), verdicts String CODEC(ZSTD(3)), "
        "scores String CODEC(ZSTD(3)), INDEX together batch TYPE minmax GRANULARITY 1) "
        f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY number {_WIDE_ROWS}",
        "CREATE TABLE IF NOT EXISTS scores (number Int64, received Float64, time Float64, "
        f"route LowCardinality(String), metric LowCardinality(String), value Float64, {_NUMBER_INDEX}) "
        f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (metric, time, number) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS draws (number Int64, received Float64, time Float64, route LowCardinality(String), "
        "conversation String, judge LowCardinality(String), chance Float64, taken Bool) "
        f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (judge, number) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS checks (number Int64, received Float64, time Float64, "
        "judge LowCardinality(String), asked Float64, state LowCardinality(String), cost Nullable(Float64), "
        "`values` Map(LowCardinality(String), Float64), verdicts String CODEC(ZSTD(3)), "
        "scores String CODEC(ZSTD(3))) "
        f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (judge, number) {_WIDE_ROWS}",
        "CREATE TABLE IF NOT EXISTS rollups (metric LowCardinality(String), route LowCardinality(String), "
        f"cohort LowCardinality(String), minute Int64, {_SUM_COLUMNS}) "
        f"ENGINE = SummingMergeTree ORDER BY (minute, metric, route, cohort) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS sums (metric LowCardinality(String), route LowCardinality(String), "
        f"{_SUM_COLUMNS}) "
        f"ENGINE = SummingMergeTree ORDER BY (metric, route) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS products (first LowCardinality(String), second LowCardinality(String), "
        "route LowCardinality(String), minute Int64, n Int64, x Float64, y Float64, xx Float64, yy Float64, "
        f"xy Float64) ENGINE = SummingMergeTree ORDER BY (minute, first, second, route) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS counts (name LowCardinality(String), minute Int64, n Int64) "
        f"ENGINE = SummingMergeTree ORDER BY (minute, name) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS pending (number Int64, received Float64, kind LowCardinality(String), "
        f"body String CODEC(ZSTD(1)), sign Int8) ENGINE = CollapsingMergeTree(sign) ORDER BY number {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS notes (kind LowCardinality(String), name String, slot Int64, number Int64, "
        "time Float64, body String) "
        f"ENGINE = ReplacingMergeTree(number) ORDER BY (kind, name, slot) {_DEDUPLICATION}",
    ),
)
"""Statements by number, from 1. A released migration never changes: a new one follows it."""


CREATE_MIGRATIONS = (
    "CREATE TABLE IF NOT EXISTS migrations (number Int32) ENGINE = ReplacingMergeTree ORDER BY number"
)


def apply_migration(con: DatabaseConnection, number: int) -> None:
    """Apply a migration, whose statements can be repeated after an interruption."""
    for statement in MIGRATIONS[number - 1]:
        con.execute(statement)
    con.insert("migrations", {"number": [number]})
