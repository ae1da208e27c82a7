"""Bodies of requests, unpacked within bounds."""

from __future__ import annotations

import zlib

from ragfault.errors import InputError

__all__ = ["unpacked"]

GZIP = b"\x1f\x8b"
AUTO = 32 + zlib.MAX_WBITS
"""Lets zlib tell gzip from deflate by the first bytes."""

MEMBERS = 64
"""How many packed parts a body may be made of."""


def unpacked(body: bytes, encoding: str | None, limit: int) -> bytes:
    """The body as it was before it was packed.

    `encoding` is that of the request: gzip, deflate, identity or none; a body that begins as gzip is taken for
    it in any case. No more than `limit` bytes are ever unpacked. Raises `InputError` where it is longer than
    that, broken, or packed in another way.

    >>> import gzip
    >>> unpacked(gzip.compress(b"spans"), "gzip", limit=100)
    b'spans'
    >>> unpacked(gzip.compress(bytes(1000)), "gzip", limit=100)
    Traceback (most recent call last):
    ragfault.errors.InputError: the request holds more than 100 bytes: send fewer spans at once
    """
    named = (encoding or "identity").strip().lower()
    if named not in ("identity", "gzip", "x-gzip", "deflate"):
        raise InputError(f'the encoding "{named[:40]}" is not known: send gzip, deflate or plain bytes')
    if len(body) <= limit and (named != "identity" or body[:2] == GZIP):
        body = _inflated(body, limit)
    if len(body) > limit:
        raise InputError(f"the request holds more than {limit:,} bytes: send fewer spans at once")
    return body


def _inflated(body: bytes, limit: int) -> bytes:
    """As much as the limit allows and one byte more, of all members one after the other."""
    made: list[bytes] = []
    room = limit + 1
    while body and room > 0:
        if len(made) == MEMBERS:
            raise InputError(f"the packed request is made of more than {MEMBERS} parts: pack it as one")
        member = zlib.decompressobj(AUTO)
        try:
            part = member.decompress(body, room)
        except zlib.error as error:
            raise InputError(f"the request is not what its encoding says: {error}") from None
        made.append(part)
        room -= len(part)
        if room > 0 and not member.eof:
            raise InputError("the packed request breaks off: send it again, whole")
        body = member.unused_data
    return b"".join(made)
