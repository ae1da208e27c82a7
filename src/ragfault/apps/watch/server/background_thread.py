"""Base of the threads that work beside the requests of a server."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class BackgroundThread(ABC):
    """Daemon thread that runs `_run` from `start` until `close` sets `_stopping`."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop after the work in progress, and wait for that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...
