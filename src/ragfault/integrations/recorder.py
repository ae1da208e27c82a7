"""The trace recorder: spans that a framework reports, assembled into a trace when the outermost one ends.

Every framework tells the same: a step began, within another one; it ended, with this or with an error. Steps become
operations in the words of OpenInference and gen_ai, and the operations a trace, by the rules for spans (docs/spans.md).
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

from ragfault.evaluation.online import BackgroundScorer
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel import OtelSpan, build_trace
from ragfault.records import Trace

TraceSink = BackgroundScorer | Callable[[Trace], object] | str | Path
"""Where traces go: to a background that scores them, to a function, or as lines to a file of JSON."""

SPAN_KIND = "openinference.span.kind"
MAX_OPEN_TRACES = 10_000
"""How many traces are put together at once; of more, the oldest, which may never end, are let go."""


class TraceDelivery:
    """Hands finished traces on, and never harms whoever made them: what is no trace is counted and warned of once."""

    def __init__(self, sink: TraceSink, route: str | None = None) -> None:
        self._background = sink if isinstance(sink, BackgroundScorer) else None
        self._send = (
            sink.submit
            if isinstance(sink, BackgroundScorer)
            else _open_jsonl(sink)
            if isinstance(sink, str | Path)
            else sink
        )
        self._route = route
        self.rejected = 0
        """Traces that could not be made or handed on."""

    def deliver_operations(self, operations: Iterable[OtelSpan]) -> None:
        """Hand on the trace that operations make, if they have to do with RAG."""
        operations = tuple(operations)
        if {one.attributes.get(SPAN_KIND) for one in operations} <= {None, "EMBEDDING", "PROMPT"}:
            return
        try:
            trace = build_trace(operations)
            if trace is not None:
                self.deliver_trace(normalize_trace(trace, check=True))
        except Exception as error:  # noqa: BLE001 - whatever a framework told, its caller goes on
            self.reject(error)

    def deliver_trace(self, trace: Trace) -> None:
        """Hand on a trace."""
        if self._route is not None:
            trace = msgspec.structs.replace(trace, route=self._route)
        try:
            self._send(trace)
        except Exception as error:  # noqa: BLE001 - a full disk is no reason to fail a user's request
            self.reject(error)

    def reject(self, error: Exception) -> None:
        """Count what could not be handed on."""
        self.rejected += 1
        if self._background is not None:
            self._background.reject(error)
        elif self.rejected == 1:
            warnings.warn(f"ragfault cannot record this: {error}", RuntimeWarning, stacklevel=3)


def _open_jsonl(target: str | Path) -> Callable[[Trace], object]:
    """What adds a line for each trace to a file."""
    path, lock = Path(target), threading.Lock()
    path.parent.mkdir(parents=True, exist_ok=True)

    def take(trace: Trace) -> None:
        with lock, path.open("ab") as file:
            file.write(msgspec.json.encode(trace) + b"\n")

    return take


class _OpenSpan:
    """A step that has begun."""

    def __init__(self, name: str, trace: str, parent: str | None, attributes: dict[str, Any]) -> None:
        self.name, self.trace, self.parent, self.attributes = name, trace, parent, attributes
        self.start, self._clock = time.time_ns(), time.perf_counter_ns()

    def to_operation(self, key: str, error: BaseException | None) -> OtelSpan:
        """The operation that it was."""
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
    """Steps that are under way, by their keys; a step within none that is known is the outermost of a trace.

    >>> found = []
    >>> recorder = TraceRecorder(found.append)
    >>> recorder.begin("1", "ask", None, {"openinference.span.kind": "CHAIN", "input.value": "When?"})
    >>> recorder.end("1", {"output.value": "At ten."})
    >>> found[0].query, found[0].answer
    ('When?', 'At ten.')
    """

    def __init__(self, sink: TraceSink, route: str | None = None) -> None:
        self.delivery = TraceDelivery(sink, route)
        self._lock = threading.Lock()
        self._steps: dict[str, _OpenSpan] = {}
        self._traces: OrderedDict[str, list[OtelSpan]] = OrderedDict()
        self._open_spans: dict[str, set[str]] = {}

    def begin(
        self, key: str, name: str, parent: str | None, attributes: dict[str, Any] | None = None
    ) -> None:
        """A step has begun."""
        with self._lock:
            above = self._steps.get(parent or "")
            trace = key if above is None else above.trace
            self._steps[key] = _OpenSpan(
                name, trace, None if above is None else parent, dict(attributes or {})
            )
            self._open_spans.setdefault(trace, set()).add(key)
            if above is None:
                self._traces[key] = []
                if len(self._traces) > MAX_OPEN_TRACES:
                    self._discard_trace(next(iter(self._traces)))

    def update(self, key: str | None, attributes: dict[str, Any]) -> None:
        """Something more is known of a step."""
        with self._lock:
            if (step := self._steps.get(key or "")) is not None:
                step.attributes.update(attributes)

    def get_attribute(self, key: str, name: str) -> Any:
        """What is known of a step under that name."""
        step = self._steps.get(key)
        return None if step is None else step.attributes.get(name)

    def end(
        self, key: str, attributes: dict[str, Any] | None = None, error: BaseException | None = None
    ) -> None:
        """A step has ended; with the outermost one its trace is handed on."""
        with self._lock:
            step = self._steps.pop(key, None)
            if step is None:
                return
            step.attributes.update(attributes or {})
            self._traces[step.trace].append(step.to_operation(key, error))
            self._open_spans[step.trace].discard(key)
            found = self._discard_trace(key) if key == step.trace else None
        if found is not None:
            self.delivery.deliver_operations(found)

    def _discard_trace(self, trace: str) -> list[OtelSpan]:
        """Let a trace go, with what is still under way in it."""
        for key in self._open_spans.pop(trace, ()):
            self._steps.pop(key, None)
        return self._traces.pop(trace)


def to_documents(retrieved: Any) -> list[dict[str, Any]] | None:
    """What a retriever gave, as `gen_ai.retrieval.documents` has it; None for what is no list of chunks."""
    try:
        chunks = to_chunks(retrieved)
    except Exception:  # noqa: BLE001 - what is no list of chunks is told by its absence
        return None
    return [
        {"id": chunk.id, "content": chunk.text, "score": chunk.score, "metadata": chunk.metadata}
        for chunk in chunks
    ]
