"""Scores on their way back: a real collector decodes them, beside the spans they are about; scoring never waits."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("opentelemetry.proto", reason="OTLP needs the extra `server`")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.scoring.otlp_export import ScoreExporter, check_otlp_settings
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.cli.commands import run_command as command
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.otel.span_tree import locate_origin
from ragfault.io.otel.spans import OtelSpan
from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, Score, Trace, Verdicts
from server_process import build_rag_spans, build_span, encode_spans, run_server
from waiting import wait_until

NAME, ABOUT = "0" * 31 + "7", (b"llm".hex() + "0" * 16)[:16]
JSON = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
MEASURES = (MetricInfo("groundedness", "generation"), MetricInfo("latency", "operation", "lower", 0.0, None))


class Collector(BaseHTTPRequestHandler):
    """What takes OTLP over HTTP, and answers what it is told to."""

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/x-protobuf"
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        kind = ExportLogsServiceRequest if self.path == "/v1/logs" else ExportTraceServiceRequest
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((time.monotonic(), self.path, headers, kind.FromString(body)))
        code, more, answer = self.server.codes.pop(0) if self.server.codes else (200, {}, b"")
        self.send_response(code)
        for name, value in {**more, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def collecting(*codes: tuple[int, dict[str, str], bytes]) -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.seen, server.codes = [], list(codes)
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def records(seen: list[Any]) -> list[tuple[dict[str, Any], Any]]:
    """List attributes and message of each record or span, in order."""
    entries = []
    for *_, request in seen:
        for part in getattr(request, "resource_logs", None) or getattr(request, "resource_spans", ()):
            for scope in getattr(part, "scope_logs", None) or getattr(part, "scope_spans", ()):
                for message in getattr(scope, "log_records", None) or getattr(scope, "spans", ()):
                    entries.append((attributes(message), message))
    return entries


def attributes(message: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in message.attributes}


def scored(number: int = 7, **metadata: Any) -> ScoredTrace:
    """Build a judged trace that was received as spans."""
    name = f"{number:032x}"
    metadata_ = {"otlp": {"span": ABOUT, "response": "r1"}, "service": "shop", **metadata}
    trace = Trace(id=name, query="q", chunks=(Chunk(id="c"),), answer="a", metadata=metadata_)
    scores = (
        Score(trace=name, metric="groundedness", layer="generation", status="scored", value=0.8),
        Score(trace=name, metric="latency", layer="operation", status="scored", value=120.0),
        Score(trace=name, metric="lost", layer="generation", status="failed", reason="the judge was away"),
        Score(trace=name, metric="recall", layer="retrieval", status="undefined", reason="no reference"),
    )
    return ScoredTrace(trace, Verdicts(trace=name, judge="j"), scores)


@contextlib.contextmanager
def exporting_scores(
    folder: Path, url: str, queue_size: int = 100, retry_delays=(0.0, 0.01, 0.01), **more: Any
) -> Iterator[Any]:
    """Run an exporter until the end of the block; yields it and its counters."""
    store = open_store(folder / "s")
    counters = EventCounters(store, time.time)
    exporter = ScoreExporter(
        ServerSettings(store=folder / "s", otlp=url, **more), counters, MEASURES, retry_delays, queue_size
    )
    exporter.start()
    try:
        yield exporter, counters
    finally:
        exporter.close()
        store.close()


# --- what is sent ------------------------------------------------------------------------------------


def test_a_score_is_an_event_beside_its_span(tmp_path: Path):
    """By the conventions: name, value, label, explanation, response; on the trace and span that wrote the answer."""
    with collecting() as collector:
        with exporting_scores(tmp_path, collector.url, otlp_headers=(("x-key", "k"),)) as (exporter, counters):
            exporter.enqueue_scores([scored()])
        [(_, path, headers, request)] = collector.seen
    assert (path, headers["x-key"]) == ("/v1/logs", "k")
    assert attributes(request.resource_logs[0].resource) == {"service.name": "shop"}
    (first, record), (second, _), (third, _) = records(collector.seen)
    assert record.event_name == "gen_ai.evaluation.result"
    assert (record.trace_id.hex(), record.span_id.hex()) == (NAME, ABOUT)
    assert record.time_unix_nano > 1_700_000_000 * 10**9
    assert first == {
        "gen_ai.evaluation.name": "groundedness",
        "gen_ai.evaluation.score.value": 0.8,
        "gen_ai.evaluation.score.label": "high",
        "gen_ai.response.id": "r1",
        "ragfault.layer": "generation",
    }
    assert second["gen_ai.evaluation.score.value"] == 120.0
    assert "gen_ai.evaluation.score.label" not in second
    assert third["error.type"] == "ragfault.failed"
    assert third["gen_ai.evaluation.explanation"] == "the judge was away"
    assert counters.totals == {"scores_returned": 3}


def test_scores_go_back_as_spans_where_that_is_asked_for(tmp_path: Path):
    """One span for each trace, beneath the one it is about, with the scores; sent twice, it has the same id."""
    with collecting() as collector:
        with exporting_scores(tmp_path, collector.url + "/v1/logs", otlp_spans=True) as (exporter, counters):
            exporter.enqueue_scores([scored()])
            wait_until(lambda: len(collector.seen) >= 2)
            exporter.enqueue_scores([scored()])
        sent = records([seen for seen in collector.seen if seen[1] == "/v1/traces"])
    (scores, record), (_, other) = sent
    assert (record.name, record.trace_id.hex(), record.parent_span_id.hex()) == ("ragfault.evaluate", NAME, ABOUT)
    assert record.links[0].span_id.hex() == ABOUT
    assert record.span_id == other.span_id != bytes.fromhex(ABOUT)
    assert scores == {
        "openinference.span.kind": "EVALUATOR",
        "ragfault.judge": "j",
        "ragfault.score.groundedness": 0.8,
        "ragfault.score.latency": 120.0,
    }
    assert counters.totals == {"scores_returned": 6, "spans_returned": 2}


def test_only_what_came_as_spans_goes_back(tmp_path: Path):
    """Traces of other ways, and such as only look like it, stay here."""
    odd = [
        ScoredTrace(Trace(id="a", query="q"), Verdicts(trace="a"), ()),
        scored(otlp={"span": "xyz"}),
        scored(otlp="span"),
        scored(otlp={}),
        scored(0),
    ]
    with collecting() as collector:
        with exporting_scores(tmp_path, collector.url) as (exporter, counters):
            exporter.enqueue_scores(odd)
        assert collector.seen == []
        assert counters.totals == {}


def test_scores_are_sent_together(tmp_path: Path):
    """What comes within a moment is one request, whatever services it is of."""
    with collecting() as collector:
        with exporting_scores(tmp_path, collector.url) as (exporter, _):
            exporter.enqueue_scores([scored(number, service=f"s{number % 3}") for number in range(1, 51)])
        [(*_, request)] = collector.seen
    assert {attributes(part.resource)["service.name"] for part in request.resource_logs} == {"s0", "s1", "s2"}
    assert len(records(collector.seen)) == 150


# --- what goes wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "tries", "delivered"),
    [([503, 429], 3, True), ([503, 502, 504], 3, False), ([400], 1, False), ([500], 1, False)],
)
def test_what_otlp_calls_passing_is_tried_again(tmp_path: Path, codes, tries, delivered):
    """429, 502, 503 and 504 are tried again, others not; what was lost is counted."""
    with collecting(*((code, {}, b"") for code in codes)) as collector:
        with exporting_scores(tmp_path, collector.url) as (exporter, counters):
            exporter.enqueue_scores([scored()])
            wait_until(lambda: counters.totals)
        assert len(collector.seen) == tries
        assert counters.totals == {"scores_returned" if delivered else "scores_unreturned": 3}


@pytest.mark.long
def test_a_collector_says_when_to_come_again(tmp_path: Path):
    """`Retry-After` is waited for."""
    with collecting((429, {"Retry-After": "1"}, b"")) as collector:
        with exporting_scores(tmp_path, collector.url) as (exporter, counters):
            exporter.enqueue_scores([scored()])
            wait_until(lambda: counters.totals)
        first, second = (seen[0] for seen in collector.seen)
        assert second - first >= 1


def test_what_a_collector_refuses_in_part_is_counted(tmp_path: Path):
    """A partial success says how many records were not taken; an answer that is none is no fault."""
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 2
    with collecting((200, {}, answer.SerializeToString())) as collector:
        with exporting_scores(tmp_path, collector.url) as (exporter, counters):
            exporter.enqueue_scores([scored()])
        assert counters.totals == {"scores_returned": 1, "scores_unreturned": 2}
    with collecting((200, {}, b"\xff\xffnonsense")) as collector:
        with exporting_scores(tmp_path / "b", collector.url) as (exporter, counters):
            exporter.enqueue_scores([scored()])
        assert counters.totals == {"scores_returned": 3}


def test_scoring_never_waits_for_a_collector(tmp_path: Path):
    """Where nobody answers, only so many wait, the rest is dropped and counted, and nobody is held up."""
    with collecting(*[(503, {}, b"")] * 99) as collector:
        with exporting_scores(tmp_path, collector.url, queue_size=5, retry_delays=(0.0, 9999.0)) as (
            exporter,
            counters,
        ):
            exporter.enqueue_scores([scored(1)])
            wait_until(lambda: collector.seen)
            for number in range(2, 22):
                exporter.enqueue_scores([scored(number)])
            assert counters.totals == {"scores_unreturned": 3 * 15}
        assert counters.totals == {"scores_unreturned": 3 * 21}


def test_at_the_end_nobody_is_waited_for_who_is_away(tmp_path: Path):
    """Where nobody answers, what waits at the end is given up at once, and counted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, asked = listening.getsockname()[1], []

        def hang_up() -> None:
            while not ended.is_set():
                line, _ = listening.accept()
                asked.append(line)
                line.close()

        ended = threading.Event()
        thread = threading.Thread(target=hang_up)
        thread.start()
        with exporting_scores(tmp_path, f"http://127.0.0.1:{port}", retry_delays=(0.0, 9999.0)) as (exporter, counters):
            exporter.enqueue_scores([scored(1)])
            wait_until(lambda: asked)
            for number in range(2, 900):
                exporter.enqueue_scores([scored(number)])
        assert len(asked) == 1
        assert counters.totals == {"scores_unreturned": 3 * 899}
        ended.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


