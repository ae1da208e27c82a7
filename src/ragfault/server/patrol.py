"""The patrol: each minute roll-ups are looked at, drops called, alerts moved on and sent, and old traces forgotten."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec

from ragfault.findings.alerting import Event as Told
from ragfault.findings.alerting import step
from ragfault.findings.alerting_rules import RULES, Reading, load_rules, readings
from ragfault.findings.changes import Fault
from ragfault.findings.monitoring_detecting import RATE
from ragfault.findings.monitoring_windows import DAY, Key, Series, series
from ragfault.runs import Measure
from ragfault.server.desk import ALARMS, Desk
from ragfault.server.notices import Notice
from ragfault.server.sending import Sender
from ragfault.server.vigil import Called, Vigil, beat, fault, opened, packed
from ragfault.store import Event
from ragfault.store.counting import moment

__all__ = ["VIGIL", "Patrol"]

log = logging.getLogger("ragfault.server")

EVERY = 60.0
"""Seconds between rounds, by the clock of the desk."""
LOOK = 0.25
"""Seconds between looks at that clock."""
FINE = 240
"""Minutes that are read one by one; older ones in stretches of `COARSE`."""
COARSE = 15
VIGIL = "vigil"
"""The setting that holds the state of the sequential tests."""
CLEARING = 60
"""Rounds between two times that old traces are forgotten."""

Known = Mapping[str, Measure]
Traces = tuple[str, ...]
Blame = Callable[[str | None, int, int], Fault | None]


class Patrol:
    """A thread that makes its rounds while the server runs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rules = RULES if desk.settings.rules is None else load_rules(desk.settings.rules)
        self._sender = Sender(desk.settings, desk.tallies, self._sent)
        self._rounds = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-patrol", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._sender.start()
        self._thread.start()

    def close(self) -> None:
        """End after the round that is under way; what is to be sent is tried once more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sender.close()

    def round(self) -> tuple[Notice, ...]:
        """Look at everything once; what is to be sent."""
        desk = self._desk
        desk.tallies.flush()
        desk.store.tidy().result()
        if self._rounds % CLEARING == 0:
            self._forget()
        self._rounds += 1
        now = desk.now()
        with desk.alarming:
            notices = self._look(now, math.floor(now / 60))
        for notice in notices:
            self._sender.send(notice)
        return notices

    # --- on the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        last = self._desk.now()
        while not self._ending.wait(LOOK):
            now = self._desk.now()
            if now - last >= EVERY:
                last = now
                try:
                    self.round()
                except Exception:  # a round that fails is told, and the next one comes
                    log.exception("a round of the patrol failed")

    def _forget(self) -> None:
        """Remove what is too old, or too much."""
        settings = self._desk.settings
        if settings.days is not None or settings.bytes is not None:
            before = None if settings.days is None else self._desk.now() - 86400 * settings.days
            gone = self._desk.store.forget(before=before, bytes=settings.bytes).result()
            self._desk.tallies.add("forgotten", gone)
            self._desk.scorers.recount()

    def _look(self, now: float, until: int) -> tuple[Notice, ...]:
        """Call drops and move the alerts on, to before a minute; both states are stored with what happened."""
        desk = self._desk
        known = {measure.name: measure for measure in desk.store.measures()}
        whole = self._series(until)
        if not whole:
            return ()
        vigil = opened(desk.store.setting(VIGIL, ""))
        vigil, called = beat(vigil, whole, known, self._settled(until), desk.settings.reference, RATE)
        open_ = [(one.metric, one.route) for one in vigil.beats.values() if one.call is not None]
        seen = readings(self._rules, whole, known, until, open_)
        before = desk.alarms()
        shown = {alarm.key: alarm.traces for alarm in before.alarms}
        state, told = step(before, [self._shown(each, until, shown) for each in seen], now)
        blame = lru_cache(partial(fault, whole, known))
        notices = tuple(self._notice(each, known, vigil, until, blame) for each in told)
        events = [*(_calling(each, now) for each in called), *(_event(each) for each in notices)]
        kept = {ALARMS: msgspec.to_builtins(state), VIGIL: packed(vigil)}
        desk.store.add_events(events, kept).result()
        return notices

    def _series(self, until: int) -> dict[Key, Series]:
        """What is held against each other: the last hours by the minute, the days before in stretches."""
        store = self._desk.store
        cut = until - max(FINE, self._desk.settings.reference + FINE)
        first = until - 2 * DAY
        old = store.rollups(min(first, cut), cut, grain=COARSE, bins=False) if first < cut else ()
        return series([*old, *store.rollups(cut, until, bins=False)])

    def _settled(self, until: int) -> int:
        """The minute before which nothing waits to be judged any more."""
        oldest = self._desk.store.unscored(limit=1)
        return min([until, *(math.floor(moment(each.trace, each.received) / 60) for each in oldest)])

    def _shown(self, reading: Reading, until: int, shown: Mapping[tuple[str, str, str], Traces]) -> Reading:
        """A breach with the traces that show it: those it was first seen with, or the worst of its window."""
        if not reading.breach:
            return reading
        traces = shown.get((reading.rule.name, reading.metric, reading.route or ""), ())
        if not traces:
            first = until - reading.rule.window
            worst = self._desk.store.worst(reading.metric, first, until, route=reading.route or "")
            traces = tuple(each.trace for each in worst)
        return msgspec.structs.replace(reading, traces=traces)

    def _notice(self, told: Told, known: Known, vigil: Vigil, until: int, blame: Blame) -> Notice:
        """What is sent of an alert: with the layer that the decision tree names."""
        beats = vigil.beats.values()
        call = next(
            (b.call for b in beats if b.call and (b.metric, b.route) == (told.metric, told.route)), None
        )
        rule = next(rule for rule in self._rules if rule.name == told.rule)
        since = call.began if call is not None else until - rule.window
        found = blame(told.route, since, until)
        return Notice(
            kind=told.kind,
            rule=told.rule,
            severity=told.severity,
            metric=told.metric,
            route=told.route,
            value=told.value,
            since=told.since,
            time=told.time,
            began=None if call is None else 60.0 * call.began,
            layer=known[told.metric].layer if found is None else found.layer,
            blamed=found is not None,
            title=None if found is None else found.title,
            suspects=() if found is None else found.suspects,
            remedies=() if found is None else found.remedies,
            traces=told.traces,
        )

    def _sent(self, notice: Notice, fault: str | None) -> None:
        """What became of a notice."""
        body: dict[str, Any] = {"notice": notice.kind} | ({} if fault is None else {"fault": fault})
        kind = "sent" if fault is None else "not sent"
        self._desk.store.add_events([Event(alert=notice.key, time=self._desk.now(), kind=kind, body=body)])


def _event(notice: Notice) -> Event:
    return Event(alert=notice.key, time=notice.time, kind=notice.kind, body=msgspec.to_builtins(notice))


def _calling(each: Called, now: float) -> Event:
    """A drop that was called, or is over, as an event."""
    alert = f"DROP/{each.metric}/{each.route or ''}"
    return Event(
        alert=alert, time=now, kind="over" if each.over else "called", body=msgspec.to_builtins(each.call)
    )
