"""Check by simulation the error rates of whole decisions.

    python -m benchmarks.error_rates power [--trials 400]
    python -m benchmarks.error_rates needed [--trials 12]
    python -m benchmarks.error_rates level [--trials 400]
    python -m benchmarks.error_rates coverage [--trials 300]
    python -m benchmarks.error_rates bisect [--trials 400]

`power` writes two small runs, puts simulated scores into them in place of their metrics, and calls `compare` as a user
does; `needed` counts how often a change is shown with as many pairs as a pilot says would show it. `level` draws both
sides of a pair in the same way from the scores of the demo, and tests the metrics of the
decision tree together. `coverage` counts how often 95 % intervals of means, quantiles and ratios of clustered values
hold the true value. `bisect` counts what whole bisections of two runs of one system name (`null_bisections`). Prints
Markdown tables.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.null_bisections import bisect_level
from numpy.typing import NDArray

from ragfault.analysis import compare, pair_runs
from ragfault.analysis.comparison.compare import ALPHA, POWER, classify_difference, pairs_to_decide
from ragfault.analysis.comparison.decision_tree import TREE_METRICS
from ragfault.analysis.comparison.paired_runs import PairedRuns
from ragfault.analysis.score_matrix import metric_name, open_matrix
from ragfault.evaluation import evaluate
from ragfault.io.datasets import load_handbook
from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.stats import (
    equivalence_test,
    holm_adjust,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile_changes,
    ratio_interval,
    sign_flip_test,
    sign_flip_tests,
    typical_jump,
)
from ragfault.stats.distributions import normal_cdf, normal_quantile

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


PILOT, NEEDED_MARGIN, DRAWS = 100, 0.05, 3
"""Pairs of a pilot without a change, the change to be shown, and samples of the needed size for each pilot."""


def show_needed(population: Population, tests: int, trial: int) -> tuple[int, int] | None:
    """Return the pairs that a pilot says are needed, and in how many samples of so many a change is shown."""
    rng = np.random.default_rng([tests, trial, 7])

    def cluster(n: int) -> list[int] | None:
        return (np.arange(n) // population.cluster_size).tolist() if population.cluster_size > 1 else None

    old, new = population.draw(rng, PILOT, 0.0)
    pilot = paired_difference(old, new, cluster(PILOT), bounds=(0, 1))
    jump = typical_jump(new - old, cluster(PILOT), 1.0)
    n = pairs_to_decide(pilot, NEEDED_MARGIN, power=POWER, alpha=ALPHA, family=tests, jump=jump)
    if n is None:
        return None
    shown = 0
    for _ in range(DRAWS):
        old, new = population.draw(rng, n, NEEDED_MARGIN)
        difference = paired_difference(old, new, cluster(n), bounds=(0, 1))
        adjusted = min(1.0, tests * sign_flip_test(old, new, cluster(n)).p)  # as if only this metric changed
        equal = equivalence_test(difference, NEEDED_MARGIN, ALPHA).p
        shown += classify_difference(difference, adjusted, equal, ALPHA) == "dropped"
    return n, shown


def needed(trials: int) -> Iterator[str]:
    """Yield how often a change of the margin is shown with as many pairs as `compare` says would show it."""
    yield "| differences | " + " | ".join(f"{m} metrics" for m in FAMILIES) + " |"
    yield "|---" * (1 + len(FAMILIES)) + "|"
    for population in POPULATIONS:
        cells = []
        for m in FAMILIES:
            results = [result for i in range(trials) if (result := show_needed(population, m, i)) is not None]
            shown = sum(count for _, count in results) / max(1, DRAWS * len(results))
            cells.append(f"{100 * shown:.0f} % of {DRAWS * len(results)}, n = {np.median([n for n, _ in results]):.0f}")
        yield f"| {population.name} | {' | '.join(cells)} |"


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
        for index, name in enumerate(matrix.metric_names):
            if metric_name(name) in TREE_METRICS:
                columns.setdefault(metric_name(name), index)
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


# --- coverage ----------------------------------------------------------------------------------------

CLUSTER_COUNTS = (5, 8, 12, 20, 50)
CORRELATIONS = (0.0, 0.2, 0.6)
"""Shares of the variance, on the normal scale, that the values of a cluster have in common."""
CLUSTER_SIZE = 10
"""Values of a cluster; in uneven samples the first cluster holds as many as all others together."""


class Shape(NamedTuple):
    """A distribution of values as a function of a standard normal variable that does not fall."""

    name: str
    transform: Callable[[Scores], Scores]
    mean: float
    bounds: tuple[float, float] = (-np.inf, np.inf)

    def quantile(self, share: float) -> float:
        return float(self.transform(np.array([normal_quantile(share)]))[0])


ONES, ZEROS = 0.8, 0.6
SHAPES = (
    Shape("normal", lambda z: z, 0.0),
    Shape(
        "zero-inflated",
        lambda z: np.maximum(0.0, (np.vectorize(normal_cdf)(z) - ZEROS) / (1 - ZEROS)),
        (1 - ZEROS) / 2,
        (0.0, 1.0),
    ),
    Shape("lognormal", np.exp, float(np.exp(0.5))),
    Shape("0/1", lambda z: (z > normal_quantile(1 - ONES)).astype(float), ONES, (0.0, 1.0)),
)


def number_clusters(groups: int, uneven: bool) -> Clusters:
    """Return the cluster of each value."""
    first = CLUSTER_SIZE * (groups - 1) if uneven else CLUSTER_SIZE
    return np.repeat(np.arange(groups), [first] + [CLUSTER_SIZE] * (groups - 1))


def draw_normals(rng: np.random.Generator, clusters: Clusters, correlation: float) -> Scores:
    """Draw standard normal values that share a part of their variance within a cluster."""
    assert clusters is not None
    shared = rng.normal(size=int(clusters.max()) + 1)[clusters]
    return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.normal(size=len(clusters))


def holds(low: float | None, high: float | None, value: float) -> bool:
    """Return whether an interval holds a value; an end that is undefined excludes none."""
    return (low is None or low <= value) and (high is None or value <= high)


def measure_mean(rng: np.random.Generator, clusters: Clusters, correlation: float, shape: Shape) -> bool:
    """Return whether the interval of a mean holds the true one."""
    estimate = mean_interval(shape.transform(draw_normals(rng, clusters, correlation)), clusters, bounds=shape.bounds)
    return holds(estimate.low, estimate.high, shape.mean)


def draw_latencies(rng: np.random.Generator, clusters: Clusters, correlation: float) -> tuple[Scores, Scores]:
    """Draw lognormal values of both sides of pairs; half of their variance is the pair's own."""
    query, old, new = (draw_normals(rng, clusters, correlation) for _ in range(3))
    return tuple(np.exp(np.sqrt(0.5) * (query + side)) for side in (old, new))  # type: ignore[return-value]


