"""How much a judge differs from itself on the same trace, and what that adds to an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import UsageError
from ragfault.model.whole_files import read_record
from ragfault.stats.distributions import t_quantile
from ragfault.stats.estimates import Difference


class MetricFlakiness(Struct, frozen=True, kw_only=True):
    """Spread of a metric when the same judge judges the same traces again."""

    metric: str
    # traces that have a value in every repeat
    n: int
    # the standard deviation within a trace, over repeats
    deviation: float
    # the standard deviation of the mean of a whole repeat beyond what the traces by themselves make
    drift: float
    # the share of traces whose value is not the same in all repeats
    flips: float
    reliability: float | None
    """The intraclass correlation: the share of the variance that is between traces; None where there is no variance."""


class JudgeFlakiness(Struct, frozen=True, kw_only=True):
    """Flakiness of a judge, metric by metric."""

    # its fingerprint
    judge: str
    repeats: int
    traces: int
    metrics: tuple[MetricFlakiness, ...]

    @property
    def deterministic(self) -> bool:
        """Return whether no metric moved at all."""
        return not any(metric.flips for metric in self.metrics)


def measure_flakiness(metric: str, values: NDArray[np.float64]) -> MetricFlakiness:
    """Measure the spread of a metric from its values, traces × repeats (at least two of each).

    The within-trace variance is the mean over traces of their sample variance; the intraclass correlation that of
    one-way analysis of variance (Shrout & Fleiss 1979, ICC(1,1)), not below 0. The squared drift is the component of
    repeats in the two-way analysis: the variance of their means less that which the rest of the values makes.

    >>> measure_flakiness("refusal", np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])).flips
    0.25
    """
    n, k = values.shape
    within = float(values.var(axis=1, ddof=1).mean())
    between = k * float(values.mean(axis=1).var(ddof=1)) if n > 1 else 0.0
    total = between + (k - 1) * within
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    alone = float((rest**2).sum()) / max(1, (n - 1) * (k - 1))
    drift = float(values.mean(axis=0).var(ddof=1)) - alone / n if n > 1 else 0.0
    return MetricFlakiness(
        metric=metric,
        n=n,
        deviation=math.sqrt(within),
        drift=math.sqrt(max(0.0, drift)),
        flips=float((np.ptp(values, axis=1) > 0).mean()),
        reliability=max(0.0, (between - within) / total) if total > 0 else None,
    )


def load_flakiness(path: str | Path) -> JudgeFlakiness:
    """Load the output of `ragfault judge repeat`. Raises InputError where it cannot be read."""
    return read_record(path, JudgeFlakiness, "the output of ragfault judge repeat -o")


def check_judge(flakiness: JudgeFlakiness, judges: Sequence[str]) -> JudgeFlakiness:
    """Return the flakiness if it is that of the runs' judges. Raises UsageError where it is not."""
    other = next((judge for judge in judges if judge != flakiness.judge), None)
    if other is not None:
        raise UsageError(
            f"the flakiness was measured for {flakiness.judge}, but a run was judged by {other}. Measure that judge: "
            "ragfault judge repeat TRACES -o FILE"
        )
    return flakiness


def widen_intervals(
    differences: Sequence[Difference | None], measures: Sequence[MetricInfo], flakiness: JudgeFlakiness | None
) -> list[Difference | None]:
    """Widen the intervals of differences by the drift of the judge between whole runs.

    Noise within a trace is in the spread of the paired differences already. A shift that all traces of a run share is
    not: it adds twice the squared drift, with Satterthwaite's degrees of freedom. An interval is stretched about its
    mean by as much as Student's is, and is never narrower.
    """
    if flakiness is None:
        return list(differences)
    known = {metric.metric: metric.drift for metric in flakiness.metrics}
    return [
        difference
        if difference is None
        else _widen(difference, known.get(measure.name, 0.0), flakiness.repeats - 1, measure)
        for difference, measure in zip(differences, measures, strict=True)
    ]


def _widen(difference: Difference, drift: float, df: int, measure: MetricInfo) -> Difference:
    if not drift or not math.isfinite(difference.error):
        return difference
    own, extra = difference.error**2, 2 * drift**2
    error = math.sqrt(own + extra)
    spread = own**2 / max(difference.df, 1.0) + extra**2 / df
    freedom = (own + extra) ** 2 / spread
    stretch = t_quantile(0.975, freedom) * error
    before = t_quantile(0.975, max(difference.df, 1.0)) * difference.error
    factor = max(1.0, stretch / before) if before > 0 else math.inf
    reach = math.inf if measure.low is None or measure.high is None else measure.high - measure.low
    low, high = (
        difference.mean - factor * (difference.mean - difference.low),
        difference.mean + factor * (difference.high - difference.mean),
    )
    if not before:
        low, high = difference.mean - stretch, difference.mean + stretch
    return msgspec.structs.replace(difference, low=max(-reach, low), high=min(reach, high), error=error, df=freedom)
