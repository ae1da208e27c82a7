"""HTML elements built in Python; every text that is not markup is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from ragfault.records import Layer


class Markup(str):
    """A text that is HTML already; any other text is escaped before it enters a page."""

    __slots__ = ()


Node = str | Markup | None | Iterable["Node"]

_VOID_ELEMENTS = frozenset({"br", "hr", "img", "input", "meta", "link"})
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BIDI_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def clean_label(text: str, limit: int = 200) -> str:
    """A text from outside as it can stand on one line of a page.

    Control characters and bidirectional overrides become signs of their own, line ends become spaces, and
    what is longer than `limit` is cut.

    >>> clean_label("fine\\x1b[31m \\u202etxt\\n", 9)
    'fine␛[31…'
    """
    text = " ".join(text[: 4 * limit].split())
    text = _CONTROL_CHARACTERS.sub(
        lambda sign: chr(0x2400 + ord(sign[0])) if sign[0] < " " else "\ufffd", text
    )
    text = _BIDI_OVERRIDES.sub("\ufffd", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def tag(name: str, *children: Node, **attributes: str | int | float | bool | None) -> Markup:
    """An element with its children; texts and values of attributes are escaped.

    An underscore in an attribute stands for a dash, one at its end for nothing. True gives an attribute
    without a value, False and None leave it out.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="sum", data_tip='"')
    '<p class="sum" data-tip="&quot;">1 &lt; 2 <b>yes</b></p>'
    """
    start = name + "".join(_format_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{start}>" if name in _VOID_ELEMENTS else f"<{start}>{join_nodes(children)}</{name}>")


def join_nodes(node: Node) -> Markup:
    """Nodes one after the other."""
    if node is None:
        return Markup("")
    if isinstance(node, Markup):
        return node
    if isinstance(node, str):
        return Markup(html.escape(node))
    return Markup("".join(join_nodes(each) for each in node))


def _format_attribute(key: str, value: str | int | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'


LAYER_QUESTIONS: dict[Layer, tuple[str, str]] = {
    "retrieval": ("Retrieval", "Did the right chunks arrive, in the right order?"),
    "generation": ("Generation", "Is the answer grounded in the chunks, to the point and complete?"),
    "crosscut": ("Cross-cut", "Retrieval and generation together, and against the truth."),
    "operation": ("Operation", "What it costs in time, tokens and failures."),
}

RESULT_SIGNS = {"pass": ("✓", "met"), "fail": ("✗", "missed"), "cannot tell": ("≈", "cannot tell")}
"""What an interval says of a target, as a sign and a word."""


def build_sign(glyph: str, text: str, kind: str) -> Markup:
    """A glyph and a word, tinted by kind; the word says what the colour says."""
    return tag("span", tag("span", glyph, aria_hidden="true"), " ", text, class_=f"sign {kind}")


def build_filter_button(name: str, value: str, text: str) -> Markup:
    """A button that narrows the list of traces; shown once the list is there."""
    return tag(
        "button",
        text,
        tag("span", f": {value.replace('_', ' ')}", class_="hidden"),
        type="button",
        class_="link",
        data_filter=name,
        data_value=value,
        hidden=True,
    )


def wrap_table(table: Markup, name: str) -> Markup:
    """A table that scrolls sideways where the page is narrower, also by keys."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"table {name}")
