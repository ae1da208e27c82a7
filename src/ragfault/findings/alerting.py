"""Alerts as they go from pending over firing to resolved: a pure state machine whose state is a record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ragfault.findings.alerting_rules import Reading, Rule

__all__ = ["Alarm", "Event", "Silence", "State", "acknowledge", "silence", "step", "unsilence"]

Key = tuple[str, str, str]
"""Rule, metric, route; no route is the empty text."""


class Alarm(Struct, frozen=True, kw_only=True):
    """One rule on one metric and route, from its first breach until it is over and forgotten."""

    rule: Rule
    metric: str
    route: str | None
    status: Literal["pending", "firing", "resolved"]
    since: float
    """When it came to be so, in seconds since 1970."""
    calm: float | None = None
    """Since when a firing alert is well again without a break; None: it is not."""
    told: bool = False
    """Whether the outside was told that it fires, and not yet that it resolved."""
    last: float | None = None
    """When the outside was last told."""
    acknowledged: str | None = None
    """By whom; None: by nobody."""
    value: float | None = None
    traces: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What tells it from other alerts."""
        return (self.rule.name, self.metric, self.route or "")


class Silence(Struct, frozen=True, kw_only=True):
    """Alerts of which nothing is sent for a while."""

    until: float
    rule: str | None = None
    """None: of every rule."""
    metric: str | None = None
    route: str | None = None

    def covers(self, alarm: Alarm) -> bool:
        """Whether an alert is meant."""
        return (
            self.rule in (None, alarm.rule.name)
            and self.metric in (None, alarm.metric)
            and self.route in (None, alarm.route)
        )


class State(Struct, frozen=True, kw_only=True):
    """All alerts that are not over, and all silences; it can be stored as JSON and read again."""

    alarms: tuple[Alarm, ...] = ()
    """Ordered by rule, metric and route."""
    silences: tuple[Silence, ...] = ()

    @property
    def firing(self) -> tuple[Alarm, ...]:
        """The alerts that fire."""
        return tuple(alarm for alarm in self.alarms if alarm.status == "firing")


class Event(Struct, frozen=True, kw_only=True):
    """Something to send: an alert began to fire, still does, or resolved."""

    kind: Literal["firing", "reminder", "resolved"]
    time: float
    rule: str
    severity: str
    metric: str
    route: str | None
    since: float
    """When the alert began to fire, or resolved."""
    value: float | None
    traces: tuple[str, ...] = ()


def step(state: State, readings: Iterable[Reading], now: float) -> tuple[State, tuple[Event, ...]]:
    """Take in what the rules see, and say what is to be sent.

    A breach makes an alert pending, and firing once it has lasted as long as the rule asks, unless the alert resolved
    less than the rule's cooldown ago. A firing alert resolves once it has been well (beyond the limit by the rule's
    hysteresis) for as long; between breach and well it stays as it is, and so it does where there are too few values
    to say. The outside is told of what changed since it was last told, and of nothing that is silenced; what was
    silenced is told when the silence ends, if it is still so. Time must not run backwards.

    >>> rule = Rule(name="low", metric="m", below=0.5)
    >>> bad = Reading(rule=rule, metric="m", route=None, value=0.4, breach=True)
    >>> good = Reading(rule=rule, metric="m", route=None, value=0.6, well=True)
    >>> state, events = step(State(), [bad], 60)
    >>> state, again = step(state, [bad], 120)
    >>> state, last = step(state, [good], 180)
    >>> [event.kind for event in (*events, *again, *last)]
    ['firing', 'resolved']
    """
    silences = tuple(each for each in state.silences if each.until > now)
    alarms = {alarm.key: alarm for alarm in state.alarms}
    for reading in readings:
        key = (reading.rule.name, reading.metric, reading.route or "")
        moved = _moved(alarms.pop(key, None), reading, now)
        if moved is not None:
            alarms[key] = moved
    kept, events = [], []
    for key in sorted(alarms):
        alarm, event = _reported(alarms[key], any(each.covers(alarms[key]) for each in silences), now)
        if event is not None:
            events.append(event)
        if alarm.status != "resolved" or alarm.told or now < alarm.since + 60 * alarm.rule.cooldown:
            kept.append(alarm)
    return State(alarms=tuple(kept), silences=silences), tuple(events)


