"""Words and sentences of the two systems."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["split_sentences", "terms"]

STOP = frozenset(
    re.findall(
        r"\w+",
        """
    a an the and or of in on to for is are was were be been does do did has have had how what which who whom whose
    when where why with within many much long by from at as it its this that these those can will would about
    der die das des dem den ein eine und oder ist sind wie viele viel hoch lange für modell modells in von mit
    """,
    )
)
WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
GAP = re.compile(r"(?<=[.!?])\s+|\n+")


def terms(text: str) -> list[str]:
    """Return the words of a text in lower case, without stop words and the plural s."""
    matches = WORD.findall(text.lower())
    return [word[:-1] if len(word) > 4 and word.endswith("s") else word for word in matches if word not in STOP]


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Return the spans of the sentences and lines of a text, those without a letter left out."""
    at = 0
    for gap in [*GAP.finditer(text), None]:
        end = gap.start() if gap else len(text)
        if any(char.isalpha() for char in text[at:end]):
            yield at, end
        at = gap.end() if gap else end
