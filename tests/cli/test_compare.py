"""`ragfault compare` and `ragfault bisect`: what a user types, what comes back, and with which exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from command_runs import run_and_read
from ragfault import evaluate
from ragfault.cli.commands import run_command
from ragfault.io.runs.run import Run
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.model.records import Trace

METRICS = ("context_relevance", "groundedness", "completeness", "answer_relevance", "latency")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of both versions of the demo system, one by a stricter judge, and a copy."""
    folder = tmp_path_factory.mktemp("place")
    assert run_command(["demo", str(folder / "handbook")]) == 0
    for name in ("v1", "v2"):
        evaluate(folder / f"handbook/traces-{name}.jsonl", folder / name, judge="embedded", metrics=METRICS)
    evaluate(folder / "handbook/traces-v1.jsonl", folder / "strict", judge=LexicalJudge(supported=0.9), metrics=METRICS)
    shutil.copytree(folder / "v1", folder / "copy")
    return folder


def test_compare_ends_with_0_whatever_moved(place: Path, capsys: pytest.CaptureFixture[str]):
    """Metrics got worse, the table says so, the last line names the verb for the layer, and the exit code is 0."""
    out = run_and_read(capsys, "compare", place / "v1", place / "v2", "--full")
    assert "104 of 104 traces of v1 paired by id (100 %)" in out
    assert "▼ worse" in out
    assert "What got worse" in out
    assert out.endswith(f"The layer to blame: ragfault bisect {place / 'v1'} {place / 'v2'}\n")


@pytest.mark.parametrize("verb", ["compare", "bisect"])
def test_the_first_screen_has_twelve_lines(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
):
    """How many answers became bad and for which cause, within twelve lines of 100 columns; --full prints the tables."""
    monkeypatch.setenv("COLUMNS", "100")
    run_command([verb, str(place / "v1"), str(place / "v2")])
    screen = capsys.readouterr().out
    assert len(screen.splitlines()) <= 12
    assert "became bad" in screen.splitlines()[0]
    assert "the passage was not retrieved" in screen
    run_command([verb, str(place / "v1"), str(place / "v2"), "--full"])
    assert "groundedness" in capsys.readouterr().out


def test_a_fault_ends_with_1(place: Path, capsys: pytest.CaptureFixture[str]):
    """The sentence comes first, and it names the layer."""
    out = run_and_read(capsys, "bisect", place / "v1", place / "v2", code=1)
    assert out.startswith("FAULT: Retrieval broke")


def test_a_run_beside_itself_is_never_at_fault(place: Path, capsys: pytest.CaptureFixture[str]):
    """Where chunks, answers and citations are the very same, nothing broke (exit 0) and nothing is worse."""
    assert run_and_read(capsys, "bisect", place / "v1", place / "copy").startswith("NO FAULT: ")
    assert run_and_read(capsys, "compare", place / "v1", place / "copy").count("worse") == 0


def test_margins_are_those_of_the_flags(place: Path, capsys: pytest.CaptureFixture[str]):
    """A margin for one metric goes before the margin for all."""
    out = run_and_read(
        capsys,
        "compare",
        place / "v1",
        place / "v2",
        "--format",
        "json",
        "--margin",
        "0.05",
        "--margins",
        "groundedness=0.9",
        "--margins",
        "latency=1e9",
        "--alpha",
        "0.01",
    )
    data = json.loads(out)
    margins = {change["metric"]: change["margin"] for change in data["changes"]}
    assert margins["context_relevance"] == 0.05
    assert (margins["groundedness"], margins["latency"]) == (0.9, 1e9)
    assert data["alpha"] == 0.01


