"""The latent semantic embedder: TF-IDF reduced to few dimensions, fitted on the corpus, without a download."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ragfault.model.errors import InputError, UsageError, require_extra
from ragfault.text.normalization import split_words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


LATENT_VERSION = 1
MAX_WORDS = 60_000
"""At most so many words, the commonest, make the space."""
POWER_ITERATIONS, EXTRA_DIMENSIONS = 3, 16
"""Power iterations, and dimensions that are computed beyond those that are kept (Halko, Martinsson & Tropp 2011)."""

Array = np.ndarray[Any, Any]


class LatentEmbedder:
    """Latent semantic analysis (Deerwester and others 1990): the TF-IDF rows of texts, turned into few dimensions.

    It is fitted on the texts of the corpus, and its fingerprint is of what it learned there. A text whose words it has
    never seen is a row of zeros.

    >>> texts = ["The ferry leaves at ten.", "Ferries leave daily.", "Dogs need a lead.", "A lead for dogs."]
    >>> embedder = LatentEmbedder(dimensions=2).fit(texts)
    >>> near = embedder.embed(texts) @ embedder.embed(["When does the ferry leave?"], query=True)[0]
    >>> bool(near[:2].min() > near[2:].max())
    True
    """

    def __init__(self, dimensions: int = 256, seed: int = 0) -> None:
        if dimensions < 1:
            raise UsageError(f"dimensions are at least 1, got {dimensions}.")
        self._requested_dimensions, self._seed = dimensions, seed
        self._word_columns: dict[str, int] = {}
        self._idf: Array = np.zeros(0, np.float32)
        self._projection: Array = np.zeros((0, 0), np.float32)
        self._digest = ""

    @property
    def fingerprint(self) -> str:
        """Version, parameters, and a digest of what was learned."""
        learned = f"fitted={self._digest}" if self._digest else "unfitted"
        return f"latent/{LATENT_VERSION} dimensions={self._requested_dimensions} seed={self._seed} {learned}"

    @property
    def dimensions(self) -> int:
        """Number of dimensions: the requested number, or fewer if the corpus has a lower rank."""
        return int(self._projection.shape[1]) if self._digest else self._requested_dimensions

    @property
    def fitted(self) -> bool:
        """True after `fit`."""
        return bool(self._digest)

    def fit(self, texts: Iterable[str]) -> Self:
        """Learn the space of a corpus. Raises InputError where no text of it has a word."""
        counted = [Counter(split_words(text)) for text in texts]
        spread = Counter(word for counts in counted for word in counts)
        if not spread:
            raise InputError("no text of the corpus has a word: there is nothing to embed.")
        vocabulary = sorted(spread, key=lambda word: (-spread[word], word))[:MAX_WORDS]
        self._word_columns = {word: i for i, word in enumerate(vocabulary)}
        size = len(counted)
        self._idf = np.array([1 + math.log((1 + size) / (1 + spread[word])) for word in vocabulary], np.float32)
        rows = self._build_rows(counted)
        self._projection = _compute_axes(rows, min(self._requested_dimensions, *rows.shape), self._seed)
        self._digest = self._compute_digest()
        return self

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:  # noqa: ARG002
        """Return a row of length 1 for each text, zeros without a known word. Raises UsageError before `fit`."""
        if not self._digest:
            raise UsageError("the latent embedder has seen no corpus yet. Fit it first: embedder.fit(texts)")
        rows = self._build_rows([Counter(split_words(text)) for text in texts]) @ self._projection
        return normalize_rows(rows)

    def save(self, path: str | Path) -> None:
        """Keep what was learned in a file."""
        np.savez(
            Path(path),
            words=np.array(list(self._word_columns)),
            rarity=self._idf,
            turn=self._projection,
            seed=self._seed,
            wanted=self._requested_dimensions,
        )

    @classmethod
    def open(cls, path: str | Path) -> LatentEmbedder:
        """Load the embedder from a file."""
        with np.load(Path(path), allow_pickle=False) as arrays:
            embedder = cls(int(arrays["wanted"]), int(arrays["seed"]))
            embedder._word_columns = {word: i for i, word in enumerate(arrays["words"].tolist())}
            embedder._idf, embedder._projection = arrays["rarity"], arrays["turn"]
        embedder._digest = embedder._compute_digest()
        return embedder

    def _build_rows(self, counted: Sequence[Counter[str]]) -> csr_matrix:
        """Return TF-IDF rows of length 1: (1 + log count) × IDF."""
        with require_extra("the embedder latent", "retrieval"):
            from scipy.sparse import csr_matrix
        columns, values, ends = [], [], [0]
        for counts in counted:
            word_counts = [
                (self._word_columns[word], count) for word, count in counts.items() if word in self._word_columns
            ]
            weights = [(1 + math.log(count)) * float(self._idf[column]) for column, count in word_counts]
            length = math.sqrt(sum(weight * weight for weight in weights)) or 1.0
            columns += [column for column, _ in word_counts]
            values += [weight / length for weight in weights]
            ends.append(len(columns))
        shape = (len(counted), len(self._word_columns))
        return csr_matrix((np.array(values, np.float32), np.array(columns, np.int64), np.array(ends)), shape=shape)

    def _compute_digest(self) -> str:
        """Return a digest of the words and their IDF, which do not depend on the machine, unlike the axes."""
        digest = hashlib.sha256("\n".join(self._word_columns).encode())
        digest.update(np.round(self._idf, 4).astype("<f4").tobytes())
        return digest.hexdigest()[:8]


def _compute_axes(rows: csr_matrix, dimensions: int, seed: int) -> Array:
    """Return the right singular vectors of the largest singular values, by a randomized range finder."""
    width = min(dimensions + EXTRA_DIMENSIONS, *rows.shape)
    turn = np.random.default_rng(seed).standard_normal((rows.shape[1], width)).astype(np.float32)
    for _ in range(POWER_ITERATIONS):
        left, _ = np.linalg.qr(rows @ turn)
        turn, _ = np.linalg.qr(rows.T @ left)
    small = (rows @ turn).astype(np.float64)
    _, _, right = np.linalg.svd(small, full_matrices=False)
    axes = (turn @ right[:dimensions].T).astype(np.float32)
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    turned: Array = axes * np.where(signs == 0, 1, signs).astype(np.float32)
    return turned


def normalize_rows(rows: Array) -> Array:
    """Return rows divided by their length; rows of zeros stay zeros."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    normalized: Array = np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-9)
    return normalized
