"""Tokens, sessions, the audit log and proxies, as a team uses them while the server runs."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("jinja2", reason="the pages need the extra `server`")

from dashboard_server import Client, DashboardServer
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.audit_log import AUDIT_FILE
from ragfault.apps.watch.server.request_limits import RateLimiter
from ragfault.apps.watch.server.security import SESSION_COOKIE, issue_token
from ragfault.apps.watch.server.sessions import SessionTable, hash_secret
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import AuditRecord
from ragfault.cli.commands import run_command as command
from ragfault.model.errors import OutputError, UsageError
from waiting import wait_until

OWN = "rf_the-servers-own-token"
PROXY = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7", "X-Forwarded-Proto": "https"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[DashboardServer, str]]:
    """A server that was started with an admin token, and its address."""
    server = DashboardServer(tmp_path / "s", token=OWN)
    with server.serving() as url:
        yield server, url


def call(url: str, method: str, path: str, body: Any = None, token: str = OWN, **headers: str) -> Any:
    """Send a request; return its status and JSON."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    given = {"Authorization": f"Bearer {token}", **headers} if token else headers
    try:
        connection.request(method, path, None if body is None else json.dumps(body), given)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
    finally:
        connection.close()


# --- tokens ------------------------------------------------------------------------------------------


def test_a_new_token_works_at_once_and_ends_when_revoked(guarded: tuple[DashboardServer, str]):
    """Made, listed, used and revoked while the server runs; only its hash is stored."""
    server, url = guarded
    status, issued = call(url, "POST", "/v1/ragfault/tokens", {"name": "ann", "role": "read", "days": 30})
    assert status == 200
    assert call(url, "GET", "/traces.json", token=issued["token"])[0] == 200
    assert call(url, "GET", "/tokens.json", token=issued["token"])[0] == 403
    listed = {row["name"]: row for row in call(url, "GET", "/tokens.json")[1]}
    assert set(listed) == {"--token", "ann"}
    assert listed["ann"]["by"] == "--token"
    assert listed["ann"]["used"] >= listed["ann"]["created"]
    assert listed["ann"]["expires"] == pytest.approx(listed["ann"]["created"] + 30 * 86400)
    [stored] = server.store.read_tokens()
    assert stored.hash == hash_secret(issued["token"])
    assert issued["token"] not in json.dumps(listed)
    assert call(url, "DELETE", "/v1/ragfault/tokens/ann")[0] == 200
    assert call(url, "GET", "/traces.json", token=issued["token"])[0] == 401
    assert call(url, "DELETE", "/v1/ragfault/tokens/ann")[0] == 404


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "", "role": "read"},
        {"name": "x" * 81},
        {"name": "a\nb"},
        {"name": "x", "role": "root"},
        {"role": "read"},
        {"name": "x", "days": 0},
        {"name": "x", "days": -1},
        {"name": "x", "hash": "0"},
        [],
        "x",
        {"name": "x", "days": 1e300},
    ],
)
def test_a_token_that_cannot_be_is_refused(guarded: tuple[DashboardServer, str], asked: Any):
    """Without a name, with an unknown role or field, or a time to live that is none or no date, no token is made."""
    server, url = guarded
    assert call(url, "POST", "/v1/ragfault/tokens", asked)[0] == 422
    assert server.store.read_tokens() == ()


def test_a_name_with_a_slash_is_revoked(guarded: tuple[DashboardServer, str]):
    """Whatever name a token was made under, it ends under that name."""
    _, url = guarded
    assert call(url, "POST", "/v1/ragfault/tokens", {"name": "team/ci?", "role": "read"})[0] == 200
    assert call(url, "DELETE", "/v1/ragfault/tokens/team%2Fci%3F") == (200, {"name": "team/ci?"})


def test_a_form_with_too_many_fields_is_refused(guarded: tuple[DashboardServer, str]):
    """It is an error of the client, whoever sends it."""
    _, url = guarded
    assert call(url, "POST", "/sign-in?" + "x", "&".join(f"a{at}=1" for at in range(200)), token="")[0] == 400


def test_a_name_in_use_is_not_taken_over(guarded: tuple[DashboardServer, str]):
    """A second token of one name would end the first without a word."""
    _, url = guarded
    assert call(url, "POST", "/v1/ragfault/tokens", {"name": "ci", "role": "ingest"})[0] == 200
    status, problem = call(url, "POST", "/v1/ragfault/tokens", {"name": "ci", "role": "ingest"})
    assert (status, "Revoke it first" in problem["detail"]) == (422, True)


