"""Check names, docstrings, comments and prose against the project's vocabulary.

python checks/language.py [PATH ...]

Five laws: no word of `retired_words.toml` stands where it may not; the docstring of a function opens with a verb of
`verbs.txt` in the imperative, and so does its name in benchmarks, checks and docs; class names are unique in the
package; pages and messages avoid the habits of `retired_words.toml`, which make readers read twice. Without paths every
tracked file is checked. Properties, tests, dunder methods and metrics (whose docstring defines a quantity) open as they
like.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RULES = tomllib.loads((ROOT / "checks" / "retired_words.toml").read_text(encoding="utf-8"))
VERBS = frozenset((ROOT / "checks" / "verbs.txt").read_text(encoding="utf-8").split())
TEXT_SUFFIXES = {".md", ".html", ".css", ".js", ".toml", ".yml", ".yaml", ".sh", ".json"}
IDENTIFIER_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
RETIRED = re.compile(rf"(?<![a-z])({'|'.join(RULES['everywhere'])})(?![a-z])")
PHRASES = re.compile("|".join(phrase.replace(" ", "[ _-]") for phrase in RULES["phrases"]))
FOREIGN_NAMES = {"connection_made"}
"""Names that a library prescribes: a method of asyncio."""
VERBAL_FOLDERS = ("benchmarks", "checks", "docs")
"""Folders whose functions are named by verbs; the fault bench names its faults."""
PREDICATES = {"is", "has"}
NAMED_FUNCTIONS = {
    *("main", "kendall_tau", "traces", "verdicts", "to_arrow", "do_POST", "on_config", "on_files", "on_page_markdown")
}
"""Names that open with no verb: a term of the field, and methods that a base class or a library prescribes."""
EXEMPT_DECORATORS = {"property", "cached_property", "metric", "setter", "fixture"}


LEAST_MESSAGE_WORDS = 4
HABITS = {name: re.compile(entry["pattern"]) for name, entry in RULES["habits"].items()}
"""Habit → what shows it in a sentence."""
HABIT_EXEMPT = tuple(entry["path"] for entry in RULES["habit_allow"])
"""Files, or beginnings of paths, in which habits stay for a reason."""


class Problem(NamedTuple):
    """A place that breaks a law."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def list_files(paths: Iterable[str]) -> list[Path]:
    """Return the tracked and new files under some paths, or all of them."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    skipped = tuple(RULES["skip"])
    files = [ROOT / name for name in listing if not name.startswith(skipped)]
    return [path for path in files if path.is_file()]


def check_text(path: Path, text: str, first_line: int = 1) -> Iterator[Problem]:
    """Yield retired words of a text, line by line."""
    allowed = {entry["word"] for entry in RULES["allow"] if entry["path"] == str(path.relative_to(ROOT))}
    for number, line in enumerate(text.splitlines(), first_line):
        # Identifiers are split into their words, so that a retired word inside of one is seen.
        plain = re.sub(r"([a-z])([A-Z])", r"\1 \2", line).lower()
        for match in RETIRED.finditer(PHRASES.sub("", plain)):
            if match[1] not in allowed:
                yield Problem(path, number, f'the word "{match[1]}" is retired')


def split_identifier(name: str) -> list[str]:
    """Return the words of an identifier in lower case."""
    return [word.lower() for word in IDENTIFIER_WORD.findall(name)]


def list_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that a module defines: classes, functions, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, getattr(node, "lineno", 1)


def check_names(path: Path, tree: ast.AST) -> Iterator[Problem]:
    """Yield the names of a module that consist of retired words."""
    for name, line in list_names(tree):
        if name in FOREIGN_NAMES:
            continue
        words = split_identifier(name)
        for word in RULES["names"]:
            if word in words:
                yield Problem(path, line, f'the name {name} uses the retired word "{word}"')
        if name.strip("_").lower() in RULES["whole_names"]:
            yield Problem(path, line, f"the name {name} says nothing: name it for what it holds")


def is_exempt(node: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> bool:
    """Return whether the docstring of a function may open with any word."""
    if node.name.startswith(("test_", "__")) and path.is_relative_to(ROOT / "tests"):
        return True
    if node.name.startswith("__") and node.name.endswith("__"):
        return True
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name in EXEMPT_DECORATORS:
            return True
    return False


def check_docstrings(path: Path, tree: ast.AST) -> Iterator[Problem]:
    """Yield the functions whose docstring does not open with a verb in the imperative."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_exempt(node, path):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        opening = re.split(r"[^\w-]", docstring.strip(), maxsplit=1)[0]
        if opening in RULES["openings"] or opening.lower() not in VERBS:
            yield Problem(path, node.lineno, f'the docstring of {node.name} opens with "{opening}", not with a verb')


def check_function_names(path: Path, tree: ast.AST) -> Iterator[Problem]:
    """Yield the functions of benchmarks, checks and docs whose name does not open with a verb."""
    folder, *inner = path.relative_to(ROOT).parts
    if folder not in VERBAL_FOLDERS or inner[0] == "faults":
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_exempt(node, path):
            continue
        opening = node.name.strip("_").split("_")[0]
        if opening not in VERBS | PREDICATES and node.name not in NAMED_FUNCTIONS:
            yield Problem(path, node.lineno, f'the name of the function {node.name} opens with "{opening}", not a verb')


def check_python(path: Path) -> Iterator[Problem]:
    """Yield all problems of one Python file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    yield from check_text(path, text)
    yield from check_names(path, tree)
    yield from check_docstrings(path, tree)
    yield from check_function_names(path, tree)
    if path.is_relative_to(ROOT / "src"):
        yield from check_messages(path, tree)


def check_habits(path: Path, text: str, first_line: int = 1) -> Iterator[Problem]:
    """Yield the habits of a text for readers; code in it does not count."""
    if str(path.relative_to(ROOT)).startswith(HABIT_EXEMPT):
        return
    # What is left out keeps its lines, so that the numbers stay right.
    prose = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
    prose = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "x", prose)
    for name, pattern in HABITS.items():
        for match in pattern.finditer(prose):
            line = first_line + prose.count("\n", 0, match.start())
            yield Problem(path, line, f'"{" ".join(match[0].split())}": {RULES["habits"][name]["instead"]}')


def check_messages(path: Path, tree: ast.AST) -> Iterator[Problem]:
    """Yield the habits of the messages of a module: its strings of four words or more that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if len(node.value.split()) >= LEAST_MESSAGE_WORDS:
            yield from check_habits(path, node.value, node.lineno)


def check_class_names() -> Iterator[Problem]:
    """Yield classes of the package that share their name with another."""
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((path, node.lineno))
    for name, definitions in places.items():
        for path, line in definitions[1:]:
            yield Problem(path, line, f"the class name {name} occurs in {definitions[0][0].relative_to(ROOT)}, too")


def main(arguments: list[str]) -> int:
    """Print every problem; return 1 if there is one."""
    problems: list[Problem] = []
    for path in list_files(arguments):
        if path.suffix == ".py":
            problems += check_python(path)
        elif path.suffix in TEXT_SUFFIXES:
            text = path.read_text(encoding="utf-8", errors="replace")
            problems += check_text(path, text)
            if (path.suffix == ".md" and path.is_relative_to(ROOT / "docs")) or path == ROOT / "README.md":
                problems += check_habits(path, text)
    problems += check_class_names()
    for problem in problems:
        print(problem)
    print(f"{len(problems):,} problems of language" if problems else "language: no problems", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
