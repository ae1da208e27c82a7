"""Thresholds on the mean of a metric, such as `groundedness>=0.85`, and their check against an interval."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from ragfault.model.errors import UsageError
from ragfault.stats.estimates import Interval
from ragfault.text.number_format import has_too_few

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Comparator = Literal[">=", ">", "<=", "<"]

_THRESHOLD_PATTERN = re.compile(
    r"\s*(\S.*?)\s*(>=|<=|>|<|≥|≤)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", re.DOTALL
)
_COMPARATORS: dict[str, Comparator] = {">=": ">=", "≥": ">=", ">": ">", "<=": "<=", "≤": "<=", "<": "<"}
_OPERATORS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


AttemptStatisticName = Literal["pass^", "pass@", "worst@", "flaky@", "shared@"]
_STATISTIC_PATTERN = re.compile(r"(\S.*?)\s+(pass\^|pass@|worst@|flaky@|shared@)([1-9]\d{0,2})")
AttemptSubject = Literal["answers", "chunks"]
SUBJECT_STATISTICS: dict[AttemptSubject, tuple[AttemptStatisticName, ...]] = {
    "answers": ("pass^", "pass@", "flaky@"),
    "chunks": ("shared@",),
}
"""What attempts have besides the values of metrics → its statistics."""


class AttemptStatistic(Struct, frozen=True):
    """Statistic over k attempts of each query: whether all (pass^), any (pass@) or not all alike (flaky@) are right.

    `worst@` is the expected worst value of k attempts, `shared@` the share of chunks that two attempts have in common.
    """

    name: AttemptStatisticName
    k: int
    right: Threshold | None = None
    """When the value of an attempt is right; None: if it reaches the target of the metric."""


class Threshold(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Threshold on the mean of a metric, or on a statistic of its values over attempts.

    >>> str(Threshold("groundedness", ">=", 0.85))
    'groundedness>=0.85'
    """

    metric: str
    sign: Comparator
    value: float
    attempts: AttemptStatistic | None = None

    def __str__(self) -> str:
        own = self.attempts
        name = self.metric if own is None else f"{own.right or self.metric} {own.name}{own.k}"
        return f"{name}{self.sign}{self.value:g}"

    def is_reached_by(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which values reach the threshold."""
        reached: NDArray[np.bool_] = _OPERATORS[self.sign](values, self.value)
        return reached


def parse_threshold(text: str) -> Threshold:
    """Parse a threshold: a metric with its parameters, >=, >, <= or <, and a number.

    Between metric and sign there may be a statistic over attempts, such as pass^3; and between both, when an attempt is
    right. In place of a metric there may be `answers` or `chunks`. Raises UsageError for anything else.

    >>> parse_threshold("ndcg(gain=exponential)@10 >= 0.5")
    Threshold(metric='ndcg(gain=exponential)@10', sign='>=', value=0.5)
    >>> str(parse_threshold("groundedness>=0.9 pass^3 >= 0.8"))
    'groundedness>=0.9 pass^3>=0.8'
    """
    shape = _THRESHOLD_PATTERN.fullmatch(text)
    if shape is None or shape[1][-1] in "<>=!~":
        raise UsageError(
            f'"{text}" is not a threshold. Write a metric, >=, >, <= or <, and a number: groundedness>=0.85'
        )
    sign, value = _COMPARATORS[shape[2]], float(shape[3])
    statistic = _STATISTIC_PATTERN.fullmatch(shape[1])
    if statistic is None:
        return Threshold(shape[1], sign, value)
    given, k = statistic[1], int(statistic[3])
    name = cast(AttemptStatisticName, statistic[2])
    _check_statistic(text, given, name, k)
    right = parse_threshold(given) if _THRESHOLD_PATTERN.fullmatch(given) else None
    return Threshold(right.metric if right else given, sign, value, AttemptStatistic(name, k, right))


def _check_statistic(text: str, subject: str, name: AttemptStatisticName, k: int) -> None:
    """Refuse a statistic that a subject does not have."""
    known = {key: names for key, names in SUBJECT_STATISTICS.items() if key == subject}
    is_known = name in known[cast(AttemptSubject, subject)] if known else name != "shared@"
    if not is_known:
        shapes = ", ".join(f'"{key} {item}2"' for key, names in SUBJECT_STATISTICS.items() for item in names)
        raise UsageError(
            f'"{text}": {subject} has no {name}{k}. There are {shapes}; of a metric pass^, pass@, flaky@ and worst@.'
        )
    if name == "shared@" and k != 2:
        raise UsageError(f'"{text}": chunks are compared between two attempts. Write shared@2.')


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
