"""What goes together in live traffic: the triad over time, how values lie, and what they go with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ragfault.findings.grid import bare
from ragfault.findings.monitoring import OWN
from ragfault.findings.monitoring_windows import (
    Correlation,
    Distribution,
    Key,
    Rolling,
    Series,
    correlations,
    distribution,
    insights,
    rolling,
    series,
)
from ragfault.findings.records import Insight
from ragfault.runs import Measure
from ragfault.server.desk import Desk
from ragfault.server.views import Point
from ragfault.store import Mark

__all__ = ["ROUTES", "TRIAD", "Course", "Together", "together"]

TRIAD = ("context_relevance", "groundedness", "answer_relevance")
"""The three parts of the triad: what was found, what was said of it, and whether that answers."""

ROUTES = 6
"""Routes that are shown at once, those with the most traffic."""

POINTS, STRETCHES = 120, 12
"""Points of a line over time; stretches of a window, whose means say how far the mean of all can be trusted."""

COHORTS = 20
"""Cohorts of one field that are shown, those with the most traffic."""


class Course(Struct, frozen=True, kw_only=True):
    """One part of the triad on one route over time."""

    metric: str
    route: str | None
    points: tuple[Point, ...]


class Together(Struct, frozen=True, kw_only=True):
    """What goes together within a window that ends now."""

    now: float
    window: int
    """Minutes."""
    route: str | None
    """None: all routes; the empty text: traces that name none."""
    grain: int
    """Minutes to a point."""
    routes: int
    """How many routes there were, of which those with the most traffic are here."""
    triad: tuple[Course, ...]
    """By route, the one with the most traffic first, and by part."""
    distributions: tuple[Distribution, ...]
    """Of the triad and its parts, by metric and route; of the outliers the five worst."""
    correlations: tuple[Correlation, ...]
    """Of pairs of metrics over the traces of the route, or of all routes."""
    insights: tuple[Insight, ...]
    """Relevance and use of chunks by position and by the number of chunks, over all routes."""
    cohorts: tuple[Rolling, ...]
    """The triad and its parts by model, release, prompt version …, over all routes."""
    marks: tuple[Mark, ...]


def together(desk: Desk, route: str | None, window: int) -> Together:
    """What goes together within the last `window` minutes."""
    now, store = desk.now(), desk.store
    until = math.floor(now / 60) + 1
    since, grain = until - window, max(1, window // POINTS)
    measures = {measure.name: measure for measure in store.measures()}
    found = series(
        each
        for name in _named(measures)
        for each in store.rollups(since, until, metric=name, route=route, grain=grain)
    )
    routes = _busiest(found)
    return Together(
        now=now,
        window=window,
        route=route,
        grain=grain,
        routes=len(routes),
        triad=tuple(_courses(found, routes[:ROUTES])),
        distributions=tuple(_distributions(desk, found, routes[:ROUTES], (since, until))),
        correlations=correlations(
            (each for each in store.products(since, until) if route is None or (each.route or "") == route),
            since,
            until,
        ),
        insights=insights(_own(desk, since, until), since, until),
        cohorts=tuple(_cohorts(desk, measures, until, window)),
        marks=store.marks(60.0 * since),
    )


def _named(measures: Iterable[str]) -> list[str]:
    """The metrics of the triad as this server keeps them: one of each name."""
    found: dict[str, str] = {}
    for name in measures:
        found.setdefault(bare(name), name)
    return [found[name] for name in (*TRIAD, "triad") if name in found]


def _busiest(found: Mapping[Key, Series]) -> list[str | None]:
    """The routes, those with the most values first."""
    sizes: Counter[str | None] = Counter()
    for (_, route, _), part in found.items():
        sizes[route] = max(sizes[route], part.traces)
    return sorted((route for route in sizes if sizes[route]), key=lambda route: (-sizes[route], route or ""))


def _courses(found: Mapping[Key, Series], routes: Sequence[str | None]) -> Iterator[Course]:
    for route in routes:
        for (metric, there, _), part in found.items():
            if there == route and bare(metric) in TRIAD:
                yield Course(metric=metric, route=route, points=tuple(_points(route, part)))


def _points(route: str | None, part: Series) -> Iterator[Point]:
    for at, minute in enumerate(part.minutes.tolist()):
        n = int(part.n[at])
        undefined, failed = part.lost[at].tolist()
        mean = float(part.sum[at]) / n if n else None
        yield Point(minute=minute, route=route, n=n, mean=mean, undefined=undefined, failed=failed)


def _distributions(
    desk: Desk,
    found: Mapping[Key, Series],
    routes: Sequence[str | None],
    times: tuple[int, int],
) -> Iterator[Distribution]:
    """How the values lie, with the worst traces beyond the fence: roll-ups of a store name no traces."""
    measures = {measure.name: measure for measure in desk.store.measures()}
    for key, part in found.items():
        metric, route, _ = key
        shape = distribution(key, part, measures[metric]) if route in routes else None
        if shape is None:
            continue
        fence, worse = shape.fence, 1.0 if measures[metric].better == "higher" else -1.0
        worst = () if fence is None else desk.store.worst(metric, *times, route=route or "")
        beyond = tuple(each for each in worst if fence is not None and worse * (each.value - fence) < 0)
        yield replace(shape, outliers=beyond)


def _own(desk: Desk, since: int, until: int) -> dict[Key, Series]:
    """The figures of chunks by position and by the number of chunks."""
    grain = max(1, (until - since) // STRETCHES)
    found = (
        each
        for name in ("relevance", "usage", "depth")
        for each in desk.store.rollups(since, until, metric=name, cohort="*", grain=grain, bins=False)
    )
    return series(each for each in found if (each.cohort or "").startswith(OWN))


def _cohorts(desk: Desk, measures: Mapping[str, Measure], until: int, window: int) -> Iterator[Rolling]:
    """The triad and its parts by cohort, against the window before; of each field the cohorts with most traffic."""
    grain = next(size for size in range(max(1, window // STRETCHES), 0, -1) if window % size == 0)
    found: list[Rolling] = []
    for name in _named(measures):
        rows = desk.store.rollups(until - 2 * window, until, metric=name, cohort="*", grain=grain, bins=False)
        parts = series(each for each in rows if not (each.cohort or "").startswith(OWN))
        found += rolling(parts, measures, until, [window])
    sizes: Counter[str] = Counter()
    for each in found:
        if each.interval is not None:
            sizes[each.cohort or ""] = max(sizes[each.cohort or ""], each.interval.n)
    shown: Counter[str] = Counter()
    for cohort, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        shown[cohort.partition("=")[0]] += 1
        if shown[cohort.partition("=")[0]] <= COHORTS:
            yield from (each for each in found if each.cohort == cohort and each.interval is not None)
