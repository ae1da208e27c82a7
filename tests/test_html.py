"""The HTML report: one page that asks for nothing, trusts no text, and is usable with keys alone."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ragfault.errors import MissingExtra, OutputError
from ragfault.metrics import choose, score
from ragfault.records import (
    AnswerVerdict,
    Aspect,
    Chunk,
    ChunkVerdict,
    Citation,
    CitationVerdict,
    ClaimVerdict,
    Evidence,
    Latency,
    Trace,
    UseVerdict,
    Verdicts,
)
from ragfault.runs import Measure, Partial, Plan, Run

pytest.importorskip("altair", reason="the report extra is not installed")
pytest.importorskip("vl_convert", reason="the report extra is not installed")

from ragfault.report.html import render_html, write_html

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
HOSTILE = (
    "</script><script>window.pwned=1</script>"
    "<img src=x onerror='window.pwned=2'><a href='javascript:window.pwned=3'>go</a>"
    "<iframe src='https://example.invalid/'></iframe>\u2028{{script}} &lt;b&gt; "
    "\x1b[31mred \u202etxt.exe\u202c ]]> <!-- "
)


# --- runs by hand ----------------------------------------------------------------------------------


def built(out: Path, pairs: Sequence[tuple[Trace, Verdicts]], judge: str = "by hand") -> Run:
    """A run of traces and verdicts, with the scores of all default metrics."""
    metrics = choose("default")

    def end(value: float) -> float | None:
        return value if abs(value) != float("inf") else None

    measures = tuple(
        Measure(str(m), m.definition.layer, m.definition.better, *map(end, m.definition.range))
        for m in metrics
    )
    plan = Plan(
        ragfault="0",
        judge=judge,
        metrics=measures,
        fingerprint="f",
        traces=len(pairs),
        source=(HOSTILE,),
        batch=500,
    )
    partial = Partial.begin(out, plan)
    for number in range(0, len(pairs), 500):
        part = pairs[number : number + 500]
        scores = [score(metric, trace, seen) for trace, seen in part for metric in metrics]
        partial.write(number // 500, [t for t, _ in part], [v for _, v in part], scores)
    return partial.finish()


def fair(name: str, route: str = "help") -> tuple[Trace, Verdicts]:
    """A trace with a supported claim, an unsupported one, and an emoji before the evidence."""
    text = f"🚢 The {name} sails at nine. 🚢 It carries cars."
    at = text.index("It carries")
    answer = f"The {name} sails at nine. It also serves soup."
    cut = answer.index("It also")
    trace = Trace(
        id=name,
        query=f"When does the {name} sail?",
        chunks=(
            Chunk(id="timetable", text=text, document="t.md"),
            Chunk(id="other", text="Nothing of note."),
        ),
        answer=answer,
        citations=(Citation(chunk="timetable", quote="sails at nine"),),
        route=route,
        latency=Latency(total=120.0),
    )
    seen = Verdicts(
        trace=name,
        chunk=(
            ChunkVerdict(chunk="timetable", relevance=0.9, level="high", reason="names it"),
            ChunkVerdict(chunk="other", relevance=0.1, level="none"),
        ),
        missing=("the day of the week",),
        use=(UseVerdict(chunk="timetable", used=True), UseVerdict(chunk="other", used=False)),
        claim=(
            ClaimVerdict(
                claim=answer[: cut - 1],
                start=0,
                end=cut - 1,
                support="supported",
                p=0.97,
                evidence=(Evidence(chunk="timetable", start=2, end=at - 3),),
            ),
            ClaimVerdict(
                claim=answer[cut:], start=cut, end=len(answer), support="unsupported", reason="no soup"
            ),
        ),
        citation=(CitationVerdict(chunk="timetable", claim=answer[: cut - 1], supports=True),),
        answer=AnswerVerdict(relevance=0.8, aspects=(Aspect(text="the time", answered=True),)),
    )
    return trace, seen


def hostile() -> tuple[Trace, Verdicts]:
    """A trace in which every text is an attack."""
    n = len(HOSTILE)
    trace = Trace(
        id=HOSTILE,
        query=HOSTILE,
        chunks=(Chunk(id=HOSTILE, text=HOSTILE * 2, document=HOSTILE, metadata={HOSTILE: HOSTILE}),),
        answer=HOSTILE,
        citations=(Citation(chunk=HOSTILE, quote=HOSTILE, claim=HOSTILE),),
        reference=HOSTILE,
        facts=(HOSTILE,),
        route=HOSTILE,
        model=HOSTILE,
        conversation=HOSTILE,
        error=HOSTILE,
        metadata={HOSTILE: [HOSTILE], "url": "javascript:alert(1)"},
    )
    seen = Verdicts(
        trace=HOSTILE,
        chunk=(ChunkVerdict(chunk=HOSTILE, relevance=0.1, level="none", reason=HOSTILE),),
        missing=(HOSTILE,),
        use=(UseVerdict(chunk=HOSTILE, used=True),),
        claim=(
            ClaimVerdict(
                claim=HOSTILE,
                start=0,
                end=n,
                support="contradicted",
                evidence=(Evidence(chunk=HOSTILE, start=3, end=2 * n + 99),),
                reason=HOSTILE,
            ),
        ),
        citation=(CitationVerdict(chunk=HOSTILE, claim=HOSTILE, supports=False),),
        answer=AnswerVerdict(relevance=0.2, aspects=(Aspect(text=HOSTILE, answered=False),)),
        failures={"truth": HOSTILE},
    )
    return trace, seen


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve fair traces of two routes, a hostile one, and an empty one."""
    names = [f"ship-{n}" for n in range(12)]
    pairs = [fair(name, "help" if n % 3 else "sales") for n, name in enumerate(names)]
    bare = (Trace(id="bare", query="", chunks=()), Verdicts(trace="bare"))
    return built(tmp_path_factory.mktemp("runs") / "<b>harbour", [*pairs, hostile(), bare], judge=HOSTILE)


