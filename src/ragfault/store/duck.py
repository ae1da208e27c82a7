"""The embedded store: DuckDB in one file, owned by one process; one thread writes, any thread reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from ragfault.errors import MissingExtra, OutputError
from ragfault.findings.monitoring_rollups import Products, Rollup, Worst
from ragfault.records import Trace
from ragfault.runs import Measure
from ragfault.runs.labels import Label
from ragfault.sources.seen import Seen
from ragfault.store import forgetting, keeping, selecting, watching
from ragfault.store import traces as tracing
from ragfault.store.counting import count as count_up
from ragfault.store.duck_checking import DuckChecking
from ragfault.store.records import (
    Appended,
    Count,
    Event,
    Held,
    Kept,
    Mark,
    Outcome,
    Page,
    Token,
    Totals,
    Wanted,
    Whole,
)
from ragfault.store.schema import migrate
from ragfault.store.writer import Writer

__all__ = ["Duck"]

FILE = "ragfault.duckdb"

HANDED = 100_000
"""Traces that were handed out to be judged whose place is remembered, at most."""

READ = 10_000
"""Ids that are read at once when a store is opened."""

CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "1GB",
    "threads": "2",
}
"""Nothing is fetched; what a query needs beyond this memory goes to the disk."""


class Duck:
    """The port `Store` on DuckDB, in a folder that is made where there is none.

    Raises MissingExtra where DuckDB is not installed, OutputError where another process owns the store or the folder
    cannot be written, RunError where a later version made it.

    >>> import tempfile
    >>> store = Duck(Path(tempfile.mkdtemp()))
    >>> store.append([Trace(id="1", query="When?"), Trace(id="1", query="When?")]).result()
    Appended(taken=1, repeated=1)
    >>> store.trace("1").state
    'waiting'
    >>> store.close()
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._con = _connect(folder / FILE)
        self._schema = migrate(self._con)
        self._seen = _seen(self._con)
        tables = ("traces", "held", "events", "labels")
        last = (_rows(self._con, f"SELECT coalesce(max(number), 0) FROM {name}") for name in tables)
        self._numbers = count(max(number for each in last for (number,) in each) + 1)
        self._handed: watching.Handed = {}
        self._writer = Writer(self._con.cursor())
        self.checking = DuckChecking(self._reading, self._writer)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        """A connection to read with, of the calling thread alone."""
        con = self._con.cursor()
        try:
            yield con
        finally:
            con.close()

    @property
    def pending(self) -> int:
        """Deeds that wait to be written."""
        return self._writer.waiting

    # --- traces ------------------------------------------------------------------------------------

    def append(self, traces: Sequence[Trace], release: Sequence[int] = ()) -> Future[Appended]:
        return self._writer.submit(
            lambda con: tracing.append(con, traces, release, self._seen, self._numbers)
        )

    def score(
        self, outcomes: Sequence[Outcome], measures: Sequence[Measure], by: Sequence[str] = ()
    ) -> Future[int]:
        counted = count_up(outcomes, by)  # by whoever calls: the writer only writes
        return self._writer.submit(lambda con: watching.score(con, counted, measures, self._handed))

    def unscored(self, after: int = 0, limit: int = 256) -> Sequence[Kept]:
        with self._reading() as con:
            found = tracing.unscored(con, after, limit)
        if len(self._handed) > HANDED:
            self._handed.clear()
        self._handed.update((each.trace.id, each.number) for each in found)
        return found

    def find(self, wanted: Wanted) -> Page:
        with self._reading() as con:
            return selecting.find(con, wanted)

    def count(self, wanted: Wanted) -> int:
        with self._reading() as con:
            return selecting.count(con, wanted)

    def walk(self, wanted: Wanted) -> Iterator[Whole]:
        with self._reading() as con:
            yield from tracing.walk(con, wanted)

    def trace(self, id: str) -> Whole | None:
        with self._reading() as con:
            return tracing.trace(con, id)

    # --- what is held --------------------------------------------------------------------------------

    def hold(self, kind: str, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        return self._writer.submit(lambda con: tracing.hold(con, kind, bodies, self._numbers))

    def held(self, kind: str, after: int = 0, limit: int = 256) -> Sequence[Held]:
        with self._reading() as con:
            return tracing.read_held(con, kind, after, limit)

    # --- watching ------------------------------------------------------------------------------------

    def rollups(
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
        with self._reading() as con:
            return watching.rollups(con, since, until, metric, route, cohort, grain, bins)

    def ever(self) -> tuple[Rollup, ...]:
        with self._reading() as con:
            return watching.ever(con)

    def products(self, since: int, until: int) -> tuple[Products, ...]:
        with self._reading() as con:
            return watching.products(con, since, until)

    def worst(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[Worst, ...]:
        with self._reading() as con:
            return watching.worst(con, metric, since, until, route, limit)

    def measures(self) -> tuple[Measure, ...]:
        with self._reading() as con:
            return watching.measures(con)

    def routes(self) -> tuple[str, ...]:
        with self._reading() as con:
            return tuple(name for (name,) in _rows(con, "SELECT DISTINCT route FROM traces ORDER BY route"))

    # --- marks, alerts, labels, settings, tokens, counts -----------------------------------------------

    def mark(self, marks: Sequence[Mark], now: float) -> Future[int]:
        return self._writer.submit(lambda con: keeping.add_marks(con, marks, now))

    def marks(self, since: float = 0.0, until: float | None = None) -> tuple[Mark, ...]:
        with self._reading() as con:
            return keeping.marks(con, since, until)

    def add_events(self, events: Sequence[Event], settings: dict[str, Any] | None = None) -> Future[None]:
        def deed(con: Any) -> None:
            keeping.add_events(con, events, self._numbers)
            for name, value in (settings or {}).items():
                keeping.save_setting(con, name, value)

        return self._writer.submit(deed)

    def events(self, alert: str | None = None, limit: int = 200) -> tuple[Event, ...]:
        with self._reading() as con:
            return keeping.events(con, alert, limit)

    def label(self, label: Label) -> Future[None]:
        return self._writer.submit(lambda con: keeping.add_label(con, label, self._numbers))

    def labels(self, trace: str | None = None) -> tuple[Label, ...]:
        with self._reading() as con:
            return keeping.labels(con, trace)

    def save_setting(self, name: str, value: Any) -> Future[None]:
        return self._writer.submit(lambda con: keeping.save_setting(con, name, value))

    def setting(self, name: str, default: Any = None) -> Any:
        with self._reading() as con:
            return keeping.setting(con, name, default)

    def save_token(self, token: Token) -> Future[None]:
        return self._writer.submit(lambda con: keeping.save_token(con, token))

    def drop_token(self, name: str) -> Future[None]:
        return self._writer.submit(lambda con: keeping.drop_token(con, name))

    def tokens(self) -> tuple[Token, ...]:
        with self._reading() as con:
            return keeping.tokens(con)

    def add_counts(self, counts: Sequence[Count]) -> Future[None]:
        return self._writer.submit(lambda con: keeping.add_counts(con, counts))

    def counts(self, since: int = 0) -> tuple[Count, ...]:
        with self._reading() as con:
            return keeping.counts(con, since)

    # --- the store itself ------------------------------------------------------------------------------

    def totals(self) -> Totals:
        with self._reading() as con:
            return forgetting.totals(con, self._schema)

    def forget(self, *, before: float | None = None, bytes: int | None = None) -> Future[int]:
        return self._writer.submit(lambda con: forgetting.forget(con, before, bytes))

    def tidy(self) -> Future[None]:
        return self._writer.submit(watching.tidy)

    def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(Exception):  # a connection that is closed already
            self._con.close()


def _connect(path: Path) -> Any:
    """A connection to the file, which this process owns from here on."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("the store", "server") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return duckdb.connect(str(path), config=dict(CONFIG))
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


def _seen(con: Any) -> Seen:
    """The ids of all traces, read a few at a time."""
    found = Seen()
    con.execute("SELECT id FROM traces")
    while part := con.fetchmany(READ):
        for (name,) in part:
            found.add(name)
    return found


def _rows(con: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(query).fetchall()
    return found
