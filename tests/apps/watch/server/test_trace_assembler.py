"""Joining in the server: spans in any order, twice, late, over kills; each trace goes to the store once."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from installed import skip_without
from server_process import Server, build_rag_spans, encode_spans, run_server
from waiting import wait_until

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from otlp_spans import TEXTS, build_openinference, build_span
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.ingest import trace_assembler
from ragfault.apps.watch.server.ingest.settling import SpanWait
from ragfault.apps.watch.server.ingest.trace_assembler import TraceAssembler
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.otel.spans import DecodedRequest
from ragfault.metrics.selection import select_metrics

MEASURES = tuple(map(describe_metric, select_metrics(["groundedness"])))

METRICS = "context_relevance,groundedness,answer_relevance"
JSON = {"Content-Type": "application/json"}


def wait_for_metric(server: Server, line: str) -> None:
    """Wait until `/metrics` contains a line."""
    wait_until(lambda: line in server.ask("/metrics").body.decode().splitlines())


@pytest.mark.long
def test_spans_come_in_any_order_twice_and_late(tmp_path: Path):
    """Spans may come before their root, come again, and come after their trace was stored: it stays one trace."""
    name = "0" * 31 + "6"
    chain, retrieve, llm = build_rag_spans(name)
    with run_server(tmp_path / "s", "--metrics", METRICS) as server:
        for spans in ((llm,), (retrieve, llm), (retrieve,), (chain, chain)):
            assert server.ask("/v1/traces", encode_spans(*spans), JSON).status == 200
        server.settled(1)
        [line] = server.ask("/traces.json").json["lines"]
        trace = server.ask(f"/traces/{line['id']}.json").json["trace"]
        assert [chunk["text"] for chunk in trace["chunks"]] == ["The ferry leaves at ten."]
        assert server.ask("/v1/traces", encode_spans(retrieve, llm), JSON).status == 200
        wait_for_metric(server, "ragfault_spans_pending 0")
        assert len(server.ask("/traces.json").json["lines"]) == 1


@pytest.fixture
def assembler(tmp_path: Path) -> Any:
    """An assembler whose thread does not run: rounds are run by the test."""
    store = open_store(tmp_path / "s")
    counters = EventCounters(store, lambda: 0.0)
    yield TraceAssembler(store, counters, lambda _: None, lambda trace: trace, 0)
    store.close()


def wait_for(future: Future[Any]) -> None:
    """Wait until spans are stored and in the queue."""
    future.result(timeout=60)


def test_spans_that_wait_to_be_joined_are_bounded(assembler: TraceAssembler, monkeypatch: pytest.MonkeyPatch):
    """Beyond the bound the assembler is full, and it has room again once they are joined."""
    monkeypatch.setattr(trace_assembler, "MAX_INCOMING_BYTES", 2000)
    assert not assembler.is_full
    for trace in range(4):
        wait_for(assembler.add_spans(build_openinference(trace)))
    wait_until(lambda: assembler.is_full)
    assembler._run_round(0.0)
    assert (assembler.is_full, assembler._incoming_bytes) == (False, 0)


def test_a_trace_of_spans_has_a_size(assembler: TraceAssembler):
    """Long texts of many steps are cut, chunks and answer are not; a trace that is too large even so is rejected."""
    inner = [build_span(at, at, at + 1, "tool", 0, **TOOL) for at in range(10, 90)]
    large = [build_span(at, at, at + 1, "tool", 0, trace=1, **TOOL, **{"x": 1}) for at in range(10, 20)]
    chunks = {f"retrieval.documents.{at}.document.content": f"{at} " + "y" * 200_000 for at in range(50)}
    large.append(build_span(5, 5, 6, "search", 0, trace=1, held={"openinference.span.kind": "RETRIEVER", **chunks}))
    for spans in (build_openinference(0) + inner, [build_openinference(1)[0], *large]):
        wait_for(assembler.add_spans(spans))
    wait_until(lambda: assembler._incoming.qsize() == 2)
    assembler._run_round(0.0)
    [line] = assembler._store.list_traces(TraceSelection()).lines
    trace = assembler._store.get_trace(line.id).trace
    assert sum(len(step.output or "") for step in trace.steps) < trace_assembler.MAX_STEP_BYTES
    assert all(step.output.endswith(" (cut)") for step in trace.steps if step.name == "tool")
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)
    assert assembler._counters.totals["rejected"] == 1


TOOL = {"openinference.span.kind": "TOOL", "input.value": "x" * 19_000, "output.value": "z" * 19_000}


def join(assembler: TraceAssembler, *spans: Any, now: float) -> None:
    """Send spans and join them at a time."""
    wait_for(assembler.add_spans(spans))
    wait_until(assembler._incoming.qsize)
    assembler._run_round(now)


def load_one(assembler: TraceAssembler) -> Any:
    """Return the one trace of the store."""
    [line] = assembler._store.list_traces(TraceSelection()).lines
    return assembler._store.get_trace(line.id)


def list_counts(store: TraceStore) -> list[Any]:
    """Return the roll-ups that count something, merged and not."""
    rollups = (*store.read_total_rollups(), *store.read_rollups(0, 2**31 - 1, cohort=None))
    return [rollup for rollup in rollups if rollup.n or rollup.undefined or rollup.failed]


def test_late_spans_reopen_their_trace(assembler: TraceAssembler, tmp_path: Path):
    """Spans that come minutes after their trace was stored complete it: one trace, to be judged again, counted once."""
    store, (chain, retrieve, llm) = assembler._store, build_openinference(0)
    join(assembler, chain, llm, now=0.0)
    first = load_one(assembler)
    assert first.trace.chunks is None
    outcome = TraceScorer("lexical", metrics=["groundedness"])(first.trace)
    store.add_outcomes([outcome], MEASURES).result()
    join(assembler, retrieve, now=300.0)
    again = load_one(assembler)
    assert ([chunk.text for chunk in again.trace.chunks], again.state) == (list(TEXTS), "waiting")
    [waiting] = store.list_unscored()
    outcome = TraceScorer("lexical", metrics=["groundedness"])(waiting.trace)
    assert store.add_outcomes([outcome], MEASURES, numbers={waiting.trace.id: waiting.number}).result() == 1
    fresh = open_store(tmp_path / "fresh")
    fresh.append_traces([waiting.trace]).result()
    fresh.add_outcomes([outcome], MEASURES).result()
    assert list_counts(store) == list_counts(fresh)
    store.compact().result()
    assert list_counts(store) == list_counts(fresh)
    fresh.close()
    assert assembler._counters.totals == {"taken": 1, "reopened": 1}


def test_the_outcome_of_a_replaced_trace_is_passed_over(assembler: TraceAssembler):
    """A verdict on the earlier version of a trace that was replaced meanwhile does not count for the later one."""
    store, (chain, retrieve, llm) = assembler._store, build_openinference(0)
    join(assembler, chain, llm, now=0.0)
    [earlier] = store.list_unscored()
    join(assembler, retrieve, now=1.0)
    outcome = TraceScorer("lexical", metrics=["groundedness"])(earlier.trace)
    assert store.add_outcomes([outcome], MEASURES, numbers={earlier.trace.id: earlier.number}).result() == 0
    assert load_one(assembler).state == "waiting"


def test_spans_later_than_ten_minutes_are_counted(assembler: TraceAssembler):
    """After ten minutes the spans of a trace are deleted; later ones change nothing and count as late."""
    chain, retrieve, llm = build_openinference(0)
    join(assembler, chain, llm, now=0.0)
    assert len(assembler._store.list_pending()) == 1
    assembler._run_round(601.0)
    assert not assembler._store.list_pending()
    join(assembler, retrieve, now=602.0)
    assert load_one(assembler).trace.chunks is None
    assert assembler._counters.totals["late"] == 1


@pytest.mark.parametrize("sent", [((0, 2), (), (1,)), ((0, 2, 1), (), ())])
def test_a_restart_replaces_no_complete_trace(tmp_path: Path, sent: Any):
    """Spans that are pending after a restart build the traces that are stored already, and later ones complete them."""
    spans = build_openinference(0)
    for places in sent:
        store = open_store(tmp_path / "s")
        assembler = TraceAssembler(store, EventCounters(store, lambda: 0.0), lambda _: None, lambda trace: trace, 0.001)
        assembler.start()
        if places:
            wait_for(assembler.add_spans([spans[place] for place in places]))
        while assembler.pending_bodies:
            time.sleep(0.01)
        assembler.close()
        trace = load_one(assembler).trace
        store.close()
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)


def test_the_wait_follows_the_traffic(assembler: TraceAssembler):
    """A service whose spans come later than the wait makes it longer, up to a bound, and an instant one short again."""
    wait = SpanWait(6.0)
    for _ in range(50):
        wait.add(12.0)
    assert wait.seconds == 15.0
    for _ in range(2000):
        wait.add(0.1)
    assert wait.seconds == 6.0
    wait.add(500.0)
    for _ in range(20):
        wait.add(500.0)
    assert wait.seconds == 60.0


def test_a_huge_trace_retains_its_essential_spans(assembler: TraceAssembler):
    """Beyond the limit the root, models and retrieval are accepted; the exporter gets the count of the others."""
    chain, retrieve, llm = build_openinference(0)
    steps = [build_span(at, at, at + 1, "step", 0, held={"x": 1}) for at in range(100, 6100)]
    decoded = assembler.select_spans(DecodedRequest((*steps, retrieve, llm, chain)))
    assert len(decoded.spans) == 5003
    assert (decoded.rejected_count, bool(decoded.message)) == (1000, True)
    join(assembler, *decoded.spans, now=0.0)
    later = assembler.select_spans(DecodedRequest(steps[:10]))
    assert not later.rejected_count
    assert [chunk.text for chunk in load_one(assembler).trace.chunks] == list(TEXTS)


def test_a_trace_without_its_root_is_named_by_what_it_has(assembler: TraceAssembler):
    """Where the root never comes, query, chunks and answer are those of the spans that did."""
    _, retrieve, llm = build_openinference(0)
    join(assembler, retrieve, llm, now=0.0)
    assembler._run_round(200.0)
    trace = load_one(assembler).trace
    assert (bool(trace.query), [chunk.text for chunk in trace.chunks], bool(trace.answer)) == (True, list(TEXTS), True)
    assert trace.route == retrieve.name


SERVICE = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

provider = TracerProvider(resource=Resource.create({"service.name": sys.argv[2]}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(sys.argv[1] + "/v1/traces")))
tracer = provider.get_tracer("test")
for line in sys.stdin:
    at, name, *context = line.split()
    if name == "retrieve":
        parent = NonRecordingSpan(SpanContext(int(context[0], 16), int(context[1], 16), True, TraceFlags(1)))
        span = tracer.start_span("retrieve", context=set_span_in_context(parent))
        span.set_attribute("openinference.span.kind", "RETRIEVER")
        span.set_attribute("input.value", f"When does ferry {at} leave?")
        span.set_attribute("retrieval.documents.0.document.content", f"Ferry {at} leaves at ten.")
    else:
        span = tracer.start_span("ask")
        span.set_attribute("openinference.span.kind", "CHAIN")
        span.set_attribute("input.value", f"When does ferry {at} leave?")
        span.set_attribute("output.value", "At ten.")
        held = span.get_span_context()
        print(f"{held.trace_id:032x} {held.span_id:016x}", flush=True)
    span.end()
provider.shutdown()
"""


