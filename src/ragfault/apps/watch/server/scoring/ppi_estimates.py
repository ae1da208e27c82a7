"""Prediction-powered estimates of metric means from the spot checks of a sample.

The mean of the judge of every trace is corrected by the stronger one (`stats.ppi`): each check is weighted by the
inverse of the probability with which its trace was drawn, and the turns of a conversation are one cluster.

Traces that were drawn but not checked, because the budget of the day was spent or the judge is behind, are not missing
at random (the evening, or the long ones). An estimate therefore covers only traffic in which every draw is settled: of
each day (UTC, by arrival) the traces before the first unsettled draw. That a trace is before it depends on the traces
before that one and not on its own check, so that the probabilities hold; `covered` is the share of this traffic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.windows import DAY_MINUTES
from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.scoring.spot_checks import SpotChecker, SpotCheckProgress
from ragfault.apps.watch.server.storage.records import SpotCheckSample
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.io.runs.run import MetricInfo
from ragfault.labels.correction import LabelValues, correct_mean
from ragfault.stats.ppi import UnlabeledSums

log = logging.getLogger("ragfault.server")

# least seconds between two readings of the progress
POLL_SECONDS = 1.0
# least seconds between two refreshes of all estimates
REFRESH_SECONDS = 10.0
# largest share of the time that refreshes may take
MAX_TIME_SHARE = 0.1
# seconds for which an estimate over another window is cached
CACHE_SECONDS = 30.0


class PpiEstimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mean of a metric on a route by the stronger judge, estimated from its sample, or the reason why there is none."""

    judge: str
    """The fingerprint of the stronger judge."""
    checks: int = 0
    """Traces with a value by both judges."""
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    """Limits of the 95 % interval of the mean."""
    gain: float | None = None
    """Width of the interval relative to that of the checks alone; below 1 where the judge of every trace helps."""
    covered: float = 0.0
    """Share of the scored traces that the estimate covers: those before the first unsettled draw of a day."""
    failed: int = 0
    """Checks without a value."""
    dollars: float | None = None
    """US$ spent on the checks; None: the price is unknown."""
    reason: str | None = None
    """Reason of a missing mean."""


def estimate_ppi(sample: SpotCheckSample, measure: MetricInfo, judge: str) -> PpiEstimate:
    """Estimate a mean from a sample."""
    known = np.isfinite(sample.reference_values)
    costs = sample.cost[known]
    estimate = PpiEstimate(
        judge=judge,
        checks=int(known.sum()),
        covered=round(sample.covered / sample.scored, 4) if sample.scored else 0.0,
        failed=sample.failed,
        dollars=None if np.isnan(costs).any() else round(float(costs.sum()), 9),
    )
    corrected = correct_mean(
        sample.base_values,
        LabelValues(sample.reference_values, sample.chance),
        _number_conversations(sample.conversation),
        measure,
        UnlabeledSums(*sample.remainder),
    )
    if corrected is None or corrected.interval is None:
        reason = "no checks yet" if corrected is None else str(corrected.reason).replace("label", "check")
        return replace(estimate, reason=reason)
    mean = corrected.interval
    return replace(estimate, mean=mean.mean, low=mean.low, high=mean.high, gain=corrected.width_ratio)


def _number_conversations(codes: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """Assign numbers to traces, the same to all turns of a conversation; None without turns."""
    inside = codes != 0
    if not inside.any():
        return None
    numbers = np.arange(codes.size, dtype=np.int64)
    _, inverse = np.unique(codes[inside], return_inverse=True)
    numbers[inside] = codes.size + inverse
    _, dense = np.unique(numbers, return_inverse=True)
    return dense.astype(np.int64)


class PpiEstimator(BackgroundThread):
    """Thread that refreshes the estimates of the last day, so that readers never wait for them."""

    def __init__(self, store: TraceStore, checker: SpotChecker, now: Callable[[], float]) -> None:
        self._store, self._checker, self._clock = store, checker, now
        self._daily: dict[tuple[str, str], PpiEstimate] = {}
        self._window_cache: dict[tuple[str, int, str | None], tuple[float, Mapping[str, PpiEstimate]]] = {}
        self._progress: SpotCheckProgress | None = None
        super().__init__("ragfault-estimates")

    @property
    def progress(self) -> SpotCheckProgress:
        """The progress of the spot checks at the last poll."""
        return self._progress or self._checker.progress()

    def get_daily(self, metric: str, route: str | None) -> PpiEstimate | None:
        """Return the latest estimate over a day; None for a metric without verdicts."""
        return self._daily.get((metric, route or ""))

    def list_daily(self) -> Sequence[tuple[tuple[str, str], PpiEstimate]]:
        """List the latest estimates over a day by metric and route."""
        return sorted(self._daily.items())

    def estimate_window(self, metric: str, window: int, route: str | None = None) -> Mapping[str, PpiEstimate]:
        """Estimate a metric by route over the last minutes; cached for CACHE_SECONDS."""
        key, now = (metric, window, route), time.monotonic()
        computed_at, estimates = self._window_cache.get(key, (-CACHE_SECONDS, {}))
        if now - computed_at >= CACHE_SECONDS:
            estimates = {name: estimate for (_, name), estimate in self._compute(window, metric, route).items()}
            recent = {
                name: estimate for name, estimate in self._window_cache.items() if now - estimate[0] < CACHE_SECONDS
            }
            self._window_cache = recent | {key: (now, estimates)}
        return estimates

    def refresh_daily(self) -> None:
        """Recompute all estimates of the last day."""
        self._daily = self._compute(DAY_MINUTES)

    def _compute(
        self, window: int, metric: str | None = None, route: str | None = None
    ) -> dict[tuple[str, str], PpiEstimate]:
        judge, until = self._checker.fingerprint, 60.0 * (self._clock() // 60 + 1)
        known = {measure.name: measure for measure in self._store.read_measures()}
        return {
            (sample.metric, sample.route): estimate_ppi(sample, known[sample.metric], judge)
            for sample in self._checker.check_store.read_samples(judge, until - 60 * window, until, metric, route)
            if sample.metric in self._checker.metrics
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
                    due = began + max(REFRESH_SECONDS, took / MAX_TIME_SHARE if self._daily else REFRESH_SECONDS)
            except Exception:
                # a failure is logged, and retried the next time
                log.exception("the estimates could not be made")
                pause = REFRESH_SECONDS
