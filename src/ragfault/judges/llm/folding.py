"""Folding: a text as it is read, in small letters without accents, look-alikes and hidden characters."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from ragfault.judges.llm.hidden import UNSEEN

__all__ = ["Folded", "fold", "mixed"]

ALIKE = str.maketrans(
    "авекмнорстухіјѕԁһԛԝгпАВЕКМНОРСТУХІЈЅαβεικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "abekmhopctyxijsdhqwrnabekmhopctyxijsabeiknoptuxabezhikmnoptyx",
)
"""Cyrillic and Greek letters → the Latin ones that they look like."""
MIXED = re.compile(
    r"(?=[^\W\d_]{0,40}[a-zA-Z])(?=[^\W\d_]{0,40}[\u0370-\u03ff\u0400-\u052f])(?<![^\W\d_])[^\W\d_]{3,40}(?![^\W\d_])"
)
"""A word of Latin and of Cyrillic or Greek letters."""


class Folded(NamedTuple):
    """A text as it is read."""

    text: str
    places: tuple[int, ...] | None
    """Where each of its characters stood; None where each stands where it stood."""

    def place(self, start: int, end: int) -> tuple[int, int]:
        """A stretch of it, in the text that it was made from."""
        if self.places is None or end <= start:
            return start, end
        return self.places[start], self.places[end - 1] + 1


def fold(text: str) -> Folded:
    """A text as it is read.

    >>> fold("\\uff29gn\\u043ere").text
    'ignore'
    """
    if text.isascii():
        return Folded(text.lower(), None)
    even = text.translate(LINES)
    if mixed(even):
        even = MIXED.sub(lambda match: match.group().translate(ALIKE), even)
    signs: list[str] = []
    places: list[int] = []
    for at, sign in enumerate(even):
        made = sign.lower() if sign < "\x80" else _plain(sign)
        signs.append(made)
        places += [at] * len(made)
    return Folded("".join(signs), tuple(places))


LINES = {0x2028: "\n", 0x2029: "\n", 0x85: "\n", 0x0B: "\n", 0x0C: "\n"}


def mixed(text: str) -> list[str]:
    """The words of a text that mix letters of different scripts.

    >>> mixed("p\\u0430yp\\u0430l pays")
    ['pаypаl']
    """
    if text.isascii():
        return []
    return [match.group() for match in MIXED.finditer(text)]


@lru_cache(maxsize=8_192)
def _plain(sign: str) -> str:
    """A character in its common form; a Latin letter without its accent."""
    if UNSEEN.match(sign):
        return ""
    made = unicodedata.normalize("NFKC", sign).lower()
    if made and (made[0] < "\u0250" or "\u1e00" <= made[0] <= "\u1eff"):
        bare = unicodedata.normalize("NFKD", made)
        return "".join(one for one in bare if not unicodedata.combining(one)).replace("’", "'")
    return made.replace("’", "'")
