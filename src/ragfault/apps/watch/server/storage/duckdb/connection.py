"""Connection to DuckDB and its schema."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragfault.apps.watch.server.storage.outcome_rows import SUM_COLUMNS
from ragfault.apps.watch.server.storage.store_engine import (
    NO_PARAMETERS,
    DatabaseConnection,
    Migration,
    QueryParameters,
    record_migration,
)
from ragfault.model.errors import OutputError, require_extra

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
        parameters: QueryParameters = NO_PARAMETERS,
        *,
        as_bytes: Sequence[str] = (),  # noqa: ARG002 - DuckDB has a type for bytes
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.cursor() as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(*_bind(query, parameters)).fetchall()
        return rows

    def fetch_value(self, query: str, parameters: QueryParameters = NO_PARAMETERS) -> Any:
        """Return the first value of the first row."""
        return self.fetch_rows(query, parameters)[0][0]

    def fetch_among(
        self, query: str, values: Sequence[Any], parameters: QueryParameters = NO_PARAMETERS
    ) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query on the parameter `among`."""
        return iter(self.fetch_rows(query, {"among": list(values), **parameters}) if values else ())

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

    def execute(self, statement: str, parameters: QueryParameters = NO_PARAMETERS) -> None:
        """Run a statement without a result."""
        self.raw.execute(*_bind(statement, parameters))


def _bind(query: str, parameters: QueryParameters) -> tuple[str, dict[str, Any]]:
    statement, bounded = translate_query(query)
    # the parameters are the caller's, who may use them for several queries
    values: dict[str, Any] = dict(parameters)
    for name in bounded:
        values |= {f"{name}_low": min(values[name], default=0), f"{name}_high": max(values[name], default=0)}
    return statement, values


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


def _declare_rollups(integer: str) -> str:
    names = "metric VARCHAR NOT NULL, route VARCHAR NOT NULL, cohort VARCHAR NOT NULL, minute INTEGER NOT NULL"
    return f"{names}, {_declare_sums(integer)}"


def _declare_products(integer: str) -> str:
    names = "first VARCHAR NOT NULL, second VARCHAR NOT NULL, route VARCHAR NOT NULL, minute INTEGER NOT NULL"
    sums = ", ".join(f"{name} DOUBLE NOT NULL" for name in ("x", "y", "xx", "yy", "xy"))
    return f"{names}, n {integer} NOT NULL, {sums}"


HOURLY_SUMS = "minute - minute % 60 AS minute, " + ", ".join(f"sum({name}) AS {name}" for name in SUM_COLUMNS)
"""The columns of roll-ups by hour, made of those by minute."""

WORDS = "lower(concat_ws(chr(31), id, query, answer))"
"""The text in which words are searched for, kept in lower case: making it so takes longer than searching it."""

_TOTAL_NAMES = ", ".join(("metric", "route", *SUM_COLUMNS))

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        8,
        "2026-11-23 tables",
        (
            "CREATE TABLE traces (number BIGINT NOT NULL, id VARCHAR NOT NULL, received DOUBLE NOT NULL, "
            "time DOUBLE NOT NULL, route VARCHAR NOT NULL, model VARCHAR, conversation VARCHAR, "
            "query VARCHAR NOT NULL, answer VARCHAR, error VARCHAR, body VARCHAR NOT NULL USING COMPRESSION zstd, "
            "words VARCHAR)",
            "CREATE VIEW ids AS SELECT id, number, received, time FROM traces",
            "CREATE TABLE outcomes (number BIGINT NOT NULL, judge VARCHAR NOT NULL, scored DOUBLE NOT NULL, "
            "state VARCHAR NOT NULL, verdicts VARCHAR NOT NULL USING COMPRESSION zstd, "
            "scores VARCHAR NOT NULL USING COMPRESSION zstd, gold VARCHAR)",
            "CREATE TABLE scores (number BIGINT NOT NULL, time DOUBLE NOT NULL, route VARCHAR NOT NULL, "
            "metric VARCHAR NOT NULL, value DOUBLE NOT NULL)",
            "CREATE TABLE sorted_scores (last BIGINT NOT NULL)",
            f"CREATE TABLE deltas ({_declare_rollups('INTEGER')})",
            f"CREATE TABLE rollups ({_declare_rollups('INTEGER')})",
            f"CREATE TABLE hours ({_declare_rollups('BIGINT')})",
            f"CREATE TABLE sums (metric VARCHAR NOT NULL, route VARCHAR NOT NULL, {_declare_sums('BIGINT')})",
            "CREATE VIEW all_rollups AS SELECT * FROM rollups UNION ALL SELECT * FROM deltas",
            "CREATE VIEW all_hours AS SELECT * FROM hours UNION ALL "
            "SELECT * REPLACE (minute - minute % 60 AS minute) FROM deltas",
            f"CREATE VIEW all_sums AS SELECT {_TOTAL_NAMES} FROM sums "
            f"UNION ALL SELECT {_TOTAL_NAMES} FROM deltas WHERE cohort = ''",
            f"CREATE TABLE products ({_declare_products('INTEGER')})",
            f"CREATE TABLE product_hours ({_declare_products('BIGINT')})",
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
)
"""Migrations in their order."""

CREATE_MIGRATIONS = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER NOT NULL, name VARCHAR, applied DOUBLE)"


def apply_migration(con: DatabaseConnection, migration: Migration) -> None:
    """Apply a migration in one transaction."""
    con.execute("BEGIN")
    for statement in migration.statements:
        con.execute(statement)
    record_migration(con, migration)
    con.execute("COMMIT")
