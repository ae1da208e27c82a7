"""Roll-ups: what a minute of live traffic comes to, kept as sums, so that watching costs the same at any traffic."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from ragfault.records import Status
from ragfault.runs import Measure

__all__ = [
    "BINS",
    "Observation",
    "Products",
    "Rollup",
    "Worst",
    "bin_edges",
    "merge",
    "merge_products",
    "merged",
    "multiply",
    "roll",
]

BINS = 20
"""How many bins a histogram has."""

KEPT = 5
"""How many of its worst traces a roll-up names."""

GRAIN = 1 << 16
"""Values are kept to one part in so many: sums of such, and of their squares, are exact in floating point for up to
two million values from 0 to 1, so that the order of merging can never show."""

Better = Literal["higher", "lower"]


class Observation(Struct, frozen=True, kw_only=True):
    """One value, or the lack of one, seen at a time in live traffic."""

    metric: str
    trace: str
    time: float
    """Seconds since 1970, UTC."""
    status: Status = "scored"
    value: float | None = None
    """A number exactly where `status` is "scored"."""
    route: str | None = None
    cohorts: tuple[str, ...] = ()
    """What else it is counted under: "release=7", "position=3"."""
    whole: bool = True
    """Whether it counts for its route as well, or for its cohorts only."""


class Worst(Struct, frozen=True, order=True):
    """A trace with its value; the worse sorts first."""

    badness: float
    """The value where lower is better, negated: the least of these is the worst."""
    trace: str
    value: float


class Rollup(Struct, frozen=True, kw_only=True):
    """The values of one metric on one route within a minute, or within any stretch of minutes that was merged."""

    metric: str
    route: str | None = None
    """None: the traces that name no route."""
    cohort: str | None = None
    """None: all traces of the route; else those of one cohort, such as "release=7", over all routes."""
    minute: int
    """Minutes since 1970, UTC; of merged roll-ups the first."""
    n: int = 0
    """Values."""
    sum: float = 0.0
    squares: float = 0.0
    bins: tuple[int, ...] = (0,) * BINS
    """How many values are in each bin of `bin_edges`."""
    undefined: int = 0
    failed: int = 0
    worst: tuple[Worst, ...] = ()
    """The traces with the worst values, the worst first, at most five."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells it from other roll-ups; None and the empty text are one."""
        return (self.metric, self.route or "", self.cohort or "", self.minute)


class Products(Struct, frozen=True, kw_only=True):
    """The sums of products of two metrics within a minute, over the traces on which both have a value."""

    first: str
    second: str
    route: str | None = None
    minute: int
    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0


def merge(one: Rollup, two: Rollup) -> Rollup:
    """Two roll-ups of one metric, route and cohort as one.

    Associative and commutative: exactly so for values from 0 to 1, to rounding for others. Raises ValueError for
    roll-ups of different things.

    >>> first, second = roll([Observation(metric="m", trace=t, time=60.0, value=v) for t, v in (("a", 1.0), ("b", 0.5))]
    ...     )[0], Rollup(metric="m", minute=2, undefined=1)
    >>> found = merge(first, second)
    >>> found.minute, found.n, found.sum, found.undefined, found.worst[0].trace
    (1, 2, 1.5, 1, 'b')
    """
    if (one.metric, one.route, one.cohort) != (two.metric, two.route, two.cohort):
        raise ValueError(f"{one.metric} of {one.route} and {two.metric} of {two.route} are not of one kind")
    return Rollup(
        metric=one.metric,
        route=one.route,
        cohort=one.cohort,
        minute=min(one.minute, two.minute),
        n=one.n + two.n,
        sum=one.sum + two.sum,
        squares=one.squares + two.squares,
        bins=tuple(a + b for a, b in zip(one.bins, two.bins, strict=True)),
        undefined=one.undefined + two.undefined,
        failed=one.failed + two.failed,
        worst=tuple(sorted(one.worst + two.worst)[:KEPT]),
    )


def merge_products(one: Products, two: Products) -> Products:
    """Sums of products of the same two metrics on one route as one."""
    sums = {name: getattr(one, name) + getattr(two, name) for name in ("n", "x", "y", "xx", "yy", "xy")}
    return Products(
        first=one.first, second=one.second, route=one.route, minute=min(one.minute, two.minute), **sums
    )


def merged(rollups: Iterable[Rollup]) -> tuple[Rollup, ...]:
    """Roll-ups with those of one key made one, ordered by key."""
    found: dict[tuple[str, str, str, int], Rollup] = {}
    for each in rollups:
        there = found.get(each.key)
        found[each.key] = each if there is None else merge(there, each)
    return tuple(found[key] for key in sorted(found))


