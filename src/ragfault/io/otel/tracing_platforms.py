"""Exports of tracing platforms as spans: traces of Langfuse and runs of LangSmith.

Names come in camelCase (API, UI) and in snake_case (bucket); a trace may hold its observations, or they stand in
rows of their own, which are joined by the trace that they name. Inputs and outputs are values, or texts of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ragfault.io.field_values import InvalidRecord
from ragfault.io.otel.exported_spans import parse_nanoseconds
from ragfault.io.otel.recorded_content import parse_embedded_json, unquote_json
from ragfault.io.otel.spans import OtelSpan, SpanEvent

LANGFUSE_TRACE_COLUMNS = {
    "langfuse.trace.input": ("input",),
    "langfuse.trace.output": ("output",),
    "langfuse.trace.metadata": ("metadata",),
}
"""What only the row of a trace says."""

LANGFUSE_CONTEXT_COLUMNS = {
    "langfuse.trace.name": ("traceName", "trace_name"),
    "session.id": ("sessionId", "session_id"),
    "user.id": ("userId", "user_id"),
    "langfuse.trace.tags": ("tags",),
    "langfuse.release": ("release",),
    "langfuse.version": ("version",),
    "langfuse.environment": ("environment",),
}
"""What the row of a trace says, and that of an observation where the export puts it there."""

LANGFUSE_OBSERVATION_COLUMNS = {
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

RETRIEVAL_NAME = re.compile(r"retriev|search|rerank", re.IGNORECASE)
"""The name of a plain span that does what Langfuse has a type for since its third version."""

LANGFUSE_SCORE_COLUMNS = {
    "gen_ai.evaluation.name": ("name",),
    "gen_ai.evaluation.score.value": ("value",),
    "gen_ai.evaluation.score.label": ("stringValue", "string_value"),
    "gen_ai.evaluation.explanation": ("comment",),
}


def read_langfuse_record(record: dict[str, Any]) -> tuple[OtelSpan, ...]:
    """The operations that a trace with its observations, or the row of either, stands for; raises `Wrong` without ids.

    >>> made = read_langfuse_record({"id": "t", "timestamp": "2026-01-01T00:00:00Z", "input": "When?", "observations": []})
    >>> made[0].trace, made[0].attributes["langfuse.trace.input"]
    ('t', 'When?')
    """
    inner = parse_embedded_json(record.get("observations"))
    if isinstance(trace := parse_embedded_json(record.get("trace")), dict):
        record = {**trace, "scores": record.get("scores") or trace.get("scores")}
    if _get_first_column(record, ("traceId", "trace_id")) is not None:
        return (_build_observation(record, None),)
    name = _get_first_column(record, ("id",))
    if name is None:
        raise InvalidRecord("a trace of Langfuse without id")
    found = _read_observations(inner, str(name))
    return (_build_langfuse_trace(record, str(name), found), *found)


def _read_observations(inner: Any, trace: str) -> list[OtelSpan]:
    rows = inner if isinstance(inner, list) else []
    return [_build_observation(row, trace) for row in rows if isinstance(row, dict)]


def _build_langfuse_trace(record: dict[str, Any], name: str, inner: list[OtelSpan]) -> OtelSpan:
    start = parse_nanoseconds(record.get("timestamp"))
    begun = [one.start for one in inner if one.start]
    start = min([start, *begun]) if start else min(begun, default=0)
    took = int(_parse_seconds(record.get("latency")) * 1e9)
    attributes = _map_columns(record, {**LANGFUSE_TRACE_COLUMNS, **LANGFUSE_CONTEXT_COLUMNS})
    if _get_first_column(record, ("name",)) is not None:
        attributes["langfuse.trace.name"] = str(record["name"])
    return OtelSpan(
        trace=name,
        id=name,
        name=str(record.get("name") or ""),
        start=start,
        end=max([start + took, *(one.end for one in inner)]) if start else 0,
        attributes=attributes,
        events=tuple(_iterate_ratings(record, start)),
    )


def _build_observation(record: dict[str, Any], trace: str | None) -> OtelSpan:
    name, trace = (
        _get_first_column(record, ("id",)),
        _get_first_column(record, ("traceId", "trace_id")) or trace,
    )
    if name is None or trace is None:
        raise InvalidRecord(
            "an observation of Langfuse without id" if name is None else "an observation without traceId"
        )
    start = parse_nanoseconds(_get_first_column(record, ("startTime", "start_time")))
    end = parse_nanoseconds(_get_first_column(record, ("endTime", "end_time")))
    attributes = _map_columns(record, {**LANGFUSE_OBSERVATION_COLUMNS, **LANGFUSE_CONTEXT_COLUMNS})
    attributes["langfuse.observation.type"] = _get_observation_type(record, attributes)
    failed = attributes.get("langfuse.observation.level") == "ERROR"
    return OtelSpan(
        trace=str(trace),
        id=str(name),
        parent=str(_get_first_column(record, ("parentObservationId", "parent_observation_id")) or trace),
        name=str(record.get("name") or ""),
        start=start,
        end=end or start,
        status="error" if failed else "unset",
        attributes=attributes,
    )


def _get_observation_type(record: dict[str, Any], attributes: dict[str, Any]) -> str:
    """Its type; a plain span whose name says that it retrieves, and which gave a list, is a retriever."""
    kind = str(record.get("type") or "span").lower()
    given = parse_embedded_json(attributes.get("langfuse.observation.output"))
    held = isinstance(given, list) or (isinstance(given, dict) and "documents" in given)
    return (
        "retriever"
        if kind == "span" and held and RETRIEVAL_NAME.search(str(record.get("name") or ""))
        else kind
    )


def _iterate_ratings(record: dict[str, Any], time: int) -> Iterator[SpanEvent]:
    scores = parse_embedded_json(record.get("scores"))
    for score in scores if isinstance(scores, list) else ():
        if isinstance(score, dict) and (held := _map_columns(score, LANGFUSE_SCORE_COLUMNS)):
            yield SpanEvent(name="gen_ai.evaluation.result", time=time, attributes=held)


def _map_columns(record: dict[str, Any], names: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Attribute → value, of those that are there; texts of JSON that are mere texts lose their quotes."""
    found = {attribute: _get_first_column(record, columns) for attribute, columns in names.items()}
    return {
        attribute: unquote_json(value)
        for attribute, value in found.items()
        if value not in (None, "", [], {})
    }


