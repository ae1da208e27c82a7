"""Spans and events of OpenTelemetry, and the limits within which a request is accepted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from ragfault.model.errors import InputError

TRACE_ID_PATTERN = re.compile(r"[0-9a-f]{32}")
SPAN_ID_PATTERN = re.compile(r"[0-9a-f]{16}")

VECTOR_SUFFIX = ".vector"
"""Suffix of attributes that hold an embedding; they are dropped."""
MAX_REASONS = 16
"""Number of distinct reasons for a rejection."""

SpanStatus = Literal["unset", "ok", "error"]
STATUS_NAMES: dict[str, SpanStatus] = {"ok": "ok", "error": "error", "1": "ok", "2": "error"}


class SpanEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event within a span, or a log record beside it."""

    name: str
    time: int = 0
    """Nanoseconds since 1970."""
    attributes: dict[str, Any] = field(default_factory=dict)
    trace: str = ""
    """The trace that a log record names; empty for the event of a span."""
    span: str = ""


def parse_status(value: int | str) -> SpanStatus:
    """Return the status of a number in OTLP, or of a name with or without its prefix."""
    return STATUS_NAMES.get(str(value).lower().removeprefix("status_code_").rpartition(".")[2], "unset")


RATING_EVENT = "gen_ai.evaluation.result"


def build_rating(name: Any, score: Any = None, label: Any = None, reason: Any = None, *, trace: str = "") -> SpanEvent:
    """Build the event of a rating, without what was not recorded."""
    fields = {"name": name, "score.value": score, "score.label": label, "explanation": reason}
    known = {key: value for key, value in fields.items() if value not in (None, "") and str(value) != "nan"}
    return SpanEvent(
        name=RATING_EVENT, trace=trace, attributes={f"gen_ai.evaluation.{key}": value for key, value in known.items()}
    )


def add_events(spans: Iterable[OtelSpan], events: Iterable[SpanEvent]) -> tuple[OtelSpan, ...]:
    """Add events to the first of these spans."""
    return tuple(span if at else replace(span, events=(*span.events, *events)) for at, span in enumerate(spans))


