"""The desk: what the parts of a server share – store, settings, clock, and whoever scores."""

from __future__ import annotations

import time
from collections.abc import Callable

from ragfault.server.scorers import Scorers
from ragfault.server.settings import Settings
from ragfault.server.tallies import Tallies
from ragfault.store import Store

__all__ = ["Desk"]


class Desk:
    """What every handler is given; one for each server, at `app.state.desk`."""

    def __init__(self, settings: Settings, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.store = settings, store
        self.now = clock
        """Seconds since 1970, UTC; the demo has a clock of its own."""
        self.tallies = Tallies(store, clock)
        """Counts of what was dropped, rejected, repeated, sent."""
        self.scorers = Scorers(settings, store)

    def scoring(self) -> dict[str, float]:
        """How scoring goes: what it took, and how much waits."""
        return self.scorers.figures()

    def open(self) -> None:
        """Begin to score; what waited when the server was last ended, however it was, comes first."""
        self.scorers.start()

    def close(self) -> None:
        """Score what is under way, write what waits to be written, and let the store go."""
        self.scorers.close()
        self.tallies.flush()
        self.store.close()
