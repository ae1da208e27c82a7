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
"""So many numbers for each word."""
MIN_SIMILARITY = 0.35
"""A word of the passages that is less alike does not stand in for one of the claim."""


class WordStates(NamedTuple):
    """The words of all claims in a row."""

    rows: Array
    """Of each word its row in the table of vectors."""
    aligned_rows: Array
    """Of the word of the passages that stands in its place."""
    values: Array
    """What is known of it, SIZE numbers."""
    claim_numbers: Array
    """The claim it belongs to."""


def encode_words(
    claims: ClaimWords,
    matches: ClaimMatches,
    batch: PassageBatch,
    ngrams: NgramMatches,
    query: frozenset[str],
) -> WordStates:
    """What is known of each word of the claims."""
    aligned = _align_words(claims, matches, batch, ngrams)
    rows = _look_up_rows(claims, batch, ngrams)
    rivals = np.full(len(rows), batch.table.blank_row)
    found = aligned >= 0
    rivals[found] = batch.rows[batch.tokens[aligned[found]]]
    values = _compute_values(rows, claims, matches, batch, ngrams, query, aligned)
    return WordStates(rows, rivals, values, claims.claim_numbers)


def _look_up_rows(claims: ClaimWords, batch: PassageBatch, ngrams: NgramMatches) -> Array:
    """The row of each word in the table of vectors; those of kinds and of words of the passages are known."""
    rows: Array = np.where(ngrams.tokens >= 0, batch.rows[ngrams.tokens], -1)
    kind = claims.stem_numbers >= 0
    rows[kind] = claims.stem_rows[claims.stem_numbers[kind]]
    rest = np.flatnonzero(rows < 0)
    rows[rest] = batch.table.get_rows([claims.flat_words[place] for place in rest.tolist()])
    return rows


def _align_words(
    claims: ClaimWords, matches: ClaimMatches, batch: PassageBatch, ngrams: NgramMatches
) -> Array:
    """For each word of the claims the place of its like in their best sentences, or -1.

    Of several equal ones that is taken whose neighbours are those of the word too.
    """
    order = matches.best_sentences.T
    sizes = batch.sizes[order] * ~matches.is_repeat.T
    ends = np.add.reduce(sizes, axis=1)
    if not ends.max():
        return np.full(len(claims.stem_numbers), -1)
    flat = sizes.ravel()
    at = np.arange(flat.sum()) + (batch.starts[order.ravel()] - flat.cumsum() + flat).repeat(flat)
    inside = np.arange(ends.max()) < ends[:, None]
    place = np.full(inside.shape, -1)
    place[inside] = at
    theirs = np.where(inside, batch.tokens[place], -2)[claims.claim_numbers]
    same = ngrams.tokens[:, None] == theirs
    kind = claims.stem_numbers[:, None]
    alike = matches.similarity.take(
        theirs * len(claims.stem_groups) + kind, mode="clip"
    )  # clipped is what the next line replaces
    score = np.where(kind >= 0, alike, same).astype(float)
    score[theirs < 0] = -1.0
    one, two = np.nonzero(
        same[:-1, :-1] & same[1:, 1:] & (claims.claim_numbers[1:] == claims.claim_numbers[:-1])[:, None]
    )
    score[one + 1, two + 1] += 0.2
    score[one, two] += 0.2
    best = score.argmax(1)
    row = np.arange(len(best))
    aligned: Array = np.where(score[row, best] > MIN_SIMILARITY, place[claims.claim_numbers, best], -1)
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
    """The numbers for each word; words without content have no like but themselves."""
    spoken, owner = claims.flat_words, claims.claim_numbers
    told, known, kind = batch.table.have_content(rows), ngrams.tokens >= 0, claims.stem_numbers >= 0
    at = np.maximum(claims.stem_numbers, 0)
    flat = owner * len(claims.stem_groups) + at
    near = matches.best_closeness.reshape(len(matches.best_sentences), -1).take(flat, axis=1)
    inside = matches.in_best.reshape(len(matches.best_sentences), -1).take(flat, axis=1)
    pair, triple = np.zeros(len(spoken) + 1, bool), ngrams.matched[1]
    pair[1:] = ngrams.matched[0]
    run = _measure_full_runs(triple) + 2.0 * triple
    long = run.copy()
    for offset in (1, 2):
        np.maximum(run[offset:], long[: len(long) - offset], out=run[offset:])
    values = np.zeros((STATE_SIZE, len(spoken)), np.float32)
    values[:12] = (
        told, known, np.where(kind, matches.is_near[at], known), kind & inside[0], kind & np.logical_or.reduce(inside),
        kind * matches.best_similarity[at], kind * near[0], kind * np.maximum.reduce(near), pair[:-1], pair[1:],
        np.minimum(run, 10) / 10, (kind & told) * claims.stem_weights[at] / 10,
    )  # fmt: skip
    values[12] = kind & claims.is_number[at]
    values[13] = kind & claims.is_name.take(flat)
    for place, stems in enumerate((NEGATIONS, query), 14):
        values[place] = np.fromiter(map(stems.__contains__, spoken), bool, len(spoken))
    group = claims.group_numbers.tolist()
    for place, polarity in enumerate(("absent", "no", "yes"), 16):
        keys = [one.record_keys[polarity] for one in batch.groups]
        if any(keys):
            values[place] = [
                word in keys[at] for at, one in zip(group, claims.words, strict=True) for word in one
            ]
    step = aligned[1:] - aligned[:-1]
    follows = (aligned[1:] >= 0) & (aligned[:-1] >= 0) & (step > 0) & (step <= 2)
    values[19, 1:] = follows & (owner[1:] == owner[:-1])
    return values.T


