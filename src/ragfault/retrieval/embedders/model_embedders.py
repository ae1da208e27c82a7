"""Embedders that call a model: sentence-transformers, or an HTTP endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.model.errors import UsageError, require_extra
from ragfault.retrieval.embedders.latent import normalize_rows
from ragfault.retrieval.service_client import ServiceFailed, post_json, read_api_key

Array = np.ndarray[Any, Any]


class SentenceEmbedder:
    """A model of sentence-transformers, by its name or the folder where it is.

    Raises MissingExtra without that package, which brings torch along and is in no extra of ours.
    """

    def __init__(self, model: str = "", *, prefix: str = "", passage: str = "") -> None:
        if not model:
            raise UsageError("sentence-transformers embeds with a model: sentence:MODEL")
        with require_extra("the embedder sentence", "retrieval", "pip install sentence-transformers"):
            from sentence_transformers import SentenceTransformer
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


OPENAI_URL = "https://api.openai.com/v1"
REQUEST_BATCH = 128
"""Texts to a request."""


class EndpointEmbedder:
    """A model behind `POST /embeddings`: OpenAI, Azure, Ollama, vLLM, a gateway.

    The key is in RAGFAULT_EMBEDDINGS_API_KEY; OPENAI_API_KEY goes to OpenAI alone. Another address may want none.
    `prefix` and `passage` are put before queries and passages, for models that were trained with such words.

    >>> EndpointEmbedder("text-embedding-3-small").fingerprint
    'endpoint:text-embedding-3-small'
    """

    def __init__(
        self,
        model: str,
        base_url: str = OPENAI_URL,
        *,
        dimensions: int | None = None,
        prefix: str = "",
        passage: str = "",
    ) -> None:
        if not model:
            raise UsageError("an endpoint embeds with a model: endpoint:MODEL")
        self.model, self._base_url, self._requested_dimensions = model, base_url.rstrip("/"), dimensions
        self._prefix, self._passage = prefix, passage
        self._dimensions: int | None = dimensions

    @property
    def fingerprint(self) -> str:
        """The model, and what was asked of it."""
        parts = [f"endpoint:{self.model}"]
        parts += [f"dimensions={self._requested_dimensions}"] if self._requested_dimensions else []
        parts += [f"prefixes={self._prefix!r},{self._passage!r}"] if self._prefix or self._passage else []
        return " ".join(parts)

    @property
    def dimensions(self) -> int:
        """The length of its vectors; asks for one where none was embedded yet."""
        if self._dimensions is None:
            self.embed(["length"])
        assert self._dimensions is not None
        return self._dimensions

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:
        """Return a row of length 1 for each text. Raises ServiceFailed for an incomplete reply."""
        before = self._prefix if query else self._passage
        rows: list[list[float]] = []
        for index in range(0, len(texts), REQUEST_BATCH):
            rows += self._embed_batch([before + text for text in texts[index : index + REQUEST_BATCH]])
        vectors = np.array(rows, np.float32).reshape(len(texts), -1)
        if len(texts):
            self._dimensions = vectors.shape[1]
        return normalize_rows(vectors)

    def _embed_batch(self, texts: list[str]) -> list[list[float]]:
        inputs = [text if text.strip() else " " for text in texts]
        body: dict[str, Any] = {"model": self.model, "input": inputs, "encoding_format": "float"}
        if self._requested_dimensions:
            body["dimensions"] = self._requested_dimensions
        answer = post_json(f"{self._base_url}/embeddings", body, key=self._read_key())
        try:
            vectors = {int(row["index"]): [float(number) for number in row["embedding"]] for row in answer["data"]}
        except (KeyError, TypeError, ValueError):
            raise ServiceFailed(f"{self.model} answered in a shape that is not that of embeddings.") from None
        if vectors.keys() != set(range(len(texts))) or len({len(row) for row in vectors.values()}) != 1:
            raise ServiceFailed(f"{self.model} embedded {len(vectors)} texts, and {len(texts)} were sent.")
        return [vectors[i] for i in range(len(texts))]

    def _read_key(self) -> str:
        import os

        key = os.environ.get("RAGFAULT_EMBEDDINGS_API_KEY")
        if key or self._base_url != OPENAI_URL:
            return key or ""
        return read_api_key("OpenAI", ("OPENAI_API_KEY",))
