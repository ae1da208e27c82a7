"""Bars: what a metric's mean is asked to reach, `groundedness>=0.85`."""

from __future__ import annotations

import operator
import re
from typing import Literal

from msgspec import Struct

from ragfault.errors import UsageError
from ragfault.stats import Interval

__all__ = ["Bar", "Sign", "decide", "read_bar"]

Sign = Literal[">=", ">", "<=", "<"]

_SHAPE = re.compile(
    r"\s*(\S.*?)\s*(>=|<=|>|<|≥|≤)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", re.DOTALL
)
_PLAIN: dict[str, Sign] = {">=": ">=", "≥": ">=", ">": ">", "<=": "<=", "≤": "<=", "<": "<"}
_COMPARE = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


class Bar(Struct, frozen=True):
    """What the mean of a metric is asked to reach.

    >>> str(Bar("groundedness", ">=", 0.85))
    'groundedness>=0.85'
    """

    metric: str
    sign: Sign
    value: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{self.value:g}"


def read_bar(text: str) -> Bar:
    """Read a bar from its text: a metric with its parameters, >=, >, <= or <, and a number.

    Raises UsageError for anything else; nothing is evaluated.

    >>> read_bar("ndcg(gain=exponential)@10 >= 0.5")
    Bar(metric='ndcg(gain=exponential)@10', sign='>=', value=0.5)
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None or shape[1][-1] in "<>=!~":
        raise UsageError(
            f'"{text}" is not a bar. Write a metric, >=, >, <= or <, and a number: groundedness>=0.85'
        )
    return Bar(shape[1], _PLAIN[shape[2]], float(shape[3]))


def decide(bar: Bar, interval: Interval) -> Literal["pass", "fail", "cannot tell"]:
    """What an interval says of a bar: pass where all of it reaches the bar, fail where none of it does.

    >>> decide(Bar("groundedness", ">=", 0.85), Interval(0.9, 0.8, 1.0, n=20, clusters=20))
    'cannot tell'
    """
    reaches = _COMPARE[bar.sign]
    ends = reaches(interval.low, bar.value), reaches(interval.high, bar.value)
    return "pass" if all(ends) else "cannot tell" if any(ends) else "fail"
