"""The server: real processes over real HTTP; what is acknowledged stays, what is refused is told, nobody gets a 500."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from ragfault import evaluate
from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.monitoring.noise import describe_promise
from ragfault.apps.watch.server.alerts.delivery import WEBHOOK_FORMATS, IncidentNotice, NoticeSender, sign_body
from ragfault.apps.watch.server.api.json_api import render_metrics
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.ingest.incoming_traces import read_traces
from ragfault.apps.watch.server.request_limits import RateLimiter
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.outcome_rows import SUM_COLUMNS
from ragfault.cli.commands import run_command as command
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.http.request_limits import RequestLimits
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.run import Run
from ragfault.judges.calibration import CalibrationFigures, CalibrationLine, JudgeCalibration
from ragfault.judges.loading import load_judge
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Trace
from server_process import Server, build_rag_spans, build_span, encode_spans, list_ids, run_server
from waiting import wait_until

TRACES = list(load_handbook().traces["v1"])
METRICS = "context_relevance,groundedness,answer_relevance"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    """A server with the demo's traces, all judged."""
    with run_server(tmp_path_factory.mktemp("served") / "s", "--metrics", METRICS) as running:
        assert running.send(TRACES).status == 200
        running.settled(len(TRACES))
        yield running


# --- what is acknowledged stays ----------------------------------------------------------------------


@pytest.mark.long
def test_what_was_acknowledged_survives_kills_and_retries(tmp_path: Path):
    """Killed in the middle of a flood and asked again by its clients, a server has every acknowledged trace once."""
    acknowledged: set[str] = set()
    for turn in range(3):
        server = Server(tmp_path / "s", "--metrics", METRICS)
        end = threading.Timer(0.6 + 0.4 * turn, server.process.kill)
        end.start()
        at = 0
        while True:
            batch = [Trace(id=f"{turn}-{at}-{n}", query="When?", answer="Now.") for n in range(4)]
            try:
                answer = server.send(batch)
            except OSError:
                break
            acknowledged |= {trace.id for trace in batch} if answer.status == 200 else set()
            at += 1
        end.join()
        server.process.wait()
        server.process.stdout.close()
    with run_server(tmp_path / "s", "--metrics", METRICS) as server:
        again = [Trace(id=name, query="When?", answer="Now.") for name in sorted(acknowledged)]
        for first in range(0, len(again), 1000):
            part = again[first : first + 1000]
            assert server.send(part).json["repeated"] == len(part)
        server.settled(len(acknowledged))
        there = list_ids(server)
        assert acknowledged <= set(there)
        assert len(there) == len(set(there))


@pytest.mark.long
def test_what_waited_is_judged_after_a_kill(tmp_path: Path):
    """Traces that were stored and not judged when the server died are judged by the next one."""
    server = Server(tmp_path / "s", "--workers", "0")
    assert server.send(TRACES[:20]).json["taken"] == 20
    server.end(signal.SIGKILL)
    with run_server(tmp_path / "s", "--metrics", METRICS) as server:
        server.settled(20)
        assert {line["state"] for line in server.ask("/traces.json").json["lines"]} == {"scored"}


@pytest.mark.long
def test_spans_that_were_acknowledged_survive_a_kill(tmp_path: Path):
    """The first half of a trace's spans comes before a kill, the other after it: the trace is whole."""
    name = "0" * 31 + "7"
    server = Server(tmp_path / "s", "--metrics", METRICS)
    chain, retrieve, llm = build_rag_spans(name)
    assert post_spans(server, retrieve, llm).status == 200
    server.end(signal.SIGKILL)
    with run_server(tmp_path / "s", "--metrics", METRICS) as server:
        assert post_spans(server, chain).status == 200
        server.settled(1)
        [line] = server.ask("/traces.json").json["lines"]
        trace = server.ask(f"/traces/{line['id']}.json").json["trace"]
        assert trace["query"] == "When does the ferry leave?"
        assert [chunk["text"] for chunk in trace["chunks"]] == ["The ferry leaves at ten."]
        assert (trace["answer"], trace["model"]) == ("At ten.", "small")


