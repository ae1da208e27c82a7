"""A JSON document read piece by piece: the objects of its array, one after the other, never all at once."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

__all__ = ["elements", "is_document"]

BLOCK = 2**18
LISTS = frozenset(
    {b"results", b"data", b"traces", b"records", b"samples", b"rows", b"examples", b"test_cases"}
)
"""The keys under which a document that is one object keeps its list."""

OVER = 2**62
"""A depth that no element reaches: the list has ended."""

OUTSIDE = re.compile(rb'["\[\]{},]')
INSIDE = re.compile(rb'["\\]')


def is_document(head: bytes) -> bool:
    """Whether the text begins as one JSON document, and not as a line that is an object by itself.

    >>> is_document(b'[{"id": 1}]'), is_document(b'{"results": [{"query"'), is_document(b'{"id": "1"}')
    (True, True, False)
    """
    head = head.lstrip()
    if head[:1] == b"[":
        return True
    opening = re.match(rb'\{\s*(?:"(\w+)"\s*:\s*\[)?', head)
    if opening is None:
        return False
    return opening.group(1) in LISTS or b"\n" in opening.group(0) or head.rstrip() == b"{"


class Scanner:
    """Where in a JSON document the reading stands: how deep, in a string or not, in which element."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.depth = 0
        self.string = -1
        """Where the current string began in `buffer`; -1 outside of strings, -2 once that is out of sight."""
        self.base = 0
        """The depth at which elements stand; 0 while their list has not begun."""
        self.key = b""
        self.whole = True
        self.start = -1
        """Where the current element began in `buffer`; -1 between elements."""
        self.line = self.begun = 1
        self.buffer = bytearray()
        self.at = self.counted = 0

    def feed(self, block: bytes) -> Iterator[tuple[int, bytes, bool]]:
        """The elements that end within the next block: number of the line, text, whether it is whole."""
        self.buffer += block
        while self.at < len(self.buffer):
            if self.string != -1:
                if not self._string():
                    break
                continue
            mark = OUTSIDE.search(self.buffer, self.at)
            if mark is None:
                self._text(self.at, len(self.buffer))
                self.at = len(self.buffer)
                break
            self._text(self.at, mark.start())
            self.at = mark.end()
            if found := self._mark(mark.group(), mark.start()):
                yield found
        self._trim()

    def _string(self) -> bool:
        """Go to the end of the string, or as far as the buffer reaches."""
        mark = INSIDE.search(self.buffer, self.at)
        if mark is None:
            self.at = len(self.buffer)
            return False
        if mark.group() == b"\\":
            if mark.end() >= len(self.buffer):
                self.at = mark.start()
                return False
            self.at = mark.end() + 1
            return True
        if self.base == 0 and self.depth == 1:
            self.key = bytes(self.buffer[self.string : mark.start()]) if self.string >= 0 else b""
        self.string, self.at = -1, mark.end()
        return True

    def _text(self, start: int, end: int) -> None:
        """Numbers and words between marks can begin an element too."""
        if self.base and self.depth == self.base and self.start < 0:
            inner = self.buffer[start:end]
            bare = inner.lstrip()
            if bare:
                self._begin(end - len(bare))

    def _begin(self, at: int) -> None:
        self.line += self.buffer.count(b"\n", self.counted, at)
        self.counted = at
        self.start, self.begun, self.whole = at, self.line, True

    def _mark(self, mark: bytes, at: int) -> tuple[int, bytes, bool] | None:
        inside = self.base and self.depth >= self.base
        if mark == b'"':
            if inside and self.depth == self.base and self.start < 0:
                self._begin(at)
            self.string = at + 1
        elif mark in b"[{":
            if inside and self.depth == self.base and self.start < 0:
                self._begin(at)
            self.depth += 1
            if (
                not self.base
                and mark == b"["
                and (self.depth == 1 or (self.depth == 2 and self.key in LISTS))
            ):
                self.base = self.depth
        else:
            ending = inside and self.depth == self.base and self.start >= 0 and mark in b",]}"
            found = self._end(at) if ending else None
            if mark != b",":
                self.depth -= 1
                if inside and self.depth < self.base:
                    self.base = OVER
            return found
        return None

    def _end(self, at: int) -> tuple[int, bytes, bool]:
        text = bytes(self.buffer[self.start : at]).rstrip()
        whole = self.whole and len(text) <= self.limit
        self.start = -1
        return self.begun, text[: self.limit], whole

    def _trim(self) -> None:
        """Let go of what has been read, and of an element that grows beyond the limit."""
        if self.start >= 0 and self.at - self.start > self.limit:
            self.whole = False
            del_from, del_to = self.start + self.limit, self.at
            self.line += self.buffer.count(b"\n", self.counted, del_to)
            self.counted = del_from
            if self.string >= 0:
                self.string = -2
            del self.buffer[del_from:del_to]
            self.at = del_from
            return
        if self.start < 0:
            cut = self.at if self.string < 0 else min(self.at, self.string)
            if self.string >= 0 and self.at - self.string > 256:
                cut, self.string = self.at, -2
            self.line += self.buffer.count(b"\n", self.counted, max(cut, self.counted))
            self.counted = 0
            del self.buffer[:cut]
            self.at -= cut
            if self.string >= 0:
                self.string -= cut


def elements(body: io.BufferedReader, limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """The elements of the array that a JSON document is, or that it keeps under a key such as `results`.

    Each comes with the number of the line it begins on and whether it is whole; of one longer than `limit`
    only the beginning comes. A document that breaks off gives its last element as far as it goes; one that
    is a single object is its only element.

    >>> list(elements(io.BufferedReader(io.BytesIO(b'[{"id": "],"},\\n 2]')), limit=99))
    [(1, b'{"id": "],"}', True), (2, b'2', True)]
    """
    scanner = Scanner(limit)
    first = body.peek(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    kept = bytearray()
    single = first[:1] == b"{"
    while block := body.read(BLOCK):
        block = block.removeprefix(b"\xef\xbb\xbf") if scanner.depth == 0 else block
        yield from scanner.feed(block)
        if single and not scanner.base and len(kept) <= limit:
            kept += block
    if single and not scanner.base:
        yield 1, bytes(kept[:limit]).strip(), len(kept) <= limit
    elif scanner.start >= 0:
        yield scanner._end(len(scanner.buffer))
