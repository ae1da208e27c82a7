"""LangSmith: runs as its export and the tracers of LangChain hold them, nested or one by one, as operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragfault.sources.spans.contents import opened
from ragfault.sources.spans.foreign import nanoseconds
from ragfault.sources.spans.operation import Operation
from ragfault.sources.values import Wrong

__all__ = ["run_through"]

KINDS = {
    "retriever": "RETRIEVER",
    "llm": "LLM",
    "chat_model": "LLM",
    "embedding": "EMBEDDING",
    "tool": "TOOL",
    "prompt": "PROMPT",
}
"""The type of a run → what it does; whatever else it is, it is a chain."""

THREADS = ("session_id", "thread_id", "conversation_id")
OWN = ("ls_", "langgraph_", "checkpoint", "lc_", "revision_id", "runtime", "LANGSMITH", "LANGCHAIN", "__")
"""How keys of metadata begin that LangChain writes for itself."""
DEEP = 64
"""How deep runs nest."""


def run_through(record: dict[str, Any]) -> tuple[Operation, ...]:
    """The operations that a run and the runs within it stand for; raises `Wrong` for one without an id.

    >>> child = {"id": "b", "run_type": "retriever", "inputs": {"query": "When?"}, "outputs": {"documents": []}}
    >>> [one.parent for one in run_through({"id": "a", "run_type": "chain", "child_runs": [child]})]
    [None, 'a']
    """
    return tuple(_within(record, None, None, 0))


def _within(record: dict[str, Any], trace: str | None, parent: str | None, depth: int) -> Iterator[Operation]:
    name = str(record.get("id") or "")
    if not name:
        raise Wrong("a run of LangSmith without id")
    above = record.get("parent_run_id")
    parent = parent or (str(above) if above else None)
    trace = trace or str(record.get("trace_id") or name)
    yield _operation(record, trace, name, parent)
    inner = opened(record.get("child_runs"))
    for child in inner if isinstance(inner, list) and depth < DEEP else ():
        if isinstance(child, dict):
            yield from _within(child, trace, name, depth + 1)


def _operation(record: dict[str, Any], trace: str, name: str, parent: str | None) -> Operation:
    start = nanoseconds(record.get("start_time"))
    error = record.get("error")
    return Operation(
        trace=trace,
        id=name,
        parent=parent,
        name=str(record.get("name") or ""),
        start=start,
        end=nanoseconds(record.get("end_time")) or start,
        status="error" if error else "ok",
        message=_reason(str(error)) if error else "",
        attributes=_attributes(record, parent is None),
    )


def _reason(error: str) -> str:
    """What an error says, without the stack that LangChain puts behind it."""
    return error.split("Traceback (most recent call last)", 1)[0].strip() or error


def _attributes(record: dict[str, Any], root: bool) -> dict[str, Any]:
    kind = KINDS.get(str(record.get("run_type")), "CHAIN")
    inputs, outputs = opened(record.get("inputs")), opened(record.get("outputs"))
    held: dict[str, Any] = {"openinference.span.kind": kind, "input.value": inputs, "output.value": outputs}
    metadata = _metadata(record)
    if kind == "RETRIEVER" and isinstance(outputs, dict) and isinstance(outputs.get("documents"), list):
        held["gen_ai.retrieval.documents"] = [_document(one) for one in outputs["documents"]]
    if kind == "LLM":
        held |= _model(record, inputs, outputs, metadata)
    thread = next((metadata[key] for key in THREADS if metadata.get(key)), None)
    if thread is not None:
        held["session.id"] = str(thread)
    if root:
        held["metadata"] = {
            key: part for key, part in metadata.items() if not key.startswith(OWN) and key not in THREADS
        }
        held["tag.tags"] = record.get("tags")
    return {key: value for key, value in held.items() if value not in (None, "", {})}


def _metadata(record: dict[str, Any]) -> dict[str, Any]:
    extra = opened(record.get("extra"))
    found = opened((extra if isinstance(extra, dict) else record).get("metadata"))
    return found if isinstance(found, dict) else {}


def _document(value: Any) -> Any:
    """A document, also where it is written as the call that makes it."""
    return value["kwargs"] if isinstance(value, dict) and isinstance(value.get("kwargs"), dict) else value


# --- calls of models -------------------------------------------------------------------------------


def _model(record: dict[str, Any], inputs: Any, outputs: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    """What a call to a model was given and gave, its model and tokens."""
    given = inputs if isinstance(inputs, dict) else {}
    made = outputs if isinstance(outputs, dict) else {}
    message = _message(made)
    told = _part(message, "response_metadata")
    asked = _part(opened(record.get("extra")), "invocation_params")
    usage = _usage(record, made, message)
    return {
        "gen_ai.input.messages": given.get("messages"),
        "gen_ai.prompt": "\n".join(map(str, given.get("prompts") or ())),
        "gen_ai.output.messages": made.get("generations") or made.get("choices") or made.get("messages"),
        "gen_ai.response.model": told.get("model_name") or told.get("model") or metadata.get("ls_model_name"),
        "gen_ai.request.model": asked.get("model") or asked.get("model_name"),
        "gen_ai.usage.input_tokens": usage.get("input_tokens") or usage.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens") or usage.get("completion_tokens"),
    }


def _usage(record: dict[str, Any], made: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """Tokens, from wherever they are counted."""
    whole = _part(made.get("llm_output"), "token_usage") or _part(made.get("llm_output"), "usage")
    for found in (
        _part(message, "usage_metadata"),
        _part(made, "usage_metadata"),
        whole,
        _part(made, "usage"),
    ):
        if found:
            return found
    return {key: record.get(key) for key in ("prompt_tokens", "completion_tokens")}


def _message(made: dict[str, Any]) -> dict[str, Any]:
    """The message of the first generation, by its own keys."""
    found: Any = made.get("generations")
    while isinstance(found, list) and found:
        found = found[0]
    found = found.get("message", found) if isinstance(found, dict) else {}
    return (
        found["kwargs"]
        if isinstance(found, dict) and isinstance(found.get("kwargs"), dict)
        else dict(found or {})
    )


def _part(value: Any, key: str) -> dict[str, Any]:
    found = opened(value.get(key)) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
