"""The trace recorder: spans that a framework reports, assembled into a trace when the outermost one ends.

A framework reports the start of a span within another one, and its end with a result or an error. Spans
become operations with the attributes of OpenInference and gen_ai, and the operations a trace, by the rules
for spans (docs/spans.md).
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel.spans import OtelSpan
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.trace_writer import append_json_lines
from ragfault.model.records import Trace

TraceSink = BackgroundScorer | Callable[[Trace], object] | str | Path
"""The target of traces: a background scorer, a function, or a file of JSON lines."""

SPAN_KIND = "openinference.span.kind"
MAX_OPEN_TRACES = 10_000
"""At most this many traces are open at once; beyond it the oldest, which may never end, are discarded."""


class TraceDelivery:
    """Delivers finished traces without ever failing the caller: errors are counted, and the first is warned of."""

    def __init__(self, sink: TraceSink, route: str | None = None) -> None:
        self._background = sink if isinstance(sink, BackgroundScorer) else None
        self._send = (
            sink.submit
            if isinstance(sink, BackgroundScorer)
            else append_json_lines(sink)
            if isinstance(sink, str | Path)
            else sink
        )
        self._route = route
        self.rejected = 0
        """Traces that could not be built or delivered."""

    def deliver_operations(self, operations: Iterable[OtelSpan]) -> None:
        """Deliver the trace of some operations, if it belongs to RAG."""
        operations = tuple(operations)
        if {operation.attributes.get(SPAN_KIND) for operation in operations} <= {None, "EMBEDDING", "PROMPT"}:
            return
        try:
            trace = build_trace(operations)
            if trace is not None:
                self.deliver_trace(normalize_trace(trace, check=True))
        except Exception as error:  # noqa: BLE001 - recording never breaks the caller
            self.reject(error)

    def deliver_trace(self, trace: Trace) -> None:
        """Deliver a trace."""
        if self._route is not None:
            trace = msgspec.structs.replace(trace, route=self._route)
        try:
            self._send(trace)
        except Exception as error:  # noqa: BLE001 - a full disk is no reason to fail a user's request
            self.reject(error)

    def reject(self, error: Exception) -> None:
        """Count what could not be delivered."""
        self.rejected += 1
        if self._background is not None:
            self._background.reject(error)
        elif self.rejected == 1:
            warnings.warn(f"ragfault cannot record this: {error}", RuntimeWarning, stacklevel=3)


class _OpenSpan:
    """A span that has not ended."""

    def __init__(self, name: str, trace: str, parent: str | None, attributes: dict[str, Any]) -> None:
        self.name, self.trace, self.parent, self.attributes = name, trace, parent, attributes
        self.start, self._clock = time.time_ns(), time.perf_counter_ns()

    def to_operation(self, key: str, error: BaseException | None) -> OtelSpan:
        """Convert the ended span to an operation."""
        return OtelSpan(
            trace=self.trace,
            id=key,
            parent=self.parent,
            name=self.name,
            start=self.start,
            end=self.start + time.perf_counter_ns() - self._clock,
            status="ok" if error is None else "error",
            message="" if error is None else f"{type(error).__name__}: {error}",
            attributes={name: value for name, value in self.attributes.items() if value is not None},
        )


class TraceRecorder:
    """Open spans by their keys; a span without a known parent is the outermost of a trace.

    >>> traces = []
    >>> recorder = TraceRecorder(traces.append)
    >>> recorder.begin("1", "ask", None, {"openinference.span.kind": "CHAIN", "input.value": "When?"})
    >>> recorder.end("1", {"output.value": "At ten."})
    >>> traces[0].query, traces[0].answer
    ('When?', 'At ten.')
    """

    def __init__(self, sink: TraceSink, route: str | None = None) -> None:
        self.delivery = TraceDelivery(sink, route)
        self._lock = threading.Lock()
        self._steps: dict[str, _OpenSpan] = {}
        self._traces: OrderedDict[str, list[OtelSpan]] = OrderedDict()
        self._open_spans: dict[str, set[str]] = {}

    def begin(self, key: str, name: str, parent: str | None, attributes: dict[str, Any] | None = None) -> None:
        """Begin a span."""
        with self._lock:
            parent_span = self._steps.get(parent or "")
            trace = key if parent_span is None else parent_span.trace
            self._steps[key] = _OpenSpan(name, trace, None if parent_span is None else parent, dict(attributes or {}))
            self._open_spans.setdefault(trace, set()).add(key)
            if parent_span is None:
                self._traces[key] = []
                if len(self._traces) > MAX_OPEN_TRACES:
                    self._discard_trace(next(iter(self._traces)))

    def update(self, key: str | None, attributes: dict[str, Any]) -> None:
        """Update the attributes of an open span."""
        with self._lock:
            if (span := self._steps.get(key or "")) is not None:
                span.attributes.update(attributes)

    def get_attribute(self, key: str, name: str) -> Any:
        """Return an attribute of an open span, None if there is none."""
        span = self._steps.get(key)
        return None if span is None else span.attributes.get(name)

    def end(self, key: str, attributes: dict[str, Any] | None = None, error: BaseException | None = None) -> None:
        """End a span; the end of the outermost one delivers its trace."""
        with self._lock:
            span = self._steps.pop(key, None)
            if span is None:
                return
            span.attributes.update(attributes or {})
            self._traces[span.trace].append(span.to_operation(key, error))
            self._open_spans[span.trace].discard(key)
            operations = self._discard_trace(key) if key == span.trace else None
        if operations is not None:
            self.delivery.deliver_operations(operations)

    def _discard_trace(self, trace: str) -> list[OtelSpan]:
        """Remove a trace with its open spans, and return its operations."""
        for key in self._open_spans.pop(trace, ()):
            self._steps.pop(key, None)
        return self._traces.pop(trace)


def to_documents(retrieved: Any) -> list[dict[str, Any]] | None:
    """Convert the result of a retriever to `gen_ai.retrieval.documents`; None if it is no list of chunks."""
    try:
        chunks = to_chunks(retrieved)
    except Exception:  # noqa: BLE001 - a value that is no list of chunks is left out
        return None
    return [
        {"id": chunk.id, "content": chunk.text, "score": chunk.score, "metadata": chunk.metadata} for chunk in chunks
    ]
