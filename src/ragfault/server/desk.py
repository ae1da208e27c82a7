"""The desk: what the parts of a server share – store, settings, clock, and whoever scores."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from ragfault.findings.alerting import State
from ragfault.server.bodies import Rates
from ragfault.server.checking import Checker
from ragfault.server.estimating import Estimates
from ragfault.server.joining import Joiner
from ragfault.server.redacting import Redaction
from ragfault.server.returning import Returner
from ragfault.server.scorers import Scorers
from ragfault.server.settings import Settings
from ragfault.server.tallies import Tallies
from ragfault.store import Store

__all__ = ["ALARMS", "Desk"]

log = logging.getLogger("ragfault.server")

T = TypeVar("T")
LATELY = 2.0
"""Seconds for which a figure of the overview is as good as new."""
SOON = 4.0
"""Seconds more for which it is shown all the same, while a new one is made."""
ALARMS = "alarms"
"""The setting that holds the state of all alerts."""


class Desk:
    """What every handler is given; one for each server, at `app.state.desk`."""

    def __init__(self, settings: Settings, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.store = settings, store
        self.now = clock
        """Seconds since 1970, UTC; the demo has a clock of its own."""
        self.tallies = Tallies(store, clock)
        """Counts of what was dropped, rejected, repeated, sent."""
        self._lately: dict[str, tuple[float, object]] = {}
        self._renewed: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()
        self.rates = Rates(settings.limits.rate)
        self.checker = None if settings.check is None else Checker(settings, store)
        """Who asks a better judge about a sample; None: nobody does."""
        self.estimates = None if self.checker is None else Estimates(store, self.checker, clock)
        self.scorers = Scorers(settings, store, None if self.checker is None else self.checker.draw)
        self.alarming = threading.Lock()
        """Held by whoever changes the state of the alerts."""
        self.registering = threading.Lock()
        """Held by whoever reads, changes and writes clusters or saved views."""
        self.redaction = Redaction(settings, self.tallies)
        self.joiner = Joiner(
            store, self.tallies, self.scorers.called, self.redaction.trace, origins=settings.otlp is not None
        )
        self.returner = Returner(settings, self.tallies, self.scorers.measures)
        self.scorers.told = self.returner.take

    def lately(self, name: str, make: Callable[[], T], good: float = LATELY) -> T:
        """What was made under a name a moment ago, or is made now: many who look at once cost as much as one.

        It is as good as new for `good` seconds. Who looks within `SOON` after that is given what there is, and it is
        made anew meanwhile.
        """
        with self._lock:
            made, found = self._lately.get(name, (-math.inf, None))
            age = time.monotonic() - made
            if age >= good + SOON:
                found = make()
                self._lately[name] = (time.monotonic(), found)
            elif age >= good and name not in self._renewed:
                self._renewed.add(name)
                threading.Thread(target=self._renew, args=(name, make), daemon=True).start()
        return cast(T, found)

    def _renew(self, name: str, make: Callable[[], object]) -> None:
        """Make something anew beside those who look; what cannot be made is made by who looks next."""
        try:
            found = make()
            with self._lock:
                self._lately[name] = (time.monotonic(), found)
        except Exception:
            if not self._closed:
                log.exception("what pages show cannot be made anew")
            with self._lock:
                self._lately.pop(name, None)
        finally:
            self._renewed.discard(name)

    def scoring(self) -> dict[str, float]:
        """How scoring goes: what it took, and how much waits."""
        return self.scorers.figures()

    def alarms(self) -> State:
        """The alerts that are not over, and the silences."""
        return msgspec.convert(self.store.setting(ALARMS, {}), State)

    def open(self) -> None:
        """Begin to score; what waited when the server was last ended, however it was, comes first."""
        if self.checker is not None and self.estimates is not None:
            self.checker.start()
            self.estimates.start()
        self.scorers.start()
        self.joiner.start()
        self.returner.start()

    def close(self) -> None:
        """Score what is under way, write what waits to be written, and let the store go."""
        self._closed = True
        self.joiner.close()
        self.scorers.close()
        self.returner.close()
        if self.checker is not None and self.estimates is not None:
            self.estimates.close()
            self.checker.close()
        self.tallies.flush()
        self.store.close()
