"""JSON schema of a trace, and the documentation of record fields taken from their docstrings."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import msgspec

from ragfault import records


def build_trace_schema() -> dict[str, Any]:
    """The JSON schema of a trace, with what each field means.

    >>> found = build_trace_schema()
    >>> found["$defs"]["Trace"]["required"], found["$defs"]["Trace"]["properties"]["query"]["description"]
    (['id', 'query'], 'What the user asked.')
    """
    made = msgspec.json.schema(records.Trace)
    notes = _collect_class_docs(records)
    for name, part in made["$defs"].items():
        part["description"] = notes[name].pop("", name)
        for field, note in notes[name].items():
            part["properties"][field]["description"] = note
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return made


def describe_fields(record: type) -> dict[str, str]:
    """Field → the docstring beneath it; the record's own first line under an empty name.

    >>> describe_fields(records.Citation)["quote"]
    'The words it says stand there.'
    """
    return _collect_class_docs(import_module(record.__module__))[record.__name__]


def _collect_class_docs(module: ModuleType) -> dict[str, dict[str, str]]:
    """Record → what `descriptions` says of it, for every class of a module."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {"": (ast.get_docstring(node) or node.name).split("\n")[0]}
            found[node.name] |= _collect_field_docs(node.body)
    return found


def _collect_field_docs(body: list[ast.stmt]) -> dict[str, str]:
    notes = {}
    for above, below in pairwise(body):
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                notes[above.target.id] = " ".join(value.value.split())
    return notes
