"""Observations: what a judged trace, or a whole run, adds to what is watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC

import msgspec
from msgspec.structs import replace

from ragfault.errors import UnknownName, UsageError
from ragfault.findings.monitoring_rollups import Observation
from ragfault.findings.tree import DEPTH
from ragfault.records import Score, Trace, Verdicts
from ragfault.runs import Measure, Run

__all__ = ["DERIVED", "FIELDS", "cohorts", "measures", "observations", "observe"]

FIELDS = ("route", "model", "release", "prompt_version")
"""What traffic is divided by under a name of its own; anything else is metadata.KEY. `release` and `prompt_version`
are keys of the metadata."""

FIRST = 3
"""Over how many chunks the relevance at equal depth is taken: the first so many, however long the list is."""

WEIGHTS = {"high": 1.0, "medium": 0.7, "low": 0.3, "none": 0.0}
"""The weights of context_relevance, for the same at equal depth."""

DERIVED: tuple[Measure, ...] = (
    Measure("relevance", "retrieval"),
    Measure("usage", "retrieval"),
    Measure("missing", "retrieval", "lower"),
    Measure(DEPTH, "retrieval"),
    Measure("depth", "operation", "lower", 0.0, None),
)
"""What is watched beside the metrics of the scores: the figures of RAG health (`usage` counts chunks), relevance over
the first three chunks, and chunks per trace."""


def measures(runs: Iterable[Run]) -> tuple[Measure, ...]:
    """The metrics of some runs, and what is derived, each once."""
    found = {measure.name: measure for run in runs for measure in run.manifest.metrics}
    return (*found.values(), *DERIVED)


def observations(
    trace: Trace, verdicts: Verdicts | None, scores: Iterable[Score], by: Sequence[str] = ()
) -> Iterator[Observation]:
    """What one judged trace adds; nothing where it has no time.

    Every score; of the verdicts the figures of `DERIVED`, those of chunks also by the chunk's position and by the
    number of chunks. `by` names the fields whose values are cohorts.

    >>> from datetime import datetime
    >>> one = Trace(id="a", query="q", route="web", time=datetime(1970, 1, 1, 0, 2, tzinfo=UTC))
    >>> two = Score(trace="a", metric="triad", layer="crosscut", status="scored", value=0.5)
    >>> [(each.metric, each.time, each.value, each.route) for each in observations(one, None, [two])]
    [('triad', 120.0, 0.5, 'web')]
    """
    if trace.time is None:
        return
    moment = trace.time if trace.time.tzinfo else trace.time.replace(tzinfo=UTC)
    seconds, groups = moment.timestamp(), cohorts(trace, by)
    for score in scores:
        yield Observation(
            metric=score.metric,
            trace=trace.id,
            time=seconds,
            status=score.status,
            value=score.value,
            route=trace.route,
            cohorts=groups,
        )
    for metric, value, own in _derived(trace, verdicts):
        yield Observation(
            metric=metric,
            trace=trace.id,
            time=seconds,
            value=value,
            route=trace.route,
            cohorts=own if own else groups,
            whole=not own or metric == "usage",
        )


def cohorts(trace: Trace, by: Sequence[str]) -> tuple[str, ...]:
    """The cohorts of a trace by some fields: "release=7"; those it has no value for are left out."""
    found = []
    for field in by:
        if field in ("route", "model"):
            value = getattr(trace, field)
        else:
            value = trace.metadata.get(field.removeprefix("metadata."))
        if value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            found.append(f"{field}={text}")
    return tuple(found)


def _derived(trace: Trace, verdicts: Verdicts | None) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Metric, value and cohorts of its own of what is derived."""
    size = None if trace.chunks is None else len(trace.chunks)
    count = f"chunks={_bucket(size)}" if size else None
    if size is not None:
        yield "depth", float(size), ()
        if count:
            yield "depth", float(size), (count,)
    if verdicts is None:
        return
    if verdicts.missing is not None:
        yield "missing", float(bool(verdicts.missing)), ()
    if verdicts.chunk:
        found = [WEIGHTS[chunk.level] for chunk in verdicts.chunk]
        yield "relevance", sum(chunk.relevance for chunk in verdicts.chunk) / len(found), ()
        yield DEPTH, sum(found[:FIRST]) / len(found[:FIRST]), ()
    for metric, values in (
        ("relevance", [chunk.relevance for chunk in verdicts.chunk or ()]),
        ("usage", [float(use.used) for use in verdicts.use or ()]),
    ):
        if len(values) == size and count:
            for at, value in enumerate(values, start=1):
                yield metric, value, (f"position={at if at <= 10 else '11+'}", count)


def _bucket(size: int) -> str:
    return "1–3" if size <= 3 else "4–6" if size <= 6 else "7–10" if size <= 10 else "11+"


def observe(runs: Iterable[Run], by: Sequence[str] = ("route",)) -> list[Observation]:
    """What all timed traces of some runs add, in the order of time.

    Routes are told apart where `by` names route; its other fields are those of cohorts.

    Raises UnknownName for a field that does not exist, UsageError where no trace has a time.
    """
    for field in by:
        if field not in FIELDS and not field.startswith("metadata."):
            raise UnknownName("field to divide by", field, [*FIELDS, "metadata.KEY"])
    found: list[Observation] = []
    names, rest = [], [field for field in by if field != "route"]
    for run in runs:
        names.append(str(run.path))
        size = len(run.manifest.metrics)
        scores = run.scores()
        for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
            told = trace if "route" in by else replace(trace, route=None)
            found += observations(told, verdicts, [next(scores) for _ in range(size)], rest)
    if not found:
        raise UsageError(
            f"no trace of {', '.join(names)} has a time: there is nothing to watch. Give each trace its `time`."
        )
    found.sort(key=lambda each: each.time)
    return found
