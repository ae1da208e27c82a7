"""Print the AUROC of weighted sums of the embedded judge's models on held-out sets and sources.

    python -m training.embedded DATA --transfer --thin 9 --keep unseen.npz
    python -m training.embedded DATA --fold 0 --keep first.npz
    python -m training.embedded.combining unseen.npz
    python -m training.embedded.combining first.npz

A network that is trained on few claims deserves less weight than one that is trained on all: choose sums by the
latter. Each line has the AUROC of answers of each task and set, by one model or one sum.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ragfault.judges.embedded.support import RECORD_SHARE, RECORD_WEIGHTS, TEXT_WEIGHTS, combine_claims
from ragfault.judges.embedded.word_vectors import Array
from ragfault.stats.classification import auroc

KINDS = ("QA", "Summary", "Data2txt", "attributionbench", "wice", "begin")
PARTS = ("trees", "monotone trees", "network", "words", "small monotone trees")
SUMS = {
    "present sum": (*TEXT_WEIGHTS, 0), "small .4, words .5": (0.3, 0, 0.1, 0.5, 0.4),
    "small .4, words .6": (0.2, 0, 0.1, 0.6, 0.4), "small .4, words .3": (0.3, 0, 0.3, 0.3, 0.4),
}  # fmt: skip
"""The weights of the models for texts; records have those of the judge."""


def compute_aurocs(arrays: Mapping[str, Array], odds: Array) -> Array:
    """Return the AUROC of each kind of answers."""
    scores = np.array([combine_claims(odds[start:end]) for start, end in pairwise(arrays["start"])])
    return np.array([auroc(scores[arrays["kinds"] == kind], arrays["bad"][arrays["kinds"] == kind]) for kind in KINDS])


def print_figures(name: str, figures: Array) -> None:
    """Print a line of figures and their mean."""
    print(f"{name:62}", *(f"{figure:.3f}" for figure in figures), f" mean {figures.mean():.4f}", flush=True)


def compare_sums(arrays: Mapping[str, Array]) -> None:
    """Print the figures of each model and each sum."""
    part_odds = np.c_[arrays["parts"], arrays["small"]]
    for number, part in enumerate(PARTS):
        print_figures(part, compute_aurocs(arrays, part_odds[:, number]))
    for name, weights in SUMS.items():
        odds = np.where(arrays["keyed"] > RECORD_SHARE, arrays["parts"] @ RECORD_WEIGHTS, part_odds @ weights)
        print_figures(name, compute_aurocs(arrays, odds))


if __name__ == "__main__":
    print(f"{'':62}", *KINDS)
    compare_sums(np.load(sys.argv[1]))
