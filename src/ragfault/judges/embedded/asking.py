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
    passages, owner = ground.index.passages, np.array(ground.index.owner, np.int64)
    weights = np.array(list(question.weights.values()))
    total = weights.sum()
    found, holds = np.zeros((len(passages), len(NAMES))), np.zeros((len(passages), len(weights)), bool)
    if not len(owner) or not total:
        return found, holds
    close, near = _compared(question, weights, ground)
    bounds = owner.searchsorted(np.arange(len(passages) + 1))
    sizes = bounds[1:] - bounds[:-1]
    some = np.flatnonzero(sizes)
    first, sizes = bounds[some], sizes[some]  # of each passage that has any, its first sentence, and how many
    there = np.maximum.reduceat(close, first)
    held = there > SAME
    holds[some] = held
    covered = _top((close > SAME) @ weights / total, owner, first, sizes, 2)
    shows = [bool(question.kind and SHOWS[question.kind].search(passages[place].text)) for place in some]
    found[some] = np.array([
        held @ weights / total, np.add.reduce(held, axis=1) / len(weights), covered[0],
        np.add.reduce(covered) / np.minimum(sizes, 2), there @ weights / total, np.minimum.reduce(there, axis=1),
        np.maximum.reduceat(close @ weights, first) / total, np.maximum.reduceat(near, first),
        np.add.reduce(_top(near, owner, first, sizes, 3)) / np.minimum(sizes, 3), shows,
        np.full(len(some), question.kind is not None),
        np.log1p(np.add.reduceat(ground.sizes, first)),
    ]).T  # fmt: skip
    return found.round(5), holds


def _compared(question: Question, weights: Array, ground: Ground) -> tuple[Array, Array]:
    """For each sentence how alike each word of the query is to the nearest of its own, and how near both are."""
    kinds, table = list(question.weights), ground.table
    rows = table.lines(kinds)
    vectors = table.meanings(rows)
    alike = (ground.vectors @ vectors.T) / (ground.lengths[:, None] * table.lengths[rows])
    for place, kind in enumerate(kinds):
        if kind in ground.numbers:
            alike[ground.numbers[kind], place] = 1.0
    close = np.zeros((len(ground.sizes), len(kinds)))
    full = ground.sizes > 0
    close[full] = np.maximum.reduceat(alike[ground.tokens], ground.starts[:-1][full])
    meaning = weights @ vectors.astype(float)
    return close, ground.meanings @ (meaning / (np.sqrt(meaning @ meaning) + 1e-9))


def _top(values: Array, owner: Array, first: Array, sizes: Array, count: int) -> Array:
    """[count × passages] The greatest values of each passage's sentences, the greatest first; 0 where it has fewer."""
    ranked = values[np.lexsort((-values, owner))]
    places = np.arange(count)[:, None]
    top: Array = np.where(places < sizes, ranked.take(first + places, mode="clip"), 0.0)
    return top


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
