"""Account of records: what a trace depends on, and what of a record is not read.

A leaf of a record is read if the trace changes when the leaf changes. This is tried on the records themselves: a part
is replaced, the record is read again, and the traces are compared. A part without effect is not read as a whole; one
with an effect is tried part by part. No reader takes part in this, so that it holds for every format.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from ragfault.io.formats.texts import LONGEST_VALUE, parse_list_text
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

Place = tuple[str | int, ...]
"""Keys and positions that lead to a part of a record."""
Read = Callable[[Any], Sequence[Any]]
"""Reads a record, or several, again: the same record gives the same traces."""
LETTER = re.compile(r"\w")
REPLACEMENT = "z"
"""Replaces letters and digits of a text, so that it keeps its length but is no longer an id, number, time or role."""
MAX_TRIED = 12
"""Most items of a list, and most parts at one path of a record, that are tried: they stand for the others."""
MAX_SHOWN = 5
"""Most paths that a notice lists."""


def measure_text(value: Any) -> int:
    """Count the characters of the texts of a value; a number, flag or null has none.

    >>> measure_text({"a": ["one", 2], "b": "three"})
    8
    """
    if isinstance(value, str):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(map(measure_text, parts))


def format_place(place: Place) -> str:
    """Format a place as a path, with `[]` for every position.

    >>> format_place(("turns", 3, "retrieval_context", 0))
    'turns[].retrieval_context[]'
    """
    path = ""
    for step in place:
        path += "[]" if isinstance(step, int) else f".{step}" if path else step
    return path


def enter_part(value: Any) -> dict[str, Any] | list[Any] | None:
    """Return the parts of an object, of a list, or of a text that is one of these; None for a leaf.

    A list of numbers is a leaf, such as an embedding.
    """
    if isinstance(value, str) and value[:1] in "[{(" and value:
        value = parse_list_text(value)
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, dict):
        return value or None
    is_list = isinstance(value, list) and any(isinstance(item, (str, dict, list, tuple)) for item in value)
    return value if is_list else None


def replace_part(value: Any, place: Place) -> Any:
    """Return a value with every leaf below a place replaced.

    >>> replace_part({"a": ["one", {"b": 2}], "c": True}, ("a",))
    {'a': ['zzz', {'b': 3}], 'c': True}
    """
    parts = enter_part(value)
    if parts is None:
        return value if place else _replace_leaf(value)
    steps = list(parts) if isinstance(parts, dict) else range(len(parts))
    altered: Any = dict(parts) if isinstance(parts, dict) else list(parts)
    for step in place[:1] or steps:
        altered[step] = replace_part(altered[step], place[1:])
    return json.dumps(altered, default=str) if isinstance(value, str) else altered


def _replace_leaf(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, list):
        return [_replace_leaf(item) for item in value]
    if isinstance(value, str) and value:
        altered = LETTER.sub(REPLACEMENT, value)
        return altered if altered != value else f"{value}{REPLACEMENT}"
    return value if is_blank(value) else REPLACEMENT


def get_part(value: Any, place: Place) -> Any:
    """Return the part of a value at a place."""
    for step in place:
        value = (enter_part(value) or {})[step]  # type: ignore[index]
    return value


def is_blank(value: Any) -> bool:
    """Tell whether a value holds nothing that could be read."""
    return value is None or value in ("", [], (), {}) or (isinstance(value, float) and math.isnan(value))


class Trial:
    """A record, how it is read, and what it was read as: the parts that make no difference are found with it."""

    def __init__(self, record: Any, read: Read, traces: Sequence[Any]) -> None:
        self.record, self.read, self.traces = record, read, list(traces)

    @cached_property
    def texts(self) -> set[str]:
        """The texts of the traces."""
        return collect_texts(self.traces)

    def holds(self, value: Any) -> bool:
        """Tell whether a value is a text that stands in a trace word for word, whichever copy the trace was made of."""
        return isinstance(value, str) and value.strip() in self.texts

    def leave_repetitions_out(self, value: Any) -> Any:
        """Return a part without the texts that only repeat the traces, such as a prompt around query and chunks.

        >>> trial = Trial({}, list, ["When does it leave?", "At nine."])
        >>> trial.leave_repetitions_out(["Q: When does it leave?", "Why?"])
        ['', 'Why?']
        """
        parts = enter_part(value)
        if isinstance(parts, dict):
            return {key: self.leave_repetitions_out(part) for key, part in parts.items()}
        if parts is not None:
            return [self.leave_repetitions_out(part) for part in parts]
        return "" if isinstance(value, str) and self._repeats(value) else value

    def _repeats(self, text: str) -> bool:
        """Tell whether a text holds texts of the traces, and nothing else that is longer than a short value."""
        repeated = [part for part in self.texts if " " in part and part in text]
        rest = text
        for part in sorted(repeated, key=len, reverse=True):
            rest = rest.replace(part, "")
        is_prompt = any(
            isinstance(trace, Trace)
            and trace.query.strip() in repeated
            and any(chunk.text.strip() in repeated for chunk in trace.chunks or ())
            for trace in self.traces
        )
        return is_prompt or (bool(repeated) and len(rest) <= LONGEST_VALUE)

    def depends_on(self, place: Place) -> bool:
        """Tell whether the traces change if a part is replaced; a record that cannot be read without it needs it."""
        try:
            return list(self.read(replace_part(self.record, place))) != self.traces
        except (ValueError, InputError):
            return True

    def find_unread(self, value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
        """Yield the largest parts of a value of the record that make no difference, with their places.

        >>> record = {"q": "When?", "a": {"b": "x y", "c": [1, 2]}}
        >>> list(Trial(record, lambda record: [record["q"]], ["When?"]).find_unread(record))
        [(('a',), {'b': 'x y', 'c': [1, 2]})]
        """
        if is_blank(value) or self.holds(value):
            return
        parts = enter_part(value)
        if not self.depends_on(place) and (parts is None or not self.texts.intersection(_list_texts(value))):
            yield place, value
        elif parts is not None:
            tried = list_parts(parts) if isinstance(parts, dict) else list_parts(parts[:MAX_TRIED])
            for step, part in tried:
                yield from self.find_unread(part, (*place, step))


def list_parts(parts: dict[str, Any] | list[Any]) -> Iterable[tuple[str | int, Any]]:
    """List the parts of an object or list with their keys or positions."""
    return parts.items() if isinstance(parts, dict) else enumerate(parts)


def _list_texts(value: Any) -> Iterator[str]:
    parts = enter_part(value)
    if parts is not None:
        for _, part in list_parts(parts):
            yield from _list_texts(part)
    elif isinstance(value, str):
        yield value.strip()


def collect_texts(traces: Sequence[Any]) -> set[str]:
    """Collect the texts of traces, or of any values, without space around them."""
    texts: set[str] = set()
    waiting: list[Any] = list(traces)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.add(value.strip())
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, msgspec.Struct):
            waiting += (getattr(value, name) for name in value.__struct_fields__)
    return texts


NUMBERS = re.compile(r"[0-9a-f-]{8,}|\d+")
"""Parts of keys that are numbers or ids: keys that differ only in them are one path."""


def make_path(place: Place) -> str:
    """Make the path that all places of a kind have: a `*` stands for a number in a key, `[]` for a position.

    The position of a record among several is no part of it.

    >>> make_path(("context_2", "text")), make_path(("turns", 3))
    ('context_*.text', 'turns[]')
    """
    path = format_place(tuple(NUMBERS.sub("*", step) if isinstance(step, str) else step for step in place))
    return path.removeprefix("[].")


class UnreadPath(msgspec.Struct):
    """A path that is not read, over all records so far."""

    records: int = 0
    """Records in which something stands there."""
    characters: int = 0
    """Characters of all its texts."""


UnreadPaths = dict[str, UnreadPath]
"""Path → what is not read there."""


class RecordAccount:
    """Account of the records that are read in one way: the paths that are read, and those that are not.

    The first record with a path decides it. A longer text, which no later record may lose, is looked for in each.

    >>> account = RecordAccount()
    >>> record = {"q": "When?", "note": {"by": "ann"}, "spare": None}
    >>> account.add(record, ["When?"], lambda record: [record["q"]])
    {'note': {'by': 'ann'}}
    >>> account.unread, account.totals["note"].records
    ({'note': 3}, 1)
    """

    def __init__(self, totals: UnreadPaths | None = None) -> None:
        self.read_paths: set[str] = set()
        self.seen_paths: set[str] = set()
        """Paths of all parts of the records so far."""
        self.unread: dict[str, int] = {}
        """Path that is not read → the characters of its texts in the first record that has it."""
        self.totals: UnreadPaths = {} if totals is None else totals
        """The paths that are not read, over all records, perhaps of several accounts."""

    def add(self, record: Any, traces: Sequence[Any], read: Read, is_sample: bool = False) -> dict[str, Any]:
        """Add a record and its traces, which `read` makes of it; return the parts that are not read for the first time.

        A path is returned with what stands there, without texts that repeat the traces. A sample is not counted: its
        record comes again.
        """
        trial = Trial(record, read, traces)
        news: dict[str, Any] = {}
        counted: list[tuple[str, Any]] = []
        for place, value in self._list_suspects(trial, counted):
            parts = list(trial.find_unread(value, place))
            for unread_place, part in parts:
                path = make_path(unread_place)
                if path not in self.unread:
                    self.unread[path] = measure_text(part)
                    news[path] = trial.leave_repetitions_out(part)
                counted.append((path, part))
            self._learn(value, place, {make_path(unread_place) for unread_place, _ in parts})
        if not is_sample:
            self._count(counted)
        return news

    def _count(self, counted: Sequence[tuple[str, Any]]) -> None:
        for path, value in counted:
            total = self.totals.setdefault(path, UnreadPath())
            total.characters += measure_text(value)
        for path in dict.fromkeys(path for path, _ in counted):
            self.totals[path].records += 1

    def _list_suspects(self, trial: Trial, counted: list[tuple[str, Any]]) -> Iterator[tuple[Place, Any]]:
        """Yield the parts that must be tried: those with an unknown path, and longer texts that no trace holds.

        What stands at a path that is not read is added to `counted`.
        """
        waiting: list[tuple[Place, Any]] = [((), trial.record)]
        seen: set[str] = set()
        new_places: dict[Place, None] = {}
        tried: Counter[str] = Counter()
        while waiting:
            place, value = waiting.pop()
            path = make_path(place)
            if path in self.unread and path not in self.read_paths:
                if not is_blank(value):
                    counted.append((path, value))
                continue
            seen.add(path)
            parts = enter_part(value)
            if parts is not None:
                waiting += [((*place, step), part) for step, part in list_parts(parts)]
            elif is_blank(value) or tried[path] >= MAX_TRIED:
                continue
            elif path not in self.read_paths:
                tried[path] += 1
                # a new part is tried as a whole
                steps = (place[:end] for end in range(1, len(place)) if make_path(place[:end]) not in self.seen_paths)
                new_places[next(steps, place)] = None
            elif isinstance(value, str) and len(value) > LONGEST_VALUE and not trial.holds(value):
                tried[path] += 1
                yield place, value
        self.seen_paths |= seen
        for place in new_places:
            yield place, get_part(trial.record, place)

    def _learn(self, value: Any, place: Place, unread: set[str]) -> None:
        """Note the paths of the leaves of a part that are read."""
        path = make_path(place)
        if path in unread:
            return
        parts = enter_part(value)
        if parts is None:
            self.read_paths.add(path)
        else:
            for step, part in list_parts(parts):
                self._learn(part, (*place, step), unread)


def format_unread(unread: Mapping[str, int], limit: int = MAX_SHOWN) -> str:
    """Format paths that are not read, with the characters of their texts, those with the most text first.

    >>> format_unread({"tag": 3, "turns[].retrieval_context": 3200})
    'turns[].retrieval_context (3,200 characters), tag'
    """
    paths = sorted(unread, key=lambda path: -unread[path])
    shown = [
        f"{path} ({unread[path]:,} characters)" if unread[path] > LONGEST_VALUE else path for path in paths[:limit]
    ]
    return ", ".join(shown) + (f" and {len(paths) - limit} more" if len(paths) > limit else "")


MAX_JOINED = 12
"""Records that are tried together where several are joined, or one is a document of several."""
MAX_ITEMS = 3
"""Items of a list that stand for all of them in a document."""
MAX_KEYS = 12
"""Objects in an object of objects from which on its keys are ids."""


def cut_lists(value: Any) -> Any:
    """Cut the lists of a document to the first items, which stand for the others.

    Of an object of many objects the first ones of each set of keys stay.

    >>> cut_lists({"rows": [1, 2, 3, 4]})
    {'rows': [1, 2, 3]}
    """
    if isinstance(value, dict):
        if len(value) <= MAX_KEYS or not all(isinstance(item, dict) for item in value.values()):
            return {key: cut_lists(item) for key, item in value.items()}
        forms: Counter[frozenset[str]] = Counter()
        short: dict[str, Any] = {}
        for key, item in value.items():
            forms[frozenset(item)] += 1
            if forms[frozenset(item)] <= MAX_ITEMS and len(short) < MAX_KEYS:
                short[key] = cut_lists(item)
        return short
    return [cut_lists(item) for item in value[:MAX_ITEMS]] if isinstance(value, list) else value
