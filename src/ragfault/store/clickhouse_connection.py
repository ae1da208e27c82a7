"""A connection to ClickHouse: statements of ours, values bound as parameters, errors without secrets."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ragfault.errors import MissingExtra, OutputError, UsageError
from ragfault.store.clickhouse_address import Address

__all__ = ["Connection", "parts"]

FIELD = 32_000
"""Characters of a parameter, about: a server takes 128 KB of one by default."""

WAIT = 60
"""Seconds for which an answer is waited for."""


class Connection:
    """A client of one database; many threads may read by it, one writes.

    Raises MissingExtra without clickhouse-connect, OutputError where no server answers or it refuses.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        with self._told():
            self._client = _client(address)
            self._enter()
        self._types: dict[str, dict[str, str]] = {}

    def rows(self, query: str, *, as_bytes: Sequence[str] = (), **given: Any) -> list[tuple[Any, ...]]:
        """What a query finds; `given` are its parameters, `as_bytes` the columns that are no text."""
        formats = dict.fromkeys(as_bytes, "bytes")
        with self._told():
            found = self._client.query(query, parameters=given or None, column_formats=formats or None)
        return list(map(tuple, found.result_rows))

    def one(self, query: str, **given: Any) -> Any:
        """The first value of the first row."""
        return self.rows(query, **given)[0][0]

    def among(
        self, query: str, values: Sequence[Any], *, as_bytes: Sequence[str] = (), **given: Any
    ) -> Iterator[tuple[Any, ...]]:
        """What a query finds for the parameter `among`, asked in parts where it is long."""
        return chain.from_iterable(
            self.rows(query, as_bytes=as_bytes, among=part, **given) for part in parts(values)
        )

    def add(self, table: str, columns: dict[str, list[Any]], token: str | None = None) -> None:
        """Add rows as one block, and return when the server has it; the same token adds them once, however often."""
        if not all(map(len, columns.values())):
            return
        names = list(columns)
        with self._told():
            self._client.insert(
                table,
                list(columns.values()),
                column_names=names,
                column_type_names=self._column_types(table, names),
                column_oriented=True,
                settings={"insert_deduplicate": 1, "insert_deduplication_token": token or uuid.uuid4().hex},
            )

    def do(self, statement: str, **given: Any) -> None:
        """Run a statement that finds nothing."""
        with self._told():
            self._client.command(statement, parameters=given or None)

    def close(self) -> None:
        """Let the server go. Safe to call twice."""
        with contextlib.suppress(Exception):  # a client that is closed already
            self._client.close()

    def _enter(self) -> None:
        """Go into the database, which is made where there is none."""
        name = self.address.database
        there = self._client.query(
            "SELECT count() FROM system.databases WHERE name = {name:String}", parameters={"name": name}
        ).result_rows
        if not there[0][0]:
            self._client.command("CREATE DATABASE IF NOT EXISTS {name:Identifier}", parameters={"name": name})
        self._client.database = name

    def _column_types(self, table: str, names: Sequence[str]) -> list[str]:
        """The types of some columns, as the server has them."""
        if table not in self._types:
            found = self._client.query(
                "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
                parameters={"table": table},
            )
            self._types[table] = dict(found.result_rows)
        return [self._types[table][name] for name in names]

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the client as ours: one line, no password."""
        try:
            from clickhouse_connect.driver.exceptions import ClickHouseError
        except ImportError:
            raise MissingExtra("ClickHouse as the store", "clickhouse") from None
        try:
            yield
        except ClickHouseError as error:
            text = " ".join(str(error).split())[:400]
            if self.address.password:
                text = text.replace(self.address.password, "…")
            raise OutputError(f"ClickHouse at {self.address} refuses or does not answer: {text}") from None


def parts(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Values in parts, each short enough for a parameter.

    >>> [len(part) for part in parts(["x" * 20_000, "y" * 20_000, "z"])]
    [1, 2]
    """
    part: list[Any] = []
    size = 0
    for value in values:
        length = 4 + len(str(value))
        if part and size + length > FIELD:
            yield part
            part, size = [], 0
        part.append(value)
        size += length
    if part:
        yield part


def _client(address: Address) -> Any:
    """A client without a session, so that threads may share it."""
    import clickhouse_connect

    if address.folder is not None:
        try:
            import chdb  # noqa: F401 - asked for here, so that what is missing is told
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
        send_receive_timeout=WAIT,
        client_name="ragfault",
    )
