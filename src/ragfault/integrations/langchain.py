"""LangChain integration: runs become traces, and a retriever is scored in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.langchain", "langchain", "pip install langchain-core"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tracers.base import BaseTracer
    from langchain_core.tracers.schemas import Run

from ragfault.evaluation.online.instrumentation import RetrievalMeasurement
from ragfault.integrations.recorder import TraceDelivery, TraceSink
from ragfault.io.otel.spans import OtelSpan
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.otel.tracing_platforms import read_langsmith_run
from ragfault.model.records import Trace


class LangChainTraceHandler(BaseTracer):
    """A callback handler that makes a trace of each outermost run, for a background scorer, a function or a file.

    `chain.invoke(question, config={"callbacks": [LangChainTraceHandler(background)]})`. The trace has query,
    documents, answer, model, tokens, times and errors; a thread or session of the metadata is its
    conversation. Plain, async, batched and streamed calls are recorded; no error in it reaches the caller.
    """

    run_inline = True
    """Steps of async chains arrive in order."""

    def __init__(self, sink: TraceSink, *, route: str | None = None) -> None:
        super().__init__()
        self.delivery = TraceDelivery(sink, route)

    def _persist_run(self, run: Run) -> None:
        """Deliver the trace of an outermost run, and discard the order of its runs."""
        try:
            operations = _to_operations(run)
        except Exception as error:  # noqa: BLE001 - recording never breaks the caller
            self.delivery.reject(error)
            return
        finally:
            _clear_order(run, self.order_map)
        self.delivery.deliver_operations(operations)


def to_trace(run: Run) -> Trace | None:
    """Convert a run that a tracer of LangChain collected, with its inner runs, to a trace; None if it is not RAG.

    For runs in a file, as LangSmith exports them: `ragfault evaluate runs.jsonl`. Raises a ValueError if the
    run has no query.
    """
    return build_trace(_to_operations(run))


def _to_operations(run: Run) -> tuple[OtelSpan, ...]:
    return read_langsmith_run(_export_run(run))


def _export_run(run: Run) -> dict[str, Any]:
    """Export a run as LangSmith does, with inputs and outputs as plain objects."""
    return {
        "id": run.id,
        "parent_run_id": None,
        "name": run.name,
        "run_type": run.run_type,
        "start_time": run.start_time,
        "end_time": run.end_time,
        "error": run.error,
        "inputs": _to_plain(run.inputs),
        "outputs": _to_plain(run.outputs),
        "extra": _to_plain(run.extra),
        "tags": run.tags,
        "child_runs": [_export_run(child) for child in run.child_runs],
    }


def _to_plain(value: Any) -> Any:
    """Convert documents and messages to plain objects; other objects become None."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Document):
        return {"id": value.id, "page_content": value.page_content, "metadata": _to_plain(value.metadata)}
    if isinstance(value, BaseMessage):
        fields = ("type", "content", "usage_metadata", "response_metadata")
        return {name: _to_plain(getattr(value, name, None)) for name in fields}
    if hasattr(value, "messages"):
        return _to_plain(value.messages)
    return None


def _clear_order(run: Run, order_map: dict[Any, Any]) -> None:
    order_map.pop(run.id, None)
    for child in run.child_runs:
        _clear_order(child, order_map)


class MeasuredLangChainRetriever(BaseRetriever):
    """A retriever of LangChain that returns the result of another one, and has it scored in the background.

    It replaces the other one in chains: `MeasuredLangChainRetriever(retriever=…, background=…)`. Documents
    are returned, and errors raised, unchanged; both also reach the background scorer.
    """

    retriever: BaseRetriever
    background: Any
    """A `ragfault.evaluation.online.background.BackgroundScorer`."""
    route: str | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        with RetrievalMeasurement(self.background, query, self.route) as measurement:
            measurement.result = self.retriever.invoke(query, config={"callbacks": run_manager.get_child()})
        return cast(list[Document], measurement.result)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        with RetrievalMeasurement(self.background, query, self.route) as measurement:
            measurement.result = await self.retriever.ainvoke(query, config={"callbacks": run_manager.get_child()})
        return cast(list[Document], measurement.result)
