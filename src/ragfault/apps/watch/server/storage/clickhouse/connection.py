"""Connection to ClickHouse and its schema."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ragfault.apps.watch.server.storage.outcome_rows import SUM_COLUMNS
from ragfault.apps.watch.server.storage.store_engine import (
    NO_PARAMETERS,
    DatabaseConnection,
    Migration,
    QueryParameters,
    record_migration,
)
from ragfault.model.errors import OutputError, UsageError, require_extra

PASSWORD_VARIABLE = "RAGFAULT_CLICKHOUSE_PASSWORD"
"""The environment variable that the password is read from where the address has none."""

ADDRESS_FORM = "clickhouse://user:password@host:8123/database"


@dataclass(frozen=True, repr=False)
class ClickHouseAddress:
    """A server, or the folder of an engine in this process."""

    host: str
    port: int
    user: str
    password: str
    database: str
    secure: bool
    folder: str | None = None
    """Folder of chdb, the same engine within this process, for trials and tests."""

    def __str__(self) -> str:
        """Return the address without user and password."""
        if self.folder is not None:
            return f"chdb://{self.folder}?database={self.database}"
        return f"clickhouse{'s' if self.secure else ''}://{self.host}:{self.port}/{self.database}"

    # so that no traceback shows the password
    __repr__ = __str__


def parse_address(text: str) -> ClickHouseAddress:
    """Parse an address; the password may be in RAGFAULT_CLICKHOUSE_PASSWORD instead.

    `clickhouses://` or `?secure=1` asks for TLS. `chdb:///FOLDER`, and `?database=`, is the engine in this process.
    Raises UsageError for an invalid address, without the password.

    >>> parse_address("clickhouse://ann:geheim@db.example:9123/watched?secure=1")
    clickhouses://db.example:9123/watched
    >>> parse_address("chdb:///srv/watched").folder
    '/srv/watched'
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError(f"the address of the store cannot be read. Write it as {ADDRESS_FORM}") from None
    if parts.scheme == "chdb":
        name, folder = _check_database(_read_option(parts.query, "database")), unquote(parts.path)
        if not folder.strip("/"):
            raise UsageError("chdb:// needs a folder: chdb:///srv/watched")
        return ClickHouseAddress("", 0, "", "", name, False, folder=folder)
    option = _read_option(parts.query, "secure", "0")
    if option not in ("0", "1"):
        raise UsageError("secure is 0 or 1 in the address of a store.")
    secure = option == "1" or parts.scheme == "clickhouses"
    if not parts.hostname:
        raise UsageError(f"the address of the store names no host. Write it as {ADDRESS_FORM}")
    return ClickHouseAddress(
        host=parts.hostname,
        port=port or (8443 if secure else 8123),
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or os.environ.get(PASSWORD_VARIABLE, "")),
        database=_check_database(unquote(parts.path.strip("/"))),
        secure=secure,
    )


def _check_database(name: str) -> str:
    """Check the name of a database, which statements contain unquoted."""
    if not name:
        return "ragfault"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        raise UsageError(
            f'"{name[:70]}" is not the name of a database here: letters, digits and underscores, at most 64.'
        )
    return name


