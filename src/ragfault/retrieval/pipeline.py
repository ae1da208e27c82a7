"""The pipeline: a left fold of stages, whose outcome is a trace."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast

from ragfault.errors import RagfaultError, StageFailed, UnknownName, UsageError
from ragfault.records import Latency, Timing, Trace
from ragfault.retrieval.records import Found, Hits, Query, Stage

__all__ = ["Pipeline"]


class Pipeline:
    """Stages by name, run one after the other; what one returns, the next one takes.

    >>> from ragfault.records import Chunk
    >>> def everything(query, hits):
    ...     return Found(query, (Chunk(id="a", text="The last ferry leaves at 22:40."), Chunk(id="b", text="Fares")))
    >>> def first(query, hits):
    ...     return Found(query, hits[:1])
    >>> pipeline = Pipeline({"retrieve": everything, "select": first})
    >>> trace = pipeline("When does the last ferry leave?")
    >>> [chunk.id for chunk in trace.chunks], [(timing.name, timing.chunks) for timing in trace.timings]
    (['a'], [('retrieve', 2), ('select', 1)])
    >>> [chunk.id for chunk in pipeline.without("select")("When?").chunks]
    ['a', 'b']
    """

    def __init__(self, stages: Mapping[str, Stage]) -> None:
        if not stages:
            raise UsageError("a pipeline has no stage. Give at least one that retrieves.")
        self.stages = dict(stages)

    def __call__(self, query: str | Query, id: str | None = None) -> Trace:
        """The trace of one query: what was found, and how long each stage took.

        Raises StageFailed where a stage does.
        """
        asked = query if isinstance(query, Query) else Query(text=query)
        found, timings, begin = Found(asked), [], time.perf_counter()
        for name, stage in self.stages.items():
            start = time.perf_counter()
            found = _run(name, stage, found)
            end = time.perf_counter()
            timings.append(
                Timing(
                    name=name,
                    start=1000 * (start - begin),
                    took=1000 * (end - start),
                    chunks=len(found.hits),
                )
            )
        return Trace(
            id=asked.text if id is None else id,
            query=asked.text,
            chunks=found.hits,
            route=found.query.route,
            time=asked.time,
            latency=Latency(retrieval=1000 * (time.perf_counter() - begin)),
            timings=tuple(timings),
            metadata={"notes": list(found.query.notes)} if found.query.notes else {},
        )

    def without(self, *names: str) -> Pipeline:
        """The same pipeline with some stages left out: an ablation.

        Raises UnknownName for a stage that it has not.
        """
        for name in names:
            if name not in self.stages:
                raise UnknownName("stage of the pipeline", name, self.stages)
        return Pipeline({name: stage for name, stage in self.stages.items() if name not in names})


def _run(name: str, stage: Stage, found: Found) -> Found:
    """One stage; whatever goes wrong in it is named by its name."""
    try:
        made = cast(object, stage(found.query, found.hits))
    except RagfaultError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise StageFailed(
            f'the stage "{name}" failed on the query "{found.query.text[:80]}": {reason}'
        ) from error
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Query):
        query, hits = made
        return Found(query, cast(Hits, tuple(hits)))
    raise StageFailed(f'the stage "{name}" returned {type(made).__name__}, not Found(query, hits).')
