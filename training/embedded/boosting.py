"""Boosted trees, and a linear model of a claim's words: fitted with LightGBM and scikit-learn, packed as arrays."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from ragfault.judges.embedded.word_vectors import Array

__all__ = ["fit_bag", "pack_trees", "score_bag", "train_trees"]

CLAIM_TREES = {"num_leaves": 31, "learning_rate": 0.05, "min_child_samples": 40, "feature_fraction": 0.6}
MONOTONE_TREES = {
    "num_leaves": 15, "learning_rate": 0.05, "min_child_samples": 60, "feature_fraction": 0.4, "lambda_l2": 5,
    "bagging_fraction": 0.6,
}  # fmt: skip
TREE_DEFAULTS = {
    "objective": "binary", "lambda_l2": 2, "bagging_fraction": 0.8, "bagging_freq": 1, "num_threads": 1,
    "verbose": -1, "seed": 0, "deterministic": True,
}  # fmt: skip
MIN_CLAIMS = 8
"""Claims that must have a word in a state before the pair of both is a feature."""
RIDGE = 0.05


def train_trees(rows: Array, labels: Array, weights: Array | None, rounds: int, **options: Any) -> lightgbm.Booster:
    """Fit boosted trees."""
    return lightgbm.train({**TREE_DEFAULTS, **options}, lightgbm.Dataset(rows, labels, weight=weights), rounds)


def pack_trees(model: lightgbm.Booster, columns: Array | None = None) -> dict[str, Array]:
    """Pack the trees as one table of nodes (see `ragfault.judges.embedded.network`); `columns` are their features."""
    roots: list[int] = []
    nodes: list[list[float]] = []

    def add_node(node: dict[str, Any]) -> tuple[int, int]:
        index = len(nodes)
        if "leaf_value" in node:
            nodes.append([0, 0, index, index, node["leaf_value"]])
            return index, 0
        nodes.append([node["split_feature"], node["threshold"], 0, 0, 0])
        left, left_depth = add_node(node["left_child"])
        right, right_depth = add_node(node["right_child"])
        nodes[index][2:4] = [left, right]
        return index, 1 + max(left_depth, right_depth)

    depth = 0
    for tree in model.dump_model()["tree_info"]:
        root, tree_depth = add_node(tree["tree_structure"])
        roots.append(root)
        depth = max(depth, tree_depth)
    feature, threshold, left, right, value = np.array(nodes).T
    if columns is not None:
        feature = columns[feature.astype(int)]
    return {
        "roots": np.array(roots, np.int32),
        "feature": feature.astype(np.int16),
        "bar": threshold,
        "left": left.astype(np.int32),
        "right": right.astype(np.int32),
        "value": value.astype(np.float32),
        "depth": np.array(depth),
    }


def fit_bag(owner: Array, codes: Array, labels: Array, count: int) -> dict[str, Array]:
    """Fit a sparse logistic regression on the bag of words of each claim; a feature is a word in a state."""
    frequent, frequency = np.unique(codes, return_counts=True)
    frequent = frequent[frequency >= MIN_CLAIMS]
    matrix = _build_matrix(owner, codes, frequent, count)
    model = LogisticRegression(C=RIDGE, solver="liblinear", max_iter=100, random_state=0).fit(matrix, labels)
    weights = model.coef_[0]
    scale = np.abs(weights).max() / 127
    return {
        "codes": frequent.astype(np.int32),
        "weights": (weights / scale).round().astype(np.int8),
        "scale": np.array(scale, np.float32),
        "bias": np.array(model.intercept_[0], np.float32),
    }


def _build_matrix(owner: Array, codes: Array, frequent: Array, count: int) -> csr_matrix:
    columns = np.minimum(np.searchsorted(frequent, codes), len(frequent) - 1)
    is_frequent = frequent[columns] == codes
    return csr_matrix(
        (np.ones(is_frequent.sum(), np.float32), (owner[is_frequent], columns[is_frequent])),
        shape=(count, len(frequent)),
    )


def score_bag(table: dict[str, Array], owner: Array, codes: Array, count: int) -> Array:
    """Return the log-odds that each claim is unsupported, by its bag of words."""
    row = np.minimum(np.searchsorted(table["codes"], codes), len(table["codes"]) - 1)
    is_known = table["codes"][row] == codes
    summed = np.bincount(owner[is_known], table["weights"][row[is_known]].astype(float), count)
    odds: Array = summed * float(table["scale"]) + float(table["bias"])
    return odds
