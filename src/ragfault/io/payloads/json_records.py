"""Parsing of a line of JSON as a record. NaN, Infinity and repeated keys are read as well, though they are no JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ragfault.io.field_values import InvalidRecord, check_depth, get_json_type


def _join_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; a key that stands several times with different values has the list of them."""
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        if value not in values.setdefault(key, []):
            values[key].append(value)
    return {key: items if len(items) > 1 else items[0] for key, items in values.items()}


def parse_record(line: bytes, note_constant: Callable[[str], object] = str) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises `InvalidRecord` with the reason.

    NaN and Infinity, which are no JSON but are written by many, are noted, and come through for the checks to name.
    A key that stands several times, as some loggers write one for each chunk, has a list of its values.

    >>> parse_record(b'{"query": "When?", "context": "At nine.", "context": "Dogs are free."}')["context"]
    ['At nine.', 'Dogs are free.']
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"invalid UTF-8 at byte {error.start + 1}") from None
    try:
        record = json.loads(
            text,
            parse_constant=lambda name: (note_constant(name), float(name))[1],
            object_pairs_hook=_join_repeated_keys,
        )
    except json.JSONDecodeError as error:
        raise InvalidRecord(f"malformed JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
    except RecursionError:
        raise InvalidRecord("nested too deeply") from None
    except ValueError as error:
        raise InvalidRecord(f"malformed JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidRecord(f"Expected `object`, got `{get_json_type(record)}`")
    check_depth(record)
    return record
