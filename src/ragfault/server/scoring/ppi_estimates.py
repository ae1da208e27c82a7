"""Prediction-powered estimates of metric means from the spot checks of a sample.

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

from ragfault.analysis.monitoring.windows import DAY_MINUTES
from ragfault.analysis.ppi import LabelValues, correct_mean
from ragfault.io.runs import MetricInfo
from ragfault.server.scoring.spot_checks import SpotChecker, SpotCheckProgress
from ragfault.server.storage import SpotCheckSample, TraceStore
from ragfault.stats import UnlabeledSums

log = logging.getLogger("ragfault.server")

POLL_SECONDS = 1.0
"""Seconds between two looks at how checking goes, at the least."""
REFRESH_SECONDS = 10.0
"""Seconds between two times that all estimates are made, at the least …"""
MAX_TIME_SHARE = 0.1
"""… and no more of the time than this."""
CACHE_SECONDS = 30.0
"""Seconds for which an estimate over another window is as good as new."""


class PpiEstimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
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


def estimate_ppi(sample: SpotCheckSample, measure: MetricInfo, judge: str) -> PpiEstimate:
    """The estimate from a sample."""
    known = np.isfinite(sample.reference_values)
    costs = sample.cost[known]
    told = PpiEstimate(
        judge=judge,
        checks=int(known.sum()),
        covered=round(sample.covered / sample.scored, 4) if sample.scored else 0.0,
        failed=sample.failed,
        dollars=None if np.isnan(costs).any() else round(float(costs.sum()), 9),
    )
    said = LabelValues(sample.reference_values, sample.chance)
    found = correct_mean(
        sample.base_values,
        said,
        _number_conversations(sample.conversation),
        measure,
        UnlabeledSums(*sample.remainder),
    )
    if found is None or found.interval is None:
        reason = "no checks yet" if found is None else str(found.reason).replace("label", "check")
        return _replace_fields(told, reason=reason)
    mean = found.interval
    return _replace_fields(told, mean=mean.mean, low=mean.low, high=mean.high, gain=found.width_ratio)


def _replace_fields(estimate: PpiEstimate, **more: object) -> PpiEstimate:
    return PpiEstimate(**({name: getattr(estimate, name) for name in estimate.__struct_fields__} | more))


def _number_conversations(codes: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """Numbers that the turns of a conversation share and all other traces have alone; None where there are no turns."""
    inside = codes != 0
    if not inside.any():
        return None
    made = np.arange(codes.size, dtype=np.int64)
    _, found = np.unique(codes[inside], return_inverse=True)
    made[inside] = codes.size + found
    _, dense = np.unique(made, return_inverse=True)
    return dense.astype(np.int64)


class PpiEstimator:
    """A thread that makes the estimates of the last day ever anew, so that nobody who looks waits for them."""

    def __init__(self, store: TraceStore, checker: SpotChecker, now: Callable[[], float]) -> None:
        self._store, self._checker, self._clock = store, checker, now
        self._daily: dict[tuple[str, str], PpiEstimate] = {}
        self._window_cache: dict[tuple[str, int, str | None], tuple[float, Mapping[str, PpiEstimate]]] = {}
        self._progress: SpotCheckProgress | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragfault-estimates", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after what is under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def progress(self) -> SpotCheckProgress:
        """How checking went a moment ago."""
        return self._progress or self._checker.progress()

    def get_daily(self, metric: str, route: str | None) -> PpiEstimate | None:
        """The estimate over the last day, as it was made last; None for a metric that the better judge does not see."""
        return self._daily.get((metric, route or ""))

    def list_daily(self) -> Sequence[tuple[tuple[str, str], PpiEstimate]]:
        """All estimates of the last day by metric and route, as they were made last."""
        return sorted(self._daily.items())

    def estimate_window(
        self, metric: str, window: int, route: str | None = None
    ) -> Mapping[str, PpiEstimate]:
        """The estimates of a metric by route over the last minutes, made now or a moment ago."""
        key, now = (metric, window, route), time.monotonic()
        made, found = self._window_cache.get(key, (-CACHE_SECONDS, {}))
        if now - made >= CACHE_SECONDS:
            found = {name: each for (_, name), each in self._compute(window, metric, route).items()}
            kept = {name: each for name, each in self._window_cache.items() if now - each[0] < CACHE_SECONDS}
            self._window_cache = kept | {key: (now, found)}
        return found

    def refresh_daily(self) -> None:
        """Make all estimates of the last day."""
        self._daily = self._compute(DAY_MINUTES)

    def _compute(
        self, window: int, metric: str | None = None, route: str | None = None
    ) -> dict[tuple[str, str], PpiEstimate]:
        judge, until = self._checker.fingerprint, 60.0 * (self._clock() // 60 + 1)
        known = {measure.name: measure for measure in self._store.read_measures()}
        return {
            (each.metric, each.route): estimate_ppi(each, known[each.metric], judge)
            for each in self._checker.check_store.read_samples(
                judge, until - 60 * window, until, metric, route
            )
            if each.metric in self._checker.metrics
        }

    def _run(self) -> None:
        pause = due = 0.0
        while not self._stopping.wait(pause):
            began = time.monotonic()
            try:
                self._progress = self._checker.progress()
                pause = max(POLL_SECONDS, (time.monotonic() - began) / MAX_TIME_SHARE)
                if began >= due:
                    self.refresh_daily()
                    took = time.monotonic() - began
                    due = began + max(
                        REFRESH_SECONDS, took / MAX_TIME_SHARE if self._daily else REFRESH_SECONDS
                    )
            except Exception:  # what fails is told, and made anew the next time
                log.exception("the estimates could not be made")
                pause = REFRESH_SECONDS
