"""Parser of model replies: tolerant JSON, each item validated by its id."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ragfault.judges.llm.prompts.instructions import ITEM_FIELDS, PLAIN_FIELDS, ReplyItem
from ragfault.text.normalization import measure_nesting

RequestedFields = dict[str, tuple[str, ...]]
"""Field → requested ids; none for a field without ids."""

YES_WORDS, NO_WORDS = frozenset(("true", "yes", "1")), frozenset(("false", "no", "0"))
PERCENT_PATTERN = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*%")
NUMBER_PATTERN = re.compile(r"-?(?:\d+(?:[.,]\d+)?|[.,]\d+)")
CODE_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
MAX_REPLY_LENGTH = 300_000
"""Longer replies are ignored."""
MAX_REPAIR_LENGTH, MAX_REPAIR_DEPTH = 60_000, 40
"""Limits of repair: beyond them it takes long, and the text is no reply."""
THINKING_BLOCK = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
"""Reasoning that some models put before their reply."""
MAX_LIST_ENTRIES = 50
"""Entries that are read from a list without ids."""


class ParsedReply(NamedTuple):
    """Valid items and fields of a reply."""

    items: dict[str, dict[str, Any]]
    """Field → id → item."""
    fields: dict[str, Any]
    """Field → value, for fields without ids."""


class _InvalidValue(ValueError):
    """Value of the wrong type or out of range."""


def parse_reply(text: str, requested: RequestedFields, *, truncated: bool = False) -> ParsedReply:
    """Return the requested items of a reply; other content is ignored.

    Items are validated one by one: unknown ids and items with an invalid value are dropped, and so are
    different items with one id. A truncated reply loses its last item.

    >>> requested = {"chunks": ("c1", "c2")}
    >>> reply = '{"chunks": [{"id": "C2", "reason": "no", "relevance": "80 %"}, {"id": "c1", "relevance": 7}]}'
    >>> parse_reply(reply, requested).items["chunks"]
    {'c2': ChunkItem(id='c2', reason='no', relevance=0.8)}
    """
    table = _match_fields(parse_json(text, truncated=truncated), requested)
    items = {
        name: _parse_items(ITEM_FIELDS[name], table.get(name), ids)
        for name, ids in requested.items()
        if name in ITEM_FIELDS
    }
    fields: dict[str, Any] = {}
    for name in requested:
        if name in PLAIN_FIELDS and name in table:
            try:
                fields[name] = _parse_value(PLAIN_FIELDS[name], table[name])
            except _InvalidValue:
                continue
    return ParsedReply(items, fields)


def list_missing(requested: RequestedFields, reply: ParsedReply) -> RequestedFields:
    """List the requested fields and ids that a reply lacks."""
    missing: RequestedFields = {}
    for name, ids in requested.items():
        if name in PLAIN_FIELDS:
            if name not in reply.fields:
                missing[name] = ()
        elif ids_left := tuple(item_id for item_id in ids if item_id not in reply.items.get(name, {})):
            missing[name] = ids_left
    return missing


def parse_json(text: str, *, truncated: bool = False) -> Any:
    """Return the JSON value of a reply: plain, fenced, within prose, or repaired; None without one.

    >>> parse_json("Here you are:\\n```json\\n{'missing': ['price',]}\\n```")
    {'missing': ['price']}
    """
    if len(text) > MAX_REPLY_LENGTH:
        return None
    thinking = THINKING_BLOCK.match(text)
    bare = text[thinking.end() if thinking else 0 :].strip().lstrip("\ufeff")
    fenced = CODE_FENCE.search(bare)
    for candidate in (bare, fenced.group(1).strip() if fenced else ""):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
    start = re.search(r"[{\[]", bare)
    if start is None:
        return None
    return _repair_json(
        fenced.group(1) if fenced and start.start() > fenced.start() else bare[start.start() :], truncated=truncated
    )


def _repair_json(text: str, *, truncated: bool) -> Any:
    """Repair malformed JSON; drop what a truncation left incomplete."""
    import json_repair

    depth, unclosed = measure_nesting(text)
    if len(text) > MAX_REPAIR_LENGTH or depth > MAX_REPAIR_DEPTH:
        return None
    try:
        value: Any = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError, AttributeError, KeyError):
        return None
    if isinstance(value, list) and text[0] == "{":
        value = max((entry for entry in reversed(value) if isinstance(entry, Mapping)), key=_count_fields, default=None)
    return _drop_last_entry(value) if truncated or unclosed else value


def _count_fields(value: Mapping[Any, Any]) -> int:
    return sum(str(key).lower() in ITEM_FIELDS or str(key).lower() in PLAIN_FIELDS for key in value)


def _drop_last_entry(value: Any) -> Any:
    if isinstance(value, list):
        return value[:-1]
    if not isinstance(value, Mapping) or not value:
        return value
    last = list(value)[-1]
    complete = dict(value)
    if str(last).lower() in ITEM_FIELDS and isinstance(complete[last], list) and complete[last]:
        complete[last] = complete[last][:-1]
    else:
        del complete[last]
    return complete


def _match_fields(reply: Any, requested: RequestedFields) -> dict[str, Any]:
    """Map field to value; a reply to a single field may be its bare list."""
    if isinstance(reply, list) and len(requested) == 1:
        reply = {next(iter(requested)): reply}
    if not isinstance(reply, Mapping):
        return {}
    table: dict[str, Any] = {}
    for key, value in reply.items():
        name = str(key).strip().lower()
        if name in requested and name not in table:
            table[name] = value
    return table


def _parse_items(item_type: type[ReplyItem], value: Any, ids: Sequence[str]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        value = (
            [value]
            if "id" in value
            else [{"id": key, **entry} for key, entry in value.items() if isinstance(entry, Mapping)]
        )
    if not isinstance(value, list):
        return {}
    items: dict[str, Any] = {}
    requested, invalid = frozenset(ids), set()
    for entry in value:
        id_ = _lowercase_keys(entry).get("id") if isinstance(entry, Mapping) else None
        name = id_.strip().strip("<>[]()\"'").strip().lower() if isinstance(id_, str) else ""
        if name not in requested:
            continue
        try:
            item = _parse_struct(item_type, {**_lowercase_keys(entry), "id": name})
        except _InvalidValue:
            invalid.add(name)
            continue
        if name in items and items[name] != item:
            invalid.add(name)
        items[name] = item
    return {name: item for name, item in items.items() if name not in invalid}


def _lowercase_keys(table: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).strip().lower(): value for key, value in table.items()}


def _parse_struct(struct_type: type[Struct], value: Any) -> Any:
    """Convert an object to a struct; extra keys are ignored, the others must be valid."""
    if not isinstance(value, Mapping):
        raise _InvalidValue
    table = _lowercase_keys(value)
    values = {}
    for name, kind in _field_types(struct_type).items():
        if name not in table and kind is not str:
            raise _InvalidValue
        values[name] = _parse_value(kind, table.get(name, ""))
    return struct_type(**values)


def _field_types(struct_type: type[Struct]) -> dict[str, Any]:
    types = FIELD_TYPES.get(struct_type)
    if types is None:
        types = FIELD_TYPES[struct_type] = get_type_hints(struct_type)
    return types


FIELD_TYPES: dict[type[Struct], dict[str, Any]] = {}
"""Cache of the types of fields."""


def _parse_value(kind: Any, value: Any) -> Any:
    if kind is str:
        return _parse_text(value)
    if kind is float:
        return _parse_number(value)
    if kind is bool:
        return _parse_bool(value)
    if get_origin(kind) is Literal:
        return _parse_label(value, get_args(kind))
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise _InvalidValue
        (inner,) = get_args(kind)
        return tuple(_parse_value(inner, entry) for entry in value[:MAX_LIST_ENTRIES])
    return _parse_struct(kind, value)


def _parse_text(value: Any) -> str:
    """Parse a string; None is ""."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _InvalidValue
    return value.encode("utf-8", "replace").decode().strip()


def _parse_number(raw: Any) -> float:
    """Parse a number in [0, 1], also as text or percentage."""
    value = math.nan
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        value = float(raw) if abs(raw) < 1e9 else math.nan
    elif isinstance(raw, str) and len(raw) < 40:
        text = raw.strip()
        if percent := PERCENT_PATTERN.fullmatch(text):
            value = float(percent.group(1).replace(",", ".")) / 100
        elif NUMBER_PATTERN.fullmatch(text):
            value = float(text.replace(",", "."))
    if not 0 <= value <= 1:
        raise _InvalidValue
    return value


def _parse_bool(value: Any) -> bool:
    text = str(value).strip().lower() if isinstance(value, bool | int | str) else ""
    if text in YES_WORDS:
        return True
    if text in NO_WORDS:
        return False
    raise _InvalidValue


def _parse_label(value: Any, labels: Sequence[str]) -> str:
    """Match one of the labels, ignoring case and separators."""
    text = re.sub(r"[\s_-]+", " ", value).strip(" .\"'").lower() if isinstance(value, str) else ""
    for label in labels:
        if re.sub(r"[\s_-]+", " ", label) == text:
            return label
    raise _InvalidValue
