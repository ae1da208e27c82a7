"""Semantic conventions: the attribute names of each instrumentation, and the role that a span plays.

Covers OpenInference, the gen_ai conventions of OpenTelemetry, Langfuse, OpenLLMetry (Traceloop) and Pydantic
AI (Logfire).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any, Literal, cast

import msgspec

from ragfault.io.otel.spans import OtelSpan
from ragfault.model.records import StepKind

SpanRole = Literal[
    "retriever",
    "reranker",
    "llm",
    "embedding",
    "chain",
    "agent",
    "planner",
    "tool",
    "memory",
    "guard",
    "judge",
    "part",
    "stage",
]
"""Role of a span in a RAG system; `guard` and `judge` observe others, `part` is a lesser step, `stage` one that
rewrites, routes, reads or cites."""
INPUT_ATTRIBUTES = ("langfuse.observation.input", "input.value", "traceloop.entity.input", "gen_ai.task.input")
OUTPUT_ATTRIBUTES = (
    "langfuse.observation.output",
    "output.value",
    "traceloop.entity.output",
    "gen_ai.task.output",
    "final_result",
)
TRACE_INPUT_ATTRIBUTES = ("langfuse.trace.input",)
TRACE_OUTPUT_ATTRIBUTES = ("langfuse.trace.output",)
REFERENCE_ATTRIBUTES = (
    "ai.observability.record_root.ground_truth_output",
    "ground_truth_output",
    "ground_truth",
    "expected_output",
)
CALL_INPUT_ATTRIBUTES = ("gen_ai.tool.call.arguments", "tool_arguments", "gen_ai.memory.query.text")
CALL_OUTPUT_ATTRIBUTES = ("gen_ai.tool.call.result", "tool_response", "gen_ai.memory.records")
"""What a tool or a memory was asked and returned, where a span of gen_ai records it."""
TOOL_NAME_ATTRIBUTES = ("gen_ai.tool.name", "tool.name")
AGENT_NAME_ATTRIBUTES = ("gen_ai.agent.name", "agent.name")
WORKFLOW_NAME_ATTRIBUTE = "gen_ai.workflow.name"
QUERY_ATTRIBUTES = ("gen_ai.retrieval.query.text", "retrieval.query", "reranker.query", "db.query.text")
DOCUMENTS_ATTRIBUTES = (
    "reranker.output_documents",
    "gen_ai.retrieval.documents",
    "gen_ai.retriever.results",
    "retrieval.documents",
    "retrieval.document",
)
DOCUMENT_PREFIXES = {"retriever": "retrieval.documents.", "reranker": "reranker.output_documents."}
"""Prefixes under which OpenInference numbers documents, one attribute per field."""
LISTED_EVENTS = ("events", "all_messages_events")
"""Attributes in which Pydantic AI records the messages of a prompt and the reply as a list of events."""
RESULT_EVENTS = ("db.query.result", "db.search.result")
"""Events, one for each passage that a vector store found."""
PROMPT_ATTRIBUTES = ("gen_ai.input.messages", "pydantic_ai.all_messages", "gen_ai.prompt")
COMPLETION_ATTRIBUTES = ("gen_ai.output.messages", "gen_ai.completion")
PROMPT_PREFIXES = ("llm.input_messages.", "gen_ai.prompt.", "llm.prompts.")
COMPLETION_PREFIXES = ("llm.output_messages.", "gen_ai.completion.", "llm.choices.")

MODEL_ATTRIBUTES = (
    "gen_ai.response.model", "llm.response.model_name", "llm.model_name", "langfuse.observation.model.name",
    "gen_ai.request.model", "llm.request.model_name",
)  # fmt: skip
FINISH_ATTRIBUTES = ("gen_ai.response.finish_reasons", "llm.finish_reason", "gen_ai.completion.0.finish_reason")
FINISH_KEYS = ("finish_reason", "stop_reason", "finishReason", "stopReason", "done_reason")
"""Keys of the reason in a recorded reply."""
PARAMETER_OBJECTS = ("llm.invocation_parameters", "langfuse.observation.model.parameters")
"""Attributes that hold the settings of a request to a model as an object."""
REQUEST_PARAMETERS = {
    "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "max_completion_tokens": "max_tokens",
    "seed": "seed", "frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty",
}  # fmt: skip
"""Settings of a request as they are recorded, and as OpenAI's requests name them."""
PROMPT_TOKEN_ATTRIBUTES = ("gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens")
COMPLETION_TOKEN_ATTRIBUTES = (
    "gen_ai.usage.output_tokens",
    "llm.token_count.completion",
    "gen_ai.usage.completion_tokens",
)
USAGE_ATTRIBUTE = "langfuse.observation.usage_details"

