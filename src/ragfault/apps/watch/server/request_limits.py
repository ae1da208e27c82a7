"""Limits on requests (body size, decompression, rate, time of the head), and errors as problem+json (RFC 9457)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

import h11
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

# clients whose rate is tracked
MAX_CLIENTS = 10_000


class RateLimiter:
    """Token bucket per client: it fills at a rate and holds twice that, unless `burst` says how much."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate, self._capacity = rate, max(1.0, 2 * rate) if burst is None else burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Raise 429 where a client exceeds its rate."""
        if wait := self.take(client):
            raise HTTPException(429, "too many requests.", {"Retry-After": str(wait)})

    def take(self, client: str) -> int:
        """Count a request; return the seconds that its client has to wait, 0 where it need not."""
        if not self._rate:
            return 0
        now, client = time.monotonic(), _normalize_client(client)
        left, last = self._buckets.pop(client, (self._capacity, now))
        left = min(self._capacity, left + (now - last) * self._rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0 if left >= 1 else max(1, round((1 - left) / self._rate + 0.5))

    def refund(self, client: str) -> None:
        """Take back the last request of a client."""
        client = _normalize_client(client)
        if client in self._buckets:
            left, last = self._buckets[client]
            self._buckets[client] = (min(self._capacity, left + 1), last)


def _normalize_client(client: str) -> str:
    """Return the key of a client: its address, of IPv6 the /64 network.

    >>> _normalize_client("192.0.2.7"), _normalize_client("2001:db8::1:2:3:4"), _normalize_client("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::', '192.0.2.7')
    """
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return client
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))


def make_timeout_protocol(timeout: float) -> type[asyncio.Protocol]:
    """Return an HTTP protocol that closes connections whose request head does not arrive within `timeout` seconds."""

    class TimeoutProtocol(H11Protocol):
        """HTTP/1.1 protocol with a deadline for the head of each request."""

        timer: asyncio.TimerHandle | None = None
        last_cycle: object = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.timer = self.loop.call_later(timeout, self.close_if_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.timer is not None:
                self.timer.cancel()
            super().connection_lost(exc)

        def close_if_idle(self) -> None:
            """Close the connection if no head arrived since the last check."""
            if self.cycle is self.last_cycle and self.conn.their_state is h11.IDLE:
                self.transport.close()
                return
            self.last_cycle = self.cycle if self.conn.their_state is h11.IDLE else None
            self.timer = self.loop.call_later(timeout, self.close_if_idle)

    return TimeoutProtocol