QUANTILES = (0.5, 0.95, 0.99)
RISE = 1.3
ANSWERED = 0.9


class Outcome(NamedTuple):
    """Whether an interval holds the true value, whether it has both ends, and p where nothing changed."""

    covered: bool
    complete: bool
    p: float | None = None


def measure_quantiles(rng: np.random.Generator, clusters: Clusters, correlation: float) -> dict[str, Outcome]:
    """Measure every interval and test on one sample of pairs."""
    old, new = draw_latencies(rng, clusters, correlation)
    outcomes = {}
    seed = int(rng.integers(1 << 30))
    risen = quantile_changes(old, RISE * new, QUANTILES, clusters, seed=seed)
    alike = quantile_changes(old, new, QUANTILES, clusters, seed=seed)
    for share, change, same in zip(QUANTILES, risen, alike, strict=True):
        true, side = float(np.exp(normal_quantile(share))), change.baseline
        outcomes[f"p{100 * share:g}"] = Outcome(holds(side.low, side.high, true), side.reason is None)
        covered = holds(change.low, change.high, (RISE - 1) * true)
        outcomes[f"change of p{100 * share:g}"] = Outcome(covered, change.reason is None, same.p)
    ratio = paired_ratio(old, RISE * new, clusters)
    outcomes["ratio of means"] = Outcome(holds(ratio.low, ratio.high, RISE), True, paired_ratio(old, new, clusters).p)
    answered = rng.uniform(size=(2, len(old))) < ANSWERED
    per = ratio_interval(old, answered[0], clusters)
    both = paired_ratio(old, new, clusters, denominators=(answered[0], answered[1]), seed=seed)
    outcomes["per answered trace"] = Outcome(holds(per.low, per.high, float(np.exp(0.5)) / ANSWERED), True)
    outcomes["change per answered trace"] = Outcome(holds(both.low, both.high, 1.0), True, both.p)
    return outcomes