def test_an_expired_token_opens_nothing_and_leaves_the_server_closed(tmp_path: Path):
    """On loopback the first token closes the server, and it stays closed after that token has expired."""
    server = DashboardServer(tmp_path / "s")
    token = issue_token(server.store, "short", "admin", days=1e-9)
    with server.serving() as url:
        assert call(url, "GET", "/traces.json", token=token)[0] == 401
        assert call(url, "GET", "/traces.json", token="")[0] == 401


@pytest.mark.long
def test_nobody_locks_everybody_out(tmp_path: Path):
    """The first token is an admin's, and the last admin token cannot be revoked over HTTP."""
    server = DashboardServer(tmp_path / "s")
    with server.serving() as url:
        assert call(url, "POST", "/v1/ragfault/tokens", {"name": "ci", "role": "ingest"}, token="")[0] == 422
        _, issued = call(url, "POST", "/v1/ragfault/tokens", {"name": "ann", "role": "admin"}, token="")
        assert call(url, "GET", "/traces.json", token="")[0] == 401
        assert call(url, "DELETE", "/v1/ragfault/tokens/ann", token=issued["token"])[0] == 422
        assert (
            call(url, "POST", "/v1/ragfault/tokens", {"name": "bob", "role": "admin"}, token=issued["token"])[0] == 200
        )
        assert call(url, "DELETE", "/v1/ragfault/tokens/ann", token=issued["token"])[0] == 200


