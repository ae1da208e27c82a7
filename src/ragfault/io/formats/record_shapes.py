"""Record shapes of other tools, recognised by their keys, and the JSON Schema of a trace."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from ragfault.io.datasets.natural_questions import flatten_natural_questions
from ragfault.io.field_values import make_content_id, to_number
from ragfault.io.files import iterate_lines, open_bytes
from ragfault.model import records
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Trace


def build_trace_schema() -> dict[str, Any]:
    """Build the JSON schema of a trace with a description of each field.

    >>> found = build_trace_schema()
    >>> found["$defs"]["Trace"]["required"], found["$defs"]["Trace"]["properties"]["query"]["description"]
    (['id', 'query'], 'The question of the user.')
    """
    schema = msgspec.json.schema(records.Trace)
    notes = _collect_class_docs(records)
    for name, item in schema["$defs"].items():
        item["description"] = notes[name].pop("", name)
        for field, note in notes[name].items():
            item["properties"][field]["description"] = note
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
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                notes[above.target.id] = " ".join(value.value.split())
    return notes


TRACE_FIELDS = tuple(Trace.__struct_fields__)
"""The fields of a trace, in order."""

ColumnMap = dict[str, tuple[str, ...]]
"""Field → its possible columns; the first that exists is used."""

RawRecord = dict[str, Any]


class RecordShape(NamedTuple):
    """A layout of records."""

    name: str
    title: str
    signatures: tuple[frozenset[str], ...]
    """Sets of columns; a record with all columns of one set has the shape."""
    columns: ColumnMap
    flatten: Callable[[RawRecord], RawRecord] | None = None


def _parse_signatures(*sets: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(names.split()) for names in sets)


RETRIEVAL_WORDS = ("retriev", "search", "context", "relevant_documents")


def _flatten_trulens(record: RawRecord) -> RawRecord:
    """Flatten a row of `get_records_and_feedback()`, or a record of its JSON."""
    flat = dict(record)
    log = _parse_object(flat.pop("record_json", None))
    merged = {**log, **flat}
    calls = merged.pop("calls", None)
    recorded = any(name in merged for name in ("contexts", "retrieved_contexts"))
    if not recorded and isinstance(calls, list) and (contexts := _extract_contexts(calls)) is not None:
        merged["contexts"] = contexts
    for bulk in ("app_json", "feedback_and_future_results", "feedback_results"):
        merged.pop(bulk, None)
    cost = _parse_object(merged.pop("cost_json", None)) or _parse_object(merged.pop("cost", None))
    spent = {
        "prompt": merged.pop("n_prompt_tokens", cost.get("n_prompt_tokens")),
        "completion": merged.pop("n_completion_tokens", cost.get("n_completion_tokens")),
    }
    if any(value is not None for value in spent.values()):
        merged["tokens"] = spent
    expected = merged.pop("expected_chunks", None)
    if isinstance(expected, list):
        merged["gold"] = _build_expected_gold(expected)
    if (seconds := to_number(merged.get("latency"))) is not None:
        merged["latency"] = {"total": seconds * 1000}
    return merged


def _build_expected_gold(chunks: list[Any]) -> dict[str, Any]:
    """Build gold from the expected chunks of a golden set, with ids derived from their texts."""
    texts = [chunk if isinstance(chunk, dict) else {"text": chunk} for chunk in chunks]
    return {make_content_id(str(chunk["text"])): chunk.get("expected_score", 1.0) for chunk in texts if "text" in chunk}


def _extract_contexts(calls: list[Any]) -> list[Any] | None:
    """Return what the last retrieval call returned."""
    for call in reversed(calls):
        stack = call.get("stack") if isinstance(call, dict) else None
        top = stack[-1] if isinstance(stack, list) and stack else None
        method = top.get("method") if isinstance(top, dict) else None
        name = str(method.get("name", "")).lower() if isinstance(method, dict) else ""
        returned = call.get("rets") if isinstance(call, dict) else None
        if isinstance(returned, list) and any(word in name for word in RETRIEVAL_WORDS):
            return returned
    return None


def _parse_object(value: object) -> RawRecord:
    """Parse a JSON object; return an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _flatten_deepeval(record: RawRecord) -> RawRecord:
    """Split the passages that a CSV holds in one cell, and convert seconds to milliseconds."""
    flat = dict(record)
    for name in ("retrieval_context", "retrievalContext"):
        if isinstance(text := flat.get(name), str) and not text.lstrip().startswith("["):
            flat[name] = text.split("|")
    for name in ("completion_time", "completionTime"):
        if (seconds := to_number(flat.get(name))) is not None:
            flat[name] = {"generation": seconds * 1000}
    return flat


