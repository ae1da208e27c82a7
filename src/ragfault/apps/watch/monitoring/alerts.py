"""Alerts as a pure state machine: pending, firing, resolved, silenced and acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.alert_rules import SEVERITIES, AlertKey, AlertRule, RuleReading, Severity


class Alert(Struct, frozen=True, kw_only=True):
    """Alert of one rule on one metric and route, from its first breach until its cooldown ends."""

    rule: AlertRule
    metric: str
    route: str | None
    status: Literal["pending", "firing", "resolved"]
    # when it came to be so, in seconds since 1970
    since: float
    # since when a firing alert is well again without a break; None: it is not
    well_since: float | None = None
    # whether the outside was told that it fires, and not yet that it resolved
    notified: bool = False
    # when the outside was last told
    last_notified: float | None = None
    # by whom; None: by nobody
    acknowledged: str | None = None
    value: float | None = None
    traces: tuple[str, ...] = ()

    @property
    def key(self) -> AlertKey:
        """Return the identity of the alert."""
        return (self.rule.name, self.metric, self.route or "")


class AlertSilence(Struct, frozen=True, kw_only=True):
    """Silence: no notification of the alerts it covers until a time."""

    until: float
    # none: of every rule
    rule: str | None = None
    metric: str | None = None
    route: str | None = None

    def covers(self, key: AlertKey) -> bool:
        """Return whether the alert of a key is covered."""
        return all(own in (None, name) for own, name in zip((self.rule, self.metric, self.route), key, strict=True))


class AlertState(Struct, frozen=True, kw_only=True):
    """Alerts and silences; can be stored as JSON."""

    # ordered by rule, metric and route
    alerts: tuple[Alert, ...] = ()
    silences: tuple[AlertSilence, ...] = ()

    @property
    def firing(self) -> tuple[Alert, ...]:
        """Return the alerts that fire."""
        return tuple(alarm for alarm in self.alerts if alarm.status == "firing")

    @property
    def fired(self) -> dict[AlertKey, int]:
        """Return the minutes since 1970 since when the alerts fire."""
        return {alarm.key: int(alarm.since // 60) for alarm in self.firing}


class AlertTransition(Struct, frozen=True, kw_only=True):
    """Notification to send: an alert began to fire, still fires, or resolved."""

    kind: Literal["firing", "reminder", "resolved"]
    time: float
    rule: str
    severity: str
    metric: str
    route: str | None
    # when the alert began to fire, or resolved
    since: float
    value: float | None
    traces: tuple[str, ...] = ()


def advance_alerts(
    state: AlertState, readings: Iterable[RuleReading], now: float
) -> tuple[AlertState, tuple[AlertTransition, ...]]:
    """Advance all alerts by one round of readings; return the new state and the notifications to send.

    A breach makes an alert pending, and firing once it has lasted as long as the rule asks, unless the alert resolved
    less than the rule's cooldown ago. A firing alert resolves once it has been well (beyond the limit by the rule's
    hysteresis) for as long; between breach and well it stays as it is, and so it does where there are too few values
    to say. The outside is told of what changed since it was last told, and of nothing that is silenced; what was
    silenced is told when the silence ends, if it is still so. Time must not run backwards.

    >>> rule = AlertRule(name="low", metric="m", below=0.5)
    >>> bad = RuleReading(rule=rule, metric="m", route=None, value=0.4, breach=True)
    >>> good = RuleReading(rule=rule, metric="m", route=None, value=0.6, recovered=True)
    >>> state, events = advance_alerts(AlertState(), [bad], 60)
    >>> state, again = advance_alerts(state, [bad], 120)
    >>> state, last = advance_alerts(state, [good], 180)
    >>> [event.kind for event in (*events, *again, *last)]
    ['firing', 'resolved']
    """
    silences = tuple(silence for silence in state.silences if silence.until > now)
    alarms = {alarm.key: alarm for alarm in state.alerts}
    for reading in readings:
        key = (reading.rule.name, reading.metric, reading.route or "")
        moved = _next_state(alarms.pop(key, None), reading, now)
        if moved is not None:
            alarms[key] = moved
    open_alerts, events = [], []
    for key in sorted(alarms):
        alarm, event = _notify(alarms[key], any(silence.covers(key) for silence in silences), now)
        if event is not None:
            events.append(event)
        if alarm.status != "resolved" or alarm.notified or now < alarm.since + 60 * alarm.rule.cooldown:
            open_alerts.append(alarm)
    return AlertState(alerts=tuple(open_alerts), silences=silences), tuple(events)


def _next_state(alert: Alert | None, reading: RuleReading, now: float) -> Alert | None:
    """Return the alert after one reading; None where there is none."""
    if reading.value is None:
        return alert and replace(alert, well_since=None)
    if reading.breach:
        return _apply_breach(alert, reading, now)
    if alert is None or alert.status == "pending":
        return replace(alert, status="resolved") if alert is not None and alert.notified else None
    if alert.status == "resolved" or not reading.recovered:
        return replace(alert, well_since=None)
    calm = now if alert.well_since is None else alert.well_since
    if now - calm >= 60 * reading.rule.duration:
        return replace(alert, status="resolved", since=now, well_since=None, acknowledged=None, value=reading.value)
    return replace(alert, well_since=calm, value=reading.value)


def _apply_breach(alert: Alert | None, reading: RuleReading, now: float) -> Alert:
    """Return the alert after a breach: pending, or firing once it has lasted."""
    changes = {"value": reading.value, "traces": reading.traces, "well_since": None, "rule": reading.rule}
    if alert is not None and alert.status == "firing":
        return replace(alert, **changes)
    if alert is not None and alert.status == "resolved" and now < alert.since + 60 * alert.rule.cooldown:
        return alert
    if alert is None:
        alert = Alert(rule=reading.rule, metric=reading.metric, route=reading.route, status="pending", since=now)
    elif alert.status == "resolved":
        alert = replace(alert, status="pending", since=now)
    if now - alert.since >= 60 * reading.rule.duration:
        alert = replace(alert, status="firing", since=now)
    return replace(alert, **changes)


def _notify(alert: Alert, silenced: bool, now: float) -> tuple[Alert, AlertTransition | None]:
    """Return the alert and its notification, where its status changed since the last one and is not silenced."""
    fires = alert.status == "firing"
    again = alert.rule.repeat is not None and alert.acknowledged is None and alert.notified and fires
    kind: Literal["firing", "reminder", "resolved"] | None = None
    if fires != alert.notified and alert.status != "pending":
        kind = "firing" if fires else "resolved"
    elif again and now - (alert.last_notified or alert.since) >= 60 * (alert.rule.repeat or 0):
        kind = "reminder"
    if kind is None or silenced:
        return alert, None
    event = AlertTransition(
        kind=kind,
        time=now,
        rule=alert.rule.name,
        severity=alert.rule.severity,
        metric=alert.metric,
        route=alert.route,
        since=alert.since,
        value=alert.value,
        traces=alert.traces,
    )
    return replace(alert, notified=fires, last_notified=now), event


def worst_severity(rules: Sequence[AlertRule]) -> Severity | None:
    """Return the most urgent severity of some rules; None for no rule."""
    return min((rule.severity for rule in rules), key=SEVERITIES.index, default=None)


def add_silence(
    alert_state: AlertState,
    until: float,
    *,
    rule: str | None = None,
    metric: str | None = None,
    route: str | None = None,
) -> AlertState:
    """Silence some alerts until a time; all of them where nothing is named.

    >>> add_silence(AlertState(), 3600.0, rule="low").silences[0].until
    3600.0
    """
    added = AlertSilence(until=until, rule=rule, metric=metric, route=route)
    return replace(alert_state, silences=(*alert_state.silences, added))


def clear_silences(state: AlertState) -> AlertState:
    """End every silence; pending notifications are sent in the next round."""
    return replace(state, silences=())


def acknowledge_alert(
    state: AlertState, by: str, *, rule: str, metric: str | None = None, route: str | None = None
) -> AlertState:
    """Acknowledge the firing alerts of a rule: no reminder is sent until they have resolved.

    >>> rule = AlertRule(name="low", metric="m", below=0.5, repeat=10)
    >>> bad = RuleReading(rule=rule, metric="m", route=None, value=0.4, breach=True)
    >>> state = acknowledge_alert(advance_alerts(AlertState(), [bad], 0.0)[0], "ann", rule="low")
    >>> advance_alerts(state, [bad], 3600.0)[1]
    ()
    """
    seen = AlertSilence(until=0.0, rule=rule, metric=metric, route=route)
    return replace(
        state,
        alerts=tuple(
            replace(alarm, acknowledged=by) if alarm.status == "firing" and seen.covers(alarm.key) else alarm
            for alarm in state.alerts
        ),
    )
