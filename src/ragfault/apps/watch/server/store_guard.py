"""Guard of the store: ends a server whose store cannot be used any more, so that it is started again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.storage.store import TraceStore

# seconds for which a lost store is tried to be opened again before the server ends
GIVE_UP_SECONDS = 60.0
# seconds between two tries
TRY_SECONDS = 1.0
# seconds after which a process that gave up and has not ended is ended at once
EXIT_SECONDS = 60.0


class StoreGuard(BackgroundThread):
    """Thread that tries to open a lost store again, and gives up where it stays lost or its writer has ended."""

    def __init__(self, store: TraceStore, give_up: Callable[[], None]) -> None:
        self._store, self._give_up = store, give_up
        self._timer = threading.Timer(EXIT_SECONDS, os._exit, (1,))
        self._timer.daemon = True
        self.has_given_up = False
        """True once the server is to end."""
        super().__init__("ragfault-store-guard")

    def _run(self) -> None:
        lost_at: float | None = None
        while not self._stopping.wait(TRY_SECONDS):
            if self._store.queue.is_alive and not self._store.is_lost:
                lost_at = None
                continue
            now = time.monotonic()
            lost_at = now if lost_at is None else lost_at
            # a write opens it again where it can
            self._store.submit(lambda _: None)
            if now - lost_at >= GIVE_UP_SECONDS:
                self.has_given_up = True
                self._timer.start()
                self._give_up()
                return

    def close(self) -> None:
        """Stop, also the end at once of a server that gave up: it has ended."""
        super().close()
        self._timer.cancel()
