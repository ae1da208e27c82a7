"""The first certificate: the commands of docs/guard.md on the demo end in a promise, and state what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from ragfault.apps.guard.certificate import read_certificate
from ragfault.cli.commands import run_command
from ragfault.io.datasets.demo_handbook import write_handbook

PAGE = (Path(__file__).parents[3] / "docs" / "guard.md").read_text(encoding="utf-8")


def list_commands() -> list[str]:
    """List the commands of the first block of the page."""
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].strip().splitlines()


@pytest.mark.long
def test_the_commands_of_the_page_end_in_a_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for command in list_commands():
        name, *arguments = command.split()
        if name == "ragfault":
            assert run_command(arguments) == 0, command
        else:
            subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert "answers released" in capsys.readouterr().out
    certificate = read_certificate("certificate.json")
    [part] = certificate.routes
    assert certificate.promises
    assert part.bound is not None
    assert part.bound <= 0.1
    assert part.threshold is not None
    assert part.released_share is not None
    flat = " ".join(PAGE.split())
    assert f"risk up to {part.threshold:.3f}: {part.released_share.mean:.0%}".replace("%", " %") in flat
    assert f"(bound {part.bound:.3f})" in flat


def test_the_labels_of_the_demo_are_those_of_its_traces(tmp_path: Path) -> None:
    write_handbook(tmp_path)
    rows = [msgspec.json.decode(line) for line in (tmp_path / "labelled.jsonl").read_bytes().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == 205
    assert sum(row["label"] for row in rows) == 59
    traces = {
        f"{version}/{trace['id']}": trace
        for version in ("v1", "v2")
        for trace in map(msgspec.json.decode, (tmp_path / f"traces-{version}.jsonl").read_bytes().splitlines())
    }
    for row in rows:
        assert row["answer"] == traces[row["id"]]["answer"]
        assert row["contexts"] == [chunk["text"] for chunk in traces[row["id"]]["chunks"]]
    worse = {version: [row["label"] for row in rows if row["id"].startswith(version)] for version in ("v1", "v2")}
    assert sum(worse["v1"]) < sum(worse["v2"]) / 5
