"""Alert scheduler: each minute it detects changes, evaluates rules, sends notices and deletes expired traces.

A replay measures one reference period for all series, from the beginning of the traffic. Live, the first minutes of a
metric on a route are its reference, each minute is processed after a lag, and faults are located against the day before
the onset, since older traffic may be deleted. See `docs/decisions/0017-change-detection.md`.
"""

from __future__ import annotations

import base64
import logging
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES, AlertKey, RuleReading, load_rules
from ragfault.apps.watch.monitoring.alerts import AlertState, AlertTransition, advance_alerts
from ragfault.apps.watch.monitoring.change_detection import (
    FALSE_ALARM_RATE,
    DropDetection,
    ReferencePeriod,
    SeriesWatch,
    advance_watch,
    measure_reference,
    start_test,
)
from ragfault.apps.watch.monitoring.incidents import Incident, next_notice
from ragfault.apps.watch.monitoring.monitor import select_referenced, select_watched
from ragfault.apps.watch.monitoring.noise import HISTORY_MINUTES, HOUR_MINUTES, is_weekend
from ragfault.apps.watch.monitoring.rollups import is_cohort
from ragfault.apps.watch.monitoring.rule_evaluation import RuleContext, evaluate_rules
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, STALE_MINUTES, MetricSeries, SeriesKey, build_series
from ragfault.apps.watch.server.alerts.cohorts import (
    COARSE_GRAIN,
    FINE_MINUTES,
    MAX_FOLLOWED,
    continue_traffic,
    load_cohorts,
)
from ragfault.apps.watch.server.alerts.delivery import IncidentNotice, NoticeSender
from ragfault.apps.watch.server.alerts.incidents import IncidentBuilder
from ragfault.apps.watch.server.alerts.watchdog import Watchdog, advance_problems
from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.state import ALERTS_SETTING, INCIDENTS_SETTING, ServerState
from ragfault.apps.watch.server.storage.outcome_rows import get_trace_time
from ragfault.apps.watch.server.storage.records import AlertEvent, TimelineMark
from ragfault.apps.watch.server.storage.run_transfer import IMPORTED_JUDGES_SETTING
from ragfault.io.runs.run import MetricInfo

# minutes before a minute is processed: traces are judged a little after they arrive
LAG_MINUTES = 2
EXTENDED_MINUTES = (2 * DAY_MINUTES, 3 * DAY_MINUTES, 7 * DAY_MINUTES)
"""Minutes to which shorter references are extended once they have passed: these know more of seasons and of noise."""
# minutes after these, so that a fault can be found before it is part of a reference
EXTENSION_DELAY = 360
# minutes by which all traces may come late and still be held against the rules
MAX_LATE_MINUTES = 360
# references that are extended in a round
MAX_EXTENDED = 5


class DropEvent(Struct, frozen=True, kw_only=True):
    """Drop that was just detected, or has just recovered."""

    metric: str
    route: str | None
    detection: DropDetection


class DetectorState(Struct, frozen=True, kw_only=True):
    """Watches by `watch_key`, and the judge of the values they are of."""

    watches: dict[str, SeriesWatch] = {}
    judge: str = ""
    # the minute before which another judge scored: nothing is compared with values of then
    first: int = 0


def encode_state(state: DetectorState) -> str:
    """Encode the state as text: MessagePack in base64, since JSON has no infinity."""
    return base64.b64encode(msgspec.msgpack.encode(state)).decode()


def decode_state(text: str) -> DetectorState:
    """Decode a state; the empty text is the empty state.

    >>> decode_state(encode_state(DetectorState())) == decode_state("") == DetectorState()
    True
    """
    return msgspec.msgpack.decode(base64.b64decode(text), type=DetectorState) if text else DetectorState()


def watch_key(metric: str, route: str | None) -> str:
    """Return the key of a metric on a route in the state."""
    return msgspec.json.encode([metric, route or ""]).decode()


