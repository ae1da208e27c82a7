"""A mail server for the tests: it takes what it is sent, and asks for TLS and a password where it is told to."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import NamedTuple


class ReceivedMail(NamedTuple):
    """One message that was taken."""

    sender: str
    receivers: list[str]
    message: EmailMessage
    secret: bool
    """Whether it came over TLS."""
    user: str | None


class MailServer(ThreadingTCPServer):
    """What a mail server says by RFC 5321, as far as one sender needs it."""

    codes: list[str]
    tls: ssl.SSLContext | None
    user: tuple[str, str] | None
    wrapped: bool
    taken: list[ReceivedMail]
    tries = 0

    @property
    def port(self) -> int:
        return self.server_address[1]

    def handle_error(self, *_: object) -> None:
        """Ignore broken connections, which are the client's fault."""


class MailConnection(BaseRequestHandler):
    """One connection."""

    server: MailServer

    def handle(self) -> None:
        self.server.tries += 1
        self.line: socket.socket = self.request
        self.secret, self.user, self.sender, self.receivers = False, None, "", []
        self.buffer = b""
        try:
            with contextlib.suppress(OSError):
                self._talk()
        finally:
            self.line.close()

    def _talk(self) -> None:
        if self.server.wrapped:
            self._encrypt()
        self.say("220 mail.test ESMTP")
        while text := self.until(b"\r\n").decode():
            verb, _, rest = text.strip().partition(" ")
            self.say(getattr(self, f"on_{verb.lower()}", self.on_other)(rest))
            if verb.upper() == "STARTTLS":
                self._encrypt()
            if verb.upper() == "QUIT":
                return

    def say(self, text: str) -> None:
        self.line.sendall(text.encode() + b"\r\n")

    def until(self, end: bytes) -> bytes:
        """Read up to an end mark and with it; nothing where the client has gone."""
        while end not in self.buffer:
            part = self.line.recv(65536)
            if not part:
                return b""
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(end)
        return text + end

    def _encrypt(self) -> None:
        assert self.server.tls is not None
        self.line = self.server.tls.wrap_socket(self.line, server_side=True)
        self.secret = True

    # --- verbs -------------------------------------------------------------------------------------

    def on_ehlo(self, _: str) -> str:
        offered = ["mail.test", "8BITMIME"]
        offered += ["STARTTLS"] if self.server.tls and not self.secret else []
        offered += ["AUTH PLAIN"] if self.server.user else []
        return "".join(f"250-{line}\r\n" for line in offered[:-1]) + f"250 {offered[-1]}"

    def on_starttls(self, _: str) -> str:
        return "220 go on"

    def on_auth(self, rest: str) -> str:
        _, user, password = base64.b64decode(rest.partition(" ")[2]).decode().split("\0")
        if (user, password) != self.server.user:
            return "535 who are you"
        self.user = user
        return "235 welcome"

    def on_mail(self, rest: str) -> str:
        self.sender = rest.partition("<")[2].partition(">")[0]
        return "250 fine"

    def on_rcpt(self, rest: str) -> str:
        if self.server.codes:
            return f"{self.server.codes.pop(0)} not now"
        self.receivers.append(rest.partition("<")[2].partition(">")[0])
        return "250 fine"

    def on_data(self, _: str) -> str:
        self.say("354 go on")
        body = self.until(b"\r\n.\r\n")[:-3].replace(b"\r\n..", b"\r\n.")
        message = message_from_bytes(body, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.server.taken.append(ReceivedMail(self.sender, self.receivers, message, self.secret, self.user))
        return "250 taken"

    def on_quit(self, _: str) -> str:
        return "221 bye"

    def on_other(self, _: str) -> str:
        return "250 fine"


@contextlib.contextmanager
def run_mail_server(
    codes: list[str] | None = None,
    tls: ssl.SSLContext | None = None,
    user: tuple[str, str] | None = None,
    wrapped: bool = False,
) -> Iterator[MailServer]:
    """Run a mail server that answers the first receivers with `codes`."""
    server = MailServer(("127.0.0.1", 0), MailConnection)
    server.codes, server.tls, server.user, server.wrapped, server.taken = (list(codes or ()), tls, user, wrapped, [])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def create_certificate(folder: Path, name: str = "localhost") -> tuple[ssl.SSLContext, Path]:
    """Create TLS for a server name, and the certificate that proves it."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert
