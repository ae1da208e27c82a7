"""Parts of a trace that is too large for one page: what is shown of it at once, and the rest of a list or text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ragfault.apps.watch.server.api.traffic_views import TraceView, load_trace
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.records import TraceComment
from ragfault.model.errors import UnknownName, UsageError

# bytes that a trace may take on its page, or as JSON, before parts of it are left out
MAX_PAGE_BYTES = 900_000
# bytes of a page of the rest of a list
PART_BYTES = 400_000
# characters of a page of the rest of a text
PART_CHARACTERS = 50_000
ITEM_LEVELS = (None, 500, 300, 200, 140, 100, 70, 50, 35, 20, 10)
TEXT_LEVELS = (None, 20_000, 5_000, 1_000)
"""Items of a list and characters of a text that are tried in turn until a part takes no more than its share."""
# characters of a text where even few items with longer ones are too much
SHORT_TEXT = 200
MAX_FIELDS = 40
"""Fields of an object above which it counts as a list: metadata, which traffic chooses; no record has as many."""
# characters that take up to six bytes in HTML or JSON
SIX_BYTES = re.compile(r"[\x00-\x1f\x7f-\x9f\"&'<>]")


class PartShare(NamedTuple):
    """Largest share of a page that a part of a trace takes."""

    bytes: int
    item: int
    """Bytes of the markup of each of its items."""


SHARES = {
    "/trace/steps": PartShare(180_000, 1500),
    "/trace/chunks": PartShare(200_000, 1800),
    "/trace/answer": PartShare(60_000, 0),
    "/trace/query": PartShare(30_000, 0),
    "/verdicts/claim": PartShare(150_000, 2200),
    "/verdicts/chunk": PartShare(30_000, 100),
    "/verdicts/use": PartShare(20_000, 50),
    "/trace/citations": PartShare(40_000, 1000),
    "/verdicts/citation": PartShare(20_000, 700),
    "/scores": PartShare(60_000, 400),
}
"""The parts that take most of a page."""
OTHER_SHARE = PartShare(25_000, 900)
"""The share of any other part, such as the references or the verdicts on facts: about ten may be long at once."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A list or text of a trace of which only the beginning is shown."""

    part: str
    """Where it is, as a JSON pointer: "/trace/chunks/3/text"."""
    shown: int
    total: int
    """Characters of a text, items of a list or fields of an object."""


class TracePart(Struct, frozen=True, kw_only=True):
    """A page of one list or text of a trace."""

    trace: str
    part: str
    after: int
    """Items or characters before this page."""
    total: int
    values: Any
    """A text, a list, or an object with the fields of this page."""
    left_out: tuple[LeftOut, ...] = ()
    """What is too long for this page, too."""
    next: int | None = None
    """`after` of the next page; None on the last one."""


class BoundedTrace(TraceView, frozen=True, kw_only=True):
    """One trace as far as it fits on a page."""

    left_out: tuple[LeftOut, ...] = ()
    """Lists and texts that are not whole here, each with the place of its rest: `/part.json?trace=&part=&after=`."""


def bound_trace(view: TraceView, *, as_json: bool = False) -> BoundedTrace:
    """Return a trace with the beginning of each list and text that is too long for one page."""
    encoded = msgspec.json.encode(view)
    record: dict[str, Any] = msgspec.json.decode(encoded)
    repeated = None if as_json else 3 * len(quote(view.trace.id, errors="replace"))
    parts = [(part, _get_share(part.pointer, repeated)) for part in _list_parts(record)]
    size = len(encoded) if as_json else sum(weigh(part.value, share.item) for part, share in parts)
    left: list[LeftOut] = []
    if size > MAX_PAGE_BYTES:
        for part, share in parts:
            part.parent[part.name] = fit_value(part.value, part.pointer, share, left)
    return msgspec.convert(record | {"left_out": msgspec.to_builtins(left)}, BoundedTrace)


def bound_comments(comments: Sequence[TraceComment]) -> tuple[tuple[TraceComment, ...], list[LeftOut]]:
    """Return as many comments of a trace as fit on its page, and what is left out."""
    left: list[LeftOut] = []
    fitted = fit_value(msgspec.to_builtins(list(comments)), "/comments", PartShare(60_000, 300), left)
    return msgspec.convert(fitted, tuple[TraceComment, ...]), left


def _get_share(pointer: str, repeated: int | None) -> PartShare:
    """Return the share of a part; on a page, forms and links of each item repeat the id of the trace."""
    share = SHARES.get(pointer, OTHER_SHARE)
    return share._replace(item=2 if repeated is None else share.item + repeated)


class _Part(NamedTuple):
    pointer: str
    parent: dict[str, Any]
    """The object that has it."""
    name: str
    value: Any


