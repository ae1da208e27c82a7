"""Asking: how relevant each passage is to a query, by its words and by what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.summing import logistic
from ragfault.judges.embedded.vectors import Array, load
from ragfault.judges.relevance import SHOWS, Question, elsewhere
from ragfault.judges.scorer import Relevance

__all__ = ["NAMES", "asked", "relevant"]

WORDS = """
covered kinds best best2 soft soft_least soft_best meaning meaning3 shows expects length
"""
NAMES = tuple(WORDS.split())
"""What is said in numbers of a query and a passage, in order."""
SAME = 0.999
"""Words as alike as this are the same; such small a difference is one of rounding."""


def asked(question: Question, ground: Ground) -> tuple[Array, Array]:
    """Numbers for each passage, and which words of the query it holds; each from the query and that passage alone."""
    kinds = list(question.weights)
    table, index = ground.table, ground.index
    owner = np.array(index.owner, np.int64)
    rows = table.lines(kinds)
    weights = np.array([question.weights[kind] for kind in kinds])
    total = weights.sum()
    vectors = table.table[rows]
    alike = (vectors @ ground.vectors.T) / (table.lengths[rows][:, None] * ground.lengths)
    for place, kind in enumerate(kinds):
        if kind in ground.numbers:
            alike[place, ground.numbers[kind]] = 1.0
    close = np.zeros((len(owner), len(kinds)))
    some = ground.sizes > 0
    close[some] = np.maximum.reduceat(alike[:, ground.tokens], ground.starts[:-1][some], axis=1).T
    meaning = weights @ vectors.astype(float)
    near = ground.meanings @ (meaning / (np.sqrt(meaning @ meaning) + 1e-9))
    found, holds = (
        np.zeros((len(index.passages), len(NAMES))),
        np.zeros((len(index.passages), len(kinds)), bool),
    )
    for place, passage in enumerate(index.passages):
        at = np.flatnonzero(owner == place)
        if not len(at) or not total:
            continue
        there = close[at].max(0)
        held = close[at] > SAME
        holds[place] = held.any(0)
        covered = np.sort(held @ weights)[::-1] / total
        shows = bool(question.kind and SHOWS[question.kind].search(passage.text))
        found[place] = [
            held.any(0) @ weights / total, held.any(0).mean(), covered[0], covered[:2].mean(),
            there @ weights / total, there.min(), (close[at] @ weights).max() / total, near[at].max(),
            np.sort(near[at])[-3:].mean(), shows, question.kind is not None,
            np.log1p(ground.sizes[at].sum()),
        ]  # fmt: skip
    return found.round(5), holds


@cache
def _fitted() -> Mapping[str, Array]:
    return load("relevance.npz")


def weigh(features: Array) -> Array:
    """The probability that each passage is relevant, from its numbers."""
    fitted = _fitted()
    return logistic(((features - fitted["mean"]) / fitted["deviation"]) @ fitted["weights"] + fitted["bias"])


def relevant(question: Question, ground: Ground) -> list[Relevance]:
    """How probably each passage is relevant, and which words of the query it lacks.

    What speaks about another section, version or code than the query names is not relevant.
    """
    passages = ground.index.passages
    if not question.total or not len(ground.tokens):
        return [Relevance(0.0, "nothing to compare")] * len(passages)
    features, holds = asked(question, ground)
    found = []
    for passage, p, held in zip(passages, weigh(features).round(4).tolist(), holds, strict=True):
        strange = elsewhere(question, passage.text)
        if strange:
            found.append(Relevance(min(p * 0.4, 0.2), strange, other=True))
            continue
        lost = [word for word, there in zip(question.weights, held.tolist(), strict=True) if not there]
        lost = sorted(lost, key=lambda word: (-question.weights[word], word))[:3]
        said = ", ".join(question.spelled.get(word, word) for word in lost)
        found.append(Relevance(p, f"without {said}" if lost else None))
    return found
