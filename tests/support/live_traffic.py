"""Live traffic with scores that a test chooses, minute by minute, through a real store and the real scheduler."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.server.alerts.delivery import IncidentNotice
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import TimelineMark
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.metrics.selection import select_metrics
from ragfault.model.records import Latency, Score, Trace, Verdicts

METRICS = ("context_relevance", "groundedness", "answer_relevance")
SCORED = (*METRICS, "error")
LEVELS = dict.fromkeys(METRICS, 0.85)
RETRIEVAL = {"context_relevance": 0.4, "groundedness": 0.55}
"""What a fault of retrieval does to the means: it shows in the answers, too."""
GENERATION = {"groundedness": 0.4}
BEGIN = 1_900_000_000 // 60 * 60.0

Means = Callable[[str, int], dict[str, float]]
"""Means of the metrics on a route at a minute."""


class LiveTraffic:
    """A server without workers whose traffic, scores and clock the test sets; healthy for 80 minutes at first."""

    def __init__(self, folder: Path, routes: Iterable[str | None], seed: int = 0, **options: Any) -> None:
        self.late = int(options.pop("late", 0))  # minutes by which all traces come after their time
        self.moment, self.minute = BEGIN + 60 * self.late, 0
        settings = ServerSettings(
            store=folder, workers=0, metrics=SCORED, reference_minutes=options.pop("reference", 60), **options
        )
        self.folder = folder
        self.app = create_app(settings, lambda: self.moment)
        self.server, self.scheduler = self.app.state.server, self.app.state.scheduler
        self.routes, self.notices = tuple(routes), list[IncidentNotice]()
        self.judge, self.query = "made/1", "When?"
        self._random, self._failures = random.Random(seed), random.Random(seed)
        self._measures = tuple(map(describe_metric, select_metrics(SCORED)))
        self._layers = {measure.name: measure.layer for measure in self._measures}

    def run(
        self,
        minutes: int,
        faults: dict[str | None, dict[str, float]] | None = None,
        per_minute: int = 3,
        *,
        round_minutes: int = 10,
    ) -> None:
        """Let minutes pass, with a round every few: each route has the means of its fault, "error" and "ms" too."""
        for passed in range(0, minutes, round_minutes):
            self.fill(min(round_minutes, minutes - passed), faults, per_minute)
            self.notices += self.scheduler.run_round()

    def fill(self, minutes: int, faults: dict[str | None, dict[str, float]] | None = None, per_minute: int = 3) -> None:
        """Let minutes pass without a round; "acme" is the tenant of the first trace of each minute on each route."""
        faults = faults or {}
        outcomes = [
            self._make_trace(
                route, minute, at, LEVELS | faults.get(route, {}) | (faults.get("acme", {}) if not at else {})
            )
            for minute in range(self.minute, self.minute + minutes)
            for route in self.routes
            for at in range(per_minute)
        ]
        store = self.server.store
        self.server.counters.add("taken", len(outcomes))
        store.append_traces([outcome.trace for outcome in outcomes])
        store.add_outcomes(outcomes, self._measures, ("release", "metadata.tenant")).result()
        self.minute += minutes
        self.moment = BEGIN + 60 * (self.minute + self.late)

    def wait(self, minutes: int) -> None:
        """Let minutes pass without a trace, with a round every five."""
        for _ in range(0, minutes, 5):
            self.moment += 300
            self.minute += 5
            self.notices += self.scheduler.run_round()

    def mark(self, text: str, route: str | None = None) -> None:
        """Add a mark at the present minute."""
        mark = TimelineMark(text=text, route=route, time=datetime.fromtimestamp(self.moment, UTC))
        self.server.store.add_marks([mark], self.moment).result()

    @property
    def open(self) -> list[Incident]:
        """The open incidents."""
        return [incident for incident in self.server.load_incidents() if incident.resolved is None]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the notices that were sent."""
        return [notice.kind for notice in self.notices]

    def close(self) -> None:
        self.server.store.close()

    def go_on_in(self, folder: Path) -> Self:
        """Return the same traffic on a copy of the store, which is closed; its settings are the usual ones."""
        shutil.copytree(self.folder, folder)
        other = type(self)(folder, self.routes)
        other.moment, other.minute = self.moment, self.minute
        other._random.setstate(self._random.getstate())
        other._failures.setstate(self._failures.getstate())
        return other

    def _make_trace(self, route: str | None, minute: int, at: int, means: dict[str, float]) -> ScoredTrace:
        moment = datetime.fromtimestamp(BEGIN + 60 * minute + 7 * at, UTC)
        id, has_error = f"{route}-{minute}-{at}", self._failures.random() < means.get("error", 0.0)
        trace = Trace(
            id=id,
            query=str(means.get("query", self.query)),
            answer="Now.",
            route=route,
            time=moment,
            error="timeout" if has_error else None,
            latency=Latency(total=means.get("ms", 800.0) * self._failures.lognormvariate(0.0, 0.3)),
            metadata={"release": "6" if route in ("c", "d") else "7", "tenant": "b" if at else "acme"},
        )
        values = {name: min(1.0, max(0.0, self._random.gauss(means[name], 0.15))) for name in METRICS}
        values = {"error": 1.0} if has_error else {"error": 0.0, **values}
        scores = tuple(
            Score(trace=id, metric=name, layer=self._layers[name], status="scored", value=value)
            for name, value in values.items()
        )
        return ScoredTrace(trace, Verdicts(trace=id, judge=self.judge), scores)
