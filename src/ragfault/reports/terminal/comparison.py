"""Comparison of two runs, and history of a sequence of runs: terminal, Markdown and JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ragfault.analysis import Comparison, MetricChange, MetricHistory, RunHistory
from ragfault.reports.format import LAYER_TITLES, clean_text, clip_text
from ragfault.reports.markdown import scorecard as md
from ragfault.reports.terminal.scorecard import build_line, indent_line, render_rich
from ragfault.reports.wording import (
    VERDICT_COLORS,
    VERDICT_GLYPHS,
    describe_pairing,
    describe_ppi,
    describe_test_terms,
    describe_unpaired,
    describe_verdict,
    format_change,
    format_means,
    format_metric,
    format_segment,
    group_changes,
    list_regressions,
    list_unmeasured,
    summarize_comparison,
    summarize_movers,
)
from ragfault.text.number_format import format_number, format_p_value

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


CHANGE_COLUMNS = (
    ("metric", 0),
    ("before → after", 0),
    ("difference, 95 % interval", 0),
    ("", 0),
    ("needed", 90),
    ("p", 100),
    ("n", 112),
    ("one side only", 124),
)
"""The columns of the changes, and from which width each has room."""

VERDICT_SIGNS = {"worse": "🔻 **worse**", "better": "🔺 better", "steady": "steady", "cannot tell": "❔"}


def render_comparison_terminal(
    comparison: Comparison | Sequence[Comparison], *, width: int | None = None, color: bool = False
) -> str:
    """Render the changes by layer as text for a terminal, with the traces that made a metric worse.

    Several comparisons are those of segments, one after the other. Texts of traces are printed without control
    characters and escape sequences.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    parts: list[RenderableType] = []
    for part in [comparison] if isinstance(comparison, Comparison) else comparison:
        parts += _build_page(part, width)
    return render_rich(parts, width=width, color=color)


def build_warnings(comparison: Comparison) -> list[RenderableType]:
    """Build what keeps the runs from being fully comparable."""
    return [build_line(("warning: ", "yellow"), clean_text(text)) for text in comparison.warnings]


def build_change_table(changes: Sequence[MetricChange], width: int) -> Table:
    """Build the changes as a table, with as many columns as there is room for."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    shown = [head for head, least in CHANGE_COLUMNS if width >= least]
    for head in shown:
        side: Any = "right" if head in ("needed", "p", "n") else "left"
        table.add_column(head, justify=side, overflow="fold", no_wrap=head not in ("metric", "one side only"))
    for change in changes:
        verdict = "same chunks" if change.identical else change.verdict
        cells = (
            build_line(format_metric(change)),
            build_line(format_means(change)),
            build_line(format_change(change)),
            build_line((f"{VERDICT_GLYPHS[change.verdict]} {verdict}", VERDICT_COLORS[change.verdict])),
            build_line(f"{change.needed:,}" if change.needed else ""),
            build_line(format_p_value(change.adjusted)),
            build_line(f"{change.n:,}"),
            build_line((describe_unpaired(change), "dim")),
        )
        table.add_row(*cells[: len(shown)])
    return table


def _build_page(comparison: Comparison, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _build_header(comparison),
        build_line("; ".join(describe_pairing(comparison))),
        *build_warnings(comparison),
    ]
    for layer, changes in group_changes(comparison.changes):
        parts += [build_line((f"\n{LAYER_TITLES[layer]}", "bold cyan")), build_change_table(changes, width)]
    parts += build_ppi_notes(comparison)
    silent = list_unmeasured(comparison.changes)
    if silent:
        parts.append(build_line(("\nNot measured on both sides: ", "bold cyan"), (", ".join(silent), "dim")))
    lost = list_regressions(comparison.changes)
    if lost:
        parts.append(build_line(("\nWhat got worse", "bold cyan"), ("   the traces that moved most", "dim")))
        parts += [
            indent_line(2, (clean_text(change.metric), "bold"), f"   {summarize_movers(change)}") for change in lost
        ]
    return [
        *parts,
        build_line(f"\n{summarize_comparison(comparison)}"),
        build_line((describe_test_terms(comparison), "dim")),
        build_line(""),
    ]


def build_ppi_notes(comparison: Comparison) -> list[RenderableType]:
    """Build how differences were corrected by labels."""
    sentences = describe_ppi(comparison)
    return (
        [build_line(), *(indent_line(0 if not at else 2, (text, "dim")) for at, text in enumerate(sentences))]
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
            md.format_code(change.metric) + (" ↓" if change.better == "lower" else ""),
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
    lines += [f"> ⚠️ {md.escape_markdown(text)}\n" for text in comparison.warnings]
    for layer, changes in group_changes(comparison.changes):
        lines += [f"**{LAYER_TITLES[layer]}**", "", *build_markdown_rows(changes), ""]
    lines += build_markdown_list(describe_ppi(comparison))
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


def convert_comparison(comparison: Comparison) -> dict[str, Any]:
    """Convert to a comparison as plain values; each change says its verdict as well."""
    plain: dict[str, Any] = msgspec.to_builtins(comparison)
    plain["changes"] = [convert_change(change) for change in comparison.changes]
    return plain


def convert_change(change: MetricChange) -> dict[str, Any]:
    """Convert to a change as plain values, with its verdict."""
    return {"metric": change.metric, "verdict": change.verdict, **msgspec.to_builtins(change)}


def encode_comparison(comparison: Comparison | Sequence[Comparison]) -> str:
    """Encode a comparison as JSON, or those of segments as a list; an interval's end that is infinite is null."""
    plain = (
        convert_comparison(comparison)
        if isinstance(comparison, Comparison)
        else [convert_comparison(part) for part in comparison]
    )
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


