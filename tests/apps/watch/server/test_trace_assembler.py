"""Joining in the server: spans in any order, twice, late, over kills; each trace goes to the store once."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from server_process import Server, build_rag_spans, encode_spans, run_server
from waiting import wait_until

pytest.importorskip("duckdb", reason="the server needs the extra `server`")
pytest.importorskip("fastapi", reason="the server needs the extra `server`")

from otlp_spans import TEXTS, build_openinference, build_span
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.ingest import trace_assembler
from ragfault.apps.watch.server.ingest.trace_assembler import TraceAssembler
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import TraceSelection

METRICS = "context_relevance,groundedness,answer_relevance"
JSON = {"Content-Type": "application/json"}


def wait_for_metric(server: Server, line: str) -> None:
    """Wait until `/metrics` contains a line."""
    wait_until(lambda: line in server.ask("/metrics").body.decode().splitlines())


@pytest.mark.long
def test_spans_come_in_any_order_twice_and_late(tmp_path: Path):
    """Spans may come before their root and come again; those that come after their trace has gone out are counted."""
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
        wait_for_metric(server, 'ragfault_ingest_total{outcome="late"} 2')
        wait_for_metric(server, "ragfault_spans_pending 0")
        assert len(server.ask("/traces.json").json["lines"]) == 1


@pytest.fixture
def assembler(tmp_path: Path) -> Any:
    """An assembler whose thread does not run: rounds are run by the test."""
    store = open_store(tmp_path / "s")
    counters = EventCounters(store, lambda: 0.0)
    yield TraceAssembler(store, counters, lambda _: None, lambda trace: trace, settle_seconds=0)
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
