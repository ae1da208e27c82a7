"""State that all parts of a server share: store, settings, clock, counters and worker threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from ragfault.analysis.monitoring.alerts import AlertState
from ragfault.server.counters import EventCounters
from ragfault.server.ingest.incoming_traces import IncomingRedactor
from ragfault.server.ingest.trace_assembler import TraceAssembler
from ragfault.server.request_limits import RateLimiter
from ragfault.server.scoring.otlp_export import ScoreExporter
from ragfault.server.scoring.ppi_estimates import PpiEstimator
from ragfault.server.scoring.scoring_workers import ScoringWorkers
from ragfault.server.scoring.spot_checks import SpotChecker
from ragfault.server.settings import ServerSettings
from ragfault.server.storage import TraceStore

log = logging.getLogger("ragfault.server")

T = TypeVar("T")
CACHE_SECONDS = 2.0
"""Seconds for which a figure of the overview is as good as new."""
STALE_SECONDS = 4.0
"""Seconds more for which it is shown all the same, while a new one is made."""
ALERTS_SETTING = "alerts"
"""The setting that holds the state of all alerts."""


class ServerState:
    """What every handler is given; one for each server, at `app.state.server`."""

    def __init__(
        self, settings: ServerSettings, store: TraceStore, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings, self.store = settings, store
        self.now = clock
        """Seconds since 1970, UTC; the demo has a clock of its own."""
        self.counters = EventCounters(store, clock)
        """Counts of what was dropped, rejected, repeated, sent."""
        self._cached: dict[str, tuple[float, object]] = {}
        self._refreshing: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()
        self.rate_limiter = RateLimiter(settings.limits.rate)
        self.spot_checker = None if settings.check is None else SpotChecker(settings, store)
        """Who asks a better judge about a sample; None: nobody does."""
        self.ppi_estimator = (
            None if self.spot_checker is None else PpiEstimator(store, self.spot_checker, clock)
        )
        self.scoring_workers = ScoringWorkers(
            settings, store, None if self.spot_checker is None else self.spot_checker.draw_sample
        )
        self.alert_lock = threading.Lock()
        """Held by whoever changes the state of the alerts."""
        self.registry_lock = threading.Lock()
        """Held by whoever reads, changes and writes clusters or saved views."""
        self.redaction = IncomingRedactor(settings, self.counters)
        self.trace_assembler = TraceAssembler(
            store,
            self.counters,
            self.scoring_workers.add_waiting,
            self.redaction.redact_trace,
            keep_origins=settings.otlp is not None,
        )
        self.score_exporter = ScoreExporter(settings, self.counters, self.scoring_workers.measures)
        self.scoring_workers.on_scored = self.score_exporter.enqueue_scores

    def get_cached(self, name: str, compute: Callable[[], T], fresh_seconds: float = CACHE_SECONDS) -> T:
        """What was made under a name a moment ago, or is made now: many who look at once cost as much as one.

        It is as good as new for `good` seconds. Who looks within `SOON` after that is given what there is, and it is
        made anew meanwhile.
        """
        with self._lock:
            made, found = self._cached.get(name, (-math.inf, None))
            age = time.monotonic() - made
            if age >= fresh_seconds + STALE_SECONDS:
                found = compute()
                self._cached[name] = (time.monotonic(), found)
            elif age >= fresh_seconds and name not in self._refreshing:
                self._refreshing.add(name)
                threading.Thread(target=self._refresh_cached, args=(name, compute), daemon=True).start()
        return cast(T, found)

    def _refresh_cached(self, name: str, compute: Callable[[], object]) -> None:
        """Make something anew beside those who look; what cannot be made is made by who looks next."""
        try:
            found = compute()
            with self._lock:
                self._cached[name] = (time.monotonic(), found)
        except Exception:
            if not self._closed:
                log.exception("what pages show cannot be made anew")
            with self._lock:
                self._cached.pop(name, None)
        finally:
            self._refreshing.discard(name)

    def summarize_scoring(self) -> dict[str, float]:
        """How scoring goes: what it took, and how much waits."""
        return self.scoring_workers.summarize()

    def load_alert_state(self) -> AlertState:
        """The alerts that are not over, and the silences."""
        return msgspec.convert(self.store.read_setting(ALERTS_SETTING, {}), AlertState)

    def open(self) -> None:
        """Begin to score; what waited when the server was last ended, however it was, comes first."""
        if self.spot_checker is not None and self.ppi_estimator is not None:
            self.spot_checker.start()
            self.ppi_estimator.start()
        self.scoring_workers.start()
        self.trace_assembler.start()
        self.score_exporter.start()

    def close(self) -> None:
        """Score what is under way, write what waits to be written, and let the store go."""
        self._closed = True
        self.trace_assembler.close()
        self.scoring_workers.close()
        self.score_exporter.close()
        if self.spot_checker is not None and self.ppi_estimator is not None:
            self.ppi_estimator.close()
            self.spot_checker.close()
        self.counters.flush()
        self.store.close()
