"""Inference of the embedded judge in numpy: boosted trees and a convolutional network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.arrays import ClaimMatches, ClaimWords, PassageBatch
from ragfault.judges.embedded.features import NgramMatches, measure_runs
from ragfault.judges.embedded.word_vectors import Array, WordVectors
from ragfault.text.normalization import NEGATIONS

ALL_LEAVES, LOWEST_BIT = np.uint32(0xFFFFFFFF), np.uint32(1)
BLOCK_ROWS = 8
"""Rows evaluated at a time, few enough for the processor's cache."""


class TreeEnsemble(NamedTuple):
    """A sum of decision trees of at most 32 leaves, all of whose nodes are evaluated at once.

    A node compares one feature with its threshold. Above it, no leaf on its left can be reached: of the
    leaves from left to right, the first one that all nodes leave over is the result. This is QuickScorer
    (Lucchese et al., SIGIR 2015) with array operations in place of its loops.
    """

    feature: Array
    """The feature of each node: the first nodes of all trees, then the second; a shorter tree repeats its last."""
    threshold: Array
    mask: Array
    """The leaves of its tree that are not on the left of each node, as bits."""
    leaf_values: Array
    """[32 × trees] The value of each leaf."""

    @staticmethod
    def unpack(arrays: Mapping[str, Array], name: str) -> TreeEnsemble:
        """Unpack the trees of a name from a file of weights, in which parents come before children, left before right.

        >>> arrays = {"roots": [0], "feature": [0, 0, 0], "bar": [0.5, 0, 0], "left": [1, 1, 2], "right": [2, 1, 2]}
        >>> arrays |= {"value": [0, -1.0, 2.0]}
        >>> trees = TreeEnsemble.unpack({f"t.{field}": np.array(part) for field, part in arrays.items()}, "t")
        >>> trees(np.array([[0.5], [0.6]])).tolist()
        [-1.0, 2.0]
        """
        roots, feature, threshold, left, right, leaf_value = (
            arrays[f"{name}.{field}"] for field in ("roots", "feature", "bar", "left", "right", "value")
        )
        leaf = left == np.arange(len(left))
        tree = np.repeat(np.arange(len(roots)), np.diff(np.append(roots, len(left))))
        # leaves before a node in all trees; rank is the number in its own tree
        leaves_before = np.cumsum(leaf) - leaf
        rank = (leaves_before - leaves_before[roots][tree]).astype(np.uint64)
        unit = np.uint64(1)
        mask = (ALL_LEAVES ^ ((unit << rank[right]) - (unit << rank[left]))).astype(np.uint32)
        inner = np.flatnonzero(~leaf)
        sizes = np.bincount(tree[inner], minlength=len(roots))
        starts = np.cumsum(sizes) - sizes
        nodes = inner[starts + np.minimum(np.arange(sizes.max())[:, None], sizes - 1)]
        values = np.zeros((32, len(roots)))
        values[rank[leaf].astype(int), tree[leaf]] = leaf_value[leaf]
        return TreeEnsemble(feature[nodes].astype(np.int64), threshold[nodes].astype(float), mask[nodes], values)

    def __call__(self, features: Array) -> Array:
        rows = range(0, len(features), BLOCK_ROWS)
        summed: Array = np.concatenate([self._score_block(features[row : row + BLOCK_ROWS]) for row in rows])
        return summed

    def _score_block(self, features: Array) -> Array:
        is_above = features.take(self.feature, axis=1) > self.threshold
        remaining = np.bitwise_and.reduce(self.mask | (is_above.view(np.uint8) - LOWEST_BIT), axis=1)
        # the exponent of 2^n is n
        leaf = (remaining & (~remaining + LOWEST_BIT)).astype(np.float32).view(np.uint32) >> 23
        trees = self.leaf_values.shape[1]
        positions = (leaf - np.uint32(127)) * np.uint32(trees) + np.arange(trees, dtype=np.uint32)
        summed: Array = self.leaf_values.ravel().take(positions).sum(1)
        return summed


