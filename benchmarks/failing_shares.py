"""Detection of a share of failing traces that rises in sparse traffic, and false alarms where it does not.

    python -m benchmarks.failing_shares [--months 40] [--faults 100]

Both tests of `monitor` and `serve` after a reference of one day: the sequential one, and that of rises. A fault begins
60 hours after the traffic and lasts for six. Traffic is Poisson; by day and night it is up to 60 % more or less.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from ragfault.analysis.monitoring.change_detection import detect_drops, measure_reference
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries
from ragfault.io.runs import MetricInfo

ERROR = MetricInfo("error", "operation", "lower", 0.0, 1.0)
MONDAY = 31_666_680 // 10_080 * 10_080 + 4 * DAY_MINUTES
FAULT = 60 * 60, 66 * 60

Floats = np.ndarray
Level = Callable[[Floats, np.random.Generator], Floats]


def draw(rng: np.random.Generator, traffic: Floats, share: Floats) -> MetricSeries:
    """Draw traces by minute, and how many fail."""
    n = rng.poisson(traffic)
    failed = rng.binomial(n, share)
    minutes = np.flatnonzero(n)
    n, failed = n[minutes].astype(float), failed[minutes].astype(float)
    size = len(minutes)
    none = np.zeros((size, 0), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    return MetricSeries(MONDAY + minutes, n, failed, failed, *none)


def detect(series: MetricSeries) -> list[int]:
    """Return the minutes since the beginning at which a rise is detected."""
    period = measure_reference(("error", None), series.between(0, MONDAY + DAY_MINUTES), ERROR)
    return [] if period is None else [drop.detected_at - MONDAY for drop in detect_drops(series, period)]


def by_day(minutes: Floats) -> Floats:
    return 1 + 0.6 * np.sin(2 * np.pi * minutes / DAY_MINUTES)


def constant(share: float) -> Level:
    return lambda minutes, _: np.full(len(minutes), share)


def each_night(minutes: Floats, _: np.random.Generator) -> Floats:
    hours = minutes % DAY_MINUTES // 60
    return np.where((hours >= 2) & (hours < 4), 0.15, 0.004)


def by_hour(minutes: Floats, rng: np.random.Generator) -> Floats:
    return np.minimum(rng.exponential(0.01, int(minutes[-1]) // 60 + 1), 0.5)[minutes // 60]


SHARES = {
    "0.4 %": constant(0.004), "2 %": constant(0.02), "5 %": constant(0.05),
    "15 % from 2 to 4 h, else 0.4 %": each_night, "exponential by the hour, 1 % on average": by_hour,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=40)
    parser.add_argument("--faults", type=int, default=100)
    given = parser.parse_args()
    minutes = np.arange(FAULT[1])
    for usual in (0.001, 0.004):
        for share in (0.07, 0.1, 0.15, 0.2):
            for name, volume in (("constant", np.ones(len(minutes))), ("falling", by_day(minutes))):
                rng, delays = np.random.default_rng(0), []
                for _ in range(given.faults):
                    called = detect(draw(rng, 0.3 * volume, np.where(minutes >= FAULT[0], share, usual)))
                    delays += [at - FAULT[0] for at in called if at >= FAULT[0]][:1]
                print(
                    f"{usual:.1%} to {share:.0%}, {0.3 * volume[FAULT[0] :].sum():.0f} traces in 6 h, {name} traffic:"
                    f" {len(delays)} of {given.faults} detected, median of these {np.median(delays or [0]):.0f} min",
                    flush=True,
                )
    minutes = np.arange(30 * DAY_MINUTES)
    for name, level in SHARES.items():
        for rate in (0.1, 0.15, 0.3, 1.0):
            rng = np.random.default_rng(1)
            months = [detect(draw(rng, rate * by_day(minutes), level(minutes, rng))) for _ in range(given.months)]
            print(
                f"{name}, {rate:g} a minute: {sum(map(len, months))} false alarms in {given.months} months", flush=True
            )


if __name__ == "__main__":
    main()
