"""Tables: rows and columns of any spelling, as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

import msgspec

__all__ = ["table"]

LONGEST = 500_000
"""A longer text is shown as it is."""


def table(text: str) -> str:
    """A table or record as Markdown: JSON, HTML, or values between commas, semicolons or tabs.

    What is none of these, Markdown among it, stays as it is.

    >>> print(table('[{"town": "Oslo", "founded": 1040}, {"town": "Bergen"}]'))
    | town | founded |
    | --- | --- |
    | Oslo | 1040 |
    | Bergen |  |
    >>> print(table('{"town": "Oslo", "rivers": ["Akerselva", "Lysakerelva"]}'))
    | town | Oslo |
    | --- | --- |
    | rivers | Akerselva, Lysakerelva |
    """
    bare = text.strip()
    if not bare or len(bare) > LONGEST:
        return text
    if bare[0] in "[{":
        rows = _json(bare)
    elif "<t" in bare.lower():
        rows = _html(bare)
    else:
        rows = _separated(bare)
    return _markdown(rows) if rows else text


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as Markdown, the first of them the heading."""
    width = max(map(len, rows))
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join(["---"] * width) + " |", *lines[1:]])


def _cell(text: str) -> str:
    """A value on one line, with no bar that would end it."""
    return " ".join(text.split()).replace("|", "\\|")


def _json(text: str) -> list[list[str]]:
    """The rows of a list of records, a list of lists, or a single record; of several, one below the other, too."""
    try:
        held = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            held = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        except (msgspec.DecodeError, RecursionError):
            return []
    if isinstance(held, Mapping):
        return [[str(key), _said(value)] for key, value in held.items()]
    if not isinstance(held, list) or not held:
        return []
    if all(isinstance(one, Mapping) for one in held):
        keys = list(dict.fromkeys(key for one in held for key in one))
        return [keys, *([_said(one.get(key)) for key in keys] for one in held)] if keys else []
    if all(isinstance(one, list) for one in held) and any(held):
        return [[_said(value) for value in one] for one in held]
    return []


def _said(value: Any) -> str:
    """A value of a cell."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(one, list | Mapping) for one in value):
        return ", ".join(map(_said, value))
    return msgspec.json.encode(value).decode()


def _separated(text: str) -> list[list[str]]:
    """The rows of values between tabs, semicolons or commas, where all rows are of one length."""
    for sign in "\t;,":
        if sign not in text.partition("\n")[0]:
            continue
        try:
            rows = [row for row in csv.reader(io.StringIO(text), delimiter=sign) if row]
        except csv.Error:
            continue
        if len(rows) > 1 and len({len(row) for row in rows}) == 1:
            return rows
    return []


class _Table(HTMLParser):
    """Collects the rows of all tables of a text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """A new row, or a new cell of it."""
        if tag == "tr":
            self.rows.append([])
            self._open = False
        elif tag in {"td", "th"}:
            if not self.rows:
                self.rows.append([])
            self.rows[-1].append("")
            self._open = True
        elif tag == "br" and self._open:
            self.rows[-1][-1] += " "

    def handle_endtag(self, tag: str) -> None:
        """The end of a cell."""
        if tag in {"td", "th", "tr", "table"}:
            self._open = False

    def handle_data(self, data: str) -> None:
        """Words of the open cell; before the first row, as in a caption, a row of their own."""
        if self._open:
            self.rows[-1][-1] += data
        elif data.strip():
            self.rows.append([data])


def _html(text: str) -> list[list[str]]:
    """The rows of all tables of an HTML text, and what stands between them."""
    parser = _Table()
    parser.feed(text)
    parser.close()
    rows = [row for row in parser.rows if any(cell.strip() for cell in row)]
    return rows if any(len(row) > 1 for row in rows) else []
