"""Mail: a notice as a message of plain text, and one attempt to hand it to a mail server, over TLS."""

from __future__ import annotations

import contextlib
import re
import smtplib
import ssl
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from ragfault.errors import UsageError
from ragfault.server.notices import Notice
from ragfault.server.posting import PATIENCE, Attempt
from ragfault.server.settings import loopback

__all__ = ["Mail", "MailServer", "mail_server", "message"]

ADDRESS = re.compile(r"[^\s@<>\"(),:;\\\[\]]{1,64}@[^\s@<>\"(),:;\\\[\]]{1,255}")
PORTS = {"smtp": 587, "smtps": 465}
TITLE = 180
"""Characters of a subject, at most."""


class MailServer(NamedTuple):
    """Who takes mail from us."""

    host: str
    port: int
    user: str | None = None
    wrapped: bool = False
    """Whether TLS begins with the connection; else it does with STARTTLS."""


def mail_server(url: str) -> MailServer:
    """The server that an address names: `smtp://user@host:587`, or `smtps://` where TLS begins at once.

    Raises UsageError for what is none, and for one with a password in it, which others could read.

    >>> mail_server("smtp://alerts%40example.org@mail.example.org")
    MailServer(host='mail.example.org', port=587, user='alerts@example.org', wrapped=False)
    """
    try:
        parts = urlsplit(url)
        host, port, user = parts.hostname, parts.port, parts.username
    except ValueError:
        parts, host, port, user = urlsplit(""), None, None, None
    if parts.scheme not in PORTS or not host:
        raise UsageError("a mail server is named as smtp://user@host:587 or smtps://user@host:465.")
    if parts.password:
        raise UsageError(
            "the password of the mail server is given as RAGFAULT_SMTP_PASSWORD: others see options."
        )
    return MailServer(
        host, port or PORTS[parts.scheme], unquote(user) if user else None, parts.scheme == "smtps"
    )


class Mail(Struct, frozen=True):
    """One who is told of alerts by mail."""

    server: MailServer
    password: str | None
    sender: str
    receiver: str

    @classmethod
    def checked(cls, server: str, password: str | None, sender: str, receiver: str) -> Mail:
        """Made of what somebody said; raises UsageError for no server, no address, or a user without password."""
        for address in (sender, receiver):
            if not ADDRESS.fullmatch(address):
                raise UsageError(f'"{address}" is no address of mail: write name@example.org alone.')
        made = mail_server(server)
        if made.user and not password:
            raise UsageError(f"{made.user} needs a password: set RAGFAULT_SMTP_PASSWORD.")
        return cls(made, password, sender, receiver)

    def __call__(self, notice: Notice) -> Attempt:
        """One attempt to send a notice; nothing is sent, and no password told, over a line that others can read."""
        try:
            with self._connected() as line:
                line.send_message(message(notice, self.sender, self.receiver))
        except smtplib.SMTPRecipientsRefused as error:
            code, said = next(iter(error.recipients.values()))
            return _refused(code, said)
        except smtplib.SMTPResponseException as error:
            return _refused(error.smtp_code, error.smtp_error)
        except (smtplib.SMTPNotSupportedError, ssl.SSLCertVerificationError) as error:
            return Attempt(f"the mail server cannot be used: {error}")
        except (OSError, ValueError) as error:
            return Attempt(f"the mail server cannot be reached: {error}", isinstance(error, OSError))
        return Attempt()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        """A line to the server, encrypted and signed in; what goes wrong at its end is no matter."""
        host, port, user, wrapped = self.server
        context = ssl.create_default_context()
        line = (
            smtplib.SMTP_SSL(host, port, timeout=PATIENCE, context=context)
            if wrapped
            else smtplib.SMTP(host, port, timeout=PATIENCE)
        )
        try:
            line.ehlo_or_helo_if_needed()
            if not wrapped and (line.has_extn("starttls") or not loopback(host)):
                line.starttls(context=context)
            if user and self.password:
                line.login(user, self.password)
            yield line
            with contextlib.suppress(OSError):
                line.quit()
        finally:
            line.close()


def _refused(code: int, said: object) -> Attempt:
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return Attempt(f"the mail server answered {code}: {_line(words)[:200]}", 400 <= code < 500)


# --- the message -----------------------------------------------------------------------------------


def message(notice: Notice, sender: str, receiver: str) -> EmailMessage:
    """A notice as a message of plain text; what is sent of one alert hangs together as one conversation.

    No text of a notice becomes a line of its own, neither in the head nor in the body.
    """
    domain = sender.rpartition("@")[2]
    made = EmailMessage(policy=SMTP)
    made["From"], made["To"] = sender, receiver
    made["Subject"] = f"[ragfault] {_line(notice.sentence)}"[:TITLE]
    made["Date"] = format_datetime(datetime.fromtimestamp(notice.time, UTC))
    made["Message-ID"] = make_msgid(domain=domain)
    made["References"] = f"<{sha256(notice.key.encode('utf-8', 'replace')).hexdigest()[:32]}@{domain}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content("\n".join(_body(notice)) + "\n", cte="quoted-printable")
    return made


def _body(notice: Notice) -> Iterator[str]:
    yield _line(notice.sentence)
    yield ""
    began = None if notice.began is None else _when(notice.began)
    word = "resolved" if notice.kind == "resolved" else "firing since"
    for name, value in (
        ("severity", notice.severity),
        ("layer", notice.layer),
        ("route", notice.route),
        (word, _when(notice.since)),
        ("the drop began about", began),
    ):
        if value:
            yield f"{name}: {_line(value)}"
    yield from _listed("What may be to blame", notice.suspects)
    yield from _listed("What to try", notice.remedies)
    yield from _listed("Traces that show it", notice.traces)


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = tuple(lines)
    if lines:
        yield from ("", f"{title}:", *(f"- {_line(each)}" for each in lines))


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _line(text: str) -> str:
    """A text as one line of printable signs."""
    plain = text.encode("utf-8", "replace").decode()
    return " ".join("".join(sign if sign.isprintable() else " " for sign in plain).split())
