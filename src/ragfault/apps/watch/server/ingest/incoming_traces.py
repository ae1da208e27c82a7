"""Incoming traces and marks: parsed from native JSON, validated, and redacted before storage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import TimelineMark
from ragfault.http.request_limits import RequestLimits
from ragfault.io.decoder import ReadOptions, TraceDecoder
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import NATIVE_SHAPE
from ragfault.io.otel.spans import DecodedRequest
from ragfault.io.redaction import Redactor
from ragfault.model.errors import InputError
from ragfault.model.records import Chunk, Trace, name_attempt
from ragfault.text.times import assume_utc

MAP_FLAG = re.compile(r"--map '?([\w.]+)=([^\s']+?)'?(?=[.,;:)]?(?:\s|$))")
"""What names a column on the command line: over HTTP its field is sent under another name."""

EARLIEST_TIME, LATEST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""The range of times that traces may have."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
JSON_MARKS = re.compile(rb'"(?>(?:[^"\\]|\\.)*)"|["\[\]{},]', re.DOTALL)
"""Texts, and the signs that divide a list in JSON."""

# seconds by which a trace may be dated ahead of the server
MAX_AHEAD_SECONDS = 86400.0

# longest id in characters
MAX_ID_LENGTH = 512

# longest mark as JSON: views show many at once
MAX_MARK_BYTES = 2000

SentTime = Annotated[
    str,
    Meta(
        pattern=r"^(19[7-9][0-9]|20[0-9]{2}|21[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T"
        r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
        description="Between 1970 and 2200; every ISO form is accepted.",
    ),
]
SentMetadata = Annotated[
    dict[str, str | bool | float | None], Meta(description="Any JSON; nested values are stored unchanged.")
]


class SentChunk(Chunk, frozen=True):
    """A chunk as clients send it; for the OpenAPI document."""

    metadata: SentMetadata = msgspec.field(default_factory=dict)


class SentTrace(Trace, frozen=True, kw_only=True):
    """A trace as clients send it, with the limits of its fields; for the OpenAPI document."""

    id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
    query: str
    chunks: tuple[SentChunk, ...] | None = None
    time: SentTime | None = None  # type: ignore[assignment]
    metadata: SentMetadata = msgspec.field(default_factory=dict)


class SentMark(TimelineMark, frozen=True, kw_only=True):
    """A deployment mark as clients send it; for the OpenAPI document."""

    time: SentTime | None = None  # type: ignore[assignment]
    metadata: SentMetadata = msgspec.field(default_factory=dict)


class RejectedRecord(msgspec.Struct, frozen=True):
    """A record of a request body that is rejected."""

    place: int
    """Position in the body, from 1."""
    problem: str


class ParsedTraces(NamedTuple):
    """The traces of a request body and its rejected records."""

    traces: tuple[Trace, ...]
    rejected: tuple[RejectedRecord, ...]
    unread: dict[str, int] = {}  # noqa: RUF012 - the default of a named tuple, which nobody writes to
    """Path of the records that is not read → the number of records that have it."""


def read_traces(body: bytes, limits: RequestLimits) -> ParsedTraces:
    """Parse the traces of a request body.

    Raises InputError for an empty body, for one with too many traces, and where no trace can be read as its columns are
    unknown; beside traces that can, such a record is rejected alone.

    >>> body = b'{"id": "a", "query": "When?"}\\n{"id": "b"}'
    >>> parsed = read_traces(body, RequestLimits())
    >>> parsed.traces[0].id, parsed.rejected
    ('a', (RejectedRecord(place=2, problem='field `query` is missing'),))
    """
    options = ReadOptions({}, NATIVE_SHAPE, None, limits.body, accept_unread=True)
    decoder = TraceDecoder("the body", options)
    traces, rejected, unknown = [], [], None
    for index, raw in enumerate(_split_records(body), start=1):
        if index > limits.traces:
            raise InputError(f"more than {limits.traces:,} traces. Send fewer at once.")
        try:
            traces.append(_parse_trace(decoder, raw, limits))
        except InvalidRecord as wrong:
            rejected.append(RejectedRecord(index, str(wrong)[:500]))
        except InputError as wrong:
            unknown = MAP_FLAG.sub(r"send `\2` as `\1`", wrong.args[0])
            rejected.append(RejectedRecord(index, unknown[:500]))
    if unknown is not None and not traces:
        raise InputError(unknown)
    if not traces and not rejected:
        raise InputError("the body is empty: send a trace as JSON, several in a list, or one a line.")
    return ParsedTraces(tuple(traces), tuple(rejected), {path: part.records for path, part in options.unread.items()})


def _parse_trace(decoder: TraceDecoder, raw: bytes, limits: RequestLimits) -> Trace:
    if len(raw) > limits.trace:
        raise InvalidRecord(f"the trace has {len(raw):,} bytes, at most {limits.trace:,} are taken")
    trace = decoder.decode_native_record(raw)
    if not trace.id:
        raise InvalidRecord("field `id` is missing; it identifies retried traces")
    if len(trace.id) > MAX_ID_LENGTH:
        raise InvalidRecord(f"the id has {len(trace.id):,} characters, at most {MAX_ID_LENGTH} are taken")
    if problem := validate_trace(trace):
        raise InvalidRecord(problem)
    return replace(trace, id=name_attempt(trace.query_id, trace.attempt))


def validate_trace(trace: Trace) -> str | None:
    """Return why a trace cannot be stored and passed to workers; None where it can.

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


