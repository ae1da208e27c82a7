"""Streaming parser for JSON documents: yield the elements of an array one at a time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator

from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.record_shapes import detect_shape

RecordTest = Callable[[Iterable[str]], bool]
"""Tells whether an object with these keys is a record."""

JsonElement = tuple[int, bytes | InvalidRecord, bool]
"""First line number, text, and whether the text is complete."""
READ_BLOCK_BYTES = 2**18
LIST_KEYS = frozenset(
    b"results data traces records samples rows examples test_cases testCases goldens entries items questions queries "
    b"cases tests evaluations test_results conversationalTestCases conversational_test_cases".split()
)
"""Keys under which a document holds its list of records."""
MAX_KEYS = 256
"""Maximum number of keys of an object that are examined."""
ENDED_DEPTH = 2**62
"""A depth that no element reaches: the list has ended."""
BLANK_BYTES = b" \t\r\n\xef\xbb\xbf"
"""Bytes between elements: white space and the byte order mark."""
STRUCTURAL_BYTE = re.compile(rb'["\[\]{},]')
STRING_END_BYTE = re.compile(rb'["\\]')


def has_known_shape(names: Iterable[str]) -> bool:
    """Tell whether an object with these keys has a known shape."""
    return detect_shape(names) is not None


def is_json_document(head: bytes, is_record: RecordTest = has_known_shape) -> bool:
    """Tell whether the text begins as one JSON document rather than as a line that is a record.

    >>> is_json_document(b'[{"id": 1}]'), is_json_document(b'{"results": [{"query"'), is_json_document(b'{"id": "1"}')
    (True, True, False)
    >>> is_json_document(b'{"data": [{"a": 1}], "id": "1", "query": "When?"}')
    False
    """
    head = head.lstrip(BLANK_BYTES)
    line = head.split(b"\n", 1)[0]
    if head[:1] != b"{" or line.rstrip() == b"{":
        return head[:1] in (b"[", b"{")
    scanner = JsonScanner(len(line), is_record, frozenset())
    next(scanner.feed(line), None)
    has_list = any(scanner.object_keys[name] for name in LIST_KEYS & scanner.object_keys.keys())
    return (has_list or (scanner.is_list_opening and scanner.key in LIST_KEYS)) and not scanner.is_current_record()


class JsonScanner:
    """State of the scan of a JSON document: depth, string and element."""

    def __init__(self, limit: int, is_record: RecordTest, list_keys: frozenset[bytes] = LIST_KEYS) -> None:
        self.limit, self.is_record, self.list_keys = limit, is_record, list_keys
        self.depth = 0
        self.string_start = -1
        """Start of the current string in `buffer`; -1 outside of strings, -2 once that was trimmed."""
        self.element_depth = 0
        """The depth at which elements stand; 0 while no list has begun: then each object is one."""
        self.object_keys: dict[bytes, bool] = {}
        """The keys of the current object while no list has begun, and which of them hold a list of objects."""
        self.key = self.last_mark = b""
        self.is_list_opening = False
        """The value of `key` is a list that has just opened."""
        self.is_complete = True
        self.element_start = -1
        """Start of the current element in `buffer`; -1 between elements."""
        self.line = self.element_line = 1
        self.buffer = bytearray()
        self.position = self.counted_until = 0

    def is_current_record(self) -> bool:
        """Tell whether the object is a record itself, so that its lists are not lists of records."""
        return self.is_record([name.decode("utf-8", "replace") for name in self.object_keys])

    def feed(self, block: bytes) -> Iterator[JsonElement]:
        """Yield the elements that end within the next block."""
        self.buffer += block
        while self.position < len(self.buffer):
            if self.string_start != -1:
                if not self._skip_string():
                    break
                continue
            mark = STRUCTURAL_BYTE.search(self.buffer, self.position)
            if mark is None:
                self._scan_text(self.position, len(self.buffer))
                self.position = len(self.buffer)
                break
            start, end = mark.span()
            if self.is_list_opening or (self.element_start < 0 and self.depth == self.element_depth):
                self._scan_text(self.position, start)
            self.position = end
            if elements := self._handle_mark(mark.group(), start):
                yield from elements
        self._trim_buffer()

    def finish(self) -> Iterator[JsonElement]:
        """Yield the last element, and an `InvalidRecord` for what is not closed."""
        end = len(self.buffer)
        text = bytes(self.buffer[self.element_start : end]) if self.element_start >= 0 else b""
        if self.element_start >= 0 and self.depth == self.element_depth and self.string_start == -1:
            yield from self._end_element(end)
            text = b""
        if self.depth or self.string_start != -1:
            line = self.element_line if text else self._count_line(end)
            inside = self.element_depth and (self.element_depth < ENDED_DEPTH)
            problem = "the list is not closed" if inside else "the object is not closed"
            yield line, InvalidRecord(f"the file ends here: {problem}", text[: self.limit]), True

    def _skip_string(self) -> bool:
        """Skip to the end of the string or of the buffer."""
        mark = STRING_END_BYTE.search(self.buffer, self.position)
        if mark is None:
            self.position = len(self.buffer)
            return False
        if mark.group() == b"\\":
            if mark.end() >= len(self.buffer):
                self.position = mark.start()
                return False
            self.position = mark.end() + 1
            return True
        if self.element_depth == 0 and self.depth == 1 and self.last_mark in (b"{", b","):
            self.key = bytes(self.buffer[self.string_start : mark.start()]) if self.string_start >= 0 else b""
            if len(self.object_keys) < MAX_KEYS:
                self.object_keys.setdefault(self.key, False)
        self.string_start, self.position = -1, mark.end()
        return True

    def _scan_text(self, start: int, end: int) -> None:
        """Begin an element at a number or word between marks."""
        bare = self.buffer[start:end].lstrip(BLANK_BYTES)
        if bare and self.element_start < 0 and self.depth == self.element_depth:
            self._begin_element(end - len(bare))
        self.is_list_opening = self.is_list_opening and not bare

    def _count_line(self, position: int) -> int:
        return self.line + self.buffer.count(b"\n", self.counted_until, position)

    def _begin_element(self, position: int) -> None:
        self.line = self.element_line = self._count_line(position)
        self.counted_until = self.element_start = position
        self.is_complete = True

    def _handle_mark(self, mark: bytes, position: int) -> tuple[JsonElement, ...]:
        opens_list, self.is_list_opening = self.is_list_opening, False
        if mark == b'"':
            if self.element_start < 0 and self.depth == self.element_depth:
                self._begin_element(position)
            self.string_start = position + 1
            return ()
        if mark == b",":
            self.last_mark = mark
            return self._end_element(position) if self.depth == self.element_depth and self.element_start >= 0 else ()
        if mark in b"[{":
            return self._open_container(mark, position, opens_list and mark == b"{")
        return self._close_container(mark, position)

    def _open_container(self, mark: bytes, position: int, opens_list: bool) -> tuple[JsonElement, ...]:
        elements: tuple[JsonElement, ...] = ()
        self.last_mark = mark
        if self.element_depth == self.depth == 0:
            elements = self._end_element(position) if self.element_start >= 0 else ()
            self.object_keys, self.key = {}, b""
            self.element_depth = int(mark == b"[")
        elif self.element_depth == 0 and opens_list:
            self.object_keys[self.key] = True
            if self.key in self.list_keys and not self.is_current_record():
                self.element_depth, self.element_start = 2, -1
        self.is_list_opening = self.element_depth == 0 and self.depth == 1 and mark == b"["
        if self.depth == self.element_depth and self.element_start < 0:
            self._begin_element(position)
        self.depth += 1
        return elements

    def _close_container(self, mark: bytes, position: int) -> tuple[JsonElement, ...]:
        if self.element_depth and self.depth > self.element_depth:
            self.depth -= 1
            return ()
        elements = self._end_element(position) if self.element_start >= 0 and self.depth == self.element_depth else ()
        if self.depth == 0 or (self.depth == self.element_depth and mark != b"]"):
            elements += ((self._count_line(position), bytes(mark), True),)
        if self.depth == self.element_depth:
            self.element_depth = 0 if self.element_depth == 2 else ENDED_DEPTH
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            elements += self._end_element(position + 1) if self.element_start >= 0 else ()
            self.element_depth = 0
        return elements

    def _end_element(self, position: int) -> tuple[JsonElement, ...]:
        text = bytes(self.buffer[self.element_start : position]).rstrip()
        complete = self.is_complete and len(text) <= self.limit
        self.element_start = -1
        return ((self.element_line, text[: self.limit], complete),)

    def _trim_buffer(self) -> None:
        """Discard the text that was read, and the remainder of an element beyond the limit."""
        if self.element_start >= 0 and self.position - self.element_start > self.limit:
            self.is_complete = False
            del_from, del_to = self.element_start + self.limit, self.position
            self.line += self.buffer.count(b"\n", self.counted_until, del_to)
            self.counted_until = del_from
            if self.string_start >= 0:
                self.string_start = -2
            del self.buffer[del_from:del_to]
            self.position = del_from
            return
        if self.element_start < 0:
            cut = self.position if self.string_start < 0 else min(self.position, self.string_start)
            if self.string_start >= 0 and self.position - self.string_start > 256:
                cut, self.string_start = self.position, -2
            self.line += self.buffer.count(b"\n", self.counted_until, max(cut, self.counted_until))
            self.counted_until = 0
            del self.buffer[:cut]
            self.position -= cut
            if self.string_start >= 0:
                self.string_start -= cut


def iterate_elements(
    body: io.BufferedReader, limit: int, is_record: RecordTest = has_known_shape
) -> Iterator[JsonElement]:
    r"""Yield the elements of the array that a JSON document is, or holds under a key such as `results`.

    Each comes with its first line number and whether it is complete; of one longer than `limit` only the beginning
    comes. Several documents may follow one another. Where the text breaks off, an `InvalidRecord` comes last.

    >>> list(iterate_elements(io.BufferedReader(io.BytesIO(b'[{"id": "],"},\n 2]')), limit=99))
    [(1, b'{"id": "],"}', True), (2, b'2', True)]
    >>> for element in iterate_elements(io.BufferedReader(io.BytesIO(b'{"data": [{"id": 1}]}\n[2')), limit=99):
    ...     print(element)
    (1, b'{"id": 1}', True)
    (2, b'2', True)
    (2, InvalidRecord('the file ends here: the list is not closed'), True)
    """
    scanner = JsonScanner(limit, is_record)
    while block := body.read(READ_BLOCK_BYTES):
        yield from scanner.feed(block)
    yield from scanner.finish()
