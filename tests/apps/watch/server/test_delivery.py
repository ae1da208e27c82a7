"""Alerts on their way out: by mail over real lines, in the receivers' shapes, signed, retried, to all at once."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from mail_server import MailServer, create_certificate, run_mail_server
from ragfault.apps.watch.monitoring.incidents import Incident
from ragfault.apps.watch.server.alerts import delivery
from ragfault.apps.watch.server.alerts.delivery import (
    WEBHOOK_FORMATS,
    IncidentNotice,
    MailReceiver,
    NoticeSender,
    build_message,
    sign_body,
)
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.http_client import post
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.cli.commands import run_command as command
from ragfault.model.errors import UsageError
from waiting import wait_until

NOTICE = IncidentNotice(
    kind="opened",
    time=120.0,
    incident=Incident(
        id="i-1",
        title="Retrieval broke (the wrong chunks are retrieved)",
        sentence="Retrieval broke: context_relevance fell by 0.4.",
        severity="critical",
        layer="retrieval",
        branch="1 retrieval",
        routes=("web",),
        opened=60.0,
        onset=30.0,
        earliest=0.0,
        latest=60.0,
        suspects=("the index",),
        remedies=("Look at the index.",),
        traces=("t1", "t2"),
    ),
)


def changed(**fields: Any) -> IncidentNotice:
    """Return the notice with other fields of its incident."""
    return replace(NOTICE, incident=replace(NOTICE.incident, **fields))


OVER = replace(changed(state="resolved", resolved=600.0), kind="resolved", time=600.0)
ANN, BOB = "ann@example.org", "bob@example.org"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


def settings(folder: Path, server: MailServer, *to: str, **more) -> ServerSettings:
    given = {"smtp": f"smtp://127.0.0.1:{server.port}", "mail_from": "ragfault@example.org", **more}
    return ServerSettings(store=folder / "s", mail_to=to, **given)


def sent(asked: ServerSettings, *notices: IncidentNotice, count: int = 1, tries=(0.0, 0.01, 0.01)) -> list[str | None]:
    """Send notifications; return the failure of each, once per receiver."""
    failures: list[str | None] = []
    store = open_store(asked.store)
    sender = NoticeSender(asked, EventCounters(store, time.time), lambda _, fault: failures.append(fault), tries)
    sender.start()
    for notice in notices:
        sender.send(notice)
    wait_until(lambda: len(failures) == count * len(notices))
    sender.close()
    store.close()
    return failures


# --- mail --------------------------------------------------------------------------------------------


def test_an_incident_comes_by_mail(tmp_path: Path):
    """Each receiver gets a message of plain text that says what broke, where, since when, and what to try."""
    with run_mail_server() as server:
        assert sent(settings(tmp_path, server, ANN, BOB), NOTICE, count=2) == [None, None]
    assert sorted(taken.receivers for taken in server.taken) == [[ANN], [BOB]]
    message = server.taken[0].message
    assert server.taken[0].sender == message["From"] == "ragfault@example.org"
    assert message["Subject"].startswith("[ragfault] opened: Retrieval broke (the wrong chunks are retrieved) on web")
    assert message.get_content_type() == "text/plain"
    text = message.get_content()
    for part in ("layer: retrieval", "opened: 1970-01-01 00:01 UTC", "- Look at the index.", "- t1", "fell by 0.4"):
        assert part in text
    assert message["Auto-Submitted"] == "auto-generated"


def test_what_is_sent_of_one_incident_is_one_conversation(tmp_path: Path):
    """Opened and resolved refer to the same, and are two messages; another incident refers to something else."""
    with run_mail_server() as server:
        assert sent(settings(tmp_path, server, ANN), NOTICE, OVER, changed(id="i-2")) == [None] * 3
    first, second, third = (taken.message for taken in server.taken)
    assert first["References"] == second["References"] != third["References"]
    assert len({notice["Message-ID"] for notice in (first, second, third)}) == 3
    assert "resolved: 1970-01-01 00:10 UTC" in second.get_content()


@pytest.mark.parametrize(
    "evil", ["\r\nBcc: evil@example.com", "\n.\r\nMAIL FROM:<x>", "\u2028X: y", "\x00\x1b[2J", "\ud800"]
)
def test_no_text_of_an_incident_becomes_a_line_of_its_own(tmp_path: Path, evil: str):
    """Ends of lines, dots and odd signs in routes, titles and traces neither add heads nor end the message."""
    bad = f"web{evil}"
    notice = changed(sentence=bad, routes=(bad,), title=bad, traces=(bad,), remedies=(f".{evil}",))
    with run_mail_server() as server:
        assert sent(settings(tmp_path, server, ANN), notice) == [None]
    [taken] = server.taken
    assert set(taken.message.keys()) == set(build_message(NOTICE, ANN, BOB).keys())
    assert taken.receivers == [ANN]
    assert "Traces that show it" in taken.message.get_content()
    assert len(taken.message["Subject"]) <= 180


@pytest.mark.parametrize(
    ("codes", "failure", "tries"), [(["451", "451"], None, 3), (["451"] * 3, "451", 3), (["550"], "550", 1)]
)
def test_mail_that_is_put_off_is_tried_again(tmp_path: Path, codes, failure, tries):
    """A server that says later is asked again, one that says no is not; what never came through is told."""
    with run_mail_server(codes) as server:
        [fault] = sent(settings(tmp_path, server, ANN), NOTICE)
    assert (fault is None) if failure is None else (failure in fault)
    assert server.tries == tries
    assert len(server.taken) == (failure is None)


def test_an_unreachable_mail_server_is_reported(tmp_path: Path):
    """Where nobody listens, that is what is said."""
    with run_mail_server() as server:
        pass
    [fault] = sent(settings(tmp_path, server, ANN), NOTICE)
    assert "cannot be reached" in fault


@needs_openssl
@pytest.mark.parametrize("wrapped", [False, True])
def test_mail_goes_over_tls_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: bool):
    """STARTTLS, or TLS from the start: the password is told and the message sent only within."""
    context, cert = create_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    with run_mail_server(tls=context, user=("ann", "s3cret"), wrapped=wrapped) as server:
        scheme = "smtps" if wrapped else "smtp"
        asked = settings(tmp_path, server, ANN, smtp=f"{scheme}://ann@localhost:{server.port}", smtp_password="s3cret")
        assert sent(asked, NOTICE) == [None]
        assert (server.taken[0].secret, server.taken[0].user) == (True, "ann")
        wrong = settings(tmp_path, server, ANN, smtp=asked.smtp, smtp_password="wrong")
        [fault] = sent(wrong, NOTICE)
        assert "535" in fault
        assert "wrong" not in fault


@needs_openssl
def test_a_mail_server_that_nobody_vouches_for_gets_nothing(tmp_path: Path):
    """A certificate of unknown making ends the attempt, before any password."""
    context, _ = create_certificate(tmp_path)
    with run_mail_server(tls=context, user=("ann", "s3cret")) as server:
        asked = settings(tmp_path, server, ANN, smtp=f"smtp://ann@localhost:{server.port}", smtp_password="s3cret")
        [fault] = sent(asked, NOTICE)
    assert "certificate" in fault.lower()
    assert (server.taken, server.tries) == ([], 1)


def test_beyond_this_machine_mail_is_never_sent_in_the_open(monkeypatch: pytest.MonkeyPatch):
    """A server elsewhere that offers no STARTTLS gets nothing."""
    monkeypatch.setattr("ragfault.apps.watch.server.alerts.delivery.is_loopback", lambda _: False)
    with run_mail_server() as server:
        attempt = MailReceiver.from_options(f"smtp://127.0.0.1:{server.port}", None, BOB, ANN)(NOTICE)
    assert "STARTTLS" in attempt.error
    assert not attempt.retryable
    assert server.taken == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"smtp": None}, "smtp="),
        ({"mail_from": None}, "mail_from="),
        ({"smtp": "http://x"}, "smtp://"),
        ({"smtp": "smtp://"}, "smtp://"),
        ({"smtp": "smtp://x:99999"}, "smtp://"),
        ({"smtp": "smtp://ann:secret@x"}, "RAGFAULT_SMTP_PASSWORD"),
        ({"smtp": "smtp://ann@x"}, "RAGFAULT_SMTP_PASSWORD"),
        ({"mail_from": "ann"}, "not a mail address"),
        ({"mail_to": ("a@x.org\r\nBcc: b@x.org",)}, "not a mail address"),
        ({"mail_to": ("Ann <a@x.org>",)}, "not a mail address"),
    ],
)
def test_invalid_mail_settings_are_rejected_at_the_start(tmp_path: Path, given, message):
    """No server, no sender, no address, or a password where others see it: told before anything is sent."""
    asked = {"smtp": "smtp://127.0.0.1", "mail_from": ANN, "mail_to": (BOB,)}
    with pytest.raises(UsageError, match=message):
        NoticeSender(ServerSettings(store=tmp_path, **{**asked, **given}), None, print)


# --- several at once ---------------------------------------------------------------------------------


class Hook(BaseHTTPRequestHandler):
    """A webhook that answers what it is told to."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((time.monotonic(), dict(self.headers), body))
        code, more = self.server.codes.pop(0) if self.server.codes else (200, {})
        self.send_response(code)
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def hooking(*codes: tuple[int, dict[str, str]]) -> Iterator[HTTPServer]:
    hook = HTTPServer(("127.0.0.1", 0), Hook)
    hook.seen, hook.codes = [], list(codes)
    thread = threading.Thread(target=hook.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hook
    finally:
        hook.shutdown()
        thread.join()
        hook.server_close()


def test_a_receiver_that_is_down_keeps_no_other_waiting(tmp_path: Path):
    """While the webhook is tried again for hours, the mail is there; closing ends the waiting."""
    with run_mail_server() as server, hooking(*[(503, {})] * 9) as hook:
        asked = settings(tmp_path, server, ANN, webhook=f"http://127.0.0.1:{hook.server_port}/x")
        store, failures = open_store(asked.store), []
        sender = NoticeSender(
            asked, EventCounters(store, time.time), lambda _, fault: failures.append(fault), (0.0, 9999.0)
        )
        sender.start()
        sender.send(NOTICE)
        wait_until(lambda: failures and hook.seen)
        assert (failures, len(server.taken)) == ([None], 1)
        sender.close()
        store.close()
        assert failures == [None, "the webhook answered 503"]


def test_a_receiver_that_fails_is_known_and_is_well_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What it refused is kept and sent again, and with that it is found out that it is back; its name tells no path."""
    monkeypatch.setattr(delivery, "REDELIVERY_SECONDS", 0.05)
    with hooking((503, {}), (503, {}), (503, {})) as hook:
        asked = ServerSettings(store=tmp_path / "s", webhook=f"http://127.0.0.1:{hook.server_port}/secret")
        store, failures = open_store(asked.store), []
        sender = NoticeSender(
            asked, EventCounters(store, time.time), lambda _, fault: failures.append(fault), (0.0, 0.01)
        )
        sender.start()
        sender.send(NOTICE)
        wait_until(lambda: failures)
        [fault] = sender.faults
        assert (fault.receiver, fault.unsent) == ("the webhook at 127.0.0.1", 1)
        assert "503" in fault.error
        wait_until(lambda: len(failures) == 2)
        assert failures[1] is None
        assert sender.faults == ()
        sender.close()
        store.close()
    assert len({body for _, _, body in hook.seen}) == 1


def test_retry_after_is_waited_for(tmp_path: Path):
    """A receiver that says when to come again is left alone until then."""
    with hooking((429, {"Retry-After": "1"})) as hook:
        asked = ServerSettings(store=tmp_path / "s", webhook=f"http://127.0.0.1:{hook.server_port}/x")
        assert sent(asked, NOTICE) == [None]
        first, second = (seen[0] for seen in hook.seen)
        assert second - first >= 1


def test_a_webhook_that_points_elsewhere_is_not_followed():
    """A redirect is an answer like another that is no yes."""
    with hooking((302, {"Location": "http://127.0.0.1:1/"})) as hook:
        attempt = post(f"http://127.0.0.1:{hook.server_port}/x", b"{}", {}, "it")
    assert (attempt.error, attempt.retryable) == ("it answered 302", False)


# --- shapes ------------------------------------------------------------------------------------------


def test_alertmanager_gets_what_its_api_takes():
    """By /api/v2/alerts: a list of labels and annotations, all texts, and times by RFC 3339, end behind begin."""
    [alert] = json.loads(json.dumps(WEBHOOK_FORMATS["alertmanager"](NOTICE)))
    assert set(alert) == {"labels", "annotations", "startsAt", "endsAt"}
    for name, value in (*alert["labels"].items(), *alert["annotations"].items()):
        assert name.isidentifier()
        assert isinstance(value, str)
    begin, end = (datetime.fromisoformat(alert[name]) for name in ("startsAt", "endsAt"))
    assert begin.timestamp() == 60.0
    assert (end - begin).days >= 7
    assert begin.tzinfo is not None


def test_alertmanager_knows_the_end_by_its_labels():
    """Whatever was found to be to blame in between, what resolves has the labels of what opened."""
    over = replace(OVER, incident=replace(OVER.incident, layer="generation", routes=("web", "app")))
    [fired], [ended] = WEBHOOK_FORMATS["alertmanager"](NOTICE), WEBHOOK_FORMATS["alertmanager"](over)
    assert fired["labels"] == ended["labels"]
    assert fired["startsAt"] == ended["startsAt"]
    assert ended["endsAt"] == "1970-01-01T00:10:00+00:00"


def test_slack_gets_text_and_blocks_within_its_bounds():
    """Signs that mean something to Slack are escaped, and no block is longer than Slack takes."""
    long = changed(routes=("<!channel> & co",), sentence="x" * 9000, remedies=("<@U1>",), traces=("<t>",))
    payload = WEBHOOK_FORMATS["slack"](long)
    assert set(payload) == {"text", "blocks"}
    assert "&lt;!channel&gt; &amp; co" in payload["text"]
    for block in payload["blocks"]:
        assert (block["type"], block["text"]["type"]) == ("section", "mrkdwn")
        assert 0 < len(block["text"]["text"]) <= 3000
        assert "<" not in block["text"]["text"]


def test_a_notice_links_to_its_incident_where_the_address_is_known(tmp_path: Path):
    """By that of its proxy, else of its socket; behind a proxy that is not named, or on all addresses, nowhere."""
    given = {
        "http://127.0.0.1:4318/incidents#i-1": {},
        "http://[::1]:80/incidents#i-1": {"host": "::1", "port": 80},
        "https://rag.test/a/incidents#i-1": {"public_url": "https://rag.test/a", "root_path": "/a"},
    }
    for link, options in given.items():
        assert ServerSettings(store=tmp_path, **options).link_incident("i-1") == link
    for options in ({"host": "0.0.0.0"}, {"trusted_proxies": ("10.0.0.7",)}, {"root_path": "/a"}, {"port": 0}):
        assert ServerSettings(store=tmp_path, token="t" * 16, **options).link_incident("i-1") is None
    linked = replace(NOTICE, link="https://rag.test/incidents#i-1")
    for shape in WEBHOOK_FORMATS.values():
        assert linked.link in json.dumps(to_builtins(shape(linked)))
        assert "/incidents" not in json.dumps(to_builtins(shape(NOTICE)))
    assert linked.link in build_message(linked, ANN, BOB).get_content()


def test_a_signature_holds_for_one_body_at_one_moment():
    """Another secret, moment or body has another signature."""
    signature = sign_body("s", 1, b"{}")
    assert signature == sign_body("s", 1, b"{}")
    assert len({signature, sign_body("t", 1, b"{}"), sign_body("s", 2, b"{}"), sign_body("s", 1, b"{ }")}) == 4


def test_serve_takes_the_options_of_mail(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    """An address without a server ends with 2, and says what is missing."""
    monkeypatch.delenv("RAGFAULT_SMTP_PASSWORD", raising=False)
    assert command(["serve", "--store", str(tmp_path / "s"), "--mail-to", ANN]) == 2
    assert "--smtp" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