def _list_parts(record: dict[str, Any]) -> Iterator[_Part]:
    """Yield the parts of a trace."""
    for name, value in record.items():
        if name in ("trace", "verdicts", "faulty_step") and isinstance(value, dict):
            yield from (_Part(f"/{name}/{field}", value, field, part) for field, part in value.items())
        else:
            yield _Part(f"/{name}", record, name, value)


def weigh(value: Any, item: int) -> int:
    """Return the most bytes that a value takes on a page, `item` for the markup of each item of a list.

    >>> weigh(["a<"], 100), weigh({"a": 1}, 0)
    (109, 20)
    """
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) + 5 * len(SIX_BYTES.findall(value)) + 2
    if isinstance(value, Mapping):
        return sum(17 + len(str(name)) + weigh(part, item) for name, part in value.items())
    if isinstance(value, list):
        return sum((item if isinstance(part, Mapping | str) else 8) + weigh(part, item) for part in value)
    return 2


def fit_value(value: Any, pointer: str, share: PartShare, left: list[LeftOut]) -> Any:
    """Return as much of a value as takes its share of a page; what is left out is added to `left`."""
    if weigh(value, share.item) <= share.bytes:
        return value
    for items, texts in [
        *((items, texts) for items in ITEM_LEVELS for texts in TEXT_LEVELS if items or texts),
        (10, SHORT_TEXT),
        (2, SHORT_TEXT),
    ]:
        cut: list[LeftOut] = []
        fitted = _cut_value(value, pointer, items, texts, cut)
        if weigh(fitted, share.item) <= share.bytes:
            break
    left += cut
    return fitted


def _cut_value(value: Any, pointer: str, items: int | None, texts: int | None, left: list[LeftOut]) -> Any:
    if isinstance(value, str) and texts is not None and len(value) > texts:
        left.append(LeftOut(part=pointer, shown=texts, total=len(value)))
        return value[:texts]
    if isinstance(value, list):
        if items is not None and len(value) > items:
            left.append(LeftOut(part=pointer, shown=items, total=len(value)))
        return [_cut_value(part, f"{pointer}/{i}", items, texts, left) for i, part in enumerate(value[:items])]
    if isinstance(value, Mapping):
        names = list(value)
        if items is not None and len(names) > MAX_FIELDS and len(names) > items:
            left.append(LeftOut(part=pointer, shown=items, total=len(names)))
            names = names[:items]
        return {
            name: _cut_value(value[name], f"{pointer}/{escape_pointer(str(name))}", items, texts, left)
            for name in names
        }
    return value


def load_trace_part(server: ServerState, trace: str, part: str, after: int) -> TracePart:
    """Load a page of one list or text of a trace, from behind its first `after` items or characters.

    Raises UnknownName for an unknown trace or part, and UsageError for a part that is neither list nor text.
    """
    value: Any = msgspec.json.decode(msgspec.json.encode(load_trace(server, trace)))
    if part.startswith("/comments"):
        value["comments"] = msgspec.to_builtins(list(server.store.read_comments(trace)))
    for name in part.split("/")[1:]:
        value = _get_inner(value, name.replace("~1", "/").replace("~0", "~"), part)
    if isinstance(value, str):
        end = after + PART_CHARACTERS
        return TracePart(
            trace=trace,
            part=part,
            after=after,
            total=len(value),
            values=value[after:end],
            next=end if end < len(value) else None,
        )
    if not part.startswith("/") or not isinstance(value, Mapping | list):
        raise UsageError(f'"{part[:80]}" of this trace is neither a list nor a text. Look at the trace itself.')
    left: list[LeftOut] = []
    pairs: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, Mapping) else list(enumerate(value))
    shown: list[tuple[Any, Any]] = []
    room = PART_BYTES
    for key, inner in pairs[after:]:
        pointer = f"{part}/{escape_pointer(str(key))}"
        size = weigh(inner, OTHER_SHARE.item) + OTHER_SHARE.item
        if size > room and shown:
            break
        fitted = fit_value(inner, pointer, PartShare(PART_BYTES, OTHER_SHARE.item), left)
        shown.append((key, fitted))
        room -= size
    end = after + len(shown)
    return TracePart(
        trace=trace,
        part=part,
        after=after,
        total=len(pairs),
        left_out=tuple(left),
        values=dict(shown) if isinstance(value, Mapping) else [inner for _, inner in shown],
        next=end if end < len(pairs) else None,
    )


def _get_inner(value: Any, name: str, part: str) -> Any:
    if isinstance(value, Mapping) and name in value:
        return value[name]
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(value):
        return value[int(name[:9])]
    known = list(map(str, value))[:20] if isinstance(value, Mapping) else ()
    raise UnknownName("part", part[:200], known, hint="Parts are named as /trace/chunks/3/text.")


def escape_pointer(name: str) -> str:
    """Escape a name for a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
