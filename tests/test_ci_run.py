"""The script of continuous integration names tests that pass only when they are run again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"
TESTS = """
import pathlib
import pytest

MARK = pathlib.Path(__file__).with_name("seen")


@pytest.mark.parametrize("name", ["a b", "c[*]"])
def test_unstable(name):
    seen = MARK.read_text() if MARK.exists() else ""
    MARK.write_text(seen + name)
    assert name in seen


def test_steady():
    assert {steady}
"""


@pytest.mark.long
@pytest.mark.parametrize("steady", [True, False])
def test_a_test_that_passes_only_at_the_second_run_is_named(tmp_path: Path, steady: bool):
    """It is named in the output, and the exit code is that of the second run."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\n[ "$1" = test ] || exit 0\nexec .venv/bin/python -m pytest -m "not long"\n')
    for program in (python, make, tmp_path / "chromium"):
        program.touch()
        program.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (tmp_path / "test_some.py").write_text(TESTS.format(steady=steady))
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(tmp_path / ".ci" / "run")], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == int(not steady), done.stdout + done.stderr
    named = [line for line in done.stdout.splitlines() if line.startswith("passed only at the second run: ")]
    assert [line.split("::")[1] for line in named] == ["test_unstable[a b]", "test_unstable[c[*]]"]
