"""The measured retriever: a retriever as it was, whose retrievals are scored in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar
from uuid import uuid4

from ragfault.errors import UsageError
from ragfault.online.background import Background
from ragfault.online.passages import chunks_of
from ragfault.records import Latency, Timing, Trace

__all__ = ["MeasuredRetriever", "failed", "submit"]

Found = TypeVar("Found", bound=Iterable[Any])


class MeasuredRetriever(Generic[Found]):
    """A callable that takes a query and returns what the retriever found, unchanged, at once.

    What it found is scored by the background: relevance, ranking, redundancy and whatever metrics it was told. For
    LangChain and LlamaIndex, whose chains want their own class, see `ragfault.plugins.langchain` and `.llamaindex`.

    >>> found = []
    >>> with Background(found.append, judge="lexical", metrics=["context_relevance"]) as background:
    ...     retriever = MeasuredRetriever(lambda query: ["The ferry leaves at ten."], background)
    ...     retriever("When does the ferry leave?")
    ['The ferry leaves at ten.']
    >>> found[0].trace.query, found[0].values
    ('When does the ferry leave?', {'context_relevance': 1.0})
    """

    def __init__(
        self, retriever: Callable[[str], Found], background: Background, *, route: str | None = None
    ) -> None:
        self._retriever, self._background, self._route = retriever, background, route

    def __call__(self, query: str) -> Found:
        """What the retriever finds; what it raises is raised, and scored as an error."""
        begin = time.perf_counter()
        try:
            found = self._retriever(query)
        except Exception as error:
            self._background.submit(failed(query, error, begin, self._route))
            raise
        submit(self._background, query, found, begin, self._route)
        return found


def submit(
    background: Background, query: str, found: Iterable[Any], begin: float, route: str | None = None
) -> None:
    """Submit a retrieval that began at a reading of `time.perf_counter`; what holds no chunks is passed over."""
    took = 1000 * (time.perf_counter() - begin)
    try:
        if not isinstance(found, Sequence):
            raise UsageError(f"a retriever returned {type(found).__name__}, which is no list of chunks.")
        chunks = chunks_of(found)
    except Exception as error:  # noqa: BLE001 - whatever a retriever returned, its caller has it and goes on
        background.pass_over(error)
        return
    trace = Trace(
        id=uuid4().hex,
        query=query,
        chunks=chunks,
        route=route,
        latency=Latency(retrieval=took),
        timings=(Timing(name="retrieve", took=took, chunks=len(chunks)),),
    )
    background.submit(trace)


def failed(query: str, error: Exception, begin: float, route: str | None = None) -> Trace:
    """The trace of a retrieval that raised an error."""
    return Trace(
        id=uuid4().hex,
        query=query,
        route=route,
        error=f"{type(error).__name__}: {error}",
        latency=Latency(retrieval=1000 * (time.perf_counter() - begin)),
    )
