"""Buffer that collects spans until their trace is complete, and the reader of span files that uses it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ragfault.io.accounts import RecordAccount, cut_lists, format_unread
from ragfault.io.decoder import ReadOptions
from ragfault.io.error_collector import ErrorCollector
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import detect_shape, list_shapes
from ragfault.io.formats.texts import LONGEST_VALUE
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel.exported_spans import read_exported_spans
from ragfault.io.otel.otlp import read_logs_json, read_spans_json
from ragfault.io.otel.semantic_conventions import detect_role
from ragfault.io.otel.spans import DEFAULT_LIMITS, DecodedRequest, OtelSpan, SpanEvent, choose_fuller_span
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.otel.tracing_platforms import read_langfuse_record, read_langfuse_score, read_langsmith_run
from ragfault.io.payloads.json_records import parse_record
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

ReleaseReason = Literal["settled", "expired", "crowded"]
"""Reason of releasing a trace: its root arrived and it settled; it was open too long; memory was needed."""
ESSENTIAL_ROLES = ("llm", "retriever", "reranker")
"""Roles of the spans that a trace of very many spans keeps."""
RECORD_OVERHEAD = 400
"""Estimated bytes of a span or an event without its texts."""


class CollectedTrace(NamedTuple):
    """The spans and log records of one trace."""

    trace: str
    spans: tuple[OtelSpan, ...]
    """By their start."""
    events: tuple[SpanEvent, ...]
    reason: ReleaseReason
    root_seen: float | None = None
    """Arrival of the root span; None: the root did not come."""
    last_seen: float = 0.0
    """Arrival of the last span."""


class SpanCounts(Struct):
    """Counters of received spans and released traces."""

    accepted: int = 0
    """Spans and events that were accepted."""
    duplicates: int = 0
    """Spans and events that were received before."""
    late: int = 0
    """Spans and events of traces that were released already."""
    over_limit: int = 0
    """Spans and events beyond the limit of one trace."""
    without_trace: int = 0
    """Events that name no trace."""
    settled: int = 0
    """Traces released with their root."""
    expired: int = 0
    """Traces released without their root, or after `max_wait`."""
    crowded: int = 0
    """Traces released early, to free memory."""


class OpenTrace(Struct):
    """A trace that is not complete."""

    first_seen: float
    """Arrival of the first span."""
    root_seen: float | None = None
    """Arrival of the root span."""
    last_seen: float = 0.0
    """Arrival of the last span."""
    spans: dict[str, OtelSpan] = field(default_factory=dict)
    events: dict[bytes, SpanEvent] = field(default_factory=dict)
    """By the hash of their content."""
    size: int = 0


class SpanBuffer:
    """Buffer in which spans wait for the others of their trace.

    A trace is released `settle_time` seconds after its root came, or `max_wait` after its first span, or early where
    the open traces exceed `max_bytes`. Beyond `max_spans` spans it keeps the root, and as many spans of models and
    retrieval again. Spans of the last `max_released` traces count as late. Times are given, never taken from a clock:
    the same calls make the same traces.

    >>> buffer = SpanBuffer(settle_time=5)
    >>> buffer.add([OtelSpan(trace="a", id="2", parent="1", start=3)], now=0)
    >>> buffer.add([OtelSpan(trace="a", id="1", start=1), OtelSpan(trace="a", id="1", start=1)], now=1)
    >>> buffer.pop_finished(now=2), buffer.counts.duplicates
    ([], 1)
    >>> [collected] = buffer.pop_finished(now=6)
    >>> collected.trace, [span.id for span in collected.spans], collected.reason
    ('a', ['1', '2'], 'settled')
    """

    def __init__(
        self,
        settle_time: float = 10.0,
        max_wait: float = 600.0,
        *,
        max_bytes: int = 256 * 2**20,
        max_spans: int = 5_000,
        max_released: int = 100_000,
    ) -> None:
        self.settle_time, self.max_wait = settle_time, max_wait
        self.max_bytes, self.max_spans, self.max_released = max_bytes, max_spans, max_released
        self.counts = SpanCounts()
        self.size = 0
        """Estimated bytes of all open traces."""
        self._open_traces: OrderedDict[str, OpenTrace] = OrderedDict()
        self._rooted_traces: OrderedDict[str, None] = OrderedDict()
        self._deadlines: list[tuple[float, str]] = []
        self._released: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open_traces)

    def __contains__(self, trace: str) -> bool:
        """Tell whether a trace of that id is open."""
        return trace in self._open_traces

    def add(self, spans: Iterable[OtelSpan], now: float, events: Iterable[SpanEvent] = ()) -> None:
        """Add spans, and log records that name a trace."""
        for span in spans:
            trace = self._get_open_trace(span.trace, now)
            if trace is not None:
                self._add_span(trace, span, now)
        for event in events:
            self._add_event(event, now)

    def pop_finished(self, now: float) -> list[CollectedTrace]:
        """Release the traces that are due, in order, then those that exceed the memory limit."""
        released = []
        while self._deadlines and self._deadlines[0][0] <= now:
            due, name = heappop(self._deadlines)
            trace = self._open_traces.get(name)
            if trace is not None and (deadline := self._get_deadline(trace)) > due:
                # `settle_time` has grown since
                heappush(self._deadlines, (deadline, name))
            elif trace is not None:
                settled = trace.root_seen is not None and trace.root_seen + self.settle_time <= due
                released.append(self._release(name, "settled" if settled else "expired"))
        while self.size > self.max_bytes and self._open_traces:
            released.append(self._release(next(iter(self._rooted_traces or self._open_traces)), "crowded"))
        return released

    def count_spans(self, trace: str) -> int:
        """Return the number of spans and events of an open trace; 0 for any other."""
        known = self._open_traces.get(trace)
        return 0 if known is None else len(known.spans) + len(known.events)

    def has_room(self, span: OtelSpan, count: int) -> bool:
        """Tell whether a trace of `count` spans takes one more: see `max_spans`."""
        if count < self.max_spans or span.parent is None:
            return True
        return count < 2 * self.max_spans and detect_role(span) in ESSENTIAL_ROLES

    def reopen(self, trace: str) -> None:
        """Accept spans of a released trace again: the caller adds its earlier spans, too."""
        self._released.pop(trace, None)

    def flush(self) -> Iterator[CollectedTrace]:
        """Release all open traces, the oldest first."""
        for name in list(self._open_traces):
            rooted = self._open_traces[name].root_seen is not None
            yield self._release(name, "settled" if rooted else "expired")

    def _get_open_trace(self, name: str, now: float) -> OpenTrace | None:
        """Return the open trace of that name; None for one that was released."""
        trace = self._open_traces.get(name)
        if trace is None:
            if name in self._released:
                self.counts.late += 1
                return None
            trace = self._open_traces[name] = OpenTrace(now)
            heappush(self._deadlines, (now + self.max_wait, name))
        return trace

    def _add_span(self, trace: OpenTrace, span: OtelSpan, now: float) -> None:
        known = trace.spans.get(span.id)
        if known is not None:
            self.counts.duplicates += 1
            if known == span or choose_fuller_span(known, span) is known:
                return
            self._add_size(trace, -estimate_record_size(known))
        elif not self.has_room(span, len(trace.spans) + len(trace.events)):
            self.counts.over_limit += 1
            return
        else:
            self.counts.accepted += 1
        trace.spans[span.id] = span
        trace.last_seen = now
        self._add_size(trace, estimate_record_size(span))
        if span.parent is None and trace.root_seen is None:
            trace.root_seen = now
            self._rooted_traces[span.trace] = None
            heappush(self._deadlines, (self._get_deadline(trace), span.trace))

    def _add_event(self, event: SpanEvent, now: float) -> None:
        if not event.trace.strip("0"):
            self.counts.without_trace += 1
            return
        trace = self._get_open_trace(event.trace, now)
        if trace is None:
            return
        key = blake2b(msgspec.msgpack.encode(event), digest_size=16).digest()
        if key in trace.events:
            self.counts.duplicates += 1
            return
        if len(trace.spans) + len(trace.events) >= self.max_spans:
            self.counts.over_limit += 1
            return
        self.counts.accepted += 1
        trace.events[key] = event
        self._add_size(trace, estimate_record_size(event))

    def _add_size(self, trace: OpenTrace, size: int) -> None:
        trace.size += size
        self.size += size

    def _get_deadline(self, trace: OpenTrace) -> float:
        longest = trace.first_seen + self.max_wait
        return longest if trace.root_seen is None else min(longest, trace.root_seen + self.settle_time)

    def _release(self, name: str, reason: ReleaseReason) -> CollectedTrace:
        trace = self._open_traces.pop(name)
        self._rooted_traces.pop(name, None)
        self.size -= trace.size
        self._released[name] = None
        while len(self._released) > self.max_released:
            self._released.popitem(last=False)
        setattr(self.counts, reason, getattr(self.counts, reason) + 1)
        spans = sorted(trace.spans.values(), key=lambda span: (span.start, -span.end, span.id))
        events = sorted(trace.events.items(), key=lambda pair: (pair[1].time, pair[0]))
        if len(self._deadlines) > 1000 + 4 * len(self._open_traces):
            self._rebuild_deadlines()
        ordered = tuple(event for _, event in events)
        return CollectedTrace(name, tuple(spans), ordered, reason, trace.root_seen, trace.last_seen)

    def _rebuild_deadlines(self) -> None:
        """Rebuild the deadlines without released traces."""
        self._deadlines = [(self._get_deadline(trace), name) for name, trace in self._open_traces.items()]
        heapify(self._deadlines)


def estimate_record_size(record: OtelSpan | SpanEvent) -> int:
    """Estimate the bytes that a record takes."""
    size = RECORD_OVERHEAD + len(record.name) + _estimate_value_size(record.attributes)
    if isinstance(record, OtelSpan):
        size += (
            len(record.message) + _estimate_value_size(record.resource) + sum(map(estimate_record_size, record.events))
        )
    return size


def _estimate_value_size(value: object) -> int:
    if isinstance(value, str):
        return 64 + len(value)
    if isinstance(value, dict):
        size = 64 + 64 * len(value) + sum(map(len, value))
        for item in value.values():
            if type(item) is str:
                size += len(item)
            elif isinstance(item, (dict, list)):
                size += _estimate_value_size(item) - 64
        return size
    return 64 + sum(map(_estimate_value_size, value)) if isinstance(value, list) else 64


SETTLE_SPANS, MAX_WAIT_SPANS = 50_000, 200_000
"""Spans read after the root of a trace, or after its first span, before it counts as complete."""
OTLP_READERS = {"resourceSpans": read_spans_json, "resourceLogs": read_logs_json}
"""Readers by the key that a line of the collector's file exporter has."""


