"""Images: which pictures of a chunk go to a model, and from where."""

from __future__ import annotations

import re
from typing import Literal

from ragfault.records import Chunk

__all__ = ["image"]

KEYS = ("image", "image_url", "url")
"""Where the metadata of a chunk may hold its picture."""
LARGEST = 8_000_000
"""The longest picture that is sent, in characters."""
DATA = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
ADDRESS = re.compile(r"https://[^\s<>\"'\\\x00-\x20]{1,2000}\Z")


def image(chunk: Chunk, sent: Literal["none", "data", "url"]) -> str | None:
    """The picture of a chunk of the kind "image", from its metadata or its text; None where there is none to send.

    Pictures that the trace holds itself (`data:`) are sent, and with `sent="url"` also addresses that begin with
    https. Files are never read and nothing is fetched here.

    >>> image(Chunk(id="a", kind="image", metadata={"image_url": "https://example.com/a.png"}), "url")
    'https://example.com/a.png'
    >>> image(Chunk(id="a", kind="image", text="/etc/passwd"), "url") is None
    True
    """
    if chunk.kind != "image" or sent == "none":
        return None
    for place in (*(chunk.metadata.get(key) for key in KEYS), chunk.text):
        held = place.get("url") if isinstance(place, dict) else place
        if not isinstance(held, str) or len(held) > LARGEST:
            continue
        held = held.strip()
        if DATA.match(held) or (sent == "url" and ADDRESS.match(held)):
            return held
    return None
