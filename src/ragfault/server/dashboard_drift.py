"""How far live traffic has moved from a set that a system was evaluated on: one of the runs of the store."""

from __future__ import annotations

import math

from msgspec import Struct

from ragfault.findings.monitoring_drift import Drift, drift
from ragfault.findings.monitoring_windows import series
from ragfault.server.dashboard_views import last_judge, run_at
from ragfault.server.desk import Desk
from ragfault.store import Wanted

__all__ = ["LATEST", "Drifted", "drifted"]

LATEST = 1000
"""Live queries whose words are looked at, the latest of the window."""

POINTS = 240
"""Into how many stretches a window is cut at most."""

CUT = 300
"""Characters of a query that a list of traces holds; a longer one is read whole."""


class Drifted(Struct, frozen=True, kw_only=True):
    """Live traffic beside the set that a system was evaluated on."""

    now: float
    window: int
    """Minutes, up to now."""
    route: str | None
    """None: all routes; the empty text: traces that name none."""
    run: str
    judges: tuple[str | None, str | None]
    """Who judged the run, and who judged the live trace that was judged last: of two judges, figures differ."""
    drift: Drift


def drifted(desk: Desk, run: str, route: str | None, window: int) -> Drifted:
    """Hold the traffic of the last `window` minutes against a run of the folder of the store.

    Raises UnknownName for a run that is not there, UsageError where the two share no metric with a value.
    """
    now, held = desk.now(), run_at(desk, run)
    until = math.floor(now / 60) + 1
    live = series(desk.store.rollups(until - window, until, route=route, grain=max(1, window // POINTS)))
    measures = {measure.name: measure for measure in desk.store.measures()}
    asked = _queries(desk, Wanted(since=60.0 * (until - window), route=route, limit=LATEST))
    return Drifted(
        now=now,
        window=window,
        route=route,
        run=run,
        judges=(held.manifest.judge, last_judge(desk)),
        drift=drift(held, live, measures, asked),
    )


def _queries(desk: Desk, wanted: Wanted) -> list[str]:
    """The queries of a page of traces, each whole."""
    found = []
    for line in desk.store.find(wanted).lines:
        whole = desk.store.trace(line.id) if len(line.query) >= CUT else None
        found.append(line.query if whole is None else whole.trace.query)
    return found