def post_spans(server: Server, *spans) -> object:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return server.ask("/v1/traces", encode_spans(*spans), headers)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["duckdb", "chdb"])
def test_of_servers_started_at_once_on_one_store_one_serves(tmp_path: Path, engine: str):
    """The others end at once and say what to do; what it acknowledged is there once, after a kill and for the next."""
    pytest.importorskip(engine)
    place = {"duckdb": str(tmp_path / "s"), "chdb": f"chdb://{tmp_path}/engine"}[engine]
    options = ("--workers", "0", *(("--folder", str(tmp_path / "files")) if engine == "chdb" else ()))
    asked = [sys.executable, "-m", "ragfault", "serve", "--store", place, "--port", "0", *options]
    shared: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    rivals = [subprocess.Popen(asked, env=environment, **shared) for _ in range(3)]
    wait_until(lambda: sum(rival.poll() is not None for rival in rivals) == 2, pause=0.1)
    [first] = [rival for rival in rivals if rival.poll() is None]
    for rival in rivals:
        if rival is not first:
            _, errors = rival.communicate()
            assert rival.returncode == 2
            assert re.search("another process owns (the store|it).* end (it|that) first, or name another store", errors)
    assert first.stdout is not None
    url = first.stdout.readline().split()[-1]
    with urlopen(f"{url}/v1/ragfault/traces", msgspec.json.encode(TRACES)) as response:
        assert json.load(response)["taken"] == len(TRACES)
    first.kill()
    first.communicate()
    with run_server(place, *options) as server:
        assert server.send(TRACES).json["repeated"] == len(TRACES)
        assert sorted(list_ids(server)) == sorted(trace.id for trace in TRACES)


@pytest.mark.long
def test_a_server_ends_in_order(tmp_path: Path):
    """Told to end, it answers what is under way, lets the store go, and leaves with 0."""
    server = Server(tmp_path / "s", "--metrics", METRICS)
    server.send(TRACES[:10])
    assert server.end() == 0
    store = open_store(tmp_path / "s")
    assert store.compute_totals().traces == 10
    store.close()


# --- what comes in -----------------------------------------------------------------------------------


def test_bodies_of_three_kinds_are_taken(server: Server):
    """One trace, a list, and one a line, packed or not, are the same."""
    lines = b"\n".join(json.dumps({"id": f"l{n}", "query": "q"}).encode() for n in range(3))
    packed = {"Content-Encoding": "gzip"}
    assert server.ask("/v1/ragfault/traces", Trace(id="one", query="q")).json["taken"] == 1
    assert server.ask("/v1/ragfault/traces", lines).json["taken"] == 3
    assert server.ask("/v1/ragfault/traces", gzip.compress(lines), packed).json["repeated"] == 3


def test_valid_traces_are_stored_and_invalid_ones_reported(server: Server):
    """Of a body with faults the traces are taken, and each fault is told with its place."""
    body = b'{"id": "good", "query": "q"}\n{"id": "bad"}\nnot json\n{"query": "no id"}'
    receipt = server.ask("/v1/ragfault/traces", body).json
    assert (receipt["taken"], receipt["rejected"]) == (1, 3)
    assert [trace["place"] for trace in receipt["refused"]] == [2, 3, 4]
    assert "query" in receipt["refused"][0]["problem"]
    none = server.ask("/v1/ragfault/traces", b'{"id": "bad"}')
    assert (none.status, none.headers["content-type"]) == (400, "application/problem+json")


def test_a_first_trace_without_a_query_is_rejected_alone():
    """The traces after it are taken, and a body in which no trace can be read says what there is."""
    parsed = read_traces(b'{"id": "a", "query": ""}\n{"id": "b", "query": "When?"}', RequestLimits())
    assert [trace.id for trace in parsed.traces] == ["b"]
    assert [item.place for item in parsed.rejected] == [1]
    with pytest.raises(InputError, match="there are: id, words"):
        read_traces(b'{"id": "a", "words": "When?"}', RequestLimits())


