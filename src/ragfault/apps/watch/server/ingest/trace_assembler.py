"""Assembler that collects the spans of a trace until it is complete and then stores it.

Pending spans are stored before they are acknowledged, so that a killed server loses none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import msgspec
from msgspec.structs import replace

from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.ingest.incoming_traces import validate_trace
from ragfault.apps.watch.server.ingest.settling import (
    REOPEN_SECONDS,
    SPAN_TIMEOUT,
    RetainedSpans,
    RetainedTrace,
    SpanWait,
)
from ragfault.apps.watch.server.ingest.unread_paths import UnreadPathCounter
from ragfault.apps.watch.server.scoring.otlp_export import ORIGIN_KEY
from ragfault.apps.watch.server.storage.records import AppendResult
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.apps.watch.server.storage.traces import NO_REVISION, TraceRevision
from ragfault.io.field_values import InvalidRecord
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel.span_buffer import CollectedTrace, SpanBuffer
from ragfault.io.otel.span_tree import locate_origin
from ragfault.io.otel.spans import DecodedRequest, OtelSpan, SpanEvent
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.model.errors import OutputError
from ragfault.model.records import Trace

log = logging.getLogger("ragfault.server")

MAX_WAIT_SECONDS = 120.0
"""Seconds after the arrival of the first span after which a trace is stored even if incomplete."""
# seconds between checks for complete traces
POLL_SECONDS = 0.25
# traces stored at once
BATCH_SIZE = 512
# seconds before a failed write is retried
RETRY_SECONDS = 2.0
# bytes of spans that wait to be joined above which ingest answers 429
MAX_INCOMING_BYTES = 64_000_000
MAX_STEP_BYTES = 1_000_000
"""Bytes of the steps of a trace above which their texts are cut: they repeat what chunks and answer hold."""
# bytes of a trace of spans above which it is rejected even so
MAX_TRACE_BYTES = 8_000_000
# characters of these texts that are tried in turn
STEP_TEXT_LEVELS = (5000, 1000, 200, 20)


class SpanBatch(msgspec.Struct, frozen=True):
    """The spans and log events of one trace in one request."""

    trace: str
    operations: tuple[OtelSpan, ...] = ()
    events: tuple[SpanEvent, ...] = ()


EXCESS_REASON = "beyond the spans of one trace, of which the root, models and retrieval are kept"
"""Why spans are rejected in a partial success."""


class TraceAssembler(BackgroundThread):
    """Collects spans until their trace is complete, then stores it; at shutdown, the other spans stay pending.

    Spans of a stored trace stay pending for ten minutes: where more come, the trace is built again, replaces the stored
    one, and is judged again.
    """

    def __init__(
        self,
        store: TraceStore,
        counters: EventCounters,
        on_stored: Callable[[AppendResult], None],
        redact: Callable[[Trace], Trace],
        span_timeout: float = SPAN_TIMEOUT,
        *,
        keep_origins: bool = False,
        revise: TraceRevision = NO_REVISION,
        unread: UnreadPathCounter | None = None,
    ) -> None:
        self._store, self._counters, self._on_stored, self._redact = store, counters, on_stored, redact
        self._keep_origins, self._revise = keep_origins, revise
        self._unread = UnreadPathCounter(counters) if unread is None else unread
        self.wait = SpanWait(span_timeout)
        self._window = SpanBuffer(span_timeout, max(span_timeout, MAX_WAIT_SECONDS))
        self._poll_seconds = min(POLL_SECONDS, span_timeout)
        self._incoming: SimpleQueue[tuple[int, int, SpanBatch]] = SimpleQueue()
        """Number and bytes of pending bodies, and what they hold."""
        self._incoming_bytes, self._lock = 0, threading.Lock()
        self._incoming_spans: Counter[str] = Counter()
        """Trace id → number of its spans in the queue."""
        self.pending_bodies = 0
        """The number of bodies whose trace is not stored yet."""
        self._pending: dict[str, list[tuple[int, int]]] = {}
        """Trace id → numbers and bytes of its pending bodies in the store."""
        self._retained = RetainedSpans()
        self._reopened: set[str] = set()
        """Open traces that replace a stored one."""
        super().__init__("ragfault-assembler")

    def start(self) -> None:
        """Resume with the spans that were pending at the last stop, and start the thread."""
        after = 0
        while bodies := self._store.list_pending(after):
            for pending in bodies:
                batch = msgspec.msgpack.decode(pending.body, type=SpanBatch)
                self._reopened.add(batch.trace)
                self._count_pending(1)
                self._put_incoming(pending.number, len(pending.body), batch)
                after = pending.number
            self._run_round(time.monotonic())
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
        bodies = [msgspec.msgpack.encode(batch) for batch in packed]
        sizes = list(map(len, bodies))
        with self._lock:
            self.pending_bodies += len(bodies)
            for batch in packed:
                self._incoming_spans[batch.trace] += len(batch.operations)
        future = self._store.add_pending(bodies)
        future.add_done_callback(lambda done: self._enqueue(done, sizes, packed))
        return future

    def select_spans(self, decoded: DecodedRequest) -> DecodedRequest:
        """Reject the spans beyond those that a trace may have, but its root and the calls of models and retrieval."""
        counts: dict[str, int] = {}
        accepted: list[OtelSpan] = []
        for span in decoded.spans:
            count = counts.get(span.trace)
            if count is None:
                count = self._window.count_spans(span.trace) + self._incoming_spans[span.trace]
            has_room = self._window.has_room(span, count)
            counts[span.trace] = count + has_room
            if has_room:
                accepted.append(span)
        excess = len(decoded.spans) - len(accepted)
        if not excess:
            return decoded
        self._counters.add("over", excess)
        return decoded._replace(spans=tuple(accepted), rejected={**decoded.rejected, EXCESS_REASON: excess})

    def _enqueue(self, future: Future[tuple[int, ...]], sizes: list[int], packed: list[SpanBatch]) -> None:
        if future.exception() is not None:
            with self._lock:
                self.pending_bodies -= len(packed)
                for batch in packed:
                    self._forget_incoming(0, batch)
        else:
            for number, size, batch in zip(future.result(), sizes, packed, strict=True):
                self._put_incoming(number, size, batch)

    def _put_incoming(self, number: int, size: int, batch: SpanBatch) -> None:
        with self._lock:
            self._incoming_bytes += size
        self._incoming.put((number, size, batch))

    def _forget_incoming(self, size: int, batch: SpanBatch) -> None:
        """Count a batch out of the queue, with the lock held."""
        self._incoming_bytes -= size
        self._incoming_spans[batch.trace] -= len(batch.operations)
        if self._incoming_spans[batch.trace] <= 0:
            del self._incoming_spans[batch.trace]

    def _count_pending(self, more: int) -> None:
        with self._lock:
            self.pending_bodies += more

    @property
    def is_full(self) -> bool:
        """True while MAX_INCOMING_BYTES of spans or more wait to be joined."""
        return self._incoming_bytes >= MAX_INCOMING_BYTES

    @property
    def incomplete(self) -> int:
        """The number of incomplete traces."""
        return len(self._window)

    def _run(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            try:
                self._run_round(time.monotonic())
            except Exception:
                # a failed round is logged and tried again; no span is lost
                log.exception("spans cannot be joined")

    def _run_round(self, now: float) -> None:
        """Add the spans that arrived, and store complete traces."""
        spare = self._add_incoming(now)
        self._count_pending(-len(spare))
        self._window.settle_time = self.wait.seconds
        joined = self._window.pop_finished(now)
        for first in range(0, len(joined), BATCH_SIZE):
            self._store_traces(joined[first : first + BATCH_SIZE], now)
        if spare := [*spare, *self._retained.pop_expired(now)]:
            self._append_with_retry([], spare)

    def _add_incoming(self, now: float) -> list[int]:
        """Add the spans that arrived; return the numbers of pending bodies that came too late for their trace."""
        counts, spare = self._window.counts, []
        late, over = counts.late, counts.over_limit
        while True:
            try:
                number, size, packed = self._incoming.get_nowait()
            except Empty:
                break
            self._reopen(packed, now)
            self._window.add(packed.operations, now, packed.events)
            with self._lock:
                self._forget_incoming(size, packed)
            if packed.trace in self._window:
                self._pending.setdefault(packed.trace, []).append((number, size))
            else:
                spare.append(number)
        self._counters.add("late", counts.late - late)
        self._counters.add("over", counts.over_limit - over)
        return spare

    def _reopen(self, packed: SpanBatch, now: float) -> None:
        """Put the spans of a stored trace back, where further ones came for it."""
        if (retained := self._retained.pop(packed.trace)) is None:
            return
        if packed.operations and retained.root_seen is not None:
            self.wait.add(now - retained.root_seen)
        self._window.reopen(packed.trace)
        for body in self._store.load_pending(retained.numbers):
            batch = msgspec.msgpack.decode(body, type=SpanBatch)
            self._window.add(batch.operations, now, batch.events)
        self._pending[packed.trace] = [(number, 0) for number in retained.numbers]
        self._reopened.add(packed.trace)
        self._count_pending(len(retained.numbers))

    def _store_traces(self, joined: list[CollectedTrace], now: float) -> None:
        """Store complete traces, and keep their spans for a while."""
        traces = [trace for collected in joined if (trace := self._build_trace(collected)) is not None]
        appended = self._append_with_retry(traces, [], frozenset(item.trace for item in joined) & self._reopened)
        for item in joined:
            if item.trace not in self._reopened and item.root_seen is not None:
                self.wait.add(item.last_seen - item.root_seen)
            self._reopened.discard(item.trace)
            bodies = self._pending.pop(item.trace, [])
            self._count_pending(-len(bodies))
            numbers, size = tuple(number for number, _ in bodies), sum(size for _, size in bodies)
            self._retained.add(item.trace, RetainedTrace(numbers, size, now + REOPEN_SECONDS, item.root_seen))
        self._counters.add_stored("late", appended.duplicates)
        self._counters.add_stored("reopened", appended.replaced)
        self._counters.add_stored("taken", appended.added)
        self._on_stored(appended)

    def _append_with_retry(
        self, traces: list[Trace], numbers: list[int], revised: frozenset[str] = frozenset()
    ) -> AppendResult:
        """Append traces, retrying while the store is unavailable; at shutdown only once."""
        while True:
            try:
                counted = (self._counters.minute, "late")
                revision = self._revise._replace(ids=revised)
                return self._store.append_traces(traces, numbers, counted, revision).result()
            except OutputError as error:
                if self._stopping.is_set():
                    raise
                log.error("traces cannot be stored: %s", error)
                self._stopping.wait(RETRY_SECONDS)

    def _build_trace(self, joined: CollectedTrace) -> Trace | None:
        """Build a trace from spans; None, and counted, if it is not of a RAG system or is invalid."""
        try:
            return self._convert_spans(joined)
        except Exception as error:
            # unexpected spans lose no other trace
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
        self._unread.add_spans(joined, trace)
        if self._keep_origins:
            origin = {ORIGIN_KEY: msgspec.to_builtins(locate_origin(joined.spans))}
            trace = replace(trace, metadata={**trace.metadata, **origin})
        if problem := validate_trace(trace):
            raise InvalidRecord(problem)
        return self._redact(limit_size(trace))


def limit_size(trace: Trace) -> Trace:
    """Cut the texts of the steps of a trace that is too large; raises InvalidRecord where that is not enough.

    >>> from ragfault.model.records import Step
    >>> steps = tuple(Step(id=str(at), output="x" * 9000) for at in range(200))
    >>> len(limit_size(Trace(id="a", query="?", steps=steps)).steps[0].output)
    1006
    """
    for most in STEP_TEXT_LEVELS:
        if len(msgspec.json.encode(trace.steps)) <= MAX_STEP_BYTES:
            break
        steps = (
            replace(step, input=_cut_text(step.input, most), output=_cut_text(step.output, most))
            for step in trace.steps or ()
        )
        trace = replace(trace, steps=tuple(steps))
    if (size := len(msgspec.json.encode(trace))) > MAX_TRACE_BYTES:
        raise InvalidRecord(f"the trace has {size:,} bytes, at most {MAX_TRACE_BYTES:,} are taken")
    return trace


def _cut_text(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else f"{text[:most]} (cut)"
