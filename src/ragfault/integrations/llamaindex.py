"""LlamaIndex integration: queries become traces, and a retriever is scored in the background."""

from __future__ import annotations

import inspect
from typing import Any, Self, cast

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.llamaindex", "llamaindex", "pip install llama-index-core"):
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined, unused-ignore]
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.instrumentation.events import BaseEvent
    from llama_index.core.instrumentation.span import BaseSpan
    from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
    from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.instrumentation import RetrievalMeasurement
from ragfault.integrations.recorder import TraceDelivery, TraceRecorder, TraceSink, to_documents


class MeasuredLlamaIndexRetriever(BaseRetriever):
    """A retriever of LlamaIndex that returns the result of another one, and has it scored in the background.

    It replaces the other one in query engines. Nodes are returned, and errors raised, unchanged; both also
    reach the background scorer.
    """

    def __init__(self, retriever: BaseRetriever, background: BackgroundScorer, *, route: str | None = None) -> None:
        super().__init__()
        self._retriever, self._background, self._route = retriever, background, route

    def retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the result of the other retriever, without the second span that `_retrieve` would add."""
        with RetrievalMeasurement(self._background, _get_query_text(str_or_query_bundle), self._route) as measurement:
            measurement.result = self._retriever.retrieve(str_or_query_bundle)
        return cast(list[NodeWithScore], measurement.result)

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the result of the other retriever, awaited."""
        with RetrievalMeasurement(self._background, _get_query_text(str_or_query_bundle), self._route) as measurement:
            measurement.result = await self._retriever.aretrieve(str_or_query_bundle)
        return cast(list[NodeWithScore], measurement.result)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve(query_bundle)


def _get_query_text(query: QueryType) -> str:
    return query.query_str if isinstance(query, QueryBundle) else query


class LlamaIndexTraceHandler:
    """A handler that makes a trace of each outermost query, retrieval or chat of LlamaIndex, from its instrumentation.

    `with LlamaIndexTraceHandler(background): engine.query(…)`, or `LlamaIndexTraceHandler("traces.jsonl").attach()` for
    the whole program. The trace has query, nodes, answer, model, times and errors, of plain and async calls. A streamed
    answer is not recorded: score it with `ragfault.evaluation.online.scorer.score_response` when it is complete.
    """

    def __init__(self, sink: TraceSink, *, route: str | None = None) -> None:
        recorder = TraceRecorder(sink, route)
        self.delivery: TraceDelivery = recorder.delivery
        self._spans, self._events = _LlamaIndexSpans(recorder), _LlamaIndexEvents(recorder)

    def attach(self) -> Self:
        """Start to listen."""
        root = get_dispatcher()
        root.add_span_handler(self._spans)
        root.add_event_handler(self._events)
        return self

    def detach(self) -> None:
        """Stop to listen."""
        root = get_dispatcher()
        root.span_handlers = [handler for handler in root.span_handlers if handler is not self._spans]
        root.event_handlers = [handler for handler in root.event_handlers if handler is not self._events]

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()


class _LlamaIndexSpans(BaseSpanHandler[BaseSpan]):
    """Reports the start and end of calls to a recorder."""

    def __init__(self, recorder: TraceRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    _recorder: TraceRecorder

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,  # noqa: ARG002
        **_: Any,
    ) -> None:
        name = id_.partition("-")[0]
        if instance is not None:
            name = f"{type(instance).__name__}.{name.rpartition('.')[2]}"
        query = next((text for value in bound_args.arguments.values() if (text := _extract_query(value))), None)
        attributes = (
            {"openinference.span.kind": "CHAIN", "input.value": query} if parent_span_id is None and query else {}
        )
        self._recorder.begin(_get_span_key(id_), name, _get_span_key(parent_span_id), attributes)

    def prepare_to_exit_span(self, id_: str, *_: Any, result: Any = None, **__: Any) -> None:
        answer = getattr(result, "response", None)
        self._recorder.end(_get_span_key(id_), {"output.value": answer} if isinstance(answer, str) and answer else {})

    def prepare_to_drop_span(self, id_: str, *_: Any, err: BaseException | None = None, **__: Any) -> None:
        self._recorder.end(_get_span_key(id_), error=err)


