"""The convolutional network of support, and the word states that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.claim_arrays import ClaimMatches, ClaimWords
from ragfault.judges.embedded.features import NgramMatches, measure_runs
from ragfault.judges.embedded.passage_arrays import PassageBatch
from ragfault.judges.embedded.vectors import Array, WordVectors
from ragfault.text import NEGATIONS

STATE_SIZE = 20
"""The number of values of each word."""
MIN_SIMILARITY = 0.35
"""A less similar word of the passages is not aligned with a word of the claim."""


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
    claims: ClaimWords,
    matches: ClaimMatches,
    batch: PassageBatch,
    ngrams: NgramMatches,
    query: frozenset[str],
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


def _align_words(
    claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch, ngrams: NgramMatches
) -> Array:
    """Return, for each word of the claims, the position of the most similar word of their best sentences, or -1.

    Of several equal words the one with the same neighbours is chosen.
    """
    best_sentences = matches.best_sentences.T
    sizes = batch.sizes[best_sentences] * ~matches.is_repeat.T
    ends = np.add.reduce(sizes, axis=1)
    if not ends.max():
        return np.full(len(claims.stem_numbers), -1)
    flat = sizes.ravel()
    flat_positions = np.arange(flat.sum()) + (
        batch.starts[best_sentences.ravel()] - flat.cumsum() + flat
    ).repeat(flat)
    is_inside = np.arange(ends.max()) < ends[:, None]
    positions = np.full(is_inside.shape, -1)
    positions[is_inside] = flat_positions
    passage_words = np.where(is_inside, batch.tokens[positions], -2)[claims.claim_numbers]
    is_same = ngrams.tokens[:, None] == passage_words
    stems = claims.stem_numbers[:, None]
    similarity = matches.similarity.take(
        passage_words * len(claims.stem_groups) + stems, mode="clip"
    )  # clipped is what the next line replaces
    score = np.where(stems >= 0, similarity, is_same).astype(float)
    score[passage_words < 0] = -1.0
    claim_word, passage_word = np.nonzero(
        is_same[:-1, :-1] & is_same[1:, 1:] & (claims.claim_numbers[1:] == claims.claim_numbers[:-1])[:, None]
    )
    score[claim_word + 1, passage_word + 1] += 0.2
    score[claim_word, passage_word] += 0.2
    best = score.argmax(1)
    row = np.arange(len(best))
    aligned: Array = np.where(score[row, best] > MIN_SIMILARITY, positions[claims.claim_numbers, best], -1)
    return aligned


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
    has_content, is_known, has_stem = (
        batch.table.have_content(rows),
        ngrams.tokens >= 0,
        claims.stem_numbers >= 0,
    )
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
        has_content, is_known, np.where(has_stem, matches.is_near[stems], is_known),
        has_stem & in_best[0], has_stem & np.logical_or.reduce(in_best),
        has_stem * matches.best_similarity[stems], has_stem * closeness[0], has_stem * np.maximum.reduce(closeness),
        pair[:-1], pair[1:],
        np.minimum(run, 10) / 10, (has_stem & has_content) * claims.stem_weights[stems] / 10,
    )  # fmt: skip
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
"""This many blank words separate two claims, as many as a convolution reaches."""
MAX_CLAIM_WORDS = 80
"""Further words of a claim are ignored."""


class SupportNetwork(NamedTuple):
    """Two convolutions over the words, and a small layer over their maxima and the features."""

    shared_vectors: Array
    """The projected vector of each word of the table."""
    own_vectors: Array
    """A trained vector of each word of the table, in integers of `scale`."""
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
        """Unpack the network from a file of weights."""
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
        return SupportNetwork(
            shared, own_vectors, parameters["own.scale"], **layers, mean=mean, deviation=deviation
        )

    def __call__(self, states: WordStates, features: Array) -> Array:
        """Return the log-odds that each claim is unsupported."""
        claims = states.claim_numbers
        starts = claims.searchsorted(np.arange(len(features) + 1))
        rows, aligned_rows, values = states.rows, states.aligned_rows, states.values
        if (starts[1:] - starts[:-1]).max() > MAX_CLAIM_WORDS:
            in_limit = np.arange(len(claims)) - starts[claims] < MAX_CLAIM_WORDS
            claims, rows, aligned_rows, values = (
                claims[in_limit],
                rows[in_limit],
                aligned_rows[in_limit],
                values[in_limit],
            )
            starts = claims.searchsorted(np.arange(len(features) + 1))
        positions = np.arange(len(claims)) + CLAIM_GAP * (claims + 1)
        vectors, aligned_vectors = self.shared_vectors[rows], self.shared_vectors[aligned_rows]
        inputs = np.concatenate(
            [
                self.own_vectors[rows] * self.scale,
                vectors * aligned_vectors,
                vectors - aligned_vectors,
                values,
            ],
            axis=1,
        )
        hidden = _convolve(inputs, positions, self.first)
        hidden = _convolve(hidden, positions, self.second)
        words = hidden @ self.word[0] + self.word[1]
        starts, sizes = starts[:-1], (starts[1:] - starts[:-1])[:, None]
        scaled = np.minimum(np.maximum((features.astype(np.float32) - self.mean) / self.deviation, -4), 4)
        pooled = np.concatenate(
            [
                np.maximum.reduceat(hidden, starts),
                np.add.reduceat(hidden, starts) / sizes,
                np.maximum.reduceat(words, starts),
                scaled,
            ],
            axis=1,
        )
        middle = np.maximum(pooled @ self.middle[0] + self.middle[1], 0)
        odds: Array = (middle @ self.last[0] + self.last[1])[:, 0]
        return odds


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
