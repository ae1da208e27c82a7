"""A server with a store of live traffic for the tests of the dashboard: a decent hour, a worse one, and an attack."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pages import hostile
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online import ScoredTrace
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.datasets import load_handbook
from ragfault.metrics import compute_score, select_metrics
from ragfault.server import ServerSettings, create_app
from ragfault.server.storage import TimelineMark

BEGAN = datetime(2031, 5, 4, 9, 0, tzinfo=UTC)
ROUTES = ("counter", "website")


class Watched:
    """A server in a thread of its own, whose clock stands where the test sets it."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.now = (BEGAN + timedelta(hours=2)).timestamp()
        settings = ServerSettings(store=place, workers=0, judge="lexical", **options)
        self.app = create_app(settings, lambda: self.now)
        self.store = self.app.state.server.store

    def fill(self) -> None:
        """An hour of the handbook's decent traces, an hour of the worse ones, a trace that is an attack, and a mark."""
        scoring = TraceScorer("lexical")
        found = [
            scoring(replace(trace, id=f"{version}/{trace.id}", route=ROUTES[at % 2], time=_time(hour, at)))
            for hour, version in enumerate(("v1", "v2"))
            for at, trace in enumerate(load_handbook().traces[version])
        ]
        trace, seen = hostile()
        trace, seen = replace(trace, time=_time(1, 90)), replace(seen, judge=found[0].verdicts.judge)
        found.append(
            ScoredTrace(
                trace, seen, tuple(compute_score(one, trace, seen) for one in select_metrics("default"))
            )
        )
        self.store.append_traces([each.trace for each in found]).result()
        self.store.add_outcomes(
            found, tuple(map(describe_metric, select_metrics("default"))), ("model", "version")
        ).result()
        self.store.add_marks(
            [TimelineMark(text="release <v2>", time=BEGAN + timedelta(hours=1))], self.now
        ).result()

    def watch(self) -> None:
        """Let the patrol look long enough for alerts to fire."""
        for _ in range(3):
            self.app.state.scheduler.run_round()
            self.now += 180

    def serving(self) -> contextlib.AbstractContextManager[str]:
        """Its address, while it serves."""
        return listening(self.app)


@contextlib.contextmanager
def listening(made: Any, http: Any = "h11") -> Iterator[str]:
    """The address of an application, while it serves in a thread of its own."""
    import uvicorn

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        config = uvicorn.Config(made, log_level="warning", http=http, ws="none", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [found]})
        thread.start()
        while not server.started:
            time.sleep(0.02)
        try:
            yield f"http://127.0.0.1:{found.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _time(hour: int, at: int) -> datetime:
    return BEGAN + timedelta(hours=hour, seconds=34 * at)
