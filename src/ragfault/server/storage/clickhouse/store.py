"""The store on ClickHouse: one process and one of its threads write, any thread reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

import msgspec

from ragfault.analysis.monitoring.rollups import ProductSums, Rollup, WorstTrace
from ragfault.errors import OutputError
from ragfault.evaluation.agreement.human_labels import HumanLabel
from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.server.storage.clickhouse import metadata as keeping
from ragfault.server.storage.clickhouse import rollups as watching
from ragfault.server.storage.clickhouse import traces as forgetting
from ragfault.server.storage.clickhouse import traces as selecting
from ragfault.server.storage.clickhouse import traces as tracing
from ragfault.server.storage.clickhouse.connection import ClickHouseConnection, parse_address
from ragfault.server.storage.clickhouse.schema import migrate
from ragfault.server.storage.clickhouse.spot_checks import ClickHouseSpotChecks
from ragfault.server.storage.clickhouse.writer import RENEW_SECONDS, ClickHouseWriter, StoreLease
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


class ClickHouseStore:
    """The port `Store` on ClickHouse, at an address as `read_address` takes it.

    Raises MissingExtra where clickhouse-connect is not installed, OutputError where no server answers or another
    process owns the store, RunError where a later version made it.
    """

    def __init__(self, address: str) -> None:
        self._read_connection = ClickHouseConnection(parse_address(address))
        self._write_connection = ClickHouseConnection(self._read_connection.address)
        try:
            self._schema = migrate(self._write_connection)
            self._lease = StoreLease(self._write_connection)
            self._restore()
            self._numbers = count(self._last_number() + 1)
            self._batches = watching.number_batches(self._write_connection)
        except BaseException:
            self._disconnect()
            raise
        self._judged_floor, self._needs_restore = 0, False
        self._writer = ClickHouseWriter(self._prepare_round, RENEW_SECONDS)
        self.spot_checks = ClickHouseSpotChecks(
            self._read_connection, self._write_connection, self._submit_single
        )

    def _last_number(self) -> int:
        """The highest number of anything that is numbered."""
        last = [
            self._write_connection.fetch_value(f"SELECT max(number) FROM {name}")
            for name in ("traces", "outcomes", "held")
        ]
        return max(
            map(
                int,
                (
                    *last,
                    self._write_connection.fetch_value("SELECT max(number) FROM notes WHERE kind != 'owner'"),
                ),
            )
        )

    def _restore(self) -> None:
        """Add what writing left undone where it was broken off."""
        tracing.restore_ids(self._write_connection)
        watching.restore_batch(self._write_connection)

    def _prepare_round(self) -> None:
        """What goes before each round of writing."""
        self._lease.renew()
        if self._needs_restore:
            self._restore()
            self._needs_restore = False

    def _submit(self, work: Callable[[Sequence[Any]], Sequence[Any]], request: Any) -> Future[Any]:
        """Have the writer do something with what is given, and all that waits for the same."""
        return self._writer.submit(work, request)

    def _submit_single(self, write: Callable[[], Any]) -> Future[Any]:
        """Have the writer do something by itself: where another fails, it is not done again."""
        return self._writer.submit(lambda _: [write()], None)

    @property
    def queued_writes(self) -> int:
        """Deeds that wait to be written."""
        return self._writer.queued

    # --- traces ------------------------------------------------------------------------------------

    def append_traces(self, traces: Sequence[Trace], released: Sequence[int] = ()) -> Future[AppendResult]:
        return self._submit(self._append_traces, (traces, released))

    def _append_traces(self, requests: Sequence[tracing.AppendRequest]) -> list[AppendResult]:
        self._needs_restore = True
        made = tracing.append_traces(self._write_connection, requests, self._numbers)
        self._needs_restore = False
        return made

    def add_outcomes(
        self,
        outcomes: Sequence[TraceOutcome],
        measures: Sequence[MetricInfo],
        cohort_fields: Sequence[str] = (),
    ) -> Future[int]:
        counted = count_up(outcomes, cohort_fields)  # by whoever calls: the writer only writes
        return self._submit(
            self._add_outcomes, watching.OutcomeBatch(counted, tuple(measures), tuple(cohort_fields))
        )

    def _add_outcomes(self, batches: Sequence[watching.OutcomeBatch]) -> list[int]:
        made: list[int] = []
        for each in batches:
            self._needs_restore = True
            made.append(watching.add_outcomes(self._write_connection, each, self._batches))
            self._needs_restore = False
        return made

    def list_unscored(self, after: int = 0, limit: int = 256) -> Sequence[ReceivedTrace]:
        found = tracing.list_unscored(self._read_connection, max(after, self._judged_floor), limit)
        if found and after <= self._judged_floor:
            self._judged_floor = max(self._judged_floor, found[0].number - 1)
        return found

    def list_traces(self, selection: TraceSelection) -> TracePage:
        return selecting.list_traces(self._read_connection, selection, self._judged_floor)

    def count_traces(self, selection: TraceSelection) -> int:
        return selecting.count_traces(self._read_connection, selection, self._judged_floor)

    def iterate_judged(self, selection: TraceSelection) -> Iterator[StoredTrace]:
        return tracing.iterate_judged(self._read_connection, selection, self._judged_floor)

    def get_trace(self, id: str) -> StoredTrace | None:
        return tracing.get_trace(self._read_connection, id)

    # --- what is held --------------------------------------------------------------------------------

    def add_pending(self, kind: str, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        return self._submit(self._add_pending, (kind, bodies))

    def _add_pending(self, requests: Sequence[tuple[str, Sequence[bytes]]]) -> list[tuple[int, ...]]:
        return tracing.add_pending(self._write_connection, requests, self._numbers)

    def list_pending(self, kind: str, after: int = 0, limit: int = 256) -> Sequence[PendingBody]:
        return tracing.list_pending(self._read_connection, kind, after, limit)

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
        return watching.read_rollups(self._read_connection, since, until, metric, route, cohort, grain, bins)

    def read_total_rollups(self) -> tuple[Rollup, ...]:
        return watching.read_total_rollups(self._read_connection)

    def read_products(self, since: int, until: int) -> tuple[ProductSums, ...]:
        return watching.read_products(self._read_connection, since, until)

    def read_worst_traces(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[WorstTrace, ...]:
        return watching.read_worst_traces(self._read_connection, metric, since, until, route, limit)

    def read_measures(self) -> tuple[MetricInfo, ...]:
        return watching.read_measures(self._read_connection)

    def list_routes(self) -> tuple[str, ...]:
        return tuple(
            name
            for (name,) in self._read_connection.fetch_rows(
                "SELECT DISTINCT route FROM traces ORDER BY route"
            )
        )

    # --- marks, alerts, labels, settings, tokens, counts -----------------------------------------------

    def add_marks(self, marks: Sequence[TimelineMark], now: float) -> Future[int]:
        return self._submit_single(
            lambda: keeping.add_marks(self._write_connection, marks, now, self._numbers)
        )

    def read_marks(self, since: float = 0.0, until: float | None = None) -> tuple[TimelineMark, ...]:
        return keeping.read_marks(self._read_connection, since, until)

    def add_events(
        self, events: Sequence[AlertEvent], settings: dict[str, Any] | None = None
    ) -> Future[None]:
        def deed() -> None:
            notes = keeping.make_event_notes(events, self._numbers)
            for name, value in (settings or {}).items():
                notes.append(keeping.make_note("setting", name, value, self._numbers))
            keeping.add_notes(self._write_connection, notes)

        return self._submit_single(deed)

    def read_events(self, alert: str | None = None, limit: int = 200) -> tuple[AlertEvent, ...]:
        return keeping.read_events(self._read_connection, alert, limit)

    def add_label(self, label: HumanLabel) -> Future[None]:
        return self._submit_single(lambda: keeping.add_label(self._write_connection, label, self._numbers))

    def read_labels(self, trace: str | None = None) -> tuple[HumanLabel, ...]:
        found = keeping.read_bodies(self._read_connection, "label", trace, order="number")
        return tuple(msgspec.json.decode(body, type=HumanLabel) for body in found)

    def save_setting(self, name: str, value: Any) -> Future[None]:
        return self._save_note("setting", name, value)

    def read_setting(self, name: str, default: Any = None) -> Any:
        return keeping.read_setting(self._read_connection, name, default)

    def save_token(self, token: AccessToken) -> Future[None]:
        return self._save_note("token", token.name, token)

    def delete_token(self, name: str) -> Future[None]:
        return self._save_note("token", name, None)

    def _save_note(self, kind: keeping.NoteKind, name: str, content: Any) -> Future[None]:
        return self._submit_single(
            lambda: keeping.add_notes(
                self._write_connection, [keeping.make_note(kind, name, content, self._numbers)]
            )
        )

    def read_tokens(self) -> tuple[AccessToken, ...]:
        found = keeping.read_bodies(self._read_connection, "token")
        return tuple(msgspec.json.decode(body, type=AccessToken) for body in found)

    def add_counts(self, counts: Sequence[EventCount]) -> Future[None]:
        return self._submit_single(lambda: keeping.add_counts(self._write_connection, counts))

    def read_counts(self, since: int = 0) -> tuple[EventCount, ...]:
        return keeping.read_counts(self._read_connection, since)

    # --- the store itself ------------------------------------------------------------------------------

    def compute_totals(self) -> StoreTotals:
        return forgetting.compute_totals(self._read_connection, self._schema)

    def delete_expired(self, *, before: float | None = None, max_bytes: int | None = None) -> Future[int]:
        return self._submit_single(
            lambda: forgetting.delete_expired(self._write_connection, before, max_bytes)
        )

    def compact(self) -> Future[None]:
        """Nothing: the server merges roll-ups by itself, and they are read as sums."""
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self) -> None:
        self._writer.close()
        self._disconnect()

    def _disconnect(self) -> None:
        """Give up the claim, and the connections."""
        owned = getattr(self, "_lease", None)
        if owned is not None:
            with contextlib.suppress(OutputError):  # a server that does not answer: the claim lapses
                owned.release()
        self._write_connection.close()
        self._read_connection.close()
