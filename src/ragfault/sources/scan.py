"""JSON documents read piece by piece: the objects of an array, one after the other, never all at once."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator

from ragfault.sources.shapes import recognise
from ragfault.sources.values import Wrong

__all__ = ["Known", "elements", "is_document"]

Known = Callable[[Iterable[str]], bool]
"""Whether keys of these names make an object a record by itself."""

Element = tuple[int, bytes | Wrong, bool]
"""The number of the line that it begins on, its text, whether that is whole."""

BLOCK = 2**18
LISTS = frozenset(
    {
        b"results",
        b"data",
        b"traces",
        b"records",
        b"samples",
        b"rows",
        b"examples",
        b"test_cases",
        b"testCases",
        b"goldens",
    }
)
"""The keys under which a document that is one object keeps its list."""

NAMES = 256
"""How many keys of an object are looked at."""

OVER = 2**62
"""A depth that no element reaches: the list has ended."""

BLANK = b" \t\r\n\xef\xbb\xbf"
"""What may stand between elements: white space, and the mark that some files begin with."""

OUTSIDE = re.compile(rb'["\[\]{},]')
INSIDE = re.compile(rb'["\\]')


def recognised(names: Iterable[str]) -> bool:
    return recognise(names) is not None


def is_document(head: bytes, known: Known = recognised) -> bool:
    """Whether the text begins as one JSON document, and not as a line that is a record by itself.

    >>> is_document(b'[{"id": 1}]'), is_document(b'{"results": [{"query"'), is_document(b'{"id": "1"}')
    (True, True, False)
    >>> is_document(b'{"data": [{"a": 1}], "id": "1", "query": "When?"}')
    False
    """
    head = head.lstrip(BLANK)
    line = head.split(b"\n", 1)[0]
    if head[:1] != b"{" or line.rstrip() == b"{":
        return head[:1] in (b"[", b"{")
    scanner = Scanner(len(line), known, frozenset())
    next(scanner.feed(line), None)
    listed = any(scanner.names[name] for name in LISTS & scanner.names.keys())
    return (listed or (scanner.opening and scanner.key in LISTS)) and not scanner.known()


class Scanner:
    """Where in a JSON document the reading stands: how deep, in a string or not, in which element."""

    def __init__(self, limit: int, known: Known, lists: frozenset[bytes] = LISTS) -> None:
        self.limit, self.knows, self.lists = limit, known, lists
        self.depth = 0
        self.string = -1
        """Where the current string began in `buffer`; -1 outside of strings, -2 once that is out of sight."""
        self.base = 0
        """The depth at which elements stand; 0 while no list has begun: then each object is one."""
        self.names: dict[bytes, bool] = {}
        """The keys of the current object while no list has begun, and which of them hold a list of objects."""
        self.key = self.last = b""
        self.opening = False
        """Whether the value of `key` is a list of which nothing has been seen yet."""
        self.whole = True
        self.start = -1
        """Where the current element began in `buffer`; -1 between elements."""
        self.line = self.begun = 1
        self.buffer = bytearray()
        self.at = self.counted = 0

    def known(self) -> bool:
        """Whether the object is a record by itself, so that no list in it is a list of records."""
        return self.knows([name.decode("utf-8", "replace") for name in self.names])

    def feed(self, block: bytes) -> Iterator[Element]:
        """The elements that end within the next block."""
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
            start, end = mark.span()
            if self.opening or (self.start < 0 and self.depth == self.base):
                self._text(self.at, start)
            self.at = end
            if found := self._mark(mark.group(), start):
                yield from found
        self._trim()

    def rest(self) -> Iterator[Element]:
        """What is left where the text ends: the last element, and a `Wrong` for what is not closed."""
        end = len(self.buffer)
        text = bytes(self.buffer[self.start : end]) if self.start >= 0 else b""
        if self.start >= 0 and self.depth == self.base and self.string == -1:
            yield from self._end(end)
            text = b""
        if self.depth or self.string != -1:
            line = self.begun if text else self._line(end)
            inside = self.base and (self.base < OVER)
            problem = "the list is not closed" if inside else "the object is not closed"
            yield line, Wrong(f"the file ends here: {problem}", text[: self.limit]), True

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
        if self.base == 0 and self.depth == 1 and self.last in (b"{", b","):
            self.key = bytes(self.buffer[self.string : mark.start()]) if self.string >= 0 else b""
            if len(self.names) < NAMES:
                self.names.setdefault(self.key, False)
        self.string, self.at = -1, mark.end()
        return True

    def _text(self, start: int, end: int) -> None:
        """Numbers and words between marks can begin an element too."""
        bare = self.buffer[start:end].lstrip(BLANK)
        if bare and self.start < 0 and self.depth == self.base:
            self._begin(end - len(bare))
        self.opening = self.opening and not bare

    def _line(self, at: int) -> int:
        return self.line + self.buffer.count(b"\n", self.counted, at)

    def _begin(self, at: int) -> None:
        self.line = self.begun = self._line(at)
        self.counted = self.start = at
        self.whole = True

    def _mark(self, mark: bytes, at: int) -> tuple[Element, ...]:
        listed, self.opening = self.opening, False
        if mark == b'"':
            if self.start < 0 and self.depth == self.base:
                self._begin(at)
            self.string = at + 1
            return ()
        if mark == b",":
            self.last = mark
            return self._end(at) if self.depth == self.base and self.start >= 0 else ()
        if mark in b"[{":
            return self._open(mark, at, listed and mark == b"{")
        return self._close(mark, at)

    def _open(self, mark: bytes, at: int, listed: bool) -> tuple[Element, ...]:
        found: tuple[Element, ...] = ()
        self.last = mark
        if self.base == self.depth == 0:
            found = self._end(at) if self.start >= 0 else ()
            self.names, self.key = {}, b""
            self.base = int(mark == b"[")
        elif self.base == 0 and listed:
            self.names[self.key] = True
            if self.key in self.lists and not self.known():
                self.base, self.start = 2, -1
        self.opening = self.base == 0 and self.depth == 1 and mark == b"["
        if self.depth == self.base and self.start < 0:
            self._begin(at)
        self.depth += 1
        return found

    def _close(self, mark: bytes, at: int) -> tuple[Element, ...]:
        if self.base and self.depth > self.base:
            self.depth -= 1
            return ()
        found = self._end(at) if self.start >= 0 and self.depth == self.base else ()
        if self.depth == 0 or (self.depth == self.base and mark != b"]"):
            found += ((self._line(at), bytes(mark), True),)
        if self.depth == self.base:
            self.base = OVER
        self.depth = max(0, self.depth - 1)
        if self.depth == 0:
            found += self._end(at + 1) if self.start >= 0 else ()
            self.base = 0
        return found

    def _end(self, at: int) -> tuple[Element, ...]:
        text = bytes(self.buffer[self.start : at]).rstrip()
        whole = self.whole and len(text) <= self.limit
        self.start = -1
        return ((self.begun, text[: self.limit], whole),)

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


def elements(body: io.BufferedReader, limit: int, known: Known = recognised) -> Iterator[Element]:
    """The elements of the array that a JSON document is, or that it keeps under a key such as `results`.

    Each comes with the number of the line it begins on and whether it is whole; of one longer than `limit`
    only the beginning comes. An object that is a `known` record, or keeps no such list, is one element. Any
    number of documents may follow one another. Where the text breaks off, a `Wrong` comes last.

    >>> list(elements(io.BufferedReader(io.BytesIO(b'[{"id": "],"},\\n 2]')), limit=99))
    [(1, b'{"id": "],"}', True), (2, b'2', True)]
    >>> for found in elements(io.BufferedReader(io.BytesIO(b'{"data": [{"id": 1}]}\\n[2')), limit=99):
    ...     print(found)
    (1, b'{"id": 1}', True)
    (2, b'2', True)
    (2, Wrong('the file ends here: the list is not closed'), True)
    """
    scanner = Scanner(limit, known)
    while block := body.read(BLOCK):
        yield from scanner.feed(block)
    yield from scanner.rest()
