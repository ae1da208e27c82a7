"""Columns of records: the paths that lead to content, with what the samples hold there, and maps of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ragfault.io.agents.calls import list_retrieval_paths
from ragfault.io.formats.conversations import find_turns, list_messages_by_id
from ragfault.io.formats.field_names import is_metadata_container, is_record_metadata, rank_fields
from ragfault.io.formats.passages import classify, is_spread_passages
from ragfault.io.formats.paths import ColumnFunction, get_path, list_numbered, list_paths
from ragfault.io.formats.record_shapes import TRACE_FIELDS
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Chunk, Gold, Latency, TokenCounts
from ragfault.model.whole_files import read_toml

ColumnMap = dict[str, tuple[str, ...]]
RawRecord = dict[str, Any]
NUMBERED = re.compile(r"(.*?[^\d])?(\d{1,3})(\D*)")
PLACE_STEP = re.compile(r"(.+[./])(\d{1,3})([./]\D+)")
"""A path with a place between names: `hits.0.text`."""


class Column(NamedTuple):
    """A column, or a path into one, with what the samples hold there."""

    path: str
    kind: str
    values: tuple[Any, ...]
    """The values that are there, in order."""
    place: int

    @property
    def depth(self) -> int:
        return self.path.count(".") + self.path.count("[")


def overlaps(path: str, taken: Iterable[str]) -> bool:
    """Tell whether a path, or one above or below it, is taken."""
    roots = (".", "[")
    return any(
        path == other
        or (path.startswith(other) and path[len(other)] in roots and not path.startswith(f"{other}[]."))
        or (other.startswith(path) and other[len(path)] in roots and not other.startswith(f"{path}[]."))
        for other in taken
    )


def list_columns(samples: Sequence[RawRecord], enter: bool = False) -> list[Column]:
    """List the columns and paths of the samples with their content, numbered columns joined to one.

    An object that is called metadata is no columns, unless it may be entered to find the question there.
    """
    values: dict[str, list[Any]] = {}
    for sample in samples:
        for path, value in list_paths(sample, is_leaf=_is_chunks_object):
            if not _is_below_container(path, sample, enter):
                values.setdefault(path, []).append(value)
                for item in (*_list_item_paths(path, value), *list_retrieval_paths(path, value)):
                    values.setdefault(item, []).append(get_path(sample, item))
    for path in [path for path in values if _is_below_passages(path, values)]:
        del values[path]
    for pattern, names in _find_numbered(values).items():
        for path in names:
            del values[path]
        lists = [matches for sample in samples if isinstance(matches := get_path(sample, pattern), list)]
        matches = [[text for text in texts if text] for texts in lists]
        values[pattern] = [texts for texts in matches if texts]
    return [
        Column(path, _choose_kind(content), tuple(value for value in content if classify(value) != "empty"), i)
        for i, (path, content) in enumerate(values.items())
    ]


def _is_below_passages(path: str, values: dict[str, list[Any]]) -> bool:
    """Tell whether a path enters a list of passages, which is read at once."""
    for match in re.finditer(r"\[0\]", path):
        parent = path[: match.start()]
        is_named = any(field == "chunks" for field, _ in rank_fields(parent))
        lists = [value for value in values.get(parent, ()) if isinstance(value, list)]
        if any(classify(value) in ("passages", "texts") for value in lists if is_named or len(value) > 1):
            return True
    return False


def _is_chunks_object(value: Any) -> bool:
    """Tell whether an object is passages by itself, whose keys are no columns."""
    if list_messages_by_id(value) is not None:
        return True
    return is_spread_passages(value) and not any(rank_fields(str(key)) for key in value if key in ("query", "answer"))


def _is_below_container(path: str, sample: RawRecord, enter: bool) -> bool:
    """Tell whether a path leads into an object that is metadata at once; passages in `metadata` are content."""
    parts = path.split(".")
    if path in sample and parts[0] == "attributes":
        # a table of spans
        parts = parts[1:]
    if not any(is_metadata_container(part) and (not enter or not is_record_metadata(part)) for part in parts[:-1]):
        return False
    is_named = any(field == "chunks" for field, _ in rank_fields(path))
    return not (is_named and is_record_metadata(parts[-2]) and is_passages(get_path(sample, path)))


def is_passages(value: Any) -> bool:
    """Tell whether a value is passages or texts."""
    return classify(value) in ("passages", "texts")


def _is_chat(value: Any) -> bool:
    """Tell whether a list is a conversation in which a user speaks."""
    is_list = isinstance(value, list) and any(isinstance(item, dict) for item in value)
    return is_list and any(turn["role"] == "user" for turn in find_turns(value) or ())


def _list_item_paths(path: str, value: Any) -> list[str]:
    """List the paths of passages that lie within the items of a list, as results of a search call do."""
    items = value if isinstance(value, list) and not _is_chat(value) else []
    keys = {
        key: None
        for item in items
        if isinstance(item, dict) and not item.keys() & {"role", "speaker", "from", "sender"}
        for key, part in list_paths(item, 3)
        if isinstance(part, list) and "[" not in key
        if key.rpartition(".")[2] not in ("content", "parts", "summary", "sentences", "messages", "choices")
        if classify(part) in ("passages", "texts")
    }
    return [f"{path}[].{key}" for key in keys] if len(items) > 1 else []


def is_named_chunks(path: str) -> bool:
    """Tell whether the name of a path says that chunks are there."""
    return any(field == "chunks" for field, _ in rank_fields(path)[:1])


def _find_numbered(values: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Find columns that differ in a number alone and hold texts or passages: pattern → columns."""
    groups: dict[str, list[str]] = {}
    for path in values:
        above, dot, name = path.rpartition(".")
        match = NUMBERED.fullmatch(name)
        if match is None and (match := PLACE_STEP.fullmatch(path)) and is_named_chunks(match[1]):
            above = dot = ""
        if match and "[" not in path:
            groups.setdefault(f"{above}{dot}{match[1] or ''}*{match[3]}", []).append(path)
    return {
        pattern: names
        for pattern, names in groups.items()
        if (len(names) > 1 or any(field == "chunks" for field, _ in rank_fields(pattern.replace("*", ""))))
        and pattern != "*"
        and list_numbered(values, pattern)
    }


