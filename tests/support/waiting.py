"""Waiting with a deadline: a condition that never comes true fails the test instead of hanging it."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 120.0, pause: float = 0.02) -> None:
    """Poll until the condition holds; fail loudly after `seconds`, which are generous for a loaded machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"the condition did not hold within {seconds:g} seconds")
        time.sleep(pause)
