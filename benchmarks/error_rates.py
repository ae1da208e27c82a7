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
from numpy.typing import NDArray

from benchmarks.null_bisections import bisect_level
from ragfault.comparison.compare import classify_difference, compare, pairs_to_decide
from ragfault.comparison.decision_tree import TREE_METRICS
from ragfault.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.comparison.settings import ALPHA, POWER
from ragfault.diagnosis.run_table import open_table
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Trace
from ragfault.stats.differences import paired_difference
from ragfault.stats.distributions import normal_cdf, normal_quantile
from ragfault.stats.intervals import mean_interval
from ragfault.stats.power import typical_jump
from ragfault.stats.quantiles import paired_ratio, quantile_changes, ratio_interval
from ragfault.stats.significance import equivalence_test, holm_adjust, sign_flip_test, sign_flip_tests

Scores = NDArray[np.float64]
Clusters = NDArray[np.intp] | None


def write_paired_runs(folder: Path, n: int, clusters: Clusters = None) -> PairedRuns:
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


def replace_share(rng: np.random.Generator, first: Scores, second: Scores, share: float) -> Scores:
    """Return the first scores, a share of them replaced by the second."""
    return np.where(rng.uniform(size=len(first)) < share, second, first)


def lower_scores(rng: np.random.Generator, scores: Scores, change: float, part: float) -> Scores:
    """Lower the mean by `change`: a random share of the scores loses the share `part` of its value."""
    mean = float(scores.mean())
    return np.where(rng.uniform(size=len(scores)) < change / (part * mean), (1 - part) * scores, scores)


