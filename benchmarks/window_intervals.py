"""Measure how often the interval of a difference between two windows of traffic holds 0 where nothing changed.

    python -m benchmarks.window_intervals [--samples 150]

Each minute has about one trace, whose score is 0 or 1 by a share that wanders about 0.7 with a memory (first-order
autoregression, standard deviation 0.08). The windows are apart by more than any memory.
"""

from __future__ import annotations

import argparse
import math
from itertools import accumulate

import numpy as np

from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, window_difference
from ragfault.io.runs.run import MetricInfo

__all__ = ["draw_window", "measure_coverage"]

SCORE = MetricInfo("score", "generation", "higher", 0.0, 1.0)
MEMORY_MINUTES = (0, 60, 360, DAY_MINUTES)
"""Minutes."""
WINDOW_DAYS = ((2, 2), (7, 2), (7, 7), (7, 1))
"""Lengths of both windows."""
DEVIATION = 0.08


def draw_window(days: int, first: int, memory: int, rng: np.random.Generator) -> MetricSeries:
    """Draw the minutes of a window that begins at minute `first`."""
    size = days * DAY_MINUTES
    share = np.full(size, 0.7)
    if memory:
        autocorrelation = math.exp(-1 / memory)
        steps = rng.normal(size=size) * DEVIATION
        steps[1:] *= math.sqrt(1 - autocorrelation * autocorrelation)
        share += np.array(list(accumulate(steps.tolist(), lambda level, step: autocorrelation * level + step)))
    counts = rng.poisson(1.0, size)
    sums = rng.binomial(counts, np.clip(share, 0.02, 0.98)).astype(np.float64)
    none = np.zeros((size, 2), dtype=np.int64)
    return MetricSeries(
        np.arange(first, first + size), counts.astype(np.float64), sums, sums.copy(), none[:, :1], none, ((),) * size
    )


def measure_coverage(memory: int, days: tuple[int, int], samples: int) -> tuple[float, float]:
    """Return the share of the intervals that hold 0, and their median width."""
    covered, widths = 0, []
    for seed in range(samples):
        rng = np.random.default_rng([seed, memory, *days])
        windows = (draw_window(days[0], 0, memory, rng), draw_window(days[1], 40 * DAY_MINUTES, memory, rng))
        change = window_difference(*windows, SCORE)
        assert change is not None
        covered += change.low <= 0 <= change.high
        widths.append(change.high - change.low)
    return covered / samples, float(np.median(widths))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--samples", type=int, default=150)
    samples = parser.parse_args().samples
    print(
        "| memory | "
        + " | ".join(f"{a} days, {b}" for a, b in WINDOW_DAYS)
        + " |\n|---"
        + "|---" * len(WINDOW_DAYS)
        + "|"
    )
    for memory in MEMORY_MINUTES:
        cells = [measure_coverage(memory, days, samples) for days in WINDOW_DAYS]
        print(
            f"| {memory} min | " + " | ".join(f"{coverage:.0%} ({width:.2f})" for coverage, width in cells) + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()
