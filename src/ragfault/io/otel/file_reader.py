"""Reader of span files: collect the spans of one trace from many lines and files, and yield traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ragfault.errors import InputError
from ragfault.io.decoder import ReadOptions, parse_record
from ragfault.io.error_collector import ErrorCollector
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import SHAPES, SPAN_SHAPES, detect_shape
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel.exported_spans import read_exported_spans
from ragfault.io.otel.otlp import read_logs_json, read_spans_json
from ragfault.io.otel.span_buffer import CollectedTrace, SpanBuffer
from ragfault.io.otel.spans import DEFAULT_LIMITS, DecodedRequest
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.otel.tracing_platforms import read_langfuse_record, read_langsmith_run
from ragfault.records import Trace

SETTLE_SPANS, MAX_WAIT_SPANS = 50_000, 200_000
"""Spans read after the root of a trace, or after its first span, before it counts as complete."""

OTLP_READERS = {"resourceSpans": read_spans_json, "resourceLogs": read_logs_json}
"""Readers by the key that a line of the collector's file exporter has."""


SPAN_READERS = {
    "langfuse": read_langfuse_record,
    "langsmith": read_langsmith_run,
    "otlp": read_exported_spans,
}
"""Shape → reader of one record."""


def contains_spans(payload: Any, options: ReadOptions) -> bool | None:
    """Tell whether a line, a row or the header of a table is one of spans; None where that is unclear.

    >>> contains_spans(b'{"resourceSpans": []}', ReadOptions({}, None, None, 100))
    True
    """
    if options.shape is not None or options.column_map:
        return options.shape is not None and options.shape.name in SPAN_SHAPES
    if isinstance(payload, bytes):
        try:
            payload = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    if not isinstance(payload, (dict, list)):
        return None
    shape = detect_shape(map(str, payload))
    return shape is not None and shape.name in SPAN_SHAPES


class SpanFileReader:
    """Collects the spans of files into traces and reports faults of lines and traces.

    Its window counts spans in the place of seconds, so that the same files make the same traces.
    """

    def __init__(self, options: ReadOptions, collector: ErrorCollector) -> None:
        self.options, self.collector = options, collector
        self.buffer = SpanBuffer(SETTLE_SPANS, MAX_WAIT_SPANS)
        self.limits = DEFAULT_LIMITS._replace(body=options.max_line, spans=10**6, nodes=10**7)
        self.locations: dict[str, tuple[str, int]] = {}
        self.unrelated_count = 0

    def read_file(self, name: str, payloads: Iterable[tuple[int, Any]]) -> Iterator[Trace]:
        """Yield the traces that are complete while the file is read."""
        if self.options.column_map:
            raise InputError("a column map has no say over spans: leave --map out, or --shape otlp")
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
        if self.unrelated_count and not self.collector.good_count and not self.collector.bad_count:
            raise InputError(
                f"{self.unrelated_count:,} {'trace' if self.unrelated_count == 1 else 'traces'} of spans, and none of "
                "a RAG system: no span says that it retrieves or asks a model (docs/spans.md names the attributes)"
            )

    def _add_payload(self, name: str, line: int, payload: Any) -> None:
        if isinstance(payload, InvalidRecord):
            raise payload
        request = self._decode_payload(payload)
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

    def _decode_payload(self, payload: Any) -> DecodedRequest:
        """Decode a line or row. Raises `InvalidRecord` or `InputError`."""
        if isinstance(payload, bytes):
            for key, read in OTLP_READERS.items():
                if key.encode() in payload[:200]:
                    self.options.notify(f"read as {SHAPES['otlp'].title}")
                    return read(payload, self.limits)
            payload = parse_record(payload)
        shape = self.options.shape or detect_shape(map(str, payload))
        shape = shape if shape is not None and shape.name in SPAN_READERS else SHAPES["otlp"]
        self.options.notify(f"read as {shape.title}")
        for key, read in OTLP_READERS.items():
            if key in payload:
                return read(msgspec.json.encode(payload), self.limits)
        return (
            DecodedRequest()
            if "resourceMetrics" in payload
            else DecodedRequest(SPAN_READERS[shape.name](payload))
        )

    def _check_recognized(self, name: str) -> None:
        """Give up on files whose first lines are all no spans; raises `InputError`."""
        if (
            len(self.collector.faults) >= 20
            and not self.collector.good_count
            and not self.buffer.counts.accepted
        ):
            raise InputError(f"{name}: {self.collector.faults[-1].problem}")

    def _build_traces(self, collected: Iterable[CollectedTrace]) -> Iterator[Trace]:
        for joined in collected:
            name, line = self.locations.pop(joined.trace, ("spans", 0))
            try:
                trace = build_trace(joined.spans, joined.events)
                trace = trace and normalize_trace(trace, check=True)
            except InvalidRecord as wrong:
                self.collector.report(name, line, str(wrong), joined.spans)
                continue
            if trace is None:
                self.unrelated_count += 1
            elif self.collector.accept(trace, name, line, joined.spans):
                yield trace
