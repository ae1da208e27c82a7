"""The patrol: each minute roll-ups are looked at, drops called, alerts moved on and sent, and old traces forgotten."""

from __future__ import annotations

import logging
import threading

from ragfault.server.desk import Desk

__all__ = ["Patrol"]

log = logging.getLogger("ragfault.server")

EVERY = 60.0
"""Seconds between rounds, by the clock of the desk."""


class Patrol:
    """A thread that makes its rounds while the server runs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-patrol", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after the round that is under way."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def round(self) -> None:
        """Look at everything once."""
        desk = self._desk
        desk.tallies.flush()
        desk.store.tidy().result()

    def _work(self) -> None:
        last = self._desk.now()
        while not self._ending.wait(0.5):
            now = self._desk.now()
            if now - last >= EVERY:
                last = now
                try:
                    self.round()
                except Exception:  # a round that fails is told, and the next one comes
                    log.exception("a round of the patrol failed")