def test_the_command_line_asks_a_server_that_runs(
    guarded: tuple[DashboardServer, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """`serve token` takes a URL for a store, with an admin token from the environment."""
    _, url = guarded
    monkeypatch.setenv("RAGFAULT_TOKEN", OWN)
    assert command(["serve", "token", "--store", url, "ci", "--role", "ingest", "--expires", "90d"]) == 0
    token = capsys.readouterr().out.strip()
    assert call(url, "POST", "/v1/ragfault/traces", {"id": "1", "query": "q"}, token=token)[0] == 200
    assert command(["serve", "token", "--store", url, "ci", "--drop"]) == 0
    assert call(url, "POST", "/v1/ragfault/traces", {"id": "2", "query": "q"}, token=token)[0] == 401
    assert command(["serve", "token", "--store", url, "ci", "--drop"]) == 2
    assert token not in capsys.readouterr().err


def test_the_dashboard_makes_and_revokes_tokens(guarded: tuple[DashboardServer, str]):
    """The page shows a new token once, lists it without it, and revokes it."""
    _, url = guarded
    browser = Client(url).sign_in(OWN)
    page = browser.send("/tokens", action="issue", name="<b>ann</b>", role="read", days="7")
    token = re.search(r'id="issued-token"[^>]*>([^<]+)<', page.text)[1]  # type: ignore[index]
    assert Client(url).ask("/traces.json", Authorization=f"Bearer {token}").status == 200
    again = browser.ask("/access").text
    assert token not in again
    assert "&lt;b&gt;ann" in again
    assert browser.send("/tokens", action="revoke", name="<b>ann</b>").status == 303
    assert Client(url).ask("/traces.json", Authorization=f"Bearer {token}").status == 401
    assert Client(url).sign_in(OWN).ask("/access").text.count("token_revoked") == 1


# --- sessions ----------------------------------------------------------------------------------------


def test_the_cookie_is_no_token_and_a_copy_of_it_ends_with_the_session(guarded: tuple[DashboardServer, str]):
    """A cookie that somebody copied opens nothing after its owner has signed out."""
    server, url = guarded
    browser = Client(url).sign_in(OWN)
    assert OWN not in browser.cookie
    id = browser.cookie.removeprefix(f"{SESSION_COOKIE}=")
    assert [session.hash for session in server.store.read_sessions()] == [hash_secret(id)]
    copy = Client(url, browser.cookie)
    assert copy.ask("/overview.json").status == 200
    assert copy.ask("/overview.json", Authorization=f"Bearer {id}").status == 401
    assert Client(url, f"{SESSION_COOKIE}={OWN}").ask("/overview.json").status == 401
    assert browser.send("/sign-out").status == 303
    assert copy.ask("/overview.json").status == 401
    assert server.store.read_sessions() == ()


def test_a_session_ends_with_its_token(guarded: tuple[DashboardServer, str]):
    """Who signed in with a token that is revoked is signed out, whatever the new token of that name."""
    server, url = guarded
    token = call(url, "POST", "/v1/ragfault/tokens", {"name": "ann", "role": "read"})[1]["token"]
    browser = Client(url).sign_in(token)
    assert browser.ask("/overview.json").status == 200
    call(url, "DELETE", "/v1/ragfault/tokens/ann")
    call(url, "POST", "/v1/ragfault/tokens", {"name": "ann", "role": "read"})
    assert browser.ask("/overview.json").status == 401
    assert server.store.read_sessions() == ()


def test_a_session_expires_and_outlives_a_restart(tmp_path: Path):
    """A session lasts as long as was said, also where the server was restarted meanwhile."""
    server = DashboardServer(tmp_path / "s", token=OWN)
    now = 1000.0
    table = SessionTable(server.store, 1, lambda: now)
    id = table.begin(server.app.state.access.tokens()[0], "127.0.0.1")
    now += 3599
    assert SessionTable(server.store, 1, lambda: now).get_session(id) is not None
    now += 2
    assert SessionTable(server.store, 1, lambda: now).get_session(id) is None
    table.begin(server.app.state.access.tokens()[0], "127.0.0.1")
    assert len(server.store.read_sessions()) == 1
    server.store.close()


def test_wrong_tokens_are_counted_for_each_address(tmp_path: Path):
    """Of an address that guesses even the right token is refused for a while; others sign in meanwhile."""
    server = DashboardServer(tmp_path / "s", token=OWN, trusted_proxies=("127.0.0.1",))
    with server.serving() as url:
        stamp = Client(url).stamp()

        def sign_in(token: str, address: str) -> int:
            form = {"csrf_token": stamp, "token": token}
            return int(Client(url).ask("/sign-in", form, **{"X-Forwarded-For": address}).status)

        assert {sign_in(OWN, "203.0.113.9") for _ in range(15)} == {303}
        assert [sign_in(f"wrong-{at}", "203.0.113.9") for at in range(12)] == [403] * 10 + [429] * 2
        assert sign_in(OWN, "203.0.113.9") == 429
        assert sign_in(OWN, "198.51.100.7") == 303
        assert 2 <= sum(row.action == "sign_in_refused" for row in server.store.read_audit()) <= 10


def test_wrong_bearer_tokens_are_counted_as_those_of_sign_in(tmp_path: Path):
    """An address that guesses bearer tokens is refused, with the right one too; one that repeats a token is not."""
    server = DashboardServer(tmp_path / "s", token=OWN, trusted_proxies=("127.0.0.1",))
    with server.serving() as url:

        def read(token: str, address: str) -> int:
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": address}
            return int(Client(url).ask("/incidents.json", **headers).status)

        assert {read("revoked", "203.0.113.9") for _ in range(15)} == {401}
        assert read(OWN, "203.0.113.9") == 200
        assert [read(f"wrong-{at}", "203.0.113.9") for at in range(11)] == [401] * 9 + [429] * 2
        assert (read(OWN, "203.0.113.9"), read("revoked", "203.0.113.9")) == (200, 401)
        assert [read(f"wrong-{at}", "198.51.100.7") for at in range(10)] == [401] * 10
        assert read(OWN, "198.51.100.7") == 429
        assert read(OWN, "192.0.2.1") == 200


def test_wrong_bearer_tokens_are_in_the_audit_log(tmp_path: Path):
    """Two are there at once and then one a second, a repeated one once, and none as text."""
    server = DashboardServer(tmp_path / "s", token=OWN)
    with server.serving() as url:
        start = time.monotonic()
        for token in ["revoked"] * 9 + [f"wrong-{at}" for at in range(9)] + ["revoked"]:
            Client(url).ask("/incidents.json", Authorization=f"Bearer {token}")
        seconds = time.monotonic() - start
        text = (server.app.state.server.settings.data_folder / AUDIT_FILE).read_text("utf-8")
        count = text.count("token_refused")
        assert 2 <= count <= min(10, 2 + seconds)

        def stored_refusals() -> list[AuditRecord]:
            return [row for row in server.store.read_audit() if row.action == "token_refused"]

        # The line of the file is written before the answer, the row of the store soon after it.
        wait_until(lambda: len(stored_refusals()) == count)
        places = {(row.who, row.target, row.address) for row in stored_refusals()}
        assert places == {("unknown", "/incidents.json", "127.0.0.1")}
        assert not any(word in text for word in ("revoked", "wrong-"))


def test_a_refund_gives_back_one_request():
    """What succeeded does not count, and nobody gains by it."""
    limiter = RateLimiter(0.001, 2)
    assert [limiter.take("a"), limiter.take("a")] == [0, 0]
    assert limiter.take("a") > 0
    limiter.refund("a")
    assert limiter.take("a") == 0
    for _ in range(9):
        limiter.refund("a")
    assert [bool(limiter.take("a")) for _ in range(3)] == [False, False, True]


# --- audit and request logs --------------------------------------------------------------------------


@pytest.mark.long
def test_who_did_what_is_in_store_file_and_page(guarded: tuple[DashboardServer, str]):
    """Every change, sign-in and download is there by name, address and time, and no token anywhere."""
    server, url = guarded
    server.fill()
    token = call(url, "POST", "/v1/ragfault/tokens", {"name": "ann", "role": "admin"})[1]["token"]
    browser = Client(url).sign_in(token)
    trace = "v1/staff-02"
    browser.send("/labels", trace=trace, part="chunk", index="0", opinion="agree")
    browser.send("/comments", trace=trace, text="the <b>wrong</b> chunk")
    browser.send("/views", name="mine", query="route=website")
    browser.send("/alerts", action="silence", rule="R", minutes="5")
    browser.send("/runs", action="export", name="kept")
    browser.ask("/export.zip?route=website")
    assert browser.send("/runs", action="export", name="..").status == 422
    browser.send("/sign-out")
    _, rows = call(url, "GET", "/audit.json")
    done = [row["action"] for row in reversed(rows)]
    assert done == [
        "token_issued",
        "sign_in",
        "label",
        "comment",
        "view_saved",
        "alert_silence",
        "run_export",
        "traces_downloaded",
        "sign_out",
    ]
    assert {row["who"] for row in rows} == {"--token", "ann"}
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    file = server.app.state.server.settings.data_folder / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["action"] for line in lines] == done
    earlier = call(url, "GET", f"/audit.json?until={rows[3]['time']}")[1]
    assert earlier == rows[4:]
    page = Client(url).sign_in(OWN).ask("/access").text
    assert "the &lt;b&gt;wrong" in page
    for text in (page, json.dumps(rows), json.dumps(lines)):
        assert token not in text
        assert OWN not in text


def test_requests_are_logged_without_secrets(tmp_path: Path):
    """A line of JSON for each request: who, what, how it ended; no query, no token, and no line for a line break."""
    server = DashboardServer(tmp_path / "s", token=OWN, request_log=str(tmp_path / "logs" / "requests.jsonl"))
    with server.serving() as url:
        call(url, "GET", "/traces.json?text=private")
        call(url, "GET", "/nowhere%0a{}", token="rf_wrong", **{"User-Agent": "x" * 999})
        Client(url).ask("/healthz", method="HEAD")
    text = (tmp_path / "logs" / "requests.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["who"], line["method"], line["path"], line["status"]) for line in lines] == [
        ("--token", "GET", "/traces.json", 200),
        (None, "GET", "/nowhere\n{}", 404),
        (None, "HEAD", "/healthz", 200),
    ]
    assert all(line["milliseconds"] >= 0 and line["address"] == "127.0.0.1" for line in lines)
    assert lines[0]["bytes"] > 0 == lines[2]["bytes"]
    assert len(lines[1]["agent"]) == 300
    assert not re.search(f"private|{OWN}|rf_wrong", text)


# --- proxies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trusted", "address", "secure"),
    [
        ((), "127.0.0.1", False),
        (("10.0.0.0/8",), "127.0.0.1", False),
        (("127.0.0.1",), "198.51.100.7", True),
        (("127.0.0.0/8", "198.51.100.7"), "203.0.113.9", True),
    ],
)
def test_only_named_proxies_are_believed(tmp_path: Path, trusted: tuple[str, ...], address: str, secure: bool):
    """Address and scheme come from the last proxy that was named; what a stranger writes before it does not count."""
    server = DashboardServer(tmp_path / "s", token=OWN, trusted_proxies=trusted)
    with server.serving() as url:
        answer = Client(url).ask("/sign-in", {"csrf_token": Client(url).stamp(), "token": OWN}, **PROXY)
        assert ("secure" in answer.headers["set-cookie"].lower()) == secure
        [row] = server.store.read_audit()
        assert row.address == address


