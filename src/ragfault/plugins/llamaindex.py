"""LlamaIndex: queries that become traces, and a retriever that is scored in the background."""

from __future__ import annotations

import inspect
import time
from typing import Any, Self

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined, unused-ignore]
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.instrumentation.events import BaseEvent
    from llama_index.core.instrumentation.span import BaseSpan
    from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
    from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
except ImportError:
    from ragfault.errors import MissingExtra

    raise MissingExtra("ragfault.plugins.llamaindex", "llamaindex", "pip install llama-index-core") from None

from ragfault.online import Background
from ragfault.online.retriever import failed, submit
from ragfault.plugins.recording import Delivery, Recorder, To, documents

__all__ = ["MeasuredRetriever", "TraceHandler"]


class MeasuredRetriever(BaseRetriever):
    """A retriever of LlamaIndex that hands on what another one finds, and has it scored in the background.

    It stands in query engines wherever the other one stood. Nodes come back unchanged, errors are raised as they were;
    both also reach the background.
    """

    def __init__(self, retriever: BaseRetriever, background: Background, *, route: str | None = None) -> None:
        super().__init__()
        self._retriever, self._background, self._route = retriever, background, route

    def retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """What the other one finds; the way round `_retrieve` would do all the work of a retrieval twice."""
        begin = time.perf_counter()
        try:
            found = self._retriever.retrieve(str_or_query_bundle)
        except Exception as error:
            self._background.submit(failed(_text(str_or_query_bundle), error, begin, self._route))
            raise
        submit(self._background, _text(str_or_query_bundle), found, begin, self._route)
        return found

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """The same, awaited."""
        begin = time.perf_counter()
        try:
            found = await self._retriever.aretrieve(str_or_query_bundle)
        except Exception as error:
            self._background.submit(failed(_text(str_or_query_bundle), error, begin, self._route))
            raise
        submit(self._background, _text(str_or_query_bundle), found, begin, self._route)
        return found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve(query_bundle)


def _text(query: QueryType) -> str:
    return query.query_str if isinstance(query, QueryBundle) else query


class TraceHandler:
    """Makes a trace of every outermost query, retrieval or chat of LlamaIndex, from its instrumentation.

    `with TraceHandler(background): engine.query(…)`, or `TraceHandler("traces.jsonl").attach()` for the life of a
    program. The trace holds query, nodes, answer, model, times and errors, of plain and async calls. An answer that is
    streamed is not seen: score it with `ragfault.online.score_response` when it is whole.
    """

    def __init__(self, to: To, *, route: str | None = None) -> None:
        recorder = Recorder(to, route)
        self.delivery: Delivery = recorder.delivery
        self._spans, self._events = _Spans(recorder), _Events(recorder)

    def attach(self) -> Self:
        """Listen from now on."""
        root = get_dispatcher()
        root.add_span_handler(self._spans)
        root.add_event_handler(self._events)
        return self

    def detach(self) -> None:
        """Listen no more."""
        root = get_dispatcher()
        root.span_handlers = [one for one in root.span_handlers if one is not self._spans]
        root.event_handlers = [one for one in root.event_handlers if one is not self._events]

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()


class _Spans(BaseSpanHandler[BaseSpan]):
    """Tells a recorder when calls begin and end."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    _recorder: Recorder

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
        given = next((text for value in bound_args.arguments.values() if (text := _asked(value))), None)
        held = (
            {"openinference.span.kind": "CHAIN", "input.value": given}
            if parent_span_id is None and given
            else {}
        )
        self._recorder.begin(_key(id_), name, _key(parent_span_id), held)

    def prepare_to_exit_span(self, id_: str, *_: Any, result: Any = None, **__: Any) -> None:
        said = getattr(result, "response", None)
        self._recorder.end(_key(id_), {"output.value": said} if isinstance(said, str) and said else {})

    def prepare_to_drop_span(self, id_: str, *_: Any, err: BaseException | None = None, **__: Any) -> None:
        self._recorder.end(_key(id_), error=err)


class _Events(BaseEventHandler):
    """Tells a recorder what happened within a call."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    _recorder: Recorder

    def handle(self, event: BaseEvent, **_: Any) -> None:
        read = EVENTS.get(type(event).__name__)
        if read is not None:
            self._recorder.tell(_key(event.span_id), read(event))


def _key(name: str | None) -> str:
    """The unique part of a span's name: `RetrieverQueryEngine.query-UUID`."""
    return (name or "")[-36:]


def _asked(value: Any) -> str | None:
    """The words of a query or a message."""
    found = (
        value
        if isinstance(value, str)
        else getattr(value, "query_str", None) or getattr(value, "content", None)
    )
    return found if isinstance(found, str) and found.strip() else None


def _prompted(event: Any) -> dict[str, Any]:
    """What a model is asked, and which one."""
    model = event.model_dict or {}
    messages = getattr(event, "messages", None)
    said = (
        [{"role": "user", "content": getattr(event, "prompt", "")}]
        if messages is None
        else _messages(messages)
    )
    return {
        "openinference.span.kind": "LLM",
        "gen_ai.input.messages": said,
        "gen_ai.request.model": model.get("model") or model.get("model_name"),
    }


def _completed(event: Any) -> dict[str, Any]:
    """What a model said, and what it took."""
    response = event.response
    if response is None:
        return {}
    message = getattr(response, "message", None)
    said = message.content if message is not None else response.text
    usage = getattr(response.raw, "usage", None) or (
        response.raw.get("usage") if isinstance(response.raw, dict) else None
    )
    return {
        "gen_ai.output.messages": [{"role": "assistant", "content": said or ""}],
        "gen_ai.usage.input_tokens": _count(usage, "prompt_tokens", "input_tokens"),
        "gen_ai.usage.output_tokens": _count(usage, "completion_tokens", "output_tokens"),
    }


def _count(usage: Any, *names: str) -> int | None:
    values = (usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def _messages(found: Any) -> list[dict[str, Any]]:
    return [
        {"role": str(getattr(one.role, "value", one.role)), "content": one.content or ""} for one in found
    ]


def _found(kind: str) -> Any:
    return lambda event: {
        "openinference.span.kind": kind,
        "gen_ai.retrieval.documents": documents(event.nodes),
    }


EVENTS: dict[str, Any] = {
    "QueryStartEvent": lambda event: {"openinference.span.kind": "CHAIN", "input.value": _asked(event.query)},
    "QueryEndEvent": lambda event: {"output.value": getattr(event.response, "response", None)},
    "RetrievalStartEvent": lambda event: {
        "openinference.span.kind": "RETRIEVER",
        "input.value": _asked(event.str_or_query_bundle),
    },
    "RetrievalEndEvent": _found("RETRIEVER"),
    "ReRankStartEvent": lambda event: {
        "openinference.span.kind": "RERANKER",
        "input.value": _asked(event.query),
    },
    "ReRankEndEvent": _found("RERANKER"),
    "EmbeddingStartEvent": lambda _: {"openinference.span.kind": "EMBEDDING"},
    "LLMChatStartEvent": _prompted,
    "LLMChatEndEvent": _completed,
    "LLMCompletionStartEvent": _prompted,
    "LLMCompletionEndEvent": _completed,
}
"""Event → what it tells of the call in which it happened, in the words of OpenInference and gen_ai."""
