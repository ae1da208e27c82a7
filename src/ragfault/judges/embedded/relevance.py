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
"""The features of a query and a passage, in order."""
SAME_WORD_SIMILARITY = 0.999
"""Words of this similarity are the same; a smaller difference is rounding."""


def compute_relevance_features(question: WeightedQuery, arrays: PassageArrays) -> tuple[Array, Array]:
    """Return the features of each passage, and which words of the query it has; each depends on that passage alone."""
    passages, passage_numbers = arrays.index.passages, np.array(arrays.index.passage_numbers, np.int64)
    weights = np.array(list(question.weights.values()))
    total = weights.sum()
    features, holds = (
        np.zeros((len(passages), len(FEATURE_NAMES))),
        np.zeros((len(passages), len(weights)), bool),
    )
    if not len(passage_numbers) or not total:
        return features, holds
    similarity, cosine = _compare_words(question, weights, arrays)
    bounds = passage_numbers.searchsorted(np.arange(len(passages) + 1))
    sizes = bounds[1:] - bounds[:-1]
    nonempty = np.flatnonzero(sizes)
    first, sizes = (
        bounds[nonempty],
        sizes[nonempty],
    )  # of each passage that has any, its first sentence, and how many
    best_similarity = np.maximum.reduceat(similarity, first)
    matched = best_similarity > SAME_WORD_SIMILARITY
    holds[nonempty] = matched
    top_coverage = _select_top(
        (similarity > SAME_WORD_SIMILARITY) @ weights / total, passage_numbers, first, sizes, 2
    )
    has_kind = [
        bool(question.answer_kind and KIND_PATTERNS[question.answer_kind].search(passages[number].text))
        for number in nonempty
    ]
    features[nonempty] = np.array([
        matched @ weights / total, np.add.reduce(matched, axis=1) / len(weights), top_coverage[0],
        np.add.reduce(top_coverage) / np.minimum(sizes, 2), best_similarity @ weights / total,
        np.minimum.reduce(best_similarity, axis=1),
        np.maximum.reduceat(similarity @ weights, first) / total, np.maximum.reduceat(cosine, first),
        np.add.reduce(_select_top(cosine, passage_numbers, first, sizes, 3)) / np.minimum(sizes, 3), has_kind,
        np.full(len(nonempty), question.answer_kind is not None),
        np.log1p(np.add.reduceat(arrays.sizes, first)),
    ]).T  # fmt: skip
    return features.round(5), holds


def _compare_words(question: WeightedQuery, weights: Array, arrays: PassageArrays) -> tuple[Array, Array]:
    """Return, for each sentence, the best similarity to each word of the query, and the cosine with the query."""
    words, table = list(question.weights), arrays.table
    rows = table.get_rows(words)
    vectors = table.get_vectors(rows)
    similarity = (arrays.vectors @ vectors.T) / (arrays.norms[:, None] * table.norms[rows])
    for number, word in enumerate(words):
        if word in arrays.stem_numbers:
            similarity[arrays.stem_numbers[word], number] = 1.0
    closeness = np.zeros((len(arrays.sizes), len(words)))
    nonempty = arrays.sizes > 0
    closeness[nonempty] = np.maximum.reduceat(similarity[arrays.tokens], arrays.starts[:-1][nonempty])
    query_vector = weights @ vectors.astype(float)
    return closeness, arrays.sentence_vectors @ (query_vector / (np.sqrt(query_vector @ query_vector) + 1e-9))


def _select_top(values: Array, owner: Array, first: Array, sizes: Array, count: int) -> Array:
    """Return [count × passages] the greatest values of each passage's sentences in order; 0 if it has fewer."""
    ranked = values[np.lexsort((-values, owner))]
    ranks = np.arange(count)[:, None]
    top: Array = np.where(ranks < sizes, ranked.take(first + ranks, mode="clip"), 0.0)
    return top


@cache
def _load_weights() -> Mapping[str, Array]:
    return load_arrays("relevance.npz")


def predict_relevance(features: Array) -> Array:
    """Return the probability that each passage is relevant, from its features."""
    fitted = _load_weights()
    return logistic(((features - fitted["mean"]) / fitted["deviation"]) @ fitted["weights"] + fitted["bias"])


def score_passages(question: WeightedQuery, arrays: PassageArrays) -> list[RelevanceScore]:
    """Return the probability that each passage is relevant, and which words of the query it lacks.

    A passage about another section, version or code than the query has is not relevant.
    """
    passages = arrays.index.passages
    if not question.total_weight or not len(arrays.tokens):
        return [RelevanceScore(0.0, "nothing to compare")] * len(passages)
    features, holds = compute_relevance_features(question, arrays)
    scores = []
    for passage, p, matched in zip(
        passages, predict_relevance(features).round(4).tolist(), holds, strict=True
    ):
        mismatch = detect_identifier_mismatch(question, passage.text)
        if mismatch:
            scores.append(RelevanceScore(min(p * 0.4, 0.2), mismatch, is_other_subject=True))
            continue
        missing = [
            word
            for word, is_present in zip(question.weights, matched.tolist(), strict=True)
            if not is_present
        ]
        missing = sorted(missing, key=lambda word: (-question.weights[word], word))[:3]
        missing_terms = ", ".join(question.spellings.get(word, word) for word in missing)
        scores.append(RelevanceScore(p, f"without {missing_terms}" if missing else None))
    return scores
