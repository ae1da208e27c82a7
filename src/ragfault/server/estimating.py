"""Estimates: what a better judge would say of all traffic, from what it said of a sample."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Estimate"]


class Estimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mean of a metric on a route by a better judge, from its checks on a sample, or why there is none."""

    judge: str
    """The fingerprint of the better judge."""
    checks: int = 0
    """Traces with a value by both judges."""
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the mean."""
    gain: float | None = None
    """The width of the interval against that of the checks alone, below 1 where the judge of every trace helps."""
    covered: float = 0.0
    """The share of the scored traces that it speaks of: those before money, or patience, ran out."""
    failed: int = 0
    """Checks that gave no value, as the better judge failed or found none."""
    dollars: float | None = None
    """US$ that the checks came to; None: their price is not known."""
    reason: str | None = None
    """Why there is no mean."""
