"""Description of an evaluation set as one HTML page with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ragfault.apps.testsets.description import TestsetDescription
from ragfault.apps.testsets.difficulty import TestsetDifficulty
from ragfault.report.charts.svg import draw_histogram, tag
from ragfault.report.html.environment import render_page
from ragfault.text.number_format import format_number, format_percent

MAX_ROWS = 30
"""Rows of a table or of a picture at most."""
COLUMN = 240
ROW_HEIGHT = 22


def render_testset_html(name: str, description: TestsetDescription, difficulty: TestsetDifficulty | None = None) -> str:
    """Render the description of an evaluation set, and its difficulty where runs were measured, as one HTML page."""
    sections = [("set", "The set"), ("kinds", "Kinds"), ("coverage", "Coverage")]
    if difficulty is not None:
        sections.append(("difficulty", "Difficulty"))
    return render_page(
        "testset.html",
        ("page.css",),
        ("theme.js", "open_theme.js"),
        package="ragfault.apps.testsets.report",
        name=name,
        facts=list_facts(description),
        sections=sections,
        warnings=description.warnings,
        kinds=draw_columns(description.kinds, "items by kind of question"),
        documents=draw_columns({part.document: part.items for part in description.documents}, "items by document"),
        topics=draw_columns(
            dict(sorted(description.topics.items(), key=lambda pair: (pair[1], pair[0]))[:MAX_ROWS]),
            "share of the passages of a topic that have gold",
            shares=True,
        ),
        uncovered=description.uncovered,
        difficulty=difficulty,
        pictures=_draw_difficulty(difficulty) if difficulty is not None else [],
        rows=_list_rows(difficulty) if difficulty is not None else [],
    )


def list_facts(description: TestsetDescription) -> list[str]:
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


def _draw_difficulty(difficulty: TestsetDifficulty) -> list[tuple[str, Markup | None]]:
    means = [row.mean for row in difficulty.items]
    low, high = (0.0, 1.0) if min(means) >= 0 and max(means) <= 1 else (min(means), max(means))
    return [
        (f"items by their mean {difficulty.metric} over the runs", draw_histogram(means, low, high)),
        (f"mean {difficulty.metric} by run", draw_columns(difficulty.runs, "mean by run")),
        (f"mean {difficulty.metric} by kind of question", draw_columns(difficulty.kinds, "mean by kind")),
    ]


def _list_rows(difficulty: TestsetDifficulty) -> Sequence[Sequence[str]]:
    return [
        (row.query, row.kind, format_number(row.mean), *(format_number(row.values[name]) for name in difficulty.runs))
        for row in difficulty.items[:MAX_ROWS]
    ]
