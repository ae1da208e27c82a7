"""Texts from outside, made harmless for a terminal and a page."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
BIDI_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_ESCAPE_SEQUENCE = re.compile(
    # colours, cursor
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    # titles, links, strings
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs"}
_JOINERS = "\u200c\u200d"


def clean_text(text: str) -> str:
    """Return a text without terminal sequences, control and invisible characters, on one line.

    >>> clean_text("\\x1b[31mred\\x1b[0m\\nand \\u202etricky")
    'red and tricky'
    """
    text = " ".join(_ESCAPE_SEQUENCE.sub("", text).split())
    visible = [sign for sign in text if sign in _JOINERS or unicodedata.category(sign) not in _HIDDEN_CATEGORIES]
    return " ".join("".join(visible).split())


def keep_edges(text: str, clean: Callable[[str], str]) -> str:
    """Clean one piece of a line; a space at its edges separates it from the next and stays.

    >>> keep_edges(" by \\n id: ", clean_text)
    ' by id: '
    """
    first, last = (" " if edge.isspace() else "" for edge in (text[:1], text[-1:]))
    middle = clean(text)
    return f"{first}{middle}{last}" if middle else first


def clean_label(text: str, limit: int = 200) -> str:
    """Clean a text from outside for one line of a page.

    Control characters and bidirectional overrides become signs of their own, line ends become spaces, and
    what is longer than `limit` is cut.

    >>> clean_label("fine\\x1b[31m \\u202etxt\\n", 9)
    'fine␛[31…'
    """
    text = " ".join(text[: 4 * limit].split())
    text = _CONTROL_CHARACTERS.sub(lambda sign: chr(0x2400 + ord(sign[0])) if sign[0] < " " else "\ufffd", text)
    text = BIDI_OVERRIDES.sub("\ufffd", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clip_text(text: str, limit: int) -> str:
    """Return a clean text of at most `limit` characters.

    >>> clip_text("The last ferry leaves at 22:40.", 12)
    'The last fe…'
    """
    text = clean_text(text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
