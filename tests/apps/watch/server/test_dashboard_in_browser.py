"""The dashboard in a real browser: harmless, reachable by keys, readable in light and dark, walked from end to end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from browser import COLOURS, Visit, list_violations, start_browser
from dashboard_server import BEGAN, DashboardServer
from ragfault.apps.watch.server.dashboard.page_renderer import trace_url
from ragfault.apps.watch.server.storage.records import TraceSelection
from ragfault.apps.watch.server.storage.run_transfer import export_run
from ragfault.model.records import Trace
from sample_reports import HOSTILE

WINDOWS = "since=2031-05-04T09:00&until=2031-05-04T10:00&since2=2031-05-04T10:00&until2=2031-05-04T11:00"
PLACES = ["target-size", "scrollable-region-focusable"]
"""Those that another width could."""

PAGES = {
    "overview": "/",
    "insights": "/insights?window=360",
    "versions": "/versions?field=model&window=360",
    "drift": "/drift?run=before&window=60",
    "no drift": "/drift",
    "metric": "/metrics/groundedness?window=360",
    "compare": f"/compare?route=website&{WINDOWS}",
    "traces": "/traces?limit=5",
    "trace": trace_url("v2/harbour-01"),
    "attack": trace_url(HOSTILE),
    "conversations": "/conversations",
    "access": "/access",
    "incidents": "/incidents",
    "alerts": "/alerts",
    "clusters": "/clusters",
    "runs": "/runs",
    "judge": "/judge",
    "settings": "/settings",
    "help": "/help",
    "sign-in": "/sign-in",
    "error": "/traces/nobody",
}

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DashboardServer, str]]:
    """A server with two hours of traffic, of which the second is worse, and with alerts that fire."""
    server = DashboardServer(tmp_path_factory.mktemp("served") / "s")
    server.fill()
    server.watch()
    hour = TraceSelection(since=BEGAN.timestamp(), until=BEGAN.timestamp() + 3600)
    export_run(server.store, hour, server.app.state.server.settings.runs_folder / "before")
    with server.serving() as url:
        yield server, url


def test_axe_finds_nothing(chromium: Any, served: tuple[DashboardServer, str]):
    """By the rules of WCAG 2.2 AA nothing is wrong on any page, in light and dark, wide and narrow, nor too wide."""
    with Visit(chromium, served[1], color_scheme="light") as visit:
        page = visit.page
        for name, path in PAGES.items():
            visit.open(path)
            assert list_violations(page) == [], name
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size({"width": 360, "height": 900})
            assert list_violations(page, [*COLOURS, *PLACES]) == [], f"{name}, dark and narrow"
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": 1300, "height": 900})


def test_keys_alone(chromium: Any, served: tuple[DashboardServer, str]):
    """By keys: past the navigation, through the list, into a trace, to agree with its first claim, and elsewhere."""
    with Visit(chromium, served[1]) as visit:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/traces")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.keyboard.type("harbour-0j")
        assert page.locator("#search").input_value() == "harbour-0j"
        page.locator("#search").fill("harbour-01")
        page.keyboard.press("Enter")
        page.wait_for_url("**text=harbour-01**")
        for key in "jjk":
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.matches('a.go')")
        page.keyboard.press("Enter")
        page.wait_for_selector(".trace-title")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('#claim-1 button[value=agree]')"):
                break
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.wait_for_selector("#claim-1 >> text=people agreed")
        page.keyboard.press("?")
        page.wait_for_url("**/help")
        page.click("#keys")
        page.keyboard.press("g")
        page.keyboard.press("o")
        assert page.url.endswith("/help")


def test_without_a_script(chromium: Any, served: tuple[DashboardServer, str]):
    """Where no script runs, everything is there: figures, forms, drawings; only the theme and the keys are not."""
    with Visit(chromium, served[1], java_script_enabled=False) as visit:
        assert not visit.page.locator("#theme").is_visible()
        visit.open("/metrics/groundedness?window=360")
        assert visit.page.locator("svg.chart polyline").count() == 3
        assert visit.page.locator("svg.chart .deployed").count() == 1
        visit.open("/traces")
        visit.page.fill("#search", "harbour-01")
        visit.page.click("text=Show")
        assert visit.page.locator("a.go").count() == 2
        visit.page.locator("a.go").first.click()
        visit.page.locator("#claim-1 button[value=disagree]").click()
        assert "people disagreed" in visit.page.locator("#claim-1").inner_text()


def test_a_time_is_chosen_on_a_chart(chromium: Any, served: tuple[DashboardServer, str]):
    """Dragging over a chart shows that time on the page, and the links to insights and traces keep it."""
    with Visit(chromium, served[1]) as visit:
        visit.open("/metrics/groundedness?window=360")
        box = visit.page.locator("svg.chart .brush").first.bounding_box()
        visit.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60)
        with visit.page.expect_navigation():
            visit.page.mouse.up()
        query = visit.page.url.partition("?")[2]
        assert query.startswith("since=")
        for place in ("/insights", "/traces"):
            assert visit.page.locator(f"nav a[href='{place}?{query}']").count() == 1
        visit.page.click("text=24 h")
        assert visit.page.url.endswith("?window=1440")


def test_themes(chromium: Any, served: tuple[DashboardServer, str]):
    """The pages follow the reader's theme until the button says otherwise, and remember what it said."""
    light, dark = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
    ground = "getComputedStyle(document.body).backgroundColor"
    with Visit(chromium, served[1], color_scheme="dark") as visit:
        assert visit.page.evaluate(ground) == dark
        visit.page.click("#theme")
        assert visit.page.evaluate(ground) == light
        visit.open("/traces")
        assert visit.page.evaluate(ground) == light
        assert visit.page.locator("#theme").get_attribute("aria-pressed") == "false"


