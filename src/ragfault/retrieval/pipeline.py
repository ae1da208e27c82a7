"""The retrieval pipeline: the query and hits that its stages pass on, and the fold that runs them into a trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from ragfault.model.errors import RagfaultError, StageFailed, UnknownName, UsageError
from ragfault.model.records import Chunk, Latency, Step, Trace

Hits = tuple[Chunk, ...]
"""Chunks in the order of their rank, the best first, each with the `score` that the last stage gave it."""


class FilterCondition(Struct, frozen=True):
    """Condition on the metadata of a chunk."""

    field: str
    """A key of the metadata, or "document" or "kind"."""
    test: Literal["is", "in", "from", "to", "holds"]
    """Equal to the value; one of the values; at least; at most (numbers and ISO dates); a list that holds the value."""
    value: Any
    inferred: bool = False
    """True if it was inferred from the query, False if it was given."""


class Query(Struct, frozen=True, kw_only=True):
    """A query as it is searched for."""

    text: str
    """The query of the user."""
    variants: tuple[str, ...] = ()
    """Texts to search for instead: rewritten, expanded, or parts of the query; empty: the text itself."""
    conditions: tuple[FilterCondition, ...] = ()
    """Conditions on chunks, applied before the search."""
    route: str | None = None
    """Route that a router chose."""
    user: tuple[str, ...] | None = None
    """The groups of the user, for permissions; None: the user may read everything."""
    time: datetime | None = None
    """Time of the query; chunks that are not valid then are not found."""
    earlier: tuple[str, ...] = ()
    """Questions that the user asked before in the conversation, the oldest first."""
    notes: tuple[str, ...] = ()
    """Notes of the stages, which go into the trace: no chunk meets the conditions, a rewrite failed."""

    failures: tuple[str, ...] = ()
    """The notes of stages that failed, each of which returned its input unchanged."""

    def with_failure(self, note: str) -> Query:
        """Return the query with a note that a stage failed.

        >>> Query(text="?").with_failure("no answer").notes
        ('no answer',)
        """
        return replace(self, notes=(*self.notes, note), failures=(*self.failures, note))

    @property
    def search_texts(self) -> tuple[str, ...]:
        """The texts to search for: the variants, else the text."""
        return self.variants or (self.text,)


class StageResult(NamedTuple):
    """The output of a stage, and the input of the next."""

    query: Query
    hits: Hits = ()


Stage = Callable[[Query, Hits], StageResult]
"""A step of a pipeline: a plain callable that takes the query and what was found so far, and returns both."""


class Pipeline:
    """Stages by name, run one after the other; what one returns, the next one takes.

    Raises UsageError where there is no stage.

    >>> from ragfault.model.records import Chunk
    >>> def everything(query, hits):
    ...     return StageResult(query, (Chunk(id="a", text="The last ferry leaves."), Chunk(id="b", text="Fares")))
    >>> def first(query, hits):
    ...     return StageResult(query, hits[:1])
    >>> pipeline = Pipeline({"retrieve": everything, "select": first})
    >>> trace = pipeline("When does the last ferry leave?")
    >>> [chunk.id for chunk in trace.chunks], [(step.name, step.chunks) for step in trace.steps]
    (['a'], [('retrieve', ('a', 'b')), ('select', ('a',))])
    >>> [chunk.id for chunk in pipeline.without("select")("When?").chunks]
    ['a', 'b']
    """

    def __init__(self, stages: Mapping[str, Stage], answer: Callable[[Trace], Trace] | None = None) -> None:
        if not stages:
            raise UsageError("a pipeline has no stage. Give at least one that retrieves.")
        self.stages, self.answer = dict(stages), answer

    def __call__(self, query: str | Query, id: str | None = None) -> Trace:
        """Run the stages on a query; return the trace with their hits and durations.

        Raises StageFailed where a stage does.
        """
        request = query if isinstance(query, Query) else Query(text=query)
        state, steps, begin = StageResult(request), [], time.perf_counter()
        for name, stage in self.stages.items():
            start = time.perf_counter()
            state = _run_stage(name, stage, state)
            end = time.perf_counter()
            steps.append(
                Step(
                    id=name,
                    name=name,
                    start=1000 * (start - begin),
                    duration=1000 * (end - start),
                    chunks=tuple(chunk.id for chunk in state.hits),
                )
            )
        trace = Trace(
            id=request.text if id is None else id,
            query=request.text,
            chunks=state.hits,
            route=state.query.route,
            time=request.time,
            latency=Latency(retrieval=1000 * (time.perf_counter() - begin)),
            steps=tuple(steps),
            metadata={"notes": list(state.query.notes)} if state.query.notes else {},
        )
        return trace if self.answer is None else self.answer(trace)

    def without(self, *names: str) -> Pipeline:
        """Return the same pipeline without some stages: an ablation.

        Raises UnknownName for a stage that it has not.
        """
        for name in names:
            if name not in self.stages:
                raise UnknownName("stage of the pipeline", name, self.stages)
        return Pipeline({name: stage for name, stage in self.stages.items() if name not in names}, self.answer)


def _run_stage(name: str, stage: Stage, state: StageResult) -> StageResult:
    """Run one stage; its name is part of any error."""
    try:
        result = cast(object, stage(state.query, state.hits))
    except RagfaultError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise StageFailed(f'the stage "{name}" failed on the query "{state.query.text[:80]}": {reason}') from error
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Query):
        query, hits = result
        return StageResult(query, cast(Hits, tuple(hits)))
    raise StageFailed(f'the stage "{name}" returned {type(result).__name__}, not Found(query, hits).')
