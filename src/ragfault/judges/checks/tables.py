"""Rows of Markdown tables, and claims that give one row the value of another."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_words

RULE_LINE = re.compile(r"(?=[^-]*-)(?=[^|]*\|)[\s|:-]+")
"""The line between the names of the columns and the rows."""
CELL_BORDER = re.compile(r"(?<!\\)\|")


class PassageRow(NamedTuple):
    """A row of a table below its head."""

    table: int
    """Number of the table among those of all passages."""
    cells: tuple[frozenset[str], ...]
    """The stems of each cell, in the order of the columns; the first one names the row."""
    texts: tuple[str, ...]


def parse_rows(texts: Sequence[str], normalize: Callable[[str], str] = str) -> list[PassageRow]:
    r"""Return the rows of the Markdown tables of some passages, without their heads.

    A row whose first cell is empty continues the one above and has its name; stems are those of the `normalize`d cells.

    >>> [row.texts for row in parse_rows(["| Vehicle | Price |\n|---|---|\n| Car | 20 |\n| Van | 30 |"])]
    [('Car', '20'), ('Van', '30')]
    """
    rows: list[PassageRow] = []
    table = 0
    for text in texts:
        inside = False
        for line in text.split("\n") if "|" in text else ():
            if "|" not in line:
                inside = False
            elif RULE_LINE.fullmatch(line.strip()):
                inside, table = True, table + 1
            elif inside:
                cells = tuple(cell.strip() for cell in CELL_BORDER.split(line.strip().strip("|")))
                if not cells[0] and rows and rows[-1].table == table:
                    cells = (rows[-1].texts[0], *cells[1:])
                stems = tuple(frozenset(split_words(normalize(cell))) - STOP_WORDS for cell in cells)
                rows.append(PassageRow(table, stems, cells))
    return rows


COMPARISONS = frozenset(
    split_words(
        "than less more fewer under over below above between least most within exceed differ except instead unlike "
        "after before next previous plus minus sum total average both cheaper higher lower longer shorter larger "
        "smaller rise rose raise fall fell drop grow grew gain lose lost increase decrease change double twice half"
    )
)
"""Words of claims that may name the value of another row, or one computed of several, rightly."""
DIGITS = re.compile(r"[\d.,\s]+")
RANK = re.compile(r"\d{1,3}")
"""A first cell that numbers the rows names none of them."""


def _are_comparable(cell: str, own_cell: str) -> bool:
    """Return whether two cells write values alike: two numbers need one unit and format, unlike “40%” and “0.4”."""
    if not re.search(r"\d", cell) or not re.search(r"\d", own_cell):
        return True
    return DIGITS.sub("", cell).lower() == DIGITS.sub("", own_cell).lower()


def detect_row_conflict(
    claim_words: Set[str], tokens: Sequence[str], rows: Sequence[PassageRow], elsewhere: Sequence[Set[str]]
) -> str | None:
    r"""Return why a claim gives one row the value of another; None where it does not, or names no row or several.

    The claim names the rows whose first cell it holds in full. It takes the value of another row of their table where
    it holds a cell of that row in full, not the cell of the same column of a row that it names, and a stem of it
    stands in no row that it names and in no sentence outside of tables (`elsewhere`). A claim that negates, compares
    or computes (by its `tokens`) is passed over, and so are rows that are only numbered, rows that name each other
    and numbers in another unit or format than the row's own.

    >>> rows = parse_rows(["| Vehicle | Price |\n|---|---|\n| Car | 20 |\n| Van | 30 |"])
    >>> detect_row_conflict({"car", "cost", "30"}, ["car", "cost", "30"], rows, [])
    'the table has “30” in the row “Van”, not in “Car”'
    >>> detect_row_conflict({"car", "cost", "20"}, ["car", "cost", "20"], rows, []) is None
    True
    """
    if not COMPARISONS.isdisjoint(tokens) or not NEGATIONS.isdisjoint(tokens):
        return None
    named_rows = [
        row
        for row in rows
        if row.cells[0] and row.cells[0] <= claim_words and not RANK.fullmatch(row.texts[0].strip(".# "))
    ]
    longest = max((row.cells[0] for row in named_rows), key=len, default=frozenset())
    if not named_rows or any(not row.cells[0] <= longest for row in named_rows):
        return None
    named_rows = [row for row in named_rows if row.cells[0] == longest]
    known_words = frozenset().union(*(cell for row in named_rows for cell in row.cells))
    tables = {row.table: row for row in named_rows}
    for row in rows:
        table = tables.get(row.table)
        if table is None or row.cells[0] <= longest or len(row.cells) != len(table.cells):
            continue
        if any(row.cells[0] <= cell for cell in table.cells[1:]) or any(table.cells[0] <= c for c in row.cells[1:]):
            # one names the other, as a manager: a claim on one may state values of both
            continue
        for cell, own_cell, text, own_text in zip(
            row.cells[1:], table.cells[1:], row.texts[1:], table.texts[1:], strict=True
        ):
            foreign = cell - known_words
            if not foreign or not cell <= claim_words or (own_cell and own_cell <= claim_words):
                continue
            if _are_comparable(text, own_text) and not any(foreign <= words for words in elsewhere):
                return f"the table has “{text}” in the row “{row.texts[0]}”, not in “{table.texts[0]}”"
    return None
