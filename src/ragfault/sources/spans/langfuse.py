"""Langfuse: traces and observations as its API, its UI and its exports to a bucket write them, as operations.

Names come in camelCase (API, UI) and in snake_case (bucket); a trace may hold its observations, or they stand in
rows of their own, which are joined by the trace that they name. Inputs and outputs are values, or texts of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ragfault.sources.spans.contents import opened, unquoted
from ragfault.sources.spans.foreign import nanoseconds
from ragfault.sources.spans.operation import Event, Operation
from ragfault.sources.values import Wrong

__all__ = ["observed"]

TRACE = {
    "langfuse.trace.input": ("input",),
    "langfuse.trace.output": ("output",),
    "langfuse.trace.metadata": ("metadata",),
}
"""What only the row of a trace says."""

AROUND = {
    "langfuse.trace.name": ("traceName", "trace_name"),
    "session.id": ("sessionId", "session_id"),
    "user.id": ("userId", "user_id"),
    "langfuse.trace.tags": ("tags",),
    "langfuse.release": ("release",),
    "langfuse.version": ("version",),
    "langfuse.environment": ("environment",),
}
"""What the row of a trace says, and that of an observation where the export puts it there."""

OBSERVATION = {
    "langfuse.observation.input": ("input",),
    "langfuse.observation.output": ("output",),
    "langfuse.observation.metadata": ("metadata",),
    "langfuse.observation.model.name": ("model", "providedModelName", "provided_model_name"),
    "langfuse.observation.usage_details": ("usageDetails", "usage_details", "usage"),
    "langfuse.observation.level": ("level",),
    "langfuse.observation.status_message": ("statusMessage", "status_message"),
    "langfuse.observation.prompt.name": ("promptName", "prompt_name"),
    "langfuse.observation.prompt.version": ("promptVersion", "prompt_version"),
}

RETRIEVES = re.compile(r"retriev|search|rerank", re.IGNORECASE)
"""The name of a plain span that does what Langfuse has a type for since its third version."""

RATING = {
    "gen_ai.evaluation.name": ("name",),
    "gen_ai.evaluation.score.value": ("value",),
    "gen_ai.evaluation.score.label": ("stringValue", "string_value"),
    "gen_ai.evaluation.explanation": ("comment",),
}


def observed(record: dict[str, Any]) -> tuple[Operation, ...]:
    """The operations that a trace with its observations, or the row of either, stands for; raises `Wrong` without ids.

    >>> made = observed({"id": "t", "timestamp": "2026-01-01T00:00:00Z", "input": "When?", "observations": []})
    >>> made[0].trace, made[0].attributes["langfuse.trace.input"]
    ('t', 'When?')
    """
    inner = opened(record.get("observations"))
    if isinstance(trace := opened(record.get("trace")), dict):
        record = {**trace, "scores": record.get("scores") or trace.get("scores")}
    if _first(record, ("traceId", "trace_id")) is not None:
        return (_observation(record, None),)
    name = _first(record, ("id",))
    if name is None:
        raise Wrong("a trace of Langfuse without id")
    found = _parts(inner, str(name))
    return (_trace(record, str(name), found), *found)


def _parts(inner: Any, trace: str) -> list[Operation]:
    rows = inner if isinstance(inner, list) else []
    return [_observation(row, trace) for row in rows if isinstance(row, dict)]


def _trace(record: dict[str, Any], name: str, inner: list[Operation]) -> Operation:
    start = nanoseconds(record.get("timestamp"))
    begun = [one.start for one in inner if one.start]
    start = min([start, *begun]) if start else min(begun, default=0)
    took = int(_seconds(record.get("latency")) * 1e9)
    attributes = _taken(record, {**TRACE, **AROUND})
    if _first(record, ("name",)) is not None:
        attributes["langfuse.trace.name"] = str(record["name"])
    return Operation(
        trace=name,
        id=name,
        name=str(record.get("name") or ""),
        start=start,
        end=max([start + took, *(one.end for one in inner)]) if start else 0,
        attributes=attributes,
        events=tuple(_ratings(record, start)),
    )


def _observation(record: dict[str, Any], trace: str | None) -> Operation:
    name, trace = _first(record, ("id",)), _first(record, ("traceId", "trace_id")) or trace
    if name is None or trace is None:
        raise Wrong(
            "an observation of Langfuse without id" if name is None else "an observation without traceId"
        )
    start = nanoseconds(_first(record, ("startTime", "start_time")))
    end = nanoseconds(_first(record, ("endTime", "end_time")))
    attributes = _taken(record, {**OBSERVATION, **AROUND})
    attributes["langfuse.observation.type"] = _kind(record, attributes)
    failed = attributes.get("langfuse.observation.level") == "ERROR"
    return Operation(
        trace=str(trace),
        id=str(name),
        parent=str(_first(record, ("parentObservationId", "parent_observation_id")) or trace),
        name=str(record.get("name") or ""),
        start=start,
        end=end or start,
        status="error" if failed else "unset",
        attributes=attributes,
    )


def _kind(record: dict[str, Any], attributes: dict[str, Any]) -> str:
    """Its type; a plain span whose name says that it retrieves, and which gave a list, is a retriever."""
    kind = str(record.get("type") or "span").lower()
    given = opened(attributes.get("langfuse.observation.output"))
    held = isinstance(given, list) or (isinstance(given, dict) and "documents" in given)
    return (
        "retriever" if kind == "span" and held and RETRIEVES.search(str(record.get("name") or "")) else kind
    )


def _ratings(record: dict[str, Any], time: int) -> Iterator[Event]:
    scores = opened(record.get("scores"))
    for score in scores if isinstance(scores, list) else ():
        if isinstance(score, dict) and (held := _taken(score, RATING)):
            yield Event(name="gen_ai.evaluation.result", time=time, attributes=held)


def _taken(record: dict[str, Any], names: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Attribute → value, of those that are there; texts of JSON that are mere texts lose their quotes."""
    found = {attribute: _first(record, columns) for attribute, columns in names.items()}
    return {
        attribute: unquoted(value) for attribute, value in found.items() if value not in (None, "", [], {})
    }


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _seconds(value: Any) -> float:
    """A time that a trace took; none where it is not to be read."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if 0 <= found < 1e9 else 0.0
