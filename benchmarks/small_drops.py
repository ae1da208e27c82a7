"""Measure the evidence of a drop of 10 points in sparse traffic within six hours, and in two weeks without a change.

    python -m benchmarks.small_drops [--seeds 40] [--power]

With `--power`: how many drops the rules detect within six hours, after references of one, two and seven days, and the
most that any test can detect that keeps the promised rates.

Values of one route, 0.3 a minute on average, fewer by night, with a standard deviation of 15 points, after a reference
of a day. A drop is detected where the log evidence of the sequential test reaches its threshold.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES
from ragfault.apps.watch.monitoring.change_detection import (
    FAILURE_RATE,
    FALSE_ALARM_RATE,
    MONTH_MINUTES,
    advance_test,
    log_threshold,
    measure_reference,
    start_test,
)
from ragfault.apps.watch.monitoring.noise import HISTORY_MINUTES, MIN_FAILURES
from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
from ragfault.apps.watch.monitoring.rule_evaluation import RULE_RATE, RuleContext, evaluate_rules
from ragfault.apps.watch.monitoring.windows import MetricSeries, build_series
from ragfault.io.runs.run import MetricInfo
from ragfault.stats.distributions import normal_cdf, normal_quantile

METRIC = MetricInfo("context_relevance", "retrieval")
DAY = 1440
FAULT = 60 * 60, 66 * 60
LATE_FAULT = 228 * 60, 234 * 60
TRACES = 67  # of a route in the six hours of a fault


def draw_series(seed: int, minutes: int, has_fault: bool, fault: tuple[int, int] = FAULT) -> MetricSeries:
    """Draw the values of a route, with a drop of 10 points from Wednesday noon on where asked."""
    rng = np.random.default_rng(seed)
    observations = []
    for minute in range(minutes):
        level = 0.7 if has_fault and fault[0] <= minute < fault[1] else 0.8
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


def is_detected(seed: int, days: int) -> bool:
    """Return whether a rule is breached within a drop after a reference of some days."""
    fault = FAULT if days < 3 else LATE_FAULT
    series = draw_series(seed, fault[1], True, fault)
    period = measure_reference((METRIC.name, None), series.between(0, days * DAY), METRIC)
    assert period is not None
    rules = [rule for rule in DEFAULT_RULES if rule.name in ("ROLLING_DROP", "ROLLING_FALL")]
    return any(
        reading.breach
        for until in range(fault[0] + 10, fault[1] + 1, 10)
        for reading in evaluate_rules(
            rules,
            {(METRIC.name, None, None): series.between(until - HISTORY_MINUTES, until)},
            {METRIC.name: METRIC},
            until,
            RuleContext((), {(METRIC.name, None): period}),
        )
    )


def print_power(seeds: range) -> None:
    """Print how many drops the rules detect, and the most that tests can which know onset, usual level and noise."""
    for days in (1, 2, 7):
        detected = sum(is_detected(seed, days) for seed in seeds)
        print(f"10 points lower: {detected} of {len(seeds)} detected by the rules, reference of {days} d", flush=True)
    least = normal_quantile(1 - RULE_RATE * 360 / MONTH_MINUTES)
    effect = 0.1 / (0.15 * math.sqrt(1 / TRACES + 1 / 432))
    print(f"at most, by a test of independent values on {TRACES} and 432: {normal_cdf(effect - least):.0%}")
    chance = FALSE_ALARM_RATE * FAILURE_RATE * 360 / MONTH_MINUTES
    for count in range(3, MIN_FAILURES + 1):
        p = [sum(compute_binomial(TRACES, at, share) for at in range(count, TRACES + 1)) for share in (0.004, 0.1)]
        print(f"{count} or more failures of {TRACES}: {p[0]:.1e} at .4 % ({chance:.1e} asked), {p[1]:.0%} at 10 %")


def compute_binomial(size: int, count: int, share: float) -> float:
    """Return the probability of so many failures."""
    return math.comb(size, count) * share**count * (1 - share) ** (size - count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--power", action="store_true")
    options = parser.parse_args()
    seeds = range(options.seeds)
    if options.power:
        print_power(seeds)
        return
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
