"""The level that questions of people give to a metric, next to what made questions say.

A made set compares retrievers, but its questions are easier or harder than those of users: its mean is not a level. A
few questions of people with gold give one, with an interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ragfault.model.records import Trace
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import bounded_interval
from ragfault.text.number_format import format_interval, format_number

SYNTHETIC_MAKER = "testset/"
"""How `metadata.provenance.maker` of a made question begins."""


class QuestionLevel(Struct, frozen=True, kw_only=True):
    """The mean of a metric on made questions, and on those of people."""

    metric: str
    synthetic: Interval
    own: Interval | None
    """None without a question of people."""


def is_synthetic(trace: Trace) -> bool:
    """Return whether a program made the question of a trace, as its metadata say.

    >>> is_synthetic(Trace(id="1", query="Why?", metadata={"provenance": {"maker": "testset/2"}}))
    True
    """
    provenance = trace.metadata.get("provenance")
    return isinstance(provenance, dict) and str(provenance.get("maker", "")).startswith(SYNTHETIC_MAKER)


def measure_level(metric: str, values: Sequence[float], synthetic: Sequence[bool]) -> QuestionLevel | None:
    """Measure the level of a metric with values in [0, 1], on questions some of which are made; None if none is.

    The interval is that of independent questions (`bounded_interval`).

    >>> level = measure_level("recall", [1.0] * 30 + [1.0, 0.0] * 10, [True] * 30 + [False] * 20)
    >>> describe_level(level)
    'recall: 1.00 on 30 made questions, 0.50 [0.30, 0.70] on 20 of people. Only the second is a level of the system.'
    """
    parts = [[value for value, flag in zip(values, synthetic, strict=True) if flag is kind] for kind in (True, False)]
    if not parts[0]:
        return None
    means = [bounded_interval(part) if part else None for part in parts]
    assert means[0] is not None
    return QuestionLevel(metric=metric, synthetic=means[0], own=means[1])


def describe_level(level: QuestionLevel) -> str:
    """Describe in a line what made questions and those of people say."""
    text = f"{level.metric}: {format_number(level.synthetic.mean, 2)} on {level.synthetic.n:,} made questions"
    if level.own is None:
        return f"{text}, which is not a level of the system. Add about 20 questions of people with gold to get one."
    own = f"{format_interval(level.own, 2)} on {level.own.n:,} of people"
    return f"{text}, {own}. Only the second is a level of the system."
