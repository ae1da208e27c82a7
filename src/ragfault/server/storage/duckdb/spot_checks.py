"""Spot checks in DuckDB: the sample of traces sent to a stronger judge, and the values of both judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ragfault.records import Score, Trace, Verdicts
from ragfault.server.storage.duckdb.traces import insert_columns
from ragfault.server.storage.duckdb.writer import DuckDBWriter
from ragfault.server.storage.records import (
    ReceivedTrace,
    SampleDraw,
    SpotCheck,
    SpotCheckCounts,
    SpotCheckSample,
)

SETTLED_DRAWS = "SELECT 1 FROM checks c WHERE c.number = d.number AND c.judge = d.judge AND c.state IN ('checked', 'failed')"
"""A draw that was taken is settled when the judge was asked, whatever came of it; not where it was left out."""

COVERED_DRAWS = (
    "WITH cut AS (SELECT floor(d.received / 86400) AS day, min(d.number) AS first FROM draws d WHERE d.taken "
    f"AND d.judge = $judge AND NOT EXISTS ({SETTLED_DRAWS}) GROUP BY day), "
    "ours AS (SELECT d.number, d.chance, d.taken, d.conversation, c.cost, "
    "cut.first IS NULL OR d.number < cut.first AS covered FROM draws d "
    "LEFT JOIN cut ON cut.day = floor(d.received / 86400) "
    "LEFT JOIN checks c ON c.number = d.number AND c.judge = d.judge WHERE d.judge = $judge) "
)
"""What was drawn from for a judge, and whether it is covered: see `Sample`."""
UNPAIRED_ROWS = "o.covered AND k.value IS NULL AND o.conversation = ''"
"""Covered traces that have no value by the better judge, and stand alone."""

_decode_trace = msgspec.json.Decoder(Trace).decode
_decode_verdicts = msgspec.json.Decoder(Verdicts).decode
_decode_scores = msgspec.json.Decoder(tuple[Score, ...]).decode
_encode_json = msgspec.json.Encoder().encode


def add_draws(con: Any, draws: Sequence[SampleDraw]) -> None:
    """Keep the draws of traces that were scored; one that was drawn for the same judge before stays as it is."""
    import pyarrow as pa

    if not draws:
        return
    names = ("trace", "judge", "chance", "taken")
    rows = pa.table({name: [getattr(each, name) for each in draws] for name in names})
    con.register("draws_to_add", rows)
    try:
        con.execute(
            "INSERT INTO draws SELECT t.number, t.received, t.route, coalesce(t.conversation, ''), a.judge, a.chance, "
            "a.taken FROM draws_to_add a JOIN traces t ON t.id = a.trace WHERE NOT EXISTS "
            "(SELECT 1 FROM draws d WHERE d.number = t.number AND d.judge = a.judge)"
        )
    finally:
        con.unregister("draws_to_add")


def count_draws(con: Any) -> dict[str, int]:
    """How many traces of each route were drawn from."""
    return dict(con.execute("SELECT route, count(*) FROM draws GROUP BY route").fetchall())


def list_waiting(con: Any, judge: str, limit: int) -> list[ReceivedTrace]:
    """Traces that were taken for a judge and wait for it, in the order of arrival."""
    rows = con.execute(
        "SELECT t.number, t.received, t.body FROM traces t WHERE t.number IN (SELECT d.number FROM draws d WHERE "
        "d.taken AND d.judge = ? AND NOT EXISTS (SELECT 1 FROM checks c WHERE c.number = d.number AND c.judge = "
        "d.judge) ORDER BY d.number LIMIT ?) ORDER BY t.number",
        [judge, limit],
    ).fetchall()
    return [ReceivedTrace(number, received, _decode_trace(body)) for number, received, body in rows]


def add_checks(con: Any, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> None:
    """Keep what a better judge said of traces with these numbers, those that are there yet."""
    there = {
        number
        for (number,) in con.execute(
            "SELECT number FROM traces WHERE number IN (SELECT unnest(?::BIGINT[]))", [list(numbers)]
        ).fetchall()
    }
    kept = [pair for pair in zip(numbers, checks, strict=True) if pair[0] in there]
    numbers, checks = [number for number, _ in kept], [each for _, each in kept]
    insert_columns(
        con,
        "checks",
        {
            "number": list(numbers),
            "judge": [each.judge for each in checks],
            "time": [each.time for each in checks],
            "state": [each.state for each in checks],
            "cost": _make_float_column([each.cost for each in checks]),
            "verdicts": [
                "" if each.verdicts is None else _encode_json(each.verdicts).decode() for each in checks
            ],
            "scores": [_encode_json(each.scores).decode() for each in checks],
        },
    )
    values = [
        (number, each.judge, one.metric, one.value)
        for number, each in zip(numbers, checks, strict=True)
        for one in each.scores
        if one.value is not None
    ]
    names = ("number", "judge", "metric", "value")
    insert_columns(con, "checked", {name: [row[at] for row in values] for at, name in enumerate(names)})


def _make_float_column(values: list[float | None]) -> Any:
    """A column of numbers that may all be absent."""
    import pyarrow as pa

    return pa.array(values, pa.float64())


def skip_waiting(con: Any, judge: str, now: float) -> int:
    """Leave out what waits for a judge; how many traces that were."""
    found = con.execute(
        "INSERT INTO checks SELECT d.number, d.judge, ?, 'left', 0, '', '[]' FROM draws d WHERE d.taken "
        "AND d.judge = ? AND NOT EXISTS (SELECT 1 FROM checks c WHERE c.number = d.number AND c.judge = d.judge)",
        [now, judge],
    ).fetchone()
    return int(found[0])


# --- reading ---------------------------------------------------------------------------------------


def read_trace_checks(con: Any, trace: str) -> tuple[SpotCheck, ...]:
    """What better judges said of a trace, in the order of time."""
    rows = con.execute(
        "SELECT c.judge, c.time, d.chance, c.state, c.cost, c.verdicts, c.scores FROM checks c JOIN traces t ON "
        "t.number = c.number JOIN draws d ON d.number = c.number AND d.judge = c.judge WHERE t.id = ? ORDER BY c.time",
        [trace],
    ).fetchall()
    return tuple(
        SpotCheck(
            trace=trace,
            judge=judge,
            time=time,
            chance=chance,
            state=state,
            cost=cost,
            verdicts=_decode_verdicts(verdicts) if verdicts else None,
            scores=_decode_scores(scores),
        )
        for judge, time, chance, state, cost, verdicts, scores in rows
    )


def count_checks(con: Any, judge: str, since: float) -> SpotCheckCounts:
    """How many checks a judge made since a time, how many were left out, and how many wait."""
    found = con.execute(
        "SELECT count(*) FILTER (state = 'checked'), count(*) FILTER (state = 'failed'), "
        "count(*) FILTER (state = 'left'), coalesce(sum(cost), 0), count(*) - count(cost) FROM checks "
        "WHERE judge = ? AND time >= ?",
        [judge, since],
    ).fetchone()
    [waiting] = con.execute(
        "SELECT count(*) FROM draws d WHERE d.taken AND d.judge = ? AND NOT EXISTS "
        "(SELECT 1 FROM checks c WHERE c.number = d.number AND c.judge = d.judge)",
        [judge],
    ).fetchone()
    checked, failed, left, cost, unpriced = found
    return SpotCheckCounts(
        checked=checked, failed=failed, left=left, waiting=waiting, cost=None if unpriced else float(cost)
    )


def read_samples(
    con: Any, judge: str, since: float, until: float, metric: str | None, route: str | None
) -> tuple[SpotCheckSample, ...]:
    """The values of metrics by the judge of every trace, and those by a better judge where it was asked."""
    given: dict[str, Any] = {"judge": judge, "since": since, "until": until}
    where = "s.time >= $since AND s.time < $until"
    for name, value in (("metric", metric), ("route", route)):
        if value is not None:
            where, given[name] = f"{where} AND s.{name} = ${name}", value
    values = (
        f"FROM scores s LEFT JOIN ours o ON o.number = s.number LEFT JOIN checked k ON k.number = s.number "
        f"AND k.judge = $judge AND k.metric = s.metric WHERE {where}"
    )
    con.begin()  # sums and rows are of one moment
    try:
        summed = con.sql(
            f"{COVERED_DRAWS} SELECT s.metric, s.route, count(*), count(*) FILTER (o.covered), "
            "count(*) FILTER (o.covered AND o.taken AND k.value IS NULL), "
            f"count(*) FILTER ({UNPAIRED_ROWS}), coalesce(sum(s.value) FILTER ({UNPAIRED_ROWS}), 0), "
            f"coalesce(sum(s.value * s.value) FILTER ({UNPAIRED_ROWS}), 0) {values} GROUP BY ALL ORDER BY ALL",
            params=given,
        ).fetchall()
        rows = con.sql(
            f"{COVERED_DRAWS} SELECT s.metric || chr(0) || s.route AS key, s.value AS judged, k.value AS said, "
            "o.chance AS chance, o.cost AS cost, "
            "CASE WHEN o.conversation = '' THEN 0 ELSE hash(o.conversation) END::UBIGINT AS conversation "
            f"{values} AND o.covered AND NOT ({UNPAIRED_ROWS})",
            params=given,
        ).to_arrow_table()
    finally:
        con.rollback()
    return _build_samples(summed, rows)


def _build_samples(sums: Sequence[tuple[Any, ...]], rows: Any) -> tuple[SpotCheckSample, ...]:
    """Sums and columns by metric and route."""
    keys = rows.column("key").combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    order = codes.argsort(kind="stable")
    names = ("judged", "said", "chance", "cost", "conversation")
    columns = [rows.column(name).to_numpy()[order] for name in names]
    places = {
        name: codes[order].searchsorted([at, at + 1]) for at, name in enumerate(keys.dictionary.to_pylist())
    }
    made = []
    for metric, route, scored, covered, failed, *rest in sums:
        first, last = places.get(f"{metric}\0{route}", (0, 0))
        made.append(
            SpotCheckSample(
                metric, route, scored, covered, failed, tuple(rest), *(each[first:last] for each in columns)
            )
        )
    return tuple(made)


class DuckDBSpotChecks:
    """The port `Checking` on the connections of a store."""

    def __init__(self, open_reader: Callable[[], AbstractContextManager[Any]], writer: DuckDBWriter) -> None:
        self._open_reader, self._writer = open_reader, writer

    def add_draws(self, draws: Sequence[SampleDraw]) -> Future[None]:
        return self._writer.submit(lambda con: add_draws(con, draws))

    def count_draws(self) -> dict[str, int]:
        with self._open_reader() as con:
            return count_draws(con)

    def list_waiting(self, judge: str, limit: int = 256) -> Sequence[ReceivedTrace]:
        with self._open_reader() as con:
            return list_waiting(con, judge, limit)

    def add_checks(self, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> Future[None]:
        return self._writer.submit(lambda con: add_checks(con, checks, numbers))

    def skip_waiting(self, judge: str, now: float) -> Future[int]:
        return self._writer.submit(lambda con: skip_waiting(con, judge, now))

    def count_checks(self, judge: str, since: float = 0.0) -> SpotCheckCounts:
        with self._open_reader() as con:
            return count_checks(con, judge, since)

    def read_trace_checks(self, trace: str) -> tuple[SpotCheck, ...]:
        with self._open_reader() as con:
            return read_trace_checks(con, trace)

    def read_samples(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[SpotCheckSample, ...]:
        with self._open_reader() as con:
            return read_samples(con, judge, since, until, metric, route)
