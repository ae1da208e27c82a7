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
    """The chunks that a retriever returned: texts, mappings, documents of LangChain or Haystack, nodes of LlamaIndex.

    An id is the one that a chunk has, else made from its text. Raises UsageError for what holds no text.

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
    held = getattr(node, "metadata", None) or getattr(node, "meta", None)
    return _build_chunk(name, text, score, held if isinstance(held, Mapping) else None, item)


def _build_chunk(name: Any, text: Any, score: Any, metadata: Any, item: Any) -> Chunk:
    """A chunk of the parts that were found; of the metadata what JSON can hold."""
    if not isinstance(text, str):
        raise UsageError(f"a retriever returned {type(item).__name__}, which holds no text that is known of.")
    held = {str(key): value for key, value in (metadata or {}).items() if isinstance(value, METADATA_TYPES)}
    score = held.get("score") if score is None else score
    return Chunk(
        id=str(name) if name else make_content_id(text),
        text=text,
        score=float(score) if isinstance(score, (int, float)) else None,
        metadata=held,
    )


class ScoredTrace(Struct, frozen=True):
    """A trace with what a judge saw in it, and what metrics made of that."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]

    @property
    def values(self) -> dict[str, float]:
        """Metric → value, of those that have one."""
        return {one.metric: one.value for one in self.scores if one.value is not None}


class TraceScorer:
    """A judge and metrics, ready to score traces."""

    def __init__(
        self,
        judge: str | Judge = judges.DEFAULT_JUDGE,
        profile: str = "general",
        metrics: str | Sequence[str] = "default",
    ) -> None:
        self.metrics: tuple[Metric, ...] = select_metrics(metrics)
        made = judges.load_judge(judge, profile=profile) if isinstance(judge, str) else judge
        self.judge = made if isinstance(judge, str) else judges.apply_profile(made, profile)

    def __call__(self, trace: Trace) -> ScoredTrace:
        """The scores of a trace; what a judge fails on is in them as `failed`."""
        [seen] = observe_traces(self.judge, [trace])
        return ScoredTrace(trace, seen, tuple(compute_score(metric, trace, seen) for metric in self.metrics))


@lru_cache(maxsize=8)
def _load_scorer(judge: str, profile: str, metrics: str | tuple[str, ...]) -> TraceScorer:
    """Made once for each combination: judges take a moment to load."""
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
    """The scores of one response, at once.

    Chunks are texts, `Chunk`s, mappings with a text, documents of LangChain or nodes of LlamaIndex. `more` are further
    fields of the trace (citations, reference, model, …). Raises UsageError for what is no chunk, UnknownName for a
    judge, lens or metric that does not exist.

    >>> chunks = ["The harbour office opens at 7:30 on weekdays."]
    >>> found = score_response("When does the office open?", chunks, "It opens at 7:30 on weekdays.")
    >>> found.values["groundedness"], found.verdicts.claim[0].support
    (1.0, 'supported')
    """
    named = {"id": make_content_id(query + (answer or "")), **fields}
    trace = Trace(query=query, chunks=to_chunks(chunks), answer=answer, **named)
    if isinstance(judge, str):
        wanted = metrics if isinstance(metrics, str) else tuple(metrics)
        return _load_scorer(judge, profile, wanted)(trace)
    return TraceScorer(judge, profile, metrics)(trace)
