"""The terms of a tuning: what pipelines must keep to, and what a budget says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean
from typing import cast

from ragfault.errors import UnknownName, UsageError
from ragfault.tuning.records import Bound, Outcome

__all__ = ["figure", "minutes", "read_bound", "violation"]

SHAPE = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([\d.]+(?:e-?\d+)?)\s*")
SPAN = re.compile(r"\s*([\d.]+)\s*(s|m|min|h)?\s*")
SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, None: 60}
LOWER = ("latency_p95", "latency", "tokens")
HIGHER = ("recall", "precision", "iou")


def read_bound(text: str) -> Bound:
    """What a pipeline must keep to, of a text.

    Raises UsageError where it does not follow the grammar or bounds the wrong side, UnknownName for a figure that does
    not exist.

    >>> str(read_bound("latency_p95 <= 200"))
    'latency_p95<=200'
    """
    shape = SHAPE.fullmatch(text)
    if shape is None:
        raise UsageError(
            f'cannot read "{text}". Write NAME<=NUMBER, such as latency_p95<=200 or tokens<=2000.'
        )
    name, sign, number = shape.groups()
    if name not in (*LOWER, *HIGHER):
        raise UnknownName("figure to be bounded", name, (*LOWER, *HIGHER))
    if (sign == "<=") != (name in LOWER):
        raise UsageError(
            f'"{text}" bounds the wrong side: write {name}{"<=" if name in LOWER else ">="}{number}.'
        )
    try:
        return Bound(name, sign, float(number))  # type: ignore[arg-type]
    except ValueError:
        raise UsageError(f'"{text}": {number} is not a number.') from None


def figure(name: str, outcomes: Sequence[Outcome]) -> float:
    """A figure of some outcomes: the mean, or the 95th percentile of the milliseconds.

    >>> one = Outcome(0.5, 1, 0.2, 0.2, 10, 400)
    >>> figure("latency_p95", [one] * 4), figure("tokens", [one])
    (10, 400.0)
    """
    if name == "latency_p95":
        ordered = sorted(one.ms for one in outcomes)
        return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return fmean(cast(float, getattr(one, "ms" if name == "latency" else name)) for one in outcomes)


def violation(bounds: Sequence[Bound], outcomes: Sequence[Outcome]) -> float:
    """How far outcomes are beyond the bounds, as shares of them, added up; 0 where they keep to all.

    >>> violation([read_bound("tokens<=200")], [Outcome(0.5, 1, 0.2, 0.2, 10, 400)])
    1.0
    """
    total = 0.0
    for bound in bounds:
        value = figure(bound.name, outcomes)
        over = value - bound.value if bound.sign == "<=" else bound.value - value
        total += max(0.0, over) / max(abs(bound.value), 1e-9)
    return total


def minutes(text: str | float) -> float:
    """The seconds of a budget: "10m", "90s", "1h"; a bare number is minutes.

    >>> minutes("90s"), minutes(2)
    (90.0, 120.0)
    """
    shape = SPAN.fullmatch(str(text))
    seconds = (
        float(shape[1]) * SECONDS[shape[2]] if shape and shape[1].count(".") < 2 and shape[1] != "." else 0.0
    )
    if not 0 < seconds < math.inf:
        raise UsageError(f'"{text}" is no budget. Write minutes such as 10m, or 90s, or 1h.')
    return seconds
