"""Fitting the models that predict whether claims and answers are unsupported, and their calibration."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import lightgbm
import numpy as np

from ragfault.judges.embedded.features import FEATURE_COLUMNS, FEATURE_NAMES
from ragfault.judges.embedded.support import combine_claims
from ragfault.judges.embedded.word_vectors import Array
from training.data_files import FOLDS
from training.embedded import boosting, network
from training.embedded.examples import Answer

__all__ = [
    "MONOTONE_COLUMNS",
    "ClaimDataset",
    "ClaimModels",
    "build_dataset",
    "cross_fit_bag",
    "fit_models",
    "fit_small",
    "predict_odds",
    "score_answers",
    "weigh_answers",
]

SMALL_SET_WEIGHT = 3.0
"""The weight of a claim of the smaller sets; a claim of RAGTruth has 1."""
CLAIM_ROUNDS, MONOTONE_ROUNDS, SMALL_ROUNDS = 250, 200, 60
RISING_FEATURES = """
lost_kinds lost lost_total lost_most lost_second exact hard hard_most hard_total hard3 lost_run apart apart_best
numbers_lost numbers_away names_lost names_away denial absent no clash field nowhere
"""
"""Features whose rise never lowers the odds that a claim is unsupported."""
FALLING_FEATURES = """
soft soft_least covered covered2 covered3 joint close close3 close_least close3_least meaning meaning_most
meaning3 pairs triples quads run run_share half
"""
"""Features whose rise never raises them."""
UNDIRECTED_FEATURES = "words kinds total reverse numbers names denies best_denies opinion weight common rare"
"""Features without a direction that vary little between kinds of text; those that vary much are left out."""
DIRECTIONS = {
    **dict.fromkeys(RISING_FEATURES.split(), 1), **dict.fromkeys(FALLING_FEATURES.split(), -1),
    **dict.fromkeys(UNDIRECTED_FEATURES.split(), 0),
}  # fmt: skip
MONOTONE_COLUMNS = np.array([*(FEATURE_COLUMNS[name] for name in DIRECTIONS), len(FEATURE_NAMES) + 1])
"""The columns of the monotone trees: these features, and the lexical log-odds, which follow features and bag."""


class ClaimDataset(NamedTuple):
    """All claims of some answers in one sequence, with their features."""

    answers: list[Answer]
    claims: network.ClaimSequences
    owner: Array
    """The answer of each claim."""
    start: Array
    """The index of the first claim of each answer, and the number of all claims."""
    fold: Array
    """The fold of each claim."""
    word_codes: tuple[Array, Array]
    """Of each word of each claim the claim, and the code of word and state."""
    features: Array
    """The features of each claim, not scaled."""
    scale: tuple[Array, Array]
    """Their mean and deviation."""
    lexical_odds: Array
    """The log-odds of each claim by the lexical judge."""
    invariant: bool = False
    """Whether the network has only features that vary little between kinds of text."""


def build_dataset(answers: list[Answer], *, invariant: bool = False) -> ClaimDataset:
    """Return the claims of answers as a dataset; an invariant network has the features of the monotone trees alone."""
    claim_features = [item.features for item in answers if item.features is not None]
    sizes = np.array([len(item.features) for item in claim_features])
    start = np.concatenate([[0], np.cumsum(sizes)])
    features = np.concatenate([item.features for item in claim_features])
    scale = features.mean(0), features.std(0) + 1e-6
    word_lists: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for features_of_answer, size in zip(claim_features, sizes, strict=True):
        cuts = np.searchsorted(features_of_answer.word_states.claim_numbers, np.arange(1, size))
        for pieces, states in zip(word_lists, features_of_answer.word_states[:3], strict=True):
            pieces.extend(np.split(states.astype(np.float16) if states.ndim > 1 else states, cuts))
    scaled = np.clip((features - scale[0]) / scale[1], -4, 4)
    lexical_odds = np.concatenate([item.lexical_odds for item in claim_features])
    if invariant:
        scaled = np.c_[scaled[:, MONOTONE_COLUMNS[:-1]], np.clip(lexical_odds / 2 + 0.5, -4, 4)]
    claims = network.ClaimSequences(
        *word_lists, scaled.astype(np.float32),
        np.concatenate([item.marks for item in answers]), [tokens for item in answers for tokens in item.tokens],
    )  # fmt: skip
    codes = np.concatenate([item.stem_matches[1] * 4 + item.stem_matches[2] for item in claim_features])
    owners = np.concatenate(
        [item.stem_matches[0] + offset for item, offset in zip(claim_features, start, strict=False)]
    )
    owner = np.repeat(np.arange(len(answers)), sizes)
    return ClaimDataset(
        answers,
        claims,
        owner,
        start,
        np.array([item.fold for item in answers])[owner],
        (owners, codes),
        features,
        scale,
        lexical_odds,
        invariant,
    )


class ClaimModels(NamedTuple):
    """The models that predict whether a claim is unsupported."""

    bag: dict[str, Array]
    trees: lightgbm.Booster
    monotone: lightgbm.Booster
    network: network.WordNetwork


def fit_models(data: ClaimDataset, training: Array, bag_odds: Array, stride: int = 1) -> ClaimModels:
    """Fit the models on the claims of a mask; `bag_odds` are the cross-fitted log-odds by their bags of words.

    The network is trained on one in `stride` of the claims of the larger sets.
    """
    labelled = training & (data.claims.marks >= 0)
    labels, claim_weights = data.claims.marks[labelled], weigh_answers(data)[data.owner][labelled]
    trees = boosting.train_trees(
        np.c_[data.features, bag_odds][labelled], labels, claim_weights, CLAIM_ROUNDS, **boosting.CLAIM_TREES
    )
    monotone = fit_monotone(data, labelled)
    rows = np.flatnonzero(labelled)
    rows = rows[(claim_weights > 1) | (np.arange(len(rows)) % stride == 0)]
    return ClaimModels(
        fit_bag(data, labelled), trees, monotone, network.train(data.claims.pick(rows), own_vectors=not data.invariant)
    )


def fit_monotone(data: ClaimDataset, labelled: Array) -> lightgbm.Booster:
    """Fit the monotone trees on the claims of a mask; they rise with the lexical log-odds."""
    return boosting.train_trees(
        _stack_monotone_inputs(data)[labelled], data.claims.marks[labelled], weigh_answers(data)[data.owner][labelled],
        MONOTONE_ROUNDS, monotone_constraints=[*DIRECTIONS.values(), 1], **boosting.MONOTONE_TREES,
    )  # fmt: skip


def fit_small(data: ClaimDataset, labelled: Array, rows: Array) -> Array:
    """Return the log-odds of claims by monotone trees of three leaves, fitted on others; not part of the judge.

    The trees have only features with a direction; each set or task has the square root of its size as its weight.
    """
    directions = {name: direction for name, direction in DIRECTIONS.items() if direction}
    inputs = np.c_[data.features[:, [FEATURE_COLUMNS[name] for name in directions]], data.lexical_odds]
    kinds = np.array([answer.kind for answer in data.answers])[data.owner]
    _, kind_index, sizes = np.unique(kinds[labelled], return_inverse=True, return_counts=True)
    claim_weights = 1 / np.sqrt(sizes)[kind_index]
    trees = boosting.train_trees(
        inputs[labelled], data.claims.marks[labelled], claim_weights * len(claim_weights) / claim_weights.sum() / 2,
        SMALL_ROUNDS, monotone_constraints=[*directions.values(), 1], **{**boosting.MONOTONE_TREES, "num_leaves": 3},
    )  # fmt: skip
    odds: Array = trees.predict(inputs[rows], raw_score=True)
    return odds


def _stack_monotone_inputs(data: ClaimDataset) -> Array:
    inputs: Array = np.c_[data.features[:, MONOTONE_COLUMNS[:-1]], data.lexical_odds]
    return inputs


def fit_bag(data: ClaimDataset, labelled: Array) -> dict[str, Array]:
    """Fit the linear model of words on the claims of a mask."""
    in_labelled = labelled[data.word_codes[0]]
    new_rows = np.cumsum(labelled) - 1
    return boosting.fit_bag(
        new_rows[data.word_codes[0][in_labelled]],
        data.word_codes[1][in_labelled],
        data.claims.marks[labelled],
        int(labelled.sum()),
    )


def cross_fit_bag(data: ClaimDataset) -> Array:
    """Return the log-odds of each claim by its words, fitted on the other folds."""
    odds = np.zeros(len(data.owner))
    for fold in range(FOLDS):
        table = fit_bag(data, (data.fold != fold) & (data.claims.marks >= 0))
        odds[data.fold == fold] = boosting.score_bag(table, *data.word_codes, len(odds))[data.fold == fold]
    return odds


def predict_odds(models: ClaimModels, data: ClaimDataset, rows: Array) -> Array:
    """Predict the log-odds that claims are bad (claims × models): trees, monotone trees, network, lexical judge."""
    bag_odds = boosting.score_bag(models.bag, *data.word_codes, len(data.owner))
    odds = (
        models.trees.predict(np.c_[data.features, bag_odds][rows], raw_score=True),
        models.monotone.predict(_stack_monotone_inputs(data)[rows], raw_score=True),
        network.predict(models.network, data.claims.pick(rows)), data.lexical_odds[rows],
    )  # fmt: skip
    return np.array(odds).T


def score_answers(data: ClaimDataset, odds: Array) -> Array:
    """Return the log-odds of each answer, combined from those of its claims."""
    return np.array([combine_claims(odds[slice(*pair)]) for pair in pairwise(data.start)])


def weigh_answers(data: ClaimDataset) -> Array:
    """Return the weight of each answer's claims in training."""
    return np.where([answer.set in {"ragtruth", "invented"} for answer in data.answers], 1.0, SMALL_SET_WEIGHT)
