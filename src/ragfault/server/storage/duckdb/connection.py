"""Connection to DuckDB and its schema."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragfault.errors import OutputError, require_extra
from ragfault.server.storage.outcome_rows import SUM_COLUMNS
from ragfault.server.storage.store_engine import DatabaseConnection, Migration, build_migration_row

CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "checkpoint_threshold": "128MB",
    "memory_limit": "1GB",
    "threads": "2",
}
"""Nothing is downloaded; queries beyond this memory use the disk. A checkpoint compresses the newest row group anew,
with all that earlier ones put into it: the more it waits for, the fewer times that is."""

PLACEHOLDER = re.compile(r"(?:(?P<column>[\w.]+) IN )?\{(?P<name>\w+):(?:Array\((?P<item>\w+)\)|\w+)\}")

ARRAY_TYPES = {"Int64": "BIGINT[]", "String": "VARCHAR[]"}


class DuckDBConnection:
    """A DuckDB connection; one for readers runs each query on a cursor of its own, so that threads may share it."""

    def __init__(self, connection: Any, *, shared: bool) -> None:
        self.raw, self._shared = connection, shared
        self.on_lost: Callable[[], object] = lambda: None
        """Called where a reader finds that the database cannot be used."""

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Any]:
        """Provide a cursor for one query."""
        if not self._shared:
            yield self.raw
            return
        cursor = None
        try:
            cursor = self.raw.cursor()
            yield cursor
        except Exception as error:
            translated = translate_error(error)
            if translated is error:
                raise
            self.on_lost()
            raise translated from error
        finally:
            if cursor is not None:
                cursor.close()

    def fetch_rows(
        self,
        query: str,
        *,
        as_bytes: Sequence[str] = (),  # noqa: ARG002 - DuckDB has a type for bytes
        **parameters: Any,
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.cursor() as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(*_bind(query, parameters)).fetchall()
        return rows

    def fetch_value(self, query: str, **parameters: Any) -> Any:
        """Return the first value of the first row."""
        return self.fetch_rows(query, **parameters)[0][0]

    def fetch_among(self, query: str, values: Sequence[Any], **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query on the parameter `among`."""
        return iter(self.fetch_rows(query, among=list(values), **parameters) if values else ())

    def insert(
        self,
        table: str,
        columns: dict[str, list[Any]],
        token: str | None = None,  # noqa: ARG002 - transactions make it needless
        computed: Mapping[str, str] | None = None,
    ) -> None:
        """Insert columns, and columns that expressions compute of them."""
        import pyarrow as pa

        if all(map(len, columns.values())):
            rows = pa.table(columns)  # noqa: F841 - DuckDB finds it by its name, twice as fast as a registered one
            added = computed or {}
            names, values = ", ".join((*columns, *added)), ", ".join(("*", *added.values()))
            self.raw.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM rows")

    def execute(self, statement: str, **parameters: Any) -> None:
        """Run a statement without a result."""
        self.raw.execute(*_bind(statement, parameters))


