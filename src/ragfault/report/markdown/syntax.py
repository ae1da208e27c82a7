"""Markdown made safe: escaped texts, code, names of metrics and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragfault.report.safe_text import clean_text

if TYPE_CHECKING:
    from ragfault.comparison.records import MetricChange
    from ragfault.comparison.run_history import MetricHistory
    from ragfault.diagnosis.records import MetricAggregate

_INTERVAL = r"\[[-−+\d.,∞– ]+\](?![(\[:])"
"""Figures in brackets that are neither a link nor the definition of one."""

_SPECIAL_CHARACTERS = re.compile(
    rf"{_INTERVAL}|[\\`*_{{}}\[\]<>&#|~@!$]|://|www\.|^[-+](?=[-+\s]|$)|^\d+[.)](?=\s|$)", re.IGNORECASE
)

_CODE_PATTERN = re.compile(r"[\w@.,=()<> -]+")


def escape_markdown(text: str) -> str:
    """Escape a text from outside as Markdown that shows it and does nothing: no markup, HTML, link or mention.

    >>> escape_markdown("a | b <script> @you [x](y)")
    'a &#124; b &#60;script&#62; &#64;you &#91;x&#93;(y)'
    >>> escape_markdown("[0.1, 0.2]"), escape_markdown("[1](y)"), escape_markdown("1. one"), escape_markdown("+0.010")
    ('[0.1, 0.2]', '&#91;1&#93;(y)', '&#49;&#46; one', '+0.010')
    """

    def escape(match: re.Match[str]) -> str:
        is_interval = match[0].startswith("[") and len(match[0]) > 1
        return match[0] if is_interval else "".join(f"&#{ord(sign)};" for sign in match[0])

    return _SPECIAL_CHARACTERS.sub(escape, clean_text(text))


def format_code(text: str) -> str:
    """Format a metric or a threshold as code; escaped for a table cell.

    >>> format_code("recall(relevant=2)@20"), format_code("odd|name")
    ('`recall(relevant=2)@20`', 'odd&#124;name')
    """
    return f"`{text}`" if _CODE_PATTERN.fullmatch(text) else escape_markdown(text)


def format_metric(item: MetricChange | MetricAggregate | MetricHistory) -> str:
    """Format the name of a metric as code, with a sign where lower is better."""
    return format_code(item.metric) + (" ↓" if item.better == "lower" else "")


def build_markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Build the lines of a table; a heading that ends in ":" is aligned right. The cells are Markdown already."""
    rule = ["---:" if heading.endswith(":") else "---" for heading in headings]
    heads = [heading.removesuffix(":") for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
