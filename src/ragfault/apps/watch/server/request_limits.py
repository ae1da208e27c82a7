"""Limits on requests (body size, decompression, rate, time of the head), and errors as problem+json (RFC 9457)."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import OrderedDict
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any

import h11
import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragfault.apps.watch.server.settings import RequestLimits
from ragfault.model.errors import OutputError, RagfaultError, UnknownName

PROBLEM_JSON = "application/problem+json"


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """An error (RFC 9457): what was asked, what there is, what to do."""

    type: str
    title: str
    status: int
    detail: str


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """Build a problem+json response; `more` are additional fields."""
    problem = ProblemDetails("about:blank", HTTPStatus(status).phrase, status, detail)
    return Response(msgspec.json.encode(msgspec.to_builtins(problem) | more), status, headers, PROBLEM_JSON)


RETRY_AFTER = "2"
"""Seconds after which a client that was refused for load, or because the store cannot be used, may retry."""


def error_status(error: RagfaultError) -> int:
    """Return the HTTP status of an error of the library."""
    return 404 if isinstance(error, UnknownName) else 503 if isinstance(error, OutputError) else 422


def install_handlers(app: FastAPI) -> None:
    """Answer every expected error with a problem; SecurityMiddleware answers the unexpected ones."""
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(RagfaultError, _handle_ragfault_error)


async def _handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_response(error.status_code, str(error.detail), dict(error.headers or {}))


async def _handle_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [{"where": ".".join(map(str, fault["loc"])), "problem": fault["msg"]} for fault in error.errors()[:20]]
    detail = "; ".join(f"{fault['where']}: {fault['problem']}" for fault in faults[:3])
    return problem_response(422, detail, faults=faults)


async def _handle_ragfault_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RagfaultError)
    status = error_status(error)
    return problem_response(status, str(error), {"Retry-After": RETRY_AFTER} if status == 503 else None)


MAX_CLIENTS = 10_000  # clients whose rate is tracked

DRAIN_FACTOR = 10
"""Multiples of the limit that are read and discarded, so that the client receives the error instead of a reset."""

MAX_MEMBERS = 64  # members of a compressed body

WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content encodings and their window bits for zlib."""


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """Return the decompressed body of a request.

    Raises 408 for a body that does not arrive in time, 413 for one that is too large, 415 for an unknown encoding, and
    400 for a corrupt one.
    """
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > DRAIN_FACTOR * limits.body:
        raise _too_large_error(limits.body)
    try:
        async with asyncio.timeout(limits.timeout):
            body = await _read_limited(request, limits.body)
    except TimeoutError:
        message = f"the body did not come within {limits.timeout:g} seconds."
        raise HTTPException(408, message, {"Connection": "close"}) from None
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    return decompress(body, encoding, limits.decompressed)


async def _read_limited(request: Request, limit: int) -> bytes:
    """Read a body, holding never more than the limit in memory."""
    body, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            body += part
        elif size > DRAIN_FACTOR * limit:
            break
    if size > limit:
        raise _too_large_error(limit)
    return bytes(body)


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress all members of a body, holding never more than the limit in memory.

    >>> import gzip
    >>> decompress(gzip.compress(b"spans ") + gzip.compress(b"and more"), "gzip", limit=100)
    b'spans and more'
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in WINDOW_BITS:
        raise HTTPException(415, f'no packing "{encoding[:40]}". There is: gzip, deflate, identity.')
    parts: list[bytes] = []
    room = limit + 1
    while body or not parts:
        if len(parts) == MAX_MEMBERS:
            raise HTTPException(400, f"the body is made of more than {MAX_MEMBERS} parts. Pack it as one.")
        part, body = _decompress_member(body, encoding, room)
        parts.append(part)
        room -= len(part)
        if room <= 0:
            raise _too_large_error(limit, "unpacked ")
    return b"".join(parts)


def _decompress_member(body: bytes, encoding: str, remaining: int) -> tuple[bytes, bytes]:
    """Decompress the first member of a body up to a size; return it and the rest of the body."""
    decompressor = zlib.decompressobj(WINDOW_BITS[encoding])
    try:
        content = decompressor.decompress(body, remaining)
    except zlib.error as error:
        raise HTTPException(400, f"the body is not {encoding}: {error}.") from None
    if len(content) < remaining and not decompressor.eof:
        raise HTTPException(400, f"the body is not whole: its {encoding} ends too early.")
    return content, decompressor.unused_data


def _too_large_error(limit: int, word: str = "") -> HTTPException:
    return HTTPException(413, f"the {word}body is larger than {limit:,} bytes. Send fewer traces at once.")


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