def bin_edges(low: float | None, high: float | None) -> tuple[float, ...]:
    """Where the bins of a metric's histogram begin and the last one ends.

    Twenty equal bins over a bounded range; powers of two from 1 where the range has no end. What lies outside is
    counted in the first or the last bin.

    >>> bin_edges(0, 1)[:3], bin_edges(0, None)[:4]
    ((0.0, 0.05, 0.1), (0.0, 1.0, 2.0, 4.0))
    """
    if low is not None and high is not None and high > low:
        return tuple(low + (high - low) * at / BINS for at in range(BINS + 1))
    return (0.0, *(float(1 << at) for at in range(BINS)))


def roll(observations: Iterable[Observation], measures: Iterable[Measure] = ()) -> tuple[Rollup, ...]:
    """Observations as roll-ups, a minute each, ordered by key.

    `measures` say each metric's range and which way is better; a metric that is not among them has values from 0
    to 1, of which higher is better. Rolling up parts and merging them is the same as rolling up the whole.

    >>> found = roll([Observation(metric="m", trace=str(at), time=30.0 * at, value=0.25) for at in range(4)])
    >>> [(each.minute, each.n, each.sum) for each in found]
    [(0, 2, 0.5), (1, 2, 0.5)]
    """
    known = {measure.name: measure for measure in measures}
    tallies: dict[tuple[str, str | None, str | None, int], _Tally] = {}
    for each in observations:
        minute = math.floor(each.time / 60)
        places = [(each.route, None)] if each.whole else []
        for route, cohort in (*places, *((None, cohort) for cohort in each.cohorts)):
            key = (each.metric, route, cohort, minute)
            tally = tallies.get(key)
            if tally is None:
                tally = tallies[key] = _Tally(known.get(each.metric, Measure(each.metric, "operation")))
            tally.add(each)
    return merged(tally.rollup(*key) for key, tally in tallies.items())


class _Tally:
    """A roll-up in the making."""

    __slots__ = ("bins", "high", "low", "n", "seen", "sign", "squares", "states", "sum")

    def __init__(self, measure: Measure) -> None:
        self.low, self.high = measure.low, measure.high
        self.sign = 1.0 if measure.better == "higher" else -1.0
        self.bins, self.n, self.sum, self.squares = [0] * BINS, 0, 0.0, 0.0
        self.states: defaultdict[str, int] = defaultdict(int)
        self.seen: list[Worst] = []

    def add(self, seen: Observation) -> None:
        if seen.status != "scored" or seen.value is None:
            self.states[seen.status] += 1
            return
        value = round(seen.value * GRAIN) / GRAIN
        self.n += 1
        self.sum += value
        self.squares += value * value
        self.bins[_bin(value, self.low, self.high)] += 1
        self.seen.append(Worst(self.sign * value, seen.trace, value))
        if len(self.seen) > 8 * KEPT:
            self.seen = sorted(self.seen)[:KEPT]

    def rollup(self, metric: str, route: str | None, cohort: str | None, minute: int) -> Rollup:
        return Rollup(
            metric=metric,
            route=route,
            cohort=cohort,
            minute=minute,
            n=self.n,
            sum=self.sum,
            squares=self.squares,
            bins=tuple(self.bins),
            undefined=self.states["undefined"],
            failed=self.states["failed"],
            worst=tuple(sorted(self.seen)[:KEPT]),
        )


def _bin(value: float, low: float | None, high: float | None) -> int:
    """The bin of a value."""
    if low is not None and high is not None and high > low:
        return min(BINS - 1, max(0, math.floor((value - low) / (high - low) * BINS)))
    return 0 if value < 1 else min(BINS - 1, math.floor(math.log2(value)) + 1)


def multiply(observations: Iterable[Observation], pairs: Iterable[tuple[str, str]]) -> tuple[Products, ...]:
    """The sums of products of pairs of metrics, a minute each.

    >>> seen = [Observation(metric=m, trace="a", time=0.0, value=v) for m, v in (("m", 0.5), ("k", 0.25))]
    >>> multiply(seen, [("m", "k")])[0].xy
    0.125
    """
    wanted = tuple(pairs)
    names = {name for pair in wanted for name in pair}
    traces: defaultdict[tuple[str | None, int, str], dict[str, float]] = defaultdict(dict)
    for each in observations:
        if each.whole and each.metric in names and each.value is not None:
            value = round(each.value * GRAIN) / GRAIN
            traces[each.route, math.floor(each.time / 60), each.trace][each.metric] = value
    found: dict[tuple[str, str, str, int], Products] = {}
    for (route, minute, _), values in traces.items():
        for first, second in wanted:
            if first in values and second in values:
                x, y = values[first], values[second]
                one = Products(
                    first=first, second=second, route=route, minute=minute,
                    n=1, x=x, y=y, xx=x * x, yy=y * y, xy=x * y,
                )  # fmt: skip
                key = (first, second, route or "", minute)
                found[key] = one if key not in found else merge_products(found[key], one)
    return tuple(found[key] for key in sorted(found))
