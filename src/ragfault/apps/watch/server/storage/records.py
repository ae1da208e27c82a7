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
from ragfault.model.records import GoldMode, Score, Trace, Verdicts

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
    # seconds since 1970, UTC
    received: float
    trace: Trace


class PendingBody(NamedTuple):
    """Spans that came in and are not yet a trace, kept so that no kill loses them."""

    number: int
    received: float
    body: bytes


class AppendResult(NamedTuple):
    """Result of appending traces."""

    # new ones
    added: int
    # those whose id was there already; they are left as they were
    duplicates: int
    # those that took the place of an earlier version of their trace
    replaced: int = 0


class StoredTrace(StoredRecord, frozen=True, kw_only=True):
    """One trace with all that is known of it."""

    trace: Trace
    received: float
    state: TraceState
    # None: it waits to be judged
    verdicts: Verdicts | None = None
    scores: tuple[Score, ...] = ()
    # time of judging, in seconds since 1970, UTC
    scored: float | None = None
    # use of gold in the scores; None: not judged
    gold: GoldMode | None = None


class TraceSelection(StoredRecord, frozen=True, kw_only=True):
    """A selection of traces, and how it is sorted and paged; what is None leaves nothing out."""

    # seconds since 1970, UTC, inclusive; of the trace's own time, else of its arrival
    since: float | None = None
    # exclusive
    until: float | None = None
    # the empty text: traces that name no route
    route: str | None = None
    model: str | None = None
    conversation: str | None = None
    state: TraceState | None = None
    # the fingerprint of the judge
    judge: str | None = None
    # words in id, query or answer, in any case
    text: str | None = None
    # only traces on which this metric has a value …
    metric: str | None = None
    # … at least this …
    low: float | None = None
    # … and at most this
    high: float | None = None
    ids: tuple[str, ...] | None = None
    sort: str = "time"
    """"time", or the name of a metric: then only traces on which it has a value."""
    order: Literal["descending", "ascending"] = "descending"
    # the `next` of the page before
    after: str | None = None
    limit: int = 50


class TraceSummary(StoredRecord, frozen=True, kw_only=True):
    """A trace as a list shows it."""

    id: str
    time: float
    route: str | None = None
    model: str | None = None
    # the first 300 characters
    query: str
    # the first 300 characters
    answer: str | None = None
    error: str | None = None
    state: TraceState
    # metric → value, of those that have one
    values: dict[str, float] = field(default_factory=dict)


