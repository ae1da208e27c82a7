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
    """Build the JSON schema of a trace with a description of each field.

    >>> found = build_trace_schema()
    >>> found["$defs"]["Trace"]["required"], found["$defs"]["Trace"]["properties"]["query"]["description"]
    (['id', 'query'], 'What the user asked.')
    """
    schema = msgspec.json.schema(records.Trace)
    notes = _collect_class_docs(records)
    for name, part in schema["$defs"].items():
        part["description"] = notes[name].pop("", name)
        for field, note in notes[name].items():
            part["properties"][field]["description"] = note
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def describe_fields(record: type) -> dict[str, str]:
    """Map each field to the docstring below it; the empty name maps to the record's own first line.

    >>> describe_fields(records.Citation)["quote"]
    'The words it says stand there.'
    """
    return _collect_class_docs(import_module(record.__module__))[record.__name__]


def _collect_class_docs(module: ModuleType) -> dict[str, dict[str, str]]:
    """Map each class of a module to the docs of its fields."""
    docs: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            docs[node.name] = {"": (ast.get_docstring(node) or node.name).split("\n")[0]}
            docs[node.name] |= _collect_field_docs(node.body)
    return docs


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