def _bind(query: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    statement, bounded = translate_query(query)
    for name in bounded:
        values = parameters[name]
        parameters |= {f"{name}_low": min(values, default=0), f"{name}_high": max(values, default=0)}
    return statement, parameters


@lru_cache(maxsize=256)
def translate_query(query: str) -> tuple[str, tuple[str, ...]]:
    """Return a query with DuckDB's placeholders, and the arrays of numbers whose bounds it needs as well.

    The bounds let DuckDB skip the row groups without such numbers.

    >>> translate_query("SELECT id FROM traces WHERE time > {since:Float64} AND number IN {among:Array(Int64)}")[1]
    ('among',)
    """
    bounded: list[str] = []

    def replace(match: re.Match[str]) -> str:
        column, name, item = match["column"], match["name"], match["item"]
        if item is None:
            return f"${name}"
        member = f"{column} IN (SELECT unnest(${name}::{ARRAY_TYPES[item]}))"
        if item != "Int64":
            return member
        bounded.append(name)
        return f"({column} BETWEEN ${name}_low AND ${name}_high AND {member})"

    return PLACEHOLDER.sub(replace, query), tuple(bounded)


def open_database(path: Path) -> Any:
    """Open the database file, which this process owns from here on."""
    with require_extra("the store", "server"):
        import duckdb
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return duckdb.connect(str(path), config=dict(CONFIG))
    except duckdb.IOException as error:
        if "lock" in str(error).lower():
            holder = re.search(r"\(PID (\d+)", str(error))
            raise OutputError(
                f"another process owns the store {path.parent}{f' (process {holder[1]})' if holder else ''}. "
                "Send to it and ask it over HTTP, end it first, or name another store."
            ) from None
        raise OutputError(f"cannot open the store {path.parent}: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise OutputError(
            f"cannot write to {path.parent}: {error.strerror}. Name another folder with --store."
        ) from None


def translate_error(error: BaseException) -> BaseException:
    """Return OutputError for a full disk or memory, a lost or damaged database, which is no error of the query."""
    import duckdb

    if isinstance(error, duckdb.Error) and "Corrupt database" in str(error):
        return OutputError(f"the store is damaged: restore a backup. {str(error).splitlines()[0]}")

    kinds = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.FatalException, duckdb.ConnectionException)
    is_failed_commit = isinstance(error, duckdb.TransactionException) and "Failed to commit" in str(error)
    if is_failed_commit or isinstance(error, kinds):
        return OutputError(f"the store cannot be written: {str(error).splitlines()[0]}")
    return error


def _declare_sums(integer: str) -> str:
    return ", ".join(f"{name} {'DOUBLE' if name in ('total', 'squares') else integer} NOT NULL" for name in SUM_COLUMNS)


_ROLLUP_COLUMNS = (
    "metric VARCHAR NOT NULL, route VARCHAR NOT NULL, cohort VARCHAR NOT NULL, minute INTEGER NOT NULL, "
    + _declare_sums("INTEGER")
)

HOURLY_SUMS = "minute - minute % 60 AS minute, " + ", ".join(f"sum({name}) AS {name}" for name in SUM_COLUMNS)
"""The columns of roll-ups by hour, made of those by minute."""

WORDS = "lower(concat_ws(chr(31), id, query, answer))"
"""The text in which words are searched for, kept in lower case: making it so takes longer than searching it."""

_TOTAL_NAMES = ", ".join(("metric", "route", *SUM_COLUMNS))

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "2026-11-21 tables",
        (
            "CREATE TABLE traces (number BIGINT NOT NULL, id VARCHAR NOT NULL, received DOUBLE NOT NULL, "
            "time DOUBLE NOT NULL, route VARCHAR NOT NULL, model VARCHAR, conversation VARCHAR, "
            "query VARCHAR NOT NULL, answer VARCHAR, error VARCHAR, body VARCHAR NOT NULL)",
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
    ),
    Migration(
        "2026-11-22 names of migrations",
        (
            "ALTER TABLE migrations ADD COLUMN name VARCHAR",
            "ALTER TABLE migrations ADD COLUMN applied DOUBLE",
            "UPDATE migrations SET name = '2026-11-21 tables' WHERE number = 1",
        ),
    ),
    Migration("2026-11-22 use of gold", ("ALTER TABLE outcomes ADD COLUMN gold VARCHAR",)),
    Migration(
        "2026-11-22 roll-ups by hour",
        (
            "CREATE TABLE hours (metric VARCHAR NOT NULL, route VARCHAR NOT NULL, cohort VARCHAR NOT NULL, "
            f"minute INTEGER NOT NULL, {_declare_sums('BIGINT')})",
            f"INSERT INTO hours SELECT metric, route, cohort, {HOURLY_SUMS} FROM rollups "
            "GROUP BY metric, route, cohort, minute - minute % 60 ORDER BY minute - minute % 60, metric",
            "CREATE VIEW all_hours AS SELECT * FROM hours UNION ALL "
            "SELECT * REPLACE (minute - minute % 60 AS minute) FROM deltas",
        ),
    ),
    Migration(
        "2026-11-22 products by hour",
        (
            "CREATE TABLE product_hours AS SELECT first, second, route, minute - minute % 60 AS minute, "
            "sum(n)::BIGINT AS n, sum(x) AS x, sum(y) AS y, sum(xx) AS xx, sum(yy) AS yy, sum(xy) AS xy FROM products "
            "GROUP BY first, second, route, minute - minute % 60",
        ),
    ),
    Migration("2026-11-22 scores sorted by metric", ("CREATE TABLE sorted_scores (last BIGINT NOT NULL)",)),
    Migration("2026-11-23 words of traces", ("ALTER TABLE traces ADD COLUMN IF NOT EXISTS words VARCHAR",)),
    Migration(
        "2026-11-23 texts compressed by zstd",
        (
            "CREATE TABLE packed_traces (number BIGINT NOT NULL, id VARCHAR NOT NULL, received DOUBLE NOT NULL, "
            "time DOUBLE NOT NULL, route VARCHAR NOT NULL, model VARCHAR, conversation VARCHAR, "
            "query VARCHAR NOT NULL, answer VARCHAR, error VARCHAR, body VARCHAR NOT NULL USING COMPRESSION zstd, "
            "words VARCHAR)",
            "CREATE TABLE packed_outcomes (number BIGINT NOT NULL, judge VARCHAR NOT NULL, scored DOUBLE NOT NULL, "
            "state VARCHAR NOT NULL, verdicts VARCHAR NOT NULL USING COMPRESSION zstd, "
            "scores VARCHAR NOT NULL USING COMPRESSION zstd, gold VARCHAR)",
            *(
                statement
                for table in ("traces", "outcomes")
                for statement in (
                    f"INSERT INTO packed_{table} BY NAME SELECT * FROM {table}",
                    f"DROP TABLE {table}",
                    f"ALTER TABLE packed_{table} RENAME TO {table}",
                )
            ),
        ),
    ),
)
"""Migrations by number, from 1."""

