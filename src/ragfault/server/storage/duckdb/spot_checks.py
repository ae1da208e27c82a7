"""Spot checks in DuckDB: the values of both judges as sums and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.server.storage.engine import DatabaseConnection
from ragfault.server.storage.records import SpotCheckSample
from ragfault.server.storage.spot_checks import SpotCheckStore

COVERED_DRAWS = (
    "WITH cut AS (SELECT floor(d.received / 86400) AS day, min(d.number) AS first FROM draws d WHERE d.taken "
    "AND d.judge = $judge AND NOT EXISTS (SELECT 1 FROM checks c WHERE c.number = d.number AND c.judge = d.judge "
    "AND c.state IN ('checked', 'failed')) GROUP BY day), "
    "ours AS (SELECT d.number, d.chance, d.taken, d.conversation, c.cost, "
    "cut.first IS NULL OR d.number < cut.first AS covered FROM draws d "
    "LEFT JOIN cut ON cut.day = floor(d.received / 86400) "
    "LEFT JOIN checks c ON c.number = d.number AND c.judge = d.judge WHERE d.judge = $judge) "
)
"""The draws for a judge, and which are covered: see `SpotCheckSample`. A draw is settled once the judge was asked,
whatever its reply, and not when it was left out."""

UNPAIRED_ROWS = "o.covered AND k.value IS NULL AND o.conversation = ''"
"""Covered traces outside conversations without a value by the reference judge."""


class DuckDBSpotChecks(SpotCheckStore):
    """The spot checks of a store on DuckDB."""

    def _insert_checks(
        self, con: DatabaseConnection, columns: dict[str, list[Any]], values: Sequence[dict[str, float]]
    ) -> None:
        import pyarrow as pa

        costs: Any = pa.array(columns["cost"], pa.float64())
        con.insert("checks", columns | {"cost": costs})
        rows = [
            (number, judge, metric, value)
            for number, judge, row in zip(columns["number"], columns["judge"], values, strict=True)
            for metric, value in row.items()
        ]
        names = ("number", "judge", "metric", "value")
        con.insert("check_values", {name: [row[at] for row in rows] for at, name in enumerate(names)})

    def read_samples(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[SpotCheckSample, ...]:
        """Return the values by both judges, by metric and route, of traces from a time to before another."""
        parameters: dict[str, Any] = {"judge": judge, "since": since, "until": until}
        where = "s.time >= $since AND s.time < $until"
        for name, value in (("metric", metric), ("route", route)):
            if value is not None:
                where, parameters[name] = f"{where} AND s.{name} = ${name}", value
        values = (
            "FROM scores s LEFT JOIN ours o ON o.number = s.number LEFT JOIN check_values k ON k.number = s.number "
            f"AND k.judge = $judge AND k.metric = s.metric WHERE {where}"
        )
        with self._store.reader.cursor() as con:  # type: ignore[attr-defined]
            con.begin()  # sums and rows are of one moment
            sums = con.execute(
                f"{COVERED_DRAWS} SELECT s.metric, s.route, count(*), count(*) FILTER (o.covered), "
                "count(*) FILTER (o.covered AND o.taken AND k.value IS NULL), "
                f"count(*) FILTER ({UNPAIRED_ROWS}), coalesce(sum(s.value) FILTER ({UNPAIRED_ROWS}), 0), "
                f"coalesce(sum(s.value * s.value) FILTER ({UNPAIRED_ROWS}), 0) {values} GROUP BY ALL ORDER BY ALL",
                parameters,
            ).fetchall()
            rows = con.sql(
                f"{COVERED_DRAWS} SELECT s.metric || chr(0) || s.route AS key, s.value AS base, "
                "k.value AS reference, o.chance AS chance, o.cost AS cost, "
                "CASE WHEN o.conversation = '' THEN 0 ELSE hash(o.conversation) END::UBIGINT AS conversation "
                f"{values} AND o.covered AND NOT ({UNPAIRED_ROWS})",
                params=parameters,
            ).to_arrow_table()
            con.rollback()
        return _build_samples(sums, rows)


def _build_samples(sums: Sequence[tuple[Any, ...]], rows: Any) -> tuple[SpotCheckSample, ...]:
    keys = rows.column("key").combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    order = codes.argsort(kind="stable")
    names = ("base", "reference", "chance", "cost", "conversation")
    columns = [rows.column(name).to_numpy()[order] for name in names]
    ranges = {
        key: codes[order].searchsorted([at, at + 1]) for at, key in enumerate(keys.dictionary.to_pylist())
    }
    samples = []
    for metric, route, scored, covered, failed, *remainder in sums:
        first, last = ranges.get(f"{metric}\0{route}", (0, 0))
        sides = (column[first:last] for column in columns)
        samples.append(SpotCheckSample(metric, route, scored, covered, failed, tuple(remainder), *sides))
    return tuple(samples)
