"""A server with a store of live traffic for the tests of the dashboard: a decent hour, a worse one, and an attack."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from msgspec.structs import replace

from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import TimelineMark
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.metrics.catalog import compute_scores
from ragfault.metrics.selection import select_metrics
from remembered import LEXICAL
from sample_reports import build_hostile_trace
from waiting import wait_until

BEGAN = datetime(2031, 5, 4, 9, 0, tzinfo=UTC)
ROUTES = ("counter", "website")


class DashboardServer:
    """A server in a thread of this process, whose clock the test sets."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.now = (BEGAN + timedelta(hours=2)).timestamp()
        settings = ServerSettings(store=place, workers=0, judge="lexical", **options)
        self.app = create_app(settings, lambda: self.now)
        self.store = self.app.state.server.store

    def fill(self) -> None:
        """Store an hour of healthy handbook traces, an hour of worse ones, a hostile trace and a mark."""
        scoring = TraceScorer(LEXICAL)
        outcomes = [
            scoring(replace(trace, id=f"{version}/{trace.id}", route=ROUTES[at % 2], time=_time(hour, at)))
            for hour, version in enumerate(("v1", "v2"))
            for at, trace in enumerate(load_handbook().traces[version])
        ]
        trace, seen = build_hostile_trace()
        trace, seen = replace(trace, time=_time(1, 90)), replace(seen, judge=outcomes[0].verdicts.judge)
        outcomes.append(ScoredTrace(trace, seen, tuple(compute_scores(select_metrics("default"), trace, seen))))
        self.store.append_traces([outcome.trace for outcome in outcomes]).result()
        self.store.add_outcomes(
            outcomes, tuple(map(describe_metric, select_metrics("default"))), ("model", "version")
        ).result()
        self.store.add_marks([TimelineMark(text="release <v2>", time=BEGAN + timedelta(hours=1))], self.now).result()

    def watch(self) -> None:
        """Run enough rounds of the alert scheduler for alerts to fire."""
        for _ in range(3):
            self.app.state.scheduler.run_round()
            self.now += 180

    def serving(self) -> contextlib.AbstractContextManager[str]:
        """Serve until the end of the block; yields the address."""
        return serve_app(self.app)


class Client:
    """A browser of a few lines: one cookie, no redirects."""

    def __init__(self, url: str, cookie: str = "") -> None:
        self.url, self.cookie = url, cookie

    def ask(self, path: str, fields: dict[str, str] | None = None, method: str = "", **headers: str) -> Any:
        """Request a page; return its `status`, `headers` and `text`."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
        headers = {**({"Cookie": self.cookie} if self.cookie else {}), **headers}
        try:
            if fields is None:
                connection.request(method or "GET", path, headers=headers)
            else:
                headers |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.url}
                connection.request("POST", path, urlencode(fields), headers)
            answer = connection.getresponse()
            answer.text = answer.read().decode("utf-8", "replace")  # type: ignore[attr-defined]
            return answer
        finally:
            connection.close()

    def sign_in(self, token: str) -> Client:
        """Sign in with a token; the session's cookie is sent from here on."""
        answer = self.send("/sign-in", token=token)
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def stamp(self) -> str:
        """Return the CSRF token of the forms."""
        return re.search(r'name="csrf_token" value="(\w+)"', self.ask("/sign-in").text)[1]  # type: ignore[index]

    def send(self, path: str, **fields: str) -> Any:
        """Send a form as a page would."""
        return self.ask(path, {"csrf_token": self.stamp(), **fields})


@contextlib.contextmanager
def serve_app(app: Any, http: Any = "h11") -> Iterator[str]:
    """Serve an application in a thread until the end of the block; yields the address."""
    import uvicorn

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="warning", http=http, ws="none", access_log=False, proxy_headers=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _time(hour: int, at: int) -> datetime:
    return BEGAN + timedelta(hours=hour, seconds=34 * at)