@pytest.mark.parametrize("chain", ["evil, 198.51.100.7:4711", "[2001:db8::1]:1, 198.51.100.7", "198.51.100.7"])
def test_a_chain_is_read_from_its_end(tmp_path: Path, chain: str):
    """Ports are left out, and nothing before the first stranger is read."""
    server = DashboardServer(tmp_path / "s", token=OWN, trusted_proxies=("127.0.0.1",))
    with server.serving() as url:
        form = {"csrf_token": Client(url).stamp(), "token": OWN}
        Client(url).ask("/sign-in", form, **{"X-Forwarded-For": chain})
        assert server.store.read_audit()[0].address == "198.51.100.7"


def test_behind_a_proxy_a_token_is_needed(tmp_path: Path):
    """A server behind a proxy is open to whoever reaches the proxy: without a token it does not start."""
    with pytest.raises(UsageError, match="a token is needed"):
        ServerSettings(store=tmp_path, trusted_proxies=("127.0.0.1",))
    for wrong in ("proxy", "10.0.0.0/99", ""):
        with pytest.raises(UsageError, match="not the address of a proxy"):
            ServerSettings(store=tmp_path, token=OWN, trusted_proxies=(wrong,))
    for wrong in ("ragfault", "/", "/a/", "/a b", '/"', "//x"):
        with pytest.raises(UsageError, match="not a root path"):
            ServerSettings(store=tmp_path, root_path=wrong)
    for wrong in ("https://ann:word@rag.test", "https://", "rag.test"):
        with pytest.raises(UsageError, match="not a root path"):
            ServerSettings(store=tmp_path, public_url=wrong)