def limit_time(trace: Trace, now: float) -> Trace:
    """Return a trace with its time, or without it where that is more than a day ahead: then it is of its arrival.

    The time that was sent stays in the metadata as `sent_time`: a wrong clock must not be the newest for ever.

    >>> limit_time(Trace(id="a", query="q", time=datetime(2099, 1, 1, tzinfo=UTC)), 0.0).metadata
    {'sent_time': '2099-01-01T00:00:00+00:00'}
    """
    if trace.time is None or assume_utc(trace.time).timestamp() <= now + MAX_AHEAD_SECONDS:
        return trace
    return replace(trace, time=None, metadata={"sent_time": trace.time.isoformat()} | trace.metadata)


def _split_records(body: bytes) -> Iterator[bytes]:
    """Split a body into its records, each as JSON."""
    body = body.removeprefix(BYTE_ORDER_MARK)
    if body.lstrip()[:1] == b"[":
        try:
            yield from map(bytes, msgspec.json.decode(body, type=list[msgspec.Raw]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            records = split_list(body)
            if records is None:
                raise InputError(f"the body is not a list in JSON: {error}.") from None
            yield from records
        return
    try:
        yield bytes(msgspec.json.decode(body, type=msgspec.Raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        yield from (line for line in body.splitlines() if line.strip())


def split_list(body: bytes) -> list[bytes] | None:
    """Split a list at its outer commas, whatever its records are; None where it does not end as a list.

    >>> split_list(b'[{"id": "a"}, {"score": NaN}]')
    [b'{"id": "a"}', b'{"score": NaN}']
    """
    records: list[bytes] = []
    first = depth = 0
    for match in JSON_MARKS.finditer(body):
        mark = match[0]
        if mark == b'"':
            # a text that does not end: what follows it cannot be told from it
            return None
        if mark in b"[{":
            depth += 1
            first = match.end() if depth == 1 else first
        elif mark in b"]}":
            depth -= 1
        if depth == 0 or (depth == 1 and mark == b","):
            records.append(body[first : match.start()].strip())
            first = match.end()
        if depth == 0:
            return None if body[first:].strip() else records
    return None


def read_marks(body: bytes) -> tuple[TimelineMark, ...]:
    """Parse the marks of a request body: one, or several in a list. Raises InputError for an invalid body.

    >>> read_marks(b'{"text": "release 7"}')[0].kind
    'deployment'
    """
    try:
        decoded = msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK), type=TimelineMark | list[TimelineMark])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body is not a mark: {error}.") from None
    marks = tuple(decoded) if isinstance(decoded, list) else (decoded,)
    for mark in marks:
        if (size := len(msgspec.json.encode(mark))) > MAX_MARK_BYTES:
            raise InputError(
                f"a mark has {size:,} bytes, at most {MAX_MARK_BYTES:,} are taken: name the release in it."
            )
        if problem := validate_trace(Trace(id="mark", query=mark.text, time=mark.time, metadata=mark.metadata)):
            raise InputError(problem.replace("the trace", "the mark"))
    return marks


class IncomingRedactor:
    """Redacts traces and spans as the settings ask, and counts the redactions by kind."""

    def __init__(self, settings: ServerSettings, counters: EventCounters) -> None:
        self._redactor = Redactor(settings.redact, settings.redact_key) if settings.redact else None
        self._counters = counters

    def redact_trace(self, trace: Trace) -> Trace:
        """Redact a trace before storage."""
        if self._redactor is None:
            return trace
        redacted = self._redactor.redact_trace(trace)
        self._count(redacted.counts)
        return redacted.trace

    def redact_spans(self, spans: DecodedRequest) -> DecodedRequest:
        """Redact spans and log records before storage."""
        if self._redactor is None:
            return spans
        redacted = self._redactor.mask_spans(spans.spans, spans.events)
        self._count(redacted.counts)
        return spans._replace(spans=redacted.spans, events=redacted.events)

    def _count(self, counts: Counter[str]) -> None:
        for kind, n in counts.items():
            self._counters.add(f"redacted_{kind}", n)
