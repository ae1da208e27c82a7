"""The store for those who outgrow one machine: ClickHouse; one process writes, one thread of it, any thread reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

import msgspec

from ragfault.errors import OutputError
from ragfault.findings.monitoring_rollups import Products, Rollup, Worst
from ragfault.records import Trace
from ragfault.runs import Measure
from ragfault.runs.labels import Label
from ragfault.store import clickhouse_forgetting as forgetting
from ragfault.store import clickhouse_keeping as keeping
from ragfault.store import clickhouse_selecting as selecting
from ragfault.store import clickhouse_traces as tracing
from ragfault.store import clickhouse_watching as watching
from ragfault.store.clickhouse_address import read_address
from ragfault.store.clickhouse_checking import ClickHouseChecking
from ragfault.store.clickhouse_connection import Connection
from ragfault.store.clickhouse_owning import RENEW, Ownership
from ragfault.store.clickhouse_schema import migrate
from ragfault.store.clickhouse_writing import Writer
from ragfault.store.counting import count as count_up
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

__all__ = ["ClickHouse"]


class ClickHouse:
    """The port `Store` on ClickHouse, at an address as `read_address` takes it.

    Raises MissingExtra where clickhouse-connect is not installed, OutputError where no server answers or another
    process owns the store, RunError where a later version made it.
    """

    def __init__(self, address: str) -> None:
        self._reading = Connection(read_address(address))
        self._con = Connection(self._reading.address)
        try:
            self._schema = migrate(self._con)
            self._owned = Ownership(self._con)
            self._mend()
            self._numbers = count(self._last_number() + 1)
            self._batches = watching.batches(self._con)
        except BaseException:
            self._let_go()
            raise
        self._floor, self._torn = 0, False
        self._writer = Writer(self._ready, RENEW)
        self.checking = ClickHouseChecking(self._reading, self._con, self._alone)

    def _last_number(self) -> int:
        """The highest number of anything that is numbered."""
        last = [self._con.one(f"SELECT max(number) FROM {name}") for name in ("traces", "outcomes", "held")]
        return max(map(int, (*last, self._con.one("SELECT max(number) FROM notes WHERE kind != 'owner'"))))

    def _mend(self) -> None:
        """Add what writing left undone where it was broken off."""
        tracing.mend_ids(self._con)
        watching.mend_batch(self._con)

    def _ready(self) -> None:
        """What goes before each round of writing."""
        self._owned.renew()
        if self._torn:
            self._mend()
            self._torn = False

    def _submit(self, work: Callable[[Sequence[Any]], Sequence[Any]], given: Any) -> Future[Any]:
        """Have the writer do something with what is given, and all that waits for the same."""
        return self._writer.submit(work, given)

    def _alone(self, deed: Callable[[], Any]) -> Future[Any]:
        """Have the writer do something by itself: where another fails, it is not done again."""
        return self._writer.submit(lambda _: [deed()], None)

    @property
    def pending(self) -> int:
        """Deeds that wait to be written."""
        return self._writer.waiting

    # --- traces ------------------------------------------------------------------------------------

    def append(self, traces: Sequence[Trace], release: Sequence[int] = ()) -> Future[Appended]:
        return self._submit(self._append, (traces, release))

    def _append(self, given: Sequence[tracing.Appending]) -> list[Appended]:
        self._torn = True
        made = tracing.append(self._con, given, self._numbers)
        self._torn = False
        return made

    def score(
        self, outcomes: Sequence[Outcome], measures: Sequence[Measure], by: Sequence[str] = ()
    ) -> Future[int]:
        counted = count_up(outcomes, by)  # by whoever calls: the writer only writes
        return self._submit(self._score, watching.Judged(counted, tuple(measures), tuple(by)))

    def _score(self, given: Sequence[watching.Judged]) -> list[int]:
        made: list[int] = []
        for each in given:
            self._torn = True
            made.append(watching.score(self._con, each, self._batches))
            self._torn = False
        return made

    def unscored(self, after: int = 0, limit: int = 256) -> Sequence[Kept]:
        found = tracing.unscored(self._reading, max(after, self._floor), limit)
        if found and after <= self._floor:
            self._floor = max(self._floor, found[0].number - 1)
        return found

    def find(self, wanted: Wanted) -> Page:
        return selecting.find(self._reading, wanted, self._floor)

    def count(self, wanted: Wanted) -> int:
        return selecting.count(self._reading, wanted, self._floor)

    def walk(self, wanted: Wanted) -> Iterator[Whole]:
        return tracing.walk(self._reading, wanted, self._floor)

    def trace(self, id: str) -> Whole | None:
        return tracing.trace(self._reading, id)

    # --- what is held --------------------------------------------------------------------------------

    def hold(self, kind: str, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        return self._submit(self._hold, (kind, bodies))

    def _hold(self, given: Sequence[tuple[str, Sequence[bytes]]]) -> list[tuple[int, ...]]:
        return tracing.hold(self._con, given, self._numbers)

    def held(self, kind: str, after: int = 0, limit: int = 256) -> Sequence[Held]:
        return tracing.read_held(self._reading, kind, after, limit)

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
        return watching.rollups(self._reading, since, until, metric, route, cohort, grain, bins)

    def ever(self) -> tuple[Rollup, ...]:
        return watching.ever(self._reading)

    def products(self, since: int, until: int) -> tuple[Products, ...]:
        return watching.products(self._reading, since, until)

    def worst(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[Worst, ...]:
        return watching.worst(self._reading, metric, since, until, route, limit)

    def measures(self) -> tuple[Measure, ...]:
        return watching.measures(self._reading)

    def routes(self) -> tuple[str, ...]:
        return tuple(
            name for (name,) in self._reading.rows("SELECT DISTINCT route FROM traces ORDER BY route")
        )

    # --- marks, alerts, labels, settings, tokens, counts -----------------------------------------------

    def mark(self, marks: Sequence[Mark], now: float) -> Future[int]:
        return self._alone(lambda: keeping.add_marks(self._con, marks, now, self._numbers))

    def marks(self, since: float = 0.0, until: float | None = None) -> tuple[Mark, ...]:
        return keeping.marks(self._reading, since, until)

    def add_events(self, events: Sequence[Event], settings: dict[str, Any] | None = None) -> Future[None]:
        def deed() -> None:
            notes = keeping.event_notes(events, self._numbers)
            for name, value in (settings or {}).items():
                notes.append(keeping.note("setting", name, value, self._numbers))
            keeping.add_notes(self._con, notes)

        return self._alone(deed)

    def events(self, alert: str | None = None, limit: int = 200) -> tuple[Event, ...]:
        return keeping.events(self._reading, alert, limit)

    def label(self, label: Label) -> Future[None]:
        return self._alone(lambda: keeping.add_label(self._con, label, self._numbers))

    def labels(self, trace: str | None = None) -> tuple[Label, ...]:
        found = keeping.bodies(self._reading, "label", trace, by="number")
        return tuple(msgspec.json.decode(body, type=Label) for body in found)

    def save_setting(self, name: str, value: Any) -> Future[None]:
        return self._note("setting", name, value)

    def setting(self, name: str, default: Any = None) -> Any:
        return keeping.setting(self._reading, name, default)

    def save_token(self, token: Token) -> Future[None]:
        return self._note("token", token.name, token)

    def drop_token(self, name: str) -> Future[None]:
        return self._note("token", name, None)

    def _note(self, kind: keeping.Kind, name: str, content: Any) -> Future[None]:
        return self._alone(
            lambda: keeping.add_notes(self._con, [keeping.note(kind, name, content, self._numbers)])
        )

    def tokens(self) -> tuple[Token, ...]:
        found = keeping.bodies(self._reading, "token")
        return tuple(msgspec.json.decode(body, type=Token) for body in found)

    def add_counts(self, counts: Sequence[Count]) -> Future[None]:
        return self._alone(lambda: keeping.add_counts(self._con, counts))

    def counts(self, since: int = 0) -> tuple[Count, ...]:
        return keeping.counts(self._reading, since)

    # --- the store itself ------------------------------------------------------------------------------

    def totals(self) -> Totals:
        return forgetting.totals(self._reading, self._schema)

    def forget(self, *, before: float | None = None, bytes: int | None = None) -> Future[int]:
        return self._alone(lambda: forgetting.forget(self._con, before, bytes))

    def tidy(self) -> Future[None]:
        """Nothing: the server merges roll-ups by itself, and they are read as sums."""
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self) -> None:
        self._writer.close()
        self._let_go()

    def _let_go(self) -> None:
        """Give up the claim, and the connections."""
        owned = getattr(self, "_owned", None)
        if owned is not None:
            with contextlib.suppress(OutputError):  # a server that does not answer: the claim lapses
                owned.release()
        self._con.close()
        self._reading.close()