STATE_SIZE = 20
"""The number of values of each word."""
MIN_SIMILARITY = 0.35
"""Minimum similarity of a passage word that is aligned with a claim word."""
MAX_CLAIM_WORDS = 80
"""Maximum number of words of a claim; further ones are ignored."""
MAX_COMPARISONS = 4_000_000
"""Claim words times passage words that are compared at once, so that no long sentence fills the memory."""


class WordStates(NamedTuple):
    """The words of all claims in order."""

    rows: Array
    """The row of each word in the table of vectors."""
    aligned_rows: Array
    """The row of the word of the passages that is aligned with it."""
    values: Array
    """`STATE_SIZE` numbers of each word."""
    claim_numbers: Array
    """The claim of each word."""


def encode_words(
    claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch, ngrams: NgramMatches, query: frozenset[str]
) -> WordStates:
    """Encode the words of the claims as inputs of the network."""
    aligned = _align_words(claims, matches, batch, ngrams)
    rows = _look_up_rows(claims, batch, ngrams)
    aligned_rows = np.full(len(rows), batch.table.blank_row)
    is_aligned = aligned >= 0
    aligned_rows[is_aligned] = batch.rows[batch.tokens[aligned[is_aligned]]]
    values = _compute_values(rows, claims, matches, batch, ngrams, query, aligned)
    return WordStates(rows, aligned_rows, values, claims.claim_numbers)


def _look_up_rows(claims: ClaimWords, batch: PassageBatch, ngrams: NgramMatches) -> Array:
    """Return the row of each word in the table of vectors; known stems and passage words are not looked up again."""
    rows: Array = np.where(ngrams.tokens >= 0, batch.rows[ngrams.tokens], -1)
    has_stem = claims.stem_numbers >= 0
    rows[has_stem] = claims.stem_rows[claims.stem_numbers[has_stem]]
    unknown = np.flatnonzero(rows < 0)
    rows[unknown] = batch.table.get_rows([claims.flat_words[number] for number in unknown.tolist()])
    return rows