def _moved(alarm: Alarm | None, reading: Reading, now: float) -> Alarm | None:
    """Where an alert goes with one reading; None: there is none."""
    if reading.value is None:
        return alarm and replace(alarm, calm=None)
    if reading.breach:
        return _worse(alarm, reading, now)
    if alarm is None or alarm.status == "pending":
        return _rested(alarm)
    if alarm.status == "resolved" or not reading.well:
        return replace(alarm, calm=None)
    calm = now if alarm.calm is None else alarm.calm
    if now - calm >= 60 * reading.rule.lasting:
        return replace(alarm, status="resolved", since=now, calm=None, acknowledged=None, value=reading.value)
    return replace(alarm, calm=calm, value=reading.value)


def _rested(alarm: Alarm | None) -> Alarm | None:
    """What is left of a pending alert that is no longer beyond its limit: what the outside still is to be told."""
    if alarm is None or not alarm.told:
        return None
    return replace(alarm, status="resolved")


def _worse(alarm: Alarm | None, reading: Reading, now: float) -> Alarm:
    """A breach: pending, then firing."""
    found = {"value": reading.value, "traces": reading.traces, "calm": None, "rule": reading.rule}
    if alarm is not None and alarm.status == "firing":
        return replace(alarm, **found)
    if alarm is not None and alarm.status == "resolved" and now < alarm.since + 60 * alarm.rule.cooldown:
        return alarm
    if alarm is None:
        alarm = Alarm(
            rule=reading.rule, metric=reading.metric, route=reading.route, status="pending", since=now
        )
    elif alarm.status == "resolved":
        alarm = replace(alarm, status="pending", since=now)
    if now - alarm.since >= 60 * reading.rule.lasting:
        alarm = replace(alarm, status="firing", since=now)
    return replace(alarm, **found)


def _reported(alarm: Alarm, silent: bool, now: float) -> tuple[Alarm, Event | None]:
    """Tell the outside what it does not know yet, unless that is silenced."""
    fires = alarm.status == "firing"
    again = alarm.rule.repeat is not None and alarm.acknowledged is None and alarm.told and fires
    kind: Literal["firing", "reminder", "resolved"] | None = None
    if fires != alarm.told and alarm.status != "pending":
        kind = "firing" if fires else "resolved"
    elif again and now - (alarm.last or alarm.since) >= 60 * (alarm.rule.repeat or 0):
        kind = "reminder"
    if kind is None or silent:
        return alarm, None
    event = Event(
        kind=kind,
        time=now,
        rule=alarm.rule.name,
        severity=alarm.rule.severity,
        metric=alarm.metric,
        route=alarm.route,
        since=alarm.since,
        value=alarm.value,
        traces=alarm.traces,
    )
    return replace(alarm, told=fires, last=now), event


def silence(
    state: State,
    until: float,
    *,
    rule: str | None = None,
    metric: str | None = None,
    route: str | None = None,
) -> State:
    """Send nothing of some alerts until a time; of all of them, where nothing is named.

    >>> silence(State(), 3600.0, rule="low").silences[0].until
    3600.0
    """
    added = Silence(until=until, rule=rule, metric=metric, route=route)
    return replace(state, silences=(*state.silences, added))


def unsilence(state: State) -> State:
    """End every silence; what it held back is told at the next step."""
    return replace(state, silences=())


def acknowledge(
    state: State, by: str, *, rule: str, metric: str | None = None, route: str | None = None
) -> State:
    """Somebody has seen the firing alerts of a rule: no reminder is sent until they have resolved.

    >>> rule = Rule(name="low", metric="m", below=0.5, repeat=10)
    >>> bad = Reading(rule=rule, metric="m", route=None, value=0.4, breach=True)
    >>> state = acknowledge(step(State(), [bad], 0.0)[0], "ann", rule="low")
    >>> step(state, [bad], 3600.0)[1]
    ()
    """
    seen = Silence(until=0.0, rule=rule, metric=metric, route=route)
    return replace(
        state,
        alarms=tuple(
            replace(alarm, acknowledged=by) if alarm.status == "firing" and seen.covers(alarm) else alarm
            for alarm in state.alarms
        ),
    )
