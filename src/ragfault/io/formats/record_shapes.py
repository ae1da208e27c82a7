"""Record shapes of other tools, each a file of `io/shapes`, and the JSON Schema of a trace.

docs/how-to/foreign-files.md documents the form of these files, which a user may write, too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import msgspec

from ragfault.io.field_values import make_content_id, normalize_id, to_number
from ragfault.io.formats.paths import ABSENT, get_path, remove_paths
from ragfault.io.formats.texts import join_text, keep_short_values
from ragfault.model import records
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Trace
from ragfault.model.whole_files import read_toml


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
    docs: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if base.__module__.startswith("ragfault."):
            docs |= _collect_class_docs(import_module(base.__module__)).get(base.__name__, {})
    return docs


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

SHAPE_FOLDER = Path(__file__).parent.parent / "shapes"
SHAPE_KEYS = frozenset(
    (
        *("title", "version", "source", "signature", "closed", "fields", "chunks", "units", "split", "drop"),
        *("repeats", "spans", "within", "citations"),
    )
)
CHUNK_KEYS = ("id", "text", "score", "document", "gold")
CITATION_KEYS = ("chunk", "document", "place", "quote", "claim", "start", "end")
MILLISECONDS = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""Unit of a time → how many milliseconds one is."""


class RecordShape(NamedTuple):
    """The layout of the records of one tool: what marks them, and where each field is."""

    name: str
    title: str
    signatures: tuple[tuple[str, ...], ...]
    """Sets of paths; a record that has all paths of one set has the shape. `PATH=VALUE` asks for a value there."""
    columns: ColumnMap
    version: str = ""
    """Version of the tool whose layout this is."""
    source: str = ""
    """Public address of the definition that the paths were taken from."""
    closed: bool = False
    """The fields are complete: no further column is looked at."""
    chunks: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Field of a chunk, or `gold` → its paths within an item of the chunks."""
    citations: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Field of a citation, `document` or `place` → its paths within an item of the citations."""
    units: Mapping[str, str] = MappingProxyType({})
    """Field of a time → the unit in which it is written."""
    split: Mapping[str, str] = MappingProxyType({})
    """Field → the text between its items where they are joined in one text."""
    drop: tuple[str, ...] = ()
    """Paths that are not kept as metadata."""
    repeats: tuple[str, ...] = ()
    """Paths that name a test: records that are equal there are attempts of one query, in their order."""
    spans: bool = False
    """Its records are spans, which are collected to traces."""

    def list_paths(self) -> Iterator[str]:
        """List the paths that are read, or left out on purpose."""
        yield from self.drop
        for paths in self.columns.values():
            yield from paths

    def identify_test(self, record: RawRecord) -> str | None:
        """Return what tells the test of a record from others; None if its repeats are not recognised.

        >>> shape = RecordShape("t", "t", (), {}, repeats=("vars", "prompt"))
        >>> shape.identify_test({"vars": {"q": "When?"}, "id": 7})
        '[{"q":"When?"},null]'
        """
        if not self.repeats:
            return None
        values = [get_path(record, path) for path in self.repeats]
        return msgspec.json.encode([None if value is ABSENT else value for value in values], order="sorted").decode()

    def count_marks(self, names: frozenset[str], records: Sequence[RawRecord]) -> int:
        """Count the paths of the longest signature that records with these keys, taken together, have.

        Without records only their keys count.
        """
        fitting = (marks for marks in self.signatures if all(_has_mark(mark, names, records) for mark in marks))
        return max(map(len, fitting), default=0)


def _has_mark(mark: str, names: frozenset[str], records: Sequence[RawRecord]) -> bool:
    """Tell whether some record has a path, or the value that the mark asks for there."""
    if mark in names:
        return True
    path, _, expected = ("", "", "") if mark.endswith("]") else mark.rpartition("=")
    if "]" in expected or not path:
        path, expected = mark, ""
    for record in records:
        value = get_path(record, path)
        if value == expected if expected else value is not ABSENT:
            return True
    return False


NATIVE_SHAPE = RecordShape("ragfault", "ragfault", (("query",),), {name: (name,) for name in TRACE_FIELDS})


def load_shape(path: Path) -> RecordShape:
    """Load the shape that a TOML file describes. Raises `InputError` for a file that is not one.

    >>> load_shape(SHAPE_FOLDER / "ragas.toml").columns["query"]
    ('user_input', 'question')
    """
    table = read_toml(path)
    prefixes = ["", *(f"{name}." for name in table.get("within", ()))]
    if unknown := sorted(table.keys() - SHAPE_KEYS):
        raise InputError(f"{path}: a shape has no `{unknown[0]}`; there are: {', '.join(sorted(SHAPE_KEYS))}")
    signatures = table.get("signature") or []
    if not signatures or not all(
        isinstance(item, list) and all(isinstance(p, str) for p in item) for item in signatures
    ):
        raise InputError(f'{path}: `signature` lists sets of paths that a record must have: [["question", "contexts"]]')
    spans = bool(table.get("spans"))
    columns = _read_paths(path, "fields", table.get("fields", {}), (*TRACE_FIELDS, *NESTED_FIELDS))
    if not spans and not columns:
        raise InputError(f'{path}: `fields` is missing, which says where each field is: query = "question"')
    units = table.get("units", {})
    if wrong := [unit for unit in units.values() if unit not in MILLISECONDS]:
        raise InputError(f"{path}: the unit {wrong[0]!r} is not known; there are: {', '.join(MILLISECONDS)}")
    return RecordShape(
        name=path.stem,
        title=str(table.get("title", path.stem)),
        signatures=tuple(tuple(prefix + mark for mark in marks) for marks in signatures for prefix in prefixes),
        columns={
            field: tuple(prefix + item for item in paths for prefix in prefixes) for field, paths in columns.items()
        },
        version=str(table.get("version", "")),
        source=str(table.get("source", "")),
        closed=bool(table.get("closed")),
        chunks=_read_paths(path, "chunks", table.get("chunks", {}), CHUNK_KEYS),
        citations=_read_paths(path, "citations", table.get("citations", {}), CITATION_KEYS),
        units=units,
        split=table.get("split", {}),
        drop=tuple(table.get("drop", ())),
        repeats=tuple(table.get("repeats", ())),
        spans=spans,
    )


NESTED_FIELDS = (
    *("latency.total", "latency.retrieval", "latency.generation", "tokens.prompt", "tokens.completion"),
    *("chunks.id", "chunks.text", "chunks.score", "chunks.document"),
)


def _read_paths(path: Path, name: str, table: Any, known: Sequence[str]) -> ColumnMap:
    """Read a table of field → path or paths, whose fields may be nested tables."""
    if not isinstance(table, dict):
        raise InputError(f"{path}: `{name}` is a table of field and path")
    columns: ColumnMap = {}
    for field, value in table.items():
        if isinstance(value, dict):
            columns |= _read_paths(path, name, {f"{field}.{part}": item for part, item in value.items()}, known)
            continue
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not all(isinstance(item, str) and item for item in paths):
            raise InputError(
                f"{path}: `{name}.{field}` is a path, or a list of paths of which the first that exists counts"
            )
        if field not in known and not field.startswith("metadata."):
            raise UnknownName(f"field in `{name}` of {path}", field, [*known, "metadata.NAME"], listed=True)
        columns[field] = tuple(paths)
    return columns


@cache
def list_shapes() -> dict[str, RecordShape]:
    """List the known shapes by name, ragfault's own last.

    >>> list(list_shapes())[-1], list_shapes()["deepeval"].title
    ('ragfault', 'DeepEval')
    """
    shapes = {path.stem: load_shape(path) for path in sorted(SHAPE_FOLDER.glob("*.toml"))}
    passages = shapes["passages"]
    shapes["passages"] = passages._replace(columns={**NATIVE_SHAPE.columns, **passages.columns})
    return {**shapes, NATIVE_SHAPE.name: NATIVE_SHAPE}


def get_shape(name: str) -> RecordShape:
    """Return the shape of that name, or that a TOML file describes. Raises `UnknownName`, `InputError`."""
    if name.endswith(".toml"):
        return load_shape(Path(name))
    if name not in list_shapes():
        raise UnknownName("shape", name, [*list_shapes(), "a file FILE.toml"])
    return list_shapes()[name]


def detect_shape(names: Iterable[str], records: Sequence[RawRecord] = ()) -> RecordShape | None:
    """Return the shape that these columns mark, or None; records also show what lies below their columns.

    >>> detect_shape(["user_input", "response"]).title, detect_shape(["text"])
    ('Ragas', None)
    """
    return _find_marked(frozenset(names), records) if records else _find_marked_by_columns(frozenset(names))


@lru_cache(maxsize=256)
def _find_marked_by_columns(columns: frozenset[str]) -> RecordShape | None:
    """Find the shape that columns mark, once for all records that have them."""
    return _find_marked(columns, ())


def _find_marked(columns: frozenset[str], records: Sequence[RawRecord]) -> RecordShape | None:
    if columns == {"observations", "scores"}:
        # the download of a trace
        return list_shapes()["langfuse"]
    # the most marks win: a record of CRAG also has the keys of ragfault's own form
    best = max(list_shapes().values(), key=lambda shape: shape.count_marks(columns, records))
    return best if best.count_marks(columns, records) else None


def convert_values(values: dict[str, Any], shape: RecordShape) -> dict[str, Any]:
    """Convert the values of a record as its shape says: times to milliseconds, texts to lists, chunks by their paths.

    >>> shape = RecordShape("t", "t", (), {}, chunks={"id": ("key",), "gold": ("used",)}, units={"latency": "s"})
    >>> convert_values({"latency": 2, "chunks": [{"key": "a", "text": "At ten.", "used": 1}]}, shape)
    {'latency': {'total': 2000.0}, 'chunks': [{'id': 'a', 'text': 'At ten.', 'metadata': {}}], 'gold': {'a': 1.0}}
    """
    values = dict(values)
    for field, unit in shape.units.items():
        amount = to_number(values.get(field))
        if amount is not None:
            time = amount * MILLISECONDS[unit]
            values[field] = {"total": time} if field == "latency" else time
    for field, mark in shape.split.items():
        if isinstance(text := values.get(field), str) and not text.lstrip().startswith("["):
            values[field] = [part for item in text.split(mark) if (part := item.strip())]
    if shape.chunks and isinstance(chunks := values.get("chunks"), list):
        converted = [_convert_chunk(item, shape.chunks) for item in chunks if item is not None]
        values["chunks"] = [chunk for chunk, _ in converted]
        grades = {chunk["id"]: grade for chunk, grade in converted if grade}
        if grades and values.get("gold") is None:
            values["gold"] = grades
    if shape.citations:
        values["citations"] = _convert_citations(values.get("citations"), shape.citations)
    if shape.closed and isinstance(answer := values.get("answer"), list):
        values["answer"] = join_text(answer)
    return values


def _convert_citations(value: Any, columns: Mapping[str, tuple[str, ...]]) -> list[RawRecord] | None:
    """Convert items that cite, in lists of any depth, to citations; None where nothing is cited.

    A path that finds a list in an item, such as the marks of a block of text, gives a citation for each.

    >>> columns = {"place": ("by[].at",), "claim": ("said",)}
    >>> _convert_citations([{"said": "At ten.", "by": [{"at": 0}, {"at": 2}]}], columns)
    [{'place': 0, 'claim': 'At ten.'}, {'place': 2, 'claim': 'At ten.'}]
    """
    if isinstance(value, list):
        return [cited for item in value for cited in _convert_citations(item, columns) or ()] or None
    parts = {
        field: next((v for p in paths if (v := get_path(value, p)) not in (ABSENT, None)), None)
        for field, paths in columns.items()
    }
    size = max((len(part) for part in parts.values() if isinstance(part, list)), default=1)
    rows = [
        {
            field: item
            for field, part in parts.items()
            if (item := part[i] if isinstance(part, list) and i < len(part) else part) is not None
        }
        for i in range(size)
    ]
    return [row for row in rows if row.keys() & {"chunk", "document", "place", "quote"}] or None


def _convert_chunk(item: Any, columns: Mapping[str, tuple[str, ...]]) -> tuple[Any, Any]:
    """Convert an item of the chunks to a chunk, and return its grade; what no path takes is its metadata."""
    if not isinstance(item, dict):
        return item, None
    chunk: RawRecord = {}
    used: list[str] = []
    for field, paths in columns.items():
        for path in paths:
            value = get_path(item, path)
            if value is not ABSENT and value is not None:
                chunk[field] = value
                used.append(path)
                break
    grade = to_number(chunk.pop("gold", None))
    if "text" not in chunk and isinstance(item.get("text"), str):
        chunk["text"], used = item["text"], [*used, "text"]
    if isinstance(chunk.get("text"), list):
        chunk["text"] = join_text(chunk["text"])
    if "id" in chunk:
        chunk["id"] = normalize_id(chunk["id"])
    elif isinstance(chunk.get("text"), str):
        chunk["id"] = make_content_id(chunk["text"])
    rest = remove_paths(item, used)
    inner = rest.pop("metadata", None)
    own = inner if isinstance(inner, dict) else {} if inner is None else {"metadata": inner}
    chunk["metadata"] = keep_short_values({**rest, **own}) or {}
    return chunk, grade
