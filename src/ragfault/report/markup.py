"""HTML from Python: everything that is not markup already is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

__all__ = ["Markup", "Node", "label", "number", "tag"]


class Markup(str):
    """A text that is HTML already; any other text is escaped before it enters a page."""

    __slots__ = ()


Node = str | Markup | None | Iterable["Node"]

_VOID = frozenset({"br", "hr", "img", "input", "meta", "link"})
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def label(text: str, limit: int = 200) -> str:
    """A text from outside as it can stand on one line of a page.

    Control characters and bidirectional overrides become signs of their own, line ends become spaces, and
    what is longer than `limit` is cut.

    >>> label("fine\\x1b[31m \\u202etxt\\n", 9)
    'fine␛[31…'
    """
    text = " ".join(text[: 4 * limit].split())
    text = _HIDDEN.sub(lambda sign: chr(0x2400 + ord(sign[0])) if sign[0] < " " else "\ufffd", text)
    text = _OVERRIDES.sub("\ufffd", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def number(value: float | None) -> str:
    """A figure for people: two decimals, thousands from a hundred on.

    >>> number(0.8449), number(1834.2), number(3), number(None)
    ('0.84', '1,834', '3.00', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def tag(name: str, *children: Node, **attributes: str | int | float | bool | None) -> Markup:
    """An element with its children; texts and values of attributes are escaped.

    An underscore in an attribute stands for a dash, one at its end for nothing. True gives an attribute
    without a value, False and None leave it out.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="sum", data_tip='"')
    '<p class="sum" data-tip="&quot;">1 &lt; 2 <b>yes</b></p>'
    """
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{start}>" if name in _VOID else f"<{start}>{join(children)}</{name}>")


def join(node: Node) -> Markup:
    """Nodes one after the other."""
    if node is None:
        return Markup("")
    if isinstance(node, Markup):
        return node
    if isinstance(node, str):
        return Markup(html.escape(node))
    return Markup("".join(join(each) for each in node))


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
