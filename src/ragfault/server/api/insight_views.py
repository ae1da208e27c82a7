"""Views of insights into live traffic and of its drift from an evaluated run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ragfault.analysis.monitoring.drift import TrafficDrift, measure_drift
from ragfault.analysis.monitoring.monitor import CHUNK_COHORTS
from ragfault.analysis.monitoring.windows import (
    MetricCorrelation,
    MetricDistribution,
    MetricSeries,
    RollingMean,
    SeriesKey,
    build_series,
    compute_correlations,
    describe_distribution,
    rolling_means,
    window_insights,
)
from ragfault.analysis.records import ChunkInsight
from ragfault.analysis.score_matrix import metric_name
from ragfault.io.runs import MetricInfo
from ragfault.server.api.detail_views import get_latest_judge, open_run
from ragfault.server.api.traffic_views import TrendPoint
from ragfault.server.state import ServerState
from ragfault.server.storage import TimelineMark, TraceSelection

MAX_QUERIES = 1000
"""Live queries whose words are looked at, the latest of the window."""

DRIFT_POINTS = 240
"""Into how many stretches a window is cut at most."""

LISTED_QUERY_LENGTH = 300
"""Characters of a query that a list of traces holds; a longer one is read whole."""


class DriftView(Struct, frozen=True, kw_only=True):
    """Live traffic beside the set that a system was evaluated on."""

    now: float
    window: int
    """Minutes, up to now."""
    route: str | None
    """None: all routes; the empty text: traces that name none."""
    run: str
    judges: tuple[str | None, str | None]
    """Who judged the run, and who judged the live trace that was judged last: of two judges, figures differ."""
    drift: TrafficDrift


def load_drift(server: ServerState, run: str, route: str | None, window: int) -> DriftView:
    """Hold the traffic of the last `window` minutes against a run of the folder of the store.

    Raises UnknownName for a run that is not there, UsageError where the two share no metric with a value.
    """
    now, held = server.now(), open_run(server, run)
    until = math.floor(now / 60) + 1
    live = build_series(
        server.store.read_rollups(until - window, until, route=route, grain=max(1, window // DRIFT_POINTS))
    )
    measures = {measure.name: measure for measure in server.store.read_measures()}
    asked = _load_queries(
        server, TraceSelection(since=60.0 * (until - window), route=route, limit=MAX_QUERIES)
    )
    return DriftView(
        now=now,
        window=window,
        route=route,
        run=run,
        judges=(held.manifest.judge, get_latest_judge(server)),
        drift=measure_drift(held, live, measures, asked),
    )


def _load_queries(server: ServerState, selection: TraceSelection) -> list[str]:
    """The queries of a page of traces, each whole."""
    found = []
    for line in server.store.list_traces(selection).lines:
        whole = server.store.get_trace(line.id) if len(line.query) >= LISTED_QUERY_LENGTH else None
        found.append(line.query if whole is None else whole.trace.query)
    return found


TRIAD = ("context_relevance", "groundedness", "answer_relevance")
"""The three parts of the triad: what was found, what was said of it, and whether that answers."""

MAX_ROUTES = 6
"""Routes that are shown at once, those with the most traffic."""

MAX_POINTS, WINDOW_SEGMENTS = 120, 12
"""Points of a line over time; stretches of a window, whose means say how far the mean of all can be trusted."""

MAX_COHORTS = 20
"""Cohorts of one field that are shown, those with the most traffic."""


class TriadTrend(Struct, frozen=True, kw_only=True):
    """One part of the triad on one route over time."""

    metric: str
    route: str | None
    points: tuple[TrendPoint, ...]


class InsightsView(Struct, frozen=True, kw_only=True):
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
    triad: tuple[TriadTrend, ...]
    """By route, the one with the most traffic first, and by part."""
    distributions: tuple[MetricDistribution, ...]
    """Of the triad and its parts, by metric and route; of the outliers the five worst."""
    correlations: tuple[MetricCorrelation, ...]
    """Of pairs of metrics over the traces of the route, or of all routes."""
    insights: tuple[ChunkInsight, ...]
    """Relevance and use of chunks by position and by the number of chunks, over all routes."""
    cohorts: tuple[RollingMean, ...]
    """The triad and its parts by model, release, prompt version …, over all routes."""
    marks: tuple[TimelineMark, ...]


def load_insights(server: ServerState, route: str | None, window: int) -> InsightsView:
    """What goes together within the last `window` minutes."""
    now, store = server.now(), server.store
    until = math.floor(now / 60) + 1
    since, grain = until - window, max(1, window // MAX_POINTS)
    measures = {measure.name: measure for measure in store.read_measures()}
    found = build_series(
        each
        for name in _select_metrics(measures)
        for each in store.read_rollups(since, until, metric=name, route=route, grain=grain)
    )
    routes = _rank_routes(found)
    return InsightsView(
        now=now,
        window=window,
        route=route,
        grain=grain,
        routes=len(routes),
        triad=tuple(_build_trends(found, routes[:MAX_ROUTES])),
        distributions=tuple(_build_distributions(server, found, routes[:MAX_ROUTES], (since, until))),
        correlations=compute_correlations(
            (
                each
                for each in store.read_products(since, until)
                if route is None or (each.route or "") == route
            ),
            since,
            until,
        ),
        insights=window_insights(_load_chunk_series(server, since, until), since, until),
        cohorts=tuple(_compare_cohorts(server, measures, until, window)),
        marks=store.read_marks(60.0 * since),
    )


def _select_metrics(measures: Iterable[str]) -> list[str]:
    """The metrics of the triad as this server keeps them: one of each name."""
    found: dict[str, str] = {}
    for name in measures:
        found.setdefault(metric_name(name), name)
    return [found[name] for name in (*TRIAD, "triad") if name in found]


def _rank_routes(all_series: Mapping[SeriesKey, MetricSeries]) -> list[str | None]:
    """The routes, those with the most values first."""
    sizes: Counter[str | None] = Counter()
    for (_, route, _), part in all_series.items():
        sizes[route] = max(sizes[route], part.value_count)
    return sorted((route for route in sizes if sizes[route]), key=lambda route: (-sizes[route], route or ""))


def _build_trends(
    all_series: Mapping[SeriesKey, MetricSeries], routes: Sequence[str | None]
) -> Iterator[TriadTrend]:
    for route in routes:
        for (metric, there, _), part in all_series.items():
            if there == route and metric_name(metric) in TRIAD:
                yield TriadTrend(metric=metric, route=route, points=tuple(_build_points(route, part)))


def _build_points(route: str | None, part: MetricSeries) -> Iterator[TrendPoint]:
    for at, minute in enumerate(part.minutes.tolist()):
        n = int(part.n[at])
        undefined, failed = part.unscored[at].tolist()
        mean = float(part.sum[at]) / n if n else None
        yield TrendPoint(minute=minute, route=route, n=n, mean=mean, undefined=undefined, failed=failed)


def _build_distributions(
    server: ServerState,
    all_series: Mapping[SeriesKey, MetricSeries],
    routes: Sequence[str | None],
    times: tuple[int, int],
) -> Iterator[MetricDistribution]:
    """How the values lie, with the worst traces beyond the fence: roll-ups of a store name no traces."""
    measures = {measure.name: measure for measure in server.store.read_measures()}
    for key, part in all_series.items():
        metric, route, _ = key
        shape = describe_distribution(key, part, measures[metric]) if route in routes else None
        if shape is None:
            continue
        fence, worse = shape.fence, 1.0 if measures[metric].better == "higher" else -1.0
        worst = () if fence is None else server.store.read_worst_traces(metric, *times, route=route or "")
        beyond = tuple(each for each in worst if fence is not None and worse * (each.value - fence) < 0)
        yield replace(shape, outliers=beyond)


def _load_chunk_series(server: ServerState, since: int, until: int) -> dict[SeriesKey, MetricSeries]:
    """The figures of chunks by position and by the number of chunks."""
    grain = max(1, (until - since) // WINDOW_SEGMENTS)
    found = (
        each
        for name in ("relevance", "usage", "depth")
        for each in server.store.read_rollups(since, until, metric=name, cohort="*", grain=grain, bins=False)
    )
    return build_series(each for each in found if (each.cohort or "").startswith(CHUNK_COHORTS))


def _compare_cohorts(
    server: ServerState, measures: Mapping[str, MetricInfo], until: int, window: int
) -> Iterator[RollingMean]:
    """The triad and its parts by cohort, against the window before; of each field the cohorts with most traffic."""
    grain = next(size for size in range(max(1, window // WINDOW_SEGMENTS), 0, -1) if window % size == 0)
    found: list[RollingMean] = []
    for name in _select_metrics(measures):
        rows = server.store.read_rollups(
            until - 2 * window, until, metric=name, cohort="*", grain=grain, bins=False
        )
        parts = build_series(each for each in rows if not (each.cohort or "").startswith(CHUNK_COHORTS))
        found += rolling_means(parts, measures, until, [window])
    sizes: Counter[str] = Counter()
    for each in found:
        if each.interval is not None:
            sizes[each.cohort or ""] = max(sizes[each.cohort or ""], each.interval.n)
    shown: Counter[str] = Counter()
    for cohort, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        shown[cohort.partition("=")[0]] += 1
        if shown[cohort.partition("=")[0]] <= MAX_COHORTS:
            yield from (each for each in found if each.cohort == cohort and each.interval is not None)
