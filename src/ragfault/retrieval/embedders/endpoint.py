"""The embedder behind an OpenAI-compatible address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragfault.errors import UsageError
from ragfault.retrieval.embedders.lengths import unit
from ragfault.retrieval.posting import ServiceFailed, key_of, post

__all__ = ["Endpoint"]

OWN = "https://api.openai.com/v1"
BATCH = 128
"""Texts to a request."""

Array = np.ndarray[Any, Any]


class Endpoint:
    """A model behind `POST /embeddings`: OpenAI, Azure, Ollama, vLLM, a gateway.

    The key is in RAGFAULT_EMBEDDINGS_API_KEY; OPENAI_API_KEY goes to OpenAI alone. Another address may want none.
    `prefix` and `passage` are put before queries and passages, for models that were trained with such words.

    >>> Endpoint("text-embedding-3-small").fingerprint
    'endpoint:text-embedding-3-small'
    """

    def __init__(
        self,
        model: str,
        base_url: str = OWN,
        *,
        dimensions: int | None = None,
        prefix: str = "",
        passage: str = "",
    ) -> None:
        if not model:
            raise UsageError("an endpoint embeds with a model: endpoint:MODEL")
        self.model, self._base, self._wanted = model, base_url.rstrip("/"), dimensions
        self._prefix, self._passage = prefix, passage
        self._size: int | None = dimensions

    @property
    def fingerprint(self) -> str:
        """The model, and what was asked of it."""
        parts = [f"endpoint:{self.model}"]
        parts += [f"dimensions={self._wanted}"] if self._wanted else []
        parts += [f"prefixes={self._prefix!r},{self._passage!r}"] if self._prefix or self._passage else []
        return " ".join(parts)

    @property
    def dimensions(self) -> int:
        """The length of its vectors; asks for one where none was embedded yet."""
        if self._size is None:
            self.embed(["length"])
        assert self._size is not None
        return self._size

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Array:
        """A row of length 1 for each text. Raises ServiceFailed where the service does not give them all."""
        before = self._prefix if query else self._passage
        rows: list[list[float]] = []
        for at in range(0, len(texts), BATCH):
            rows += self._some([before + text for text in texts[at : at + BATCH]])
        made = np.array(rows, np.float32).reshape(len(texts), -1)
        if len(texts):
            self._size = made.shape[1]
        return unit(made)

    def _some(self, texts: list[str]) -> list[list[float]]:
        asked = [text if text.strip() else " " for text in texts]
        body: dict[str, Any] = {"model": self.model, "input": asked, "encoding_format": "float"}
        if self._wanted:
            body["dimensions"] = self._wanted
        answer = post(f"{self._base}/embeddings", body, key=self._key())
        try:
            found = {int(row["index"]): [float(one) for one in row["embedding"]] for row in answer["data"]}
        except (KeyError, TypeError, ValueError):
            raise ServiceFailed(f"{self.model} answered in a shape that is not that of embeddings.") from None
        if found.keys() != set(range(len(texts))) or len({len(row) for row in found.values()}) != 1:
            raise ServiceFailed(f"{self.model} embedded {len(found)} texts, and {len(texts)} were sent.")
        return [found[place] for place in range(len(texts))]

    def _key(self) -> str:
        import os

        own = os.environ.get("RAGFAULT_EMBEDDINGS_API_KEY")
        if own or self._base != OWN:
            return own or ""
        return key_of("OpenAI", ("OPENAI_API_KEY",))