class _LlamaIndexEvents(BaseEventHandler):
    """Reports events within a call to a recorder."""

    def __init__(self, recorder: TraceRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    _recorder: TraceRecorder

    def handle(self, event: BaseEvent, **_: Any) -> None:
        reader = EVENT_READERS.get(type(event).__name__)
        if reader is not None:
            self._recorder.update(_get_span_key(event.span_id), reader(event))


def _get_span_key(name: str | None) -> str:
    """Return the unique part of a span's name: `RetrieverQueryEngine.query-UUID`."""
    return (name or "")[-36:]


def _extract_query(value: Any) -> str | None:
    """Return the text of a query or a message."""
    text = value if isinstance(value, str) else getattr(value, "query_str", None) or getattr(value, "content", None)
    return text if isinstance(text, str) and text.strip() else None


def _describe_prompt(event: Any) -> dict[str, Any]:
    """Return the messages to a model, and its name."""
    model = event.model_dict or {}
    messages = getattr(event, "messages", None)
    prompts = (
        [{"role": "user", "content": getattr(event, "prompt", "")}] if messages is None else _to_messages(messages)
    )
    return {
        "openinference.span.kind": "LLM",
        "gen_ai.input.messages": prompts,
        "gen_ai.request.model": model.get("model") or model.get("model_name"),
    }


def _describe_completion(event: Any) -> dict[str, Any]:
    """Return the completion of a model, and its tokens."""
    response = event.response
    if response is None:
        return {}
    message = getattr(response, "message", None)
    completion = message.content if message is not None else response.text
    usage = getattr(response.raw, "usage", None) or (
        response.raw.get("usage") if isinstance(response.raw, dict) else None
    )
    return {
        "gen_ai.output.messages": [{"role": "assistant", "content": completion or ""}],
        "gen_ai.usage.input_tokens": _get_count(usage, "prompt_tokens", "input_tokens"),
        "gen_ai.usage.output_tokens": _get_count(usage, "completion_tokens", "output_tokens"),
    }


def _get_count(usage: Any, *names: str) -> int | None:
    values = (usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def _to_messages(messages: Any) -> list[dict[str, Any]]:
    return [
        {"role": str(getattr(message.role, "value", message.role)), "content": message.content or ""}
        for message in messages
    ]


def _make_document_reader(kind: str) -> Any:
    return lambda event: {"openinference.span.kind": kind, "gen_ai.retrieval.documents": to_documents(event.nodes)}


EVENT_READERS: dict[str, Any] = {
    "QueryStartEvent": lambda event: {"openinference.span.kind": "CHAIN", "input.value": _extract_query(event.query)},
    "QueryEndEvent": lambda event: {"output.value": getattr(event.response, "response", None)},
    "RetrievalStartEvent": lambda event: {
        "openinference.span.kind": "RETRIEVER",
        "input.value": _extract_query(event.str_or_query_bundle),
    },
    "RetrievalEndEvent": _make_document_reader("RETRIEVER"),
    "ReRankStartEvent": lambda event: {
        "openinference.span.kind": "RERANKER",
        "input.value": _extract_query(event.query),
    },
    "ReRankEndEvent": _make_document_reader("RERANKER"),
    "EmbeddingStartEvent": lambda _: {"openinference.span.kind": "EMBEDDING"},
    "LLMChatStartEvent": _describe_prompt,
    "LLMChatEndEvent": _describe_completion,
    "LLMCompletionStartEvent": _describe_prompt,
    "LLMCompletionEndEvent": _describe_completion,
}
"""Event → attributes of the call in which it happened, in the terms of OpenInference and gen_ai."""
