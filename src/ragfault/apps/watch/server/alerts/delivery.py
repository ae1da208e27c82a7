"""Notices of incidents and their delivery by webhook and e-mail, with retries."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import smtplib
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from hashlib import sha256
from queue import Empty, Queue
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from ragfault.apps.watch.monitoring.incidents import Incident, NoticeKind
from ragfault.apps.watch.monitoring.offenders import Offender
from ragfault.apps.watch.server.alerts.incidents import describe_routes, format_moment
from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.http_client import POST_TIMEOUT, DeliveryAttempt, post
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.http.addresses import is_loopback
from ragfault.model.errors import UnknownName, UsageError
from ragfault.text.number_format import format_percent, format_signed

ALERTMANAGER_EXPIRY_SECONDS = 7 * 86400.0
"""Seconds for which Alertmanager keeps an alert firing without an update; its end is sent explicitly."""


class IncidentNotice(Struct, frozen=True, kw_only=True):
    """Notice that an incident opened, grew, is still open, or resolved."""

    kind: NoticeKind
    # seconds since 1970
    time: float
    incident: Incident
    # the address of the incident on the dashboard; None: not known
    link: str | None = None

    @property
    def key(self) -> str:
        """The identity of the incident."""
        return self.incident.id

    @property
    def sentence(self) -> str:
        """The notice in one sentence: what, where, since when."""
        incident = self.incident
        place = f" on {describe_routes(incident.routes)}" if incident.routes else ""
        since = f"since {format_moment(incident.onset)}"
        if not incident.detected:
            since = f"some time before {format_moment(incident.latest)}"
        return f"{self.kind}: {incident.title}{place}, {since}"


def describe_evidence(incident: Incident) -> list[str]:
    """Describe what the traces of an incident show: causes of bad answers, offenders, error and slow step."""
    step = incident.step
    offenders = [_describe_offender(offender) for offender in incident.offenders[:3]]
    error = f"Error in {incident.message}" if incident.message else ""
    slow = "" if step is None else f"Slow step {step.name}: {step.before:,.0f} ms before, {step.since:,.0f} ms since."
    return [text for text in (incident.cause_text and f"{incident.cause_text}.", *offenders, error, slow) if text]


def _describe_offender(own: Offender) -> str:
    sides = f"{own.count:,} of {own.total:,}", f"{own.other_count:,} of"
    if own.kind == "vanished":
        return f"{own.field} {own.value}: on {sides[0]} traces since, {sides[1]} {own.other_total:,} before."
    new = " (new)" if own.is_new else ""
    return f"{own.field} {own.value}{new}: {sides[0]} traces are bad, {sides[1]} the other {own.other_total:,}."


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _format_slack(notice: IncidentNotice) -> Any:
    incident = notice.incident
    lines = [
        *describe_evidence(incident),
        incident.sentence,
        notice.link or "",
        *(f"before: {mark.text}" for mark in incident.marks[:1]),
        *(f"• {text}" for text in incident.remedies[:3]),
        *(f"trace {text}" for text in incident.traces[:3]),
    ]
    texts = _escape_slack(notice.sentence), _escape_slack("\n".join(filter(None, lines)))
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}} for text in texts if text]
    return {"text": texts[0], "blocks": blocks}


def _format_alertmanager(notice: IncidentNotice) -> Any:
    """Format for Alertmanager, which identifies an alert by labels: only what stays until it is resolved is one."""
    incident = notice.incident
    labels = {"alertname": "ragfault", "kind": incident.kind, "incident": incident.id}
    annotations = {
        "summary": notice.sentence,
        "description": " ".join([*describe_evidence(incident), incident.sentence]),
        "severity": incident.severity,
        "layer": incident.layer,
        "routes": ", ".join(route or "no route" for route in incident.routes),
        "traces": ", ".join(incident.traces),
    }
    times = {"startsAt": _format_iso(incident.opened)}
    ends = notice.time if incident.resolved is None else incident.resolved
    times["endsAt"] = _format_iso(ends + (ALERTMANAGER_EXPIRY_SECONDS if incident.resolved is None else 0.0))
    times |= {"generatorURL": notice.link} if notice.link else {}
    return [{"labels": labels, "annotations": annotations, **times}]


def _format_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


WEBHOOK_FORMATS: dict[str, Callable[[IncidentNotice], Any]] = {
    "ragfault": lambda notice: {"key": notice.key, "says": notice.sentence, **msgspec.to_builtins(notice)},
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
# longest subject in characters
MAX_SUBJECT_LENGTH = 180


class MailServer(NamedTuple):
    """Address of a mail server."""

    host: str
    port: int
    user: str | None = None
    # TLS from the start of the connection, otherwise STARTTLS
    implicit_tls: bool = False


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
    """Receiver of notices by e-mail."""

    server: MailServer
    password: str | None
    sender: str
    receiver: str

    @classmethod
    def from_options(cls, server: str, password: str | None, sender: str, receiver: str) -> MailReceiver:
        """Build a receiver; raises UsageError for an invalid server or address, or a user without a password."""
        for address in (sender, receiver):
            if not ADDRESS_PATTERN.fullmatch(address):
                raise UsageError(f'"{address}" is not a mail address: write only name@example.org.')
        mail_server = parse_mail_server(server)
        if mail_server.user and not password:
            raise UsageError(f"{mail_server.user} needs a password: set RAGFAULT_SMTP_PASSWORD.")
        return cls(mail_server, password, sender, receiver)

    @property
    def name(self) -> str:
        """The receiver in words."""
        return f"mail to {self.receiver}"

    def __call__(self, notice: IncidentNotice) -> DeliveryAttempt:
        """Try once to send a notice; nothing is sent to another machine without TLS."""
        try:
            with self._connect() as line:
                line.send_message(build_message(notice, self.sender, self.receiver))
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


def build_message(notice: IncidentNotice, sender: str, receiver: str) -> EmailMessage:
    """Build a plain text message; messages of one incident form a thread.

    No text of a notice can start a new header or a new line.
    """
    domain = sender.rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = sender, receiver
    message["Subject"] = f"[ragfault] {_single_line(notice.sentence)}"[:MAX_SUBJECT_LENGTH]
    message["Date"] = format_datetime(datetime.fromtimestamp(notice.time, UTC))
    message["Message-ID"] = make_msgid(domain=domain)
    message["References"] = f"<{sha256(notice.key.encode('utf-8', 'replace')).hexdigest()[:32]}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(_message_lines(notice)) + "\n", cte="quoted-printable")
    return message


def _message_lines(notice: IncidentNotice) -> Iterator[str]:
    incident = notice.incident
    yield _single_line(notice.sentence)
    yield ""
    yield from map(_single_line, [*describe_evidence(incident), incident.sentence])
    yield ""
    size = incident.size
    moved = (
        ""
        if size is None
        else (
            f"{size.metric} {size.before:.3g} before, {size.since:.3g} since "
            f"({format_signed(size.difference)} [{format_signed(size.low)}, {format_signed(size.high)}])"
        )
    )
    share = (
        ""
        if incident.share is None
        else f"{incident.scored:,} scored traces since then, {format_percent(incident.share)} of all"
    )
    onset = f"{format_moment(incident.onset)}, between {format_moment(incident.earliest)} and "
    for name, value in (
        ("severity", incident.severity),
        ("layer", incident.layer),
        ("routes", ", ".join(route or "no route" for route in incident.routes)),
        ("onset", f"{onset}{format_moment(incident.latest)}" if incident.kind == "quality" else ""),
        ("opened", format_moment(incident.opened)),
        ("resolved", "" if incident.resolved is None else format_moment(incident.resolved)),
        ("size", moved),
        ("affected", share),
        ("acknowledged by", incident.acknowledged),
        ("link", notice.link),
    ):
        if value:
            yield f"{name}: {_single_line(value)}"
    yield from _list_section("Shortly before", (f"{mark.text} ({format_moment(mark.time)})" for mark in incident.marks))
    yield from _list_section("What may be to blame", incident.suspects)
    yield from _list_section("What to try", incident.remedies)
    yield from _list_section("Traces that show it", incident.traces)


def _list_section(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = tuple(lines)
    if lines:
        yield from ("", f"{title}:", *(f"- {_single_line(line)}" for line in lines))


def _single_line(text: str) -> str:
    """Return a text as one line of printable characters."""
    plain = text.encode("utf-8", "replace").decode()
    return " ".join("".join(sign if sign.isprintable() else " " for sign in plain).split())


# seconds before each attempt
RETRY_DELAYS = (0.0, 1.0, 5.0, 30.0, 120.0)
# notices that may wait per receiver
QUEUE_SIZE = 1000

REDELIVERY_SECONDS = 300.0
"""Seconds after which a notice that failed is sent once more, as long as its receiver fails."""
# notices that are kept for that
MAX_UNSENT = 100


class Receiver(Protocol):
    """One attempt to send a notice to one place."""

    @property
    def name(self) -> str:
        """The receiver in words, without a secret."""
        ...

    def __call__(self, notice: IncidentNotice) -> DeliveryAttempt: ...


class ReceiverFault(Struct, frozen=True, kw_only=True):
    """A receiver that does not take notices."""

    receiver: str
    error: str
    # seconds since 1970
    since: float
    # notices that failed
    unsent: int


DeliveryCallback = Callable[[IncidentNotice, str | None], None]
"""Called with each notice and the reason of its failure; None: delivered."""


class WebhookReceiver:
    """Receiver of notices by HTTP, signed where there is a secret."""

    def __init__(self, url: str, shape: str, secret: str | None) -> None:
        if shape not in WEBHOOK_FORMATS:
            raise UnknownName("shape of a webhook", shape, WEBHOOK_FORMATS)
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError("a webhook is an address that begins with https:// or http://.")
        self.name = f"the webhook at {urlsplit(url).hostname}"
        self._url, self._format, self._secret = url, WEBHOOK_FORMATS[shape], secret

    def __call__(self, notice: IncidentNotice) -> DeliveryAttempt:
        """Try once to send a notice."""
        body = msgspec.json.encode(self._format(notice))
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


class NoticeSender:
    """Sends notices to all receivers independently."""

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

    @property
    def faults(self) -> tuple[ReceiverFault, ...]:
        """The receivers that took none of the latest notices."""
        return tuple(line.fault for line in self._queues if line.fault is not None)

    def send(self, notice: IncidentNotice) -> None:
        """Enqueue a notice; where a queue is full it is dropped and counted."""
        for line in self._queues:
            line.send(notice)

    def close(self) -> None:
        """Try once more to send what waits, and stop."""
        for line in self._queues:
            line.stop()
        for line in self._queues:
            line.close()


class ReceiverQueue(BackgroundThread):
    """Thread that sends notices to one receiver in order, and reports the result of each."""

    def __init__(
        self,
        receiver: Receiver,
        counters: EventCounters,
        on_delivered: DeliveryCallback,
        retry_delays: tuple[float, ...],
    ) -> None:
        self._receiver, self._counters = receiver, counters
        self._on_delivered, self._retry_delays = on_delivered, retry_delays
        self._queue: Queue[IncidentNotice] = Queue(QUEUE_SIZE)
        self._unreachable = False
        """The last notice could not be delivered."""
        self._unsent: deque[IncidentNotice] = deque(maxlen=MAX_UNSENT)
        self._next_try = 0.0
        self.fault: ReceiverFault | None = None
        """Why the receiver fails; None: it took the last notice."""
        super().__init__("ragfault-sender")

    def send(self, notice: IncidentNotice) -> None:
        """Enqueue a notice."""
        if self._queue.qsize() >= QUEUE_SIZE:
            self._report(notice, "too many wait to be sent")
            return
        self._queue.put(notice)

    def stop(self) -> None:
        """Skip the delays between attempts from now on."""
        self._stopping.set()

    def _run(self) -> None:
        while True:
            try:
                notice = self._queue.get(timeout=0.2)
            except Empty:
                if self._stopping.is_set():
                    return
                self._send_again()
                continue
            self._report(notice, self._deliver(notice))

    def _report(self, notice: IncidentNotice, failure: str | None) -> None:
        """Count the result of a delivery, and keep a notice that failed."""
        if failure is None:
            self.fault = None
        else:
            since, unsent = (time.time(), 0) if self.fault is None else (self.fault.since, self.fault.unsent)
            self.fault = ReceiverFault(receiver=self._receiver.name, error=failure, since=since, unsent=unsent + 1)
            self._unsent.append(notice)
            self._next_try = time.monotonic() + REDELIVERY_SECONDS
        self._counters.add("sent" if failure is None else "unsent")
        self._on_delivered(notice, failure)

    def _send_again(self) -> None:
        """Send the oldest notice that failed once more, when it is time: so it is found out that a receiver is back."""
        if not self._unsent or time.monotonic() < self._next_try:
            return
        attempt = self._receiver(self._unsent[0])
        if attempt.error is None:
            self._report(self._unsent.popleft(), None)
            return
        if not attempt.retryable:
            self._unsent.popleft()
        self._next_try = time.monotonic() + REDELIVERY_SECONDS

    def _deliver(self, notice: IncidentNotice) -> str | None:
        """Send a notice with retries; return the reason of its failure, None where it was delivered."""
        attempt = DeliveryAttempt("the receiver was unreachable", retryable=True)
        for pause in self._retry_delays:
            wait = max(pause, attempt.retry_after)
            if not attempt.retryable or ((wait or self._unreachable) and self._stopping.wait(wait)):
                return attempt.error
            attempt = self._receiver(notice)
            self._unreachable = attempt.retryable
        return attempt.error
