"""Estimates: what a better judge would say of all traffic, from what it said of a sample.

The mean of the judge of every trace is put right by the better one (`stats.rectified_mean`): each check counts by the
inverse of the chance with which its trace was drawn, and the turns of a conversation go together.

Traces that were drawn and not asked about, as the money of the day was spent or the judge is behind, must not bend the
figure: what is missing then is not missing at random (it is the evening, or the long ones). So an estimate speaks only
of the traffic in which every draw is settled: of each day (UTC, by arrival) the traces before the first draw that is
not. Whether a trace is before it follows from the traces before that one, not from what the better judge says of it,
so that within this part the chances are what they were; `covered` says how large a part of the traffic it is. Nothing
is said of the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.findings.monitoring_windows import DAY
from ragfault.findings.rectifying import Said, rectified
from ragfault.runs import Measure
from ragfault.server.checking import Checker, Progress
from ragfault.stats import Rest
from ragfault.store import Sample, Store

__all__ = ["Estimate", "Estimates", "estimate"]

log = logging.getLogger("ragfault.server")

LOOK = 1.0
"""Seconds between two looks at how checking goes, at the least."""
EVERY = 10.0
"""Seconds between two times that all estimates are made, at the least …"""
SHARE = 0.1
"""… and no more of the time than this."""
KEPT = 30.0
"""Seconds for which an estimate over another window is as good as new."""


class Estimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mean of a metric on a route by a better judge, from its checks on a sample, or why there is none."""

    judge: str
    """The fingerprint of the better judge."""
    checks: int = 0
    """Traces with a value by both judges."""
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the mean."""
    gain: float | None = None
    """The width of the interval against that of the checks alone, below 1 where the judge of every trace helps."""
    covered: float = 0.0
    """The share of the scored traces that it speaks of: those before the first draw of a day that is not settled."""
    failed: int = 0
    """Checks that gave no value, as the better judge failed or found none."""
    dollars: float | None = None
    """US$ that the checks came to; None: their price is not known."""
    reason: str | None = None
    """Why there is no mean."""


def estimate(sample: Sample, measure: Measure, judge: str) -> Estimate:
    """The estimate from a sample."""
    known = np.isfinite(sample.said)
    costs = sample.cost[known]
    told = Estimate(
        judge=judge,
        checks=int(known.sum()),
        covered=round(sample.covered / sample.scored, 4) if sample.scored else 0.0,
        failed=sample.failed,
        dollars=None if np.isnan(costs).any() else round(float(costs.sum()), 9),
    )
    said = Said(sample.said, sample.chance)
    found = rectified(sample.judged, said, _talks(sample.conversation), measure, Rest(*sample.rest))
    if found is None or found.interval is None:
        reason = "no checks yet" if found is None else str(found.reason).replace("label", "check")
        return _with(told, reason=reason)
    mean = found.interval
    return _with(told, mean=mean.mean, low=mean.low, high=mean.high, gain=found.gain)


def _with(told: Estimate, **more: object) -> Estimate:
    return Estimate(**({name: getattr(told, name) for name in told.__struct_fields__} | more))


def _talks(codes: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """Numbers that the turns of a conversation share and all other traces have alone; None where there are no turns."""
    inside = codes != 0
    if not inside.any():
        return None
    made = np.arange(codes.size, dtype=np.int64)
    _, found = np.unique(codes[inside], return_inverse=True)
    made[inside] = codes.size + found
    _, dense = np.unique(made, return_inverse=True)
    return dense.astype(np.int64)


class Estimates:
    """A thread that makes the estimates of the last day ever anew, so that nobody who looks waits for them."""

    def __init__(self, store: Store, checker: Checker, now: Callable[[], float]) -> None:
        self._store, self._checker, self._now = store, checker, now
        self._lately: dict[tuple[str, str], Estimate] = {}
        self._over: dict[tuple[str, int, str | None], tuple[float, Mapping[str, Estimate]]] = {}
        self._told: Progress | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-estimates", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after what is under way."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def progress(self) -> Progress:
        """How checking went a moment ago."""
        return self._told or self._checker.progress()

    def of(self, metric: str, route: str | None) -> Estimate | None:
        """The estimate over the last day, as it was made last; None for a metric that the better judge does not see."""
        return self._lately.get((metric, route or ""))

    def all(self) -> Sequence[tuple[tuple[str, str], Estimate]]:
        """All estimates of the last day by metric and route, as they were made last."""
        return sorted(self._lately.items())

    def over(self, metric: str, window: int, route: str | None = None) -> Mapping[str, Estimate]:
        """The estimates of a metric by route over the last minutes, made now or a moment ago."""
        key, now = (metric, window, route), time.monotonic()
        made, found = self._over.get(key, (-KEPT, {}))
        if now - made >= KEPT:
            found = {name: each for (_, name), each in self._made(window, metric, route).items()}
            kept = {name: each for name, each in self._over.items() if now - each[0] < KEPT}
            self._over = kept | {key: (now, found)}
        return found

    def refresh(self) -> None:
        """Make all estimates of the last day."""
        self._lately = self._made(DAY)

    def _made(
        self, window: int, metric: str | None = None, route: str | None = None
    ) -> dict[tuple[str, str], Estimate]:
        judge, until = self._checker.fingerprint, 60.0 * (self._now() // 60 + 1)
        known = {measure.name: measure for measure in self._store.measures()}
        return {
            (each.metric, each.route): estimate(each, known[each.metric], judge)
            for each in self._checker.port.sample(judge, until - 60 * window, until, metric, route)
            if each.metric in self._checker.metrics
        }

    def _work(self) -> None:
        pause = due = 0.0
        while not self._ending.wait(pause):
            began = time.monotonic()
            try:
                self._told = self._checker.progress()
                pause = max(LOOK, (time.monotonic() - began) / SHARE)
                if began >= due:
                    self.refresh()
                    took = time.monotonic() - began
                    due = began + max(EVERY, took / SHARE if self._lately else EVERY)
            except Exception:  # what fails is told, and made anew the next time
                log.exception("the estimates could not be made")
                pause = EVERY
