"""What the first page says: how each layer stands over all routes, and what certainly moved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ragfault.findings.health import PARTS
from ragfault.records import Layer
from ragfault.server.views import Moved

__all__ = ["PARTS_OF", "Standing", "standing", "stirred"]

PARTS_OF: dict[Layer, tuple[str, ...]] = {
    **{layer: parts for _, layer, parts in PARTS},
    "crosscut": ("triad",),
    "operation": ("latency",),
}
"""What stands for each layer on the first page; the first two have a health made of them."""


class Standing(Struct, frozen=True, kw_only=True):
    """A mean over all routes, and how it moved."""

    mean: float
    low: float | None
    high: float | None
    n: int
    delta: float | None = None
    delta_low: float | None = None
    delta_high: float | None = None


def standing(moved: Iterable[Moved], metrics: Sequence[str], window: int) -> Standing | None:
    """The mean of some metrics' means over all routes in a window; None where no one has a value.

    Routes count by their values and are taken as independent; the metrics count alike and are taken as moving
    together, so that the interval is, if anything, too wide.
    """
    found = [each for each in moved if each.window == window and each.mean is not None and each.n]
    parts = [_pooled([each for each in found if each.metric == name]) for name in metrics]
    known = [each for each in parts if each is not None]
    if not known:
        return None
    return Standing(
        mean=_mean([each.mean for each in known]) or 0.0,
        low=_mean([each.low for each in known]),
        high=_mean([each.high for each in known]),
        n=max(each.n for each in known),
        delta=_mean([each.delta for each in known]),
        delta_low=_mean([each.delta_low for each in known]),
        delta_high=_mean([each.delta_high for each in known]),
    )


def _pooled(routes: Sequence[Moved]) -> Standing | None:
    """One metric over its routes."""
    if not routes:
        return None
    n = sum(each.n for each in routes)
    share = [each.n / n for each in routes]
    mean = sum(part * (each.mean or 0.0) for part, each in zip(share, routes, strict=True))
    low, high = _ends(mean, share, [(each.mean, each.low, each.high) for each in routes])
    there = [each for each in routes if each.delta is not None]
    size = sum(each.n for each in there)
    parts = [each.n / size for each in there]
    delta = (
        sum(part * (each.delta or 0.0) for part, each in zip(parts, there, strict=True)) if there else None
    )
    ends = _ends(delta or 0.0, parts, [(each.delta, each.delta_low, each.delta_high) for each in there])
    known = delta is not None
    return Standing(
        mean=mean, low=low, high=high, n=n, delta=delta,
        delta_low=ends[0] if known else None, delta_high=ends[1] if known else None,
    )  # fmt: skip


def _ends(
    mean: float, share: Sequence[float], parts: Sequence[tuple[float | None, float | None, float | None]]
) -> tuple[float | None, float | None]:
    """The ends of the interval of a weighted mean of independent parts; unknown where that of a part is."""
    if any(low is None or high is None for _, low, high in parts):
        return None, None
    down = math.sqrt(
        sum((w * ((m or 0) - (low or 0))) ** 2 for w, (m, low, _) in zip(share, parts, strict=True))
    )
    up = math.sqrt(
        sum((w * ((high or 0) - (m or 0))) ** 2 for w, (m, _, high) in zip(share, parts, strict=True))
    )
    return mean - down, mean + up


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def stirred(moved: Iterable[Moved], most: int = 8) -> list[Moved]:
    """What certainly moved: differences whose interval leaves out zero, for the worse first, the surest first."""

    def sure(each: Moved) -> float:
        half = ((each.delta_high or 0.0) - (each.delta_low or 0.0)) / 2
        return abs(each.delta or 0.0) / half if half else math.inf

    found = [
        each
        for each in moved
        if each.delta_low is not None
        and each.delta_high is not None
        and (each.delta_low > 0 or each.delta_high < 0)
    ]
    return sorted(found, key=lambda each: (not _worse(each), -sure(each), each.metric))[:most]


def _worse(each: Moved) -> bool:
    return ((each.delta or 0.0) < 0) == (each.better == "higher")
