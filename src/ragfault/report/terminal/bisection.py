"""Bisection for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.comparison.records import Bisection, LayerFault
from ragfault.report.format import LAYER_TITLES, clean_text, clip_text
from ragfault.report.markdown import syntax as md
from ragfault.report.terminal.comparison import (
    build_change_table,
    build_markdown_list,
    build_markdown_rows,
    build_ppi_notes,
    build_warnings,
)
from ragfault.report.terminal.layout import build_line, indent_line, render_rich
from ragfault.report.wording import (
    BRANCH_OUTCOMES,
    combine_verdicts,
    describe_pairing,
    describe_ppi,
    describe_segment,
    describe_setting,
    describe_test_terms,
    explain_undecided,
    format_evidence,
    format_metric,
    format_ruling_reason,
    format_segment,
    format_suspect,
    format_trace_values,
    group_changes,
    list_unmeasured,
    list_warnings,
    summarize_segments,
    summarize_verdict,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


SegmentBisections = Sequence[tuple[str, Bisection]]
"""The bisections of segments, each with its name."""

VERDICT_STYLES = {"fault": "red", "no fault": "green", "cannot tell": "yellow"}
VERDICT_SIGNS = {"fault": "❌", "no fault": "✅", "cannot tell": "❔"}
OUTCOME_SIGNS = {"fault": "❌", "ruled out": "✅", "cannot tell": "❔", "not reached": "·", "not measured": "–"}

SUSPECTS_HINT = "a hint: on kinds of fault it did not learn from the first is right in 67 %, one of three in 87 %"
"""Share of the 67 trials with kinds of fault that were new to the rules when they were run (`docs/faults.md`: fresh,
fresh-2 before the rules were changed, fresh-3) in which a right stage was first, and among three."""

EXAMPLES_SHOWN = 3
"""Number of example traces shown where there is little room."""


def render_bisection_terminal(
    bisection: Bisection | SegmentBisections, *, by: str = "", width: int | None = None, color: bool = False
) -> str:
    """Render the verdict, each fault with what to look at, and the tree as it was walked, as text for a terminal.

    Of several segments (divided `by` a field) each has a line, and those at fault are shown in full. Texts of
    traces are printed without control characters and escape sequences.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    parts = (
        _build_bisection(bisection, width)
        if isinstance(bisection, Bisection)
        else _build_segments(bisection, by, width)
    )
    return render_rich(parts, width=width, color=color)


def _build_verdict(bisection: Bisection) -> RenderableType:
    return build_line(
        (f"{bisection.verdict.upper()}: ", f"bold {VERDICT_STYLES[bisection.verdict]}"),
        (summarize_verdict(bisection), "bold"),
    )


def _build_bisection(bisection: Bisection, width: int) -> list[RenderableType]:
    comparison = bisection.comparison
    names = f"{clip_text(comparison.baseline, 60)} → {clip_text(comparison.candidate, 60)}"
    parts: list[RenderableType] = [
        _build_verdict(bisection),
        build_line((f"{names}: {'; '.join(describe_pairing(comparison))}", "dim")),
    ]
    parts += build_warnings(comparison, summarize_verdict(bisection))
    for fault in bisection.faults:
        parts += _build_fault(fault)
    if bisection.segments:
        parts.append(build_line(("\nSegments", "bold cyan"), ("   by a search over every field", "dim")))
        parts += [indent_line(2, describe_segment(segment)) for segment in bisection.segments]
    if bisection.settings:
        parts.append(build_line(("\nChanged settings", "bold cyan")))
        parts += [indent_line(2, describe_setting(setting)) for setting in bisection.settings]
    parts += [*_build_tree(bisection), *_build_clues(bisection)]
    parts.append(
        build_line(("\nThe metrics of the tree", "bold cyan"), (f"   {describe_test_terms(comparison)}", "dim"))
    )
    for layer, changes in group_changes(comparison.changes):
        parts += [build_line((LAYER_TITLES[layer], "cyan")), build_change_table(changes, width)]
    parts += [build_line((f"\n{line}", "dim")) for line in explain_undecided(comparison)]
    parts += build_ppi_notes(comparison)
    silent = list_unmeasured(comparison.changes)
    if silent:
        parts.append(build_line(("Not measured on both sides: ", "dim"), ", ".join(silent)))
    return parts


