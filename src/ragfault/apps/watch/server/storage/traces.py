"""Traces of a store: append, select by page, read with their outcomes, and delete what has expired."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple

from ragfault.apps.watch.server.storage.notes import to_columns
from ragfault.apps.watch.server.storage.outcome_rows import get_trace_time
from ragfault.apps.watch.server.storage.records import (
    MAX_PAGE_BYTES,
    MAX_SHOWN_CHARACTERS,
    AppendResult,
    ConversationSummary,
    EventCount,
    PendingBody,
    ReceivedTrace,
    StoredTrace,
    StoreTotals,
    TracePage,
    TraceSelection,
    TraceState,
    TraceSummary,
    build_summary,
    check_page_limit,
    decode_page_key,
    encode_page_key,
)
from ragfault.apps.watch.server.storage.store_engine import (
    MAX_RESPONSE_ROWS,
    DatabaseConnection,
    StoreEngine,
    decode_scores,
    decode_trace,
    decode_verdicts,
    encode_json,
)
from ragfault.model.records import Trace

READ_BATCH = 256
"""Number of traces that are in memory at once."""

SPANS_KIND = "spans"
"""The kind of the pending bodies, of which there is one."""

EXTRA_SHARE = 0.1
"""Share of the traces that is deleted beyond the excess when the store is too large."""


class TraceRevision(NamedTuple):
    """The traces of a request that take the place of an earlier version of theirs."""

    ids: frozenset[str]
    # with which outcomes were counted: the counts of the earlier version are taken back
    cohort_fields: tuple[str, ...] = ()
    limit_cohorts: Callable[[Trace, Sequence[str]], Trace] = lambda trace, _: trace


NO_REVISION = TraceRevision(frozenset())


class AppendRequest(NamedTuple):
    """Traces, and the numbers of the pending bodies to delete with them."""

    traces: Sequence[Trace]
    released: Sequence[int] = ()
    counted: tuple[int, str] | None = None
    revision: TraceRevision = NO_REVISION


class TraceTables(StoreEngine):
    """The traces of a store, and the bodies that are not yet traces."""

    TEXT_MATCH: ClassVar[str]
    """The condition that {column} contains the parameter `text` in any case."""
    SUBSTRING: ClassVar[str] = "substring"
    FIRST_BY_TIME: ClassVar[str] = "arg_min(t.query, t.time)"
    """The query of the first trace of a group."""
    PENDING: ClassVar[str] = "pending"
    """The table expression of the pending bodies."""
    _schema: int
    _judged_floor: int = 0
    """No trace up to this number is without an outcome."""

    def append_traces(
        self,
        traces: Sequence[Trace],
        released: Sequence[int] = (),
        counted: tuple[int, str] | None = None,
        revision: TraceRevision = NO_REVISION,
    ) -> Future[AppendResult]:
        """Add traces, each once by its id, and delete the pending bodies with the numbers `released`.

        `counted` is a minute and a name: new traces are counted as "taken" there, replaced ones as "reopened" and the
        others by that name, in the same transaction, so that a kill loses no count of what was acknowledged. A trace of
        `revision` that differs from the stored one replaces it, with its verdicts, scores and roll-ups, and waits to be
        judged again; labels and comments stay.
        """
        return self.submit_batch(self._append_requests, AppendRequest(traces, released, counted, revision))

    def _append_requests(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Add the traces of several requests.

        Pending bodies go last: after a kill in between, they produce the same traces again, which are duplicates.
        """
        ids = dict.fromkeys(trace.id for request in requests for trace in request.traces)
        stored = self._find_present(list(ids))
        present = set(stored)
        new: list[Trace] = []
        results: list[AppendResult] = []
        counts: Counter[tuple[str, int]] = Counter()
        for traces, _, counted, revision in requests:
            revised, same = self._replace_traces([trace for trace in traces if trace.id in stored], revision)
            stored -= revised
            new += [trace for trace in traces if trace.id in revised]
            before = len(new)
            for trace in traces:
                if trace.id not in present:
                    present.add(trace.id)
                    new.append(trace)
            added = len(new) - before
            result = AppendResult(added, len(traces) - added - len(revised) - len(same), len(revised))
            results.append(result)
            if counted is not None:
                counts["taken", counted[0]] += added
                counts["reopened", counted[0]] += result.replaced
                counts[counted[1], counted[0]] += result.duplicates
        if new:
            self._insert_traces(self._build_columns(new))
        rows = [EventCount(name, minute, count) for (name, minute), count in counts.items() if count]
        if rows:
            self.writer.insert("counts", to_columns(rows, EventCount._fields))
        released = [number for request in requests for number in request.released]
        if released:
            self._release_pending(released)
        return results

    def _replace_traces(
        self,
        traces: Sequence[Trace],  # noqa: ARG002
        revision: TraceRevision,  # noqa: ARG002
    ) -> tuple[set[str], set[str]]:
        """Delete the stored versions of the traces of a revision that differ from them.

        Return the ids of these, and of those that are stored as they are. An engine without transactions keeps the
        stored versions.
        """
        return set(), set()

    def _build_columns(self, traces: Sequence[Trace]) -> dict[str, list[Any]]:
        now = time.time()
        return {
            "number": [next(self._numbers) for _ in traces],
            "id": [trace.id for trace in traces],
            # apart by a microsecond, so that a part of one request can expire
            "received": [now + 1e-6 * i for i in range(len(traces))],
            "time": [get_trace_time(trace, now) for trace in traces],
            "route": [trace.route or "" for trace in traces],
            "model": [trace.model for trace in traces],
            "conversation": [trace.conversation for trace in traces],
            "query": [trace.query for trace in traces],
            "answer": [trace.answer for trace in traces],
            "error": [trace.error for trace in traces],
            "body": [encode_json(trace).decode() for trace in traces],
        }

    @abstractmethod
    def _find_present(self, ids: Sequence[str]) -> set[str]:
        """Return the ids that the store has."""

    @abstractmethod
    def _insert_traces(self, columns: dict[str, list[Any]]) -> None: ...

    @abstractmethod
    def _release_pending(self, numbers: Sequence[int]) -> None: ...

    def add_pending(self, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        """Add bodies of spans that are not yet traces; return their numbers."""
        return self.submit_batch(self._add_pending_requests, bodies)

    def _add_pending_requests(self, requests: Sequence[Sequence[bytes]]) -> list[tuple[int, ...]]:
        numbers = [tuple(next(self._numbers) for _ in bodies) for bodies in requests]
        count = sum(map(len, numbers))
        self._insert_pending(
            {
                "number": [number for group in numbers for number in group],
                "received": [time.time()] * count,
                "kind": [SPANS_KIND] * count,
                "body": [bytes(body) for bodies in requests for body in bodies],
            }
        )
        return numbers

    def _insert_pending(self, columns: dict[str, list[Any]]) -> None:
        self.writer.insert("pending", columns)

    def delete_expired(self, *, before: float | None = None, max_bytes: int | None = None) -> Future[int]:
        """Delete the traces that arrived before a time, or the first to arrive until at most `max_bytes` are used.

        Arrival counts, which this machine wrote down, not the time of the trace, which its sender did: a clock that is
        wrong elsewhere deletes nothing and keeps nothing for ever. Return the number of deleted traces. Roll-ups stay:
        they contain numbers and no text.
        """
        return self.submit(lambda con: self._delete_expired(con, before, max_bytes))

    def _delete_expired(self, con: DatabaseConnection, before: float | None, max_bytes: int | None) -> int:
        deleted = 0
        if before is not None:
            deleted += self._delete_older(before)
        if max_bytes is not None and (used := self._measure_bytes(con)) > max_bytes:
            share = min(1.0, 1 - max_bytes / used + EXTRA_SHARE)
            count = int(con.fetch_value("SELECT count(*) FROM traces"))
            if count:
                at = min(count - 1, int(share * count))
                bound = con.fetch_value(
                    "SELECT received FROM traces ORDER BY received LIMIT 1 OFFSET {at:UInt64}", {"at": at}
                )
                deleted += self._delete_older(math.nextafter(bound, math.inf))
        return deleted

    @abstractmethod
    def _delete_older(self, bound: float) -> int:
        """Delete the traces that arrived before the bound; return their number."""

    @abstractmethod
    def _measure_bytes(self, con: DatabaseConnection) -> int:
        """Return the bytes on disk that are in use."""

    def list_traces(self, selection: TraceSelection) -> TracePage:
        """Return a page of a selection; following `next` lists each trace once.

        A page ends early where its lines would be more than MAX_PAGE_BYTES as JSON.
        Raises UsageError for a limit or a page key that is not valid.
        """
        check_page_limit(selection)
        where, parameters = self._build_conditions(selection)
        key, table = "time", "traces t"
        if selection.sort != "time":
            key, table = "value", "scores s"
            inner = "" if where == "true" else f" AND number IN (SELECT number FROM traces t WHERE {where})"
            where = "metric = {sort:String}" + inner
            parameters["sort"] = selection.sort
        sign, order = ("<", "DESC") if selection.order == "descending" else (">", "ASC")
        if selection.after is not None:
            parameters["last"], parameters["number"] = decode_page_key(selection.after)
            where += f" AND {key} {sign}= {{last:Float64}}"
            where += f" AND ({key} {sign} {{last:Float64}} OR number {sign} {{number:Int64}})"
        rows = self.reader.fetch_rows(
            f"SELECT number, {key} FROM {table} WHERE {where} "
            f"ORDER BY {key} {order}, number {order} LIMIT {{limit:UInt64}}",
            {**parameters, "limit": selection.limit + 1},
        )
        shown = rows[: selection.limit]
        lines: list[TraceSummary] = []
        summaries = self._load_summaries([number for number, _ in shown])
        size, last = 0, None
        for number, value in shown:
            line = summaries.get(number)
            size += 0 if line is None else len(encode_json(line)) + 1
            if size > MAX_PAGE_BYTES and lines:
                break
            lines += () if line is None else (line,)
            last = (value, number)
        is_last = last is None or (last[1] == shown[-1][0] and len(rows) <= selection.limit)
        return TracePage(lines=tuple(lines), next=None if is_last or last is None else encode_page_key(*last))

    def count_traces(self, selection: TraceSelection) -> int:
        """Count the traces of a selection, ignoring its limit."""
        where, parameters = self._build_conditions(selection)
        return int(self.reader.fetch_value(f"SELECT count(*) FROM traces t WHERE {where}", parameters))

    def list_conversations(self, until: float | None = None, limit: int = 50) -> tuple[ConversationSummary, ...]:
        """Return the conversations whose last trace is of before a time, the latest first."""
        before = "" if until is None else "HAVING max(t.time) < {until:Float64} "
        rows = self.reader.fetch_rows(
            "SELECT t.conversation, count(*), min(t.time), max(t.time), "
            f"sum(CASE WHEN coalesce(t.error, '') != '' THEN 1 ELSE 0 END), "
            f"{self.SUBSTRING}({self.FIRST_BY_TIME}, 1, {MAX_SHOWN_CHARACTERS}) FROM traces t "
            f"WHERE coalesce(t.conversation, '') != '' GROUP BY t.conversation {before}"
            "ORDER BY max(t.time) DESC, t.conversation LIMIT {limit:UInt64}",
            {"limit": limit} if until is None else {"limit": limit, "until": until},
        )
        return tuple(
            ConversationSummary(id=id, traces=turns, first=first, last=last, errors=int(errors), query=query)
            for id, turns, first, last, errors, query in rows
        )

    def list_routes(self) -> tuple[str, ...]:
        """Return the routes by name; an empty text for the traces without a route."""
        rows = self.reader.fetch_rows("SELECT DISTINCT route FROM traces ORDER BY route")
        return tuple(route for (route,) in rows)

    def _build_conditions(self, selection: TraceSelection) -> tuple[str, dict[str, Any]]:
        """Return the conditions of a selection on the table of traces as `t`, and their parameters."""
        parts, parameters = ["true"], {}
        for name, condition in (
            ("since", "t.time >= {since:Float64}"),
            ("until", "t.time < {until:Float64}"),
            ("route", "t.route = {route:String}"),
            ("model", "t.model = {model:String}"),
            ("conversation", "t.conversation = {conversation:String}"),
            ("judge", "t.number IN (SELECT number FROM outcomes WHERE judge = {judge:String})"),
        ):
            if (value := getattr(selection, name)) is not None:
                parts.append(condition)
                parameters[name] = value
        if selection.ids is not None:
            query = "SELECT number FROM ids WHERE id IN {among:Array(String)}"
            parts.append("t.number IN {numbers:Array(Int64)}")
            parameters["numbers"] = [number for (number,) in self.reader.fetch_among(query, selection.ids)]
        if selection.text:
            parts.append(self._build_text_condition())
            parameters["text"] = selection.text
        self._add_state_condition(selection.state, parts, parameters)
        if selection.metric is not None:
            inner = ["metric = {metric:String}"]
            parameters["metric"] = selection.metric
            for name, condition in (("low", "value >= {low:Float64}"), ("high", "value <= {high:Float64}")):
                if (value := getattr(selection, name)) is not None:
                    inner.append(condition)
                    parameters[name] = value
            parts.append(f"t.number IN (SELECT number FROM scores WHERE {' AND '.join(inner)})")
        return " AND ".join(parts), parameters

    def _build_text_condition(self) -> str:
        """Return the condition that id, query or answer contain the parameter `text`."""
        columns = ("t.id", "t.query", "coalesce(t.answer, '')")
        return f"({' OR '.join(self.TEXT_MATCH.replace('{column}', column) for column in columns)})"

    def _add_state_condition(self, state: TraceState | None, parts: list[str], parameters: dict[str, Any]) -> None:
        if state == "error":
            parts.append("coalesce(t.error, '') != ''")
        elif state == "waiting":
            parts.append(
                "coalesce(t.error, '') = '' AND t.number > {floor:Int64} AND t.number NOT IN "
                "(SELECT number FROM outcomes WHERE number > {floor:Int64})"
            )
            parameters["floor"] = self._judged_floor
        elif state is not None:
            parts.append("t.number IN (SELECT number FROM outcomes WHERE state = {state:String})")
            parameters["state"] = state

    def _load_summaries(self, numbers: Sequence[int]) -> dict[int, TraceSummary]:
        """Return the summaries of traces by number."""
        texts = ("model", "query", "answer", "error")
        shown = ", ".join(f"{self.SUBSTRING}({name}, 1, {MAX_SHOWN_CHARACTERS})" for name in texts)
        rows = self.reader.fetch_among(
            f"SELECT number, id, time, route, {shown} FROM traces WHERE number IN {{among:Array(Int64)}}", numbers
        )
        outcomes = self._load_outcomes(numbers)
        return {row[0]: build_summary(row, *outcomes.get(row[0], (None, {}))) for row in rows}

    @abstractmethod
    def _load_outcomes(self, numbers: Sequence[int]) -> dict[int, tuple[TraceState, dict[str, float]]]:
        """Return the states and values of the judged traces among some numbers."""

    def list_unscored(self, after: int = 0, limit: int = 256) -> Sequence[ReceivedTrace]:
        """Return traces without an outcome in the order of arrival, with numbers above `after`."""
        numbers = self.reader.fetch_rows(
            "SELECT number FROM traces WHERE number > {after:Int64} AND number NOT IN "
            "(SELECT number FROM outcomes WHERE number > {after:Int64}) ORDER BY number LIMIT {limit:UInt64}",
            {"after": max(after, self._judged_floor), "limit": limit},
        )
        received = self.load_received([number for (number,) in numbers])
        # all traces below the first unjudged one are judged, and need not be searched again
        if received and after <= self._judged_floor:
            self._judged_floor = max(self._judged_floor, received[0].number - 1)
        return received

    def read_latest_time(self) -> float:
        """Return the latest time of the last traces that came; 0 where there is none."""
        last = "SELECT time FROM traces ORDER BY number DESC LIMIT 20"
        return float(self.reader.fetch_value(f"SELECT max(time) FROM ({last}) AS last") or 0.0)

    def load_received(self, numbers: Iterable[int]) -> list[ReceivedTrace]:
        """Return traces in the order of their numbers."""
        query = "SELECT number, received, body FROM traces WHERE number IN {among:Array(Int64)}"
        rows = sorted(self.reader.fetch_among(query, list(numbers)), key=lambda row: row[0])
        return [ReceivedTrace(number, received, decode_trace(body)) for number, received, body in rows]

    def load_pending(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the pending bodies with these numbers that are there still."""
        query = f"SELECT number, body FROM {self.PENDING} WHERE number IN {{among:Array(Int64)}} ORDER BY number"
        return [body for _, body in self.reader.fetch_rows(query, {"among": list(numbers)}, as_bytes=("body",))]

    def get_trace(self, id: str) -> StoredTrace | None:
        """Return a trace with its outcome; None for an unknown id."""
        numbers = self.reader.fetch_rows("SELECT number FROM ids WHERE id = {id:String}", {"id": id})
        return next(self._load_stored([number for (number,) in numbers]), None)

    def iterate_judged(self, selection: TraceSelection) -> Iterator[StoredTrace]:
        """Iterate over the judged traces of a selection in the order of arrival, a bounded number in memory."""
        where, parameters = self._build_conditions(selection)
        after = 0
        while True:
            rows = self.reader.fetch_rows(
                f"SELECT number FROM traces t WHERE {where} AND number > {{after:Int64}} "
                f"AND number IN (SELECT number FROM outcomes) ORDER BY number LIMIT {MAX_RESPONSE_ROWS}",
                {**parameters, "after": after},
            )
            numbers = [number for (number,) in rows]
            for index in range(0, len(numbers), READ_BATCH):
                yield from self._load_stored(numbers[index : index + READ_BATCH])
            if len(numbers) < MAX_RESPONSE_ROWS:
                return
            after = numbers[-1]

    def load_latest(self, selection: TraceSelection, limit: int) -> list[StoredTrace]:
        """Return the latest judged traces of a selection, at most `limit`, in the order of arrival."""
        where, parameters = self._build_conditions(selection)
        rows = self.reader.fetch_rows(
            f"SELECT number FROM traces t WHERE {where} AND number IN (SELECT number FROM outcomes) "
            "ORDER BY number DESC LIMIT {limit:UInt64}",
            {**parameters, "limit": limit},
        )
        return list(self._load_stored([number for (number,) in rows]))

    def iterate_bodies(self, selection: TraceSelection, text: str, limit: int) -> Iterator[str]:
        """Iterate over the traces, as JSON, that contain a text among the `limit` latest ones of a selection."""
        where, parameters = self._build_conditions(selection)
        rows = self.reader.fetch_rows(
            f"SELECT number FROM traces t WHERE {where} ORDER BY time DESC, number DESC LIMIT {{limit:UInt64}}",
            {**parameters, "limit": min(limit, MAX_RESPONSE_ROWS)},
        )
        query = "SELECT body FROM traces WHERE number IN {among:Array(Int64)} AND "
        matches = self.TEXT_MATCH.replace("{column}", "body")
        for (body,) in self.reader.fetch_among(query + matches, [number for (number,) in rows], {"text": text}):
            yield body

    def _load_stored(self, numbers: Sequence[int]) -> Iterator[StoredTrace]:
        query = (
            "SELECT number, state, scored, verdicts, scores, gold FROM outcomes WHERE number IN {among:Array(Int64)}"
        )
        outcomes = {number: outcome for number, *outcome in self.reader.fetch_among(query, numbers)}
        for number, received, trace in self.load_received(numbers):
            if number not in outcomes:
                yield StoredTrace(trace=trace, received=received, state="error" if trace.error else "waiting")
                continue
            state, scored, verdicts, scores, gold = outcomes[number]
            yield StoredTrace(
                trace=trace,
                received=received,
                state=state,
                verdicts=decode_verdicts(verdicts),
                scores=decode_scores(scores),
                scored=scored,
                gold=gold or None,
            )

    def list_pending(self, after: int = 0) -> Sequence[PendingBody]:
        """Return up to 256 pending bodies in the order of arrival."""
        rows = self.reader.fetch_rows(
            f"SELECT number, received, body FROM {self.PENDING} WHERE number > {{after:Int64}} "
            "ORDER BY number LIMIT 256",
            as_bytes=("body",),
            parameters={"after": after},
        )
        return [PendingBody(*row) for row in rows]

    def compute_totals(self) -> StoreTotals:
        """Return the number, time range and size of the stored traces."""
        [[traces, oldest, newest]] = self.reader.fetch_rows("SELECT count(*), min(time), max(time) FROM traces")
        judged = self.reader.fetch_value("SELECT count(*) FROM outcomes")
        return StoreTotals(
            traces=traces,
            waiting=max(0, traces - judged),
            pending=self.reader.fetch_value(f"SELECT count(*) FROM {self.PENDING}"),
            oldest=oldest if traces else None,
            newest=newest if traces else None,
            bytes=self._measure_bytes(self.reader),
            schema=self._schema,
        )
