"""A report document as a fragment of HTML, and as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from ragfault.report.charts.svg import build_sign, draw_whisker, tag
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
    Text,
    VerdictMark,
    split_text,
)
from ragfault.report.renderers.terminal import TERMINAL_SIGNS
from ragfault.report.safe_text import clean_label, keep_edges

HTML_TINTS = {
    "good": "good", "better": "good", "bad": "bad", "worse": "bad", "unsure": "warn", "open": "none", "steady": "none",
}  # fmt: skip
"""Kind of a verdict → the class that tints it."""

MAX_TEXT = 1_200
"""Characters of one piece of a text; what is longer is cut."""

NOTEBOOK_COLORS = {"good": "#1e8449", "bad": "#c0392b", "warn": "#b7791f", "none": "#7f8c8d"}
"""Tint → a color that can be read on a light and on a dark ground."""

INTERVAL_WIDTH, INTERVAL_MARGIN = 120, 5
"""Pixels of an interval in a notebook."""

CELL_STYLE = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top"
"""Style of a cell in a notebook."""


def render_html_page(document: ReportDocument, command: str) -> str:
    """Render a document as one self-contained page, as the report of a command."""
    sections: list[tuple[Heading | None, list[Block]]] = [(None, [])]
    for block in document.blocks:
        if isinstance(block, Heading) and block.level == 2:
            sections.append((block, []))
        else:
            sections[-1][1].append(block)
    shown = [
        (f"section-{index}", title and _render_title(title), render_html(blocks))
        for index, (title, blocks) in enumerate(sections)
    ]
    from ragfault.report.html.environment import render_page

    return render_page(
        "document.html",
        ("page.css", "bisection.css", "agreement.css"),
        ("theme.js", "open_theme.js"),
        name=document.name,
        command=command,
        parts=shown,
        sections=[(id, title.striptags() if title else "Summary") for id, title, _ in shown],
    )


def render_html_fragment(document: ReportDocument) -> Markup:
    """Render a document for a notebook: colors in place, no script or style sheet."""
    title = tag("p", tag("b", clean_label(document.name)))
    return tag("div", title, render_html(document.blocks, in_place=True), class_="ragfault")


def render_html(blocks: Sequence[Block], *, in_place: bool = False) -> Markup:
    """Render blocks; tints are classes of the page, or colors `in_place` where there is no style sheet.

    >>> render_html([Paragraph(("a < b: ", VerdictMark("fail")))], in_place=True)
    Markup('<p>a &lt; b: <b style="color: #c0392b"><span aria-hidden="true">✗</span> fail</b></p>')
    """
    return Markup("\n").join(_render_block(block, in_place) for block in blocks)


def _render_block(block: Block, in_place: bool) -> Markup:
    match block:
        case Heading():
            return _render_heading(block, in_place)
        case Paragraph():
            mark = [_render_inline(VerdictMark("warning", "unsure"), in_place), " "] if block.role == "warning" else []
            return tag("p", mark, _render_text(block.text, in_place), class_="note" if block.role == "note" else None)
        case Table():
            return _render_table(block, in_place)
        case Listing():
            return _render_listing(block, in_place)
        case Chart():
            # The drawing takes its colors from the style sheet, which a notebook has not.
            caption = tag("figcaption", clean_label(block.caption, MAX_TEXT))
            return Markup("") if in_place else tag("figure", caption, block.drawing)
        case Details():
            summary = tag("summary", clean_label(block.summary, MAX_TEXT))
            return tag("details", summary, render_html(block.blocks, in_place=in_place))


def _render_heading(heading: Heading, in_place: bool) -> Markup:
    text, mark = _render_text(heading.text, in_place), heading.mark
    if heading.level == 1 and mark is not None and not in_place:
        word = tag("p", tag("span", TERMINAL_SIGNS[mark.kind], aria_hidden="true"), " ", mark.word, class_="word")
        return tag("div", word, tag("p", text, class_="sentence"), class_=f"verdict {HTML_TINTS[mark.kind]}")
    title = _render_title(heading, in_place)
    return tag("p", title, class_="lead") if heading.level == 1 else tag("h3", title)


def _render_title(heading: Heading, in_place: bool = False) -> Markup:
    text = _render_text(heading.text, in_place)
    return text if heading.mark is None else _render_inline(heading.mark, in_place) + " " + text


def _render_table(table: Table, in_place: bool) -> Markup:
    def build_cell(index: int, cell: Text) -> Markup:
        column, text = table.columns[index], _render_text(cell, in_place)
        if index == 0:
            return tag("th", text, scope="row", style=style)
        kind = "figure" if column.numeric else None
        return tag("td", text, data_label=column.title or "what", class_=kind, style=style)

    style = CELL_STYLE if in_place else None
    heads = [tag("th", column.title or "what", scope="col", style=style) for column in table.columns]
    rows = [tag("tr", [build_cell(index, cell) for index, cell in enumerate(row)]) for row in table.rows]
    element = tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows), class_="stacked")
    name = ", ".join(column.title for column in table.columns if column.title)
    return tag("div", element, class_="scroll", tabindex="0", role="region", aria_label=f"table of {name}")


def _render_listing(listing: Listing, in_place: bool) -> Markup:
    items: list[list[Markup]] = []
    for item in listing.items:
        if not isinstance(item, Listing):
            items.append([_render_text(item, in_place)])
        elif items:
            items[-1].append(_render_listing(item, in_place))
    return tag("ol" if listing.ordered else "ul", [tag("li", item) for item in items], class_="items")


def _render_text(text: Text, in_place: bool = False) -> Markup:
    return Markup("").join(_render_inline(piece, in_place) for piece in split_text(text))


def _render_inline(piece: Inline, in_place: bool = False) -> Markup:
    match piece:
        case str():
            return escape(keep_edges(piece, lambda text: clean_label(text, MAX_TEXT)))
        case VerdictMark():
            sign, tint = TERMINAL_SIGNS[piece.kind], HTML_TINTS[piece.kind]
            if in_place:
                glyph = tag("span", sign, aria_hidden="true")
                return tag("b", glyph, " ", piece.word, style=f"color: {NOTEBOOK_COLORS[tint]}")
            return build_sign(sign, piece.word, tint)
        case IntervalMark():
            return _draw_interval(piece, in_place)
        case Link():
            name = clean_label(piece.text, MAX_TEXT)
            return tag("a", name, href=piece.url) if piece.is_safe else escape(name)
        case StyledText():
            text = keep_edges(piece.text, lambda text: clean_label(text, MAX_TEXT))
            if piece.emphasis in ("code", "strong"):
                return tag(piece.emphasis, text)
            return tag("bdi", text) if piece.emphasis == "quote" else tag("span", text, class_="note")


def _draw_interval(mark: IntervalMark, in_place: bool) -> Markup:
    """Draw a mean and its interval on the whole range; without a style sheet in the colors of the text."""
    if not in_place:
        return draw_whisker(mark.mean, mark.low, mark.high, (0.0, 1.0))

    def place(share: float) -> float:
        return round(INTERVAL_MARGIN + INTERVAL_WIDTH * share, 1)

    line: dict[str, str | int | float | bool | None] = {"y1": 6, "y2": 6, "stroke": "currentColor"}
    return tag(
        "svg",
        tag("line", x1=place(0), x2=place(1), stroke_opacity="0.25", **line),
        tag("line", x1=place(mark.low), x2=place(mark.high), stroke_width=4, stroke_opacity="0.55", **line),
        tag("circle", cx=place(mark.mean), cy=6, r=4, fill="currentColor"),
        width=INTERVAL_WIDTH + 2 * INTERVAL_MARGIN,
        height=12,
        aria_hidden="true",
    )
