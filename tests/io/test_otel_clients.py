"""Laws of real clients: what instrumented applications send over HTTP arrives as whole traces."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from installed import skip_without
from otlp_spans import ANSWER, QUERY, TEXTS
from ragfault.io.otel.otlp import decode_request
from ragfault.io.otel.span_buffer import SpanBuffer
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.model.records import TokenCounts, Trace

skip_without("opentelemetry.proto", reason="the extra otlp is not installed")
skip_without("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed")
skip_without("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")


class Collector:
    """A server that takes spans as an OTLP endpoint does, and gives the traces that they make."""

    def __init__(self) -> None:
        self.window = SpanBuffer(settle_time=1)
        self.requests: list[tuple[str, str | None]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                content, encoding = self.headers["Content-Type"], self.headers.get("Content-Encoding")
                collector.requests.append((content, encoding))
                decoded = decode_request(gzip.decompress(body) if encoding else body, content_type=content)
                collector.window.add(decoded.spans, now=0)
                self.send_response(200)
                self.send_header("Content-Type", content)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def traces(self) -> list[Trace]:
        collected = [build_trace(joined.spans, joined.events) for joined in self.window.pop_finished(now=1)]
        return [trace for trace in collected if trace is not None]


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        collector.server.server_close()
        thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


def provider(url: str) -> Any:
    """Return a tracer provider that sends its spans to the collector on flush."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracer_provider = TracerProvider(resource=Resource({"service.name": "service", "service.version": "3.1"}))
    tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, compression=Compression.Gzip)))
    return tracer_provider


@contextlib.contextmanager
def instrumented(instrumentor: Any, url: str) -> Iterator[Any]:
    tracer_provider = provider(url)
    instrumentor.instrument(tracer_provider=tracer_provider)
    try:
        yield tracer_provider
    finally:
        instrumentor.uninstrument()
        tracer_provider.shutdown()


def test_a_plain_sdk_with_gen_ai_attributes(collector):
    """Spans written by hand in the words of the gen_ai conventions arrive packed, in protobuf, as a whole trace."""
    tracer_provider = provider(collector.url)
    tracer = tracer_provider.get_tracer("service")
    question = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
    with tracer.start_as_current_span("POST /ask", attributes={"gen_ai.conversation.id": "visit-7"}):
        with tracer.start_as_current_span("retrieval handbook") as span:
            span.set_attribute("gen_ai.operation.name", "retrieval")
            span.set_attribute("gen_ai.retrieval.query.text", QUERY)
            documents = [{"id": f"p{place}", "score": 0.5, "content": text} for place, text in enumerate(TEXTS)]
            span.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))
        with tracer.start_as_current_span("chat small-1") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.response.model", "small-1")
            span.set_attribute("gen_ai.output.messages", json.dumps(question))
            span.set_attribute("gen_ai.usage.input_tokens", 60)
            span.set_attribute("gen_ai.usage.output_tokens", 9)
    tracer_provider.shutdown()
    [trace] = collector.traces()
    assert collector.requests == [("application/x-protobuf", "gzip")]
    assert (trace.query, trace.answer, trace.conversation, trace.model) == (QUERY, ANSWER, "visit-7", "small-1")
    assert [(chunk.id, chunk.text, chunk.score) for chunk in trace.chunks] == [
        ("p0", TEXTS[0], 0.5),
        ("p1", TEXTS[1], 0.5),
    ]
    assert (trace.tokens, trace.route) == (TokenCounts(prompt=60, completion=9), "POST /ask")
    assert trace.metadata == {"service": "service", "release": "3.1"}
    assert [step.name for step in trace.steps] == ["retrieval handbook", "chat small-1"]
    assert 0 < trace.latency.retrieval < trace.latency.total


def test_an_exception_is_the_error_of_the_trace(collector):
    """An exception that the SDK records on the root is why the trace failed."""
    tracer_provider = provider(collector.url)
    tracer = tracer_provider.get_tracer("service")
    attributes = {"openinference.span.kind": "CHAIN", "input.value": QUERY}
    with pytest.raises(KeyError), tracer.start_as_current_span("ask", attributes=attributes):
        raise KeyError("no index")
    tracer_provider.shutdown()
    [trace] = collector.traces()
    assert (trace.query, trace.answer, trace.error) == (QUERY, None, "KeyError: 'no index'")


# --- LangChain -------------------------------------------------------------------------------------


