"""Check by simulation the error rates of whole decisions.

    python -m benchmarks.error_rates power [--trials 400]
    python -m benchmarks.error_rates level [--trials 400]

`power` writes two small runs, puts simulated scores into them in place of their metrics, and calls `compare` as a user
does. `level` draws both sides of a pair in the same way from the scores of the demo, and tests the metrics of the
decision tree together. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.analysis import compare, pair_runs
from ragfault.analysis.comparison.decision_tree import TREE_METRICS
from ragfault.analysis.comparison.paired_runs import PairedRuns
from ragfault.analysis.score_matrix import metric_name, open_matrix
from ragfault.evaluation import evaluate
from ragfault.io.datasets import load_handbook
from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.stats import holm_adjust, sign_flip_tests

Scores = NDArray[np.float64]
Clusters = NDArray[np.intp] | None


def write_pair(folder: Path, n: int, clusters: Clusters = None) -> PairedRuns:
    """Write two runs of n traces that differ in every answer, and pair them."""
    sides = []
    for name in ("baseline", "candidate"):
        traces = [
            Trace(
                id=str(i),
                query=f"Question {i}?",
                answer=f"Answer {i} of the {name}.",
                conversation=None if clusters is None else str(clusters[i]),
            )
            for i in range(n)
        ]
        sides.append(evaluate(traces, folder / name, metrics=["answer_relevance"], judge="lexical", force=True))
    return pair_runs(*sides)


# --- power -------------------------------------------------------------------------------------------


class Population(NamedTuple):
    """Paired scores in [0, 1]: how they vary by chance, and how a change of a given size lowers the candidate's."""

    name: str
    draw: Callable[[np.random.Generator, int, float], tuple[Scores, Scores]]
    cluster_size: int = 1


def redrawn(rng: np.random.Generator, first: Scores, second: Scores, share: float) -> Scores:
    """Return the first scores, a share of them replaced by the second."""
    return np.where(rng.uniform(size=len(first)) < share, second, first)


def lower(rng: np.random.Generator, scores: Scores, change: float, part: float) -> Scores:
    """Lower the mean by a change: as many traces as that takes lose a part of their score."""
    mean = float(scores.mean())
    return np.where(rng.uniform(size=len(scores)) < change / (part * mean), (1 - part) * scores, scores)


