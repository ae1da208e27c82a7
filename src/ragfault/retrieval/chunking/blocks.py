"""Blocks: the headings, paragraphs, list items and tables of a text, found line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Blocks", "blocks", "json_levels", "lines"]

ATX = re.compile(r"(#{1,6})(?:[ \t]|$)")
RULE = re.compile(r"(?=[^-]*-)(?=[^|]*\|)[\s|:-]+")
"""The line between the head of a Markdown table and its rows."""
ITEM = re.compile(r"(?:[-*+•]|\d{1,4}[.)])[ \t]")
SYNTAX = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)
DEPTHS = 6
"""So many levels of headings, or of JSON, are told apart."""


class Blocks(NamedTuple):
    """Where the parts of a text begin, in characters."""

    headings: list[tuple[int, int]]
    """With their depth, from 1."""
    paragraphs: list[int]
    """Paragraphs, lists, tables and code; what follows a heading without a break is part of its block."""
    items: list[int]
    """List items, and what follows an empty line in code."""
    tables: list[tuple[int, int]]
    """With their ends, exclusive."""


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with the place where it begins."""
    place = 0
    for line in text.split("\n"):
        yield place, line
        place += len(line) + 1


def blocks(text: str) -> Blocks:
    """The blocks of a text, by the marks of Markdown (also `Title` over a rule, and `== Title ==`).

    >>> blocks("# Fares\\n\\nBy length.\\n\\n| Car | 20 |\\n|---|---|\\n| Van | 30 |\\n\\n- dogs\\n- cats\\n")
    Blocks(headings=[(0, 1)], paragraphs=[0, 21, 58], items=[58, 65], tables=[(21, 56)])
    """
    reader = _Reader()
    for place, line in lines(text):
        reader.take(place, line)
    reader.end_table(len(text))
    return Blocks(reader.headings, reader.paragraphs, reader.items, reader.tables)


class _Reader:
    """Takes one line after the other."""

    def __init__(self) -> None:
        self.headings: list[tuple[int, int]] = []
        self.paragraphs: list[int] = []
        self.items: list[int] = []
        self.tables: list[tuple[int, int]] = []
        self.fence = ""
        """What closes the code that is open."""
        self.table = -1
        """Where the table that is open began."""
        self.tagged = False
        """Whether that is a table of HTML."""
        self.fresh = True
        """Whether an empty line, or nothing, stands before."""
        self.headed = False
        """Whether the last block is a heading."""
        self.last = (0, "")

    def take(self, place: int, line: str) -> None:
        bare = line.strip()
        if self.fence:
            self.code(place, bare)
        elif self.table >= 0 and self.in_table(place, line):
            pass
        elif not bare:
            self.fresh = True
        else:
            self.block(place, line, bare)
        self.last = (place, bare)

    def code(self, place: int, bare: str) -> None:
        if bare.startswith(self.fence) and not bare.strip(self.fence[0]):
            self.fence, self.fresh = "", True
        elif bare and self.fresh:
            self.items.append(place)
            self.fresh = False
        elif not bare:
            self.fresh = True

    def in_table(self, place: int, line: str) -> bool:
        """Whether the line still belongs to the table; ends the table where it does not."""
        if self.tagged:
            if "</table" in line.lower():
                self.end_table(place + len(line))
            return True
        if "|" in line:
            return True
        self.end_table(place - 1)
        return False

    def end_table(self, place: int) -> None:
        if self.table >= 0:
            self.tables.append((self.table, place))
            self.table, self.fresh = -1, True

    def block(self, place: int, line: str, bare: str) -> None:
        """Take a line that is not empty."""
        first = bare[0]
        if first in "`~" and bare.startswith(("```", "~~~")):
            self.begin(place)
            self.fence, self.fresh = bare[: len(bare) - len(bare.lstrip(first))], False
        elif first == "#" and (atx := ATX.match(bare)):
            self.heading(place, len(atx[1]))
        elif first in "=-" and not bare.strip(first) and self.underlines(bare):
            self.heading(self.last[0], 1 if first == "=" else 2)
        elif first == "=" and bare[-1] == "=" and bare.strip("= "):
            self.heading(place, min(len(bare[: -len(bare.lstrip("= "))].replace(" ", "")), DEPTHS))
        elif "|" in bare and "|" in self.last[1] and not self.fresh and RULE.fullmatch(bare):
            self.open_table(self.last[0], tagged=False)
        elif first == "<" and bare[:6].lower() == "<table":
            self.open_table(place, tagged=True)
            if "</table" in line.lower():
                self.end_table(place + len(line))
        elif ITEM.match(bare):
            self.begin(place)
            self.items.append(place)
        else:
            self.begin(place)

    def underlines(self, bare: str) -> bool:
        """Whether a rule makes a heading of the line before it."""
        return (
            len(bare) >= 3
            and not self.fresh
            and bool(self.paragraphs)
            and self.paragraphs[-1] == self.last[0]
        )

    def heading(self, place: int, depth: int) -> None:
        self.headings.append((place, depth))
        if not self.paragraphs or self.paragraphs[-1] < place:
            self.paragraphs.append(place)
        self.fresh, self.headed = False, True

    def open_table(self, place: int, *, tagged: bool) -> None:
        self.table, self.tagged, self.headed = place, tagged, False
        if not self.paragraphs or self.paragraphs[-1] < place:
            self.paragraphs.append(place)

    def begin(self, place: int) -> None:
        """Begin a paragraph, unless one goes on or nothing but a heading stands before it."""
        if self.fresh and not self.headed:
            self.paragraphs.append(place)
        self.fresh = self.headed = False


def json_levels(text: str) -> list[list[int]] | None:
    """Where members of a JSON document begin that follow another one, by their depth; None where the text is no JSON.

    >>> json_levels('{"a": [1, 2], "b": 3}')
    [[14], [10], [], [], [], []]
    """
    bare = text.strip()
    if bare[:1] + bare[-1:] not in ("{}", "[]"):
        return None
    levels: list[list[int]] = [[] for _ in range(DEPTHS)]
    depth = 0
    for match in SYNTAX.finditer(text):
        sign = match[0]
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and 1 <= depth <= DEPTHS:
            after = match.end()
            levels[depth - 1].append(after + (text[after : after + 1] == " "))
    return levels
