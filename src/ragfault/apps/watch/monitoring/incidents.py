"""Incidents: alerts of one cause, grouped by layer, route and onset, and the life of an incident.

Two alerts belong together only where the evidence says that they have one cause: a false merge hides a fault. On one
route it is the onset, and a layer that explains the other; over several routes the same branch of the decision tree,
the same onset, and a mark before both, a third route, or no route that is spared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.alert_rules import AlertKey, Severity
from ragfault.apps.watch.monitoring.alerts import Alert
from ragfault.apps.watch.monitoring.change_detection import FaultLocation, SeriesWatch, estimate_onset
from ragfault.apps.watch.monitoring.offenders import Offender, SlowStep
from ragfault.apps.watch.monitoring.rollups import FAILURES, is_cohort
from ragfault.apps.watch.monitoring.rule_evaluation import WIDER
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, window_difference
from ragfault.comparison.records import LayerFault
from ragfault.comparison.settings import MARGIN
from ragfault.io.runs.run import MetricInfo

IncidentKind = Literal["quality", "no traffic", "backlog", "scorer", "receiver", "disk"]
IncidentState = Literal["open", "acknowledged", "resolved"]
NoticeKind = Literal["opened", "grew", "reminder", "resolved"]
RouteState = Literal["affected", "unaffected", "cannot tell"]

# minutes by which the intervals of two onsets may miss each other and still be one
ONSET_SLACK = 15
# minutes before the earliest onset within which a mark may have caused it
MARK_MINUTES = 60
# the same, for a mark that is evidence of one cause on several routes
CAUSE_MINUTES = 15
DECIDE_MINUTES = 20
"""Minutes for which an alert waits until it is decided whether its cause is that of an incident on other routes."""
# routes with the same onset and branch that are no coincidence
MIN_ROUTES = 3
UNDECIDED_SHARE = 0.2
"""Share of the values since the onset on routes that cannot be told, up to which the others decide."""
# confidence with which a route is called affected or not
SCOPE_CONFIDENCE = 0.99
# times the mean share of a cohort in the traces that it may have on one route
SHARED = 1.5
MIN_EVIDENCE = 3.0
"""Log evidence of a sequential test from which its onset is estimated before it has detected a drop."""
LAYER_ORDER = ("retrieval", "source data", "generation", "crosscut")
"""Layers in the order in which one's fault shows in the next."""


class Onset(Struct, frozen=True):
    """When a change began, and between which minutes that was."""

    minute: int
    earliest: int
    latest: int

    def meets(self, other: Onset) -> bool:
        """Return whether both may be one."""
        return max(self.earliest, other.earliest) - min(self.latest, other.latest) <= ONSET_SLACK


class IncidentSize(Struct, frozen=True, kw_only=True):
    """Size of an incident: the change of its clearest metric since the onset, with its 95 % interval."""

    metric: str
    route: str | None
    # mean of the day before the onset
    before: float
    # mean since the onset
    since: float
    difference: float
    low: float
    high: float


class CohortChange(Struct, frozen=True, kw_only=True):
    """Change of the clearest metric in one cohort since the onset."""

    cohort: str
    """"release=7"."""
    state: RouteState
    # values since the onset
    n: int
    since: float
    # None: no value before the onset
    difference: float | None


class MarkBefore(Struct, frozen=True, kw_only=True):
    """Mark shortly before an onset."""

    text: str
    time: float
    route: str | None = None


