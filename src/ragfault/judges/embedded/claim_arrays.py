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
"""This many sentences are compared closely with each claim."""


class ClaimWords(NamedTuple):
    """The words of some claims; W words in order, K stems per group, N claims, G groups."""

    texts: list[str]
    words: list[tuple[str, ...]]
    flat_words: list[str]
    """[W] The words of all claims in order."""
    claim_numbers: Array
    """[W] The claim of each word."""
    word_counts: Array
    """[N] The number of words of each claim."""
    group_numbers: Array
    """[N] The group that each claim is compared with."""
    stems: list[list[str]]
    """Every content word of any claim, once for each group: K in all."""
    stem_groups: Array
    """[K] The group of each stem."""
    stem_rows: Array
    """[K] The row of each stem in the table of vectors."""
    stem_numbers: Array
    """[W] The number of the stem of each word, -1 for words without content."""
    has_stem: Array
    """[N × K] Whether a claim has a stem."""
    is_number: Array
    """[K] Whether a stem is a number."""
    stem_weights: Array
    """[K] The rarity of each stem."""
    is_name: Array
    """[N × K] Whether a stem is part of a name in the claim."""


def encode_claims(
    texts: Sequence[Sequence[str]], batch: PassageBatch, group_checks: Sequence[Sequence[ClaimCheck | None]]
) -> ClaimWords:
    """Encode the words of the claims of each group; claims have no marks and are checked already."""
    words: list[tuple[str, ...]] = []
    stems: list[list[str]] = []
    numbers: list[int] = []
    claim_stems: list[list[int]] = []
    claim_names: list[list[int]] = []
    offset = 0
    for claims, checks in zip(texts, group_checks, strict=True):
        stem_numbers: dict[str, int] = {}
        for text, check in zip(claims, checks, strict=True):
            statement = check.statement if check else None
            tokens = (statement.tokens if statement else split_words(normalize_spelling(text))) or (".",)
            content_words = [word for word in tokens if word not in STOP_WORDS] or tokens
            claim_stems.append(
                [stem_numbers.setdefault(word, offset + len(stem_numbers)) for word in content_words]
            )
            names = (
                statement.names
                if statement
                else extract_names(text, batch.rarity).intersection(content_words)
            )
            claim_names.append([stem_numbers[word] for word in names])
            words.append(tokens)
        numbers += [
            stem_numbers.get(word, -1) for tokens in words[len(words) - len(claims) :] for word in tokens
        ]
        stems.append(list(stem_numbers))
        offset += len(stem_numbers)
    flat = list(chain.from_iterable(stems))
    rows = batch.table.get_rows(flat)
    sizes = np.array([len(tokens) for tokens in words])
    return ClaimWords(
        list(chain.from_iterable(texts)),
        words,
        list(chain.from_iterable(words)),
        np.arange(len(sizes)).repeat(sizes),
        sizes,
        np.arange(len(texts)).repeat([len(claims) for claims in texts]),
        stems,
        np.arange(len(stems)).repeat([len(claims) for claims in stems]),
        rows,
        np.array(numbers),
        _build_mask(claim_stems, offset),
        np.array([word[0].isdigit() for word in flat]),
        batch.table.get_weights(flat, rows).astype(float),
        _build_mask(claim_names, offset),
    )


def _build_mask(positions: Sequence[Sequence[int]], width: int) -> Array:
    """Return a mask with the given positions of each row set."""
    mask = np.zeros((len(positions), width), bool)
    rows = np.arange(len(positions)).repeat([len(row_positions) for row_positions in positions])
    mask[rows, list(chain.from_iterable(positions))] = True
    return mask


class ClaimMatches(NamedTuple):
    """The matches of claim words; K stems, S sentences, N claims, D words of the passages, B best sentences."""

    vectors: Array
    """[K × …] The vector of each stem."""
    is_present: Array
    """[K] Whether a stem is in the passages."""
    is_near: Array
    """[K] Whether it is there, in this or another form."""
    similarity: Array
    """[D × K] Its similarity to each word of the passages, 1 for the same word."""
    best_similarity: Array
    """[K] Its similarity to the nearest word of the passages."""
    in_sentence: Array
    """[S × K] Whether a sentence has it."""
    coverage: Array
    """[S × N] The share of a claim that a sentence covers."""
    jaccard: Array
    """[S × N] The weight of the common words as a share of all words of both."""
    best_sentences: Array
    """[B × N] The sentences that share most with a claim, the best first, repeated if there are fewer."""
    is_repeat: Array
    """[B × N] Whether a best sentence is repeated."""
    in_best: Array
    """[B × N × K] Whether the best sentences have a stem."""
    best_closeness: Array
    """[B × N × K] Its similarity to the nearest word of these."""