def get_alarm_rate(route: str | None) -> float:
    """Return the false alarms of a metric on a route or cohort in a month, at most."""
    return FALSE_ALARM_RATE / (MAX_FOLLOWED if is_cohort(route) else 1)


def detect_changes(
    state: DetectorState,
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    reference_minutes: int,
) -> tuple[DetectorState, tuple[DropEvent, ...]]:
    """Process the minutes before `until` less the lag; return the drops detected or recovered in them.

    The first `reference_minutes` of a metric on a route are its reference. Cohorts share the false alarms of a route.
    """
    watches, events = dict(state.watches), list[DropEvent]()
    totals = {key: series for key, series in all_series.items() if key[2] is None}
    until -= LAG_MINUTES
    tested = set(select_watched(totals))
    for metric, route, _ in select_referenced(totals):
        if is_cohort(route) and (metric, route, None) not in tested:
            continue
        key, series = watch_key(metric, route), totals[metric, route, None]
        rate = get_alarm_rate(route)
        watch = watches.get(key, SeriesWatch(metric=metric, route=route))
        if watch.test is None:
            watch = _start_watch(watch, series, measures[metric], until, reference_minutes, rate)
        watches[key] = watch
        detections: tuple[DropDetection, ...] = ()
        if (metric, route, None) in tested:
            watches[key], detections = advance_watch(watch, series, until, rate=rate)
        events += [DropEvent(metric=metric, route=route, detection=detection) for detection in detections]
    return replace(state, watches=watches), tuple(events)


def _start_watch(
    watch: SeriesWatch, series: MetricSeries, measure: MetricInfo, until: int, reference_minutes: int, rate: float
) -> SeriesWatch:
    """Start the test where the reference is long enough and can be measured."""
    if not series.minutes.size or until - int(series.minutes[0]) < reference_minutes:
        return watch
    first = int(series.minutes[0])
    part = series.between(first, first + reference_minutes)
    period = measure_reference((watch.metric, watch.route), part, measure, rate=rate)
    return watch if period is None else replace(watch, test=start_test(period, period.last))


def find_extension(watch: SeriesWatch, until: int) -> int:
    """Return the minutes to which a reference is to be extended now; 0 where it is not."""
    if watch.test is None or watch.detection is not None:
        return 0
    period = watch.test.period
    known, past = max(watch.reference_minutes, period.last - period.first), until - EXTENSION_DELAY - period.first
    return max((length for length in EXTENDED_MINUTES if known + HOUR_MINUTES < length <= past), default=0)


def is_usual(incident: Incident, period: ReferencePeriod) -> bool:
    """Return whether an incident may come each week: without a layer, on a weekend or other day a reference lacks."""
    known = is_weekend(np.arange(period.first, period.last, HOUR_MINUTES))
    begin = np.array([incident.interval.minute, incident.interval.latest])
    return incident.branch is None and not np.isin(is_weekend(begin), known).all()


log = logging.getLogger("ragfault.server")

# seconds between rounds by the server's clock
ROUND_SECONDS = 60.0
# seconds between readings of that clock
POLL_SECONDS = 0.25
# the setting that holds the state of the sequential tests
DETECTOR_SETTING = "change_detector"
# rounds between two deletions of expired traces
RETENTION_ROUNDS = 60


