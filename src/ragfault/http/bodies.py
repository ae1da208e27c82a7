"""Bodies of requests, read within limits on their size, decompression and time."""

from __future__ import annotations

import asyncio
import zlib

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ragfault.http.request_limits import RequestLimits

DRAIN_FACTOR = 10
"""Multiples of the limit that are read and discarded, so that the client receives the error instead of a reset."""

# first bytes of what is packed by gzip
GZIP_MAGIC = b"\x1f\x8b"
# members of a compressed body
MAX_MEMBERS = 64

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
        if body[:2] != GZIP_MAGIC:
            return body
        # some exporters compress without saying so
        encoding = "gzip"
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
