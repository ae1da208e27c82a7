"""The port of stores: the few deeds that live watching needs, each a small function over plain SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ragfault.findings.monitoring_rollups import Products, Rollup, Worst
from ragfault.records import Trace
from ragfault.runs import Measure
from ragfault.runs.labels import Label
from ragfault.store.records import (
    Appended,
    Check,
    Checks,
    Count,
    Drawn,
    Event,
    Held,
    Kept,
    Mark,
    Outcome,
    Page,
    Sample,
    Token,
    Totals,
    Wanted,
    Whole,
)

__all__ = ["Checking", "Store"]


class Store(Protocol):
    """Where live traces, what was seen in them, and what came of that are kept.

    Deeds that write return a Future, which is done when what was written would survive a kill; those that read
    return at once, and are called from any thread. Times are seconds since 1970, UTC; minutes are those by 60.
    """

    # --- traces ------------------------------------------------------------------------------------

    def append(self, traces: Sequence[Trace], release: Sequence[int] = ()) -> Future[Appended]:
        """Take traces in, each once by its id; in the same breath let go of what was held for them."""
        ...

    def score(
        self, outcomes: Sequence[Outcome], measures: Sequence[Measure], by: Sequence[str] = ()
    ) -> Future[int]:
        """Add verdicts and scores, and count them into the roll-ups; a trace that has them already is passed over.

        `measures` say what the metrics are, `by` names the fields whose values are cohorts. The number of those that
        were added.
        """
        ...

    def unscored(self, after: int = 0, limit: int = 256) -> Sequence[Kept]:
        """Traces that wait to be judged, in the order of arrival, those behind the number `after`."""
        ...

    def find(self, wanted: Wanted) -> Page:
        """A page of a selection; walking by `next` meets each trace once. Raises UsageError for a page that is none."""
        ...

    def count(self, wanted: Wanted) -> int:
        """How many traces a selection holds, whatever its limit."""
        ...

    def walk(self, wanted: Wanted) -> Iterator[Whole]:
        """All judged traces of a selection in the order of arrival, whatever its sorting, paging and limit."""
        ...

    def trace(self, id: str) -> Whole | None:
        """One trace with all that is known of it; None where there is none."""
        ...

    # --- what came in and is not yet a trace ---------------------------------------------------------

    def hold(self, kind: str, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        """Keep bodies; their numbers."""
        ...

    def held(self, kind: str, after: int = 0, limit: int = 256) -> Sequence[Held]:
        """What is held, in the order of arrival."""
        ...

    # --- watching ------------------------------------------------------------------------------------

    def rollups(
        self,
        since: int,
        until: int,
        *,
        metric: str | None = None,
        route: str | None = None,
        cohort: str | None = "",
        grain: int = 1,
        bins: bool = True,
    ) -> tuple[Rollup, ...]:
        """The roll-ups from minute `since` to before `until`, merged over stretches of `grain` minutes, by key.

        `cohort`: the empty text for whole routes, None for everything, "*" for cohorts alone. Their `worst` are empty:
        see `worst`. Without `bins` their histograms are empty too, which is read faster.
        """
        ...

    def ever(self) -> tuple[Rollup, ...]:
        """What was ever counted: one roll-up for each metric and route, which only grows and costs the same to read."""
        ...

    def products(self, since: int, until: int) -> tuple[Products, ...]:
        """The sums of products of pairs of metrics, by minute."""
        ...

    def worst(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[Worst, ...]:
        """The traces with the worst values of a metric within some minutes, the worst first."""
        ...

    def measures(self) -> tuple[Measure, ...]:
        """The metrics that are kept, in the order in which they were first met."""
        ...

    def routes(self) -> tuple[str, ...]:
        """The routes by name; the empty text where some traces name none."""
        ...

    # --- marks, alerts, labels, settings, tokens, counts -----------------------------------------------

    def mark(self, marks: Sequence[Mark], now: float) -> Future[int]:
        """Keep marks, each once by its id, those without a time as of now; how many were new."""
        ...

    def marks(self, since: float = 0.0, until: float | None = None) -> tuple[Mark, ...]:
        """Marks in the order of time."""
        ...

    def add_events(self, events: Sequence[Event], settings: dict[str, Any] | None = None) -> Future[None]:
        """Keep what happened to alerts, and in the same breath settings: the state of the alerts."""
        ...

    def events(self, alert: str | None = None, limit: int = 200) -> tuple[Event, ...]:
        """What happened to alerts, the latest first."""
        ...

    def label(self, label: Label) -> Future[None]:
        """Keep what somebody said of a trace."""
        ...

    def labels(self, trace: str | None = None) -> tuple[Label, ...]:
        """What people said, in order."""
        ...

    def save_setting(self, name: str, value: Any) -> Future[None]:
        """Keep a setting as JSON; None removes it."""
        ...

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting, or the default."""
        ...

    def save_token(self, token: Token) -> Future[None]:
        """Keep a token; one of the same name gives way."""
        ...

    def drop_token(self, name: str) -> Future[None]:
        """Let a token go."""
        ...

    def tokens(self) -> tuple[Token, ...]:
        """All tokens."""
        ...

    def add_counts(self, counts: Sequence[Count]) -> Future[None]:
        """Add to the counts of what was dropped, rejected and so on."""
        ...

    def counts(self, since: int = 0) -> tuple[Count, ...]:
        """Those counts by name and minute."""
        ...

    @property
    def checking(self) -> Checking | None:
        """Where what a better judge says of a sample is kept; None: this store keeps nothing of the kind."""
        ...

    @property
    def pending(self) -> int:
        """Deeds that wait to be written, about."""
        ...

    # --- the store itself ------------------------------------------------------------------------------

    def totals(self) -> Totals:
        """What it holds."""
        ...

    def forget(self, *, before: float | None = None, bytes: int | None = None) -> Future[int]:
        """Remove traces older than a time, or the oldest until no more than so many bytes are used; how many went."""
        ...

    def tidy(self) -> Future[None]:
        """Merge roll-ups that were added apart; nothing that is read changes."""
        ...

    def close(self) -> None:
        """Write what waits to be written, and let the place go. Safe to call twice."""
        ...


class Checking(Protocol):
    """Where the sample that a better judge is asked about is kept; a part of a store, with its manners.

    A judge is named by its fingerprint: what was drawn for one is not asked of another.
    """

    def draw(self, draws: Sequence[Drawn]) -> Future[None]:
        """Keep what became of traces in the draw, those that were not taken as well."""
        ...

    def drawn(self) -> dict[str, int]:
        """How many traces of each route were drawn from."""
        ...

    def waiting(self, judge: str, limit: int = 256) -> Sequence[Kept]:
        """Traces that were taken for a judge and wait for it, in the order of arrival."""
        ...

    def add(self, done: Sequence[Check], numbers: Sequence[int]) -> Future[None]:
        """Keep what a judge said of the traces with these numbers."""
        ...

    def leave(self, judge: str, now: float) -> Future[int]:
        """Leave out all that waits for a judge, as of now; how many traces that were."""
        ...

    def checks(self, judge: str, since: float = 0.0) -> Checks:
        """How many checks a judge made since a time, how many were left out, and how many wait."""
        ...

    def checks_of(self, trace: str) -> tuple[Check, ...]:
        """What better judges said of a trace."""
        ...

    def sample(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[Sample, ...]:
        """The values by both judges, by metric and route, of traces from a time to before another."""
        ...
