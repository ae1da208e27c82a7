"""Whether labels that `ragfault label suggest` draws narrow a rectified interval more than as many drawn alike, and
whether it still holds the truth as often as it says.

python benchmarks/suggested.py [--samples 500]
"""

from __future__ import annotations

import argparse

import numpy as np

from ragfault.evaluation.agreement.annotation.session import compute_chances
from ragfault.stats import ppi_mean
from ragfault.stats.clusters import FloatArray

TRACES = 2000


def population(rng: np.random.Generator, honest: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of each trace what the judge says, what people would say, and the judge's doubt.

    Each answer makes one to six claims; most are clear, some are not. An honest judge is right as often as it says;
    the other one is wrong most where it is sure.
    """
    sizes = rng.integers(1, 7, TRACES)
    judged, people, doubt = np.empty(TRACES), np.empty(TRACES), np.empty(TRACES)
    for at, size in enumerate(sizes.tolist()):
        clear = rng.random(size) < 0.75
        p = np.where(clear, np.where(rng.random(size) < 0.85, 0.97, 0.03), rng.uniform(0.25, 0.75, size))
        truth = rng.random(size) < (p if honest else np.where(clear, 0.6, np.round(p)))
        judged[at], people[at] = (p >= 0.5).mean(), truth.mean()
        doubt[at] = np.sqrt((p * (1 - p)).sum()) / size
    return judged, people, doubt


def systematic(rng: np.random.Generator, chance: FloatArray) -> FloatArray:
    """Which are drawn, by one systematic draw in random order."""
    order = rng.permutation(chance.size)
    edges = np.cumsum(chance[order]) + rng.random()
    taken = np.zeros(chance.size, bool)
    taken[order] = np.floor(edges) > np.floor(edges - chance[order])
    return taken


def sampled(rng: np.random.Generator, honest: bool, n: int, picked: bool) -> tuple[float, bool]:
    """The width of one interval, and whether it holds the mean that people would give to all."""
    judged, people, doubt = population(rng, honest)
    chance = compute_chances(doubt if picked else np.zeros(TRACES), n)
    said = np.where(systematic(rng, chance), people, np.nan)
    found = ppi_mean(judged, said, bounds=(0, 1), sampling_probabilities=chance).interval
    assert found is not None
    truth = TRUTH[honest]
    return found.high - found.low, found.low <= truth <= found.high


TRUTH = {
    honest: float(np.mean([population(np.random.default_rng(seed), honest)[1].mean() for seed in range(60)]))
    for honest in (True, False)
}
"""The mean of the populations that traces are drawn from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=500)
    samples = parser.parse_args().samples
    print(
        "| judge | labels | width, drawn alike | width, suggested | ratio | held, alike | held, suggested |"
    )
    print("|---|---|---|---|---|---|---|")
    for honest in (True, False):
        for n in (50, 100, 200):
            rng = np.random.default_rng(n)
            rows = [[sampled(rng, honest, n, picked) for _ in range(samples)] for picked in (False, True)]
            widths = [float(np.mean([width for width, _ in each])) for each in rows]
            held = [float(np.mean([inside for _, inside in each])) for each in rows]
            name = "right as often as it says" if honest else "wrong where it is sure"
            print(
                f"| {name} | {n} | {widths[0]:.3f} | {widths[1]:.3f} | {widths[1] / widths[0]:.2f} "
                f"| {100 * held[0]:.1f} % | {100 * held[1]:.1f} % |"
            )


if __name__ == "__main__":
    main()