def cover_means(trials: int) -> Iterator[str]:
    """Yield the coverage of intervals of means."""
    yield "| mean of values | clusters | " + " | ".join(f"{m} clusters" for m in CLUSTER_COUNTS) + " |"
    yield "|---" * (2 + len(CLUSTER_COUNTS)) + "|"
    for shape in SHAPES:
        for uneven in (False, True):
            for correlation in CORRELATIONS:
                cells = []
                for groups in CLUSTER_COUNTS:
                    clusters = number_clusters(groups, uneven)
                    rng = np.random.default_rng([groups, uneven, int(10 * correlation), len(shape.name)])
                    covered = sum(measure_mean(rng, clusters, correlation, shape) for _ in range(trials))
                    cells.append(f"{100 * covered / trials:.1f} %")
                sizes = "one holds half" if uneven else "equal"
                yield f"| {shape.name} | {sizes}, correlation {correlation:g} | " + " | ".join(cells) + " |"


QUANTILE_CASES = (
    ("50 values", 50, 0.0, 1),
    ("100 values", 100, 0.0, 1),
    ("400 values", 400, 0.0, 1),
    ("1,000 values", 1000, 0.0, 1),
    ("8 clusters, 0.2", 8, 0.2, CLUSTER_SIZE),
    ("20 clusters, 0.2", 20, 0.2, CLUSTER_SIZE),
    ("20 clusters, 0.6", 20, 0.6, CLUSTER_SIZE),
    ("50 clusters, 0.2", 50, 0.2, CLUSTER_SIZE),
    ("50 clusters, 0.6", 50, 0.6, CLUSTER_SIZE),
    ("50 uneven clusters, 0.2", 50, 0.2, 0),
)
"""Name, number of clusters, correlation, and values of a cluster; 0: one holds half."""


def cover_quantiles(trials: int) -> Iterator[str]:
    """Yield the coverage of intervals of quantiles and ratios of lognormal values, and the level of their tests."""
    head = ""
    for name, groups, correlation, size in QUANTILE_CASES:
        clusters = number_clusters(groups, True) if not size else np.repeat(np.arange(groups), size)
        rng = np.random.default_rng([groups, size, int(10 * correlation)])
        samples = [measure_quantiles(rng, clusters, correlation) for _ in range(trials)]
        if not head:
            head = f"| coverage, and rejections at 5 % where nothing changed | {' | '.join(samples[0])} |"
            yield head
            yield "|---" * (1 + len(samples[0])) + "|"
        cells = []
        for what in samples[0]:
            covered = np.mean([result[what][0] for result in samples])
            complete = np.mean([result[what][1] for result in samples])
            tested = [p for result in samples if (p := result[what][2]) is not None]
            cell = f"{100 * covered:.1f} %" if complete else "undefined"
            cell += f" ({100 * complete:.0f} % complete)" if 0 < complete < 1 else ""
            cells.append(cell + (f", {100 * np.mean(np.array(tested) <= 0.05):.1f} %" if tested else ""))
        yield f"| {name} | {' | '.join(cells)} |"


def coverage(trials: int) -> Iterator[str]:
    """Yield the coverage of 95 % intervals."""
    yield from cover_quantiles(trials)
    yield ""
    yield from cover_means(trials)


TABLES = {"power": power, "level": level, "coverage": coverage, "bisect": bisect_level, "needed": needed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=tuple(TABLES))
    parser.add_argument("--trials", type=int, default=400)
    options = parser.parse_args()
    start = time.perf_counter()
    for line in TABLES[options.what](options.trials):
        print(line, flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
