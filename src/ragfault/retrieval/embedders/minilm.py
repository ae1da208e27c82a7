"""The embedder MiniLM-L6: six layers and 384 dimensions on one processor, in full precision, the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.judges.cross.encoder import alone, embedder, tokenizer
from ragfault.judges.cross.weights import delta, where
from ragfault.retrieval.embedders.lengths import unit

__all__ = ["MiniLM"]

Array = np.ndarray[Any, Any]


class MiniLM:
    """The published model all-MiniLM-L6-v2, from the package that the judge minilm takes its weights from.

    A text of more than 254 tokens is embedded in stretches, each of which counts by its tokens. Raises MissingExtra
    without the extra `nli` or the package of weights.
    """

    dimensions = 384

    def __init__(self, threads: int = 1) -> None:
        folder = where()
        self._split, self._model = tokenizer(folder), embedder(folder, threads)

    @property
    def fingerprint(self) -> str:
        """The digest of the weights."""
        return f"minilm/2 weights={delta().base[:8]}"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:  # noqa: ARG002
        """A row of length 1 for each text, zeros for one without a token."""
        each = [alone(self._split, text) for text in texts]
        found = self._model.embed([row for rows in each for row in rows])
        made = np.zeros((len(texts), self.dimensions), np.float32)
        at = 0
        for place, rows in enumerate(each):
            if rows:
                tokens = [len(row.ids) for row in rows]
                made[place] = np.average(found[at : at + len(rows)], axis=0, weights=tokens)
            at += len(rows)
        return unit(made)