def _build_segments(segments: SegmentBisections, by: str, width: int) -> list[RenderableType]:
    verdict = combine_verdicts(part for _, part in segments)
    parts: list[RenderableType] = [
        build_line(
            (f"{verdict.upper()}: ", f"bold {VERDICT_STYLES[verdict]}"), (summarize_segments(segments, by), "bold")
        )
    ]
    for name, part in segments:
        head = f"{part.verdict:<12}"
        parts.append(
            indent_line(
                2, (head, VERDICT_STYLES[part.verdict]), (format_segment(name), "bold"), f"   {summarize_verdict(part)}"
            )
        )
    for name, part in segments:
        if part.verdict == "fault":
            parts += [
                build_line((f"\n── {clean_text(by)} {format_segment(name)} ──", "bold")),
                *_build_bisection(part, width),
            ]
    return parts


def _build_fault(fault: LayerFault) -> list[RenderableType]:
    parts: list[RenderableType] = [
        build_line((f"\n{summarize_verdict(fault)}", "bold red"), f"   branch {clean_text(fault.branch)}")
    ]
    parts += [indent_line(2, f"{format_metric(change)} {format_evidence(change)}") for change in fault.evidence]
    if fault.suspects:
        parts.append(indent_line(2, (f"look at ({SUSPECTS_HINT}):", "yellow")))
    parts += [indent_line(4, format_suspect(suspect)) for suspect in fault.suspects]
    parts += [indent_line(4, f"because {clean_text(clue.text)}") for clue in fault.differences]
    parts.append(indent_line(2, ("how to fix it: ", "green"), clean_text("; ".join(fault.remedies))))
    if fault.examples:
        metric = clean_text(fault.examples[0].metric)
        parts.append(indent_line(2, ("example traces", "dim"), f", by {metric}:"))
    for example in fault.examples[:EXAMPLES_SHOWN]:
        parts.append(
            indent_line(
                4,
                (clip_text(example.trace, 60), "bold"),
                f"   {format_trace_values(example)}   {clip_text(example.query, 200)}",
            )
        )
        for word, text in (("before", example.before), ("after", example.after)):
            if text is not None:
                parts.append(indent_line(6, (f"{word}: ", "dim"), clip_text(text, 300)))
    return parts


def _build_tree(bisection: Bisection) -> list[RenderableType]:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(max_width=26)
    table.add_column(overflow="fold")
    for ruling in bisection.tree:
        glyph, style = BRANCH_OUTCOMES[ruling.outcome]
        branch = (clean_text(ruling.branch), "bold")
        table.add_row(
            build_line((f"{glyph} {ruling.outcome}", style)),
            build_line(branch),
            build_line(format_ruling_reason(ruling)),
        )
    return [build_line(("\nThe decision tree", "bold cyan")), table]


def _build_clues(bisection: Bisection) -> list[RenderableType]:
    if not bisection.differences:
        return []
    lines: list[RenderableType] = [build_line(("\nDifferences between the runs", "bold cyan"))]
    for clue in bisection.differences:
        suspects = f"   → {', '.join(clue.suspects)}" if clue.suspects else ""
        lines.append(indent_line(2, clean_text(clue.text), (suspects, "dim")))
    return lines


