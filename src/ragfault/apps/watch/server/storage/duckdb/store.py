"""The store on DuckDB."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count, groupby
from pathlib import Path
from typing import Any

from ragfault.apps.watch.server.storage.duckdb.connection import (
    CONFIG,
    CREATE_MIGRATIONS,
    HOURLY_SUMS,
    MIGRATIONS,
    WORDS,
    DuckDBConnection,
    apply_migration,
    open_database,
    translate_error,
)
from ragfault.apps.watch.server.storage.notes import StoredNote, to_columns
from ragfault.apps.watch.server.storage.outcome_rows import (
    PRODUCT_COLUMNS,
    SUM_COLUMNS,
    NumberedRow,
    build_outcome_columns,
    build_outcome_rows,
    build_product_columns,
    build_rollup_columns,
    build_rollups,
    build_value_columns,
    negate_columns,
)
from ragfault.apps.watch.server.storage.records import SpotCheckSample, TraceState
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
from ragfault.apps.watch.server.storage.traces import TraceRevision
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.error_collector import IdSet
from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import InputError, OutputError
from ragfault.model.records import Trace

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
        con.insert("check_values", {name: [row[i] for row in rows] for i, name in enumerate(names)})

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
            # sums and rows are of one moment
            con.begin()
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
    ranges = {key: codes[order].searchsorted([i, i + 1]) for i, key in enumerate(keys.dictionary.to_pylist())}
    samples = []
    for metric, route, scored, covered, failed, *remainder in sums:
        first, last = ranges.get(f"{metric}\0{route}", (0, 0))
        sides = (column[first:last] for column in columns)
        samples.append(SpotCheckSample(metric, route, scored, covered, failed, tuple(remainder), *sides))
    return tuple(samples)


DATABASE_FILE = "ragfault.duckdb"

MAX_BATCH = 128
"""Largest number of writes in a transaction."""

ID_BATCH = 10_000
"""Number of ids that are read at once when a store is opened."""

COUNT_MINUTES = 10
"""Latest minutes whose counts are merged; older ones were before."""

SORTED_ROWS = 1_000_000
"""Scores that are sorted at once, some row groups of DuckDB."""

LAST_SORTED = "SELECT coalesce(max(last), 0) FROM sorted_scores"
"""The query of the highest number of a trace whose scores are sorted."""

KEY_COLUMNS = "metric, route, cohort, minute"

COPY_NAME = "backup_copy"
"""The name under which the copy of a database is attached while it is made."""

QUOTE = "'"


def count_rows(path: Path) -> dict[str, int]:
    """Count the rows of each table of a database file that nobody has open. Raises InputError for any other file."""
    import duckdb

    try:
        with duckdb.connect(str(path), read_only=True, config=dict(CONFIG)) as con:
            names = con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal ORDER BY 1").fetchall()
            return {name: con.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for (name,) in names}
    except duckdb.Error as error:
        raise InputError(f"{path.name} is not a complete database: {str(error).splitlines()[0]}") from None


class DuckDBStore(TraceStore):
    """The store on DuckDB, in a folder that is created if it is missing.

    >>> import tempfile
    >>> from ragfault.model.records import Trace
    >>> store = DuckDBStore(Path(tempfile.mkdtemp()))
    >>> store.append_traces([Trace(id="1", query="When?"), Trace(id="1", query="When?")]).result()
    AppendResult(added=1, duplicates=1, replaced=0)
    >>> store.get_trace("1").state
    'waiting'
    >>> store.close()
    """

    TEXT_MATCH = "contains(lower({column}), lower({text:String}))"
    ROLLUPS = "all_rollups"
    HOURS = "all_hours"
    TOTALS = "all_sums"

    def __init__(self, folder: Path) -> None:
        self._path = folder / DATABASE_FILE
        self._database = open_database(self._path)
        self._is_lost = False
        self._copy_lock = threading.Lock()
        self.reader: DuckDBConnection = DuckDBConnection(self._database, shared=True)
        self.writer: DuckDBConnection = DuckDBConnection(self._database.cursor(), shared=False)
        self._schema = migrate(self.writer, CREATE_MIGRATIONS, apply_migration, MIGRATIONS)
        self._known_ids = IdSet()
        self._database.execute("SELECT id FROM traces")
        while rows := self._database.fetchmany(ID_BATCH):
            for (id,) in rows:
                self._known_ids.add(id)
        self._numbers = count(self._find_last_number() + 1)
        self.queue = WriteQueue(self._run_batch, MAX_BATCH)
        # a write finds out, and opens it again
        self.reader.on_lost = lambda: self.submit(lambda _: None)
        self.spot_checks = DuckDBSpotChecks(self)

    @property
    def is_lost(self) -> bool:
        """True while the database is given up and could not be opened again; each write tries to."""
        return self._is_lost

    def _run_batch(self, requests: list[WriteRequest]) -> None:
        run_requests(requests, self._run_transaction, translate_error)

    def _run_transaction(self, requests: list[WriteRequest]) -> list[Any]:
        import duckdb

        if self._is_lost:
            self._reopen()
        try:
            self.writer.execute("BEGIN")
            results: list[Any] = []
            for work, group in groupby(requests, key=lambda request: request.work):
                results.extend(work([request.payload for request in group]))
            self.writer.execute("COMMIT")
        except BaseException as error:
            # a transaction that ended by itself
            with contextlib.suppress(Exception):
                self.writer.execute("ROLLBACK")
            if isinstance(error, (duckdb.FatalException, duckdb.ConnectionException)):
                self._is_lost = True
                # the next write tries again
                with contextlib.suppress(OutputError):
                    self._reopen()
            raise
        return results

    def _reopen(self) -> None:
        """Open the database again after an error that made DuckDB give it up, such as a checkpoint on a full disk.

        Ids of a transaction that failed may be known though they are not stored: they are looked up before they count.
        Raises OutputError while it cannot be opened.
        """
        for connection in (self.writer.raw, self._database):
            # a connection that is closed already
            with contextlib.suppress(Exception):
                connection.close()
        self._database = open_database(self._path)
        self.reader.raw, self.writer.raw = self._database, self._database.cursor()
        self._is_lost = False

    def _find_present(self, ids: Sequence[str]) -> set[str]:
        possible = [id for id in ids if id in self._known_ids]
        rows = self.writer.fetch_among("SELECT id FROM traces WHERE id IN {among:Array(String)}", possible)
        return {id for (id,) in rows}

    def _insert_traces(self, columns: dict[str, list[Any]]) -> None:
        import pyarrow as pa

        texts = {name: pa.array(columns[name], pa.string()) for name in ("model", "conversation", "answer", "error")}
        self.writer.insert("traces", columns | texts, computed={"words": WORDS})
        for id in columns["id"]:
            self._known_ids.add(id)

    def _replace_traces(self, traces: Sequence[Trace], revision: TraceRevision) -> tuple[set[str], set[str]]:
        revised = {trace.id: encode_json(trace).decode() for trace in traces if trace.id in revision.ids}
        query = "SELECT number, id, body FROM traces WHERE id IN {among:Array(String)}"
        rows = self.writer.fetch_among(query, list(revised))
        earlier = {number: id for number, id, body in rows if body != revised[id]}
        same = set(revised) - set(earlier.values())
        if not earlier:
            return set(), same
        self._take_back_outcomes(sorted(earlier), revision)
        for table in ("scores", "outcomes", "draws", "checks", "check_values", "traces"):
            self.writer.execute(
                f"DELETE FROM {table} WHERE number IN {{numbers:Array(Int64)}}", {"numbers": sorted(earlier)}
            )
        return set(earlier.values()), same

    def _take_back_outcomes(self, numbers: Sequence[int], revision: TraceRevision) -> None:
        """Subtract the outcomes of traces from the roll-ups."""
        query = (
            "SELECT t.number, t.received, t.body, o.verdicts, o.scores, o.gold FROM traces t "
            "JOIN outcomes o ON o.number = t.number WHERE t.number IN {among:Array(Int64)}"
        )
        numbered: list[NumberedRow] = []
        for number, received, body, verdicts, scores, gold in self.writer.fetch_among(query, numbers):
            trace = revision.limit_cohorts(decode_trace(body), revision.cohort_fields)
            judged = ScoredTrace(trace, decode_verdicts(verdicts), decode_scores(scores))
            [row] = build_outcome_rows([judged], revision.cohort_fields, gold or "apply")
            numbered.append(NumberedRow(number, received, row))
        self._insert_sums(numbered, self._read_measures(self.writer), negated=True)

    def _release_pending(self, numbers: Sequence[int]) -> None:
        self.writer.execute("DELETE FROM pending WHERE number IN {numbers:Array(Int64)}", {"numbers": list(numbers)})

    def _load_outcomes(self, numbers: Sequence[int]) -> dict[int, tuple[TraceState, dict[str, float]]]:
        query = "SELECT number, state, scores FROM outcomes WHERE number IN {among:Array(Int64)}"
        return {
            number: (state, {score.metric: score.value for score in decode_scores(scores) if score.value is not None})
            for number, state, scores in self.reader.fetch_among(query, numbers)
        }

    def _delete_older(self, bound: float) -> int:
        deleted = int(
            self.writer.fetch_value("SELECT count(*) FROM traces WHERE received < {bound:Float64}", {"bound": bound})
        )
        if deleted:
            old = "FROM traces WHERE received < {bound:Float64})"
            for table in ("scores", "outcomes", "draws", "checks", "check_values"):
                self.writer.execute(f"DELETE FROM {table} WHERE number IN (SELECT number {old}", {"bound": bound})
            notes = f"DELETE FROM notes WHERE kind IN ('label', 'comment') AND name IN (SELECT id {old}"
            self.writer.execute(notes, {"bound": bound})
            self.writer.execute("DELETE FROM traces WHERE received < {bound:Float64}", {"bound": bound})
        return deleted

    def _measure_bytes(self, con: DatabaseConnection) -> int:
        """Return the bytes in use: the used blocks of the file, and the log of recent writes."""
        [[block, used]] = con.fetch_rows(
            "SELECT block_size, used_blocks FROM pragma_database_size() WHERE database_name = current_database()"
        )
        log = Path(f"{self._path}.wal")
        return int(block * used) + (log.stat().st_size if log.exists() else 0)

    def _insert_outcomes(self, numbered: Sequence[NumberedRow], batch: OutcomeBatch) -> None:
        self.writer.insert("outcomes", build_outcome_columns(numbered))
        self.writer.insert("scores", build_value_columns(numbered))
        self._insert_sums(numbered, batch.measures)

    def _insert_sums(
        self, numbered: Sequence[NumberedRow], measures: Sequence[MetricInfo], *, negated: bool = False
    ) -> None:
        """Insert the roll-ups of outcomes; negated, they take back what the same outcomes added."""
        rollups, products = build_rollups(numbered, measures)
        for table, columns, sums in (
            ("deltas", build_rollup_columns(rollups), SUM_COLUMNS),
            ("products", build_product_columns(products), PRODUCT_COLUMNS),
            ("product_hours", build_product_columns(products, 60), PRODUCT_COLUMNS),
        ):
            self.writer.insert(table, negate_columns(columns, sums) if negated else columns)

    def compact(self) -> Future[None]:
        """Merge the added roll-ups into those by minute, by hour and of all time, and sort scores."""
        self.submit(self._sort_scores)
        return self.submit(self._compact)

    def _build_text_condition(self) -> str:
        return "contains(t.words, lower({text:String}))"

    def _compact(self, con: DatabaseConnection) -> None:
        sums = ", ".join(f"sum({name})" for name in SUM_COLUMNS)
        con.execute("CREATE TEMP TABLE touched AS SELECT DISTINCT minute FROM deltas")
        con.execute(
            f"CREATE TEMP TABLE merged AS SELECT {KEY_COLUMNS}, {sums} FROM all_rollups "
            f"WHERE minute IN (SELECT minute FROM touched) GROUP BY {KEY_COLUMNS}"
        )
        con.execute(f"CREATE TEMP TABLE summed AS SELECT metric, route, {sums} FROM all_sums GROUP BY metric, route")
        con.execute("DELETE FROM rollups WHERE minute IN (SELECT minute FROM touched)")
        con.execute("INSERT INTO rollups SELECT * FROM merged ORDER BY minute, metric, route, cohort")
        con.execute("DELETE FROM hours WHERE minute IN (SELECT minute - minute % 60 FROM touched)")
        con.execute(
            f"INSERT INTO hours SELECT metric, route, cohort, {HOURLY_SUMS} FROM rollups "
            "WHERE minute - minute % 60 IN (SELECT minute - minute % 60 FROM touched) "
            "GROUP BY metric, route, cohort, minute - minute % 60 ORDER BY minute - minute % 60, metric"
        )
        con.execute(
            "CREATE TEMP TABLE hourly AS SELECT first, second, route, minute, sum(n)::BIGINT AS n, sum(x) AS x, "
            "sum(y) AS y, sum(xx) AS xx, sum(yy) AS yy, sum(xy) AS xy FROM product_hours "
            "WHERE minute IN (SELECT minute - minute % 60 FROM touched) GROUP BY first, second, route, minute"
        )
        con.execute("DELETE FROM product_hours WHERE minute IN (SELECT minute FROM hourly)")
        con.execute("INSERT INTO product_hours SELECT * FROM hourly")
        con.execute("DELETE FROM sums")
        con.execute("INSERT INTO sums SELECT * FROM summed")
        con.execute("DELETE FROM deltas")
        con.execute(
            "CREATE TEMP TABLE counted AS SELECT name, minute, sum(n)::BIGINT AS n FROM counts "
            f"WHERE minute >= (SELECT max(minute) FROM counts) - {COUNT_MINUTES} GROUP BY name, minute"
        )
        con.execute("DELETE FROM counts WHERE minute >= (SELECT min(minute) FROM counted)")
        con.execute("INSERT INTO counts SELECT name, minute, n FROM counted")
        for table in ("summed", "merged", "touched", "hourly", "counted"):
            con.execute(f"DROP TABLE {table}")

    def _select_worst(self, source: str, *, is_low_worse: bool) -> str:
        kind, sign = ("min", "-") if is_low_worse else ("max", "")
        worst = f"unnest({kind}(struct_pack(value := value, number := {sign}number), {{limit:UInt64}}))"
        return (
            f"SELECT metric, route, {sign}worst.number AS number, worst.value AS value FROM "
            f"(SELECT metric, route, {worst} AS worst FROM {source} GROUP BY metric, route) AS placed"
        )

    @property
    def unsorted_scores(self) -> int:
        """The number of scores that are in the order of their arrival."""
        last = self.reader.fetch_value(LAST_SORTED)
        return int(self.reader.fetch_value("SELECT count(*) FROM scores WHERE number > {last:Int64}", {"last": last}))

    def _sort_scores(self, con: DatabaseConnection) -> None:
        """Sort the newest scores by metric once there are SORTED_ROWS: a query of one metric skips the others."""
        rows = self.unsorted_scores
        if rows < SORTED_ROWS:
            return
        last = con.fetch_value(LAST_SORTED)
        newer = "FROM scores WHERE number > {last:Int64}"
        end = con.fetch_value(f"SELECT max(number) {newer}", {"last": last})
        # many waited, as while a run was imported: a part each time
        if rows > 2 * SORTED_ROWS:
            share = SORTED_ROWS / rows
            end = con.fetch_value(f"SELECT quantile_disc(number, {share:.9f}) {newer}", {"last": last})
        part = f"{newer} AND number <= {{end:Int64}}"
        con.execute(f"CREATE TEMP TABLE unsorted AS SELECT * {part}", {"last": last, "end": end})
        con.execute(f"DELETE {part}", {"last": last, "end": end})
        con.execute("INSERT INTO scores SELECT * FROM unsorted ORDER BY metric, time")
        con.execute("DROP TABLE unsorted")
        con.insert("sorted_scores", {"last": [end]})

    def _add_notes(self, con: DatabaseConnection, notes: Sequence[StoredNote]) -> None:
        for note in notes:
            if not note.slot:
                con.execute(
                    "DELETE FROM notes WHERE kind = {kind:String} AND name = {name:String}",
                    {"kind": note.kind, "name": note.name},
                )
        con.insert("notes", to_columns([note for note in notes if note.body], StoredNote._fields))

    def copy_database(self, path: Path) -> dict[str, int]:
        """Copy the database as of one moment to a new file, while writes go on; return the rows of each table."""
        with self._copy_lock, self.reader.cursor() as con:
            [[name]] = con.execute("SELECT current_database()").fetchall()
            con.execute(f"ATTACH '{str(path).replace(QUOTE, 2 * QUOTE)}' AS {COPY_NAME}")
            try:
                con.execute(f'COPY FROM DATABASE "{name}" TO {COPY_NAME}')
            finally:
                con.execute(f"DETACH {COPY_NAME}")
        return count_rows(path)

    def close(self) -> None:
        """Finish the queued writes and close the file. Safe to call twice."""
        self.queue.close()
        # a connection that is closed already
        with contextlib.suppress(Exception):
            self._database.close()
