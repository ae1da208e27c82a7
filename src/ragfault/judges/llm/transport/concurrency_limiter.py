"""Concurrency limiter: halves the calls in flight when the endpoint is overloaded, adds one per good round."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_DELAY, MAX_DELAY = 0.5, 30.0
"""Seconds before the second attempt, and at most; doubled each time."""
MAX_REQUESTED_DELAY = 120.0
"""Longest wait that a service can request, in seconds."""


class ConcurrencyLimiter:
    """Limit of calls in flight: halved on overload, raised by one for each good round of calls.

    Acquire a slot for each attempt: `async with limiter.acquire_slot():`. First come, first served; retries
    go first.
    """

    def __init__(self, max_calls: int) -> None:
        self.max_calls, self.limit, self.busy = max_calls, float(max_calls), 0
        self._decreased_at = -1.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def acquire_slot(self, *, retry: bool = False) -> AsyncIterator[None]:
        """Wait for a slot and hold it for the block."""
        if self.busy < int(self.limit) and not self._waiting:
            self.busy += 1
        else:
            await self._wait_for_slot(retry)
        try:
            yield
        finally:
            self.busy -= 1
            self._admit()

    async def _wait_for_slot(self, retry: bool) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if retry else self._waiting.append)(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.busy -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.busy < int(self.limit):
            slot = self._waiting.popleft()
            if not slot.done():
                self.busy += 1
                slot.set_result(None)

    def decrease(self, began: float) -> None:
        """Decrease the limit by half; a call that began before the last decrease is ignored."""
        if began > self._decreased_at:
            self.limit = max(1.0, self.limit / 2)
            self._decreased_at = time.monotonic()

    def increase(self) -> None:
        """Raise the limit by one for each round of successful calls."""
        self.limit = min(float(self.max_calls), self.limit + 1 / self.limit)
        self._admit()


def compute_delay(attempts: int, requested: float | None) -> float:
    """Return the seconds to wait before a retry: as the service requested, else exponential with jitter."""
    if requested is not None:
        return min(requested, MAX_REQUESTED_DELAY) + random.uniform(0, 0.05)
    return min(FIRST_DELAY * 2.0 ** (attempts - 1), MAX_DELAY) * random.uniform(0.5, 1.0)


def parse_retry_after(headers: dict[str, str]) -> float | None:
    """Return the seconds of a Retry-After header (a number or a date); None where it requests none.

    >>> headers = [{"retry-after": "3"}, {"retry-after-ms": "250"}, {"retry-after": "soon"}, {}]
    >>> [parse_retry_after(header) for header in headers]
    [3.0, 0.25, None, None]
    """
    milliseconds = headers.get("retry-after-ms", "")
    value = headers.get("retry-after", "").strip()
    for text, unit in ((milliseconds, 1000.0), (value, 1.0)):
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    if not value:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
