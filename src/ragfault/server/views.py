"""Views: what each page shows, as records; the JSON twin of a page is its view, and the page renders the same.

Every view is a function of the desk and of what was asked for; none of them writes.
"""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ragfault.errors import UnknownName
from ragfault.findings.alerting import Alarm, Silence
from ragfault.findings.monitoring_windows import DAY, Distribution, Rolling, distribution, rolling, series
from ragfault.records import Layer
from ragfault.runs import Manifest, Measure
from ragfault.server.checking import Progress
from ragfault.server.desk import Desk
from ragfault.server.estimating import Estimate
from ragfault.store import Count, Event, Mark, Page, Totals, Wanted, Whole, export

__all__ = [
    "Alerts",
    "MetricView",
    "Moved",
    "Overview",
    "Point",
    "RunLine",
    "alerts",
    "metric",
    "overview",
    "packed",
    "runs",
    "trace",
    "traces",
]

WINDOWS = (30, 90, DAY)
"""The windows of the overview, in minutes."""
STRETCHES = 12
"""Into how many stretches a window is cut: the means of each say how far the mean of all can be trusted."""


class Moved(Struct, frozen=True, kw_only=True):
    """One metric on one route over one window."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    route: str | None
    window: int
    """Minutes."""
    n: int
    undefined: int
    failed: int
    mean: float | None
    low: float | None
    high: float | None
    """The 95 % interval of the mean."""
    delta: float | None = None
    """Against the window of the same length before."""
    delta_low: float | None = None
    delta_high: float | None = None
    rectified: Estimate | None = None
    """The mean by a better judge on a sample; of whole routes over a day, and on the page of a metric; None: no such
    judge is asked."""


class Overview(Struct, frozen=True, kw_only=True):
    """The first page: what is stored, how each metric stands on each route, which alerts burn."""

    now: float
    totals: Totals
    moved: tuple[Moved, ...]
    """Ordered by metric, route and window."""
    routes: tuple[str, ...]
    alerts: tuple[Alarm, ...]
    """Those that are not over."""
    marks: tuple[Mark, ...]
    """Of the last day."""
    counts: dict[str, int]
    """What was dropped, rejected, repeated … within the last day."""
    scoring: dict[str, float]
    """Traces a second, milliseconds a trace, how many wait."""
    judge: str
    checking: Progress | None = None
    """How the better judge fares on its sample; None: none is asked."""


class Point(Struct, frozen=True, kw_only=True):
    """A metric on a route over one stretch of minutes."""

    minute: int
    route: str | None
    n: int
    mean: float | None
    undefined: int
    failed: int


class MetricView(Struct, frozen=True, kw_only=True):
    """The page of one metric: its course, how its values lie, and its worst traces."""

    now: float
    measure: Measure
    window: int
    grain: int
    """Minutes to a point."""
    points: tuple[Point, ...]
    distributions: tuple[Distribution, ...]
    """By route."""
    moved: tuple[Moved, ...]
    worst: tuple[tuple[str, float], ...]
    """Trace and value, the worst first."""
    marks: tuple[Mark, ...]
    cohorts: tuple[Moved, ...]
    """The same by cohort; `route` holds the cohort ("release=7")."""


class Alerts(Struct, frozen=True, kw_only=True):
    """The page of alerts: their states, and what happened."""

    now: float
    alarms: tuple[Alarm, ...]
    """Those that are not over, and those that resolved a while ago."""
    silences: tuple[Silence, ...]
    events: tuple[Event, ...]
    """What happened, the latest first."""


class RunLine(Struct, frozen=True, kw_only=True):
    """A run that lies in the folder of the store."""

    name: str
    manifest: Manifest


# --- the pages -------------------------------------------------------------------------------------


def overview(desk: Desk) -> Overview:
    """How everything stands now."""
    now, store = desk.now(), desk.store
    until = math.floor(now / 60) + 1
    return Overview(
        now=now,
        totals=store.totals(),
        moved=tuple(
            _rectified(desk, m)
            for m in desk.lately("moved", lambda: [m for size in WINDOWS for m in _moved(desk, until, size)])
        ),
        routes=store.routes(),
        alerts=tuple(alarm for alarm in desk.alarms().alarms if alarm.status != "resolved"),
        marks=store.marks(now - DAY * 60),
        counts=_summed(store.counts(until - DAY)),
        scoring=desk.scoring(),
        judge=desk.settings.judge,
        checking=None if desk.estimates is None else desk.estimates.progress,
    )


def metric(desk: Desk, name: str, route: str | None = None, window: int = DAY) -> MetricView:
    """How one metric went over a window of minutes. Raises UnknownName for one that is not kept."""
    measure = _measure(desk, name)
    now = desk.now()
    until = math.floor(now / 60) + 1
    grain = max(1, window // 240)
    store = desk.store
    found = store.rollups(until - window, until, metric=name, route=route, grain=grain)
    better = {} if desk.estimates is None else desk.estimates.over(name, window, route)
    points = tuple(
        Point(
            minute=each.minute,
            route=each.route,
            n=each.n,
            mean=each.sum / each.n if each.n else None,
            undefined=each.undefined,
            failed=each.failed,
        )
        for each in found
    )
    shapes = (distribution(key, part, measure) for key, part in series(found).items())
    worst = store.worst(name, until - window, until, route=route, limit=20)
    return MetricView(
        now=now,
        measure=measure,
        window=window,
        grain=grain,
        points=points,
        distributions=tuple(each for each in shapes if each is not None),
        moved=tuple(
            msgspec.structs.replace(each, rectified=better.get(each.route or ""))
            for each in _moved(desk, until, window, metric=name, route=route)
        ),
        worst=tuple((each.trace, each.value) for each in worst),
        marks=store.marks(now - window * 60),
        cohorts=tuple(_moved(desk, until, window, metric=name, cohort="*")),
    )


def traces(desk: Desk, wanted: Wanted) -> Page:
    """A page of traces."""
    return desk.store.find(wanted)


def trace(desk: Desk, id: str) -> Whole:
    """One trace. Raises UnknownName where there is none."""
    found = desk.store.trace(id)
    if found is None:
        raise UnknownName("trace", id, (), hint="It may have been forgotten, or never have come.")
    return found


def alerts(desk: Desk) -> Alerts:
    """The states of all alerts, and what happened to them."""
    state = desk.alarms()
    return Alerts(now=desk.now(), alarms=state.alarms, silences=state.silences, events=desk.store.events())


def runs(desk: Desk) -> tuple[RunLine, ...]:
    """The runs in the folder of the store, by name."""
    found = []
    for place in sorted(desk.settings.runs.glob("*/manifest.json")):
        try:
            made = msgspec.json.decode(place.read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            continue
        found.append(RunLine(name=place.parent.name, manifest=made))
    return tuple(found)


def packed(desk: Desk, wanted: Wanted) -> bytes:
    """The judged traces of a selection as a run, in a ZIP file. Raises what `export` raises."""
    with tempfile.TemporaryDirectory(prefix="ragfault-") as folder:
        run = export(desk.store, wanted, Path(folder, "run"))
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted(run.path.iterdir()):
                archive.write(path, path.name)
        return file.getvalue()


# --- their parts -----------------------------------------------------------------------------------


def _measure(desk: Desk, name: str) -> Measure:
    known = {measure.name: measure for measure in desk.store.measures()}
    if name not in known:
        raise UnknownName("metric", name, known, hint="It is not kept by this server.")
    return known[name]


def _moved(
    desk: Desk,
    until: int,
    window: int,
    metric: str | None = None,
    route: str | None = None,
    cohort: str | None = "",
) -> Sequence[Moved]:
    """How metrics stand over a window that ends at a minute, against the window before."""
    grain = next(size for size in range(max(1, window // STRETCHES), 0, -1) if window % size == 0)
    found = desk.store.rollups(
        until - 2 * window, until, metric=metric, route=route, cohort=cohort, grain=grain, bins=False
    )
    measures = {measure.name: measure for measure in desk.store.measures()}
    return [_line(each, measures[each.metric]) for each in rolling(series(found), measures, until, [window])]


def _rectified(desk: Desk, moved: Moved) -> Moved:
    """The same with the estimate of the last day, where it is over a day and there is one."""
    if desk.estimates is None or moved.window != DAY:
        return moved
    return msgspec.structs.replace(moved, rectified=desk.estimates.of(moved.metric, moved.route))


def _line(each: Rolling, measure: Measure) -> Moved:
    mean, delta = each.interval, each.delta
    bounded = delta is not None and math.isfinite(delta.low) and math.isfinite(delta.high)
    return Moved(
        metric=each.metric,
        layer=measure.layer,
        better=measure.better,
        route=each.cohort or each.route,
        window=each.window,
        n=0 if mean is None else mean.n,
        undefined=each.undefined,
        failed=each.failed,
        mean=None if mean is None else mean.mean,
        low=None if mean is None or not math.isfinite(mean.low) else mean.low,
        high=None if mean is None or not math.isfinite(mean.high) else mean.high,
        delta=None if delta is None else delta.mean,
        delta_low=delta.low if delta is not None and bounded else None,
        delta_high=delta.high if delta is not None and bounded else None,
    )


def _summed(counts: Sequence[Count]) -> dict[str, int]:
    """The counts by name, over all minutes."""
    found: dict[str, int] = {}
    for name, _, n in counts:
        found[name] = found.get(name, 0) + n
    return found