def match_claims(claims: ClaimWords, batch: PassageBatch) -> ClaimMatches:
    """Match the words of claims with the passages of their groups; each group has a sentence with words."""
    postings: list[Sequence[int]] = []
    is_near: list[bool] = []
    for group, stems in zip(batch.groups, claims.stems, strict=True):
        index = group.index
        group_postings = [index.postings.get(stem, ()) for stem in stems]
        is_near += [
            bool(sentences) or index.has_variant(stem)
            for sentences, stem in zip(group_postings, stems, strict=True)
        ]
        postings += group_postings
    sizes = np.array([len(sentences) for sentences in postings])
    in_sentence = np.zeros((len(batch.sizes), len(postings)), bool)
    stem = np.arange(len(postings)).repeat(sizes)
    in_sentence[
        np.array(list(chain.from_iterable(postings)), np.int64)
        + batch.first_sentences[claims.stem_groups[stem]],
        stem,
    ] = True
    is_present = sizes > 0
    vectors = batch.table.get_vectors(claims.stem_rows)
    similarity = _measure_similarity(claims, vectors, batch)
    coverage, jaccard, best_sentences, is_repeat = _rank_sentences(claims, batch, in_sentence)
    best_similarity = np.maximum(np.maximum.reduce(similarity), is_present)
    closeness = _measure_closeness(similarity, batch, best_sentences)
    return ClaimMatches(
        vectors,
        is_present,
        np.array(is_near),
        similarity,
        best_similarity,
        in_sentence,
        coverage,
        jaccard,
        best_sentences,
        is_repeat,
        in_sentence[best_sentences],
        closeness,
    )


def _measure_similarity(claims: ClaimWords, vectors: Array, batch: PassageBatch) -> Array:
    """Return the similarity of each word of the passages to each stem; 0 for another group."""
    norms = batch.table.norms[claims.stem_rows]
    similarity: Array = np.zeros((batch.word_offsets[-1], len(vectors)), np.float32)
    equal_words: list[tuple[int, int]] = []
    right = 0
    for group, stems, offset in zip(batch.groups, claims.stems, batch.word_offsets, strict=False):
        left, right = right, right + len(stems)
        block = similarity[offset : offset + len(group.stem_numbers), left:right]
        np.matmul(group.vectors, vectors[left:right].T, out=block)
        block /= group.norms[:, None] * norms[left:right]
        equal_words += [
            (offset + group.stem_numbers[stem], number)
            for number, stem in enumerate(stems, left)
            if stem in group.stem_numbers
        ]
    if equal_words:
        word, stem = np.array(equal_words).T
        similarity[word, stem] = 1.0
    return similarity


def _rank_sentences(
    claims: ClaimWords, batch: PassageBatch, in_sentence: Array
) -> tuple[Array, Array, Array, Array]:
    """Return coverage and Jaccard index, and for each claim the sentences of its group that share most with it."""
    weighted = (claims.has_stem * claims.stem_weights).T
    total = np.maximum(np.add.reduce(weighted), 1e-6)
    shared = in_sentence.astype(float) @ weighted
    union = shared / np.maximum(1e-6, total + batch.sentence_weights[:, None] - shared)
    coverage = shared / total
    rank = np.ascontiguousarray((coverage + 0.15 * union).T).round(9)
    if len(batch.groups) > 1:
        rank[batch.group_numbers != claims.group_numbers[:, None]] = -1.0
    best_sentences = np.empty((BEST_COUNT, len(rank)), np.int64)
    is_repeat = np.zeros(best_sentences.shape, bool)
    row = np.arange(len(rank))
    for number in range(BEST_COUNT):
        best = rank.argmax(1)
        is_repeat[number] = rank[row, best] < 0
        best_sentences[number] = np.where(is_repeat[number], best_sentences[0], best)
        rank[row, best] = -1.0
    return coverage, union, best_sentences, is_repeat


def _measure_closeness(similarity: Array, batch: PassageBatch, best_sentences: Array) -> Array:
    """Return the similarity of each stem to the nearest word of some sentences; 0 for one without words."""
    sentences, positions = np.unique(best_sentences, return_inverse=True)
    sizes = batch.sizes[sentences]
    ends = sizes.cumsum()
    token = batch.tokens[np.arange(ends[-1]) + (batch.starts[sentences] - ends + sizes).repeat(sizes)]
    closeness = np.zeros((len(sentences), similarity.shape[1]), np.float32)
    nonempty = sizes > 0
    closeness[nonempty] = np.maximum.reduceat(similarity[token], (ends - sizes)[nonempty], axis=0)
    return closeness[positions.reshape(best_sentences.shape)]