SPAN_READERS = {"langfuse": read_langfuse_record, "langsmith": read_langsmith_run, "otlp": read_exported_spans}
"""Shape → reader of one record."""


def contains_spans(payload: Any, options: ReadOptions) -> bool | None:
    """Tell whether a line, a row or the header of a table is one of spans; None where that is unclear.

    >>> contains_spans(b'{"resourceSpans": []}', ReadOptions({}, None, None, 100))
    True
    """
    if options.shape is not None or options.column_map:
        return options.shape is not None and options.shape.spans
    if isinstance(payload, bytes):
        try:
            payload = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    if not isinstance(payload, (dict, list)):
        return None
    shape = detect_shape(map(str, payload))
    return shape is not None and shape.spans


class SpanFileReader:
    """Collects the spans of files into traces and reports bad lines and traces.

    Its window counts spans in the place of seconds, so that the same files make the same traces.
    """

    def __init__(self, options: ReadOptions, collector: ErrorCollector) -> None:
        self.options, self.collector = options, collector
        self.buffer = SpanBuffer(SETTLE_SPANS, MAX_WAIT_SPANS)
        self.limits = DEFAULT_LIMITS._replace(body=options.max_line, spans=10**6, nodes=10**7)
        self.locations: dict[str, tuple[str, int]] = {}
        self.unrelated_count = self.lone_event_count = 0
        self.exports, self.traces = RecordAccount(options.unread), RecordAccount(options.unread)
        """What of the first lines no span holds, and what of the spans no trace does."""
        self.sampled_count = 0
        self.records_answers = False
        """Whether some trace has had an answer."""
        self.waiting: list[Trace] = []
        """Traces before the first with an answer."""

    def read_file(self, name: str, payloads: Iterable[tuple[int, Any]]) -> Iterator[Trace]:
        """Yield the traces that are complete while the file is read."""
        if self.options.column_map:
            raise InputError('a column map has no say over spans: leave out --map, or give --shape "otlp"')
        last = 0
        for number, payload in payloads:
            if number == 0:
                continue
            last = number if number > 0 else last + 1
            try:
                self._add_payload(name, last, payload)
            except (InvalidRecord, InputError) as wrong:
                self.collector.report(name, last, str(wrong), payload)
                self._check_recognized(name)
            yield from self._build_traces(self.buffer.pop_finished(self.buffer.counts.accepted))

    def read_remaining(self) -> Iterator[Trace]:
        """Yield the remaining traces. Raises `InputError` where no trace had to do with RAG."""
        yield from self._build_traces(self.buffer.flush())
        yield from (replace(trace, answer=None) for trace in self.waiting)
        lone_count = self.lone_event_count + self.buffer.counts.without_trace
        if lone_count:
            self.options.notify(f"not read, ratings and log records of no trace of these files: {lone_count:,}")
        if self.buffer.counts.over_limit:
            beyond = f"spans and events beyond {self.buffer.max_spans:,} of one trace"
            self.options.notify(f"not read, {beyond}: {self.buffer.counts.over_limit:,}")
        unread = {**self.exports.unread, **self.traces.unread}
        if texts := {path: size for path, size in unread.items() if size > LONGEST_VALUE}:
            self.options.notify(f"not read of the spans: {format_unread(texts)}")
        if self.unrelated_count and not self.collector.good_count and not self.collector.bad_count:
            raise InputError(
                f"{self.unrelated_count:,} {'trace' if self.unrelated_count == 1 else 'traces'} of spans, and none of "
                "a RAG system: no span says that it retrieves or asks a model (docs/spans.md names the attributes)"
            )

    def _add_payload(self, name: str, line: int, payload: Any) -> None:
        if isinstance(payload, InvalidRecord):
            raise payload
        request = self._decode_payload(payload)
        if self.sampled_count < MAX_SAMPLED:
            self.sampled_count += 1
            self._account_for_export(payload)
        late = self.buffer.counts.late
        self.buffer.add(request.spans, self.buffer.counts.accepted, request.events)
        for span in request.spans:
            if span.parent is None or span.trace not in self.locations:
                self.locations[span.trace] = (name, line)
        if request.rejected_count:
            self.collector.report(name, line, request.message, payload)
        late = self.buffer.counts.late - late
        if late:
            self.collector.report(
                name,
                line,
                f"{late:,} spans stand more than {SETTLE_SPANS:,} spans after the root of their trace, which was read "
                "without them: sort the file by time",
                payload,
            )

    def _account_for_export(self, payload: Any) -> None:
        """Enter a line in the account: what no span or event holds is not read."""
        record = cut_lists(parse_record(payload) if isinstance(payload, bytes) else payload)

        def read(record: Any) -> list[Any]:
            request = self._decode_payload(record)
            return [*request.spans, *request.events, *request.rejected]

        self.exports.add(record, read(record), read)

    def _decode_payload(self, payload: Any) -> DecodedRequest:
        """Decode a line or row. Raises `InvalidRecord` or `InputError`."""
        if isinstance(payload, bytes):
            for key, read in OTLP_READERS.items():
                if key.encode() in payload[:200]:
                    self.options.notify(f"read as {list_shapes()['otlp'].title}")
                    return read(payload, self.limits)
            payload = parse_record(payload)
        shape = self.options.shape or detect_shape(map(str, payload))
        shape = shape if shape is not None and shape.name in SPAN_READERS else list_shapes()["otlp"]
        self.options.notify(f"read as {shape.title}")
        for key, read in OTLP_READERS.items():
            if key in payload:
                return read(msgspec.json.encode(payload), self.limits)
        if shape.name == "langfuse" and (score := read_langfuse_score(payload)) is not None:
            return DecodedRequest(events=(score,))
        return DecodedRequest() if "resourceMetrics" in payload else DecodedRequest(SPAN_READERS[shape.name](payload))

    def _check_recognized(self, name: str) -> None:
        """Give up on files whose first lines are all no spans; raises `InputError`."""
        if len(self.collector.bad_lines) >= 20 and not self.collector.good_count and not self.buffer.counts.accepted:
            raise InputError(f"{name}: {self.collector.bad_lines[-1].problem}")

    def _build_traces(self, collected: Iterable[CollectedTrace]) -> Iterator[Trace]:
        for joined in collected:
            name, line = self.locations.pop(joined.trace, ("spans", 0))
            try:
                trace = build_trace(joined.spans, joined.events)
                trace = trace and normalize_trace(trace, check=True)
            except InvalidRecord as wrong:
                self.collector.report(name, line, str(wrong), joined.spans)
                continue
            if not joined.spans:
                self.lone_event_count += len(joined.events)
            elif trace is None:
                self.unrelated_count += 1
            elif self.collector.accept(trace, name, line, joined.spans):
                account_for_spans(self.traces, joined, trace)
                yield from self._settle_blank(trace)

    def _settle_blank(self, trace: Trace) -> Iterable[Trace]:
        """Hold traces back until one has an answer: before, an empty output may be one that is never recorded."""
        if self.records_answers:
            return (trace,)
        self.waiting.append(trace)
        self.records_answers = bool(trace.answer)
        if not self.records_answers and len(self.waiting) < MAX_WAITING:
            return ()
        waiting, self.waiting = self.waiting, []
        return waiting if self.records_answers else [replace(item, answer=None) for item in waiting]


MAX_WAITING = 1000
"""Traces without an answer that show that none is recorded."""
MAX_SAMPLED = 3
"""Lines of an export that are tried for what no span holds."""


MAX_SPANS = 200
"""Most spans of a trace that is built again to see what it depends on."""


def account_for_spans(account: RecordAccount, joined: CollectedTrace, trace: Trace) -> None:
    """Enter the spans and events of a trace in an account: what the trace does not depend on is not read.

    A trace of very many spans is left out, which takes long to build again.
    """
    if len(joined.spans) + len(joined.events) > MAX_SPANS:
        return
    record = msgspec.to_builtins({"spans": joined.spans, "events": joined.events})

    def read(record: Any) -> list[Any]:
        spans = msgspec.convert(record["spans"], tuple[OtelSpan, ...])
        built = build_trace(spans, msgspec.convert(record["events"], tuple[SpanEvent, ...]))
        return [built and normalize_trace(built, check=True)]

    account.add(record, [trace], read)