MEANS_SHOWN = 8
"""Number of means of a metric in a line; of more, the first and the last ones are shown."""


def summarize_history(history: RunHistory) -> str:
    """Summarize where the sequence broke, in a sentence."""
    names = f"{len(history.runs)} runs, {clip_text(history.runs[0], 60)} to {clip_text(history.runs[-1], 60)}"
    over = f"over {history.traces:,} traces that are in all of {names}"
    if history.broken_at is None:
        return f"No metric of the tree is shown to have broken {over}."
    here = [clean_text(step.metric) for step in history.metrics if step.worsened and step.run == history.broken_at]
    listed = f"{', '.join(here[:4])}{', …' if len(here) > 4 else ''}"
    return f"Broke at {clip_text(history.broken_at, 60)}: {len(here)} metrics worse ({listed}) {over}."


def _get_verdict(step: MetricHistory) -> str:
    return "cannot tell" if step.run is None else "worse" if step.worsened else "better"


def _format_means(step: MetricHistory) -> str:
    """Format the means, run by run."""
    texts = [format_number(mean) for mean in step.means]
    if len(texts) > MEANS_SHOWN:
        texts[MEANS_SHOWN // 2 : -MEANS_SHOWN // 2] = ["…"]
    return " ".join(texts)


def _format_change_point(step: MetricHistory) -> str:
    """Format where a metric changed, and between which runs that may have been."""
    if step.run is None or step.between is None:
        return ""
    first, last = (clip_text(name, 60) for name in step.between)
    return f"at {clip_text(step.run, 60)}" + (f" ({first} to {last})" if first != last else "")


def render_history_terminal(history: RunHistory, *, width: int | None = None, color: bool = False) -> str:
    """Render each metric with its means and the run at which it changed, as text for a terminal."""
    from rich.table import Table

    style = "red" if history.broken_at is not None else "yellow"
    parts: list[RenderableType] = [build_line((summarize_history(history), f"bold {style}"))]
    parts += [build_line(("warning: ", "yellow"), clean_text(text)) for text in history.warnings]
    for layer, title in LAYER_TITLES.items():
        mine = [step for step in history.metrics if step.layer == layer]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for head in ("metric", "means, run by run", "", "where", "p"):
            table.add_column(head, overflow="fold")
        for step in mine:
            verdict = _get_verdict(step)
            sign = build_line((f"{VERDICT_GLYPHS[verdict]} {verdict}", VERDICT_COLORS[verdict]))
            where = build_line(_format_change_point(step))
            table.add_row(
                build_line(_format_metric(step)),
                build_line(_format_means(step)),
                sign,
                where,
                build_line(format_p_value(step.adjusted)),
            )
        if mine:
            parts += [build_line((f"\n{title}", "bold cyan")), table]
    if history.broken_at is not None:
        at = history.runs.index(history.broken_at)
        names = f"{clip_text(history.runs[at - 1], 60)} and {clip_text(history.broken_at, 60)}"
        parts.append(indent_line(0, f"\nWhich layer it was: bisect {names}."))
    return render_rich(parts, width=width, color=color)


def _format_metric(step: MetricHistory) -> str:
    return clean_text(step.metric) + (" ↓" if step.better == "lower" else "")


def render_history_markdown(history: RunHistory) -> str:
    """Render the same as GitHub-flavoured Markdown; the first line is the verdict."""
    mark = "❌" if history.broken_at is not None else "❔"
    rows = [
        (
            md.format_code(step.metric) + (" ↓" if step.better == "lower" else ""),
            _format_means(step),
            _get_verdict(step),
            md.escape_markdown(_format_change_point(step)),
            format_p_value(step.adjusted),
        )
        for step in history.metrics
    ]
    lines = [
        f"### {mark} {md.escape_markdown(summarize_history(history))}",
        "",
        *(f"> ⚠️ {md.escape_markdown(t)}\n" for t in history.warnings),
    ]
    return "\n".join([*lines, *md.build_markdown_table(("Metric", "Means", "", "Where", "p:"), rows)]) + "\n"


def encode_history(history: RunHistory) -> str:
    """Encode a history as JSON, with the run at which it broke."""
    plain = {"broken": history.broken_at, "sentence": summarize_history(history), **msgspec.to_builtins(history)}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
