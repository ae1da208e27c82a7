"""Views of insights into live traffic and of its drift from an evaluated run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.drift import TrafficDrift, measure_drift
from ragfault.apps.watch.monitoring.monitor import CHUNK_COHORTS
from ragfault.apps.watch.monitoring.rollups import CHUNK_RELEVANCE, CHUNK_USE
from ragfault.apps.watch.monitoring.windows import (
    DAY_MINUTES,
    MetricCorrelation,
    MetricDistribution,
    MetricSeries,
    RollingMean,
    SeriesKey,
    build_series,
    compute_correlations,
    describe_distribution,
    rolling_means,
    window_difference,
    window_insights,
    window_mean,
)
from ragfault.apps.watch.server.api.detail_views import get_latest_judge, open_run
from ragfault.apps.watch.server.api.traffic_views import (
    TRIAD_METRICS,
    WINDOW_SEGMENTS,
    TrendPoint,
    choose_grain,
    fit_grain,
)
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import MAX_SHOWN_CHARACTERS, TimelineMark, TraceSelection
from ragfault.diagnosis.records import ChunkInsight
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.http.hosting import RouteView, TimeRange, WindowView
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Layer
from ragfault.stats.estimates import Difference

# latest live queries of the window whose words are compared
MAX_QUERIES = 1000

# largest number of segments of a window
DRIFT_POINTS = 240


class DriftView(RouteView, frozen=True, kw_only=True):
    """Drift of live traffic from an evaluated run."""

    run: str
    judges: tuple[str | None, str | None]
    """The judge of the run and that of the latest live trace; scores of different judges are not comparable."""
    drift: TrafficDrift


def load_drift(server: ServerState, run: str, route: str | None, times: TimeRange) -> DriftView:
    """Compare the traffic of a range of time with a run of the store.

    Raises UnknownName for an unknown run, UsageError where the two share no metric with a value.
    """
    now, opened_run, measures = server.now(), open_run(server, run), server.measures
    window, until, _ = times
    since, grain = until - window, choose_grain(window, DRIFT_POINTS)
    live = build_series(server.store.read_rollups(since, until, route=route, grain=grain))
    selection = TraceSelection(since=60.0 * since, until=60.0 * until, route=route, limit=MAX_QUERIES)
    queries = _load_queries(server, selection)
    return DriftView(
        now=now,
        window=window,
        until=until,
        route=route,
        run=run,
        judges=(opened_run.manifest.judge, get_latest_judge(server)),
        drift=measure_drift(opened_run, live, measures, queries),
    )


def _load_queries(server: ServerState, selection: TraceSelection) -> list[str]:
    """Load the full queries of a page of traces."""
    queries = []
    for line in server.store.list_traces(selection).lines:
        stored = server.store.get_trace(line.id) if len(line.query) >= MAX_SHOWN_CHARACTERS else None
        queries.append(line.query if stored is None else stored.trace.query)
    return queries


# the longest window of the insights
INSIGHT_MINUTES = 30 * DAY_MINUTES

# routes that are shown, those with the most traffic
MAX_ROUTES = 6

# points of a trend
MAX_POINTS = 120

# cohorts shown per field, those with the most traffic
MAX_COHORTS = 20


# versions that stand side by side, those with the most traffic
MAX_VERSIONS = 4


class VersionMean(Struct, frozen=True, kw_only=True):
    """Mean of one metric over the traces of one version."""

    n: int
    mean: float
    low: float | None
    high: float | None
    """Limits of the 95 % interval of the mean; None where the values say nothing of it."""


class VersionRow(Struct, frozen=True, kw_only=True):
    """Means of one metric by version."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    means: tuple[VersionMean | None, ...]
    """In the order of the versions; None where a version has no value."""
    difference: Difference | None
    """The last version less the one before, with Welch's interval; None where one of them has no value."""


class VersionsView(WindowView, frozen=True, kw_only=True):
    """Versions of the system side by side, such as the releases or prompt versions of a window."""

    field: str
    """The cohort field whose values are versions."""
    fields: tuple[str, ...]
    """Cohort fields of the window with two or more values."""
    versions: tuple[str, ...]
    """In the order of their first value within the window; at most four, those with the most traffic."""
    first_minutes: tuple[int, ...]
    last_minutes: tuple[int, ...]
    """Segments of the window in which each has its first and its last value."""
    total: int
    """The number of versions of the window."""
    rows: tuple[VersionRow, ...]


VERSION_FIELDS = ("release", "prompt_version")
"""Fields that are shown where none is chosen, the first one with two values."""