def binary(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw 0/1 scores, 80 % ones; a tenth is drawn again."""
    old, new = ((rng.uniform(size=n) < 0.8).astype(float) for _ in range(2))
    return old, lower(rng, redrawn(rng, old, new, 0.1), change, 1.0)


def fifths(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw shares of five claims; three in ten are drawn again."""
    old, new = (rng.binomial(5, 0.85, size=n) / 5 for _ in range(2))
    return old, lower(rng, redrawn(rng, old, new, 0.3), change, 0.6)


def skewed(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw scores near 1 with a long tail; half of them are drawn again."""
    old, new = (rng.beta(8, 1, size=n) for _ in range(2))
    return old, lower(rng, redrawn(rng, old, new, 0.5), change, 0.5)


def inflated(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw scores that are 1 but for one in twenty; a tenth is drawn again."""
    old, new = (np.where(rng.uniform(size=n) < 0.05, rng.beta(2, 2, size=n), 1.0) for _ in range(2))
    return old, lower(rng, redrawn(rng, old, new, 0.1), change, 0.7)


def conversations(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw conversations of five turns that share half of the variance of the difference."""
    shared = np.repeat(rng.normal(0, 0.1, size=-(-n // 5)), 5)[:n]
    old = rng.uniform(0.4, 0.6, size=n)
    return old, np.clip(old + shared + rng.normal(0, 0.1, size=n) - change, 0, 1)


def shifted(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw scores that all fall by the same amount."""
    old = rng.uniform(0.4, 0.8, size=n)
    return old, np.clip(old + rng.normal(0, 0.08, size=n) - change, 0, 1)


POPULATIONS = (
    Population("0/1, 80 % ones", binary),
    Population("shares of five claims", fifths),
    Population("skewed", skewed),
    Population("95 % ones, else anything", inflated),
    Population("conversations of five", conversations, 5),
    Population("all fall alike", shifted),
)
FAMILIES = (1, 4, 12, 39)


def fill(paired: PairedRuns, first: tuple[Scores, Scores], others: int, rng: np.random.Generator) -> list[str]:
    """Put simulated scores into the runs: the first metric as given, others in which four traces moved by chance."""
    paired.add_metric(MetricInfo("groundedness", "generation"), *first)
    for k in range(others):
        old = np.ones(len(first[0]))
        new = old.copy()
        places = rng.choice(len(old), 4, replace=False)
        new[places[:2]], old[places[2:]] = 0.0, 0.0
        paired.add_metric(MetricInfo(f"other{k}", "generation"), old, new)
    return ["groundedness", *(f"other{k}" for k in range(others))]


def power_of(population: Population, n: int, tests: int, trials: int, folder: Path) -> tuple[list[float], float, int]:
    """Return the detectable changes of pilots of n pairs, how often they are shown, and how often there are none."""
    clusters = np.arange(n) // population.cluster_size if population.cluster_size > 1 else None
    paired = write_pair(folder, n, clusters)
    effects, shown, silent = [], 0, 0
    for trial in range(trials):
        rng = np.random.default_rng([n, tests, trial])
        names = fill(paired, population.draw(rng, n, 0.0), tests - 1, rng)
        detectable = compare(paired, metrics=names).changes[0].detectable
        if detectable is None:
            silent += 1
            continue
        effects.append(detectable)
        names = fill(paired, population.draw(rng, n, detectable), tests - 1, rng)
        shown += compare(paired, metrics=names).changes[0].state == "dropped"
    return effects, shown / max(1, len(effects)), silent


def power(trials: int, sizes: Sequence[int] = (50, 200)) -> Iterator[str]:
    """Yield how often changes of the size that `compare` calls detectable are shown."""
    yield "| differences | n | " + " | ".join(f"{m} metrics" for m in FAMILIES) + " |"
    yield "|---" * (2 + len(FAMILIES)) + "|"
    with tempfile.TemporaryDirectory() as folder:
        for population in POPULATIONS:
            for n in sizes:
                cells = []
                for m in FAMILIES:
                    effects, share, silent = power_of(population, n, m, trials, Path(folder))
                    none = f", none in {silent}" if silent else ""
                    cells.append(f"{100 * share:.0f} % of {np.median(effects):.2f}{none}" if effects else "none stated")
                yield f"| {population.name} | {n} | " + " | ".join(cells) + " |"


# --- level -------------------------------------------------------------------------------------------

SIZES = (50, 200, 600, 2000)
REDRAWN = 0.2
"""The share of the traces that answer as another one does, on either side."""


def demo_scores() -> Scores:
    """Return the scores of the metrics of the decision tree on the demo, traces by metrics."""
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(list(load_handbook().traces["v1"]), Path(folder) / "run", judge="lexical")
        matrix = open_matrix(run)
        columns: dict[str, int] = {}
        for at, name in enumerate(matrix.metric_names):
            if metric_name(name) in TREE_METRICS:
                columns.setdefault(metric_name(name), at)
        return matrix.values[:, list(columns.values())]


def level(trials: int) -> Iterator[str]:
    """Yield how often any metric changes, and how often one drops, where both sides are drawn alike."""
    scores = demo_scores()
    yield f"| pairs | any of {scores.shape[1]} metrics rejected at 5 % | any of them for a drop |"
    yield "|---|---|---|"
    for n in SIZES:
        rejected = dropped = 0
        for trial in range(trials):
            rng = np.random.default_rng([n, trial])
            rows = rng.integers(0, len(scores), n)
            sides = [scores[np.where(rng.random(n) < REDRAWN, rng.integers(0, len(scores), n), rows)] for _ in range(2)]
            defined = np.isfinite(sides[0]) & np.isfinite(sides[1])
            tests = sign_flip_tests(*sides, defined=defined, resamples=1999, seed=trial)
            measured = [test for test in tests if test is not None]
            adjusted = holm_adjust([test.p for test in measured])
            rejected += min(adjusted) <= 0.05
            dropped += any(p <= 0.05 and t.statistic < 0 for p, t in zip(adjusted, measured, strict=True))
        yield f"| {n:,} | {rejected} of {trials} | {dropped} of {trials} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("power", "level"))
    parser.add_argument("--trials", type=int, default=400)
    asked = parser.parse_args()
    start = time.perf_counter()
    for line in {"power": power, "level": level}[asked.what](asked.trials):
        print(line, flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