@pytest.fixture(scope="module")
def report(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(run, tmp_path_factory.mktemp("report") / "report.html")


def carried(page: str) -> list[Any]:
    """The bodies of all traces in a page."""
    blocks = re.findall(r'<script type="application/gzip" id="block-\d+">([^<]+)</script>', page)
    return [body for block in blocks for body in json.loads(gzip.decompress(base64.b64decode(block)))]


class Names(HTMLParser):
    """The elements and attributes of a page, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value or "" for name, value in attrs if name in ("href", "xlink:href"))


# --- the page as text ------------------------------------------------------------------------------


def test_self_contained(report: Path) -> None:
    """The page names nothing outside itself: links lead into it, and nothing is loaded."""
    page = report.read_text("utf-8")
    parser = Names()
    parser.feed(page)
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "harbour – ragfault report</title>" in page
    assert {link.partition("#")[0] for link in parser.links} == {"", "data:,"}
    assert not parser.elements & {"img", "iframe", "object", "embed", "base", "video", "audio", "source", "b"}
    assert not {
        name for name in parser.attributes if name in ("src", "style", "srcset") or name.startswith("on")
    }


def test_policy_by_hash(report: Path) -> None:
    """The security policy allows the one script and the one style sheet by their hashes, and nothing else."""
    page = report.read_text("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_every_trace_inside(run: Run, report: Path) -> None:
    """Every trace of the run is in the page, whole and in order."""
    bodies = carried(report.read_text("utf-8"))
    assert [body["trace"]["id"] for body in bodies] == [trace.id for trace in run.traces()]
    assert all(len(body["scores"]) == len(run.manifest.metrics) for body in bodies)


def test_every_metric_shown(run: Run, report: Path) -> None:
    """Every metric stands in a panel: with its figures, or among those without a value and why."""
    page = report.read_text("utf-8")
    for measure in run.manifest.metrics:
        row = f'<th scope="row">{measure.name} '
        assert row in page or re.search(rf"No value on any trace.*{re.escape(measure.name)} \(", page)


def test_long_text_cut(tmp_path: Path) -> None:
    """A text too long for a page is cut, and the page says by how much."""
    trace = Trace(id="1", query="q", chunks=(Chunk(id="a", text="x" * 90_000),), answer="y")
    [body] = carried(render_html(built(tmp_path / "r", [(trace, Verdicts(trace="1"))])))
    assert body["trace"]["chunks"][0]["text"].endswith("x… [40,000 characters more]")


def test_output_kept(run: Run, tmp_path: Path) -> None:
    """A file that stands there is kept unless forced, and a refused place leaves nothing behind."""
    place = tmp_path / "report.html"
    place.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write_html(run, place)
    assert place.read_text() == "mine"
    with pytest.raises(OutputError, match="cannot write"):
        write_html(run, tmp_path / "nowhere" / "report.html")
    with pytest.raises(OutputError, match="is a directory"):
        write_html(run, tmp_path)
    assert write_html(run, place, force=True).read_text("utf-8").startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_missing_extra(run: Run, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Without the packages that draw, the report says which extra to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"ragfault\[report\]"):
        render_html(run)


def colours() -> dict[str, tuple[str, str]]:
    """The palette: name → its colour in the light and in the dark theme."""
    import ragfault

    css = (Path(ragfault.__file__).parent / "report" / "page" / "page.css").read_text("utf-8")
    return {name: (a, b) for name, a, b in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast(theme: int) -> None:
    """Text stands out from every ground it is set on by 4.5 to 1, edges and drawings by 3 to 1."""
    palette = {name: pair[theme] for name, pair in colours().items()}
    grounds = ["page", "panel", "select"]
    texts = [(ink, ground) for ink in ("ink", "muted", "accent") for ground in [*grounds, "raised"]]
    texts += [(tone, f"{tone}-back") for tone in ("good", "so", "warn", "bad")]
    texts += [("ink", f"{tone}-back") for tone in ("good", "so", "warn", "bad")]
    texts += [("ink", "mark"), ("page", "ink"), ("page", "accent")]
    drawn = [(name, "page") for name in ("edge", "relevance", "use", "accent", "good", "so", "warn", "bad")]
    assert {
        pair: contrast(palette[pair[0]], palette[pair[1]])
        for pair in texts
        if contrast(palette[pair[0]], palette[pair[1]]) < 4.5
    } == {}
    assert {
        pair: contrast(palette[pair[0]], palette[pair[1]])
        for pair in drawn
        if contrast(palette[pair[0]], palette[pair[1]]) < 3
    } == {}


# --- the page in a browser -------------------------------------------------------------------------


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


class Visit:
    """A page that is open, with all that it tried to do."""

    def __init__(self, chromium: Any, place: Path, anchor: str = "", **options: Any) -> None:
        self.context = chromium.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.noise: list[str] = []
        self.context.route("**/*", self._route)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noise.append("dialog"), dialog.dismiss()))
        self.page.goto(place.as_uri() + anchor)
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)

    def _route(self, route: Any) -> None:
        """Let through the page itself; whatever else is asked for is written down and refused."""
        if route.request.is_navigation_request() and len(self.requests) <= 1:
            route.continue_()
        else:
            route.abort()

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.noise == []
            assert len(self.requests) == 1


def open_trace(visit: Visit, name: str) -> None:
    """Show a trace by its link."""
    visit.page.evaluate("id => { location.hash = '#trace=' + encodeURIComponent(id); }", name)
    visit.page.wait_for_function(
        "id => document.querySelector('#trace-title bdi')?.textContent === visible(id)", arg=name
    )


@pytest.mark.browser
def test_no_request(chromium: Any, report: Path) -> None:
    """Opened from a disk and read through, the page asks for nothing but itself, and reports no fault."""
    with Visit(chromium, report) as visit:
        for name in ("ship-3", "bare", HOSTILE):
            open_trace(visit, name)
        assert visit.requests == [report.as_uri()]


@pytest.mark.browser
def test_hostile_text_inert(chromium: Any, report: Path) -> None:
    """Whatever a trace holds is shown as text: no script runs, no element appears, no link leads out."""
    with Visit(chromium, report) as visit:
        page = visit.page
        before = page.locator("script").count()
        open_trace(visit, HOSTILE)
        page.locator("#detail .claim").click()
        assert page.evaluate("window.pwned") is None
        assert page.locator("script").count() == before
        assert page.locator("main :is(img, iframe, object, embed, base, form:not(#filters))").count() == 0
        assert page.evaluate("[...document.links].every(link => link.getAttribute('href').startsWith('#'))")
        shown = page.locator("#detail .answer").inner_text()
        assert "<img src=x onerror='window.pwned=2'>" in shown
        assert "␛[31m" in shown
        assert not set(page.locator("body").inner_text()) & {"\x1b", "\u202e", "\u2028"}


@pytest.mark.browser
def test_keys_alone(chromium: Any, report: Path) -> None:
    """From the address bar to the evidence of a claim, and back, without a pointer."""
    with Visit(chromium, report) as visit:
        page = visit.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "list":
                break
        page.keyboard.press("ArrowDown")
        page.keyboard.press("j")
        page.keyboard.press("k")
        assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == "2"
        active = page.locator("#list").get_attribute("aria-activedescendant")
        assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'trace-title'")
        for _ in range(6):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.claim')"):
                break
        page.keyboard.press("Enter")
        assert page.locator("#detail mark").all_inner_texts() == ["The ship-1 sails at nine."]
        assert page.locator("#said").inner_text() == "Claim 1: evidence marked in 1 chunk."
        page.keyboard.press("Enter")
        assert page.locator("#detail mark").count() == 0
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "list"


@pytest.mark.browser
def test_verdicts_in_words(chromium: Any, report: Path) -> None:
    """What colour says of claims, chunks and use, a word says too."""
    with Visit(chromium, report, "#trace=ship-4") as visit:
        text = visit.page.locator("#detail").inner_text()
        for words in (
            "✓ supported",
            "? unsupported",
            "●●● high relevance",
            "○○○ not relevant",
            "◆ used",
            "◇ not used",
        ):
            assert words in text
        for words in ("the day of the week", "stands there verbatim", "✓ answered", "no soup", "names it"):
            assert words in text


@pytest.mark.browser
def test_deep_link(chromium: Any, report: Path) -> None:
    """A link to a trace opens it; a link to one that is not there says so."""
    with Visit(chromium, report, "#trace=ship-7") as visit:
        assert visit.page.locator("#trace-title").inner_text() == "Trace ship-7"
        assert (
            visit.page.locator(".row[aria-selected=true]")
            .inner_text()
            .startswith("When does the ship-7 sail?")
        )
        assert visit.page.locator("#detail a.permalink").get_attribute("href") == "#trace=ship-7"
    with Visit(chromium, report, "#trace=nobody%20%") as visit:
        assert "This run has no trace nobody%20%" in visit.page.locator("#detail").inner_text()


@pytest.mark.browser
def test_filters_narrow(chromium: Any, report: Path) -> None:
    """Search, problem, route and the scorecard's own buttons narrow the list; reset brings all back."""
    with Visit(chromium, report) as visit:
        page = visit.page
        found = page.locator("#found")
        page.fill("#search", "SHIP-1 sail")
        assert found.inner_text() == "3 of 14 traces"
        page.click("#clear")
        page.select_option("#route", label="sales")
        assert found.inner_text() == "4 of 14 traces"
        page.click("#clear")
        assert found.inner_text() == "14 traces"
        page.locator("[data-filter=kind][data-value=unsupported_claim]").click()
        assert found.inner_text() == "12 of 14 traces"
        page.fill("#search", "no such words")
        assert page.locator("#nothing").is_visible()


@pytest.mark.browser
def test_sorted_worst_first(chromium: Any, report: Path) -> None:
    """Sorted by a metric, the worst stand on top and the undefined at the end, in either order."""
    with Visit(chromium, report) as visit:
        page = visit.page
        for order, first in (("worst", "0"), ("best", "0.50")):
            page.select_option("#sort", "groundedness")
            page.select_option("#order", order)
            assert page.locator(".row").first.locator(".row-value").inner_text() == first
            page.focus("#list")
            page.keyboard.press("End")
            assert page.locator(".row").last.locator(".row-value").inner_text() == "–"


@pytest.mark.browser
def test_themes(chromium: Any, report: Path) -> None:
    """The page follows the reader's theme until the button says otherwise."""
    light, dark = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
    ground = "getComputedStyle(document.body).backgroundColor"
    with Visit(chromium, report, color_scheme="dark") as visit:
        assert visit.page.evaluate(ground) == dark
        visit.page.click("#theme")
        assert visit.page.evaluate(ground) == light
    with Visit(chromium, report, color_scheme="light") as visit:
        assert visit.page.evaluate(ground) == light
        assert visit.page.locator("#theme").get_attribute("aria-pressed") == "false"


@pytest.mark.browser
def test_named_and_in_order(chromium: Any, report: Path) -> None:
    """Every control has a name, every id is unique, headings do not skip a level, tables have heads."""
    with Visit(chromium, report, "#trace=ship-2") as visit:
        page = visit.page
        unnamed = "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length).length"
        silent = "[...document.querySelectorAll('button, a, [role=button]')].filter(e => !e.textContent.trim()).length"
        doubled = (
            "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
        )
        levels = "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(e => +e.tagName[1])"
        assert page.evaluate(unnamed) == page.evaluate(silent) == page.evaluate(doubled) == 0
        found = page.evaluate(levels)
        assert found.count(1) == 1
        assert all(later - earlier <= 1 for earlier, later in pairwise(found))
        assert page.locator("svg:not([aria-hidden]):not([aria-label])").count() == 0
        assert page.locator("th:not([scope])").count() == 0


@pytest.mark.browser
def test_narrow(chromium: Any, report: Path) -> None:
    """On a telephone nothing reaches over the edge."""
    with Visit(chromium, report, "#trace=ship-2", viewport={"width": 390, "height": 800}) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.browser
def test_five_thousand(chromium: Any, tmp_path: Path) -> None:
    """A run of 5,000 traces opens, draws few rows, and is filtered and read at once."""
    run = built(tmp_path / "run", [fair(f"ship-{n}") for n in range(5000)])
    with Visit(chromium, write_html(run, tmp_path / "report.html")) as visit:
        page = visit.page
        assert page.locator("#found").inner_text() == "5,000 traces"
        assert page.locator(".row").count() < 40
        open_trace(visit, "ship-4987")
        page.fill("#search", "ship-4321")
        assert page.locator("#found").inner_text() == "1 of 5,000 traces"
        took = page.evaluate(
            "(() => { const t = performance.now(); refill(); return performance.now() - t; })()"
        )
        assert took < 500
