"""Supporting: how probably passages support claims, and an answer as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.examining import Examined
from ragfault.judges.embedded.network import Network
from ragfault.judges.embedded.shapes import SHAPES, Shape
from ragfault.judges.embedded.summing import logistic, summed
from ragfault.judges.embedded.trees import Trees
from ragfault.judges.embedded.vectors import Array, load, vectors

__all__ = ["Model", "model"]


class Model(NamedTuple):
    """All that was learned of support."""

    network: Network
    claims: Trees
    answers: Trees
    codes: Array
    """Each word in each state of which something was learned: four times its row, plus the state."""
    weights: Array
    bias: float
    claim_line: Array
    """For each shape slope and intercept of its calibration."""
    answer_line: Array

    def odds(self, seen: Examined) -> Array:
        """The log-odds that each claim is bad, before calibration: the mean of trees and network."""
        owner, rows, state = seen.kinds
        code = rows * 4 + state
        at = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        told = np.where(self.codes[at] == code, self.weights[at], 0.0)
        bag = np.bincount(owner, told, len(seen.features)) + self.bias
        trees = self.claims(np.concatenate([seen.features, bag[:, None]], axis=1))
        odds: Array = ((trees + self.network(seen.states, seen.features)) / 2).round(4)
        return odds

    def support(self, odds: Array, shape: Shape) -> Array:
        """The calibrated probability that each claim is supported."""
        slope, intercept = self.claim_line[SHAPES.index(shape)]
        return logistic(-(slope * odds + intercept)).round(4)

    def wholes(self, answers: Sequence[tuple[Array, Array]]) -> list[float]:
        """For each answer, by the odds and features of its claims, the log-odds that some claim is bad."""
        whole: list[float] = self.answers(np.array([summed(*answer) for answer in answers])).tolist()
        return whole

    def grounded(self, whole: float, shape: Shape) -> float:
        """The calibrated probability that all claims of an answer are supported."""
        slope, intercept = self.answer_line[SHAPES.index(shape)]
        return round(float(logistic(-(slope * np.array(whole) + intercept))), 4)


@cache
def model() -> Model:
    """The weights that the package carries, read once."""
    packed = load("support.npz")
    return Model(
        Network.unpack({key: part for key, part in packed.items() if key.startswith("network.")}, vectors()),
        Trees.unpack(packed, "claims"),
        Trees.unpack(packed, "answers"),
        packed["bag.codes"].astype(np.int64),
        packed["bag.weights"].astype(float) * float(packed["bag.scale"]),
        float(packed["bag.bias"]),
        packed["claim_line"],
        packed["answer_line"],
    )