def _choose_kind(values: Sequence[Any]) -> str:
    """Choose the kind of a column by the kinds of its values: the richest that is there."""
    kinds = {classify(value) for value in values} - {"empty"}
    order = ("conversation", "passages", "texts", "text", "words", "objects", "object", "lists", "word", "codes")
    return next((kind for kind in order if kind in kinds), next(iter(kinds), "empty"))


NESTED_RECORDS = {"chunks": Chunk, "latency": Latency, "tokens": TokenCounts, "gold": Gold}
MAP_KEYS = (
    *TRACE_FIELDS,
    *(f"{name}.{item}" for name, kind in NESTED_RECORDS.items() for item in kind.__struct_fields__),
)


def parse_column_map(mapping: Mapping[str, str | Callable[[Any], Any]] | str | Path | None) -> ColumnMap:
    """Parse a column map: field → column, or the path of a TOML file with the same content.

    A field is one of a trace, `metadata.NAME`, or a part such as `latency.total`; `chunks.id` names a column of lists
    parallel to the chunks. A column may be a path with dots (`choices.0.text`), which nested tables stand for too, and
    in Python a function of the record, which returns the value of the field.
    Raises `UnknownName` for an unknown field, `InputError` for an unreadable file.

    >>> parse_column_map({"query": "question", "metadata.task": "task"})
    {'query': ('question',), 'metadata.task': ('task',)}
    """
    if mapping is None:
        return {}
    table = load_column_map(mapping)
    for key, column in table.items():
        if key not in MAP_KEYS and not (key.startswith("metadata.") and len(key) > len("metadata.")):
            raise UnknownName("map key", key, [*MAP_KEYS, "metadata.NAME"], listed=True)
        if not (callable(column) or isinstance(column, str)) or not column:
            raise InputError(f"the map key {key} needs the name of a column, not {column!r}")
    return {key: (ColumnFunction.wrap(column) if callable(column) else column,) for key, column in table.items()}


def load_column_map(mapping: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Load a map from an object or a TOML file, unchecked."""
    if not isinstance(mapping, (str, Path)):
        return flatten_map(mapping)
    table = read_toml(mapping)
    return flatten_map(table.get("map", table))


def flatten_map(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted keys.

    >>> flatten_map({"query": "question", "latency": {"total": "ms"}})
    {'query': 'question', 'latency.total': 'ms'}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten_map(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