def _measure_full_runs(hits: Array) -> Array:
    """For each place the length of the whole run of true values that it is in."""
    lengths: Array = measure_runs(hits) + measure_runs(hits[::-1])[::-1] - hits
    return lengths


CLAIM_GAP = 2
"""So many blank words stand between two claims, as many as a convolution reaches."""
MAX_CLAIM_WORDS = 80
"""So many words of a claim are read."""


class SupportNetwork(NamedTuple):
    """Two convolutions over the words, and a small layer over what is strongest in them and the features."""

    shared_vectors: Array
    """For each word of the table its vector as the network sees it."""
    own_vectors: Array
    """For each word of the table what the network learned of it alone, in whole numbers of `scale`."""
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
        """The network in a file of weights."""
        known = {name.removeprefix("network."): part for name, part in arrays.items()}
        own = np.zeros((len(table.table), known["own.weight"].shape[1]), np.int8)
        own[known["own.rows"]] = known["own.weight"]
        unit = table.table / table.norms[:, None]
        layers = {
            name: (_transpose_weights(known[f"{name}.weight"]), known[f"{name}.bias"])
            for name in ("first", "second", "word", "middle", "last")
        }
        mean, deviation = (known[name].astype(np.float32) for name in ("mean", "deviation"))
        shared = unit @ known["shared.weight"].T
        return SupportNetwork(shared, own, known["own.scale"], **layers, mean=mean, deviation=deviation)

    def __call__(self, states: WordStates, features: Array) -> Array:
        """The log-odds that each claim is bad."""
        owner = states.claim_numbers
        starts = owner.searchsorted(np.arange(len(features) + 1))
        rows, rivals, values = states.rows, states.aligned_rows, states.values
        if (starts[1:] - starts[:-1]).max() > MAX_CLAIM_WORDS:
            kept = np.arange(len(owner)) - starts[owner] < MAX_CLAIM_WORDS
            owner, rows, rivals, values = owner[kept], rows[kept], rivals[kept], values[kept]
            starts = owner.searchsorted(np.arange(len(features) + 1))
        place = np.arange(len(owner)) + CLAIM_GAP * (owner + 1)
        one, two = self.shared_vectors[rows], self.shared_vectors[rivals]
        put = np.concatenate([self.own_vectors[rows] * self.scale, one * two, one - two, values], axis=1)
        held = _convolve(put, place, self.first)
        held = _convolve(held, place, self.second)
        words = held @ self.word[0] + self.word[1]
        starts, sizes = starts[:-1], (starts[1:] - starts[:-1])[:, None]
        scaled = np.minimum(np.maximum((features.astype(np.float32) - self.mean) / self.deviation, -4), 4)
        told = np.concatenate(
            [
                np.maximum.reduceat(held, starts),
                np.add.reduceat(held, starts) / sizes,
                np.maximum.reduceat(words, starts),
                scaled,
            ],
            axis=1,
        )
        middle = np.maximum(told @ self.middle[0] + self.middle[1], 0)
        odds: Array = (middle @ self.last[0] + self.last[1])[:, 0]
        return odds


def _transpose_weights(weight: Array) -> Array:
    """A layer's weights, inputs first: of a convolution [reach × inputs × outputs]."""
    return np.ascontiguousarray(weight.transpose(2, 1, 0) if weight.ndim == 3 else weight.T)


def _convolve(values: Array, place: Array, layer: tuple[Array, Array]) -> Array:
    """A convolution over words with blanks between the claims; negative sums become 0."""
    weight, bias = layer
    reach = len(weight) // 2
    row = np.zeros((int(place[-1]) + CLAIM_GAP + 1, values.shape[1]), np.float32)
    row[place] = values
    room = len(row) - 2 * reach
    summed = row[:room] @ weight[0]
    for step in range(1, len(weight)):
        summed += row[step : step + room] @ weight[step]
    held: Array = np.maximum(summed[place - reach] + bias, 0)
    return held
