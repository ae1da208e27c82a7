"""Check the statistics of several attempts by simulation: coverage of their intervals, and power of plans.

    python benchmarks/repeats.py --simulations 1000
    python benchmarks/repeats.py --simulations 1000 --power
    python -m benchmarks.repeats --simulations 40 --bisect

Queries are drawn from populations in which the chance of a right answer, or the mean of a score, differs from query to
query; the true values are those of very many queries. Prints a Markdown table. With 1,000 simulations a coverage that
is truly 95 % is seen between 93.6 % and 96.4 %. The last column is the share of samples in which the share of noise has
an interval narrower than 0 to 1; the coverage counts all of them.

With `--power`, runs of the same queries are compared by the test of `ragfault compare` (random sign flips of the mean
differences of queries), where a share of the queries lost half the range.

With `--bisect`, a system over the handbook of the demo answers 100 queries several times on both sides, with small
errors of its own, refusals and inventions on 4 % of the answers each: how often `bisect` names a fault or bounds it,
judge `lexical`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.__main__ import METRICS
from benchmarks.faults.config import Config, Generation, Search
from benchmarks.faults.corpora import load_handbook_corpus
from benchmarks.faults.injection import sample
from benchmarks.faults.system import answer_questions
from ragfault.comparison.bisection import bisect
from ragfault.evaluation.evaluator import evaluate
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import bounded_interval
from ragfault.stats.repeats import compute_attempt_power, expect_disagreement, expect_extreme, split_variance
from ragfault.stats.significance import sign_flip_test

SIZES = ((20, 2), (20, 3), (20, 4), (20, 8), (50, 2), (50, 3), (50, 8), (100, 3), (200, 5), (500, 3), (500, 8))
"""Queries and attempts of each."""


class Population(NamedTuple):
    """Attempts of queries, queries × attempts, and the true share of noise in their variance."""

    draw: Callable[[np.random.Generator, int, int], FloatArray]
    noise: float
    lowest: float = 0.0
    """The least value that an attempt can have."""


def draw_binary(rng: np.random.Generator, queries: int, attempts: int, right: float, strength: float) -> FloatArray:
    """Draw right and wrong answers, of queries whose chance of a right one has a beta distribution."""
    chances = rng.beta(right * strength, (1 - right) * strength, size=(queries, 1))
    return (rng.uniform(size=(queries, attempts)) < chances).astype(float)


def draw_skewed(rng: np.random.Generator, queries: int, attempts: int, spread: float) -> FloatArray:
    """Draw scores near 1 with a long lower tail: queries and attempts each take something off."""
    hard = rng.beta(1, 5, size=(queries, 1))
    return 1 - hard - spread * rng.beta(1, 5, size=(queries, attempts))


def make_binary(right: float, strength: float) -> Population:
    """Describe a beta-binomial population: of its variance 1 / (strength + 1) is between queries."""
    return Population(
        lambda rng, queries, attempts: draw_binary(rng, queries, attempts, right, strength), strength / (strength + 1)
    )


POPULATIONS = {
    "80 % right, like queries": make_binary(0.8, 2.0),
    "80 % right, easy and hard": make_binary(0.8, 0.4),
    "95 % right": make_binary(0.95, 0.8),
    "50 % right": make_binary(0.5, 1.0),
    "skewed, much noise": Population(lambda rng, n, m: draw_skewed(rng, n, m, 1.0), 0.5, -1.0),
    "skewed, little noise": Population(lambda rng, n, m: draw_skewed(rng, n, m, 0.4), 0.16 / 1.16, -0.4),
}
TRUTH_QUERIES = 400_000


def estimate_all(values: FloatArray, lowest: float) -> dict[str, Interval]:
    """Return each statistic of a sample of values from `lowest` to 1; a score of 0.75 and above is right."""
    n, m = values.shape
    flat, queries = values.ravel(), np.repeat(np.arange(n), m)
    right = (flat >= 0.75).astype(float)
    k = min(m, 3)
    split = split_variance(flat, queries)
    return {
        "pass^k": bounded_interval(expect_extreme(right, queries, k, "lowest").values),
        "pass@k": bounded_interval(expect_extreme(right, queries, k, "highest").values),
        "worst of k": bounded_interval(expect_extreme(flat, queries, k, "lowest").values, (lowest, 1)),
        "flakiness": bounded_interval(expect_disagreement(right.astype(np.int64), queries, k).values),
        "noise": Interval(0.0, 0.0, 1.0, n * m, n) if split is None else split.noise,
    }


def find_truth(population: Population, attempts: int) -> dict[str, float]:
    """Return the true values, from very many queries; the share of noise is known."""
    rng = np.random.default_rng(7)
    values = population.draw(rng, TRUTH_QUERIES, min(attempts, 3))
    right = values >= 0.75
    lowest, highest = right.all(axis=1).mean(), right.any(axis=1).mean()
    return {
        "pass^k": float(lowest),
        "pass@k": float(highest),
        "worst of k": float(values.min(axis=1).mean()),
        "flakiness": float(highest - lowest),
        "noise": population.noise,
    }


def measure_coverage(population: Population, queries: int, attempts: int, simulations: int) -> dict[str, float]:
    """Return the share of samples whose interval holds the true value, by statistic, and of those with a noise."""
    rng = np.random.default_rng(1)
    truth = find_truth(population, attempts)
    covered: Counter[str] = Counter()
    for _ in range(simulations):
        intervals = estimate_all(population.draw(rng, queries, attempts), population.lowest)
        covered.update(name for name, item in intervals.items() if item.low <= truth[name] <= item.high)
        covered["told"] += intervals["noise"].high - intervals["noise"].low < 1
    return {name: covered[name] / simulations for name in (*truth, "told")}


def measure_power(drop: float, queries: int, attempts: int, binary: bool, simulations: int) -> tuple[float, float]:
    """Return the power that a plan says, and the share of simulated comparisons that find the drop."""
    rng = np.random.default_rng(2)
    lost = 0.5 * (rng.uniform(size=(simulations, queries, 1)) < 2 * drop)
    before = rng.uniform(0.6, 0.9, size=(simulations, queries, 1))

    def draw(means: FloatArray) -> FloatArray:
        shape = (simulations, queries, attempts)
        if binary:
            return (rng.uniform(size=shape) < means).astype(float)
        return means + 0.3 * (rng.beta(2, 2, size=shape) - 0.5) / 0.2236

    old, new = draw(before), draw(before - lost)
    noise = float(old.var(axis=2, ddof=1).mean())
    detected = [
        sign_flip_test(first.mean(axis=1), second.mean(axis=1), resamples=499).p < 0.05
        for first, second in zip(old, new, strict=True)
    ]
    planned = compute_attempt_power(drop, noise, queries, attempts, step=float(binary))
    return planned, float(np.mean(detected))


def print_power(simulations: int) -> None:
    """Print said and simulated power, and the largest difference."""
    print("| scores | queries × attempts | drop | said | simulated |")
    print("|---|---|---|---|---|")
    largest = 0.0
    for binary in (True, False):
        for queries, attempts in ((50, 2), (100, 3), (200, 2), (200, 3), (200, 8), (500, 3)):
            for drop in (0.03, 0.05, 0.1):
                planned, simulated = measure_power(drop, queries, attempts, binary, simulations)
                largest = max(largest, abs(planned - simulated))
                kind = "right or wrong" if binary else "continuous"
                print(f"| {kind} | {queries} × {attempts} | {drop} | {planned:.3f} | {simulated:.3f} |", flush=True)
    print(f"\nLargest difference: {largest:.3f}")


def bisect_attempts(simulations: int, sizes: Sequence[int], queries: int = 100) -> None:
    """Print how often two sets of attempts of one system are called a fault, or bounded within the margin."""
    corpus = load_handbook_corpus()
    print("| attempts | key | simulations | a fault | bounded within .05 |")
    print("|---|---|---|---|---|")
    for attempts in sizes:
        for key in (True, False):
            verdicts: Counter[str] = Counter()
            for number in range(simulations):
                questions = sample(corpus, queries, number)
                sides = [
                    [
                        replace(trace, attempt=attempt + 1)
                        if key
                        else replace(trace, attempt=attempt + 1, gold=None, facts=None, reference=None, answerable=None)
                        for attempt in range(attempts)
                        for trace in answer_questions(
                            corpus, _draw_config(number, side * attempts + attempt), questions
                        )
                    ]
                    for side in (0, 1)
                ]
                with tempfile.TemporaryDirectory() as folder:
                    runs = [
                        evaluate(traces, Path(folder) / str(side), metrics=METRICS, judge="lexical")
                        for side, traces in enumerate(sides)
                    ]
                    verdicts[bisect(*runs).verdict] += 1
            counts = f"{verdicts['fault']} | {verdicts['no fault']}"
            print(f"| {attempts} | {'yes' if key else 'no'} | {simulations} | {counts} |", flush=True)


def _draw_config(number: int, attempt: int) -> Config:
    """Return the configuration of one attempt: its errors are its own, and retrieval is that of all attempts."""
    generation = Generation(seed=1000 * number + attempt, refusal_share=0.04, invention_share=0.04)
    return Config(search=Search(seed=number), generation=generation)


def main() -> None:
    """Print the coverage of each population and size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--power", action="store_true", help="check the power of plans instead of coverage")
    parser.add_argument("--bisect", action="store_true", help="bisect two sets of attempts of one system")
    parser.add_argument("--attempts", type=int, nargs="+", default=(1, 3), help="attempts of each side to bisect")
    arguments = parser.parse_args()
    simulations = arguments.simulations
    if arguments.bisect:
        bisect_attempts(simulations, arguments.attempts)
        return
    if arguments.power:
        print_power(simulations)
        return
    print("| population | queries × attempts | pass^k | pass@k | worst of k | flakiness | share of noise | told |")
    print("|---|---|---|---|---|---|---|---|")
    for name, population in POPULATIONS.items():
        for queries, attempts in SIZES:
            shares = measure_coverage(population, queries, attempts, simulations).values()
            cells = " | ".join(f"{share:.3f}" for share in shares)
            print(f"| {name} | {queries} × {attempts} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
