"""What a store takes and gives, beside the records of a trace: small, frozen, as JSON through msgspec."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from ragfault.records import Score, Trace, Verdicts

__all__ = [
    "STATES",
    "Appended",
    "Count",
    "Event",
    "Held",
    "Kept",
    "Line",
    "Mark",
    "Outcome",
    "Page",
    "Role",
    "State",
    "Token",
    "Totals",
    "Wanted",
    "Whole",
]

State = Literal["waiting", "scored", "failed", "error"]
"""Of a trace: not judged yet; judged; judged, and some part was lost; its pipeline failed (whatever was judged)."""

STATES: tuple[State, ...] = ("waiting", "scored", "failed", "error")

Role = Literal["read", "ingest", "admin"]
"""What a token is good for: to look, to send traces and marks, or for everything."""


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape: immutable, by keyword, silent about defaults."""


class Outcome(Protocol):
    """A trace with what a judge saw in it and what metrics made of that; `ragfault.online.Scored` is one."""

    @property
    def trace(self) -> Trace: ...
    @property
    def verdicts(self) -> Verdicts: ...
    @property
    def scores(self) -> tuple[Score, ...]: ...


class Kept(NamedTuple):
    """A trace that waits to be judged, with its place in the order of arrival."""

    number: int
    received: float
    """Seconds since 1970, UTC."""
    trace: Trace


class Held(NamedTuple):
    """Something that came in and is not yet a trace, kept so that no kill loses it."""

    number: int
    received: float
    kind: str
    body: bytes


class Appended(NamedTuple):
    """What became of traces that were handed in."""

    taken: int
    """New ones."""
    repeated: int
    """Those whose id was there already; they are left as they were."""


class Whole(Record, frozen=True, kw_only=True):
    """One trace with all that is known of it."""

    trace: Trace
    received: float
    state: State
    verdicts: Verdicts | None = None
    """None: it waits to be judged."""
    scores: tuple[Score, ...] = ()
    scored: float | None = None
    """When it was judged, in seconds since 1970, UTC."""


class Wanted(Record, frozen=True, kw_only=True):
    """A selection of traces, and how it is sorted and paged; what is None leaves nothing out."""

    since: float | None = None
    """Seconds since 1970, UTC, inclusive; of the trace's own time, else of its arrival."""
    until: float | None = None
    """Exclusive."""
    route: str | None = None
    """The empty text: traces that name no route."""
    model: str | None = None
    conversation: str | None = None
    state: State | None = None
    judge: str | None = None
    """The fingerprint of the judge."""
    text: str | None = None
    """Words that stand in id, query or answer, whatever their case."""
    metric: str | None = None
    """Only traces on which this metric has a value …"""
    low: float | None = None
    """… at least this …"""
    high: float | None = None
    """… and at most this."""
    ids: tuple[str, ...] | None = None
    sort: str = "time"
    """"time", or the name of a metric: then only traces on which it has a value."""
    order: Literal["descending", "ascending"] = "descending"
    after: str | None = None
    """The `next` of the page before."""
    limit: int = 50


class Line(Record, frozen=True, kw_only=True):
    """A trace as a list shows it."""

    id: str
    time: float
    route: str | None = None
    model: str | None = None
    query: str
    """The first 300 characters."""
    answer: str | None = None
    """The first 300 characters."""
    error: str | None = None
    state: State
    values: dict[str, float] = field(default_factory=dict)
    """Metric → value, of those that have one."""


class Page(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A stretch of a selection."""

    lines: tuple[Line, ...]
    next: str | None = None
    """What `Wanted.after` is for the next stretch; None: this is the last one."""


class Mark(Record, frozen=True, kw_only=True):
    """A moment worth remembering: a deployment, a new index, a changed prompt."""

    text: str
    time: datetime | None = None
    """Absent: when it came in."""
    route: str | None = None
    """Absent: all routes."""
    kind: str = "deployment"
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """Two marks of one id are one; absent: made from text, time and route."""


class Event(Record, frozen=True, kw_only=True):
    """Something that happened to an alert."""

    alert: str
    """The key of the alert."""
    time: float
    kind: str
    """"pending", "firing", "resolved", "acknowledged", "silenced", "sent" …"""
    body: dict[str, Any] = field(default_factory=dict)
    id: str = ""


class Token(Record, frozen=True, kw_only=True):
    """A token as it is kept: never itself, only its hash."""

    name: str
    role: Role
    hash: str
    """SHA-256 of the token (which is random, so that no slow hash is needed), in hex."""
    created: float


class Count(NamedTuple):
    """How often something happened within a minute: "dropped", "rejected", "repeated" …"""

    name: str
    minute: int
    n: int


class Totals(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a store holds."""

    traces: int
    waiting: int
    """Not judged yet."""
    held: int = 0
    """Not yet traces."""
    oldest: float | None = None
    """The time of the oldest trace."""
    newest: float | None = None
    bytes: int = 0
    """On the disk."""
    schema: int = 0
    """The number of the last migration."""