@pytest.mark.long
def test_an_address_that_cannot_be_written_down_ends_nothing(tmp_path: Path):
    """Scores for an endpoint whose address no request can name are counted, and the next ones are, too."""
    with exporting_scores(tmp_path, "http://127.0.0.1:9/ä") as (exporter, counters):
        for number in (1, 2):
            exporter.enqueue_scores([scored(number)])
            wait_until(lambda n=3 * number: counters.totals == {"scores_unreturned": n})


@pytest.mark.parametrize(
    "given",
    [
        {"otlp": "collector:4317"},
        {"otlp": "http://"},
        {"otlp_spans": True},
        {"otlp_headers": (("a", "b"),)},
        {"otlp": "http://x", "otlp_headers": (("a b", "c"),)},
        {"otlp": "http://x", "otlp_headers": (("a", "b\r\nc: d"),)},
    ],
)
def test_an_invalid_endpoint_is_rejected_at_the_start(tmp_path: Path, given):
    """No address, a broken header, or spans that go nowhere."""
    with pytest.raises(UsageError):
        check_otlp_settings(ServerSettings(store=tmp_path, **given))


# --- where they go -----------------------------------------------------------------------------------


def test_the_span_that_wrote_the_answer_is_the_one():
    """The last call to a model outside of retrieval, with its response; without one, the root."""

    def make_span(id: str, parent: str | None, end: int, **fields: str) -> OtelSpan:
        return OtelSpan(trace="a", id=id, parent=parent, name=id, end=end, attributes=fields)

    chat = {"gen_ai.operation.name": "chat"}
    root, locate = make_span("1", None, 99), make_span("2", "1", 50, **{"gen_ai.operation.name": "retrieval"})
    rewrite = make_span("3", "2", 95, **chat)
    early, late = (make_span("4", "1", 60, **chat), make_span("5", "1", 90, **chat, **{"gen_ai.response.id": "r5"}))
    assert locate_origin([late, rewrite, early, locate, root]).span == "5"
    assert locate_origin([late, rewrite, early, locate, root]).response == "r5"
    assert locate_origin([locate, root]).span == "1"


