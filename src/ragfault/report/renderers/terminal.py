"""A report document as the text of a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragfault.report.document import (
    Block,
    Chart,
    Details,
    Heading,
    Inline,
    IntervalMark,
    Link,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    drop_hidden,
    split_text,
)
from ragfault.report.safe_text import clean_text, clip_text, keep_edges
from ragfault.report.terminal.layout import build_line, indent_line, render_rich
from ragfault.text.number_format import MISSING

if TYPE_CHECKING:
    from rich.console import RenderableType


TERMINAL_SIGNS = {
    "good": "✓", "bad": "✗", "unsure": "?", "open": "·", "worse": "▼", "better": "▲", "steady": "=",
}  # fmt: skip
"""Kind of a verdict → its sign."""

STYLES = {
    "good": "green", "better": "green", "bad": "red", "worse": "red", "unsure": "yellow", "open": "dim", "steady": "",
    "strong": "bold", "muted": "dim", "code": "bold", "quote": "",
}  # fmt: skip
"""Kind of a verdict, or emphasis → its style."""

MAX_QUOTE = 300
"""Characters of a quote; what is longer is cut."""

INTERVAL_CELLS = 14
"""Characters of a drawn interval."""

MAX_UNBROKEN = 32
"""Characters of a figure that stays on one line of its cell."""

MAX_DEPTH = 15
"""Columns by which what stands below a row is indented, at most."""

HEADING_STYLES = {1: "bold", 2: "bold cyan", 3: "cyan"}


def render_terminal(document: ReportDocument, *, width: int | None = None, color: bool = False) -> str:
    """Render a document as text without markup; texts of traces lose control characters and escape sequences.

    >>> title = Heading("1 of 2 fa\\x1b[31mils", 1, VerdictMark("fail"))
    >>> print(render_terminal(ReportDocument("demo", (title, Paragraph("few traces", "warning")))), end="")
    FAIL: 1 of 2 fails
    warning: few traces
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    return render_rich(_build_blocks(document.blocks, width), width=width, color=color)


def render_first_fitting(
    documents: Iterable[ReportDocument], max_lines: int, *, width: int | None = None, color: bool = False
) -> str:
    """Render the first of several documents that takes at most so many lines, else the last."""
    text = ""
    for document in documents:
        text = render_terminal(document, width=width, color=color)
        if text.count("\n") <= max_lines:
            break
    return text


def _build_blocks(blocks: Sequence[Block], width: int) -> list[RenderableType]:
    shown = drop_hidden(blocks, lambda block: _has_room(block, width))
    return [part for block in shown for part in _build_block(block, width)]


def _has_room(block: Block, width: int) -> bool:
    if isinstance(block, Table):
        return any(column.room <= width for column in block.columns)
    return not isinstance(block, Chart) and (not isinstance(block, Details) or block.room <= width)


def _build_block(block: Block, width: int) -> list[RenderableType]:
    match block:
        case Heading():
            return [*([build_line()] if block.level == 2 else []), _build_heading(block)]
        case Paragraph(text=text, role="warning"):
            return [build_line(("warning: ", "yellow"), *_style_text(text))]
        case Paragraph():
            return [build_line(*_style_text(block.text, "dim" if block.role == "note" else ""))]
        case Table():
            shown = [index for index, column in enumerate(block.columns) if column.room <= width]
            columns = [block.columns[index] for index in shown]
            rows = [[row[index] for index in shown] for row in block.rows]
            build = _build_entries if any(column.prose or column.aside for column in columns) else _build_grid
            return build(columns, rows)
        case Listing():
            return _build_items(block)
        case Details():
            return _build_blocks((Heading(block.summary), *block.blocks), width)
        case Chart():
            return []


def _build_heading(heading: Heading) -> RenderableType:
    style, mark = HEADING_STYLES[heading.level], heading.mark
    if mark is None:
        return build_line(*_style_text(heading.text, style))
    style = f"bold {STYLES[mark.kind]}".strip()
    return build_line((f"{mark.word.upper()}: ", style), *_style_text(heading.text, "bold"))


