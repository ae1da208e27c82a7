"""The small pieces that the sections of the page are put together from."""

from __future__ import annotations

from ragfault.records import Layer
from ragfault.report.markup import Markup, number, tag
from ragfault.stats import Interval

__all__ = ["RESULTS", "TITLES", "bounds", "narrow", "percent", "scroll", "sign"]

TITLES: dict[Layer, tuple[str, str]] = {
    "retrieval": ("Retrieval", "Did the right chunks arrive, in the right order?"),
    "generation": ("Generation", "Is the answer grounded in the chunks, to the point and complete?"),
    "crosscut": ("Cross-cut", "Retrieval and generation together, and against the truth."),
    "operation": ("Operation", "What it costs in time, tokens and failures."),
}

RESULTS = {"pass": ("✓", "met"), "fail": ("✗", "missed"), "cannot tell": ("≈", "cannot tell")}
"""What an interval says of a target, as a sign and a word."""


def bounds(interval: Interval) -> str:
    """An interval as its two ends."""
    ends = [number(end) if abs(end) != float("inf") else "∞" for end in (interval.low, interval.high)]
    return f"[{ends[0]}, {ends[1]}]"


def sign(glyph: str, text: str, kind: str) -> Markup:
    """A glyph and a word, tinted by kind; the word says what the colour says."""
    return tag("span", tag("span", glyph, aria_hidden="true"), " ", text, class_=f"sign {kind}")


def narrow(name: str, value: str, text: str) -> Markup:
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


def percent(share: Interval | None) -> str:
    """A share and its interval in per cent."""
    if share is None:
        return "–"
    return f"{share.mean:.0%}, {share.low:.0%} to {share.high:.0%}"


def scroll(table: Markup, name: str) -> Markup:
    """A table that scrolls sideways where the page is narrower, also by keys."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"table {name}")
