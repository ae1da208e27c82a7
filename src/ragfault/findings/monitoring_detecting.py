"""Detection: a drop called by a sequential test that stays valid however often one looks, from sums of minutes alone.

Each minute bets against "the mean is still at least the floor", the floor being the lower limit of a reference period.
For a value x from 0 to 1, a floor m, and ξ = (m - x) / (1 - m) ≥ -1, the inequality of Fan, Grama & Liu (2015),
exp(λξ + ξ²(log(1 - λ) + λ)) ≤ 1 + λξ for 0 ≤ λ < 1, makes the product over the values a supermartingale under that
null hypothesis; it needs their count, sum and sum of squares only. Summed over every minute at which a drop could have
begun this is a Shiryaev-Roberts e-detector (Shin, Ramdas & Rinaldo 2024, "E-detectors: a nonparametric framework for
sequential change detection"): with the bar at c the mean time to a false alarm is at least c minutes, and the
chance of any within T minutes at most T / c, whatever the distribution. The bets are a mixture over drops of 1 to 20
points, set by the reference before watching begins. Values that move together (the turns of a conversation, a busy
half-hour) would be counted as often as they come: all evidence is divided by the design effect of the reference, which
leaves valid what was, since a power below 1 of a supermartingale is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.errors import UsageError
from ragfault.findings.monitoring_windows import Series, interval
from ragfault.runs import Measure
from ragfault.stats import change_point
from ragfault.stats.groups import Table

__all__ = [
    "MARGIN",
    "MONTH",
    "RATE",
    "Call",
    "Reference",
    "Watch",
    "advance",
    "bar",
    "began",
    "begin",
    "detect",
    "gains",
    "reference",
]

MONTH = 30 * 24 * 60
"""Minutes."""

RATE = 0.05
"""False alarms per metric and route in a month, at most."""

MARGIN = 0.005
"""A drop smaller than this, as a share of the metric's range, is not looked for."""

DROPS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The drops, as shares of the range, that bets are placed for."""

LEAST = 30
"""Fewer values than this are no reference."""

BLOCK = 30
"""Minutes within which values may move together: turns of a conversation, a busy half-hour."""

CALM = 90
"""Minutes, at least, over which the mean must be back at the floor before watching begins anew."""

BLOCKS = 160
"""Into how many stretches of as many values each the time around a drop is cut, to find when it began."""


class Reference(Struct, frozen=True, kw_only=True):
    """What a metric was like before watching began."""

    metric: str
    route: str | None
    first: int
    last: int
    """The minute at which it ends, exclusive."""
    n: int
    mean: float
    """In the metric's own units."""
    floor: float
    """What the mean is held against, from 0 to 1 where 1 is best: the lower limit of the reference, less at least
    the margin."""
    bets: tuple[float, ...]
    """The λ of the mixture."""
    low: float
    high: float
    rising: bool
    """Whether higher values are better."""
    effect: float = 1.0
    """How many values count as one, since those near each other in time move together: evidence is divided by it."""


class Watch(Struct, frozen=True, kw_only=True):
    """The state of a sequential test; a few numbers, however long it has run."""

    reference: Reference
    sums: tuple[float, ...]
    """The logarithm of the Shiryaev-Roberts sum of each bet."""
    tops: tuple[float, ...]
    """The logarithm of each bet's capital since its best beginning."""
    starts: tuple[int, ...]
    """That beginning, a minute."""
    minute: int
    """The last minute taken in."""
    level: float = -math.inf
    """The logarithm of the e-detector: the mean of the sums. Called where it reaches `bar`."""

    @property
    def start(self) -> int:
        """The likeliest beginning of a drop, by the bet that gained most."""
        return self.starts[max(range(len(self.tops)), key=self.tops.__getitem__)]


class Call(Struct, frozen=True, kw_only=True):
    """A drop that was called."""

    called: int
    """The minute at which there was evidence enough."""
    began: int
    """When it began, by the change point of the values around it."""
    earliest: int
    latest: int
    """Between which minutes that was, at 95 %."""
    level: float
    """The logarithm of the e-detector when it was called."""
    recovered: int | None = None
    """The minute at which the mean was back at the floor; None where it has not been."""


