"""A share corrected for the known error of whoever counted it."""

from __future__ import annotations

import math

from msgspec import Struct

from ragfault.stats.intervals import Interval, wilson

__all__ = ["Corrected", "correct", "rogan_gladen"]


class Corrected(Struct, frozen=True):
    """A share corrected for the error of whoever counted it, or why it cannot be."""

    interval: Interval | None
    """The corrected share with its interval, in [0, 1]; None where it is undefined."""
    reason: str | None = None
    """Why it is undefined."""


def rogan_gladen(
    rate: float,
    n: float,
    sensitivity: float,
    specificity: float,
    *,
    sensitivity_n: float,
    specificity_n: float,
    level: float = 0.95,
) -> Corrected:
    """The share of what is truly positive, from the share that an imperfect test calls so (Rogan & Gladen 1978).

    `rate` is the share of `n` things that the test calls positive; `sensitivity` the share of `sensitivity_n`
    true positives that it finds, `specificity` the share of `specificity_n` true negatives that it passes. All
    shares are in [0, 1]; a size may be a fraction (an effective n), and infinite where the share is known.
    The interval joins Wilson's intervals of the three as `correct` does.

    Undefined where `correct` is. Raises ValueError for a share outside [0, 1] or a size that is not above 0.

    >>> rogan_gladen(0.3, 200, 0.8, 0.9, sensitivity_n=100, specificity_n=150).interval
    Interval(mean=0.2857..., low=0.175..., high=0.398..., n=200, clusters=200)
    >>> rogan_gladen(0.3, 200, 0.4, 0.6, sensitivity_n=100, specificity_n=150).reason
    'sensitivity 0.400 + specificity 0.600 is not above 1: no better than chance'
    """
    for name, share, size in (
        ("rate", rate, n),
        ("sensitivity", sensitivity, sensitivity_n),
        ("specificity", specificity, specificity_n),
    ):
        if not 0 <= share <= 1 or not size > 0:
            raise ValueError(f"{name} {share} of {size}: a share is in [0, 1], and what it is of above 0")
    return correct(
        _share(rate, n, level),
        _share(sensitivity, sensitivity_n, level),
        _share(specificity, specificity_n, level),
    )


def _share(value: float, n: float, level: float) -> Interval:
    """A share with Wilson's interval; without any where it is known."""
    if math.isinf(n):
        return Interval(value, value, value, 0, 0)
    low, high = wilson(value * n, n, level)
    return Interval(value, min(low, value), max(high, value), round(n), round(n))


def correct(rate: Interval, sensitivity: Interval, specificity: Interval) -> Corrected:
    """A share with its interval, corrected for sensitivity and specificity with theirs.

    The mean is (rate + specificity − 1) / (sensitivity + specificity − 1), cut to [0, 1]. Its interval holds every
    share x in [0, 1] for which rate − x · sensitivity − (1 − x) · (1 − specificity) may be 0, by the three intervals
    joined as their squared half-widths add (Zou & Donner 2008; for a ratio Fieller 1954). It so inherits what the
    three know of clusters and of small samples, and its confidence is theirs. The mean of shares per trace can
    stand for a rate: the map is linear, as long as the error is the same on every trace.

    Undefined where sensitivity + specificity is not above 1 or, by their intervals, not known to be; and
    where the rate lies beyond what these errors allow, even if nothing (or everything) were positive: then the errors
    here are not those that were measured.

    >>> exact = Interval(1.0, 1.0, 1.0, 50, 50)
    >>> rate = Interval(0.3, 0.2, 0.4, 100, 100)
    >>> correct(rate, exact, Interval(0.9, 0.9, 0.9, 50, 50)).interval
    Interval(mean=0.222..., low=0.111..., high=0.333..., n=100, clusters=100)
    """
    gain = sensitivity.mean + specificity.mean - 1
    if gain <= 0:
        shown = f"sensitivity {sensitivity.mean:.3f} + specificity {specificity.mean:.3f}"
        return Corrected(None, f"{shown} is not above 1: no better than chance")
    above = rate.mean + specificity.mean - 1
    spans = (
        (rate.mean - rate.low, sensitivity.high - sensitivity.mean, specificity.mean - specificity.low),
        (rate.high - rate.mean, sensitivity.mean - sensitivity.low, specificity.high - specificity.mean),
    )
    if any(gain * gain <= positive**2 + negative**2 for _, positive, negative in spans):
        return Corrected(None, "the labelled data do not show it to be better than chance")
    low, high = (_root(above, gain, span, side) for span, side in zip(spans, (-1, 1), strict=True))
    if high < 0:
        expected = f"fewer are called positive ({rate.mean:.3f}) than the {1 - specificity.mean:.3f}"
        return Corrected(None, f"{expected} expected in error alone: the error here is another")
    if low > 1:
        expected = f"more are called positive ({rate.mean:.3f}) than the {sensitivity.mean:.3f}"
        return Corrected(None, f"{expected} expected if all were: the error here is another")
    mean, low, high = (min(1.0, max(0.0, end)) for end in (above / gain, low, high))
    return Corrected(Interval(mean, min(low, mean), max(high, mean), rate.n, rate.clusters))


def _root(above: float, gain: float, span: tuple[float, float, float], side: int) -> float:
    """Where the corrected share ends: x on this side at which `above` − x · `gain` equals its own half-width."""
    own, positive, negative = span
    a = gain**2 - positive**2 - negative**2
    b = above * gain - negative**2
    c = above**2 - own**2 - negative**2
    return (b + side * math.sqrt(max(0.0, b * b - a * c))) / a
