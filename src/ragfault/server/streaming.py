"""The demo: the handbook's traces as live traffic in accelerated time, with a fault of retrieval at a known moment."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ragfault.datasets import handbook
from ragfault.records import Trace
from ragfault.server.desk import Desk
from ragfault.store import Mark

__all__ = ["BEFORE", "FAULT", "SPEED", "Clock", "Streamer"]

SPEED = 60.0
"""Seconds of the demo to a second."""
BEFORE = 180
"""Minutes of good traffic that are there when the demo begins."""
FAULT = 30
"""The minute of the demo from which on retrieval is broken."""
LASTS = 240
"""Minutes for which it stays so."""
RATE = 6
"""Traces a minute of the demo."""
LOOK = 0.1
"""Seconds between looks at the clock."""
AHEAD = 2 * RATE
"""Traces that may wait to be judged while time goes."""
ROUTES = ("counter", "website")
"""Where the demo's questions are asked."""
FAULTY = "website"
"""Where retrieval breaks."""
ALONE: dict[str, Any] = {"conversation": None, "turn": None}
"""The demo's questions are drawn one by one."""
BROKEN = 0.7
"""Share of that route's traces whose chunks are those of another question, while retrieval is broken."""


class Clock:
    """A clock that goes faster than the real one while somebody moves it on, and stands where nobody does.

    >>> clock = Clock(60)
    >>> begin = clock()
    >>> clock() == begin, clock.tick() or clock() > begin
    (True, True)
    """

    def __init__(self, speed: float = SPEED) -> None:
        self._speed, self._now, self._last = speed, time.time(), time.monotonic()

    def tick(self) -> None:
        """Go on by what passed since it was last moved, or stood, and by no more than two looks."""
        real = time.monotonic()
        self._now += min(real - self._last, 2 * LOOK) * self._speed
        self._last = real

    def stand(self) -> None:
        """Let the time pass without it."""
        self._last = time.monotonic()

    def __call__(self) -> float:
        return self._now


class Streamer:
    """A thread that sends the traces of the demo into the store of a server, as if they came in.

    The past comes first; time begins once it is judged, and stands while more than a little waits to be judged or to be
    sent: no machine is too slow for a reference, and for the alerts that follow.
    """

    def __init__(self, desk: Desk, begin: float, seed: int = 0, clock: Clock | None = None) -> None:
        self._desk, self._begin, self._clock = desk, begin, clock
        self._random = random.Random(seed)
        self._good = handbook().traces["v1"]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-demo", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def minute(self, minute: int) -> Iterator[Trace]:
        """The traces of a minute of the demo, counted from its beginning; those before it are below 0."""
        fault = FAULT <= minute < FAULT + LASTS
        for at in range(RATE):
            trace = self._random.choice(self._good)
            moment = datetime.fromtimestamp(self._begin, UTC) + timedelta(minutes=minute + at / RATE)
            route = ROUTES[self._random.random() < 0.5]
            metadata = {**trace.metadata, "release": "index-2" if minute >= FAULT else "index-1"}
            name = f"demo-{int(self._begin)}-{minute}-{at}"
            made = replace(trace, id=name, time=moment, metadata=metadata, route=route, **ALONE)
            if fault and route == FAULTY and self._random.random() < BROKEN:
                made = replace(made, chunks=self._random.choice(self._good).chunks)
            yield made

    def _work(self) -> None:
        self._take([trace for minute in range(-BEFORE, 0) for trace in self.minute(minute)])
        minute = 0
        while not self._ending.wait(LOOK):
            self._pace()
            while self._begin + 60 * (minute + 1) <= self._desk.now():
                if minute == FAULT:
                    moment = datetime.fromtimestamp(self._begin + 60 * FAULT, UTC)
                    self._desk.store.mark([Mark(text="release index-2", time=moment)], self._desk.now())
                self._take(list(self.minute(minute)))
                minute += 1

    def _pace(self) -> None:
        """Move time on as long as the judge keeps up."""
        if self._clock is None:
            return
        if self._desk.settings.workers and self._desk.scoring()["waiting"] > AHEAD:
            self._clock.stand()
        else:
            self._clock.tick()

    def _take(self, traces: list[Trace]) -> None:
        found = self._desk.store.append(traces).result()
        self._desk.tallies.add("taken", found.taken)
        self._desk.scorers.called(found.taken)
