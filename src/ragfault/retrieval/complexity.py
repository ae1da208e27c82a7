"""How complex a query is: a rule of thumb for how many chunks it needs."""

from __future__ import annotations

import re

__all__ = ["complexity"]

ASKING = re.compile(r"\b(?:what|how|why|when|where|which)\b", re.IGNORECASE)
TECHNICAL = re.compile(r"\b[A-Z][A-Za-z]*[A-Z][A-Za-z]*\b")
LONG, WORD, TERM, MARK = 100, 0.2, 0.1, 0.3


def complexity(query: str) -> float:
    """The complexity of a query, in [0, 1].

    Its length over 100 characters (at most 1), 0.2 for each question word (what, how, why, when, where, which),
    0.1 for each technical term (a word with two capitals: API, JavaScript), and 0.3 for each question mark; at most 1.

    >>> complexity("ferry times"), complexity("What is an API?")
    (0.11, 0.75)
    >>> complexity("How do I renew it, and which papers do I need? What does it cost?")
    1.0
    """
    parts = (
        min(len(query) / LONG, 1.0),
        WORD * len(ASKING.findall(query)),
        TERM * len(TECHNICAL.findall(query)),
        MARK * query.count("?"),
    )
    return min(round(sum(parts), 12), 1.0)
