"""Check by simulation the interval of the level that a few questions of people give.

    python -m benchmarks.levels --simulations 4000

Values of recall are drawn from populations of known mean: found or not, and shares of two or three places that each
question needs. Prints how often the interval contains the true mean, a Markdown table. With 4,000 simulations a
coverage that is truly 95 % is seen between 94.3 and 95.7 %.
"""

from __future__ import annotations

import argparse
from statistics import fmean

import numpy as np

from ragfault.diagnosis.question_levels import measure_level
from ragfault.stats.bootstrap import FloatArray

SIZES = (10, 20, 50)
MEANS = (0.3, 0.5, 0.64, 0.8, 0.9, 0.97)
PLACES = (1, 2, 3)
"""Places that a question needs, of which the value is the share found."""
STRENGTH = 1.5
"""Of the beta distribution of a question's chance to have a place found: few easy and hard ones are between."""


def draw_values(rng: np.random.Generator, mean: float, places: int, size: int) -> FloatArray:
    """Draw the recall of questions with so many places."""
    chances = rng.beta(mean * STRENGTH, (1 - mean) * STRENGTH, size)
    return rng.binomial(places, chances) / places


def measure_coverage(mean: float, places: int, size: int, simulations: int) -> tuple[float, float]:
    """Return how often the interval has the true mean, and its mean width."""
    rng = np.random.default_rng([round(100 * mean), places, size])
    hits, widths = 0, []
    for _ in range(simulations):
        values = draw_values(rng, mean, places, size).tolist()
        level = measure_level("recall", [1.0, *values], [True] + [False] * size)
        assert level is not None
        assert level.own is not None
        hits += level.own.low <= mean <= level.own.high
        widths.append(level.own.high - level.own.low)
    return hits / simulations, fmean(widths)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000)
    simulations = parser.parse_args().simulations
    print(f"| questions of people | places | {' | '.join(f'true {mean:g}' for mean in MEANS)} |")
    print("|---|---|" + "---|" * len(MEANS))
    for size in SIZES:
        for places in PLACES:
            results = [measure_coverage(mean, places, size, simulations) for mean in MEANS]
            cells = " | ".join(f"{coverage:.3f} ({width:.2f})" for coverage, width in results)
            print(f"| {size} | {places} | {cells} |")


if __name__ == "__main__":
    main()
