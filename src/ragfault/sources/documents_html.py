"""HTML as text: what a reader of the page would read, as Markdown that keeps its headings and tables.

The standard library's parser takes time that grows with the square of the length on markup that is left open, so
tags are found here by one pattern that does not.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

__all__ = ["Page", "charset", "page"]

UNREAD = "script|style|template|noscript|svg|math|iframe|object|canvas|select"
"""Elements whose content is no text for readers."""

MARKUP = re.compile(
    rf"<!--.*?(?:-->|\Z)"
    rf"|<({UNREAD})\b[^>]*+>.*?(?:</\1[^>]*+>|\Z)"
    r"|<[!?][^<>]*+>"
    r"|<(/?)([a-z][^\s/<>\"']*+)((?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+)>"
    r"|<",
    re.DOTALL | re.IGNORECASE,
)
"""A comment, an unread element, a declaration, a tag with its attributes, or a sign that opens nothing."""

ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
CHARSET = re.compile(
    rb"""<meta\b[^>]{0,300}?\bcharset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE
)
SPACE = re.compile(r"\s+")
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure
        footer form header hr html legend main nav ol p section summary ul""",
    )
)
WIDE = 64
"""Rows are filled up in tables of so many columns."""
DEEP = 12
"""Lists are indented no deeper."""
HEADINGS = {f"h{depth}": "#" * depth + " " for depth in range(1, 7)}


class Page(NamedTuple):
    """A page as it is read."""

    title: str | None
    text: str
    """Markdown: headings, lists, tables and fenced code; everything else as paragraphs."""


def charset(head: bytes) -> str | None:
    """The encoding that a page names in its first bytes; None where it names none.

    What calls itself Latin-1 or ASCII is Windows-1252 on the web.

    >>> charset(b'<html><meta charset="iso-8859-1">')
    'cp1252'
    """
    found = CHARSET.search(head[:4096])
    if found is None:
        return None
    name = found[1].decode("ascii").lower()
    return "cp1252" if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii") else name


def page(source: str) -> Page:
    """The title and the text of a page; scripts, styles and comments are dropped, and nothing is ever fetched.

    Broken markup raises nothing: what opens no tag is text. The time it takes grows with the length alone.

    >>> page("<title>Fares</title><h1>Fares</h1><p>A car is &euro;20,<br>a <b>dog</b> is free.<script>x()</script>")
    Page(title='Fares', text='# Fares\\n\\nA car is €20,\\na dog is free.')
    """
    reader = _Reader()
    place = 0
    for match in MARKUP.finditer(source):
        kind = match[3]
        if kind is None and match[0] == "<":
            continue
        if match.start() > place:
            reader.say(source[place : match.start()])
        place = match.end()
        if kind is None:
            continue
        tag = kind.lower()
        if match[2]:
            reader.close(tag)
        elif tag == "img":
            alt = ALT.search(match[4])
            reader.say((alt[1] or alt[2] or alt[3] or "") if alt else "")
        else:
            reader.open(tag)
    reader.say(source[place:])
    return reader.page()


class _Reader:
    """Collects blocks of text."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.line: list[str] = []
        self.prefix = ""
        """The mark that the current block begins with."""
        self.listed = False
        """Whether the last block was an item of a list."""
        self.lists: list[int] = []
        """Of each list that is open the number of its last item, below 0 where it counts none."""
        self.rows: list[list[str]] | None = None
        self.tables = self.fences = 0
        self.titled: list[str] | None = None
        self.title: str | None = None

    def open(self, tag: str) -> None:
        if tag == "title":
            self.titled = []
        elif tag == "br":
            self.line.append("\n")
        elif tag == "pre":
            self.flush()
            self.fences += 1
        elif tag in ("table", "tr", "td", "th"):
            self.open_table(tag)
        elif tag == "li":
            self.flush()
            self.prefix = self.mark()
        elif tag in HEADINGS:
            self.flush()
            self.prefix = HEADINGS[tag]
        elif tag in BLOCKS:
            self.flush()
            if tag in ("ul", "ol"):
                self.lists.append(0 if tag == "ol" else -1)

    def close(self, tag: str) -> None:
        if tag == "title" and self.titled is not None:
            self.title = self.title or SPACE.sub(" ", "".join(self.titled)).strip() or None
            self.titled = None
        elif tag == "pre" and self.fences:
            self.flush()
            self.fences -= 1
        elif tag == "table" and self.tables:
            self.close_table()
        elif tag in BLOCKS or tag in HEADINGS or tag == "li":
            self.flush()
            if tag in ("ul", "ol") and self.lists:
                self.lists.pop()

    def say(self, source: str) -> None:
        data = html.unescape(source) if "&" in source else source
        if self.titled is not None:
            self.titled.append(data)
        else:
            self.line.append(data if self.fences else SPACE.sub(" ", data))

    def mark(self) -> str:
        """The mark of the next item of the innermost list."""
        indent = "  " * min(len(self.lists) - 1, DEEP)
        if not self.lists or self.lists[-1] < 0:
            return indent + "- "
        self.lists[-1] += 1
        return f"{indent}{self.lists[-1]}. "

    def flush(self) -> None:
        """End the current block; within a table it is a part of its cell."""
        if self.rows is not None:
            self.line.append(" ")
            return
        text, self.line = "".join(self.line), []
        if self.fences:
            text = f"```\n{text.strip(chr(10))}\n```" if text.strip() else ""
        else:
            text = "\n".join(part.strip() for part in text.split("\n")).strip()
            if self.prefix.startswith("#"):
                text = text.replace("\n", " ")
        if text:
            item = bool(self.prefix) and not self.prefix.startswith("#")
            self.blocks.append(("\n" if item and self.listed else "\n\n") + self.prefix + text)
            self.prefix, self.listed = "", item

    def open_table(self, tag: str) -> None:
        if tag == "table":
            self.tables += 1
            if self.tables == 1:
                self.flush()
                self.rows = []
        elif self.rows is not None and self.tables == 1:
            self.cell()
            if tag == "tr":
                self.rows.append([])
            else:
                self.rows = self.rows or [[]]
                self.rows[-1].append("")

    def cell(self) -> None:
        """Put what was read into the cell that is open; what stands in none, into the paragraph before the table."""
        assert self.rows is not None
        text = SPACE.sub(" ", "".join(self.line)).strip()
        self.line = []
        if not text:
            return
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {text}".strip()
        else:
            self.paragraph(text)

    def paragraph(self, text: str) -> None:
        self.blocks.append("\n\n" + text)
        self.listed = False

    def close_table(self) -> None:
        self.tables -= 1
        if self.tables or self.rows is None:
            return
        self.cell()
        rows, self.rows = [row for row in self.rows if row], None
        if rows:
            self.paragraph(table(rows))

    def page(self) -> Page:
        """What was read, with what was left open closed."""
        if self.rows is not None:
            self.tables = 1
            self.close_table()
        if self.titled is not None:
            self.close("title")
        self.flush()
        return Page(self.title, "".join(self.blocks).strip())


def table(rows: list[list[str]]) -> str:
    """Rows of cells as a Markdown table; the first row is its head, and short rows are filled up.

    >>> print(table([["Fare", "Price"], ["Car", "20|25"], ["Dog"]]))
    | Fare | Price |
    | --- | --- |
    | Car | 20\\|25 |
    | Dog |  |
    """
    width = max(map(len, rows))
    filled = width if width <= WIDE else 0
    lines = [_row([*row, *[""] * (filled - len(row))]) for row in rows]
    return "\n".join([lines[0], "| " + " | ".join(["---"] * width) + " |", *lines[1:]])


def _row(cells: list[str]) -> str:
    plain = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(SPACE.sub(" ", cell).strip() for cell in plain) + " |"
