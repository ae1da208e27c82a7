"""Roll-ups of a store: count outcomes into them once, and read them at a cost independent of the traffic."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec

from ragfault.apps.watch.monitoring.rollups import COHORT_ROUTE, ProductSums, Rollup, WorstTrace, add_derived, is_cohort
from ragfault.apps.watch.server.storage.notes import NoteSelection, NoteTables, StoredNote
from ragfault.apps.watch.server.storage.outcome_rows import (
    BIN_COLUMNS,
    SUM_COLUMNS,
    NumberedRow,
    OutcomeRow,
    build_outcome_rows,
)
from ragfault.apps.watch.server.storage.store_engine import DatabaseConnection, encode_json
from ragfault.apps.watch.server.storage.traces import TraceTables
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import GoldMode

EMPTY_BINS = (0,) * len(BIN_COLUMNS)


class OutcomeBatch(NamedTuple):
    """Outcomes as rows, with the metrics and cohort fields they were counted by."""

    rows: tuple[OutcomeRow, ...]
    measures: tuple[MetricInfo, ...]
    cohort_fields: tuple[str, ...]
    # numbers of the traces by id, as far as known
    numbers: Mapping[str, int]


class RollupTables(TraceTables, NoteTables):
    """The outcomes of a store, and the roll-ups that they are summed into."""

    ROLLUPS: ClassVar[str] = "rollups"
    HOURS: ClassVar[str] = "hours"
    TOTALS: ClassVar[str] = "sums"
    """The tables, or views, of the roll-ups by minute, by hour and of all time."""
    # fingerprint of the judge of the outcomes that were added last; empty: none were
    latest_judge: str = ""

    def add_outcomes(
        self,
        outcomes: Sequence[ScoredTrace],
        measures: Sequence[MetricInfo],
        cohort_fields: Sequence[str] = (),
        gold: GoldMode = "apply",
        numbers: Mapping[str, int] = MappingProxyType({}),
    ) -> Future[int]:
        """Add verdicts and scores, and count them into the roll-ups; a trace that has an outcome is skipped.

        `measures` describe the metrics, `cohort_fields` name the fields whose values are cohorts, `gold` is the use of
        gold in the scores. `numbers` are those that `list_unscored` gave, by id: the outcome of a trace that was
        replaced since is skipped. Return the number of added outcomes.
        """
        self.latest_judge = outcomes[-1].verdicts.judge if outcomes else self.latest_judge
        # on the caller's thread: the writer only writes
        rows = build_outcome_rows(outcomes, cohort_fields, gold)
        batch = OutcomeBatch(rows, tuple(measures), tuple(cohort_fields), numbers)
        return self.submit_batch(self._add_outcome_batches, batch)

    def _add_outcome_batches(self, batches: Sequence[OutcomeBatch]) -> list[int]:
        return [self._add_outcome_batch(batch) for batch in batches]

    def _add_outcome_batch(self, batch: OutcomeBatch) -> int:
        numbered = self._select_unjudged(batch)
        if numbered:
            self._add_measures(add_derived(batch.measures))
            self._insert_outcomes(numbered, batch)
        return len(numbered)

    @abstractmethod
    def _insert_outcomes(self, numbered: Sequence[NumberedRow], batch: OutcomeBatch) -> None:
        """Insert outcomes, their values, and their roll-ups."""

    def _select_unjudged(self, batch: OutcomeBatch) -> list[NumberedRow]:
        """Return the rows of stored traces without an outcome, in the order of arrival."""
        by_id = {row.trace: row for row in batch.rows}
        known = [batch.numbers[id] for id in by_id if id in batch.numbers]
        # known numbers bound the part of the table that is searched
        low, high = (min(known), max(known)) if len(known) == len(by_id) > 0 else (0, 2**62)
        stored = list(
            self.writer.fetch_among(
                "SELECT id, number, received FROM ids WHERE number >= {low:Int64} AND number <= {high:Int64} "
                "AND id IN {among:Array(String)}",
                list(by_id),
                {"low": low, "high": high},
            )
        )
        query = "SELECT number FROM outcomes WHERE number IN {among:Array(Int64)}"
        judged = {n for (n,) in self.writer.fetch_among(query, [number for _, number, _ in stored])}
        numbered = [
            NumberedRow(number, received, by_id[id])
            for id, number, received in stored
            if number not in judged and batch.numbers.get(id, number) == number
        ]
        return sorted(numbered, key=lambda row: row.number)

    def _add_measures(self, measures: Sequence[MetricInfo]) -> None:
        """Add the metrics that the store does not know yet."""
        known = {measure.name for measure in self._read_measures(self.writer)}
        new = {measure.name: measure for measure in measures if measure.name not in known}
        self._add_notes(
            self.writer,
            [
                StoredNote("metric", name, number=number, body=encode_json(measure).decode())
                for number, (name, measure) in enumerate(new.items(), start=len(known) + 1)
            ],
        )

    def read_measures(self) -> tuple[MetricInfo, ...]:
        """Return the metrics of the store in the order in which they were first met."""
        return self._read_measures(self.reader)

    def _read_measures(self, con: DatabaseConnection) -> tuple[MetricInfo, ...]:
        bodies = self._read_bodies(con, NoteSelection("metric", order="number"))
        return tuple(msgspec.json.decode(body, type=MetricInfo) for body in bodies)

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
        """Return the roll-ups from minute `since` to before `until`, merged over `grain` minutes, by key.

        Where begin, end and grain are whole hours, roll-ups by hour are read, which are the sums of those by minute.
        `cohort`: an empty text for whole routes, None for everything, "*" for cohorts alone; a route "cohort release=7"
        is that cohort over all routes, and the roll-ups are of this route. The `worst` of the roll-ups are empty: see
        `read_worst_traces`. Without `bins` the histograms are empty, which is faster.
        """
        parameters: dict[str, Any] = {"since": since, "until": until, "grain": grain}
        parts = ["minute >= {since:Int64}", "minute < {until:Int64}"]
        name = route
        if route is not None and is_cohort(route):
            route, cohort = "", route.removeprefix(COHORT_ROUTE)
        if cohort == "*":
            parts.append("cohort != ''")
            cohort = None
        for column, value in (("metric", metric), ("route", route), ("cohort", cohort)):
            if value is not None:
                parts.append(f"{column} = {{{column}:String}}")
                parameters[column] = value
        rows = self.reader.fetch_rows(self._select_rollups(parts, parameters, bins=bins), parameters)
        return tuple(map(_build_rollup, map(_name_as_route, rows) if is_cohort(name) else rows))

    def read_cohort_rollups(
        self, cohorts: Sequence[str], since: int, until: int, *, grain: int = 1
    ) -> tuple[Rollup, ...]:
        """Return the roll-ups of some cohorts over all routes, each as a route of its own, without bins.

        One query for all: each reads the roll-ups of all cohorts between the two minutes.
        """
        parameters = {"since": since, "until": until, "grain": grain}
        parts = ["minute >= {since:Int64}", "minute < {until:Int64}", "route = ''", "cohort IN {among:Array(String)}"]
        query = self._select_rollups(parts, parameters, bins=False)
        return tuple(map(_build_rollup, map(_name_as_route, self.reader.fetch_among(query, cohorts, parameters))))

    def _select_rollups(self, parts: Sequence[str], stretch: Mapping[str, Any], *, bins: bool) -> str:
        """Return the query of the roll-ups that meet all conditions, merged over the grain of a stretch of time."""
        # whole hours are read from the table that has a sixtieth of the rows
        is_hourly = not any(stretch[name] % 60 for name in ("since", "until", "grain"))
        names = SUM_COLUMNS if bins else SUM_COLUMNS[: -len(BIN_COLUMNS)]
        return (
            "SELECT metric, route, cohort, minute - (minute - {since:Int64}) % {grain:Int64} AS stretch, "
            f"{_sum_columns(names)} FROM {self.HOURS if is_hourly else self.ROLLUPS} WHERE {' AND '.join(parts)} "
            "GROUP BY metric, route, cohort, stretch ORDER BY metric, route, cohort, stretch"
        )

    def read_total_rollups(self) -> tuple[Rollup, ...]:
        """Return one roll-up of all time for each metric and route; deletion of traces does not reduce them."""
        rows = self.reader.fetch_rows(
            f"SELECT metric, route, {_sum_columns(SUM_COLUMNS)} FROM {self.TOTALS} "
            "GROUP BY metric, route ORDER BY metric, route"
        )
        return tuple(_build_rollup((metric, route, "", 0, *sums)) for metric, route, *sums in rows)

    def read_products(self, since: int, until: int, grain: int = 1) -> tuple[ProductSums, ...]:
        """Return the sums of products of pairs of metrics, merged over `grain` minutes; for whole hours see above."""
        table = "products" if since % 60 or until % 60 or grain % 60 else "product_hours"
        rows = self.reader.fetch_rows(
            "SELECT first, second, route, minute - (minute - {since:Int64}) % {grain:Int64} AS stretch, "
            f"sum(n), sum(x), sum(y), sum(xx), sum(yy), sum(xy) FROM {table} "
            "WHERE minute >= {since:Int64} AND minute < {until:Int64} "
            "GROUP BY first, second, route, stretch ORDER BY first, second, route, stretch",
            {"since": since, "until": until, "grain": grain},
        )
        names = ProductSums.__struct_fields__
        return tuple(ProductSums(**{**dict(zip(names, row, strict=True)), "route": row[2] or None}) for row in rows)

    def read_worst_traces(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[WorstTrace, ...]:
        """Return the traces with the worst values of a metric between two minutes, the worst first."""
        measure = next((measure for measure in self.read_measures() if measure.name == metric), None)
        if measure is None:
            return ()
        sign, order = (1, "ASC") if measure.better == "higher" else (-1, "DESC")
        parameters: dict[str, Any] = {"metric": metric, "since": since * 60.0, "until": until * 60.0, "limit": limit}
        where = "metric = {metric:String} AND time >= {since:Float64} AND time < {until:Float64}"
        if route is not None:
            where += " AND route = {route:String}"
            parameters["route"] = route
        query = (
            f"SELECT number, value FROM scores WHERE {where} ORDER BY value {order}, number DESC LIMIT {{limit:UInt64}}"
        )
        values: dict[int, float] = dict(self.reader.fetch_rows(query, parameters))
        query = "SELECT number, id FROM ids WHERE number IN {among:Array(Int64)}"
        return tuple(
            sorted(
                WorstTrace(sign * values[number], id, values[number])
                for number, id in self.reader.fetch_among(query, list(values))
            )
        )

    def _select_worst(self, source: str, *, is_low_worse: bool) -> str:
        """Return the query of the rows of a source with the worst values on each route, the latest of equal ones."""
        order = "ASC" if is_low_worse else "DESC"
        place = f"row_number() OVER (PARTITION BY route ORDER BY value {order}, number DESC) AS place"
        return (
            f"SELECT metric, route, number, value FROM (SELECT metric, route, number, value, {place} FROM {source}) "
            "AS placed WHERE place <= {limit:UInt64}"
        )

    def read_worst_by_route(
        self, fences: Mapping[str, float], since: int, until: int, limit: int = 5
    ) -> dict[tuple[str, str], tuple[WorstTrace, ...]]:
        """Return the traces with the worst values of metrics on each route, the worst first.

        Of each metric only values on the worse side of its fence count.
        """
        signs = {measure.name: 1 if measure.better == "higher" else -1 for measure in self.read_measures()}
        # one for each metric, so that the engine skips the values of all others
        parts: list[str] = []
        parameters: dict[str, Any] = {"since": since * 60.0, "until": until * 60.0, "limit": limit}
        for index, (metric, fence) in enumerate(sorted(fences.items())):
            side = "<" if signs[metric] > 0 else ">"
            where = f"metric = {{metric{index}:String}} AND value {side} {{fence{index}:Float64}}"
            times = "time >= {since:Float64} AND time < {until:Float64}"
            parts.append(self._select_worst(f"scores WHERE {where} AND {times}", is_low_worse=signs[metric] > 0))
            parameters |= {f"metric{index}": metric, f"fence{index}": fence}
        if not parts:
            return {}
        rows = self.reader.fetch_rows(" UNION ALL ".join(parts), parameters)
        query = "SELECT number, id FROM ids WHERE number IN {among:Array(Int64)}"
        ids = dict(self.reader.fetch_among(query, list({number for _, _, number, _ in rows})))
        worst: dict[tuple[str, str], list[WorstTrace]] = {}
        for metric, route, number, value in rows:
            if number in ids:
                worst.setdefault((metric, route), []).append(WorstTrace(signs[metric] * value, ids[number], value))
        return {place: tuple(sorted(traces)) for place, traces in worst.items()}


def _sum_columns(names: Sequence[str]) -> str:
    return ", ".join(f"sum({name})" for name in names)


def _name_as_route(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row of a cohort over all routes, stored as one of no route, as that of a route of its own."""
    metric, _, cohort, *rest = row
    return (metric, COHORT_ROUTE + cohort, "", *rest)


def _build_rollup(row: tuple[Any, ...]) -> Rollup:
    metric, route, cohort, minute, n, total, squares, undefined, failed, *bins = row
    return Rollup(
        metric=metric,
        route=route or None,
        cohort=cohort or None,
        minute=minute,
        n=n,
        sum=total,
        squares=squares,
        undefined=undefined,
        failed=failed,
        bins=tuple(bins) or EMPTY_BINS,
    )
