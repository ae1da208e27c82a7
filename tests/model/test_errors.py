"""Messages of errors: flags on the command line, parameters of Python elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from ragfault.cli.commands import cli
from ragfault.model.errors import (
    FLAGS_SHOWN,
    SWITCHES,
    BadDocuments,
    BadLine,
    BadRows,
    BadTraces,
    UsageError,
    name_parameters,
)

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ragfault"
FLAG = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*[a-z]|-[om])(?![\w-])")
COMMAND = re.compile(r"(?:ragfault [a-z]+|pip install|hf download|optimum-cli export) [^\n)]*")
NAMED = re.compile(r"(?<![\w.])([a-z_]+)=(?=[\"\d\[{(…T])")
OTHERS_FLAGS = ("cli", "cli.py", "options", "pytest.py", "__main__.py")
"""Modules that are used on a command line only: ragfault's, or pytest's."""


@cache
def parse_modules() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module, parsed once for all tests."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def list_messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every string of the library that names a flag, with "x" for what is filled in."""
    for path, tree in parse_modules().items():
        if any(part in OTHERS_FLAGS for part in path.relative_to(SOURCE).parts):
            continue
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in skipped or not isinstance(node, (ast.JoinedStr, ast.Constant)):
                continue
            skipped |= {id(inner) for inner in ast.walk(node)}
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts)
            if " " in text and FLAG.search(text) and "(?" not in text:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", text


def list_parameters() -> set[str]:
    """Return the names of the parameters of public functions and of the fields of records, outside the command line."""
    names: set[str] = set()
    for path, tree in parse_modules().items():
        if {"cli", "cli.py", "options"} & set(path.relative_to(SOURCE).parts):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
                names |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            if isinstance(node, ast.ClassDef):
                names |= {
                    item.target.id
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
    return names


def list_options(command: click.Command) -> Iterator[click.Parameter]:
    """Yield the parameters of a command and of those below it."""
    yield from command.params
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from list_options(inner)


def test_every_flag_in_a_message_exists_and_has_a_parameter_of_that_name():
    """No message names a flag that no command has; none of its flags is left in Python, where each is a parameter."""
    parameters = list_parameters()
    flags = {flag for option in list_options(cli) for flag in (*option.opts, *option.secondary_opts)}
    messages = list(list_messages())
    assert len(messages) > 40
    for place, text in messages:
        assert set(FLAG.findall(COMMAND.sub("", text))) <= flags, (place, text)
        shown = COMMAND.sub("", name_parameters(text))
        assert not FLAG.search(shown), (place, shown)
        assert set(NAMED.findall(shown)) <= parameters, (place, shown)


def test_a_flag_that_messages_name_as_a_switch_takes_no_value():
    """The flags that messages turn to `NAME=True` are those that the command line defines without a value."""
    valued = {flag for option in list_options(cli) if not getattr(option, "is_flag", False) for flag in option.opts}
    named = {flag for _, text in list_messages() for flag in FLAG.findall(COMMAND.sub("", text))}
    assert {flag.lstrip("-") for flag in named - valued} == set(SWITCHES)


@pytest.mark.parametrize(
    ("message", "in_python"),
    [
        ('Set one (--threshold "groundedness>=0.85").', 'Set one (thresholds="groundedness>=0.85").'),
        ('a budget in tokens: --budget "200000 tokens".', "a budget in tokens: budget_tokens=200000."),
        ("Give --price IN,OUT (US$).", "Give price=(IN,OUT) (US$)."),
        ("leave out --map, or give it.", "leave out map=…, or give it."),
        ("as `ragfault compare OLD NEW --rejudge` does", "as `ragfault compare OLD NEW --rejudge` does"),
        ("let a person run ragfault evaluate --judge llm:…", "let a person run ragfault evaluate --judge llm:…"),
        ("with: ragfault run rescore a -o b, or --anyway.", "with: ragfault run rescore a -o b, or anyway=True."),
        ("no baseline: --ragfault-baseline PATH", "no baseline: --ragfault-baseline PATH"),
    ],
)
def test_a_message_names_what_its_reader_can_type(message: str, in_python: str):
    """In Python it names parameters, on the command line flags; commands for a shell stay whole."""
    assert str(UsageError(message)) == in_python
    shown = FLAGS_SHOWN.set([])
    try:
        assert str(UsageError(message)) == message
    finally:
        FLAGS_SHOWN.reset(shown)


def test_errors_of_reading_name_the_way_out_that_their_reader_has():
    """Lines are left out by the command's own flag, by `convert` where it has none, and in Python by a parameter."""
    traces, documents, lines = (kind([BadLine("f", 1, "p")], 3) for kind in (BadTraces, BadDocuments, BadRows))
    expected = {
        traces: (
            ' with skip_bad=True or on_bad="skip".',
            " with --skip-bad.",
            ": ragfault run convert IN OUT --skip-bad.",
        ),
        documents: (' with skip_bad=True or on_bad="skip".', " with --skip-bad.", "\nFix them."),
        lines: ("\nFix them.", "\nFix them.", "\nFix them."),
    }
    for flags, ends in zip((None, ["--skip-bad"], ["--json"]), zip(*expected.values(), strict=True), strict=True):
        shown = FLAGS_SHOWN.set(flags)
        try:
            assert all(str(error).endswith(end) for error, end in zip(expected, ends, strict=True))
        finally:
            FLAGS_SHOWN.reset(shown)