def langchain(fail: bool = False) -> Any:
    """Build a chain of a fake retriever, a prompt and a fake model."""
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
                raise RuntimeError("the index is not there")
            first = Document(id="p0", page_content=TEXTS[0], metadata={"source": "times.md", "start_index": 12})
            return [first, Document(page_content=TEXTS[1], metadata={"source": "fares.md"})]

    def joined(results: list[Document]) -> str:
        return "\n".join(document.page_content for document in results)

    spent = {"input_tokens": 60, "output_tokens": 9, "total_tokens": 69}
    answer_text = iter([AIMessage(ANSWER, usage_metadata=spent) for _ in range(9)])
    prompt = ChatPromptTemplate.from_template("{context}\nQuestion: {question}")
    given = {"context": Shelf() | joined, "question": RunnablePassthrough()}
    return given | prompt | GenericFakeChatModel(messages=answer_text) | StrOutputParser()


@pytest.fixture
def langchain_traced(collector):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    module = pytest.importorskip(
        "openinference.instrumentation.langchain", reason="its OpenInference instrumentor is not installed"
    )
    with instrumented(module.LangChainInstrumentor(), collector.url) as tracer_provider:
        yield tracer_provider


@pytest.mark.filterwarnings("ignore")
def test_langchain_spans_make_a_complete_trace(collector, langchain_traced):
    """Each question to an instrumented LangChain application is a trace with its passages, answer and tokens."""
    from openinference.instrumentation import using_attributes

    chain = langchain()
    with using_attributes(session_id="visit-7", user_id="u1", metadata={"release": "v3"}, tags=["ferry"]):
        for _ in range(3):
            assert chain.invoke(QUERY) == ANSWER
    langchain_traced.force_flush()
    contents = collector.traces()
    assert len(contents) == 3
    for trace in contents:
        assert (trace.query, trace.answer, trace.route) == (QUERY, ANSWER, "RunnableSequence")
        assert [chunk.text for chunk in trace.chunks] == [*TEXTS]
        first, second = trace.chunks
        assert (first.id, first.document, first.start) == ("p0", "times.md", 12)
        assert (second.id[:2], second.document) == ("t-", "fares.md")
        assert (trace.tokens, trace.conversation) == (TokenCounts(prompt=60, completion=9), "visit-7")
        assert trace.metadata == {"release": "v3", "user": "u1", "tags": ["ferry"], "service": "service"}
        names = [step.name for step in trace.steps]
        assert [names.count(name) for name in ("Shelf", "GenericFakeChatModel", "StrOutputParser")] == [1, 1, 1]
        assert [len(step.chunks) for step in trace.steps if step.name == "Shelf"] == [2]
        assert 0 < trace.latency.retrieval < trace.latency.total
        assert 0 < trace.latency.generation < trace.latency.total


@pytest.mark.filterwarnings("ignore")
def test_a_failure_in_langchain_is_the_error_of_the_trace(collector, langchain_traced):
    """A retriever that raises is the error of the trace, which has no chunks and no answer."""
    with pytest.raises(RuntimeError):
        langchain(fail=True).invoke(QUERY)
    langchain_traced.force_flush()
    [trace] = collector.traces()
    assert (trace.query, trace.chunks, trace.answer) == (QUERY, None, None)
    assert "the index is not there" in trace.error


# --- LlamaIndex ------------------------------------------------------------------------------------


@pytest.fixture
def llamaindex_traced(collector):
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    module = pytest.importorskip(
        "openinference.instrumentation.llama_index", reason="its OpenInference instrumentor is not installed"
    )
    with instrumented(module.LlamaIndexInstrumentor(), collector.url) as tracer_provider:
        yield tracer_provider


@pytest.mark.filterwarnings("ignore")
def test_llamaindex_spans_make_a_complete_trace(collector, llamaindex_traced):
    """A question to an instrumented LlamaIndex engine is a trace; what it records twice is there once."""
    from llama_index.core import VectorStoreIndex
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    nodes = [TextNode(id_="p0", text=TEXTS[0], metadata={"file_name": "times.md"}), TextNode(id_="p1", text=TEXTS[1])]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    llamaindex_traced.force_flush()
    collector.window = SpanBuffer(settle_time=1)
    engine = index.as_query_engine(llm=MockLLM(max_tokens=6), similarity_top_k=2)
    answer = str(engine.query(QUERY))
    llamaindex_traced.force_flush()
    [trace] = collector.traces()
    assert (trace.query, trace.answer, trace.route) == (QUERY, answer, "RetrieverQueryEngine.query")
    assert {(chunk.id, chunk.text, chunk.document) for chunk in trace.chunks} == {
        ("p0", TEXTS[0], "times.md"),
        ("p1", TEXTS[1], None),
    }
    assert all(chunk.score is not None for chunk in trace.chunks)
    names = [step.name.partition(".")[0] for step in trace.steps]
    for name in ("RetrieverQueryEngine", "VectorIndexRetriever", "MockEmbedding", "MockLLM", "CompactAndRefine"):
        assert names.count(name) == 1, names
    assert trace.error is None
    assert 0 < trace.latency.retrieval < trace.latency.total
    assert "vector" not in str(trace)
