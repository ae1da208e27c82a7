"""Files of spans as a source of traces: spans of one trace may stand on many lines and in several files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ragfault.errors import InputError
from ragfault.records import Trace
from ragfault.sources.desk import Desk
from ragfault.sources.mould import Plan, parse
from ragfault.sources.normalise import settle
from ragfault.sources.shapes import SHAPES, SPANS, recognise
from ragfault.sources.spans.foreign import operations_of
from ragfault.sources.spans.joining import Joined, Window
from ragfault.sources.spans.langfuse import observed
from ragfault.sources.spans.langsmith import run_through
from ragfault.sources.spans.mapping import to_trace
from ragfault.sources.spans.operation import LIMITS, Decoded
from ragfault.sources.spans.otlp_json import read_logs_json, read_spans_json
from ragfault.sources.values import Wrong

__all__ = ["Spans", "holds_spans"]

SETTLE, LONGEST = 50_000, 200_000
"""How many spans are read after the root of a trace, or after the first of it, before it is taken as complete."""

SENT = {"resourceSpans": read_spans_json, "resourceLogs": read_logs_json}
"""What a line of the collector's file exporter holds."""


READERS = {"langfuse": observed, "langsmith": run_through, "otlp": operations_of}
"""Shape → what makes operations of one record."""


def holds_spans(payload: Any, plan: Plan) -> bool | None:
    """Whether a line, a row or the header of a table is one of spans; None where that cannot be told.

    >>> holds_spans(b'{"resourceSpans": []}', Plan({}, None, None, 100))
    True
    """
    if plan.shape is not None or plan.given:
        return plan.shape is not None and plan.shape.name in SPANS
    if isinstance(payload, bytes):
        try:
            payload = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    if not isinstance(payload, (dict, list)):
        return None
    shape = recognise(map(str, payload))
    return shape is not None and shape.name in SPANS


class Spans:
    """Joins the spans of one reading into traces, and hands in what is wrong with lines and traces.

    Its window counts spans in the place of seconds, so that the same files make the same traces.
    """

    def __init__(self, plan: Plan, desk: Desk) -> None:
        self.plan, self.desk = plan, desk
        self.window = Window(SETTLE, LONGEST)
        self.limits = LIMITS._replace(body=plan.limit, spans=10**6, marks=10**7)
        self.places: dict[str, tuple[str, int]] = {}
        self.foreign = 0

    def read(self, name: str, payloads: Iterable[tuple[int, Any]]) -> Iterator[Trace]:
        """The traces that are complete while the file is read."""
        if self.plan.given:
            raise InputError("a column map has no say over spans: leave --map out, or --shape otlp")
        last = 0
        for number, payload in payloads:
            if number == 0:
                continue
            last = number if number > 0 else last + 1
            try:
                self._take(name, last, payload)
            except (Wrong, InputError) as wrong:
                self.desk.fault(name, last, str(wrong), payload)
                self._doubt(name)
            yield from self._traces(self.window.finished(self.window.counts.taken))

    def rest(self) -> Iterator[Trace]:
        """What is left when all files are read; raises `InputError` where no trace had to do with RAG."""
        yield from self._traces(self.window.flush())
        if self.foreign and not self.desk.good and not self.desk.bad:
            raise InputError(
                f"{self.foreign:,} {'trace' if self.foreign == 1 else 'traces'} of spans, and none of a RAG "
                "system: no span says that it retrieves or asks a model (docs/spans.md names the attributes)"
            )

    def _take(self, name: str, line: int, payload: Any) -> None:
        if isinstance(payload, Wrong):
            raise payload
        found = self._decoded(payload)
        late = self.window.counts.late
        self.window.add(found.operations, self.window.counts.taken, found.events)
        for one in found.operations:
            if one.parent is None or one.trace not in self.places:
                self.places[one.trace] = (name, line)
        if found.refused:
            self.desk.fault(name, line, found.message, payload)
        late = self.window.counts.late - late
        if late:
            self.desk.fault(
                name,
                line,
                f"{late:,} spans stand more than {SETTLE:,} spans after the root of their trace, which was read "
                "without them: sort the file by time",
                payload,
            )

    def _decoded(self, payload: Any) -> Decoded:
        """What a line or row holds; raises `Wrong` or `InputError`."""
        if isinstance(payload, bytes):
            for key, read in SENT.items():
                if key.encode() in payload[:200]:
                    self.plan.tell(f"read as {SHAPES['otlp'].title}")
                    return read(payload, self.limits)
            payload = parse(payload)
        shape = self.plan.shape or recognise(map(str, payload))
        shape = shape if shape is not None and shape.name in READERS else SHAPES["otlp"]
        self.plan.tell(f"read as {shape.title}")
        for key, read in SENT.items():
            if key in payload:
                return read(msgspec.json.encode(payload), self.limits)
        return Decoded() if "resourceMetrics" in payload else Decoded(READERS[shape.name](payload))

    def _doubt(self, name: str) -> None:
        """Give up on files whose first lines are all no spans; raises `InputError`."""
        if len(self.desk.faults) >= 20 and not self.desk.good and not self.window.counts.taken:
            raise InputError(f"{name}: {self.desk.faults[-1].problem}")

    def _traces(self, found: Iterable[Joined]) -> Iterator[Trace]:
        for joined in found:
            name, line = self.places.pop(joined.trace, ("spans", 0))
            try:
                trace = to_trace(joined.operations, joined.events)
                trace = trace and settle(trace, check=True)
            except Wrong as wrong:
                self.desk.fault(name, line, str(wrong), joined.operations)
                continue
            if trace is None:
                self.foreign += 1
            elif self.desk.welcome(trace, name, line, joined.operations):
                yield trace
