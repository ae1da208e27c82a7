"""Calls in records: the steps of a trace below its record, and the rows of a file that are the calls of traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.conversations import SEARCH_WORDS, has_roles
from ragfault.io.formats.field_words import split_words
from ragfault.io.formats.passages import classify
from ragfault.io.formats.paths import list_paths
from ragfault.io.formats.record_lists import MAX_OPEN_EVENTS, CallKeys, get_parent, is_record

RawRecord = dict[str, Any]
RETRIEVAL_WORDS = SEARCH_WORDS | {"search"}
KIND_NAMES = frozenset(("type", "kind", "name", "step", "stage", "tool"))
"""Last words of keys that tell what a call does."""
INNER_CALLS = ("spans", "children", "steps", "calls")
INPUT_WORDS = frozenset(("input", "inputs", "request", "args", "arguments", "kwargs", "query", "metadata"))
MAX_CALL_DEPTH = 6


def list_retrieval_paths(path: str, value: Any, depth: int = 0) -> list[str]:
    """List the paths of what was retrieved, in a list of the calls of a trace and in the calls within these.

    >>> search = {"type": "retriever", "input": "When?", "output": [{"text": "It leaves at six."}]}
    >>> list_retrieval_paths("steps", [search, {"type": "llm", "output": "At six."}])
    ['steps[type=retriever].output']
    """
    calls = value if isinstance(value, list) and depth < MAX_CALL_DEPTH else []
    matches: dict[str, None] = {}
    is_list = bool(calls) and all(isinstance(call, dict) for call in calls)
    for call in calls if is_list and not has_roles(calls) else ():
        kind = next(_iterate_kinds(call), None)
        if kind is not None and "[0]" not in path:
            matches |= dict.fromkeys(f"{path}[{kind}].{output}" for output in _iterate_outputs(call))
        for key in INNER_CALLS:
            matches |= dict.fromkeys(list_retrieval_paths(f"{path}[].{key}", call.get(key), depth + 1))
    return list(matches)


def _iterate_kinds(call: RawRecord) -> Iterator[str]:
    """Yield the keys and values that say that a call retrieves."""
    for key, name in list_paths(call, 2):
        is_name = isinstance(name, str) and len(name) < 200 and not set("[]=") & set(name)
        if is_name and set(split_words(key)[-1:]) & KIND_NAMES and set(split_words(name)) & RETRIEVAL_WORDS:
            yield f"{key}={name}"


def _iterate_outputs(call: RawRecord) -> Iterator[str]:
    """Yield the outermost paths of passages that a call returned."""
    outer: list[str] = []
    for key, item in list_paths(call, 3):
        parts = set(key.lower().split("."))
        if parts & (INPUT_WORDS | set(INNER_CALLS)) or any(key.startswith((f"{f}.", f"{f}[")) for f in outer):
            continue
        if isinstance(item, (list, dict)) and "[" not in key and classify(item) in ("passages", "texts"):
            outer.append(key)
            yield key


def join_calls(
    rows: Iterable[tuple[int, Any]], keys: CallKeys, parse: Callable[[Any], RawRecord]
) -> Iterator[tuple[int, Any]]:
    """Join the calls of each trace: one that asks, and is below none that does, becomes the record of those below it.

    >>> root = {"trace_id": "t", "id": "a", "parent_id": None, "inputs": {"question": "When?"}}
    >>> rows = [(1, root), (2, {"trace_id": "t", "id": "b", "parent_id": "a", "output": ["At six."]})]
    >>> [(number, row["id"], len(row["spans"])) for number, row in join_calls(rows, CallKeys(*list(root)[:3]), dict)]
    [(1, 'a', 1)]
    """
    waiting: dict[str, list[tuple[int, RawRecord]]] = {}
    for number, payload in rows:
        try:
            row = payload if number == 0 else parse(payload)
        except InvalidRecord:
            row = None
        if not isinstance(row, dict) or row.get(keys.trace) is None:
            yield number, payload
            continue
        name = str(row[keys.trace])
        waiting[name] = [*waiting.pop(name, ()), (number, row)]
        if len(waiting) > MAX_OPEN_EVENTS:
            yield from _join_trace(waiting.pop(next(iter(waiting))), keys)
    for calls in waiting.values():
        yield from _join_trace(calls, keys)


def _join_trace(calls: list[tuple[int, RawRecord]], keys: CallKeys) -> Iterator[tuple[int, RawRecord]]:
    """Yield the records of a trace; its calls as they are where none of them asks."""
    by_id = {str(row.get(keys.call)): row for _, row in calls}
    asking = {name for name, row in by_id.items() if is_record(row)}
    tops = {name: _find_top(name, by_id, asking, keys) for name in by_id}
    for number, row in calls:
        name = str(row.get(keys.call))
        if not asking:
            yield number, row
        elif tops[name] == name and by_id[name] is row:
            below = [call_id for key, call_id in by_id.items() if tops[key] == name and key != name]
            yield number, {**row, **({"spans": below} if below else {})}


def _find_top(name: str, by_id: dict[str, RawRecord], asking: set[str], keys: CallKeys) -> str | None:
    """Find the outermost call at or above one that asks; None where none does."""
    top, visited, here = None, set(), name
    while here in by_id and here not in visited:
        visited.add(here)
        top = here if here in asking else top
        here = get_parent(by_id[here], keys) or ""
    return top
