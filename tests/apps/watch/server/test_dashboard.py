"""The dashboard: every page stands, every link leads on, nobody writes unasked, and hostile texts stay texts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from dashboard_server import BEGAN, Client, DashboardServer
from ragfault.apps.watch.server.api.detail_views import load_clusters
from ragfault.apps.watch.server.dashboard.page_renderer import local_path, trace_url
from ragfault.apps.watch.server.security import issue_token
from ragfault.http.security import CONTENT_SECURITY_POLICY
from ragfault.labels.label import fingerprint_answer
from ragfault.model.errors import UnknownName
from ragfault.model.records import Chunk, Step, Trace
from sample_reports import HOSTILE

PAGES = (
    "/",
    "/metrics/groundedness",
    "/metrics/latency?window=360&route=website",
    "/insights",
    "/insights?window=360&route=website",
    "/versions",
    "/versions?field=model&window=10080",
    "/drift",
    "/compare",
    "/traces",
    "/traces?sort=groundedness&order=ascending&limit=20",
    "/incidents",
    "/conversations",
    "/access",
    "/alerts",
    "/clusters",
    "/guard",
    "/guard?window=360&route=website",
    "/adaptation",
    "/testset",
    "/runs",
    "/judge",
    "/settings",
    "/help",
    "/sign-in",
)


ALONE = ("/help", "/sign-in", "/compare", "/drift", "/access")
"""Pages without a JSON view, or that have none before something is chosen."""

SCRIPTS = {
    '<script src="/static/theme.js">',
    '<script src="/static/dashboard.js">',
    '<script src="/static/auto-refresh.js" defer>',
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DashboardServer, str]]:
    """A server with two hours of traffic, of which the second is worse, and with alerts that fire."""
    server = DashboardServer(tmp_path_factory.mktemp("watched") / "s")
    server.fill()
    server.watch()
    with server.serving() as url:
        yield server, url


@pytest.fixture
def client(watched: tuple[DashboardServer, str]) -> Client:
    return Client(watched[1])


def links(text: str) -> list[str]:
    """List the addresses that a page links to or loads."""
    return [html.unescape(address) for address in re.findall(r'(?:href|src|action)="([^"]*)"', text)]


# --- pages -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_link_of_every_page_leads_on(client: Client):
    """From the first page on every link answers 200, under the strict policy, nothing inline and nothing abroad."""
    waiting, met = list(PAGES), set[str]()
    while waiting and len(met) < 130:
        path = waiting.pop(0)
        if path in met:
            continue
        met.add(path)
        answer = client.ask(path)
        assert answer.status == 200, path
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        for link in links(answer.text):
            assert link.startswith(("/", "#")), (path, link)
            there = link.partition("#")[0]
            if there and f'action="{html.escape(there)}"' not in answer.text:
                waiting.append(there)
        shape = re.sub(r'"[^"]*"', '""', answer.text)
        assert not re.search(r"<[^>]*\s(style|on\w+)=", shape), path
        assert set(re.findall(r"<(?:script|style)\b[^>]*>", answer.text)) <= SCRIPTS, path
    assert len(met) > 100


def test_every_fragment_is_there(client: Client):
    """A link within a page leads to something that stands on it."""
    for path in (*PAGES, trace_url("v2/harbour-01"), trace_url(HOSTILE)):
        text = client.ask(path).text
        ids = re.findall(r'\sid="([^"]*)"', text)
        assert len(ids) == len(set(ids)), path
        for link in links(text):
            if link.startswith("#") and len(link) > 1:
                assert link[1:] in ids, (path, link)


@pytest.mark.parametrize("path", [page for page in PAGES if page not in ALONE])
def test_every_page_has_a_json_view(client: Client, path: str):
    """Each page links to its JSON view."""
    [json_page] = [link for link in links(client.ask(path).text) if re.search(r"\.json(\?|$)", link)]
    assert isinstance(json.loads(client.ask(json_page).text), dict | list)


def test_an_empty_server_says_what_to_do(tmp_path: Path):
    """Where nothing has come in, each page stands, and the first says how to send traces."""
    with DashboardServer(tmp_path / "s").serving() as url:
        client = Client(url)
        for path in PAGES:
            answer = client.ask(path)
            assert answer.status == (404 if path.startswith("/metrics") else 200), path
        assert f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={url}/v1/traces" in client.ask("/").text
        assert "Show all" in client.ask("/traces").text
        assert "look for clusters" in client.ask("/clusters").text.lower()


@pytest.mark.parametrize(
    ("path", "status", "words_"),
    [
        ("/traces/nobody", 404, "no trace"),
        ("/metrics/groundednes", 404, "Did you mean &#34;groundedness&#34;?"),
        ("/traces?limit=0", 422, "1 to 1,000"),
        ("/traces?since=noon", 422, "2031-05-04T09:30"),
        ("/traces?after=!", 422, "key of no page"),
        ("/metrics/groundedness?window=-1", 422, "minutes"),
        ("/compare?since=5&until=1&since2=5&until2=9", 422, "ends before it begins"),
        ("/bisect?baseline=a&candidate=b", 404, "no run"),
        ("/runs/..%2F..%2Fx/report", 404, ""),
        ("/static/..%2Fhelp.html", 404, ""),
    ],
)
def test_errors_are_pages(client: Client, path: str, status: int, words_: str):
    """What cannot be shown is told in a page: what was asked, what there is, what to do."""
    answer = client.ask(path)
    assert answer.status == status
    assert words_ in answer.text


def test_pages_are_walked_by_their_keys(client: Client):
    """By “next page” every trace of a selection is met once, in order."""
    path, met = "/traces?limit=50", list[str]()
    while path:
        text = client.ask(path).text
        met += re.findall(r'<a href="(/traces/[^"]+)" class="go"', text)
        path = next(map(html.unescape, re.findall(r'href="([^"]*)" rel="next"', text)), "")
    assert len(met) == len(set(met)) == 209


def test_traces_are_searched_by_words_route_and_value(client: Client):
    """Search and filters narrow a list, and the address alone brings it back."""
    text = client.ask("/traces?text=fuel+quay&route=website&metric=groundedness&low=0.9").text
    ids = re.findall(r'<a href="/traces/([^"]+)" class="go"', text)
    assert 0 < len(ids) < 20
    assert client.ask("/traces?text=fuel+quay&route=website&metric=groundedness&low=0.9").text == text


# --- alerts ------------------------------------------------------------------------------------------


def test_an_incident_heads_the_overview_and_is_acknowledged(watched: tuple[DashboardServer, str], client: Client):
    """An open incident stands before all figures, with links to its two windows and its traces since the onset."""
    server, _ = watched
    incident = server.app.state.server.load_incidents()[0]
    page = client.ask("/").text
    place = page.index(incident.id)
    assert place < page.index('id="layers"')
    card = page[place : page.index('class="after"', place)]
    for part in (f"/traces?since={incident.onset}", "/compare?route=", "Acknowledge"):
        assert part in card
    for link in re.findall(r'href="(/(?:traces|compare)[^"]+)"', card):
        assert client.ask(html.unescape(link)).status == 200
    sent = client.send("/incidents", incident=incident.id, by="ann", next="/incidents")
    assert (sent.status, sent.headers["location"]) == (303, "/incidents")
    state = server.app.state.server
    assert state.load_incidents()[0].state == "acknowledged"
    own = [alert for alert in state.load_alert_state().firing if alert.key in incident.alerts]
    assert own
    assert {alert.acknowledged for alert in own} == {"ann"}
    assert client.send("/incidents", incident="i-none").status == 404
    assert "ann" in client.ask("/incidents").text


def test_an_alert_is_shown_and_silenced(watched: tuple[DashboardServer, str], client: Client):
    """A firing alert stands on its page; who silences it is remembered."""
    server, _ = watched
    firing = server.app.state.server.load_alert_state().firing
    assert firing
    alert = firing[0]
    assert alert.rule.name in client.ask("/alerts").text
    names = {"rule": alert.rule.name, "metric": alert.metric, "route": alert.route or ""}
    assert client.send("/alerts", action="silence", minutes="60", **names).status == 303
    state = server.app.state.server.load_alert_state()
    assert state.silences[0].covers(alert.key)
    kinds = [event.kind for event in server.store.read_events(f"{alert.rule.name}/{alert.metric}/{alert.route or ''}")]
    assert {"firing", "silenced"} <= set(kinds)
    assert client.send("/alerts", action="unsilence").status == 303
    assert server.app.state.server.load_alert_state().silences == ()
    assert client.send("/alerts", action="silence", minutes="0").status == 422


# --- labels, clusters, runs --------------------------------------------------------------------------


def test_a_label_is_stored_in_the_form_of_runs(watched: tuple[DashboardServer, str], client: Client):
    """Who disagrees with a verdict leaves a label with the opposite, on the very answer that was shown."""
    server, _ = watched
    stored = server.store.get_trace("v1/staff-02")
    assert stored is not None
    assert stored.verdicts is not None
    claim = stored.verdicts.claim[0]  # type: ignore[index]
    form = {"trace": "v1/staff-02", "part": "claim", "index": "0"}
    assert client.send("/labels", opinion="disagree", by="ann", **form).headers["location"].endswith("#claim-1")
    label = server.store.read_labels("v1/staff-02")[-1]
    assert (label.by, label.answer) == ("ann", fingerprint_answer(stored.trace))
    assert label.verdicts.claim[0].support != claim.support  # type: ignore[index]
    assert "people disagreed" in client.ask(trace_url("v1/staff-02")).text
    client.send("/labels", opinion="agree", by="ann", **form)
    assert "people agreed" in client.ask(trace_url("v1/staff-02")).text
    assert "Verdicts of live traces" in client.ask("/judge").text
    for bad in ({"index": "99"}, {"part": "soul"}, {"opinion": "perhaps"}, {"trace": "nobody"}):
        assert client.send("/labels", **{"opinion": "agree", **form, **bad}).status in (404, 422)


@pytest.mark.long
def test_clusters_are_detected_changed_and_promoted(watched: tuple[DashboardServer, str], client: Client):
    """Failing traces become clusters that keep their state, and cases of an evaluation set, each once."""
    pytest.importorskip("sklearn", reason="clusters of 30 failures and more need scikit-learn")
    server, _ = watched
    assert client.send("/clusters", hours="24").status == 303
    text = client.ask("/clusters").text
    state = watched[0].app.state.server
    full, listed, after = load_clusters(state).clusters, [], ""
    while after is not None:
        page = load_clusters(state, after, 1)
        listed, after = [*listed, *page.clusters.clusters], page.next
    assert tuple(listed) == full.clusters != ()
    assert page.clusters.ungrouped == full.ungrouped
    with pytest.raises(UnknownName):
        load_clusters(state, "c-nothing")
    id_ = re.findall(r'<article class="card cluster" id="(c-[^"]+)"', text)[0]
    assert client.send(f"/clusters/{id_}", action="assign", to="<b>ann</b>").status == 303
    assert client.send(f"/clusters/{id_}", action="resolve").status == 303
    assert "with <bdi>&lt;b&gt;ann&lt;/b&gt;</bdi>" in client.ask("/clusters").text
    assert client.send("/clusters", hours="24").status == 303
    again = client.ask("/clusters").text
    assert f'id="{id_}"' in again
    assert "resolved</span>" in again
    cases = server.app.state.server.settings.store / "promoted.jsonl"
    for _ in range(2):
        assert client.send(f"/clusters/{id_}", action="promote").status == 303
    promoted_cases = [json.loads(line) for line in cases.read_text("utf-8").splitlines()]
    assert promoted_cases
    assert len(promoted_cases) == len({case["id"] for case in promoted_cases})
    assert promoted_cases[0]["metadata"]["provenance"]["cluster"]["id"] == id_
    assert client.send("/clusters/c-none", action="mute").status == 404


@pytest.mark.long
def test_live_traffic_is_bisected_and_comes_back(watched: tuple[DashboardServer, str], client: Client):
    """Two stretches of live traffic are exported as runs, reported, bisected, and taken in again."""
    server, _ = watched
    for name, since, until in (("before", "09:00", "10:00"), ("after", "10:00", "10:50")):
        window = {"since": f"2031-05-04T{since}", "until": f"2031-05-04T{until}"}
        assert client.send("/runs", action="export", name=name, **window).status == 303
    assert client.send("/runs", action="export", name="../up").status == 422
    assert "after" in client.ask("/runs").text
    names = client.ask("/bisect?baseline=before&candidate=after")
    assert names.status == 200
    assert "before → after – ragfault bisection" in names.text
    many = server.store.compute_totals().traces
    assert client.send("/runs", action="import", name="before", prefix="again/").status == 303
    assert server.store.compute_totals().traces == many + 104
    window = "since=2031-05-04T09:00&until=2031-05-04T10:00&since2=2031-05-04T10:00&until2=2031-05-04T11:00"
    assert "fault</p>" in client.ask(f"/compare?route=website&{window}").text
    assert json.loads(client.ask(f"/compare.json?route=website&{window}").text)["blame"]["fault"]


# --- who may -----------------------------------------------------------------------------------------


def test_a_view_is_saved_under_its_name(client: Client):
    """A selection that was kept stands on the page for everybody, leads to itself, and can be forgotten."""
    name = "<b>slow ones"
    client.send("/views", name=name, query="state=scored&sort=latency&after=x")
    page = client.ask("/traces").text
    assert '<a href="/traces?state=scored&amp;sort=latency"><bdi>&lt;b&gt;slow ones</bdi></a>' in page
    assert client.ask("/traces?state=scored&sort=latency").status == 200
    assert client.send("/views", name=" ", query="").status == 422
    assert client.send("/views", name="bad", query="limit=many").status == 422
    client.send("/views", name=name, query="", action="delete")
    assert "slow ones" not in client.ask("/traces").text


def test_forms_need_their_stamp(client: Client):
    """A form that no page of this server made changes nothing."""
    for path in ("/labels", "/views", "/alerts", "/incidents", "/clusters", "/runs", "/sign-in", "/sign-out"):
        assert client.ask(path, {"action": "unsilence"}).status == 403
        assert client.ask(path, {"action": "unsilence", "csrf_token": "0" * 64}).status == 403


def test_a_token_opens_the_pages(tmp_path: Path):
    """With a token needed, pages send to the sign-in, whose cookie no script reads; readers may look and not write."""
    server = DashboardServer(tmp_path / "s", token="rf_admin")
    reader = issue_token(server.store, "reader", "read")
    with server.serving() as url:
        nobody = Client(url)
        answer = nobody.ask("/traces?sort=time")
        assert (answer.status, answer.headers["location"]) == (303, "/sign-in?next=%2Ftraces%3Fsort%3Dtime")
        assert nobody.send("/sign-in", token="rf_wrong", next="/traces").status == 403
        for token, status in (("rf_admin", 303), (reader, 403)):
            signed = nobody.send("/sign-in", token=token, next="/traces?sort=time")
            assert signed.headers["location"] == "/traces?sort=time"
            cookie = signed.headers["set-cookie"]
            assert "httponly" in cookie.lower()
            assert "samesite=strict" in cookie.lower()
            browser = Client(url, cookie.partition(";")[0])
            assert browser.ask("/traces").status == 200
            assert browser.send("/alerts", action="unsilence").status == status
            assert token not in browser.ask("/settings").text
        assert nobody.send("/sign-in", token="rf_admin", next="//example.org").headers["location"] == "/"
        assert nobody.ask("/static/page.css").status == 200


# --- the parts ---------------------------------------------------------------------------------------


def test_addresses_of_any_id(client: Client):
    """Whatever an id holds, its page has an address within this server, and it is that of no other id."""
    ids = ["a/b", "..", ".", "", "-", "x.json", "é?#%", "a b", HOSTILE]
    address = [trace_url(id_) for id_ in ids]
    assert len(set(address)) == len(ids)
    assert all(name.startswith("/traces/") and local_path(name) == name for name in address)
    assert client.ask(trace_url(HOSTILE)).status == 200
    assert quote(HOSTILE, safe="") in trace_url(HOSTILE)


def test_a_trace_shows_its_steps_as_a_tree(tmp_path: Path):
    """Each step stands below the one that it is part of, with its input and output, as text."""
    server = DashboardServer(tmp_path / "s")
    steps = (
        Step(
            id="w",
            name="answer",
            kind="plan",
            input="When?",
            output="<script>alert(1)</script>",
            start=0.0,
            duration=9.0,
        ),
        Step(id="r", parent="w", name="search", kind="retrieve", chunks=("a", "gone"), start=1.0, duration=3.0),
        Step(id="m", parent="w", name="model", kind="generate", input="Oslo, 1040.\n\u202eWhen?", error=""),
    )
    trace = Trace(
        id="1",
        query="When?",
        chunks=(Chunk(id="a", text="Oslo, 1040."),),
        answer="1040",
        conversation="c/1",
        steps=steps,
        time=BEGAN,
    )
    server.store.append_traces([trace]).result()
    with server.serving() as url:
        page = Client(url).ask("/traces/1").text
        listed = Client(url).ask("/conversations").text
        turns = Client(url).ask("/conversation?id=c%2F1").text
        assert Client(url).ask("/conversation?id=none").status == 404
    assert [int(depth) for depth in re.findall(r'<li class="depth-(\d)">', page)] == [0, 1, 1]
    assert page.index("answer</bdi>") < page.index("search</bdi>") < page.index("model</bdi>")
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert '<a href="#chunk-1">' in page
    assert "the generator did not see it" in page
    assert 'href="/conversation?id=c%2F1"' in page
    assert 'href="/conversation?id=c%2F1"' in listed
    assert 'href="/traces/1"' in turns
