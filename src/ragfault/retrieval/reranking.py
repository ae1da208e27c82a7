"""Reranking: hits put in order by someone who reads them together with the query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.judges.scorer import Passage
from ragfault.ports import Reranker
from ragfault.retrieval.records import Found, Hits, Query, Stage

if TYPE_CHECKING:
    from ragfault.judges.scorer import Scorer

__all__ = ["Judging", "rerank"]


class Judging:
    """A reranker by the relevance that a judge sees: embedded, lexical, minilm, or a model in ONNX.

    >>> reranker = Judging("lexical")
    >>> near, far = reranker.relevance("When does the ferry leave?", ["The ferry leaves at ten.", "Dogs need a lead."])
    >>> near > far
    True
    """

    def __init__(self, judge: str | Scorer = "embedded") -> None:
        from ragfault.judges import load_judge

        made: Any = load_judge(judge) if isinstance(judge, str) else judge
        if not hasattr(made, "read"):
            raise UsageError(
                f'"{judge}" reads no passage by itself, so it cannot rerank. Take embedded, lexical or minilm.'
            )
        self._scorer = cast("Scorer", made)

    @property
    def fingerprint(self) -> str:
        """That of the judge."""
        return self._scorer.fingerprint

    def relevance(self, query: str, texts: Sequence[str]) -> list[float]:
        """The judge's relevance of each text, in [0, 1]."""
        passages = [Passage(str(place), text) for place, text in enumerate(texts)]
        return [seen.value for seen in self._scorer.read(query).relevance(query, passages)]


def rerank(reranker: Reranker, k: int | None = None, *, depth: int = 50) -> Stage:
    """The stage that orders the first `depth` hits by what a reranker says, and keeps `k` of them.

    Scores become the reranker's. Hits beyond `depth` follow in their order with the lowest of them, unless `k` leaves
    them out; equal hits keep their order. A reranker that fails leaves the order as it was, and a note says so.

    >>> from ragfault.records import Chunk
    >>> hits = (Chunk(id="dogs", text="Dogs need a lead."), Chunk(id="ferry", text="The ferry leaves at ten."))
    >>> [hit.id for hit in rerank(Judging("lexical"))(Query(text="When does the ferry leave?"), hits).hits]
    ['ferry', 'dogs']
    """
    if depth < 1 or (k is not None and k < 1):
        raise UsageError(f"depth and k are at least 1, got depth={depth}, k={k}.")

    def stage(query: Query, hits: Hits) -> Found:
        if not hits:
            return Found(query, hits)
        head = hits[:depth]
        try:
            scores = list(reranker.relevance(query.text, [hit.text for hit in head]))
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - the door to services: hits in their old order are still hits
            note = f"reranking failed, the order is as it was: {type(error).__name__}: {error}"
            return Found(query.failing(note), hits[:k])
        if len(scores) != len(head):
            raise UsageError(
                f"the reranker {reranker.fingerprint} returned {len(scores)} scores for {len(head)} texts."
            )
        if not all(map(math.isfinite, scores)):
            raise UsageError(
                f"the reranker {reranker.fingerprint} returned a score that is no finite number."
            )
        ordered = sorted(zip(scores, head, strict=True), key=lambda pair: -pair[0])
        made = [replace(hit, score=float(score)) for score, hit in ordered]
        rest = [replace(hit, score=float(min(scores))) for hit in hits[depth:]]
        return Found(query, tuple(made + rest)[:k])

    return stage