def reference(
    key: tuple[str, str | None],
    part: Series,
    measure: Measure,
    *,
    rate: float = RATE,
    margin: float = MARGIN,
) -> Reference | None:
    """What a metric on a route was in a reference period; None where it has no bounded range or fewer than 30 values.

    The floor is the lower limit of its mean with an error of half of `rate`, or the mean less `margin` (a share of
    the range) where that is lower; the limit allows for values that move together. Raises UsageError where the rate
    or the margin is impossible.
    """
    if not (0 < rate < 1 and 0 <= margin < 1):
        raise UsageError(f"the rate and the margin are shares between 0 and 1, got {rate:g} and {margin:g}.")
    if measure.low is None or measure.high is None or part.traces < LEAST:
        return None
    found = interval(part, measure, 1 - rate)
    assert found is not None
    width, rising = measure.high - measure.low, measure.better == "higher"
    mean = ((found.mean - measure.low) if rising else (measure.high - found.mean)) / width
    limit = ((found.low - measure.low) if rising else (measure.high - found.high)) / width
    near, wide = _effects(part)
    floor = min(mean - (mean - limit) * math.sqrt(wide / near), mean - margin)
    if floor <= 0 or floor >= 1:
        return None
    return Reference(
        metric=key[0],
        route=key[1],
        first=int(part.minutes[0]),
        last=int(part.minutes[-1]) + 1,
        n=part.traces,
        mean=found.mean,
        floor=floor,
        bets=_bets(mean, floor, max(part.variance / width**2, 1e-4)),
        low=measure.low,
        high=measure.high,
        rising=rising,
        effect=wide,
    )


