"""Check that each word of a command-line flag, a command or a JSON field is a term of docs/glossary.md or a known word.

The other words are in `field_words.txt`: everyday English, statistics, and names that a protocol prescribes.

python checks/glossary.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ragfault.cli.commands import cli

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
FIELD_WORDS = (ROOT / "checks" / "field_words.txt").read_text(encoding="utf-8")
WORD = re.compile(r"[a-z]+")


def list_terms() -> set[str]:
    """Return the words of the bold terms of the glossary, and the other known words."""
    terms = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY)
    return {word for term in terms for word in WORD.findall(term.lower())} | set(WORD.findall(FIELD_WORDS))


def list_options(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield (place, name) of every command and flag below a command."""
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                yield f"{path} {option}", option
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            yield f"{path} {name}", name
            if inner is not None:
                yield from list_options(inner, f"{path} {name}")


def list_fields() -> Iterator[tuple[str, str]]:
    """Yield (place, name) of every field of a record, which is what JSON output is made of."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "src").rglob("*.py"))}
    classes = [
        (path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    records = {"Struct"}
    while True:
        derived = {node.name for _, node in classes if any(getattr(base, "id", "") in records for base in node.bases)}
        if derived <= records:
            break
        records |= derived
    for path, node in classes:
        if node.name not in records:
            continue
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                if not name.startswith("_"):
                    yield f"{path.relative_to(ROOT)}:{statement.lineno} {node.name}.{name}", name


def is_known(word: str, terms: set[str]) -> bool:
    """Return whether a word, or its singular, is on the page."""
    singulars = {word, word.removesuffix("s"), word.removesuffix("es"), re.sub(r"ies$", "y", word)}
    return bool(singulars & terms)


def main() -> int:
    """Print every name with a word that the glossary lacks; return 1 if there is one."""
    terms = list_terms()
    problems = [
        f'{place}: "{word}" is neither in docs/glossary.md nor in checks/field_words.txt'
        for place, name in (*list_options(cli, "ragfault"), *list_fields())
        for word in WORD.findall(name.lower())
        if not is_known(word, terms)
    ]
    print("\n".join(problems) or "glossary: no problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
