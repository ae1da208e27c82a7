"""Comparison of two runs: terminal, Markdown and JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.comparison.records import Comparison, MetricChange
from ragfault.report.format import LAYER_TITLES, clean_text, clip_text
from ragfault.report.markdown import syntax as md
from ragfault.report.terminal.layout import build_line, build_table, indent_line, render_rich
from ragfault.report.wording import (
    VERDICT_COLORS,
    VERDICT_GLYPHS,
    describe_pairing,
    describe_ppi,
    describe_quantile_changes,
    describe_test_terms,
    describe_unpaired,
    describe_verdict,
    explain_undecided,
    find_useful_count,
    format_change,
    format_means,
    format_metric,
    format_segment,
    group_changes,
    list_regressions,
    list_unmeasured,
    list_warnings,
    summarize_comparison,
    summarize_movers,
)
from ragfault.text.number_format import format_count, format_p_value

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


CHANGE_COLUMNS = (
    ("metric", 0), ("before → after", 0), ("difference, 95 % interval", 0), ("", 0), ("needed", 90), ("p", 100),
    ("n", 112), ("one side only", 124),
)  # fmt: skip
"""The columns of the changes, and from which width each has room."""

MAX_REGRESSIONS = 5
"""Metrics that got worse whose traces are named."""
VERDICT_SIGNS = {"worse": "🔻 **worse**", "better": "🔺 better", "steady": "steady", "cannot tell": "❔"}


def render_comparison_terminal(
    comparison: Comparison | Sequence[Comparison], *, width: int | None = None, color: bool = False
) -> str:
    """Render the changes by layer as text for a terminal, with the traces that made a metric worse.

    Several comparisons are those of segments: first a line for each, then one after the other. Texts of traces are
    printed without control characters and escape sequences.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    pages = [comparison] if isinstance(comparison, Comparison) else comparison
    parts: list[RenderableType] = [_build_segment_line(part) for part in pages if part.by is not None]
    for part in pages:
        parts += [build_line(), *_build_page(part, width)] if part.by is not None else _build_page(part, width)
    return render_rich(parts, width=width, color=color)


def build_warnings(comparison: Comparison, sentence: str = "") -> list[RenderableType]:
    """Build what keeps the runs from being fully comparable and `sentence` does not state."""
    return [build_line(("warning: ", "yellow"), clean_text(text)) for text in list_warnings(comparison, sentence)]


def build_change_table(changes: Sequence[MetricChange], width: int) -> Table:
    """Build the changes as a table, with as many columns as there is room for."""
    heads = [head for head, least in CHANGE_COLUMNS if width >= least]
    table = build_table(heads, right=("needed", "p", "n"), unbroken=set(heads) - {"metric", "one side only"})
    for change in changes:
        verdict = "identical" if change.identical else change.verdict
        cells = (
            build_line(format_metric(change)),
            build_line(format_means(change)),
            build_line(format_change(change)),
            build_line((f"{VERDICT_GLYPHS[change.verdict]} {verdict}", VERDICT_COLORS[change.verdict])),
            build_line(f"{needed:,}" if (needed := find_useful_count(change)) else ""),
            build_line(format_p_value(change.adjusted)),
            build_line(f"{change.n:,}"),
            build_line((describe_unpaired(change), "dim")),
        )
        table.add_row(*cells[: len(heads)])
    return table


def _build_page(comparison: Comparison, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _build_header(comparison),
        build_line((summarize_comparison(comparison), "bold")),
        build_line("; ".join(describe_pairing(comparison))),
        *build_warnings(comparison),
    ]
    for layer, changes in group_changes(comparison.changes):
        parts += [build_line((f"\n{LAYER_TITLES[layer]}", "bold cyan")), build_change_table(changes, width)]
        parts += [indent_line(2, (text, "dim")) for text in describe_quantile_changes(changes)]
    parts += [build_line((f"\n{line}", "dim")) for line in explain_undecided(comparison)]
    parts += build_ppi_notes(comparison)
    silent = list_unmeasured(comparison.changes)
    if silent:
        parts.append(build_line(("\nNot measured on both sides: ", "bold cyan"), (", ".join(silent), "dim")))
    lost = list_regressions(comparison.changes)
    if lost:
        parts.append(build_line(("\nWhat got worse", "bold cyan"), ("   the traces that moved most", "dim")))
        parts += [
            indent_line(2, (clean_text(change.metric), "bold"), f"   {summarize_movers(change)}")
            for change in lost[:MAX_REGRESSIONS]
        ]
        if others := lost[MAX_REGRESSIONS:]:
            parts.append(indent_line(2, (f"and of {format_count(len(others), 'other metric')}: -o FILE.md", "dim")))
    return [*parts, build_line((f"\n{describe_test_terms(comparison)}", "dim")), build_line("")]


def _build_segment_line(comparison: Comparison) -> Text:
    """Build the line of a segment at the head of several."""
    name = f"{clean_text(comparison.by or '')} {format_segment(comparison.segment)}"
    return build_line((name, "bold"), f": {summarize_comparison(comparison)}")


def build_ppi_notes(comparison: Comparison) -> list[RenderableType]:
    """Build how differences were corrected by labels."""
    sentences = describe_ppi(comparison)
    return (
        [build_line(), *(indent_line(0 if not i else 2, (text, "dim")) for i, text in enumerate(sentences))]
        if sentences
        else []
    )


def _build_header(comparison: Comparison) -> Text:
    names = f"{clip_text(comparison.baseline, 60)} → {clip_text(comparison.candidate, 60)}"
    if comparison.by is None:
        return build_line((names, "bold"))
    return build_line((f"{clean_text(comparison.by)} {format_segment(comparison.segment)}", "bold"), f"   {names}")


def render_comparison_markdown(comparison: Comparison | Sequence[Comparison]) -> str:
    """Render the changes as GitHub-flavoured Markdown; the first line states the verdict."""
    lines: list[str] = []
    for part in [comparison] if isinstance(comparison, Comparison) else comparison:
        lines += _build_markdown_section(part)
    return "\n".join(lines) + "\n"


def build_markdown_rows(changes: Sequence[MetricChange]) -> list[str]:
    """Build the changes as the lines of a Markdown table."""
    cells = [
        (
            md.format_metric(change),
            format_means(change),
            format_change(change),
            format_p_value(change.adjusted).replace("<", "&lt;"),
            f"{VERDICT_SIGNS[change.verdict]}{_format_verdict_note(change)}",
            f"{change.n:,}",
            describe_unpaired(change),
        )
        for change in changes
    ]
    heads = ("Metric", "Before → after", "Difference, 95 % interval", "p:", "", "n:", "One side only")
    return md.build_markdown_table(heads, cells)


def _format_verdict_note(change: MetricChange) -> str:
    """Format what a sign leaves unsaid."""
    word = describe_verdict(change)
    return f" {word}" if change.verdict == "cannot tell" else word.removeprefix(change.verdict)


def _build_markdown_section(comparison: Comparison) -> list[str]:
    names = " → ".join(md.escape_markdown(clip_text(run, 60)) for run in (comparison.baseline, comparison.candidate))
    part = (
        ""
        if comparison.by is None
        else f"{md.escape_markdown(comparison.by)} {md.escape_markdown(format_segment(comparison.segment))}: "
    )
    mark = "🔻 " if list_regressions(comparison.changes) else ""
    lines = [f"### {mark}{part}{md.escape_markdown(summarize_comparison(comparison))}", ""]
    lines += [
        f"{names}: {md.escape_markdown('; '.join(describe_pairing(comparison)))}. {describe_test_terms(comparison)}.",
        "",
    ]
    lines += [f"> ⚠️ {md.escape_markdown(text)}\n" for text in list_warnings(comparison)]
    for layer, changes in group_changes(comparison.changes):
        lines += [f"**{LAYER_TITLES[layer]}**", "", *build_markdown_rows(changes), ""]
        lines += build_markdown_list(describe_quantile_changes(changes))
    lines += build_markdown_list([*explain_undecided(comparison), *describe_ppi(comparison)])
    silent = list_unmeasured(comparison.changes)
    if silent:
        lines += [f"Not measured on both sides: {', '.join(map(md.format_code, silent))}.", ""]
    lost = [
        f"- {md.format_code(change.metric)}: {md.escape_markdown(summarize_movers(change))}"
        for change in list_regressions(comparison.changes)
    ]
    return [*lines, *(["**What got worse**", "", *lost, ""] if lost else [])]


def build_markdown_list(texts: Sequence[str]) -> list[str]:
    """Build sentences as a list, with an empty line after it; nothing for none."""
    return [*(f"- {md.escape_markdown(text)}" for text in texts), ""] if texts else []
