"""Whatever traffic chooses, no page grows with it: 1,500 routes and releases, 10,000 traces, all metrics."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("jinja2", reason="the server needs the extra `server`")

from dashboard_server import Client, DashboardServer, serve_app
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.ingest.incoming_traces import read_marks, read_traces
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import TimelineMark
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.http.request_limits import RequestLimits
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.metrics.selection import select_metrics
from remembered import LEXICAL

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
    scorer, fields = TraceScorer(LEXICAL), server.settings.cohort_fields
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


def build_huge_traces() -> dict[str, dict[str, Any]]:
    """Return traces of up to a megabyte, each with another part that is too large for a page."""
    step = {"kind": "tool", "name": "t", "input": 1400 * "<", "output": 1400 * "&"}
    sentences = [f"Ferry {at} leaves at {at % 24}:{at % 60:02d} from pier {at}." for at in range(1500)]
    return {
        "chunks": {"answer": "At nine.", "chunks": [{"id": f"c{at}", "text": "At nine."} for at in range(5000)]},
        "texts": {"answer": 100_000 * "é<", "chunks": [{"id": "c", "text": 300_000 * "&"}], "error": 99_000 * "x"},
        "steps": {"answer": "At nine.", "steps": [{"id": str(at), **step} for at in range(320)]},
        "claims": {"answer": " ".join(sentences), "chunks": [{"id": "c", "text": sentences[7]}]},
        "citations": {"answer": "At [1].", "chunks": [{"id": "c"}], "citations": 5000 * [{"chunk": "c"}]},
        "key": {
            "answer": "At.",
            "facts": sentences[:400],
            "reference": sentences,
            "metadata": {name: 500 * name for name in sentences[:40]},
        },
        "ö/%?" + 500 * "€": {"answer": "At.", "chunks": [{"id": f"c{at}", "text": "At nine."} for at in range(300)]},
    }


LEFT_OUT = {
    "/trace/answer", "/trace/chunks", "/trace/citations", "/trace/reference", "/trace/steps", "/trace/steps/0/input",
    "/verdicts/claim", "/verdicts/fact", "/trace/chunks/0/text",
}  # fmt: skip
"""Lists and texts of which the pages of these traces show a part."""


def read_part(client: Client, trace: str, part: str) -> Any:
    """Return a list or text of a trace, page by page."""
    pages, after = [], 0
    while after is not None:
        address = f"trace={quote(trace, safe='')}&part={quote(part, safe='')}&after={after}"
        assert len(client.ask(f"/part?{address}").text.encode()) < 1_000_000
        text = client.ask(f"/part.json?{address}").text
        assert len(text.encode()) < 1_000_000
        page = json.loads(text)
        pages.append(page["values"])
        after = page["next"]
    if isinstance(pages[0], str):
        return "".join(pages)
    if isinstance(pages[0], dict):
        return {name: value for page in pages for name, value in page.items()}
    return [value for page in pages for value in page]


@pytest.mark.long
def test_the_page_of_a_huge_trace_is_bounded_and_leads_to_the_rest(tmp_path: Path):
    """Page and JSON of any trace are below 1 MB; what they leave out is named, and is all there page by page."""
    app, measures = DashboardServer(tmp_path / "s"), tuple(map(describe_metric, select_metrics("default")))
    scorer, left = TraceScorer(LEXICAL), set()
    with app.serving() as url:
        client = Client(url)
        for id, fields in build_huge_traces().items():
            body = json.dumps({"id": id, "query": "When?", **fields}, ensure_ascii=False).encode()
            [trace] = read_traces(body, RequestLimits()).traces
            app.store.append_traces([trace]).result()
            if id != "citations":
                app.store.add_outcomes([scorer(trace)], measures, ("model",)).result()
            page = client.ask(f"/traces/{quote(id, safe='')}")
            assert (page.status, len(page.text.encode()) < 1_000_000) == (200, True), id
            text = client.ask(f"/traces/{quote(id, safe='')}.json").text
            assert len(text.encode()) < 1_000_000
            stored = json.loads(msgspec.json.encode(app.store.get_trace(id)))
            named = [part["part"] for part in json.loads(text).get("left_out", ())]
            for part in {*named, *map(unquote, re.findall(r'href="/part\?trace=[^&]+&amp;part=([^&]+)', page.text))}:
                left.add(part)
                value = stored
                for name in part.split("/")[1:]:
                    value = value[int(name) if isinstance(value, list) else name]
                if part.count("/") == 2:
                    assert read_part(client, id, part) == value, f"{id} {part}"
    assert left >= LEFT_OUT
