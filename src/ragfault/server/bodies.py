"""Bodies of requests: read within limits, unpacked within limits; what is beyond is refused while it comes."""

from __future__ import annotations

import time
import zlib
from collections import OrderedDict

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ragfault.server.settings import Limits

__all__ = ["Rates", "read_body", "unpack"]

CLIENTS = 10_000
"""Clients that are remembered."""

DRAINED = 10
"""How many times the limit is read and thrown away, so that a client that sends more hears why it was refused."""

WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Packings that are understood, with what zlib calls them."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, unpacked. Raises 413 for one that is too large, 415 for an unknown packing, 400 for a broken one."""
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > DRAINED * limits.body:
        raise _too_large(limits.body)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= limits.body:
            parts.append(part)
        elif size > DRAINED * limits.body:
            break
    if size > limits.body:
        raise _too_large(limits.body)
    packing = request.headers.get("content-encoding", "identity").strip().lower()
    return unpack(b"".join(parts), packing, limits.unpacked)


def unpack(body: bytes, packing: str, limit: int) -> bytes:
    """A body without its packing, of which never more than the limit is in memory."""
    if packing in ("", "identity"):
        return body
    if packing not in WINDOW:
        raise HTTPException(415, f'no packing "{packing[:40]}". There is: gzip, deflate, identity.')
    opened = zlib.decompressobj(WINDOW[packing])
    try:
        found = opened.decompress(body, limit + 1)
    except zlib.error as error:
        raise HTTPException(400, f"the body is not {packing}: {error}.") from None
    if len(found) > limit:
        raise _too_large(limit, "unpacked ")
    if not opened.eof:
        raise HTTPException(400, f"the body is not whole: its {packing} ends too early.")
    return found


def _too_large(limit: int, word: str = "") -> HTTPException:
    return HTTPException(413, f"the {word}body is larger than {limit:,} bytes. Send fewer traces at once.")


class Rates:
    """How often each client may come: a bucket that fills at a rate and holds twice that."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Raise 429 where a client comes too often."""
        if not self._rate:
            return
        now = time.monotonic()
        left, last = self._buckets.pop(client, (max(1.0, 2 * self._rate), now))
        left = min(max(1.0, 2 * self._rate), left + (now - last) * self._rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = max(1, round((1 - left) / self._rate + 0.5))
            raise HTTPException(429, "too many requests.", {"Retry-After": str(wait)})