def _read_option(query: str, known: str, default: str = "") -> str:
    """Return the only option that an address may have."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - {known})
    if unknown:
        raise UsageError(f'the address of the store has no option "{unknown[0][:40]}". There is: {known}.')
    return options.get(known, default)


MAX_PARAMETER_LENGTH = 32_000
"""Characters of a parameter, about: a server takes 128 KB of one by default."""

RESPONSE_TIMEOUT = 60
"""Seconds for which an answer is waited for."""


class ClickHouseConnection:
    """A client of one database; many threads may read by it, one writes.

    Raises MissingExtra without clickhouse-connect, OutputError where no server answers or it refuses.
    """

    def __init__(self, address: ClickHouseAddress) -> None:
        self.address = address
        with self._translate_errors():
            self._client = _make_client(address)
            self._select_database()
        self._types: dict[str, dict[str, str]] = {}

    def fetch_rows(
        self, query: str, parameters: QueryParameters = NO_PARAMETERS, *, as_bytes: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query; the columns named in `as_bytes` are bytes."""
        formats = dict.fromkeys(as_bytes, "bytes")
        with self._translate_errors():
            result = self._client.query(query, parameters=dict(parameters) or None, column_formats=formats or None)
        return list(map(tuple, result.result_rows))

    def fetch_value(self, query: str, parameters: QueryParameters = NO_PARAMETERS) -> Any:
        """Return the first value of the first row."""
        return self.fetch_rows(query, parameters)[0][0]

    def fetch_among(
        self, query: str, values: Sequence[Any], parameters: QueryParameters = NO_PARAMETERS
    ) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query on the parameter `among`, in parts where it has many values."""
        return chain.from_iterable(
            self.fetch_rows(query, {"among": part, **parameters}) for part in split_parameters(values)
        )

    def insert(self, table: str, columns: dict[str, list[Any]], token: str | None = None) -> None:
        """Add rows as one block, and return when the server has it; the same token adds them once, however often."""
        if not all(map(len, columns.values())):
            return
        names = list(columns)
        with self._translate_errors():
            context = self._client.create_insert_context(
                table,
                names,
                column_type_names=self._column_types(table, names),
                column_oriented=True,
                settings={"insert_deduplicate": 1, "insert_deduplication_token": token or uuid.uuid4().hex},
            )
            # the client sends blocks of 2 MB, of which a server may take all but the first for repetitions of the token
            context.req_block_size = len(columns[names[0]])
            self._client.insert(data=list(columns.values()), context=context)

    def execute(self, statement: str, parameters: QueryParameters = NO_PARAMETERS) -> None:
        """Run a statement that finds nothing."""
        with self._translate_errors():
            self._client.command(statement, parameters=dict(parameters) or None)
        if statement.startswith("ALTER TABLE"):
            self._types.clear()

    def close(self) -> None:
        """Let the server go. Safe to call twice."""
        # a client that is closed already
        with contextlib.suppress(Exception):
            self._client.close()

    def _select_database(self) -> None:
        """Go into the database, which is made where there is none."""
        name = self.address.database
        there = self._client.query(
            "SELECT count() FROM system.databases WHERE name = {name:String}", parameters={"name": name}
        ).result_rows
        if not there[0][0]:
            self._client.command("CREATE DATABASE IF NOT EXISTS {name:Identifier}", parameters={"name": name})
        self._client.database = name

    def _column_types(self, table: str, names: Sequence[str]) -> list[str]:
        """Return the types of some columns."""
        if table not in self._types:
            result = self._client.query(
                "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
                parameters={"table": table},
            )
            self._types[table] = dict(result.result_rows)
        return [self._types[table][name] for name in names]

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of the client: one line, without the password."""
        with require_extra("ClickHouse as the store", "clickhouse"):
            from clickhouse_connect.driver.exceptions import ClickHouseError
        try:
            yield
        except ClickHouseError as error:
            text = " ".join(str(error).split())[:400]
            if self.address.password:
                text = text.replace(self.address.password, "…")
            if "EmbeddedServer" in text and self.address.folder is not None:
                text = f"{text.rstrip('.')}. If another process owns it, end that first, or name another store."
            raise OutputError(f"ClickHouse at {self.address} refuses or does not answer: {text}") from None


