"""The embedder of sentence-transformers, for whoever has that package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.errors import MissingExtra, UsageError
from ragfault.retrieval.embedders.lengths import unit

__all__ = ["Sentence"]

Array = np.ndarray[Any, Any]


class Sentence:
    """A model of sentence-transformers, by its name or the folder where it is.

    Raises MissingExtra without that package, which brings torch along and is in no extra of ours.
    """

    def __init__(self, model: str = "", *, prefix: str = "", passage: str = "") -> None:
        if not model:
            raise UsageError("sentence-transformers embeds with a model: sentence:MODEL")
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtra(
                "the embedder sentence", "retrieval", "pip install sentence-transformers"
            ) from None
        self.model, self._prefix, self._passage = model, prefix, passage
        self._made = SentenceTransformer(model, device="cpu")

    @property
    def fingerprint(self) -> str:
        """The model, and the words before its texts."""
        return " ".join([f"sentence:{self.model}", *filter(None, (self._prefix, self._passage))])

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""
        return int(self._made.get_sentence_embedding_dimension())

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:
        """A row of length 1 for each text."""
        before = self._prefix if query else self._passage
        made = self._made.encode([before + text for text in texts], show_progress_bar=False)
        return unit(np.asarray(made, np.float32).reshape(len(texts), -1))
