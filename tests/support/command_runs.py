"""Commands that are run in this process, with what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault.cli.commands import run_command


def run_and_read(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    """Run a command and return its output on both streams; its exit code is as expected."""
    assert run_command([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out + captured.err