def test_a_citation_leads_to_its_words(chromium: Any, served: tuple[DashboardServer, str]):
    """From a citation a link leads to the very words in the chunk, and from these one leads back."""
    with Visit(chromium, served[1], trace_url("v1/fleet-07")) as visit:
        visit.page.click("#citation-1 >> text=the quote in chunk")
        marked = visit.page.locator("mark:has(#at-citation-1)").inner_text()
        assert marked.startswith("A fault in the public address system")
        assert visit.page.url.endswith("#at-citation-1")
        visit.page.locator(".chunk sup a[href='#citation-1']").click()
        assert visit.page.url.endswith("#citation-1")


def test_a_browser_signs_in(chromium: Any, tmp_path: Path):
    """Where a token is needed, a browser is asked for it once, and its cookie is out of reach of scripts."""
    server = DashboardServer(tmp_path / "s", token="rf_secret")
    server.now = BEGAN.timestamp()
    with server.serving() as url, Visit(chromium, url, "/alerts") as visit:
        assert visit.page.url == f"{url}/sign-in?next=%2Falerts"
        visit.page.fill("#token", "rf_secret")
        visit.page.click("button:has-text('Sign in')")
        visit.page.wait_for_url("**/alerts")
        assert visit.page.evaluate("document.cookie") == ""
        visit.page.click("button:has-text('Silence everything')")
        visit.page.wait_for_selector("text=every rule")
        visit.page.click("text=Sign out")
        visit.page.wait_for_url("**/sign-in")
        visit.open("/traces")
        assert visit.page.url.startswith(f"{url}/sign-in")


# --- pages that renew themselves ---------------------------------------------------------------------


def _send(server: DashboardServer, id_: str) -> None:
    """Store a trace that is not judged yet."""
    time = datetime.fromtimestamp(server.now, UTC)
    server.store.append_traces([Trace(id=id_, query=f"Is {id_} new?", route="website", time=time)]).result()


def test_a_page_renews_itself(chromium: Any, served: tuple[DashboardServer, str]):
    """What is new comes to the page by itself; the focus, the place and what was written stay as they were."""
    server, url = served
    with Visit(chromium, url) as visit:
        page = visit.page
        page.clock.install()
        visit.open("/traces?limit=20")
        page.fill("input[name=model]", "half a wo")
        place = "each => [each.href, each.getBoundingClientRect().top]"
        link = page.locator("a.go").nth(6)
        link.evaluate("each => each.scrollIntoView({ block: 'center', behavior: 'instant' })")
        link.focus()
        before = link.evaluate(place)
        _send(server, "fresh-1")
        page.clock.run_for(10_500)
        page.wait_for_selector("text=Is fresh-1 new?")
        href, top = page.locator("*:focus").evaluate(place)
        assert href == before[0]
        assert abs(top - before[1]) < 2
        assert page.input_value("input[name=model]") == "half a wo"
        assert page.locator("a.go").count() == 20
        visit.open(trace_url("fresh-1"))
        assert page.locator("text=waits to be judged").count() == 1


def test_what_was_unfolded_stays_so(chromium: Any, served: tuple[DashboardServer, str]):
    """Details that were opened or closed are so when the page has renewed itself, and its figures are new."""
    server, url = served
    with Visit(chromium, url) as visit:
        page = visit.page
        page.clock.install()
        visit.open("/")
        page.locator("details[open] > summary").first.click()  # why the incident is one
        page.locator("details:not([open]) > summary").last.click()
        many = f"{server.store.compute_totals().traces + 1:,}"
        _send(server, "fresh-2")
        page.clock.run_for(10_500)
        page.wait_for_selector(f".run dd:text-is('{many}')")
        assert page.locator("details[open]").count() == 1


def test_updates_can_be_paused(chromium: Any, served: tuple[DashboardServer, str]):
    """A button pauses the updates of all pages, for who prefers less motion they are paused, and it starts them."""
    server, url = served
    with Visit(chromium, url, reduced_motion="reduce") as visit:
        page = visit.page
        page.clock.install()
        visit.open("/traces")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.resource_type == "fetch" else None)
        _send(server, "fresh-3")
        page.clock.run_for(60_000)
        assert asked == []
        page.click("text=Resume updates")
        page.wait_for_selector("text=Is fresh-3 new?")
        page.click("text=Pause updates")
        _send(server, "fresh-4")
        page.clock.run_for(60_000)
        assert len(asked) == 1
        visit.open("/alerts")
        assert page.inner_text("#refresh-toggle") == "Resume updates"


def test_a_stopped_server_is_reported(chromium: Any, served: tuple[DashboardServer, str]):
    """Where the server does not answer, the page says so and stays as it is, until it answers again."""
    with Visit(chromium, served[1]) as visit:
        page = visit.page
        page.clock.install()
        visit.open("/alerts")
        page.route("**/alerts", lambda route: route.fulfill(status=503, body=""))
        page.clock.run_for(10_500)
        page.wait_for_selector("text=This page could not be refreshed.")
        assert page.locator("table tbody tr").count()
        page.unroute("**/alerts")
        page.clock.run_for(10_500)
        page.wait_for_selector("#refresh-status:empty", state="attached")
        visit.noise.clear()  # the browser tells of the 503 itself
