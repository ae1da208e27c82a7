"""Values below the name of their type, as MongoDB and DynamoDB export them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ragfault.io.field_values import InvalidRecord, to_number
from ragfault.io.formats.record_lists import RawRecord, has_query_text

ATTRIBUTE_TYPES = frozenset(("S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"))
"""Types of DynamoDB."""
EXTENDED_TYPES = frozenset(
    ("$oid", "$date", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$symbol", "$uuid")
)
"""Types of the extended JSON of MongoDB."""
MAX_TYPED_DEPTH = 3
"""Deepest object in which a typed value is looked for."""


def has_typed_values(record: RawRecord) -> bool:
    """Tell whether values stand below the name of their type, as MongoDB and DynamoDB write them.

    Beside a query that is a text nothing is an item of DynamoDB: `B` may be the id of a chunk.

    >>> has_typed_values({"_id": {"$oid": "65f0"}, "q": "When?"}), has_typed_values({"q": {"S": "When?"}})
    (True, True)
    >>> has_typed_values({"query": "When?", "metadata": {"size": {"S": "small"}}})
    False
    """
    return _has_typed_values(record, not has_query_text(record), MAX_TYPED_DEPTH)


def _has_typed_values(value: RawRecord, has_items: bool, depth: int) -> bool:
    if has_items and _is_item(value):
        return True
    parts = [item for item in value.values() if isinstance(item, dict)]
    return any(_is_extended(part) or (depth > 0 and _has_typed_values(part, has_items, depth - 1)) for part in parts)


def unwrap_typed_values(value: Any) -> Any:
    """Return a record with its values in place of objects that name their type.

    >>> unwrap_typed_values({"q": {"S": "When?"}, "docs": {"L": [{"M": {"text": {"S": "In 1040."}, "n": {"N": "2"}}}]}})
    {'q': 'When?', 'docs': [{'text': 'In 1040.', 'n': 2}]}
    >>> unwrap_typed_values({"_id": {"$oid": "65f0"}, "hits": [{"score": {"$numberDouble": "0.5"}}]})
    {'_id': '65f0', 'hits': [{'score': 0.5}]}
    """
    return _unwrap(value, not (isinstance(value, dict) and has_query_text(value)))


def _unwrap(value: Any, has_items: bool) -> Any:
    if isinstance(value, list):
        return [_unwrap(item, has_items) for item in value]
    if not isinstance(value, dict):
        return value
    if has_items and _is_item(value):
        return {key: _unwrap_attribute(item) for key, item in value.items()}
    if _is_extended(value):
        [(kind, inner)] = value.items()
        return _parse_number(inner) if kind.startswith("$number") else _unwrap(inner, has_items)
    return {key: _unwrap(item, has_items) for key, item in value.items()}


def unwrap_rows(rows: Iterable[tuple[int, Any]], parse: Callable[[Any], RawRecord]) -> Iterator[tuple[int, Any]]:
    """Yield rows with their values in place of objects that name their type; an invalid one as it is."""
    for number, payload in rows:
        try:
            yield number, payload if number == 0 else unwrap_typed_values(parse(payload))
        except InvalidRecord:
            yield number, payload


def _is_item(value: RawRecord) -> bool:
    """Tell whether each value of an object stands below the letter of its type."""
    return bool(value) and all(map(_is_attribute, value.values()))


def _is_attribute(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= ATTRIBUTE_TYPES


def _is_extended(value: RawRecord) -> bool:
    return len(value) == 1 and next(iter(value)) in EXTENDED_TYPES


def _unwrap_attribute(value: Any) -> Any:
    if not _is_attribute(value):
        return value
    [(kind, inner)] = value.items()
    if kind == "M" and isinstance(inner, dict):
        return {key: _unwrap_attribute(item) for key, item in inner.items()}
    if kind == "L" and isinstance(inner, list):
        return [_unwrap_attribute(item) for item in inner]
    return None if kind == "NULL" else _parse_number(inner) if kind == "N" else inner


def _parse_number(text: Any) -> Any:
    """Parse a number that is written as text; anything else is returned unchanged."""
    number = to_number(text)
    if number is None:
        return text
    return int(text) if str(text).removeprefix("-").isdecimal() else number