def draw_binary_scores(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw 0/1 scores, 80 % ones; a tenth is drawn again."""
    old, new = ((rng.uniform(size=n) < 0.8).astype(float) for _ in range(2))
    return old, lower_scores(rng, replace_share(rng, old, new, 0.1), change, 1.0)


def draw_claim_shares(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw shares of five claims; three in ten are drawn again."""
    old, new = (rng.binomial(5, 0.85, size=n) / 5 for _ in range(2))
    return old, lower_scores(rng, replace_share(rng, old, new, 0.3), change, 0.6)


def draw_skewed_scores(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw scores near 1 with a long tail; half of them are drawn again."""
    old, new = (rng.beta(8, 1, size=n) for _ in range(2))
    return old, lower_scores(rng, replace_share(rng, old, new, 0.5), change, 0.5)


def draw_near_perfect_scores(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw scores that are 1 but for one in twenty; a tenth is drawn again."""
    old, new = (np.where(rng.uniform(size=n) < 0.05, rng.beta(2, 2, size=n), 1.0) for _ in range(2))
    return old, lower_scores(rng, replace_share(rng, old, new, 0.1), change, 0.7)


def draw_conversation_scores(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw conversations of five turns that share half of the variance of the difference."""
    shared = np.repeat(rng.normal(0, 0.1, size=-(-n // 5)), 5)[:n]
    old = rng.uniform(0.4, 0.6, size=n)
    return old, np.clip(old + shared + rng.normal(0, 0.1, size=n) - change, 0, 1)


def draw_shifted_scores(rng: np.random.Generator, n: int, change: float) -> tuple[Scores, Scores]:
    """Draw scores that all fall by the same amount."""
    old = rng.uniform(0.4, 0.8, size=n)
    return old, np.clip(old + rng.normal(0, 0.08, size=n) - change, 0, 1)


POPULATIONS = (
    Population("0/1, 80 % ones", draw_binary_scores),
    Population("shares of five claims", draw_claim_shares),
    Population("skewed", draw_skewed_scores),
    Population("95 % ones, else anything", draw_near_perfect_scores),
    Population("conversations of five", draw_conversation_scores, 5),
    Population("all fall alike", draw_shifted_scores),
)
FAMILIES = (1, 4, 12, 39)


def add_simulated_metrics(
    paired: PairedRuns, scores: tuple[Scores, Scores], other_metrics: int, rng: np.random.Generator
) -> list[str]:
    """Add simulated metrics to the runs: the first with the given scores, others in which four traces moved by chance.

    Returns the names of the metrics.
    """
    paired.add_metric(MetricInfo("groundedness", "generation"), *scores)
    for k in range(other_metrics):
        old = np.ones(len(scores[0]))
        new = old.copy()
        places = rng.choice(len(old), 4, replace=False)
        new[places[:2]], old[places[2:]] = 0.0, 0.0
        paired.add_metric(MetricInfo(f"other{k}", "generation"), old, new)
    return ["groundedness", *(f"other{k}" for k in range(other_metrics))]


def simulate_detectable_changes(
    population: Population, n: int, metrics: int, trials: int, folder: Path
) -> tuple[list[float], float, int]:
    """Return the detectable changes of pilots of n pairs, the share detected, and the number of pilots without one."""
    clusters = np.arange(n) // population.cluster_size if population.cluster_size > 1 else None
    paired = write_paired_runs(folder, n, clusters)
    effects, detected, without_detectable = [], 0, 0
    for trial in range(trials):
        rng = np.random.default_rng([n, metrics, trial])
        names = add_simulated_metrics(paired, population.draw(rng, n, 0.0), metrics - 1, rng)
        detectable = compare(paired, metrics=names).changes[0].detectable
        if detectable is None:
            without_detectable += 1
            continue
        effects.append(detectable)
        names = add_simulated_metrics(paired, population.draw(rng, n, detectable), metrics - 1, rng)
        detected += compare(paired, metrics=names).changes[0].state == "dropped"
    return effects, detected / max(1, len(effects)), without_detectable


def yield_power_table(trials: int, sizes: Sequence[int] = (50, 200)) -> Iterator[str]:
    """Yield a table of how often changes of the size that `compare` calls detectable are detected."""
    yield "| differences | n | " + " | ".join(f"{count} metrics" for count in FAMILIES) + " |"
    yield "|---" * (2 + len(FAMILIES)) + "|"
    with tempfile.TemporaryDirectory() as folder:
        for population in POPULATIONS:
            for n in sizes:
                cells = []
                for count in FAMILIES:
                    effects, share, without_detectable = simulate_detectable_changes(
                        population, n, count, trials, Path(folder)
                    )
                    missing = f", none in {without_detectable}" if without_detectable else ""
                    cells.append(
                        f"{100 * share:.0f} % of {np.median(effects):.2f}{missing}" if effects else "none stated"
                    )
                yield f"| {population.name} | {n} | " + " | ".join(cells) + " |"


PILOT, NEEDED_MARGIN, DRAWS = 100, 0.05, 3
"""Pairs of a pilot without a change, the change to be shown, and samples of the needed size for each pilot."""


def simulate_needed_pairs(population: Population, metrics: int, trial: int) -> tuple[int, int] | None:
    """Return the number of pairs that a pilot calls needed, and in how many samples of that size a change is shown."""
    rng = np.random.default_rng([metrics, trial, 7])

    def number_turns(n: int) -> list[int] | None:
        return (np.arange(n) // population.cluster_size).tolist() if population.cluster_size > 1 else None

    old, new = population.draw(rng, PILOT, 0.0)
    pilot = paired_difference(old, new, number_turns(PILOT), bounds=(0, 1))
    jump = typical_jump(new - old, number_turns(PILOT), 1.0)
    n = pairs_to_decide(pilot, NEEDED_MARGIN, power=POWER, alpha=ALPHA, family=metrics, jump=jump)
    if n is None:
        return None
    detected = 0
    for _ in range(DRAWS):
        old, new = population.draw(rng, n, NEEDED_MARGIN)
        difference = paired_difference(old, new, number_turns(n), bounds=(0, 1))
        adjusted = min(1.0, metrics * sign_flip_test(old, new, number_turns(n)).p)  # as if only this metric changed
        equal = equivalence_test(difference, NEEDED_MARGIN, ALPHA).p
        detected += classify_difference(difference, adjusted, equal, ALPHA) == "dropped"
    return n, detected


def yield_needed_table(trials: int) -> Iterator[str]:
    """Yield a table of how often a change of the margin is shown with as many pairs as `compare` calls needed."""
    yield "| differences | " + " | ".join(f"{count} metrics" for count in FAMILIES) + " |"
    yield "|---" * (1 + len(FAMILIES)) + "|"
    for population in POPULATIONS:
        cells = []
        for count in FAMILIES:
            results = [
                result for i in range(trials) if (result := simulate_needed_pairs(population, count, i)) is not None
            ]
            detected = sum(count for _, count in results) / max(1, DRAWS * len(results))
            cells.append(
                f"{100 * detected:.0f} % of {DRAWS * len(results)}, n = {np.median([n for n, _ in results]):.0f}"
            )
        yield f"| {population.name} | {' | '.join(cells)} |"


# --- level -------------------------------------------------------------------------------------------

SIZES = (50, 200, 600, 2000)
REDRAWN_SHARE = 0.2
"""The share of the traces that answer as another one does, on either side."""


def compute_demo_scores() -> Scores:
    """Return the scores of the metrics of the decision tree on the demo, traces by metrics."""
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(list(load_handbook().traces["v1"]), Path(folder) / "run", judge="lexical")
        matrix = open_table(run)
        columns: dict[str, int] = {}
        for index, name in enumerate(matrix.metric_names):
            if metric_name(name) in TREE_METRICS:
                columns.setdefault(metric_name(name), index)
        return matrix.values[:, list(columns.values())]


def yield_level_table(trials: int) -> Iterator[str]:
    """Yield a table of how often any metric changes, and how often one drops, where both sides are drawn alike."""
    scores = compute_demo_scores()
    yield f"| pairs | any of {scores.shape[1]} metrics rejected at 5 % | any of them for a drop |"
    yield "|---|---|---|"
    for n in SIZES:
        rejected = dropped = 0
        for trial in range(trials):
            rng = np.random.default_rng([n, trial])
            rows = rng.integers(0, len(scores), n)
            sides = [
                scores[np.where(rng.random(n) < REDRAWN_SHARE, rng.integers(0, len(scores), n), rows)] for _ in range(2)
            ]
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


class ValueDistribution(NamedTuple):
    """A distribution of values as a function of a standard normal variable that does not fall."""

    name: str
    transform: Callable[[Scores], Scores]
    mean: float
    bounds: tuple[float, float] = (-np.inf, np.inf)

    def compute_quantile(self, share: float) -> float:
        return float(self.transform(np.array([normal_quantile(share)]))[0])


SHARE_OF_ONES, SHARE_OF_ZEROS = 0.8, 0.6
DISTRIBUTIONS = (
    ValueDistribution("normal", lambda z: z, 0.0),
    ValueDistribution(
        "zero-inflated",
        lambda z: np.maximum(0.0, (np.vectorize(normal_cdf)(z) - SHARE_OF_ZEROS) / (1 - SHARE_OF_ZEROS)),
        (1 - SHARE_OF_ZEROS) / 2,
        (0.0, 1.0),
    ),
    ValueDistribution("lognormal", np.exp, float(np.exp(0.5))),
    ValueDistribution(
        "0/1", lambda z: (z > normal_quantile(1 - SHARE_OF_ONES)).astype(float), SHARE_OF_ONES, (0.0, 1.0)
    ),
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


def has_value(low: float | None, high: float | None, value: float) -> bool:
    """Return whether an interval holds a value; an end that is undefined excludes none."""
    return (low is None or low <= value) and (high is None or value <= high)


def is_mean_covered(
    rng: np.random.Generator, clusters: Clusters, correlation: float, distribution: ValueDistribution
) -> bool:
    """Return whether the interval of a mean holds the true one."""
    estimate = mean_interval(
        distribution.transform(draw_normals(rng, clusters, correlation)), clusters, bounds=distribution.bounds
    )
    return has_value(estimate.low, estimate.high, distribution.mean)


def draw_latencies(rng: np.random.Generator, clusters: Clusters, correlation: float) -> tuple[Scores, Scores]:
    """Draw lognormal values of both sides of pairs; half of their variance is the pair's own."""
    query, old, new = (draw_normals(rng, clusters, correlation) for _ in range(3))
    return tuple(np.exp(np.sqrt(0.5) * (query + side)) for side in (old, new))  # type: ignore[return-value]


QUANTILES = (0.5, 0.95, 0.99)
RATIO_OF_CHANGE = 1.3
ANSWERED_SHARE = 0.9


class IntervalOutcome(NamedTuple):
    """Whether an interval holds the true value, whether it has both ends, and p where nothing changed."""

    is_covered: bool
    is_complete: bool
    p: float | None = None


def measure_quantiles(rng: np.random.Generator, clusters: Clusters, correlation: float) -> dict[str, IntervalOutcome]:
    """Compute every interval and test on one sample of pairs, and hold them against the true values."""
    old, new = draw_latencies(rng, clusters, correlation)
    outcomes = {}
    seed = int(rng.integers(1 << 30))
    changed_quantiles = quantile_changes(old, RATIO_OF_CHANGE * new, QUANTILES, clusters, seed=seed)
    same_quantiles = quantile_changes(old, new, QUANTILES, clusters, seed=seed)
    for share, change, same_change in zip(QUANTILES, changed_quantiles, same_quantiles, strict=True):
        true, side = float(np.exp(normal_quantile(share))), change.baseline
        outcomes[f"p{100 * share:g}"] = IntervalOutcome(has_value(side.low, side.high, true), side.reason is None)
        is_covered = has_value(change.low, change.high, (RATIO_OF_CHANGE - 1) * true)
        outcomes[f"change of p{100 * share:g}"] = IntervalOutcome(is_covered, change.reason is None, same_change.p)
    ratio = paired_ratio(old, RATIO_OF_CHANGE * new, clusters)
    outcomes["ratio of means"] = IntervalOutcome(
        has_value(ratio.low, ratio.high, RATIO_OF_CHANGE), True, paired_ratio(old, new, clusters).p
    )
    answered = rng.uniform(size=len(old)) < ANSWERED_SHARE
    per_answered = ratio_interval(old, answered, clusters)
    outcomes["per answered trace"] = IntervalOutcome(
        has_value(per_answered.low, per_answered.high, float(np.exp(0.5)) / ANSWERED_SHARE), True
    )
    return outcomes


def yield_mean_coverage(trials: int) -> Iterator[str]:
    """Yield a table of the coverage of intervals of means."""
    yield "| mean of values | clusters | " + " | ".join(f"{count} clusters" for count in CLUSTER_COUNTS) + " |"
    yield "|---" * (2 + len(CLUSTER_COUNTS)) + "|"
    for distribution in DISTRIBUTIONS:
        for uneven in (False, True):
            for correlation in CORRELATIONS:
                cells = []
                for groups in CLUSTER_COUNTS:
                    clusters = number_clusters(groups, uneven)
                    rng = np.random.default_rng([groups, uneven, int(10 * correlation), len(distribution.name)])
                    covered = sum(is_mean_covered(rng, clusters, correlation, distribution) for _ in range(trials))
                    cells.append(f"{100 * covered / trials:.1f} %")
                sizes = "one holds half" if uneven else "equal"
                yield f"| {distribution.name} | {sizes}, correlation {correlation:g} | " + " | ".join(cells) + " |"


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


def yield_quantile_coverage(trials: int) -> Iterator[str]:
    """Yield a table of the coverage of intervals of quantiles and ratios, and of the level of their tests."""
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
        for figure in samples[0]:
            covered = np.mean([result[figure][0] for result in samples])
            complete = np.mean([result[figure][1] for result in samples])
            tested = [p for result in samples if (p := result[figure][2]) is not None]
            cell = f"{100 * covered:.1f} %" if complete else "undefined"
            cell += f" ({100 * complete:.0f} % complete)" if 0 < complete < 1 else ""
            cells.append(cell + (f", {100 * np.mean(np.array(tested) <= 0.05):.1f} %" if tested else ""))
        yield f"| {name} | {' | '.join(cells)} |"


def yield_coverage_tables(trials: int) -> Iterator[str]:
    """Yield the tables of the coverage of 95 % intervals."""
    yield from yield_quantile_coverage(trials)
    yield ""
    yield from yield_mean_coverage(trials)


TABLES = {
    "power": yield_power_table,
    "level": yield_level_table,
    "coverage": yield_coverage_tables,
    "bisect": bisect_level,
    "needed": yield_needed_table,
}


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