def _effects(part: Series) -> tuple[float, float]:
    """The design effect by minute, and the larger of that and the one by half-hour; at least 1.

    The squared standard error of the mean with values near each other in time taken together, by that without. Fewer
    than 30 stretches do not tell.
    """
    plain = part.variance / max(1, part.traces)
    found = [1.0]
    for stretch in (1, BLOCK):
        starts = np.flatnonzero(np.diff(part.minutes // stretch, prepend=-1))
        sums, counts = (np.add.reduceat(each, starts) for each in (part.sum, part.n))
        there = counts > 0
        if there.sum() >= LEAST and plain > 0:
            error = float(Table(sums[there, None], counts[there, None]).errors()[0])
            found.append(max(found[-1], error * error / plain))
        else:
            found.append(found[-1])
    return found[1], found[2]


def _bets(mean: float, floor: float, variance: float) -> tuple[float, ...]:
    """The λ that makes most of each drop, on the scale of ξ."""
    found = []
    for drop in DROPS:
        shift = max(drop - (mean - floor), drop / 4)
        found.append(min(0.9, (1 - floor) * shift / (variance + shift * shift)))
    return tuple(dict.fromkeys(found))


def bar(rate: float = RATE) -> float:
    """The logarithm of the bar: a month of minutes over half the rate; the other half is the reference's.

    >>> round(math.exp(bar(0.05)))
    1728000
    """
    return math.log(MONTH / (rate / 2))


def begin(reference: Reference, minute: int) -> Watch:
    """Watch anew from a minute."""
    none = (-math.inf,) * len(reference.bets)
    return Watch(reference=reference, sums=none, tops=none, starts=(minute,) * len(none), minute=minute - 1)


def gains(
    found: Reference, n: NDArray[np.float64], total: NDArray[np.float64], squares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The logarithm of what each bet's capital is multiplied with in each minute: minutes × bets.

    From the count, sum and sum of squares of a minute's values, in the metric's units.
    """
    width = found.high - found.low
    unit = (total - n * found.low) / width
    square = (squares - 2 * found.low * total + n * found.low**2) / width**2
    if not found.rising:
        unit, square = n - unit, n - 2 * unit + square
    m, scale = found.floor, 1 - found.floor
    xi = (m * n - unit) / scale
    xi2 = np.maximum(m * m * n - 2 * m * unit + square, 0.0) / scale**2
    bets = np.array(found.bets)
    kept: NDArray[np.float64] = xi[..., None] * bets + xi2[..., None] * (np.log1p(-bets) + bets)
    return kept / found.effect


def advance(watch: Watch, minute: int, n: float, total: float, squares: float) -> Watch:
    """Take in one minute, later than the last: O(1), whatever its traffic. A minute without values changes nothing.

    >>> made = Reference(metric="m", route=None, first=0, last=9, n=99, mean=0.8, floor=0.79, bets=(0.2, 0.4), low=0.0,
    ...     high=1.0, rising=True)
    >>> one = advance(begin(made, 9), 9, 10, 4.0, 2.5)
    >>> one.minute, one.level > 0, advance(one, 10, 0, 0.0, 0.0).level == one.level
    (9, True, True)
    """
    if not n:
        return replace(watch, minute=minute)
    row = gains(watch.reference, np.array([n]), np.array([total]), np.array([squares]))[0].tolist()
    sums = tuple(gain + _softplus(each) for gain, each in zip(row, watch.sums, strict=True))
    tops, starts = [], []
    for gain, top, start in zip(row, watch.tops, watch.starts, strict=True):
        tops.append(gain + max(top, 0.0))
        starts.append(start if top > 0 else minute)
    most = max(sums)
    level = most + math.log(sum(math.exp(each - most) for each in sums) / len(sums))
    return Watch(
        reference=watch.reference,
        sums=sums,
        tops=tuple(tops),
        starts=tuple(starts),
        minute=minute,
        level=level,
    )


def _softplus(value: float) -> float:
    """log(exp(value) + 1)."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def detect(whole: Series, found: Reference, *, rate: float = RATE, seed: int = 0) -> tuple[Call, ...]:
    """Every drop of a series after its reference, in the order of time.

    After a call nothing is called until the mean is back at the floor, over as many minutes as the call took, at
    least 90; then watching begins anew.
    """
    live = whole.between(found.last, int(whole.minutes[-1]) + 1) if whole.minutes.size else whole
    there = live.n > 0
    minutes, rows = live.minutes[there], gains(found, live.n, live.sum, live.squares)[there]
    limit, at, calls = bar(rate), 0, list[Call]()
    while at < len(rows):
        watch = _first(found, minutes[at:], rows[at:], limit)
        if watch is None:
            break
        call = _call(whole, watch, seed)
        back = _back(live, found, call)
        calls.append(replace(call, recovered=back))
        at = len(rows) if back is None else int(np.searchsorted(minutes, back)) + 1
    return tuple(calls)


def _first(
    found: Reference, minutes: NDArray[np.int64], rows: NDArray[np.float64], limit: float
) -> Watch | None:
    """The state in which the bar is first reached, all minutes at once; None where it never is.

    The Shiryaev-Roberts sum of a bet is its capital times the sum of one over its capital at each beginning.
    """
    total = np.cumsum(rows, axis=0)
    before = total - rows
    sums = total + np.logaddexp.accumulate(-before, axis=0)
    levels = np.logaddexp.reduce(sums, axis=1) - math.log(rows.shape[1])
    reached = np.flatnonzero(levels >= limit)
    if not reached.size:
        return None
    at = int(reached[0])
    least = before[: at + 1].argmin(axis=0)
    tops = total[at] - before[least, np.arange(rows.shape[1])]
    return Watch(
        reference=found,
        sums=tuple(sums[at].tolist()),
        tops=tuple(tops.tolist()),
        starts=tuple(minutes[least].tolist()),
        minute=int(minutes[at]),
        level=float(levels[at]),
    )


def _back(live: Series, found: Reference, call: Call) -> int | None:
    """When the mean is at the floor again, over as many minutes as the drop took to call, at least 90."""
    window = max(CALM, call.called - call.began)
    ends = np.flatnonzero((live.minutes >= call.called + window) & (live.n > 0))
    starts = np.searchsorted(live.minutes, live.minutes[ends] + 1 - window)
    n, total = (np.concatenate([[0.0], np.cumsum(each)]) for each in (live.n, live.sum))
    means = (total[ends + 1] - total[starts]) / (n[ends + 1] - n[starts])
    unit = (means - found.low) / (found.high - found.low)
    well = np.flatnonzero((unit if found.rising else 1 - unit) >= found.floor)
    return int(live.minutes[ends[well[0]]]) if well.size else None


def _call(whole: Series, watch: Watch, seed: int) -> Call:
    first, low, high = began(whole, watch, seed)
    return Call(called=watch.minute, began=first, earliest=low, latest=high, level=watch.level)


def began(whole: Series, watch: Watch, seed: int = 0) -> tuple[int, int, int]:
    """When a drop began, and between which minutes that was at 95 %: the change point of the values around it.

    It is sought from three times as long before the test's own likeliest beginning as the drop has lasted.
    """
    length = watch.minute - watch.start + 1
    part = whole.between(watch.start - max(3 * length, 120), watch.minute + 1)
    blocks = list(_blocks(part))
    if len(blocks) < 4:
        return watch.start, watch.start, watch.minute
    found = change_point([mean for _, mean in blocks], resamples=199, seed=seed)
    times = [minute for minute, _ in blocks]
    return times[found.step], times[found.low], times[min(found.high, len(times) - 1)]


def _blocks(part: Series) -> Iterator[tuple[int, float]]:
    """Stretches with about as many values each: the first minute and the mean."""
    there = np.flatnonzero(part.n)
    if not there.size:
        return
    counts, sums, minutes = part.n[there], part.sum[there], part.minutes[there]
    places = np.minimum(((np.cumsum(counts) - counts) * BLOCKS / counts.sum()).astype(int), BLOCKS - 1)
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    means = np.add.reduceat(sums, starts) / np.add.reduceat(counts, starts)
    yield from zip(minutes[starts].tolist(), means.tolist(), strict=True)
