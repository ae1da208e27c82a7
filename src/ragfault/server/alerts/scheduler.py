"""Alert scheduler: each minute it detects changes, evaluates rules, sends notifications and deletes expired traces.

A replay measures one reference period for all series, from the beginning of the traffic. Live, the first minutes of a
metric on a route are its reference, each minute is processed after a lag, and faults are located against the day before
the onset, since older traffic may be deleted. See `docs/decisions/0017-change-detection.md`.
"""

from __future__ import annotations

import base64
import logging
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.analysis.comparison.records import LayerFault
from ragfault.analysis.monitoring.alert_rules import DEFAULT_RULES, RuleReading, evaluate_rules, load_rules
from ragfault.analysis.monitoring.alerts import AlertTransition, advance_alerts
from ragfault.analysis.monitoring.change_detection import (
    FALSE_ALARM_RATE,
    DropDetection,
    SeriesWatch,
    advance_watch,
    locate_fault,
    measure_reference,
    start_test,
)
from ragfault.analysis.monitoring.monitor import select_referenced, select_watched
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, build_series
from ragfault.io.runs import MetricInfo
from ragfault.server.alerts.delivery import AlertNotification, NotificationSender
from ragfault.server.background_thread import BackgroundThread
from ragfault.server.state import ALERTS_SETTING, ServerState
from ragfault.server.storage import AlertEvent
from ragfault.server.storage.outcome_rows import get_trace_time

LAG_MINUTES = 2
"""Minutes before a minute is processed: traces are judged a little after they arrive."""


class DropEvent(Struct, frozen=True, kw_only=True):
    """Drop that was just detected, or has just recovered."""

    metric: str
    route: str | None
    detection: DropDetection


class DetectorState(Struct, frozen=True, kw_only=True):
    """Watches by `watch_key`."""

    watches: dict[str, SeriesWatch] = {}


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


def detect_changes(
    state: DetectorState,
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    reference_minutes: int,
    rate: float,
) -> tuple[DetectorState, tuple[DropEvent, ...]]:
    """Process the minutes before `until` less the lag; return the drops detected or recovered in them.

    The first `reference_minutes` of a metric on a route are its reference.
    """
    watches, events = dict(state.watches), list[DropEvent]()
    totals = {key: series for key, series in all_series.items() if key[2] is None}
    until -= LAG_MINUTES
    tested = set(select_watched(totals))
    for metric, route, _ in select_referenced(totals):
        key, series = watch_key(metric, route), totals[metric, route, None]
        watch = watches.get(key, SeriesWatch(metric=metric, route=route))
        if watch.test is None:
            watch = _start_watch(watch, series, measures[metric], until, reference_minutes, rate)
        watches[key] = watch
        detections: tuple[DropDetection, ...] = ()
        if (metric, route, None) in tested:
            watches[key], detections = advance_watch(watch, series, until, rate=rate)
        events += [DropEvent(metric=metric, route=route, detection=detection) for detection in detections]
    return DetectorState(watches=watches), tuple(events)


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


def locate_live_fault(
    all_series: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    route: str | None,
    since: int,
    until: int,
) -> LayerFault | None:
    """Return the layer fault between the day before a minute and the time since; None where no branch matches."""
    return locate_fault(all_series, measures, route, (since - DAY_MINUTES, since), (since, until)).fault


log = logging.getLogger("ragfault.server")

ROUND_SECONDS = 60.0
"""Seconds between rounds by the server's clock."""
POLL_SECONDS = 0.25
"""Seconds between readings of that clock."""
FINE_MINUTES = 240
"""Minutes that are read one by one; older ones are read in coarser segments."""
COARSE_GRAIN = 15
DETECTOR_SETTING = "change_detector"
"""The setting that holds the state of the sequential tests."""
RETENTION_ROUNDS = 60
"""Rounds between two deletions of expired traces."""

MeasuresByName = Mapping[str, MetricInfo]
TraceIds = tuple[str, ...]
FaultFinder = Callable[[str | None, int, int], LayerFault | None]


