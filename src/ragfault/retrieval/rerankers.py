"""Rerankers: the rerank stage, by a judge, by entities, and the services of Cohere, Voyage and Vertex AI."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec.structs import replace

from ragfault.judges.checks.passages import Passage
from ragfault.model.errors import UsageError
from ragfault.model.protocols import Reranker
from ragfault.retrieval.pipeline import Hits, Query, Stage, StageResult
from ragfault.retrieval.service_client import ServiceFailed, post_json, read_api_key
from ragfault.text.entities import EntityIndex, extract_entities

if TYPE_CHECKING:
    from ragfault.judges.scorer import Scorer


class JudgeReranker:
    """A reranker by the relevance that a judge sees: embedded, encoder, lexical, or a model in ONNX.

    >>> reranker = JudgeReranker("lexical")
    >>> near, far = reranker.relevance("When does the ferry leave?", ["The ferry leaves at ten.", "Dogs need a lead."])
    >>> near > far
    True
    """

    def __init__(self, judge: str | Scorer = "embedded") -> None:
        from ragfault.judges.loading import load_judge

        scorer: Any = load_judge(judge) if isinstance(judge, str) else judge
        if not hasattr(scorer, "open_session"):
            raise UsageError(
                f'"{judge}" reads no passage by itself, so it cannot rerank. Take embedded, encoder or lexical.'
            )
        self._scorer = cast("Scorer", scorer)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the judge."""
        return self._scorer.fingerprint

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the judge's relevance of each text, in [0, 1]."""
        passages = [Passage(str(i), text) for i, text in enumerate(texts)]
        return [score.value for score in self._scorer.open_session(query).score_relevance(query, passages)]


def rerank(reranker: Reranker, k: int | None = None, *, depth: int = 50) -> Stage:
    """Return the stage that orders the first `depth` hits by what a reranker says, and keeps `k` of them.

    Scores become the reranker's. Hits beyond `depth` follow in their order with the lowest of them, unless `k` leaves
    them out; equal hits keep their order. If a reranker fails, the order is kept, with a note.
    Raises UsageError for a `k` or `depth` below 1; the stage, for scores that are not one finite number a hit.

    >>> from ragfault.model.records import Chunk
    >>> hits = (Chunk(id="dogs", text="Dogs need a lead."), Chunk(id="ferry", text="The ferry leaves at ten."))
    >>> [hit.id for hit in rerank(JudgeReranker("lexical"))(Query(text="When does the ferry leave?"), hits).hits]
    ['ferry', 'dogs']
    """
    if depth < 1 or (k is not None and k < 1):
        raise UsageError(f"depth and k are at least 1, got depth={depth}, k={k}.")

    def stage(query: Query, hits: Hits) -> StageResult:
        if not hits:
            return StageResult(query, hits)
        head = hits[:depth]
        try:
            scores = list(reranker.relevance(query.text, [hit.text for hit in head]))
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - a service error costs the reranking, not the search
            note = f"reranking failed, the order is as it was: {type(error).__name__}: {error}"
            return StageResult(query.with_failure(note), hits[:k])
        if len(scores) != len(head):
            raise UsageError(
                f"the reranker {reranker.fingerprint} returned {len(scores)} scores for {len(head)} texts."
            )
        if not all(map(math.isfinite, scores)):
            raise UsageError(f"the reranker {reranker.fingerprint} returned a score that is not a finite number.")
        # only the score is compared: sorting is stable, so that equal hits keep their order
        ordered = sorted(zip(scores, head, strict=True), key=lambda pair: -pair[0])
        reranked = [replace(hit, score=float(score)) for score, hit in ordered]
        # scores of another stage behind the reranker's would put hits out of order for the stages that follow
        remaining = [replace(hit, score=float(min(scores))) for hit in hits[depth:]]
        return StageResult(query, tuple(reranked + remaining)[:k])

    return stage


