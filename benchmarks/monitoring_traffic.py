"""Measure false alerts of the built-in rules on traffic with a season and noise, and the delays of drops.

    python -m benchmarks.monitoring_traffic
    python -m benchmarks.monitoring_traffic --months 40 --drops 0 --days 1 --rates 10 --traffic "noise 6 h"

Three metrics of 0.8 on average, of independent traffic; after a reference of 7 days (`--days`) a month follows in which
nothing changes but what the kind of traffic says: level and volume by day, lower weekends with half the volume, noise
of 3 points with a memory. A false month has one alert or more of any built-in rule on any of the metrics, evaluated
every 30 minutes. A drop comes 36 hours after the reference on one metric and stays; the delay is the median until the
first alert of any rule on it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from benchmarks.monitoring import format_minutes
from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES, AlertRule
from ragfault.apps.watch.monitoring.alerts import AlertState, advance_alerts
from ragfault.apps.watch.monitoring.change_detection import (
    MONTH_MINUTES,
    ReferencePeriod,
    detect_drops,
    measure_reference,
)
from ragfault.apps.watch.monitoring.noise import estimate_error
from ragfault.apps.watch.monitoring.rollups import BINS
from ragfault.apps.watch.monitoring.rule_evaluation import WIDER, RuleContext, evaluate_rules
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey
from ragfault.io.runs.run import MetricInfo
from ragfault.stats.bootstrap import FloatArray

METRICS = ("context_relevance", "groundedness", "answer_relevance")
CLAIMS = 4  # a trace scores the share of so many claims that hold
RULE_INTERVAL = 30  # minutes between evaluations of the rules
DROP_DELAY = 36 * 60  # minutes between the reference and a drop
MAX_DELAY = 14 * DAY_MINUTES  # for how many minutes a drop is waited for
LOOSE_ERRORS = 2.5  # of a difference that may be more than noise explains; the rules ask for more than four

MinuteMask = NDArray[np.bool_]


class TrafficKind(NamedTuple):
    """Parameters of a kind of traffic."""

    day_amplitude: float = 0.0  # amplitude of the level over the day
    volume_amplitude: float = 0.0  # amplitude of the volume over the day, as a share
    weekend_drop: float = 0.0  # by how much weekends are lower
    noise_deviation: float = 0.0  # standard deviation of the noise
    noise_memory: float = 60.0  # minutes


TRAFFIC_KINDS = {
    "constant": TrafficKind(),
    "day and night": TrafficKind(day_amplitude=0.05, volume_amplitude=0.7),
    "weekends": TrafficKind(weekend_drop=0.05),
    "noise 1 h": TrafficKind(noise_deviation=0.03, noise_memory=60),
    "noise 6 h": TrafficKind(noise_deviation=0.03, noise_memory=360),
    "noise 1 d": TrafficKind(noise_deviation=0.03, noise_memory=1440),
    "weekends, noise 6 h": TrafficKind(weekend_drop=0.05, noise_deviation=0.03, noise_memory=360),
    "day, weekends": TrafficKind(day_amplitude=0.04, volume_amplitude=0.7, weekend_drop=0.03),
    "day, weekends, noise 6 h": TrafficKind(
        day_amplitude=0.04, volume_amplitude=0.7, weekend_drop=0.03, noise_deviation=0.03, noise_memory=360
    ),
}


def simulate_series(
    rng: np.random.Generator, kind: TrafficKind, rate: float, start: int, fall: FloatArray
) -> MetricSeries:
    """Simulate minutes of one metric, which lies lower by `fall`."""
    size = len(fall)
    minutes = start + np.arange(size)
    phase = np.sin(2 * np.pi * minutes / DAY_MINUTES)
    weekend = (minutes // DAY_MINUTES + 3) % 7 >= 5
    level = 0.8 + kind.day_amplitude * phase - kind.weekend_drop * weekend - fall
    if kind.noise_deviation:
        autocorrelation = math.exp(-1 / kind.noise_memory)
        steps = rng.normal(size=size) * kind.noise_deviation * math.sqrt(1 - autocorrelation * autocorrelation)
        level = (
            level
            + lfilter(
                [1.0], [1.0, -autocorrelation], steps, zi=[autocorrelation * kind.noise_deviation * rng.normal()]
            )[0]
        )
    level = np.clip(level, 0.01, 0.99)
    n = rng.poisson(rate * (1 + kind.volume_amplitude * phase) * np.where(weekend & (kind.weekend_drop > 0), 0.5, 1.0))
    traces = np.repeat(np.arange(size), n)
    values = rng.binomial(CLAIMS, level[traces]) / CLAIMS
    total, squares = (np.bincount(traces, weights, minlength=size) for weights in (values, values * values))
    empty = np.zeros((size, BINS), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    return MetricSeries(minutes.astype(np.int64), n.astype(np.float64), total, squares, *empty)


def find_possible_breaches(
    rule: AlertRule, series: MetricSeries, period: ReferencePeriod, minutes: NDArray[np.int64]
) -> MinuteMask:
    """Return a mask of the minutes at which a rule on a mean may be breached.

    The threshold of the rule is checked exactly, the part that noise explains with a wider limit, so that no breach is
    missed and the rule itself is evaluated at few minutes.
    """
    flat = period.remove_season(series)
    counts, sums = (np.concatenate([[0.0], np.cumsum(column)]) for column in (flat.n, flat.sum))
    ends = minutes - series.minutes[0]

    def compute_window_mean(last: NDArray[np.int64], size: int) -> tuple[FloatArray, FloatArray]:
        first = np.maximum(last - size, 0)
        n = np.maximum(counts[last] - counts[first], 1.0)
        return (sums[last] - sums[first]) / n, n

    mean, n = compute_window_mean(ends, rule.window)
    if rule.drop is None:
        return mean < rule.below if rule.below is not None else mean > (rule.above or 0.0)
    day, _ = compute_window_mean(ends - rule.window, DAY_MINUTES)
    is_far = np.zeros(len(ends), dtype=bool)
    assert period.noise is not None
    for span in (WIDER * rule.window, DAY_MINUTES):
        before, count = compute_window_mean(ends - rule.window, span)
        slow = estimate_error(period.noise, (rule.window, math.inf), (span, math.inf))
        white = period.noise.variance * (1 / n + 1 / count)
        is_far |= before - mean > LOOSE_ERRORS * np.sqrt(slow**2 + white)
    return (day - mean >= rule.drop) & is_far


class Replicate(NamedTuple):
    """Parameters of one simulation."""

    kind: str
    rate: float
    days: int
    drop: float
    seed: int


def run_replicate(replicate: Replicate) -> tuple[str, float]:
    """Return the rule and the minute, since the drop or the reference, of the first alert; infinity for none."""
    rng = np.random.default_rng(
        [replicate.seed, round(1000 * replicate.drop), round(replicate.rate), *replicate.kind.encode()]
    )
    start, reference = DAY_MINUTES * int(rng.integers(0, 7)), replicate.days * DAY_MINUTES
    size = reference + (DROP_DELAY + MAX_DELAY if replicate.drop else MONTH_MINUTES)
    begin = reference + (DROP_DELAY if replicate.drop else 0)
    measures = {name: MetricInfo(name, "generation") for name in METRICS[: 1 if replicate.drop else None]}
    fall = replicate.drop * (np.arange(size) >= begin)
    series = {
        (name, None, None): simulate_series(rng, TRAFFIC_KINDS[replicate.kind], replicate.rate, start, fall)
        for name in measures
    }
    references, open_from = {}, dict[tuple[str, str | None], list[tuple[int, float]]]()
    for key, metric_series in series.items():
        period = measure_reference(key[:2], metric_series.between(start, start + reference), measures[key[0]])
        assert period is not None
        references[key[:2]] = period
        calls = detect_drops(metric_series, period)
        open_from[key[:2]] = [(call.detected_at, call.recovered_at or math.inf) for call in calls]
    state = AlertState()
    for minute in choose_minutes(np.arange(start + begin, start + size, RULE_INTERVAL), series, references, open_from):
        called = [key for key, times in open_from.items() if any(a < minute <= b for a, b in times)]
        readings = evaluate_rules(DEFAULT_RULES, series, measures, minute, RuleContext(called, references))
        state, events = advance_alerts(state, readings, 60.0 * minute)
        for event in events:
            if event.kind == "firing":
                return event.rule, float(minute - start - begin)
    return "", math.inf


def choose_minutes(
    minutes: NDArray[np.int64],
    series: Mapping[SeriesKey, MetricSeries],
    references: Mapping[tuple[str, str | None], ReferencePeriod],
    open_from: Mapping[tuple[str, str | None], Sequence[tuple[int, float]]],
) -> list[int]:
    """Return the minutes at which any rule may be breached, and the evaluation after each."""
    flagged = np.zeros(len(minutes), dtype=bool)
    for key, metric_series in series.items():
        for rule in DEFAULT_RULES:
            if rule.metric in ("*", key[0]) and not rule.drop_detected:
                flagged |= find_possible_breaches(rule, metric_series, references[key[:2]], minutes)
        for first, last in open_from[key[:2]]:
            flagged |= (minutes > first) & (minutes <= last)
    flagged[1:] |= flagged[:-1].copy()
    return [int(minute) for minute in minutes[flagged]]


def main() -> None:
    """Print the table: false months, and the median delay of drops."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=20, help="months without a change, per row [20]")
    parser.add_argument("--drops", type=int, default=6, help="drops of each size, per row [6]")
    parser.add_argument("--days", type=int, default=7, help="of the reference [7]")
    parser.add_argument("--rates", type=int, nargs="+", default=[10], help="traces a minute [10]")
    parser.add_argument("--seed", type=int, default=0, help="of the first month [0]")
    parser.add_argument(
        "--traffic", nargs="+", choices=TRAFFIC_KINDS, default=list(TRAFFIC_KINDS), help="kinds of traffic [all]"
    )
    options = parser.parse_args()
    print("| traffic | traces a minute | false months | 2 points | 5 points | 10 points |")
    print("|---|---|---|---|---|---|")
    with ProcessPoolExecutor(2) as workers:
        for kind in options.traffic:
            for rate in options.rates:
                jobs = [Replicate(kind, rate, options.days, 0.0, options.seed + i) for i in range(options.months)]
                false = [rule for rule, _ in workers.map(run_replicate, jobs) if rule]
                cells = []
                for drop in (0.02, 0.05, 0.1):
                    jobs = [
                        Replicate(kind, rate, options.days, drop, 10_000 + options.seed + i)
                        for i in range(options.drops)
                    ]
                    delays = [delay for _, delay in workers.map(run_replicate, jobs)]
                    half = np.quantile(delays, 0.5, method="higher") if delays else math.inf
                    cells.append("> 14 d" if delays and not np.isfinite(half) else format_minutes(half))
                rules = f" ({', '.join(sorted(set(false)))})" if false else ""
                print(
                    f"| {kind} | {rate} | {len(false)} of {options.months}{rules} | {' | '.join(cells)} |", flush=True
                )


if __name__ == "__main__":
    main()
