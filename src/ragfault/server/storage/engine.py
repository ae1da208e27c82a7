"""The interface between a store and its database engine: connections, queued writes and numbers.

Queries that both engines run are written once, with ClickHouse's typed placeholders: `{name:Type}`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import msgspec

from ragfault.errors import RunError
from ragfault.records import Score, Trace, Verdicts
from ragfault.server.storage.write_queue import WriteQueue

T = TypeVar("T")

MAX_RESPONSE_ROWS = 65_536
"""Largest number of trace numbers that one query returns."""

encode_json = msgspec.json.Encoder().encode
decode_trace = msgspec.json.Decoder(Trace).decode
decode_verdicts = msgspec.json.Decoder(Verdicts).decode
decode_scores = msgspec.json.Decoder(tuple[Score, ...]).decode


class DatabaseConnection(Protocol):
    """A connection that runs queries with named parameters and inserts columns."""

    def fetch_rows(
        self, query: str, *, as_bytes: Sequence[str] = (), **parameters: Any
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query; the columns named in `as_bytes` are bytes."""
        ...

    def fetch_value(self, query: str, **parameters: Any) -> Any:
        """Return the first value of the first row."""
        ...

    def fetch_among(self, query: str, values: Sequence[Any], **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query on the parameter `among`, in parts where it has many values."""
        ...

    def insert(self, table: str, columns: dict[str, list[Any]], token: str | None = None) -> None:
        """Insert columns; an engine without transactions inserts the same token once."""
        ...

    def execute(self, statement: str, **parameters: Any) -> None:
        """Run a statement without a result."""
        ...


class StoreEngine(ABC):
    """The part of a store that its engine provides.

    Methods that write return a Future, which is done once the write survives a kill; methods that read return at once
    and may be called from any thread. Times are seconds since 1970, UTC; minutes are those divided by 60.
    """

    reader: DatabaseConnection
    writer: DatabaseConnection
    """Used on the thread of the write queue alone."""
    queue: WriteQueue
    _numbers: Iterator[int]
    """Numbers of traces, pending bodies and notes, in the order of arrival."""

    def submit(self, write: Callable[[DatabaseConnection], T]) -> Future[T]:
        """Queue a write of its own."""
        return self.queue.submit(lambda _: [write(self.writer)], None)

    def submit_batch(self, work: Callable[[Sequence[Any]], Sequence[T]], payload: Any) -> Future[T]:
        """Queue a write that the engine may join with others of the same `work`."""
        return self.queue.submit(work, payload)

    @property
    def queued_writes(self) -> int:
        """The approximate number of writes in the queue."""
        return self.queue.size

    @abstractmethod
    def compact(self) -> Future[None]:
        """Merge roll-ups that were added apart; no result of a read changes."""

    @abstractmethod
    def close(self) -> None:
        """Finish the queued writes and release the database. Safe to call twice."""

    def _find_last_number(self) -> int:
        """Return the highest number in use; 0 for an empty store."""
        tables = ("traces", "outcomes", "pending", "notes WHERE kind != 'owner'")
        return max(int(self.writer.fetch_value(f"SELECT max(number) FROM {table}") or 0) for table in tables)


def migrate(con: DatabaseConnection, create: str, apply: Callable[[int], None], latest: int) -> int:
    """Apply the migrations that the database lacks; return the number of the last one.

    Raises RunError for a database of a later version.
    """
    con.execute(create)
    done = int(con.fetch_value("SELECT max(number) FROM migrations") or 0)
    if done > latest:
        raise RunError(
            f"the store has schema {done}, this ragfault supports up to {latest}. Upgrade ragfault to open it."
        )
    for number in range(done + 1, latest + 1):
        apply(number)
    return latest