@pytest.mark.long
def test_below_a_root_path_everything_leads_back_there(tmp_path: Path):
    """Links, redirects, cookies and forms carry the root path, whether the proxy strips it or not."""
    server = DashboardServer(tmp_path / "s", token=OWN, root_path="/tools/rag")
    server.fill()
    with server.serving() as url:
        client = Client(url)
        answer = client.ask("/tools/rag/traces?route=website")
        assert answer.headers["location"] == "/tools/rag/sign-in?next=%2Ftraces%3Froute%3Dwebsite"
        answer = client.send("/sign-in", token=OWN, next="/traces?route=website")
        assert answer.headers["location"] == "/tools/rag/traces?route=website"
        assert "path=/tools/rag;" in answer.headers["set-cookie"].lower() + ";"
        client.cookie = answer.headers["set-cookie"].partition(";")[0]
        for path in ("/", "/traces", "/traces/v1%2Fstaff-02", "/access", "/metrics/groundedness", "/alerts"):
            page = client.ask(f"/tools/rag{path}").text
            links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
            assert len(links) > 10
            assert all(link.startswith("/tools/rag/") for link in links), path
            assert page == client.ask(path).text or path == "/access"
        described = json.loads(client.ask("/tools/rag/openapi.json").text)
        assert described["servers"] == [{"url": "/tools/rag"}]
        assert call(url, "POST", "/tools/rag/v1/ragfault/traces", {"id": "n", "query": "q"})[0] == 200
        assert client.ask("/tools/ragged").status == 404


def test_head_answers_as_get_does_without_a_body(guarded: tuple[DashboardServer, str]):
    """A monitor that asks for the head of a page gets its status and headers."""
    _, url = guarded
    browser = Client(url).sign_in(OWN)
    for path in ("/", "/traces", "/sign-in", "/healthz", "/readyz", "/static/page.css", "/overview.json", "/nowhere"):
        full, head = browser.ask(path), browser.ask(path, method="HEAD")
        assert (head.status, head.headers["content-type"]) == (full.status, full.headers["content-type"]), path
        assert head.text == ""
        assert int(head.headers["content-length"]) > 0


def test_the_settings_of_access_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What cannot be read is refused before a store is made."""
    for option, value in (("--root-path", "x"), ("--trusted-proxy", "x"), ("--session", "x")):
        assert command(["serve", "--store", str(tmp_path / "s"), "--token", OWN, option, value]) == 2
        assert capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path):
    """Where the log of requests cannot lie, the server says so at its start."""
    (tmp_path / "file").write_text("")
    settings = ServerSettings(
        store=tmp_path / "s", workers=0, judge="lexical", request_log=str(tmp_path / "file" / "x")
    )
    with pytest.raises(OutputError, match="file"):
        create_app(settings)
