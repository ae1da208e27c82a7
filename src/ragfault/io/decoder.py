"""Decoder of trace records: the first record of a file decides the shape, and all records are decoded by it.

A native line goes straight through msgspec; only one that fails there takes the slow path, which names the problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from ragfault.errors import MAX_BAD_LINES_SHOWN, InputError
from ragfault.io.error_collector import ErrorCollector
from ragfault.io.field_values import MAX_METADATA_DEPTH, InvalidRecord, get_json_type
from ragfault.io.formats import record_shapes
from ragfault.io.normalization import (
    describe_missing_column,
    describe_missing_query,
    has_path,
    list_column_paths,
    normalize_record,
    normalize_trace,
    starts_at_column,
)
from ragfault.records import Chunk, Citation, ConversationTurn, Gold, Latency, Span, Step, TokenCounts, Trace

NoticeCallback = Callable[[str], object]

MAX_KNOWN_COLUMNS = 1000
"""Maximum number of column names kept for suggestions."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None
NonNegativeInt64 = Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
NonNegativeFloat = Annotated[float, Meta(ge=0)] | None


def _define_key_struct(record: type[msgspec.Struct], **known: Any) -> Any:
    """Define a struct that allows the keys of a record and no others, and leaves values undecoded."""
    fields = [(name, known.get(name, Raw), None) for name in record.__struct_fields__]
    return msgspec.defstruct(f"{record.__name__}Keys", fields, forbid_unknown_fields=True, gc=False)


TokenKeys = _define_key_struct(TokenCounts, **dict.fromkeys(TokenCounts.__struct_fields__, NonNegativeInt64)) | None
TraceKeys = _define_key_struct(
    Trace,
    history=tuple[_define_key_struct(ConversationTurn), ...] | None,  # type: ignore[misc]
    chunks=tuple[_define_key_struct(Chunk, start=Int64, end=Int64), ...] | None,  # type: ignore[misc]
    citations=tuple[_define_key_struct(Citation), ...] | None,  # type: ignore[misc]
    gold=_define_key_struct(Gold, spans=tuple[_define_key_struct(Span, start=Int64, end=Int64), ...]) | None,  # type: ignore[misc]
    turn=NonNegativeInt64,
    latency=_define_key_struct(Latency, **dict.fromkeys(Latency.__struct_fields__, NonNegativeFloat)) | None,
    steps=tuple[  # type: ignore[misc]
        _define_key_struct(Step, start=NonNegativeFloat, duration=NonNegativeFloat, tokens=TokenKeys), ...
    ]
    | None,
    tokens=TokenKeys,
)
"""The keys of a trace, with integers within 64 bits and no negative times and counts."""


class ReadOptions:
    """Options of one reading, the same for all its files."""

    def __init__(
        self,
        column_map: record_shapes.ColumnMap,
        shape: record_shapes.RecordShape | None,
        notice: NoticeCallback | None,
        max_line: int,
        keep_rest: bool = False,
    ) -> None:
        self.column_map, self.shape, self.notice, self.max_line = column_map, shape, notice, max_line
        self.keep_rest = keep_rest or not column_map
        """Keep columns that no field takes as metadata."""
        self.last_notice: str | None = None
        self.missing_columns = {path: field for field, paths in column_map.items() for path in paths}
        """Columns of the map that no record has had so far, each with its field."""
        self.known_columns: dict[str, None] = {}
        """Columns of the records so far, while some of the map are missing."""

    def notify(self, line: str) -> None:
        """Report a line once, not for each of many files."""
        if self.notice and line != self.last_notice:
            self.last_notice = line
            self.notice(line)

    def is_record(self, names: Iterable[str]) -> bool:
        """Tell whether an object with these keys is a record."""
        names = set(names)
        query = self.column_map.get("query") or (self.shape.columns["query"] if self.shape else ())
        return any(starts_at_column(path, names) for path in query) or record_shapes.detect_shape(names) is not None

    def observe_columns(self, record: dict[str, Any]) -> None:
        """Note which columns of the map a record has."""
        for path in [path for path in self.missing_columns if has_path(record, path)]:
            del self.missing_columns[path]
        if self.missing_columns and len(self.known_columns) < MAX_KNOWN_COLUMNS:
            self.known_columns.update(dict.fromkeys(list_column_paths(record)))

    def check_columns(self) -> None:
        """Raise `InputError` for a column of the map that no record has had."""
        if self.missing_columns and self.known_columns:
            path, field = next(iter(self.missing_columns.items()))
            raise InputError(describe_missing_column(field, path, self.known_columns))