def load_versions(server: ServerState, field: str, times: TimeRange) -> VersionsView:
    """Load the means of all metrics for the values of a cohort field, over all routes; "" chooses a field."""
    now, measures = server.now(), server.measures
    window, until, _ = times
    grain = choose_grain(window, MAX_POINTS)
    rollups = server.store.read_rollups(until - window, until, cohort="*", grain=grain, bins=False)
    parts = build_series(row for row in rollups if not (row.cohort or "").startswith(CHUNK_COHORTS) and row.n)
    sizes: dict[str, dict[str, int]] = {}
    for (_, _, cohort), series in parts.items():
        name, _, value = (cohort or "").partition("=")
        values = sizes.setdefault(name, {})
        values[value] = max(values.get(value, 0), series.value_count)
    fields = tuple(sorted(name for name, values in sizes.items() if len(values) > 1))
    field = field or next((name for name in (*VERSION_FIELDS, *fields) if name in fields), VERSION_FIELDS[0])
    sizes_here = sizes.get(field, {})
    shown = sorted(sizes_here, key=lambda value: (-sizes_here[value], value))[:MAX_VERSIONS]
    ends = {value: _find_times(parts, f"{field}={value}") for value in shown}
    versions = sorted(shown, key=lambda value: (ends[value], value))
    return VersionsView(
        now=now,
        window=window,
        until=until,
        field=field,
        fields=fields,
        versions=tuple(versions),
        first_minutes=tuple(ends[value][0] for value in versions),
        last_minutes=tuple(ends[value][1] for value in versions),
        total=len(sizes_here),
        rows=tuple(_build_version_rows(parts, measures, [f"{field}={value}" for value in versions])),
    )


def _find_times(parts: Mapping[SeriesKey, MetricSeries], cohort: str) -> tuple[int, int]:
    """Return the first and the last segment in which a cohort has a value."""
    minutes = [series.minutes for (_, _, there), series in parts.items() if there == cohort]
    return min(int(part[0]) for part in minutes), max(int(part[-1]) for part in minutes)


def _build_version_rows(
    parts: Mapping[SeriesKey, MetricSeries], measures: Mapping[str, MetricInfo], cohorts: Sequence[str]
) -> Iterator[VersionRow]:
    for name, measure in measures.items():
        series = [parts.get((name, None, cohort)) for cohort in cohorts]
        means = tuple(None if part is None else _mean_version(part, measure) for part in series)
        if not any(means):
            continue
        last = series[-2:]
        both = [part for part in last if part is not None and part.value_count]
        gap = window_difference(both[0], both[1], measure) if len(last) == len(both) == 2 else None
        yield VersionRow(
            metric=name,
            layer=measure.layer,
            better=measure.better,
            means=means,
            difference=gap if gap is not None and math.isfinite(gap.low) and math.isfinite(gap.high) else None,
        )


def _mean_version(series: MetricSeries, measure: MetricInfo) -> VersionMean | None:
    interval = window_mean(series, measure)
    if interval is None:
        return None
    low, high = (end if math.isfinite(end) else None for end in (interval.low, interval.high))
    return VersionMean(n=series.value_count, mean=interval.mean, low=low, high=high)


class TriadTrend(Struct, frozen=True, kw_only=True):
    """Trend of one metric of the triad on one route."""

    metric: str
    route: str | None
    points: tuple[TrendPoint, ...]


class InsightsView(RouteView, frozen=True, kw_only=True):
    """Insights of a window: trends, distributions, correlations, chunks and cohorts."""

    grain: int
    """Minutes per point."""
    routes: int
    """The number of routes, of which at most MAX_ROUTES are shown."""
    triad: tuple[TriadTrend, ...]
    """By route, the one with the most traffic first, and by metric."""
    distributions: tuple[MetricDistribution, ...]
    """Distributions of the triad and its metrics, by metric and route, with the five worst outliers."""
    correlations: tuple[MetricCorrelation, ...]
    """Between pairs of metrics over the traces of the route."""
    insights: tuple[ChunkInsight, ...]
    """Relevance and use of chunks by position and by number of chunks, over all routes."""
    cohorts: tuple[RollingMean, ...]
    """The triad and its metrics by model, release, prompt version …, over all routes."""
    marks: tuple[TimelineMark, ...]


def load_insights(server: ServerState, route: str | None, times: TimeRange) -> InsightsView:
    """Load the insights of a range of time; those up to now are seconds old at most."""
    if times.is_fixed:
        return _compute_insights(server, route, times)
    return server.get_cached(f"insights {route!r} {times.window}", lambda: _compute_insights(server, route, times))


