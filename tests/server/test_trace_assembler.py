"""Joining in the server: spans in any order, twice, late, over kills; each trace goes to the store once."""

from __future__ import annotations

from pathlib import Path

import pytest

from server_process import Server, otlp, rag_spans, run_server
from waiting import wait_until

pytestmark = pytest.mark.long

pytest.importorskip("fastapi", reason="the server needs the extra `server`")

METRICS = "context_relevance,groundedness,answer_relevance"
JSON = {"Content-Type": "application/json"}


def wait_for_metric(server: Server, line: str) -> None:
    """Wait until `/metrics` contains a line."""
    wait_until(lambda: line in server.ask("/metrics").body.decode().splitlines())


def test_spans_come_in_any_order_twice_and_late(tmp_path: Path):
    """Spans may come before their root and come again; those that come after their trace has gone out are counted."""
    name = "0" * 31 + "6"
    chain, retrieve, llm = rag_spans(name)
    with run_server(tmp_path / "s", "--metrics", METRICS) as server:
        for spans in ((llm,), (retrieve, llm), (retrieve,), (chain, chain)):
            assert server.ask("/v1/traces", otlp(*spans), JSON).status == 200
        server.settled(1)
        [line] = server.ask("/traces.json").json["lines"]
        trace = server.ask(f"/traces/{line['id']}.json").json["trace"]
        assert [chunk["text"] for chunk in trace["chunks"]] == ["The ferry leaves at ten."]
        assert server.ask("/v1/traces", otlp(retrieve, llm), JSON).status == 200
        wait_for_metric(server, 'ragfault_ingest_total{outcome="late"} 2')
        wait_for_metric(server, "ragfault_spans_pending 0")
        assert len(server.ask("/traces.json").json["lines"]) == 1
