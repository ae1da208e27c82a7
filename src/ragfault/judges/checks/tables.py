"""Rows of Markdown tables, and claims that give one row the value of another."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import NamedTuple

from ragfault.text import NEGATIONS, STOP_WORDS, split_words

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


def parse_rows(texts: Sequence[str]) -> list[PassageRow]:
    r"""Return the rows of the Markdown tables of some passages, without their heads.

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
                rows.append(
                    PassageRow(table, tuple(frozenset(split_words(cell)) - STOP_WORDS for cell in cells), cells)
                )
    return rows


COMPARISONS = frozenset(
    split_words(
        "than less more fewer under over below above between least most within exceed differ except instead unlike"
    )
)
"""Words of claims that may name the value of another row rightly."""
RANK = re.compile(r"\d{1,3}")
"""A first cell that numbers the rows names none of them."""


def detect_row_conflict(
    claim_words: Set[str], tokens: Sequence[str], rows: Sequence[PassageRow], elsewhere: Sequence[Set[str]]
) -> str | None:
    r"""Return why a claim gives one row the value of another; None where it does not, or names no row or several.

    The claim names the rows whose first cell it holds in full. It takes the value of another row of their table where
    it holds a cell of that row in full, not the cell of the same column of a row that it names, and a stem of it
    stands in no row that it names and in no sentence outside of tables (`elsewhere`). A claim that negates or compares
    (by its `tokens`) is passed over, and so are rows that are only numbered.

    >>> rows = parse_rows(["| Vehicle | Price |\n|---|---|\n| Car | 20 |\n| Van | 30 |"])
    >>> detect_row_conflict({"car", "cost", "30"}, ["car", "cost", "30"], rows, [])
    'the table has “30” in the row “Van”, not in “Car”'
    >>> detect_row_conflict({"car", "cost", "20"}, ["car", "cost", "20"], rows, []) is None
    True
    """
    if not COMPARISONS.isdisjoint(tokens) or not NEGATIONS.isdisjoint(tokens):
        return None
    named = [
        row
        for row in rows
        if row.cells[0] and row.cells[0] <= claim_words and not RANK.fullmatch(row.texts[0].strip(".# "))
    ]
    longest = max((row.cells[0] for row in named), key=len, default=frozenset())
    if not named or any(not row.cells[0] <= longest for row in named):
        return None
    named = [row for row in named if row.cells[0] == longest]
    known = frozenset().union(*(cell for row in named for cell in row.cells))
    tables = {row.table: row for row in named}
    for row in rows:
        own = tables.get(row.table)
        if own is None or row.cells[0] <= longest or len(row.cells) != len(own.cells):
            continue
        for cell, own_cell, text in zip(row.cells[1:], own.cells[1:], row.texts[1:], strict=True):
            foreign = cell - known
            if not foreign or not cell <= claim_words or (own_cell and own_cell <= claim_words):
                continue
            if not any(foreign <= words for words in elsewhere):
                return f"the table has “{text}” in the row “{row.texts[0]}”, not in “{own.texts[0]}”"
    return None