def _compute_insights(server: ServerState, route: str | None, times: TimeRange) -> InsightsView:
    now, store, measures = server.now(), server.store, server.measures
    window, until, _ = times
    since, grain = until - window, choose_grain(window, MAX_POINTS)
    series = build_series(
        row
        for name in _select_metrics(measures)
        for row in store.read_rollups(since, until, metric=name, route=route, grain=grain)
    )
    sizes: Counter[str | None] = Counter()
    for (_, name, _), part in series.items():
        sizes[name] = max(sizes[name], part.value_count)
    routes = sorted((name for name in sizes if sizes[name]), key=lambda name: (-sizes[name], name or ""))
    # correlations are of the window as a whole
    pairs = store.read_products(since, until, grain=window)
    products = (row for row in pairs if route is None or (row.route or "") == route)
    return InsightsView(
        now=now,
        window=window,
        until=until,
        route=route,
        grain=grain,
        routes=len(routes),
        triad=tuple(
            TriadTrend(metric=metric, route=route, points=tuple(_build_points(route, part)))
            for route in routes[:MAX_ROUTES]
            for (metric, there, _), part in series.items()
            if there == route and metric_name(metric) in TRIAD_METRICS
        ),
        distributions=tuple(_build_distributions(server, series, routes[:MAX_ROUTES], (since, until))),
        correlations=compute_correlations(products, since, until),
        insights=window_insights(_load_chunk_series(server, since, until), since, until),
        cohorts=tuple(_compare_cohorts(server, measures, until, window)),
        marks=store.read_marks(60.0 * since, 60.0 * until),
    )


def _select_metrics(measures: Iterable[str]) -> list[str]:
    """Select one stored metric for each part of the triad, and the triad."""
    selected: dict[str, str] = {}
    for name in measures:
        selected.setdefault(metric_name(name), name)
    return [selected[name] for name in (*TRIAD_METRICS, "triad") if name in selected]


def _build_points(route: str | None, part: MetricSeries) -> Iterator[TrendPoint]:
    for index, minute in enumerate(part.minutes.tolist()):
        n = int(part.n[index])
        undefined, failed = part.unscored[index].tolist()
        yield TrendPoint(
            minute=minute,
            route=route,
            n=n,
            mean=float(part.sum[index]) / n if n else None,
            undefined=undefined,
            failed=failed,
            squares=float(part.squares[index]),
        )


def _build_distributions(
    server: ServerState,
    all_series: Mapping[SeriesKey, MetricSeries],
    routes: Sequence[str | None],
    times: tuple[int, int],
) -> Iterator[MetricDistribution]:
    """Yield the distributions with the worst traces beyond the fence; roll-ups hold no traces."""
    measures = server.measures
    shapes = {
        key: shape
        for key, part in all_series.items()
        if key[1] in routes and (shape := describe_distribution(key, part, measures[key[0]])) is not None
    }
    worse = {name: 1.0 if measures[name].better == "higher" else -1.0 for name in {name for name, *_ in shapes}}
    # of each metric the one of the route that leaves out least
    fences: dict[str, float] = {}
    for (name, *_), shape in shapes.items():
        if shape.fence is not None:
            farther = max if worse[name] > 0 else min
            fences[name] = farther(fences.get(name, shape.fence), shape.fence)
    all_worst = server.store.read_worst_by_route(fences, *times)
    for (name, route, _), shape in shapes.items():
        fence, worst = shape.fence, all_worst.get((name, route or ""), ())
        beyond = tuple(trace for trace in worst if fence is not None and worse[name] * (trace.value - fence) < 0)
        yield replace(shape, outliers=beyond)


def _load_chunk_series(server: ServerState, since: int, until: int) -> dict[SeriesKey, MetricSeries]:
    """Load relevance, usage and depth of chunks by position."""
    grain = choose_grain(until - since, WINDOW_SEGMENTS)
    rollups = (
        rollup
        for name in (CHUNK_RELEVANCE, CHUNK_USE, "depth")
        for rollup in server.store.read_rollups(since, until, metric=name, cohort="*", grain=grain, bins=False)
    )
    return build_series(rollup for rollup in rollups if (rollup.cohort or "").startswith(CHUNK_COHORTS))


def _compare_cohorts(
    server: ServerState, measures: Mapping[str, MetricInfo], until: int, window: int
) -> Iterator[RollingMean]:
    """Yield the triad by cohort against the window before; per field only the cohorts with the most traffic."""
    grain = fit_grain(window)
    means: list[RollingMean] = []
    for name in _select_metrics(measures):
        rows = server.store.read_rollups(until - 2 * window, until, metric=name, cohort="*", grain=grain, bins=False)
        parts = build_series(mean for mean in rows if not (mean.cohort or "").startswith(CHUNK_COHORTS))
        means += rolling_means(parts, measures, until, [window])
    sizes: Counter[str] = Counter()
    for mean in means:
        if mean.interval is not None:
            sizes[mean.cohort or ""] = max(sizes[mean.cohort or ""], mean.interval.n)
    shown: Counter[str] = Counter()
    for cohort, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        shown[cohort.partition("=")[0]] += 1
        if shown[cohort.partition("=")[0]] <= MAX_COHORTS:
            yield from (mean for mean in means if mean.cohort == cohort and mean.interval is not None)
