"""How often watching live traffic cries wolf, and how soon it sees a drop: the sequential test beside simpler rules.

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

from ragfault.analysis.monitoring.change_detection import (
    FALSE_ALARM_RATE,
    MIN_DROP,
    MONTH_MINUTES,
    detect_drops,
    measure_reference,
)
from ragfault.analysis.monitoring.rollups import BINS
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries
from ragfault.io.runs import MetricInfo
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.distributions import normal_quantile

MEASURE = MetricInfo("groundedness", "generation")
WEEK = 7 * DAY_MINUTES
POOL = 1 << 17
RATES = (1, 10, 100)
DROPS = (0.02, 0.05, 0.1)
HORIZON = {1: 21 * DAY_MINUTES, 10: 4 * DAY_MINUTES, 100: DAY_MINUTES}
"""For how many minutes a drop is waited for."""


class Traffic(NamedTuple):
    """Minutes of traffic as sums."""

    n: FloatArray
    total: FloatArray
    squares: FloatArray


def pool(rng: np.random.Generator, mean: float) -> FloatArray:
    """Return scores of many traces: shares of one to eight claims that hold, alike within a trace."""
    claims = rng.integers(1, 9, size=POOL)
    return rng.binomial(claims, rng.beta(7.5 * mean, 7.5 * (1 - mean), size=POOL)) / claims


def traffic(rng: np.random.Generator, scores: FloatArray, rate: int, minutes: int, turns: int = 1) -> Traffic:
    """Draw traffic of so many minutes from the scores; of several turns of a conversation nine in ten are alike."""
    counts = rng.poisson(rate / turns, size=minutes)
    values = scores[rng.integers(0, POOL, size=int(counts.sum()))]
    if turns > 1:
        own = scores[rng.integers(0, POOL, size=(len(values), turns))]
        values = np.where(rng.uniform(size=own.shape) < 0.9, values[:, None], own).ravel()
        counts = counts * turns
    ends = np.concatenate([[0], np.cumsum(counts)])
    sums = [np.concatenate([[0.0], np.cumsum(part)]) for part in (values, values * values)]
    total, squares = (column[ends[1:]] - column[ends[:-1]] for column in sums)
    return Traffic(counts.astype(np.float64), total, squares)


# --- the rules ---------------------------------------------------------------------------------------


def sequential(margin: float) -> Callable[[Traffic], np.ndarray]:
    """Return the rule: a drop is reported by the sequential test and has not ended."""
    return lambda sums: _sequential(sums, margin)


def _sequential(traffic_sums: Traffic, margin: float) -> np.ndarray:
    size = len(traffic_sums.n)
    part = MetricSeries(
        np.arange(size), *traffic_sums, np.zeros((size, BINS), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    )
    period = measure_reference((MEASURE.name, None), part.between(0, WEEK), MEASURE, margin=margin)
    assert period is not None
    firing = np.zeros(size, dtype=bool)
    for call in detect_drops(part, period):
        firing[call.detected_at : call.recovered_at or size] = True
    return firing[WEEK:]


def _windows(traffic_sums: Traffic, window: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return count, mean and variance of the window that ends with each minute after the reference."""
    sums = [np.concatenate([[0.0], np.cumsum(column)]) for column in traffic_sums]
    n, total, squares = (column[WEEK + 1 :] - column[WEEK + 1 - window : -window] for column in sums)
    n = np.maximum(n, 1)
    return n, total / n, np.maximum(squares / n - (total / n) ** 2, 1e-9)


def _before(traffic_sums: Traffic) -> tuple[float, float, float]:
    """Return count, mean and variance of the reference."""
    n, total, squares = (float(column[:WEEK].sum()) for column in traffic_sums)
    return n, total / n, squares / n - (total / n) ** 2


def threshold(window: int, lasting: int = 0) -> Callable[[Traffic], np.ndarray]:
    """Return the rule: the rolling mean is 2 points below the reference, for so many minutes."""

    def rule(traffic_sums: Traffic) -> np.ndarray:
        below = _windows(traffic_sums, window)[1] <= _before(traffic_sums)[1] - 0.02
        if not lasting:
            return below
        run = np.cumsum(np.concatenate([[0], below]))
        lasting_rows = np.zeros(len(below), dtype=bool)
        lasting_rows[lasting - 1 :] = run[lasting:] - run[:-lasting] == lasting
        return lasting_rows

    return rule


