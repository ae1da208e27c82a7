"""Demo traffic: the handbook traces replayed in accelerated time, with a retrieval fault at a known minute."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ragfault.io.datasets import load_handbook
from ragfault.records import Trace
from ragfault.server.state import ServerState
from ragfault.server.storage import TimelineMark

DEMO_SPEED = 60.0
"""Seconds of the demo to a second."""
HISTORY_MINUTES = 180
"""Minutes of good traffic that are there when the demo begins."""
FAULT_START = 30
"""The minute of the demo from which on retrieval is broken."""
FAULT_MINUTES = 240
"""Minutes for which it stays so."""
TRACES_PER_MINUTE = 6
"""Traces a minute of the demo."""
POLL_SECONDS = 0.1
"""Seconds between looks at the clock."""
MAX_WAITING = 2 * TRACES_PER_MINUTE
"""Traces that may wait to be judged while time goes."""
DEMO_ROUTES = ("counter", "website")
"""Where the demo's questions are asked."""
FAULTY_ROUTE = "website"
"""Where retrieval breaks."""
NO_CONVERSATION: dict[str, Any] = {"conversation": None, "turn": None}
"""The demo's questions are drawn one by one."""
BROKEN_SHARE = 0.7
"""Share of that route's traces whose chunks are those of another question, while retrieval is broken."""


class DemoClock:
    """A clock that goes faster than the real one while somebody moves it on, and stands where nobody does.

    >>> clock = DemoClock(60)
    >>> begin = clock()
    >>> clock() == begin, clock.tick() or clock() > begin
    (True, True)
    """

    def __init__(self, speed: float = DEMO_SPEED) -> None:
        self._speed, self._now, self._last = speed, time.time(), time.monotonic()

    def tick(self) -> None:
        """Go on by what passed since it was last moved, or stood, and by no more than two looks."""
        real = time.monotonic()
        self._now += min(real - self._last, 2 * POLL_SECONDS) * self._speed
        self._last = real

    def pause(self) -> None:
        """Let the time pass without it."""
        self._last = time.monotonic()

    def __call__(self) -> float:
        return self._now


class DemoTraffic:
    """A thread that sends the traces of the demo into the store of a server, as if they came in.

    The past comes first; time begins once it is judged, and stands while more than a little waits to be judged or to be
    sent: no machine is too slow for a reference, and for the alerts that follow.
    """

    def __init__(
        self, server: ServerState, start_time: float, seed: int = 0, clock: DemoClock | None = None
    ) -> None:
        self._server, self._start_time, self._clock = server, start_time, clock
        self._random = random.Random(seed)
        self._healthy_traces = load_handbook().traces["v1"]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragfault-demo", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def make_minute(self, minute: int) -> Iterator[Trace]:
        """The traces of a minute of the demo, counted from its beginning; those before it are below 0."""
        fault = FAULT_START <= minute < FAULT_START + FAULT_MINUTES
        for at in range(TRACES_PER_MINUTE):
            trace = self._random.choice(self._healthy_traces)
            moment = datetime.fromtimestamp(self._start_time, UTC) + timedelta(
                minutes=minute + at / TRACES_PER_MINUTE
            )
            route = DEMO_ROUTES[self._random.random() < 0.5]
            metadata = {**trace.metadata, "release": "index-2" if minute >= FAULT_START else "index-1"}
            name = f"demo-{int(self._start_time)}-{minute}-{at}"
            made = replace(trace, id=name, time=moment, metadata=metadata, route=route, **NO_CONVERSATION)
            if fault and route == FAULTY_ROUTE and self._random.random() < BROKEN_SHARE:
                made = replace(made, chunks=self._random.choice(self._healthy_traces).chunks)
            yield made

    def _run(self) -> None:
        self._store_traces(
            [trace for minute in range(-HISTORY_MINUTES, 0) for trace in self.make_minute(minute)]
        )
        minute = 0
        while not self._stopping.wait(POLL_SECONDS):
            self._advance_clock()
            while self._start_time + 60 * (minute + 1) <= self._server.now():
                if minute == FAULT_START:
                    moment = datetime.fromtimestamp(self._start_time + 60 * FAULT_START, UTC)
                    self._server.store.add_marks(
                        [TimelineMark(text="release index-2", time=moment)], self._server.now()
                    )
                self._store_traces(list(self.make_minute(minute)))
                minute += 1

    def _advance_clock(self) -> None:
        """Move time on as long as the judge keeps up."""
        if self._clock is None:
            return
        if self._server.settings.workers and self._server.summarize_scoring()["waiting"] > MAX_WAITING:
            self._clock.pause()
        else:
            self._clock.tick()

    def _store_traces(self, traces: list[Trace]) -> None:
        found = self._server.store.append_traces(traces).result()
        self._server.counters.add("taken", found.added)
        self._server.scoring_workers.add_waiting(found.added)
