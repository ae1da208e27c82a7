"""Frameworks: what chains, engines, pipelines and programs do becomes traces, and they do what they did."""

from __future__ import annotations

import asyncio
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragfault import Trace, read_traces
from ragfault.integrations.recorder import MAX_OPEN_TRACES, TraceRecorder
from ragfault.model.records import TokenCounts

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "false")

QUERY = "When does the last ferry leave?"
ANSWER = "The last ferry leaves at 22:40."
TEXTS = ("The last ferry leaves at 22:40 from the north pier.", "Dogs travel free on every ferry.")


def assert_complete(trace: Trace, *, tokens: TokenCounts | None = None) -> None:
    assert (trace.query, trace.answer, trace.error) == (QUERY, ANSWER, None)
    assert {chunk.text for chunk in trace.chunks} == set(TEXTS)
    assert trace.tokens == tokens
    assert 0 < trace.latency.retrieval < trace.latency.total
    assert sum(len(step.chunks or ()) == 2 for step in trace.steps) >= 1


# --- the recorder ----------------------------------------------------------------------------------


def test_what_is_no_trace_harms_nobody(tmp_path: Path):
    """A function that fails and a trace without a query are counted, and warned of once."""
    broken = TraceRecorder(lambda trace: 1 / 0)
    for key in ("1", "2"):
        broken.begin(key, "ask", None, {"openinference.span.kind": "CHAIN", "input.value": "When?"})
        if key == "1":
            with pytest.warns(RuntimeWarning, match="division by zero"):
                broken.end(key)
        else:
            broken.end(key)
    assert broken.delivery.rejected == 2
    silent = TraceRecorder(tmp_path / "deep" / "traces.jsonl")
    silent.begin("1", "embed", None, {"openinference.span.kind": "EMBEDDING"})
    silent.end("1")
    silent.end("never begun")
    assert silent.delivery.rejected == 0


def test_steps_that_never_end_are_let_go():
    """The oldest are forgotten, so that memory does not grow."""
    recorder = TraceRecorder(lambda trace: None)
    for number in range(MAX_OPEN_TRACES + 50):
        recorder.begin(str(number), "ask", None)
        recorder.begin(f"{number} inner", "search", str(number))
    assert len(recorder._traces) == MAX_OPEN_TRACES
    assert len(recorder._steps) == 2 * MAX_OPEN_TRACES


def test_lines_go_to_a_file(tmp_path: Path):
    """Traces are lines that `read_traces` reads."""
    recorder = TraceRecorder(tmp_path / "traces.jsonl", "counter")
    recorder.begin("1", "ask", None, {"openinference.span.kind": "CHAIN", "input.value": "When?"})
    recorder.end("1", {"output.value": "At ten."})
    [trace] = read_traces(tmp_path / "traces.jsonl")
    assert (trace.query, trace.answer, trace.route) == ("When?", "At ten.", "counter")


# --- LangChain -------------------------------------------------------------------------------------


