"""First record of a file beside the trace that it is read as: where each leaf comes out, and by what."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ragfault.io.accounts import enter_part, is_blank, list_parts
from ragfault.io.formats.columns import overlaps
from ragfault.model.records import Trace

MAX_LEAF_TEXT = 200
"""Characters of a leaf that are kept."""
MIN_PART = 4
"""Characters of a text from which on it is looked for within another one."""


class ReadLeaf(msgspec.Struct, frozen=True):
    """A leaf of the first record, and where it comes out in its trace."""

    path: str
    """Its path in the record."""
    text: str
    """Its value as text, of a longer one the beginning."""
    field: str
    """Its path in the trace; `not read`; or `layout` if it only decides how other leaves are read."""
    basis: str
    """By what it was recognised: column map, format, name, word of the name, or content; empty if it is metadata."""


def list_read_leaves(
    record: Any,
    traces: Sequence[Trace],
    columns: Mapping[str, tuple[str, ...]],
    bases: Mapping[str, str],
    unread: Collection[str] = (),
) -> tuple[ReadLeaf, ...]:
    """List the leaves of a record with their places in its traces, of several the number of the turn first.

    >>> record = {"ask": "When?", "docs": ["In 1040."], "kind": "a"}
    >>> traces, bases = [Trace(id="1", query="When?")], {"query": "name"}
    >>> leaves = list_read_leaves(record, traces, {"query": ("ask",)}, bases, ["docs"])
    >>> [(leaf.path, leaf.field, leaf.basis) for leaf in leaves]
    [('ask', 'query', 'name'), ('docs[0]', 'not read', ''), ('kind', 'layout', '')]
    """
    places = [
        (f"turn {number} {path}" if len(traces) > 1 else path, path, str(value).strip())
        for number, trace in reversed(list(enumerate(traces, 1)))
        for path, value in list_leaves(msgspec.to_builtins(trace))
        if path != "attempt"
    ]
    leaves = []
    for path, value in list_leaves(record):
        names = [field for field, paths in columns.items() if overlaps(path, paths) or _is_below(path, paths)]
        own = {name.partition(".")[0] for name in names}
        ranked = [place for place in places if place[1] == path]
        ranked += [place for place in places if _get_root(place[1]) in own]
        ranked += [place for place in places if place[1] == f"metadata.{path}"]
        ranked += places
        field = _find_place(str(value).strip(), ranked, own)
        if not field:
            names, field = [], "not read" if _is_listed(POSITION.sub("[]", path), unread) else "layout"
        root = _get_root(TURN.sub("", field))
        basis = next((bases[name] for name in (root, *names) if names and name in bases), "")
        leaves.append(ReadLeaf(path, str(value)[:MAX_LEAF_TEXT], field, basis))
    return tuple(leaves)


def _is_listed(path: str, unread: Collection[str]) -> bool:
    """Tell whether a path, or one that it lies below, is listed as not read."""
    return any(path == other or path.startswith((f"{other}[", f"{other}.")) for other in unread)


POSITION, TURN = re.compile(r"\[\d+\]"), re.compile(r"^turn \d+ ")


def _get_root(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def list_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value that hold something, with their paths.

    >>> list(list_leaves({"a": [1, {"b": "x"}], "c": None}))
    [('a[0]', 1), ('a[1].b', 'x')]
    """
    parts = enter_part(value)
    if parts is None:
        if not is_blank(value):
            yield path, value
        return
    for step, part in list_parts(parts):
        yield from list_leaves(part, f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}".lstrip("."))


def _is_below(path: str, columns: Sequence[str]) -> bool:
    """Tell whether a leaf lies below a column whose path takes items of a list."""
    return any(path.startswith(column.partition("[")[0]) for column in columns if "[" in column)


def _find_place(text: str, places: Sequence[tuple[str, str, str]], own: Collection[str]) -> str:
    """Find the place of a leaf in a trace: where its value stands, else where parts of its text stand."""
    for shown, _, other in places:
        if other == text:
            return shown
    within = [
        shown
        for shown, path, other in places
        if _get_root(path) in own
        and not path.endswith(".id")
        and min(len(other), len(text)) >= MIN_PART
        and (other in text or text in other)
    ]
    return "" if not within else within[0] if len(within) == 1 else f"{within[0]} and {len(within) - 1} more"


CERTAINTY = {"name": "sure: its name", "word of the name": "likely: a word of its name", "column map": "as mapped"}
"""By what a column was recognised → how sure that is."""


def format_read_leaves(leaves: Sequence[ReadLeaf], clean: Callable[[str], str] = str, width: int = 60) -> list[str]:
    """Format the leaves of a record and their places in the trace side by side.

    >>> format_read_leaves([ReadLeaf("ask", "When?", "query", "word of the name")])
    ['  ask: When?  query  likely: a word of its name']
    """
    left = [clean(f"{leaf.path}: {' '.join(leaf.text.split())}") for leaf in leaves]
    left = [text if len(text) <= width else f"{text[: width - 1]}…" for text in left]
    size = max(map(len, left), default=0)
    middle = max((len(leaf.field) for leaf in leaves), default=0)
    lines = []
    for text, leaf in zip(left, leaves, strict=True):
        certainty = CERTAINTY.get(leaf.basis) or (f"sure: {leaf.basis}" if leaf.basis else "")
        lines.append(f"  {text:<{size}}  {clean(leaf.field):<{middle}}  {certainty}".rstrip())
    return lines
