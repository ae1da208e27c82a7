"""Two faults at once: how often bisection names the layers of both, and no third.

    python -m benchmarks.faults.combined [--size 200] [--seeds 3] [--strength medium]

Prints for each pair of faults of different layers how often both layers are named, one of them, and a layer without a
fault, and the lists of layers that are named.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from ragfault.comparison.bisection import bisect
from ragfault.evaluation.evaluator import evaluate

from .__main__ import JUDGE, LAYERS, METRICS
from .corpora import Corpus, load_handbook_corpus, sample
from .injection import FAULTS, STRENGTHS, Strength, build_configs, inject
from .system import answer_questions

__all__ = ["PAIRS", "name_layers"]

PAIRS = (
    ("stale-documents", "invented-claims"),
    ("stale-documents", "truncated"),
    ("stale-documents", "fabricated-quotes"),
    ("stale-documents", "wandering-preamble"),
    ("wrong-dates", "altered-numbers"),
    ("reranker-removed", "stale-documents"),
    ("wrong-filter", "stale-documents"),
    ("embedder-rotated", "invented-claims"),
    ("reranker-removed", "over-refusal"),
    ("wrong-filter", "truncated"),
    ("duplicates", "invented-claims"),
    ("chunks-small", "fabricated-quotes"),
    ("top-k", "truncated"),
    ("top-k", "stale-documents"),
)
"""Pairs of faults of different layers."""


def name_layers(
    corpus: Corpus, names: tuple[str, str], folder: Path, *, n: int = 200, seed: int = 0, strength: Strength = "medium"
) -> list[str]:
    """Return the layers that bisection names for a candidate with both faults, in its order."""
    questions = sample(corpus, n, seed)
    baseline, candidate = build_configs(names[0], strength, seed)
    sides = [
        answer_questions(corpus, config, questions) for config in (baseline, inject(candidate, names[1], strength))
    ]
    runs = [
        evaluate(side, folder / f"{'-'.join(names)}-{seed}-{i}", metrics=METRICS, judge=JUDGE)
        for i, side in enumerate(sides)
    ]
    return list(dict.fromkeys(fault.layer for fault in bisect(*runs, seed=seed).faults))


def main() -> None:
    """Run each pair of faults and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strength", choices=STRENGTHS, default="medium")
    options = parser.parse_args()
    corpus = load_handbook_corpus()
    print("| faults | both | one | another layer | named |\n|---|---|---|---|---|")
    for names in PAIRS:
        expected = {LAYERS[FAULTS[name].layer] for name in names}
        with tempfile.TemporaryDirectory() as folder:
            trials = [
                name_layers(corpus, names, Path(folder), n=options.size, seed=seed, strength=options.strength)
                for seed in range(options.seeds)
            ]
        both, single = (
            sum(expected <= set(named) for named in trials),
            sum(len(expected & set(named)) == 1 for named in trials),
        )
        wrong = sum(bool(set(named) - expected) for named in trials)
        layer_lists = Counter(", ".join(named) or "cannot tell" for named in trials)
        listed = "; ".join(f"{text} ×{count}" for text, count in layer_lists.most_common())
        counts = " | ".join(f"{count}/{len(trials)}" for count in (both, single, wrong))
        print(f"| {' + '.join(names)} | {counts} | {listed} |", flush=True)


if __name__ == "__main__":
    main()
