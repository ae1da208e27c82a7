"""A report document as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

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
    drop_hidden,
    split_text,
)
from ragfault.report.markdown.syntax import build_markdown_table, escape_markdown, format_code
from ragfault.report.safe_text import clip_text, keep_edges

MARKDOWN_SIGNS = {
    "good": "✅", "bad": "❌", "unsure": "❔", "open": "·", "worse": "🔻", "better": "🔺", "steady": "",
}  # fmt: skip
"""Kind of a verdict → its sign."""

MAX_QUOTE = 240
"""Characters of a quote; what is longer is cut."""

URL_SIGNS = "/:#?&=%@+,;~"
"""Signs that an address keeps; all others are quoted."""


def render_markdown(document: ReportDocument) -> str:
    """Render a document as Markdown; the first line is its title.

    >>> title, warning = Heading("1 of 2 fails", 1, VerdictMark("fail")), Paragraph("a | b", "warning")
    >>> print(render_markdown(ReportDocument("demo", (title, warning))))
    ### ❌ fail: 1 of 2 fails
    <BLANKLINE>
    > ⚠️ a &#124; b
    <BLANKLINE>
    """
    return render_markdown_blocks(document.blocks) + "\n"


def render_markdown_blocks(blocks: Sequence[Block]) -> str:
    """Render blocks with an empty line between them."""
    shown = drop_hidden(blocks, lambda block: not isinstance(block, Chart))
    return "\n\n".join(filter(None, map(_render_block, shown)))


def _render_block(block: Block) -> str:
    match block:
        case Heading():
            mark = "" if block.mark is None else f"{_render_inline(block.mark)}: "
            text = f"{mark}{render_markdown_text(block.text)}"
            return f"**{text}**" if block.level == 3 else f"{'#' * (block.level + 2)} {text}"
        case Paragraph():
            return f"{'> ⚠️ ' if block.role == 'warning' else ''}{render_markdown_text(block.text)}"
        case Table():
            shown = [index for index, column in enumerate(block.columns) if not column.graphic]
            columns = [block.columns[index] for index in shown]
            heads = [f"{escape_markdown(column.title)}{':' if column.numeric else ''}" for column in columns]
            cells = [[render_markdown_text(row[index]) for index in shown] for row in block.rows]
            return "\n".join(build_markdown_table(heads, cells))
        case Listing():
            return "\n".join(_list_items(block))
        case Details():
            summary = escape_markdown(block.summary)
            return f"<details><summary>{summary}</summary>\n\n{render_markdown_blocks(block.blocks)}\n\n</details>"
        case Chart():
            return ""


def _list_items(listing: Listing, depth: int = 0) -> list[str]:
    sign, lines = "1." if listing.ordered else "-", []
    for item in listing.items:
        if isinstance(item, Listing):
            lines += _list_items(item, depth + 1)
        else:
            lines.append(f"{'  ' * depth}{sign} {render_markdown_text(item)}")
    return lines


def render_markdown_text(text: Text) -> str:
    """Render a text; what comes from outside is escaped."""
    return "".join(map(_render_inline, split_text(text)))


def _render_inline(piece: Inline) -> str:
    match piece:
        case str():
            return keep_edges(piece, escape_markdown)
        case VerdictMark():
            return f"{MARKDOWN_SIGNS[piece.kind]} {piece.word}".lstrip()
        case IntervalMark():
            return ""
        case Link():
            name = escape_markdown(piece.text)
            return f"[{name}]({quote(piece.url, safe=URL_SIGNS)})" if piece.is_safe else name
        case StyledText():
            if piece.emphasis == "code":
                return format_code(piece.text)
            if piece.emphasis == "quote":
                return escape_markdown(clip_text(piece.text, MAX_QUOTE))
            sign = "**" if piece.emphasis == "strong" else ""
            return keep_edges(piece.text, lambda text: f"{sign}{escape_markdown(text)}{sign}")
