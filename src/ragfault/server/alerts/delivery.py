"""Notifications of alerts and their delivery by webhook and e-mail, with retries."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import smtplib
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from hashlib import sha256
from queue import Empty, Queue
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from ragfault.errors import UnknownName, UsageError
from ragfault.server.background_thread import BackgroundThread
from ragfault.server.counters import EventCounters
from ragfault.server.http_client import POST_TIMEOUT, DeliveryAttempt, post
from ragfault.server.settings import ServerSettings, is_loopback

ALERTMANAGER_EXPIRY_SECONDS = 7 * 86400.0
"""Seconds for which Alertmanager keeps an alert firing without an update; its end is sent explicitly."""


class AlertNotification(Struct, frozen=True, kw_only=True):
    """Notification of an alert that fires, still fires, or is resolved."""

    kind: str
    """"firing", "reminder" or "resolved"."""
    rule: str
    severity: str
    metric: str
    route: str | None
    value: float | None
    since: float
    """Time at which the alert began to fire or was resolved, in seconds since 1970."""
    time: float
    began: float | None = None
    """Onset of the drop by the change point of the values."""
    layer: str
    """The faulty layer by the decision tree, otherwise that of the metric."""
    blamed: bool
    """The decision tree named the layer."""
    title: str | None = None
    """The fault in a few words."""
    suspects: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """Example traces."""

    @property
    def key(self) -> str:
        """The identity of the alert."""
        return f"{self.rule}/{self.metric}/{self.route or ''}"

    @property
    def sentence(self) -> str:
        """The notification in one sentence."""
        place = f" on {self.route}" if self.route else ""
        value = "" if self.value is None else f", {self.value:.3g}"
        blame = f": {self.layer}" if self.blamed else f" ({self.layer})"
        what = f" – {self.title}" if self.title else ""
        return f"{self.kind}: {self.rule} {self.metric}{value}{place}{blame}{what}"


def _format_plain(notification: AlertNotification) -> Any:
    return {"key": notification.key, "says": notification.sentence, **msgspec.to_builtins(notification)}


def _format_slack(notification: AlertNotification) -> Any:
    safe = notification.sentence.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = [
        *(f"• {text}" for text in notification.remedies[:3]),
        *(f"trace {text}" for text in notification.traces[:3]),
    ]
    more = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}} for text in (safe, more) if text]
    return {"text": safe, "blocks": blocks}


def _format_alertmanager(notification: AlertNotification) -> Any:
    """Format for Alertmanager, which identifies an alert by labels: only what stays until it is resolved is one."""
    labels = {"alertname": notification.rule, "severity": notification.severity, "metric": notification.metric}
    labels["route"] = notification.route or ""
    annotations = {
        "summary": notification.sentence,
        "layer": notification.layer,
        "traces": ", ".join(notification.traces),
    }
    if notification.kind == "resolved":
        times = {"endsAt": _format_iso(notification.since)}
    else:
        times = {
            "startsAt": _format_iso(notification.since),
            "endsAt": _format_iso(notification.time + ALERTMANAGER_EXPIRY_SECONDS),
        }
    return [{"labels": labels, "annotations": annotations, **times}]


def _format_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


WEBHOOK_FORMATS: dict[str, Callable[[AlertNotification], Any]] = {
    "ragfault": _format_plain,
    "slack": _format_slack,
    "alertmanager": _format_alertmanager,
}
"""Formats of webhooks; `alertmanager` is the body of its `/api/v2/alerts`."""


def sign_body(secret: str, moment: int, body: bytes) -> str:
    """Sign a body sent at a time: HMAC-SHA256 of `TIME.BODY`, in hex.

    >>> sign_body("s", 0, b"{}")[:16]
    'e79b1f685c78e46b'
    """
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


ADDRESS_PATTERN = re.compile(r"[^\s@<>\"(),:;\\\[\]]{1,64}@[^\s@<>\"(),:;\\\[\]]{1,255}")
DEFAULT_PORTS = {"smtp": 587, "smtps": 465}
MAX_SUBJECT_LENGTH = 180
"""Longest subject in characters."""


class MailServer(NamedTuple):
    """Address of a mail server."""

    host: str
    port: int
    user: str | None = None
    implicit_tls: bool = False
    """TLS from the start of the connection, otherwise STARTTLS."""


def parse_mail_server(url: str) -> MailServer:
    """Parse the address of a mail server: `smtp://user@host:587`, or `smtps://` for implicit TLS.

    Raises UsageError for an invalid address, and for one with a password, which other users of the machine could read.

    >>> parse_mail_server("smtp://alerts%40example.org@mail.example.org")
    MailServer(host='mail.example.org', port=587, user='alerts@example.org', implicit_tls=False)
    """
    try:
        parts = urlsplit(url)
        host, port, user = parts.hostname, parts.port, parts.username
    except ValueError:
        parts, host, port, user = urlsplit(""), None, None, None
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise UsageError("a mail server is named as smtp://user@host:587 or smtps://user@host:465.")
    if parts.password:
        raise UsageError("the password of the mail server is given as RAGFAULT_SMTP_PASSWORD: others see options.")
    return MailServer(
        host, port or DEFAULT_PORTS[parts.scheme], unquote(user) if user else None, parts.scheme == "smtps"
    )


class MailReceiver(Struct, frozen=True):
    """Receiver of notifications by e-mail."""

    server: MailServer
    password: str | None
    sender: str
    receiver: str

    @classmethod
    def from_options(cls, server: str, password: str | None, sender: str, receiver: str) -> MailReceiver:
        """Build a receiver; raises UsageError for an invalid server or address, or a user without a password."""
        for address in (sender, receiver):
            if not ADDRESS_PATTERN.fullmatch(address):
                raise UsageError(f'"{address}" is no address of mail: write name@example.org alone.')
        mail_server = parse_mail_server(server)
        if mail_server.user and not password:
            raise UsageError(f"{mail_server.user} needs a password: set RAGFAULT_SMTP_PASSWORD.")
        return cls(mail_server, password, sender, receiver)

    def __call__(self, notification: AlertNotification) -> DeliveryAttempt:
        """Try once to send a notification; nothing is sent to another machine without TLS."""
        try:
            with self._connect() as line:
                line.send_message(build_message(notification, self.sender, self.receiver))
        except smtplib.SMTPRecipientsRefused as error:
            code, reply = next(iter(error.recipients.values()))
            return _refused_attempt(code, reply)
        except smtplib.SMTPResponseException as error:
            return _refused_attempt(error.smtp_code, error.smtp_error)
        except (smtplib.SMTPNotSupportedError, ssl.SSLCertVerificationError) as error:
            return DeliveryAttempt(f"the mail server cannot be used: {error}")
        except (OSError, ValueError) as error:
            return DeliveryAttempt(f"the mail server cannot be reached: {error}", isinstance(error, OSError))
        return DeliveryAttempt()

    @contextlib.contextmanager
    def _connect(self) -> Iterator[smtplib.SMTP]:
        """Open a connection, encrypt it and log in; errors at its end are ignored."""
        host, port, user, wrapped = self.server
        context = ssl.create_default_context()
        line = (
            smtplib.SMTP_SSL(host, port, timeout=POST_TIMEOUT, context=context)
            if wrapped
            else smtplib.SMTP(host, port, timeout=POST_TIMEOUT)
        )
        try:
            line.ehlo_or_helo_if_needed()
            if not wrapped and (line.has_extn("starttls") or not is_loopback(host)):
                line.starttls(context=context)
            if user and self.password:
                line.login(user, self.password)
            yield line
            with contextlib.suppress(OSError):
                line.quit()
        finally:
            line.close()


def _refused_attempt(code: int, reply: object) -> DeliveryAttempt:
    words = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    return DeliveryAttempt(f"the mail server answered {code}: {_single_line(words)[:200]}", 400 <= code < 500)


def build_message(notification: AlertNotification, sender: str, receiver: str) -> EmailMessage:
    """Build a plain text message; messages of one alert form a thread.

    No text of a notification can start a new header or a new line.
    """
    domain = sender.rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = sender, receiver
    message["Subject"] = f"[ragfault] {_single_line(notification.sentence)}"[:MAX_SUBJECT_LENGTH]
    message["Date"] = format_datetime(datetime.fromtimestamp(notification.time, UTC))
    message["Message-ID"] = make_msgid(domain=domain)
    message["References"] = f"<{sha256(notification.key.encode('utf-8', 'replace')).hexdigest()[:32]}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(_message_lines(notification)) + "\n", cte="quoted-printable")
    return message


def _message_lines(notification: AlertNotification) -> Iterator[str]:
    yield _single_line(notification.sentence)
    yield ""
    began = None if notification.began is None else _format_time(notification.began)
    word = "resolved" if notification.kind == "resolved" else "firing since"
    for name, value in (
        ("severity", notification.severity),
        ("layer", notification.layer),
        ("route", notification.route),
        (word, _format_time(notification.since)),
        ("the drop began about", began),
    ):
        if value:
            yield f"{name}: {_single_line(value)}"
    yield from _list_section("What may be to blame", notification.suspects)
    yield from _list_section("What to try", notification.remedies)
    yield from _list_section("Traces that show it", notification.traces)


def _list_section(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = tuple(lines)
    if lines:
        yield from ("", f"{title}:", *(f"- {_single_line(line)}" for line in lines))


def _format_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _single_line(text: str) -> str:
    """Return a text as one line of printable characters."""
    plain = text.encode("utf-8", "replace").decode()
    return " ".join("".join(sign if sign.isprintable() else " " for sign in plain).split())


RETRY_DELAYS = (0.0, 1.0, 5.0, 30.0, 120.0)
"""Seconds before each attempt."""
QUEUE_SIZE = 1000
"""Notifications that may wait per receiver."""

Receiver = Callable[[AlertNotification], DeliveryAttempt]
"""One attempt to send a notification."""
DeliveryCallback = Callable[[AlertNotification, str | None], None]
"""Called with each notification and the reason of its failure; None: delivered."""


class WebhookReceiver:
    """Receiver of notifications by HTTP, signed where there is a secret."""

    def __init__(self, url: str, shape: str, secret: str | None) -> None:
        if shape not in WEBHOOK_FORMATS:
            raise UnknownName("shape of a webhook", shape, WEBHOOK_FORMATS)
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError("a webhook is an address that begins with https:// or http://.")
        self._url, self._format, self._secret = url, WEBHOOK_FORMATS[shape], secret

    def __call__(self, notification: AlertNotification) -> DeliveryAttempt:
        """Try once to send a notification."""
        body = msgspec.json.encode(self._format(notification))
        headers = {"Content-Type": "application/json"}
        if self._secret:
            moment = int(time.time())
            headers["X-Ragfault-Timestamp"] = str(moment)
            headers["X-Ragfault-Signature"] = f"sha256={sign_body(self._secret, moment, body)}"
        return post(self._url, body, headers, "the webhook")


def build_receivers(settings: ServerSettings) -> list[Receiver]:
    """Build the receivers of the settings. Raises UsageError or UnknownName for invalid settings."""
    receivers: list[Receiver] = []
    if settings.webhook is not None:
        receivers.append(WebhookReceiver(settings.webhook, settings.shape, settings.secret))
    elif settings.shape not in WEBHOOK_FORMATS:
        raise UnknownName("shape of a webhook", settings.shape, WEBHOOK_FORMATS)
    if settings.mail_to and (settings.smtp is None or settings.mail_from is None):
        raise UsageError("mail needs a server and a sender: --smtp smtp://user@host:587 --mail-from ADDRESS.")
    for address in settings.mail_to:
        assert settings.smtp is not None
        assert settings.mail_from is not None
        receivers.append(MailReceiver.from_options(settings.smtp, settings.smtp_password, settings.mail_from, address))
    return receivers


class NotificationSender:
    """Sends notifications to all receivers independently."""

    def __init__(
        self,
        settings: ServerSettings,
        counters: EventCounters,
        on_delivered: DeliveryCallback,
        retry_delays: tuple[float, ...] = RETRY_DELAYS,
    ) -> None:
        receivers = build_receivers(settings)
        self._queues = [ReceiverQueue(receiver, counters, on_delivered, retry_delays) for receiver in receivers]

    def start(self) -> None:
        """Start the threads."""
        for line in self._queues:
            line.start()

    def send(self, notification: AlertNotification) -> None:
        """Enqueue a notification; where a queue is full it is dropped and counted."""
        for line in self._queues:
            line.send(notification)

    def close(self) -> None:
        """Try once more to send what waits, and stop."""
        for line in self._queues:
            line.stop()
        for line in self._queues:
            line.close()


class ReceiverQueue(BackgroundThread):
    """Thread that sends notifications to one receiver in order, and reports the result of each."""

    def __init__(
        self,
        receiver: Receiver,
        counters: EventCounters,
        on_delivered: DeliveryCallback,
        retry_delays: tuple[float, ...],
    ) -> None:
        self._receiver, self._counters = receiver, counters
        self._on_delivered, self._retry_delays = on_delivered, retry_delays
        self._queue: Queue[AlertNotification] = Queue(QUEUE_SIZE)
        self._unreachable = False
        """The last notification could not be delivered."""
        super().__init__("ragfault-sender")

    def send(self, notification: AlertNotification) -> None:
        """Enqueue a notification."""
        if self._queue.qsize() >= QUEUE_SIZE:
            self._counters.add("unsent")
            self._on_delivered(notification, "too many wait to be sent")
            return
        self._queue.put(notification)

    def stop(self) -> None:
        """Skip the delays between attempts from now on."""
        self._stopping.set()

    def _run(self) -> None:
        while True:
            try:
                notification = self._queue.get(timeout=0.2)
            except Empty:
                if self._stopping.is_set():
                    return
                continue
            failure = self._deliver(notification)
            self._counters.add("sent" if failure is None else "unsent")
            self._on_delivered(notification, failure)

    def _deliver(self, notification: AlertNotification) -> str | None:
        """Send a notification with retries; return the reason of its failure, None where it was delivered."""
        attempt = DeliveryAttempt("the receiver was unreachable", retryable=True)
        for pause in self._retry_delays:
            wait = max(pause, attempt.retry_after)
            if not attempt.retryable or ((wait or self._unreachable) and self._stopping.wait(wait)):
                return attempt.error
            attempt = self._receiver(notification)
            self._unreachable = attempt.retryable
        return attempt.error
