"""Concurrency limiter: halve the calls in flight when the endpoint is overloaded, add one per good round."""

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
"""Seconds before the second try, and before any: each time twice as long."""
MAX_REQUESTED_DELAY = 120.0
"""The longest wait, in seconds, that a service can ask for."""


class ConcurrencyLimiter:
    """How many calls are under way at once: halved where an endpoint is pressed, one more for each good round.

    It is entered for each try: `async with pace.turn():`. First come, first served; further tries go before.
    """

    def __init__(self, max_calls: int) -> None:
        self.max_calls, self.limit, self.busy = max_calls, float(max_calls), 0
        self._decreased_at = -1.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def acquire_slot(self, *, retry: bool = False) -> AsyncIterator[None]:
        """Wait until one more call may be under way, and be it."""
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
        """Wait to be admitted."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if retry else self._waiting.append)(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.busy -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.busy < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self.busy += 1
                place.set_result(None)

    def decrease(self, began: float) -> None:
        """Halve the calls at once; a call that began before the last time says nothing new."""
        if began > self._decreased_at:
            self.limit = max(1.0, self.limit / 2)
            self._decreased_at = time.monotonic()

    def increase(self) -> None:
        """Allow one more call at once for each round of calls that went well."""
        self.limit = min(float(self.max_calls), self.limit + 1 / self.limit)
        self._admit()


def compute_delay(attempts: int, requested: float | None) -> float:
    """Seconds to wait after so many tries: what the service asked for, else twice as long each time, with jitter."""
    if requested is not None:
        return min(requested, MAX_REQUESTED_DELAY) + random.uniform(0, 0.05)
    return min(FIRST_DELAY * 2.0 ** (attempts - 1), MAX_DELAY) * random.uniform(0.5, 1.0)


def parse_retry_after(headers: dict[str, str]) -> float | None:
    """The seconds that a service asks to wait (Retry-After, as a number or a date); None where it asks for none.

    >>> parse_retry_after({"retry-after": "3"}), parse_retry_after({"retry-after-ms": "250"}), parse_retry_after({"retry-after": "soon"}), parse_retry_after({})
    (3.0, 0.25, None, None)
    """
    exact = headers.get("retry-after-ms", "")
    said = headers.get("retry-after", "").strip()
    for text, unit in ((exact, 1000.0), (said, 1.0)):
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    if not said:
        return None
    try:
        moment = parsedate_to_datetime(said)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
