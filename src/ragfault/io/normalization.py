"""Normalization of records: map columns to fields, normalize the values, and validate the trace.

Keys that belong to no field go to `metadata`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC
from difflib import get_close_matches
from typing import Any

import msgspec

from ragfault.io.field_values import (
    FIELD_NORMALIZERS,
    InvalidRecord,
    as_chunk_object,
    as_list,
    get_json_type,
    make_json_safe,
    parse_cell,
)
from ragfault.io.formats.record_shapes import TRACE_FIELDS, ColumnMap, RawRecord
from ragfault.records import Citation, ConversationTurn, Latency, Step, TokenCounts, Trace

INT64_LIMIT = 2**63


def normalize_record(record: RawRecord, columns: ColumnMap, keep_rest: bool = True, parse_cells: bool = False) -> Trace:
    """Convert a record to a trace.

    `keep_rest` keeps the columns that no field takes as metadata; `parse_cells` reads cells of text as the numbers and
    JSON they hold. The id may be left empty: naming such traces is for the reader, who knows the others.
    Raises `InvalidRecord`, with the path of the invalid value.

    >>> names = {"query": ("question",), "chunks": ("docs",)}
    >>> trace = normalize_record({"question": "When?", "docs": ["In 1040."], "tag": 3}, names)
    >>> trace.query, trace.chunks[0].id, trace.chunks[0].text, trace.metadata
    ('When?', 't-b7624af79cc7', 'In 1040.', {'tag': 3})
    """
    values, taken = _extract_values(record, columns)
    if parse_cells:
        values = {name: parse_cell(name, value) for name, value in values.items()}
        values = {name: value for name, value in values.items() if value is not None}
    if values.get("query") is None:
        names = " or ".join(f"`{path}`" for path in columns.get("query", ("query",)))
        raise InvalidRecord("field `query` is missing" + ("" if names == "`query`" else f" (column {names})"))
    fields = _build_fields(values)
    if keep_rest:
        spare = {key: value for key, value in record.items() if key not in taken and value is not None}
        fields["metadata"] = {**spare, **fields["metadata"]}
    fields["metadata"] = make_json_safe(fields["metadata"])
    try:
        trace = msgspec.convert(fields, Trace)
    except msgspec.ValidationError as error:
        raise InvalidRecord(str(error)) from None
    return normalize_trace(trace, check=True)


def describe_missing_query(expected: Iterable[str], available: Iterable[str]) -> str:
    """Describe that no column is the query.

    >>> describe_missing_query(("query",), ["text", "q"])
    'no column for `query`; there are: text, q; map one with --map query=COLUMN'
    """
    names = list(available)
    shown = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    lacking = " or ".join(expected)
    plain = "" if lacking == "query" else f" ({lacking})"
    return f"no column for `query`{plain}; there are: {shown or 'none'}; map one with --map query=COLUMN"


def describe_missing_column(field: str, path: str, available: Iterable[str]) -> str:
    """Describe that a map names a column that does not exist.

    >>> describe_missing_column("chunks", "dox", ["question", "docs"])
    'no column `dox` to read `chunks` from. Did you mean "docs"? There are: question, docs'
    """
    names = list(available)
    close = get_close_matches(path, names, n=1, cutoff=0.5)
    offer = f' Did you mean "{close[0]}"?' if close else ""
    shown = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    return f"no column `{path}` to read `{field}` from.{offer} There are: {shown or 'none'}"


def list_column_paths(record: RawRecord) -> Iterator[str]:
    """Yield the columns of a record, and the keys of those that are objects, as dotted paths."""
    for name, value in record.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{key}" for key in value)


def starts_at_column(path: str, names: Iterable[str]) -> bool:
    """Tell whether a path begins at one of these columns."""
    return path in names or ("." in path and path.split(".", 1)[0] in names)


def has_path(record: RawRecord, path: str) -> bool:
    """Tell whether a dotted path exists; null and an empty list on the way count as existing.

    >>> has_path({"docs": [{"text": None}]}, "docs.0.text"), has_path({"docs": None}, "docs.0.text")
    (True, True)
    >>> has_path({"docs": [{"text": "a"}]}, "docs.0.page"), has_path({"docs": "a"}, "docs.0")
    (False, False)
    """
    if path in record or "." not in path:
        return path in record
    inner: Any = record
    for step in path.split("."):
        if inner is None or inner == []:
            return True
        if isinstance(inner, dict) and step in inner:
            inner = inner[step]
        elif isinstance(inner, (list, tuple)) and step.isdecimal() and int(step) < len(inner):
            inner = inner[int(step)]
        else:
            return False
    return True


def _extract_values(record: RawRecord, columns: ColumnMap) -> tuple[dict[str, Any], set[str]]:
    """Return the value of each field, and the names of the columns that were used as a field."""
    values: dict[str, Any] = {}
    taken: set[str] = set()
    for name, paths in columns.items():
        for path in paths:
            value = record[path] if path in record else _follow_path(record, path)
            if path in record:
                taken.add(path)
            if value is not None:
                values[name] = value
                break
    return values, taken


def _follow_path(record: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    if "." not in path:
        return None
    for step in path.split("."):
        if isinstance(record, dict):
            record = record.get(step)
        elif isinstance(record, (list, tuple)) and step.isdecimal() and int(step) < len(record):
            record = record[int(step)]
        else:
            return None
    return record


def _build_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Convert values to the fields of a trace as plain objects."""
    fields: dict[str, Any] = {name: values[name] for name in TRACE_FIELDS if name in values}
    metadata = fields.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise InvalidRecord(f"Expected `object`, got `{get_json_type(metadata)}` - at `$.metadata`")
    fields["metadata"] = dict(metadata)
    parallel = _set_nested_fields(fields, values)
    if parallel:
        fields["chunks"] = _merge_chunk_columns(fields.get("chunks"), parallel)
    for name, form in FIELD_NORMALIZERS.items():
        if fields.get(name) is not None:
            fields[name] = form(fields[name])
    _keep_extra_keys(fields)
    fields.setdefault("id", "")
    return fields


def _set_nested_fields(fields: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Put values such as `latency.total` into their fields; those of `chunks` come back, for all at once."""
    parallel: dict[str, Any] = {}
    for name, value in values.items():
        field, _, part = name.partition(".")
        if field == "chunks" and part:
            parallel[part] = value
        elif part:
            inner = fields.get(field)
            fields[field] = {**(inner if isinstance(inner, dict) else {}), part: value}
    return parallel


def _keep_extra_keys(fields: dict[str, Any]) -> None:
    """Keep keys that latency, tokens, citations, history and steps do not have as metadata, lists as lists."""
    for field, record in (("latency", Latency), ("tokens", TokenCounts)):
        inner = fields.get(field)
        if isinstance(inner, dict):
            for key in sorted(inner.keys() - set(record.__struct_fields__), key=str):
                fields["metadata"][f"{field}.{key}"] = inner[key]
    for field, kind in (("citations", Citation), ("history", ConversationTurn), ("steps", Step)):
        parts = [part if isinstance(part, dict) else {} for part in fields.get(field) or ()]
        for key in dict.fromkeys(key for part in parts for key in part):
            if key not in kind.__struct_fields__:
                fields["metadata"][f"{field}.{key}"] = [part.get(key) for part in parts]


def _merge_chunk_columns(chunks: Any, parallel: dict[str, Any]) -> list[Any]:
    """Merge parallel columns of lists into chunks."""
    rows = [dict(as_chunk_object(chunk)) for chunk in as_list(chunks)] if chunks is not None else []
    for part, values in parallel.items():
        column = as_list(values)
        if rows and len(column) != len(rows):
            raise InvalidRecord(f"{len(column)} values for `chunks.{part}` and {len(rows)} chunks - at `$.chunks`")
        rows = rows or [{} for _ in column]
        for row, value in zip(rows, column, strict=True):
            row[part] = value
    return rows


def normalize_trace(trace: Trace, check: bool = False) -> Trace:
    """Give the time an offset, unwrap a tuple of one reference, and replace an empty error by None.

    A time without an offset is taken as UTC. `check` also looks at its numbers and texts, for records that no JSON
    reader has seen.
    """
    if check:
        check_values(trace)
    if trace.time is not None and trace.time.tzinfo is None:
        trace = msgspec.structs.replace(trace, time=trace.time.replace(tzinfo=UTC))
    if type(trace.reference) is tuple and len(trace.reference) == 1:
        trace = msgspec.structs.replace(trace, reference=trace.reference[0])
    if trace.error == "":
        trace = msgspec.structs.replace(trace, error=None)
    return trace


def check_values(trace: Trace) -> None:
    """Raise `InvalidRecord` for NaN, numbers out of range, and texts with a lone surrogate."""
    for place, value in _iterate_numbers(trace):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRecord(f"{'NaN' if math.isnan(value) else 'Infinity'} is not a number - at `$.{place}`")
        if isinstance(value, int) and not -INT64_LIMIT <= value < INT64_LIMIT:
            raise InvalidRecord(f"Number out of range - at `$.{place}`")
        if value is not None and value < 0 and place.startswith(("latency.", "steps[", "tokens.", "turn")):
            raise InvalidRecord(f"{value} is less than nothing - at `$.{place}`")
    try:
        msgspec.msgpack.encode(trace)
    except UnicodeEncodeError:
        raise InvalidRecord("a text holds half a character (a lone surrogate, as in \\ud800)") from None
    except (OverflowError, RecursionError):
        pass


def _iterate_numbers(trace: Trace) -> Iterable[tuple[str, float | int | None]]:
    for place, chunk in enumerate(trace.chunks or ()):
        yield f"chunks[{place}].score", chunk.score
        yield f"chunks[{place}].start", chunk.start
        yield f"chunks[{place}].end", chunk.end
    if trace.gold:
        yield from ((f"gold.chunks[{name}]", grade) for name, grade in trace.gold.chunks.items())
        for place, span in enumerate(trace.gold.spans):
            yield from ((f"gold.spans[{place}].{part}", getattr(span, part)) for part in ("start", "end", "grade"))
    for field, parts in (("latency", Latency), ("tokens", TokenCounts)):
        yield from ((f"{field}.{part}", getattr(getattr(trace, field), part, None)) for part in parts.__struct_fields__)
    for place, step in enumerate(trace.steps or ()):
        yield f"steps[{place}].start", step.start
        yield f"steps[{place}].duration", step.duration
        yield from (
            (f"steps[{place}].tokens.{part}", getattr(step.tokens, part, None))
            for part in TokenCounts.__struct_fields__
        )
    yield "turn", trace.turn