def test_margins_also_come_from_the_settings(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """ragfault.toml sets what no flag does; a margin of the settings may name a metric that the runs lack."""
    monkeypatch.chdir(tmp_path)
    Path("ragfault.toml").write_text(
        "[compare]\nmargin = 0.1\nalpha = 0.02\n[compare.margins]\ngroundedness = 0.3\nndcg = 0.1\n"
    )
    data = json.loads(run_and_read(capsys, "compare", place / "v1", place / "v2", "--format", "json"))
    margins = {change["metric"]: change["margin"] for change in data["changes"]}
    assert (data["alpha"], margins["context_relevance"], margins["groundedness"]) == (0.02, 0.1, 0.3)
    data = json.loads(
        run_and_read(capsys, "compare", place / "v1", place / "v2", "--format", "json", "--margin", "0.2")
    )
    assert data["changes"][0]["margin"] == 0.2
    Path("ragfault.toml").write_text("[compare]\nmargn = 0.1\n")
    assert 'Did you mean "margin"' in run_and_read(capsys, "compare", place / "v1", place / "v2", code=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "v1", "nope"], "no run at"),
        (["compare", "v1", "v2", "--margins", "groundednes=0.1"], 'Did you mean "groundedness"'),
        (["compare", "v1", "v2", "--margins", "groundedness=-1"], "a value above 0"),
        (["compare", "v1", "v2", "--margins", "groundedness"], "write METRIC=VALUE"),
        (["compare", "v1", "v2", "--alpha", "2"], "is not in the range 0<x<1"),
        (["compare", "v1", "v2", "-o", "page.csv"], "has no known suffix: use one of .html, .md, .json, .txt"),
        (["compare", "v1", "v2", "--by", "rout"], 'Did you mean "route"'),
        (["bisect", "v1"], "bisect takes two runs"),
        (["bisect", "handbook"], "holds 0 runs"),
        (["bisect", "v1", "v2", "-o", "x.csv"], ".html"),
        (["bisect", "v1", "v2", "copy", "--by", "route"], "--by: not for 3 runs"),
        (["compare", "strict", "v1"], "judge"),
    ],
)
def test_what_cannot_be_is_one_message_and_exit_2(
    place: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """What was asked, what there is, what to do; never a traceback, and nothing is written."""
    monkeypatch.chdir(place)
    assert says in run_and_read(capsys, *arguments, code=2)
    assert not list(place.glob("page.*"))


@pytest.mark.long
def test_other_judges_are_refused_warned_of_or_replaced(place: Path, capsys: pytest.CaptureFixture[str]):
    """Refused; with --anyway a warning; with --rejudge the older traces are judged as the candidate's were."""
    assert "--rejudge" in run_and_read(capsys, "compare", place / "strict", place / "v1", code=2)
    assert "warning: " in run_and_read(capsys, "compare", place / "strict", place / "v1", "--anyway")
    before = sorted(place.rglob("*"))
    out = run_and_read(capsys, "compare", place / "strict", place / "v1", "--rejudge", "--margin", "0.1")
    assert "judging 104 traces" in out
    assert "identical chunks on every pair" in " ".join(out.split())
    assert "worse" not in out
    again = run_and_read(capsys, "compare", place / "strict", place / "v1", "--rejudge", "--workers", "2")
    assert "identical chunks on every pair" in " ".join(again.split())
    assert "Give --rejudge" in run_and_read(capsys, "compare", place / "v1", place / "v1", "--workers", "2", code=2)
    assert sorted(place.rglob("*")) == before
    assert Run.open(place / "strict").manifest.judge != Run.open(place / "v1").manifest.judge


def test_a_judge_that_is_not_here_cannot_judge_again(place: Path, capsys: pytest.CaptureFixture[str]):
    """The candidate's judge has other settings than the one here: the message names both."""
    out = run_and_read(capsys, "bisect", place / "v1", place / "strict", "--rejudge", code=2)
    assert "supported=0.9" in out
    assert "supported=0.7" in out
    assert "--anyway" in out


@pytest.mark.long
def test_segments_have_a_verdict_each(place: Path, capsys: pytest.CaptureFixture[str]):
    """A line for each route first, the faulty ones in full after; compare has a table for each."""
    out = run_and_read(capsys, "bisect", place / "v1", place / "v2", "--by", "route", code=1)
    assert out.startswith("FAULT: 6 segments by route: ")
    assert "fault        travel" in out
    data = json.loads(
        run_and_read(capsys, "bisect", place / "v1", place / "v2", "--by", "route", "--format", "json", code=1)
    )
    assert (data["verdict"], data["by"], len(data["segments"])) == ("fault", "route", 6)
    assert "route travel" in run_and_read(capsys, "compare", place / "v1", place / "v2", "--by", "route")


def test_what_no_trace_has_divides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Traces without a route: the message says that a ratio is not possible."""
    evaluate([Trace(id="1", query="When?", answer="At noon.")], tmp_path / "a", metrics=["error"])
    for verb in ("compare", "bisect"):
        out = run_and_read(capsys, verb, tmp_path / "a", tmp_path / "a", "--by", "route", code=2)
        assert "a ratio is not possible" in out


@pytest.mark.long
def test_a_file_is_written_completely_and_never_over_another(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Each suffix names its format; the sentence is said on the screen; what stands there stays."""
    for name, begins in (("b.html", "<!doctype html>"), ("b.md", "### ❌ fault: "), ("b.json", "{")):
        out = run_and_read(capsys, "bisect", place / "v1", place / "v2", "-o", tmp_path / name, code=1)
        assert out.startswith("fault: Retrieval broke")
        assert (tmp_path / name).read_text("utf-8").startswith(begins)
    run_and_read(capsys, "compare", place / "v1", place / "v2", "-o", tmp_path / "c.html")
    assert "groundedness" in (tmp_path / "c.html").read_text("utf-8")
    (tmp_path / "mine.md").write_text("mine")
    assert "exists already" in run_and_read(
        capsys, "compare", place / "v1", place / "v2", "-o", tmp_path / "mine.md", code=2
    )
    assert (tmp_path / "mine.md").read_text() == "mine"
    run_and_read(capsys, "compare", place / "v1", place / "v2", "-o", tmp_path / "mine.md", "--force")
    assert (tmp_path / "mine.md").read_text("utf-8").startswith("### 🔻 ")


@pytest.mark.long
def test_of_many_runs_the_one_that_broke(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Three runs like the first, two like the last: it broke at the fourth; in three that are the same no run did."""
    for at, name in enumerate(("v1", "v1", "v1", "v2", "v2")):
        shutil.copytree(place / name, tmp_path / f"run-{at}")
    runs = [tmp_path / f"run-{at}" for at in range(5)]
    out = run_and_read(capsys, "bisect", *runs, code=1)
    first = "FAULT: Worse at run-3 (retrieval: the wrong chunks are retrieved), not shown to have recovered"
    assert " ".join(out.split()).startswith(first)
    assert "ragfault bisect run-2 run-3" in out
    data = json.loads(run_and_read(capsys, "bisect", tmp_path, "--format", "json", code=1))
    assert data["broken"] == "run-3"
    assert run_and_read(capsys, "bisect", *runs, "--format", "md", code=1).startswith("### ❌ fault: Worse at run-3 ")
    assert run_and_read(capsys, "bisect", *runs[:3], code=0).startswith("NO FAULT: No run broke: every step")