def test_otlp_answers_a_partial_success(server: Server):
    """Spans without ids are rejected with their number and reason, and the others are taken."""
    answer = post_spans(server, *build_rag_spans("0" * 31 + "9"), {"name": "nameless"})
    assert answer.status == 200
    assert answer.json["partialSuccess"]["rejectedSpans"] == "1"
    assert "no trace id" in answer.json["partialSuccess"]["errorMessage"]
    assert post_spans(server, *build_rag_spans("0" * 31 + "8")).json == {}


def test_otlp_in_protobuf_is_answered_in_protobuf(server: Server):
    """What is sent as protobuf is answered so: an empty answer, a partial success, or a status."""
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    asked = trace.ExportTraceServiceRequest()
    spans = asked.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=b"\x01" * 16, span_id=b"\x02" * 8, name="chat")
    headers = {"Content-Type": "application/x-protobuf"}
    assert server.ask("/v1/traces", asked.SerializeToString(), headers).body == b""
    spans.add(name="nameless")
    answer = trace.ExportTraceServiceResponse.FromString(
        server.ask("/v1/traces", asked.SerializeToString(), headers).body
    )
    assert answer.partial_success.rejected_spans == 1
    bad = server.ask("/v1/traces", b"\xff\xff", headers)
    assert (bad.status, bad.headers["content-type"]) == (400, "application/x-protobuf")


def test_logs_that_name_no_trace_are_no_fault(server: Server):
    """Records of a log are taken; those of no trace of ours leave nothing behind."""
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "hi"}}]}]}]})
    answer = server.ask("/v1/logs", body.encode(), {"Content-Type": "application/json"})
    assert answer.status == 200


def test_a_repeated_mark_is_stored_once(server: Server):
    """A mark that is sent again is not there twice."""
    mark = {"text": "release 7", "id": "r7", "route": "travel"}
    assert server.ask("/v1/ragfault/marks", mark).json == {"taken": 1, "repeated": 0}
    assert server.ask("/v1/ragfault/marks", [mark]).json == {"taken": 0, "repeated": 1}
    assert [entry["text"] for entry in server.ask("/overview.json").json["marks"]] == ["release 7"]
    assert server.ask("/v1/ragfault/marks", b"{}").status == 400
    assert server.ask("/v1/ragfault/marks", {"text": "x" * 5000}).status == 400


# --- limits ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_is_too_large_is_refused(server: Server):
    """A body, an unpacked body and a trace have their limits; a bomb is refused before it is unpacked."""
    huge = b'"' + b"x" * 9_000_000 + b'"'
    assert server.ask("/v1/ragfault/traces", huge).status == 413
    bomb = gzip.compress(b"\0" * 200_000_000)
    packed = {"Content-Encoding": "gzip"}
    assert server.ask("/v1/ragfault/traces", bomb, packed).status == 413
    assert server.ask("/v1/traces", bomb, packed | {"Content-Type": "application/json"}).status == 413
    long = server.send([Trace(id="long", query="x" * 1_100_000), Trace(id="short", query="q")])
    assert "at most 1,000,000 are taken" in long.json["refused"][0]["problem"]
    assert server.send([Trace(id="x" * 513, query="q")]).status == 400
    assert server.ask("/v1/ragfault/traces", bomb[:100], packed).status == 400
    assert server.ask("/v1/ragfault/traces", b"{}", {"Content-Encoding": "br"}).status == 415


@pytest.mark.long
def test_more_than_can_wait_is_refused_for_now(tmp_path: Path):
    """Where too much waits, ingest answers 429 with a time, counts it, and takes the same again later."""
    from ragfault.apps.watch.server.app import create_app
    from ragfault.http.request_limits import RequestLimits

    app = create_app(ServerSettings(store=tmp_path / "s", judge="lexical", limits=RequestLimits(unscored=10)))
    scorers = app.state.server.scoring_workers
    with threaded(app) as server:
        scorers.add_waiting(10)
        answer = server.send(TRACES[:3])
        assert (answer.status, answer.headers["retry-after"]) == (429, "2")
        assert app.state.server.counters.totals == {"dropped": 1}
        scorers.add_waiting(-10)
        assert server.send(TRACES[:3]).json["taken"] == 3


