"""The shapes of other tools' records, each a table of which of their columns is which field of a trace.

A shape is known by the columns that mark it. Where a record takes more than renaming (RAGTruth keeps its
sources in a second file, TruLens its contexts inside a call log), `unfold` makes it flat first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ragfault.errors import InputError, UnknownName
from ragfault.records import Chunk, Gold, Latency, Tokens, Trace
from ragfault.sources.values import content_id

__all__ = ["FIELDS", "NATIVE", "SHAPES", "SPANS", "Shape", "columns", "flat", "named", "opened", "recognise"]

FIELDS = tuple(Trace.__struct_fields__)
"""The fields of a trace, in order."""

Columns = dict[str, tuple[str, ...]]
"""Field → the columns it may stand in, the first that is there wins."""

Record = dict[str, Any]


class Shape(NamedTuple):
    """One way to lay out a record."""

    name: str
    title: str
    marks: tuple[frozenset[str], ...]
    """Sets of columns; all of any one of them mark the shape."""
    columns: Columns
    unfold: Callable[[Record], Record] | None = None


def _marks(*sets: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(names.split()) for names in sets)


# --- TruLens ---------------------------------------------------------------------------------------

FETCH = ("retriev", "search", "context", "relevant_documents")


def _trulens(record: Record) -> Record:
    """A row of `get_records_and_feedback()`, or a record of its JSON, with contexts, tokens and times beside."""
    flat = dict(record)
    log = _json(flat.pop("record_json", None))
    whole = {**log, **flat}
    calls = whole.pop("calls", None)
    if not any(name in whole for name in ("contexts", "retrieved_contexts")) and isinstance(calls, list):
        found = _contexts(calls)
        if found is not None:
            whole["contexts"] = found
    for bulk in ("app_json", "feedback_and_future_results", "feedback_results"):
        whole.pop(bulk, None)
    cost = _json(whole.pop("cost_json", None)) or _json(whole.pop("cost", None))
    spent = {
        "prompt": whole.pop("n_prompt_tokens", cost.get("n_prompt_tokens")),
        "completion": whole.pop("n_completion_tokens", cost.get("n_completion_tokens")),
    }
    if any(value is not None for value in spent.values()):
        whole["tokens"] = spent
    expected = whole.pop("expected_chunks", None)
    if isinstance(expected, list):
        whole["gold"] = _expected(expected)
    seconds = whole.pop("latency", None)
    if isinstance(seconds, (int, float)):
        whole["latency"] = {"total": seconds * 1000}
    return whole


def _expected(chunks: list[Any]) -> dict[str, Any]:
    """The chunks that a golden set expects, named by their texts as chunks without an id are."""
    texts = [chunk if isinstance(chunk, dict) else {"text": chunk} for chunk in chunks]
    return {
        content_id(str(chunk["text"])): chunk.get("expected_score", 1.0) for chunk in texts if "text" in chunk
    }


def _contexts(calls: list[Any]) -> list[Any] | None:
    """What the last call to something that retrieves gave back."""
    for call in reversed(calls):
        stack = call.get("stack") if isinstance(call, dict) else None
        top = stack[-1] if isinstance(stack, list) and stack else None
        method = top.get("method") if isinstance(top, dict) else None
        name = str(method.get("name", "")).lower() if isinstance(method, dict) else ""
        returned = call.get("rets") if isinstance(call, dict) else None
        if isinstance(returned, list) and any(word in name for word in FETCH):
            return returned
    return None


def _json(value: object) -> Record:
    """The object that a text of JSON is; empty for whatever is none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


# --- DeepEval --------------------------------------------------------------------------------------


def _deepeval(record: Record) -> Record:
    """A test case, with the passages of a CSV apart, which stand in one cell with bars between, and times in ms."""
    flat = dict(record)
    for name in ("retrieval_context", "retrievalContext"):
        if isinstance(text := flat.get(name), str) and not text.lstrip().startswith("["):
            flat[name] = text.split("|")
    for name in ("completion_time", "completionTime"):
        if isinstance(seconds := flat.get(name), (int, float)):
            flat[name] = {"generation": seconds * 1000}
    return flat


# --- the table -------------------------------------------------------------------------------------

SPANS = ("otlp", "langfuse", "langsmith")
"""The shapes whose records are pieces of traces, which are joined."""

NATIVE = Shape("ragfault", "ragfault", _marks("query"), {name: (name,) for name in FIELDS})

SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(
            "ragtruth",
            "RAGTruth",
            _marks("source_id response labels", "source_id response quality"),
            {
                "id": ("id",),
                "query": ("query",),
                "chunks": ("chunks",),
                "answer": ("response",),
                "model": ("model",),
                "route": ("route",),
                "metadata.spans": ("labels",),
            },
        ),
        Shape(
            "ragchecker",
            "RAGChecker",
            _marks("query retrieved_context", "query gt_answer"),
            {
                "id": ("query_id", "id"),
                "query": ("query",),
                "chunks": ("retrieved_context",),
                "answer": ("response",),
                "reference": ("gt_answer",),
            },
        ),
        Shape(
            "ragas",
            "Ragas",
            _marks("user_input", "question contexts", "question ground_truth"),
            {
                "id": ("id", "sample_id"),
                "query": ("user_input", "question"),
                "chunks": ("retrieved_contexts", "contexts"),
                "chunks.id": ("retrieved_context_ids",),
                "answer": ("response", "answer"),
                "reference": ("reference", "ground_truth", "ground_truths"),
                "gold": ("reference_context_ids",),
            },
        ),
        Shape(
            "deepeval",
            "DeepEval",
            _marks(
                "input actual_output",
                "input actualOutput",
                "input retrieval_context",
                "input expected_output",
            ),
            {
                "id": ("id",),
                "query": ("input",),
                "chunks": ("retrieval_context", "retrievalContext"),
                "latency": ("completion_time", "completionTime"),
                "answer": ("actual_output", "actualOutput"),
                "reference": ("expected_output", "expectedOutput"),
            },
            _deepeval,
        ),
        Shape(
            "trulens",
            "TruLens",
            _marks(
                "record_id input", "record_id main_input", "query expected_response", "query expected_chunks"
            ),
            {
                "id": ("record_id", "query_id"),
                "query": ("input", "main_input", "query"),
                "chunks": ("contexts", "retrieved_contexts"),
                "answer": ("output", "main_output"),
                "reference": ("expected_response", "ground_truth_output"),
                "gold": ("gold",),
                "error": ("main_error",),
                "time": ("ts",),
                "latency": ("latency",),
                "tokens": ("tokens",),
                "route": ("app_id",),
            },
            _trulens,
        ),
        Shape(
            "otlp",
            "OpenTelemetry spans",
            _marks(
                "resourceSpans",
                "resourceLogs",
                "traceId spanId",
                "trace_id span_id",
                "context.trace_id context.span_id",
                "context name start_time",
                "traceId spans",
            ),
            {"query": ()},
        ),
        Shape(
            "langfuse",
            "Langfuse",
            _marks(
                "traceId type startTime",
                "trace_id type start_time",
                "id timestamp input output sessionId",
                "id timestamp input output session_id",
                "id timestamp observations",
                "trace observations",
            ),
            {"query": ()},
        ),
        Shape(
            "langsmith",
            "runs of LangSmith",
            _marks("id run_type inputs", "id run_type child_runs"),
            {"query": ()},
        ),
        Shape(
            "passages",
            "query and passages",
            _marks("query contexts", "query passages", "query passage"),
            {**NATIVE.columns, "chunks": ("chunks", "contexts", "passages", "passage")},
        ),
        NATIVE,
    )
}
"""Every known shape by its name, the most telling first."""


def named(name: str) -> Shape:
    """The shape of that name; raises `UnknownName`."""
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    return SHAPES[name]


def recognise(names: Iterable[str]) -> Shape | None:
    """The shape that columns of these names mark, if any.

    >>> recognise(["user_input", "response"]).title, recognise(["text"])
    ('Ragas', None)
    """
    found = frozenset(names)
    for shape in SHAPES.values():
        if any(mark <= found for mark in shape.marks):
            return shape
    return None


# --- the map of a user -----------------------------------------------------------------------------

PARTS = {"chunks": Chunk, "latency": Latency, "tokens": Tokens, "gold": Gold}
KEYS = (*FIELDS, *(f"{name}.{part}" for name, kind in PARTS.items() for part in kind.__struct_fields__))


def columns(given: Mapping[str, str] | str | Path | None) -> Columns:
    """The columns that a map names: field → column, or the path of a TOML file that says the same.

    A field is one of a trace, `metadata.NAME`, or a part such as `latency.total`; `chunks.id` and its like
    name a column of lists that runs parallel to the chunks. A column may be a path with dots into nested
    objects and lists (`retrieved.docs`, `choices.0.text`). Tables in the map stand for the dots on the left.
    Raises `UnknownName` for a field that does not exist, `InputError` for a file that cannot be read.

    >>> columns({"query": "question", "metadata.task": "task"})
    {'query': ('question',), 'metadata.task': ('task',)}
    """
    if given is None:
        return {}
    table = opened(given)
    for key, column in table.items():
        if key not in KEYS and not (key.startswith("metadata.") and len(key) > len("metadata.")):
            raise UnknownName("map key", key, [*KEYS, "metadata.NAME"])
        if not isinstance(column, str) or not column:
            raise InputError(f"the map key {key} needs the name of a column, not {column!r}")
    return {key: (column,) for key, column in table.items()}


def opened(given: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """The map itself, or the one in the TOML file of that path; nothing in it is checked."""
    return _toml(Path(given)) if isinstance(given, (str, Path)) else flat(given)


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"the map {path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the map {path} is not TOML: {error}") from None
    return flat(table.get("map", table))


def flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The map that a table with tables in it stands for: their names joined by dots.

    >>> flat({"query": "question", "latency": {"total": "ms"}})
    {'query': 'question', 'latency.total': 'ms'}
    """
    made: dict[str, Any] = {}
    for key, value in table.items():
        made |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return made
