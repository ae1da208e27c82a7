"""Parser of model replies: tolerant JSON, each item validated by its id."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ragfault.judges.llm.prompts.instructions import ITEM_FIELDS, PLAIN_FIELDS, ReplyItem

RequestedFields = dict[str, tuple[str, ...]]
"""Field → the ids that it is asked for; none for a field that goes by no id."""

YES_WORDS, NO_WORDS = frozenset(("true", "yes", "1")), frozenset(("false", "no", "0"))
PERCENT_PATTERN = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*%")
NUMBER_PATTERN = re.compile(r"-?(?:\d+(?:[.,]\d+)?|[.,]\d+)")
CODE_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
MAX_REPLY_LENGTH = 300_000
"""Of a longer reply nothing is read."""
MAX_REPAIR_LENGTH, MAX_REPAIR_DEPTH = 60_000, 40
"""So long and so deep may a reply be that is mended: beyond that it takes long, and is no reply."""
THINKING_BLOCK = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
"""What some models say to themselves before they reply."""
MAX_LIST_ENTRIES = 50
"""So many entries of a list without ids are read."""


class ParsedReply(NamedTuple):
    """What a reply said that was asked for."""

    items: dict[str, dict[str, Any]]
    """Field → id → item."""
    fields: dict[str, Any]
    """Field → value, of those that go by no id."""


class _InvalidValue(ValueError):
    """A value is not what it should be."""


def parse_reply(text: str, requested: RequestedFields, *, truncated: bool = False) -> ParsedReply:
    """What a reply said that was asked for; whatever else it says is left out.

    Each item counts by itself: an id that was not asked for is passed over, an item with a wrong value is none, and
    of two different ones with one id neither counts. A reply that was cut loses the item that it broke off in.

    >>> wanted = {"chunks": ("c1", "c2")}
    >>> said = '{"chunks": [{"id": "C2", "reason": "no", "relevance": "80 %"}, {"id": "c1", "relevance": 7}]}'
    >>> parse_reply(said, wanted).items["chunks"]
    {'c2': ChunkItem(id='c2', reason='no', relevance=0.8)}
    """
    table = _match_fields(parse_json(text, truncated=truncated), requested)
    items = {
        name: _parse_items(ITEM_FIELDS[name], table.get(name), ids)
        for name, ids in requested.items()
        if name in ITEM_FIELDS
    }
    free: dict[str, Any] = {}
    for name in requested:
        if name in PLAIN_FIELDS and name in table:
            try:
                free[name] = _parse_value(PLAIN_FIELDS[name], table[name])
            except _InvalidValue:
                continue
    return ParsedReply(items, free)


def list_missing(requested: RequestedFields, reply: ParsedReply) -> RequestedFields:
    """What was asked for and not said."""
    lacking: RequestedFields = {}
    for name, ids in requested.items():
        if name in PLAIN_FIELDS:
            if name not in reply.fields:
                lacking[name] = ()
        elif left := tuple(one for one in ids if one not in reply.items.get(name, {})):
            lacking[name] = left
    return lacking


def parse_json(text: str, *, truncated: bool = False) -> Any:
    """The JSON value of a reply: as it stands, from a code fence or amid prose, or mended; None where there is none.

    >>> parse_json("Here you are:\\n```json\\n{'missing': ['price',]}\\n```")
    {'missing': ['price']}
    """
    if len(text) > MAX_REPLY_LENGTH:
        return None
    thought = THINKING_BLOCK.match(text)
    bare = text[thought.end() if thought else 0 :].strip().lstrip("\ufeff")
    fenced = CODE_FENCE.search(bare)
    for one in (bare, fenced.group(1).strip() if fenced else ""):
        try:
            return msgspec.json.decode(one)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
    begin = re.search(r"[{\[]", bare)
    if begin is None:
        return None
    return _repair_json(
        fenced.group(1) if fenced and begin.start() > fenced.start() else bare[begin.start() :],
        truncated=truncated,
    )


def _repair_json(text: str, *, truncated: bool) -> Any:
    """JSON with faults, made good; what a cut leaves half said is dropped."""
    import json_repair

    deepest, left_open = _measure_nesting(text)
    if len(text) > MAX_REPAIR_LENGTH or deepest > MAX_REPAIR_DEPTH:
        return None
    try:
        held: Any = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError, AttributeError, KeyError):
        return None
    if isinstance(held, list) and text[0] == "{":
        held = max(
            (one for one in reversed(held) if isinstance(one, Mapping)), key=_count_fields, default=None
        )
    return _drop_last_entry(held) if truncated or left_open else held


def _count_fields(value: Mapping[Any, Any]) -> int:
    """How many of our fields a table has."""
    return sum(str(key).lower() in ITEM_FIELDS or str(key).lower() in PLAIN_FIELDS for key in value)


def _measure_nesting(text: str) -> tuple[int, bool]:
    """How deep the brackets of a text go, and whether one of them, or a quotation mark, was never closed."""
    depth = deepest = 0
    quoted = escaped = False
    for sign in text:
        if quoted:
            quoted, escaped = escaped or sign != '"', sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "}])":
            depth -= 1
    return deepest, depth > 0 or quoted


def _drop_last_entry(value: Any) -> Any:
    """What was said before the end broke off: without the last entry of the last field, or without that field."""
    if isinstance(value, list):
        return value[:-1]
    if not isinstance(value, Mapping) or not value:
        return value
    last = list(value)[-1]
    kept = dict(value)
    if str(last).lower() in ITEM_FIELDS and isinstance(kept[last], list) and kept[last]:
        kept[last] = kept[last][:-1]
    else:
        del kept[last]
    return kept


def _match_fields(reply: Any, requested: RequestedFields) -> dict[str, Any]:
    """Field → value; a reply to a single list may be that list, and a list may stand under its ids."""
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
    """The items of a field that are sound, by id."""
    if isinstance(value, Mapping):
        value = (
            [value]
            if "id" in value
            else [{"id": key, **one} for key, one in value.items() if isinstance(one, Mapping)]
        )
    if not isinstance(value, list):
        return {}
    found: dict[str, Any] = {}
    asked, spoilt = frozenset(ids), set()
    for one in value:
        name = _item_id(one)
        if name not in asked:
            continue
        try:
            item = _parse_struct(item_type, {**_lowercase_keys(one), "id": name})
        except _InvalidValue:
            spoilt.add(name)
            continue
        if name in found and found[name] != item:
            spoilt.add(name)
        found[name] = item
    return {name: item for name, item in found.items() if name not in spoilt}


def _item_id(item: Any) -> str:
    """The id of an item as we write it; "" where it has none."""
    name = _lowercase_keys(item).get("id") if isinstance(item, Mapping) else None
    return name.strip().strip("<>[]()\"'").strip().lower() if isinstance(name, str) else ""


def _lowercase_keys(table: Mapping[Any, Any]) -> dict[str, Any]:
    """A table with its keys in small letters."""
    return {str(key).strip().lower(): value for key, value in table.items()}


def _parse_struct(struct_type: type[Struct], value: Any) -> Any:
    """An item of a shape; what it should not have is passed over, and what it should must be right."""
    if not isinstance(value, Mapping):
        raise _InvalidValue
    table = _lowercase_keys(value)
    made = {}
    for name, kind in _field_types(struct_type).items():
        if name not in table and kind is not str:
            raise _InvalidValue
        made[name] = _parse_value(kind, table.get(name, ""))
    return struct_type(**made)


def _field_types(struct_type: type[Struct]) -> dict[str, Any]:
    """Name → kind of each value of a shape."""
    found = FIELD_TYPES.get(struct_type)
    if found is None:
        found = FIELD_TYPES[struct_type] = get_type_hints(struct_type)
    return found


FIELD_TYPES: dict[type[Struct], dict[str, Any]] = {}
"""What was looked up once."""


def _parse_value(kind: Any, value: Any) -> Any:
    """A value of a kind, however it is spelled."""
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
        return tuple(_parse_value(inner, one) for one in value[:MAX_LIST_ENTRIES])
    return _parse_struct(kind, value)


def _parse_text(value: Any) -> str:
    """Words; nothing else is taken for words but nothing at all."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _InvalidValue
    return value.encode("utf-8", "replace").decode().strip()


def _parse_number(raw: Any) -> float:
    """A number from 0 to 1, also as text or per cent."""
    value = math.nan
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        value = float(raw) if abs(raw) < 1e9 else math.nan
    elif isinstance(raw, str) and len(raw) < 40:
        bare = raw.strip()
        if per := PERCENT_PATTERN.fullmatch(bare):
            value = float(per.group(1).replace(",", ".")) / 100
        elif NUMBER_PATTERN.fullmatch(bare):
            value = float(bare.replace(",", "."))
    if not 0 <= value <= 1:
        raise _InvalidValue
    return value


def _parse_bool(value: Any) -> bool:
    """Yes or no."""
    said = str(value).strip().lower() if isinstance(value, bool | int | str) else ""
    if said in YES_WORDS:
        return True
    if said in NO_WORDS:
        return False
    raise _InvalidValue


def _parse_label(value: Any, labels: Sequence[str]) -> str:
    """One of the labels, in letters of any case."""
    said = re.sub(r"[\s_-]+", " ", value).strip(" .\"'").lower() if isinstance(value, str) else ""
    for label in labels:
        if re.sub(r"[\s_-]+", " ", label) == said:
            return label
    raise _InvalidValue
