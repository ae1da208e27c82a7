"""Comparison of two judges and flakiness of one: terminal, JSON and HTML."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragfault.analysis.comparison.judge_flakiness import JudgeFlakiness
from ragfault.evaluation.agreement import JudgeComparison, JudgeDisagreement
from ragfault.reports.format import clean_text, clip_text
from ragfault.reports.html.elements import Markup, clean_label, tag, wrap_table
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.output import write_report_file
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
    """Both judges, how far they agree, what metrics come to, and where they differ most."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(_summarize_judges(comparison), style="bold")]
    parts += [Text(line, style="dim") for line in _describe_judges(comparison)]
    parts += [
        Text("\nVerdicts", style="bold cyan"),
        _build_table(VERDICT_HEADINGS, _build_verdict_rows(comparison)),
    ]
    parts += [
        Text("\nMetrics", style="bold cyan"),
        _build_table(METRIC_HEADINGS, _build_metric_rows(comparison)),
    ]
    if comparison.disagreements:
        parts.append(
            Text(
                f"\nWhere they differ most, of {format_count(comparison.disagreement_count, 'item')}",
                style="bold cyan",
            )
        )
    for split in comparison.disagreements[:DIFFERENCES_SHOWN]:
        parts.append(Text.assemble((clip_text(split.trace, 40), "bold"), f"  {_format_verdict_pair(split)}"))
        parts.append(Padding(Text(clip_text(split.item, 200)), (0, 0, 0, 2)))
        parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in _format_reasons(split)]
    notes = ("", "kappa is linear and alpha ordinal for levels of relevance; 95 % intervals over traces")
    parts += [Text(line, style="dim") for line in notes]
    return render_rich(parts, width=width or shutil.get_terminal_size((100, 24)).columns, color=color)


def render_flakiness_terminal(
    flakiness: JudgeFlakiness, *, width: int | None = None, color: bool = False
) -> str:
    """How far a judge differs from itself, metric by metric."""
    from rich.text import Text

    name = clean_text(flakiness.judge).split(" ")[0]
    told = f"{name}, {flakiness.repeats} times over {format_count(flakiness.traces, 'trace')}"
    parts: list[RenderableType] = [
        Text(told, style="bold"),
        Text(f"judge {clean_text(flakiness.judge)}", style="dim"),
    ]
    if flakiness.deterministic:
        parts.append(Text("It said the same each time: no interval needs to be wider."))
    else:
        rows = [
            [
                one.metric,
                f"{one.n:,}",
                f"{one.deviation:.3f}",
                f"{100 * one.flips:.0f} %",
                "–" if one.reliability is None else f"{one.reliability:.2f}",
                f"{one.drift:.3f}",
            ]
            for one in flakiness.metrics
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


def _summarize_judges(comparison: JudgeComparison) -> str:
    names = [clean_text(name).split(" ")[0] for name in comparison.judges]
    return f"{names[0]} beside {names[1]}: {format_count(comparison.traces, 'trace')}"


def _describe_judges(comparison: JudgeComparison) -> list[str]:
    """Who the judges are, what they cost, and what they lost."""
    lines = []
    for place, judge, speed, lost in zip(
        ("first", "second"), comparison.judges, comparison.speeds, comparison.failed, strict=True
    ):
        told = f"; {format_speed(speed)}" if speed is not None else ""
        failed = f"; lost something on {format_count(lost, 'trace')}" if lost else ""
        lines.append(f"{place}: {clean_text(judge)}{told}{failed}")
    return lines


def _build_verdict_rows(comparison: JudgeComparison) -> list[list[str]]:
    return [
        [
            VERDICT_TITLES[one.kind],
            f"{one.n:,}",
            f"{one.unmatched[0]:,}, {one.unmatched[1]:,}",
            format_interval(one.accuracy, 2),
            format_interval(one.kappa, 2),
            format_interval(one.alpha, 2),
        ]
        for one in comparison.kinds
    ]


def _build_metric_rows(comparison: JudgeComparison) -> list[list[str]]:
    rows = []
    for one in comparison.metrics:
        means = [f"{mean.mean:.3f}" for mean in one.means]
        together = format_interval(one.correlation, 2)
        rows.append(
            [one.metric, one.layer, f"{one.n:,}", *means, format_interval(one.difference, 3), together]
        )
    return rows


def _format_verdict_pair(split: JudgeDisagreement) -> str:
    """What each says of an item."""
    words = [
        {True: "yes", False: "no"}[word] if isinstance(word, bool) else str(word) for word in split.values
    ]
    return f"{VERDICT_TITLES[split.kind]}: {words[0]}, {words[1]}"


def _format_reasons(split: JudgeDisagreement) -> list[str]:
    places = zip(("first", "second"), split.reasons, strict=True)
    return [f"{place}: {clip_text(reason, 300)}" for place, reason in places if reason]


# --- as a page -------------------------------------------------------------------------------------


def write_judges_html(comparison: JudgeComparison, path: str | Path, *, force: bool = False) -> Path:
    """Write a comparison of judges as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.
    """
    return write_report_file(path, render_judges_html(comparison), force=force)


def render_judges_html(comparison: JudgeComparison) -> str:
    """A comparison of judges as one HTML page; texts of traces are escaped."""
    style, script = load_assets("page.css", "agreement.css"), load_assets("theme.js", "bisection.js")
    name = clean_label(_summarize_judges(comparison), 300)
    splits = [
        [split.trace, _format_verdict_pair(split), split.item, " ".join(_format_reasons(split)) or "–"]
        for split in comparison.disagreements
    ]
    heads = ("trace", "first, second", "item", "reasons")
    sections = [
        (
            "verdicts",
            "Verdicts",
            _build_html_table(VERDICT_HEADINGS, _build_verdict_rows(comparison), "of verdicts"),
        ),
        (
            "metrics",
            "Metrics",
            _build_html_table(METRIC_HEADINGS, _build_metric_rows(comparison), "of metrics"),
        ),
        (
            "splits",
            f"Where they differ most, of {format_count(comparison.disagreement_count, 'item')}",
            _build_html_table(heads, splits, "of differences"),
        ),
    ]
    return fill_template(
        load_assets("agreement.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{name} – ragfault judge compare"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag(
            "ul", [tag("li", clean_label(line, 600)) for line in _describe_judges(comparison)], class_="facts"
        ),
        nav=tag("nav", [tag("a", text, href=f"#{at}") for at, text, _ in sections], aria_label="Sections"),
        body=Markup(
            "\n".join(tag("section", tag("h2", text), inside, id=at) for at, text, inside in sections)
        ),
    )


def _build_html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    """A table whose first column names its rows."""
    head = tag("tr", [tag("th", text, scope="col") for text in heads])
    body = [
        tag(
            "tr",
            tag("th", clean_label(row[0], 80), scope="row"),
            [tag("td", clean_label(cell, 600)) for cell in row[1:]],
        )
        for row in rows
    ]
    return wrap_table(tag("table", tag("thead", head), tag("tbody", body), class_="measured"), name)
