"""The HTML report in a real browser: silent, harmless, and usable with keys alone."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from browser import list_violations
from ragfault import compare
from ragfault.report.builders.comparison import build_comparison
from ragfault.report.html.report import write_run_html
from ragfault.report.renderers.html import render_html_page
from report_pages import FileVisit
from sample_reports import HOSTILE, build_fair_trace, build_mixed_run, build_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    return write_run_html(build_mixed_run(place), place / "report.html")


def open_trace(visit: FileVisit, name: str) -> None:
    """Show a trace by its link."""
    visit.page.evaluate("id => { location.hash = '#trace=' + encodeURIComponent(id); }", name)
    visit.page.wait_for_function(
        "id => document.querySelector('#trace-title bdi')?.textContent === visible(id)", arg=name
    )


@pytest.mark.browser
def test_no_request(chromium: Any, report: Path) -> None:
    """Opened from a disk and read through, the page asks for nothing but itself, and reports no fault."""
    with FileVisit(chromium, report) as visit:
        for name in ("ship-3", "bare", HOSTILE):
            open_trace(visit, name)
        assert visit.requests == [report.as_uri()]


@pytest.mark.browser
def test_hostile_text_inert(chromium: Any, report: Path) -> None:
    """Whatever a trace holds is shown as text: no script runs, no element appears, no link leads out."""
    with FileVisit(chromium, report) as visit:
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
    """From the address field to the evidence of a claim, and back, without a pointer."""
    with FileVisit(chromium, report) as visit:
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
    with FileVisit(chromium, report, "#trace=ship-4") as visit:
        text = visit.page.locator("#detail").inner_text()
        for words in ("✓ supported", "? unsupported", "●●● high relevance", "○○○ not relevant", "◆ used", "◇ not used"):
            assert words in text
        for words in ("the day of the week", "stands there verbatim", "✓ answered", "no soup", "names it"):
            assert words in text


@pytest.mark.browser
def test_words_in_doubt(chromium: Any, report: Path) -> None:
    """The words that the judge doubts are marked in the answer, and repeated in words beside the claim."""
    trace, seen = build_fair_trace("ship-4")
    with FileVisit(chromium, report, "#trace=ship-4") as visit:
        start, end = seen.claim[1].unsupported_spans[0]
        words = trace.answer[start:end]
        assert visit.page.locator("#detail .answer .doubt").all_inner_texts() == [words]
        assert f"in doubt: {words}" in visit.page.locator("#detail .claims").inner_text()
        assert visit.page.locator("#detail .answer .claim").all_inner_texts()[1].startswith(seen.claim[1].claim)


@pytest.mark.browser
def test_deep_link(chromium: Any, report: Path) -> None:
    """A link to a trace opens it; a link to one that is not there says so."""
    with FileVisit(chromium, report, "#trace=ship-7") as visit:
        assert visit.page.locator("#trace-title").inner_text() == "Trace ship-7"
        assert visit.page.locator(".row[aria-selected=true]").inner_text().startswith("When does the ship-7 sail?")
        assert visit.page.locator("#detail a.permalink").get_attribute("href") == "#trace=ship-7"
    with FileVisit(chromium, report, "#trace=nobody%20%") as visit:
        assert "This run has no trace nobody%20%" in visit.page.locator("#detail").inner_text()


@pytest.mark.long
@pytest.mark.browser
def test_filters_narrow(chromium: Any, report: Path) -> None:
    """Search, problem, route and the scorecard's own buttons narrow the list; reset brings all back."""
    with FileVisit(chromium, report) as visit:
        page = visit.page
        matches = page.locator("#matches")
        page.fill("#search", "SHIP-1 sail")
        assert matches.inner_text() == "3 of 14 traces"
        page.click("#clear")
        page.select_option("#route", label="sales")
        assert matches.inner_text() == "4 of 14 traces"
        page.click("#clear")
        assert matches.inner_text() == "14 traces"
        page.locator("[data-filter=kind][data-value=unsupported_claim]").click()
        assert matches.inner_text() == "12 of 14 traces"
        page.fill("#search", "no such words")
        assert page.locator("#nothing").is_visible()


@pytest.mark.browser
def test_sorted_worst_first(chromium: Any, report: Path) -> None:
    """Sorted by a metric, the worst stand on top and the undefined at the end, in either order."""
    with FileVisit(chromium, report) as visit:
        page = visit.page
        for order, first in (("worst", "0"), ("best", "0.50")):
            page.select_option("#sort", "groundedness")
            page.select_option("#order", order)
            assert page.locator(".row").first.locator(".row-value").inner_text() == first
            page.focus("#list")
            page.keyboard.press("End")
            assert page.locator(".row").last.locator(".row-value").inner_text() == "–"


