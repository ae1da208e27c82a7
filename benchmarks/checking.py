"""Simulate estimates from checks of a sample by a better judge, drawn unequally and within a budget: coverage, width.

    python -m benchmarks.checking
    python -m benchmarks.checking --traces 20000 --days 200

A day brings 4,000 traces on one route. The better judge sees the share of one to eight claims that hold, 0.8 on
average; the judge of every trace sees each trace as it does, or anew, and where it errs it is often unsure. The
traces go through the real draw (`online.sampling`, with a salt of its own for each day) and the real estimate
(`server.estimating`): five in a hundred, more of those that fail, of those the judge is unsure of, and of a new
route's first. A check costs as much as the trace has claims. "Even" is a day on which the money suffices; on "short"
days it is spent about half-way, and quality falls by 0.2 from noon on. The truth is the mean by the better judge over
all the traffic that the estimate says it speaks of; beside it, what comes of counting every check alike, and of taking
the checks of a short day for the whole of it. With 500 days a share that is truly 95 % is seen between 93.0 % and
96.8 %.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from ragfault.apps.watch.server.scoring.ppi_estimates import PpiEstimate, estimate_ppi
from ragfault.apps.watch.server.storage.records import SpotCheckSample
from ragfault.evaluation.online.scorer import SamplingPolicy, ScoredTrace, TraceSampler
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import ClaimVerdict, Score, Trace, Verdicts
from ragfault.stats.bootstrap import FloatArray

METRIC = MetricInfo("groundedness", "generation")
UNSURE_VERDICT = ClaimVerdict(claim="", start=0, end=0, support="supported", p=0.5, unsure=True)
AGREEMENT_SHARES = (0.0, 0.5, 0.9)
"""How often the judge of every trace is as good as the better one."""


class DayTraffic(NamedTuple):
    """Traffic of a day: for each trace the values of both judges, whether the first is unsure, and a check's cost."""

    base_values: FloatArray
    reference_values: FloatArray
    is_unsure: np.ndarray
    costs: FloatArray


def simulate_day(rng: np.random.Generator, traces: int, agreement: float, drop: float) -> DayTraffic:
    """Simulate a day on which quality falls at noon."""
    claims = rng.integers(1, 9, size=traces)
    level = np.clip(rng.beta(6, 1.5, size=traces) - drop * (np.arange(traces) >= traces / 2), 0, 1)
    better = rng.binomial(claims, level)
    anew = rng.binomial(claims, rng.permutation(level))
    judged = np.where(rng.uniform(size=traces) < agreement, better, anew)
    unsure = rng.uniform(size=traces) < np.where(judged == better, 0.1, 0.5)
    return DayTraffic(judged / claims, better / claims, unsure, claims.astype(float))


def draw_sample(day: DayTraffic, salt: str) -> tuple[FloatArray, np.ndarray]:
    """Return the sampling probability of each trace, and which traces are sampled."""
    sampler = TraceSampler(SamplingPolicy(), salt, "better")
    draws = []
    for index, value in enumerate(day.base_values.tolist()):
        name = str(index)
        verdicts = Verdicts(trace=name, claim=(UNSURE_VERDICT,) if day.is_unsure[index] else ())
        scores = (Score(name, "groundedness", "generation", "scored", value),)
        draws.append(sampler.draw(ScoredTrace(Trace(id=name, query=""), verdicts, scores)))
    return np.array([draw.chance for draw in draws]), np.array([draw.taken for draw in draws])


def apply_budget(day: DayTraffic, is_sampled: np.ndarray, budget: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which traces are checked and which are covered.

    The budget is spent in the order of arrival until a check does not fit.
    """
    spent = np.cumsum(np.where(is_sampled, day.costs, 0.0))
    unaffordable = np.flatnonzero(is_sampled & (spent > budget))
    is_covered = np.arange(is_sampled.size) < (unaffordable[0] if unaffordable.size else is_sampled.size)
    return is_sampled & is_covered, is_covered


def build_sample(
    day: DayTraffic, chances: FloatArray, is_checked: np.ndarray, is_covered: np.ndarray
) -> SpotCheckSample:
    """Return the sample in the form of the store."""
    rest = day.base_values[is_covered & ~is_checked]
    return SpotCheckSample(
        metric="groundedness",
        route="",
        scored=day.base_values.size,
        covered=int(is_covered.sum()),
        failed=0,
        remainder=(rest.size, float(rest.sum()), float(rest @ rest)),
        base_values=day.base_values[is_checked],
        reference_values=day.reference_values[is_checked],
        chance=chances[is_checked],
        cost=day.costs[is_checked],
        conversation=np.zeros(int(is_checked.sum()), dtype=np.uint64),
    )


class DayOutcome(NamedTuple):
    """Estimates of one day, held against the truth."""

    checks: int
    covered: float
    has_truth: bool
    """Whether the interval holds the mean of the covered traces."""
    has_truth_unweighted: bool
    """The same for the interval in which every check has the same weight."""
    has_truth_full_day: bool
    """Whether the interval of all checks and all traces holds the mean of the whole day."""
    error: float
    gain: float


def estimate_day(traces: int, agreement: float, is_short: bool, seed: int) -> DayOutcome:
    """Simulate one day and its estimates."""
    rng = np.random.default_rng([seed, int(10 * agreement), is_short])
    day = simulate_day(rng, traces, agreement, 0.2 if is_short else 0.0)
    budget = 0.25 * traces if is_short else np.inf
    chance, is_sampled = draw_sample(day, rng.bytes(16).hex())
    is_checked, is_covered = apply_budget(day, is_sampled, budget)
    ones, truth = np.ones(traces), float(day.reference_values[is_covered].mean())
    estimate, unweighted, full_day = (
        estimate_ppi(build_sample(day, *arguments), METRIC, "better")
        for arguments in (
            (chance, is_checked, is_covered),
            (ones, is_checked, is_covered),
            (chance, is_checked, ones > 0),
        )
    )
    return DayOutcome(
        checks=estimate.checks,
        covered=estimate.covered,
        has_truth=is_truth_covered(estimate, truth),
        has_truth_unweighted=is_truth_covered(unweighted, truth),
        has_truth_full_day=is_truth_covered(full_day, float(day.reference_values.mean())),
        error=(estimate.mean or 0.0) - truth,
        gain=estimate.gain or 1.0,
    )


def is_truth_covered(estimate: PpiEstimate, truth: float) -> bool:
    """Return whether an interval is defined and holds the truth."""
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=int, default=4000)
    parser.add_argument("--days", type=int, default=500)
    options = parser.parse_args()
    print("| money | judge is right | checks | covered | inside | bias | chances ignored | days cut as whole | width |")
    print("|---|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(2) as pool:
        for is_short in (False, True):
            for agreement in AGREEMENT_SHARES:
                simulate = partial(estimate_day, options.traces, agreement, is_short)
                days = list(pool.map(simulate, range(options.days), chunksize=10))
                checks, covered, has_truth, unweighted, full_day, error, gain = (
                    float(np.mean([outcome[i] for outcome in days])) for i in range(7)
                )
                print(
                    f"| {'short' if is_short else 'even'} | {agreement:.0%} | {checks:.0f} | {covered:.0%} "
                    f"| {has_truth:.1%} | {error:+.4f} | {unweighted:.1%} | {full_day:.1%} | {gain:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
