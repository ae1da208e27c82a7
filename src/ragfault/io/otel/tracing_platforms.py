"""Exports of tracing platforms as spans: traces of Langfuse and runs of LangSmith.

Names come in camelCase (API, UI) or snake_case (bucket); observations may be in the trace or in separate rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ragfault.io.field_values import InvalidRecord, to_number
from ragfault.io.formats.paths import parse_embedded
from ragfault.io.otel.exported_spans import parse_nanoseconds
from ragfault.io.otel.recorded_content import unquote_json
from ragfault.io.otel.semantic_conventions import STEP_KIND_ATTRIBUTE, get_first_attribute
from ragfault.io.otel.spans import OtelSpan, SpanEvent, add_events, build_rating

LANGFUSE_TRACE_COLUMNS = {
    "langfuse.trace.input": ("input",),
    "langfuse.trace.output": ("output",),
    "langfuse.trace.metadata": ("metadata",),
}
"""Columns that only the row of a trace has."""
LANGFUSE_CONTEXT_COLUMNS = {
    "langfuse.trace.name": ("traceName", "trace_name"), "session.id": ("sessionId", "session_id"),
    "user.id": ("userId", "user_id"), "langfuse.trace.tags": ("tags", "traceTags"), "langfuse.release": ("release",),
    "langfuse.version": ("version",), "langfuse.environment": ("environment",),
}  # fmt: skip
"""Columns of a trace that some exports repeat on observations."""
LANGFUSE_OBSERVATION_COLUMNS = {
    "langfuse.observation.input": ("input",),
    "langfuse.observation.output": ("output",),
    "langfuse.observation.metadata": ("metadata",),
    "langfuse.observation.model.name": ("model", "providedModelName", "provided_model_name"),
    "langfuse.observation.model.parameters": ("modelParameters", "model_parameters"),
    "langfuse.observation.usage_details": ("usageDetails", "usage_details", "usage"),
    "langfuse.observation.level": ("level",),
    "langfuse.observation.status_message": ("statusMessage", "status_message"),
    "langfuse.observation.prompt.name": ("promptName", "prompt_name"),
    "langfuse.observation.prompt.version": ("promptVersion", "prompt_version"),
}

RETRIEVAL_NAME = re.compile(r"retriev|search|rerank", re.IGNORECASE)
"""Names of plain spans that retrieve; Langfuse has a type for them only since version 3."""
LANGFUSE_LISTS = frozenset((
    "input", "output", "metadata", "tags", "traceTags", "observations", "scores", "toolCalls", "toolCallNames",
    "tool_calls", "tool_call_names", "toolDefinitions", "tool_definitions", "modelParameters", "model_parameters",
))  # fmt: skip
"""Columns that may hold a list; in a table of the UI, each other column with a list has the ratings of its name."""


def read_langfuse_record(record: dict[str, Any]) -> tuple[OtelSpan, ...]:
    """Convert a Langfuse trace with its observations, or a row of either. Raises `InvalidRecord` without ids.

    >>> record = {"id": "t", "timestamp": "2026-01-01T00:00:00Z", "input": "When?", "observations": []}
    >>> spans = read_langfuse_record(record)
    >>> spans[0].trace, spans[0].attributes["langfuse.trace.input"]
    ('t', 'When?')
    """
    inner = parse_embedded(record.get("observations"))
    if isinstance(trace := parse_embedded(record.get("trace")), dict):
        record = {**trace, "scores": record.get("scores") or trace.get("scores")}
    if get_first_attribute(record, ("traceId", "trace_id")) is not None:
        return (_build_observation(record, None),)
    name = get_first_attribute(record, ("id",))
    if name is None and isinstance(inner, list) and "input" not in record:
        return add_events(_read_observations(inner, None), _iterate_ratings(record))
    if name is None:
        raise InvalidRecord("a trace of Langfuse without id")
    observations = _read_observations(inner, str(name))
    return (_build_langfuse_trace(record, str(name), observations), *observations)


def _read_observations(inner: Any, trace: str | None) -> list[OtelSpan]:
    rows = inner if isinstance(inner, list) else []
    return [_build_observation(row, trace) for row in rows if isinstance(row, dict)]


def _build_langfuse_trace(record: dict[str, Any], name: str, inner: list[OtelSpan]) -> OtelSpan:
    start = parse_nanoseconds(record.get("timestamp"))
    begun = [span.start for span in inner if span.start]
    start = min([start, *begun]) if start else min(begun, default=0)
    took = int(_parse_seconds(record.get("latency")) * 1e9)
    ends = [span.end for span in inner] if all(span.complete for span in inner) or took else []
    attributes = _map_columns(record, {**LANGFUSE_TRACE_COLUMNS, **LANGFUSE_CONTEXT_COLUMNS})
    if get_first_attribute(record, ("name",)) is not None:
        attributes["langfuse.trace.name"] = str(record["name"])
    return OtelSpan(
        trace=name,
        id=name,
        name=str(record.get("name") or ""),
        start=start,
        end=max([start + took, *ends]) if start else 0,
        attributes=attributes,
        events=tuple(_iterate_ratings(record)),
    )


def _build_observation(record: dict[str, Any], trace: str | None) -> OtelSpan:
    name, trace = (get_first_attribute(record, ("id",)), get_first_attribute(record, ("traceId", "trace_id")) or trace)
    if name is None or trace is None:
        raise InvalidRecord(
            "an observation of Langfuse without id" if name is None else "an observation without traceId"
        )
    start = parse_nanoseconds(get_first_attribute(record, ("startTime", "start_time")))
    end = parse_nanoseconds(get_first_attribute(record, ("endTime", "end_time")))
    attributes = _map_columns(record, {**LANGFUSE_OBSERVATION_COLUMNS, **LANGFUSE_CONTEXT_COLUMNS})
    attributes["langfuse.observation.type"] = _get_observation_type(record, attributes)
    failed = attributes.get("langfuse.observation.level") == "ERROR"
    return OtelSpan(
        trace=str(trace),
        id=str(name),
        parent=str(get_first_attribute(record, ("parentObservationId", "parent_observation_id")) or trace),
        name=str(record.get("name") or ""),
        start=start,
        end=end or start,
        complete=end > 0 or attributes["langfuse.observation.type"] == "event",
        status="error" if failed else "unset",
        attributes=attributes,
        events=tuple(_iterate_ratings(record)),
    )


def _get_observation_type(record: dict[str, Any], attributes: dict[str, Any]) -> str:
    """Return the type; a plain span with a retrieval name and a list as output is a retriever."""
    kind = str(record.get("type") or "span").lower()
    given = parse_embedded(attributes.get("langfuse.observation.output"))
    has_documents = isinstance(given, list) or (isinstance(given, dict) and "documents" in given)
    return (
        "retriever"
        if kind == "span" and has_documents and RETRIEVAL_NAME.search(str(record.get("name") or ""))
        else kind
    )


def _iterate_ratings(record: dict[str, Any]) -> Iterator[SpanEvent]:
    """Yield the ratings of a trace or an observation: its scores, and what a table of the UI has in their columns."""
    scores = parse_embedded(record.get("scores"))
    for score in scores if isinstance(scores, list) else ():
        if isinstance(score, dict):
            yield _build_score(score)
    for name, value in record.items():
        listed = parse_embedded(value) if name not in LANGFUSE_LISTS else None
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, (int, float)):
                yield build_rating(name, score=item)
            elif isinstance(item, str):
                yield build_rating(name, label=item)
            elif name == "comments" and isinstance(item, dict):
                yield build_rating("comment", reason=item.get("content"))


def _build_score(record: dict[str, Any]) -> SpanEvent:
    """Build a rating from a score; the number of one that is a category or a text is none."""
    label = get_first_attribute(record, ("stringValue", "string_value"))
    numeric = get_first_attribute(record, ("dataType", "data_type")) in (None, "NUMERIC", "BOOLEAN")
    score = record.get("value") if numeric or label is None else None
    trace = str(get_first_attribute(record, ("traceId", "trace_id")) or "")
    return build_rating(record.get("name"), score, label, record.get("comment"), trace=trace)


def read_langfuse_score(record: dict[str, Any]) -> SpanEvent | None:
    """Convert a row of the table of scores to a rating of its trace; None for a row of another table."""
    return _build_score(record) if "data_type" in record or "dataType" in record else None


def _map_columns(record: dict[str, Any], names: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Attribute → value, of those that are there; texts of JSON that are mere texts lose their quotes."""
    values = {attribute: get_first_attribute(record, columns) for attribute, columns in names.items()}
    # an empty output says something: the answer is blank
    blank = [name for name, columns in names.items() if columns == ("output",) and "output" in record]
    return {
        **dict.fromkeys(blank, ""),
        **{name: unquote_json(item) for name, item in values.items() if item is not None},
    }