def threaded(app):
    """Serve the application with uvicorn in a thread of this process."""
    import contextlib

    import uvicorn

    @contextlib.contextmanager
    def serving_here():
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        bound = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=bound.run, kwargs={"sockets": [listening]})
        thread.start()
        server = object.__new__(Server)
        server.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            wait_until(lambda: bound.started)
            yield server
        finally:
            bound.should_exit = True
            thread.join()
            listening.close()

    return serving_here()


def test_a_client_over_its_rate_gets_retry_after():
    """A bucket lets twice its rate through at once, then refuses with a time; other clients are not touched."""
    rates = RateLimiter(5)
    for _ in range(10):
        rates.check("a")
    with pytest.raises(Exception, match="too many requests") as waits:
        rates.check("a")
    assert int(waits.value.headers["Retry-After"]) >= 1
    rates.check("b")


# --- who may -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_beyond_this_machine_a_token_is_needed(tmp_path: Path, host: str, capsys):
    """A server that others can reach is not started without a token."""
    with pytest.raises(UsageError, match="token"):
        ServerSettings(store=tmp_path, host=host)
    assert command(["serve", "--store", str(tmp_path / "s"), "--host", host]) == 2
    assert "--token" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


@pytest.mark.long
def test_tokens_open_what_their_role_is_for(tmp_path: Path, capsys):
    """Without a token nothing but health is told; each role may what it is for; tokens are stored as hashes alone."""
    tokens = {}
    for role in ("read", "ingest", "admin"):
        assert command(["serve", "token", "--store", str(tmp_path / "s"), role, "--role", role]) == 0
        tokens[role] = capsys.readouterr().out.strip()
    assert not any(
        token.encode() in path.read_bytes()
        for token in tokens.values()
        for path in (tmp_path / "s").glob("ragfault.duckdb*")
    )
    with run_server(tmp_path / "s", "--workers", "0", "--token", "own") as server:
        assert server.ask("/healthz").status == 200
        for token, look, send in (
            (None, 401, 401),
            ("wrong", 401, 401),
            (tokens["read"], 200, 403),
            (tokens["ingest"], 403, 200),
            (tokens["admin"], 200, 200),
            ("own", 200, 200),
        ):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            assert server.ask("/overview.json", headers=headers).status == look, token
            assert server.send([Trace(id="a", query="q")], **headers).status == send, token
        cookie = {"Cookie": f"ragfault_session={tokens['admin']}"}
        assert server.ask("/overview.json", headers=cookie).status == 401
        assert server.send([Trace(id="a", query="q")], **cookie).status == 401


def test_loopback_answers_to_names_of_this_machine(server: Server):
    """A foreign name for this machine, and a page of elsewhere, are refused."""
    assert server.ask("/overview.json", headers={"Host": "evil.example"}).status == 403
    assert server.ask("/v1/ragfault/traces", b"{}", {"Origin": "http://evil.example"}).status == 403
    assert server.ask("/overview.json", headers={"Host": "localhost:1"}).status == 200