def _align_words(claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch, ngrams: NgramMatches) -> Array:
    """Return the position of the word in the best sentences most similar to each claim word, best in context, or -1.

    Words that the network ignores are not aligned, and claims in blocks of at most `MAX_COMPARISONS`.
    """
    sizes = batch.sizes[matches.best_sentences.T] * ~matches.is_repeat.T
    aligned: Array = np.full(len(claims.stem_numbers), -1)
    claim_starts = claims.claim_numbers.searchsorted(np.arange(len(sizes)))
    words = np.flatnonzero(np.arange(len(aligned)) - claim_starts[claims.claim_numbers] <= MAX_CLAIM_WORDS)
    count = max(1, MAX_COMPARISONS // (MAX_CLAIM_WORDS * max(1, int(sizes.sum(1).max(initial=0)))))
    for first in range(0, len(sizes), count):
        inside = words[slice(*claims.claim_numbers[words].searchsorted((first, first + count)))]
        if sizes[first : first + count].any():
            aligned[inside] = _align_block(inside, first, sizes[first : first + count], claims, matches, batch, ngrams)
    return aligned


def _align_block(
    words: Array,
    first: int,
    sizes: Array,
    claims: ClaimWords,
    matches: ClaimMatches,
    batch: PassageBatch,
    ngrams: NgramMatches,
) -> Array:
    """Align the words of a block of claims, of which `first` is the first, with best sentences of these sizes."""
    ends = np.add.reduce(sizes, axis=1)
    flat, best_sentences = sizes.ravel(), matches.best_sentences.T[first : first + len(sizes)].ravel()
    flat_positions = np.arange(flat.sum()) + (batch.starts[best_sentences] - flat.cumsum() + flat).repeat(flat)
    is_inside = np.arange(ends.max()) < ends[:, None]
    positions = np.full(is_inside.shape, -1)
    positions[is_inside] = flat_positions
    claim_numbers = claims.claim_numbers[words]
    passage_words = np.where(is_inside, batch.tokens[positions], -2)[claim_numbers - first]
    is_same = ngrams.tokens[words, None] == passage_words
    stems = claims.stem_numbers[words, None]
    # clipped is what the next line replaces
    similarity = matches.similarity.take(passage_words * len(claims.stem_groups) + stems, mode="clip")
    score = np.where(stems >= 0, similarity, is_same).astype(float)
    score[passage_words < 0] = -1.0
    claim_word, passage_word = np.nonzero(
        is_same[:-1, :-1] & is_same[1:, 1:] & (claim_numbers[1:] == claim_numbers[:-1])[:, None]
    )
    score[claim_word + 1, passage_word + 1] += 0.2
    score[claim_word, passage_word] += 0.2
    best = score.argmax(1)
    row = np.arange(len(best))
    return np.where(score[row, best] > MIN_SIMILARITY, positions[claim_numbers - first, best], -1)


def _compute_values(
    rows: Array,
    claims: ClaimWords,
    matches: ClaimMatches,
    batch: PassageBatch,
    ngrams: NgramMatches,
    query: frozenset[str],
    aligned: Array,
) -> Array:
    """Compute the values of each word; words without content are similar to themselves only."""
    words, claim_numbers = claims.flat_words, claims.claim_numbers
    has_content, is_known, has_stem = (batch.table.have_content(rows), ngrams.tokens >= 0, claims.stem_numbers >= 0)
    stems = np.maximum(claims.stem_numbers, 0)
    flat = claim_numbers * len(claims.stem_groups) + stems
    closeness = matches.best_closeness.reshape(len(matches.best_sentences), -1).take(flat, axis=1)
    in_best = matches.in_best.reshape(len(matches.best_sentences), -1).take(flat, axis=1)
    pair, triple = np.zeros(len(words) + 1, bool), ngrams.matched[1]
    pair[1:] = ngrams.matched[0]
    run = _measure_full_runs(triple) + 2.0 * triple
    full_runs = run.copy()
    for offset in (1, 2):
        np.maximum(run[offset:], full_runs[: len(full_runs) - offset], out=run[offset:])
    values = np.zeros((STATE_SIZE, len(words)), np.float32)
    values[:12] = (
        has_content,
        is_known,
        np.where(has_stem, matches.is_near[stems], is_known),
        has_stem & in_best[0],
        has_stem & np.logical_or.reduce(in_best),
        has_stem * matches.best_similarity[stems],
        has_stem * closeness[0],
        has_stem * np.maximum.reduce(closeness),
        pair[:-1],
        pair[1:],
        np.minimum(run, 10) / 10,
        (has_stem & has_content) * claims.stem_weights[stems] / 10,
    )
    values[12] = has_stem & claims.is_number[stems]
    values[13] = has_stem & claims.is_name.take(flat)
    for row, vocabulary in enumerate((NEGATIONS, query), 14):
        values[row] = np.fromiter(map(vocabulary.__contains__, words), bool, len(words))
    group = claims.group_numbers.tolist()
    for row, polarity in enumerate(("absent", "no", "yes"), 16):
        keys = [passages.record_keys[polarity] for passages in batch.groups]
        if any(keys):
            values[row] = [
                word in keys[number]
                for number, claim_words in zip(group, claims.words, strict=True)
                for word in claim_words
            ]
    step = aligned[1:] - aligned[:-1]
    follows = (aligned[1:] >= 0) & (aligned[:-1] >= 0) & (step > 0) & (step <= 2)
    values[19, 1:] = follows & (claim_numbers[1:] == claim_numbers[:-1])
    return values.T


def _measure_full_runs(hits: Array) -> Array:
    """Return, for each position, the length of the whole run of true values around it."""
    lengths: Array = measure_runs(hits) + measure_runs(hits[::-1])[::-1] - hits
    return lengths


CLAIM_GAP = 2
"""Number of blank words between two claims, equal to the reach of a convolution."""


class SupportNetwork(NamedTuple):
    """Two convolutions over the words, then dense layers over their pooled outputs and the features."""

    shared_vectors: Array
    """The projected vector of each word of the table."""
    own_vectors: Array
    """A trained vector of each word of the table, as integers to be multiplied by `scale`."""
    scale: Array
    first: tuple[Array, Array]
    second: tuple[Array, Array]
    word: tuple[Array, Array]
    middle: tuple[Array, Array]
    last: tuple[Array, Array]
    mean: Array
    deviation: Array

    @staticmethod
    def unpack(arrays: Mapping[str, Array], table: WordVectors) -> SupportNetwork:
        parameters = {name.removeprefix("network."): part for name, part in arrays.items()}
        own_vectors = np.zeros((len(table.table), parameters["own.weight"].shape[1]), np.int8)
        own_vectors[parameters["own.rows"]] = parameters["own.weight"]
        unit = table.table / table.norms[:, None]
        layers = {
            name: (_transpose_weights(parameters[f"{name}.weight"]), parameters[f"{name}.bias"])
            for name in ("first", "second", "word", "middle", "last")
        }
        mean, deviation = (parameters[name].astype(np.float32) for name in ("mean", "deviation"))
        shared = unit @ parameters["shared.weight"].T
        return SupportNetwork(shared, own_vectors, parameters["own.scale"], **layers, mean=mean, deviation=deviation)

    def __call__(self, states: WordStates, features: Array) -> tuple[Array, Array]:
        """Return the log-odds that each claim is unsupported, and each word; of words beyond the limit -inf."""
        claims = states.claim_numbers
        word_odds = np.full(len(claims), -np.inf, np.float32)
        in_limit = np.ones(len(claims), bool)
        starts = claims.searchsorted(np.arange(len(features) + 1))
        rows, aligned_rows, values = states.rows, states.aligned_rows, states.values
        if (starts[1:] - starts[:-1]).max() > MAX_CLAIM_WORDS:
            in_limit = np.arange(len(claims)) - starts[claims] < MAX_CLAIM_WORDS
            claims, rows, aligned_rows, values = (part[in_limit] for part in (claims, rows, aligned_rows, values))
            starts = claims.searchsorted(np.arange(len(features) + 1))
        positions = np.arange(len(claims)) + CLAIM_GAP * (claims + 1)
        vectors, aligned_vectors = self.shared_vectors[rows], self.shared_vectors[aligned_rows]
        inputs = np.concatenate(
            [self.own_vectors[rows] * self.scale, vectors * aligned_vectors, vectors - aligned_vectors, values], axis=1
        )
        hidden = _convolve(inputs, positions, self.first)
        hidden = _convolve(hidden, positions, self.second)
        words = hidden @ self.word[0] + self.word[1]
        starts, sizes = starts[:-1], (starts[1:] - starts[:-1])[:, None]
        scaled = np.minimum(np.maximum((features.astype(np.float32) - self.mean) / self.deviation, -4), 4)
        maxima, means = np.maximum.reduceat(hidden, starts), np.add.reduceat(hidden, starts) / sizes
        pooled = np.concatenate([maxima, means, np.maximum.reduceat(words, starts), scaled], axis=1)
        middle = np.maximum(pooled @ self.middle[0] + self.middle[1], 0)
        odds: Array = (middle @ self.last[0] + self.last[1])[:, 0]
        word_odds[in_limit] = words[:, 0]
        return odds, word_odds


def _transpose_weights(weight: Array) -> Array:
    """Transpose a layer's weights, inputs first: of a convolution [reach × inputs × outputs]."""
    return np.ascontiguousarray(weight.transpose(2, 1, 0) if weight.ndim == 3 else weight.T)


def _convolve(values: Array, positions: Array, layer: tuple[Array, Array]) -> Array:
    """Return a convolution over words, with blanks between the claims and negative sums set to 0."""
    weight, bias = layer
    reach = len(weight) // 2
    row = np.zeros((int(positions[-1]) + CLAIM_GAP + 1, values.shape[1]), np.float32)
    row[positions] = values
    width = len(row) - 2 * reach
    summed = row[:width] @ weight[0]
    for step in range(1, len(weight)):
        summed += row[step : step + width] @ weight[step]
    outputs: Array = np.maximum(summed[positions - reach] + bias, 0)
    return outputs
