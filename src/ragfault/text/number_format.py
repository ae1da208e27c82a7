"""Format numbers, shares, intervals, p values, costs and counts; the only formatter of figures for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

MISSING = "–"
"""Stands for a figure that is not known."""

MIN_INDEPENDENT = 8
"""Of fewer independent values no interval and no p is shown, and nothing passes."""
TOO_FEW = "too few"
"""Stands for such an interval."""


def format_number(value: float | None, digits: int | None = None) -> str:
    """Format a number with a fixed number of digits, or with as few as can still be read.

    >>> [format_number(value) for value in (0.8125, 12.345, 2300.4, math.inf, -0.25, None)]
    ['0.812', '12.3', '2,300', '∞', '−0.250', '–']
    >>> format_number(0.8125, 2), format_number(-0.0001)
    ('0.81', '0.000')
    """
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if digits is None:
        digits = 3 if size < 10 else 1 if size < 100 else 0
    # 0.0 is added so that no zero is negative
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def format_signed(value: float | None, digits: int | None = None) -> str:
    """Format a difference with its sign.

    >>> format_signed(0.25), format_signed(-0.25), format_signed(-0.0001), format_signed(0.0001)
    ('+0.250', '−0.250', '0.000', '0.000')
    """
    text = format_number(value, digits)
    return f"+{text}" if value is not None and value > 0 and text.strip("0.") else text


def format_percent(share: float) -> str:
    """Format a share in percent; only 1 is 100 %, and only 0 is 0 %.

    >>> format_percent(0.9999), format_percent(0.25)
    ('99.9 %', '25 %')
    """
    if 0 < share <= 0.005 or 0.995 <= share < 1:
        return f"{min(max(100 * share, 0.1), 99.9):.1f} %"
    return f"{100 * share:.0f} %"


def format_interval(estimate: Any, digits: int | None = None, *, signed: bool = False) -> str:
    """Format an estimate with `low`, `high` and `mean` or `value`: `0.812 [0.701, 0.923]`.

    A dash stands for no value, and `0.812 [too few]` for an interval of fewer than eight independent values.
    """
    write = format_signed if signed else format_number
    return _format_estimate(estimate, lambda value: write(value, digits))


def format_share(share: Any) -> str:
    """Format an estimate of a share in percent: `25 % [18 %, 33 %]`; of fewer than eight independent values `25 %`."""
    return _format_estimate(share, format_percent).removesuffix(f" [{TOO_FEW}]")


def _format_estimate(estimate: Any, write: Callable[[float], str]) -> str:
    value = None if estimate is None else getattr(estimate, "mean", getattr(estimate, "value", None))
    if value is None:
        return MISSING
    if has_too_few(estimate):
        return f"{write(value)} [{TOO_FEW}]"
    if estimate.low is None or estimate.high is None:
        return write(value)
    return f"{write(value)} [{write(estimate.low)}, {write(estimate.high)}]"


def format_p_value(p: float | None) -> str:
    """Format a p value; a dash where there was no test.

    >>> format_p_value(0.0004), format_p_value(0.0421), format_p_value(None)
    ('<0.001', '0.042', '–')
    """
    return MISSING if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def format_cost(dollars: float | None) -> str:
    """Format an amount in US$; amounts below a dollar have four digits, and at least two that are not 0.

    >>> [format_cost(dollars) for dollars in (0.01234, 12.3456, 0.0000412, 0.0, None)]
    ['US$ 0.0123', 'US$ 12.35', 'US$ 0.000041', 'US$ 0', 'cost unknown']
    """
    if dollars is None:
        return "cost unknown"
    if not dollars:
        return "US$ 0"
    size = abs(dollars)
    digits = 2 if size >= 1 else max(4, 1 - math.floor(math.log10(size)))
    return f"US$ {format_number(dollars, digits)}"


def format_count(count: int, noun: str) -> str:
    """Format a number of things.

    >>> format_count(1, "claim"), format_count(2500, "answer")
    ('1 claim', '2,500 answers')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def has_too_few(estimate: Any) -> bool:
    """Return whether an estimate is of too few independent values (its `clusters`) for an interval."""
    return getattr(estimate, "clusters", MIN_INDEPENDENT) < MIN_INDEPENDENT


def format_bounds(interval: Any, pattern: str = "[{}, {}]") -> str:
    """Format the two ends of an interval: `[0.701, 0.923]`, or `[too few]`."""
    ends = format_number(interval.low), format_number(interval.high)
    return f"[{TOO_FEW}]" if has_too_few(interval) else pattern.format(*ends)
