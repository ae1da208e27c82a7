"""Whatever traffic chooses, no page grows with it: 1,500 routes and releases, 10,000 traces, all metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

pytest.importorskip("duckdb", reason="the server needs the extra `server`")
pytest.importorskip("fastapi", reason="the server needs the extra `server`")
pytest.importorskip("jinja2", reason="the server needs the extra `server`")

from dashboard_server import Client, serve_app
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.datasets import load_handbook
from ragfault.metrics import select_metrics
from ragfault.server import ServerSettings, create_app
from ragfault.server.ingest.incoming_traces import read_marks
from ragfault.server.storage import TimelineMark

PAGES = (
    "/", "/overview.json", "/metrics", "/metrics/groundedness", "/metrics/groundedness.json", "/insights",
    "/insights.json", "/traces", "/traces.json", "/traces.json?limit=500", "/incidents", "/incidents.json", "/alerts",
    "/alerts.json", "/compare", "/drift", "/runs", "/settings", "/settings.json", "/versions",
    "/versions.json", "/labels.json", "/clusters.json",
)  # fmt: skip
TRACES, ROUTES = 10_000, 1500


@pytest.mark.long
def test_no_page_grows_with_the_names_that_traffic_chooses(tmp_path: Path):
    """Each page answers with less than 1 MB; the routes with the most traffic are among those that it shows."""
    begin = datetime(2031, 5, 4, 9, tzinfo=UTC).timestamp()
    app = create_app(ServerSettings(store=tmp_path / "s", workers=0, judge="lexical"), lambda: begin + 3600)
    server = app.state.server
    scorer, fields = TraceScorer("lexical"), server.settings.cohort_fields
    outcomes = [scorer(trace) for trace in load_handbook().traces["v1"][:10]]
    measures = tuple(map(describe_metric, select_metrics("default")))
    for first in range(0, TRACES, 1000):
        batch = []
        for at in range(first, first + 1000):
            outcome, moment = outcomes[at % 10], datetime.fromtimestamp(begin + at / 3, UTC)
            route = "the busy one" if at % 4 == 0 else f"name {at % ROUTES} " + 60 * 'é"'
            trace = replace(
                outcome.trace, id=f"t{at}", route=route, time=moment, metadata={"release": f"r{at % ROUTES}"}
            )
            trace = server.prepare_trace(trace)
            counted = server.labels.limit_cohorts(trace, fields)
            scores = tuple(replace(score, trace=trace.id) for score in outcome.scores)
            batch.append(
                replace(outcome, trace=counted, verdicts=replace(outcome.verdicts, trace=trace.id), scores=scores)
            )
        server.store.append_traces([outcome.trace for outcome in batch]).result()
        server.store.add_outcomes(batch, measures, fields).result()
    marks = [TimelineMark(text=f"{at} {'<' * 1900}", time=datetime.fromtimestamp(begin, UTC)) for at in range(300)]
    server.store.add_marks(read_marks(msgspec.json.encode(marks)), begin).result()
    for _ in range(2):
        app.state.scheduler.run_round()
    with serve_app(app) as url:
        client, sizes = Client(url), {}
        for page in PAGES:
            answer = client.ask(page)
            assert answer.status == 200, page
            sizes[page] = len(answer.text.encode())
            if page in ("/", "/overview.json", "/metrics", "/insights"):
                assert "the busy one" in answer.text, page
    assert {page: size for page, size in sizes.items() if size >= 1_000_000} == {}
