"""Demo traffic: the handbook traces replayed in accelerated time, with a retrieval fault at a known minute."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import TimelineMark
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.model.records import Trace

# seconds of the demo per real second
DEMO_SPEED = 60.0
# minutes of healthy traffic before the demo starts
HISTORY_MINUTES = 180
# the minute of the demo at which retrieval breaks
FAULT_START = 30
# minutes for which retrieval stays broken
FAULT_MINUTES = 240
# traces per minute of the demo
TRACES_PER_MINUTE = 6
# seconds between two ticks of the clock
POLL_SECONDS = 0.1
# unjudged traces above which the clock pauses
MAX_WAITING = 2 * TRACES_PER_MINUTE
# the routes of the demo
DEMO_ROUTES = ("counter", "website")
# the route whose retrieval breaks
FAULTY_ROUTE = "website"
NO_CONVERSATION: dict[str, Any] = {"conversation": None, "turn": None}
"""Fields that make a question of the demo independent of the others."""
BROKEN_SHARE = 0.7
"""Share of the traces of FAULTY_ROUTE that get the chunks of another question while retrieval is broken."""


class DemoClock:
    """Clock that runs faster than real time while it is ticked, and stops otherwise.

    >>> clock = DemoClock(60)
    >>> begin = clock()
    >>> clock() == begin, clock.tick() or clock() > begin
    (True, True)
    """

    def __init__(self, speed: float = DEMO_SPEED) -> None:
        self._speed, self._now, self._last = speed, time.time(), time.monotonic()

    def tick(self) -> None:
        """Advance by the time since the last tick or pause, at most by two polling intervals."""
        real = time.monotonic()
        self._now += min(real - self._last, 2 * POLL_SECONDS) * self._speed
        self._last = real

    def pause(self) -> None:
        """Skip the time since the last tick."""
        self._last = time.monotonic()

    def __call__(self) -> float:
        return self._now


class DemoTraffic(BackgroundThread):
    """Thread that writes the traces of the demo into the store of a server.

    The history is stored first. The clock stops while more than MAX_WAITING traces wait to be judged: the demo
    raises the same alerts on a slow machine.
    """

    def __init__(self, server: ServerState, start_time: float, seed: int = 0, clock: DemoClock | None = None) -> None:
        self._server, self._start_time, self._clock = server, start_time, clock
        self._random = random.Random(seed)
        self._healthy_traces = load_handbook().traces["v1"]
        super().__init__("ragfault-demo")

    def make_minute(self, minute: int) -> Iterator[Trace]:
        """Yield the traces of a minute of the demo; minutes of the history are negative."""
        is_faulty = FAULT_START <= minute < FAULT_START + FAULT_MINUTES
        for index in range(TRACES_PER_MINUTE):
            trace = self._random.choice(self._healthy_traces)
            moment = datetime.fromtimestamp(self._start_time, UTC) + timedelta(
                minutes=minute + index / TRACES_PER_MINUTE
            )
            route = DEMO_ROUTES[self._random.random() < 0.5]
            metadata = {**trace.metadata, "release": "index-2" if minute >= FAULT_START else "index-1"}
            name = f"demo-{int(self._start_time)}-{minute}-{index}"
            copy = replace(trace, id=name, time=moment, metadata=metadata, route=route, **NO_CONVERSATION)
            if is_faulty and route == FAULTY_ROUTE and self._random.random() < BROKEN_SHARE:
                copy = replace(copy, chunks=self._random.choice(self._healthy_traces).chunks)
            yield copy

    def _run(self) -> None:
        self._store_traces([trace for minute in range(-HISTORY_MINUTES, 0) for trace in self.make_minute(minute)])
        minute = 0
        while not self._stopping.wait(POLL_SECONDS):
            self._advance_clock()
            while self._start_time + 60 * (minute + 1) <= self._server.now():
                if minute == FAULT_START:
                    moment = datetime.fromtimestamp(self._start_time + 60 * FAULT_START, UTC)
                    mark = TimelineMark(text="release index-2", time=moment)
                    self._server.store.add_marks([mark], self._server.now())
                self._store_traces(list(self.make_minute(minute)))
                minute += 1

    def _advance_clock(self) -> None:
        """Advance the clock unless the judge has fallen behind."""
        if self._clock is None:
            return
        if self._server.settings.workers and self._server.scoring_workers.summarize()["waiting"] > MAX_WAITING:
            self._clock.pause()
        else:
            self._clock.tick()

    def _store_traces(self, traces: list[Trace]) -> None:
        appended = self._server.store.append_traces(traces, counted=(self._server.counters.minute, "repeated")).result()
        self._server.counters.add_stored("taken", appended.added)
        self._server.scoring_workers.add_waiting(appended.added)