class Incident(Struct, frozen=True, kw_only=True):
    """Incident: what broke, where, since when, how much, who is affected, and what shows it."""

    id: str
    kind: IncidentKind = "quality"
    state: IncidentState = "open"
    severity: Severity = "high"
    title: str
    """In a few words: "Retrieval broke (the wrong chunks are retrieved)"."""
    # the verdict as `ragfault bisect` says it of the day before the onset and the time since
    sentence: str
    # layer at fault by the decision tree, otherwise that of the metric
    layer: str = "operation"
    branch: str | None = None
    """Branch of the decision tree that named the layer; None: which layer, the data cannot tell."""
    # routes on which alerts fired, the first first
    routes: tuple[str | None, ...] = ()
    # seconds since 1970, as every time of an incident
    opened: float
    onset: float
    earliest: float
    # the onset's 95 % interval, or the window of the first alert
    latest: float
    detected: bool = True
    """Whether the onset was estimated from the values, otherwise it lies anywhere in that window."""
    resolved: float | None = None
    # by whom; None: by nobody
    acknowledged: str | None = None
    # rule, metric and route of each alert that fired
    alerts: tuple[AlertKey, ...] = ()
    size: IncidentSize | None = None
    # marks shortly before, the latest first
    marks: tuple[MarkBefore, ...] = ()
    # scored traces of its routes since the onset
    scored: int = 0
    # share of all scored traces since the onset that these are
    share: float | None = None
    # cohorts with the most values since the onset
    cohorts: tuple[CohortChange, ...] = ()
    # "60 of 80 answers since the onset are bad: 41 not retrieved, 19 invented"; empty: none is known to be bad
    cause_text: str = ""
    # values of fields that set the bad traces apart, the clearest first
    offenders: tuple[Offender, ...] = ()
    message: str = ""
    """The commonest error of the bad traces, with its number; empty without errors."""
    step: SlowStep | None = None
    suspects: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    # the worst traces since the onset
    traces: tuple[str, ...] = ()
    notified: tuple[str | None, ...] | None = None
    """What the receivers were told: the branch, then the routes; None: nothing yet."""

    @property
    def interval(self) -> Onset:
        """The onset in minutes since 1970."""
        return Onset(int(self.onset // 60), int(self.earliest // 60), int(self.latest // 60))


class AlertCause(Struct, frozen=True, kw_only=True):
    """A firing alert with what is known of its cause."""

    alert: Alert
    # layer of the metric
    layer: str
    onset: Onset
    # whether the onset was estimated from the values, otherwise it is the window of the rule
    detected: bool
    location: FaultLocation | None = None
    """The tree on the day before the onset and the time since; None where there is nothing before it."""

    @property
    def fault(self) -> LayerFault | None:
        """The fault that the tree names."""
        return None if self.location is None else self.location.fault


def find_onset(alert: Alert, watch: SeriesWatch | None, series: MetricSeries | None) -> tuple[Onset, bool]:
    """Return the onset of an alert, and whether it was estimated: by the detection, or by a test with some evidence.

    Otherwise it lies within the window of the rule, as long as the window may be widened.
    """
    if watch is not None and watch.detection is not None:
        detection = watch.detection
        return Onset(detection.onset, detection.earliest, detection.latest), True
    if watch is not None and watch.test is not None and series is not None and watch.test.log_evidence > MIN_EVIDENCE:
        return Onset(*estimate_onset(watch.test.period.remove_season(series), watch.test)), True
    since = int(alert.since // 60) - alert.rule.duration
    return Onset(since - alert.rule.window, since - WIDER * alert.rule.window, since), False


def explains(incident: Incident, metric: str, layer: str) -> bool:
    """Return whether the cause of an incident may have moved a metric of a layer.

    A named layer shows in itself and in those after it. Where none is named, one change of a route may be of any.
    Queries that fail, or are answered without chunks or by nothing, may move every metric.
    """
    if not {metric, *(known for _, known, _ in incident.alerts)}.isdisjoint(FAILURES):
        return True
    if "operation" in (incident.layer, layer):
        return incident.layer == layer
    return incident.branch is None or LAYER_ORDER.index(layer) >= LAYER_ORDER.index(incident.layer)


def matches_route(
    incident: Incident, cause: AlertCause, series: MetricSeries | None, measure: MetricInfo | None
) -> bool:
    """Return whether an alert shows the cause of an incident on one of its routes: the onset, and an explained layer.

    A rule with a long window may fire long after the onset: its metric must not be shown steady before that window. An
    alert of a metric of which others are known there is of the same change, whatever its onset.
    """
    alert, onset = cause.alert, incident.interval
    if (alert.metric, alert.key[2]) in {(metric, route) for _, metric, route in incident.alerts}:
        # whatever onset another rule or test sees
        return True
    if alert.metric == "triad" and alert.route in incident.routes and incident.layer != "operation":
        # the mean of others breaks by none but these
        return True
    if not overlaps(incident, alert.route, alert.metric) or not explains(incident, alert.metric, cause.layer):
        return False
    if _is_shared(incident, alert, series, measure):
        return True
    if cause.detected or cause.onset.meets(onset):
        return cause.onset.meets(onset)
    last = int(alert.since // 60) - alert.rule.window
    if series is None or measure is None or last <= onset.minute:
        return onset.earliest <= alert.since / 60
    width = (measure.high or 1.0) - (measure.low or 0.0)
    windows = (onset.minute - DAY_MINUTES, onset.minute), (onset.minute, last)
    return classify_route(series, measure, windows, 2 * MARGIN * width)[0] != "unaffected"


def overlaps(incident: Incident, route: str | None, metric: str) -> bool:
    """Return whether a route is one of an incident, or may share its traces: cohorts are of all routes.

    Between a cohort and a route it must be the same metric, or one that a named layer explains.
    """
    if route in incident.routes:
        return True
    known = {name for _, name, _ in incident.alerts}
    return any(map(is_cohort, (*incident.routes, route))) and (metric in known or incident.branch is not None)


def _is_shared(incident: Incident, alert: Alert, series: MetricSeries | None, measure: MetricInfo | None) -> bool:
    """Return whether a route moved by no more than a cohort of an incident may do to it, whatever the onset seems."""
    size = incident.size
    if size is None or series is None or measure is None or alert.route in incident.routes:
        return False
    if not is_cohort(size.route) or is_cohort(alert.route) or alert.metric != size.metric:
        return False
    first = incident.interval.minute
    gap = window_difference(series.between(first - DAY_MINUTES, first), series.between(first, 2**60), measure)
    reach = SHARED * (incident.share or 0.0) * abs(size.difference)
    return gap is not None and (gap.low <= reach if size.difference > 0 else -gap.high <= reach)


def shares_mark(incident: Incident, onset: Onset) -> bool:
    """Return whether a mark for all routes lies shortly before both onsets."""
    first, last = 60.0 * (onset.earliest - CAUSE_MINUTES), 60.0 * (onset.latest + 1)
    near = incident.earliest - 60 * CAUSE_MINUTES, incident.latest + 60
    return any(
        mark.route is None and first <= mark.time <= last and near[0] <= mark.time <= near[1] for mark in incident.marks
    )


def classify_route(
    series: MetricSeries, measure: MetricInfo, windows: Sequence[tuple[int, int]], size: float
) -> tuple[RouteState, float | None]:
    """Return whether a series got worse between two windows as an incident of this size did, and by how much it moved.

    Affected: its 99 % interval leaves out zero; unaffected: it leaves out half of the size, too.
    """
    before, after = (series.between(*window) for window in windows)
    gap = window_difference(before, after, measure, SCOPE_CONFIDENCE)
    if gap is None:
        return "cannot tell", None
    worse = sorted((gap.low, gap.high) if measure.better == "lower" else (-gap.low, -gap.high))
    if worse[0] > 0:
        return "affected", gap.mean
    return ("unaffected" if worse[1] < abs(size) / 2 else "cannot tell"), gap.mean


def merge_series(parts: Collection[MetricSeries]) -> MetricSeries:
    """Merge the series of several routes into one, without histograms and worst traces."""
    minutes, codes = np.unique(np.concatenate([part.minutes for part in parts]), return_inverse=True)

    def total(name: str) -> NDArray[np.float64]:
        sums = np.bincount(codes, np.concatenate([getattr(part, name) for part in parts]), len(minutes))
        return sums.astype(np.float64)

    none = np.zeros((len(minutes), 0), np.int64)
    return MetricSeries(minutes, total("n"), total("sum"), total("squares"), none, none, ((),) * len(minutes))


def is_one_cause(
    incident: Incident,
    cause: AlertCause,
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
) -> bool | None:
    """Return whether an alert on another route has the cause of an incident; None while the data cannot tell.

    The branch, where one has none yet the metric, and the onset must be the same. Then it is one cause with a mark for
    all routes before both, with a third route that got worse at that time, or if no other route is spared; two routes
    of several may be two faults.
    """
    fault, size, metric = cause.fault, incident.size, cause.alert.metric
    if size is None or not cause.onset.meets(incident.interval):
        return False
    if fault is None and incident.branch is None:
        is_alike = metric in {known for _, known, _ in incident.alerts}
    elif fault is None or incident.branch is None:
        # not by failing traces, which may explain the fall of one of both
        is_alike = metric == size.metric and (cause.location is None or cause.location.explanation is None)
    else:
        is_alike = fault.branch == incident.branch
    if not is_alike:
        return False
    if shares_mark(incident, cause.onset):
        return True
    own = {*incident.routes, cause.alert.route}
    windows = ((incident.interval.minute - DAY_MINUTES, incident.interval.minute), (incident.interval.minute, until))
    others = {
        route: series
        for (metric, route, cohort), series in series_by_key.items()
        if metric == size.metric
        and cohort is None
        and route not in own
        and not is_cohort(route)
        and series.between(*windows[1]).value_count
    }
    states = {
        route: classify_route(series, measures[size.metric], windows, size.difference)[0]
        for route, series in others.items()
    }
    if len(own) + list(states.values()).count("affected") >= MIN_ROUTES:
        return True
    unsure = [others[route] for route, state in states.items() if state == "cannot tell"]
    if "unaffected" in states.values():
        return False
    if not unsure:
        return True
    counts = [sum(series.between(*windows[1]).value_count for series in group) for group in (unsure, others.values())]
    owned = sum(
        series.between(*windows[1]).value_count
        for (metric, route, cohort), series in series_by_key.items()
        if metric == size.metric and cohort is None and route in own
    )
    if counts[0] <= UNDECIDED_SHARE * (counts[1] + owned):
        return True
    state, _ = classify_route(merge_series(unsure), measures[size.metric], windows, size.difference)
    return {"affected": True, "unaffected": False, "cannot tell": None}[state]


def assign_cause(
    incidents: Iterable[Incident],
    cause: AlertCause,
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
) -> Incident | Literal["later"] | None:
    """Return the open incident that an alert belongs to, None for one of its own, or "later" while data cannot tell."""
    quality = [incident for incident in incidents if incident.kind == "quality" and incident.resolved is None]
    for incident in quality:
        series = series_by_key.get((cause.alert.metric, cause.alert.route, None))
        if matches_route(incident, cause, series, measures.get(cause.alert.metric)):
            return incident
    undecided = False
    for incident in quality:
        routes = *incident.routes, cause.alert.route
        if (
            cause.alert.route not in incident.routes
            and not any(map(is_cohort, routes))
            and explains(incident, cause.alert.metric, cause.layer)
        ):
            is_same = is_one_cause(incident, cause, series_by_key, measures, until)
            if is_same:
                return incident
            undecided |= is_same is None
    return "later" if undecided and 60 * until - cause.alert.since < 60 * DECIDE_MINUTES else None


def next_notice(incident: Incident, *, silenced: bool, reminded: bool) -> tuple[Incident, NoticeKind | None]:
    """Return an incident and the notice to send of it, where it is not what the receivers were told last.

    One notice when it opens, one when it reaches another route or its layer becomes known, and one when it resolves.

    >>> new = Incident(id="1", title="t", sentence="s", opened=0, onset=0, earliest=0, latest=0, routes=("a",))
    >>> announced, kind = next_notice(new, silenced=False, reminded=False)
    >>> kind, next_notice(announced, silenced=False, reminded=False)[1]
    ('opened', None)
    >>> next_notice(replace(announced, routes=("a", "b")), silenced=False, reminded=False)[1]
    'grew'
    >>> next_notice(replace(announced, resolved=60.0), silenced=False, reminded=False)[1]
    'resolved'
    """
    kind: NoticeKind | None = None
    content = (incident.branch, *incident.routes)
    if incident.resolved is not None:
        kind = "resolved" if incident.notified is not None else None
    elif incident.notified is None:
        kind = "opened"
    elif incident.branch != incident.notified[0] or set(incident.routes) - set(incident.notified[1:]):
        kind = "grew"
    elif reminded and incident.acknowledged is None:
        kind = "reminder"
    if kind is None or silenced:
        return incident, None
    return replace(incident, notified=None if kind == "resolved" else content), kind
