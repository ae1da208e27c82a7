"""Incidents of live traffic: which firing alerts belong together, and what an incident says of itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec.structs import replace

from ragfault.apps.watch.monitoring.alert_rules import AlertKey, describe_limit
from ragfault.apps.watch.monitoring.alerts import Alert, worst_severity
from ragfault.apps.watch.monitoring.change_detection import FaultLocation, SeriesWatch, locate_fault
from ragfault.apps.watch.monitoring.incidents import (
    LAYER_ORDER,
    MARK_MINUTES,
    AlertCause,
    Incident,
    IncidentSize,
    MarkBefore,
    Onset,
    assign_cause,
    find_onset,
)
from ragfault.apps.watch.monitoring.rollups import FAILURES, LOG_LATENCY, OPERATION_TITLES, STEP_METRICS, is_cohort
from ragfault.apps.watch.monitoring.traffic_mix import describe_unknown_days
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, build_series, window_difference
from ragfault.apps.watch.server.alerts.cohorts import compare_cohorts, find_affected_cohorts, find_worst, is_own_change
from ragfault.apps.watch.server.alerts.evidence import add_evidence
from ragfault.apps.watch.server.storage.records import TimelineMark, TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.comparison.bisection import describe_fault
from ragfault.comparison.decision_tree import EQUAL_DEPTH
from ragfault.comparison.records import LayerFault, MetricChange
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.diagnosis.steps.operations import list_operation_faults
from ragfault.io.field_values import make_content_id
from ragfault.io.runs.run import MetricInfo
from ragfault.stats.estimates import Difference
from ragfault.text.number_format import format_number, format_percent

# the first branch of the tree, whose fault shows in all others
RETRIEVAL_BRANCH = "1 retrieval"
CAUSE_LAYERS = {"chunk_utilization": "crosscut", "empty_retrieval": "retrieval"}
"""Layer in which a fault moves a metric that is called of another: chunks are used less where answers leave them."""
STEP_LAYERS = {"retrieve": "retrieval", "generate": "generation"}
"""Layers of kinds of steps, which are to blame where queries fail since these alone do."""
OPERATION_REMEDIES = {
    "error": "Read the errors of these traces: look at the stage, the message or the model that they share.",
    "blank_answer": "Read these traces: look at token limits, stop sequences and content filters of the model.",
    "empty_retrieval": "Send one of these queries to the index itself: look at its filters, size and last update.",
    LOG_LATENCY: "Compare the steps of a slow trace with those of one before the onset: the step that grew is slow.",
}
"""What to do where a metric of operation got worse."""
LATE_SENTENCE = " The last traces came "
# traces that an incident lists
MAX_TRACES = 5
# first traces of a route since the onset that are searched for faults of steps
MAX_SEARCHED = 200
# share of the traces by which those of one query have to rise, at least, to explain a change
MIN_REPEATED = 0.1
# times as much that a cohort changes as a route which it alone explains
MORE = 1.5
# routes of an incident on which the decision tree is walked
MAX_LOCATED = 10
# minutes since the onset for which the figures of an incident are computed anew
WATCH_MINUTES = DAY_MINUTES


class IncidentBuilder:
    """Groups the firing alerts of one round into incidents, and describes them from the roll-ups of that round."""

    def __init__(
        self,
        store: TraceStore,
        series: Mapping[SeriesKey, MetricSeries],
        measures: Mapping[str, MetricInfo],
        watches: Iterable[SeriesWatch],
        now: float,
        late: int = 0,
    ) -> None:
        """Group the alerts of a moment; `late` is by how many minutes all traces come after their time."""
        self._store, self._series, self._measures, self._now, self._late = store, series, measures, now, late
        self._until = math.floor(now / 60)
        self._watches = {(watch.metric, watch.route): watch for watch in watches}
        self._locate = lru_cache(maxsize=None)(self._locate_fault)
        self._read_route = lru_cache(maxsize=MAX_LOCATED)(self._read_route_since)
        self._explanations: dict[str | None, str] = {}

    def group_alerts(self, incidents: Sequence[Incident], firing: Sequence[Alert]) -> list[Incident]:
        """Return the incidents with the alerts that fire now: each joins an open one, or opens one.

        An incident none of whose alerts fires any more is resolved.
        """
        alerts = {alert.key: alert for alert in firing}
        current = [self._refresh(incident, alerts) if _is_open(incident) else incident for incident in incidents]
        known = {key for incident in current if _is_open(incident) for key in incident.alerts}
        causes = [self._find_cause(alert) for key, alert in alerts.items() if key not in known]
        for cause in sorted(causes, key=_cause_order):
            target = assign_cause(current, cause, self._series, self._measures, self._until)
            alert, onset = cause.alert, cause.onset.minute
            measure = self._measures[alert.metric]
            if target == "later" or not is_own_change(self._store, measure, alert.route, onset, self._until):
                continue
            if target is None:
                current.append(self._open(cause, alerts))
            else:
                current[current.index(target)] = self._join(target, cause, alerts)
        return [
            self._resolve(incident)
            if _is_open(incident) and incident.kind == "quality" and not any(key in alerts for key in incident.alerts)
            else incident
            for incident in current
        ]

    def _resolve(self, incident: Incident) -> Incident:
        """Close an incident, and say so where no value is left that shows whether it is well again."""
        is_seen = any((metric, route or None, None) in self._series for _, metric, route in incident.alerts)
        unknown = "" if is_seen else " Whether it is well again is not known: no values are left to tell by."
        return replace(incident, resolved=self._now, state="resolved", sentence=incident.sentence + unknown)

    def _locate_fault(self, route: str | None, onset: int) -> FaultLocation | None:
        """Walk the tree on the day before an onset and the time since; name no fault that missing days may explain."""
        if onset >= self._until:
            return None
        windows = (onset - DAY_MINUTES, onset), (onset, self._until)
        known = self._read_route(route, onset)
        location = locate_fault(known, self._measures, route, *windows)
        if location.explanation is not None:
            self._explanations[route] = location.explanation
        if location.fault is None:
            return location
        names = (change.metric for change in location.fault.evidence if (change.metric, route, None) in known)
        series = known.get((next(names, "context_relevance"), route, None))
        text = None if series is None else describe_unknown_days(series, *windows, "the day before the onset")
        repeated = self._describe_repeated(route, windows, location.evidence_size)
        if text is None and repeated is None:
            return location
        self._explanations[route] = repeated or text or ""
        return replace(location, fault=None, explanation=repeated)

    def _describe_repeated(self, route: str | None, windows: Iterable[tuple[int, int]], size: float) -> str | None:
        """Describe the query that so many more of the traces ask since an onset that it may explain a change."""
        counts = list[Counter[str]]()
        for first, last in windows:
            selection = TraceSelection(since=60.0 * first, until=60.0 * last, route=route or "")
            judged = islice(self._store.iterate_judged(selection), MAX_SEARCHED)
            counts.append(Counter(stored.trace.query.strip().casefold() for stored in judged))
        query = max(counts[1], key=counts[1].__getitem__, default="")
        before, since = (count[query] / max(1, count.total()) for count in counts)
        if since - before < max(size, MIN_REPEATED):
            return None
        shown = f"{format_percent(since)} of the traces since the onset, {format_percent(before)} before"
        return f"one query is {shown}, which may be all of it"

    def _read_route_since(self, route: str | None, onset: int) -> Mapping[SeriesKey, MetricSeries]:
        """Return the series of a route from the day before an onset on, of which those at hand may lack a part."""
        if self._until - onset <= DAY_MINUTES:
            return self._series
        rollups = self._store.read_rollups(onset - DAY_MINUTES, self._until, route=route or "", grain=5, bins=False)
        return build_series(rollups)

    def _find_layer(self, metric: str) -> str:
        """Return the layer in which a fault moves a metric: of those that read chunks and answer, it may be either."""
        return CAUSE_LAYERS.get(metric_name(metric)) or self._measures[metric].layer

    def _find_cause(self, alert: Alert) -> AlertCause:
        series = self._series.get((alert.metric, alert.route, None))
        timed = replace(alert, since=alert.since - 60 * self._late)
        onset, detected = find_onset(timed, self._watches.get((alert.metric, alert.route)), series)
        return AlertCause(
            alert=alert,
            layer=self._find_layer(alert.metric),
            onset=onset,
            detected=detected,
            location=self._locate(alert.route, onset.minute),
        )

    def _open(self, cause: AlertCause, alerts: Mapping[AlertKey, Alert]) -> Incident:
        alert = cause.alert
        blank = Incident(
            id=make_content_id(f"{alert.key}{self._now}", "i-"),
            title=alert.rule.name,
            sentence="",
            layer=self._measures[alert.metric].layer,
            routes=(alert.route,),
            opened=self._now,
            alerts=(alert.key,),
            **_onset_fields(cause.onset, cause.detected),
        )
        # whose it is shows by its size
        return self._refresh(self._refresh(blank, alerts), alerts)

    def _join(self, incident: Incident, cause: AlertCause, alerts: Mapping[AlertKey, Alert]) -> Incident:
        """Add an alert, and its route, unless it is a cohort beside routes, or changed far less than a cohort did."""
        alert, routes = cause.alert, tuple(dict.fromkeys([*incident.routes, cause.alert.route]))
        if any(is_cohort(route) != is_cohort(alert.route) for route in incident.routes):
            size, own = incident.size, self._measure_size(alert.metric, alert.route, incident.interval.minute)
            known = 0.0 if size is None or size.metric != alert.metric else abs(size.difference)
            if is_cohort(alert.route) or own is None or MORE * abs(own.difference) < known:
                routes = incident.routes
        return self._refresh(replace(incident, alerts=(*incident.alerts, cause.alert.key), routes=routes), alerts)

    def _refresh(self, incident: Incident, alerts: Mapping[AlertKey, Alert]) -> Incident:
        """Describe an incident anew while its alerts fire, for a day after its onset; once where it opens later."""
        if incident.kind != "quality":
            return incident
        members = [alerts[key] for key in incident.alerts if key in alerts]
        if not members or (incident.sentence and self._now - incident.onset > 60 * WATCH_MINUTES):
            return incident
        earlier = incident
        severity = worst_severity([alert.rule for alert in members]) or incident.severity
        incident = replace(incident, severity=severity, **self._refine_onset(incident, members))
        if incident.size is not None:
            measure = self._measures[incident.size.metric]
            cohorts = find_affected_cohorts(self._store, self._series, measure, incident, self._until)
            incident = replace(incident, routes=(*cohorts, *incident.routes))
        located = [
            (route, location)
            for route in incident.routes[:MAX_LOCATED]
            if (location := self._locate(route, incident.interval.minute)) is not None
        ]
        layers = {self._find_layer(alert.metric) for alert in members}
        fired = {metric_name(alert.metric) for alert in members}
        named = [pair for pair in located if _names_cause(pair[1], layers) and _may_rename(incident, pair[1], fired)]
        if not named and any(location.explanation for _, location in located):
            incident = replace(incident, branch=None, suspects=(), remedies=())
        if named:
            incident = self._describe_fault(incident, *max(named, key=lambda pair: pair[1].evidence_size))
            risen = self._measure_operation(incident, members)
            rises = (self._describe_rise(size, incident) for size in risen)
            incident = replace(incident, sentence=" ".join([incident.sentence, *rises]))
        elif incident.branch is None:
            incident = self._describe_unnamed(incident, members)
        if self._late and LATE_SENTENCE not in incident.sentence:
            late = f"{LATE_SENTENCE}{self._late:,} minutes after their time: of what is later nothing is known yet."
            incident = replace(incident, sentence=incident.sentence + late)
        name = incident.size.metric if incident.size else members[0].metric
        known = add_evidence(self._store, self._add_extent(incident), self._measures[name], self._until)
        return keep_worst(earlier, known)

    def _refine_onset(self, incident: Incident, members: Sequence[Alert]) -> dict[str, Any]:
        """Return the onset of the detection with the narrowest interval; nothing where no drop is detected."""
        detected = [
            Onset(watch.detection.onset, watch.detection.earliest, watch.detection.latest)
            for alert in members
            if (watch := self._watches.get((alert.metric, alert.route))) is not None and watch.detection is not None
        ]
        near = [onset for onset in detected if onset.meets(incident.interval)]
        return _onset_fields(min(near, key=lambda onset: onset.latest - onset.earliest)) if near else {}

    def _describe_fault(self, incident: Incident, route: str | None, location: FaultLocation) -> Incident:
        fault = location.fault
        assert fault is not None
        changes = {change.metric: self._count_since(change, incident, route) for change in location.changes}
        fault = replace(fault, evidence=tuple(changes.get(own.metric, own) for own in fault.evidence))
        change = next((c for c in _shown_changes(fault, location) if c.metric in self._measures), fault.evidence[0])
        unit, means = "traces since the onset", (change.baseline, change.candidate)
        # Traces and cohorts have no figure at equal depth: they are found by what it was taken from.
        stored = (name for name in self._measures if metric_name(name) == "context_relevance")
        metric = next(stored, change.metric) if change.metric == EQUAL_DEPTH else change.metric
        return replace(
            incident,
            title=f"{fault.layer.capitalize()} broke ({fault.title})",
            sentence=describe_fault(fault, unit),
            layer=fault.layer,
            branch=fault.branch,
            size=_build_size(metric, route, means, change.difference),
            remedies=fault.remedies,
            suspects=tuple(suspect.stage for suspect in fault.suspects),
        )

    def _count_since(self, change: MetricChange, incident: Incident, route: str | None) -> MetricChange:
        """Return a change with the number of its values since the onset, whichever of its windows has fewer."""
        name = change.metric
        if (name, route, None) not in self._series and name == EQUAL_DEPTH:
            names = (key[0] for key in self._series if metric_name(key[0]) == "context_relevance")
            name = next(names, name)
        series = self._series.get((name, route, None))
        window = incident.interval.minute, self._until
        return change if series is None else replace(change, n=series.between(*window).value_count)

    def _describe_unnamed(self, incident: Incident, members: Sequence[Alert]) -> Incident:
        """Describe an incident that the tree does not name: steps, operation, the change of a metric, or the limit.

        Once the metric that tells most, the first of several, is well again, what was said of it stays.
        """
        order = [*STEP_METRICS.values(), *OPERATION_TITLES]
        names = [name for _, name, _ in incident.alerts]
        first = next((name for name in order if name in names), names[0])
        # routes that share a cohort's traces
        members = [alert for alert in members if alert.route in incident.routes]
        lasting = [alert for alert in members if alert.well_since is None]
        if incident.sentence and first not in [alert.metric for alert in lasting]:
            return incident
        members = sorted(lasting or members, key=lambda own: own.metric != first)
        by_kind = {kind: own for kind, name in STEP_METRICS.items() for own in members if own.metric == name}
        risen = [] if by_kind else self._measure_operation(incident, members)
        if risen:
            return self._describe_operation(incident, risen)
        alert = next(iter(by_kind.values()), members[0])
        size = self._measure_size(alert.metric, alert.route, incident.interval.minute)
        title = f"{alert.metric} {describe_limit(alert.rule)}"
        if size is not None and (size.low > 0 or size.high < 0):
            title = f"{alert.metric} {'fell' if size.difference < 0 else 'rose'}"
        elif incident.sentence:
            # what was shown when it opened is not undone by a mean that is back, or by few values
            return incident
        else:
            size = None
        value = "" if alert.value is None else f" ({format_number(alert.value)})"
        moved = (
            ""
            if size is None
            else (f", {'down' if size.difference < 0 else 'up'} by {format_number(abs(size.difference))} since")
        )
        layer = incident.layer
        if by_kind:
            title = f"{' and '.join(by_kind).capitalize()} steps broke"
            has_errors = any(own.metric == "error" for own in members)
            layer = STEP_LAYERS.get(next(iter(by_kind)), layer) if has_errors and len(by_kind) == 1 else layer
        text = f"{title if by_kind else alert.rule.name}: {alert.metric} {describe_limit(alert.rule)}{value}{moved}"
        is_level = size is None and alert.rule.drop is None and not alert.rule.drop_detected
        unknown = "that it was better before is not shown" if is_level else "which layer broke, the data cannot tell"
        unknown = self._explanations.get(alert.route, unknown)
        blind = "" if by_kind or layer == "operation" else f"; {unknown}"
        return replace(incident, title=title, sentence=f"{text}{blind}.", layer=layer, size=size)

    def _measure_operation(self, incident: Incident, members: Sequence[Alert]) -> list[IncidentSize]:
        """Return by how much errors, blank answers, empty retrievals and latency rose, each on its worst route."""
        risen = []
        for name in OPERATION_TITLES:
            routes = {own.route for own in members if own.metric == name}
            measured = (self._measure_size(name, route, incident.interval.minute) for route in incident.routes)
            sizes = [size for size in measured if size is not None and size.route in routes and size.difference > 0]
            risen += sorted(sizes, key=lambda size: -size.difference)[:1]
        return risen

    def _describe_operation(self, incident: Incident, risen: Sequence[IncidentSize]) -> Incident:
        """Describe an incident of errors, blank answers, empty retrievals or latency by what rose."""
        size = risen[0]
        if size.metric == LOG_LATENCY:
            latency = self._measure_size("latency", size.route, incident.interval.minute)
            size = size if latency is None or latency.difference <= 0 else latency
        return replace(
            incident,
            title=OPERATION_TITLES[risen[0].metric],
            sentence=" ".join(self._describe_rise(own, incident) for own in risen)
            + self._describe_days(risen[0], incident.interval.minute),
            layer=self._find_layer(risen[0].metric),
            size=size,
            remedies=tuple(OPERATION_REMEDIES[own.metric] for own in risen),
        )

    def _describe_rise(self, size: IncidentSize, incident: Incident) -> str:
        """Describe by how much a share of traces or the latency rose, and on which route of an incident.

        Where no more of them fail in an hour than before, fewer others come in: traces may be sampled otherwise.
        """
        is_latency = size.metric == LOG_LATENCY
        both = size.since, size.before
        since, before = (f"{10 ** (6 * mean):,.0f} ms" if is_latency else format_percent(mean) for mean in both)
        unit = " (geometric means)" if is_latency else ""
        routes = [route for route in incident.routes if not is_cohort(route)]
        worst = f", the worst of {len(routes)} routes" if len(routes) > 1 and size.route in routes else ""
        where = f" on {describe_routes([size.route])}{worst}"
        text = f"{OPERATION_TITLES[size.metric]}{where}: {since} since the onset, {before} in the day before{unit}."
        if size.metric not in FAILURES:
            return text
        onset = incident.interval.minute
        series = self._read_route(size.route, onset)[size.metric, size.route, None]
        day = series.between(onset - DAY_MINUTES, onset)
        now = 60 * float(series.between(onset, self._until).sum.sum()) / (self._until - onset)
        then = 60 * float(day.sum.sum()) / (onset - int(day.minutes[0]))
        rates = f"{format_number(now)} in an hour since the onset, {format_number(then)} before"
        return text if now > then else f"{text} There are no more of them ({rates}): fewer others come in."

    def _describe_days(self, size: IncidentSize, onset: int) -> str:
        """Describe a rise that days may explain which the day before an onset lacks; empty where they may not."""
        series = self._read_route(size.route, onset)[size.metric, size.route, None]
        windows = (onset - DAY_MINUTES, onset), (onset, self._until)
        text = describe_unknown_days(series, *windows, "the day before the onset", "the rise")
        return "" if text is None else f" {text[0].upper()}{text[1:]}."

    def _measure_size(self, metric: str, route: str | None, onset: int) -> IncidentSize | None:
        """Return the change of a metric since the day before an onset; None where it cannot be measured."""
        series, measure = self._read_route(route, onset).get((metric, route, None)), self._measures.get(metric)
        if series is None or measure is None:
            return None
        before, since = series.between(onset - DAY_MINUTES, onset), series.between(onset, self._until)
        return _build_size(metric, route, (before.mean, since.mean), window_difference(before, since, measure))

    def _add_extent(self, incident: Incident) -> Incident:
        """Add who is affected, the marks before, and the worst traces since the onset."""
        onset, until = incident.interval.minute, self._until
        counts: dict[str | None, int] = {}
        for (_, route, cohort), series in self._series.items():
            if cohort is None:
                part = series.between(onset, until)
                counts[route] = max(counts.get(route, 0), part.value_count + int(part.unscored.sum()))
        total = sum(count for route, count in counts.items() if not is_cohort(route))
        cohorts = max((counts.get(route, 0) for route in incident.routes if is_cohort(route)), default=0)
        own = max(cohorts, sum(counts.get(route, 0) for route in incident.routes if not is_cohort(route)))
        metric = incident.alerts[0][1] if incident.size is None else incident.size.metric
        places = incident.routes[:MAX_TRACES]
        worst = [worst for route in places for worst in find_worst(self._store, metric, route, onset, until)]
        marks = self._store.read_marks(incident.earliest - 60 * MARK_MINUTES, incident.latest + 60)
        return replace(
            incident,
            scored=own,
            share=own / total if total else None,
            cohorts=compare_cohorts(self._store, self._measures, incident, own / total if total else 1.0, until),
            marks=tuple(_mark_before(mark) for mark in reversed(marks) if mark.route in (None, *incident.routes))[:5],
            traces=tuple(dict.fromkeys(entry.trace for entry in sorted(worst)))[:MAX_TRACES]
            or incident.traces
            or tuple(islice(self._find_faulty_steps(metric, incident.routes, onset), MAX_TRACES)),
        )

    def _find_faulty_steps(self, metric: str, routes: Sequence[str | None], onset: int) -> Iterator[str]:
        """Yield the first traces since an onset with a fault in the kind of step of a metric; none for other metrics.

        Faults of steps are no scores, so the store cannot sort by them.
        """
        kind = next((kind for kind, name in STEP_METRICS.items() if name == metric), None)
        for route in routes[:MAX_TRACES] if kind is not None else ():
            selection = TraceSelection(since=60.0 * onset, until=60.0 * self._until, route=route or "")
            for stored in islice(self._store.iterate_judged(selection), MAX_SEARCHED):
                if any(fault.kind == kind and fault.is_lasting for fault in list_operation_faults(stored.trace)):
                    yield stored.trace.id


def keep_worst(earlier: Incident, later: Incident) -> Incident:
    """Return an incident with the figures of its worst time: those of the largest certain change since the onset.

    While a fault passes, the mean since the onset moves back, and would say that nothing happened.
    """
    sizes = [own.size for own in (earlier, later)]
    if sizes[0] is None or sizes[1] is None or (sizes[0].metric, sizes[0].route) != (sizes[1].metric, sizes[1].route):
        return later
    certain = [max(size.low, -size.high) for size in (sizes[0], sizes[1])]
    if earlier.branch != later.branch or not later.interval.meets(earlier.interval) or certain[1] > certain[0]:
        return later
    names = (
        "cause_text",
        "offenders",
        "message",
        "step",
        "title",
        "sentence",
        "size",
        "scored",
        "share",
        "cohorts",
        "layer",
        "suspects",
        "remedies",
    )
    return replace(later, **{name: getattr(earlier, name) for name in names})


def describe_routes(routes: Sequence[str | None]) -> str:
    """Describe routes in words: the first three, and how many more there are.

    >>> describe_routes(["web", None]), describe_routes(list("abcde"))
    ('web and no route', 'a, b, c and 2 more')
    """
    names = [route or "no route" for route in routes]
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _is_open(incident: Incident) -> bool:
    return incident.resolved is None


def _names_cause(location: FaultLocation, layers: Iterable[str]) -> bool:
    """Return whether the tree names a fault that explains a metric of one of these layers."""
    if location.fault is None or location.fault.layer not in LAYER_ORDER:
        return False
    place = LAYER_ORDER.index(location.fault.layer)
    return any(layer in LAYER_ORDER and LAYER_ORDER.index(layer) >= place for layer in layers)


def _may_rename(incident: Incident, location: FaultLocation, fired: Collection[str]) -> bool:
    """Return whether a fault may be that of an incident: the same branch, or retrieval once an alert shows it.

    The tree is walked anew each minute, and by chance some walk names another branch: a first verdict stays until an
    alert, which is tested for that, fires on the evidence of a layer before it.
    """
    fault = location.fault
    if fault is None or incident.branch in (None, fault.branch):
        return fault is not None
    names = {metric_name("context_relevance" if c.metric == EQUAL_DEPTH else c.metric) for c in fault.evidence}
    return fault.branch == RETRIEVAL_BRANCH and not names.isdisjoint(fired)


def _onset_fields(onset: Onset, detected: bool = True) -> dict[str, Any]:
    times = {"onset": onset.minute, "earliest": onset.earliest, "latest": onset.latest}
    return {name: 60.0 * minute for name, minute in times.items()} | {"detected": detected}


def _cause_order(cause: AlertCause) -> tuple[bool, bool, int, int]:
    """Sort those with a named fault and an estimated onset first, then by layer and onset: they open incidents."""
    place = LAYER_ORDER.index(cause.layer) if cause.layer in LAYER_ORDER else len(LAYER_ORDER)
    return cause.fault is None, not cause.detected, place, cause.onset.minute


def _shown_changes(fault: LayerFault, location: FaultLocation) -> list[MetricChange]:
    """Return the changes of a fault that traces can be sorted by: not those at equal depth."""
    by_name = {metric_name(change.metric): change for change in location.changes if change.metric != EQUAL_DEPTH}
    names = ["context_relevance" if c.metric == EQUAL_DEPTH else metric_name(c.metric) for c in fault.evidence]
    return [by_name[name] for name in names if name in by_name and by_name[name].difference is not None]


def _build_size(
    metric: str, route: str | None, means: tuple[float | None, float | None], gap: Difference | None
) -> IncidentSize | None:
    if gap is None or not math.isfinite(gap.low) or not math.isfinite(gap.high):
        return None
    return IncidentSize(
        metric=metric,
        route=route,
        before=means[0] or 0.0,
        since=means[1] or 0.0,
        difference=gap.mean,
        low=gap.low,
        high=gap.high,
    )


def _mark_before(mark: TimelineMark) -> MarkBefore:
    assert mark.time is not None
    return MarkBefore(text=mark.text, time=mark.time.timestamp(), route=mark.route)


def format_moment(seconds: float) -> str:
    """Format a time to the minute in UTC.

    >>> format_moment(60.0)
    '1970-01-01 00:01 UTC'
    """
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