ROUTE_ATTRIBUTES = ("ragfault.route", "langfuse.trace.name")
CONVERSATION_ATTRIBUTES = (
    "session.id", "gen_ai.conversation.id", "langfuse.session.id", "langfuse.trace.session_id",
    "traceloop.association.properties.session_id", "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.thread_id",
)  # fmt: skip
METADATA_ATTRIBUTES = {
    "user": ("user.id", "langfuse.user.id", "enduser.id", "gen_ai.user", "traceloop.association.properties.user_id"),
    "tags": ("tag.tags", "langfuse.trace.tags"),
    "release": ("ragfault.release", "langfuse.release", "service.version", "langfuse.version"),
    "service": ("service.name",),
    "environment": ("langfuse.environment", "deployment.environment.name", "deployment.environment"),
    "prompt": ("langfuse.observation.prompt.name", "gen_ai.prompt.name", "traceloop.prompt.key", "prompt.id"),
    "prompt_version": (
        "langfuse.observation.prompt.version",
        "llm.prompt_template.version",
        "traceloop.prompt.version",
    ),
}
"""Metadata of a trace and its attributes on the root, another span or the resource."""
METADATA_OBJECTS = (
    "metadata",
    "langfuse.trace.metadata",
    "langfuse.observation.metadata",
    "traceloop.association.properties",
)
"""Attributes that hold metadata objects, as JSON or one attribute per key."""
STEP_KIND_ATTRIBUTE = "ragfault.step.kind"
"""States the kind of a step: no convention has a name for rewriting, routing, reading and citing."""
STEP_METADATA = ("metadata", "langfuse.observation.metadata", "traceloop.association.properties")
"""Metadata of a span, an object or one attribute per key: the kind may be stated there where attributes cannot be."""
STATED_KIND_ATTRIBUTES = (STEP_KIND_ATTRIBUTE, *(f"{name}.{STEP_KIND_ATTRIBUTE}" for name in STEP_METADATA))
STATED_ROLES: dict[StepKind, SpanRole] = {
    "retrieve": "retriever", "rerank": "reranker", "generate": "llm", "plan": "planner", "tool": "tool",
    "memory": "memory", "rewrite": "stage", "route": "stage", "read": "stage", "cite": "stage",
}  # fmt: skip
"""The role of a span that states its kind and has no more specific role."""
ENCLOSING_ROLES = ("chain", "agent", "part", None)
"""Roles that give way to the stated kind."""
OPENINFERENCE_ROLES: dict[str, SpanRole] = {
    "RETRIEVER": "retriever", "RERANKER": "reranker", "LLM": "llm", "EMBEDDING": "embedding", "CHAIN": "chain",
    "AGENT": "agent", "TOOL": "tool", "GUARDRAIL": "guard", "EVALUATOR": "judge", "PROMPT": "part", "TASK": "chain",
    "ENTRY": "chain", "STEP": "chain",
}  # fmt: skip
LANGFUSE_ROLES: dict[str, SpanRole] = {
    "generation": "llm", "retriever": "retriever", "embedding": "embedding", "chain": "chain", "agent": "agent",
    "tool": "tool", "guardrail": "guard", "evaluator": "judge", "event": "part",
}  # fmt: skip
GEN_AI_ROLES: dict[str, SpanRole] = {
    "chat": "llm", "generate_content": "llm", "text_completion": "llm", "completion": "llm", "embeddings": "embedding",
    "embedding": "embedding", "retrieval": "retriever", "retrieve": "retriever", "vector_db_retrieve": "retriever",
    "rerank": "reranker", "execute_tool": "tool", "invoke_agent": "agent", "create_agent": "part",
    "invoke_workflow": "chain", "plan": "planner", "search_memory": "memory", "create_memory": "memory",
    "update_memory": "memory", "upsert_memory": "memory", "delete_memory": "memory", "create_memory_store": "part",
    "delete_memory_store": "part", "execute_task": "chain", "rewrite": "stage", "route": "stage", "read": "stage",
    "cite": "stage",
}  # fmt: skip
TRACELOOP_ROLES: dict[str, SpanRole] = {"workflow": "chain", "task": "chain", "agent": "agent", "tool": "tool"}


