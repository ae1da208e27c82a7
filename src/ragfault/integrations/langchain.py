"""LangChain integration: runs become traces, a retriever is scored in the background, and a chain is guarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ragfault.model.errors import UsageError, require_extra

with require_extra("ragfault.integrations.langchain", "langchain", "pip install langchain-core"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
    from langchain_core.tracers.base import BaseTracer
    from langchain_core.tracers.schemas import Run

from ragfault.apps.guard.actions import Action, answer_async
from ragfault.apps.guard.policy import GuardPolicy
from ragfault.apps.guard.rails import run_sync
from ragfault.apps.guard.runtime import Guard
from ragfault.evaluation.online.instrumentation import RetrievalMeasurement
from ragfault.integrations.recorder import TraceDelivery, TraceSink
from ragfault.io.otel.spans import OtelSpan
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.otel.tracing_platforms import read_langsmith_run
from ragfault.model.records import Chunk, Trace


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


QUESTION_KEYS = ("question", "query", "input")
"""Keys of an input with several fields that hold the question."""


def guard_chain(
    retriever: Runnable[str, list[Document]],
    generator: Runnable[dict[str, str], Any],
    guard: Guard | GuardPolicy | str | Path,
    *,
    actions: Sequence[Action] = ("correct", "widen", "cut", "abstain"),
    strong: Runnable[dict[str, str], Any] | None = None,
    k: int = 5,
    route: str | None = None,
) -> Runnable[Any, str]:
    """Return a chain from a question to a guarded answer: retrieve, check, generate, decide, act, else abstain.

    `generator` gets the keys question, context (the texts of the passages) and feedback (empty at first), such as
    `prompt | model | StrOutputParser()`. `guard` may be a policy or its file; `actions`, `strong` and `route` are those
    of `guard.actions.answer`; k passages are asked of retrievers with `search_kwargs`, others return as many
    as they do. The input is a text or has a question, query or input. Plain, async and batched calls are guarded, and
    a stream gives the answer at once, when it is decided on.
    """
    guarded_by = guard if isinstance(guard, Guard) else Guard(guard)

    async def guard_async(question: Any, config: RunnableConfig) -> str:
        def write(runnable: Runnable[dict[str, str], Any]) -> Any:
            async def generate(query: str, chunks: Sequence[Chunk], feedback: str) -> str:
                context = "\n\n".join(chunk.text for chunk in chunks)
                inputs = {"question": query, "context": context, "feedback": feedback}
                return _get_text(await runnable.ainvoke(inputs, config))

            return generate

        async def retrieve(query: str, size: int) -> list[Document]:
            limits = getattr(retriever, "search_kwargs", None)
            options: dict[str, Any] = {"k": size} if isinstance(limits, dict) else {}
            return await retriever.ainvoke(query, config, **options)

        guarded = await answer_async(
            guarded_by,
            _get_question(question),
            retrieve,
            write(generator),
            actions=actions,
            strong=None if strong is None else write(strong),
            k=k,
            route=route,
        )
        return guarded.text

    def guard_plain(question: Any, config: RunnableConfig) -> str:
        return run_sync(guard_async(question, config))

    return RunnableLambda(guard_plain, afunc=guard_async, name="guard")


def _get_question(question: Any) -> str:
    if isinstance(question, str):
        return question
    if isinstance(question, Mapping):
        for key in QUESTION_KEYS:
            if isinstance(question.get(key), str):
                return str(question[key])
    raise UsageError("a guarded chain takes a text, or an object with a question, a query or an input.")


def _get_text(message: Any) -> str:
    """Return the text of what a generator returns: a text or a message."""
    if isinstance(message, str):
        return message
    text = getattr(message, "text", None)
    text = text() if callable(text) and not isinstance(text, str) else text
    if isinstance(text, str):
        return str(text)
    raise UsageError(f"the generator returned {type(message).__name__}, which is no text and no message.")
