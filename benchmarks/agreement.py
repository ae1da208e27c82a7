"""Measure how often the intervals of `ragfault judge measure` hold the true value.

    python -m benchmarks.agreement [SAMPLES]

Answers of sources: in each source three to five answers whose scores share a part. The truth is taken from
400,000 answers drawn alike. The threshold of F1 is fixed, as it is once the folds have chosen it.
"""

from __future__ import annotations

import argparse

import numpy as np

from ragfault.labels.judges.figures import PositiveCalls, compute_agreement
from ragfault.labels.judges.units import ScoredUnits
from ragfault.stats.bootstrap import Resampling

FIGURES = ("auroc", "average_precision", "f1", "balanced_accuracy", "best_balanced_accuracy", "calibration_error")
THRESHOLD = 0.5


def sample_units(sources: int, bad_share: float, rng: np.random.Generator) -> tuple[ScoredUnits, list[str]]:
    """Sample answers of some sources, with a share of bad ones."""
    source = np.repeat(np.arange(sources), rng.integers(3, 6, sources))
    label = rng.random(source.size) < bad_share
    noise = rng.normal(size=source.size) + rng.normal(size=sources)[source] * 0.7
    score = 1 / (1 + np.exp(-(1.6 * label - 0.8 + noise)))
    is_positive = score >= THRESHOLD
    return ScoredUnits("answer", score, label, is_positive, None, np.arange(source.size)), [f"s{at}" for at in source]


def compute_figures(units: ScoredUnits, groups: list[str], resamples: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Return value and interval of each figure that is defined."""
    agreement = compute_agreement(units, groups, PositiveCalls(units.called, THRESHOLD), Resampling(resamples, seed))
    result = {
        figure.name: (figure.value, figure.low, figure.high) for figure in agreement.figures if figure.name in FIGURES
    }
    return {name: interval for name, interval in result.items() if None not in interval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="?", type=int, default=400)
    samples = parser.parse_args().samples
    print(f"| sources | bad | {' | '.join(name.replace('_', ' ') for name in FIGURES)} |")
    print("|" + "---|" * (2 + len(FIGURES)))
    for bad_share in (0.5, 0.15):
        rng = np.random.default_rng(0)
        units, _ = sample_units(100_000, bad_share, rng)
        truth = compute_population_figures(units)
        for sources in (12, 40, 150):
            covered: dict[str, list[bool]] = {name: [] for name in FIGURES}
            for seed in range(samples):
                for name, (_, low, high) in compute_figures(*sample_units(sources, bad_share, rng), 500, seed).items():
                    covered[name].append(low <= truth[name] <= high)
            shares = " | ".join(f"{np.mean(covered[name]):.1%}" for name in FIGURES)
            print(f"| {sources} | {bad_share:.0%} | {shares} |", flush=True)


def compute_population_figures(units: ScoredUnits) -> dict[str, float]:
    """Return the figures of very many answers, without intervals."""
    groups = [""] * units.score.size
    agreement = compute_agreement(units, groups, PositiveCalls(units.called, THRESHOLD), Resampling(1, 0))
    return {
        figure.name: figure.value for figure in agreement.figures if figure.name in FIGURES and figure.value is not None
    }


if __name__ == "__main__":
    main()
