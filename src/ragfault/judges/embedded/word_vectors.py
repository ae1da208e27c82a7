"""Word vectors: a table of stems in which near meanings have near vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from ragfault.judges.checks.lexicon import load_idf
from ragfault.text.normalization import STOP_WORDS, split_words

Array = np.ndarray[Any, Any]


class WordRows(dict[str, int]):
    """Rows by word; a number or word that is not in the table has the row of all such."""

    def __missing__(self, word: str) -> int:
        return len(self) if word[0].isdigit() else len(self) + 1


class WordVectors(NamedTuple):
    """A table of vectors: a row for each known stem, then one for each stop word, for numbers and for the unknown."""

    rows: WordRows
    """Stem or stop word → its row; other words → `number_row` or `unknown_row`."""
    table: Array
    """Integers from -127 to 127: products are exact on every machine. A zero row is a word without meaning."""
    norms: Array
    """The norm of each row, 1 for a zero row."""
    rarities: Array
    """The rarity of the word of each row; not set for numbers and the unknown."""
    stem_count: int
    """The number of stems, which come first; then the stop words."""
    number_row: int
    """The row of a number that is not in the table."""
    unknown_row: int
    """The row of any other word that is not in the table."""
    blank_row: int
    """The row of no word at all."""

    def get_rows(self, words: Sequence[str]) -> Array:
        """Return the rows of words in normal form (see `ragfault.text.normalization`)."""
        return np.fromiter(map(self.rows.__getitem__, words), np.int64, len(words))

    def get_vectors(self, rows: Array) -> Array:
        """Return the vectors of some rows, in single precision."""
        vectors: Array = self.table[rows].astype(np.float32)
        return vectors

    def get_weights(self, words: Sequence[str], rows: Array) -> Array:
        """Return the rarity of some words in these rows."""
        weights: Array = self.rarities[rows]
        for position in np.flatnonzero(rows >= self.number_row).tolist():
            weights[position] = load_idf()(words[position])
        return weights

    def have_content(self, rows: Array) -> Array:
        return (rows < self.stem_count) | (rows >= self.number_row)


def load_arrays(name: str) -> dict[str, Array]:
    """Load the arrays of a packaged file."""
    with files(__package__).joinpath(name).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


@cache
def load_vectors() -> WordVectors:
    """Load the packaged table, once.

    >>> table = load_vectors()
    >>> def measure_similarity(first, second):
    ...     a, b = table.get_vectors(table.get_rows([first, second]))
    ...     return float(a @ b / np.sqrt((a @ a) * (b @ b)))
    >>> measure_similarity("physician", "doctor") > 0.6 > measure_similarity("physician", "restaur")
    True
    """
    arrays = load_arrays("vectors.npz")
    stems = bytes(arrays["stems"]).decode().split("\n")
    words = [*map(intern, stems), *sorted(STOP_WORDS)]
    table = np.zeros((len(words) + 3, arrays["table"].shape[1]), np.int8)
    table[: len(stems)] = arrays["table"]
    norms = np.sqrt((table.astype(float) ** 2).sum(1)).astype(np.float32)
    norms[norms == 0] = 1.0
    rows = WordRows((word, row) for row, word in enumerate(words))
    rarities = np.zeros(len(table), np.float32)
    rarity = load_idf()
    rarities[: len(words)] = [rarity(word) for word in words]
    return WordVectors(rows, table, norms, rarities, len(stems), len(words), len(words) + 1, len(words) + 2)


def embed_word_vectors(texts: Sequence[str]) -> Array:
    """Return a vector for each text from the packaged word vectors: their sum by rarity, of length 1."""
    table = load_vectors()
    text_words = [split_words(text) for text in texts]
    nonempty = [number for number, words in enumerate(text_words) if words]
    rows = np.zeros((len(texts), table.table.shape[1]), np.float32)
    if nonempty:
        flat = [word for words in text_words for word in words]
        lines = table.get_rows(flat)
        weights = (table.get_weights(flat, lines) / table.norms[lines]).astype(np.float32)
        starts = np.cumsum([0, *(len(text_words[number]) for number in nonempty[:-1])])
        rows[nonempty] = np.add.reduceat(table.get_vectors(lines) * weights[:, None], starts)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