def chain(fail: bool = False, count: int = 20) -> Any:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnablePassthrough

    class Shelf(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            if fail:
                raise KeyError("no index")
            return [Document(page_content=text, id=f"p{place}") for place, text in enumerate(TEXTS)]

    def joined(result: list[Document]) -> str:
        return "\n".join(document.page_content for document in result)

    spent = {"input_tokens": 60, "output_tokens": 9, "total_tokens": 69}
    message = iter([AIMessage(ANSWER, usage_metadata=spent) for _ in range(count)])
    prompt = ChatPromptTemplate.from_template("{context}\nQuestion: {question}")
    given = {"context": Shelf() | joined, "question": RunnablePassthrough()}
    return given | prompt | GenericFakeChatModel(messages=message) | StrOutputParser()


def test_runs_of_langchain_become_traces():
    """Plain, awaited, batched and streamed calls, each one trace with documents, answer, tokens and times."""
    created = chain()
    from ragfault.integrations.langchain import LangChainTraceHandler

    result: list[Trace] = []
    handler = LangChainTraceHandler(result.append)
    asked = {"callbacks": [handler], "metadata": {"session_id": "visit-7", "tenant": "north"}, "tags": ["ferry"]}
    assert created.invoke(QUERY, config=asked) == ANSWER
    assert asyncio.run(created.ainvoke(QUERY, config=asked)) == ANSWER
    assert created.batch([QUERY] * 3, config=asked) == [ANSWER] * 3
    assert "".join(created.stream(QUERY, config=asked)) == ANSWER
    assert len(result) == 6, version("langchain-core")
    for trace in result[:5]:
        assert_complete(trace, tokens=TokenCounts(prompt=60, completion=9))
    assert (result[5].query, result[5].answer) == (QUERY, ANSWER)
    for trace in result:
        assert [chunk.id for chunk in trace.chunks] == ["p0", "p1"]
        assert (trace.conversation, trace.metadata) == ("visit-7", {"tags": ["ferry"], "tenant": "north"})
    assert not handler.order_map
    assert len({trace.id for trace in result}) == 6


def test_a_failure_in_langchain_is_raised_and_put_down():
    """The caller gets it, and the trace says why it failed, without a stack."""
    created = chain(fail=True)
    from ragfault.integrations.langchain import LangChainTraceHandler

    result: list[Trace] = []
    with pytest.raises(KeyError):
        created.invoke(QUERY, config={"callbacks": [LangChainTraceHandler(result.append)]})
    assert (result[0].query, result[0].chunks, result[0].error) == (QUERY, None, "KeyError('no index')")


def test_collected_runs_and_their_export_are_the_same_trace(tmp_path: Path):
    """What a tracer of LangChain collected is a trace, and so is it as LangSmith writes it to a file."""
    created = chain()
    from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

    from ragfault.integrations.langchain import _export_run, to_trace

    collector = RunCollectorCallbackHandler()
    created.invoke(QUERY, config={"callbacks": [collector]})
    [run] = collector.traced_runs
    trace = to_trace(run)
    assert_complete(trace, tokens=TokenCounts(prompt=60, completion=9))

    def flat(record: dict[str, Any], parent: str | None) -> list[dict[str, Any]]:
        inner = record.pop("child_runs")
        mine = {**record, "parent_run_id": parent, "trace_id": str(run.id)}
        return [mine, *(row for child in inner for row in flat(child, str(record["id"])))]

    nested = json.loads(msgspec.json.encode(_export_run(run)))
    (tmp_path / "nested.json").write_text(json.dumps([nested]))
    lines = flat(json.loads(json.dumps(nested)), None)
    (tmp_path / "flat.jsonl").write_text("\n".join(map(json.dumps, reversed(lines))))
    for name in ("nested.json", "flat.jsonl"):
        reported: list[str] = []
        assert list(read_traces(tmp_path / name, notice=reported.append)) == [trace]
        assert reported[0] == "read as runs of LangSmith"


# --- LlamaIndex ------------------------------------------------------------------------------------


def engine() -> Any:
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    nodes = [TextNode(id_=f"p{place}", text=text) for place, text in enumerate(TEXTS)]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    return index.as_query_engine(llm=MockLLM(max_tokens=6), similarity_top_k=2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_queries_of_llamaindex_become_traces(tmp_path: Path):
    """Plain and awaited; while it listens, and not after; making an index is no trace."""
    created = engine()
    from ragfault.integrations.llamaindex import LlamaIndexTraceHandler

    result: list[Trace] = []
    with LlamaIndexTraceHandler(result.append, route="counter"):
        engine()
        answer = str(created.query(QUERY))
        assert str(asyncio.run(created.aquery(QUERY))) == answer
    created.query(QUERY)
    assert len(result) == 2, version("llama-index-core")
    for trace in result:
        assert (trace.query, trace.answer, trace.route) == (QUERY, answer, "counter")
        assert {(chunk.id, chunk.text) for chunk in trace.chunks} == {("p0", TEXTS[0]), ("p1", TEXTS[1])}
        assert all(chunk.score is not None for chunk in trace.chunks)
        names = [step.name for step in trace.steps]
        assert len(names) == len(set(names)), names
        assert 0 < trace.latency.generation < trace.latency.total


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_failure_in_llamaindex_is_raised_and_put_down():
    """The caller gets it, and the trace says why it failed."""
    created = engine()
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.query_engine import RetrieverQueryEngine

    from ragfault.integrations.llamaindex import LlamaIndexTraceHandler

    class Broken(BaseRetriever):
        def _retrieve(self, query_bundle: Any) -> Any:
            raise KeyError("no index")

    broken = RetrieverQueryEngine(Broken(), created._response_synthesizer)
    result: list[Trace] = []
    with LlamaIndexTraceHandler(result.append), pytest.raises(KeyError):
        broken.query(QUERY)
    assert (result[0].query, result[0].chunks, result[0].error) == (QUERY, None, "KeyError: 'no index'")


# --- Haystack --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_runs_of_a_haystack_pipeline_become_traces():
    """Plain and awaited; what a joiner or a ranker hands on is what the model saw."""
    pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from haystack import Document, Pipeline, component, tracing
    from haystack.components.builders import PromptBuilder
    from haystack.components.joiners import DocumentJoiner

    from ragfault.integrations.haystack import HaystackTracer

    @component
    class ShelfRetriever:
        @component.output_types(documents=list[Document])
        def run(self, query: str) -> dict[str, Any]:
            if query == "broken":
                raise KeyError("no index")
            return {"documents": [Document(id=f"p{place}", content=text) for place, text in enumerate(TEXTS)]}

    @component
    class Model:
        @component.output_types(replies=list[str], meta=list[dict])
        def run(self, prompt: str) -> dict[str, Any]:
            return {"replies": [ANSWER], "meta": [{"model": "small-1", "usage": {"prompt_tokens": 9}}]}

    created = Pipeline()
    created.add_component("search", ShelfRetriever())
    created.add_component("join", DocumentJoiner())
    created.add_component("prompt", PromptBuilder("{{ documents }}{{ question }}", required_variables="*"))
    created.add_component("model", Model())
    created.connect("search", "join")
    created.connect("join", "prompt.documents")
    created.connect("prompt", "model")
    result: list[Trace] = []
    given = {"search": {"query": QUERY}, "prompt": {"question": QUERY}}
    tracing.enable_tracing(HaystackTracer(result.append))
    try:
        assert created.run(given)["model"]["replies"] == [ANSWER]
        if hasattr(created, "run_async"):
            assert asyncio.run(created.run_async(given))["model"]["replies"] == [ANSWER]
        with pytest.raises(Exception, match="no index"):
            created.run({"search": {"query": "broken"}, "prompt": {"question": "broken"}})
    finally:
        tracing.disable_tracing()
    *good, bad = result
    for trace in good:
        assert_complete(trace, tokens=TokenCounts(prompt=9))
        assert (trace.model, [step.name for step in trace.steps][1:]) == ("small-1", ["search", "join", "model"])
    assert (bad.query, bad.answer) == ("broken", None), version("haystack-ai")
    assert "no index" in bad.error


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_component_of_haystack_gives_harms_nobody():
    """Outputs of a form that nobody expects are counted, and the pipeline goes on."""
    pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from ragfault.integrations.haystack import HaystackTracer

    tracer = HaystackTracer(lambda trace: None)
    run = tracer.trace("haystack.component.run", {"haystack.component.type": "Model"})
    step = run.__enter__()
    assert tracer.current_span() is step
    step.set_content_tag("haystack.component.output", {"replies": 3})
    with pytest.warns(RuntimeWarning, match="cannot record"):
        run.__exit__(None, None, None)
    assert tracer.current_span() is None
    assert tracer.delivery.rejected == 1


# --- DSPy ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_calls_of_a_dspy_program_become_traces():
    """Plain and awaited; the passages that a predictor is given are the chunks, and the reasoning is no answer."""
    dspy = pytest.importorskip("dspy", reason="dspy is not installed")
    from dspy.utils import DummyLM

    from ragfault.integrations.dspy import DSPyTraceCallback

    class Program(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.respond = dspy.ChainOfThought("context, question -> answer")

        def forward(self, question: str) -> Any:
            return self.respond(context=list(TEXTS), question=question)

        async def aforward(self, question: str) -> Any:
            return await self.respond.acall(context=list(TEXTS), question=question)

    result: list[Trace] = []
    model = DummyLM([{"reasoning": "It says so.", "answer": ANSWER}] * 2)
    with dspy.context(lm=model, callbacks=[DSPyTraceCallback(result.append)]):
        assert Program()(question=QUERY).answer == ANSWER
        assert asyncio.run(Program().acall(question=QUERY)).answer == ANSWER
    assert len(result) == 2, version("dspy")
    for trace in result:
        assert (trace.query, trace.answer, trace.model, trace.error) == (QUERY, ANSWER, "dummy", None)
        assert [chunk.text for chunk in trace.chunks] == list(TEXTS)

    class Broken(dspy.Module):
        def forward(self, question: str) -> Any:
            raise KeyError("no index")

    with dspy.context(lm=model, callbacks=[DSPyTraceCallback(result.append)]), pytest.raises(KeyError):
        Broken()(question=QUERY)
    assert (result[2].query, result[2].answer, result[2].error) == (QUERY, None, "KeyError: 'no index'")
