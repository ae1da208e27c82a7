"""Passages as arrays: words, n-grams and sentence vectors, for one group of passages or several at once."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property

import numpy as np

from ragfault.judges.checks.lexicon import RarityTable
from ragfault.judges.checks.passages import SentenceIndex
from ragfault.judges.embedded.vectors import Array, WordVectors

MIN_LANGUAGE_WORDS, MIN_STOPLESS_WORDS = 4, 8
"""A text of fewer words has no language; one of at least the second number without any stop word is foreign.
"""
MAX_EXACT_WORDS = 1000
"""The weighted sum of at most this many words is exact in single precision."""
MIN_UNKNOWN_SHARE, MAX_STOP_SHARE = 0.2, 0.25
"""A text is foreign with at least this share of unknown words and less than this share of stop words."""


def detect_foreign(
    rows: Array, table: WordVectors, owner: Array | None = None, shared: Array | None = None
) -> Array:
    """Return, for each text that owns words, whether it is in another language than English.

    Numbers have no language; nor have unknown words that are `shared` with an English text: they are names.
    """
    owner = np.zeros(len(rows), np.int64) if owner is None else owner
    is_unknown = rows == table.unknown_row if shared is None else (rows == table.unknown_row) & ~shared
    word_counts, unknown_counts, stop_counts = (
        np.bincount(owner, hits, 1)
        for hits in (rows != table.number_row, is_unknown, ~table.have_content(rows))
    )
    has_unknown = (unknown_counts >= MIN_UNKNOWN_SHARE * word_counts) & (
        stop_counts < MAX_STOP_SHARE * word_counts
    )
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
    """Arrays of some passages: their words by number, their n-grams, their sentences as vectors.

    Every array depends on the passages alone.
    """

    def __init__(self, index: SentenceIndex, table: WordVectors, rarity: RarityTable) -> None:
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
        """Return all n-grams of this length, as sorted numbers."""
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
        """The share of negated sentences."""
        return np.count_nonzero(self.negated) / len(self.negated)

    @cached_property
    def record_share(self) -> float:
        """The share of sentences that are fields of records."""
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
