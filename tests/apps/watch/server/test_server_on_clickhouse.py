"""The whole server on ClickHouse, on the real engine in a process of its own (chdb)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from installed import skip_without

skip_without("chdb", reason="the engine of ClickHouse in this process: pip install chdb")
skip_without("clickhouse_connect", reason="ClickHouse needs the extra `clickhouse`")
skip_without("fastapi", reason="the server needs the extra `server`")

from clickhouse_server import PASSWORD, USER, serve_clickhouse
from ragfault import evaluate
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.demo import FAULT_START, FAULTY_ROUTE, DemoTraffic
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.cli.commands import run_command as command
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.run import Run
from server_process import Server, build_rag_spans, encode_spans, list_ids, run_server
from waiting import wait_until

TRACES = list(load_handbook().traces["v1"])
METRICS = "context_relevance,groundedness,answer_relevance"


@pytest.mark.long
def test_the_server_works_on_clickhouse(tmp_path: Path):
    """Traces and spans come in, are scored, watched, found, exported as the run of `evaluate`, and outlive a kill."""
    place, folder = f"chdb://{tmp_path}/engine", tmp_path / "files"
    options = ("--metrics", METRICS, "--folder", str(folder))
    server = Server(place, *options)
    assert server.send(TRACES).json["taken"] == len(TRACES)
    assert server.send(TRACES[:9]).json["repeated"] == 9
    spans = encode_spans(*build_rag_spans("0" * 31 + "7"))
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert server.ask("/v1/traces", spans, headers).status == 200
    server.process.kill()
    server.end()
    with run_server(place, *options) as server:
        server.settled(len(TRACES) + 1)
        overview = server.ask("/overview.json").json
        assert overview["totals"]["traces"] == len(TRACES) + 1
        assert set(overview["routes"]) >= {trace.route for trace in TRACES if trace.route}
        for query in ({}, {"sort": "groundedness", "order": "ascending"}, {"route": TRACES[0].route}):
            ids = list_ids(server, **query)
            assert len(ids) == len(set(ids)) > 10
        assert server.ask(f"/traces/{TRACES[3].id}.json").json["trace"]["query"] == TRACES[3].query
        for page in ("/", "/traces", "/alerts", "/metrics", "/runs", f"/traces/{TRACES[3].id}"):
            assert server.ask(page).status == 200, page
        live = ["serve", "export", server.url, "-o", str(tmp_path / "live"), "--model", TRACES[0].model]
        assert command(live) == 0
    same = [trace for trace in TRACES if trace.model == TRACES[0].model]
    evaluated = evaluate(same, tmp_path / "made", judge="lexical", metrics=METRICS.split(","))
    assert evaluated.to_arrow("scores").equals(Run.open(tmp_path / "live").to_arrow("scores"))
    assert command(["serve", "token", "--store", place, "ci", "--role", "read"]) == 0
    assert command(["serve", "import", str(tmp_path / "made"), "--store", place, "--prefix", "again/"]) == 0


@pytest.mark.long
def test_a_database_that_goes_and_comes_back_is_waited_for(tmp_path: Path):
    """While no database answers, ingest says so; what was acknowledged before is joined and scored once it is back."""
    options = ("--metrics", METRICS, "--folder", str(tmp_path / "files"))
    with serve_clickhouse(tmp_path / "engine") as port:
        server = Server(f"clickhouse://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/d", *options)
        assert server.send(TRACES).json["taken"] == len(TRACES)
        spans = encode_spans(*build_rag_spans("0" * 31 + "7"))
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        assert server.ask("/v1/traces", spans, headers).status == 200
    assert server.send(TRACES[:1]).status == 503
    with serve_clickhouse(tmp_path / "engine", port):
        server.settled(len(TRACES) + 1)
        more = [replace(trace, id=f"more/{trace.id}") for trace in TRACES[:5]]
        assert server.send(more).json["taken"] == len(more)
        server.settled(len(TRACES) + 6)
        assert server.end() == 0


@pytest.mark.long
def test_of_two_servers_on_one_database_the_second_ends_and_says_why(tmp_path: Path):
    """It writes nothing; once the first is killed another takes over at once, with all that was acknowledged."""
    options = ("--metrics", METRICS, "--folder", str(tmp_path / "files"))
    with serve_clickhouse(tmp_path / "engine") as port:
        place = f"clickhouse://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/d"
        first = Server(place, *options)
        assert first.send(TRACES[:20]).json["taken"] == 20
        second = [sys.executable, "-m", "ragfault", "serve", "--store", place, "--port", "0", *options]
        ended = subprocess.run(second, capture_output=True, text=True, timeout=90, check=False)
        assert ended.returncode not in (0, 1)
        assert f"another process owns the store clickhouse://127.0.0.1:{port}/d: {first.process.pid} on" in ended.stderr
        assert PASSWORD not in ended.stderr
        assert first.send(TRACES[20:]).json["taken"] == len(TRACES) - 20
        first.process.kill()
        first.end()
        with run_server(place, *options) as server:
            server.settled(len(TRACES))
            assert sorted(list_ids(server, limit=7)) == sorted(trace.id for trace in TRACES)


@pytest.mark.long
def test_alerts_fire_and_stay_on_clickhouse(tmp_path: Path):
    """Traffic whose chunks go wrong opens an incident that names retrieval; it is still open after a restart."""
    place, folder = f"chdb://{tmp_path}/engine", tmp_path / "files"
    begin = 1_900_000_000 // 60 * 60.0
    moment = [begin]

    def opened() -> Any:
        app = create_app(
            ServerSettings(
                store=place, folder=folder, judge="lexical", metrics=METRICS.split(","), reference_minutes=60
            ),
            lambda: moment[0],
        )
        return app.state

    state, sent = opened(), []
    traffic = DemoTraffic(state.server, begin)
    state.server.scoring_workers.start()
    try:
        for minute in range(-80, FAULT_START + 60, 10):
            traces = [trace for at in range(10) for trace in traffic.make_minute(minute + at)]
            state.server.store.append_traces(traces).result()
            state.server.scoring_workers.add_waiting(len(traces))
            wait_until(lambda: not state.server.store.compute_totals().waiting)
            moment[0] = begin + 60 * (minute + 10)
            sent += state.scheduler.run_round()
    finally:
        state.server.close()
    [notice] = sent
    assert (notice.kind, notice.incident.routes, notice.incident.layer) == ("opened", (FAULTY_ROUTE,), "retrieval")
    assert notice.incident.traces
    again = opened().server
    assert {alarm.rule.name for alarm in again.load_alert_state().alerts} >= {"DROP"}
    assert {event.kind for event in again.store.read_events()} >= {"firing", "opened"}
    assert [incident.id for incident in again.load_incidents()] == [notice.incident.id]
    again.store.close()