@pytest.mark.long
def test_a_server_sends_scores_back_beside_the_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Spans in, scores out: each on the span of the model, with the secrets of the header, and counted."""
    monkeypatch.setenv("RAGFAULT_OTLP_HEADERS", "Authorization=Bearer%20s3cret,x-b=2")
    options = ("--metrics", "groundedness", "--otlp-spans", "--otlp-header", "x-c=3")
    with collecting() as collector, run_server(tmp_path / "s", "--otlp-endpoint", collector.url, *options) as server:
        for number in range(1, 4):
            assert server.ask("/v1/traces", encode_spans(*build_rag_spans(f"{number:032x}")), JSON).status == 200
        assert server.send([Trace(id="native", query="When?", answer="Now.")]).status == 200
        server.settled(4)
        for _ in range(300):
            if len(records(collector.seen)) >= 6:
                break
            time.sleep(0.1)
        headers = collector.seen[0][2]
        assert (headers["authorization"], headers["x-b"], headers["x-c"]) == ("Bearer s3cret", "2", "3")
        events = records([seen for seen in collector.seen if seen[1] == "/v1/logs"])
        spans = records([seen for seen in collector.seen if seen[1] == "/v1/traces"])
        assert sorted(record.trace_id.hex() for _, record in events) == [f"{number:032x}" for number in range(1, 4)]
        assert {record.span_id.hex() for _, record in events} == {ABOUT}
        assert {record.parent_span_id.hex() for _, record in spans} == {ABOUT}
        shown = server.ask(f"/traces/{1:032x}.json").json["scores"]
        assert {event["gen_ai.evaluation.score.value"] for event, _ in events} == {score["value"] for score in shown}
        assert 'ragfault_ingest_total{outcome="scores_returned"} 3' in server.ask("/metrics").body.decode()


@pytest.mark.long
def test_what_was_sent_back_and_comes_in_again_is_no_trace(tmp_path: Path):
    """A collector that sends on to ragfault makes no circle: the spans and events of ragfault are passed over."""
    about = {"openinference.span.kind": "EVALUATOR", "ragfault.score.groundedness": 1.0}
    with run_server(tmp_path / "s", "--workers", "0") as server:
        chain, retrieve, llm = build_rag_spans(NAME)
        mine = build_span(NAME, "ragfault.evaluate", "llm", **about)
        assert server.ask("/v1/traces", encode_spans(chain, retrieve, llm, mine), JSON).status == 200
        wait_until(lambda: server.ask("/overview.json").json["totals"]["pending"] == 0)
        [line] = server.ask("/traces.json").json["lines"]
        assert line["answer"] == "At ten."


def test_serve_tells_what_is_wrong_with_an_endpoint(tmp_path: Path, capsys):
    """Before there is a store."""
    assert command(["serve", "--store", str(tmp_path / "s"), "--otlp-endpoint", "collector"]) == 2
    assert "https://" in capsys.readouterr().err
    asked = ["serve", "--store", str(tmp_path / "s"), "--otlp-endpoint", "http://x", "--otlp-header", "secret"]
    assert command(asked) == 2
    assert "NAME=VALUE" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
