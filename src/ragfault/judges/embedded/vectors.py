"""Word vectors: a table of stems in which near meanings have near vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from ragfault.judges.checks.lexicon import load_rarity
from ragfault.text import STOP_WORDS, split_words

Array = np.ndarray[Any, Any]


class WordVectors(NamedTuple):
    """The table: a row for each stem it knows, then one for each stop word, for numbers and for the unknown."""

    rows: dict[str, int]
    """Stem or stop word → its row."""
    table: Array
    """Whole numbers from -127 to 127, so that their products are exact on every machine; a zero row stands for a
    word without meaning of its own."""
    norms: Array
    """The length of each row, 1 where it is zero."""
    rarities: Array
    """What the word of each row tells; not so for numbers and the unknown."""
    stem_count: int
    """So many stems come first, then the stop words."""
    number_row: int
    """The row of a number that is not in the table."""
    unknown_row: int
    """The row of any other word that is not."""
    blank_row: int
    """The row of no word at all."""

    def get_row(self, word: str) -> int:
        """The row of a word in normal form (see `ragfault.text.normalization`)."""
        found = self.rows.get(word)
        if found is not None:
            return found
        return self.number_row if word[0].isdigit() else self.unknown_row

    def get_rows(self, words: Sequence[str]) -> Array:
        """The rows of many words."""
        get, unknown = self.rows.get, self.unknown_row
        rows = [get(word, unknown) for word in words]
        if unknown in rows:
            for place, row in enumerate(rows):
                if row == unknown and words[place][0].isdigit():
                    rows[place] = self.number_row
        return np.array(rows, np.int64)

    def get_vectors(self, rows: Array) -> Array:
        """The vectors of some rows, in single precision."""
        found: Array = self.table[rows].astype(np.float32)
        return found

    def get_weights(self, words: Sequence[str], rows: Array) -> Array:
        """What some words in these rows tell, by their rarity."""
        found: Array = self.rarities[rows]
        for place in np.flatnonzero(rows >= self.number_row).tolist():
            found[place] = load_rarity()(words[place])
        return found

    def have_content(self, rows: Array) -> Array:
        """Whether the words of some rows carry content."""
        return (rows < self.stem_count) | (rows >= self.number_row)


def load_arrays(name: str) -> dict[str, Array]:
    """The arrays of one of the files that come with the package."""
    with files(__package__).joinpath(name).open("rb") as file, np.load(file, allow_pickle=False) as packed:
        return {key: packed[key] for key in packed.files}


@cache
def load_vectors() -> WordVectors:
    """The table that the package carries, read once.

    >>> table = load_vectors()
    >>> def measure_similarity(first, second):
    ...     a, b = table.get_vectors(table.get_rows([first, second]))
    ...     return float(a @ b / np.sqrt((a @ a) * (b @ b)))
    >>> measure_similarity("physician", "doctor") > 0.6 > measure_similarity("physician", "restaur")
    True
    """
    packed = load_arrays("vectors.npz")
    stems = bytes(packed["stems"]).decode().split("\n")
    words = [*map(intern, stems), *sorted(STOP_WORDS)]
    table = np.zeros((len(words) + 3, packed["table"].shape[1]), np.int8)
    table[: len(stems)] = packed["table"]
    lengths = np.sqrt((table.astype(float) ** 2).sum(1)).astype(np.float32)
    lengths[lengths == 0] = 1.0
    rows = {word: place for place, word in enumerate(words)}
    rarities = np.zeros(len(table), np.float32)
    tell = load_rarity()
    rarities[: len(words)] = [tell(word) for word in words]
    return WordVectors(rows, table, lengths, rarities, len(stems), len(words), len(words) + 1, len(words) + 2)


def embed_word_vectors(texts: Sequence[str]) -> Array:
    """A row for each text out of the word vectors that come with ragfault: their sum by rarity, of length 1."""
    table = load_vectors()
    held = [split_words(text) for text in texts]
    told = [place for place, each in enumerate(held) if each]
    rows = np.zeros((len(texts), table.table.shape[1]), np.float32)
    if told:
        flat = [word for each in held for word in each]
        lines = table.get_rows(flat)
        weights = (table.get_weights(flat, lines) / table.norms[lines]).astype(np.float32)
        starts = np.cumsum([0, *(len(held[place]) for place in told[:-1])])
        rows[told] = np.add.reduceat(table.get_vectors(lines) * weights[:, None], starts)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
