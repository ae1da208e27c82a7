"""Cohorts that are followed like routes: what one tenant, release or model does where all others do not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ragfault.apps.watch.monitoring.incidents import CohortChange, Incident, classify_route, merge_series
from ragfault.apps.watch.monitoring.rollups import COHORT_ROUTE, MAX_WORST, WorstTrace, is_cohort, trace_cohorts
from ragfault.apps.watch.monitoring.traffic_mix import CHUNK_FIELDS, SYSTEM_FIELDS
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, build_series, window_difference
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.comparison.settings import ALPHA
from ragfault.io.runs.run import MetricInfo

MAX_FOLLOWED = 20
"""Cohorts that are followed, those with the most values of a day; they share the false alarms of one route."""
# values of a day, below which a cohort is not followed
LEAST_VALUES = 30
# minutes that are read one by one; older ones are read in coarser segments
FINE_MINUTES, COARSE_GRAIN = 240, 15
# worst traces of all routes among which those of a cohort are sought
MAX_SEARCHED = 500
# cohorts that an incident lists
MAX_COHORTS = 6
# minutes of a segment where a cohort is held against all others
REST_GRAIN = 5


def load_cohorts(store: TraceStore, first: int, until: int) -> dict[SeriesKey, MetricSeries]:
    """Load the series of the cohorts with the most traffic as those of routes, "cohort release=7".

    The only value of a field is left out: it tells nobody apart.
    """
    sizes: Counter[str] = Counter()
    for row in store.read_rollups(until - DAY_MINUTES, until, cohort="*", grain=DAY_MINUTES, bins=False):
        field, _, _ = (row.cohort or "").partition("=")
        if row.cohort and field not in CHUNK_FIELDS and row.n >= LEAST_VALUES:
            sizes[row.cohort] = max(sizes[row.cohort], row.n)
    fields = Counter(cohort.partition("=")[0] for cohort in sizes)
    cut = max(first, until - FINE_MINUTES)
    followed = [cohort for cohort, _ in sizes.most_common(MAX_FOLLOWED) if fields[cohort.partition("=")[0]] > 1]
    coarse = store.read_cohort_rollups(followed, first, cut, grain=COARSE_GRAIN)
    return build_series([*coarse, *store.read_cohort_rollups(followed, cut, until)])


def continue_traffic(
    cohorts: Mapping[SeriesKey, MetricSeries], routes: Mapping[SeriesKey, MetricSeries]
) -> dict[SeriesKey, MetricSeries]:
    """Return the series of cohorts, where a new release, model or prompt continues the traffic before it.

    So it has a reference from its first trace on: what all routes did.
    """
    continued = dict(cohorts)
    for key, own in cohorts.items():
        metric, route, _ = key
        if is_version(route) and own.minutes.size:
            parts = [
                series
                for (name, place, cohort), series in routes.items()
                if name == metric and cohort is None and not is_cohort(place)
            ]
            continued[key] = precede(own, merge_series(parts)) if parts else own
    return continued


def precede(own: MetricSeries, total: MetricSeries) -> MetricSeries:
    """Return a series with all traffic before its first minute, as if the same share of it had been of the series."""
    first = int(own.minutes[0])
    before, beside = total.between(0, first), total.between(first, int(own.minutes[-1]) + 1)
    share = min(1.0, float(own.n.sum()) / max(1.0, float(beside.n.sum())))
    if not before.minutes.size:
        return own
    scaled = replace(before, n=share * before.n, sum=share * before.sum, squares=share * before.squares)
    return merge_series([scaled, own])


def is_version(route: str | None) -> bool:
    """Return whether a route is the cohort of a version of the system.

    >>> is_version("cohort release=7"), is_version("cohort tenant=acme"), is_version("web")
    (True, False, False)
    """
    field = (route or "").removeprefix(COHORT_ROUTE).partition("=")[0].removeprefix("metadata.")
    return is_cohort(route) and field in SYSTEM_FIELDS


def is_own_change(store: TraceStore, measure: MetricInfo, route: str | None, onset: int, until: int) -> bool:
    """Return whether a change is of a route, or of a cohort that got worse while all others did by less than half.

    What all traces do is told of their routes.
    """
    if route is None or not is_cohort(route):
        return True
    first, windows = onset - DAY_MINUTES, ((onset - DAY_MINUTES, onset), (onset, until))
    rows = [
        *store.read_rollups(first, until, metric=measure.name, grain=REST_GRAIN, bins=False),
        *store.read_rollups(first, until, metric=measure.name, route=route, grain=REST_GRAIN, bins=False),
    ]
    series = build_series(rows)
    own = series.pop((measure.name, route, None))
    rest = merge_series([*series.values(), replace(own, n=-own.n, sum=-own.sum, squares=-own.squares)])
    if is_version(route) and own.minutes.size and own.minutes[0] > first:
        own = precede(own, rest)
    state, moved = classify_route(own, measure, windows, 0.0)
    return (
        state == "affected" and moved is not None and classify_route(rest, measure, windows, moved)[0] == "unaffected"
    )


def find_affected_cohorts(
    store: TraceStore,
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measure: MetricInfo,
    incident: Incident,
    until: int,
) -> Iterator[str]:
    """Yield the cohorts that an incident of some routes is of: each changed more than these, and no others as much.

    The confidence is corrected for the number of cohorts.
    """
    size, onset = incident.size, incident.interval.minute
    for (metric, route, _), series in series_by_key.items():
        if size is None or route is None or metric != measure.name or not is_cohort(route) or route in incident.routes:
            continue
        parts = series.between(onset - DAY_MINUTES, onset), series.between(onset, until)
        gap = window_difference(*parts, measure, 1 - ALPHA / MAX_FOLLOWED)
        least = -math.inf if gap is None else gap.low if size.difference > 0 else -gap.high
        if least > abs(size.difference) and is_own_change(store, measure, route, onset, until):
            yield route


def find_worst(store: TraceStore, metric: str, route: str | None, first: int, until: int) -> Sequence[WorstTrace]:
    """Return the worst traces of a route between two minutes; of a cohort those among the worst of all routes."""
    if route is None or not is_cohort(route):
        return store.read_worst_traces(metric, first, until, route=route or "")
    worst = store.read_worst_traces(metric, first, until, limit=MAX_SEARCHED)
    judged = store.iterate_judged(TraceSelection(ids=tuple(entry.trace for entry in worst)))
    cohort = route.removeprefix(COHORT_ROUTE)
    members = {own.trace.id for own in judged if cohort in trace_cohorts(own.trace, [cohort.partition("=")[0]])}
    return [entry for entry in worst if entry.trace in members][:MAX_WORST]


def compare_cohorts(
    store: TraceStore, measures: Mapping[str, MetricInfo], incident: Incident, share: float, until: int
) -> tuple[CohortChange, ...]:
    """Compare each cohort before and since the onset; a cohort is of all routes, so that its change is diluted.

    `share` is that of the traces of the incident. The only value of a field since the onset is left out: it tells
    nobody apart.
    """
    size, onset = incident.size, incident.interval.minute
    if size is None:
        return ()
    first = onset - DAY_MINUTES
    rollups = store.read_rollups(first, until, metric=size.metric, cohort="*", grain=REST_GRAIN, bins=False)
    windows = (first, onset), (onset, until)
    changes = []
    for (_, _, cohort), series in build_series(rollups).items():
        part = series.between(*windows[1])
        if cohort is None or cohort.partition("=")[0] in CHUNK_FIELDS or part.mean is None:
            continue
        state, difference = classify_route(series, measures[size.metric], windows, share * size.difference)
        changes.append(
            CohortChange(cohort=cohort, state=state, n=part.value_count, since=part.mean, difference=difference)
        )
    values = Counter(change.cohort.partition("=")[0] for change in changes)
    changes = [change for change in changes if values[change.cohort.partition("=")[0]] > 1]
    return tuple(sorted(changes, key=lambda change: -change.n)[:MAX_COHORTS])