def test_every_answer_keeps_a_browser_in(server: Server):
    """Pages, faults and refusals alike carry the headers; nothing inline is allowed, nothing from elsewhere."""
    for path, headers in (("/healthz", {}), ("/nowhere.json", {}), ("/overview.json", {"Host": "evil.example"})):
        answer = server.ask(path, headers=headers).headers
        policy = answer["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer["x-content-type-options"] == "nosniff"
        assert "server" not in answer


# --- what is shown -----------------------------------------------------------------------------------


def test_every_page_has_a_json_view(server: Server):
    """Overview, metric, traces, trace, incidents, alerts and runs answer JSON that says what is there."""
    assert server.ask("/overview.json").json["totals"]["traces"] >= len(TRACES)
    window = 365 * 24 * 60
    metric = server.ask("/metrics/groundedness.json", window=window).json
    assert metric["measure"]["name"] == "groundedness"
    times = {"since": 60 * (metric["until"] - 90), "until": 60 * (metric["until"] - 30)}
    fixed = server.ask("/metrics/groundedness.json", **times).json
    assert (fixed["window"], fixed["until"]) == (60, metric["until"] - 30)
    inside = [point for point in metric["points"] if fixed["until"] - 60 <= point["minute"] < fixed["until"]]
    assert sum(point["n"] for point in fixed["points"]) <= sum(point["n"] for point in metric["points"])
    assert bool(inside) <= bool(fixed["points"])
    insights = server.ask("/insights.json", **times).json
    assert (insights["window"], insights["until"]) == (60, metric["until"] - 30)
    for wrong in ({"since": "1e300"}, {"since": 600, "until": 60}, {"until": "soon"}, {"since": "-1e9"}):
        assert server.ask("/metrics/groundedness.json", **wrong).status == 422, wrong
    page = server.ask(f"/traces/{TRACES[0].id}.json").json
    assert page["trace"]["query"] == TRACES[0].query
    assert {score["metric"] for score in page["scores"]} == set(METRICS.split(","))
    alerts = server.ask("/alerts.json").json
    assert alerts["alerts"] == []
    assert server.ask("/incidents.json").json["open"] == []
    assert alerts["promise"] == describe_promise(alerts["reference_minutes"])
    assert server.ask("/runs.json").json == []
    for path in ("/traces/nobody.json", "/metrics/nothing.json", "/nowhere"):
        answer = server.ask(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")


def test_lists_are_filtered_and_paged(server: Server):
    """What the parameters ask for is what comes; parameters that mean nothing are told."""
    routes = {trace.id for trace in TRACES if trace.route == "travel"}
    assert set(list_ids(server, route="travel")) == routes
    assert server.ask("/traces.json", limit=0).status == 422
    assert server.ask("/traces.json", after="nonsense").status == 422
    assert server.ask("/traces.json", state="sad").status == 422
    assert server.ask("/traces.json", low="nan").status == 422


def test_prometheus_parses_the_histograms(server: Server):
    """The buckets of each metric and route rise to the count, which is that of the scored traces."""
    lines = server.ask("/metrics").body.decode().splitlines()
    assert "# TYPE ragfault_score histogram" in lines
    families = [line for line in lines if 'metric="groundedness"' in line and 'route="travel"' in line]
    buckets = [int(line.split()[-1]) for line in families if "_bucket" in line]
    [count] = [int(line.split()[-1]) for line in families if "_count" in line]
    assert buckets == sorted(buckets)
    assert buckets[-1] == count > 0


def test_sums_are_exported_to_the_last_digit(tmp_path: Path):
    """What is added to a large sum shows: Prometheus takes rates of it."""
    import duckdb

    from ragfault.apps.watch.server.app import create_app

    with contextlib.closing(open_store(tmp_path / "s")) as store:
        store.append_traces(TRACES[:1]).result()
        scored = TraceScorer("lexical", metrics=["groundedness"])
        store.add_outcomes([scored(TRACES[0])], tuple(map(describe_metric, scored.metrics))).result()
    with contextlib.closing(duckdb.connect(str(tmp_path / "s" / "ragfault.duckdb"))) as con:
        rest = ", ".join("0" for _ in SUM_COLUMNS[3:])
        con.execute(f"INSERT INTO sums VALUES ('groundedness', 'x', 99999999, 12345678.75, 1.0, {rest})")
    app = create_app(ServerSettings(store=tmp_path / "s", workers=0))
    lines = render_metrics(app.state.server).splitlines()
    app.state.server.store.close()
    [total] = [line for line in lines if line.startswith("ragfault_score_sum{") and 'route="x"' in line]
    assert total.endswith(" 12345678.75")


def test_what_is_forgotten_waits_no_more(tmp_path: Path):
    """Traces that are forgotten before they are judged take no room of those that may wait."""
    from ragfault.apps.watch.server.app import create_app

    app = create_app(ServerSettings(store=tmp_path / "s", judge="lexical", workers=0, retention_days=1.0))
    with threaded(app) as server:
        old = [replace(trace, time=datetime(2001, 1, 1, tzinfo=UTC)) for trace in TRACES[:3]]
        assert server.send(old).json["taken"] == 3
        state = app.state.server
        state.store.submit(lambda con: con.execute("UPDATE traces SET received = received - 90000")).result()
        assert server.send([replace(TRACES[3], time=old[0].time)]).json["taken"] == 1
        assert state.scoring_workers.summarize()["waiting"] == 4
        state.clock_offset -= 7200  # as if the clock had been set since the start
        app.state.scheduler.run_round()
        assert state.scoring_workers.summarize()["waiting"] == 4
        state.clock_offset += 7200
        app.state.scheduler._delete_expired()
        assert state.scoring_workers.summarize()["waiting"] == 1


def test_an_export_over_http_is_the_run_of_evaluate(server: Server, tmp_path: Path, capsys):
    """`ragfault serve export` writes what `ragfault evaluate` makes of the same traces."""
    assert command(["serve", "export", server.url, "-o", str(tmp_path / "live"), "--model", TRACES[0].model]) == 0
    assert f"{len(TRACES):,} traces" in capsys.readouterr().out
    run = evaluate(TRACES, tmp_path / "made", judge="lexical", metrics=METRICS.split(","))
    live = Run.open(tmp_path / "live")
    for name in ("traces", "verdicts", "scores"):
        assert live.to_arrow(name).equals(run.to_arrow(name))
    assert live.manifest.judge == run.manifest.judge
    run = evaluate(TRACES, tmp_path / "alone", judge="lexical", metrics=METRICS.split(","), gold="ignore")
    model = ["--model", TRACES[0].model, "--gold", "ignore"]
    assert command(["serve", "export", server.url, "-o", str(tmp_path / "ignored"), *model]) == 0
    ignored = Run.open(tmp_path / "ignored")
    assert (ignored.manifest.gold, ignored.to_arrow("scores")) == ("ignore", run.to_arrow("scores"))
    assert not ignored.to_arrow("scores").equals(live.to_arrow("scores"))
    assert "scores are computed anew, with gold ignored" in capsys.readouterr().err
    assert command(["serve", "export", server.url, "-o", str(tmp_path / "no"), "--route", "nowhere"]) == 2
    assert "nothing to export" in capsys.readouterr().err
    assert command(["serve", "export", "ftp://x", "-o", str(tmp_path / "no")]) == 2


# --- whatever comes ----------------------------------------------------------------------------------

deep = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
PATHS = ("/v1/ragfault/traces", "/v1/ragfault/marks", "/v1/traces", "/v1/logs")
KEYS = ("id", "query", "chunks", "text", "time", "route", "resourceSpans", "scopeSpans", "spans", "attributes")
shaped = st.recursive(
    deep, lambda inner: st.dictionaries(st.sampled_from(KEYS), inner) | st.lists(inner), max_leaves=12
)


@pytest.mark.long
@settings(max_examples=150)
@given(
    path=st.sampled_from(PATHS),
    body=st.binary(max_size=200) | shaped.map(lambda value: json.dumps(value).encode()),
    content=st.sampled_from(["application/json", "application/x-protobuf", "text/plain", ""]),
    packing=st.sampled_from(["", "gzip", "deflate", "identity"]),
)
def test_no_body_fails_the_server(server: Server, path, body, content, packing):
    """Whatever is sent, the answer is that it was taken or that it is no good, never a failure."""
    headers = {"Content-Type": content, **({"Content-Encoding": packing} if packing else {})}
    assert server.ask(path, body, headers).status < 500


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"id": "s", "query": "\\ud800"}',
        b'{"id": "z", "query": "\\u0000", "route": "\\u0000"}',
        b'{"id": "t", "query": "q", "time": "9999-12-31T23:59:59.999999-23:59"}',
        b'{"id": "u", "query": "q", "time": "0001-01-01T00:00:00+23:59"}',
        b'{"id": "n", "query": "q", "chunks": [{"id": "c", "score": 1e400}]}',
        b'{"id": "x", "query": "<script>alert(1)</script>", "metadata": {"release": {"a": [1]}}}',
        b'{"id": "../../etc/passwd", "query": "q"}',
        b"[" + b'{"id": "d", "query": "q"},' * 100 + b'{"id": "d", "query": "q"}]',
    ],
)
def test_no_odd_trace_fails_the_server(server: Server, body: bytes):
    """Odd traces are taken or refused; what is taken is judged, and every page still comes."""
    assert server.ask("/v1/ragfault/traces", body).status in (200, 400)
    assert server.ask("/v1/traces", body, {"Content-Type": "application/json"}).status in (200, 400)
    for page in ("/overview.json", "/traces.json", "/metrics", "/traces/../../etc/passwd.json"):
        assert server.ask(page).status in (200, 404)
    server.settled(len(TRACES))


