"""Traces in the shapes of other tools, field by field.

What a shape has no place for is left out; the id stays in each, so that a result can be traced back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ragfault.records import Trace

__all__ = ["EXPORTS", "cells", "native"]

Row = dict[str, Any]


def native(trace: Trace) -> Row:
    """The trace as a plain object, fields that are absent left out."""
    row: Row = msgspec.to_builtins(trace)
    return row


def _ragas(trace: Trace) -> Row:
    row: Row = {"id": trace.id, "user_input": trace.query}
    if trace.chunks is not None:
        row["retrieved_contexts"] = [chunk.text for chunk in trace.chunks]
        row["retrieved_context_ids"] = [chunk.id for chunk in trace.chunks]
    row |= _some(response=trace.answer, reference=_first(trace))
    if trace.gold and trace.gold.chunks:
        row["reference_context_ids"] = [name for name, grade in trace.gold.chunks.items() if grade > 0]
    return row


def _deepeval(trace: Trace) -> Row:
    chunks = None if trace.chunks is None else [chunk.text for chunk in trace.chunks]
    row: Row = {"id": trace.id, "input": trace.query}
    return row | _some(actual_output=trace.answer, expected_output=_first(trace), retrieval_context=chunks)


def _ragchecker(trace: Trace) -> Row:
    row: Row = {"query_id": trace.id, "query": trace.query}
    row |= _some(gt_answer=_first(trace), response=trace.answer)
    if trace.chunks is not None:
        row["retrieved_context"] = [{"doc_id": chunk.id, "text": chunk.text} for chunk in trace.chunks]
    return row


def _trulens(trace: Trace) -> Row:
    row: Row = {"record_id": trace.id, "input": trace.query}
    row |= _some(output=trace.answer, main_error=trace.error, app_id=trace.route)
    if trace.chunks is not None:
        row["contexts"] = [chunk.text for chunk in trace.chunks]
    if trace.time is not None:
        row["ts"] = trace.time.isoformat()
    if trace.latency and trace.latency.total is not None:
        row["latency"] = trace.latency.total / 1000
    return row


def _some(**values: Any) -> Row:
    return {name: value for name, value in values.items() if value is not None}


def _first(trace: Trace) -> str | None:
    """The shapes of others know one reference only."""
    return trace.references[0] if trace.references else None


EXPORTS: dict[str, tuple[Callable[[Trace], Row], tuple[str, ...]]] = {
    "ragfault": (native, tuple(Trace.__struct_fields__)),
    "ragas": (
        _ragas,
        (
            "id",
            "user_input",
            "retrieved_contexts",
            "retrieved_context_ids",
            "response",
            "reference",
            "reference_context_ids",
        ),
    ),
    "deepeval": (_deepeval, ("id", "input", "actual_output", "expected_output", "retrieval_context")),
    "ragchecker": (_ragchecker, ("query_id", "query", "gt_answer", "response", "retrieved_context")),
    "trulens": (
        _trulens,
        ("record_id", "input", "output", "main_error", "app_id", "contexts", "ts", "latency"),
    ),
}
"""Shape → what makes a row of a trace, and the columns of a table of such rows."""


REFERENCES = ("reference", "expected_output", "gt_answer")
"""Columns that may hold a list of texts too: a text that looks like a list is written as a list of one."""


def cells(row: Row, names: tuple[str, ...], guard: Callable[[str], str]) -> list[str]:
    """The row as cells of text: lists and objects as JSON, what is absent empty.

    >>> cells({"id": "1", "contexts": ["a"]}, ("id", "answer", "contexts"), str)
    ['1', '', '["a"]']
    """
    return [_cell(row.get(name), name, guard) for name in names]


def _cell(value: Any, name: str, guard: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not (name in REFERENCES and value.lstrip().startswith("[")):
        return guard(value)
    if isinstance(value, str):
        value = [value]
    return msgspec.json.encode(value).decode()
