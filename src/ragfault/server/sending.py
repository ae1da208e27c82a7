"""Sending alerts: to a webhook, in the shape it reads, signed, and tried again where it does not answer."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Empty, Queue
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
from msgspec import Struct

from ragfault import __version__
from ragfault.errors import UnknownName, UsageError
from ragfault.server.settings import Settings
from ragfault.server.tallies import Tallies

__all__ = ["SHAPES", "Notice", "Sender", "signature"]

TRIES = (0.0, 1.0, 5.0, 30.0, 120.0)
"""Seconds before each attempt."""
PATIENCE = 10.0
"""Seconds for which an answer is waited for."""
ROOM = 1000
"""Notices that may wait."""


class Notice(Struct, frozen=True, kw_only=True):
    """What is sent of an alert."""

    kind: str
    """"firing", "reminder" or "resolved"."""
    rule: str
    severity: str
    metric: str
    route: str | None
    value: float | None
    since: float
    """When the alert began to fire, or resolved, in seconds since 1970."""
    time: float
    began: float | None = None
    """When the drop began, by the change point of the values around it."""
    layer: str
    """The layer that the decision tree names; where it names none, that of the metric."""
    blamed: bool
    """Whether the decision tree named it."""
    title: str | None = None
    """What broke, in a few words."""
    suspects: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """Those that show it."""

    @property
    def key(self) -> str:
        """What tells the alert from others."""
        return f"{self.rule}/{self.metric}/{self.route or ''}"

    @property
    def sentence(self) -> str:
        """The notice in one sentence."""
        place = f" on {self.route}" if self.route else ""
        value = "" if self.value is None else f", {self.value:.3g}"
        blame = f": {self.layer}" if self.blamed else f" ({self.layer})"
        what = f" – {self.title}" if self.title else ""
        return f"{self.kind}: {self.rule} {self.metric}{value}{place}{blame}{what}"


def _plain(notice: Notice) -> Any:
    return {"key": notice.key, "says": notice.sentence, **msgspec.to_builtins(notice)}


def _slack(notice: Notice) -> Any:
    safe = notice.sentence.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = [*(f"• {each}" for each in notice.remedies[:3]), *(f"trace {each}" for each in notice.traces[:3])]
    more = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": each[:2900]}} for each in (safe, more) if each
    ]
    return {"text": safe, "blocks": blocks}


def _alertmanager(notice: Notice) -> Any:
    labels = {
        "alertname": notice.rule,
        "severity": notice.severity,
        "metric": notice.metric,
        "route": notice.route or "",
        "layer": notice.layer,
    }
    begun = _iso(notice.since)
    ended = {"endsAt": begun} if notice.kind == "resolved" else {}
    said = {"summary": notice.sentence, "traces": ", ".join(notice.traces)}
    return [{"labels": labels, "annotations": said, **({} if ended else {"startsAt": begun}), **ended}]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


SHAPES: dict[str, Callable[[Notice], Any]] = {
    "ragfault": _plain,
    "slack": _slack,
    "alertmanager": _alertmanager,
}
"""What a notice looks like to whom: `alertmanager` is the body of its `/api/v2/alerts`."""


def signature(secret: str, moment: int, body: bytes) -> str:
    """The signature of a body that is sent at a moment: HMAC-SHA256 of `MOMENT.BODY`, in hex.

    >>> signature("s", 0, b"{}")[:16]
    'e79b1f685c78e46b'
    """
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


class _Still(HTTPRedirectHandler):
    """Follows nobody elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Sender:
    """A thread that sends notices one by one, in order, and tells what became of each."""

    def __init__(
        self,
        settings: Settings,
        tallies: Tallies,
        sent: Callable[[Notice, str | None], None],
        tries: tuple[float, ...] = TRIES,
    ) -> None:
        if settings.shape not in SHAPES:
            raise UnknownName("shape of a webhook", settings.shape, SHAPES)
        if settings.webhook is not None and urlsplit(settings.webhook).scheme not in ("http", "https"):
            raise UsageError("a webhook is an address that begins with https:// or http://.")
        self._settings, self._tallies, self._sent, self._tries = settings, tallies, sent, tries
        self._queue: Queue[Notice | None] = Queue(ROOM)
        self._ending = threading.Event()
        self._opener = build_opener(_Still)
        self._thread = threading.Thread(target=self._work, name="ragfault-sender", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def send(self, notice: Notice) -> None:
        """Send a notice as soon as may be; where too many wait it is dropped, and counted."""
        if self._settings.webhook is None:
            return
        if self._queue.qsize() >= ROOM:
            self._tallies.add("unsent")
            self._sent(notice, "too many wait to be sent")
            return
        self._queue.put(notice)

    def close(self) -> None:
        """Try once more what waits, and end."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                notice = self._queue.get(timeout=0.2)
            except Empty:
                if self._ending.is_set():
                    return
                continue
            if notice is not None:
                fault = self._deliver(notice)
                self._tallies.add("sent" if fault is None else "unsent")
                self._sent(notice, fault)

    def _deliver(self, notice: Notice) -> str | None:
        """Send a notice, several times where that is worth while; what is wrong, if it never came through."""
        fault, again = None, True
        for wait in self._tries:
            if wait and self._ending.wait(wait):
                return fault
            fault, again = self._post(notice)
            if not again:
                return fault
        return fault

    def _post(self, notice: Notice) -> tuple[str | None, bool]:
        """One attempt: what is wrong, and whether another may go better."""
        assert self._settings.webhook is not None
        body = msgspec.json.encode(SHAPES[self._settings.shape](notice))
        headers = {"Content-Type": "application/json", "User-Agent": f"ragfault/{__version__}"}
        if self._settings.secret:
            moment = int(time.time())
            headers["X-Ragfault-Timestamp"] = str(moment)
            headers["X-Ragfault-Signature"] = f"sha256={signature(self._settings.secret, moment, body)}"
        try:
            with self._opener.open(
                Request(self._settings.webhook, body, headers, method="POST"), timeout=PATIENCE
            ):
                return None, False
        except HTTPError as error:
            with error:
                return f"the webhook answered {error.code}", error.code in (
                    408,
                    425,
                    429,
                ) or error.code >= 500
        except (URLError, OSError) as error:
            return f"the webhook cannot be reached: {getattr(error, 'reason', error)}", True
