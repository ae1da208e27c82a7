"""Comparison of two judges and flakiness of one: terminal, JSON and HTML."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.analysis.comparison.judge_flakiness import JudgeFlakiness
from ragfault.evaluation.agreement import JudgeComparison, JudgeDisagreement
from ragfault.reports.format import clean_text, clip_text
from ragfault.reports.terminal.agreement import format_speed
from ragfault.reports.terminal.scorecard import render_rich
from ragfault.text.number_format import format_count, format_interval

if TYPE_CHECKING:
    from rich.console import RenderableType


VERDICT_HEADINGS = ("verdicts on", "n", "only first, only second", "alike", "kappa", "alpha")
METRIC_HEADINGS = ("metric", "layer", "n", "first", "second", "second less first", "correlation")
FLAKINESS_HEADINGS = ("metric", "n", "within a trace", "traces that move", "reliability", "drift of the mean")
DIFFERENCES_SHOWN = 10
"""How many items on which the judges differ the terminal shows."""

VERDICT_TITLES = {
    "chunk": "relevance of chunks",
    "use": "use of chunks",
    "claim": "support of claims",
    "citation": "citations",
    "fact": "expected facts",
    "recall": "what the chunks cover",
    "refusal": "refusals",
}


def render_judges_terminal(
    comparison: JudgeComparison, *, width: int | None = None, color: bool = False
) -> str:
    """Render both judges, how far they agree, what metrics come to, and where they differ most."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(summarize_judges(comparison), style="bold")]
    parts += [Text(line, style="dim") for line in describe_judges(comparison)]
    parts += [
        Text("\nVerdicts", style="bold cyan"),
        _build_table(VERDICT_HEADINGS, build_verdict_rows(comparison)),
    ]
    parts += [
        Text("\nMetrics", style="bold cyan"),
        _build_table(METRIC_HEADINGS, build_metric_rows(comparison)),
    ]
    if comparison.disagreements:
        parts.append(
            Text(
                f"\nWhere they differ most, of {format_count(comparison.disagreement_count, 'item')}",
                style="bold cyan",
            )
        )
    for split in comparison.disagreements[:DIFFERENCES_SHOWN]:
        parts.append(Text.assemble((clip_text(split.trace, 40), "bold"), f"  {format_verdict_pair(split)}"))
        parts.append(Padding(Text(clip_text(split.item, 200)), (0, 0, 0, 2)))
        parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in format_reasons(split)]
    notes = ("", "kappa is linear and alpha ordinal for levels of relevance; 95 % intervals over traces")
    parts += [Text(line, style="dim") for line in notes]
    return render_rich(parts, width=width or shutil.get_terminal_size((100, 24)).columns, color=color)


def render_flakiness_terminal(
    flakiness: JudgeFlakiness, *, width: int | None = None, color: bool = False
) -> str:
    """Render how far a judge differs from itself, metric by metric."""
    from rich.text import Text

    name = clean_text(flakiness.judge).split(" ")[0]
    summary = f"{name}, {flakiness.repeats} times over {format_count(flakiness.traces, 'trace')}"
    parts: list[RenderableType] = [
        Text(summary, style="bold"),
        Text(f"judge {clean_text(flakiness.judge)}", style="dim"),
    ]
    if flakiness.deterministic:
        parts.append(Text("It said the same each time: no interval needs to be wider."))
    else:
        rows = [
            [
                metric.metric,
                f"{metric.n:,}",
                f"{metric.deviation:.3f}",
                f"{100 * metric.flips:.0f} %",
                "–" if metric.reliability is None else f"{metric.reliability:.2f}",
                f"{metric.drift:.3f}",
            ]
            for metric in flakiness.metrics
        ]
        parts += [Text(""), _build_table(FLAKINESS_HEADINGS, rows)]
    return render_rich(parts, width=width or shutil.get_terminal_size((100, 24)).columns, color=color)


def _build_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def summarize_judges(comparison: JudgeComparison) -> str:
    names = [clean_text(name).split(" ")[0] for name in comparison.judges]
    return f"{names[0]} beside {names[1]}: {format_count(comparison.traces, 'trace')}"


def describe_judges(comparison: JudgeComparison) -> list[str]:
    """Describe who the judges are, what they cost, and what they lost."""
    lines = []
    for place, judge, speed, lost in zip(
        ("first", "second"), comparison.judges, comparison.speeds, comparison.failed, strict=True
    ):
        cost = f"; {format_speed(speed)}" if speed is not None else ""
        failed = f"; lost something on {format_count(lost, 'trace')}" if lost else ""
        lines.append(f"{place}: {clean_text(judge)}{cost}{failed}")
    return lines


def build_verdict_rows(comparison: JudgeComparison) -> list[list[str]]:
    return [
        [
            VERDICT_TITLES[agreement.kind],
            f"{agreement.n:,}",
            f"{agreement.unmatched[0]:,}, {agreement.unmatched[1]:,}",
            format_interval(agreement.accuracy, 2),
            format_interval(agreement.kappa, 2),
            format_interval(agreement.alpha, 2),
        ]
        for agreement in comparison.kinds
    ]


def build_metric_rows(comparison: JudgeComparison) -> list[list[str]]:
    rows = []
    for metric in comparison.metrics:
        means = [f"{mean.mean:.3f}" for mean in metric.means]
        together = format_interval(metric.correlation, 2)
        rows.append(
            [
                metric.metric,
                metric.layer,
                f"{metric.n:,}",
                *means,
                format_interval(metric.difference, 3),
                together,
            ]
        )
    return rows


def format_verdict_pair(split: JudgeDisagreement) -> str:
    """Format what each says of an item."""
    words = [
        {True: "yes", False: "no"}[word] if isinstance(word, bool) else str(word) for word in split.values
    ]
    return f"{VERDICT_TITLES[split.kind]}: {words[0]}, {words[1]}"


def format_reasons(split: JudgeDisagreement) -> list[str]:
    places = zip(("first", "second"), split.reasons, strict=True)
    return [f"{place}: {clip_text(reason, 300)}" for place, reason in places if reason]
