"""Measure false alarms and the delay of detected drops: the sequential test beside simpler rules.

    python -m benchmarks.monitoring
    python -m benchmarks.monitoring --months 50 --drops 50 --seed 1

Traffic arrives at 1, 10 or 100 traces a minute (Poisson); each trace scores the share of its one to eight claims that
hold, 0.8 on average. Seven days are the reference. A false alarm is one that begins in a month in which nothing
changed; the delay is counted from a drop of 2, 5 or 10 points that comes a day after the reference and stays. Beside
`findings.monitoring_detecting` stand the rules that monitoring is commonly built from, looked at every minute: a
rolling mean of 30 or 90 minutes 2 points below the reference, and Welch's t-test of 90 minutes against it.

`--months 300 --drops 0` asks for false alarms alone, `--rates 10` for one kind of traffic.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from ragfault.apps.watch.monitoring.change_detection import (
    FALSE_ALARM_RATE,
    MIN_DROP,
    MONTH_MINUTES,
    detect_drops,
    measure_reference,
)
from ragfault.apps.watch.monitoring.rollups import BINS
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries
from ragfault.io.runs.run import MetricInfo
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.distributions import normal_quantile

METRIC = MetricInfo("groundedness", "generation")
WEEK_MINUTES = 7 * DAY_MINUTES
POOL_SIZE = 1 << 17
RATES = (1, 10, 100)
DROPS = (0.02, 0.05, 0.1)
MAX_DELAY_MINUTES = {1: 21 * DAY_MINUTES, 10: 4 * DAY_MINUTES, 100: DAY_MINUTES}
"""Traces a minute → minutes after a drop within which it must be detected."""


class TrafficSums(NamedTuple):
    """Count, sum and sum of squares of the scores of each minute."""

    n: FloatArray
    total: FloatArray
    squares: FloatArray


def draw_pool(rng: np.random.Generator, mean: float) -> FloatArray:
    """Draw the scores of many traces: shares of one to eight claims that hold, correlated within a trace."""
    claims = rng.integers(1, 9, size=POOL_SIZE)
    return rng.binomial(claims, rng.beta(7.5 * mean, 7.5 * (1 - mean), size=POOL_SIZE)) / claims


def draw_traffic(rng: np.random.Generator, scores: FloatArray, rate: int, minutes: int, turns: int = 1) -> TrafficSums:
    """Draw traffic of so many minutes from the scores; of several turns of a conversation nine in ten are alike."""
    counts = rng.poisson(rate / turns, size=minutes)
    values = scores[rng.integers(0, POOL_SIZE, size=int(counts.sum()))]
    if turns > 1:
        own_scores = scores[rng.integers(0, POOL_SIZE, size=(len(values), turns))]
        values = np.where(rng.uniform(size=own_scores.shape) < 0.9, values[:, None], own_scores).ravel()
        counts = counts * turns
    ends = np.concatenate([[0], np.cumsum(counts)])
    sums = [np.concatenate([[0.0], np.cumsum(part)]) for part in (values, values * values)]
    total, squares = (column[ends[1:]] - column[ends[:-1]] for column in sums)
    return TrafficSums(counts.astype(np.float64), total, squares)


# --- the rules ---------------------------------------------------------------------------------------


def make_sequential_rule(margin: float) -> Callable[[TrafficSums], np.ndarray]:
    """Return the rule that fires while a drop reported by the sequential test has not ended."""
    return lambda traffic_sums: apply_sequential_test(traffic_sums, margin)


def apply_sequential_test(traffic_sums: TrafficSums, margin: float) -> np.ndarray:
    size = len(traffic_sums.n)
    series = MetricSeries(
        np.arange(size), *traffic_sums, np.zeros((size, BINS), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    )
    period = measure_reference((METRIC.name, None), series.between(0, WEEK_MINUTES), METRIC, margin=margin)
    assert period is not None
    is_firing = np.zeros(size, dtype=bool)
    for drop in detect_drops(series, period):
        is_firing[drop.detected_at : drop.recovered_at or size] = True
    return is_firing[WEEK_MINUTES:]


def compute_window_statistics(traffic_sums: TrafficSums, window: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return count, mean and variance of the window that ends with each minute after the reference."""
    sums = [np.concatenate([[0.0], np.cumsum(column)]) for column in traffic_sums]
    n, total, squares = (column[WEEK_MINUTES + 1 :] - column[WEEK_MINUTES + 1 - window : -window] for column in sums)
    n = np.maximum(n, 1)
    return n, total / n, np.maximum(squares / n - (total / n) ** 2, 1e-9)


def compute_reference_statistics(traffic_sums: TrafficSums) -> tuple[float, float, float]:
    """Return count, mean and variance of the reference."""
    n, total, squares = (float(column[:WEEK_MINUTES].sum()) for column in traffic_sums)
    return n, total / n, squares / n - (total / n) ** 2


def make_threshold_rule(window: int, duration: int = 0) -> Callable[[TrafficSums], np.ndarray]:
    """Return the rule that fires where the rolling mean was 2 points below the reference for so many minutes."""

    def apply_threshold(traffic_sums: TrafficSums) -> np.ndarray:
        below = (
            compute_window_statistics(traffic_sums, window)[1] <= compute_reference_statistics(traffic_sums)[1] - 0.02
        )
        if not duration:
            return below
        run = np.cumsum(np.concatenate([[0], below]))
        lasting_rows = np.zeros(len(below), dtype=bool)
        lasting_rows[duration - 1 :] = run[duration:] - run[:-duration] == duration
        return lasting_rows

    return apply_threshold