def get_first_attribute(attributes: dict[str, Any], names: Collection[str]) -> Any:
    """Return the first of these attributes that is set and not empty."""
    # most spans have none of them, which this says without a loop
    if attributes.keys().isdisjoint(names):
        return None
    for name in names:
        value = attributes.get(name)
        if value or (value is not None and value not in ("", [], {})):
            return value
    return None


def parse_count(value: Any) -> int | None:
    """Parse a count from a number or its digits; a column of a frame with gaps has `60.0`."""
    if isinstance(value, str) and (digits := value.removesuffix(".0")).isdecimal() and len(digits) < 19:
        value = int(digits)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else None


def detect_role(span: OtelSpan) -> SpanRole | None:
    """Detect the role of a span in a RAG system; None where nothing marks it.

    >>> detect_role(OtelSpan(trace="a", id="b", attributes={"gen_ai.operation.name": "retrieval"}))
    'retriever'
    >>> detect_role(OtelSpan(trace="a", id="b", attributes={"http.request.method": "POST"})) is None
    True
    """
    role = _detect_recorded_role(span)
    if role not in ENCLOSING_ROLES or (stated := get_stated_kind(span.attributes)) is None:
        return role
    return STATED_ROLES[stated]


def get_stated_kind(attributes: dict[str, Any]) -> StepKind | None:
    """Return the kind of step that a span states: in its attributes, its metadata, or as an operation of its own name.

    >>> get_stated_kind({"langfuse.observation.metadata": '{"ragfault.step.kind": "rewrite"}'})
    'rewrite'
    """
    stated = get_first_attribute(attributes, STATED_KIND_ATTRIBUTES)
    for name in STEP_METADATA if stated is None else ():
        metadata = attributes.get(name)
        if isinstance(metadata, str) and STEP_KIND_ATTRIBUTE in metadata:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                metadata = msgspec.json.decode(metadata)
        if isinstance(metadata, dict) and STEP_KIND_ATTRIBUTE in metadata:
            stated = metadata[STEP_KIND_ATTRIBUTE]
    if str(stated).lower() in STATED_ROLES:
        return cast(StepKind, str(stated).lower())
    operation = str(attributes.get("gen_ai.operation.name")).lower()
    return cast(StepKind, operation) if GEN_AI_ROLES.get(operation) == "stage" else None


def _detect_recorded_role(span: OtelSpan) -> SpanRole | None:
    """Detect the role of a span by the conventions, apart from the kind that it states."""
    attributes = span.attributes
    named: SpanRole | None = None
    if kind := attributes.get("openinference.span.kind") or attributes.get("gen_ai.span.kind"):
        named = OPENINFERENCE_ROLES.get(str(kind).upper())
    if named is None and (kind := attributes.get("langfuse.observation.type")):
        named = LANGFUSE_ROLES.get(str(kind).lower())
    if named is None and (kind := attributes.get("gen_ai.operation.name") or attributes.get("llm.request.type")):
        named = GEN_AI_ROLES.get(str(kind).lower())
    if named is None and (attributes.get("mcp.method.name") == "tools/call" or "gen_ai.tool.name" in attributes):
        named = "tool"
    if named is None and span.events and any(event.name in RESULT_EVENTS for event in span.events):
        named = "retriever"
    if named is None and (kind := attributes.get("traceloop.span.kind")):
        named = TRACELOOP_ROLES.get(str(kind).lower())
    return named or _guess_role(attributes)


def _guess_role(attributes: dict[str, Any]) -> SpanRole | None:
    """Guess the role of a span that does not state one."""
    if (
        get_first_attribute(attributes, DOCUMENTS_ATTRIBUTES) is not None
        or "retrieval.documents.0.document.content" in attributes
    ):
        return "retriever"
    if get_first_attribute(attributes, MODEL_ATTRIBUTES) is not None:
        return "llm"
    known = (
        *INPUT_ATTRIBUTES,
        *OUTPUT_ATTRIBUTES,
        *TRACE_INPUT_ATTRIBUTES,
        *TRACE_OUTPUT_ATTRIBUTES,
        "langfuse.observation.type",
        "ragfault.route",
    )
    return "chain" if get_first_attribute(attributes, known) is not None else None
