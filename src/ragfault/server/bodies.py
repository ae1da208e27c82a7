"""Bodies of requests: read within limits, unpacked within limits; what is beyond is refused while it comes."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ragfault.server.settings import Limits

__all__ = ["Rates", "read_body", "unpack"]

CLIENTS = 10_000
"""Clients that are remembered."""

DRAINED = 10
"""How many times the limit is read and thrown away, so that a client that sends more hears why it was refused."""

MEMBERS = 64
"""How many packed parts a body may be made of."""

WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Packings that are understood, with what zlib calls them."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, unpacked.

    Raises 408 for one that does not come, 413 for one that is too large, 415 for an unknown packing, and 400 for a
    broken one.
    """
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > DRAINED * limits.body:
        raise _too_large(limits.body)
    try:
        async with asyncio.timeout(limits.patience):
            body = await _read(request, limits.body)
    except TimeoutError:
        told = f"the body did not come within {limits.patience:g} seconds."
        raise HTTPException(408, told, {"Connection": "close"}) from None
    packing = request.headers.get("content-encoding", "identity").strip().lower()
    return unpack(body, packing, limits.unpacked)


async def _read(request: Request, limit: int) -> bytes:
    """The body as it comes, of which never more than the limit is in memory."""
    found, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            found += part
        elif size > DRAINED * limit:
            break
    if size > limit:
        raise _too_large(limit)
    return bytes(found)


def unpack(body: bytes, packing: str, limit: int) -> bytes:
    """A body without its packing, of all its members one after the other; never more than the limit is in memory.

    >>> import gzip
    >>> unpack(gzip.compress(b"spans ") + gzip.compress(b"and more"), "gzip", limit=100)
    b'spans and more'
    """
    if packing in ("", "identity"):
        return body
    if packing not in WINDOW:
        raise HTTPException(415, f'no packing "{packing[:40]}". There is: gzip, deflate, identity.')
    made: list[bytes] = []
    room = limit + 1
    while body or not made:
        if len(made) == MEMBERS:
            raise HTTPException(400, f"the body is made of more than {MEMBERS} parts. Pack it as one.")
        found, body = _member(body, packing, room)
        made.append(found)
        room -= len(found)
        if room <= 0:
            raise _too_large(limit, "unpacked ")
    return b"".join(made)


def _member(body: bytes, packing: str, room: int) -> tuple[bytes, bytes]:
    """The first packed part of a body, as far as there is room for it, and what comes after it."""
    opened = zlib.decompressobj(WINDOW[packing])
    try:
        found = opened.decompress(body, room)
    except zlib.error as error:
        raise HTTPException(400, f"the body is not {packing}: {error}.") from None
    if len(found) < room and not opened.eof:
        raise HTTPException(400, f"the body is not whole: its {packing} ends too early.")
    return found, opened.unused_data


def _too_large(limit: int, word: str = "") -> HTTPException:
    return HTTPException(413, f"the {word}body is larger than {limit:,} bytes. Send fewer traces at once.")


class Rates:
    """How often each client may come: a bucket that fills at a rate and holds twice that."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Raise 429 where a client comes too often."""
        if not self._rate:
            return
        now, client = time.monotonic(), _network(client)
        left, last = self._buckets.pop(client, (self._most, now))
        left = min(self._most, left + (now - last) * self._rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = max(1, round((1 - left) / self._rate + 0.5))
            raise HTTPException(429, "too many requests.", {"Retry-After": str(wait)})


def _network(client: str) -> str:
    """Whose addresses count as one: of IPv6 everybody has a whole network.

    >>> _network("192.0.2.7"), _network("2001:db8::1:2:3:4"), _network("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::', '192.0.2.7')
    """
    try:
        found = ip_address(client)
    except ValueError:
        return client
    if not isinstance(found, IPv6Address):
        return client
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
