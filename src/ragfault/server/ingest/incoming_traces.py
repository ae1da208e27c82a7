"""Incoming traces and marks: parsed from native JSON, validated, and redacted before storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from ragfault.errors import InputError
from ragfault.io.decoder import ReadOptions, TraceDecoder
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import NATIVE_SHAPE
from ragfault.io.otel import DecodedRequest
from ragfault.io.redaction import Redactor
from ragfault.records import Trace
from ragfault.server.counters import EventCounters
from ragfault.server.settings import RequestLimits, ServerSettings
from ragfault.server.storage import TimelineMark

EARLIEST_TIME, LATEST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Between which times traffic is."""

MAX_ID_LENGTH = 512
"""Characters of an id, at most."""


class RejectedRecord(NamedTuple):
    """One thing of a body that is no trace."""

    place: int
    """Its place in the body, from 1."""
    problem: str


class ParsedTraces(NamedTuple):
    """What a body holds."""

    traces: tuple[Trace, ...]
    rejected: tuple[RejectedRecord, ...]


def read_traces(body: bytes, limits: RequestLimits) -> ParsedTraces:
    """The traces of a body, and what in it is none.

    Raises InputError where there is nothing in it, or too much.

    >>> body = b'{"id": "a", "query": "When?"}\\n{"id": "b"}'
    >>> found = read_traces(body, RequestLimits())
    >>> found.traces[0].id, found.refused
    ('a', (Refused(place=2, problem='field `query` is missing'),))
    """
    mould = TraceDecoder("the body", ReadOptions({}, NATIVE_SHAPE, None, limits.body))
    traces, refused = [], []
    for place, raw in enumerate(_split_records(body), start=1):
        if place > limits.traces:
            raise InputError(f"more than {limits.traces:,} traces. Send fewer at once.")
        try:
            traces.append(_parse_trace(mould, raw, limits))
        except InvalidRecord as wrong:
            refused.append(RejectedRecord(place, str(wrong)[:500]))
    if not traces and not refused:
        raise InputError("the body is empty: send a trace as JSON, several in a list, or one a line.")
    return ParsedTraces(tuple(traces), tuple(refused))


def _parse_trace(decoder: TraceDecoder, raw: bytes, limits: RequestLimits) -> Trace:
    if len(raw) > limits.trace:
        raise InvalidRecord(f"the trace has {len(raw):,} bytes, at most {limits.trace:,} are taken")
    trace = decoder.decode_record(raw)
    if not trace.id:
        raise InvalidRecord("field `id` is missing: by it a trace that is sent again is known")
    if len(trace.id) > MAX_ID_LENGTH:
        raise InvalidRecord(f"the id has {len(trace.id):,} characters, at most {MAX_ID_LENGTH} are taken")
    if fault := validate_trace(trace):
        raise InvalidRecord(fault)
    return trace


def validate_trace(trace: Trace) -> str | None:
    """Why a trace cannot go on its way to the store and to the workers, if it cannot.

    >>> validate_trace(Trace(id="a", query="q", time=datetime(1066, 10, 14, tzinfo=UTC)))
    'field `time` is not between 1970 and 2200'
    """
    try:
        if trace.time is not None and not EARLIEST_TIME <= trace.time.astimezone(UTC) < LATEST_TIME:
            return "field `time` is not between 1970 and 2200"
        msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=Trace)
        msgspec.json.encode(trace).decode()
    except (OverflowError, ValueError, TypeError, RecursionError) as error:
        return f"the trace holds what cannot be passed on: {error}"
    return None


def _split_records(body: bytes) -> Iterator[bytes]:
    """The records of a body, each as JSON by itself."""
    if body.lstrip()[:1] == b"[":
        try:
            yield from map(bytes, msgspec.json.decode(body, type=list[msgspec.Raw]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"the body is no list in JSON: {error}.") from None
        return
    try:
        yield bytes(msgspec.json.decode(body, type=msgspec.Raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        yield from (line for line in body.splitlines() if line.strip())


def read_marks(body: bytes) -> tuple[TimelineMark, ...]:
    """The marks of a body: one, or several in a list. Raises InputError where it is none.

    >>> read_marks(b'{"text": "release 7"}')[0].kind
    'deployment'
    """
    try:
        found = msgspec.json.decode(body, type=TimelineMark | list[TimelineMark])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body is no mark: {error}.") from None
    marks = tuple(found) if isinstance(found, list) else (found,)
    for mark in marks:
        if fault := validate_trace(Trace(id="mark", query=mark.text, time=mark.time, metadata=mark.metadata)):
            raise InputError(fault.replace("the trace", "the mark"))
    return marks


class IncomingRedactor:
    """Redacts what the settings ask for, and counts it by kind; where they ask for nothing, nothing is touched."""

    def __init__(self, settings: ServerSettings, counters: EventCounters) -> None:
        self._redactor = Redactor(settings.redact, settings.redact_key) if settings.redact else None
        self._counters = counters

    def redact_trace(self, trace: Trace) -> Trace:
        """A trace as it may be kept."""
        if self._redactor is None:
            return trace
        made = self._redactor.redact_trace(trace)
        self._count(made.counts)
        return made.trace

    def redact_traces(self, traces: Iterable[Trace]) -> tuple[Trace, ...]:
        """Traces as they may be kept."""
        return tuple(map(self.redact_trace, traces))

    def redact_spans(self, spans: DecodedRequest) -> DecodedRequest:
        """Spans and records of a log as they may be held until their trace is whole."""
        if self._redactor is None:
            return spans
        made = self._redactor.mask_spans(spans.spans, spans.events)
        self._count(made.counts)
        return spans._replace(spans=made.spans, events=made.events)

    def _count(self, counts: Counter[str]) -> None:
        for kind, n in counts.items():
            self._counters.add(f"redacted_{kind}", n)
