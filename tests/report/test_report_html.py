"""The HTML report as a text: one page that asks for nothing, trusts no text, and loses no trace."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ragfault import evaluate
from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.runs.run import Run
from ragfault.model.errors import OutputError
from ragfault.model.records import Chunk, Trace, Verdicts
from ragfault.report.html.report import render_run_html, write_run_html
from report_pages import PageNames
from sample_reports import build_mixed_run, build_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build_mixed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def report(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run_html(run, tmp_path_factory.mktemp("report") / "report.html")


def carried(page: str) -> list[Any]:
    """Decode the bodies of all traces in a page."""
    blocks = re.findall(r'<script type="application/gzip" id="block-\d+">([^<]+)</script>', page)
    return [body for block in blocks for body in json.loads(gzip.decompress(base64.b64decode(block)))]


def test_self_contained(report: Path) -> None:
    """The page names nothing outside itself: links lead into it, and nothing is loaded."""
    page = report.read_text("utf-8")
    parser = PageNames()
    parser.feed(page)
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "harbour – ragfault report</title>" in page
    assert {link.partition("#")[0] for link in parser.links} == {"", "data:,"}
    assert not parser.elements & {"img", "iframe", "object", "embed", "base", "video", "audio", "source", "b"}
    assert not {name for name in parser.attributes if name in ("src", "style", "srcset") or name.startswith("on")}


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


def test_each_cause_leads_to_its_traces(run: Run, report: Path) -> None:
    """The count of a cause narrows the list to traces that the index has under that cause, as many as it says."""
    page = report.read_text("utf-8")
    packed = re.search(r'<script type="application/gzip" id="index">([^<]+)</script>', page)
    assert packed is not None
    index = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    answers = analyze(run).answers
    assert answers is not None
    assert answers.causes
    for cause in answers.causes:
        assert f'data-filter="cause" data-value="{cause.cause}"' in page
        assert index["cause"].count(index["causes"].index(cause.cause)) == cause.answers


def test_every_metric_shown(run: Run, report: Path) -> None:
    """Every metric stands in a panel: with its figures, or among those without a value and why."""
    page = report.read_text("utf-8")
    for measure in run.manifest.metrics:
        row = f'<th scope="row">{measure.name}&nbsp;'
        assert row in page or re.search(rf"No value on any trace.*{re.escape(measure.name)} \(", page)


def test_long_text_cut(tmp_path: Path) -> None:
    """A text too long for a page is cut, and the page says by how much."""
    trace = Trace(id="1", query="q", chunks=(Chunk(id="a", text="x" * 90_000),), answer="y")
    [body] = carried(render_run_html(build_run(tmp_path / "r", [(trace, Verdicts(trace="1"))])))
    assert body["trace"]["chunks"][0]["text"].endswith("x… [40,000 characters more]")


@pytest.mark.long
def test_output_is_not_replaced(run: Run, tmp_path: Path) -> None:
    """A file that stands there is kept unless forced, and a refused place leaves nothing behind."""
    place = tmp_path / "report.html"
    place.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write_run_html(run, place)
    assert place.read_text() == "mine"
    with pytest.raises(OutputError, match="cannot write"):
        write_run_html(run, tmp_path / "nowhere" / "report.html")
    with pytest.raises(OutputError, match="is a directory"):
        write_run_html(run, tmp_path)
    assert write_run_html(run, place, force=True).read_text("utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def colours() -> dict[str, tuple[str, str]]:
    """Read the palette: name → its colour in the light and in the dark theme."""
    import ragfault

    css = (Path(ragfault.__file__).parent / "report" / "html" / "static" / "page.css").read_text("utf-8")
    return {name: (a, b) for name, a, b in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}


def contrast(first: str, second: str) -> float:
    """Compute the contrast of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(first), luminance(second)))
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
    drawings = [(name, "page") for name in ("edge", "relevance", "use", "accent", "good", "so", "warn", "bad")]
    assert {
        pair: contrast(palette[pair[0]], palette[pair[1]])
        for pair in texts
        if contrast(palette[pair[0]], palette[pair[1]]) < 4.5
    } == {}
    assert {
        pair: contrast(palette[pair[0]], palette[pair[1]])
        for pair in drawings
        if contrast(palette[pair[0]], palette[pair[1]]) < 3
    } == {}


def test_a_page_says_no_problem_only_where_one_was_looked_for(tmp_path: Path) -> None:
    """Without a judge nothing was, as the terminal says, too."""
    page = render_run_html(evaluate([Trace(id="1", query="When?", answer="At ten.")], tmp_path / "run", judge="none"))
    assert "No problem was looked for: there was no judge." in page
