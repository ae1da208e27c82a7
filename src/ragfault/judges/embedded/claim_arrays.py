"""Claims as arrays: their words, and where the passages hold them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from ragfault.judges.checks.passages import normalize_spelling
from ragfault.judges.embedded.passage_arrays import PassageBatch
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.lexical.entailment import ClaimCheck
from ragfault.judges.lexical.features import extract_names
from ragfault.text import STOP_WORDS, split_words

BEST_COUNT = 3
"""So many sentences are looked at closely for each claim."""


class ClaimWords(NamedTuple):
    """The words of some claims; W words in a row, K kinds of words, N claims, G grounds."""

    texts: list[str]
    words: list[tuple[str, ...]]
    flat_words: list[str]
    """[W] The words of all claims in a row."""
    claim_numbers: Array
    """[W] The claim that each belongs to."""
    word_counts: Array
    """[N] So many words each claim has."""
    group_numbers: Array
    """[N] The ground that each is held against."""
    stems: list[list[str]]
    """Every word of content of any claim, once for each ground: K in all."""
    stem_groups: Array
    """[K] The ground of each."""
    stem_rows: Array
    """[K] The row of each in the table of vectors."""
    stem_numbers: Array
    """[W] The number of the kind of each word, -1 for words without content."""
    has_stem: Array
    """[N × K] Whether a claim has a kind."""
    is_number: Array
    """[K] Whether a kind is a number."""
    stem_weights: Array
    """[K] What each kind tells, by its rarity."""
    is_name: Array
    """[N × K] Whether a kind is part of a name there."""


def encode_claims(
    texts: Sequence[Sequence[str]], batch: PassageBatch, group_checks: Sequence[Sequence[ClaimCheck | None]]
) -> ClaimWords:
    """The words of some claims, for each ground, which are bare of marks and have been checked already."""
    spoken: list[tuple[str, ...]] = []
    kinds: list[list[str]] = []
    kind: list[int] = []
    held: list[list[int]] = []
    named: list[list[int]] = []
    first = 0
    for some, checks in zip(texts, group_checks, strict=True):
        place: dict[str, int] = {}
        for text, check in zip(some, checks, strict=True):
            statement = check.statement if check else None
            said = (statement.tokens if statement else split_words(normalize_spelling(text))) or (".",)
            told = [word for word in said if word not in STOP_WORDS] or said
            held.append([place.setdefault(word, first + len(place)) for word in told])
            known = statement.names if statement else extract_names(text, batch.rarity).intersection(told)
            named.append([place[word] for word in known])
            spoken.append(said)
        kind += [place.get(word, -1) for said in spoken[len(spoken) - len(some) :] for word in said]
        kinds.append(list(place))
        first += len(place)
    flat = list(chain.from_iterable(kinds))
    rows = batch.table.get_rows(flat)
    sizes = np.array([len(one) for one in spoken])
    return ClaimWords(
        list(chain.from_iterable(texts)),
        spoken,
        list(chain.from_iterable(spoken)),
        np.arange(len(sizes)).repeat(sizes),
        sizes,
        np.arange(len(texts)).repeat([len(some) for some in texts]),
        kinds,
        np.arange(len(kinds)).repeat([len(some) for some in kinds]),
        rows,
        np.array(kind),
        _build_mask(held, first),
        np.array([word[0].isdigit() for word in flat]),
        batch.table.get_weights(flat, rows).astype(float),
        _build_mask(named, first),
    )


def _build_mask(places: Sequence[Sequence[int]], width: int) -> Array:
    """For each row which of its places are named."""
    marked = np.zeros((len(places), width), bool)
    rows = np.arange(len(places)).repeat([len(some) for some in places])
    marked[rows, list(chain.from_iterable(places))] = True
    return marked


class ClaimMatches(NamedTuple):
    """Where the words of some claims are found; K kinds of words, S sentences, N claims, D words of the passages."""

    vectors: Array
    """[K × …] The vector of each kind."""
    is_present: Array
    """[K] Whether a kind is in the passages."""
    is_near: Array
    """[K] Whether it is there, as it is or in another form."""
    similarity: Array
    """[D × K] How alike it is to each word of the passages, 1 where it is the same."""
    best_similarity: Array
    """[K] How alike it is to the nearest word of the passages."""
    in_sentence: Array
    """[S × K] Whether a sentence has it."""
    coverage: Array
    """[S × N] The share of a claim that a sentence covers."""
    jaccard: Array
    """[S × N] What both say as a share of what either says."""
    best_sentences: Array
    """[B × N] The sentences that share most with a claim, the best first; where there are fewer, that once more."""
    is_repeat: Array
    """[B × N] Whether it is there once more."""
    in_best: Array
    """[B × N × K] Whether these have a kind."""
    best_closeness: Array
    """[B × N × K] How alike it is to the nearest word of these."""


def match_claims(claims: ClaimWords, batch: PassageBatch) -> ClaimMatches:
    """Find the words of claims in the passages of their grounds; each ground has a sentence with words."""
    posted: list[Sequence[int]] = []
    near: list[bool] = []
    for ground, kinds in zip(batch.groups, claims.stems, strict=True):
        index = ground.index
        some = [index.postings.get(kind, ()) for kind in kinds]
        near += [bool(places) or index.has_variant(kind) for places, kind in zip(some, kinds, strict=True)]
        posted += some
    sizes = np.array([len(places) for places in posted])
    within = np.zeros((len(batch.sizes), len(posted)), bool)
    kind = np.arange(len(posted)).repeat(sizes)
    within[
        np.array(list(chain.from_iterable(posted)), np.int64)
        + batch.first_sentences[claims.stem_groups[kind]],
        kind,
    ] = True
    there = sizes > 0
    vectors = batch.table.get_vectors(claims.stem_rows)
    alike = _measure_similarity(claims, vectors, batch)
    covered, shared, order, again = _rank_sentences(claims, batch, within)
    soft = np.maximum(np.maximum.reduce(alike), there)
    close = _measure_closeness(alike, batch, order)
    return ClaimMatches(
        vectors,
        there,
        np.array(near),
        alike,
        soft,
        within,
        covered,
        shared,
        order,
        again,
        within[order],
        close,
    )


def _measure_similarity(claims: ClaimWords, vectors: Array, batch: PassageBatch) -> Array:
    """How alike each word of the passages is to each kind; 0 where it is of another ground."""
    lengths = batch.table.norms[claims.stem_rows]
    alike: Array = np.zeros((batch.word_offsets[-1], len(vectors)), np.float32)
    same: list[tuple[int, int]] = []
    right = 0
    for ground, kinds, top in zip(batch.groups, claims.stems, batch.word_offsets, strict=False):
        left, right = right, right + len(kinds)
        block = alike[top : top + len(ground.stem_numbers), left:right]
        np.matmul(ground.vectors, vectors[left:right].T, out=block)
        block /= ground.norms[:, None] * lengths[left:right]
        same += [
            (top + ground.stem_numbers[kind], place)
            for place, kind in enumerate(kinds, left)
            if kind in ground.stem_numbers
        ]
    if same:
        word, kind = np.array(same).T
        alike[word, kind] = 1.0
    return alike


def _rank_sentences(
    claims: ClaimWords, batch: PassageBatch, in_sentence: Array
) -> tuple[Array, Array, Array, Array]:
    """What sentences and claims share, and for each claim the sentences of its ground that share most with it."""
    weighted = (claims.has_stem * claims.stem_weights).T
    total = np.maximum(np.add.reduce(weighted), 1e-6)
    shared = in_sentence.astype(float) @ weighted
    union = shared / np.maximum(1e-6, total + batch.sentence_weights[:, None] - shared)
    covered = shared / total
    rank = np.ascontiguousarray((covered + 0.15 * union).T).round(9)
    if len(batch.groups) > 1:
        rank[batch.group_numbers != claims.group_numbers[:, None]] = -1.0
    order = np.empty((BEST_COUNT, len(rank)), np.int64)
    again = np.zeros(order.shape, bool)
    row = np.arange(len(rank))
    for place in range(BEST_COUNT):
        best = rank.argmax(1)
        again[place] = rank[row, best] < 0
        order[place] = np.where(again[place], order[0], best)
        rank[row, best] = -1.0
    return covered, union, order, again


def _measure_closeness(similarity: Array, batch: PassageBatch, best_sentences: Array) -> Array:
    """How alike each kind is to the nearest word of some sentences; to one without words not at all."""
    some, at = np.unique(best_sentences, return_inverse=True)
    sizes = batch.sizes[some]
    ends = sizes.cumsum()
    token = batch.tokens[np.arange(ends[-1]) + (batch.starts[some] - ends + sizes).repeat(sizes)]
    close = np.zeros((len(some), similarity.shape[1]), np.float32)
    full = sizes > 0
    close[full] = np.maximum.reduceat(similarity[token], (ends - sizes)[full], axis=0)
    return close[at.reshape(best_sentences.shape)]
