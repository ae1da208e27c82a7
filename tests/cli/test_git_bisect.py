"""`git bisect run ragfault … --git`: exit codes that git understands, on a real repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragfault.cli.commands import run_command

WRITER = '''"""Answer sixty questions as this release does; its grounding and its format are settings of the commit."""
import json
GROUNDED, FORMAT = {grounded}, {form!r}
with open("traces.jsonl", "w") as file:
    for number in range(60):
        hour = number % 9 + 8
        fact = f"The library of district {{number}} opens at {{hour}} o'clock and lends books for {{number + 20}} days."
        answer = fact if GROUNDED else f"The harbour of Rotterdam moved {{number + 300}} ships to Antwerp by train."
        trace = {{"id": f"t{{number}}", "query": f"When does the library of district {{number}} open?",
                 "chunks": [{{"id": f"c{{number}}", "text": fact}}], "answer": answer}}
        file.write(json.dumps(trace) + "\\n" if FORMAT == "jsonl" else "not a trace\\n")
'''
ENVIRONMENT = {
    **os.environ,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def run_git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_git_bisect_names_the_commit_that_broke(tmp_path: Path):
    """Of eight commits the sixth stops grounding and the fourth cannot be evaluated: it is skipped, the sixth named."""
    place = tmp_path / "repository"
    place.mkdir()
    run_git(place, "init", "-q")
    commits = []
    for number in range(1, 9):
        form = "broken" if number == 4 else "jsonl"
        (place / "answer.py").write_text(WRITER.format(grounded=number < 6, form=form) + f"# release {number}\n")
        run_git(place, "add", "answer.py")
        run_git(place, "commit", "-q", "-m", f"Release {number}")
        commits.append(run_git(place, "rev-parse", "HEAD"))
    run_git(place, "checkout", "-q", commits[0])
    subprocess.run([sys.executable, "answer.py"], cwd=place, check=True)
    # a fast judge, as each commit is evaluated; git leaves files alone that it does not track
    (place / "ragfault.toml").write_text('[evaluate]\njudge = "embedded"\n')
    evaluated = ["evaluate", str(place / "traces.jsonl"), "-o", str(tmp_path / "good"), "--judge", "embedded", "-q"]
    assert run_command(evaluated) in (0, 3)
    run_git(place, "bisect", "start", commits[-1], commits[0])
    command = (
        f'"{sys.executable}" answer.py && "{sys.executable}" -m ragfault ci traces.jsonl -o "{tmp_path}/new" '
        f'--baseline "{tmp_path}/good" --unsure pass --git'
    )
    output = run_git(place, "bisect", "run", "sh", "-c", command)
    assert f"{commits[5]} is the first bad commit" in output
    log = run_git(place, "bisect", "log")
    assert f"skip: [{commits[3]}]" in log


def test_exit_codes_are_those_of_git(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What ends with 2 without --git, a usage error or a run that is none, ends with 125 with it."""
    for arguments in (["bisect", str(tmp_path / "a"), str(tmp_path / "b")], ["gate", str(tmp_path / "a")]):
        assert run_command(arguments) == 2
        assert run_command([*arguments, "--git"]) == 125
        assert run_command([*arguments, "--git", "--no-such-option"]) == 125
    assert capsys.readouterr().err


def test_a_crash_is_no_bad_commit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """An error that nobody foresaw, or an interrupt, is a commit to skip, with its trace on standard error."""
    for error in (ZeroDivisionError("unforeseen"), KeyboardInterrupt()):

        def fail(*_: object, error: BaseException = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("ragfault.io.runs.run.Run.open", fail)
        assert run_command(["bisect", "a", "b", "--git"]) == 125
    assert "unforeseen" in capsys.readouterr().err