class AlertScheduler(BackgroundThread):
    """Thread that runs rounds of change detection, alert rules, notification and retention."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._rules = DEFAULT_RULES if server.settings.rules is None else load_rules(server.settings.rules)
        self._sender = NotificationSender(server.settings, server.counters, self._record_delivery)
        self._round_count = 0
        super().__init__("ragfault-scheduler")

    def start(self) -> None:
        """Start the thread."""
        self._sender.start()
        super().start()

    def close(self) -> None:
        """Stop after the round in progress; waiting notifications are tried once more."""
        super().close()
        self._sender.close()

    def run_round(self) -> tuple[AlertNotification, ...]:
        """Run one round; return the notifications that it sends."""
        server = self._server
        server.counters.flush()
        server.store.compact().result()
        if self._round_count % RETENTION_ROUNDS == 0:
            self._delete_expired()
        self._round_count += 1
        now = server.now()
        with server.alert_lock:
            notifications = self._evaluate_alerts(now, math.floor(now / 60))
        for notification in notifications:
            self._sender.send(notification)
        return notifications

    def _run(self) -> None:
        last = self._server.now()
        while not self._stopping.wait(POLL_SECONDS):
            now = self._server.now()
            if now - last >= ROUND_SECONDS:
                last = now
                try:
                    self.run_round()
                except Exception:  # one failed round must not end the thread
                    log.exception("a round of the alert scheduler failed")

    def _delete_expired(self) -> None:
        """Delete expired traces, and the oldest where the store is too large."""
        settings = self._server.settings
        if settings.retention_days is not None or settings.max_bytes is not None:
            before = None if settings.retention_days is None else self._server.now() - 86400 * settings.retention_days
            gone = self._server.store.delete_expired(before=before, max_bytes=settings.max_bytes).result()
            self._server.counters.add("forgotten", gone)
            self._server.scoring_workers.recount()

    def _evaluate_alerts(self, now: float, until: int) -> tuple[AlertNotification, ...]:
        """Detect drops and advance the alerts to before a minute; both states are stored with the events."""
        server = self._server
        measures = server.measures
        series = self._load_series(until)
        if not series:
            return ()
        detector = decode_state(server.store.read_setting(DETECTOR_SETTING, ""))
        scored, reference = self._compute_scored_until(until), server.settings.reference_minutes
        detector, drops = detect_changes(detector, series, measures, scored, reference, FALSE_ALARM_RATE)
        dropped = [(watch.metric, watch.route) for watch in detector.watches.values() if watch.detection is not None]
        before = server.load_alert_state()
        shown = {alert.key: alert.traces for alert in before.alerts}
        references = {
            (watch.metric, watch.route): watch.test.period
            for watch in detector.watches.values()
            if watch.test is not None
        }
        read = evaluate_rules(self._rules, series, measures, until, dropped, references)
        readings = [self._attach_traces(reading, until, shown) for reading in read]
        state, transitions = advance_alerts(before, readings, now)
        find_fault = lru_cache(partial(locate_live_fault, series, measures))
        notifications = tuple(
            self._build_notification(event, measures, detector, until, find_fault) for event in transitions
        )
        events = [_detection_event(drop, now) for drop in drops]
        events += [_notification_event(notification) for notification in notifications]
        settings = {ALERTS_SETTING: msgspec.to_builtins(state), DETECTOR_SETTING: encode_state(detector)}
        server.store.add_events(events, settings).result()
        return notifications

    def _load_series(self, until: int) -> dict[SeriesKey, MetricSeries]:
        """Load the last hours by the minute and the days before in coarser segments."""
        store = self._server.store
        cut = until - max(FINE_MINUTES, self._server.settings.reference_minutes + FINE_MINUTES)
        first = until - 2 * DAY_MINUTES
        old = store.read_rollups(min(first, cut), cut, grain=COARSE_GRAIN, bins=False) if first < cut else ()
        return build_series([*old, *store.read_rollups(cut, until, bins=False)])

    def _compute_scored_until(self, until: int) -> int:
        """Return the minute before which no trace waits to be judged."""
        oldest = self._server.store.list_unscored(limit=1)
        times = (get_trace_time(received.trace, received.received) for received in oldest)
        return min([until, *(math.floor(time / 60) for time in times)])

    def _attach_traces(
        self, reading: RuleReading, until: int, known_traces: Mapping[tuple[str, str, str], TraceIds]
    ) -> RuleReading:
        """Attach example traces to a breach: those of its first notification, or the worst of its window."""
        if not reading.breach:
            return reading
        traces = known_traces.get((reading.rule.name, reading.metric, reading.route or ""), ())
        if not traces:
            first = until - reading.rule.window
            worst = self._server.store.read_worst_traces(reading.metric, first, until, route=reading.route or "")
            traces = tuple(trace.trace for trace in worst)
        return msgspec.structs.replace(reading, traces=traces)

    def _build_notification(
        self,
        event: AlertTransition,
        measures: MeasuresByName,
        detector: DetectorState,
        until: int,
        fault_finder: FaultFinder,
    ) -> AlertNotification:
        """Build a notification with the fault that the decision tree finds."""
        watch = detector.watches.get(watch_key(event.metric, event.route))
        drop = None if watch is None else watch.detection
        rule = next(rule for rule in self._rules if rule.name == event.rule)
        since = drop.onset if drop is not None else until - rule.window
        fault = fault_finder(event.route, since, until)
        return AlertNotification(
            kind=event.kind,
            rule=event.rule,
            severity=event.severity,
            metric=event.metric,
            route=event.route,
            value=event.value,
            since=event.since,
            time=event.time,
            began=None if drop is None else 60.0 * drop.onset,
            layer=measures[event.metric].layer if fault is None else fault.layer,
            blamed=fault is not None,
            title=None if fault is None else fault.title,
            suspects=() if fault is None else tuple(suspect.stage for suspect in fault.suspects),
            remedies=() if fault is None else fault.remedies,
            traces=event.traces,
        )

    def _record_delivery(self, notification: AlertNotification, failure: str | None) -> None:
        """Record the result of a delivery."""
        body: dict[str, Any] = {"notice": notification.kind} | ({} if failure is None else {"fault": failure})
        kind = "sent" if failure is None else "not sent"
        self._server.store.add_events(
            [AlertEvent(alert=notification.key, time=self._server.now(), kind=kind, body=body)]
        )


def _notification_event(notification: AlertNotification) -> AlertEvent:
    return AlertEvent(
        alert=notification.key, time=notification.time, kind=notification.kind, body=msgspec.to_builtins(notification)
    )


def _detection_event(drop: DropEvent, now: float) -> AlertEvent:
    """Build the event of a drop that was detected or recovered."""
    alert = f"DROP/{drop.metric}/{drop.route or ''}"
    kind = "called" if drop.detection.recovered_at is None else "over"
    return AlertEvent(alert=alert, time=now, kind=kind, body=msgspec.to_builtins(drop.detection))
