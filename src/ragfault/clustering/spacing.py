"""The space in which failures are near each other: what was asked and what failed, in words and in kinds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.clustering.records import Failure
from ragfault.findings import KINDS
from ragfault.ports import Embedder

__all__ = ["DIMENSIONS", "by_kind", "fitted", "meant", "space"]

DIMENSIONS = 20
"""To so many dimensions failures are brought before they are clustered."""

OWN = "word vectors"
"""The name of the embedding that needs no embedder."""

Array = np.ndarray[Any, Any]


def texts(found: Sequence[Failure]) -> list[str]:
    """Of each failure its query with what failed."""
    return [f"{one.query}\n{one.text}" for one in found]


def fitted(embedder: Embedder | None, found: Sequence[Failure]) -> Embedder | None:
    """The embedder, fitted on the failures where it is one that must see a corpus first."""
    if embedder is not None and getattr(embedder, "fitted", True) is False:
        embedder.fit(texts(found))  # type: ignore[attr-defined]
    return embedder


def meant(found: Sequence[Failure], embedder: Embedder | None = None) -> Array:
    """A row of length 1 for each failure, by the embedder, else by the word vectors that come with ragfault."""
    from ragfault.retrieval.chunking.cohesion import meanings

    embed = meanings if embedder is None else embedder.embed
    return np.asarray(embed(texts(found)), np.float64).reshape(len(found), -1)


def by_kind(found: Sequence[Failure]) -> Array:
    """A row of length 1 for each failure: its kinds of problem, the rarer ones weighing more."""
    place = {kind: at for at, kind in enumerate(KINDS)}
    counted = Counter(kind for one in found for kind in one.kinds)
    rows = np.zeros((len(found), len(place)))
    for at, one in enumerate(found):
        for kind in one.kinds:
            if kind != "irrelevant_chunk":
                rows[at, place[kind]] = math.log(1 + len(found) / (1 + counted[kind]))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    made: Array = rows / np.where(lengths > 0, lengths, 1)
    return made


def space(meaning: Array, kinds: Array) -> Array:
    """Both side by side, of equal weight, in at most DIMENSIONS (principal components: Hotelling 1933).

    Raises MissingExtra without scikit-learn.
    """
    from ragfault.errors import MissingExtra

    try:
        from sklearn.decomposition import PCA
    except ImportError:
        raise MissingExtra("clustering by meaning", "cluster") from None
    rows = np.hstack([meaning, kinds])
    size = min(DIMENSIONS, *rows.shape)
    made: Array = PCA(size, svd_solver="covariance_eigh").fit_transform(rows)
    return np.round(made, 6)
