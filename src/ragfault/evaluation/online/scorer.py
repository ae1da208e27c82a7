"""Score one response: convert retrieved objects to chunks, judge the trace, compute the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ragfault import judges
from ragfault.errors import UsageError
from ragfault.io.field_values import make_content_id
from ragfault.judges.observation import observe_traces
from ragfault.metrics import Metric, compute_score, select_metrics
from ragfault.protocols import Judge
from ragfault.records import Chunk, Score, Trace, Verdicts

TEXT_KEYS = ("text", "content", "page_content")
METADATA_TYPES = (str, int, float, bool, type(None))


def to_chunks(retrieved: Iterable[Any]) -> tuple[Chunk, ...]:
    """Convert the result of a retriever to chunks.

    Texts, mappings, documents of LangChain or Haystack, nodes of LlamaIndex.

    A chunk without an id gets one from its text. Raises UsageError for an item without text.

    >>> [(chunk.id, chunk.text) for chunk in to_chunks([{"id": "a", "text": "At ten."}])]
    [('a', 'At ten.')]
    """
    if isinstance(retrieved, (str, Mapping)):
        raise UsageError("a retriever returns several chunks, in a list; got one by itself.")
    return tuple(map(_to_chunk, retrieved))


def _to_chunk(item: Any) -> Chunk:
    if isinstance(item, Chunk):
        return item
    if isinstance(item, str):
        return Chunk(id=make_content_id(item), text=item)
    if isinstance(item, Mapping):
        text = next((item[name] for name in TEXT_KEYS if isinstance(item.get(name), str)), None)
        return _build_chunk(item.get("id"), text, item.get("score"), item.get("metadata"), item)
    node, score = getattr(item, "node", item), getattr(item, "score", None)
    text = getattr(node, "page_content", None)
    if text is None:
        text = node.get_content() if hasattr(node, "get_content") else getattr(node, "content", None)
    name = getattr(node, "node_id", None) or getattr(node, "id", None)
    metadata = getattr(node, "metadata", None) or getattr(node, "meta", None)
    return _build_chunk(name, text, score, metadata if isinstance(metadata, Mapping) else None, item)


def _build_chunk(name: Any, text: Any, score: Any, metadata: Any, item: Any) -> Chunk:
    """Build a chunk from its parts, with the metadata that JSON can represent."""
    if not isinstance(text, str):
        raise UsageError(f"a retriever returned {type(item).__name__}, which holds no text that is known of.")
    plain_metadata = {
        str(key): value for key, value in (metadata or {}).items() if isinstance(value, METADATA_TYPES)
    }
    score = plain_metadata.get("score") if score is None else score
    return Chunk(
        id=str(name) if name else make_content_id(text),
        text=text,
        score=float(score) if isinstance(score, (int, float)) else None,
        metadata=plain_metadata,
    )


class ScoredTrace(Struct, frozen=True):
    """A trace with its verdicts and scores."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]

    @property
    def values(self) -> dict[str, float]:
        """Metric → value, without undefined ones."""
        return {score.metric: score.value for score in self.scores if score.value is not None}


class TraceScorer:
    """A judge and metrics, ready to score traces."""

    def __init__(
        self,
        judge: str | Judge = judges.DEFAULT_JUDGE,
        profile: str = "general",
        metrics: str | Sequence[str] = "default",
    ) -> None:
        self.metrics: tuple[Metric, ...] = select_metrics(metrics)
        loaded = judges.load_judge(judge, profile=profile) if isinstance(judge, str) else judge
        self.judge = loaded if isinstance(judge, str) else judges.apply_profile(loaded, profile)

    def __call__(self, trace: Trace) -> ScoredTrace:
        """Score a trace; a failure of the judge gives `failed` scores."""
        [verdicts] = observe_traces(self.judge, [trace])
        return ScoredTrace(
            trace, verdicts, tuple(compute_score(metric, trace, verdicts) for metric in self.metrics)
        )


@lru_cache(maxsize=8)
def _load_scorer(judge: str, profile: str, metrics: str | tuple[str, ...]) -> TraceScorer:
    """Load the scorer of a combination, once: judges are slow to load."""
    return TraceScorer(judge, profile, metrics)


def score_response(
    query: str,
    chunks: Iterable[Any],
    answer: str | None = None,
    *,
    judge: str | Judge = judges.DEFAULT_JUDGE,
    profile: str = "general",
    metrics: str | Sequence[str] = "default",
    **fields: Any,
) -> ScoredTrace:
    """Score one response at once.

    Chunks are texts, `Chunk`s, mappings with a text, documents of LangChain or nodes of LlamaIndex. `fields`
    are further fields of the trace (citations, reference, model, …). Raises UsageError for an item that is no
    chunk, UnknownName for an unknown judge, domain profile or metric.

    >>> chunks = ["The harbour office opens at 7:30 on weekdays."]
    >>> scored = score_response("When does the office open?", chunks, "It opens at 7:30 on weekdays.")
    >>> scored.values["groundedness"], scored.verdicts.claim[0].support
    (1.0, 'supported')
    """
    values = {"id": make_content_id(query + (answer or "")), **fields}
    trace = Trace(query=query, chunks=to_chunks(chunks), answer=answer, **values)
    if isinstance(judge, str):
        metric_names = metrics if isinstance(metrics, str) else tuple(metrics)
        return _load_scorer(judge, profile, metric_names)(trace)
    return TraceScorer(judge, profile, metrics)(trace)
