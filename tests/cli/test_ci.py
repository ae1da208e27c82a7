"""Laws of `ragfault ci` and of the templates that run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from ragfault.cli.commands import run_command
from ragfault.cli.gate import ci
from ragfault.report.markdown.pull_request_comment import COMMENT_MARKER, MAX_COMMENT_LENGTH, render_comment

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "ci-templates"
SETTINGS = '[evaluate]\njudge = "embedded"\n'
"""A judge that is fast, as every test evaluates anew."""


@pytest.fixture(scope="module")
def place(demo_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo, and settings."""
    folder = tmp_path_factory.mktemp("ci")
    shutil.copytree(demo_runs / "handbook", folder / "handbook")
    (folder / "ragfault.toml").write_text(SETTINGS, "utf-8")
    return folder


def run_verb(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run the verb and return its output; its exit code is as expected."""
    assert run_command(["ci", *arguments]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


@pytest.mark.long
def test_the_layer_stands_on_the_first_line(here: Path, capsys: pytest.CaptureFixture[str]):
    """Without a baseline nothing is decided, and that is said; beside one the comment opens with the layer."""
    text = run_verb(
        capsys, "handbook/traces-v1.jsonl", "-o", "main", "--baseline", "nowhere", "--comment", "a.md", code=0
    )
    assert (
        "no run at the baseline nowhere, and there are no thresholds: only whether most traces failed is checked"
        in text
    )
    assert "104 traces in main" in text
    assert Path("a.md").read_text("utf-8").startswith("### ❔ ragfault: evaluated without thresholds or a baseline\n")
    given = ("handbook/traces-v2.jsonl", "-o", "new", "--baseline", "main", "--threshold", "error<=0.5")
    assert run_command(["ci", *given, "--comment", "b.md", "--junit", "b.xml", "--report", "b.html"]) == 1
    assert capsys.readouterr().out.startswith("FAULT: Retrieval broke")
    lines = Path("b.md").read_text("utf-8").splitlines()
    assert lines[0].startswith("### ❌ Retrieval broke")
    assert lines[-1] == COMMENT_MARKER
    cases = [case.get("name") for case in ElementTree.parse("b.xml").iter("testcase")]
    assert "error<=0.5" in cases
    assert "<html" in Path("b.html").read_text("utf-8")[:200]


def test_a_run_of_which_most_traces_failed_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Where nothing is asked, or what cannot be told is let by, errors or blank answers on most traces still fail."""
    settings = tmp_path / "ragfault.toml"
    settings.write_text('[evaluate]\njudge = "lexical"\nmetrics = ["operation", "groundedness"]\n', "utf-8")
    for name, failure, code in (("e", {"error": "time-out"}, 1), ("b", {"answer": ""}, 1), ("g", {}, 0)):
        lines = [{"id": f"{n}", "query": f"Pier {n}?", "answer": "Yes.", "chunks": [], **failure} for n in range(12)]
        path, out = tmp_path / f"{name}.jsonl", str(tmp_path / name)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        run_verb(capsys, str(path), "-o", out, "--config", str(settings), code=code)
        asked = ("--threshold", "tokens<=900", "--unsure", "pass")
        run_verb(capsys, str(path), "-o", out, "--config", str(settings), *asked, code=code)


@pytest.mark.long
def test_the_same_again_passes_or_cannot_tell(here: Path, capsys: pytest.CaptureFixture[str]):
    """A run beside itself breaks nothing; what cannot be told is no pass unless it is let by."""
    run_verb(capsys, "handbook/traces-v1.jsonl", "-o", "one", code=0)
    Path("ragfault.toml").write_text(f'{SETTINGS}[gate]\nthresholds = ["groundedness>=0.87"]\n', "utf-8")
    try:
        given = ("handbook/traces-v1.jsonl", "-o", "two", "--baseline", "one", "--comment", "c.md")
        run_verb(capsys, *given, code=3)
        first = Path("c.md").read_text("utf-8").splitlines()[0]
        assert first.startswith("### ❔ cannot tell: `groundedness>=0.87`. No layer broke")
        run_verb(capsys, *given, "--unsure", "pass", code=0)
    finally:
        Path("ragfault.toml").write_text(SETTINGS, "utf-8")


@pytest.mark.long
def test_a_baseline_is_never_replaced_before_it_is_compared(
    demo_runs: Path, here: Path, capsys: pytest.CaptureFixture[str]
):
    """A run that would replace its own baseline is refused, however the path is written; nothing is judged for it."""
    shutil.copytree(demo_runs / "v1", "same")
    manifest = Path("same/manifest.json").read_bytes()
    text = run_verb(capsys, "handbook/traces-v2.jsonl", "-o", "same", "--baseline", f"{here}/same/", code=2)
    assert "is both the baseline and the output" in text
    assert Path("same/manifest.json").read_bytes() == manifest


def test_wrong_arguments_are_reported_before_anything_is_judged(here: Path, capsys: pytest.CaptureFixture[str]):
    """A threshold that is none, or a baseline that is no run, ends the command before a run is written."""
    for more in (("--threshold", "groundedness=0.9"), ("--baseline", "handbook")):
        run_verb(capsys, "handbook/traces-v1.jsonl", "-o", "early", *more, code=2)
    assert not Path("early").exists()


def test_other_names_and_bad_lines_are_taken_as_by_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What an error of reading advises, --map or --skip-bad, is an option of this verb too."""
    monkeypatch.chdir(tmp_path)
    line = '{"zz": "When does it open?", "chunks": ["It opens at ten."], "answer": "At ten."}\n'
    Path("t.jsonl").write_text(line + "{\n", "utf-8")
    assert "--map" in run_verb(capsys, "t.jsonl", "-o", "run", code=2)
    assert "--skip-bad" in run_verb(capsys, "t.jsonl", "-o", "run", "--map", "query=zz", code=2)
    given = ("--map", "query=zz", "--skip-bad", "--junit", "j.xml")
    assert "1 traces in run" in run_verb(capsys, "t.jsonl", "-o", "run", *given, code=0)
    assert ElementTree.parse("j.xml").getroot().get("tests") == "0"


def test_a_comment_is_never_too_long():
    """What does not fit is left out whole, and that is said; the mark is there in any case."""
    comment = render_comment(None, None, notes=("a " * MAX_COMMENT_LENGTH,))
    assert len(comment) < MAX_COMMENT_LENGTH
    assert "too long for a comment" in comment
    assert comment.endswith(COMMENT_MARKER + "\n")


def commands() -> dict[str, str]:
    """Return the line of each template that calls ragfault."""
    return {
        name: "\n".join(re.findall(r"^\s*(ragfault ci .*)$", (TEMPLATES / name).read_text("utf-8"), re.M))
        for name in ("github-action/action.yml", "gitlab.yml")
    }


def test_both_templates_run_the_same_command():
    """GitHub's action and GitLab's job call the very same line, and it is one that the command line takes."""
    [line] = set(commands().values())
    words = shlex.split(line.split("||")[0].replace("$", ""))
    assert words[:2] == ["ragfault", "ci"]
    ci.make_context("ci", [word.replace("UNSURE", "fail") for word in words[2:]])


@pytest.mark.parametrize("name", sorted(path.name for path in TEMPLATES.rglob("*.yml")))
def test_templates_are_yaml(name: str):
    """Every template parses, and what it needs is there."""
    [path] = TEMPLATES.rglob(name)
    template = yaml.safe_load(path.read_text("utf-8"))
    if name == "action.yml":
        assert template["runs"]["using"] == "composite"
        assert all("shell" in step for step in template["runs"]["steps"] if "run" in step)
    elif name == "github-workflow.yml":
        steps = template["jobs"]["ragfault"]["steps"]
        [used] = [step for step in steps if step.get("uses", "").startswith("./")]
        action = yaml.safe_load((TEMPLATES / "github-action/action.yml").read_text("utf-8"))
        assert set(used["with"]) <= set(action["inputs"])
    elif name == "github-weekly.yml":
        assert template["jobs"]["testset"]["env"] == {"TESTSET": "set.jsonl", "CORPUS": "docs/"}
    elif name == "pre-commit.yml":
        [hook] = template["repos"][0]["hooks"]
        words = shlex.split(hook["entry"])
        assert words[:2] == ["ragfault", "ci"]
        ci.make_context("ci", words[2:])
    else:
        assert template["ragfault"]["artifacts"]["reports"]["junit"] == "ragfault/junit.xml"


def scripts() -> list[tuple[str, str]]:
    """Return the step of each template that calls ragfault, as the shell is given it."""
    action = yaml.safe_load((TEMPLATES / "github-action/action.yml").read_text("utf-8"))
    [step] = [step["run"] for step in action["runs"]["steps"] if "ragfault ci" in step.get("run", "")]
    job = yaml.safe_load((TEMPLATES / "gitlab.yml").read_text("utf-8"))["ragfault"]
    return [("github", step), ("gitlab", job["script"][0])]


@pytest.mark.long
@pytest.mark.parametrize(("name", "script"), scripts(), ids=["github", "gitlab"])
def test_the_steps_run_in_a_shell(name: str, script: str, place: Path, tmp_path: Path):
    """The step that evaluates runs in bash as it stands, leaves the comment, and ends in the exit code of the verb."""
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TRACES": str(place / "handbook/traces-v1.jsonl"),
        "UNSURE": "fail",
        "GITHUB_STEP_SUMMARY": "summary.md",
        "GITHUB_OUTPUT": "output",
    }
    (tmp_path / "ragfault.toml").write_text(SETTINGS, "utf-8")
    for traces, code in (("v1", 0), ("v2", 1)):
        env["TRACES"] = str(place / f"handbook/traces-{traces}.jsonl")
        done = subprocess.run(
            ["bash", "-e", "-c", script], check=False, cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        if code == 0:
            (tmp_path / "ragfault/candidate").rename(tmp_path / "ragfault/baseline")
    assert (tmp_path / "ragfault/comment.md").read_text("utf-8").startswith("### ❌ Retrieval broke")
    if name == "github":
        verdict = (tmp_path / "output").read_text("utf-8").splitlines()[-1]
        assert verdict.startswith("verdict=❌ Retrieval broke")
        assert "50 of 104 answers became bad" in verdict


def test_the_baseline_is_that_of_the_last_push_with_a_run(tmp_path: Path):
    """Pushes whose job was cancelled, or broke before it evaluated, kept none; where none did, a warning says so."""
    action = yaml.safe_load((TEMPLATES / "github-action/action.yml").read_text("utf-8"))
    [script] = [step["run"] for step in action["runs"]["steps"] if "gh run" in step.get("run", "")]
    listing = 'if [ "$1 $2" = "run list" ]; then printf "3\\n2\\n1\\n"; exit; fi\n'
    (tmp_path / "gh").write_text(f'#!/bin/sh\n{listing}[ "$3" = "$WITH_RUN" ] && mkdir -p ragfault/baseline/$3\n')
    (tmp_path / "gh").chmod(0o755)
    for push in ("2", ""):
        place = tmp_path / f"job{push}"
        place.mkdir()
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        env = os.environ | {"PATH": path, "WITH_RUN": push, "GITHUB_WORKFLOW": "RAG", "GITHUB_BASE_REF": "main"}
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], check=True, cwd=place, env=env, capture_output=True, text=True
        )
        assert [at.name for at in place.glob("ragfault/baseline/*")] == [push] * bool(push)
        assert ("::warning::main kept no run" in done.stdout) is not bool(push)


def weekly_scripts() -> list[tuple[str, str]]:
    """Return the steps of each template that audit a corpus and refresh a set, as one script."""
    weekly = yaml.safe_load((TEMPLATES / "github-weekly.yml").read_text("utf-8"))
    steps = [step["run"] for step in weekly["jobs"]["testset"]["steps"] if "ragfault testset" in step.get("run", "")]
    job = yaml.safe_load((TEMPLATES / "gitlab.yml").read_text("utf-8"))["ragfault-testset"]
    return [("github", "\n".join(steps)), ("gitlab", job["script"][0])]


@pytest.mark.long
@pytest.mark.parametrize(("name", "script"), weekly_scripts(), ids=["github", "gitlab"])
def test_the_weekly_steps_fail_where_gold_broke_and_not_for_findings_of_the_audit(
    name: str, script: str, tmp_path: Path
):
    """Both write the findings and the refreshed set; the exit code is that of the refresh."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for at, year in enumerate((1901, 1902, 1903)):
        text = f"# Pier {at}\n\nPier {at} was built by Ola Brand in {year} from granite of the Tarvik quarry.\n"
        (docs / f"pier{at}.md").write_text(f"{text}\n## Empty\n")
    items = tmp_path / "set.jsonl"
    assert run_command(["testset", "make", str(docs), "-o", str(items), "-n", "2"]) == 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "TESTSET": "set.jsonl", "CORPUS": "docs/"}
    for code in (0, 1):
        done = subprocess.run(
            ["bash", "-e", "-c", script.replace(" -o ragfault", " --force -o ragfault")],
            check=False,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        assert (tmp_path / "ragfault/findings.jsonl").read_text()
        for document in docs.iterdir():
            document.write_text(document.read_text().replace("Ola Brand", "Eva Dahl"))
