"""Scoring one response: query, chunks and answer in, verdicts and scores out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ragfault import judges
from ragfault.judges.observing import observe
from ragfault.metrics import Metric, choose, score
from ragfault.online.passages import chunks_of
from ragfault.ports import Judge
from ragfault.records import Score, Trace, Verdicts
from ragfault.sources.values import content_id

__all__ = ["Scored", "Scoring", "score_response"]


class Scored(Struct, frozen=True):
    """A trace with what a judge saw in it, and what metrics made of that."""

    trace: Trace
    verdicts: Verdicts
    scores: tuple[Score, ...]

    @property
    def values(self) -> dict[str, float]:
        """Metric → value, of those that have one."""
        return {one.metric: one.value for one in self.scores if one.value is not None}


class Scoring:
    """A judge and metrics, ready to score traces."""

    def __init__(
        self,
        judge: str | Judge = judges.DEFAULT,
        lens: str = "general",
        metrics: str | Sequence[str] = "default",
    ) -> None:
        self.metrics: tuple[Metric, ...] = choose(metrics)
        made = judges.load_judge(judge, lens=lens) if isinstance(judge, str) else judge
        self.judge = made if isinstance(judge, str) else judges.through(made, lens)

    def __call__(self, trace: Trace) -> Scored:
        """The scores of a trace; what a judge fails on is in them as `failed`."""
        [seen] = observe(self.judge, [trace])
        return Scored(trace, seen, tuple(score(metric, trace, seen) for metric in self.metrics))


@lru_cache(maxsize=8)
def _scoring(judge: str, lens: str, metrics: str | tuple[str, ...]) -> Scoring:
    """Made once for each combination: judges take a moment to load."""
    return Scoring(judge, lens, metrics)


def score_response(
    query: str,
    chunks: Iterable[Any],
    answer: str | None = None,
    *,
    judge: str | Judge = judges.DEFAULT,
    lens: str = "general",
    metrics: str | Sequence[str] = "default",
    **more: Any,
) -> Scored:
    """The scores of one response, at once.

    Chunks are texts, `Chunk`s, mappings with a text, documents of LangChain or nodes of LlamaIndex. `more` are further
    fields of the trace (citations, reference, model, …). Raises UsageError for what is no chunk, UnknownName for a
    judge, lens or metric that does not exist.

    >>> chunks = ["The harbour office opens at 7:30 on weekdays."]
    >>> found = score_response("When does the office open?", chunks, "It opens at 7:30 on weekdays.")
    >>> found.values["groundedness"], found.verdicts.claim[0].support
    (1.0, 'supported')
    """
    named = {"id": content_id(query + (answer or "")), **more}
    trace = Trace(query=query, chunks=chunks_of(chunks), answer=answer, **named)
    if isinstance(judge, str):
        wanted = metrics if isinstance(metrics, str) else tuple(metrics)
        return _scoring(judge, lens, wanted)(trace)
    return Scoring(judge, lens, metrics)(trace)
