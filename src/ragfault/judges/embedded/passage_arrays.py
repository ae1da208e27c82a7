"""Passages as arrays: words, n-grams and sentence vectors, for one group of passages or several at once."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property

import numpy as np

from ragfault.judges.checks.lexicon import RarityTable
from ragfault.judges.checks.passages import SentenceIndex
from ragfault.judges.embedded.vectors import Array, WordVectors

MIN_LANGUAGE_WORDS, MIN_STOPLESS_WORDS = 4, 8
"""A text of fewer words is of no language; one of so many without any stop word is foreign."""
MAX_EXACT_WORDS = 1000
"""So many words, weighed and added up, are exact in single precision."""
MIN_UNKNOWN_SHARE, MAX_STOP_SHARE = 0.2, 0.25
"""A text is foreign where so large a share of its words is unknown and so small a share are stop words."""


def detect_foreign(
    rows: Array, table: WordVectors, owner: Array | None = None, shared: Array | None = None
) -> Array:
    """Whether words, by their rows in the table, are of another language than English: for each text that owns some.

    Numbers are of none; nor are unknown words that are `shared` with an English text: they are names.
    """
    owner = np.zeros(len(rows), np.int64) if owner is None else owner
    strange = rows == table.unknown_row if shared is None else (rows == table.unknown_row) & ~shared
    told, unknown, stops = (
        np.bincount(owner, hits, 1) for hits in (rows != table.number_row, strange, ~table.have_content(rows))
    )
    other = (unknown >= MIN_UNKNOWN_SHARE * told) & (stops < MAX_STOP_SHARE * told)
    found: Array = (told >= MIN_LANGUAGE_WORDS) & (other | ((told >= MIN_STOPLESS_WORDS) & (stops == 0)))
    return found


def encode_ngrams(tokens: Array, radix: int) -> dict[int, Array]:
    """All runs of two, three and four words, each as one number, sorted."""
    found, code = {}, tokens
    for size in (2, 3, 4):
        code = code[:-1] * radix + tokens[size - 1 :] if len(tokens) >= size else code[:0]
        found[size] = np.sort(code)
    return found


class PassageArrays:
    """What is known of some passages: their words by number, their runs of words, their sentences as vectors.

    Every array here is made from the passages alone.
    """

    def __init__(self, index: SentenceIndex, table: WordVectors, rarity: RarityTable) -> None:
        self.index, self.table, self.rarity = index, table, rarity
        sentences, spoken = index.sentences, index.tokens
        stems = list(dict.fromkeys(spoken))
        self.stem_numbers = {stem: number for number, stem in enumerate(stems)}
        """Stem → its number in this trace."""
        self.tokens: Array = np.array(list(map(self.stem_numbers.__getitem__, spoken)), np.int64)
        self.sizes: Array = np.array([len(one.tokens) for one in sentences], np.int64)
        self.starts: Array = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.rows: Array = table.get_rows(stems)
        told = table.have_content(self.rows)
        self.weights: Array = table.get_weights(stems, self.rows) * told
        self.vectors: Array = table.get_vectors(self.rows)
        self.vectors[~told] = 0.0
        self.norms: Array = table.norms[self.rows]
        self.sentence_weights: Array = self._weigh_sentences()
        """For each sentence, what its words of content tell together."""
        self.negated: Array = np.array([one.negated for one in sentences], bool)
        self.is_field: Array = np.array([bool(one.key) for one in sentences], bool)

    def _weigh_sentences(self) -> Array:
        place = np.sort(np.arange(len(self.sizes)).repeat(self.sizes) * self.radix + self.tokens)
        first = np.ones(len(place), bool)
        first[1:] = place[1:] != place[:-1]
        sentence, word = np.divmod(place[first], self.radix)
        mass: Array = np.bincount(sentence, self.weights.astype(float)[word], len(self.sizes))
        return mass

    @property
    def radix(self) -> int:
        """The base in which runs of words are written as one number."""
        return len(self.stem_numbers) + 1

    def get_ngrams(self, size: int) -> Array:
        """All runs of so many words, as sorted numbers."""
        return self._ngrams[size]

    @cached_property
    def _ngrams(self) -> dict[int, Array]:
        return encode_ngrams(self.tokens, self.radix)

    @cached_property
    def sentence_vectors(self) -> Array:
        """For each sentence its vector of length 1: the weighted sum of those of its words."""
        sums = np.zeros((len(self.sizes), self.vectors.shape[1]))
        if len(self.tokens):
            some = self.sizes > 0
            # Weights are whole numbers of eighths: single precision holds the sums of all but very long sentences.
            exact = np.float32 if self.sizes.max() < MAX_EXACT_WORDS else float
            weighted = self.vectors.astype(exact, copy=False) * self.weights[:, None]
            sums[some] = np.add.reduceat(weighted[self.tokens], self.starts[:-1][some], axis=0)
        unit: Array = sums / (np.sqrt(np.add.reduce(sums**2, axis=1, keepdims=True)) + 1e-9)
        return unit

    @cached_property
    def negated_share(self) -> float:
        """The share of sentences that deny something."""
        return np.count_nonzero(self.negated) / len(self.negated)

    @cached_property
    def record_share(self) -> float:
        """The share of sentences that are fields of records."""
        return np.count_nonzero(self.is_field) / len(self.is_field)

    @cached_property
    def record_keys(self) -> dict[str, Set[str]]:
        """What records say: the stems of keys that are absent, that say no, and that say yes."""
        said: dict[str, set[str]] = {"absent": set(), "no": set(), "yes": set()}
        for key, polarity in self.index.record_fields:
            said[polarity] |= key
        yes = frozenset(said["yes"])
        return {"absent": said["absent"] - yes, "no": said["no"] - yes, "yes": yes}


class PassageBatch:
    """Grounds in a row, each with sentences and words of its own; G of them, S sentences, D words."""

    def __init__(self, groups: Sequence[PassageArrays]) -> None:
        self.groups = groups
        self.table, self.rarity = groups[0].table, groups[0].rarity
        counts = np.array([len(one.sizes) for one in groups])
        self.first_sentences: Array = counts.cumsum() - counts
        """[G] The first sentence of each ground."""
        self.sentence_counts: Array = counts
        """[G] So many sentences each has."""
        self.group_numbers: Array = np.arange(len(groups)).repeat(counts)
        """[S] The ground that each sentence belongs to."""
        sizes = [len(one.stem_numbers) for one in groups]
        self.word_offsets = [sum(sizes[:place]) for place in range(len(groups) + 1)]
        """[G + 1] The number of the first word of each ground, and of all words."""
        self.radix = self.word_offsets[-1] + 1
        self.tokens: Array = _concatenate(
            [one.tokens + first for one, first in zip(groups, self.word_offsets, strict=False)]
        )
        self.sizes: Array = _concatenate([one.sizes for one in groups])
        self.starts: Array = groups[0].starts if len(groups) == 1 else np.append(0, self.sizes.cumsum())
        self.rows: Array = _concatenate([one.rows for one in groups])
        self.sentence_weights: Array = _concatenate([one.sentence_weights for one in groups])
        self.sentence_vectors: Array = _concatenate([one.sentence_vectors for one in groups])
        self.negated: Array = _concatenate([one.negated for one in groups])
        self.is_field: Array = _concatenate([one.is_field for one in groups])

    def get_ngrams(self, size: int) -> Array:
        """All runs of so many words, as sorted numbers; those from one ground into the next are no claim's."""
        return self.groups[0].get_ngrams(size) if len(self.groups) == 1 else self._ngrams[size]

    @cached_property
    def _ngrams(self) -> dict[int, Array]:
        return encode_ngrams(self.tokens, self.radix)


def _concatenate(arrays: Sequence[Array]) -> Array:
    """Arrays one after another."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