def t_test(window: int, p: float) -> Callable[[Traffic], np.ndarray]:
    """Return the rule: Welch's t of the window against the reference is significant, one-sided."""

    def rule(traffic_sums: Traffic) -> np.ndarray:
        n, mean, variance = _windows(traffic_sums, window)
        size, centre, spread = _before(traffic_sums)
        return (mean - centre) / np.sqrt(variance / n + spread / size) < normal_quantile(p)

    return rule


RULES: dict[str, Callable[[Traffic], np.ndarray]] = {
    f"sequential test at {FALSE_ALARM_RATE:g} a month": sequential(MIN_DROP),
    "the same without a margin": sequential(0.0),
    "30 min 2 points below": threshold(30),
    "90 min 2 points below, for 30 min": threshold(90, 30),
    "t-test of 90 min, p < 0.05": t_test(90, 0.05),
    "t-test of 90 min, p < 0.001": t_test(90, 0.001),
}


# --- the simulation ----------------------------------------------------------------------------------


class Job(NamedTuple):
    """One replicate: how much traffic, and what drop (0: none, for a month)."""

    rate: int
    drop: float
    seed: int
    turns: int = 1


def replicate(job: Job) -> list[float]:
    """Return for each rule the false alarms of a month, or the minutes until it detected the drop (infinite: never)."""
    rng = np.random.default_rng([job.seed, job.rate, round(1000 * job.drop)])
    good = traffic(rng, pool(rng, 0.8), job.rate, WEEK + (DAY_MINUTES if job.drop else MONTH_MINUTES), job.turns)
    if job.drop:
        bad = traffic(rng, pool(rng, 0.8 - job.drop), job.rate, HORIZON[job.rate], job.turns)
        good = Traffic(*(np.concatenate(pair) for pair in zip(good, bad, strict=True)))
    period = []
    for rule in RULES.values():
        firing = rule(good)
        if job.drop:
            late = np.flatnonzero(firing[DAY_MINUTES:])
            period.append(float(late[0]) + 1 if late.size else np.inf)
        else:
            period.append(float((np.diff(firing.astype(int), prepend=0) == 1).sum()))
    return period


def length(minutes: float) -> str:
    """Return minutes as people say them.

    >>> length(90), length(3000), length(np.inf)
    ('90 min', '2.1 d', '–')
    """
    if not np.isfinite(minutes):
        return "–"
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 2 * DAY_MINUTES else f"{minutes / DAY_MINUTES:.1f} d"


def _short(alarms: float) -> str:
    return f"{alarms:,.0f}" if alarms >= 10 else f"{alarms:.2g}"


def delay(cells: FloatArray, at: int) -> str:
    """Return the median delay of a rule and its 90 % quantile."""
    if not len(cells):
        return "–"
    half, most = np.quantile(cells[:, at], [0.5, 0.9], method="higher")
    return f"{length(half)}, {length(most)}"


def table(months: int, drops: int, seed: int, rates: list[int], turns: int) -> None:
    """Return one line for each traffic and rule."""
    heads = " | ".join(f"{100 * drop:.0f} points" for drop in DROPS)
    print(f"| traces a minute | rule | false alarms in a metric-month | {heads} |")
    print("|---|---|---|" + "---|" * len(DROPS))
    with ProcessPoolExecutor(2) as workers:
        for rate in rates:
            cells = {}
            for drop in (0.0, *DROPS):
                jobs = [Job(rate, drop, seed + i, turns) for i in range(drops if drop else months)]
                cells[drop] = np.array(list(workers.map(replicate, jobs, chunksize=4)))
            for index, name in enumerate(RULES):
                shown = " | ".join(delay(cells[drop], index) for drop in DROPS)
                alarms = f"{_short(cells[0.0][:, index].mean())}" if months else "–"
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
    table(options.months, options.drops, options.seed, list(options.rates), options.turns)


if __name__ == "__main__":
    main()
