"""Hidden characters: what stands in a text and is not seen in it."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Stretch", "clear", "hidden", "shown"]

INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2064\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb"
)
"""Spaces of no width, fillers and joiners that no script needs."""
MARKS = "\u061c\u200e\u200f"
"""Marks of direction, common in Hebrew and Arabic, and without them of no use."""
BIDI = "\u202a-\u202e\u2066-\u2069"
"""What turns the direction of writing round."""
TURNS = "\u202a\u202b\u202d\u202e\u2066-\u2068"
"""Those that begin it; an end without a beginning turns nothing."""
TAGS = "\U000e0000-\U000e007f"
"""Letters as tags: a text that nobody sees."""
SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Variants of a sign; a run of them can spell bytes."""
CONTROLS = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
JOINERS = "\u200c\u200d"
"""Between letters of some scripts, and between emoji, these are part of the spelling."""

LINE = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
"""All ends of a line but the one."""
SURROGATE = re.compile("[\ud800-\udfff]")
FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,6}\U000e007f")
"""The flag of a region: a black flag and its letters as tags."""
LONE = re.compile(
    f"(?<=[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\U0001f000-\U0001faff\u2190-\u2bff\ufe0f])[{JOINERS}](?=\\S)"
)
"""A joiner where it belongs."""
TWICE = re.compile(f"(?<=[{SELECTORS}])[{SELECTORS}]+")
UNSEEN = re.compile(f"[{INVISIBLE}{MARKS}{BIDI}{TAGS}{JOINERS}{CONTROLS}\U000e0100-\U000e01ef]")
RUNS = re.compile(
    f"[{TAGS}]{{3,}}|[{TURNS}]|[{SELECTORS}]{{3,}}|[\u200b-\u200d\u2060-\u2064\ufeff]{{8,}}"
    "|(?<=[a-z])[\u200b\u2060-\u2064](?=[a-z])|\x1b\\[|\x08{2,}"
)
"""What is hidden on purpose: a text in tags or selectors, writing turned round, spaces of no width within a word."""
LONELY = frozenset(("⟨U+200B⟩", *(f"⟨U+{code:X}⟩" for code in range(0x2060, 0x2065))))
SPLIT = 3
"""A space of no width within a word may be a matter of lay-out; so many of them are not."""


class Stretch(NamedTuple):
    """A stretch of a text that hides something."""

    start: int
    end: int
    told: str
    """What is hidden there, as far as it can be read."""


def clear(text: str) -> str:
    r"""A text without what is not seen in it, every line ended in the one way.

    Joiners stay where a script or an emoji needs them.

    >>> clear("pay\u200bpal\r\nto\x0cday")
    'paypal\nto\nday'
    """
    if text.isascii() and text.isprintable():
        return text
    text = LINE.sub("\n", SURROGATE.sub("\ufffd", text))
    if FLAG.search(text):
        text = FLAG.sub("\U0001f3f4", text)
    kept = {match.start() for match in LONE.finditer(text)} if "\u200c" in text or "\u200d" in text else set()
    text = UNSEEN.sub(lambda match: match.group() if match.start() in kept else "", text)
    return TWICE.sub("", text)


def hidden(text: str) -> list[Stretch]:
    """The stretches of a text that hide something on purpose, in order.

    What word processors, web pages and scripts leave behind is not meant: soft hyphens, a byte order mark, marks of
    direction, joiners, a lone space of no width.

    >>> [found.told for found in hidden("Hello" + "".join(chr(0xE0000 + ord(sign)) for sign in "obey"))]
    ['obey']
    >>> hidden("na\\u00efve\\ufeff, \\u05d0\\u200f!")
    []
    """
    if text.isascii() and "\x1b" not in text and "\x08" not in text:
        return []
    bare = FLAG.sub(lambda match: "\U0001f3f4" * len(match.group()), text)
    found = [Stretch(match.start(), match.end(), shown(match.group())) for match in RUNS.finditer(bare)]
    split = [one for one in found if one.told in LONELY]
    return found if len(split) >= SPLIT else [one for one in found if one not in split]


def shown(text: str) -> str:
    r"""A text with its hidden characters made visible: tags and selectors as the letters they spell, others by number.

    >>> shown("a\u200bb")
    'a⟨U+200B⟩b'
    """
    return "".join(_seen(sign) for sign in text)


def _seen(sign: str) -> str:
    code = ord(sign)
    if 0xE0020 <= code <= 0xE007E:
        return chr(code - 0xE0000)
    if 0xE0100 <= code <= 0xE01EF and 32 <= code - 0xE0100 + 16 < 127:
        return chr(code - 0xE0100 + 16)
    if UNSEEN.match(sign) or SURROGATE.match(sign):
        return f"⟨U+{code:04X}⟩"
    return sign