def _get_first_column(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _parse_seconds(value: Any) -> float:
    """A time that a trace took; none where it is not to be read."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if 0 <= found < 1e9 else 0.0


LANGSMITH_KINDS = {
    "retriever": "RETRIEVER",
    "llm": "LLM",
    "chat_model": "LLM",
    "embedding": "EMBEDDING",
    "tool": "TOOL",
    "prompt": "PROMPT",
}
"""The type of a run → what it does; whatever else it is, it is a chain."""

THREAD_KEYS = ("session_id", "thread_id", "conversation_id")
LANGCHAIN_PREFIXES = (
    "ls_",
    "langgraph_",
    "checkpoint",
    "lc_",
    "revision_id",
    "runtime",
    "LANGSMITH",
    "LANGCHAIN",
    "__",
)
"""How keys of metadata begin that LangChain writes for itself."""
MAX_RUN_DEPTH = 64
"""How deep runs nest."""


def read_langsmith_run(record: dict[str, Any]) -> tuple[OtelSpan, ...]:
    """The operations that a run and the runs within it stand for; raises `Wrong` for one without an id.

    >>> child = {"id": "b", "run_type": "retriever", "inputs": {"query": "When?"}, "outputs": {"documents": []}}
    >>> [one.parent for one in read_langsmith_run({"id": "a", "run_type": "chain", "child_runs": [child]})]
    [None, 'a']
    """
    return tuple(_iterate_runs(record, None, None, 0))


def _iterate_runs(
    record: dict[str, Any], trace: str | None, parent: str | None, depth: int
) -> Iterator[OtelSpan]:
    name = str(record.get("id") or "")
    if not name:
        raise InvalidRecord("a run of LangSmith without id")
    above = record.get("parent_run_id")
    parent = parent or (str(above) if above else None)
    trace = trace or str(record.get("trace_id") or name)
    yield _build_run_span(record, trace, name, parent)
    inner = parse_embedded_json(record.get("child_runs"))
    for child in inner if isinstance(inner, list) and depth < MAX_RUN_DEPTH else ():
        if isinstance(child, dict):
            yield from _iterate_runs(child, trace, name, depth + 1)


def _build_run_span(record: dict[str, Any], trace: str, name: str, parent: str | None) -> OtelSpan:
    start = parse_nanoseconds(record.get("start_time"))
    error = record.get("error")
    return OtelSpan(
        trace=trace,
        id=name,
        parent=parent,
        name=str(record.get("name") or ""),
        start=start,
        end=parse_nanoseconds(record.get("end_time")) or start,
        status="error" if error else "ok",
        message=_strip_traceback(str(error)) if error else "",
        attributes=_build_run_attributes(record, parent is None),
    )


def _strip_traceback(error: str) -> str:
    """What an error says, without the stack that LangChain puts behind it."""
    return error.split("Traceback (most recent call last)", 1)[0].strip() or error


def _build_run_attributes(record: dict[str, Any], root: bool) -> dict[str, Any]:
    kind = LANGSMITH_KINDS.get(str(record.get("run_type")), "CHAIN")
    inputs, outputs = parse_embedded_json(record.get("inputs")), parse_embedded_json(record.get("outputs"))
    held: dict[str, Any] = {"openinference.span.kind": kind, "input.value": inputs, "output.value": outputs}
    metadata = _get_run_metadata(record)
    if kind == "RETRIEVER" and isinstance(outputs, dict) and isinstance(outputs.get("documents"), list):
        held["gen_ai.retrieval.documents"] = [_unwrap_document(one) for one in outputs["documents"]]
    if kind == "LLM":
        held |= _build_model_attributes(record, inputs, outputs, metadata)
    thread = next((metadata[key] for key in THREAD_KEYS if metadata.get(key)), None)
    if thread is not None:
        held["session.id"] = str(thread)
    if root:
        held["metadata"] = {
            key: part
            for key, part in metadata.items()
            if not key.startswith(LANGCHAIN_PREFIXES) and key not in THREAD_KEYS
        }
        held["tag.tags"] = record.get("tags")
    return {key: value for key, value in held.items() if value not in (None, "", {})}


def _get_run_metadata(record: dict[str, Any]) -> dict[str, Any]:
    extra = parse_embedded_json(record.get("extra"))
    found = parse_embedded_json((extra if isinstance(extra, dict) else record).get("metadata"))
    return found if isinstance(found, dict) else {}


def _unwrap_document(value: Any) -> Any:
    """A document, also where it is written as the call that makes it."""
    return value["kwargs"] if isinstance(value, dict) and isinstance(value.get("kwargs"), dict) else value


# --- calls of models -------------------------------------------------------------------------------


def _build_model_attributes(
    record: dict[str, Any], inputs: Any, outputs: Any, metadata: dict[str, Any]
) -> dict[str, Any]:
    """What a call to a model was given and gave, its model and tokens."""
    given = inputs if isinstance(inputs, dict) else {}
    made = outputs if isinstance(outputs, dict) else {}
    message = _get_first_message(made)
    told = _get_object(message, "response_metadata")
    asked = _get_object(parse_embedded_json(record.get("extra")), "invocation_params")
    usage = _get_usage(record, made, message)
    return {
        "gen_ai.input.messages": given.get("messages"),
        "gen_ai.prompt": "\n".join(map(str, given.get("prompts") or ())),
        "gen_ai.output.messages": made.get("generations") or made.get("choices") or made.get("messages"),
        "gen_ai.response.model": told.get("model_name") or told.get("model") or metadata.get("ls_model_name"),
        "gen_ai.request.model": asked.get("model") or asked.get("model_name"),
        "gen_ai.usage.input_tokens": usage.get("input_tokens") or usage.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens") or usage.get("completion_tokens"),
    }


def _get_usage(record: dict[str, Any], outputs: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """Tokens, from wherever they are counted."""
    whole = _get_object(outputs.get("llm_output"), "token_usage") or _get_object(
        outputs.get("llm_output"), "usage"
    )
    for found in (
        _get_object(message, "usage_metadata"),
        _get_object(outputs, "usage_metadata"),
        whole,
        _get_object(outputs, "usage"),
    ):
        if found:
            return found
    return {key: record.get(key) for key in ("prompt_tokens", "completion_tokens")}


def _get_first_message(outputs: dict[str, Any]) -> dict[str, Any]:
    """The message of the first generation, by its own keys."""
    found: Any = outputs.get("generations")
    while isinstance(found, list) and found:
        found = found[0]
    found = found.get("message", found) if isinstance(found, dict) else {}
    return (
        found["kwargs"]
        if isinstance(found, dict) and isinstance(found.get("kwargs"), dict)
        else dict(found or {})
    )


def _get_object(value: Any, key: str) -> dict[str, Any]:
    found = parse_embedded_json(value.get(key)) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
