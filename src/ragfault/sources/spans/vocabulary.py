"""The names of attributes that say the same thing, in the words of each instrumentation, the most telling first.

OpenInference, the gen_ai conventions of OpenTelemetry (now and before), Langfuse, and OpenLLMetry (Traceloop).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from ragfault.sources.spans.operation import Operation

__all__ = ["Role", "first", "number", "role"]

Role = Literal[
    "retriever", "reranker", "llm", "embedding", "chain", "agent", "tool", "guard", "judge", "part"
]
"""What an operation does in a RAG system; `guard` and `judge` look at what others do, `part` is a lesser step."""

INPUT = ("langfuse.observation.input", "input.value", "traceloop.entity.input", "gen_ai.task.input")
OUTPUT = ("langfuse.observation.output", "output.value", "traceloop.entity.output", "gen_ai.task.output")
TRACE_INPUT = ("langfuse.trace.input",)
TRACE_OUTPUT = ("langfuse.trace.output",)
QUERY = ("gen_ai.retrieval.query.text", "retrieval.query", "reranker.query", "db.query.text")
DOCUMENTS = (
    "gen_ai.retrieval.documents",
    "gen_ai.retriever.results",
    "retrieval.documents",
    "retrieval.document",
)
LISTED = {"retriever": "retrieval.documents.", "reranker": "reranker.output_documents."}
"""Where OpenInference numbers documents, one attribute for each part of each."""
RESULTS = ("db.query.result", "db.search.result")
"""Events, one for each passage that a vector store found."""

PROMPTS = ("gen_ai.input.messages", "gen_ai.prompt")
COMPLETIONS = ("gen_ai.output.messages", "gen_ai.completion")
PROMPTED = ("llm.input_messages.", "gen_ai.prompt.", "llm.prompts.")
COMPLETED = ("llm.output_messages.", "gen_ai.completion.", "llm.choices.")

MODEL = (
    "gen_ai.response.model",
    "llm.response.model_name",
    "llm.model_name",
    "langfuse.observation.model.name",
    "gen_ai.request.model",
    "llm.request.model_name",
)
PROMPT_TOKENS = ("gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens")
COMPLETION_TOKENS = (
    "gen_ai.usage.output_tokens",
    "llm.token_count.completion",
    "gen_ai.usage.completion_tokens",
)
USAGE = "langfuse.observation.usage_details"

ROUTE = ("ragfault.route", "langfuse.trace.name")
CONVERSATION = (
    "session.id",
    "gen_ai.conversation.id",
    "langfuse.session.id",
    "langfuse.trace.session_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.thread_id",
)
KEPT = {
    "user": (
        "user.id",
        "langfuse.user.id",
        "enduser.id",
        "gen_ai.user",
        "traceloop.association.properties.user_id",
    ),
    "tags": ("tag.tags", "langfuse.trace.tags"),
    "release": ("ragfault.release", "langfuse.release", "service.version", "langfuse.version"),
    "service": ("service.name",),
    "environment": (
        "langfuse.environment",
        "deployment.environment.name",
        "deployment.environment",
    ),
    "prompt": (
        "langfuse.observation.prompt.name",
        "gen_ai.prompt.name",
        "traceloop.prompt.key",
        "prompt.id",
    ),
    "prompt_version": (
        "langfuse.observation.prompt.version",
        "llm.prompt_template.version",
        "traceloop.prompt.version",
    ),
}
"""What goes to the metadata of a trace, and where it may stand: the root, another span, the resource."""

METADATA = (
    "metadata",
    "langfuse.trace.metadata",
    "langfuse.observation.metadata",
    "traceloop.association.properties",
)
"""Objects, as JSON or one attribute for each key, that go to the metadata of a trace under their own keys."""

OPENINFERENCE: dict[str, Role] = {
    "RETRIEVER": "retriever",
    "RERANKER": "reranker",
    "LLM": "llm",
    "EMBEDDING": "embedding",
    "CHAIN": "chain",
    "AGENT": "agent",
    "TOOL": "tool",
    "GUARDRAIL": "guard",
    "EVALUATOR": "judge",
    "PROMPT": "part",
    "TASK": "chain",
    "ENTRY": "chain",
    "STEP": "chain",
}
LANGFUSE: dict[str, Role] = {
    "generation": "llm",
    "retriever": "retriever",
    "embedding": "embedding",
    "chain": "chain",
    "agent": "agent",
    "tool": "tool",
    "guardrail": "guard",
    "evaluator": "judge",
    "event": "part",
}
GEN_AI: dict[str, Role] = {
    "chat": "llm",
    "generate_content": "llm",
    "text_completion": "llm",
    "completion": "llm",
    "embeddings": "embedding",
    "embedding": "embedding",
    "retrieval": "retriever",
    "retrieve": "retriever",
    "vector_db_retrieve": "retriever",
    "rerank": "reranker",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "create_agent": "part",
    "invoke_workflow": "chain",
    "execute_task": "chain",
}
TRACELOOP: dict[str, Role] = {"workflow": "chain", "task": "chain", "agent": "agent", "tool": "tool"}


def first(attributes: dict[str, Any], names: Iterable[str]) -> Any:
    """The first of these attributes that is there and says something."""
    for name in names:
        value = attributes.get(name)
        if value is not None and value not in ("", [], {}):
            return value
    return None


def number(value: Any) -> int | None:
    """A count that may be a number or its digits."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else None


def role(operation: Operation) -> Role | None:
    """What an operation does in a RAG system; None where nothing says that it has to do with one.

    >>> role(Operation(trace="a", id="b", attributes={"gen_ai.operation.name": "retrieval"}))
    'retriever'
    >>> role(Operation(trace="a", id="b", attributes={"http.request.method": "POST"})) is None
    True
    """
    held = operation.attributes
    named: Role | None = None
    if kind := held.get("openinference.span.kind") or held.get("gen_ai.span.kind"):
        named = OPENINFERENCE.get(str(kind).upper())
    if named is None and (kind := held.get("langfuse.observation.type")):
        named = LANGFUSE.get(str(kind).lower())
    if named is None and (kind := held.get("gen_ai.operation.name") or held.get("llm.request.type")):
        named = GEN_AI.get(str(kind).lower())
    if named is None and operation.events and any(event.name in RESULTS for event in operation.events):
        named = "retriever"
    if named is None and (kind := held.get("traceloop.span.kind")):
        named = TRACELOOP.get(str(kind).lower())
    return named or _guessed(held)


def _guessed(held: dict[str, Any]) -> Role | None:
    """The role of an operation that does not state one."""
    if first(held, DOCUMENTS) is not None or "retrieval.documents.0.document.content" in held:
        return "retriever"
    if first(held, MODEL) is not None:
        return "llm"
    known = (*INPUT, *OUTPUT, *TRACE_INPUT, *TRACE_OUTPUT, "langfuse.observation.type", "ragfault.route")
    return "chain" if first(held, known) is not None else None
