"""The store on ClickHouse."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count, groupby
from typing import Any

import msgspec

from ragfault.apps.watch.server.storage.clickhouse.connection import (
    CREATE_MIGRATIONS,
    MIGRATIONS,
    ClickHouseConnection,
    apply_migration,
    parse_address,
)
from ragfault.apps.watch.server.storage.clickhouse.lease import RENEW_SECONDS, StoreLease
from ragfault.apps.watch.server.storage.outcome_rows import (
    SUM_COLUMNS,
    NumberedRow,
    build_outcome_columns,
    build_outcome_rows,
    build_product_columns,
    build_rollup_columns,
    build_rollups,
    build_value_columns,
)
from ragfault.apps.watch.server.storage.records import AppendResult, SpotCheckSample, TraceState
from ragfault.apps.watch.server.storage.rollups import OutcomeBatch
from ragfault.apps.watch.server.storage.spot_checks import SpotCheckStore
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.apps.watch.server.storage.store_engine import (
    DatabaseConnection,
    WriteQueue,
    WriteRequest,
    decode_scores,
    decode_trace,
    decode_verdicts,
    encode_json,
    migrate,
    run_requests,
)
from ragfault.apps.watch.server.storage.traces import AppendRequest
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import OutputError

DAY_EXPRESSION = "intDiv(toInt64(received), 86400)"


class ClickHouseSpotChecks(SpotCheckStore):
    """The spot checks of a store on ClickHouse."""

    def _insert_checks(
        self, con: DatabaseConnection, columns: dict[str, list[Any]], values: Sequence[dict[str, float]]
    ) -> None:
        con.insert("checks", columns | {"values": list(values)})

    def read_samples(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[SpotCheckSample, ...]:
        """Return the values by both judges, by metric and route, of traces from a time to before another."""
        import numpy as np

        filters = {name: value for name, value in (("metric", metric), ("route", route)) if value is not None}
        columns: dict[str, Any] = {
            "base": np.float64,
            "reference": np.float64,
            "chance": np.float64,
            "cost": np.float64,
            "conversation": np.uint64,
        }
        arrays = ", ".join(f"groupArrayIf({name}, covered AND NOT alone)" for name in columns)
        rows = self._store.reader.fetch_rows(
            "SELECT metric, route, count(), countIf(covered), countIf(covered AND taken AND NOT asked), "
            f"countIf(alone), sumIf(base, alone), sumIf(base * base, alone), {arrays} "
            f"FROM {_build_values_query(list(filters))} GROUP BY metric, route ORDER BY metric, route",
            {"judge": judge, "since": since, "until": until, **filters},
        )
        samples: list[SpotCheckSample] = []
        for metric_name, route_name, scored, covered, failed, n, total, squares, *lists in rows:
            sides: list[Any] = [np.array(values, kind) for values, kind in zip(lists, columns.values(), strict=True)]
            remainder = (int(n), float(total), float(squares))
            samples.append(SpotCheckSample(metric_name, route_name, scored, covered, failed, remainder, *sides))
        return tuple(samples)


def _build_values_query(filters: Sequence[str]) -> str:
    """Return the query of the values by the judge of every trace beside those by the reference judge."""
    where = "time >= {since:Float64} AND time < {until:Float64}"
    for name in filters:
        where += f" AND {name} = {{{name}:String}}"
    return (
        "(SELECT s.metric AS metric, s.route AS route, s.value AS base, mapContains(c.`values`, s.metric) AS asked, "
        "if(asked, c.`values`[s.metric], nan) AS reference, d.chance AS chance, d.taken AS taken, "
        "ifNull(c.cost, nan) AS cost, if(d.talk = '', toUInt64(0), cityHash64(d.talk)) AS conversation, "
        "d.drawn AND (u.first = 0 OR s.number < u.first) AS covered, "
        "covered AND NOT asked AND conversation = 0 AS alone "
        f"FROM (SELECT metric, route, value, number, {DAY_EXPRESSION} AS day FROM scores WHERE {where}) s "
        "LEFT ANY JOIN (SELECT number, true AS drawn, chance, taken, conversation AS talk FROM draws "
        "WHERE judge = {judge:String}) d ON d.number = s.number "
        "LEFT ANY JOIN (SELECT number, cost, `values` FROM checks WHERE judge = {judge:String}) c "
        "ON c.number = s.number "
        f"LEFT ANY JOIN (SELECT {DAY_EXPRESSION} AS day, min(number) AS first FROM draws "
        "WHERE taken AND judge = {judge:String} "
        "AND number NOT IN (SELECT number FROM checks WHERE judge = {judge:String} AND state IN "
        "('checked', 'failed')) GROUP BY day) u ON u.day = s.day)"
    )


MAX_BATCH = 512
"""Largest number of writes in a round."""

ROUND_SECONDS = 0.02
"""Pause between two rounds: ClickHouse prefers few large inserts."""

EXPIRING_TABLES = ("traces", "outcomes", "scores", "draws", "checks")
"""The tables with partitions by day. Traces are deleted first: no query reaches the remaining rows of a deleted one."""


class ClickHouseStore(TraceStore):
    """The store on ClickHouse, at an address that `parse_address` accepts."""

    TEXT_MATCH = "position(lowerUTF8({column}), lowerUTF8({text:String})) > 0"
    SUBSTRING = "substringUTF8"
    FIRST_BY_TIME = "argMin(t.query, t.time)"
    NOTES = "notes FINAL"
    PENDING = (
        "(SELECT number, received, body FROM pending WHERE sign = 1 "
        "AND number NOT IN (SELECT number FROM pending WHERE sign = -1))"
    )

    def __init__(self, address: str) -> None:
        self.reader: ClickHouseConnection = ClickHouseConnection(parse_address(address))
        self.writer: ClickHouseConnection = ClickHouseConnection(self.reader.address)
        self._lease: StoreLease | None = None
        try:
            self._schema = migrate(self.writer, CREATE_MIGRATIONS, apply_migration, MIGRATIONS)
            self._lease = StoreLease(self.writer)
            self._restore()
            self._numbers = count(self._find_last_number() + 1)
            # Deduplication tokens outlive their outcomes, so that the number of a batch must never repeat.
            self._batches = count(max(time.time_ns(), self._find_last_batch() + 1))
        except BaseException:
            self._disconnect()
            raise
        self._needs_restore = False
        self.queue = WriteQueue(self._run_batch, MAX_BATCH, RENEW_SECONDS)
        self.spot_checks = ClickHouseSpotChecks(self)

    def _run_batch(self, requests: list[WriteRequest]) -> None:
        """Run a round; writes of one kind that follow each other run together."""
        try:
            self._prepare_round()
        except Exception as error:  # noqa: BLE001 - the error belongs to the threads that submitted the writes
            for request in requests:
                request.future.set_exception(error)
        else:
            for _, group in groupby(requests, key=lambda request: request.work):
                run_requests(list(group), self._run_together)
        time.sleep(ROUND_SECONDS)

    def _run_together(self, requests: list[WriteRequest]) -> Sequence[Any]:
        self._prepare_round()
        return requests[0].work([request.payload for request in requests])

    def _prepare_round(self) -> None:
        if self._lease is not None:
            self._lease.renew()
        if self._needs_restore:
            self._restore()
            self._needs_restore = False

    @contextlib.contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore the store before the next write where this one fails."""
        self._needs_restore = True
        yield
        self._needs_restore = False

    def _restore(self) -> None:
        """Complete the last writes where they were interrupted."""
        self._restore_ids()
        self._restore_batch()

    def _append_requests(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        with self._restoring():
            return super()._append_requests(requests)

    def _find_present(self, ids: Sequence[str]) -> set[str]:
        return {id for (id,) in self.writer.fetch_among("SELECT id FROM ids WHERE id IN {among:Array(String)}", ids)}

    def _insert_traces(self, columns: dict[str, list[Any]]) -> None:
        """Insert traces, then their ids: `_restore_ids` completes an interrupted insert."""
        self.writer.insert("traces", columns)
        self.writer.insert("ids", {name: columns[name] for name in ("id", "number", "received", "time")})

    def _restore_ids(self) -> None:
        """Add the missing ids: those of the highest numbers."""
        self.writer.execute(
            "INSERT INTO ids SELECT id, number, received, time FROM traces WHERE number > (SELECT max(number) FROM ids)"
        )

    def _insert_pending(self, columns: dict[str, list[Any]]) -> None:
        self.writer.insert("pending", {**columns, "sign": [1] * len(columns["number"])})

    def _release_pending(self, numbers: Sequence[int]) -> None:
        """Insert rows of the other sign, which vanish together with the first when parts are merged."""
        size = len(numbers)
        columns: dict[str, list[Any]] = {"number": list(numbers), "received": [0.0] * size, "kind": [""] * size}
        self.writer.insert("pending", {**columns, "body": [b""] * size, "sign": [-1] * size})

    def _load_outcomes(self, numbers: Sequence[int]) -> dict[int, tuple[TraceState, dict[str, float]]]:
        query = "SELECT number, state, `values` FROM outcomes WHERE number IN {among:Array(Int64)}"
        return {number: (state, values) for number, state, values in self.reader.fetch_among(query, numbers)}

    def _measure_bytes(self, con: DatabaseConnection) -> int:
        """Return the bytes on disk without the share of rows that are marked as deleted."""
        parts = con.fetch_rows(
            "SELECT table, sum(bytes_on_disk), sum(rows) FROM system.parts "
            "WHERE database = currentDatabase() AND active GROUP BY table"
        )
        used = 0
        for table, size, rows in parts:
            live = con.fetch_value(f"SELECT count() FROM {table}") if table in EXPIRING_TABLES else rows
            used += math.ceil(size * live / max(1, rows))
        return used

    def _delete_older(self, bound: float) -> int:
        older = "WHERE received < {bound:Float64}"
        deleted = int(self.writer.fetch_value(f"SELECT count() FROM traces {older}", {"bound": bound}))
        if not deleted and not self.writer.fetch_value(f"SELECT count() FROM ids {older}", {"bound": bound}):
            return 0
        days = self.writer.fetch_rows(
            f"SELECT {DAY_EXPRESSION} AS day FROM traces GROUP BY day HAVING max(received) < {{bound:Float64}}",
            {"bound": bound},
        )
        for table in EXPIRING_TABLES:
            for (day,) in days:
                self.writer.execute(f"ALTER TABLE {table} DROP PARTITION {{day:Int64}}", {"day": day})
            self.writer.execute(f"DELETE FROM {table} {older}", {"bound": bound})
        labels = f"DELETE FROM notes WHERE kind IN ('label', 'comment') AND name IN (SELECT id FROM ids {older})"
        self.writer.execute(labels, {"bound": bound})
        self.writer.execute(f"DELETE FROM ids {older}", {"bound": bound})
        return deleted

    def _add_outcome_batch(self, batch: OutcomeBatch) -> int:
        with self._restoring():
            return super()._add_outcome_batch(batch)

    def _insert_outcomes(self, numbered: Sequence[NumberedRow], batch: OutcomeBatch) -> None:
        """Insert outcomes with the number of their batch, then all rows derived from them under its token.

        The token makes a repeated insert harmless, so that `_restore_batch` can complete an interrupted one.
        """
        number = next(self._batches)
        columns = _add_times(numbered, build_outcome_columns(numbered))
        columns["batch"] = [number] * len(numbered)
        columns["cohorts"] = [encode_json(batch.cohort_fields).decode()] * len(numbered)
        columns["values"] = [dict(outcome.row.values) for outcome in numbered]
        self.writer.insert("outcomes", columns)
        self._insert_derived(number, numbered, batch.measures)

    def _insert_derived(self, batch: int, numbered: Sequence[NumberedRow], measures: Sequence[MetricInfo]) -> None:
        token = f"batch-{batch}"
        rollups, products = build_rollups(numbered, measures)
        self.writer.insert("scores", _add_times(numbered, build_value_columns(numbered)), token)
        self.writer.insert("rollups", build_rollup_columns(rollups), token)
        self.writer.insert("hours", build_rollup_columns(rollups, 60), token)
        totals = build_rollup_columns([rollup for rollup in rollups if rollup.cohort is None])
        self.writer.insert("sums", {name: totals[name] for name in ("metric", "route", *SUM_COLUMNS)}, token)
        self.writer.insert("products", build_product_columns(products), token)
        self.writer.insert("product_hours", build_product_columns(products, 60), token)

    def _find_last_batch(self) -> int:
        return int(self.writer.fetch_value("SELECT max(batch) FROM outcomes"))

    def _restore_batch(self) -> None:
        """Insert the derived rows that the last batch lacks: no other batch can lack any."""
        batch = self._find_last_batch()
        query = "SELECT number, cohorts, verdicts, scores, gold FROM outcomes WHERE batch = {batch:Int64}"
        rows = {row[0]: row[1:] for row in self.writer.fetch_rows(query, {"batch": batch})}
        if not rows:
            return
        numbered: list[NumberedRow] = []
        query = "SELECT number, received, body FROM traces WHERE number IN {among:Array(Int64)}"
        for number, received, body in self.writer.fetch_among(query, sorted(rows)):
            cohorts, verdicts, scores, gold = rows[number]
            judged = ScoredTrace(decode_trace(body), decode_verdicts(verdicts), decode_scores(scores))
            [row] = build_outcome_rows([judged], msgspec.json.decode(cohorts, type=tuple[str, ...]), gold or "apply")
            numbered.append(NumberedRow(number, received, row))
        numbered.sort(key=lambda outcome: outcome.number)
        self._insert_derived(batch, numbered, self._read_measures(self.writer))

    def compact(self) -> Future[None]:
        """Do nothing: the server merges roll-ups by itself."""
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self) -> None:
        """Finish the queued writes and disconnect. Safe to call twice."""
        self.queue.close()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._lease is not None:
            # a server that does not answer: the lease expires
            with contextlib.suppress(OutputError):
                self._lease.release()
        self.writer.close()
        self.reader.close()


def _add_times(numbered: Sequence[NumberedRow], columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Add the arrival and time of the traces, by which rows expire."""
    outcomes = {outcome.number: outcome for outcome in numbered}
    return {
        **columns,
        "received": [outcomes[number].received for number in columns["number"]],
        "time": [outcomes[number].time for number in columns["number"]],
    }