def render_bisection_markdown(bisection: Bisection | SegmentBisections, *, by: str = "") -> str:
    """Render the same as GitHub-flavoured Markdown; the first line is the verdict."""
    if isinstance(bisection, Bisection):
        heading = f"### {VERDICT_SIGNS[bisection.verdict]} {bisection.verdict}: "
        heading += md.escape_markdown(summarize_verdict(bisection))
        return "\n".join([heading, "", *_build_markdown_section(bisection)]) + "\n"
    verdict = combine_verdicts(part for _, part in bisection)
    lines = [f"### {VERDICT_SIGNS[verdict]} {verdict}: {md.escape_markdown(summarize_segments(bisection, by))}", ""]
    cells = [
        (
            f"{VERDICT_SIGNS[part.verdict]} {part.verdict}",
            md.escape_markdown(format_segment(name)),
            md.escape_markdown(summarize_verdict(part)),
        )
        for name, part in bisection
    ]
    lines += [*md.build_markdown_table(("Verdict", md.escape_markdown(by), "In a sentence"), cells), ""]
    for name, part in bisection:
        if part.verdict == "fault":
            lines += [
                f"#### {md.escape_markdown(by)} {md.escape_markdown(format_segment(name))}",
                "",
                *_build_markdown_section(part),
            ]
    return "\n".join(lines) + "\n"


def _build_markdown_section(bisection: Bisection) -> list[str]:
    comparison = bisection.comparison
    names = f"{clip_text(comparison.baseline, 60)} → {clip_text(comparison.candidate, 60)}"
    lines = [md.escape_markdown(f"{names}: {'; '.join(describe_pairing(comparison))}."), ""]
    lines += [f"> ⚠️ {md.escape_markdown(text)}\n" for text in list_warnings(comparison, summarize_verdict(bisection))]
    for fault in bisection.faults:
        lines += _build_markdown_fault(fault)
    if bisection.segments:
        lines += ["**Segments**", "", *build_markdown_list(list(map(describe_segment, bisection.segments)))]
    if bisection.settings:
        lines += ["**Changed settings**", "", *build_markdown_list(list(map(describe_setting, bisection.settings)))]
    lines += ["**The decision tree**", ""]
    cells = [
        (
            f"{OUTCOME_SIGNS[ruling.outcome]} {ruling.outcome}",
            md.escape_markdown(ruling.branch),
            md.escape_markdown(format_ruling_reason(ruling)),
        )
        for ruling in bisection.tree
    ]
    lines += [*md.build_markdown_table(("Outcome", "Branch", "Why"), cells), ""]
    if bisection.differences:
        lines += ["**Differences between the runs**", ""]
        lines += [*(f"- {md.escape_markdown(clue.text)}" for clue in bisection.differences), ""]
    changes = [change for _, part in group_changes(comparison.changes) for change in part]
    if changes:
        heading = f"<details><summary>The metrics of the tree: {describe_test_terms(comparison)}</summary>"
        lines += [heading, "", *build_markdown_rows(changes), "", "</details>", ""]
    return [*lines, *build_markdown_list(describe_ppi(comparison))]


def _build_markdown_fault(fault: LayerFault) -> list[str]:
    lines = [f"**{md.escape_markdown(summarize_verdict(fault))}**", ""]
    lines += [f"- {md.format_code(change.metric)}: {format_evidence(change)}" for change in fault.evidence]
    lines += [f"- **Look at** ({SUSPECTS_HINT})"] if fault.suspects else []
    lines += [f"  1. {md.escape_markdown(format_suspect(suspect))}" for suspect in fault.suspects]
    lines += [f"  - {md.escape_markdown(clue.text)}" for clue in fault.differences]
    lines += [f"- **How to fix it:** {md.escape_markdown('; '.join(fault.remedies))}", ""]
    cells = [
        (
            md.escape_markdown(clip_text(example.trace, 60)),
            md.escape_markdown(clip_text(example.query, 120)),
            format_trace_values(example),
            md.escape_markdown(clip_text(example.before or "–", 240)),
            md.escape_markdown(clip_text(example.after or "–", 240)),
        )
        for example in fault.examples[:EXAMPLES_SHOWN]
    ]
    heads = ("Trace", "Query", md.format_code(fault.evidence[0].metric), "Before", "After")
    return [*lines, *([*md.build_markdown_table(heads, cells), ""] if cells else [])]
