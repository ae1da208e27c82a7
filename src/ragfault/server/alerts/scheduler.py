"""Alert scheduler: each minute it detects changes, evaluates alert rules, sends notifications and deletes old traces."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec

from ragfault.analysis.comparison.records import LayerFault
from ragfault.analysis.monitoring.alert_rules import DEFAULT_RULES, RuleReading, evaluate_rules, load_rules
from ragfault.analysis.monitoring.alerts import AlertTransition as Told
from ragfault.analysis.monitoring.alerts import advance_alerts
from ragfault.analysis.monitoring.change_detection import FALSE_ALARM_RATE
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, build_series
from ragfault.io.runs import MetricInfo
from ragfault.server.alerts.change_detector import (
    DetectorState,
    DropEvent,
    decode_state,
    detect_changes,
    encode_state,
    locate_live_fault,
)
from ragfault.server.alerts.delivery import NotificationSender
from ragfault.server.alerts.notification import AlertNotification
from ragfault.server.state import ALERTS_SETTING, ServerState
from ragfault.server.storage import AlertEvent
from ragfault.server.storage.outcome_rows import get_trace_time

log = logging.getLogger("ragfault.server")

ROUND_SECONDS = 60.0
"""Seconds between rounds, by the clock of the desk."""
POLL_SECONDS = 0.25
"""Seconds between looks at that clock."""
FINE_MINUTES = 240
"""Minutes that are read one by one; older ones in stretches of `COARSE`."""
COARSE_GRAIN = 15
DETECTOR_SETTING = "change_detector"
"""The setting that holds the state of the sequential tests."""
RETENTION_ROUNDS = 60
"""Rounds between two times that old traces are forgotten."""

MeasuresByName = Mapping[str, MetricInfo]
TraceIds = tuple[str, ...]
FaultFinder = Callable[[str | None, int, int], LayerFault | None]


class AlertScheduler:
    """A thread that makes its rounds while the server runs."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._rules = DEFAULT_RULES if server.settings.rules is None else load_rules(server.settings.rules)
        self._sender = NotificationSender(server.settings, server.counters, self._record_delivery)
        self._round_count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragfault-scheduler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._sender.start()
        self._thread.start()

    def close(self) -> None:
        """End after the round that is under way; what is to be sent is tried once more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sender.close()

    def run_round(self) -> tuple[AlertNotification, ...]:
        """Look at everything once; what is to be sent."""
        desk = self._server
        desk.counters.flush()
        desk.store.compact().result()
        if self._round_count % RETENTION_ROUNDS == 0:
            self._delete_expired()
        self._round_count += 1
        now = desk.now()
        with desk.alert_lock:
            notices = self._evaluate_alerts(now, math.floor(now / 60))
        for notice in notices:
            self._sender.send(notice)
        return notices

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        last = self._server.now()
        while not self._stopping.wait(POLL_SECONDS):
            now = self._server.now()
            if now - last >= ROUND_SECONDS:
                last = now
                try:
                    self.run_round()
                except Exception:  # a round that fails is told, and the next one comes
                    log.exception("a round of the patrol failed")

    def _delete_expired(self) -> None:
        """Remove what is too old, or too much."""
        settings = self._server.settings
        if settings.retention_days is not None or settings.max_bytes is not None:
            before = (
                None
                if settings.retention_days is None
                else self._server.now() - 86400 * settings.retention_days
            )
            gone = self._server.store.delete_expired(before=before, max_bytes=settings.max_bytes).result()
            self._server.counters.add("forgotten", gone)
            self._server.scoring_workers.recount()

    def _evaluate_alerts(self, now: float, until: int) -> tuple[AlertNotification, ...]:
        """Call drops and move the alerts on, to before a minute; both states are stored with what happened."""
        desk = self._server
        known = {measure.name: measure for measure in desk.store.read_measures()}
        whole = self._load_series(until)
        if not whole:
            return ()
        vigil = decode_state(desk.store.read_setting(DETECTOR_SETTING, ""))
        vigil, called = detect_changes(
            vigil,
            whole,
            known,
            self._compute_scored_until(until),
            desk.settings.reference_minutes,
            FALSE_ALARM_RATE,
        )
        open_ = [(one.metric, one.route) for one in vigil.watches.values() if one.detection is not None]
        seen = evaluate_rules(self._rules, whole, known, until, open_)
        before = desk.load_alert_state()
        shown = {alarm.key: alarm.traces for alarm in before.alerts}
        state, told = advance_alerts(before, [self._attach_traces(each, until, shown) for each in seen], now)
        blame = lru_cache(partial(locate_live_fault, whole, known))
        notices = tuple(self._build_notification(each, known, vigil, until, blame) for each in told)
        events = [
            *(_detection_event(each, now) for each in called),
            *(_notification_event(each) for each in notices),
        ]
        kept = {ALERTS_SETTING: msgspec.to_builtins(state), DETECTOR_SETTING: encode_state(vigil)}
        desk.store.add_events(events, kept).result()
        return notices

    def _load_series(self, until: int) -> dict[SeriesKey, MetricSeries]:
        """What is held against each other: the last hours by the minute, the days before in stretches."""
        store = self._server.store
        cut = until - max(FINE_MINUTES, self._server.settings.reference_minutes + FINE_MINUTES)
        first = until - 2 * DAY_MINUTES
        old = store.read_rollups(min(first, cut), cut, grain=COARSE_GRAIN, bins=False) if first < cut else ()
        return build_series([*old, *store.read_rollups(cut, until, bins=False)])

    def _compute_scored_until(self, until: int) -> int:
        """The minute before which nothing waits to be judged any more."""
        oldest = self._server.store.list_unscored(limit=1)
        return min([until, *(math.floor(get_trace_time(each.trace, each.received) / 60) for each in oldest)])

    def _attach_traces(
        self, reading: RuleReading, until: int, known_traces: Mapping[tuple[str, str, str], TraceIds]
    ) -> RuleReading:
        """A breach with the traces that show it: those it was first seen with, or the worst of its window."""
        if not reading.breach:
            return reading
        traces = known_traces.get((reading.rule.name, reading.metric, reading.route or ""), ())
        if not traces:
            first = until - reading.rule.window
            worst = self._server.store.read_worst_traces(
                reading.metric, first, until, route=reading.route or ""
            )
            traces = tuple(each.trace for each in worst)
        return msgspec.structs.replace(reading, traces=traces)

    def _build_notification(
        self,
        event: Told,
        measures: MeasuresByName,
        detector: DetectorState,
        until: int,
        fault_finder: FaultFinder,
    ) -> AlertNotification:
        """What is sent of an alert: with the layer that the decision tree names."""
        beats = detector.watches.values()
        call = next(
            (
                b.detection
                for b in beats
                if b.detection and (b.metric, b.route) == (event.metric, event.route)
            ),
            None,
        )
        rule = next(rule for rule in self._rules if rule.name == event.rule)
        since = call.onset if call is not None else until - rule.window
        found = fault_finder(event.route, since, until)
        return AlertNotification(
            kind=event.kind,
            rule=event.rule,
            severity=event.severity,
            metric=event.metric,
            route=event.route,
            value=event.value,
            since=event.since,
            time=event.time,
            began=None if call is None else 60.0 * call.onset,
            layer=measures[event.metric].layer if found is None else found.layer,
            blamed=found is not None,
            title=None if found is None else found.title,
            suspects=() if found is None else found.suspects,
            remedies=() if found is None else found.remedies,
            traces=event.traces,
        )

    def _record_delivery(self, notice: AlertNotification, fault: str | None) -> None:
        """What became of a notice."""
        body: dict[str, Any] = {"notice": notice.kind} | ({} if fault is None else {"fault": fault})
        kind = "sent" if fault is None else "not sent"
        self._server.store.add_events(
            [AlertEvent(alert=notice.key, time=self._server.now(), kind=kind, body=body)]
        )


def _notification_event(notice: AlertNotification) -> AlertEvent:
    return AlertEvent(alert=notice.key, time=notice.time, kind=notice.kind, body=msgspec.to_builtins(notice))


def _detection_event(drop: DropEvent, now: float) -> AlertEvent:
    """A drop that was called, or is over, as an event."""
    alert = f"DROP/{drop.metric}/{drop.route or ''}"
    return AlertEvent(
        alert=alert,
        time=now,
        kind="called" if drop.detection.recovered_at is None else "over",
        body=msgspec.to_builtins(drop.detection),
    )
