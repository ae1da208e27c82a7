"""Confidence sequences: intervals of a mean that stay valid when looked at after every value."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from ragfault.stats.groups import Floats, Values

__all__ = ["Band", "confidence_sequence", "difference_sequence"]

GRID = 1000
CELLS = 1 << 21
LARGE = 20_000
"""Values up to which bets are placed on a grid; beyond, the closed form carries on."""


class Band(Struct, frozen=True, eq=False):
    """A running mean and its confidence sequence; the last entry of each is the present state."""

    mean: Floats
    low: Floats
    high: Floats

    @property
    def n(self) -> int:
        """Values seen."""
        return self.mean.size


def confidence_sequence(
    values: Values, bounds: tuple[float, float] = (0.0, 1.0), *, confidence: float = 0.95
) -> Band:
    """The confidence sequence of a mean of bounded values (Waudby-Smith & Ramdas 2024).

    With the stated confidence the true mean lies within the band at every n at once, so that one may look after
    every trace and stop when one likes. Up to 20,000 values it is the paper's hedged capital process (bets
    capped at half, means tried on a grid of 1,000 and rounded outwards); longer sequences go on with its
    predictable plug-in empirical Bernstein band (theorem 2), each of the two at half of 1 - confidence.
    Bands are intersected with all earlier ones.

    Assumes that each value has the same mean given those before it (independent values do); neither a
    distribution nor a variance. For clustered values give one mean per cluster. Raises ValueError on no values, on
    values outside the bounds, and on bounds that are not finite.

    >>> band = confidence_sequence([1, 1, 0, 1] * 50)
    >>> round(float(band.low[-1]), 2), round(float(band.high[-1]), 2)
    (0.65, 0.85)
    """
    low, high = float(bounds[0]), float(bounds[1])
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError("no values: a mean of nothing is undefined")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"bounds are {bounds}: give two finite ends")
    if not ((sample >= low) & (sample <= high)).all():
        raise ValueError(f"a value lies outside the bounds {bounds}")
    unit = (sample - low) / (high - low)
    alpha = 1 - confidence
    if unit.size <= LARGE:
        floor, roof = _betting(unit, alpha)
    else:
        floor, roof = _bernstein(unit, alpha / 2)
        first = _betting(unit[:LARGE], alpha / 2)
        floor[:LARGE] = np.maximum(floor[:LARGE], first[0])
        roof[:LARGE] = np.minimum(roof[:LARGE], first[1])
    roof = np.minimum.accumulate(roof)
    floor = np.minimum(np.maximum.accumulate(floor), roof)
    mean = np.cumsum(sample) / np.arange(1, sample.size + 1)
    return Band(mean, low + (high - low) * floor, low + (high - low) * roof)


def difference_sequence(
    baseline: Values,
    candidate: Values,
    bounds: tuple[float, float] = (0.0, 1.0),
    *,
    confidence: float = 0.95,
) -> Band:
    """The confidence sequence of the mean difference of paired bounded values, candidate less baseline.

    `confidence_sequence` of the differences, whose bounds are the width of `bounds` on either side of 0.

    >>> band = difference_sequence([0.9, 0.8, 0.9] * 40, [0.6, 0.6, 0.7] * 40)
    >>> bool(band.high[-1] < 0), int((band.high < 0).argmax()) + 1
    (True, 34)
    """
    before, after = np.asarray(baseline, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    if before.shape != after.shape:
        raise ValueError(f"baseline has {before.size} values, candidate {after.size}: pairs need both")
    reach = float(bounds[1]) - float(bounds[0])
    return confidence_sequence(after - before, (-reach, reach), confidence=confidence)


def _bets(unit: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The predictable bets, not yet capped, and the running means each was made with."""
    t = np.arange(1, unit.size + 1)
    means = (0.5 + np.cumsum(unit)) / (t + 1)
    variances = (0.25 + np.cumsum((unit - means) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    bets: Floats = np.sqrt(2 * math.log(2 / alpha) / (before * t * np.log(t + 1)))
    return bets, np.concatenate([[0.5], means[:-1]])


def _bernstein(unit: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The empirical Bernstein band."""
    bets, means = _bets(unit, alpha)
    bets = np.minimum(bets, 0.5)
    total = np.cumsum(bets)
    centre = np.cumsum(bets * unit) / total
    cost = (unit - means) ** 2 * (-np.log1p(-bets) - bets)
    half = (math.log(2 / alpha) + np.cumsum(cost)) / total
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def _betting(unit: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The hedged capital band: means against which neither bettor has grown rich are kept."""
    bets = _bets(unit, alpha)[0]
    tried = np.linspace(0.0, 1.0, GRID + 1)
    inner = tried[1:-1]
    up, down = np.zeros(inner.size), np.zeros(inner.size)
    floor, roof = np.empty(unit.size), np.empty(unit.size)
    bar = math.log(2 / alpha)
    step = max(1, CELLS // GRID)
    for start in range(0, unit.size, step):
        part = slice(start, start + step)
        gain, bet = unit[part, None] - inner, bets[part, None]
        ups = up + np.cumsum(np.log1p(np.minimum(bet, 0.5 / inner) * gain), axis=0)
        downs = down + np.cumsum(np.log1p(-np.minimum(bet, 0.5 / (1 - inner)) * gain), axis=0)
        up, down = ups[-1], downs[-1]
        kept = np.maximum(ups, downs) < bar
        first, last = kept.argmax(axis=1), kept.shape[1] - 1 - kept[:, ::-1].argmax(axis=1)
        none = ~kept.any(axis=1)
        first[none], last[none] = inner.size - 1, 0
        floor[part], roof[part] = tried[first], tried[last + 2]
    return floor, roof
