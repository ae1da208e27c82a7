"""Results of tuning for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.apps.tune.results import FrontierPoint, Gain, MeasuredPipeline, TuningResult
from ragfault.report.format import clean_text
from ragfault.report.markdown.syntax import build_markdown_table, escape_markdown
from ragfault.report.terminal.layout import build_table, render_rich
from ragfault.text.number_format import format_interval, format_number, format_p_value, format_signed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


PIPELINE_HEADINGS = ("pipeline", "metric", "recall", "precision", "IoU", "ms", "p50 ms", "p95 ms", "tokens")
FRONTIER_HEADINGS = (*PIPELINE_HEADINGS, "frontier")
STEP_HEADINGS = ("step", "by", "instead of", "gain", "p", "ms", "tokens", "")
GAIN_STYLES = {"gains": "green", "loses": "red", "no gain shown": "yellow"}


def build_pipeline_cells(row: MeasuredPipeline) -> tuple[str, ...]:
    """Build the cells of a row: FIGURES."""
    return (
        clean_text(row.name),
        format_interval(row, 3),
        format_number(row.recall, 3),
        format_number(row.precision, 3),
        format_number(row.iou, 3),
        format_number(row.ms, 1),
        format_number(row.p50, 1),
        format_number(row.p95, 1),
        format_number(row.tokens, 0),
    )


def build_frontier_cells(point: FrontierPoint) -> tuple[str, ...]:
    """Build the cells of a pipeline with its place on the frontier or off it: FRONTIER_HEADINGS."""
    mark = "–" if point.undominated is None else "yes" if point.undominated else ""
    return (*build_pipeline_cells(point.measured), mark)


def build_gain_cells(gain: Gain) -> tuple[str, ...]:
    """Build the cells of a comparison: STEPS."""
    return (
        "pipeline" if gain.component == gain.chosen else clean_text(gain.component),
        clean_text(gain.chosen),
        clean_text(gain.alternative),
        format_interval(gain.difference, signed=True),
        format_p_value(gain.adjusted_p),
        format_signed(gain.ms, 1),
        format_signed(gain.tokens, 0),
        gain.verdict,
    )


def summarize_tuning(result: TuningResult) -> str:
    """Return what is recommended and why, in a line."""
    return clean_text(result.summary[0]) if result.summary else "Nothing was measured."


def describe_tuning_terms(result: TuningResult) -> str:
    """Describe on how many questions it rests, and what it took."""
    bounds = f" subject to {', '.join(map(str, result.bounds))}" if result.bounds else ""
    return (
        f"{clean_text(result.metric)}{bounds} · {result.selection_questions:,} questions chose, "
        f"{result.holdout_questions:,} others measured · grouped by {clean_text(result.grouped_by)} · "
        f"{result.seconds:,.0f} s"
    )


def render_tuning_terminal(result: TuningResult, *, width: int | None = None, color: bool = False) -> str:
    """Render what is recommended first, then the pipelines, each step, and what was not taken."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(summarize_tuning(result), style="bold"),
        Text(describe_tuning_terms(result), style="dim"),
        *(Text(f"note: {clean_text(line)}", style="yellow") for line in result.notes),
        Text(f"\nrecommended:  {clean_text(result.config.name)}\nbest-scoring: {clean_text(result.best.name)}"),
        Text("\nOn the held-out questions", style="bold cyan"),
        build_table(PIPELINE_HEADINGS, [build_pipeline_cells(row) for row in result.measured]),
    ]
    parts += [
        Text(
            "\nFrontier of value, ms and tokens on the questions that chose, measured on the held-out ones",
            style="bold cyan",
        ),
        build_table(FRONTIER_HEADINGS, [build_frontier_cells(point) for point in result.frontier]),
    ]
    for title, gains in _group_gains(result):
        if gains:
            parts += [Text(f"\n{title}", style="bold cyan"), _build_gain_table(gains)]
    parts += [Text("\nIn words", style="bold cyan"), *(Text(clean_text(line)) for line in result.summary[1:])]
    return render_rich(parts, width=width or shutil.get_terminal_size((120, 24)).columns, color=color)


def _group_gains(result: TuningResult) -> tuple[tuple[str, tuple[Gain, ...]], ...]:
    return (
        ("Whole pipelines", result.gains),
        ("Gain of each step of the best-scoring pipeline", result.ablations),
        ("Alternatives tried (gain of the best-scoring pipeline over each)", result.rejected),
    )


def _build_gain_table(gains: Sequence[Gain]) -> Table:
    from rich.text import Text

    table = build_table(STEP_HEADINGS, [])
    for gain in gains:
        *cells, shown = build_gain_cells(gain)
        table.add_row(*cells, Text(shown, style=GAIN_STYLES[shown]))
    return table


def render_tuning_markdown(result: TuningResult) -> str:
    """Render the same as the terminal's, as Markdown."""
    lines = [
        "# Tuning",
        "",
        f"**{escape_markdown(summarize_tuning(result))}**",
        "",
        escape_markdown(describe_tuning_terms(result)),
        "",
    ]
    lines += [f"- {escape_markdown(line)}" for line in result.notes]
    lines += ["", f"Recommended: `{clean_text(result.config.name)}`", ""]
    lines += [f"Best-scoring: `{clean_text(result.best.name)}`", "", "## On the held-out questions", ""]
    heads = [result.metric if head == "metric" else head for head in PIPELINE_HEADINGS]
    lines += build_markdown_table(heads, [_escape_cells(build_pipeline_cells(row)) for row in result.measured])
    for title, gains in _group_gains(result):
        if gains:
            lines += [
                "",
                f"## {title}",
                "",
                *build_markdown_table(STEP_HEADINGS, [_escape_cells(build_gain_cells(gain)) for gain in gains]),
            ]
    lines += [
        "",
        "## Frontier",
        "",
        *build_markdown_table(
            [*heads, "frontier"], [_escape_cells(build_frontier_cells(point)) for point in result.frontier]
        ),
    ]
    lines += ["", "## In words", "", *(f"- {escape_markdown(line)}" for line in result.summary)]
    return "\n".join(lines) + "\n"


def _escape_cells(cells: Sequence[str]) -> list[str]:
    return [escape_markdown(text) for text in cells]
