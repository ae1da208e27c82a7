"""The fault bench: how often bisection names the layer and the branch of a fault that was injected.

    python -m benchmarks.faults [FAULT …] [--strength medium] [--sizes 50 100 200 500] [--seeds 3] [--draws 4]
                                [--data FOLDER] [--out FILE]

Each fault is injected into a deterministic RAG system with each of the seeds; both versions answer every
question of the corpus and are judged once. For each size n, `draws` samples of n queries are bisected for
each seed. Without `--data` over the demo handbook, with it over `squad2_*.jsonl.gz` of that folder. Prints
a Markdown table.

A verdict counts as *layer* where the first fault named lies in the layer of the fault that was injected,
as *branch* where it is the branch too, as *wrong* where another layer is named first, and as *cannot tell*
otherwise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ragfault.comparison.bisection import bisect_pairs
from ragfault.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.comparison.settings import BisectionSettings
from ragfault.evaluation.evaluator import evaluate

from .corpora import Corpus, load_handbook_corpus, load_squad_corpus
from .injection import FAULTS, STRENGTHS, Fault, Strength, pair

__all__ = ["METRICS", "run_trials"]

METRICS = (
    "context_relevance",
    "context_recall",
    "recall@5",
    "ndcg@10",
    "span_recall",
    "groundedness",
    "factual_accuracy",
    "completeness",
    "chunk_attribution",
    "citation_validity",
    "chunk_utilization",
    "answer_relevance",
)
"""The metrics of the decision tree."""

MAX_QUESTIONS = 620
"""Questions of a corpus that are answered for a seed, at most."""

LAYERS = {"retrieval": "retrieval", "generation": "generation", "source": "source data"}


JUDGE = "lexical"
"""The judge of the tables in benchmarks/RESULTS.md."""


def judge_pair(corpus: Corpus, name: str, strength: Strength, seed: int, folder: Path, judge: str) -> PairedRuns:
    """Judge the answers of both versions and pair the runs."""
    sides = pair(corpus, name, strength, n=min(MAX_QUESTIONS, len(corpus.questions)), seed=seed)
    runs = [
        evaluate(list(traces), folder / f"{name}-{seed}-{i}", metrics=METRICS, force=True, judge=judge)
        for i, traces in enumerate(sides)
    ]
    return pair_runs(*runs)


def draw_samples(size: int, n: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield masks over the pairs that select n of them at random; one mask of all where there are no more."""
    rng = random.Random(f"{seed}-{n}")
    for _ in range(draws if n < size else 1):
        pair_mask = np.zeros(size, dtype=bool)
        pair_mask[rng.sample(range(size), min(n, size))] = True
        yield pair_mask


def classify_outcome(fault: Fault, paired: PairedRuns, pair_mask: np.ndarray, seed: int) -> str:
    """Classify the verdict of bisection on a sample: branch, layer, wrong or cannot tell."""
    result = bisect_pairs(paired, BisectionSettings(seed=seed), pair_mask=pair_mask)
    if not result.faults:
        return "cannot tell"
    first = result.faults[0]
    if fault.layer == "none" or first.layer != LAYERS[fault.layer]:
        return f"wrong: {first.branch}"
    return "branch" if first.branch.startswith(str(fault.branch)) else f"layer: {first.branch}"


def run_trials(
    corpus: Corpus, name: str, strength: Strength, sizes: Sequence[int], seeds: int, draws: int, judge: str
) -> dict[int, Counter[str]]:
    """Run all trials of a fault; return size → outcome → count."""
    counts: dict[int, Counter[str]] = {n: Counter() for n in sizes}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            paired = judge_pair(corpus, name, strength, seed, Path(folder), judge)
            for n in sizes:
                for pair_mask in draw_samples(len(paired.pairing), n, draws, seed):
                    counts[n][classify_outcome(FAULTS[name], paired, pair_mask, seed)] += 1
    return counts


def format_row(name: str, counts: dict[int, Counter[str]]) -> str:
    """Format a row of the table: for each size the shares of layer, branch and wrong."""
    cells = []
    for outcomes in counts.values():
        total = sum(outcomes.values())
        branch = outcomes["branch"]
        layer = branch + sum(count for kind, count in outcomes.items() if kind.startswith("layer"))
        wrong = sum(count for kind, count in outcomes.items() if kind.startswith("wrong"))
        cells.append(f"{layer / total:.0%} / {branch / total:.0%} / {wrong / total:.0%}")
    other_branches = Counter(kind for outcomes in counts.values() for kind in outcomes.elements() if ":" in kind)
    listing = ", ".join(f"{kind.split(': ')[1]} ×{count}" for kind, count in other_branches.most_common(2))
    return f"| {name} | {FAULTS[name].branch or '–'} | {' | '.join(cells)} | {listing} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--strength", choices=STRENGTHS, default="medium")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 500])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--judge", default=JUDGE)
    options = parser.parse_args()
    corpus = load_squad_corpus(options.data) if options.data else load_handbook_corpus()
    start = time.perf_counter()
    print(
        f"{options.strength} faults, {options.seeds} seeds × {options.draws} samples; "
        "layer / branch / wrong layer, the rest: cannot tell\n"
    )
    print(f"| fault | branch | {' | '.join(f'n = {n}' for n in options.sizes)} | named instead |")
    print("|---|---|" + "---|" * (len(options.sizes) + 1), flush=True)
    for name in options.faults:
        seed_factor = 4 if FAULTS[name].layer == "none" else 1
        print(
            format_row(
                name,
                run_trials(
                    corpus,
                    name,
                    options.strength,
                    options.sizes,
                    seed_factor * options.seeds,
                    options.draws,
                    options.judge,
                ),
            ),
            flush=True,
        )
    print(f"\n{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
