"""Reading: from whatever a model said to items, each by its id and by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ragfault.judges.llm.shapes import FIELDS, FREE, Item

__all__ = ["Read", "Wanted", "parsed", "read", "unread"]

Wanted = dict[str, tuple[str, ...]]
"""Field → the ids that it is asked for; none for a field that goes by no id."""

YES, NO = frozenset(("true", "yes", "1")), frozenset(("false", "no", "0"))
PERCENT = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*%")
NUMBER = re.compile(r"-?(?:\d+(?:[.,]\d+)?|[.,]\d+)")
FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
LONGEST = 300_000
"""Of a longer reply nothing is read."""
MENDABLE, DEEPEST = 60_000, 40
"""So long and so deep may a reply be that is mended: beyond that it takes long, and is no reply."""
THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
"""What some models say to themselves before they reply."""
MOST = 50
"""So many entries of a list without ids are read."""


class Read(NamedTuple):
    """What a reply said that was asked for."""

    items: dict[str, dict[str, Any]]
    """Field → id → item."""
    free: dict[str, Any]
    """Field → value, of those that go by no id."""


class _Wrong(ValueError):
    """A value is not what it should be."""


def read(text: str, wanted: Wanted, *, cut: bool = False) -> Read:
    """What a reply said that was asked for; whatever else it says is left out.

    Each item counts by itself: an id that was not asked for is passed over, an item with a wrong value is none, and
    of two different ones with one id neither counts. A reply that was cut loses the item that it broke off in.

    >>> wanted = {"chunks": ("c1", "c2")}
    >>> said = '{"chunks": [{"id": "C2", "reason": "no", "relevance": "80 %"}, {"id": "c1", "relevance": 7}]}'
    >>> read(said, wanted).items["chunks"]
    {'c2': ChunkItem(id='c2', reason='no', relevance=0.8)}
    """
    table = _table(parsed(text, cut=cut), wanted)
    items = {
        name: _items(FIELDS[name], table.get(name), ids) for name, ids in wanted.items() if name in FIELDS
    }
    free: dict[str, Any] = {}
    for name in wanted:
        if name in FREE and name in table:
            try:
                free[name] = _valued(FREE[name], table[name])
            except _Wrong:
                continue
    return Read(items, free)


def unread(wanted: Wanted, said: Read) -> Wanted:
    """What was asked for and not said."""
    lacking: Wanted = {}
    for name, ids in wanted.items():
        if name in FREE:
            if name not in said.free:
                lacking[name] = ()
        elif left := tuple(one for one in ids if one not in said.items.get(name, {})):
            lacking[name] = left
    return lacking


def parsed(text: str, *, cut: bool = False) -> Any:
    """The JSON value of a reply: as it stands, from a code fence or amid prose, or mended; None where there is none.

    >>> parsed("Here you are:\\n```json\\n{'missing': ['price',]}\\n```")
    {'missing': ['price']}
    """
    if len(text) > LONGEST:
        return None
    thought = THOUGHT.match(text)
    bare = text[thought.end() if thought else 0 :].strip().lstrip("\ufeff")
    fenced = FENCE.search(bare)
    for one in (bare, fenced.group(1).strip() if fenced else ""):
        try:
            return msgspec.json.decode(one)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
    begin = re.search(r"[{\[]", bare)
    if begin is None:
        return None
    return _mended(
        fenced.group(1) if fenced and begin.start() > fenced.start() else bare[begin.start() :], cut=cut
    )


def _mended(text: str, *, cut: bool) -> Any:
    """JSON with faults, made good; what a cut leaves half said is dropped."""
    import json_repair

    deepest, left_open = _brackets(text)
    if len(text) > MENDABLE or deepest > DEEPEST:
        return None
    try:
        held: Any = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError, AttributeError, KeyError):
        return None
    if isinstance(held, list) and text[0] == "{":
        held = max((one for one in reversed(held) if isinstance(one, Mapping)), key=_told, default=None)
    return _whole(held) if cut or left_open else held


def _told(held: Mapping[Any, Any]) -> int:
    """How many of our fields a table has."""
    return sum(str(key).lower() in FIELDS or str(key).lower() in FREE for key in held)


def _brackets(text: str) -> tuple[int, bool]:
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


def _whole(held: Any) -> Any:
    """What was said before the end broke off: without the last entry of the last field, or without that field."""
    if isinstance(held, list):
        return held[:-1]
    if not isinstance(held, Mapping) or not held:
        return held
    last = list(held)[-1]
    kept = dict(held)
    if str(last).lower() in FIELDS and isinstance(kept[last], list) and kept[last]:
        kept[last] = kept[last][:-1]
    else:
        del kept[last]
    return kept


def _table(held: Any, wanted: Wanted) -> dict[str, Any]:
    """Field → value; a reply to a single list may be that list, and a list may stand under its ids."""
    if isinstance(held, list) and len(wanted) == 1:
        held = {next(iter(wanted)): held}
    if not isinstance(held, Mapping):
        return {}
    table: dict[str, Any] = {}
    for key, value in held.items():
        name = str(key).strip().lower()
        if name in wanted and name not in table:
            table[name] = value
    return table


def _items(shape: type[Item], held: Any, ids: Sequence[str]) -> dict[str, Any]:
    """The items of a field that are sound, by id."""
    if isinstance(held, Mapping):
        held = (
            [held]
            if "id" in held
            else [{"id": key, **one} for key, one in held.items() if isinstance(one, Mapping)]
        )
    if not isinstance(held, list):
        return {}
    found: dict[str, Any] = {}
    asked, spoilt = frozenset(ids), set()
    for one in held:
        name = _name(one)
        if name not in asked:
            continue
        try:
            item = _struct(shape, {**_folded(one), "id": name})
        except _Wrong:
            spoilt.add(name)
            continue
        if name in found and found[name] != item:
            spoilt.add(name)
        found[name] = item
    return {name: item for name, item in found.items() if name not in spoilt}


def _name(held: Any) -> str:
    """The id of an item as we write it; "" where it has none."""
    name = _folded(held).get("id") if isinstance(held, Mapping) else None
    return name.strip().strip("<>[]()\"'").strip().lower() if isinstance(name, str) else ""


def _folded(held: Mapping[Any, Any]) -> dict[str, Any]:
    """A table with its keys in small letters."""
    return {str(key).strip().lower(): value for key, value in held.items()}


def _struct(shape: type[Struct], held: Any) -> Any:
    """An item of a shape; what it should not have is passed over, and what it should must be right."""
    if not isinstance(held, Mapping):
        raise _Wrong
    table = _folded(held)
    made = {}
    for name, kind in _kinds(shape).items():
        if name not in table and kind is not str:
            raise _Wrong
        made[name] = _valued(kind, table.get(name, ""))
    return shape(**made)


def _kinds(shape: type[Struct]) -> dict[str, Any]:
    """Name → kind of each value of a shape."""
    found = KINDS.get(shape)
    if found is None:
        found = KINDS[shape] = get_type_hints(shape)
    return found


KINDS: dict[type[Struct], dict[str, Any]] = {}
"""What was looked up once."""


def _valued(kind: Any, held: Any) -> Any:
    """A value of a kind, however it is spelled."""
    if kind is str:
        return _text(held)
    if kind is float:
        return _number(held)
    if kind is bool:
        return _truth(held)
    if get_origin(kind) is Literal:
        return _label(held, get_args(kind))
    if get_origin(kind) is list:
        if not isinstance(held, list):
            raise _Wrong
        (inner,) = get_args(kind)
        return tuple(_valued(inner, one) for one in held[:MOST])
    return _struct(kind, held)


def _text(held: Any) -> str:
    """Words; nothing else is taken for words but nothing at all."""
    if held is None:
        return ""
    if not isinstance(held, str):
        raise _Wrong
    return held.encode("utf-8", "replace").decode().strip()


def _number(held: Any) -> float:
    """A number from 0 to 1, also as text or per cent."""
    value = math.nan
    if isinstance(held, int | float) and not isinstance(held, bool):
        value = float(held) if abs(held) < 1e9 else math.nan
    elif isinstance(held, str) and len(held) < 40:
        bare = held.strip()
        if per := PERCENT.fullmatch(bare):
            value = float(per.group(1).replace(",", ".")) / 100
        elif NUMBER.fullmatch(bare):
            value = float(bare.replace(",", "."))
    if not 0 <= value <= 1:
        raise _Wrong
    return value


def _truth(held: Any) -> bool:
    """Yes or no."""
    said = str(held).strip().lower() if isinstance(held, bool | int | str) else ""
    if said in YES:
        return True
    if said in NO:
        return False
    raise _Wrong


def _label(held: Any, known: Sequence[str]) -> str:
    """One of the labels, in letters of any case."""
    said = re.sub(r"[\s_-]+", " ", held).strip(" .\"'").lower() if isinstance(held, str) else ""
    for label in known:
        if re.sub(r"[\s_-]+", " ", label) == said:
            return label
    raise _Wrong