@pytest.mark.long
@pytest.mark.browser
def test_themes(chromium: Any, report: Path) -> None:
    """The page follows the reader's theme until the button says otherwise."""
    light, dark = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
    ground = "getComputedStyle(document.body).backgroundColor"
    with FileVisit(chromium, report, color_scheme="dark") as visit:
        assert visit.page.evaluate(ground) == dark
        visit.page.click("#theme")
        assert visit.page.evaluate(ground) == light
    with FileVisit(chromium, report, color_scheme="light") as visit:
        assert visit.page.evaluate(ground) == light
        assert visit.page.locator("#theme").get_attribute("aria-pressed") == "false"


@pytest.mark.browser
def test_theme_is_remembered(chromium: Any, report: Path) -> None:
    """A theme that the button chose holds when the page is opened again, against the theme of the system."""
    with FileVisit(chromium, report, color_scheme="light") as visit:
        visit.page.click("#theme")
        visit.requests.clear()
        visit.page.reload()
        visit.page.wait_for_selector("html[data-ready]")
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
        assert visit.page.locator("#theme").get_attribute("aria-pressed") == "true"


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessible(chromium: Any, report: Path, theme: str) -> None:
    """In either theme axe finds no violation on a telephone or a screen."""
    for width in (420, 1280):
        with FileVisit(chromium, report, color_scheme=theme, viewport={"width": width, "height": 900}) as visit:
            assert list_violations(visit.page) == []


@pytest.mark.browser
def test_numbers_before_metadata(chromium: Any, report: Path) -> None:
    """On a telephone the first screen holds how many answers are bad; what the run is made of comes after it."""
    with FileVisit(chromium, report, viewport={"width": 420, "height": 900}) as visit:
        first = visit.page.get_by_text(re.compile(r"^\d+ answers: ")).first.bounding_box()
        facts = visit.page.locator("#about dl").first.bounding_box()
        assert first["y"] < 600 < facts["y"]


@pytest.mark.browser
def test_compared_metrics_fit_a_telephone(chromium: Any, tmp_path: Path) -> None:
    """On a telephone no cell of the table of changes lies outside the page, and the page does not scroll sideways."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    comparison = compare(build_mixed_run(tmp_path / "a"), build_mixed_run(tmp_path / "b"))
    place = tmp_path / "compare.html"
    place.write_text(str(render_html_page(build_comparison(comparison), "comparison")), "utf-8")
    with FileVisit(chromium, place, viewport={"width": 420, "height": 900}) as visit:
        cells = "[...document.querySelectorAll('.stacked tbody :is(th, td)')]"
        assert visit.page.evaluate(f"{cells}.length") > 0
        assert visit.page.evaluate(f"{cells}.filter(e => e.getBoundingClientRect().right > innerWidth).length") == 0
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 420


@pytest.mark.browser
def test_named_and_in_order(chromium: Any, report: Path) -> None:
    """Every control has a name, every id is unique, headings do not skip a level, tables have heads."""
    with FileVisit(chromium, report, "#trace=ship-2") as visit:
        page = visit.page
        unnamed = "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length).length"
        silent = "[...document.querySelectorAll('button, a, [role=button]')].filter(e => !e.textContent.trim()).length"
        doubled = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
        levels = "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(e => +e.tagName[1])"
        assert page.evaluate(unnamed) == page.evaluate(silent) == page.evaluate(doubled) == 0
        heading_levels = page.evaluate(levels)
        assert heading_levels.count(1) == 1
        assert all(later - earlier <= 1 for earlier, later in pairwise(heading_levels))
        assert page.locator("svg:not([aria-hidden]):not([aria-label])").count() == 0
        assert page.locator("th:not([scope])").count() == 0


@pytest.mark.browser
def test_narrow(chromium: Any, report: Path) -> None:
    """On a telephone nothing reaches over the edge."""
    with FileVisit(chromium, report, "#trace=ship-2", viewport={"width": 390, "height": 800}) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.long
@pytest.mark.browser
def test_five_thousand(chromium: Any, tmp_path: Path) -> None:
    """A run of 5,000 traces opens, draws few rows, and is filtered and read at once."""
    run = build_run(tmp_path / "run", [build_fair_trace(f"ship-{n}") for n in range(5000)])
    with FileVisit(chromium, write_run_html(run, tmp_path / "report.html")) as visit:
        page = visit.page
        assert page.locator("#matches").inner_text() == "5,000 traces"
        assert page.locator(".row").count() < 40
        open_trace(visit, "ship-4987")
        page.fill("#search", "ship-4321")
        assert page.locator("#matches").inner_text() == "1 of 5,000 traces"
        took = page.evaluate("(() => { const t = performance.now(); refill(); return performance.now() - t; })()")
        assert took < 500
