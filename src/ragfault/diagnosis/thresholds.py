"""Thresholds on the mean of a metric, such as `groundedness>=0.85`, and their check against an interval."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from ragfault.model.errors import UsageError
from ragfault.stats.estimates import Interval
from ragfault.text.number_format import has_too_few

Comparator = Literal[">=", ">", "<=", "<"]

_THRESHOLD_PATTERN = re.compile(
    r"\s*(\S.*?)\s*(>=|<=|>|<|≥|≤)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", re.DOTALL
)
_COMPARATORS: dict[str, Comparator] = {">=": ">=", "≥": ">=", ">": ">", "<=": "<=", "≤": "<=", "<": "<"}
_OPERATORS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


class Threshold(Struct, frozen=True):
    """Threshold on the mean of a metric.

    >>> str(Threshold("groundedness", ">=", 0.85))
    'groundedness>=0.85'
    """

    metric: str
    sign: Comparator
    value: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{self.value:g}"


def parse_threshold(text: str) -> Threshold:
    """Parse a threshold: a metric with its parameters, >=, >, <= or <, and a number.

    Raises UsageError for anything else.

    >>> parse_threshold("ndcg(gain=exponential)@10 >= 0.5")
    Threshold(metric='ndcg(gain=exponential)@10', sign='>=', value=0.5)
    """
    shape = _THRESHOLD_PATTERN.fullmatch(text)
    if shape is None or shape[1][-1] in "<>=!~":
        raise UsageError(
            f'"{text}" is not a threshold. Write a metric, >=, >, <= or <, and a number: groundedness>=0.85'
        )
    return Threshold(shape[1], _COMPARATORS[shape[2]], float(shape[3]))


def parse_thresholds(thresholds: Iterable[Threshold | str]) -> list[Threshold]:
    """Parse the thresholds that are texts."""
    return [parse_threshold(item) if isinstance(item, str) else item for item in thresholds]


def check_threshold(threshold: Threshold, interval: Interval) -> Literal["pass", "fail", "cannot tell"]:
    """Check an interval against a threshold: pass where all of it reaches it, fail where none of it does.

    Fewer than eight independent values pass nothing.

    >>> check_threshold(Threshold("groundedness", ">=", 0.85), Interval(0.9, 0.8, 1.0, n=20, clusters=20))
    'cannot tell'
    """
    reaches = _OPERATORS[threshold.sign]
    ends = reaches(interval.low, threshold.value), reaches(interval.high, threshold.value)
    return "pass" if all(ends) and not has_too_few(interval) else "cannot tell" if any(ends) else "fail"
