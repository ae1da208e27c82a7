"""Assembler that collects the spans of a trace until it is complete and then stores it.

Pending spans are stored before they are acknowledged, so that a killed server loses none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import msgspec

from ragfault.errors import OutputError
from ragfault.io.field_values import InvalidRecord
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel import CollectedTrace, OtelSpan, SpanBuffer, SpanEvent, build_trace, locate_origin
from ragfault.records import Trace
from ragfault.server.background_thread import BackgroundThread
from ragfault.server.counters import EventCounters
from ragfault.server.ingest.incoming_traces import validate_trace
from ragfault.server.scoring.otlp_export import ORIGIN_KEY
from ragfault.server.storage import AppendResult, TraceStore

log = logging.getLogger("ragfault.server")

SPANS_KIND = "spans"
SETTLE_SECONDS = 2.0
"""Seconds after the arrival of the root span after which a trace is complete."""
MAX_WAIT_SECONDS = 120.0
"""Seconds after the arrival of the first span after which a trace is stored even if incomplete."""
POLL_SECONDS = 0.25
"""Seconds between checks for complete traces."""
BATCH_SIZE = 512
"""Traces stored at once."""
RETRY_SECONDS = 2.0
"""Seconds before a failed write is retried."""


class SpanBatch(msgspec.Struct, frozen=True):
    """The spans and log events of one trace in one request."""

    trace: str
    operations: tuple[OtelSpan, ...] = ()
    events: tuple[SpanEvent, ...] = ()


class TraceAssembler(BackgroundThread):
    """Collects spans until their trace is complete, then stores it; at shutdown, the other spans stay pending."""

    def __init__(
        self,
        store: TraceStore,
        counters: EventCounters,
        on_stored: Callable[[int], None],
        redact: Callable[[Trace], Trace],
        settle_seconds: float = SETTLE_SECONDS,
        *,
        keep_origins: bool = False,
    ) -> None:
        self._store, self._counters, self._on_stored, self._redact = store, counters, on_stored, redact
        self._keep_origins = keep_origins
        self._window = SpanBuffer(settle_seconds, max(settle_seconds, MAX_WAIT_SECONDS))
        self._poll_seconds = min(POLL_SECONDS, settle_seconds)
        self._incoming: SimpleQueue[tuple[int, SpanBatch]] = SimpleQueue()
        self._pending_numbers: dict[str, list[int]] = {}
        """Trace id → numbers of its pending bodies in the store."""
        super().__init__("ragfault-assembler")

    def start(self) -> None:
        """Resume with the spans that were pending at the last stop, and start the thread."""
        after = 0
        while bodies := self._store.list_pending(SPANS_KIND, after):
            for pending in bodies:
                self._incoming.put((pending.number, msgspec.msgpack.decode(pending.body, type=SpanBatch)))
                after = pending.number
            self._release_pending(self._add_incoming(time.monotonic()))
        super().start()

    def add_spans(self, operations: Iterable[OtelSpan], events: Iterable[SpanEvent] = ()) -> Future[tuple[int, ...]]:
        """Store spans and log events as pending; the Future resolves when they are durable."""
        parts: dict[str, tuple[list[OtelSpan], list[SpanEvent]]] = {}
        for operation in operations:
            parts.setdefault(operation.trace, ([], []))[0].append(operation)
        for event in events:
            if event.trace:
                parts.setdefault(event.trace, ([], []))[1].append(event)
        packed = [SpanBatch(name, tuple(spans), tuple(log_events)) for name, (spans, log_events) in parts.items()]
        future = self._store.add_pending(SPANS_KIND, [msgspec.msgpack.encode(batch) for batch in packed])
        future.add_done_callback(lambda done: self._enqueue(done, packed))
        return future

    def _enqueue(self, future: Future[tuple[int, ...]], packed: list[SpanBatch]) -> None:
        if future.exception() is None:
            for pair in zip(future.result(), packed, strict=True):
                self._incoming.put(pair)

    @property
    def incomplete(self) -> int:
        """The number of incomplete traces."""
        return len(self._window)

    def _run(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            try:
                self._run_round(time.monotonic())
            except Exception:  # a failed round is logged and tried again; no span is lost
                log.exception("spans cannot be joined")

    def _run_round(self, now: float) -> None:
        """Add the spans that arrived, and store complete traces."""
        spare = self._add_incoming(now)
        joined = self._window.pop_finished(now)
        for first in range(0, len(joined), BATCH_SIZE):
            self._store_traces(joined[first : first + BATCH_SIZE])
        self._release_pending(spare)

    def _add_incoming(self, now: float) -> list[int]:
        """Add the spans that arrived; return the numbers of pending bodies whose trace was stored already."""
        counts, spare = self._window.counts, []
        late, over = counts.late, counts.over_limit
        while True:
            try:
                number, packed = self._incoming.get_nowait()
            except Empty:
                break
            self._window.add(packed.operations, now, packed.events)
            if packed.trace in self._window:
                self._pending_numbers.setdefault(packed.trace, []).append(number)
            else:
                spare.append(number)
        self._counters.add("late", counts.late - late)
        self._counters.add("over", counts.over_limit - over)
        return spare

    def _store_traces(self, joined: list[CollectedTrace]) -> None:
        """Store complete traces and release their pending bodies."""
        traces = [trace for collected in joined if (trace := self._build_trace(collected)) is not None]
        numbers = [number for collected in joined for number in self._pending_numbers.pop(collected.trace, ())]
        appended = self._append_with_retry(traces, numbers)
        self._counters.add_stored("late", appended.duplicates)
        self._counters.add_stored("taken", appended.added)
        self._on_stored(appended.added)

    def _release_pending(self, numbers: list[int]) -> None:
        if numbers:
            self._append_with_retry([], numbers)

    def _append_with_retry(self, traces: list[Trace], numbers: list[int]) -> AppendResult:
        """Append traces, retrying while the store is unavailable; at shutdown only once."""
        while True:
            try:
                counted = (self._counters.minute, "late")
                return self._store.append_traces(traces, numbers, counted).result()
            except OutputError as error:
                if self._stopping.is_set():
                    raise
                log.error("traces cannot be stored: %s", error)
                self._stopping.wait(RETRY_SECONDS)

    def _build_trace(self, joined: CollectedTrace) -> Trace | None:
        """Build a trace from spans; None, and counted, if it is not of a RAG system or is invalid."""
        try:
            return self._convert_spans(joined)
        except Exception as error:  # unexpected spans lose no other trace
            if not isinstance(error, InvalidRecord):
                log.exception("spans cannot be read")
            self._counters.add("rejected")
        return None

    def _convert_spans(self, joined: CollectedTrace) -> Trace | None:
        trace = build_trace(joined.spans, joined.events)
        trace = trace and normalize_trace(trace, check=True)
        if trace is None:
            self._counters.add("not_rag")
            return None
        if self._keep_origins:
            origin = {ORIGIN_KEY: msgspec.to_builtins(locate_origin(joined.spans))}
            trace = msgspec.structs.replace(trace, metadata={**trace.metadata, **origin})
        if problem := validate_trace(trace):
            raise InvalidRecord(problem)
        return self._redact(trace)
