"""Spot checks of a store: the sample of traces that a stronger judge sees, and the values of both judges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from ragfault.apps.watch.server.storage.notes import to_columns
from ragfault.apps.watch.server.storage.records import ReceivedTrace, SpotCheck, SpotCheckCounts, SpotCheckSample
from ragfault.apps.watch.server.storage.store_engine import (
    DatabaseConnection,
    decode_scores,
    decode_verdicts,
    encode_json,
)
from ragfault.apps.watch.server.storage.traces import TraceTables
from ragfault.evaluation.online.scorer import SamplingDraw

WAITING_DRAWS = (
    "taken AND judge = {judge:String} AND number NOT IN (SELECT number FROM checks WHERE judge = {judge:String})"
)
"""The condition on draws that wait for a judge."""


class SpotCheckStore(ABC):
    """The spot checks of a store.

    A judge is named by its fingerprint: a draw for one judge does not count for another.
    """

    def __init__(self, store: TraceTables) -> None:
        self._store = store

    def add_draws(self, draws: Sequence[SamplingDraw]) -> Future[None]:
        """Add the draws of stored traces, those that were not taken as well; a repeated draw changes nothing."""
        return self._store.submit(lambda con: self._add_draws(con, draws))

    def _add_draws(self, con: DatabaseConnection, draws: Sequence[SamplingDraw]) -> None:
        query = "SELECT id, number FROM ids WHERE id IN {among:Array(String)}"
        numbers = dict(con.fetch_among(query, list({draw.trace for draw in draws})))
        query = (
            "SELECT number, received, time, route, coalesce(conversation, '') FROM traces "
            "WHERE number IN {among:Array(Int64)}"
        )
        traces = {row[0]: row for row in con.fetch_among(query, sorted(numbers.values()))}
        query = "SELECT number, judge FROM draws WHERE number IN {among:Array(Int64)}"
        known = set(con.fetch_among(query, sorted(traces)))
        new: dict[tuple[int, str], SamplingDraw] = {}
        for draw in draws:
            key = (numbers.get(draw.trace, 0), draw.judge)
            if key[0] in traces and key not in known:
                new.setdefault(key, draw)
        names = ("number", "received", "time", "route", "conversation")
        columns: dict[str, list[Any]] = {name: [traces[number][i] for number, _ in new] for i, name in enumerate(names)}
        con.insert("draws", columns | to_columns(list(new.values()), ("judge", "chance", "taken")))

    def add_checks(self, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> Future[None]:
        """Add the checks of the traces with these numbers; those of deleted traces are skipped."""
        return self._store.submit(lambda con: self._add_checks(con, checks, numbers))

    def _add_checks(self, con: DatabaseConnection, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> None:
        query = "SELECT number, received, time FROM traces WHERE number IN {among:Array(Int64)}"
        traces = {row[0]: row for row in con.fetch_among(query, list(numbers))}
        rows = [(traces[number], check) for number, check in zip(numbers, checks, strict=True) if number in traces]
        columns: dict[str, list[Any]] = {
            name: [trace[i] for trace, _ in rows] for i, name in enumerate(("number", "received", "time"))
        }
        columns |= to_columns([check for _, check in rows], ("judge", "state", "cost"))
        columns["asked"] = [check.time for _, check in rows]
        columns["verdicts"] = [
            "" if check.verdicts is None else encode_json(check.verdicts).decode() for _, check in rows
        ]
        columns["scores"] = [encode_json(check.scores).decode() for _, check in rows]
        values = [{score.metric: score.value for score in check.scores if score.value is not None} for _, check in rows]
        self._insert_checks(con, columns, values)

    @abstractmethod
    def _insert_checks(
        self, con: DatabaseConnection, columns: dict[str, list[Any]], values: Sequence[dict[str, float]]
    ) -> None:
        """Insert checks with their values by metric."""

    def skip_waiting(self, judge: str, now: float) -> Future[int]:
        """Mark all draws that wait for a judge as left out at `now`; return their number."""

        def write(con: DatabaseConnection) -> int:
            numbers = con.fetch_rows(
                f"SELECT number FROM draws WHERE {WAITING_DRAWS} ORDER BY number", {"judge": judge}
            )
            skipped = [SpotCheck(trace="", judge=judge, time=now, state="left") for _ in numbers]
            self._add_checks(con, skipped, [number for (number,) in numbers])
            return len(skipped)

        return self._store.submit(write)

    def count_draws(self) -> dict[str, int]:
        """Count the draws by route."""
        return dict(self._store.reader.fetch_rows("SELECT route, count(*) FROM draws GROUP BY route"))

    def list_waiting(self, judge: str, limit: int = 256) -> Sequence[ReceivedTrace]:
        """Return traces that were drawn for a judge and wait for it, in the order of arrival."""
        rows = self._store.reader.fetch_rows(
            f"SELECT number FROM draws WHERE {WAITING_DRAWS} ORDER BY number LIMIT {{limit:UInt64}}",
            {"judge": judge, "limit": limit},
        )
        return self._store.load_received(number for (number,) in rows)

    def count_checks(self, judge: str, since: float = 0.0) -> SpotCheckCounts:
        """Count the checks of a judge since a time by state, and the draws that wait for it."""
        states = ", ".join(f"count(*) FILTER (WHERE state = '{state}')" for state in ("checked", "failed", "left"))
        [[checked, failed, left, cost, unpriced]] = self._store.reader.fetch_rows(
            f"SELECT {states}, coalesce(sum(cost), 0), count(*) - count(cost) FROM checks "
            "WHERE judge = {judge:String} AND asked >= {since:Float64}",
            {"judge": judge, "since": since},
        )
        waiting = self._store.reader.fetch_value(f"SELECT count(*) FROM draws WHERE {WAITING_DRAWS}", {"judge": judge})
        return SpotCheckCounts(
            checked=checked, failed=failed, left=left, waiting=waiting, cost=None if unpriced else float(cost)
        )

    def read_trace_checks(self, trace: str) -> tuple[SpotCheck, ...]:
        """Return the checks of a trace by time."""
        number = "number IN (SELECT number FROM ids WHERE id = {trace:String})"
        rows = self._store.reader.fetch_rows(
            f"SELECT judge, asked, state, cost, verdicts, scores FROM checks WHERE {number} ORDER BY asked",
            {"trace": trace},
        )
        query = f"SELECT judge, chance FROM draws WHERE {number}"
        chances = dict(self._store.reader.fetch_rows(query, {"trace": trace}))
        return tuple(
            SpotCheck(
                trace=trace,
                judge=judge,
                time=asked,
                chance=chances.get(judge, 1.0),
                state=state,
                cost=cost,
                verdicts=decode_verdicts(verdicts) if verdicts else None,
                scores=decode_scores(scores),
            )
            for judge, asked, state, cost, verdicts, scores in rows
        )

    @abstractmethod
    def read_samples(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[SpotCheckSample, ...]:
        """Return the values by both judges, by metric and route, of traces from a time to before another."""
