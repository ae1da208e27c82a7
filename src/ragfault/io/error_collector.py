"""Collection of bad lines and duplicate ids of an input, reported together at the end.

Ids are kept as 64-bit hashes; two among a hundred million collide with a chance of about 1 in 4,000.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ragfault.io.field_values import InvalidRecord, make_content_id
from ragfault.model.errors import (
    MAX_BAD_LINES_SHOWN,
    REPEATED_FROM_FILE,
    BadLine,
    BadRunRows,
    BadTraces,
    InputError,
    get_message_kind,
)
from ragfault.model.records import Document, Trace, name_attempt

HASH_RANGES, RANGE_SHIFT = 256, 56
"""Ranges of hashes by their highest eight bits."""
RECENT_CAPACITY = 2**16
"""Minimum number of recent ids before their hashes move to the arrays, without their notes."""


class IdSet:
    """A set of ids that only grows.

    >>> seen = IdSet()
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (True, True, False)
    """

    def __init__(self) -> None:
        self.recent: dict[int, Any] = {}
        self.sorted_ranges: list[Any] = [memoryview(b"").cast("B")] * HASH_RANGES
        self.recent_capacity = RECENT_CAPACITY

    def __len__(self) -> int:
        return len(self.recent) + sum(map(len, self.sorted_ranges))

    def __contains__(self, item_id: str) -> bool:
        key = hash(item_id)
        return key in self.recent or self._is_in_ranges(key)

    def get_note(self, item_id: str) -> Any:
        """Return what was noted of an id when it was added; None for one of the arrays."""
        return self.recent.get(hash(item_id))

    def add(self, item_id: str, note: Any = None) -> bool:
        """Add an id with a note; return False where it was in already."""
        key = hash(item_id)
        if key in self.recent or self._is_in_ranges(key):
            return False
        self.recent[key] = note
        if len(self.recent) >= self.recent_capacity:
            self._merge_recent()
        return True

    def _is_in_ranges(self, key: int) -> bool:
        old = self.sorted_ranges[(key >> RANGE_SHIFT) + HASH_RANGES // 2]
        if not old:
            return False
        position = bisect_left(old, key)
        return position < len(old) and old[position] == key

    def _merge_recent(self) -> None:
        import numpy as np

        new = np.fromiter(self.recent, np.int64, len(self.recent))
        new.sort()
        ends = np.searchsorted(new >> RANGE_SHIFT, np.arange(HASH_RANGES) - HASH_RANGES // 2, side="right")
        for index, new_hashes in enumerate(np.split(new, ends[:-1])):
            merged = np.concatenate([np.asarray(self.sorted_ranges[index], np.int64), new_hashes])
            merged.sort(kind="stable")
            self.sorted_ranges[index] = memoryview(merged.data).cast("B").cast("q")
        self.recent.clear()
        self.recent_capacity = max(RECENT_CAPACITY, len(self) // 64)


Uniqueness = Literal["attempt", "id", "none"]
"""What two traces of an input may not share: `id` and `attempt`, the `id`, or nothing."""
OnBad = Literal["raise", "skip"] | Callable[[BadLine], object]

TraceLocations = dict[str, tuple[str, int]]
"""Id of a trace, with the number of its attempt from the second on → its file and line."""
MAX_BAD_LINE_TEXT = 2**16
"""Maximum length of the text of a collected bad line."""


class LineTooLong(InvalidRecord):
    """A line beyond the length limit, with its beginning."""

    def __init__(self, text: bytes, limit: int) -> None:
        super().__init__(f"the line is longer than {limit:,} bytes", text[:MAX_BAD_LINE_TEXT])


class ErrorCollector:
    """Collector of bad lines and counter of good records."""

    def __init__(
        self,
        on_bad: OnBad,
        locations: TraceLocations | None = None,
        error_type: type[BadTraces] = BadTraces,
        unique: Uniqueness = "attempt",
    ) -> None:
        self.on_bad, self.locations, self.error_type = on_bad, locations, error_type
        self.unique = unique
        self.bad_lines: list[BadLine] = []
        self.kinds: dict[str, int] = {}
        """How many bad lines there are of each kind; of an input with very many kinds, of the first ones."""
        self.bad_count = self.good_count = 0
        self.seen_ids = IdSet()
        self.file = ""
        self.ids_of_file: IdSet | None = None
        """Ids of the present file, where it is not the first."""
        self.next_numbers: dict[str, int] = {}

    def accept(self, trace: Trace | Document, file: str, line: int, payload: Any) -> bool:
        """Count a trace; return False where its id is a duplicate that is not accepted."""
        if file != self.file:
            self.ids_of_file = IdSet() if self.file else None
            self.file = file
        key = self._get_key(trace)
        is_new_in_file = self.ids_of_file is not None and self.ids_of_file.add(key)
        if self.seen_ids.add(key, (file, line)) or self.unique == "none":
            self.good_count += 1
            if self.locations is not None:
                self.locations[key] = (file, line)
            return True
        self.report(file, line, self._describe_duplicate(trace, key, is_new_in_file), payload)
        return False

    def _get_key(self, trace: Trace | Document) -> str:
        """Return what no other record of the input may share."""
        if isinstance(trace, Trace) and self.unique != "id":
            return name_attempt(trace.query_id, trace.attempt)
        return trace.id

    def _describe_duplicate(self, trace: Trace | Document, key: str, is_new_in_file: bool) -> str:
        """Describe a repeated key, with the line that has it first as long as that is known."""
        duplicate = f'duplicate id "{trace.id[:80]}"'
        if isinstance(trace, Document):
            return duplicate
        if is_new_in_file:
            return duplicate + REPEATED_FROM_FILE
        if trace.attempt != 1:
            duplicate += f" with attempt {trace.attempt}"
        if (first := self.seen_ids.get_note(key)) is not None:
            duplicate += f", first on line {first[1]}"
        return (
            f'{duplicate}: make ids unique with --id-from COLUMN or --id-from "line"; attempts of one query need a '
            'number in `attempt`, or --unique "none"'
        )

    def assign_id(self, trace: Trace) -> Trace:
        """Give the trace an id derived from its query, numbered from the second of the same query and attempt on."""
        content_id = make_content_id(trace.query, "q-")
        name, turn = content_id, self.next_numbers.get(content_id, 1)
        while name_attempt(name, trace.attempt) in self.seen_ids:
            turn += 1
            name = f"{content_id}#{turn}"
        if turn > 1:
            self.next_numbers[content_id] = turn
        return msgspec.structs.replace(trace, id=name)

    def report(self, file: str, line: int, problem: str, payload: Any) -> None:
        """Report a bad line."""
        needs_text = callable(self.on_bad) or len(self.bad_lines) < MAX_BAD_LINES_SHOWN
        self.add_bad_line(BadLine(file, line, problem, _get_payload_text(payload) if needs_text else ""))

    def add_bad_line(self, bad_line: BadLine) -> None:
        self.bad_count += 1
        kind = get_message_kind(bad_line.problem)
        is_new = kind not in self.kinds and len(self.kinds) < MAX_BAD_LINES_SHOWN
        if is_new or kind in self.kinds:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if callable(self.on_bad):
            self.on_bad(bad_line)
        if is_new or len(self.bad_lines) < MAX_BAD_LINES_SHOWN:
            self.bad_lines.append(bad_line._replace(text=bad_line.text[:MAX_BAD_LINE_TEXT]))

    def add_bad_rows(self, bad_lines: list[BadLine]) -> None:
        """Add the bad rows of a TREC run, where a trace is several rows."""
        self.error_type = BadRunRows if bad_lines else self.error_type
        for bad_line in bad_lines:
            self.add_bad_line(bad_line)

    def raise_errors(self, files: list[str]) -> None:
        """Raise the collected bad lines, or an error for an empty input."""
        if self.bad_count and self.on_bad == "raise":
            raise self.error_type(self.bad_lines, self.good_count, self.bad_count, self.kinds, files)
        if not self.good_count and not self.bad_count:
            raise InputError(
                f"{', '.join(files[:3])}{' …' if len(files) > 3 else ''}: empty, "
                f"there is no {self.error_type.noun[:-1]} in it"
            )


def _get_payload_text(payload: Any) -> str:
    """Return the line of a payload as text."""
    if isinstance(payload, InvalidRecord):
        payload = payload.text
    if isinstance(payload, bytes):
        return payload.decode("utf-8", "replace").rstrip("\r\n")
    try:
        return msgspec.json.encode(payload).decode()
    except (TypeError, ValueError, RecursionError):
        return str(payload)
