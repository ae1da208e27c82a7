"""Returning scores: to an OTLP endpoint, where they appear beside the spans that were scored; scoring never waits."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from queue import Empty, Full, Queue
from urllib.parse import urlsplit

from ragfault.errors import UsageError
from ragfault.online import Scored
from ragfault.runs import Measure
from ragfault.server import rating
from ragfault.server.posting import Attempt, post
from ragfault.server.settings import Settings
from ragfault.server.tallies import Tallies

__all__ = ["Returner", "checked"]

TRIES = (0.0, 1.0, 5.0, 15.0, 30.0)
"""Seconds before each attempt."""
ROOM = 10_000
"""Traces whose scores may wait."""
TOGETHER = 256
"""Traces whose scores are sent at once, at most."""
GATHER = 1.0
"""Seconds for which scores are gathered."""
AGAIN = (429, 502, 503, 504)
"""Answers after which OTLP has a request sent again."""
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def checked(settings: Settings) -> None:
    """Raise UsageError where an endpoint or a header is none, MissingExtra where OTLP cannot be written."""
    if settings.otlp is None:
        if settings.otlp_headers or settings.otlp_spans:
            raise UsageError("scores go nowhere: name an endpoint with --otlp-endpoint URL.")
        return
    if urlsplit(settings.otlp).scheme not in ("http", "https") or not urlsplit(settings.otlp).netloc:
        raise UsageError("an OTLP endpoint is an address that begins with https:// or http://.")
    for name, value in settings.otlp_headers:
        if not NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            raise UsageError(f'a header is NAME=VALUE on one line; "{name[:40]}" is none.')
    rating.check()


class Returner:
    """A thread that sends scores in batches; where too many wait they are dropped, and counted."""

    def __init__(
        self,
        settings: Settings,
        tallies: Tallies,
        measures: Iterable[Measure],
        tries: tuple[float, ...] = TRIES,
        room: int = ROOM,
    ) -> None:
        self._url, self._spans = settings.otlp, settings.otlp_spans
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            **dict(settings.otlp_headers),
        }
        self._tallies, self._tries = tallies, tries
        self._measures: Mapping[str, Measure] = {measure.name: measure for measure in measures}
        self._queue: Queue[Scored] = Queue(room)
        self._away = False
        """Whether nobody was there the last time."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-returner", daemon=True)

    def start(self) -> None:
        """Begin, where there is somebody to send to."""
        if self._url is not None:
            self._thread.start()

    def take(self, outcomes: Sequence[Scored]) -> None:
        """Take scores to be sent; at once, whatever becomes of them. Those of traces that came otherwise stay here."""
        if self._url is None:
            return
        for scored in outcomes:
            if rating.origin(scored.trace) is not None:
                try:
                    self._queue.put_nowait(scored)
                except Full:
                    self._tallies.add("scores_unreturned", sum(1 for _ in rating.rated(scored)))

    def close(self) -> None:
        """Try once more what waits, as long as somebody is there, and end."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- on the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            batch = self._gathered()
            if batch:
                self._send(batch)
            elif self._ending.is_set():
                return

    def _gathered(self) -> list[Scored]:
        """What has come within a moment."""
        batch: list[Scored] = []
        until = time.monotonic() + GATHER
        while len(batch) < TOGETHER:
            left = 0.0 if self._ending.is_set() else min(0.1, until - time.monotonic())
            try:
                batch.append(self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait())
            except Empty:
                if self._ending.is_set() or time.monotonic() >= until:
                    break
        return batch

    def _send(self, batch: list[Scored]) -> None:
        now = time.time_ns()
        size = sum(1 for scored in batch for _ in rating.rated(scored))
        self._signal("logs", rating.logs(batch, self._measures, now), size, "scores")
        if self._spans:
            self._signal("traces", rating.spans(batch, now), len(batch), "spans")

    def _signal(self, signal: str, body: bytes, size: int, what: str) -> None:
        """Send one request until it came through, or that is no use; count what became of what is in it."""
        found = self._deliver(f"{_bare(self._url or '')}/v1/{signal}", gzip.compress(body, 3))
        lost = size if found.fault is not None else min(size, max(0, rating.refused(found.body, signal)))
        self._tallies.add(f"{what}_returned", size - lost)
        self._tallies.add(f"{what}_unreturned", lost)

    def _deliver(self, url: str, body: bytes) -> Attempt:
        found = Attempt("the OTLP endpoint is away", again=True)
        for pause in self._tries:
            wait = max(pause, found.wait)
            if (wait or self._away) and self._ending.wait(wait):
                return found
            found = post(url, body, self._headers, "the OTLP endpoint")
            self._away = found.fault is not None and not found.code
            if not found.again or (found.code and found.code not in AGAIN):
                return found
        return found


def _bare(url: str) -> str:
    """An endpoint without the paths of the signals.

    >>> _bare("http://127.0.0.1:4318/"), _bare("https://otel.example.org/otlp/v1/logs")
    ('http://127.0.0.1:4318', 'https://otel.example.org/otlp')
    """
    return re.sub(r"(/v1/(logs|traces))?/*$", "", url)
