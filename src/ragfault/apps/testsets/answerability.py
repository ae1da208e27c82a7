"""Answerability of a question by a passage: what the encoder reads of both, weighed by a packaged model.

The encoder reads the question for relevance, and twice as a claim about the passage: whole, and without its question
words. What is left of it then is what a question presupposes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from ragfault.judges.embedded.network import TreeEnsemble
from ragfault.judges.encoder.evidence import evidence
from ragfault.judges.encoder.model import HEADS, load_encoder

Array = np.ndarray[Any, Any]

FEATURE_NAMES = ("relevance", *(f"{text} {label}" for text in ("claim", "question") for label in HEADS["entailment"]))
PROBABILITY_BOUNDS = (0.16, 0.83)
"""2 % of the pairs with an answer are below, 2 % of those without one above, out of fold (`training.answerability`)."""
QUESTION_OPENING = re.compile(
    r"^\W*(?:(?:in|on|at|by|for|to|from|of|with)\s+)?"
    r"(?:what|which|who|whom|whose|when|where|why|how(?: many| much| long| often| far)?)\b\s*"
    r"(?:(?:is|are|was|were|did|does|do|has|have|had|can|could|would|will)\b)?\s*",
    re.IGNORECASE,
)


def compute_features(query: str, passage: str) -> Array:
    """Compute what the encoder reads of a question and a passage, in the order of `FEATURE_NAMES`."""
    encoder = load_encoder()
    windows = evidence((passage,), query)
    claim = _cut_question_words(query)
    entailment = encoder.read_entailment([(claim, evidence((passage,), claim)), (query, windows)])
    return np.append(encoder.read_relevance(query, windows), entailment)


def _cut_question_words(query: str) -> str:
    """Return a question without its question words, as a claim."""
    return f"{QUESTION_OPENING.sub('', query.strip().rstrip('?').strip()) or 'it'}."


class AnswerabilityModel(NamedTuple):
    """Boosted trees and a linear model, the mean of whose probabilities counts."""

    mean: Array
    deviation: Array
    weights: Array
    bias: float
    trees: TreeEnsemble

    def predict(self, features: Array) -> Array:
        """Return the probability that the passage of each row answers its question."""
        linear = 1 / (1 + np.exp(-(((features - self.mean) / self.deviation) @ self.weights + self.bias)))
        boosted = 1 / (1 + np.exp(-(self.trees(features))))
        mean: Array = (linear + boosted) / 2
        return mean

    @staticmethod
    def unpack(arrays: dict[str, Array]) -> AnswerabilityModel:
        """Unpack a model from its arrays."""
        return AnswerabilityModel(
            arrays["mean"],
            arrays["deviation"],
            arrays["weights"],
            float(arrays["bias"]),
            TreeEnsemble.unpack(arrays, "trees"),
        )


@cache
def load_model() -> AnswerabilityModel:
    """Load the packaged weights, once."""
    with files(__package__).joinpath("answerability.npz").open("rb") as body, np.load(body) as arrays:
        return AnswerabilityModel.unpack({name: arrays[name] for name in arrays.files})


def score_answerability(query: str, passages: Sequence[str]) -> list[float]:
    """Return the probability that each passage by itself answers a question, in [0, 1]; 0 for a blank passage.

    It tells a passage with the answer from another on the same subject better than it notices that one word of the
    question is not what the passage says (`docs/testsets.md`).

    >>> near, far = score_answerability("Who built the quay?", ["Ann Lee built the quay in 1907.", "Soup is warm."])
    >>> near > far
    True
    """
    if not passages:
        return []
    scores = load_model().predict(np.array([compute_features(query, passage) for passage in passages]))
    return [float(score) if text.strip() else 0.0 for score, text in zip(scores, passages, strict=True)]