class TraceDecoder:
    """Decoder of the records of one file; the first record decides the shape."""

    def __init__(self, name: str, options: ReadOptions) -> None:
        self.name, self.options = name, options
        self.columns: record_shapes.ColumnMap | None = None
        self.flatten: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.is_native = self.is_table = False
        self.unrecognized_count = 0
        self.decode_native = msgspec.json.Decoder(Trace).decode
        self.check_keys = msgspec.json.Decoder(TraceKeys).decode

    def read_header(self, names: list[str]) -> None:
        """Detect the shape by the columns of a table; raises `InputError` where none can be the query."""
        self.is_table = True
        try:
            self._detect_shape(dict.fromkeys(names, ""))
        except InvalidRecord as wrong:
            raise InputError(f"{self.name}: {wrong}") from None
        for field, [path] in self.options.column_map.items():
            if not starts_at_column(path, names):
                raise InputError(f"{self.name}: {describe_missing_column(field, path, names)}")
            if path in names:
                self.options.missing_columns.pop(path, None)

    def decode_record(self, payload: Any) -> Trace:
        """Decode a payload to a trace. Raises `InvalidRecord`."""
        if self.is_native and type(payload) is bytes:
            trace = self._decode_native_line(payload)
            if trace is not None:
                return trace
        if isinstance(payload, InvalidRecord):
            raise payload
        if isinstance(payload, Trace):
            if self.is_native:
                return normalize_trace(payload, check=True)
            payload = msgspec.to_builtins(payload)
        record = parse_record(payload) if isinstance(payload, bytes) else payload
        if self.columns is None:
            self._detect_shape(record)
            if self.is_native and type(payload) is bytes:
                return self.decode_record(payload)
        if self.flatten:
            record = self.flatten(record)
        if self.options.missing_columns:
            self.options.observe_columns(record)
        return normalize_record(record, self.columns or {}, keep_rest=self.options.keep_rest, parse_cells=self.is_table)

    def _decode_native_line(self, line: bytes) -> Trace | None:
        """Decode a native line by msgspec alone; return None where it needs the slow path."""
        try:
            self.check_keys(line)
            trace = self.decode_native(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if line.count(b"{") + line.count(b"[") > MAX_METADATA_DEPTH and _measure_json_depth(line) > MAX_METADATA_DEPTH:
            return None
        plain = trace.time is None and type(trace.reference) is not tuple and trace.error != ""
        return trace if plain else normalize_trace(trace)

    def _detect_shape(self, record: dict[str, Any]) -> None:
        """Find the shape from the first record; raises `InvalidRecord` where none fits."""
        given, shape = self.options.column_map, self.options.shape or record_shapes.detect_shape(record)
        if shape is None and "query" in given:
            shape = record_shapes.NATIVE_SHAPE
        if shape is None:
            raise InvalidRecord(describe_missing_query(("query",), record))
        columns = {**shape.columns, **given}
        self.flatten = shape.flatten
        if shape.name == "ragtruth":
            from ragfault.io.formats.record_shapes import make_ragtruth_flattener

            self.flatten = make_ragtruth_flattener(self.name, self.options.max_line)
            record = self.flatten(record)
        elif not any(path in record or "." in path for path in columns["query"]):
            raise InvalidRecord(describe_missing_query(columns["query"], record))
        self.is_native = shape is record_shapes.NATIVE_SHAPE and not given
        self.columns = columns
        self._announce_shape(shape, record)

    def _announce_shape(self, shape: record_shapes.RecordShape, record: dict[str, Any]) -> None:
        used = [path for paths in (self.columns or {}).values() for path in paths if path in record]
        mapped = " by a column map" if self.options.column_map else ""
        spare = [key for key in record if key not in used] if self.options.keep_rest else []
        more = f"; kept in metadata: {', '.join(spare[:10])}{', …' if len(spare) > 10 else ''}" if spare else ""
        self.options.notify(f"read as {shape.title}{mapped} ({', '.join(used)}){more}")

    def check_recognized(self, collector: ErrorCollector) -> None:
        """Stop at a file whose first records are all of no known shape; raises `InputError`."""
        self.unrecognized_count += self.columns is None
        if self.unrecognized_count >= MAX_BAD_LINES_SHOWN and not collector.good_count:
            raise InputError(f"{self.name}: {collector.bad_lines[-1].problem if collector.bad_lines else 'no traces'}")


def parse_record(line: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises `InvalidRecord` with the reason.

    NaN and Infinity, which are no JSON but are written by many, come through for the checks to name.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"invalid UTF-8 at byte {error.start + 1}") from None
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRecord(f"malformed JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
    except RecursionError:
        raise InvalidRecord("nested too deeply") from None
    except ValueError as error:
        raise InvalidRecord(f"malformed JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidRecord(f"Expected `object`, got `{get_json_type(record)}`")
    return record


def _measure_json_depth(line: bytes) -> int:
    """Measure how deep a valid line of JSON nests."""
    depth = deepest = 0
    string = escaped = False
    for byte in line:
        if string:
            string, escaped = escaped or byte != 0x22, not escaped and byte == 0x5C
        elif byte == 0x22:
            string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