def _build_grid(columns: Sequence[TableColumn], rows: Sequence[Sequence[Text]]) -> list[RenderableType]:
    from rich.table import Table as TerminalTable

    table = TerminalTable(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for index, column in enumerate(columns):
        # Names and remarks fold; figures and signs stay on one line.
        marks = bool(rows) and isinstance(rows[0][index], VerdictMark)
        short = index > 0 and column.room == 0 and all(len(_get_text(row[index])) <= MAX_UNBROKEN for row in rows)
        fixed = column.numeric or marks or short
        table.add_column(column.title, justify="right" if column.numeric else "left", overflow="fold", no_wrap=fixed)
    table.show_header = any(column.title for column in columns)
    for row in rows:
        table.add_row(*(build_line(*_style_text(cell)) for cell in row))
    return [table]


def _build_entries(columns: Sequence[TableColumn], rows: Sequence[Sequence[Text]]) -> list[RenderableType]:
    """Build rows as lines, each with its figures and sentences below it, under the second cell."""
    first = 2 + max((len(_get_text(row[0])) for row in rows), default=0)
    depth = min(first, MAX_DEPTH)
    lines: list[RenderableType] = []
    for row in rows:
        pairs = list(zip(row, columns, strict=True))
        cells = [cell for cell, column in pairs if not (column.prose or column.aside)]
        head = [*_style_text(cells[0]), (" " * (first - len(_get_text(cells[0]))), "")]
        names = [piece for cell in cells[1:] for piece in (*_style_text(cell, "bold"), ("  ", ""))]
        lines.append(build_line(*head, *names))
        known = [(cell, column) for cell, column in pairs if _get_text(cell) not in ("", MISSING)]
        figures = ", ".join(f"{column.title} {_get_text(cell)}" for cell, column in known if column.aside)
        lines += [indent_line(depth, figures)] if figures else []
        lines += [indent_line(depth, *_style_text(cell)) for cell, column in known if column.prose]
    return lines


def _build_items(listing: Listing, depth: int = 2) -> list[RenderableType]:
    lines: list[RenderableType] = []
    count = 0
    for item in listing.items:
        count += not isinstance(item, Listing)
        if count > listing.shown:
            continue
        if isinstance(item, Listing):
            lines += _build_items(item, depth + 2)
        else:
            number = f"{count}. " if listing.ordered else ""
            lines.append(indent_line(depth, number, *_style_text(item)))
    if count > listing.shown:
        lines.append(indent_line(depth, (f"and {count - listing.shown:,} more", "dim")))
    return lines


def _get_text(text: Text) -> str:
    return "".join(_get_words(piece) for piece in split_text(text))


def _get_words(piece: Inline) -> str:
    """Return a piece as the terminal shows it; all texts from outside pass here."""
    match piece:
        case str():
            return keep_edges(piece, clean_text)
        case VerdictMark():
            return f"{TERMINAL_SIGNS[piece.kind]} {piece.word}"
        case IntervalMark():
            return _draw_interval(piece)
        case Link():
            return f"{clean_text(piece.text)} ({clean_text(piece.url)})"
        case StyledText():
            if piece.emphasis == "quote":
                return clip_text(piece.text, MAX_QUOTE)
            return keep_edges(piece.text, clean_text)


def _draw_interval(mark: IntervalMark) -> str:
    low, mean, high = (min(INTERVAL_CELLS - 1, int(end * INTERVAL_CELLS)) for end in (mark.low, mark.mean, mark.high))
    signs = ["·"] * INTERVAL_CELLS
    signs[low : high + 1] = "─" * (high + 1 - low)
    signs[mean] = "●"
    return "".join(signs)


def _style_text(text: Text, style: str = "") -> list[tuple[str, str]]:
    return [(_get_words(piece), _choose_style(piece) or style) for piece in split_text(text)]


def _choose_style(piece: Inline) -> str:
    if isinstance(piece, VerdictMark | IntervalMark):
        return STYLES[piece.kind]
    return STYLES[piece.emphasis] if isinstance(piece, StyledText) else ""