def _parse_seconds(value: Any) -> float:
    """Parse a duration; 0 where it cannot be read."""
    seconds = to_number(value)
    return seconds if seconds is not None and 0 <= seconds < 1e9 else 0.0


LANGSMITH_KINDS = {
    "retriever": "RETRIEVER", "llm": "LLM", "chat_model": "LLM", "embedding": "EMBEDDING", "tool": "TOOL",
    "prompt": "PROMPT",
}  # fmt: skip
"""Run type → span kind; any other type is a chain."""
THREAD_KEYS = ("session_id", "thread_id", "conversation_id")
LANGCHAIN_PREFIXES = (
    "ls_", "langgraph_", "checkpoint", "lc_", "revision_id", "runtime", "LANGSMITH", "LANGCHAIN", "__",
)  # fmt: skip
"""Prefixes of metadata keys that LangChain writes for itself."""
MAX_RUN_DEPTH = 64
"""Maximum nesting of runs."""


def read_langsmith_run(record: dict[str, Any]) -> tuple[OtelSpan, ...]:
    """Convert a run and the runs within it. Raises `InvalidRecord` for one without an id.

    >>> child = {"id": "b", "run_type": "retriever", "inputs": {"query": "When?"}, "outputs": {"documents": []}}
    >>> [span.parent for span in read_langsmith_run({"id": "a", "run_type": "chain", "child_runs": [child]})]
    [None, 'a']
    """
    runs = _merge_patches(record) if isinstance(record.get("post"), list) else record.get("runs")
    if isinstance(runs, list) and "run_type" not in record:
        return tuple(span for run in runs if isinstance(run, dict) for span in _iterate_runs(run, None, None, 0))
    return tuple(_iterate_runs(record, None, None, 0))


