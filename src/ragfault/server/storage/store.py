"""The store protocol that both engines implement, and `open_store`, which opens one by folder or address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from ragfault.analysis.monitoring.rollups import ProductSums, Rollup, WorstTrace
from ragfault.errors import UsageError
from ragfault.evaluation.agreement.human_labels import HumanLabel
from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.server.storage.clickhouse.connection import ADDRESS_SCHEMES
from ragfault.server.storage.records import (
    AccessToken,
    AlertEvent,
    AppendResult,
    EventCount,
    PendingBody,
    ReceivedTrace,
    SampleDraw,
    SpotCheck,
    SpotCheckCounts,
    SpotCheckSample,
    StoredTrace,
    StoreTotals,
    TimelineMark,
    TraceOutcome,
    TracePage,
    TraceSelection,
)


class TraceStore(Protocol):
    """Where live traces, what was seen in them, and what came of that are kept.

    Deeds that write return a Future, which is done when what was written would survive a kill; those that read
    return at once, and are called from any thread. Times are seconds since 1970, UTC; minutes are those by 60.
    """

    # --- traces ------------------------------------------------------------------------------------

    def append_traces(self, traces: Sequence[Trace], released: Sequence[int] = ()) -> Future[AppendResult]:
        """Take traces in, each once by its id; in the same breath let go of what was held for them."""
        ...

    def add_outcomes(
        self,
        outcomes: Sequence[TraceOutcome],
        measures: Sequence[MetricInfo],
        cohort_fields: Sequence[str] = (),
    ) -> Future[int]:
        """Add verdicts and scores, and count them into the roll-ups; a trace that has them already is passed over.

        `measures` say what the metrics are, `by` names the fields whose values are cohorts. The number of those that
        were added.
        """
        ...

    def list_unscored(self, after: int = 0, limit: int = 256) -> Sequence[ReceivedTrace]:
        """Traces that wait to be judged, in the order of arrival, those behind the number `after`."""
        ...

    def list_traces(self, selection: TraceSelection) -> TracePage:
        """A page of a selection; walking by `next` meets each trace once. Raises UsageError for a page that is none."""
        ...

    def count_traces(self, selection: TraceSelection) -> int:
        """How many traces a selection holds, whatever its limit."""
        ...

    def iterate_judged(self, selection: TraceSelection) -> Iterator[StoredTrace]:
        """All judged traces of a selection in the order of arrival, whatever its sorting, paging and limit."""
        ...

    def get_trace(self, id: str) -> StoredTrace | None:
        """One trace with all that is known of it; None where there is none."""
        ...

    # --- what came in and is not yet a trace ---------------------------------------------------------

    def add_pending(self, kind: str, bodies: Sequence[bytes]) -> Future[tuple[int, ...]]:
        """Keep bodies; their numbers."""
        ...

    def list_pending(self, kind: str, after: int = 0, limit: int = 256) -> Sequence[PendingBody]:
        """What is held, in the order of arrival."""
        ...

    # --- watching ------------------------------------------------------------------------------------

    def read_rollups(
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

    def read_total_rollups(self) -> tuple[Rollup, ...]:
        """What was ever counted: one roll-up for each metric and route, which only grows and costs the same to read."""
        ...

    def read_products(self, since: int, until: int) -> tuple[ProductSums, ...]:
        """The sums of products of pairs of metrics, by minute."""
        ...

    def read_worst_traces(
        self, metric: str, since: int, until: int, *, route: str | None = None, limit: int = 5
    ) -> tuple[WorstTrace, ...]:
        """The traces with the worst values of a metric within some minutes, the worst first."""
        ...

    def read_measures(self) -> tuple[MetricInfo, ...]:
        """The metrics that are kept, in the order in which they were first met."""
        ...

    def list_routes(self) -> tuple[str, ...]:
        """The routes by name; the empty text where some traces name none."""
        ...

    # --- marks, alerts, labels, settings, tokens, counts -----------------------------------------------

    def add_marks(self, marks: Sequence[TimelineMark], now: float) -> Future[int]:
        """Keep marks, each once by its id, those without a time as of now; how many were new."""
        ...

    def read_marks(self, since: float = 0.0, until: float | None = None) -> tuple[TimelineMark, ...]:
        """Marks in the order of time."""
        ...

    def add_events(
        self, events: Sequence[AlertEvent], settings: dict[str, Any] | None = None
    ) -> Future[None]:
        """Keep what happened to alerts, and in the same breath settings: the state of the alerts."""
        ...

    def read_events(self, alert: str | None = None, limit: int = 200) -> tuple[AlertEvent, ...]:
        """What happened to alerts, the latest first."""
        ...

    def add_label(self, label: HumanLabel) -> Future[None]:
        """Keep what somebody said of a trace."""
        ...

    def read_labels(self, trace: str | None = None) -> tuple[HumanLabel, ...]:
        """What people said, in order."""
        ...

    def save_setting(self, name: str, value: Any) -> Future[None]:
        """Keep a setting as JSON; None removes it."""
        ...

    def read_setting(self, name: str, default: Any = None) -> Any:
        """A setting, or the default."""
        ...

    def save_token(self, token: AccessToken) -> Future[None]:
        """Keep a token; one of the same name gives way."""
        ...

    def delete_token(self, name: str) -> Future[None]:
        """Let a token go."""
        ...

    def read_tokens(self) -> tuple[AccessToken, ...]:
        """All tokens."""
        ...

    def add_counts(self, counts: Sequence[EventCount]) -> Future[None]:
        """Add to the counts of what was dropped, rejected and so on."""
        ...

    def read_counts(self, since: int = 0) -> tuple[EventCount, ...]:
        """Those counts by name and minute."""
        ...

    @property
    def spot_checks(self) -> SpotCheckStore | None:
        """Where what a better judge says of a sample is kept; None: this store keeps nothing of the kind."""
        ...

    @property
    def queued_writes(self) -> int:
        """Deeds that wait to be written, about."""
        ...

    # --- the store itself ------------------------------------------------------------------------------

    def compute_totals(self) -> StoreTotals:
        """What it holds."""
        ...

    def delete_expired(self, *, before: float | None = None, max_bytes: int | None = None) -> Future[int]:
        """Remove traces older than a time, or the oldest until no more than so many bytes are used; how many went."""
        ...

    def compact(self) -> Future[None]:
        """Merge roll-ups that were added apart; nothing that is read changes."""
        ...

    def close(self) -> None:
        """Write what waits to be written, and let the place go. Safe to call twice."""
        ...


class SpotCheckStore(Protocol):
    """Where the sample that a better judge is asked about is kept; a part of a store, with its manners.

    A judge is named by its fingerprint: what was drawn for one is not asked of another.
    """

    def add_draws(self, draws: Sequence[SampleDraw]) -> Future[None]:
        """Keep what became of traces in the draw, those that were not taken as well."""
        ...

    def count_draws(self) -> dict[str, int]:
        """How many traces of each route were drawn from."""
        ...

    def list_waiting(self, judge: str, limit: int = 256) -> Sequence[ReceivedTrace]:
        """Traces that were taken for a judge and wait for it, in the order of arrival."""
        ...

    def add_checks(self, checks: Sequence[SpotCheck], numbers: Sequence[int]) -> Future[None]:
        """Keep what a judge said of the traces with these numbers."""
        ...

    def skip_waiting(self, judge: str, now: float) -> Future[int]:
        """Leave out all that waits for a judge, as of now; how many traces that were."""
        ...

    def count_checks(self, judge: str, since: float = 0.0) -> SpotCheckCounts:
        """How many checks a judge made since a time, how many were left out, and how many wait."""
        ...

    def read_trace_checks(self, trace: str) -> tuple[SpotCheck, ...]:
        """What better judges said of a trace."""
        ...

    def read_samples(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[SpotCheckSample, ...]:
        """The values by both judges, by metric and route, of traces from a time to before another."""
        ...


def is_store_folder(place: str | Path) -> bool:
    """Whether a place is a folder, not the address of a service.

    >>> is_store_folder("watched"), is_store_folder("clickhouse://db.example/watched")
    (True, False)
    """
    return "://" not in str(place)


def open_store(place: str | Path) -> TraceStore:
    """The store in a folder, which is made where there is none, or at an address: `clickhouse://HOST/DATABASE`.

    This process owns it until it is closed. Raises UsageError for a place of a kind that there is no store for, and
    what `store.duck.Duck` and `store.clickhouse.ClickHouse` raise.

    >>> import tempfile
    >>> store = open_store(tempfile.mkdtemp())
    >>> store.compute_totals().traces
    0
    >>> store.close()
    """
    from ragfault.server.storage.clickhouse.store import ClickHouseStore
    from ragfault.server.storage.duckdb.store import DuckDBStore

    if is_store_folder(place):
        return DuckDBStore(Path(place))
    scheme = str(place).partition("://")[0]
    if scheme not in ADDRESS_SCHEMES:
        raise UsageError(
            f"there is no store for {scheme[:20]}://. Name a folder, --store ./watched, or a ClickHouse, "
            "--store clickhouse://user@host:8123/database"
        )
    return ClickHouseStore(str(place))
