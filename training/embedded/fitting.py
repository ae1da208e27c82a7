"""Fitting: the parts that tell how bad a claim and an answer are, from examples."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import lightgbm
import numpy as np
from sklearn.linear_model import LogisticRegression
from training.embedded import boosting, network
from training.embedded.examples import FOLDS, Answer

from ragfault.judges.embedded.features import FEATURE_COLUMNS, FEATURE_NAMES
from ragfault.judges.embedded.support import combine_claims
from ragfault.judges.embedded.word_vectors import Array

__all__ = [
    "BASE_RATES",
    "MONOTONE_COLUMNS",
    "Data",
    "Parts",
    "apply_each",
    "arrange",
    "bag_out",
    "calibrate",
    "fit",
    "fit_small",
    "halfway",
    "match_rate",
    "score_answers",
    "weights",
]

OTHERS = 3.0
"""How much more a claim of the smaller sets counts."""
CLAIM_ROUNDS, MONOTONE_ROUNDS, SMALL_ROUNDS = 250, 200, 60
RISING = """
lost_kinds lost lost_total lost_most lost_second exact hard hard_most hard_total hard3 lost_run apart apart_best
numbers_lost numbers_away names_lost names_away denial absent no clash field nowhere
"""
"""Features of which more never speaks for a claim."""
FALLING = """
soft soft_least covered covered2 covered3 joint close close3 close_least close3_least meaning meaning_most
meaning3 pairs triples quads run run_share half
"""
FREE = "words kinds total reverse numbers names denies best_denies opinion weight common rare"
"""Features without a direction that vary little between kinds of text; the others tell the sets apart."""
DIRECTIONS = {
    **dict.fromkeys(RISING.split(), 1), **dict.fromkeys(FALLING.split(), -1),
    **dict.fromkeys(FREE.split(), 0),
}  # fmt: skip
MONOTONE_COLUMNS = np.array([*(FEATURE_COLUMNS[name] for name in DIRECTIONS), len(FEATURE_NAMES) + 1])
"""The columns of the monotone trees: these features, and the lexical log-odds, which follow features and bag."""
BASE_RATES = {"answer": 0.12, "claim": 0.3, "dialogue": 0.3, "record": 0.15, "summary": 0.08}
"""Type of text → the share of bad claims as if which their probabilities are calibrated: what people mark in answers of
RAG systems; single claims and turns of dialogues come from sets that were balanced by hand, and are given more.
For answers see `halfway`."""


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
    lexical_odds: Array
    """What words alone say of each claim."""
    invariant: bool = False
    """Whether the network is trained on what varies little between kinds of text."""


def arrange(retained: list[Answer], *, invariant: bool = False) -> Data:
    """Return answers as claims in a row; an invariant network has the features of the monotone trees alone."""
    seen = [item.seen for item in retained if item.seen is not None]
    sizes = np.array([len(item.features) for item in seen])
    start = np.concatenate([[0], np.cumsum(sizes)])
    features = np.concatenate([item.features for item in seen])
    scale = features.mean(0), features.std(0) + 1e-6
    lists: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for first, size in zip(seen, sizes, strict=True):
        cuts = np.searchsorted(first.word_states.claim_numbers, np.arange(1, size))
        for pieces, states in zip(lists, first.word_states[:3], strict=True):
            pieces.extend(np.split(states.astype(np.float16) if states.ndim > 1 else states, cuts))
    scaled = np.clip((features - scale[0]) / scale[1], -4, 4)
    lexical_odds = np.concatenate([item.lexical_odds for item in seen])
    if invariant:
        scaled = np.c_[scaled[:, MONOTONE_COLUMNS[:-1]], np.clip(lexical_odds / 2 + 0.5, -4, 4)]
    claims = network.Claims(
        *lists, scaled.astype(np.float32),
        np.concatenate([item.marks for item in retained]), [tokens for item in retained for tokens in item.tokens],
    )  # fmt: skip
    codes = np.concatenate([item.stem_matches[1] * 4 + item.stem_matches[2] for item in seen])
    owners = np.concatenate([item.stem_matches[0] + offset for item, offset in zip(seen, start, strict=False)])
    owner = np.repeat(np.arange(len(retained)), sizes)
    return Data(
        retained,
        claims,
        owner,
        start,
        np.array([item.fold for item in retained])[owner],
        (owners, codes),
        features,
        scale,
        lexical_odds,
        invariant,
    )


class Parts(NamedTuple):
    """What tells how bad a claim is."""

    bag: dict[str, Array]
    trees: lightgbm.Booster
    monotone: lightgbm.Booster
    network: network.Network


def fit(data: Data, training: Array, inner: Array, every: int = 1) -> Parts:
    """Fit the parts on the chosen claims; `inner` is what a bag says of them that has not seen them.

    The network is trained on one in `every` of the larger sets.
    """
    labelled = training & (data.claims.marks >= 0)
    labels, counts = data.claims.marks[labelled], weights(data)[data.owner][labelled]
    trees = boosting.boost(np.c_[data.features, inner][labelled], labels, counts, CLAIM_ROUNDS, **boosting.CLAIMS)
    monotone = fit_monotone(data, labelled)
    rows = np.flatnonzero(labelled)
    rows = rows[(counts > 1) | (np.arange(len(rows)) % every == 0)]
    return Parts(bag_of(data, labelled), trees, monotone, network.train(data.claims.pick(rows), own=not data.invariant))


def fit_monotone(data: Data, labelled: Array) -> lightgbm.Booster:
    """Fit the monotone trees on some claims; the lexical log-odds rise."""
    return boosting.boost(
        _monotone_inputs(data)[labelled], data.claims.marks[labelled], weights(data)[data.owner][labelled],
        MONOTONE_ROUNDS, monotone_constraints=[*DIRECTIONS.values(), 1], **boosting.MONOTONE,
    )  # fmt: skip


def fit_small(data: Data, labelled: Array, rows: Array) -> Array:
    """Return the log-odds of claims by monotone trees of three leaves, fitted on others; not part of the judge.

    Only features with a direction, and each set or task counts by the root of its size.
    """
    directions = {name: direction for name, direction in DIRECTIONS.items() if direction}
    inputs = np.c_[data.features[:, [FEATURE_COLUMNS[name] for name in directions]], data.lexical_odds]
    kinds = np.array([answer.task if answer.set == "ragtruth" else answer.set for answer in data.answers])[data.owner]
    _, kind_index, sizes = np.unique(kinds[labelled], return_inverse=True, return_counts=True)
    counts = 1 / np.sqrt(sizes)[kind_index]
    trees = boosting.boost(
        inputs[labelled], data.claims.marks[labelled], counts * len(counts) / counts.sum() / 2, SMALL_ROUNDS,
        monotone_constraints=[*directions.values(), 1], **{**boosting.MONOTONE, "num_leaves": 3},
    )  # fmt: skip
    odds: Array = trees.predict(inputs[rows], raw_score=True)
    return odds


def _monotone_inputs(data: Data) -> Array:
    inputs: Array = np.c_[data.features[:, MONOTONE_COLUMNS[:-1]], data.lexical_odds]
    return inputs


def bag_of(data: Data, labelled: Array) -> dict[str, Array]:
    """Return a bag fitted on some claims."""
    in_labelled = labelled[data.bag[0]]
    new_rows = np.cumsum(labelled) - 1
    return boosting.bag(
        new_rows[data.bag[0][in_labelled]], data.bag[1][in_labelled], data.claims.marks[labelled], int(labelled.sum())
    )


def bag_out(data: Data) -> Array:
    """Return what bags say of claims of folds that they have not seen."""
    odds = np.zeros(len(data.owner))
    for fold in range(FOLDS):
        table = bag_of(data, (data.fold != fold) & (data.claims.marks >= 0))
        odds[data.fold == fold] = boosting.bagged(table, *data.bag, len(odds))[data.fold == fold]
    return odds


def apply_each(parts: Parts, data: Data, rows: Array) -> Array:
    """Return the log-odds that claims are bad by each part (claims × parts): trees, monotone trees, network, words."""
    bag_odds = boosting.bagged(parts.bag, *data.bag, len(data.owner))
    odds = (
        parts.trees.predict(np.c_[data.features, bag_odds][rows], raw_score=True),
        parts.monotone.predict(_monotone_inputs(data)[rows], raw_score=True),
        network.predict(parts.network, data.claims.pick(rows)), data.lexical_odds[rows],
    )  # fmt: skip
    return np.array(odds).T


def score_answers(data: Data, odds: Array) -> Array:
    """Return the log-odds of each answer, combined from those of its claims."""
    return np.array([combine_claims(odds[slice(*pair)]) for pair in pairwise(data.start)])


def weights(data: Data) -> Array:
    """Return how much each answer counts."""
    return np.where([answer.set in {"ragtruth", "invented"} for answer in data.answers], 1.0, OTHERS)


def halfway(labels: Array) -> float:
    """Return a share of bad ones halfway, in log-odds, between the one that people found in a shape and one half.

    At one half the judge's own threshold is the best one for balanced accuracy in each shape; at the share that was
    found the shapes keep their difference. Halfway costs little of either.
    """
    bad_share = labels.mean()
    return float(np.sqrt(bad_share) / (np.sqrt(bad_share) + np.sqrt(1 - bad_share)))


def match_rate(odds: Array, labels: Array, prior: float, line: tuple[float, float]) -> float:
    """Return the probability of support below which as many claims fall as are bad, where `prior` of all are bad.

    The mean of the verdicts is then that of people, where the base rate is right.
    """
    bad_share = labels.mean()
    weight = np.where(labels == 1, prior / bad_share, (1 - prior) / (1 - bad_share))
    order = np.argsort(-odds, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum()
    cut = odds[order][min(int(np.searchsorted(share, prior)), len(odds) - 1)]
    return float(1 / (1 + np.exp(line[0] * cut + line[1])))


def calibrate(odds: Array, labels: Array, prior: float) -> tuple[float, float]:
    """Return slope and intercept that turn log-odds into those of a probability, as if `prior` of all were bad."""
    bad_share = labels.mean()
    weight = np.where(labels == 1, prior / bad_share, (1 - prior) / (1 - bad_share))
    model = LogisticRegression(C=100.0).fit(odds[:, None], labels, sample_weight=weight)
    return float(model.coef_[0, 0]), float(model.intercept_[0])