class OtelSpan(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A span of OpenTelemetry.

    >>> retrieve = OtelSpan(trace="0" * 31 + "1", id="0" * 15 + "1", name="retrieve", start=10, end=30)
    >>> retrieve.duration, retrieve.parent
    (20, None)
    """

    trace: str
    """32 hex digits, the same for all spans of a trace."""
    id: str
    """16 hex digits."""
    parent: str | None = None
    """The id of the parent span; None: it is the root."""
    name: str = ""
    start: int = 0
    """Nanoseconds since 1970."""
    end: int = 0
    complete: bool = True
    """Whether its end is recorded; without it, `end` says nothing of how long it took."""
    status: SpanStatus = "unset"
    message: str = ""
    """The message of the status."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """Name → text, number, truth value, or a list or object of these."""
    events: tuple[SpanEvent, ...] = ()
    resource: dict[str, Any] = field(default_factory=dict)
    """Attributes of the resource: `service.name`, `service.version` …"""

    @property
    def duration(self) -> int:
        """Nanoseconds, never less than none."""
        return max(0, self.end - self.start)


class DecodeLimits(NamedTuple):
    """Limits of one request.

    A request beyond `body`, `depth` or `marks` is refused, a span beyond `spans` or `span` rejected; the rest is cut.
    """

    body: int = 20 * 2**20
    """Bytes of a request, decompressed."""
    spans: int = 20_000
    """Spans or log records of one request."""
    span: int = 4 * 2**20
    """Bytes of one span."""
    text: int = 2**18
    """Characters of one text."""
    attributes: int = 2_000
    """Attributes of a span, an event or a resource."""
    items: int = 2_000
    """Values of a list or an object."""
    events: int = 500
    """Events of a span."""
    depth: int = 16
    """Nesting depth of values."""
    nodes: int = 2_000_000
    """Objects and lists of a JSON request, or fields of the envelope of a protobuf request."""


DEFAULT_LIMITS = DecodeLimits()


class DecodedRequest(NamedTuple):
    """The content of a request."""

    spans: tuple[OtelSpan, ...] = ()
    events: tuple[SpanEvent, ...] = ()
    """Log records."""
    rejected: dict[str, int] = {}  # noqa: RUF012 - the default of a named tuple, which nobody writes to
    """Reason → number of spans or log records that were rejected for it."""
    cut_count: int = 0
    """Number of texts, lists, attributes and events that were cut."""

    @property
    def rejected_count(self) -> int:
        """Number of rejected spans or records: the count of a partial success."""
        return sum(self.rejected.values())

    @property
    def message(self) -> str:
        """Describe what was rejected or cut, for the error message of a partial success; empty if nothing was.

        >>> DecodedRequest(rejected={"no trace id": 2}, cut_count=1).message
        '2 rejected: no trace id (2); 1 value cut for its size'
        """
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in self.rejected.items())
        parts = [f"{self.rejected_count:,} rejected: {reasons}"] if reasons else []
        if self.cut_count:
            parts.append(f"{self.cut_count:,} {'value' if self.cut_count == 1 else 'values'} cut for their size")
        return "; ".join(parts).replace("1 value cut for their", "1 value cut for its")


class LimitChecker:
    """Checks the parts of a request against the limits, and counts what is cut or rejected."""

    def __init__(self, limits: DecodeLimits) -> None:
        self.limits = limits
        self.cut_count = self.node_count = self.item_count = 0
        self.rejected: Counter[str] = Counter()

    def reject(self, reason: str) -> None:
        """Count a span or record that is left out."""
        known = reason in self.rejected or len(self.rejected) < MAX_REASONS
        self.rejected[reason if known else "other reasons"] += 1

    def accept_item(self, size: int) -> bool:
        """Return whether a span or record of so many bytes is within the limits; count it as rejected if not."""
        self.item_count += 1
        if self.item_count > self.limits.spans:
            self.reject(f"more than {self.limits.spans:,} in one request")
        elif size > self.limits.span:
            self.reject(f"longer than {self.limits.span:,} bytes")
        else:
            return True
        return False

    def count_nodes(self, count: int = 1) -> None:
        """Count fields or objects; raises `InputError` where there are more than a request may have."""
        self.node_count += count
        if self.node_count > self.limits.nodes:
            raise InputError(f"the request opens more than {self.limits.nodes:,} objects: send less at once")

    def cut_text(self, text: str) -> str:
        """Cut a text to the limit."""
        if len(text) <= self.limits.text:
            return text
        self.cut_count += 1
        return text[: self.limits.text]

    def cut_values(self, values: Any, limit: int) -> Any:
        """Cut values to the limit."""
        if len(values) <= limit:
            return values
        self.cut_count += 1
        return values[:limit]

    def build_result(self, spans: list[OtelSpan], events: list[SpanEvent]) -> DecodedRequest:
        return DecodedRequest(tuple(spans), tuple(events), dict(self.rejected), self.cut_count)


def choose_fuller_span(first: OtelSpan, second: OtelSpan) -> OtelSpan:
    """Choose the record of a span that ended later; ties do not depend on the order."""
    return first if first == second else max(first, second, key=lambda record: (record.end, repr(record)))


def check_span_ids(trace_id: str, span_id: str) -> str | None:
    """Describe what is wrong with the ids of a span; None if nothing is."""
    if not TRACE_ID_PATTERN.fullmatch(trace_id) or not trace_id.strip("0"):
        return "no trace id of 32 hex digits" if trace_id.strip("0") else "no trace id"
    if not SPAN_ID_PATTERN.fullmatch(span_id) or not span_id.strip("0"):
        return "no span id of 16 hex digits" if span_id.strip("0") else "no span id"
    return None


def convert_decimal_id(text: str, digits: int) -> str:
    """Return an id that is written as a decimal number in hex; any other text as it is.

    Digits of the length of an id in hex are one.

    >>> convert_decimal_id("1311768467463790320", 16), convert_decimal_id("1234567890123456", 16)
    ('123456789abcdef0', '1234567890123456')
    """
    if not text.isdecimal() or len(text) == digits or not 0 < int(text) < 16**digits:
        return text
    return f"{int(text):0{digits}x}"


def parse_linked_id(text: str, digits: int) -> str:
    """Return the id to which a span or record points; empty where the text is no id.

    >>> parse_linked_id("0" * 15 + "1", 16), parse_linked_id("0" * 16, 16), parse_linked_id("ann@example.org", 32)
    ('0000000000000001', '', '')
    """
    known = (TRACE_ID_PATTERN if digits == 32 else SPAN_ID_PATTERN).fullmatch(text)
    return text if known and text.strip("0") else ""
