"""Sending alerts: to a webhook and by mail, each in its own time, and tried again where nobody answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, Queue
from urllib.parse import urlsplit

import msgspec

from ragfault.errors import UnknownName, UsageError
from ragfault.server.mailing import Mail
from ragfault.server.notices import SHAPES, Notice, signature
from ragfault.server.posting import Attempt, post
from ragfault.server.settings import Settings
from ragfault.server.tallies import Tallies

__all__ = ["Sender", "receivers"]

TRIES = (0.0, 1.0, 5.0, 30.0, 120.0)
"""Seconds before each attempt."""
ROOM = 1000
"""Notices that may wait for one receiver."""

Receiver = Callable[[Notice], Attempt]
"""One attempt to send a notice to somebody."""
Told = Callable[[Notice, str | None], None]
"""What is told of each notice and receiver: what was wrong, if it never came through."""


class Webhook:
    """An address that takes notices in a shape, signed where there is a secret."""

    def __init__(self, url: str, shape: str, secret: str | None) -> None:
        if shape not in SHAPES:
            raise UnknownName("shape of a webhook", shape, SHAPES)
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError("a webhook is an address that begins with https:// or http://.")
        self._url, self._shape, self._secret = url, SHAPES[shape], secret

    def __call__(self, notice: Notice) -> Attempt:
        """One attempt to send a notice."""
        body = msgspec.json.encode(self._shape(notice))
        headers = {"Content-Type": "application/json"}
        if self._secret:
            moment = int(time.time())
            headers["X-Ragfault-Timestamp"] = str(moment)
            headers["X-Ragfault-Signature"] = f"sha256={signature(self._secret, moment, body)}"
        return post(self._url, body, headers, "the webhook")


def receivers(settings: Settings) -> list[Receiver]:
    """Who is told of alerts. Raises UsageError, or UnknownName, where that is not well said."""
    found: list[Receiver] = []
    if settings.webhook is not None:
        found.append(Webhook(settings.webhook, settings.shape, settings.secret))
    elif settings.shape not in SHAPES:
        raise UnknownName("shape of a webhook", settings.shape, SHAPES)
    if settings.mail_to and (settings.smtp is None or settings.mail_from is None):
        raise UsageError("mail needs a server and a sender: --smtp smtp://user@host:587 --mail-from ADDRESS.")
    for address in settings.mail_to:
        assert settings.smtp is not None
        assert settings.mail_from is not None
        found.append(Mail.checked(settings.smtp, settings.smtp_password, settings.mail_from, address))
    return found


class Sender:
    """Sends notices to every receiver; one that is down keeps no other waiting."""

    def __init__(
        self, settings: Settings, tallies: Tallies, sent: Told, tries: tuple[float, ...] = TRIES
    ) -> None:
        self._lines = [Line(each, tallies, sent, tries) for each in receivers(settings)]

    def start(self) -> None:
        """Begin."""
        for line in self._lines:
            line.start()

    def send(self, notice: Notice) -> None:
        """Send a notice as soon as may be; where too many wait it is dropped, and counted."""
        for line in self._lines:
            line.send(notice)

    def close(self) -> None:
        """Try once more what waits, as long as it comes through, and end."""
        for line in self._lines:
            line.end()
        for line in self._lines:
            line.close()


class Line:
    """A thread that sends notices to one receiver one by one, in order, and tells what became of each."""

    def __init__(self, receiver: Receiver, tallies: Tallies, sent: Told, tries: tuple[float, ...]) -> None:
        self._receiver, self._tallies, self._sent, self._tries = receiver, tallies, sent, tries
        self._queue: Queue[Notice] = Queue(ROOM)
        self._away = False
        """Whether the receiver did not take the last notice."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ragfault-sender", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def send(self, notice: Notice) -> None:
        """Put a notice behind those that wait."""
        if self._queue.qsize() >= ROOM:
            self._tallies.add("unsent")
            self._sent(notice, "too many wait to be sent")
            return
        self._queue.put(notice)

    def end(self) -> None:
        """Wait for nothing any more."""
        self._ending.set()

    def close(self) -> None:
        """End after what waits."""
        self.end()
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
            fault = self._deliver(notice)
            self._tallies.add("sent" if fault is None else "unsent")
            self._sent(notice, fault)

    def _deliver(self, notice: Notice) -> str | None:
        """Send a notice, several times where that is worth while; what is wrong, if it never came through."""
        found = Attempt("nobody was there", again=True)
        for pause in self._tries:
            wait = max(pause, found.wait)
            if not found.again or ((wait or self._away) and self._ending.wait(wait)):
                return found.fault
            found = self._receiver(notice)
            self._away = found.again
        return found.fault
