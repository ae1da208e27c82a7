"""Measure the evidence of a drop of 10 points in sparse traffic within six hours, and in two weeks without a change.

    python -m benchmarks.small_drops [--seeds 40]

Values of one route, 0.3 a minute on average, fewer by night, with a standard deviation of 15 points, after a reference
of a day. A drop is detected where the log evidence of the sequential test reaches its threshold.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from ragfault.analysis.monitoring.change_detection import advance_test, log_threshold, measure_reference, start_test
from ragfault.analysis.monitoring.rollups import Observation, roll_up
from ragfault.analysis.monitoring.windows import MetricSeries, build_series
from ragfault.io.runs import MetricInfo

METRIC = MetricInfo("context_relevance", "retrieval")
DAY = 1440
FAULT = 60 * 60, 66 * 60


def draw_series(seed: int, minutes: int, has_fault: bool) -> MetricSeries:
    """Draw the values of a route, with a drop of 10 points from Wednesday noon on where asked."""
    rng = np.random.default_rng(seed)
    observations = []
    for minute in range(minutes):
        level = 0.7 if has_fault and FAULT[0] <= minute < FAULT[1] else 0.8
        for _ in range(rng.poisson(0.3 * (1 + 0.6 * math.sin(2 * math.pi * minute / DAY)))):
            value = float(np.clip(rng.normal(level, 0.15), 0, 1))
            observations.append(
                Observation(metric=METRIC.name, trace=str(len(observations)), time=60.0 * minute, value=value)
            )
    return build_series(roll_up(observations))[METRIC.name, None, None]


def measure_evidence(series: MetricSeries, first: int, last: int) -> float:
    """Return the largest log evidence at half-hours between two minutes."""
    period = measure_reference((METRIC.name, None), series.between(0, DAY), METRIC)
    assert period is not None
    test, largest = start_test(period, period.last), -math.inf
    for minute in range(DAY, last + 1, 30):
        test = advance_test(test, series.between(0, minute))
        largest = max(largest, test.log_evidence) if minute >= first else largest
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = range(parser.parse_args().seeds)
    dropped = [measure_evidence(draw_series(seed, FAULT[1], True), *FAULT) for seed in seeds]
    unchanged = [measure_evidence(draw_series(seed + 1000, 15 * DAY, False), DAY, 15 * DAY) for seed in seeds]
    for name, values in (("10 points lower, after six hours", dropped), ("two weeks without a change", unchanged)):
        shown = ", ".join(f"{value:.1f}" for value in np.quantile(values, [0.1, 0.5, 0.9, 1.0]))
        print(f"{name}: log evidence {shown} (10, 50, 90, 100 %); {log_threshold():.1f} is asked for")
    median = float(np.median(dropped))
    reached = sum(evidence >= median for evidence in unchanged)
    print(f"a threshold that half of the drops reach is reached in {reached} of {len(unchanged)} calms")


if __name__ == "__main__":
    main()