SPAN_SHAPES = ("otlp", "langfuse", "langsmith")
"""Shapes whose records are spans, which are collected to traces."""
NATIVE_SHAPE = RecordShape("ragfault", "ragfault", _parse_signatures("query"), {name: (name,) for name in TRACE_FIELDS})

SHAPES: dict[str, RecordShape] = {
    shape.name: shape
    for shape in (
        RecordShape(
            "ragtruth",
            "RAGTruth",
            _parse_signatures("source_id response labels", "source_id response quality"),
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
        RecordShape(
            "ragchecker",
            "RAGChecker",
            _parse_signatures("query retrieved_context", "query gt_answer"),
            {
                "id": ("query_id", "id"),
                "query": ("query",),
                "chunks": ("retrieved_context",),
                "answer": ("response",),
                "reference": ("gt_answer",),
            },
        ),
        RecordShape(
            "ragas",
            "Ragas",
            _parse_signatures("user_input", "question contexts", "question ground_truth"),
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
        RecordShape(
            "deepeval",
            "DeepEval",
            _parse_signatures(
                "input actual_output", "input actualOutput", "input retrieval_context", "input expected_output"
            ),
            {
                "id": ("id",),
                "query": ("input",),
                "chunks": ("retrieval_context", "retrievalContext"),
                "latency": ("completion_time", "completionTime"),
                "answer": ("actual_output", "actualOutput"),
                "reference": ("expected_output", "expectedOutput"),
            },
            _flatten_deepeval,
        ),
        RecordShape(
            "trulens",
            "TruLens",
            _parse_signatures(
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
            _flatten_trulens,
        ),
        RecordShape(
            "otlp",
            "OpenTelemetry spans",
            _parse_signatures(
                "resourceSpans",
                "resourceLogs",
                "traceId spanId",
                "trace_id span_id",
                "context.trace_id context.span_id",
                "context name start_time",
                "traceId spans",
                "trace_id trace_metadata spans",
                "info data",
                "record_attributes trace",
            ),
            {"query": ()},
        ),
        RecordShape(
            "langfuse",
            "Langfuse",
            _parse_signatures(
                "traceId type startTime",
                "trace_id type start_time",
                "id timestamp input output sessionId",
                "id timestamp input output session_id",
                "id timestamp observations",
                "trace observations",
                "traceId name value dataType",
                "trace_id name value data_type",
            ),
            {"query": ()},
        ),
        RecordShape(
            "langsmith",
            "runs of LangSmith",
            _parse_signatures(
                "id run_type inputs",
                "id run_type child_runs",
                "run_id trace_id run_type",
                "trace_id run_count runs",
                "post patch",
            ),
            {"query": ()},
        ),
        RecordShape(
            "haystack",
            "answers of Haystack",
            _parse_signatures("data query documents meta"),
            {"query": ("query",), "chunks": ("documents",), "answer": ("data",)},
        ),
        RecordShape(
            "hotpotqa",
            "HotpotQA",
            _parse_signatures("question answer supporting_facts context"),
            {
                "id": ("_id", "id"),
                "query": ("question",),
                "chunks": ("context",),
                "reference": ("answer",),
                "gold": ("supporting_facts",),
            },
        ),
        RecordShape(
            "natural_questions",
            "Natural Questions",
            _parse_signatures("question_text annotations", "question document annotations"),
            {
                "id": ("example_id", "id"),
                "query": ("question_text",),
                "chunks": ("chunks",),
                "reference": ("reference",),
                "gold": ("gold",),
                "answerable": ("answerable",),
            },
            flatten_natural_questions,
        ),
        RecordShape(
            "crag",
            "CRAG",
            _parse_signatures("interaction_id query answer search_results"),
            {"id": ("interaction_id",), "query": ("query",), "chunks": ("search_results",), "reference": ("answer",)},
        ),
        RecordShape(
            "langsmith_example",
            "examples of LangSmith",
            _parse_signatures("dataset_id inputs outputs"),
            {
                "id": ("id",),
                "reference": ("outputs.answer", "outputs.output", "outputs.response", "outputs.expected", "outputs"),
                "time": ("created_at",),
            },
        ),
        RecordShape(
            "phoenix_example",
            "examples of Phoenix",
            _parse_signatures("example_id input output metadata", "node_id input output metadata"),
            {
                "id": ("example_id", "id"),
                "reference": ("output.answer", "output.output", "output.response", "output.expected", "output"),
            },
        ),
        RecordShape(
            "cohere",
            "Cohere",
            _parse_signatures("text citations documents", "message text documents"),
            {
                "id": ("id", "generation_id"),
                "query": ("message", "query"),
                "chunks": ("documents",),
                "answer": ("text",),
                "history": ("chat_history",),
            },
        ),
        RecordShape(
            "passages",
            "query and passages",
            _parse_signatures("query contexts", "query passages", "query passage"),
            {**NATIVE_SHAPE.columns, "chunks": ("chunks", "contexts", "passages", "passage")},
        ),
        NATIVE_SHAPE,
    )
}
"""Known shapes by name, the most specific first."""


def get_shape(name: str) -> RecordShape:
    """Return the shape of that name. Raises `UnknownName`."""
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    return SHAPES[name]


def detect_shape(names: Iterable[str]) -> RecordShape | None:
    """Return the shape that these columns mark, or None.

    >>> detect_shape(["user_input", "response"]).title, detect_shape(["text"])
    ('Ragas', None)
    """
    columns = frozenset(names)
    if columns == {"observations", "scores"}:
        return SHAPES["langfuse"]  # the download of a trace
    return next((shape for shape in SHAPES.values() if any(mark <= columns for mark in shape.signatures)), None)


PASSAGE_PREFIX = re.compile(r"\s*\bpassage \d+:\s*")


def make_ragtruth_flattener(name: str, limit: int) -> Callable[[RawRecord], RawRecord]:
    """Return a function that joins a RAGTruth response to its source.

    The sources are held in memory. Raises `InputError` where their file cannot be read.
    """
    sources = _load_ragtruth_sources(Path(name), limit)

    def joined(record: RawRecord) -> RawRecord:
        text = sources.get(str(record.get("source_id")))
        source = msgspec.json.decode(text) if text else {}
        task = source.get("task_type")
        flat = {key: value for key, value in record.items() if key != "source_id"}
        flat |= {
            "query": _extract_ragtruth_query(source),
            "chunks": _extract_ragtruth_chunks(source.get("source_info")),
        }
        flat |= {"source_id": record.get("source_id"), "task": task, "source": source.get("source")}
        return {key: value for key, value in flat.items() if value is not None}

    return joined


def _load_ragtruth_sources(path: Path, limit: int) -> dict[str, bytes]:
    folder = path.parent
    beside = [folder / f"source_info.jsonl{ending}" for ending in ("", ".gz", ".zst")]
    source_file = next((file for file in beside if file.is_file()), None)
    if str(path) == "-" or source_file is None:
        raise InputError(f"{path} holds the responses of RAGTruth; put source_info.jsonl beside it")
    table: dict[str, bytes] = {}
    with open_bytes(str(source_file)).body as body:
        for number, line, complete in iterate_lines(body, limit):
            if not line.strip():
                continue
            try:
                if not complete:
                    raise InputError(f"{source_file}:{number}: the line is longer than {limit:,} bytes")
                key = msgspec.json.decode(line, type=dict[str, Any]).get("source_id")
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{source_file}:{number}: malformed JSON: {error}") from None
            table[str(key)] = line
    return table


def _extract_ragtruth_query(source: RawRecord) -> str | None:
    """Return the question, or the part of the prompt before the source."""
    info, prompt = source.get("source_info"), source.get("prompt")
    if isinstance(info, dict) and isinstance(info.get("question"), str):
        question: str = info["question"]
        return question
    if not isinstance(prompt, str):
        return None
    head = prompt.split(info, 1)[0] if isinstance(info, str) and info else prompt.split("Structured data:", 1)[0]
    return head.strip() or prompt.split("\n", 1)[0]


def _extract_ragtruth_chunks(info: Any) -> list[Any] | None:
    if info is None:
        return None
    if isinstance(info, dict) and isinstance(info.get("passages"), str):
        return [passage for part in PASSAGE_PREFIX.split(info["passages"]) if (passage := part.strip())]
    return info if isinstance(info, list) else [info]