# --- alerts ------------------------------------------------------------------------------------------

NOTICE = IncidentNotice(
    kind="opened",
    time=120.0,
    incident=Incident(
        id="i-1",
        title="Retrieval broke (the wrong chunks are retrieved)",
        sentence="Retrieval broke (the wrong chunks are retrieved): context_relevance fell.",
        layer="retrieval",
        branch="1 retrieval",
        routes=("<web>",),
        opened=60.0,
        onset=30.0,
        earliest=0.0,
        latest=60.0,
        traces=("t1",),
    ),
)


class Hook(BaseHTTPRequestHandler):
    """A webhook that fails as often as it is told to."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((dict(self.headers), body))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("codes", "error", "tries"), [([], None, 1), ([503, 500], None, 3), ([400], "400", 1)])
def test_a_webhook_is_signed_and_retried(tmp_path: Path, codes, error, tries):
    """What is sent is signed; a webhook that is down is tried again, one that refuses is not."""
    hook = HTTPServer(("127.0.0.1", 0), Hook)
    hook.seen, hook.codes, ended = [], list(codes), []
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    asked = ServerSettings(store=tmp_path, webhook=f"http://127.0.0.1:{hook.server_port}/x", secret="s3cret")
    store = open_store(tmp_path)
    sender = NoticeSender(
        asked, EventCounters(store, time.time), lambda _, fault: ended.append(fault), (0.0, 0.01, 0.01)
    )
    sender.start()
    sender.send(NOTICE)
    wait_until(lambda: ended)
    sender.close()
    hook.shutdown()
    hook.server_close()
    store.close()
    assert len(hook.seen) == tries
    assert (ended[0] is None) if error is None else (error in ended[0])
    headers, body = hook.seen[-1]
    moment = headers["X-Ragfault-Timestamp"]
    digest = hmac.new(b"s3cret", f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["X-Ragfault-Signature"] == f"sha256={digest}" == f"sha256={sign_body('s3cret', int(moment), body)}"
    assert json.loads(body)["incident"]["layer"] == "retrieval"


def test_each_shape_is_the_receivers():
    """Slack gets text and blocks in its own escapes, Alertmanager labels and times, the plain shape everything."""
    slack = WEBHOOK_FORMATS["slack"](NOTICE)
    assert "&lt;web&gt;" in slack["text"]
    assert slack["blocks"][0]["text"]["type"] == "mrkdwn"
    [alert] = WEBHOOK_FORMATS["alertmanager"](NOTICE)
    assert alert["labels"] == {"alertname": "ragfault", "kind": "quality", "incident": "i-1"}
    assert alert["startsAt"] == "1970-01-01T00:01:00+00:00"
    assert WEBHOOK_FORMATS["ragfault"](NOTICE)["key"] == "i-1"


@pytest.mark.long
def test_a_fault_of_retrieval_is_called_and_named(tmp_path: Path):
    """Traffic whose chunks go wrong at a known minute opens one incident that names retrieval, on that route alone."""
    from ragfault.apps.watch.server.app import create_app
    from ragfault.apps.watch.server.demo import FAULT_START, FAULTY_ROUTE, DemoTraffic

    begin = 1_900_000_000 // 60 * 60.0
    moment = [begin]
    app = create_app(
        ServerSettings(store=tmp_path / "s", judge="lexical", metrics=METRICS.split(","), reference_minutes=60),
        lambda: moment[0],
    )
    state, scheduler, traffic = app.state.server, app.state.scheduler, DemoTraffic(app.state.server, begin)
    state.scoring_workers.start()
    sent = []
    try:
        for minute in range(-80, FAULT_START + 60, 10):
            traces = [trace for at in range(10) for trace in traffic.make_minute(minute + at)]
            state.store.append_traces(traces).result()
            state.scoring_workers.add_waiting(len(traces))
            wait_until(lambda: not state.store.compute_totals().waiting)
            moment[0] = begin + 60 * (minute + 10)
            sent += scheduler.run_round()
    finally:
        state.close()
    [notice] = sent
    incident = notice.incident
    assert (notice.kind, incident.routes, incident.layer) == ("opened", (FAULTY_ROUTE,), "retrieval")
    assert notice.time >= begin + 60 * FAULT_START
    assert incident.traces
    assert abs(incident.onset - begin - 60 * FAULT_START) <= 20 * 60


@pytest.mark.long
def test_the_demo_streams(tmp_path: Path):
    """`ragfault serve --demo` brings traces of its own, past and present, and judges them."""
    with run_server(tmp_path / "s", "--demo", "--metrics", METRICS) as server:
        for _ in range(300):
            if server.ask("/overview.json").json["scoring"]["scored"] > 50:
                break
            time.sleep(0.1)
        assert set(server.ask("/overview.json").json["routes"]) == {"counter", "website"}


@pytest.mark.long
def test_spans_that_are_no_question_are_counted(tmp_path: Path):
    """A trace of other work is no trace of a RAG system: it is counted, and nothing of it is kept."""
    with run_server(tmp_path / "s", "--workers", "0") as server:
        assert post_spans(server, build_span("0" * 31 + "5", "GET /health")).status == 200
        wait_until(lambda: server.ask("/overview.json").json["totals"]["pending"] == 0)
        assert 'ragfault_ingest_total{outcome="not_rag"} 1' in server.ask("/metrics").body.decode()
        assert server.ask("/overview.json").json["totals"]["traces"] == 0


@pytest.mark.long
def test_a_calibration_applies_to_what_the_server_judges(tmp_path: Path):
    """With --calibration the verdicts kept are those of the calibrated judge, and no card is shown."""
    judge = load_judge("lexical")
    figures = CalibrationFigures(calibration_error=0.1, bias=0.0, bias_low=-0.1, bias_high=0.1)
    lines = tuple(
        CalibrationLine(
            unit=unit,
            n=50,
            groups=10,
            base_rate=0.2,
            slope=1.0,
            intercept=-1.5,
            threshold=None,
            before=figures,
            after=figures,
            helps=True,
        )
        for unit in ("claim", "answer")
    )
    path = tmp_path / "calibration.json"
    path.write_bytes(msgspec.json.encode(JudgeCalibration(judge=judge.fingerprint, date="2031-05-04", lines=lines)))
    chunk = Chunk(id="a", text="The museum opens at nine. The café on the roof closes at five.")
    trace = Trace(id="t", query="When does it open?", chunks=(chunk,), answer="It opens at nine, visitors said.")
    plain, calibrated = (load_judge("lexical", **more).observe([trace])[0] for more in ({}, {"calibration": path}))
    assert plain.claim != calibrated.claim
    with run_server(tmp_path / "s", "--metrics", "groundedness", "--calibration", str(path)) as server:
        server.send([trace])
        server.settled(1)
        stored = server.ask("/traces/t.json").json
        assert [claim["p"] for claim in stored["verdicts"]["claim"]] == [claim.p for claim in calibrated.claim]
        assert stored["verdicts"]["answer"]["grounded"] == calibrated.answer.grounded
        assert "calibration=" in json.dumps(stored)
        judge = server.ask("/judge.json").json
        assert (judge["card"], judge["calibration"]["source"]) == (None, [])
        assert "Calibrated to labels on" in server.ask("/judge").body.decode()
