"""Detection of a share of failing traces that rises in sparse traffic, and false alarms where it does not.

    python -m benchmarks.failing_shares [--months 40] [--faults 100]

Both tests of `monitor` and `serve` after a reference of one day: the sequential one, and that of rises. A fault begins
60 hours after the traffic and lasts for six. Traffic is Poisson; by day and night it is up to 60 % more or less.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from ragfault.apps.watch.monitoring.change_detection import detect_drops, measure_reference
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries
from ragfault.io.runs.run import MetricInfo

ERROR = MetricInfo("error", "operation", "lower", 0.0, 1.0)
MONDAY = 31_666_680 // 10_080 * 10_080 + 4 * DAY_MINUTES
FAULT_MINUTES = 60 * 60, 66 * 60

Floats = np.ndarray
ShareFunction = Callable[[Floats, np.random.Generator], Floats]


def draw_series(rng: np.random.Generator, rates: Floats, share: Floats) -> MetricSeries:
    """Draw the traces of each minute by its rate, and how many of them fail by its share."""
    counts = rng.poisson(rates)
    failed = rng.binomial(counts, share)
    minutes = np.flatnonzero(counts)
    counts, failed = counts[minutes].astype(float), failed[minutes].astype(float)
    size = len(minutes)
    empty = np.zeros((size, 0), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    return MetricSeries(MONDAY + minutes, counts, failed, failed, *empty)


def detect_rises(series: MetricSeries) -> list[int]:
    """Return the minutes since the beginning at which a rise of the failing share is detected."""
    period = measure_reference(("error", None), series.between(0, MONDAY + DAY_MINUTES), ERROR)
    return [] if period is None else [drop.detected_at - MONDAY for drop in detect_drops(series, period)]


def vary_by_day(minutes: Floats) -> Floats:
    """Return the factor of the traffic at each minute: a sine over the day."""
    return 1 + 0.6 * np.sin(2 * np.pi * minutes / DAY_MINUTES)


def make_constant_share(share: float) -> ShareFunction:
    """Return a function that gives every minute the same share."""
    return lambda minutes, _: np.full(len(minutes), share)


def raise_at_night(minutes: Floats, _: np.random.Generator) -> Floats:
    """Return shares of 15 % from two to four o'clock, else 0.4 %."""
    hours = minutes % DAY_MINUTES // 60
    return np.where((hours >= 2) & (hours < 4), 0.15, 0.004)


def draw_hourly_shares(minutes: Floats, rng: np.random.Generator) -> Floats:
    """Draw a share for each hour from an exponential distribution with mean 1 %, at most 50 %."""
    return np.minimum(rng.exponential(0.01, int(minutes[-1]) // 60 + 1), 0.5)[minutes // 60]


SHARE_FUNCTIONS = {
    "0.4 %": make_constant_share(0.004),
    "2 %": make_constant_share(0.02),
    "5 %": make_constant_share(0.05),
    "15 % from 2 to 4 h, else 0.4 %": raise_at_night,
    "exponential by the hour, 1 % on average": draw_hourly_shares,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=40)
    parser.add_argument("--faults", type=int, default=100)
    options = parser.parse_args()
    minutes = np.arange(FAULT_MINUTES[1])
    for usual_share in (0.001, 0.004):
        for share in (0.07, 0.1, 0.15, 0.2):
            for name, volume in (("constant", np.ones(len(minutes))), ("falling", vary_by_day(minutes))):
                rng, delays = np.random.default_rng(0), []
                for _ in range(options.faults):
                    detections = detect_rises(
                        draw_series(rng, 0.3 * volume, np.where(minutes >= FAULT_MINUTES[0], share, usual_share))
                    )
                    delays += [minute - FAULT_MINUTES[0] for minute in detections if minute >= FAULT_MINUTES[0]][:1]
                print(
                    f"{usual_share:.1%} to {share:.0%}, "
                    f"{0.3 * volume[FAULT_MINUTES[0] :].sum():.0f} traces in 6 h, {name} traffic:"
                    f" {len(delays)} of {options.faults} detected, median of these {np.median(delays or [0]):.0f} min",
                    flush=True,
                )
    minutes = np.arange(30 * DAY_MINUTES)
    for name, level in SHARE_FUNCTIONS.items():
        for rate in (0.1, 0.15, 0.3, 1.0):
            rng = np.random.default_rng(1)
            months = [
                detect_rises(draw_series(rng, rate * vary_by_day(minutes), level(minutes, rng)))
                for _ in range(options.months)
            ]
            print(
                f"{name}, {rate:g} a minute: {sum(map(len, months))} false alarms in {options.months} months",
                flush=True,
            )


if __name__ == "__main__":
    main()
