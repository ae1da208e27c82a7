"""The trained model of first faults: a hazard for each move, and a posterior over the moves and "no faulty step"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np

from ragfault.diagnosis.steps.agreement import Agreement
from ragfault.diagnosis.steps.features import Array
from ragfault.judges.embedded.network import TreeEnsemble

RunKind = Literal["search", "team"]
"""An agent that searches and answers; several agents that talk to each other."""
Outcome = Literal["unknown", "right", "differs", "failed", "compared"]
OUTCOMES: tuple[Outcome, ...] = ("unknown", "right", "differs", "failed", "compared")
"""What is known of the answer: nothing, that it states a reference, that it states none, that the run failed, or what
other runs of the question answered."""
AGREEMENT_WEIGHT = 0.5
"""The weight of what other runs answered was learned from runs of different agents. Repeated runs of one agent share
more of their mistakes, so that the logarithm of the likelihood ratio counts half."""
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
    thresholds: Array
    """For each outcome, the least probability of a member of the 90 % set."""
    right_shares: Array
    """The share of answers that state the reference among runs with a faulty step, and among those without."""
    agreement: Array
    """The two shapes of a beta-binomial count of runs that agree, [with a faulty step, without] × 2."""

    @staticmethod
    def unpack(arrays: Mapping[str, Array], kind: RunKind) -> StepModel:
        """Unpack the weights of one kind of run from a file of weights."""
        names = ("columns", "mean", "deviation", "weights", "bias", "thresholds", "right_shares", "agreement")
        parts: dict[str, Any] = {name: arrays[f"{kind}.{name}"] for name in names}
        return StepModel(**{**parts, "bias": float(parts["bias"])}, trees=TreeEnsemble.unpack(arrays, f"{kind}.trees"))

    def predict_hazards(self, features: Array) -> Array:
        """Return for each move the probability that it is faulty if none before it is."""
        clipped = np.clip(features[:, self.columns], -MAX_VALUE, MAX_VALUE)
        scaled = (clipped - self.mean) / self.deviation
        linear = 1 / (1 + np.exp(-(scaled @ self.weights + self.bias)))
        hazards: Array = (linear + self.trees(features[:, self.columns])) / 2
        return hazards

    def predict_first_fault(self, features: Array, outcome: Outcome, agreement: Agreement | None = None) -> Array:
        """Return the probability of each move, and last of no move, to be the first fault.

        A known outcome weighs the moves against no move by Bayes' rule.
        """
        posterior = chain_hazards(self.predict_hazards(features))
        if outcome == "compared" and agreement is not None:
            return weigh_agreement(posterior, agreement, self.agreement)
        return weigh_outcome(posterior, outcome, self.right_shares)


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


def weigh_agreement(posterior: Array, agreement: Agreement, shapes: Array) -> Array:
    """Weigh a posterior by how many other runs agree, counts being beta-binomial with and without a faulty step.

    An answer that differs speaks for a fault only where the others agree with each other: a question that each run
    answers in another way may have several right answers.

    >>> shapes = np.array([[1.0, 1.0], [3.0, 1.0]])
    >>> weigh_agreement(np.array([0.5, 0.5]), Agreement(4, 4, True), shapes).round(3).tolist()
    [0.406, 0.594]
    >>> weigh_agreement(np.array([0.5, 0.5]), Agreement(0, 4, False), shapes).tolist()
    [0.5, 0.5]
    """
    with_fault, without = (_log_likelihood(agreement, *map(float, shape)) for shape in shapes)
    ratio = AGREEMENT_WEIGHT * (without - with_fault)
    weighed = posterior.copy()
    weighed[-1] *= math.exp(ratio if agreement.has_majority else max(0.0, ratio))
    result: Array = weighed / weighed.sum()
    return result


def _log_likelihood(agreement: Agreement, a: float, b: float) -> float:
    """Return the logarithm of the beta-binomial likelihood, less that of the binomial coefficient."""
    return _log_beta(agreement.same + a, agreement.others - agreement.same + b) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


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
