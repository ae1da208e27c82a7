"""Relevance of passages to a query, by words and word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from ragfault.judges.checks.queries import KIND_PATTERNS, WeightedQuery, detect_identifier_mismatch
from ragfault.judges.embedded.passage_arrays import PassageArrays
from ragfault.judges.embedded.support import logistic
from ragfault.judges.embedded.vectors import Array, load_arrays
from ragfault.judges.scorer import RelevanceScore

FEATURE_LIST = """
covered kinds best best2 soft soft_least soft_best meaning meaning3 shows expects length
"""
FEATURE_NAMES = tuple(FEATURE_LIST.split())
"""What is said in numbers of a query and a passage, in order."""
SAME_WORD_SIMILARITY = 0.999
"""Words as alike as this are the same; such small a difference is one of rounding."""


def compute_relevance_features(question: WeightedQuery, arrays: PassageArrays) -> tuple[Array, Array]:
    """Numbers for each passage, and which words of the query it holds; each from the query and that passage alone."""
    passages, owner = arrays.index.passages, np.array(arrays.index.passage_numbers, np.int64)
    weights = np.array(list(question.weights.values()))
    total = weights.sum()
    found, holds = (
        np.zeros((len(passages), len(FEATURE_NAMES))),
        np.zeros((len(passages), len(weights)), bool),
    )
    if not len(owner) or not total:
        return found, holds
    close, near = _compare_words(question, weights, arrays)
    bounds = owner.searchsorted(np.arange(len(passages) + 1))
    sizes = bounds[1:] - bounds[:-1]
    some = np.flatnonzero(sizes)
    first, sizes = bounds[some], sizes[some]  # of each passage that has any, its first sentence, and how many
    there = np.maximum.reduceat(close, first)
    held = there > SAME_WORD_SIMILARITY
    holds[some] = held
    covered = _select_top((close > SAME_WORD_SIMILARITY) @ weights / total, owner, first, sizes, 2)
    shows = [
        bool(question.answer_kind and KIND_PATTERNS[question.answer_kind].search(passages[place].text))
        for place in some
    ]
    found[some] = np.array([
        held @ weights / total, np.add.reduce(held, axis=1) / len(weights), covered[0],
        np.add.reduce(covered) / np.minimum(sizes, 2), there @ weights / total, np.minimum.reduce(there, axis=1),
        np.maximum.reduceat(close @ weights, first) / total, np.maximum.reduceat(near, first),
        np.add.reduce(_select_top(near, owner, first, sizes, 3)) / np.minimum(sizes, 3), shows,
        np.full(len(some), question.answer_kind is not None),
        np.log1p(np.add.reduceat(arrays.sizes, first)),
    ]).T  # fmt: skip
    return found.round(5), holds


def _compare_words(question: WeightedQuery, weights: Array, arrays: PassageArrays) -> tuple[Array, Array]:
    """For each sentence how alike each word of the query is to the nearest of its own, and how near both are."""
    kinds, table = list(question.weights), arrays.table
    rows = table.get_rows(kinds)
    vectors = table.get_vectors(rows)
    alike = (arrays.vectors @ vectors.T) / (arrays.norms[:, None] * table.norms[rows])
    for place, kind in enumerate(kinds):
        if kind in arrays.stem_numbers:
            alike[arrays.stem_numbers[kind], place] = 1.0
    close = np.zeros((len(arrays.sizes), len(kinds)))
    full = arrays.sizes > 0
    close[full] = np.maximum.reduceat(alike[arrays.tokens], arrays.starts[:-1][full])
    meaning = weights @ vectors.astype(float)
    return close, arrays.sentence_vectors @ (meaning / (np.sqrt(meaning @ meaning) + 1e-9))


def _select_top(values: Array, owner: Array, first: Array, sizes: Array, count: int) -> Array:
    """[count × passages] The greatest values of each passage's sentences, the greatest first; 0 where it has fewer."""
    ranked = values[np.lexsort((-values, owner))]
    places = np.arange(count)[:, None]
    top: Array = np.where(places < sizes, ranked.take(first + places, mode="clip"), 0.0)
    return top


@cache
def _load_weights() -> Mapping[str, Array]:
    return load_arrays("relevance.npz")


def predict_relevance(features: Array) -> Array:
    """The probability that each passage is relevant, from its numbers."""
    fitted = _load_weights()
    return logistic(((features - fitted["mean"]) / fitted["deviation"]) @ fitted["weights"] + fitted["bias"])


def score_passages(question: WeightedQuery, arrays: PassageArrays) -> list[RelevanceScore]:
    """How probably each passage is relevant, and which words of the query it lacks.

    What speaks about another section, version or code than the query names is not relevant.
    """
    passages = arrays.index.passages
    if not question.total_weight or not len(arrays.tokens):
        return [RelevanceScore(0.0, "nothing to compare")] * len(passages)
    features, holds = compute_relevance_features(question, arrays)
    found = []
    for passage, p, held in zip(passages, predict_relevance(features).round(4).tolist(), holds, strict=True):
        strange = detect_identifier_mismatch(question, passage.text)
        if strange:
            found.append(RelevanceScore(min(p * 0.4, 0.2), strange, is_other_subject=True))
            continue
        lost = [word for word, there in zip(question.weights, held.tolist(), strict=True) if not there]
        lost = sorted(lost, key=lambda word: (-question.weights[word], word))[:3]
        said = ", ".join(question.spellings.get(word, word) for word in lost)
        found.append(RelevanceScore(p, f"without {said}" if lost else None))
    return found
