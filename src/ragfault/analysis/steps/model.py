"""The trained model of first faults: a hazard for each move, and a posterior over the moves and "no faulty step"."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np

from ragfault.analysis.steps.features import FEATURE_NAMES, Array
from ragfault.judges.embedded.network import TreeEnsemble

RunKind = Literal["search", "team"]
"""An agent that searches and answers; several agents that talk to each other."""
Outcome = Literal["unknown", "right", "differs", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("unknown", "right", "differs", "failed")
"""What is known of the answer: nothing, that it states a reference, that it states none, or that the run failed."""
SEARCH_FEATURES = """
place_end is_last has_call error unexecuted error_before missing covered answer_support answer_pair answer_near
answer_refuses giving_up novel novel_share guess text_length question_length closed choice query_repeat
same_query_before gain new_chunks returned_question text_question repair searches repeats_so_far next_error
answer_read read_before copy queries
"""
FEATURES_BY_KIND: dict[RunKind, tuple[str, ...]] = {"search": tuple(SEARCH_FEATURES.split()), "team": FEATURE_NAMES}
"""The features that each model reads; fewer generalise better from few questions."""
LABELS = ("wrong", "neutral", "right")
MAX_VALUE, MIN_HAZARD = 50.0, 1e-4


class StepModel(NamedTuple):
    """Weights for one kind of run."""

    columns: Array
    """The features it reads, as positions in `FEATURE_NAMES`."""
    mean: Array
    deviation: Array
    weights: Array
    bias: float
    trees: TreeEnsemble
    label_trees: tuple[TreeEnsemble, ...]
    """The share of each label: wrong, neutral, right; empty where none were trained."""
    thresholds: Array
    """For each outcome, the least probability of a member of the 90 % set."""
    right_shares: Array
    """The share of answers that state the reference among runs with a faulty step, and among those without."""

    @staticmethod
    def unpack(arrays: Mapping[str, Array], kind: RunKind) -> StepModel:
        """Unpack the weights of one kind of run from a file of weights."""
        names = ("columns", "mean", "deviation", "weights", "bias", "thresholds", "right_shares")
        parts: dict[str, Any] = {name: arrays[f"{kind}.{name}"] for name in names}
        return StepModel(
            **{**parts, "bias": float(parts["bias"])},
            trees=TreeEnsemble.unpack(arrays, f"{kind}.trees"),
            label_trees=tuple(
                TreeEnsemble.unpack(arrays, f"{kind}.{name}") for name in LABELS if f"{kind}.{name}.roots" in arrays
            ),
        )

    def predict_hazards(self, features: Array) -> Array:
        """Return for each move the probability that it is faulty if none before it is."""
        clipped = np.clip(features[:, self.columns], -MAX_VALUE, MAX_VALUE)
        scaled = (clipped - self.mean) / self.deviation
        linear = 1 / (1 + np.exp(-(scaled @ self.weights + self.bias)))
        hazards: Array = (linear + self.trees(features[:, self.columns])) / 2
        return hazards

    def predict_first_fault(self, features: Array, outcome: Outcome) -> Array:
        """Return the probability of each move, and last of no move, to be the first fault.

        A known outcome weighs the moves against no move by Bayes' rule.
        """
        return weigh_outcome(chain_hazards(self.predict_hazards(features)), outcome, self.right_shares)


def chain_hazards(hazards: Array) -> Array:
    """Return the probability of each move to be the first fault, and last that of none.

    >>> chain_hazards(np.array([0.5, 0.5])).tolist()
    [0.5, 0.25, 0.25]
    """
    hazards = np.clip(hazards, MIN_HAZARD, 1 - MIN_HAZARD)
    survival = np.concatenate([[1.0], np.cumprod(1 - hazards)])
    posterior: Array = np.append(hazards * survival[:-1], survival[-1])
    return posterior


def weigh_outcome(posterior: Array, outcome: Outcome, right_shares: Array) -> Array:
    """Weigh a posterior by what is known of the answer.

    >>> weigh_outcome(np.array([0.25, 0.75]), "differs", np.array([0.0, 0.9])).round(3).tolist()
    [0.769, 0.231]
    """
    if outcome == "unknown":
        return posterior
    right = np.append(np.full(len(posterior) - 1, right_shares[0]), right_shares[1])
    likelihood = right if outcome == "right" else 1 - right
    if outcome == "failed":
        likelihood = np.append(np.ones(len(posterior) - 1), 0.0)
    weighed: Array = posterior * likelihood / (posterior * likelihood).sum()
    return weighed


def select_members(posterior: Array, threshold: float) -> Array:
    """Return which entries belong to the set: those of at least the threshold, and always the most probable one."""
    members: Array = posterior >= threshold
    members[posterior.argmax()] = True
    return members


@cache
def load_step_model(kind: RunKind) -> StepModel:
    """Load the packaged weights, once."""
    with files(__package__).joinpath("weights.npz").open("rb") as body, np.load(body) as arrays:
        return StepModel.unpack({name: arrays[name] for name in arrays.files}, kind)
