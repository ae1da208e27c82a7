"""The dashboard in a real browser: harmless, reachable by keys, readable in light and dark, walked from end to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the dashboard needs the extra `server`")
pytest.importorskip("fastapi", reason="the dashboard needs the extra `server`")
pytest.importorskip("jinja2", reason="the dashboard needs the extra `server`")

from pages import HOSTILE
from ragfault.server.dashboard_rendering import address
from watched import BEGAN, Watched

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

WINDOWS = "since=2031-05-04T09:00&until=2031-05-04T10:00&since2=2031-05-04T10:00&until2=2031-05-04T11:00"
PAGES = {
    "overview": "/",
    "metric": "/metrics/groundedness?window=360",
    "compare": f"/compare?route=website&{WINDOWS}",
    "traces": "/traces?limit=20",
    "trace": address("v2/harbour-01"),
    "attack": address(HOSTILE),
    "alerts": "/alerts",
    "clusters": "/clusters",
    "runs": "/runs",
    "judge": "/judge",
    "settings": "/settings",
    "help": "/help",
    "sign-in": "/sign-in",
    "error": "/traces/nobody",
}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium that is started once."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no Chromium at {CHROMIUM}")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Watched, str]]:
    """A server with two hours of traffic, of which the second is worse, and with alerts that fire."""
    found = Watched(tmp_path_factory.mktemp("served") / "s")
    found.fill()
    found.watch()
    with found.serving() as url:
        yield found, url


class Visit:
    """A page that is open, with all that it tried to do."""

    def __init__(self, chromium: Any, url: str, path: str = "/", **options: Any) -> None:
        self.url = url
        self.context = chromium.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        self.page = self.context.new_page()
        self.abroad: list[str] = []
        self.noise: list[str] = []
        self.page.on("request", self._asked)
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noise.append("dialog"), dialog.dismiss()))
        self.open(path)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.url + "/"):
            self.abroad.append(request.url)

    def open(self, path: str) -> None:
        """Go to a page."""
        self.page.goto(self.url + path)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert [each for each in self.noise if "404 (Not Found)" not in each] == []
            assert self.abroad == []


def test_hostile_texts_are_inert(chromium: Any, served: tuple[Watched, str]):
    """Whatever the fields of a trace hold is shown as text on every page: no script, no element, no way out."""
    with Visit(chromium, served[1]) as visit:
        for path in PAGES.values():
            visit.open(path)
            assert visit.page.evaluate("window.pwned") is None
            assert visit.page.locator("script:not([src='/static/dashboard.js'])").count() == 0
            assert visit.page.locator(":is(img, iframe, object, embed, base)").count() == 0
            out = "[...document.links].filter(each => each.origin !== location.origin).length"
            assert visit.page.evaluate(out) == 0
        visit.open(address(HOSTILE))
        shown = visit.page.locator("main").inner_text()
        for field in ("p.query", "p.answer", ".failure", ".chunk-text", ".claims", "h1"):
            assert "<script>window.pwned=1</script>" in visit.page.locator(field).first.inner_text(), field
        assert not set(shown) & {"\x1b", "\u202e", "\u2028"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 360])
def test_axe_finds_nothing(chromium: Any, served: tuple[Watched, str], scheme: str, width: int):
    """By the rules of WCAG 2.2 AA nothing is wrong on any page, in light and dark, wide and narrow, nor too wide."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    axe = Path(package.__file__).with_name("axe.min.js").read_text("utf-8")
    tags = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with Visit(chromium, served[1], **options) as visit:
        for name, path in PAGES.items():
            visit.open(path)
            visit.page.evaluate(axe)
            found = visit.page.evaluate(f"axe.run(document, {{runOnly: {tags}}})")
            told = [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
            assert told == [], name
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_from_the_alert_to_the_evaluation_set(
    chromium: Any, served: tuple[Watched, str], tmp_path: Path, scheme: str
):
    """Overview, alert, traces, trace, label, cluster, promote: each step is a link or a button of the page before."""
    server, url = served
    with Visit(chromium, url, color_scheme=scheme) as visit:
        page = visit.page

        def shot(name: str) -> None:
            page.screenshot(path=tmp_path / f"{scheme}-{name}.png")

        assert "firing" in page.locator("main").inner_text()
        shot("overview")
        page.click("nav >> text=Alerts")
        page.wait_for_url("**/alerts")
        card = page.locator(".alarms .card", has_text="firing").first
        shot("alerts")
        server.store.save_setting("clusters", None).result()
        card.locator("a", has_text="all, by this metric").click()
        page.wait_for_url("**/traces?sort=*")
        shot("traces")
        page.locator("a.go", has_text="?").first.click()
        page.wait_for_selector(".trace-title")
        shot("trace")
        before = len(server.store.labels())
        page.locator(".chunk button[value=disagree]").first.click()
        page.wait_for_selector("text=people disagreed")
        assert len(server.store.labels()) == before + 1
        assert page.locator(".chunk button[value=disagree][aria-pressed=true]").count() == 1
        shot("label")
        page.click("nav >> text=Clusters")
        page.click("text=Look for clusters")
        page.wait_for_selector("article.cluster")
        shot("clusters")
        page.locator("button[value=promote]").first.click()
        page.wait_for_selector("text=in the evaluation set of this store")
        shot("promoted")
    assert (server.app.state.desk.settings.store / "promoted.jsonl").stat().st_size
    assert len(list(tmp_path.glob(f"{scheme}-*.png"))) == 7


def test_keys_alone(chromium: Any, served: tuple[Watched, str]):
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


def test_without_a_script(chromium: Any, served: tuple[Watched, str]):
    """Where no script runs, everything is there: figures, forms, drawings; only the theme and the keys are not."""
    with Visit(chromium, served[1], java_script_enabled=False) as visit:
        assert not visit.page.locator("#theme").is_visible()
        visit.open("/metrics/groundedness?window=360")
        assert visit.page.locator("svg.course polyline").count() == 3
        assert visit.page.locator("svg.course .deployed").count() == 1
        visit.open("/traces")
        visit.page.fill("#search", "harbour-01")
        visit.page.click("text=Show")
        assert visit.page.locator("a.go").count() == 2
        visit.page.locator("a.go").first.click()
        visit.page.locator("#claim-1 button[value=disagree]").click()
        assert "people disagreed" in visit.page.locator("#claim-1").inner_text()


def test_themes(chromium: Any, served: tuple[Watched, str]):
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


def test_a_citation_leads_to_its_words(chromium: Any, served: tuple[Watched, str]):
    """From a citation a link leads to the very words in the chunk, and from these one leads back."""
    with Visit(chromium, served[1], address("v1/fleet-07")) as visit:
        visit.page.click("#citation-1 >> text=the quote in chunk")
        marked = visit.page.locator("mark:has(#at-citation-1)").inner_text()
        assert marked.startswith("A fault in the public address system")
        assert visit.page.url.endswith("#at-citation-1")
        visit.page.locator(".chunk sup a[href='#citation-1']").click()
        assert visit.page.url.endswith("#citation-1")


def test_a_browser_signs_in(chromium: Any, tmp_path: Path):
    """Where a token is needed, a browser is asked for it once, and its cookie is out of reach of scripts."""
    server = Watched(tmp_path / "s", token="rf_secret")
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
