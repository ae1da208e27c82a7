"""Silence, a backlog of scoring and a fault at one time, seen from the outside: over HTTP on loopback."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from dashboard_server import serve_app
from ragfault.apps.watch.server.alerts import watchdog
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from waiting import wait_until

pytestmark = pytest.mark.long

ROUTES = ("search", "help", "shop")


def list_children() -> set[int]:
    """List the processes that this one started."""
    lists = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for pids in lists for pid in pids.split()}


class Site:
    """An application that sends its traces to a server, whose clock is ahead of ours by as much as was sent."""

    def __init__(self, folder: Path) -> None:
        self.begin = time.time() // 60 * 60
        self.others = list_children()
        self.minute, self._random = 0, random.Random(0)
        settings = ServerSettings(
            store=folder, workers=1, judge="lexical", metrics=("error", "context_relevance"), reference_minutes=60
        )
        self.app = create_app(settings, lambda: self.begin + 60 * self.minute)
        self.url = ""

    def read(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return bytes(answer.read())

    def incidents(self, part: str) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return kind, title and routes of the incidents that are open, or over ("past")."""
        rows = json.loads(self.read("/incidents.json"))[part]
        return sorted((row["kind"], row["title"], tuple(row["routes"])) for row in rows)

    def run(self, minutes: int, broken: bool = False, scored: bool = True, silent: bool = False) -> None:
        """Let minutes pass in steps of five; of a broken route two of five queries fail."""
        for _ in range(0, minutes, 5):
            if not silent:
                traces = [self._make(route, at, broken) for at in range(10) for route in ROUTES]
                body = "\n".join(map(json.dumps, traces)).encode()
                request = urllib.request.Request(
                    f"{self.url}/v1/ragfault/traces", body, {"Content-Type": "application/x-ndjson"}
                )
                urllib.request.urlopen(request, timeout=60).close()
            if scored:
                wait_until(lambda: b"\nragfault_traces_waiting 0\n" in self.read("/metrics"), pause=0.2)
            self.minute += 5
            self.app.state.scheduler.run_round()

    def _make(self, route: str, at: int, broken: bool) -> dict[str, Any]:
        moment = datetime.fromtimestamp(self.begin + 60 * self.minute + 30 * at, UTC).isoformat()
        fails = broken and route == "search" and self._random.random() < 0.4
        answer = {"error": "timeout"} if fails else {"answer": "The ferry leaves at ten."}
        chunks = [{"id": "1", "text": "The ferry to Texel leaves at ten."}]
        own = {"id": f"{route}-{self.minute}-{at}", "route": route, "time": moment}
        return {**own, "query": "When does the ferry leave?", "chunks": chunks, **answer}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three routes that were well for 80 minutes."""
    own = Site(tmp_path / "s")
    with serve_app(own.app) as own.url:
        own.run(80)
        assert own.incidents("open") == []
        yield own


def test_a_fault_amid_silence_and_a_backlog_is_one_incident(site: Site, monkeypatch: pytest.MonkeyPatch):
    """A route breaks while the scorer hangs, then nothing comes in: each is told once, for what it is, and ends."""
    monkeypatch.setattr(watchdog, "BACKLOG_SECONDS", (2.0, 1.0))
    fault = "quality", "More traces end in an error", ("search",)
    backlog, silence = ("backlog", "Scoring is behind", ()), ("no traffic", "No traces come in", ())
    scorers = list_children() - site.others
    assert scorers
    for pid in scorers:
        os.kill(pid, signal.SIGSTOP)
    try:
        site.run(5, broken=True, scored=False)
        time.sleep(3)
        site.run(15, broken=True, scored=False)
        assert site.incidents("open") == [backlog]
    finally:
        for pid in scorers:
            os.kill(pid, signal.SIGCONT)
    site.run(40, broken=True)
    assert site.incidents("open") == [fault]
    [row] = json.loads(site.read("/incidents.json"))["open"]
    assert row["earliest"] - 300 <= site.begin + 80 * 60 <= row["latest"] + 300
    site.run(30, silent=True)
    assert site.incidents("open") == [silence, fault]
    for _ in range(0, 300, 5):
        site.run(5)
        if not site.incidents("open"):
            break
    assert site.incidents("open") == []
    assert site.incidents("past") == sorted([backlog, silence, fault])
