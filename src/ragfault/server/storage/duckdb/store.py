"""The store on DuckDB: one file, owned by one process; one thread writes, any thread reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from ragfault.analysis.monitoring.rollups import ProductSums, Rollup, WorstTrace
from ragfault.errors import MissingExtra, OutputError
from ragfault.evaluation.agreement.human_labels import HumanLabel
from ragfault.io.error_collector import IdSet
from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.server.storage.duckdb import metadata, rollups, traces
from ragfault.server.storage.duckdb import traces as tracing
from ragfault.server.storage.duckdb.schema import migrate
from ragfault.server.storage.duckdb.spot_checks import DuckDBSpotChecks
from ragfault.server.storage.duckdb.writer import DuckDBWriter
from ragfault.server.storage.outcome_rows import build_outcome_rows as count_up
from ragfault.server.storage.records import (
    AccessToken,
    AlertEvent,
    AppendResult,
    EventCount,
    PendingBody,
    ReceivedTrace,
    StoredTrace,
    StoreTotals,
    TimelineMark,
    TraceOutcome,
    TracePage,
    TraceSelection,
)

DATABASE_FILE = "ragfault.duckdb"

MAX_ISSUED = 100_000
"""Traces that were handed out to be judged whose place is remembered, at most."""

ID_BATCH = 10_000
"""Ids that are read at once when a store is opened."""

DUCKDB_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "1GB",
    "threads": "2",
}
"""Nothing is fetched; what a query needs beyond this memory goes to the disk."""


class DuckDBStore:
    """The port `Store` on DuckDB, in a folder that is made where there is none.

    Raises MissingExtra where DuckDB is not installed, OutputError where another process owns the store or the folder
    cannot be written, RunError where a later version made it.

    >>> import tempfile
    >>> store = DuckDBStore(Path(tempfile.mkdtemp()))
    >>> store.append_traces([Trace(id="1", query="When?"), Trace(id="1", query="When?")]).result()
    AppendResult(added=1, duplicates=1)
    >>> store.get_trace("1").state
    'waiting'
    >>> store.close()
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._connection = _connect(folder / DATABASE_FILE)
        self._schema = migrate(self._connection)
        self._known_ids = _load_ids(self._connection)
        tables = ("traces", "held", "events", "labels")
        last = (
            _fetch_rows(self._connection, f"SELECT coalesce(max(number), 0) FROM {name}") for name in tables
        )
        self._numbers = count(max(number for each in last for (number,) in each) + 1)
        self._issued: rollups.IssuedNumbers = {}
        self._writer = DuckDBWriter(self._connection.cursor())
        self.spot_checks = DuckDBSpotChecks(self._open_reader, self._writer)

    @contextlib.contextmanager
    def _open_reader(self) -> Iterator[Any]:
        """A connection to read with, of the calling thread alone."""
        con = self._connection.cursor()
        try:
            yield con
        finally:
            con.close()

    @property
    def queued_writes(self) -> int:
        """Deeds that wait to be written."""
        return self._writer.queued

    # --- traces ------------------------------------------------------------------------------------

    def append_traces(self, traces: Sequence[Trace], released: Sequence[int] = ()) -> Future[AppendResult]:
        return self._writer.submit(
            lambda con: tracing.append_traces(con, traces, released, self._known_ids, self._numbers)
        )

    def add_outcomes(
        self,
        outcomes: Sequence[TraceOutcome],
        measures: Sequence[MetricInfo],
        cohort_fields: Sequence[str] = (),
    ) -> Future[int]:
        counted = count_up(outcomes, cohort_fields)  # by whoever calls: the writer only writes
        return self._writer.submit(lambda con: rollups.add_outcomes(con, counted, measures, self._issued))

    def list_unscored(self, after: int = 0, limit: int = 256) -> Sequence[ReceivedTrace]:
        with self._open_reader() as con:
            found = tracing.list_unscored(con, after, limit)
        if len(self._issued) > MAX_ISSUED:
            self._issued.clear()
        self._issued.update((each.trace.id, each.number) for each in found)
        return found

    def list_traces(self, selection: TraceSelection) -> TracePage:
        with self._open_reader() as con:
            return traces.list_traces(con, selection)

    def count_traces(self, selection: TraceSelection) -> int:
        with self._open_reader() as con:
            return traces.count_traces(con, selection)

    def iterate_judged(self, selection: TraceSelection) -> Iterator[StoredTrace]:
        with self._open_reader() as con:
            yield from tracing.iterate_judged(con, selection)

    def get_trace(self, id: str) -> StoredTrace | None:
        with self._open_reader() as con:
            return tracing.get_trace(con, id)

    # --- what is held --------------------------------------------------------------------------------

    def add_pending(self, kind: str, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        return self._writer.submit(lambda con: tracing.add_pending(con, kind, bodies, self._numbers))

    def list_pending(self, kind: str, after: int = 0, limit: int = 256) -> Sequence[PendingBody]:
        with self._open_reader() as con:
            return tracing.list_pending(con, kind, after, limit)

    # --- watching ------------------------------------------------------------------------------------

    def read_rollups(
        self,
        since: int,
        until: int,
        *,
        metric: str | None = None,
        route: str | None = None,
        cohort: str | None = "",
        grain: int = 1,
        bins: bool = True,
    ) -> tuple[Rollup, ...]:
        with self._open_reader() as con:
            return rollups.read_rollups(con, since, until, metric, route, cohort, grain, bins)

    def read_total_rollups(self) -> tuple[Rollup, ...]:
        with self._open_reader() as con:
            return rollups.read_total_rollups(con)

    def read_products(self, since: int, until: int) -> tuple[ProductSums, ...]:
        with self._open_reader() as con:
            return rollups.read_products(con, since, until)

    def read_worst_traces(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[WorstTrace, ...]:
        with self._open_reader() as con:
            return rollups.read_worst_traces(con, metric, since, until, route, limit)

    def read_measures(self) -> tuple[MetricInfo, ...]:
        with self._open_reader() as con:
            return rollups.read_measures(con)

    def list_routes(self) -> tuple[str, ...]:
        with self._open_reader() as con:
            return tuple(
                name for (name,) in _fetch_rows(con, "SELECT DISTINCT route FROM traces ORDER BY route")
            )

    # --- marks, alerts, labels, settings, tokens, counts -----------------------------------------------

    def add_marks(self, marks: Sequence[TimelineMark], now: float) -> Future[int]:
        return self._writer.submit(lambda con: metadata.add_marks(con, marks, now))

    def read_marks(self, since: float = 0.0, until: float | None = None) -> tuple[TimelineMark, ...]:
        with self._open_reader() as con:
            return metadata.read_marks(con, since, until)

    def add_events(
        self, events: Sequence[AlertEvent], settings: dict[str, Any] | None = None
    ) -> Future[None]:
        def deed(con: Any) -> None:
            metadata.add_events(con, events, self._numbers)
            for name, value in (settings or {}).items():
                metadata.save_setting(con, name, value)

        return self._writer.submit(deed)

    def read_events(self, alert: str | None = None, limit: int = 200) -> tuple[AlertEvent, ...]:
        with self._open_reader() as con:
            return metadata.read_events(con, alert, limit)

    def add_label(self, label: HumanLabel) -> Future[None]:
        return self._writer.submit(lambda con: metadata.add_label(con, label, self._numbers))

    def read_labels(self, trace: str | None = None) -> tuple[HumanLabel, ...]:
        with self._open_reader() as con:
            return metadata.read_labels(con, trace)

    def save_setting(self, name: str, value: Any) -> Future[None]:
        return self._writer.submit(lambda con: metadata.save_setting(con, name, value))

    def read_setting(self, name: str, default: Any = None) -> Any:
        with self._open_reader() as con:
            return metadata.read_setting(con, name, default)

    def save_token(self, token: AccessToken) -> Future[None]:
        return self._writer.submit(lambda con: metadata.save_token(con, token))

    def delete_token(self, name: str) -> Future[None]:
        return self._writer.submit(lambda con: metadata.delete_token(con, name))

    def read_tokens(self) -> tuple[AccessToken, ...]:
        with self._open_reader() as con:
            return metadata.read_tokens(con)

    def add_counts(self, counts: Sequence[EventCount]) -> Future[None]:
        return self._writer.submit(lambda con: metadata.add_counts(con, counts))

    def read_counts(self, since: int = 0) -> tuple[EventCount, ...]:
        with self._open_reader() as con:
            return metadata.read_counts(con, since)

    # --- the store itself ------------------------------------------------------------------------------

    def compute_totals(self) -> StoreTotals:
        with self._open_reader() as con:
            return traces.compute_totals(con, self._schema)

    def delete_expired(self, *, before: float | None = None, max_bytes: int | None = None) -> Future[int]:
        return self._writer.submit(lambda con: traces.delete_expired(con, before, max_bytes))

    def compact(self) -> Future[None]:
        return self._writer.submit(rollups.compact)

    def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(Exception):  # a connection that is closed already
            self._connection.close()


def _connect(path: Path) -> Any:
    """A connection to the file, which this process owns from here on."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("the store", "server") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return duckdb.connect(str(path), config=dict(DUCKDB_CONFIG))
    except duckdb.IOException as error:
        if "lock" in str(error).lower():
            raise OutputError(
                f"another process owns the store {path.parent}. Ask it over HTTP, or end it first."
            ) from None
        raise OutputError(f"cannot open the store {path.parent}: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise OutputError(
            f"cannot write to {path.parent}: {error.strerror}. Name another folder with --store."
        ) from None


def _load_ids(con: Any) -> IdSet:
    """The ids of all traces, read a few at a time."""
    found = IdSet()
    con.execute("SELECT id FROM traces")
    while part := con.fetchmany(ID_BATCH):
        for (name,) in part:
            found.add(name)
    return found


def _fetch_rows(con: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(query).fetchall()
    return found