class AlertScheduler(BackgroundThread):
    """Thread that runs rounds of change detection, alert rules, incidents, notices and retention."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._rules = DEFAULT_RULES if server.settings.rules is None else load_rules(server.settings.rules)
        self._sender = NoticeSender(server.settings, server.counters, self._record_delivery)
        self._watchdog = Watchdog(server)
        self._round_count = 0
        super().__init__("ragfault-scheduler")

    def start(self) -> None:
        """Start the thread."""
        self._sender.start()
        super().start()

    def close(self) -> None:
        """Stop after the round in progress; waiting notices are tried once more."""
        super().close()
        self._sender.close()

    def run_round(self) -> tuple[IncidentNotice, ...]:
        """Run one round; return the notices that it sends."""
        server = self._server
        server.counters.flush()
        server.store.compact().result()
        if self._round_count % RETENTION_ROUNDS == 0:
            self._delete_expired()
        self._round_count += 1
        now = server.now()
        with server.alert_lock:
            notices = self._advance(now, math.floor(now / 60))
        for notice in notices:
            self._sender.send(notice)
        return notices

    def _run(self) -> None:
        last = self._server.now()
        while not self._stopping.wait(POLL_SECONDS):
            # a kill loses counts of what was refused for this long
            self._server.counters.flush()
            now = self._server.now()
            if now - last >= ROUND_SECONDS:
                last = now
                try:
                    self.run_round()
                except Exception:
                    # one failed round must not end the thread
                    log.exception("a round of the alert scheduler failed")

    def _delete_expired(self) -> None:
        """Delete expired traces, and the oldest where the store is too large."""
        settings = self._server.settings
        if settings.retention_days is not None or settings.max_bytes is not None:
            before = self._server.compute_retention_bound()
            gone = self._server.store.delete_expired(before=before, max_bytes=settings.max_bytes).result()
            self._server.counters.add("forgotten", gone)
            self._server.scoring_workers.recount()

    def _advance(self, now: float, until: int) -> tuple[IncidentNotice, ...]:
        """Advance tests, alerts and incidents to before a minute; their states are stored with the events."""
        server = self._server
        incidents: list[Incident] = list(server.load_incidents())
        state, detector, drops, transitions, incidents = self._evaluate_alerts(incidents, now, until)
        kinds = frozenset(incident.kind for incident in incidents if incident.resolved is None)
        problems = self._watchdog.find_problems(self._sender.faults, kinds)
        incidents = advance_problems(incidents, problems, now)
        reminded = {(event.rule, event.metric, event.route or "") for event in transitions if event.kind == "reminder"}
        open_, past, notices = list[Incident](), list[Incident](), list[IncidentNotice]()
        for incident in incidents:
            silenced = _is_silenced(incident, state)
            announced, kind = next_notice(
                incident, silenced=silenced, reminded=not reminded.isdisjoint(incident.alerts)
            )
            if kind is not None:
                link = server.settings.link_incident(incident.id)
                notices.append(IncidentNotice(kind=kind, time=now, incident=announced, link=link))
            (open_ if announced.resolved is None or announced.notified is not None else past).append(announced)
        events = [
            *(_detection_event(drop, now) for drop in drops),
            *(_transition_event(transition) for transition in transitions),
            *(_notice_event(notice) for notice in notices),
        ]
        settings = {
            ALERTS_SETTING: msgspec.to_builtins(state),
            INCIDENTS_SETTING: msgspec.to_builtins(open_),
            DETECTOR_SETTING: encode_state(detector),
        }
        server.store.add_events(events, settings, past).result()
        return tuple(notices)

    def _evaluate_alerts(
        self, incidents: list[Incident], now: float, until: int
    ) -> tuple[AlertState, DetectorState, tuple[DropEvent, ...], tuple[AlertTransition, ...], list[Incident]]:
        """Detect drops, advance the alerts, and group those that fire into incidents."""
        server = self._server
        measures, before = server.measures, server.load_alert_state()
        detector = self._follow_judge(decode_state(server.store.read_setting(DETECTOR_SETTING, "")), now, until)
        series = self._load_series(until, detector.first)
        late = self._measure_lateness(series, now)
        scored, reference = min(self._compute_scored_until(until), until - late), server.settings.reference_minutes
        detector = self._extend_references(detector, incidents, until)
        detector, drops = detect_changes(detector, series, measures, scored, reference)
        watches = detector.watches.values()
        dropped = {(watch.metric, watch.route) for watch in watches if watch.detection is not None}
        shown = {alert.key: alert.traces for alert in before.alerts}
        references = {(watch.metric, watch.route): watch.test.period for watch in watches if watch.test is not None}
        context = RuleContext(dropped, references, before.fired)
        read = evaluate_rules(self._rules, series, measures, until - late, context)
        readings = [self._attach_traces(reading, until, shown) for reading in read]
        left = tuple(alert for alert in before.alerts if (alert.metric, alert.route, None) in series)
        state, transitions = advance_alerts(replace(before, alerts=left), readings, now)
        builder = IncidentBuilder(server.store, series, measures, watches, now, late)
        return state, detector, drops, transitions, builder.group_alerts(incidents, state.firing)

    def _follow_judge(self, detector: DetectorState, now: float, until: int) -> DetectorState:
        """Return a state that compares nothing from before a minute where another judge scores, or was imported.

        A mark says so.
        """
        store = self._server.store
        latest, imported = store.latest_judge, store.read_setting(IMPORTED_JUDGES_SETTING, [])
        judges = {detector.judge, latest, *imported} - {""}
        if imported:
            store.add_events([], {IMPORTED_JUDGES_SETTING: []}).result()
        if len(judges) < 2:
            return replace(detector, judge=max(judges, default=""))
        text = f"scores are of another judge from now on: {latest}"
        if not {*imported} <= {detector.judge, latest}:
            text = "a run of another judge was imported: alerts compare nothing with what was scored before"
        store.add_marks([TimelineMark(text=text, time=datetime.fromtimestamp(now, UTC))], now)
        return DetectorState(judge=latest, first=until)

    def _extend_references(self, detector: DetectorState, incidents: Sequence[Incident], until: int) -> DetectorState:
        """Measure some references anew over more minutes, on routes without an open incident; their tests start anew.

        What incidents covered is left out, unless it may come each week.
        """
        store, measures, watches = self._server.store, self._server.measures, dict(detector.watches)
        open_ = {route for own in incidents if own.resolved is None for route in own.routes}
        due = (
            (key, watch, watch.test.period, length)
            for key, watch in detector.watches.items()
            if watch.test is not None and watch.route not in open_ and watch.metric in measures
            if (length := find_extension(watch, until))
        )
        for key, watch, old, length in islice(due, MAX_EXTENDED):
            metric, route = watch.metric, watch.route
            covered = [
                (own.interval.earliest, math.ceil(own.resolved / 60), is_usual(own, old))
                for own in [*incidents, *store.read_past_incidents()]
                if own.resolved is not None and route in own.routes
            ]
            rollups = store.read_rollups(
                old.first, old.first + length, metric=metric, route=route or "", grain=COARSE_GRAIN, bins=False
            )
            rows = [row for row in rollups if all(weekly or not a <= row.minute < b for a, b, weekly in covered)]
            series = build_series(rows).get((metric, route, None))
            # A new version may have no minute of its own there: its reference is that of the traffic it continues.
            period = (
                None
                if series is None
                else measure_reference((metric, route), series, measures[metric], rate=get_alarm_rate(route))
            )
            test = None if period is None else start_test(period, max(period.last, *(end for _, end, _ in covered), 0))
            watches[key] = replace(watch, test=test or watch.test, reference_minutes=length)
        return replace(detector, watches=watches)

    def _load_series(self, until: int, oldest: int = 0) -> dict[SeriesKey, MetricSeries]:
        """Load the last hours by the minute and the days before in coarser segments, from a minute on."""
        store = self._server.store
        cut = max(oldest, until - max(FINE_MINUTES, self._server.settings.reference_minutes + FINE_MINUTES))
        first = max(oldest, until - HISTORY_MINUTES)
        old = store.read_rollups(first, cut, grain=COARSE_GRAIN, bins=False) if first < cut else ()
        series = build_series([*old, *store.read_rollups(cut, until, bins=False)])
        return continue_traffic(load_cohorts(store, first, until), series) | series

    def _compute_scored_until(self, until: int) -> int:
        """Return the minute before which no trace waits to be judged."""
        oldest = self._server.store.list_unscored(limit=1)
        times = (get_trace_time(received.trace, received.received) for received in oldest)
        return min([until, *(math.floor(time / 60) for time in times)])

    def _measure_lateness(self, series: Mapping[SeriesKey, MetricSeries], now: float) -> int:
        """Return the minutes by which the values are of the past since all traces come late; 0 where they do not.

        Traces came long after the time of the last value, and the last of them are of that time: neither traffic that
        ended nor a backfill is late. Minutes after the last trace nothing is said.
        """
        minute, store = math.floor(now / 60), self._server.store
        last = max((int(part.minutes[-1]) for part in series.values() if part.minutes.size), default=0)
        late = minute - 1 - last
        if not STALE_MINUTES < late <= MAX_LATE_MINUTES:
            return 0
        arrivals = [count.minute for count in store.read_counts(minute - STALE_MINUTES, "taken")]
        is_late = max(arrivals, default=0) - last > STALE_MINUTES
        return late if is_late and store.read_latest_time() >= 60 * (last - STALE_MINUTES) else 0

    def _attach_traces(
        self, reading: RuleReading, until: int, known_traces: Mapping[AlertKey, tuple[str, ...]]
    ) -> RuleReading:
        """Attach example traces to a breach: those of its first breach, or the worst of its window."""
        if not reading.breach:
            return reading
        traces = known_traces.get((reading.rule.name, reading.metric, reading.route or ""), ())
        if not traces:
            first = until - reading.rule.window
            worst = self._server.store.read_worst_traces(reading.metric, first, until, route=reading.route or "")
            traces = tuple(trace.trace for trace in worst)
        return msgspec.structs.replace(reading, traces=traces)

    def _record_delivery(self, notice: IncidentNotice, failure: str | None) -> None:
        """Record the result of a delivery."""
        body: dict[str, Any] = {"notice": notice.kind} | ({} if failure is None else {"fault": failure})
        kind = "sent" if failure is None else "not sent"
        self._server.store.add_events([AlertEvent(alert=notice.key, time=self._server.now(), kind=kind, body=body)])


def _is_silenced(incident: Incident, state: AlertState) -> bool:
    """Return whether silences cover every alert of an incident; one of the server only by a silence of everything.

    Alerts of cohorts count where there are no others.
    """
    if incident.kind != "quality":
        return any(silence.rule is silence.metric is silence.route is None for silence in state.silences)
    alerts = [alert for alert in state.alerts if alert.key in incident.alerts and alert.status == "firing"]
    keys = incident.alerts if not alerts else [alert.key for alert in alerts]
    keys = [key for key in keys if not is_cohort(key[2])] or keys
    return bool(state.silences) and all(any(silence.covers(key) for silence in state.silences) for key in keys)


def _notice_event(notice: IncidentNotice) -> AlertEvent:
    incident = notice.incident
    body = {"title": incident.title, "routes": list(incident.routes), "onset": incident.onset, "layer": incident.layer}
    return AlertEvent(alert=incident.id, time=notice.time, kind=notice.kind, body=body)


def _transition_event(event: AlertTransition) -> AlertEvent:
    key = f"{event.rule}/{event.metric}/{event.route or ''}"
    return AlertEvent(alert=key, time=event.time, kind=event.kind, body=msgspec.to_builtins(event))


def _detection_event(drop: DropEvent, now: float) -> AlertEvent:
    """Build the event of a drop that was detected or recovered."""
    alert = f"DROP/{drop.metric}/{drop.route or ''}"
    kind = "called" if drop.detection.recovered_at is None else "over"
    return AlertEvent(alert=alert, time=now, kind=kind, body=msgspec.to_builtins(drop.detection))