@pytest.mark.long
def test_two_services_with_the_default_batch_delay(tmp_path: Path):
    """Of traces whose parts two exporters send, each every 5 s, all have their chunks, and each is stored once."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the exporter of OpenTelemetry is missing")
    with run_server(tmp_path / "s", "--metrics", METRICS) as server, contextlib.ExitStack() as stack:

        def start(name: str) -> Any:
            command = [sys.executable, "-c", SERVICE, server.url, name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            return stack.enter_context(subprocess.Popen(command, **pipes))

        # the services start apart, so that their exporters do not send together
        asks = start("front")
        time.sleep(2.5)
        retrieves = start("search")
        for at in range(60):
            print(at, "ask", file=asks.stdin, flush=True)
            print(at, "retrieve", asks.stdout.readline().strip(), file=retrieves.stdin, flush=True)
            time.sleep(0.2)
        for service in (asks, retrieves):
            service.communicate(timeout=60)
        server.settled(60)
        lines = server.ask("/traces.json", limit=100).json["lines"]
        chunks = [server.ask(f"/traces/{line['id']}.json").json["trace"].get("chunks") for line in lines]
        assert (len(lines), sum(map(bool, chunks))) == (60, 60)


def test_attributes_that_no_field_takes_are_counted(assembler: TraceAssembler):
    """A text in an attribute of its own name is listed by its path, with the number of traces that have it."""
    note = "The crew wrote this note by hand, and no field of a trace takes it: " * 2
    for trace in range(3):
        first, *others = build_openinference(trace)
        noted = msgspec.structs.replace(first, attributes={**first.attributes, "crew.note": note})
        wait_for(assembler.add_spans([noted, *others]))
    wait_until(lambda: not assembler._incoming.empty())
    assembler._run_round(0.0)
    assembler._run_round(1.0)
    [(path, count)] = [item for item in assembler._unread.paths.items() if "crew.note" in item[0]]
    assert (path.endswith("crew.note"), count) == (True, 3)
