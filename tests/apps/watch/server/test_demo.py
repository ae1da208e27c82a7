"""`ragfault serve --demo` in a browser: a fault of retrieval opens an incident that names it, and becomes cases."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from browser import COLOURS, Visit, list_violations, start_browser
from ragfault.apps.watch.server.demo import FAULTY_ROUTE

SPEED = 300
"""Seconds of the demo to a second: its fault comes six seconds after its past is judged."""

PATIENCE = 300_000
"""Milliseconds until the incident must stand on the first page, however busy the machine is."""

FIRING = f".incidents > li:has-text('open'):has-text('Retrieval broke'):has-text('on {FAULTY_ROUTE}')"

pytestmark = [pytest.mark.browser, pytest.mark.long]


class Demo(NamedTuple):
    """A demo that runs."""

    url: str
    store: Path

    def ask(self, path: str) -> Any:
        """Return the JSON view of a page."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def demo(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The command itself, in a process of its own."""
    store = tmp_path_factory.mktemp("demo") / "s"
    asked = ["serve", "--store", str(store), "--demo", "--speed", str(SPEED), "--port", "0", "--judge", "embedded"]
    command = [sys.executable, "-m", "ragfault", *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running = re.search(r"http://\S+", process.stdout.readline())
        assert running
        yield Demo(running[0], store)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_from_the_fault_to_the_evaluation_set(chromium: Any, demo: Demo, tmp_path: Path, scheme: str):
    """Overview, incident, traces, trace, label, cluster, promote: each a link of the page before, and fair."""
    promoted = demo.store / "promoted.jsonl"
    before = promoted.stat().st_size if promoted.exists() else 0
    with Visit(chromium, demo.url, color_scheme=scheme) as visit:
        page = visit.page

        def seen(name: str) -> None:
            page.screenshot(path=tmp_path / f"{name}.png")
            assert list_violations(page, None if scheme == "light" else COLOURS) == [], name

        page.wait_for_selector(FIRING, timeout=PATIENCE)
        page.click("#refresh-toggle")
        seen("overview")
        page.click("nav >> text=Incidents")
        card = page.locator(FIRING).first
        assert "release index-2" in card.inner_text()
        seen("incidents")
        card.locator("a", has_text="all since the onset, by this metric").click()
        page.wait_for_url("**/traces?since=*")
        seen("traces")
        page.locator("a.go").first.click()
        page.wait_for_selector(".trace-title")
        seen("trace")
        verdict = page.locator(".chunk form", has=page.locator("[aria-pressed=false]")).first
        verdict.locator("button[value=disagree]").click()
        page.wait_for_selector("text=people disagreed")
        seen("label")
        page.click("nav >> text=Clusters")
        page.select_option("select[name=hours]", "1")
        page.click("text=Look for clusters")
        page.wait_for_selector("article.cluster", timeout=PATIENCE)
        seen("clusters")
        page.locator("button[value=promote]").nth(0 if scheme == "light" else 1).click()
        page.wait_for_selector("text=in the evaluation set of this store")
        seen("promoted")
    assert promoted.stat().st_size >= before
    assert promoted.stat().st_size
    assert len(list(tmp_path.glob("*.png"))) == 7


def test_the_incident_is_true(demo: Demo, chromium: Any):
    """One incident opened after the release that broke retrieval, on its route, and it names layer and release."""
    with Visit(chromium, demo.url) as visit:
        visit.page.wait_for_selector(FIRING, timeout=PATIENCE)
    [mark] = demo.ask("/overview.json")["marks"]
    fault = _seconds(mark["time"])
    [incident] = demo.ask("/incidents.json")["open"]
    assert (incident["routes"], incident["layer"]) == ([FAULTY_ROUTE], "retrieval")
    assert incident["opened"] > fault
    assert abs(incident["onset"] - fault) <= 20 * 60
    assert [before["text"] for before in incident["marks"]] == [mark["text"]]
    assert incident["traces"]
    events = [event["kind"] for event in demo.ask("/alerts.json")["events"] if event["alert"] == incident["id"]]
    assert events.count("opened") == 1


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
