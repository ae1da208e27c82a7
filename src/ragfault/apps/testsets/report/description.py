"""The report of an evaluation set: its size and power, kinds, coverage, and the difficulty of its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from markupsafe import Markup

from ragfault.report.charts.svg import draw_histogram, tag
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
    Chart,
    Details,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    build_section,
    build_warnings,
)
from ragfault.text.number_format import format_number, format_percent

if TYPE_CHECKING:
    from ragfault.apps.testsets.description import TestsetDescription
    from ragfault.apps.testsets.difficulty import TestsetDifficulty

MAX_ROWS = 30
"""Rows of a picture at most."""
ITEMS_SHOWN = 5
"""Documents, topics and items that a terminal names."""
COLUMN = 240
ROW_HEIGHT = 22

SIZE_TERMS = (
    "Effective size: n² / Σ m², m the sizes of the groups of items with overlapping gold or nearly one query. An item "
    "that no system solves may be hard, or wrong: read it."
)


def build_description(
    name: str, description: TestsetDescription, difficulty: TestsetDifficulty | None = None
) -> ReportDocument:
    """Build the report of an evaluation set, with its difficulty where runs were measured on it."""
    facts: list[Block] = [Paragraph(fact) for fact in _list_facts(description)]
    charts = _draw_columns({"Items by kind of question": description.kinds})
    body = [
        *build_section("Kinds of questions", *charts),
        *_build_coverage(description),
        *([] if difficulty is None else _build_difficulty(difficulty)),
        Paragraph(SIZE_TERMS, "note"),
    ]
    return ReportDocument(name, (Heading(name, 1), *facts, *build_warnings(description.warnings)), tuple(body))


def _draw_columns(values: Mapping[str, Mapping[str, float]], *, shares: bool = False) -> list[Block]:
    """Draw each of some groups of values, by caption; nothing of those that are empty."""
    drawings = {caption: draw_columns(numbers, caption, shares=shares) for caption, numbers in values.items()}
    return [Chart(caption, drawing) for caption, drawing in drawings.items() if drawing is not None]


def _build_coverage(description: TestsetDescription) -> list[Block]:
    """Build the documents with most items, the topics that are covered least, and the documents without an item."""
    documents = {part.document: part.items for part in description.documents}
    topics = dict(sorted(description.topics.items(), key=lambda pair: (pair[1], pair[0]))[:MAX_ROWS])
    lines = tuple(
        f"{part.document}: {part.items:,} items, {format_percent(part.share)}" for part in description.documents
    )
    covered = tuple(
        f"topic {name}: {format_percent(share)} of its passages have gold" for name, share in topics.items()
    )
    blocks: list[Block] = [
        Listing(lines, shown=ITEMS_SHOWN) if lines else Paragraph("No item has a gold span."),
        Listing(covered, shown=ITEMS_SHOWN)
        if covered
        else Paragraph("Coverage of topics takes the corpus (--corpus).", "note"),
        *_draw_columns({"Items by document": documents}),
        *_draw_columns({"Share of the passages of a topic that have gold": topics}, shares=True),
    ]
    if description.uncovered:
        without = Listing(description.uncovered, shown=ITEMS_SHOWN)
        blocks += [Heading("The longest documents without an item", 3), without]
    return build_section("Coverage", *blocks)


def _build_difficulty(difficulty: TestsetDifficulty) -> list[Block]:
    """Build how many items every run solves and how many none does, the means, and the hardest items."""
    summary = (
        f"By {difficulty.metric}: of {len(difficulty.items):,} items {difficulty.solved:,} have at least 0.5 in every "
        f"run, {difficulty.unsolved:,} in none; {difficulty.missing:,} have no value in some run"
    )
    means = [row.mean for row in difficulty.items]
    low, high = (0.0, 1.0) if min(means) >= 0 and max(means) <= 1 else (min(means), max(means))
    histogram = draw_histogram(means, low, high)
    columns = (
        TableColumn("Query"),
        TableColumn("Kind"),
        TableColumn("Mean", numeric=True),
        *(TableColumn(name, numeric=True) for name in difficulty.runs),
    )
    rows: tuple[tuple[Text, ...], ...] = tuple(
        (
            StyledText(row.query, "quote"),
            row.kind,
            format_number(row.mean),
            *(format_number(row.values[name]) for name in difficulty.runs),
        )
        for row in difficulty.items[:MAX_ROWS]
    )
    groups = {"run": difficulty.runs, "kind": difficulty.kinds}
    lines = tuple(f"{word} {name}: mean {mean:.3f}" for word, part in groups.items() for name, mean in part.items())
    blocks: list[Block] = [
        Paragraph(summary),
        Listing(lines),
        Chart(f"Items by their mean {difficulty.metric} over the runs", histogram),
        *_draw_columns({"Mean by run": difficulty.runs, "Mean by kind of question": difficulty.kinds}),
        Heading("The hardest items", 3),
        Table(columns, rows[:ITEMS_SHOWN]),
    ]
    if rows[ITEMS_SHOWN:]:
        blocks.append(Details("More items, hardest first", (Table(columns, rows[ITEMS_SHOWN:]),), PAGE_ONLY))
    return build_section("Difficulty", *blocks)


def _list_facts(description: TestsetDescription) -> list[str]:
    """Return size, coverage and power of an evaluation set in sentences."""
    kinds = ", ".join(f"{name} {count:,}" for name, count in description.kinds.items())
    covered = f"{description.covered:,}" + (f" of {description.corpus:,}" if description.corpus is not None else "")
    facts = [
        f"{description.items:,} items: {kinds}; {description.unanswerable:,} unanswerable, "
        f"{description.reviewed:,} reviewed",
        f"gold in {covered} documents"
        + (f", {description.chunks_needed:.2f} places an item" if description.chunks_needed is not None else ""),
        f"effective size {description.effective:.0f} ({description.groups:,} groups of overlapping gold or nearly one "
        "query)",
    ]
    if description.ranks:
        counts = ", ".join(f"{name}: {count:,}" for name, count in description.ranks.items())
        facts.append(f"rank of the gold by BM25 {counts}")
    if description.detectable is not None:
        facts.append(
            f"detects a change of {description.detectable:.3f} (power 0.8, paired, deviation 0.25); a change of 0.05 "
            f"takes {description.required:,}"
        )
    return facts


def draw_columns(values: Mapping[str, float], name: str, *, shares: bool = False) -> Markup | None:
    """Draw a column with its name and value for each of some values, at most 30; None without one.

    >>> str(draw_columns({"list": 3, "table": 1}, "items by kind")).count("<rect")
    2
    """
    rows = list(values.items())[:MAX_ROWS]
    if not rows:
        return None
    most = 1.0 if shares else max(1e-9, *values.values())
    parts = []
    for index, (label, value) in enumerate(rows):
        shown = format_percent(value) if shares else f"{value:,}" if isinstance(value, int) else format_number(value)
        text = label if len(label) <= 40 else f"…{label[-39:]}"
        top = index * ROW_HEIGHT
        parts.append(
            tag(
                "g",
                tag("title", f"{label}: {shown}"),
                tag("text", text, x=250, y=top + 15, text_anchor="end", font_size=12, fill="currentColor"),
                tag(
                    "rect",
                    x=258,
                    y=top + 4,
                    width=round(COLUMN * value / most, 1),
                    height=14,
                    fill="currentColor",
                    opacity=0.55,
                ),
                tag(
                    "text",
                    shown,
                    x=264 + round(COLUMN * value / most, 1),
                    y=top + 15,
                    font_size=12,
                    fill="currentColor",
                ),
            )
        )
    return tag("svg", parts, viewBox=f"0 0 580 {len(rows) * ROW_HEIGHT}", role="img", aria_label=name, width="100%")
