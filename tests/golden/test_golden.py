"""What ragfault makes of the stored inputs is what is stored; `make golden` prints the differences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", ["records", pytest.param("verbs", marks=pytest.mark.long)])
def test_results_are_those_that_are_stored(part: str):
    """`make golden` finds no difference; after an intended change `make golden-update` stores the new results."""
    command = [sys.executable, "-m", "tests.golden", part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
