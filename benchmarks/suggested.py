"""Measure width and coverage of corrected intervals with suggested labels, against a uniform sample.

python benchmarks/suggested.py [--samples 500]
"""

from __future__ import annotations

import argparse

import numpy as np

from ragfault.labels.annotation.session import compute_chances
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.ppi import ppi_mean

TRACES = 2000


def sample_population(rng: np.random.Generator, honest: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sample judge values, human values, and the judge's uncertainty for each trace.

    Each answer makes one to six claims; most are clear, some are not. An honest judge is right as often as it
    says; the other one is wrong most where it is sure.
    """
    sizes = rng.integers(1, 7, TRACES)
    judge_values, human_values, uncertainty = np.empty(TRACES), np.empty(TRACES), np.empty(TRACES)
    for index, size in enumerate(sizes.tolist()):
        clear = rng.random(size) < 0.75
        p = np.where(clear, np.where(rng.random(size) < 0.85, 0.97, 0.03), rng.uniform(0.25, 0.75, size))
        truth = rng.random(size) < (p if honest else np.where(clear, 0.6, np.round(p)))
        judge_values[index], human_values[index] = (p >= 0.5).mean(), truth.mean()
        uncertainty[index] = np.sqrt((p * (1 - p)).sum()) / size
    return judge_values, human_values, uncertainty


def draw_systematic(rng: np.random.Generator, chance: FloatArray) -> FloatArray:
    """Return a mask of the traces that one systematic sample in random order takes."""
    order = rng.permutation(chance.size)
    edges = np.cumsum(chance[order]) + rng.random()
    taken = np.zeros(chance.size, bool)
    taken[order] = np.floor(edges) > np.floor(edges - chance[order])
    return taken


def measure_interval(rng: np.random.Generator, honest: bool, n: int, by_uncertainty: bool) -> tuple[float, bool]:
    """Return the width of one interval, and whether it covers the mean of human values."""
    judge_values, human_values, uncertainty = sample_population(rng, honest)
    chance = compute_chances(uncertainty if by_uncertainty else np.zeros(TRACES), n)
    labels = np.where(draw_systematic(rng, chance), human_values, np.nan)
    interval = ppi_mean(judge_values, labels, bounds=(0, 1), sampling_probabilities=chance).interval
    assert interval is not None
    truth = TRUE_MEANS[honest]
    return interval.high - interval.low, interval.low <= truth <= interval.high


TRUE_MEANS = {
    honest: float(np.mean([sample_population(np.random.default_rng(seed), honest)[1].mean() for seed in range(60)]))
    for honest in (True, False)
}
"""Mean of the populations."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=500)
    samples = parser.parse_args().samples
    print("| judge | labels | width, drawn alike | width, suggested | ratio | held, alike | held, suggested |")
    print("|---|---|---|---|---|---|---|")
    for honest in (True, False):
        for n in (50, 100, 200):
            rng = np.random.default_rng(n)
            rows = [
                [measure_interval(rng, honest, n, by_uncertainty) for _ in range(samples)]
                for by_uncertainty in (False, True)
            ]
            widths = [float(np.mean([width for width, _ in row])) for row in rows]
            coverage = [float(np.mean([inside for _, inside in row])) for row in rows]
            name = "right as often as it says" if honest else "wrong where it is sure"
            print(
                f"| {name} | {n} | {widths[0]:.3f} | {widths[1]:.3f} | {widths[1] / widths[0]:.2f} "
                f"| {100 * coverage[0]:.1f} % | {100 * coverage[1]:.1f} % |"
            )


if __name__ == "__main__":
    main()
