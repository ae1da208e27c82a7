"""The page of capabilities: each row leads to a page, a command or name, and a test that are there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from ragfault.cli.commands import COMMANDS, cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROW = re.compile(r"^\| (?P<what>.+?) \| \[[^\]]+\]\((?P<page>[^)]+)\) \| `(?P<command>[^`]+)` \| `(?P<test>[^`]+)` \|$")


def read_rows() -> list[dict[str, str]]:
    """Return the rows of all tables of the page; one of another form stands as its line alone."""
    lines = (DOCS / "capabilities.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| capability")]
    return [match.groupdict() if (match := ROW.match(line)) else {"line": line} for line in rows]


ROWS = read_rows()


def test_every_row_has_its_four_parts_and_stands_once():
    """A row is a capability, a page, a command or name and a test."""
    assert [row["line"] for row in ROWS if "line" in row] == []
    assert len({row["what"] for row in ROWS}) == len(ROWS) >= 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.get("what", "?")[:40])
def test_what_a_row_names_exists(row: dict[str, str]):
    """The page and the test are files, the command has the options, the name can be imported."""
    assert (DOCS / row["page"].split("#")[0]).is_file()
    test = ROOT / row["test"]
    assert test.is_file()
    assert re.search(r"^(async )?def test_", test.read_text(encoding="utf-8"), re.MULTILINE)
    if row["command"].startswith("ragfault "):
        check_command(row["command"].split()[1:])
    else:
        import_module(row["command"])


def check_command(words: list[str]) -> None:
    """Follow the words of a command line to its verb, and check its options."""
    command: click.Command = cli
    context = click.Context(cli, info_name="ragfault")
    options = [word for word in words if word.startswith("-")]
    for word in words[: len(words) - len(options)]:
        assert isinstance(command, click.Group), f"{word} follows a command that has no sub-commands"
        chosen = command.get_command(context, word)
        assert chosen is not None, word
        command = chosen
    names = {name for parameter in command.params for name in parameter.opts}
    assert set(options) <= names


def test_every_command_has_a_row():
    """No command of the overview is without a capability, but for those that only look things up."""
    named = {row["command"].split()[1] for row in ROWS if row["command"].startswith("ragfault ")}
    assert {name.split()[0] for name in COMMANDS} - named <= {"demo"}