OLD_NOTES = {
    "mark": ("marks", "id, 0, 0, time, body"),
    "event": ("events", "alert, number, number, time, body"),
    "label": ("labels", "trace, number, number, 0, body"),
    "setting": ("settings", "name, 0, 0, 0, value"),
    "token": ("tokens", "name, 0, 0, 0, json_object('name', name, 'role', role, 'hash', hash, 'created', created)"),
}
"""Of the tables before notes: kind of note → table, and its columns as name, slot, number, time and body."""

OLD_COLUMNS = "number, id, received, time, route, model, conversation, query, answer, error, body"


def apply_migration(con: DatabaseConnection, number: int) -> None:
    """Apply a migration in one transaction."""
    con.execute("BEGIN")
    for statement in MIGRATIONS[number - 1].statements:
        con.execute(statement)
    con.insert("migrations", build_migration_row(MIGRATIONS, number))
    con.execute("COMMIT")


def adopt_first_schema(con: DatabaseConnection) -> None:
    """Bring a store from before the table of notes, such as those of 21 November 2026, to the first migration.

    Traces, what waits to be one, marks, events, labels, settings, tokens and counts stay. Verdicts, scores and roll-ups
    go, since their form was another: the traces are judged anew.
    """
    tables = {name for (name,) in con.fetch_rows("SELECT table_name FROM duckdb_tables() WHERE NOT internal")}
    if "traces" not in tables or "notes" in tables:
        return
    con.execute("BEGIN")
    for (view,) in con.fetch_rows("SELECT view_name FROM duckdb_views() WHERE NOT internal"):
        con.execute(f'DROP VIEW "{view}"')
    for table in tables - {"migrations"}:
        con.execute(f'ALTER TABLE "{table}" RENAME TO "old_{table}"')
    for statement in MIGRATIONS[0].statements:
        con.execute(statement)
    con.execute(f"INSERT INTO traces SELECT {OLD_COLUMNS} FROM old_traces")
    for waiting in tables & {"held", "pending"}:
        con.execute(f"INSERT INTO pending SELECT number, received, kind, body FROM old_{waiting}")
    if "counts" in tables:
        con.execute("INSERT INTO counts SELECT name, minute, n FROM old_counts")
    for kind, (table, columns) in OLD_NOTES.items():
        if table in tables:
            con.execute(f"INSERT INTO notes SELECT '{kind}', {columns} FROM old_{table}")
    for table in tables - {"migrations"}:
        con.execute(f'DROP TABLE "old_{table}"')
    con.execute("DELETE FROM migrations")
    con.insert("migrations", {"number": [1]})
    con.execute("COMMIT")
