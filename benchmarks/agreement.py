"""How often the intervals of `ragfault judge measure` hold the truth.

    python -m benchmarks.agreement [SAMPLES]

Answers of sources: in each source three to five answers whose scores share a part. The truth is taken from
400,000 answers drawn alike. The threshold of F1 is fixed, as it is once the folds have chosen it.
"""

from __future__ import annotations

import sys

import numpy as np

from ragfault.evaluation.agreement.figures import IntervalOptions, PositiveCalls, compute_agreement
from ragfault.evaluation.agreement.units import ScoredUnits

NAMES = ("auroc", "average_precision", "f1", "balanced_accuracy", "best_balanced_accuracy", "calibration_error")
CUT = 0.5


def sample_units(sources: int, bad: float, rng: np.random.Generator) -> tuple[ScoredUnits, list[str]]:
    """Sample answers of some sources, with a share of bad ones."""
    source = np.repeat(np.arange(sources), rng.integers(3, 6, sources))
    label = rng.random(source.size) < bad
    noise = rng.normal(size=source.size) + rng.normal(size=sources)[source] * 0.7
    score = 1 / (1 + np.exp(-(1.6 * label - 0.8 + noise)))
    called = score >= CUT
    return ScoredUnits("answer", score, label, called, None, np.arange(source.size)), [f"s{at}" for at in source]


def figures(units: ScoredUnits, groups: list[str], resamples: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Return value and interval of each figure."""
    agreement = compute_agreement(units, groups, PositiveCalls(units.called, CUT), IntervalOptions(resamples, seed))
    result = {
        figure.name: (figure.value, figure.low, figure.high) for figure in agreement.figures if figure.name in NAMES
    }
    return {name: ends for name, ends in result.items() if None not in ends}


def main(samples: int) -> None:
    print(f"| sources | bad | {' | '.join(name.replace('_', ' ') for name in NAMES)} |")
    print("|" + "---|" * (2 + len(NAMES)))
    for bad in (0.5, 0.15):
        rng = np.random.default_rng(0)
        units, _ = sample_units(100_000, bad, rng)
        truth = population_figures(units)
        for sources in (12, 40, 150):
            hits: dict[str, list[bool]] = {name: [] for name in NAMES}
            for seed in range(samples):
                for name, (_, low, high) in figures(*sample_units(sources, bad, rng), 500, seed).items():
                    hits[name].append(low <= truth[name] <= high)
            shares = " | ".join(f"{np.mean(hits[name]):.1%}" for name in NAMES)
            print(f"| {sources} | {bad:.0%} | {shares} |", flush=True)


def population_figures(units: ScoredUnits) -> dict[str, float]:
    """Return the figures of very many answers, without intervals."""
    groups = [""] * units.score.size
    agreement = compute_agreement(units, groups, PositiveCalls(units.called, CUT), IntervalOptions(1, 0))
    return {
        figure.name: figure.value for figure in agreement.figures if figure.name in NAMES and figure.value is not None
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
