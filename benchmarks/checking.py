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

from ragfault.evaluation.online import ScoredTrace
from ragfault.evaluation.online.scorer import SamplingPolicy, TraceSampler
from ragfault.io.runs import MetricInfo
from ragfault.records import ClaimVerdict, Score, Trace, Verdicts
from ragfault.server.scoring.ppi_estimates import PpiEstimate, estimate_ppi
from ragfault.server.storage import SpotCheckSample
from ragfault.stats.bootstrap import FloatArray

MEASURE = MetricInfo("groundedness", "generation")
UNSURE = ClaimVerdict(claim="", start=0, end=0, support="supported", p=0.5, unsure=True)
RIGHT = (0.0, 0.5, 0.9)
"""How often the judge of every trace is as good as the better one."""


class Day(NamedTuple):
    """The traffic of a day: what either judge says of each trace, how often the first is unsure, what a check costs."""

    judged: FloatArray
    better: FloatArray
    unsure: np.ndarray
    cost: FloatArray


def traffic(rng: np.random.Generator, traces: int, right: float, drop: float) -> Day:
    """Simulate a day on which quality falls at noon."""
    claims = rng.integers(1, 9, size=traces)
    level = np.clip(rng.beta(6, 1.5, size=traces) - drop * (np.arange(traces) >= traces / 2), 0, 1)
    better = rng.binomial(claims, level)
    anew = rng.binomial(claims, rng.permutation(level))
    judged = np.where(rng.uniform(size=traces) < right, better, anew)
    unsure = rng.uniform(size=traces) < np.where(judged == better, 0.1, 0.5)
    return Day(judged / claims, better / claims, unsure, claims.astype(float))


def draw_sample(day: Day, salt: str) -> tuple[FloatArray, np.ndarray]:
    """Return the chance of each trace, and whether it is taken."""
    sampler = TraceSampler(SamplingPolicy(), salt, "better")
    draws = []
    for index, value in enumerate(day.judged.tolist()):
        name = str(index)
        seen = Verdicts(trace=name, claim=(UNSURE,) if day.unsure[index] else ())
        scores = (Score(name, "groundedness", "generation", "scored", value),)
        draws.append(sampler.draw(ScoredTrace(Trace(id=name, query=""), seen, scores)))
    return np.array([draw.chance for draw in draws]), np.array([draw.taken for draw in draws])


def checked(day: Day, taken: np.ndarray, budget: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which traces are checked and which are covered.

    The budget is spent in the order of arrival until a check does not fit.
    """
    spent = np.cumsum(np.where(taken, day.cost, 0.0))
    late = np.flatnonzero(taken & (spent > budget))
    before = np.arange(taken.size) < (late[0] if late.size else taken.size)
    return taken & before, before


def sample(day: Day, chance: FloatArray, asked: np.ndarray, covered: np.ndarray) -> SpotCheckSample:
    """Return the sample in the form of the store."""
    rest = day.judged[covered & ~asked]
    return SpotCheckSample(
        metric="groundedness",
        route="",
        scored=day.judged.size,
        covered=int(covered.sum()),
        failed=0,
        remainder=(rest.size, float(rest.sum()), float(rest @ rest)),
        base_values=day.judged[asked],
        reference_values=day.better[asked],
        chance=chance[asked],
        cost=day.cost[asked],
        conversation=np.zeros(int(asked.sum()), dtype=np.uint64),
    )


class Seen(NamedTuple):
    """What came of a day."""

    checks: int
    covered: float
    inside: bool
    """Whether the truth of what is covered is in the interval."""
    alike: bool
    """Whether it is, with every check counted alike, whatever its chance."""
    full_day: bool
    """Whether the truth of the whole day is in the interval that all checks and all traces would give."""
    error: float
    gain: float


def seen(traces: int, right: float, short: bool, seed: int) -> Seen:
    """Simulate one day."""
    rng = np.random.default_rng([seed, int(10 * right), short])
    day = traffic(rng, traces, right, 0.2 if short else 0.0)
    budget = 0.25 * traces if short else np.inf
    chance, taken = draw_sample(day, rng.bytes(16).hex())
    asked, covered = checked(day, taken, budget)
    ones, truth = np.ones(traces), float(day.better[covered].mean())
    estimate, alike, full_day = (
        estimate_ppi(sample(day, *arguments), MEASURE, "better")
        for arguments in ((chance, asked, covered), (ones, asked, covered), (chance, asked, ones > 0))
    )
    return Seen(
        checks=estimate.checks,
        covered=estimate.covered,
        inside=_inside(estimate, truth),
        alike=_inside(alike, truth),
        full_day=_inside(full_day, float(day.better.mean())),
        error=(estimate.mean or 0.0) - truth,
        gain=estimate.gain or 1.0,
    )


def _inside(estimate: PpiEstimate, truth: float) -> bool:
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
        for short in (False, True):
            for right in RIGHT:
                simulate = partial(seen, options.traces, right, short)
                days = list(pool.map(simulate, range(options.days), chunksize=10))
                checks, covered, inside, alike, full_day, error, gain = (
                    float(np.mean([outcome[i] for outcome in days])) for i in range(7)
                )
                print(
                    f"| {'short' if short else 'even'} | {right:.0%} | {checks:.0f} | {covered:.0%} | {inside:.1%} | "
                    f"{error:+.4f} | {alike:.1%} | {full_day:.1%} | {gain:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
