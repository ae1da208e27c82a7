"""Rerankers behind an address: Cohere, Voyage and Vertex AI, by the requests that they publish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ragfault.errors import UsageError
from ragfault.retrieval.posting import ServiceFailed, key_of, post

__all__ = ["Cohere", "Vertex", "Voyage"]


class Cohere:
    """Cohere's ranking (`POST /v2/rerank`); the key is in COHERE_API_KEY.

    >>> Cohere().fingerprint
    'cohere rerank-v3.5'
    """

    def __init__(self, model: str = "rerank-v3.5", base_url: str = "https://api.cohere.com") -> None:
        self.model, self._url = model, f"{base_url.rstrip('/')}/v2/rerank"

    @property
    def fingerprint(self) -> str:
        """Service and model."""
        return f"cohere {self.model}"

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """The relevance of each text, in [0, 1]. Raises UsageError without a key, ServiceFailed without an answer."""
        if not texts:
            return []
        body = {"model": self.model, "query": query, "documents": list(texts), "top_n": len(texts)}
        answer = post(self._url, body, key=key_of("Cohere", ("COHERE_API_KEY", "CO_API_KEY")))
        return _ordered("Cohere", answer, "results", "index", "relevance_score", len(texts))


class Voyage:
    """Voyage's ranking (`POST /v1/rerank`); the key is in VOYAGE_API_KEY.

    >>> Voyage().fingerprint
    'voyage rerank-2.5'
    """

    def __init__(self, model: str = "rerank-2.5", base_url: str = "https://api.voyageai.com") -> None:
        self.model, self._url = model, f"{base_url.rstrip('/')}/v1/rerank"

    @property
    def fingerprint(self) -> str:
        """Service and model."""
        return f"voyage {self.model}"

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """The relevance of each text, in [0, 1]. Raises UsageError without a key, ServiceFailed without an answer."""
        if not texts:
            return []
        body = {"model": self.model, "query": query, "documents": list(texts)}
        answer = post(self._url, body, key=key_of("Voyage", ("VOYAGE_API_KEY",)))
        return _ordered("Voyage", answer, "data", "index", "relevance_score", len(texts))


class Vertex:
    """Vertex AI's semantic ranker (`rankingConfigs:rank`); an access token is in GOOGLE_ACCESS_TOKEN.

    >>> Vertex("my-project").fingerprint
    'vertex semantic-ranker-default@latest'
    """

    def __init__(
        self,
        project: str = "",
        model: str = "semantic-ranker-default@latest",
        location: str = "global",
        base_url: str = "https://discoveryengine.googleapis.com",
    ) -> None:
        if not all(part and part.replace("-", "").replace("_", "").isalnum() for part in (project, location)):
            raise UsageError(
                f'"{project}" in "{location}" is no project of Google Cloud in a location. Write vertex:PROJECT.'
            )
        self.model, self._project = model, project
        self._url = (
            f"{base_url.rstrip('/')}/v1/projects/{project}/locations/{location}"
            "/rankingConfigs/default_ranking_config:rank"
        )

    @property
    def fingerprint(self) -> str:
        """Service and model."""
        return f"vertex {self.model}"

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """The relevance of each text, in [0, 1]. Raises UsageError without a token, ServiceFailed without an answer."""
        if not texts:
            return []
        records = [{"id": str(place), "content": text} for place, text in enumerate(texts)]
        body = {"model": self.model, "query": query, "records": records, "topN": len(texts)}
        headers = {"X-Goog-User-Project": self._project}
        answer = post(self._url, body, key=key_of("Vertex AI", ("GOOGLE_ACCESS_TOKEN",)), headers=headers)
        return _ordered("Vertex AI", answer, "records", "id", "score", len(texts))


def _ordered(service: str, answer: Any, rows: str, place: str, score: str, count: int) -> list[float]:
    """The scores in the order of the texts; raises ServiceFailed where one is lacking, doubled or no number."""
    found: dict[int, float] = {}
    try:
        for row in answer[rows]:
            number = int(row[place])
            if number in found:
                raise ServiceFailed(f"{service} ranked text {number} twice.")
            found[number] = float(row[score])
    except (KeyError, TypeError, ValueError):
        raise ServiceFailed(f"{service} answered in a shape that is not that of a ranking.") from None
    if not all(map(math.isfinite, found.values())):
        raise ServiceFailed(f"{service} gave a relevance that is no finite number.")
    if found.keys() != set(range(count)):
        raise ServiceFailed(f"{service} ranked {len(found)} texts, and {count} were sent.")
    return [found[number] for number in range(count)]
