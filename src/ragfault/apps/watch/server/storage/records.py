"""Records that a store takes and returns, and the keys of its pages."""

from __future__ import annotations

import base64
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from ragfault.labels.reading.lines import LabelLine
from ragfault.model.errors import UsageError
from ragfault.model.gold_evidence import GoldMode
from ragfault.model.records import Score, Trace, Verdicts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


TraceState = Literal["waiting", "scored", "failed", "error"]
"""State of a trace: not judged yet; judged; judged with failures; its pipeline failed (judged or not)."""

TRACE_STATES: tuple[TraceState, ...] = ("waiting", "scored", "failed", "error")

AccessRole = Literal["read", "ingest", "admin"]
"""Permissions of a token: to read, to send traces and marks, or all."""


class StoredRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape: immutable, by keyword, silent about defaults."""


class ReceivedTrace(NamedTuple):
    """A trace that waits to be judged, with its place in the order of arrival."""

    number: int
    received: float  # seconds since 1970, UTC
    trace: Trace


class PendingBody(NamedTuple):
    """Spans that came in and are not yet a trace, kept so that no kill loses them."""

    number: int
    received: float
    body: bytes


class AppendResult(NamedTuple):
    """Result of appending traces."""

    added: int  # new ones
    duplicates: int  # those whose id was there already; they are left as they were


class StoredTrace(StoredRecord, frozen=True, kw_only=True):
    """One trace with all that is known of it."""

    trace: Trace
    received: float
    state: TraceState
    verdicts: Verdicts | None = None  # None: it waits to be judged
    scores: tuple[Score, ...] = ()
    scored: float | None = None  # time of judging, in seconds since 1970, UTC
    gold: GoldMode | None = None  # use of gold in the scores; None: not judged


class TraceSelection(StoredRecord, frozen=True, kw_only=True):
    """A selection of traces, and how it is sorted and paged; what is None leaves nothing out."""

    since: float | None = None  # seconds since 1970, UTC, inclusive; of the trace's own time, else of its arrival
    until: float | None = None  # exclusive
    route: str | None = None  # the empty text: traces that name no route
    model: str | None = None
    conversation: str | None = None
    state: TraceState | None = None
    judge: str | None = None  # the fingerprint of the judge
    text: str | None = None  # words in id, query or answer, in any case
    metric: str | None = None  # only traces on which this metric has a value …
    low: float | None = None  # … at least this …
    high: float | None = None  # … and at most this
    ids: tuple[str, ...] | None = None
    sort: str = "time"
    """"time", or the name of a metric: then only traces on which it has a value."""
    order: Literal["descending", "ascending"] = "descending"
    after: str | None = None  # the `next` of the page before
    limit: int = 50


class TraceSummary(StoredRecord, frozen=True, kw_only=True):
    """A trace as a list shows it."""

    id: str
    time: float
    route: str | None = None
    model: str | None = None
    query: str  # the first 300 characters
    answer: str | None = None  # the first 300 characters
    error: str | None = None
    state: TraceState
    values: dict[str, float] = field(default_factory=dict)  # metric → value, of those that have one


class TracePage(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """A page of a selection."""

    lines: tuple[TraceSummary, ...]
    next: str | None = None  # cursor of the next page, for `TraceSelection.after`; None on the last page


class LabelPage(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """A page of human labels."""

    labels: tuple[LabelLine, ...]
    next: int | None = None  # `after` of the next page; None on the last page


class TimelineMark(StoredRecord, frozen=True, kw_only=True):
    """A moment worth remembering: a deployment, a new index, a changed prompt."""

    text: str
    time: datetime | None = None  # absent: when it came in
    route: str | None = None  # absent: all routes
    kind: str = "deployment"
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str = ""  # two marks of one id are one; absent: made from text, time and route


class AlertEvent(StoredRecord, frozen=True, kw_only=True):
    """Something that happened to an alert or an incident."""

    alert: str  # the key of the alert, or the id of the incident
    time: float
    kind: str
    """"firing", "opened", "grew", "resolved", "acknowledged", "silenced", "sent" …"""
    body: dict[str, Any] = field(default_factory=dict)
    id: str = ""


class AccessToken(StoredRecord, frozen=True, kw_only=True):
    """A token as it is kept: never itself, only its hash."""

    name: str
    role: AccessRole
    hash: str  # SHA-256 of the token (which is random, so that no slow hash is needed), in hex
    created: float
    expires: float | None = None  # time from which it is refused, in seconds since 1970, UTC; None: never
    by: str = ""  # who made it; empty: the command line


class BrowserSession(StoredRecord, frozen=True, kw_only=True):
    """A signed-in browser as it is kept: its id only as a hash."""

    hash: str  # SHA-256 of the session id, in hex
    token: str  # hash of the token that signed in: the session has its role, and ends with it
    created: float
    expires: float
    address: str = ""  # address of the client that signed in


class AuditRecord(StoredRecord, frozen=True, kw_only=True):
    """Something that somebody did on the server."""

    time: float  # seconds since 1970, UTC
    who: str
    """Name of the token, or "local" where none was needed."""
    action: str
    """"sign_in", "token_issued", "label", "run_exported" …"""
    target: str = ""  # what it was done to: a trace, an alert, a token …
    detail: str = ""
    address: str = ""  # address of the client


class ConversationSummary(StoredRecord, frozen=True, kw_only=True):
    """A conversation as a list shows it."""

    id: str
    traces: int  # number of its turns that are stored
    first: float  # time of its first trace, in seconds since 1970, UTC
    last: float
    errors: int  # traces whose pipeline failed
    query: str  # the first 300 characters of its first query


class TraceComment(StoredRecord, frozen=True, kw_only=True):
    """A remark of a person on a trace."""

    trace: str
    text: str
    by: str
    time: float  # seconds since 1970, UTC


class EventCount(NamedTuple):
    """A number of events within a minute, such as "dropped", "rejected" or "repeated"."""

    name: str
    minute: int
    n: int


class StoreTotals(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """Counts of the records of a store."""

    traces: int
    waiting: int  # not judged yet
    pending: int = 0  # not yet traces
    oldest: float | None = None  # the time of the oldest trace
    newest: float | None = None
    bytes: int = 0  # on the disk
    schema: int = 0  # the number of the last migration


class SpotCheck(StoredRecord, frozen=True, kw_only=True):
    """Verdicts of a better judge on a sampled trace."""

    trace: str
    judge: str  # fingerprint of the better judge
    time: float  # time of the check, or of leaving it out, in seconds since 1970, UTC
    chance: float = 1.0  # sampling probability of the trace
    state: Literal["checked", "failed", "left"] = "checked"
    """Judged, at least in part; failed; left out because the budget of the day was spent."""
    cost: float | None = 0.0  # cost of the check in US$; None if the price is unknown
    verdicts: Verdicts | None = None
    scores: tuple[Score, ...] = ()


class SpotCheckCounts(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """Number of sampled traces by the state of their check."""

    checked: int = 0
    failed: int = 0
    left: int = 0
    waiting: int = 0  # sampled and not checked yet, of any age
    cost: float | None = 0.0  # US$; None if a price is unknown


class SpotCheckSample(NamedTuple):
    """The values of a metric on a route by the judge of every trace, and those by a better one where it was asked.

    A trace is covered where it was drawn from and every draw of its day (UTC, by arrival) before it is settled: asked
    about, with any result. The columns hold the covered traces that the better judge gave a value, and those of
    conversations; all other covered ones are in the sums.
    """

    metric: str
    route: str  # empty: traces that name none
    scored: int  # traces with a value by the judge of every trace
    covered: int
    failed: int  # covered ones that were drawn, and that the better judge gave no value
    remainder: tuple[int, float, float]  # number, sum and sum of squares of the covered values that are in no column
    base_values: NDArray[np.float64]
    reference_values: NDArray[np.float64]  # by the better judge; NaN where it gave none
    chance: NDArray[np.float64]  # with which each trace was drawn
    cost: NDArray[np.float64]  # cost in US$; NaN without a check, or if the price is unknown
    conversation: NDArray[np.uint64]  # a code that the turns of a conversation share; 0: of none


MAX_SHOWN_CHARACTERS = 300
"""Characters of query and answer in a list."""

MAX_PAGE_LINES = 1000
"""Lines to a page, at most."""

MAX_PAGE_BYTES = 1_000_000 - 1_000
"""Bytes of the lines of a page as JSON, at most; what encloses them has the rest of a megabyte."""


def check_page_limit(selection: TraceSelection) -> None:
    """Raise UsageError for a page of a length that none has."""
    if not 1 <= selection.limit <= MAX_PAGE_LINES:
        raise UsageError(f"a page has 1 to {MAX_PAGE_LINES:,} lines, got {selection.limit}.")


def encode_page_key(value: float, number: int) -> str:
    """Return the page key of a row."""
    return base64.urlsafe_b64encode(msgspec.json.encode([value, number])).decode().rstrip("=")


def decode_page_key(text: str) -> tuple[float, int]:
    """Return the value and number of a page key. Raises UsageError for an invalid one."""
    try:
        packed = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        value, number = msgspec.json.decode(packed, type=tuple[float, int])
    except (ValueError, msgspec.MsgspecError):
        raise UsageError(f'"{text[:60]}" is the key of no page. Take the `next` of the page before.') from None
    if not math.isfinite(value) or abs(number) >= 2**63:
        raise UsageError("the key of a page is out of range. Take the `next` of the page before.")
    return value, number


def build_summary(row: tuple[Any, ...], state: TraceState | None, values: dict[str, float]) -> TraceSummary:
    """Return a summary of a row: number, id, time, route, model, query, answer, error."""
    _, id, time, route, model, query, answer, error = row
    return TraceSummary(
        id=id,
        time=time,
        route=route or None,
        model=model,
        query=query,
        answer=answer,
        error=error,
        state=state or ("error" if error else "waiting"),
        values=dict(sorted(values.items())),
    )
