"""The engine below a store: what DuckDB and ClickHouse must offer, and the queue of writes."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from ragfault.model.errors import OutputError, RunError, UsageError
from ragfault.model.records import Score, Trace, Verdicts

T = TypeVar("T")

QueryValue = str | int | float | Sequence[str] | Sequence[int]
QueryParameters = Mapping[str, QueryValue]
"""Values by the names that the placeholders of a query have."""
NO_PARAMETERS: QueryParameters = MappingProxyType({})

MAX_RESPONSE_ROWS = 65_536
"""Largest number of trace numbers that one query returns."""

encode_json = msgspec.json.Encoder().encode
decode_trace = msgspec.json.Decoder(Trace).decode
decode_verdicts = msgspec.json.Decoder(Verdicts).decode
decode_scores = msgspec.json.Decoder(tuple[Score, ...]).decode


class DatabaseConnection(Protocol):
    """A connection that runs queries with named parameters and inserts columns."""

    def fetch_rows(
        self, query: str, parameters: QueryParameters = NO_PARAMETERS, *, as_bytes: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query; the columns named in `as_bytes` are bytes."""
        ...

    def fetch_value(self, query: str, parameters: QueryParameters = NO_PARAMETERS) -> Any:
        """Return the first value of the first row."""
        ...

    def fetch_among(
        self, query: str, values: Sequence[Any], parameters: QueryParameters = NO_PARAMETERS
    ) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query on the parameter `among`, in parts where it has many values."""
        ...

    def insert(self, table: str, columns: dict[str, list[Any]], token: str | None = None) -> None:
        """Insert columns; an engine without transactions inserts the same token once."""
        ...

    def execute(self, statement: str, parameters: QueryParameters = NO_PARAMETERS) -> None:
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
    last_write_error: str | None = None
    """Why the store could not be written the last time; None where it could."""
    _numbers: Iterator[int]
    """Numbers of traces, pending bodies and notes, in the order of arrival."""

    def submit(self, write: Callable[[DatabaseConnection], T]) -> Future[T]:
        """Queue a write that is not batched with others."""
        return self.queue.submit(lambda _: [write(self.writer)], None)

    def submit_batch(self, work: Callable[[Sequence[Any]], Sequence[T]], payload: Any) -> Future[T]:
        """Queue a write that the engine may join with others of the same `work`."""
        future = self.queue.submit(work, payload)
        future.add_done_callback(self._note_write)
        return future

    def _note_write(self, future: Future[Any]) -> None:
        """Note whether the store takes writes; an error of the write itself says nothing of that."""
        error = future.exception()
        if error is None or isinstance(error, OutputError):
            self.last_write_error = None if error is None else str(error)

    def check_readable(self) -> None:
        """Run the smallest query. Raises OutputError where the database cannot be used."""
        self.reader.fetch_value("SELECT 1")

    @property
    def is_lost(self) -> bool:
        """True while the database is given up and could not be opened again; each write tries to."""
        return False

    @property
    def queued_writes(self) -> int:
        """The approximate number of writes in the queue."""
        return self.queue.size

    @abstractmethod
    def compact(self) -> Future[None]:
        """Merge roll-ups that were added apart; no result of a read changes."""

    def copy_database(self, path: Path) -> dict[str, int]:  # noqa: ARG002
        """Copy the database as of one moment to a new file; return the rows of each table.

        Raises UsageError where the engine makes its own backups, OutputError where there is no room.
        """
        raise UsageError("a store on ClickHouse is backed up there: BACKUP DATABASE … TO …, and RESTORE DATABASE.")

    @abstractmethod
    def close(self) -> None:
        """Finish the queued writes and release the database. Safe to call twice."""

    def _find_last_number(self) -> int:
        """Return the highest number in use; 0 for an empty store."""
        tables = ("traces", "outcomes", "pending", "notes WHERE kind != 'owner'")
        return max(int(self.writer.fetch_value(f"SELECT max(number) FROM {table}") or 0) for table in tables)


class Migration(NamedTuple):
    """A change of the schema. A released migration never changes: a new one follows it."""

    number: int
    name: str
    """Date and purpose."""
    statements: tuple[str, ...]


def record_migration(con: DatabaseConnection, migration: Migration) -> None:
    """Add the row that records a migration."""
    con.insert("migrations", {"number": [migration.number], "name": [migration.name], "applied": [time.time()]})


def migrate(
    con: DatabaseConnection,
    create: str,
    apply: Callable[[DatabaseConnection, Migration], None],
    migrations: Sequence[Migration],
) -> int:
    """Apply the migrations that the database lacks; return the number of the last one.

    Raises RunError for a database of a later version, or of before the first migration.
    """
    con.execute(create)
    done = int(con.fetch_value("SELECT max(number) FROM migrations") or 0)
    first, latest = migrations[0].number, migrations[-1].number
    if done > latest:
        raise RunError(
            f"the store has schema {done}, this ragfault supports up to {latest}. Upgrade ragfault to open it."
        )
    if 0 < done < first:
        raise RunError(
            f"the store has schema {done}, of before the first release; this ragfault supports {first} and later. "
            "Name another place with --store."
        )
    for migration in migrations:
        if migration.number > done:
            apply(con, migration)
    return latest


BatchWork = Callable[[Sequence[Any]], Sequence[Any]]
"""A function of several payloads that returns a result for each."""


class WriteRequest(NamedTuple):
    """A queued write: `work` is called with the payload, alone or with others."""

    work: BatchWork
    payload: Any
    future: Future[Any]


class WriteQueue:
    """A thread that passes queued writes to `run_batch`, at most `max_batch` at a time.

    After `idle` seconds without a write, `run_batch` gets an empty batch.
    """

    def __init__(
        self, run_batch: Callable[[list[WriteRequest]], None], max_batch: int, idle: float | None = None
    ) -> None:
        self._run_batch, self._max_batch, self._idle = run_batch, max_batch, idle
        self._queue: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="ragfault-store", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """The approximate number of queued writes."""
        return self._queue.qsize()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def submit(self, work: Callable[[Sequence[Any]], Sequence[T]], payload: Any) -> Future[T]:
        """Queue a write; its Future is done once the write is durable."""
        future: Future[T] = Future()
        with self._lock:
            if not self._open:
                future.set_exception(OutputError("the store is closed: it accepts no writes."))
                return future
            self._queue.put(WriteRequest(work, payload, future))
        return future

    def close(self) -> None:
        """Run the queued writes and end the thread. Safe to call twice."""
        with self._lock:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            requests, ended = self._next_requests()
            self._run_batch(requests)

    def _next_requests(self) -> tuple[list[WriteRequest], bool]:
        """Return the queued requests, and True for the last batch."""
        requests: list[WriteRequest] = []
        while len(requests) < self._max_batch:
            try:
                request = self._queue.get_nowait() if requests else self._queue.get(timeout=self._idle)
            except Empty:
                break
            if request is None:
                return requests, True
            requests.append(request)
        return requests, False


def run_requests(
    requests: list[WriteRequest],
    run: Callable[[list[WriteRequest]], Sequence[Any]],
    translate: Callable[[BaseException], BaseException] = lambda error: error,
) -> None:
    """Run requests together and set their futures; if that fails, run each one alone."""
    try:
        results = run(requests)
    except BaseException as error:  # noqa: BLE001 - the error of a write belongs to the thread that submitted it
        if len(requests) == 1:
            requests[0].future.set_exception(translate(error))
            return
        for request in requests:
            run_requests([request], run, translate)
        return
    for request, result in zip(requests, results, strict=True):
        request.future.set_result(result)