def make_t_test_rule(window: int, p: float) -> Callable[[TrafficSums], np.ndarray]:
    """Return the rule that fires where Welch's t of the window against the reference is significant, one-sided."""

    def apply_t_test(traffic_sums: TrafficSums) -> np.ndarray:
        n, mean, variance = compute_window_statistics(traffic_sums, window)
        size, centre, spread = compute_reference_statistics(traffic_sums)
        return (mean - centre) / np.sqrt(variance / n + spread / size) < normal_quantile(p)

    return apply_t_test


RULES: dict[str, Callable[[TrafficSums], np.ndarray]] = {
    f"sequential test at {FALSE_ALARM_RATE:g} a month": make_sequential_rule(MIN_DROP),
    "the same without a margin": make_sequential_rule(0.0),
    "30 min 2 points below": make_threshold_rule(30),
    "90 min 2 points below, for 30 min": make_threshold_rule(90, 30),
    "t-test of 90 min, p < 0.05": make_t_test_rule(90, 0.05),
    "t-test of 90 min, p < 0.001": make_t_test_rule(90, 0.001),
}


# --- the simulation ----------------------------------------------------------------------------------


class Replicate(NamedTuple):
    """Parameters of one simulation: traces a minute, and the size of the drop (0: a month without one)."""

    rate: int
    drop: float
    seed: int
    turns: int = 1


def run_replicate(replicate: Replicate) -> list[float]:
    """Return for each rule the false alarms of a month, or the minutes until it detected the drop (infinite: never)."""
    rng = np.random.default_rng([replicate.seed, replicate.rate, round(1000 * replicate.drop)])
    good = draw_traffic(
        rng,
        draw_pool(rng, 0.8),
        replicate.rate,
        WEEK_MINUTES + (DAY_MINUTES if replicate.drop else MONTH_MINUTES),
        replicate.turns,
    )
    if replicate.drop:
        bad = draw_traffic(
            rng,
            draw_pool(rng, 0.8 - replicate.drop),
            replicate.rate,
            MAX_DELAY_MINUTES[replicate.rate],
            replicate.turns,
        )
        good = TrafficSums(*(np.concatenate(pair) for pair in zip(good, bad, strict=True)))
    outcomes = []
    for rule in RULES.values():
        firing = rule(good)
        if replicate.drop:
            late = np.flatnonzero(firing[DAY_MINUTES:])
            outcomes.append(float(late[0]) + 1 if late.size else np.inf)
        else:
            outcomes.append(float((np.diff(firing.astype(int), prepend=0) == 1).sum()))
    return outcomes


def format_minutes(minutes: float) -> str:
    """Format minutes in minutes, hours or days.

    >>> format_minutes(90), format_minutes(3000), format_minutes(np.inf)
    ('90 min', '2.1 d', '–')
    """
    if not np.isfinite(minutes):
        return "–"
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 2 * DAY_MINUTES else f"{minutes / DAY_MINUTES:.1f} d"


def format_alarms(alarms: float) -> str:
    return f"{alarms:,.0f}" if alarms >= 10 else f"{alarms:.2g}"


def format_delays(cells: FloatArray, at: int) -> str:
    """Format the median delay of a rule and its 90 % quantile."""
    if not len(cells):
        return "–"
    median, high = np.quantile(cells[:, at], [0.5, 0.9], method="higher")
    return f"{format_minutes(median)}, {format_minutes(high)}"


def print_table(months: int, drops: int, seed: int, rates: list[int], turns: int) -> None:
    """Print one row for each rate of traffic and rule."""
    heads = " | ".join(f"{100 * drop:.0f} points" for drop in DROPS)
    print(f"| traces a minute | rule | false alarms in a metric-month | {heads} |")
    print("|---|---|---|" + "---|" * len(DROPS))
    with ProcessPoolExecutor(2) as workers:
        for rate in rates:
            cells = {}
            for drop in (0.0, *DROPS):
                jobs = [Replicate(rate, drop, seed + i, turns) for i in range(drops if drop else months)]
                cells[drop] = np.array(list(workers.map(run_replicate, jobs, chunksize=4)))
            for index, name in enumerate(RULES):
                shown = " | ".join(format_delays(cells[drop], index) for drop in DROPS)
                alarms = f"{format_alarms(cells[0.0][:, index].mean())}" if months else "–"
                print(f"| {rate} | {name} | {alarms} | {shown} |", flush=True)


def main() -> None:
    """Print the table: false alarms, and the delay as median and 90 % quantile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=100, help="metric-months without a change, per traffic [100]")
    parser.add_argument("--drops", type=int, default=60, help="drops of each size, per traffic [60]")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation [0]")
    parser.add_argument("--rates", type=int, nargs="+", choices=RATES, default=RATES, help="traces a minute")
    parser.add_argument("--turns", type=int, default=1, help="of a conversation, which move together [1]")
    options = parser.parse_args()
    print_table(options.months, options.drops, options.seed, list(options.rates), options.turns)


if __name__ == "__main__":
    main()