class TracePage(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """A page of a selection."""

    lines: tuple[TraceSummary, ...]
    # cursor of the next page, for `TraceSelection.after`; None on the last page
    next: str | None = None


class LabelPage(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """A page of human labels."""

    labels: tuple[LabelLine, ...]
    # `after` of the next page; None on the last page
    next: int | None = None


class TimelineMark(StoredRecord, frozen=True, kw_only=True):
    """A moment worth remembering: a deployment, a new index, a changed prompt."""

    text: str
    # absent: when it came in
    time: datetime | None = None
    # absent: all routes
    route: str | None = None
    kind: str = "deployment"
    metadata: dict[str, Any] = field(default_factory=dict)
    # two marks of one id are one; absent: made from text, time and route
    id: str = ""


class AlertEvent(StoredRecord, frozen=True, kw_only=True):
    """Something that happened to an alert or an incident."""

    # the key of the alert, or the id of the incident
    alert: str
    time: float
    kind: str
    """"firing", "opened", "grew", "resolved", "acknowledged", "silenced", "sent" …"""
    body: dict[str, Any] = field(default_factory=dict)
    id: str = ""


class AccessToken(StoredRecord, frozen=True, kw_only=True):
    """A token as it is kept: never itself, only its hash."""

    name: str
    role: AccessRole
    # SHA-256 of the token (which is random, so that no slow hash is needed), in hex
    hash: str
    created: float
    # time from which it is refused, in seconds since 1970, UTC; None: never
    expires: float | None = None
    # who made it; empty: the command line
    by: str = ""


class BrowserSession(StoredRecord, frozen=True, kw_only=True):
    """A signed-in browser as it is kept: its id only as a hash."""

    # SHA-256 of the session id, in hex
    hash: str
    # hash of the token that signed in: the session has its role, and ends with it
    token: str
    created: float
    expires: float
    # address of the client that signed in
    address: str = ""


class AuditRecord(StoredRecord, frozen=True, kw_only=True):
    """Something that somebody did on the server."""

    # seconds since 1970, UTC
    time: float
    who: str
    """Name of the token, or "local" where none was needed."""
    action: str
    """"sign_in", "token_issued", "label", "run_exported" …"""
    # what it was done to: a trace, an alert, a token …
    target: str = ""
    detail: str = ""
    # address of the client
    address: str = ""


class ConversationSummary(StoredRecord, frozen=True, kw_only=True):
    """A conversation as a list shows it."""

    id: str
    # number of its turns that are stored
    traces: int
    # time of its first trace, in seconds since 1970, UTC
    first: float
    last: float
    # traces whose pipeline failed
    errors: int
    # the first 300 characters of its first query
    query: str


class TraceComment(StoredRecord, frozen=True, kw_only=True):
    """A remark of a person on a trace."""

    trace: str
    text: str
    by: str
    # seconds since 1970, UTC
    time: float


class EventCount(NamedTuple):
    """A number of events within a minute, such as "dropped", "rejected" or "repeated"."""

    name: str
    minute: int
    n: int


class StoreTotals(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """Counts of the records of a store."""

    traces: int
    # not judged yet
    waiting: int
    # not yet traces
    pending: int = 0
    # the time of the oldest trace
    oldest: float | None = None
    newest: float | None = None
    # on the disk
    bytes: int = 0
    # the number of the last migration
    schema: int = 0


class SpotCheck(StoredRecord, frozen=True, kw_only=True):
    """Verdicts of a better judge on a sampled trace."""

    trace: str
    # fingerprint of the better judge
    judge: str
    # time of the check, or of leaving it out, in seconds since 1970, UTC
    time: float
    # sampling probability of the trace
    chance: float = 1.0
    state: Literal["checked", "failed", "left"] = "checked"
    """Judged, at least in part; failed; left out because the budget of the day was spent."""
    # cost of the check in US$; None if the price is unknown
    cost: float | None = 0.0
    verdicts: Verdicts | None = None
    scores: tuple[Score, ...] = ()


class SpotCheckCounts(StoredRecord, frozen=True, kw_only=True, omit_defaults=False):
    """Number of sampled traces by the state of their check."""

    checked: int = 0
    failed: int = 0
    left: int = 0
    # sampled and not checked yet, of any age
    waiting: int = 0
    # US$; None if a price is unknown
    cost: float | None = 0.0


class SpotCheckSample(NamedTuple):
    """The values of a metric on a route by the judge of every trace, and those by a better one where it was asked.

    A trace is covered where it was drawn from and every draw of its day (UTC, by arrival) before it is settled: asked
    about, with any result. The columns hold the covered traces that the better judge gave a value, and those of
    conversations; all other covered ones are in the sums.
    """

    metric: str
    # empty: traces that name none
    route: str
    # traces with a value by the judge of every trace
    scored: int
    covered: int
    # covered ones that were drawn, and that the better judge gave no value
    failed: int
    # number, sum and sum of squares of the covered values that are in no column
    remainder: tuple[int, float, float]
    base_values: NDArray[np.float64]
    # by the better judge; NaN where it gave none
    reference_values: NDArray[np.float64]
    # with which each trace was drawn
    chance: NDArray[np.float64]
    # cost in US$; NaN without a check, or if the price is unknown
    cost: NDArray[np.float64]
    # a code that the turns of a conversation share; 0: of none
    conversation: NDArray[np.uint64]


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
