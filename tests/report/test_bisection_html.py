"""The page of a bisection: self-contained, harmless, and readable by eye, by key and by ear."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect, bisect_segments
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import Bisection
from ragfault.io.runs.run import Run
from ragfault.model.errors import OutputError
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.charts.forest_plot import describe_forest_row, draw_forest_plot
from ragfault.report.output import write_report_file
from ragfault.report.renderers.html import render_html_page
from report_pages import FileVisit, PageNames
from sample_reports import HOSTILE


@pytest.fixture(scope="module")
def bisection(runs: tuple[Run, Run]) -> Bisection:
    return bisect(*runs)


def spoiled(bisection: Bisection) -> Bisection:
    """Put an attack in place of every text that comes from outside."""
    fault = bisection.faults[0]
    examples = tuple(
        replace(row, trace=HOSTILE, query=HOSTILE, before=HOSTILE, after=HOSTILE) for row in fault.examples
    )
    clues = tuple(replace(clue, text=HOSTILE) for clue in bisection.differences)
    manifests = tuple(replace(manifest, judge=HOSTILE, created=HOSTILE) for manifest in bisection.comparison.manifests)
    changes = tuple(replace(row, metric=f"{row.metric} {HOSTILE}") for row in bisection.comparison.changes)
    return replace(
        bisection,
        sentence=HOSTILE,
        faults=(replace(fault, examples=examples, differences=clues),),
        tree=tuple(replace(row, why=HOSTILE) for row in bisection.tree),
        differences=clues,
        comparison=replace(
            bisection.comparison,
            baseline=HOSTILE,
            candidate=HOSTILE,
            warnings=(HOSTILE,),
            manifests=manifests,
            changes=changes,
        ),
    )


def test_self_contained(bisection: Bisection):
    """The page names nothing outside itself, loads nothing, and has a language and a title."""
    page = render_html_page(build_bisection(bisection), "bisection")
    parser = PageNames()
    parser.feed(page)
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>v1 → v2 – ragfault bisection</title>" in page
    assert {link.partition("#")[0] for link in parser.links} == {"", "data:,"}
    assert not parser.elements & {"img", "iframe", "object", "embed", "base", "video", "audio", "source"}
    assert not {n for n in parser.attributes if n in ("src", "style", "srcset") or n.startswith("on")}


def test_policy_by_hash(bisection: Bisection):
    """The security policy allows the one script and the one style sheet by their hashes, and nothing else."""
    page = render_html_page(build_bisection(bisection), "bisection")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]


def test_all_of_the_bisection_is_on_the_page(bisection: Bisection):
    """Sentence, suspects, remedies, clues, every branch, every metric, every example."""
    page = render_html_page(build_bisection(bisection), "bisection")
    for text in (
        bisection.sentence,
        *(suspect.stage for suspect in bisection.faults[0].suspects),
        *bisection.faults[0].remedies,
        *(clue.text for clue in bisection.differences),
        *(ruling.branch for ruling in bisection.tree),
        *(change.metric for change in bisection.comparison.changes),
        *(example.trace for example in bisection.faults[0].examples),
    ):
        assert text in page
    assert page.index(bisection.sentence) < page.index("How to fix it") < page.index("<h2>The decision tree</h2>")


def test_the_forest_says_what_it_draws(bisection: Bisection):
    """A drawing for each difference, named by where its interval lies; one without end has an arrow."""
    plot = draw_forest_plot(bisection.comparison.changes)
    known = [change for change in bisection.comparison.changes if change.difference is not None]
    assert plot is not None
    assert plot.count('role="img"') == len(known)
    assert "polygon" not in plot
    worst = known[0]
    assert "lies below the margin of 0.050" in describe_forest_row(worst)
    within = replace(worst, difference=replace(worst.difference, low=-0.01, high=0.015))
    assert describe_forest_row(within).endswith("lies within the margin of 0.050")
    across = replace(worst, difference=replace(worst.difference, low=-0.4, high=0.015))
    assert "includes zero and reaches over the margin" in describe_forest_row(across)
    endless = replace(worst, difference=replace(worst.difference, low=-float("inf")))
    assert str(draw_forest_plot([endless])).count("<polygon") == 1
    assert draw_forest_plot([replace(worst, difference=None)]) is None


def write_page(
    bisection: Bisection | Sequence[tuple[str, Bisection]], place: Path, *, by: str = "", force: bool = False
) -> Path:
    """Write a bisection, or those of segments, as one HTML page and return the path."""
    return write_report_file(place, render_html_page(build_bisection(bisection, by), "bisection"), force=force)


def test_the_file_is_not_replaced(bisection: Bisection, tmp_path: Path):
    """What stands there stays, unless forced."""
    place = tmp_path / "page.html"
    place.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write_page(bisection, place)
    assert place.read_text() == "mine"
    assert write_page(bisection, place, force=True).read_text("utf-8").startswith("<!doctype html>")


@pytest.fixture(scope="module")
def page(bisection: Bisection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(bisection, tmp_path_factory.mktemp("page") / "page.html")


@pytest.mark.browser
def test_hostile_text_inert(chromium: Any, bisection: Bisection, tmp_path: Path):
    """Whatever a text holds is shown as text: no script runs, no element appears, no link leads out."""
    place = write_page(spoiled(bisection), tmp_path / "page.html")
    with FileVisit(chromium, place) as visit:
        page = visit.page
        assert page.evaluate("window.pwned") is None
        assert page.locator("script").count() == 1
        assert page.locator("main :is(img, iframe, object, embed, base, form)").count() == 0
        assert page.evaluate("[...document.links].every(link => link.getAttribute('href').startsWith('#'))")
        text = page.locator("body").inner_text()
        assert "<img src=x onerror='window.pwned=2'>" in text
        assert not set(text) & {"\x1b", "\u202e", "\u2028"}
    place = write_page([(HOSTILE, spoiled(bisection))], tmp_path / "parts.html", by=HOSTILE)
    with FileVisit(chromium, place) as visit:
        page = visit.page
        assert page.evaluate("window.pwned") is None
        assert page.locator("script").count() == 1


@pytest.mark.long
@pytest.mark.browser
def test_named_and_in_order(chromium: Any, runs: tuple[Run, Run], page: Path, tmp_path: Path):
    """Every control has a name, every id is unique, headings skip no level, drawings are named, tables have heads."""
    parts = write_page(bisect_segments(pair_runs(*runs), "route"), tmp_path / "parts.html", by="route")
    doubled = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
    silent = "[...document.querySelectorAll('button, a')].filter(e => !e.textContent.trim()).length"
    levels = "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(e => +e.tagName[1])"
    lost = "[...document.links].filter(e => !document.getElementById(e.hash.slice(1)))"
    for place in (page, parts):
        with FileVisit(chromium, place) as visit:
            shown = visit.page
            assert shown.evaluate(doubled) == shown.evaluate(silent) == 0
            assert shown.evaluate(f"{lost}.map(e => e.hash)") == []
            heading_levels = shown.evaluate(levels)
            assert heading_levels.count(1) == 1
            assert all(later - earlier <= 1 for earlier, later in pairwise(heading_levels))
            assert shown.locator("svg:not([aria-hidden]):not([aria-label])").count() == 0
            assert shown.locator("th:not([scope])").count() == 0


@pytest.mark.browser
def test_keys_and_themes(chromium: Any, page: Path):
    """The first tab leads to the verdict; the page follows the reader's theme until the button says otherwise."""
    ground = "getComputedStyle(document.body).backgroundColor"
    with FileVisit(chromium, page, color_scheme="dark") as visit:
        shown = visit.page
        assert shown.evaluate(ground) == "rgb(21, 24, 28)"
        shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.className") == "skip"
        shown.keyboard.press("Enter")
        assert shown.evaluate("document.activeElement.id") == "section-0"
        shown.focus("#theme")
        shown.keyboard.press("Enter")
        assert shown.evaluate(ground) == "rgb(255, 255, 255)"
        assert shown.locator("#theme").get_attribute("aria-pressed") == "false"


@pytest.mark.browser
def test_narrow(chromium: Any, page: Path):
    """On a telephone nothing reaches over the edge, and the drawings are as wide as the page."""
    with FileVisit(chromium, page, viewport={"width": 390, "height": 800}) as visit:
        shown = visit.page
        assert shown.evaluate("document.documentElement.scrollWidth") == 390
        shown.locator("summary").first.click()
        assert shown.locator(".forest svg").first.bounding_box()["width"] > 300


@pytest.mark.browser
def test_outcomes_in_words(chromium: Any, page: Path):
    """What colour says of branches and metrics, a sign and a word say too."""
    with FileVisit(chromium, page) as visit:
        shown = visit.page
        shown.locator("summary").click()
        tree, metrics = (
            shown.locator("section", has_text=name).last.inner_text()
            for name in ("The decision tree", "The metrics of the tree")
        )
        assert "✗ fault" in tree
        assert "not reached" in tree
        assert "▼ worse" in metrics
        assert "? cannot tell" in metrics