def split_parameters(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Split values into parts, each short enough for a parameter.

    >>> [len(part) for part in split_parameters(["x" * 20_000, "y" * 20_000, "z"])]
    [1, 2]
    """
    part: list[Any] = []
    size = 0
    for value in values:
        length = 4 + len(str(value))
        if part and size + length > MAX_PARAMETER_LENGTH:
            yield part
            part, size = [], 0
        part.append(value)
        size += length
    if part:
        yield part


def _make_client(address: ClickHouseAddress) -> Any:
    """Return a client without a session, so that threads may share it."""
    import clickhouse_connect

    if address.folder is not None:
        try:
            import chdb  # noqa: F401
        except ImportError:
            raise UsageError("chdb:// needs the engine in this process: pip install chdb") from None
        return clickhouse_connect.get_client(interface="chdb", path=address.folder)
    return clickhouse_connect.get_client(
        host=address.host,
        port=address.port,
        username=address.user,
        password=address.password,
        interface="https" if address.secure else "http",
        autogenerate_session_id=False,
        connect_timeout=10,
        send_receive_timeout=RESPONSE_TIMEOUT,
        client_name="ragfault",
    )


DAY_PARTITION = "PARTITION BY intDiv(toInt64(received), 86400)"
"""Partitions by day of arrival: an insert touches one of them, and an old day is dropped as a whole."""

_DEDUPLICATION = "SETTINGS non_replicated_deduplication_window = 1000"
"""Number of inserts whose token is remembered; replicated tables remember tokens by default."""

_WIDE_ROWS = f"{_DEDUPLICATION}, index_granularity = 1024"
"""Settings of tables with wide rows, a few of which are read at a time."""

_NUMBER_INDEX = "INDEX near number TYPE minmax GRANULARITY 1"
"""An index by number: numbers rise with time, so that a query reads few granules."""

_SUM_COLUMNS = ", ".join(f"{name} {'Float64' if name in ('total', 'squares') else 'Int64'}" for name in SUM_COLUMNS)

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        4,
        "2026-11-22 tables",
        (
            "CREATE TABLE IF NOT EXISTS traces (number Int64, id String, received Float64, time Float64, "
            "route LowCardinality(String), model LowCardinality(Nullable(String)), conversation Nullable(String), "
            f"query String, answer Nullable(String), error Nullable(String), body String CODEC(ZSTD(3)), "
            f"{_NUMBER_INDEX}) "
            f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (time, number) {_WIDE_ROWS}",
            "CREATE TABLE IF NOT EXISTS ids (id String, number Int64, received Float64, time Float64) "
            f"ENGINE = ReplacingMergeTree ORDER BY id {_WIDE_ROWS}",
            "CREATE TABLE IF NOT EXISTS outcomes (number Int64, received Float64, time Float64, batch Int64, "
            "cohorts String, judge LowCardinality(String), scored Float64, state LowCardinality(String), "
            "`values` Map(LowCardinality(String), Float64), verdicts String CODEC(ZSTD(3)), "
            "scores String CODEC(ZSTD(3)), gold LowCardinality(String), "
            "INDEX together batch TYPE minmax GRANULARITY 1) "
            f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY number {_WIDE_ROWS}",
            "CREATE TABLE IF NOT EXISTS scores (number Int64, received Float64, time Float64, "
            f"route LowCardinality(String), metric LowCardinality(String), value Float64, {_NUMBER_INDEX}) "
            f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (metric, time, number) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS draws (number Int64, received Float64, time Float64, "
            "route LowCardinality(String), conversation String, judge LowCardinality(String), "
            "chance Float64, taken Bool) "
            f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (judge, number) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS checks (number Int64, received Float64, time Float64, "
            "judge LowCardinality(String), asked Float64, state LowCardinality(String), cost Nullable(Float64), "
            "`values` Map(LowCardinality(String), Float64), verdicts String CODEC(ZSTD(3)), "
            "scores String CODEC(ZSTD(3))) "
            f"ENGINE = ReplacingMergeTree {DAY_PARTITION} ORDER BY (judge, number) {_WIDE_ROWS}",
            "CREATE TABLE IF NOT EXISTS rollups (metric LowCardinality(String), route LowCardinality(String), "
            f"cohort LowCardinality(String), minute Int64, {_SUM_COLUMNS}) "
            f"ENGINE = SummingMergeTree ORDER BY (minute, metric, route, cohort) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS hours AS rollups "
            f"ENGINE = SummingMergeTree ORDER BY (minute, metric, route, cohort) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS sums (metric LowCardinality(String), route LowCardinality(String), "
            f"{_SUM_COLUMNS}) "
            f"ENGINE = SummingMergeTree ORDER BY (metric, route) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS products (first LowCardinality(String), second LowCardinality(String), "
            "route LowCardinality(String), minute Int64, n Int64, x Float64, y Float64, xx Float64, yy Float64, "
            f"xy Float64) ENGINE = SummingMergeTree ORDER BY (minute, first, second, route) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS product_hours AS products "
            f"ENGINE = SummingMergeTree ORDER BY (minute, first, second, route) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS counts (name LowCardinality(String), minute Int64, n Int64) "
            f"ENGINE = SummingMergeTree ORDER BY (minute, name) {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS pending (number Int64, received Float64, kind LowCardinality(String), "
            f"body String CODEC(ZSTD(1)), sign Int8) ENGINE = CollapsingMergeTree(sign) "
            f"ORDER BY number {_DEDUPLICATION}",
            "CREATE TABLE IF NOT EXISTS notes (kind LowCardinality(String), name String, slot Int64, number Int64, "
            "time Float64, body String) "
            f"ENGINE = ReplacingMergeTree(number) ORDER BY (kind, name, slot) {_DEDUPLICATION}",
        ),
    ),
)
"""Migrations in their order."""

CREATE_MIGRATIONS = (
    "CREATE TABLE IF NOT EXISTS migrations (number Int32, name String, applied Float64) "
    "ENGINE = ReplacingMergeTree ORDER BY number"
)


def apply_migration(con: DatabaseConnection, migration: Migration) -> None:
    """Apply a migration, whose statements can be repeated after an interruption."""
    for statement in migration.statements:
        con.execute(statement)
    record_migration(con, migration)
