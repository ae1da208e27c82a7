"""Records in which every text is an attack, built from their schema: later fields are attacked too."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from sample_reports import HOSTILE

__all__ = ["build_hostile_record", "count_texts"]

T = TypeVar("T")


def build_hostile_record(kind: type[T], time: datetime, text: str = HOSTILE) -> T:
    """Return a record with an attack in every text, one item in every list, and the first of every choice."""
    return msgspec.convert(_build_value(inspect.type_info(kind), time, text, ()), kind)


def count_texts(kind: type, time: datetime) -> int:
    """Count the texts of a record that users can fill freely."""
    return msgspec.json.encode(build_hostile_record(kind, time, "\ue000")).decode().count("\ue000")


def _build_value(kind: inspect.Type, time: datetime, text: str, within: tuple[type, ...]) -> Any:
    """Return a value of a type; a record within itself is left out."""
    if isinstance(kind, inspect.StructType):
        inner = (*within, kind.cls)
        fields = [field for field in kind.fields if not is_repeated(field.type, within)]
        return {field.encode_name: make_field(field, time, text, inner) for field in fields}
    if isinstance(kind, inspect.UnionType):
        member = next(item_type for item_type in kind.types if not isinstance(item_type, inspect.NoneType))
        return _build_value(member, time, text, within)
    if isinstance(kind, inspect.DictType):
        return {_build_value(kind.key_type, time, text, within): _build_value(kind.value_type, time, text, within)}
    if isinstance(kind, inspect.TupleType):
        return [_build_value(item_type, time, text, within) for item_type in kind.item_types]
    if isinstance(kind, inspect.CollectionType):
        return [_build_value(kind.item_type, time, text, within)]
    return make_leaf(kind, time, text)


def make_leaf(kind: inspect.Type, time: datetime, text: str) -> Any:
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.AnyType):
        return [text, {text: text}]
    plain = {inspect.StrType: text, inspect.IntType: 1, inspect.FloatType: 0.5, inspect.BoolType: True}
    return time if isinstance(kind, inspect.DateTimeType) else plain[type(kind)]


def make_field(field: inspect.Field, time: datetime, text: str, within: tuple[type, ...]) -> Any:
    """Return a value of a field; spans of a text cover all of it."""
    if isinstance(field.type, inspect.IntType) and field.name in ("start", "end"):
        return 0 if field.name == "start" else len(text)
    return _build_value(field.type, time, text, within)


def is_repeated(kind: inspect.Type, within: tuple[type, ...]) -> bool:
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(member, inspect.StructType) and member.cls in within for member in types)