def _merge_patches(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Merge what a batch of LangSmith's client posts and patches to its runs."""
    runs: dict[str, dict[str, Any]] = {}
    for run in (*record["post"], *(record.get("patch") or ())):
        if isinstance(run, dict):
            runs.setdefault(str(run.get("id")), {}).update({k: v for k, v in run.items() if v is not None})
    return list(runs.values())


def _iterate_runs(record: dict[str, Any], trace: str | None, parent: str | None, depth: int) -> Iterator[OtelSpan]:
    name = str(get_first_attribute(record, ("id", "run_id")) or "")
    if not name:
        raise InvalidRecord("a run of LangSmith without id")
    above = record.get("parent_run_id")
    parent = parent or (str(above) if above else None)
    trace = trace or str(record.get("trace_id") or name)
    yield _build_run_span(record, trace, name, parent)
    inner = parse_embedded(record.get("child_runs"))
    for child in inner if isinstance(inner, list) and depth < MAX_RUN_DEPTH else ():
        if isinstance(child, dict):
            yield from _iterate_runs(child, trace, name, depth + 1)


def _build_run_span(record: dict[str, Any], trace: str, name: str, parent: str | None) -> OtelSpan:
    start, end = parse_nanoseconds(record.get("start_time")), parse_nanoseconds(record.get("end_time"))
    error = record.get("error")
    return OtelSpan(
        trace=trace,
        id=name,
        parent=parent,
        name=str(record.get("name") or ""),
        start=start,
        end=end or start,
        complete=end > 0,
        status="error" if error else "ok",
        message=(str(error).split("Traceback (most recent call last)", 1)[0].strip() or str(error)) if error else "",
        attributes=_build_run_attributes(record, parent is None),
        events=tuple(_iterate_feedback(parse_embedded(record.get("feedback_stats")))),
    )


def _iterate_feedback(stats: Any) -> Iterator[SpanEvent]:
    """Yield the ratings of a run: of each key the mean, the values that were chosen, and the comments."""
    for name, stat in stats.items() if isinstance(stats, dict) else ():
        if isinstance(stat, dict):
            texts = [", ".join(map(str, stat.get("values") or ())), "\n".join(map(str, stat.get("comments") or ()))]
            yield build_rating(name, stat.get("avg"), *texts)


def _build_run_attributes(record: dict[str, Any], root: bool) -> dict[str, Any]:
    kind = LANGSMITH_KINDS.get(str(record.get("run_type")), "CHAIN")
    inputs, outputs = parse_embedded(record.get("inputs")), parse_embedded(record.get("outputs"))
    attributes: dict[str, Any] = {"openinference.span.kind": kind, "input.value": inputs, "output.value": outputs}
    metadata = _get_run_metadata(record)
    if kind == "RETRIEVER" and isinstance(outputs, dict) and isinstance(outputs.get("documents"), list):
        attributes["gen_ai.retrieval.documents"] = [
            document["kwargs"] if isinstance(document, dict) and isinstance(document.get("kwargs"), dict) else document
            # some are written as the call that makes them
            for document in outputs["documents"]
        ]
    if kind == "LLM":
        attributes |= _build_model_attributes(record, inputs, outputs, metadata)
    thread = next((metadata[key] for key in THREAD_KEYS if metadata.get(key)), None)
    if thread is not None:
        attributes["session.id"] = str(thread)
    attributes[STEP_KIND_ATTRIBUTE] = metadata.get(STEP_KIND_ATTRIBUTE)
    if root:
        attributes["metadata"] = {
            key: item
            for key, item in metadata.items()
            if not key.startswith(LANGCHAIN_PREFIXES) and key not in THREAD_KEYS
        }
        attributes["tag.tags"] = record.get("tags")
    return {key: value for key, value in attributes.items() if value not in (None, "", {})}


def _get_run_metadata(record: dict[str, Any]) -> dict[str, Any]:
    extra = parse_embedded(record.get("extra"))
    metadata = parse_embedded((extra if isinstance(extra, dict) else record).get("metadata"))
    metadata = metadata or parse_embedded(record.get("custom_metadata"))
    return metadata if isinstance(metadata, dict) else {}


def _build_model_attributes(
    record: dict[str, Any], inputs: Any, outputs: Any, metadata: dict[str, Any]
) -> dict[str, Any]:
    """Collect the messages, model and tokens of a model call."""
    given = inputs if isinstance(inputs, dict) else {}
    result = outputs if isinstance(outputs, dict) else {}
    message = _get_first_message(result)
    response = _get_object(message, "response_metadata")
    asked = _get_object(parse_embedded(record.get("extra")), "invocation_params")
    usage = _get_usage(record, result, message)
    return {
        "gen_ai.input.messages": given.get("messages"),
        "gen_ai.prompt": "\n".join(map(str, given.get("prompts") or ())),
        "gen_ai.output.messages": result.get("generations") or result.get("choices") or result.get("messages"),
        "gen_ai.response.model": response.get("model_name")
        or response.get("model")
        or _get_object(result, "llm_output").get("model_name")
        or metadata.get("ls_model_name"),
        "gen_ai.response.finish_reasons": response.get("finish_reason") or response.get("stop_reason"),
        "gen_ai.request.model": asked.get("model") or asked.get("model_name"),
        "llm.invocation_parameters": asked,
        "gen_ai.usage.input_tokens": usage.get("input_tokens") or usage.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens") or usage.get("completion_tokens"),
    }


def _get_usage(record: dict[str, Any], outputs: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """Return the token counts, from wherever they are recorded; none of a run that counts 0 of both, unknown ones."""
    llm_output = outputs.get("llm_output")
    places = [(message, "usage_metadata"), (outputs, "usage_metadata"), (llm_output, "token_usage")]
    places += [(llm_output, "usage"), (outputs, "usage"), (record, "token_usage")]
    if usage := next(filter(None, (_get_object(*place) for place in places)), None):
        return usage
    return record if record.get("prompt_tokens") or record.get("completion_tokens") else {}


def _get_first_message(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the message of the first generation."""
    message: Any = outputs.get("generations")
    while isinstance(message, list) and message:
        message = message[0]
    message = message.get("message", message) if isinstance(message, dict) else {}
    return (
        message["kwargs"]
        if isinstance(message, dict) and isinstance(message.get("kwargs"), dict)
        else dict(message or {})
    )


def _get_object(value: Any, key: str) -> dict[str, Any]:
    inner = parse_embedded(value.get(key)) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}
