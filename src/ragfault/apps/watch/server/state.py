"""State that all parts of a server share: store, settings, clock, counters and worker threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from ragfault.apps.watch.monitoring.alerts import AlertState
from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.ingest.incoming_traces import IncomingRedactor, limit_time
from ragfault.apps.watch.server.ingest.label_limits import LabelLimiter
from ragfault.apps.watch.server.ingest.trace_assembler import TraceAssembler
from ragfault.apps.watch.server.ingest.unread_paths import UnreadPathCounter
from ragfault.apps.watch.server.request_limits import RateLimiter
from ragfault.apps.watch.server.scoring.otlp_export import ScoreExporter
from ragfault.apps.watch.server.scoring.ppi_estimates import PpiEstimator
from ragfault.apps.watch.server.scoring.scoring_workers import ScoringWorkers
from ragfault.apps.watch.server.scoring.spot_checks import SpotChecker
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import AppendResult
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.apps.watch.server.storage.traces import TraceRevision
from ragfault.io.citations import CitationReader
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Trace

log = logging.getLogger("ragfault.server")

T = TypeVar("T")
# seconds for which a cached value is fresh
CACHE_SECONDS = 2.0
STALE_SECONDS = 10.0
"""Seconds for which a stale value is still served while it is recomputed: longer than a page takes to refresh."""
# cached values; the oldest go first
MAX_CACHED = 200
MAX_CLOCK_STEP = 3600.0
"""Seconds by which the clock may be set while the server runs without retention being held back."""
# the setting that holds the state of all alerts
ALERTS_SETTING = "alerts"
# the setting that holds the incidents that are open, or whose end was not told yet
INCIDENTS_SETTING = "incidents"


def measure_clock_offset() -> float:
    """Return the seconds by which the clock is ahead of the uptime, which goes on while the machine sleeps."""
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
    return time.time() - uptime


class ServerState:
    """State of one server, at `app.state.server`: store, settings, clock, counters and workers."""

    def __init__(self, settings: ServerSettings, store: TraceStore, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.store = settings, store
        self.now = clock
        """Seconds since 1970, UTC; the demo has a clock of its own."""
        self.counters = EventCounters(store, clock)
        """Counts of traces that were dropped, rejected, repeated and taken."""
        self._cached: OrderedDict[str, tuple[float, object]] = OrderedDict()
        self._cache_locks: dict[str, threading.Lock] = {}
        self._refreshing: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()
        self.clock_offset = measure_clock_offset()
        """Seconds by which the clock of the machine was ahead of its uptime at the start."""
        self.rate_limiter = RateLimiter(settings.limits.rate)
        self.spot_checker = None if settings.check is None else SpotChecker(settings, store)
        """Asks a stronger judge about a sample; None without spot checks."""
        self.ppi_estimator = None if self.spot_checker is None else PpiEstimator(store, self.spot_checker, clock)
        draw_sample = None if self.spot_checker is None else self.spot_checker.draw_sample
        self.scoring_workers = ScoringWorkers(settings, store, draw_sample)
        self.alert_lock = threading.Lock()
        """Guards changes of the state of the alerts."""
        self.registry_lock = threading.Lock()
        """Guards changes of clusters and saved views."""
        self.redaction = IncomingRedactor(settings, self.counters)
        self.labels = LabelLimiter(store.list_routes, self.counters.add)
        """Bounds the routes and cohorts that traffic names."""
        self.scoring_workers.limit_cohorts = self.labels.limit_cohorts
        self.unread = UnreadPathCounter(self.counters)
        """Paths of incoming records that no field takes."""
        self.citations = CitationReader(log.debug)
        """Reads the citations in the texts of answers; what marks mean is decided on all traces since the start."""
        self.trace_assembler = TraceAssembler(
            store,
            self.counters,
            self._note_stored,
            self.prepare_trace,
            settings.span_timeout,
            keep_origins=settings.otlp is not None,
            revise=TraceRevision(frozenset(), tuple(settings.cohort_fields), self.labels.limit_cohorts),
            unread=self.unread,
        )
        self.score_exporter = ScoreExporter(settings, self.counters, self.scoring_workers.measures)
        self.scoring_workers.on_scored = self.score_exporter.enqueue_scores

    def _note_stored(self, appended: AppendResult) -> None:
        """Notify the workers of traces of spans."""
        self.scoring_workers.add_waiting(appended.added)
        if appended.replaced:
            # some were judged, some not
            self.scoring_workers.recount()

    def prepare_trace(self, trace: Trace) -> Trace:
        """Return a trace that came in as it is stored: redacted, with citations of its text, route and time bounded."""
        cited = self.citations.read(self.redaction.redact_trace(trace))
        return limit_time(self.labels.limit_route(cited), self.now())

    def get_cached(self, name: str, compute: Callable[[], T], fresh_seconds: float = CACHE_SECONDS) -> T:
        """Return a cached value, computing it where it is missing or older than both limits.

        A value older than `fresh_seconds` is returned for STALE_SECONDS more while a thread recomputes it.
        """
        with self._lock:
            lock = self._cache_locks.setdefault(name, threading.Lock())
        # one thread computes a missing value, and those of other names need not wait for it
        with lock:
            with self._lock:
                computed_at, value = self._cached.get(name, (-math.inf, None))
            age = time.monotonic() - computed_at
            if age >= fresh_seconds + STALE_SECONDS:
                value = compute()
                self._store_cached(name, value)
            elif age >= fresh_seconds and name not in self._refreshing:
                self._refreshing.add(name)
                threading.Thread(target=self._refresh_cached, args=(name, compute), daemon=True).start()
        return cast(T, value)

    def _store_cached(self, name: str, value: object) -> None:
        with self._lock:
            self._cached[name] = (time.monotonic(), value)
            self._cached.move_to_end(name)
            while len(self._cached) > MAX_CACHED:
                oldest, _ = self._cached.popitem(last=False)
                self._cache_locks.pop(oldest, None)

    def _refresh_cached(self, name: str, compute: Callable[[], object]) -> None:
        """Recompute a cached value; after an error the next reader computes it."""
        try:
            self._store_cached(name, compute())
        except Exception:
            if not self._closed:
                log.exception("what pages show cannot be made anew")
            with self._lock:
                self._cached.pop(name, None)
        finally:
            self._refreshing.discard(name)

    @property
    def measures(self) -> dict[str, MetricInfo]:
        """The metrics that the store holds, by name."""
        return {measure.name: measure for measure in self.store.read_measures()}

    @property
    def next_minute(self) -> int:
        """The minute after the present one, in minutes since 1970: the end of windows up to now."""
        return math.floor(self.now() / 60) + 1

    def compute_retention_bound(self) -> float | None:
        """Return the arrival before which traces expire; None where none does.

        None also where the clock of the machine was set by more than an hour since the start: a clock that runs ahead
        must not delete what is young. The next start trusts the clock again.
        """
        days = self.settings.retention_days
        if days is None:
            return None
        if abs(measure_clock_offset() - self.clock_offset) > MAX_CLOCK_STEP:
            log.warning("the clock of this machine was set: nothing expires by age until the server is started again")
            return None
        return time.time() - 86400 * days

    def load_alert_state(self) -> AlertState:
        """Load firing and pending alerts and the silences."""
        return msgspec.convert(self.store.read_setting(ALERTS_SETTING, {}), AlertState)

    def load_incidents(self) -> tuple[Incident, ...]:
        """Load the incidents that are open, or whose end was not told yet."""
        return msgspec.convert(self.store.read_setting(INCIDENTS_SETTING, []), tuple[Incident, ...])

    def open(self) -> None:
        """Start the workers, first with what waited when the server last stopped."""
        if self.spot_checker is not None and self.ppi_estimator is not None:
            self.spot_checker.start()
            self.ppi_estimator.start()
        self.scoring_workers.start()
        self.trace_assembler.start()
        self.score_exporter.start()

    def close(self) -> None:
        """Finish work in progress, write what waits to be written, and close the store."""
        self._closed = True
        self.trace_assembler.close()
        self.scoring_workers.close()
        self.score_exporter.close()
        if self.spot_checker is not None and self.ppi_estimator is not None:
            self.ppi_estimator.close()
            self.spot_checker.close()
        self.counters.flush()
        self.store.close()
