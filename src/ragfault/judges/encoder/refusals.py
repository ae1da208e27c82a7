"""What the words of a reply tell of whether it refuses: hashed words and pairs of words, each with a trained weight."""

from __future__ import annotations

import re
import zlib
from itertools import pairwise

WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?|\d+|[?!.,:;]")
READ_WORDS = 60
"""Words of a reply that are read: a refusal says so in its first sentences."""
SLOTS = 1 << 13
"""The weights: words that share one are rare, and their weight is what both tell."""


def hash_words(reply: str) -> list[int]:
    """Return the slots of the weights of a reply's words, pairs of words and its first word, ascending and once each.

    >>> hash_words("I don't know.") == hash_words("i don’t  know.")
    True
    """
    words = WORD.findall(reply.lower().replace("’", "'"))[:READ_WORDS]
    first = [f"^{words[0]}"] if words else []
    pairs = [f"{left} {right}" for left, right in pairwise(words)]
    return sorted({zlib.crc32(term.encode()) % SLOTS for term in (*first, *words, *pairs)})
