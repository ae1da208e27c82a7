"""Fitting: the parts that tell how bad a claim and an answer are, from examples."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import lightgbm
import numpy as np
from sklearn.linear_model import LogisticRegression
from training.embedded import boosting, network
from training.embedded.examples import FOLDS, Answer

from ragfault.judges.embedded.support import summarize_answer
from ragfault.judges.embedded.vectors import Array

__all__ = [
    "ANSWER_ROUNDS",
    "Data",
    "Parts",
    "apply",
    "arrange",
    "bag_out",
    "calibrate",
    "fit",
    "halfway",
    "weights",
    "whole",
]

OTHERS = 3.0
"""How much more a claim of the smaller sets counts."""
CLAIM_ROUNDS, ANSWER_ROUNDS = 250, 200


class Data(NamedTuple):
    """All claims in a row, beside the answers they are of."""

    answers: list[Answer]
    claims: network.Claims
    owner: Array
    """The answer of each claim."""
    start: Array
    """Where the claims of each answer begin."""
    fold: Array
    """Of each claim."""
    bag: tuple[Array, Array]
    """The words of the claims: the claim, and the code of word and state."""
    features: Array
    """Of each claim, as they are."""
    scale: tuple[Array, Array]
    """Their mean and deviation."""


def arrange(kept: list[Answer]) -> Data:
    """Answers as claims in a row."""
    seen = [one.seen for one in kept if one.seen is not None]
    sizes = np.array([len(one.features) for one in seen])
    start = np.concatenate([[0], np.cumsum(sizes)])
    features = np.concatenate([one.features for one in seen])
    scale = features.mean(0), features.std(0) + 1e-6
    lists: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for one, size in zip(seen, sizes, strict=True):
        cuts = np.searchsorted(one.word_states.claim_numbers, np.arange(1, size))
        for pieces, part in zip(lists, one.word_states[:3], strict=True):
            pieces.extend(np.split(part.astype(np.float16) if part.ndim > 1 else part, cuts))
    claims = network.Claims(
        *lists, np.clip((features - scale[0]) / scale[1], -4, 4).astype(np.float32),
        np.concatenate([one.marks for one in kept]), [tokens for one in kept for tokens in one.tokens],
    )  # fmt: skip
    codes = np.concatenate([one.stem_matches[1] * 4 + one.stem_matches[2] for one in seen])
    owners = np.concatenate([one.stem_matches[0] + at for one, at in zip(seen, start, strict=False)])
    owner = np.repeat(np.arange(len(kept)), sizes)
    return Data(
        kept,
        claims,
        owner,
        start,
        np.array([one.fold for one in kept])[owner],
        (owners, codes),
        features,
        scale,
    )


class Parts(NamedTuple):
    """What tells how bad a claim is."""

    bag: dict[str, Array]
    trees: lightgbm.Booster
    network: network.Network


def fit(data: Data, chosen: Array, inner: Array) -> Parts:
    """Fit the parts on the chosen claims; `inner` is what a bag says of them that has not seen them."""
    known = chosen & (data.claims.marks >= 0)
    labels = data.claims.marks
    counts = weights(data)[data.owner]
    trees = boosting.boost(
        np.c_[data.features, inner][known], labels[known], counts[known], CLAIM_ROUNDS, **boosting.CLAIMS
    )
    at = np.flatnonzero(known)
    return Parts(bag_of(data, known), trees, network.train(data.claims.pick(at)))


def bag_of(data: Data, known: Array) -> dict[str, Array]:
    """A bag fitted on some claims."""
    held = known[data.bag[0]]
    place = np.cumsum(known) - 1
    return boosting.bag(
        place[data.bag[0][held]], data.bag[1][held], data.claims.marks[known], int(known.sum())
    )


def bag_out(data: Data) -> Array:
    """What bags say of claims of folds that they have not seen."""
    told = np.zeros(len(data.owner))
    for fold in range(FOLDS):
        table = bag_of(data, (data.fold != fold) & (data.claims.marks >= 0))
        told[data.fold == fold] = boosting.bagged(table, *data.bag, len(told))[data.fold == fold]
    return told


def apply(parts: Parts, data: Data, at: Array) -> Array:
    """The log-odds that claims are bad: the mean of trees and network."""
    told = boosting.bagged(parts.bag, *data.bag, len(data.owner))
    trees = parts.trees.predict(np.c_[data.features, told][at], raw_score=True)
    return (trees + network.predict(parts.network, data.claims.pick(at))) / 2


def whole(data: Data, odds: Array, *, style: bool = False) -> Array:
    """What is summed up of the claims of each answer (see `summing.summed`)."""
    parts = [slice(*pair) for pair in pairwise(data.start)]
    return np.array([summarize_answer(odds[part], data.features[part], style=style) for part in parts])


def weights(data: Data) -> Array:
    """How much each answer counts."""
    return np.where([one.set in {"ragtruth", "invented"} for one in data.answers], 1.0, OTHERS)


def halfway(labels: Array) -> float:
    """A share of bad ones halfway, in log-odds, between the one that people found in a shape and one half.

    At one half the judge's own threshold is the best one for balanced accuracy in each shape; at the share that was
    found the shapes keep their difference. Halfway costs little of either.
    """
    bad = labels.mean()
    return float(np.sqrt(bad) / (np.sqrt(bad) + np.sqrt(1 - bad)))


def calibrate(odds: Array, labels: Array, prior: float) -> tuple[float, float]:
    """Slope and intercept that turn log-odds into those of a probability, as if `prior` of all were bad."""
    bad = labels.mean()
    weight = np.where(labels == 1, prior / bad, (1 - prior) / (1 - bad))
    model = LogisticRegression(C=100.0).fit(odds[:, None], labels, sample_weight=weight)
    return float(model.coef_[0, 0]), float(model.intercept_[0])
