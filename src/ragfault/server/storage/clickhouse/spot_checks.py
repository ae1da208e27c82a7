"""Spot checks in ClickHouse: the values of both judges as sums and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.server.storage.engine import DatabaseConnection
from ragfault.server.storage.records import SpotCheckSample
from ragfault.server.storage.spot_checks import SpotCheckStore

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
            judge=judge,
            since=since,
            until=until,
            **filters,
        )
        samples: list[SpotCheckSample] = []
        for metric_name, route_name, scored, covered, failed, n, total, squares, *lists in rows:
            sides: list[Any] = [
                np.array(values, kind) for values, kind in zip(lists, columns.values(), strict=True)
            ]
            remainder = (int(n), float(total), float(squares))
            samples.append(
                SpotCheckSample(metric_name, route_name, scored, covered, failed, remainder, *sides)
            )
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
