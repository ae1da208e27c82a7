"""Embedders that run a transformer model on this machine: MiniLM-L6 and any model of sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.minilm.encoder import (
    encode_text,
    load_delta,
    load_embedder,
    load_tokenizer,
    locate_weights,
)
from ragfault.retrieval.embedders.latent import normalize_rows

Array = np.ndarray[Any, Any]


class MiniLMEmbedder:
    """The published model all-MiniLM-L6-v2, from the package that the judge minilm takes its weights from.

    A text of more than 254 tokens is embedded in stretches, each of which counts by its tokens. Raises MissingExtra
    without the extra `nli` or the package of weights.
    """

    dimensions = 384

    def __init__(self, threads: int = 1) -> None:
        folder = locate_weights()
        self._tokenizer, self._model = load_tokenizer(folder), load_embedder(folder, threads)

    @property
    def fingerprint(self) -> str:
        """The digest of the weights."""
        return f"minilm/2 weights={load_delta().base_digest[:8]}"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:  # noqa: ARG002
        """Return a row of length 1 for each text, zeros for one without a token."""
        encoded = [encode_text(self._tokenizer, text) for text in texts]
        vectors = self._model.embed([row for rows in encoded for row in rows])
        means = np.zeros((len(texts), self.dimensions), np.float32)
        at = 0
        for place, rows in enumerate(encoded):
            if rows:
                tokens = [len(row.ids) for row in rows]
                means[place] = np.average(vectors[at : at + len(rows)], axis=0, weights=tokens)
            at += len(rows)
        return normalize_rows(means)


class SentenceEmbedder:
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
        self._encoder = SentenceTransformer(model, device="cpu")

    @property
    def fingerprint(self) -> str:
        """The model, and the words before its texts."""
        return " ".join([f"sentence:{self.model}", *filter(None, (self._prefix, self._passage))])

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""
        return int(self._encoder.get_sentence_embedding_dimension())

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:
        """Return a row of length 1 for each text."""
        before = self._prefix if query else self._passage
        vectors = self._encoder.encode([before + text for text in texts], show_progress_bar=False)
        return normalize_rows(np.asarray(vectors, np.float32).reshape(len(texts), -1))
