"""The ClickHouse schema as numbered migrations; each can be repeated, since there are no transactions."""

from __future__ import annotations

from ragfault.errors import RunError
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection
from ragfault.server.storage.duckdb.schema import SUM_COLUMNS

DAY_PARTITION = "PARTITION BY intDiv(toInt64(received), 86400)"
"""By the day of arrival, so that an insert touches one partition, and what is old goes as a whole."""

_DEDUPLICATION = "SETTINGS non_replicated_deduplication_window = 1000"
"""How many inserts are remembered by their token; replicated tables do it by themselves."""

_WIDE_ROWS = f"{_DEDUPLICATION}, index_granularity = 1024"
"""For wide rows, of which a few are read at a time."""

_NUMBER_INDEX = "INDEX near number TYPE minmax GRANULARITY 1"
"""Numbers rise with time, so that a few stretches hold those that are asked for."""

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
        f"CREATE TABLE IF NOT EXISTS sums (metric LowCardinality(String), route LowCardinality(String), {_SUM_COLUMNS}) "
        f"ENGINE = SummingMergeTree ORDER BY (metric, route) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS products (first LowCardinality(String), second LowCardinality(String), "
        "route LowCardinality(String), minute Int64, n Int64, x Float64, y Float64, xx Float64, yy Float64, "
        f"xy Float64) ENGINE = SummingMergeTree ORDER BY (minute, first, second, route) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS counts (name LowCardinality(String), minute Int64, n Int64) "
        f"ENGINE = SummingMergeTree ORDER BY (minute, name) {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS held (number Int64, received Float64, kind LowCardinality(String), "
        f"body String CODEC(ZSTD(1)), sign Int8) ENGINE = CollapsingMergeTree(sign) ORDER BY number {_DEDUPLICATION}",
        "CREATE TABLE IF NOT EXISTS notes (kind LowCardinality(String), name String, slot Int64, number Int64, "
        "time Float64, body String) "
        f"ENGINE = ReplacingMergeTree(number) ORDER BY (kind, name, slot) {_DEDUPLICATION}",
    ),
)
"""Statements by number, from 1. What stands here never changes: what is to be different is a migration behind it."""


def migrate(con: ClickHouseConnection) -> int:
    """Bring the tables to the last migration; its number. Raises RunError where a later version made them."""
    con.execute(
        "CREATE TABLE IF NOT EXISTS migrations (number Int32) ENGINE = ReplacingMergeTree ORDER BY number"
    )
    done = int(con.fetch_value("SELECT max(number) FROM migrations"))
    if done > len(MIGRATIONS):
        raise RunError(
            f"the store has schema {done}, this ragfault knows up to {len(MIGRATIONS)}. Upgrade ragfault to open it."
        )
    for number, statements in enumerate(MIGRATIONS[done:], start=done + 1):
        for statement in statements:
            con.execute(statement)
        con.insert("migrations", {"number": [number]})
    return len(MIGRATIONS)