def prefer_entities(weight: float = 0.1, *, depth: int = 100) -> Stage:
    """Return the stage that prefers hits which mention the names, numbers and dates of the query.

    The scores of the first `depth` hits are scaled to 0 … 1, and `weight` times the share of the query's entities that
    a hit mentions, exactly, is added to each. Hits beyond `depth` follow with a score of 0. A query without entities
    leaves all as it was. Raises UsageError for a weight that is not above 0, or a depth below 1.

    >>> from ragfault.model.records import Chunk
    >>> hits = (Chunk(id="a", text="Ferries in May", score=0.52), Chunk(id="b", text="Ferries to Oslo", score=0.5))
    >>> hits += (Chunk(id="c", text="Dogs", score=0.1),)
    >>> [hit.id for hit in prefer_entities()(Query(text="Which ferries go to Oslo?"), hits).hits]
    ['b', 'a', 'c']
    """
    if not weight > 0 or depth < 1:
        raise UsageError(f"the weight is above 0 and the depth at least 1, got weight={weight}, depth={depth}.")

    def stage(query: Query, hits: Hits) -> StageResult:
        entities = extract_entities(query.text)
        head = hits[:depth]
        scores = [hit.score for hit in head if hit.score is not None]
        if not entities or not head or len(scores) < len(head):
            return StageResult(query, hits)
        # a weight holds for every retriever only if the scores have one scale
        low, width = min(scores), max(scores) - min(scores) or 1.0
        indexes = [EntityIndex(hit.text) for hit in head]
        shares = [sum(entity in index for entity in entities) / len(entities) for index in indexes]
        values = [(score - low) / width + weight * share for score, share in zip(scores, shares, strict=True)]
        ordered = sorted(zip(values, head, strict=True), key=lambda pair: -pair[0])
        preferred = [replace(hit, score=value) for value, hit in ordered]
        return StageResult(query, (*preferred, *(replace(hit, score=0.0) for hit in hits[depth:])))

    return stage


class _ServiceReranker:
    """A ranking service that takes texts as `documents` and gives each an index and a `relevance_score`."""

    service: ClassVar[str]
    key_names: ClassVar[tuple[str, ...]]
    rows_key: ClassVar[str]

    def __init__(self, model: str, url: str) -> None:
        self.model, self._url = model, url

    @property
    def fingerprint(self) -> str:
        """Service and model."""
        return f"{self.service.lower()} {self.model}"

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return scores in [0, 1]. Raises UsageError without a key, ServiceFailed without a reply."""
        if not texts:
            return []
        body = {"model": self.model, "query": query, "documents": list(texts)}
        answer = post_json(self._url, body, key=read_api_key(self.service, self.key_names))
        return _order_scores(self.service, answer, self.rows_key, "index", "relevance_score", len(texts))


class CohereReranker(_ServiceReranker):
    """Cohere's ranking (`POST /v2/rerank`); the key is in COHERE_API_KEY.

    >>> CohereReranker().fingerprint
    'cohere rerank-v3.5'
    """

    service, key_names, rows_key = "Cohere", ("COHERE_API_KEY", "CO_API_KEY"), "results"

    def __init__(self, model: str = "rerank-v3.5", base_url: str = "https://api.cohere.com") -> None:
        super().__init__(model, f"{base_url.rstrip('/')}/v2/rerank")


class VoyageReranker(_ServiceReranker):
    """Voyage's ranking (`POST /v1/rerank`); the key is in VOYAGE_API_KEY.

    >>> VoyageReranker().fingerprint
    'voyage rerank-2.5'
    """

    service, key_names, rows_key = "Voyage", ("VOYAGE_API_KEY",), "data"

    def __init__(self, model: str = "rerank-2.5", base_url: str = "https://api.voyageai.com") -> None:
        super().__init__(model, f"{base_url.rstrip('/')}/v1/rerank")


class VertexReranker:
    """Vertex AI's semantic ranker (`rankingConfigs:rank`); an access token is in GOOGLE_ACCESS_TOKEN.

    >>> VertexReranker("my-project").fingerprint
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
                f'"{project}" in "{location}" is not a project of Google Cloud in a location. Write vertex:PROJECT.'
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
        """Return scores in [0, 1]. Raises UsageError without a token, ServiceFailed without a reply."""
        if not texts:
            return []
        records = [{"id": str(i), "content": text} for i, text in enumerate(texts)]
        body = {"model": self.model, "query": query, "records": records, "topN": len(texts)}
        headers = {"X-Goog-User-Project": self._project}
        answer = post_json(self._url, body, key=read_api_key("Vertex AI", ("GOOGLE_ACCESS_TOKEN",)), headers=headers)
        return _order_scores("Vertex AI", answer, "records", "id", "score", len(texts))


def _order_scores(service: str, answer: Any, rows_key: str, place_key: str, score_key: str, count: int) -> list[float]:
    """Return the scores in the order of the texts; raise ServiceFailed for a missing, repeated or invalid one."""
    scores: dict[int, float] = {}
    try:
        for row in answer[rows_key]:
            number = int(row[place_key])
            if number in scores:
                raise ServiceFailed(f"{service} ranked text {number} twice.")
            scores[number] = float(row[score_key])
    except (KeyError, TypeError, ValueError):
        raise ServiceFailed(f"{service} answered in a shape that is not that of a ranking.") from None
    if not all(map(math.isfinite, scores.values())):
        raise ServiceFailed(f"{service} gave a relevance that is not a finite number.")
    # a text that a service leaves out has no place in the order: a guess would be silent
    if scores.keys() != set(range(count)):
        raise ServiceFailed(f"{service} ranked {len(scores)} texts, and {count} were sent.")
    return [scores[number] for number in range(count)]
