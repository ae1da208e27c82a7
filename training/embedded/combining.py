"""Print how sums of the parts of the embedded judge rank sets and sources that the parts have not seen.

    python -m training.embedded DATA --transfer --thin 9 --keep unseen.npz
    python -m training.embedded DATA --fold 0 --keep first.npz
    python -m training.embedded.combining unseen.npz
    python -m training.embedded.combining first.npz

A network that is trained on few claims deserves less weight than one that is trained on all: choose sums by the
latter. Every line is the AUROC of answers, of each task and set, each part and each sum alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ragfault.judges.embedded.support import RECORD_SHARE, RECORD_WEIGHTS, TEXT_WEIGHTS, combine_claims
from ragfault.judges.embedded.word_vectors import Array
from ragfault.stats import auroc

KINDS = ("QA", "Summary", "Data2txt", "attributionbench", "wice", "begin")
PARTS = ("trees", "monotone trees", "network", "words", "small monotone trees")
SUMS = {
    "present sum": (*TEXT_WEIGHTS, 0), "small .4, words .5": (0.3, 0, 0.1, 0.5, 0.4),
    "small .4, words .6": (0.2, 0, 0.1, 0.6, 0.4), "small .4, words .3": (0.3, 0, 0.3, 0.3, 0.4),
}  # fmt: skip
"""The weights of the parts beside texts; records have those of the judge."""


def rank(arrays: Mapping[str, Array], odds: Array) -> Array:
    """Return the AUROC of each kind of answers."""
    scores = np.array([combine_claims(odds[start:end]) for start, end in pairwise(arrays["start"])])
    return np.array([auroc(scores[arrays["kinds"] == kind], arrays["bad"][arrays["kinds"] == kind]) for kind in KINDS])


def show(name: str, figures: Array) -> None:
    """Print a line."""
    print(f"{name:62}", *(f"{figure:.3f}" for figure in figures), f" mean {figures.mean():.4f}", flush=True)


def compare_sums(arrays: Mapping[str, Array]) -> None:
    """Print each part and each sum."""
    every = np.c_[arrays["parts"], arrays["small"]]
    for number, part in enumerate(PARTS):
        show(part, rank(arrays, every[:, number]))
    for name, weights in SUMS.items():
        odds = np.where(arrays["keyed"] > RECORD_SHARE, arrays["parts"] @ RECORD_WEIGHTS, every @ weights)
        show(name, rank(arrays, odds))


if __name__ == "__main__":
    print(f"{'':62}", *KINDS)
    compare_sums(np.load(sys.argv[1]))
