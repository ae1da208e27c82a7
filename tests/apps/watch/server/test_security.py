"""Who may do what: every route of the server, every role, every form, as somebody would try who may not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("jinja2", reason="the pages need the extra `server`")

from fastapi.routing import iter_route_contexts

from dashboard_server import Client, DashboardServer, serve_app
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.security import AccessControl, issue_token
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.cli.commands import run_command as command
from ragfault.http.request_limits import RequestLimits
from ragfault.http.security import CONTENT_SECURITY_POLICY
from ragfault.model.errors import UsageError

OWN = "rf_the-servers-own"
ROLES = ("nobody", "wrong", "read", "ingest", "admin")

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/static/{name}"),
    ("GET", "/sign-in"),
    ("POST", "/sign-in"),
    ("POST", "/sign-out"),
}
"""What nobody needs a token for."""

MAY = {"read": {"read", "admin"}, "ingest": {"ingest", "admin"}, "admin": {"admin"}}
"""Of each kind of route, the roles whose tokens open it."""


def kind(method: str, path: str) -> str:
    """Return the role of a route: tokens, the audit log and changes are for admins, the rest of /v1 is ingest."""
    if path.startswith(("/v1/ragfault/tokens", "/tokens", "/audit", "/access", "/backup")):
        return "admin"
    return "ingest" if path.startswith("/v1/") else "admin" if method == "POST" else "read"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DashboardServer, str, dict[str, str]]]:
    """A server with traffic where tokens are needed, its address, and a token of each role."""
    app = DashboardServer(tmp_path_factory.mktemp("guarded") / "s", token=OWN)
    app.fill()
    tokens = {role: issue_token(app.store, role, role) for role in ("read", "ingest", "admin")}  # type: ignore[arg-type]
    with app.serving() as url:
        yield app, url, tokens | {"wrong": "rf_wrong"}


def routes(server: DashboardServer) -> list[tuple[str, str]]:
    """List every method and path of the application."""
    pairs = iter_route_contexts(server.app.routes)
    return sorted({(method, str(route.path)) for route in pairs for method in route.methods or ()})


def filled(path: str) -> str:
    return re.sub(r"\{[^}:]*\}", "x", re.sub(r"\{[^}]*:path\}", "v1%2Fstaff-02", path))


@pytest.mark.long
def test_every_route_knows_who_may(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """Of all routes, pages, JSON views, forms and ingest, none opens to a token that is not for it."""
    server, url, tokens = guarded
    assert len(routes(server)) > 40
    client = Client(url)
    form = {"csrf_token": client.stamp()}
    for method, path in routes(server):
        if (method, path) in OPEN:
            continue
        for role in ROLES:
            headers = {"Authorization": f"Bearer {tokens[role]}"} if role in tokens else {}
            answer = client.ask(filled(path), form if method == "POST" else None, method=method, **headers)
            there = (method, path, role, answer.status)
            if role in MAY[kind(method, path)]:
                assert answer.status not in (401, 403), there
                assert answer.status < 500, there
                assert "/sign-in" not in (answer.headers["location"] or ""), there
            elif role in ("nobody", "wrong"):
                signed = answer.status == 303 and answer.headers["location"].startswith("/sign-in?")
                assert answer.status == 401 or signed, there
            else:
                assert answer.status == 403, there


def test_what_is_open_tells_nothing(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """Without a token there is health, the sign-in and the files of its page, and nothing that was stored."""
    server, url, _ = guarded
    assert set(routes(server)) >= OPEN
    for _, path in OPEN:
        text = Client(url).ask(path.replace("{name}", "page.css")).text
        assert "website" not in text
        assert "staff-02" not in text


def test_a_cookie_looks_and_does_not_send(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """The cookie of a browser opens pages; what takes traces wants the token itself, and forms a stamp."""
    _, url, tokens = guarded
    browser = Client(url).sign_in(tokens["admin"])
    assert browser.ask("/overview.json").status == 200
    for path in ("/v1/traces", "/v1/logs", "/v1/ragfault/traces", "/v1/ragfault/marks", "/v1/ragfault/tokens"):
        assert browser.ask(path, {}).status == 401
    assert browser.ask("/v1/ragfault/tokens/read", method="DELETE").status == 401


# --- forms -------------------------------------------------------------------------------------------


def test_every_form_wants_a_stamp_of_its_own_page(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """No form is taken without a stamp, with one of somebody else, with any other text, or from elsewhere."""
    server, url, tokens = guarded
    browser = Client(url).sign_in(tokens["admin"])
    others = Client(url).stamp()
    forms = [path for method, path in routes(server) if method == "POST" and not path.startswith("/v1/")]
    assert len(forms) >= 7
    for path in map(filled, forms):
        for stamp in ("", "0" * 64, "ü" * 64, "\udcff", others, browser.stamp() + "0"):
            body = {"csrf_token": stamp.encode("utf-8", "replace").decode()}
            assert browser.ask(path, body).status == 403, (path, stamp)
        body = {"csrf_token": browser.stamp()}
        for origin in ("http://evil.example", "null", f"{url}.evil.example", url.replace("127.0.0.1", "localhost")):
            connection = Client(url, browser.cookie)
            answer = asked(connection, path, body, {"Origin": origin})
            assert answer == 403, (path, origin)


def asked(client: Client, path: str, fields: dict[str, str], headers: dict[str, str]) -> int:
    """Return the status of a form sent from an origin."""
    import http.client
    from urllib.parse import urlsplit

    place = urlsplit(client.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    given = {"Cookie": client.cookie, "Content-Type": "application/x-www-form-urlencoded", **headers}
    try:
        connection.request("POST", path, urlencode(fields), given)
        return connection.getresponse().status
    finally:
        connection.close()


def test_other_pages_load_nothing(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """What a page of elsewhere loads from here is refused; a link from there is followed."""
    _, url, tokens = guarded
    browser = Client(url).sign_in(tokens["read"])
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "cors", "same-origin"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
            assert browser.ask("/export.zip", **headers).status == 403
        assert browser.ask("/traces", **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status == 200
    same = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors"}
    assert browser.ask("/static/page.css", **same).status == 200


@pytest.mark.parametrize(
    "there",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "",
        "/%0d%0aSet-Cookie:x=1",
        "\r\nX: y",
        "/a\r\nX: y",
        "////evil.example",
        "http:/evil.example",
    ],
)
def test_signing_in_leads_nowhere_else(guarded: tuple[DashboardServer, str, dict[str, str]], there: str):
    """Whatever the address says, who signs in stays on this server, and no header is smuggled in."""
    _, url, tokens = guarded
    answer = Client(url).send("/sign-in", token=tokens["read"], next=there)
    assert answer.status == 303
    assert re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", answer.headers["location"])
    assert answer.headers["X"] is None
    assert len(answer.headers.get_all("set-cookie")) == 1
    page = Client(url).ask(f"/sign-in?next={quote(there)}").text
    assert "evil.example" not in page
    assert "javascript:" not in page


def test_a_cookie_is_for_this_server_alone(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """No script reads it and no other page sends it; a scheme that a stranger names does not count."""
    _, url, tokens = guarded
    client = Client(url)
    for scheme in ("http", "https"):
        form = {"csrf_token": client.stamp(), "token": tokens["read"]}
        headers = {"X-Forwarded-Proto": scheme, "Content-Type": "application/x-www-form-urlencoded"}
        answer = raw(url, "/sign-in", urlencode(form), headers)
        [cookie] = answer.headers.get_all("set-cookie")
        parts = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/"} <= parts
        assert "secure" not in parts
        assert not any(part.startswith("domain") for part in parts)


def raw(url: str, path: str, body: str | None, headers: dict[str, str]) -> Any:
    import http.client
    from urllib.parse import urlsplit

    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        answer.text = answer.read().decode("utf-8", "replace")  # type: ignore[attr-defined]
        return answer
    finally:
        connection.close()


# --- what is shown -----------------------------------------------------------------------------------

SECRETS = {
    "token": OWN,
    "secret": "canary-secret",
    "smtp_password": "canary-smtp",
    "redact_key": "canary-redact",
    "webhook": "https://canary-user:canary-pass@hooks.example/services/canary-path?key=canary-query",
}
SHOWN = {
    "root_path",
    "public_url",
    "request_log",
    "host",
    "judge",
    "profile",
    "metrics",
    "shape",
    "mail_from",
    "smtp",
    "folder",
    "rules",
    "check",
    "store",
}
"""Settings that may be read by whoever looks; of addresses everything but who asks and by which password."""


def test_no_secret_is_shown(tmp_path: Path):
    """Nothing that opens a door stands in settings, pages, metrics or the description, whatever the setting."""
    known = {page.name: page for page in msgspec.structs.fields(ServerSettings)}
    given = {name: value for name, value in SECRETS.items() if name in known}
    if "otlp_headers" in known:
        given |= {"otlp": "http://canary-user:canary-pass@127.0.0.1:9/v1?canary-query"}
        given |= {"otlp_headers": (("authorization", "Bearer canary-otlp"),)}
    app = create_app(ServerSettings(store=tmp_path / "s", workers=0, judge="lexical", **given))
    with serve_app(app) as url:
        for path in ("/settings.json", "/settings", "/overview.json", "/metrics", "/openapi.json", "/", "/runs"):
            text = Client(url).ask(path, Authorization=f"Bearer {OWN}").text
            assert "canary" not in text, path
            assert OWN not in text, path
        shown = json.loads(Client(url).ask("/settings.json", Authorization=f"Bearer {OWN}").text)["settings"]
    for name, value in shown.items():
        if isinstance(value, str) and value != "set":
            assert name in SHOWN or "…" in value, f"is {name} a secret? Say so here, or hide it"


def test_faults_say_no_secrets_and_no_markup(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """What is wrong is told without the token that was given, and whatever was asked for stays a text."""
    _, url, tokens = guarded
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    places = "traces/{} metrics/{} runs/{}/report bisect?baseline={} traces?sort={} traces?after={} static/{} {}"
    for path in (f"/{place}" for place in (*places.split(), "compare?since={}&until=1", "sign-in?next={}")):
        answer = Client(url).ask(path.format(quote(attack, safe="")), Authorization=f"Bearer {tokens['read']}")
        assert answer.status < 500
        assert tokens["read"] not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        if answer.headers["content-type"].startswith("text/html"):
            assert "<script>alert" not in answer.text, path
            assert "<img" not in answer.text, path
            assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


def test_runs_lie_in_their_folder_alone(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """No name of a run leads out of the folder of runs, to look or to write."""
    server, url, tokens = guarded
    browser = Client(url).sign_in(tokens["admin"])
    before = set(server.app.state.server.settings.runs_folder.parent.parent.iterdir())
    for name in ("..", "../up", "/etc", "a/../../up", "..\\up", "%2e%2e", "", "a\x00b", ".hidden", "x" * 200):
        assert browser.send("/runs", action="export", name=name).status == 422, name
        assert browser.send("/runs", action="import", name=name).status in (404, 422), name
        asked_for = quote(name, safe="")
        assert browser.ask(f"/runs/{asked_for}/report").status == 404, name
        assert browser.ask(f"/bisect?baseline={asked_for}&candidate={asked_for}").status == 404, name
        assert browser.ask(f"/static/{asked_for}").status == 404, name
    assert set(server.app.state.server.settings.runs_folder.parent.parent.iterdir()) == before


def test_a_failure_says_nothing_and_keeps_a_browser_in(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """What should not fail and does is a problem with all headers; why stands in the log, not in the answer."""
    app = create_app(ServerSettings(store=tmp_path / "s", workers=0, judge="lexical"))

    @app.get("/broken.json")
    def broken() -> None:
        raise RuntimeError("the reason, which is nobody's business")

    with serve_app(app) as url:
        answer = Client(url).ask("/broken.json")
    assert answer.status == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "business" not in answer.text
    assert "business" in caplog.text


# --- tokens and rates --------------------------------------------------------------------------------


def test_tokens_are_matched_by_their_hash_alone(guarded: tuple[DashboardServer, str, dict[str, str]]):
    """A token counts whole: no part of one, no other case, no text of other letters, and not its hash."""
    server, _, tokens = guarded
    access: AccessControl = server.app.state.access
    admin = tokens["admin"]
    assert access.match_token(admin) is not None
    hashes = [token.hash for token in server.store.read_tokens()]
    for given in ("", admin[:-1], admin + "0", admin.upper(), "ü", "\udcff" * 9, *hashes):
        assert access.match_token(given.encode("utf-8", "replace").decode()) is None, given


def test_a_token_that_others_can_try_is_long(tmp_path: Path):
    """Beyond this machine a token of a few letters is refused; on it, it is its owner's business."""
    with pytest.raises(UsageError, match="16 characters"):
        ServerSettings(store=tmp_path, host="0.0.0.0", token="hunter2")
    assert ServerSettings(store=tmp_path, token="own").token == "own"
    assert ServerSettings(store=tmp_path, host="0.0.0.0", token="0" * 32).host == "0.0.0.0"


def test_rates_hold_on_every_route(tmp_path: Path):
    """A client that looks or sends too often is told when to come again; health is always told."""
    app = create_app(ServerSettings(store=tmp_path / "s", workers=0, judge="lexical", limits=RequestLimits(rate=0.5)))
    with serve_app(app) as url:
        client = Client(url)
        assert client.ask("/traces.json").status == 200
        for path in ("/traces.json", "/openapi.json", "/settings", "/metrics"):
            answer = client.ask(path)
            assert answer.status == 429, path
            assert int(answer.headers["retry-after"]) >= 1
        assert raw(url, "/v1/ragfault/traces", '{"id": "a", "query": "q"}', {}).status == 200
        assert raw(url, "/v1/ragfault/traces", '{"id": "a", "query": "q"}', {}).status == 429
        assert client.ask("/healthz").status == 200


def test_a_rate_is_an_option(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """How often a client may come is said on the command line; less than nothing is refused."""
    assert command(["serve", "--store", str(tmp_path), "--rate", "-1"]) == 2
    assert "--rate" in capsys.readouterr().err
