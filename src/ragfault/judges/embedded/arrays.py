"""Arrays of passages and claims that the embedded judge computes features from."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from ragfault.judges.checks.lexicon import IdfTable
from ragfault.judges.checks.passages import SentenceIndex, normalize_spelling
from ragfault.judges.embedded.word_vectors import Array, WordVectors
from ragfault.judges.lexical.entailment import ClaimCheck
from ragfault.judges.lexical.features import extract_names
from ragfault.text.normalization import STOP_WORDS, split_words

MIN_LANGUAGE_WORDS, MIN_STOPLESS_WORDS = 4, 8
"""A text of fewer words has no language; one of at least the second number without any stop word is foreign."""
MAX_EXACT_WORDS = 1000
"""The weighted sum of at most this many words is exact in single precision."""
MIN_UNKNOWN_SHARE, MAX_STOP_SHARE = 0.2, 0.25
"""A text is foreign with at least this share of unknown words and less than this share of stop words."""


def detect_foreign(rows: Array, table: WordVectors, owner: Array | None = None, shared: Array | None = None) -> Array:
    """Return, for each text that owns words, whether it is in another language than English.

    Numbers have no language; nor have unknown words that are `shared` with an English text: they are names.
    """
    owner = np.zeros(len(rows), np.int64) if owner is None else owner
    is_unknown = rows == table.unknown_row if shared is None else (rows == table.unknown_row) & ~shared
    word_counts, unknown_counts, stop_counts = (
        np.bincount(owner, hits, 1) for hits in (rows != table.number_row, is_unknown, ~table.have_content(rows))
    )
    has_unknown = (unknown_counts >= MIN_UNKNOWN_SHARE * word_counts) & (stop_counts < MAX_STOP_SHARE * word_counts)
    foreign: Array = (word_counts >= MIN_LANGUAGE_WORDS) & (
        has_unknown | ((word_counts >= MIN_STOPLESS_WORDS) & (stop_counts == 0))
    )
    return foreign


def encode_ngrams(tokens: Array, radix: int) -> dict[int, Array]:
    """Encode all n-grams of two, three and four words as one number each, sorted, by their length."""
    codes, code = {}, tokens
    for size in (2, 3, 4):
        code = code[:-1] * radix + tokens[size - 1 :] if len(tokens) >= size else code[:0]
        codes[size] = np.sort(code)
    return codes


class PassageArrays:
    """Arrays of some passages: their words by number, their n-grams, their sentences as vectors."""

    def __init__(self, index: SentenceIndex, table: WordVectors, rarity: IdfTable) -> None:
        self.index, self.table, self.rarity = index, table, rarity
        sentences, tokens = index.sentences, index.tokens
        stems = list(dict.fromkeys(tokens))
        self.stem_numbers = {stem: number for number, stem in enumerate(stems)}
        """Stem → its number in this trace."""
        self.tokens: Array = np.array(list(map(self.stem_numbers.__getitem__, tokens)), np.int64)
        self.sizes: Array = np.array([len(sentence.tokens) for sentence in sentences], np.int64)
        self.starts: Array = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.rows: Array = table.get_rows(stems)
        has_content = table.have_content(self.rows)
        self.weights: Array = table.get_weights(stems, self.rows) * has_content
        self.vectors: Array = table.get_vectors(self.rows)
        self.vectors[~has_content] = 0.0
        self.norms: Array = table.norms[self.rows]
        self.sentence_weights: Array = self._weigh_sentences()
        """The total rarity of the content words of each sentence."""
        self.negated: Array = np.array([sentence.negated for sentence in sentences], bool)
        self.is_field: Array = np.array([bool(sentence.key) for sentence in sentences], bool)

    def _weigh_sentences(self) -> Array:
        occurrences = np.sort(np.arange(len(self.sizes)).repeat(self.sizes) * self.radix + self.tokens)
        is_first = np.ones(len(occurrences), bool)
        is_first[1:] = occurrences[1:] != occurrences[:-1]
        sentence, stem_number = np.divmod(occurrences[is_first], self.radix)
        weights: Array = np.bincount(sentence, self.weights.astype(float)[stem_number], len(self.sizes))
        return weights

    @property
    def radix(self) -> int:
        """The base in which n-grams are written as one number."""
        return len(self.stem_numbers) + 1

    def get_ngrams(self, size: int) -> Array:
        return self._ngrams[size]

    @cached_property
    def _ngrams(self) -> dict[int, Array]:
        return encode_ngrams(self.tokens, self.radix)

    @cached_property
    def sentence_vectors(self) -> Array:
        """The vector of each sentence, of length 1: the weighted sum of those of its words."""
        sums = np.zeros((len(self.sizes), self.vectors.shape[1]))
        if len(self.tokens):
            nonempty = self.sizes > 0
            # Weights are whole numbers of eighths: single precision holds the sums of all but very long sentences.
            exact = np.float32 if self.sizes.max() < MAX_EXACT_WORDS else float
            weighted = self.vectors.astype(exact, copy=False) * self.weights[:, None]
            sums[nonempty] = np.add.reduceat(weighted[self.tokens], self.starts[:-1][nonempty], axis=0)
        unit: Array = sums / (np.sqrt(np.add.reduce(sums**2, axis=1, keepdims=True)) + 1e-9)
        return unit

    @cached_property
    def negated_share(self) -> float:
        return np.count_nonzero(self.negated) / len(self.negated)

    @cached_property
    def record_share(self) -> float:
        return np.count_nonzero(self.is_field) / len(self.is_field)

    @cached_property
    def record_keys(self) -> dict[str, Set[str]]:
        """The stems of the keys of records by their polarity: absent, no, yes."""
        stems: dict[str, set[str]] = {"absent": set(), "no": set(), "yes": set()}
        for key, polarity in self.index.record_fields:
            stems[polarity] |= key
        yes = frozenset(stems["yes"])
        return {"absent": stems["absent"] - yes, "no": stems["no"] - yes, "yes": yes}


class PassageBatch:
    """Several `PassageArrays` in a row, each with its own sentences and words; G groups, S sentences, D words."""

    def __init__(self, groups: Sequence[PassageArrays]) -> None:
        self.groups = groups
        self.table, self.rarity = groups[0].table, groups[0].rarity
        counts = np.array([len(group.sizes) for group in groups])
        self.first_sentences: Array = counts.cumsum() - counts
        """[G] The first sentence of each group."""
        self.sentence_counts: Array = counts
        """[G] The number of sentences of each group."""
        self.group_numbers: Array = np.arange(len(groups)).repeat(counts)
        """[S] The group of each sentence."""
        sizes = [len(group.stem_numbers) for group in groups]
        self.word_offsets = [sum(sizes[:number]) for number in range(len(groups) + 1)]
        """[G + 1] The number of the first word of each group, and of all words."""
        self.radix = self.word_offsets[-1] + 1
        self.tokens: Array = _concatenate(
            [group.tokens + first for group, first in zip(groups, self.word_offsets, strict=False)]
        )
        self.sizes: Array = _concatenate([group.sizes for group in groups])
        self.starts: Array = groups[0].starts if len(groups) == 1 else np.append(0, self.sizes.cumsum())
        self.rows: Array = _concatenate([group.rows for group in groups])
        self.sentence_weights: Array = _concatenate([group.sentence_weights for group in groups])
        self.sentence_vectors: Array = _concatenate([group.sentence_vectors for group in groups])
        self.negated: Array = _concatenate([group.negated for group in groups])
        self.is_field: Array = _concatenate([group.is_field for group in groups])

    def get_ngrams(self, size: int) -> Array:
        """Return all n-grams of this length, as sorted numbers; those across groups occur in no claim."""
        return self.groups[0].get_ngrams(size) if len(self.groups) == 1 else self._ngrams[size]

    @cached_property
    def _ngrams(self) -> dict[int, Array]:
        return encode_ngrams(self.tokens, self.radix)


def _concatenate(arrays: Sequence[Array]) -> Array:
    """Concatenate arrays, without a copy of a single one."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


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
            claim_stems.append([stem_numbers.setdefault(word, offset + len(stem_numbers)) for word in content_words])
            names = statement.names if statement else extract_names(text, batch.rarity).intersection(content_words)
            claim_names.append([stem_numbers[word] for word in names])
            words.append(tokens)
        numbers += [stem_numbers.get(word, -1) for tokens in words[len(words) - len(claims) :] for word in tokens]
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
            bool(sentences) or index.has_variant(stem) for sentences, stem in zip(group_postings, stems, strict=True)
        ]
        postings += group_postings
    sizes = np.array([len(sentences) for sentences in postings])
    in_sentence = np.zeros((len(batch.sizes), len(postings)), bool)
    stem = np.arange(len(postings)).repeat(sizes)
    in_sentence[
        np.array(list(chain.from_iterable(postings)), np.int64) + batch.first_sentences[claims.stem_groups[stem]], stem
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
    end = 0
    for group, stems, offset in zip(batch.groups, claims.stems, batch.word_offsets, strict=False):
        start, end = end, end + len(stems)
        block = similarity[offset : offset + len(group.stem_numbers), start:end]
        np.matmul(group.vectors, vectors[start:end].T, out=block)
        block /= group.norms[:, None] * norms[start:end]
        equal_words += [
            (offset + group.stem_numbers[stem], number)
            for number, stem in enumerate(stems, start)
            if stem in group.stem_numbers
        ]
    if equal_words:
        word, stem = np.array(equal_words).T
        similarity[word, stem] = 1.0
    return similarity


def _rank_sentences(claims: ClaimWords, batch: PassageBatch, in_sentence: Array) -> tuple[Array, Array, Array, Array]:
    """Return coverage and Jaccard index, and for each claim the sentences of its group that share most with it."""
    weighted = (claims.has_stem * claims.stem_weights).T
    total = np.maximum(np.add.reduce(weighted), 1e-6)
    shared_weight = in_sentence.astype(float) @ weighted
    union = shared_weight / np.maximum(1e-6, total + batch.sentence_weights[:, None] - shared_weight)
    coverage = shared_weight / total
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
