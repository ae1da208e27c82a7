"""Try ways to combine the parts of the embedded judge, on sets and on sources that they have not seen.

    python -m training.embedded DATA --transfer --thin 9 --keep unseen.npz
    python -m training.embedded DATA --measure --thin 4 --keep seen.npz
    python -m training.embedded.combining unseen.npz seen.npz
    python -m training.embedded DATA --fold 0 --keep first.npz
    python -m training.embedded.combining first.npz     (the parts and the sums alone, the network on all claims)

A network that is trained on few claims deserves less weight than one that is trained on all: choose sums by the
latter. Every line is the AUROC of answers, of each task and set. An answer is novel as far as its shape (how long,
how many passages, records or prose) is from those of the training answers; there a rule turns from one sum to another.
At the end each set is ranked by the rule that is best on the five others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ragfault.judges.embedded.features import FEATURE_COLUMNS
from ragfault.judges.embedded.support import RECORD_SHARE, RECORD_WEIGHTS, TEXT_WEIGHTS, combine_claims
from ragfault.judges.embedded.word_vectors import Array
from ragfault.stats import auroc

__all__ = ["measure_shapes"]

KINDS = ("QA", "Summary", "Data2txt", "attributionbench", "wice", "begin")
PARTS = ("trees", "monotone trees", "network", "words", "small monotone trees")
SUMS = {
    "present sum": (*TEXT_WEIGHTS, 0), "small .4, words .5": (0.3, 0, 0.1, 0.5, 0.4),
    "small .4, words .6": (0.2, 0, 0.1, 0.6, 0.4), "small .4, words .3": (0.3, 0, 0.3, 0.3, 0.4),
}  # fmt: skip
"""The weights of the parts beside texts; records have those of the judge."""
NOVEL_SUMS = {
    "words": (0, 0, 0, 1, 0), "monotone .3, words .7": (0, 0.3, 0, 0.7, 0), "small .5, words .5": (0, 0, 0, 0.5, 0.5),
    "small .7, words .3": (0, 0, 0, 0.3, 0.7), "all, words .7": (0.1, 0.2, 0.1, 0.7, 0),
}  # fmt: skip
"""The same for novel answers."""
PERCENTILES = (80, 90, 95)
"""An answer is novel from these percentiles of the distance of sources left out."""
SOFTNESS = 0.2
"""The width of the change from known to novel, in logarithms of the distance."""
NEIGHBOR, PROTOTYPES = 10, 800
"""The distance is that to this neighbour, among so many answers of each kind."""


def measure_shapes(features: Array, start: Array) -> Array:
    """Return the shape of each answer: claims, words and sentences of passages, passages, records, words of a claim."""
    size = np.diff(start)
    mean = {
        name: np.add.reduceat(features[:, FEATURE_COLUMNS[name]], start[:-1]) / size
        for name in ("tokens", "sentences", "passages", "keyed", "words")
    }
    columns = (np.log1p(size), mean["tokens"], mean["sentences"], np.log1p(mean["passages"]), mean["keyed"])
    return np.array([*columns, np.log1p(mean["words"])]).T


def measure_novelty(packed: Mapping[str, Array], known: Array, at: Array) -> Array:
    """Return the distance of the shapes of some answers from those of others that are known."""
    random = np.random.default_rng(0)
    shapes, kinds = packed["shapes"], packed["kinds"]
    mean, deviation = shapes[known].mean(0), shapes[known].std(0) + 1e-6
    prototypes = np.concatenate([
        random.permutation(np.flatnonzero(known & (kinds == kind)))[:PROTOTYPES] for kind in KINDS
    ])  # fmt: skip
    neighbors = NearestNeighbors(n_neighbors=NEIGHBOR).fit((shapes[prototypes] - mean) / deviation)
    distances: Array = neighbors.kneighbors((shapes[at] - mean) / deviation)[0][:, -1]
    return distances


def rank(packed: Mapping[str, Array], odds: Array) -> Array:
    """Return the AUROC of each kind of answers."""
    scores = np.array([combine_claims(odds[first:last]) for first, last in pairwise(packed["start"])])
    return np.array([auroc(scores[packed["kinds"] == kind], packed["bad"][packed["kinds"] == kind]) for kind in KINDS])


def show(name: str, figures: Array) -> None:
    """Print a line."""
    print(f"{name:62}", *(f"{figure:.3f}" for figure in figures), f" mean {figures.mean():.4f}", flush=True)


def compare_sums(packed: Mapping[str, Array]) -> None:
    """Print each part and each sum on sources left out."""
    every = np.c_[packed["parts"], packed["small"]]
    for number, part in enumerate(PARTS):
        show(part, rank(packed, every[:, number]))
    for name, weights in SUMS.items():
        odds = np.where(packed["keyed"] > RECORD_SHARE, packed["parts"] @ RECORD_WEIGHTS, every @ weights)
        show(name, rank(packed, odds))


def compare_rules(unseen_file: Path, seen_file: Path) -> None:
    """Print each part, sums of them, and rules for novel answers."""
    files, novelty, owner = {"unseen": dict(np.load(unseen_file)), "seen": dict(np.load(seen_file))}, {}, {}
    for name, packed in files.items():
        kinds, folds = packed["kinds"], packed["folds"]
        real, groups = kinds != "invented", kinds if name == "unseen" else folds
        novelty[name] = np.full(len(kinds), np.inf)
        for group in np.unique(groups[real]):
            inside = real & (groups == group)
            novelty[name][inside] = measure_novelty(packed, real & ~inside, inside)
        owner[name] = np.repeat(np.arange(len(kinds)), np.diff(packed["start"]))
        packed["every"] = np.c_[packed["parts"], packed["small"]]
        for number, part in enumerate(PARTS):
            show(f"{name}: {part}", rank(packed, packed["every"][:, number]))
    known = novelty["seen"][np.isfinite(novelty["seen"])]
    rules = []
    for sum_name, weights in SUMS.items():
        for novel_name, novel in {"": weights, **NOVEL_SUMS}.items():
            for percentile in PERCENTILES if novel_name else PERCENTILES[:1]:
                for name, packed in files.items():
                    distance = np.log(np.maximum(novelty[name], 1e-3) / np.percentile(known, percentile)) / SOFTNESS
                    share = (1 / (1 + np.exp(-np.clip(distance, -30, 30))))[owner[name]]
                    text = (1 - share) * (packed["every"] @ weights) + share * (packed["every"] @ novel)
                    odds = np.where(packed["keyed"] > RECORD_SHARE, packed["parts"] @ RECORD_WEIGHTS, text)
                    figures = rank(packed, odds)
                    rule = f"; novel from {percentile} %: {novel_name}" if novel_name else ""
                    show(f"{name}: {sum_name}{rule}", figures)
                    if name == "unseen":
                        rules.append(figures)
    table = np.array(rules)
    others = [table[np.delete(table, number, axis=1).mean(1).argmax(), number] for number in range(len(KINDS))]
    show("unseen: of the rules the best on the others", np.array(others))


if __name__ == "__main__":
    print(f"{'':62}", *KINDS)
    if len(sys.argv) == 2:
        compare_sums(np.load(sys.argv[1]))
    else:
        compare_rules(Path(sys.argv[1]), Path(sys.argv[2]))
